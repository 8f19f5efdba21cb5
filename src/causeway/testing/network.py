"""A network in memory that a test builds, talks to, breaks and looks into: ``causeway.Network``.

What the fixtures of the pytest plugin are, for tests that say the types of their arguments.
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
from causeway.testing.declarations import (
    CALLER_BALANCE,
    CALLERS,
    Deploy,
    Fault,
    MessageKind,
    MessageStatus,
    ProtocolName,
    RejectName,
    chain_sections,
    plain_chain_names,
    program_sections,
)
from causeway.testing.engine import Document, Engine
from causeway.testing.errors import NoAnswer
from causeway.testing.handles import DEFAULT_ROUNDS, LAST_TICK, ROUNDS, SentMessage, require_bounded
from causeway.testing.messages import KINDS, STATUSES, Messages, build_rows, is_number_name
from causeway.testing.recent_networks import note_network

if TYPE_CHECKING:
    from causeway.network import network as lakes

__all__ = ["ForkNetwork", "MakeNetwork", "Network", "Snapshot"]

CURRENT_FOLDER = "cw.Network"
"""What stands in the place of a file in errors about what a test says."""


class Network(SendingNetwork):
    """A network of chains in the memory of this process, at the tick that comes next (``now``).

    It runs the kernels that ``causeway run`` runs. The same calls give the same roots.
    """

    def __init__(
        self,
        chains: int | Iterable[str | Mapping[str, Any]] = 2,
        programs: Iterable[Deploy] = (),
        *,
        protocol: ProtocolName = DEFAULT,
        options: Mapping[str, Any] | None = None,
        seed: int = 0,
        faults: Iterable[Mapping[str, Any]] = (),
        skip: float = 0.0,
        seconds_per_tick: float = 1.0,
        callers: int | None = CALLER_BALANCE,
        run_twice: bool = True,
    ) -> None:
        """Make a network.

        ``chains``: how many (``chain-0`` and so on), their names, or tables as ``[[chains]]`` of a scenario.
        ``programs``: what runs on them. ``protocol``, ``options``, ``seed``, ``seconds_per_tick``, ``faults``, ``skip``
        (of ``[transport]``): as in a scenario. ``callers``: what the programs have at the beginning that ``call`` calls
        with, one a chain; None for none of them. ``run_twice``: whether the handlers of every block
        run twice, so that one that reads a clock or random numbers raises ``NotDeterministic``. Raises
        ``InvalidInput``, which names what is wrong.
        """
        faults = list(faults)
        for key, value in (("options", options), *((f"faults[{place}]", one) for place, one in enumerate(faults))):
            if value is not None and not isinstance(value, Mapping):
                raise InvalidInput(f"{key}: {format_value(value)}: must be a table (a dict)")
        sections = chain_sections(chains)
        bound: dict[str, ProgramClass] = {}
        document: Document = {
            "network": {"protocol": protocol, "seed": seed, "seconds_per_tick": seconds_per_tick},
            "options": dict(options or {}),
            "chains": sections,
            "programs": program_sections(programs, plain_chain_names(sections), callers, bound),
        }
        if skip:
            document["transport"] = {"skip": skip}
        if found := [dict(fault) for fault in faults]:
            document["faults"] = found
        self._begin(Engine.begun(document, CURRENT_FOLDER, bound))
        self._engine.twice = run_twice

    @classmethod
    def in_memory(cls, path: str | os.PathLike[str], overrides: Mapping[str, str] | None = None) -> Self:
        """Return the network of a scenario file whose traffic, if any, is a script. ``overrides``: dotted keys of the
        file with TOML values. Raises ``InvalidInput``."""
        document = read_scenario_document(path, overrides)
        network = cls.__new__(cls)
        network._begin(Engine.begun(document, str(path)))
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
        """Return a network of a scenario file on a lake, as ``causeway run`` runs it (on Spark, unless it says
        otherwise): any traffic, any size, and no test's hand in it. ``lake``: a folder or URI; without one a temporary
        folder. ``resume``: go on with the one that it holds. ``waiting``: as of that class. Raises ``InvalidInput``."""
        from causeway.network.network import LakeNetwork as OnLake

        return OnLake.from_scenario(path, overrides, lake=lake, resume=resume, waiting=waiting)

    # ---- what there is

    def __repr__(self) -> str:
        """Return what it is and how far, on one line."""
        own = [name for name in self.programs if not name.startswith(CALLERS)]
        size = f"{len(self.chains)} chains, {len(own)} programs"
        return f"<Network {self.protocol}: {size}, height {self.height}, next tick {self.now}>"

    @property
    def height(self) -> int:
        """Return how many ticks have run: those in which anything happened."""
        return self._engine.memory.line.height

    def number_of(self, program: str) -> int:
        """Return the number of a program. Raises ``InvalidInput``."""
        return self._program(program, "program")

    def state_of(self, program: str) -> Any:
        """Return the state of a program: what a scalar one keeps, the columns of a vectorised one's row; None where
        there is none. Raises ``InvalidInput`` for an unknown name."""
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
        """Return what a program has of what it began with and of what came and went with messages.

        That is the same under all protocols: what a protocol gives programs to pay its fees from, and the ``fees`` that
        they pay, are no part of it; ``account`` has both. 0 where nothing is installed. Raises ``InvalidInput`` for an
        unknown name.
        """
        number = self._program(program, "program")
        programs = self._engine.topology.programs.select(["number", "balance"]).to_pylist()
        began = next((int(row["balance"] or 0) for row in programs if row["number"] == number), 0)
        extra = self._engine.log.issued.get(number, began) - began
        return self.account(program) - extra + self.fees(program)

    def fees(self, program: str) -> int:
        """Return what a program has paid for messages, and for what is held for it, by the rules of its protocol.
        Raises ``InvalidInput`` for an unknown name."""
        return self._engine.log.program_costs(self._program(program, "program"))

    def account(self, program: str) -> int:
        """Return what the account of a program holds on its chain. 0 where nothing is installed. Raises
        ``InvalidInput`` for an unknown name."""
        accounts = self._engine.memory.frames["accounts"]
        found = accounts.filter(accounts["program"] == np.uint64(self._program(program, "program")))
        return balance_from_words(*(found[name][0] for name in BALANCE)) if len(found) else 0

    def messages(
        self,
        *,
        kind: MessageKind | None = None,
        sender: str | None = None,
        receiver: str | None = None,
        method: str | None = None,
        status: MessageStatus | None = None,
        reject: RejectName | RejectCode | None = None,
        since: int | None = None,
    ) -> Messages:
        """Return all messages so far as a table, those that have all of what is given. ``since``: a tick; the others
        are columns of the table (``tables.Row``). Raises ``InvalidInput`` for what no message can have: a kind or
        status that there is not, a program that there never was."""
        wanted = {"kind": kind, "sender": sender, "receiver": receiver, "method": method, "status": status}
        wanted["reject"] = reject.name if isinstance(reject, RejectCode) else reject
        asked = {name: value for name, value in wanted.items() if value is not None}
        for name, known in (("kind", KINDS), ("status", STATUSES), ("reject", [code.name for code in RejectCode])):
            if name in asked and asked[name] not in known:
                raise InvalidInput(f"messages: {name}: {suggest_known(name, asked[name], known)}")
        for name in ("sender", "receiver"):
            if name in asked and asked[name] not in self._numbers() and not is_number_name(asked[name]):
                raise InvalidInput(f"messages: {name}: {suggest_known('program', asked[name], self._numbers())}")
        if since is not None:
            require_bounded("messages: since", since, least=0)
        return Messages(build_rows(self._engine.log, self._names(), self._askings(), asked, since))

    def trace(self) -> str:
        """Return what happened to all messages as a timeline, and what was changed meanwhile."""
        log = self._engine.log
        messages = [each for root in log.roots(self._askings()) for each in log.tree(root)]
        messages += [(0, each) for each in log.refused]
        return self._names().timeline(messages, log, self._engine.changes())

    def root(self) -> str:
        """Return one digest over the last roots of all chains: equal networks have equal ones."""
        return self._engine.memory.root()

    # ---- time

    def tick(self, ticks: int = 1) -> int:
        """Let ticks pass, and return the one that comes next. Ticks in which nothing happens cost nothing."""
        require_bounded("tick", ticks, least=0, most=LAST_TICK - self.now)
        note_network(self)
        self._engine.advance(ticks)
        return self.now

    @property
    def seconds(self) -> float:
        """Return how many seconds have passed by the chains' clocks, which go ``seconds_per_tick`` a tick."""
        return float(self.now * self._seconds_per_tick())

    def advance(self, seconds: float) -> int:
        """Let at least so many seconds pass, in whole ticks, and return the tick that comes next. What is due meanwhile
        runs. Raises ``InvalidInput``."""
        given: object = seconds
        if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < math.inf:
            raise InvalidInput(f"advance: seconds: {format_value(seconds)}: must be a number, and not below 0")
        ticks = math.ceil(Fraction(str(seconds)) / self._seconds_per_tick())
        require_bounded("advance: ticks", ticks, least=0, most=LAST_TICK - self.now)
        return self.tick(ticks)

    def _seconds_per_tick(self) -> Fraction:
        return Fraction(str(self._engine.scenario.network.seconds_per_tick))

    def run(self, ticks: int | None = None, *, rounds: int = ROUNDS) -> int:
        """Run until nothing is left to do, at most to tick ``ticks`` (exclusive), and return the height.

        ``rounds``: that are run, at most. Raises ``NoAnswer`` where even then something is left to do, as when two
        programs call each other for ever; it names what moved last. A network in which somebody waits for an answer
        that does not come is given up before, after a thousand rounds or so.
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
        """Run until ``predicate`` of this network is true, and return the tick that comes next.

        ``ticks``: rounds that are run, at most. Raises ``NoAnswer`` where it does not become true.
        """
        __tracebackhide__ = True
        if not callable(predicate):
            raise InvalidInput(f"until: {format_value(predicate)}: must be a function of the network")
        require_bounded("until: ticks", ticks, least=0)
        at_rest = self._run_until(lambda: bool(predicate(self)), ticks)
        if not predicate(self):
            why = "the network is at rest" if at_rest else f"{ticks} rounds have run"
            raise NoAnswer(
                f"until: the condition is not true at tick {self.now}, and {why}", "pending", trace=self.trace()
            )
        return self.now

    def await_all(self, *, ticks: int = DEFAULT_ROUNDS) -> list[SentMessage]:
        """Run until everything that was sent and called has come to its end, and return all of that.

        ``ticks``: rounds that are run, at most. Raises ``NoAnswer``, which names what has not.
        """
        __tracebackhide__ = True
        require_bounded("await_all: ticks", ticks, least=0)
        at_rest = self._run_until(lambda: not self._still_open(), ticks)
        open_ones = self._still_open()
        left = [handle.record.text for handle in open_ones]
        if left:
            more = f" and {len(left) - 3} more" if len(left) > 3 else ""
            why = "the network is at rest" if at_rest else f"{ticks} rounds have run"
            cause = next((found for handle in open_ones if (found := handle.cause())), "")
            text = f"await_all: {cause}{'; ' if cause else ''}{why}, and there is no end of {'; '.join(left[:3])}{more}"
            raise NoAnswer(text, "pending", trace="\n".join(handle.trace() for handle in open_ones[:3]))
        return list(self._handles)

    # ---- copies

    def snapshot(self) -> Snapshot:
        """Return what the network is now, to be put back to."""
        return Snapshot(self._engine.copy(), tuple(self._handles), tuple(self._faults))

    def restore(self, snapshot: Snapshot) -> None:
        """Put the network back to what it was. What was sent since never was. Raises ``InvalidInput`` for a snapshot of
        another network; one of the network that this is a fork of is as good as its own."""
        if not isinstance(snapshot, Snapshot):
            raise InvalidInput(f"restore: {format_value(snapshot)}: must be what snapshot() of this network gave")
        if snapshot.engine.origin is not self._engine.origin:
            raise InvalidInput(f"restore: a snapshot of another network ({snapshot.engine.scenario.network.protocol})")
        self._engine = snapshot.engine.copy()
        self._handles, self._faults = list(snapshot.handles), list(snapshot.faults)
        self._open = list(self._handles)
        self._records = {handle.record for handle in self._handles}

    def fork(self) -> Network:
        """Return a network that goes on from here by itself. With the same calls both have the same roots."""
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
        """Return what a message that was sent in another network is in this one, a copy of it. Raises
        ``InvalidInput``."""
        found = next((own for own in self._handles if own.record == handle.record), None)
        if found is None:
            raise InvalidInput(f"of: {handle.record.text}: this network has no such message")
        return found

    # ---- what comes of it

    def export(self, lake: str | os.PathLike[str]) -> str:
        """Write a lake of all heights, and return where: ``causeway check LAKE --execute`` executes it again.

        Classes must be importable there; their modules may lie beside a scenario (``write_scenario``). Raises
        ``InvalidInput`` where there is a lake already.
        """
        self._engine.write(os.fspath(lake))
        return os.fspath(lake)

    def scenario(self) -> str:
        """Return the scenario of all that was done, as the text of a file: ``causeway run`` runs it again."""
        return declarations.format_toml(self._engine.document())

    def write_scenario(self, path: str | os.PathLike[str]) -> None:
        """Write ``scenario`` to a file. Raises ``InvalidInput`` where that cannot be written."""
        try:
            Path(path).write_text(self.scenario())
        except OSError as error:
            raise InvalidInput(f"write_scenario: {describe_os_error(error) or error}") from None

    def summary(self) -> dict[str, Any]:
        """Return how the calls ended, and the verdict of the audit, as ``causeway run`` prints them."""
        from causeway.analysis.run_summary import summarize_run

        with tempfile.TemporaryDirectory(prefix="causeway-") as folder:
            lake = self._engine.write(os.path.join(folder, "lake"))
            with summarize_run(lake) as (_, found):
                return found.plain()

    def close(self) -> None:
        """Do nothing: it is all in memory, and the network goes on. Networks on lakes have something to let go of."""

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *failure: object) -> None:
        """Do nothing."""


@dataclass(frozen=True, eq=False, repr=False)
class Snapshot:
    """What a network was when it was taken."""

    engine: Engine
    handles: tuple[SentMessage, ...]
    faults: tuple[Fault, ...]

    def __repr__(self) -> str:
        """Return of what it is, and how far that was, on one line."""
        return f"<Snapshot at tick {self.engine.clock}, height {self.engine.memory.line.height}>"


class MakeNetwork(Protocol):
    """The fixture ``causeway_network``: makes networks as ``Network`` does, under the protocol of the test."""

    def __call__(
        self,
        chains: int | Iterable[str | Mapping[str, Any]] = 2,
        programs: Iterable[Deploy] = (),
        *,
        protocol: ProtocolName = ...,
        options: Mapping[str, Any] | None = None,
        seed: int = 0,
        faults: Iterable[Mapping[str, Any]] = (),
        skip: float = 0.0,
        seconds_per_tick: float = 1.0,
        callers: int | None = CALLER_BALANCE,
        run_twice: bool = True,
    ) -> Network:
        """Return a network; arguments as of ``Network``."""
        ...


ForkNetwork: TypeAlias = Callable[[Callable[[MakeNetwork], Network]], Network]
"""The fixture ``causeway_fork``: gives a fork of the network that a function builds, which it calls once."""
