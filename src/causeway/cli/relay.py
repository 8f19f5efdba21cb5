"""``causeway relay``: a process that carries messages between two served lakes."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.live import Live
from rich.table import Table

from causeway.cli import shell
from causeway.cli.watch import notes, results
from causeway.model.errors import InvalidInput

if TYPE_CHECKING:
    from causeway.service.faults import FaultSettings
    from causeway.service.ibc.relay_plan import RelaySettings
    from causeway.service.ibc.relaying import Pacing, Progress

TO = ("both", "a", "b")


def command(
    a: Annotated[str, typer.Argument(help="Address of one served lake, as http://HOST:PORT.", show_default=False)],
    b: Annotated[str, typer.Argument(help="Address of the other.", show_default=False)],
    name: Annotated[str, typer.Option(help="Name or number of the fee account.")] = "relay",
    to: Annotated[str, typer.Option(help="Bring what goes to: both, a, b.")] = "both",
    connection: Annotated[
        list[str] | None,
        typer.Option(metavar="CHAIN/REMOTE", help="Only this connection; may be repeated.", show_default=False),
    ] = None,
    min_batch: Annotated[int, typer.Option(min=1, help="Wait for that many packets and receipts ...")] = 1,
    max_wait: Annotated[int, typer.Option(min=0, help="... but not longer than so many blocks.")] = 0,
    max_packets: Annotated[int, typer.Option(min=0, help="Bring at most so many in one pass; 0: all.")] = 0,
    proofs_per_header: Annotated[
        int, typer.Option(min=0, help="At most so many proofs for one header; 0: any number.")
    ] = 0,
    max_calls: Annotated[int, typer.Option(min=2, max=200, help="Calls in one transaction.")] = 30,
    cleanup_after: Annotated[int, typer.Option(min=1, help="Clean up once so many receipts can go.")] = 100,
    poll: Annotated[float, typer.Option(min=0.01, max=3600, help="Seconds between two looks.")] = 0.5,
    once: Annotated[bool, typer.Option("--once", help="End when there is nothing left to bring.")] = False,
    metrics_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Serve metrics for Prometheus here.", show_default=False)
    ] = None,
    fault: Annotated[
        str, typer.Option(metavar="loss=P,delay=N,duplicate=P", help="Lose, delay, double own transactions.")
    ] = "",
    seed: Annotated[int, typer.Option(min=0, help="What the faults are drawn from.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a pass that did something.")] = False,
) -> int:
    """Carry packets and receipts between two served lakes, with proofs.

    All it knows it reads from the two chains, so it may be killed and started again at any time, and run beside others.

    [bold]Example[/bold]: causeway relay http://127.0.0.1:8421 http://127.0.0.1:8422 --once
    """
    from causeway.service.faults import FaultSettings
    from causeway.service.ibc.relay_plan import RelaySettings
    from causeway.service.ibc.relaying import Pacing

    if to not in TO:
        raise InvalidInput(f"--to: {to!r}; allowed: {', '.join(TO)}")
    settings = RelaySettings(
        min_batch=min_batch,
        max_wait=max_wait,
        max_packets=max_packets,
        proofs_per_header=proofs_per_header,
        max_calls=max_calls,
        cleanup_after=cleanup_after,
    )
    faults = FaultSettings.parse(fault)
    view = _View(as_json)
    with view:
        progress = asyncio.run(
            _relay(
                (a, b), name, connection or (), to, settings, Pacing(poll=poll), faults, seed, once, metrics_port, view
            )
        )
    if not as_json:
        results().print(_table(progress))
    hopeless = [item for item in progress if item.state in ("frozen", "expired", "refused")]
    for item in hopeless:
        shell.tell(f"{item.direction}: {item.state}: {item.why}")
    return shell.BROKEN if hopeless else shell.OK


async def _relay(
    urls: tuple[str, str],
    name: str,
    only: Sequence[str],
    to: str,
    settings: RelaySettings,
    pacing: Pacing,
    faults: FaultSettings,
    seed: int,
    once: bool,
    metrics_port: int | None,
    view: _View,
) -> list[Progress]:
    from causeway.service.ibc.client import LakeClient, ServiceError
    from causeway.service.ibc.relay_metrics import serve_metrics
    from causeway.service.ibc.relaying import Relaying, directions_between

    async with LakeClient(urls[0]) as a, LakeClient(urls[1]) as b:
        try:
            directions, rules = await directions_between(a, b, only, to)
        except ServiceError as error:
            raise InvalidInput(str(error)) from None
        relaying = Relaying(
            {"a": a, "b": b}, directions, rules, settings, pacing, name, faults, seed, report=view.update
        )
        view.progress = relaying.progress
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, relaying.stop)
        with serve_metrics(relaying, metrics_port):
            await (relaying.until_idle() if once else relaying.forever())
        return relaying.progress


class _View:
    """What a user sees meanwhile: a table on a terminal, JSON lines if asked for, else nothing."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self.progress: list[Progress] = []
        console = notes()
        self._live = (
            Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal and not as_json else None
        )
        self._told: dict[str, int] = {}

    def update(self, progress: Progress) -> None:
        """Show what a pass came to."""
        way = str(progress.direction)
        if self._as_json and (progress.transactions != self._told.get(way, 0) or progress.why):
            self._told[way] = progress.transactions
            print(json.dumps(progress.as_json()), flush=True)
        elif self._live is not None:
            self._live.update(_table(self.progress))

    def __enter__(self) -> None:
        if self._live is not None:
            self._live.start()

    def __exit__(self, *failure: object) -> None:
        if self._live is not None:
            self._live.stop()


def _table(progress: Sequence[Progress]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("direction")
    for title in ("state", "left", "oldest", "transactions", "headers", "messages", "accepted", "redundant", "refused"):
        table.add_column(title, justify="left" if title == "state" else "right")
    table.add_column("fees wasted", justify="right")
    for item in progress:
        account = item.account
        numbers = (item.backlog, f"{item.oldest_age} blocks", item.transactions, item.headers, item.messages)
        counts = (account.get(name, 0) for name in ("accepted", "redundant", "refused"))
        fees = f"{account.get('wasted', 0)} of {account.get('fees', 0)}"
        table.add_row(str(item.direction), item.state, *map(str, (*numbers, *counts)), fees)
    return table
