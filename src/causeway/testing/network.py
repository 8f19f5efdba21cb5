"""Networks in memory for tests: ``causeway.Network``, and types of the pytest fixtures.

A test builds a network, sends messages, injects faults and inspects the result. ``MakeNetwork`` and ``ForkNetwork``
annotate the fixtures of the pytest plugin.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

import cbor2
import numpy as np
from causeway_proofs.errors import InvalidInput, describe_os_error

from causeway.core.text import format_value, suggest_known
from causeway.core.vocabulary import RejectCode
from causeway.programs.catalogue import ProgramClass, bind_classes, find_program_class
from causeway.programs.outputs import BALANCE, balance_from_words
from causeway.programs.scalar import Program
from causeway.protocols.registry import DEFAULT
from causeway.protocols.shared.execution import PROGRAM_TABLE
from causeway.scenarios.scenario import read_scenario_document
from causeway.testing import declarations
from causeway.testing.actions import SendingNetwork
from causeway.testing.engine import Document, Engine
from causeway.testing.errors import NoAnswer
from causeway.testing.handles import DEFAULT_ROUNDS, LAST_TICK, ROUNDS, SentMessage, require_bounded
from causeway.testing.messages import KINDS, STATUSES, Messages, build_rows, is_number_name
from causeway.testing.recent_networks import note_network

if TYPE_CHECKING:
    from causeway.network import network as lakes

__all__ = ["ForkNetwork", "MakeNetwork", "Network", "Snapshot"]

CURRENT_FOLDER = "cw.Network"
"""Source named in errors in place of a scenario file."""


class Network(SendingNetwork):
    """A network of chains in the memory of this process; ``now`` is the next tick.

    It runs the kernels of ``causeway run``. Equal calls give equal roots.
    """

    def __init__(
        self,
        chains: int | Iterable[str | Mapping[str, Any]] = 2,
        programs: Iterable[declarations.Deploy] = (),
        *,
        protocol: declarations.ProtocolName = DEFAULT,
        options: Mapping[str, Any] | None = None,
        seed: int = 0,
        faults: Iterable[Mapping[str, Any]] = (),
        skip: float = 0.0,
        seconds_per_tick: float = 1.0,
        callers: int | None = declarations.CALLER_BALANCE,
        run_twice: bool = True,
    ) -> None:
        """Create a network.

        Args:
            chains: Number of chains (``chain-0`` and so on), their names, or tables as ``[[chains]]`` of a scenario.
            programs: Programs on the chains.
            protocol: As in a scenario.
            options: As in a scenario.
            seed: As in a scenario.
            faults: As in a scenario.
            skip: As in ``[transport]`` of a scenario.
            seconds_per_tick: As in a scenario.
            callers: Initial balance of the programs behind ``call``, one a chain; None: no such programs.
            run_twice: Run the handlers of each block twice, so that one that reads a clock or random numbers raises
                ``NotDeterministic``.

        Raises:
            InvalidInput: An argument is invalid; the text names it.
        """
        faults = list(faults)
        for key, value in (("options", options), *((f"faults[{place}]", one) for place, one in enumerate(faults))):
            if value is not None and not isinstance(value, Mapping):
                raise InvalidInput(f"{key}: {format_value(value)}: must be a table (a dict)")
        sections = declarations.chain_sections(chains)
        bound: dict[str, ProgramClass] = {}
        document: Document = {
            "network": {"protocol": protocol, "seed": seed, "seconds_per_tick": seconds_per_tick},
            "options": dict(options or {}),
            "chains": sections,
            "programs": declarations.program_sections(
                programs, declarations.plain_chain_names(sections), callers, bound
            ),
        }
        if skip:
            document["transport"] = {"skip": skip}
        if found := [dict(fault) for fault in faults]:
            document["faults"] = found
        self._begin(Engine.create(document, CURRENT_FOLDER, bound))
        self._engine.twice = run_twice

    @classmethod
    def in_memory(cls, path: str | os.PathLike[str], overrides: Mapping[str, str] | None = None) -> Self:
        """Create the network of a scenario file without traffic, or with a script.

        Args:
            path: The scenario file.
            overrides: TOML values by dotted key of the file.

        Raises:
            InvalidInput: The scenario is invalid, or has other traffic.
        """
        document = read_scenario_document(path, overrides)
        network = cls.__new__(cls)
        network._begin(Engine.create(document, str(path)))
        return network

    @staticmethod
    def from_scenario(
        path: str | os.PathLike[str],
        overrides: Mapping[str, str] | None = None,
        *,
        lake: str | None = None,
        resume: bool = False,
        waiting: Callable[[], None] = lambda: None,
    ) -> lakes.LakeNetwork:
        """Create or resume the network of a scenario file on a lake, as ``causeway run`` does.

        It supports any traffic and size, and runs on Spark by default. Tests cannot change it.

        Args:
            path: The scenario file.
            overrides: TOML values by dotted key of the file.
            lake: Folder or URI; None: a temporary folder.
            resume: Continue the network of an existing lake.
            waiting: Called when the claim of a possibly dead run has to be watched.

        Raises:
            InvalidInput: The scenario is invalid; ``LakeError`` for problems of the lake.
        """
        from causeway.network.network import LakeNetwork as OnLake

        return OnLake.from_scenario(path, overrides, lake=lake, resume=resume, waiting=waiting)

    # ---- state

    def __repr__(self) -> str:
        """Return protocol, size and progress on one line."""
        own = [name for name in self.programs if not name.startswith(declarations.CALLERS)]
        size = f"{len(self.chains)} chains, {len(own)} programs"
        return f"<Network {self.protocol}: {size}, height {self.height}, next tick {self.now}>"

    @property
    def height(self) -> int:
        """Number of ticks run: those with events."""
        return self._engine.memory.line.height

    def number_of(self, program: str) -> int:
        """Return the number of a program. Raises ``InvalidInput``."""
        return self._program(program, "program")

    def state_of(self, program: str) -> Any:
        """Return the state of a program.

        Args:
            program: Name of the program.

        Returns:
            The stored value of a scalar program, the columns of a vector program's row, or None without a state.

        Raises:
            InvalidInput: The name is unknown.
        """
        number = self._program(program, "program")
        for name, frame in self._engine.memory.frames.items():
            if not name.startswith(PROGRAM_TABLE) or not (found := frame["program"] == np.uint64(number)).any():
                continue
            schema = self._engine.kernel.tables()[name].schema
            (row,) = frame.filter(found).to_table(schema).to_pylist()
            with bind_classes(self._engine.bound):
                scalar = issubclass(find_program_class(name.removeprefix(PROGRAM_TABLE)), Program)
            return cbor2.loads(row["state"])[0] if scalar else row
        return None

    program_state = state_of

    def balance(self, program: str) -> int:
        """Return the balance of a program from its initial balance and its messages.

        It is equal under all protocols: it excludes what a protocol grants programs for fees, and the ``fees`` they
        pay. ``account`` includes both. 0 where nothing is installed.

        Args:
            program: Name of the program.

        Raises:
            InvalidInput: The name is unknown.
        """
        number = self._program(program, "program")
        programs = self._engine.topology.programs.select(["number", "balance"]).to_pylist()
        initial = next((int(row["balance"] or 0) for row in programs if row["number"] == number), 0)
        extra = self._engine.log.issued.get(number, initial) - initial
        return self.account(program) - extra + self.fees(program)

    def fees(self, program: str) -> int:
        """Return the fees and storage costs that a program has paid.

        Args:
            program: Name of the program.

        Raises:
            InvalidInput: The name is unknown.
        """
        return self._engine.log.program_costs(self._program(program, "program"))

    def account(self, program: str) -> int:
        """Return the account balance of a program on its chain; 0 where nothing is installed.

        Args:
            program: Name of the program.

        Raises:
            InvalidInput: The name is unknown.
        """
        accounts = self._engine.memory.frames["accounts"]
        found = accounts.filter(accounts["program"] == np.uint64(self._program(program, "program")))
        return balance_from_words(*(found[name][0] for name in BALANCE)) if len(found) else 0

    def messages(
        self,
        *,
        kind: declarations.MessageKind | None = None,
        sender: str | None = None,
        receiver: str | None = None,
        method: str | None = None,
        status: declarations.MessageStatus | None = None,
        reject: declarations.RejectName | RejectCode | None = None,
        since: int | None = None,
    ) -> Messages:
        """Return the messages so far that match all arguments.

        Args:
            kind: Column ``kind``; None: any.
            sender: Column ``sender``; None: any.
            receiver: Column ``receiver``; None: any.
            method: Column ``method``; None: any.
            status: Column ``status``; None: any.
            reject: Column ``reject``; None: any.
            since: Earliest tick; None: any.

        Raises:
            InvalidInput: No message can have the value: an unknown kind, status or program.
        """
        wanted = {"kind": kind, "sender": sender, "receiver": receiver, "method": method, "status": status}
        wanted["reject"] = reject.name if isinstance(reject, RejectCode) else reject
        given = {name: value for name, value in wanted.items() if value is not None}
        for name, known in (("kind", KINDS), ("status", STATUSES), ("reject", [code.name for code in RejectCode])):
            if name in given and given[name] not in known:
                raise InvalidInput(f"messages: {name}: {suggest_known(name, given[name], known)}")
        for name in ("sender", "receiver"):
            if name in given and given[name] not in self._numbers() and not is_number_name(given[name]):
                raise InvalidInput(f"messages: {name}: {suggest_known('program', given[name], self._numbers())}")
        if since is not None:
            require_bounded("messages: since", since, least=0)
        return Messages(build_rows(self._engine.log, self._names(), self._caller_orders(), given, since))

    def trace(self) -> str:
        """Return a timeline of all messages and changes."""
        log = self._engine.log
        messages = [each for root in log.roots(self._caller_orders()) for each in log.tree(root)]
        messages += [(0, each) for each in log.refused]
        return self._names().timeline(messages, log, self._engine.changes())

    def root(self) -> str:
        """Return a digest of the last roots of all chains; equal networks have equal digests."""
        return self._engine.memory.root()

    # ---- time

    def tick(self, ticks: int = 1) -> int:
        """Advance by a number of ticks; return the next tick. Ticks without events cost nothing."""
        require_bounded("tick", ticks, least=0, most=LAST_TICK - self.now)
        note_network(self)
        self._engine.advance(ticks)
        return self.now

    @property
    def seconds(self) -> float:
        """Seconds passed on the chains' clocks."""
        return float(self.now * self._seconds_per_tick())

    def advance(self, seconds: float) -> int:
        """Advance by at least a number of seconds, in whole ticks, and return the next tick.

        Args:
            seconds: Seconds on the chains' clocks.

        Raises:
            InvalidInput: ``seconds`` is negative or not a number.
        """
        given: object = seconds
        if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < math.inf:
            raise InvalidInput(f"advance: seconds: {format_value(seconds)}: must be a number, and not below 0")
        ticks = math.ceil(Fraction(str(seconds)) / self._seconds_per_tick())
        require_bounded("advance: ticks", ticks, least=0, most=LAST_TICK - self.now)
        return self.tick(ticks)

    def _seconds_per_tick(self) -> Fraction:
        return Fraction(str(self._engine.scenario.network.seconds_per_tick))

    def run(self, ticks: int | None = None, *, rounds: int = ROUNDS) -> int:
        """Run until nothing is left to do.

        If a program waits for an answer that never comes, the run stops earlier, after about a thousand rounds.

        Args:
            ticks: Exclusive last tick; None: no limit.
            rounds: Maximum number of rounds.

        Returns:
            The height.

        Raises:
            NoAnswer: Work is left after ``rounds``, as when two programs call each other for ever; the text names the
                latest messages.
        """
        __tracebackhide__ = True
        if ticks is not None:
            require_bounded("run: ticks", ticks, least=0)
        require_bounded("run: rounds", rounds, least=1)
        note_network(self)
        for _ in range(rounds):
            if not self._engine.step(ticks):
                return self.height
        if self._engine.due() is None:
            return self.height
        moved = self._names().last_active_messages(self._engine.log)
        raise NoAnswer(
            f"run: {rounds} rounds have run, and the network is not at rest: {moved}", "pending", trace=self.trace()
        )

    def until(self, predicate: Callable[[Network], object], *, ticks: int = DEFAULT_ROUNDS) -> int:
        """Run until a condition holds.

        Args:
            predicate: The condition, a function of this network.
            ticks: Maximum number of rounds.

        Returns:
            The next tick.

        Raises:
            NoAnswer: The condition stays false.
        """
        __tracebackhide__ = True
        if not callable(predicate):
            raise InvalidInput(f"until: {format_value(predicate)}: must be a function of the network")
        require_bounded("until: ticks", ticks, least=0)
        at_rest = self._run_until(lambda: bool(predicate(self)), ticks)
        if not predicate(self):
            reason = "the network is at rest" if at_rest else f"{ticks} rounds have run"
            raise NoAnswer(
                f"until: the condition is not true at tick {self.now}, and {reason}", "pending", trace=self.trace()
            )
        return self.now

    def await_all(self, *, ticks: int = DEFAULT_ROUNDS) -> list[SentMessage]:
        """Run until all messages and calls of the test have ended.

        Args:
            ticks: Maximum number of rounds.

        Returns:
            All messages and calls of the test.

        Raises:
            NoAnswer: Some have not ended; the text names them.
        """
        __tracebackhide__ = True
        require_bounded("await_all: ticks", ticks, least=0)
        at_rest = self._run_until(lambda: not self._open_messages(), ticks)
        open_ones = self._open_messages()
        unfinished = [handle.record.text for handle in open_ones]
        if unfinished:
            more = f" and {len(unfinished) - 3} more" if len(unfinished) > 3 else ""
            reason = "the network is at rest" if at_rest else f"{ticks} rounds have run"
            cause = next((found for handle in open_ones if (found := handle.cause())), "")
            names = "; ".join(unfinished[:3])
            text = f"await_all: {cause}{'; ' if cause else ''}{reason}, and there is no end of {names}{more}"
            raise NoAnswer(text, "pending", trace="\n".join(handle.trace() for handle in open_ones[:3]))
        return list(self._handles)

    # ---- copies

    def snapshot(self) -> Snapshot:
        """Return a copy of the state for ``restore``."""
        return Snapshot(self._engine.copy(), tuple(self._handles), tuple(self._faults))

    def restore(self, snapshot: Snapshot) -> None:
        """Restore a snapshot of this network, or of the network it was forked from.

        Messages sent since are discarded.

        Args:
            snapshot: A result of ``snapshot``.

        Raises:
            InvalidInput: The snapshot is of another network.
        """
        if not isinstance(snapshot, Snapshot):
            raise InvalidInput(f"restore: {format_value(snapshot)}: must be what snapshot() of this network gave")
        if snapshot.engine.origin is not self._engine.origin:
            raise InvalidInput(f"restore: a snapshot of another network ({snapshot.engine.scenario.network.protocol})")
        self._engine = snapshot.engine.copy()
        self._handles, self._faults = list(snapshot.handles), list(snapshot.faults)
        self._open = list(self._handles)
        self._records = {handle.record for handle in self._handles}

    def fork(self) -> Network:
        """Return an independent copy. Equal calls on both give equal roots."""
        other = Network.__new__(Network)
        other._begin(self._engine.copy())
        other._handles = [type(handle)(other, handle.record) for handle in self._handles]
        other._open = list(other._handles)
        other._records, other._faults = set(self._records), list(self._faults)
        return other

    def __copy__(self) -> Network:
        """Return a fork."""
        return self.fork()

    def __deepcopy__(self, _: object) -> Network:
        """Return a fork."""
        return self.fork()

    def of(self, handle: SentMessage) -> Any:
        """Return this network's copy of a message that was sent in another network.

        Args:
            handle: The message of the other network.

        Raises:
            InvalidInput: This network has no such message.
        """
        found = next((own for own in self._handles if own.record == handle.record), None)
        if found is None:
            raise InvalidInput(f"of: {handle.record.text}: this network has no such message")
        return found

    # ---- results

    def export(self, lake: str | os.PathLike[str]) -> str:
        """Write a lake of all heights; ``causeway check LAKE --execute`` executes it again.

        Program classes must be importable there; their modules may lie beside a scenario (``write_scenario``).

        Args:
            lake: Folder or URI.

        Returns:
            The path.

        Raises:
            InvalidInput: There is a lake already.
        """
        self._engine.write(os.fspath(lake))
        return os.fspath(lake)

    def scenario(self) -> str:
        """Return the scenario of all actions as TOML; ``causeway run`` repeats it."""
        return declarations.format_toml(self._engine.document())

    def write_scenario(self, path: str | os.PathLike[str]) -> None:
        """Write ``scenario`` to a file. Raises ``InvalidInput`` if it cannot be written."""
        try:
            Path(path).write_text(self.scenario())
        except OSError as error:
            raise InvalidInput(f"write_scenario: {describe_os_error(error) or error}") from None

    def summary(self) -> dict[str, Any]:
        """Return the call outcomes and the audit verdict, as ``causeway run`` prints them."""
        from causeway.analysis.run_summary import summarize_run

        with tempfile.TemporaryDirectory(prefix="causeway-") as folder:
            lake = self._engine.write(os.path.join(folder, "lake"))
            with summarize_run(lake) as (_, found):
                return found.plain()

    def close(self) -> None:
        """Do nothing, for symmetry with networks on lakes."""

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *failure: object) -> None:
        """Do nothing."""


@dataclass(frozen=True, eq=False, repr=False)
class Snapshot:
    """The state of a network at a tick."""

    engine: Engine
    handles: tuple[SentMessage, ...]
    faults: tuple[declarations.Fault, ...]

    def __repr__(self) -> str:
        """Return tick and height on one line."""
        return f"<Snapshot at tick {self.engine.clock}, height {self.engine.memory.line.height}>"


class MakeNetwork(Protocol):
    """The fixture ``causeway_network``: creates networks under the protocol of the test."""

    def __call__(
        self,
        chains: int | Iterable[str | Mapping[str, Any]] = 2,
        programs: Iterable[declarations.Deploy] = (),
        *,
        protocol: declarations.ProtocolName = ...,
        options: Mapping[str, Any] | None = None,
        seed: int = 0,
        faults: Iterable[Mapping[str, Any]] = (),
        skip: float = 0.0,
        seconds_per_tick: float = 1.0,
        callers: int | None = declarations.CALLER_BALANCE,
        run_twice: bool = True,
    ) -> Network:
        """Create a network; arguments as in ``Network``."""


ForkNetwork: TypeAlias = Callable[[Callable[[MakeNetwork], Network]], Network]
"""The fixture ``causeway_fork``: forks the network that a function builds, calling it once."""
