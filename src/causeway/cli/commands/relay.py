"""``causeway relay``: a process that relays messages between two served lakes."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from causeway_proofs.errors import InvalidInput
from rich.live import Live
from rich.table import Table

from causeway.cli import shell
from causeway.cli.options import argument, option
from causeway.cli.output.progress import stderr_console, stdout_console
from causeway.cli.protocol_options import DeclaringCommand, declare_options, merge_options, reject_other_options
from causeway.protocols.registry import find_protocol, protocol_names
from causeway.protocols.shared.command_options import CommandOption
from causeway.service.journal import AUTOMATIC, LineJournal, parse_level

if TYPE_CHECKING:
    from causeway.service.journal import Journal
    from causeway.service.relay.process import Relay, RelayOptions, RelayProcess, RelayProgress

RELAY_HELP = """Relay messages and proofs between two served lakes of one protocol, until Ctrl-C.

A relay has no state of its own: kill and restart it at any time, or run several side by side.

[bold]Example[/bold]: causeway relay http://127.0.0.1:8421 http://127.0.0.1:8422 --once

"""

TO_OPTION = ("both", "a", "b")

SIGNALS = (signal.SIGINT, signal.SIGTERM)

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""First and longest pause in seconds between two attempts to reach a lake."""

TEXTS = 2
"""Text columns of the table; the others are numbers."""


KEYS, CARRIED, FAULTS, OUTPUT = "Keys and certificates", "Traffic", "Faults", "Output"


def _command(
    a: Annotated[str, argument("Address of one served lake, as http://HOST:PORT.")],
    b: Annotated[str, argument("Address of the other.")],
    key: Annotated[
        Path | None, option("Key file that signs for both lakes; without one, new keys.", panel=KEYS)
    ] = None,
    key_a: Annotated[Path | None, option("Key file for A alone.", panel=KEYS)] = None,
    key_b: Annotated[Path | None, option("Key file for B alone.", panel=KEYS)] = None,
    ca: Annotated[Path | None, option("CA certificates (PEM) to trust instead of the system's.", panel=KEYS)] = None,
    to: Annotated[str, option("Relay messages to: both, a, b.", panel=CARRIED, show_default=True)] = "both",
    connection: Annotated[
        list[str] | None, option("Only this connection; may be repeated.", metavar="CHAIN/COUNTERPARTY", panel=CARRIED)
    ] = None,
    poll: Annotated[
        float, option("Seconds between two polls.", panel=CARRIED, min=0.01, max=3600, show_default=True)
    ] = 0.5,
    once: Annotated[bool, option("Exit when no messages are left to relay.", "--once", panel=CARRIED)] = False,
    metrics_port: Annotated[
        int | None, option("Serve metrics for Prometheus here.", panel=OUTPUT, min=0, max=65535)
    ] = None,
    fault: Annotated[
        str,
        option(
            "Drop, delay or duplicate the relay's own transactions.",
            metavar="loss=P,delay=N,duplicate=P",
            panel=FAULTS,
            show_default=True,
        ),
    ] = "",
    seed: Annotated[int, option("Seed of the faults.", panel=FAULTS, min=0, show_default=True)] = 0,
    as_json: Annotated[
        bool, option("Print one JSON object per pass that did something.", "--json", panel=OUTPUT)
    ] = False,
    log_level: Annotated[
        str, option("Minimum log level: debug, info, warning, error, none.", panel=OUTPUT, show_default=True)
    ] = AUTOMATIC,
    **options: Any,
) -> int:
    from causeway.service.keys.key_files import read_key
    from causeway.service.relay.faults import FaultSettings
    from causeway.service.relay.process import RelayOptions

    if to not in TO_OPTION:
        raise InvalidInput(f"--to: {to!r}; allowed: {', '.join(TO_OPTION)}")
    faults = FaultSettings.parse(fault)
    for_a, for_b = (None if path is None else read_key(path) for path in (key_a or key, key_b or key))
    wanted = RelayOptions(for_a, for_b, ca, connection or (), to, poll, metrics_port, faults, seed, options)
    view = _View(as_json)
    journal = LineJournal("relay", parse_level(log_level, terminal=view.is_shown))
    with view:
        progress = asyncio.run(_Process(a, b, wanted, once, view, journal).run())
    if not as_json and progress:
        stdout_console().print(view.table(progress))
    hopeless = [item for item in progress if item.hopeless]
    for item in hopeless:
        shell.print_line(f"{item.direction}: {item.state}: {shell.to_printable(item.why)}")
    return shell.FAILED if hopeless else shell.OK


class _Process:
    """A relay process: it waits for its lakes, relays, and stops on a signal."""

    def __init__(self, a: str, b: str, wanted: RelayOptions, once: bool, view: _View, journal: Journal) -> None:
        self._a, self._b, self._wanted, self._once, self._view, self._journal = a, b, wanted, once, view, journal
        self._relaying: RelayProcess | None = None
        self._work: asyncio.Task[Sequence[RelayProgress]] | None = None

    async def run(self) -> Sequence[RelayProgress]:
        """Relay until nothing is left (``--once``) or a signal arrives; return the progress.

        After the first signal passes may finish (``Pacing.grace``); a second one ends the process at once.
        """
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._stop, number)
        self._work = asyncio.create_task(self._carry())
        try:
            progress = await self._work
        except asyncio.CancelledError:
            progress = ()
        self._journal.info("stopped")
        return progress

    def _stop(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        for known in SIGNALS:
            loop.remove_signal_handler(known)
        self._journal.info("stopping", signal=signal.Signals(number).name)
        if self._relaying is not None:
            self._relaying.stop()
        elif self._work is not None:
            self._work.cancel()

    async def _carry(self) -> Sequence[RelayProgress]:
        async with AsyncExitStack() as stack:
            relay, relaying = await self._wait_for_lakes(stack)
            self._view.columns, self._view.progress = relay.columns, relaying.progress
            self._relaying = relaying
            await (relaying.until_idle() if self._once else relaying.forever())
            return relaying.progress

    async def _wait_for_lakes(self, stack: AsyncExitStack) -> tuple[Relay, RelayProcess]:
        """Return the process between both lakes; without ``--once`` wait for unreachable lakes."""
        from causeway.service.relay.process import LakeDown

        for tried in count():
            try:
                return await self._connect(stack)
            except LakeDown as error:
                if self._once:
                    raise
                pause = min(FIRST_PAUSE * 2 ** min(tried, 30), LONGEST_PAUSE)
                self._journal.warning("waiting", seconds=pause, why=error)
                await asyncio.sleep(pause)
        raise AssertionError("it is tried for ever")

    async def _connect(self, stack: AsyncExitStack) -> tuple[Relay, RelayProcess]:
        from causeway.service.relay.process import find_relay

        protocol, relay = await find_relay(self._a, self._b, self._wanted.ca)
        reject_other_options(self._wanted.options, _options(), relay.options, protocol)
        process = relay.between(self._a, self._b, self._wanted, self._view.update, self._journal)
        return relay, await stack.enter_async_context(process)


class _View:
    """Live output: a table on a terminal, JSON lines on request, else nothing."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self.progress: Sequence[RelayProgress] = ()
        self.columns: Sequence[str] = ()
        console = stderr_console()
        self._live = (
            Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal and not as_json else None
        )
        self._reported: dict[str, tuple[int, int, str]] = {}

    @property
    def is_shown(self) -> bool:
        """Return True if a table is shown."""
        return self._live is not None

    def update(self, progress: RelayProgress) -> None:
        """Show the result of a pass."""
        way = str(progress.direction)
        report = progress.transactions, progress.failures, progress.why
        known = self._reported.get(way, (0, 0, ""))
        if self._as_json and (report[0] != known[0] or (progress.why and report != known)):
            self._reported[way] = report
            print(json.dumps(progress.as_json()), flush=True)
        elif self._live is not None:
            self._live.update(self.table(self.progress))

    def table(self, progress: Sequence[RelayProgress]) -> Table:
        """Return the table: a row a direction."""
        table = Table(box=None, pad_edge=False)
        for place, title in enumerate(self.columns):
            table.add_column(title, justify="left" if place < TEXTS else "right")
        for item in progress:
            table.add_row(*item.cells())
        return table

    def __enter__(self) -> None:
        if self._live is not None:
            self._live.start()

    def __exit__(self, *failure: object) -> None:
        if self._live is not None:
            self._live.stop()


def _options() -> list[CommandOption]:
    """Return the options of all protocols, each once; the help names the protocols of each."""
    relays = {name: find_protocol(name).part("relay") for name in protocol_names("relay")}
    found = []
    for each in merge_options([relay.options for relay in relays.values()]):
        owners = [name for name, relay in relays.items() if each.name in {own.name for own in relay.options}]
        only = "" if len(owners) == len(relays) else f" Only {', '.join(owners)}."
        found.append(replace(each, help=each.help + only))
    return found


def build() -> DeclaringCommand:
    """Build the command with the relay options of all protocols.

    Returns:
        The command.
    """
    carried = [
        f"Lakes of [bold]{name}[/bold]: {find_protocol(name).part('relay').about}" for name in protocol_names("relay")
    ]
    return declare_options(
        _command, RELAY_HELP + "\n\n".join(carried), {"connection": _options()}, {"connection": CARRIED}
    )
