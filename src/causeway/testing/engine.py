"""The engine of ``causeway.Network``: a scenario in memory that a test changes as it runs.

All actions of a test become part of the scenario: messages as a script, everything else as ``[[changes]]``. So the
exported scenario or lake runs again to the same roots. ``LiveTraffic`` adds the test's messages to the scenario's own.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from threading import RLock
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.errors import InvalidInput
from causeway_proofs.order import stable_order

from causeway.config.topology import Topology
from causeway.config.traffic import INGRESS_SCHEMA
from causeway.core.frame import empty_frame
from causeway.core.text import format_value
from causeway.network.deploy import build_staged_kernel, describe_network
from causeway.programs.catalogue import ProgramClass, bind_classes
from causeway.programs.runner import Programs
from causeway.programs.user_modules import allow_scenario_folder
from causeway.protocols.contract import AnyKernel
from causeway.protocols.shared.execution import program_frames
from causeway.protocols.shared.reconfiguration import ChangingKernel
from causeway.scenarios.changes import StageProgress
from causeway.scenarios.scenario import Scenario, scenario_from
from causeway.scenarios.traffic_settings import NoTrafficSection, ScriptSection
from causeway.scenarios.traffic_sources import ScenarioTraffic
from causeway.storage.lake import Lake
from causeway.testing.log import IngressPosition, MessageLog
from causeway.testing.tracing import TracedPrograms, TracedRound, handled_messages, listen_to_programs
from causeway.tick.deployment import Deployment, find_next_tick
from causeway.tick.memory import MemoryNetwork


class LiveTraffic:
    """The rows of ``base``, followed on every chain by rows added later."""

    def __init__(self, base: ScenarioTraffic) -> None:
        self._base = base
        self._rows: dict[int, list[dict[str, Any]]] = {}
        self._ticks: list[int] = []
        self._counts: dict[tuple[int, int], int] = {}

    def add(self, tick: int, row: dict[str, Any]) -> int:
        """Add a row (``INGRESS_SCHEMA``) for a future tick; return its position on its chain."""
        if tick not in self._rows:
            self._rows[tick] = []
            insort(self._ticks, tick)
        self._rows[tick].append(row)
        key = tick, row["chain"]
        if key not in self._counts:
            self._counts[key] = len(self._base.rows(tick, np.array([row["chain"]], dtype=np.uint64)))
        self._counts[key] += 1
        return self._counts[key]

    def rows(self, tick: int, chains: npt.NDArray[np.uint64]) -> pa.Table:
        """Return the rows of ``tick`` for ``chains``, by chain."""
        rows = self._base.rows(tick, chains)
        added = [row for row in self._rows.get(tick, ()) if row["chain"] in chains]
        if not added:
            return rows
        rows = pa.concat_tables([rows, pa.Table.from_pylist(added, schema=INGRESS_SCHEMA)])
        return rows.take(pa.array(stable_order(rows["chain"].to_numpy())))

    def next_tick(self, tick: int) -> int | None:
        """Return the first tick at or after ``tick`` with any row, or None."""
        index = bisect_left(self._ticks, tick)
        added = self._ticks[index] if index < len(self._ticks) else None
        known = self._base.next_tick(tick)
        return min((each for each in (added, known) if each is not None), default=None)

    def copy(self) -> LiveTraffic:
        """Return an independent copy."""
        other = LiveTraffic(self._base)
        other._rows = {tick: list(rows) for tick, rows in self._rows.items()}
        other._ticks, other._counts = list(self._ticks), dict(self._counts)
        return other


Document = dict[str, Any]


@dataclass(frozen=True)
class _RunningScenario:
    """The scenario of a network, as given and as validated, and its topology after all changes."""

    document: Document
    scenario: Scenario
    topology: Topology

    @cached_property
    def programs(self) -> dict[str, int]:
        """Program numbers by name."""
        programs = self.topology.programs
        return dict(zip(programs["name"].to_pylist(), programs["number"].to_pylist(), strict=True))

    @cached_property
    def classes(self) -> dict[int, str | None]:
        """Names of program classes by program number."""
        programs = self.topology.programs
        return dict(zip(programs["number"].to_pylist(), programs["program"].to_pylist(), strict=True))

    @cached_property
    def chains(self) -> dict[int, str]:
        """Chain names by number."""
        chains = self.topology.chains
        return dict(zip(chains["number"].to_pylist(), chains["name"].to_pylist(), strict=True))


class Engine:
    """A network of a scenario in memory.

    Attributes:
        clock: The next tick; all earlier ones have run.
        sends: Messages of the test as sections of a script.
        bound: Classes for names in the scenario.
        twice: Run each handler twice to detect nondeterminism.
        origin: Token shared by all copies of a network.
    """

    def __init__(self, running: _RunningScenario, memory: MemoryNetwork, traffic: LiveTraffic) -> None:
        """Use ``create`` or ``copy``."""
        self._running, self.memory, self.traffic = running, memory, traffic
        self.clock = 0
        self.sends: list[Document] = []
        self._rounds: dict[int, TracedRound] = {}
        self._changed: int | None = None
        self._log: tuple[int, MessageLog] | None = None
        self._lock = RLock()
        self.bound: dict[str, ProgramClass] = {}
        self.twice = True
        self.origin = object()
        self._begun: StageProgress | None = None

    @classmethod
    def create(cls, document: Document, path: str, bound: Mapping[str, ProgramClass] = MappingProxyType({})) -> Engine:
        """Create the network of a scenario at height 0.

        Args:
            document: Tables of the scenario.
            path: Its file, for errors.
            bound: Classes for names in the scenario.

        Raises:
            InvalidInput: The scenario is invalid; the text names the key.
        """
        document = deepcopy(document)  # the caller may change it later
        scenario = scenario_from(document, path)
        if not isinstance(scenario.document.traffic, NoTrafficSection | ScriptSection):
            source = scenario.document.traffic.source
            raise InvalidInput(f"{path}: traffic.source: {source}: a network in memory has none, or a script")
        allow_scenario_folder(path)
        base = scenario.traffic()
        stages = scenario.stages(base)
        topology = stages[-1].topology
        if topology.external:
            raise InvalidInput(f"{path}: chains: a network in memory runs all of its chains")
        traffic = LiveTraffic(base)
        with bind_classes(bound):
            kernel = build_staged_kernel(scenario, stages, runner=TracedPrograms)
            numbers = kernel.numbers()
            deployment = Deployment(kernel, traffic, ((0, len(numbers)),), numbers)
            engine = cls(_RunningScenario(document, scenario, topology), MemoryNetwork.create(deployment), traffic)
        engine.bound.update(bound)
        return engine

    # ---- description

    @property
    def scenario(self) -> Scenario:
        """The scenario with all changes so far, without the test's messages."""
        return self._running.scenario

    @property
    def topology(self) -> Topology:
        """The chains, and the programs after all changes."""
        return self._running.topology

    @property
    def programs(self) -> Mapping[str, int]:
        """Program numbers by name."""
        return self._running.programs

    @property
    def classes(self) -> Mapping[int, str | None]:
        """Names of program classes by program number."""
        return self._running.classes

    @property
    def chains(self) -> Mapping[int, str]:
        """Chain names by number."""
        return self._running.chains

    @property
    def kernel(self) -> AnyKernel:
        """The kernel of the network."""
        return self.memory.deployment.kernel

    @property
    def log(self) -> MessageLog:
        """The log of all messages up to the last height."""
        numbers = self.memory.deployment.numbers
        if self._log is None:
            self._log = 0, MessageLog({int(number): position for position, number in enumerate(numbers)})
            self._log[1].begin(self.memory.made[0])
        height, log = self._log
        for next_height in range(height + 1, self.memory.line.height + 1):
            output = self.memory.made[next_height]
            log.take(output, self.traffic.rows(output.tick.tick, numbers), handled_messages(self._rounds[next_height]))
        self._log = self.memory.line.height, log
        return log

    # ---- time

    def due(self) -> int | None:
        """Return the next tick with events, or None."""
        due = find_next_tick(self.memory.line, self.traffic)
        if self._changed is not None:
            due = self._changed if due is None else min(due, self._changed)
        return due if due is None else max(due, self.clock)

    def step(self, until: int | None = None) -> bool:
        """Run the next tick with events before ``until``; return True if there was one."""
        tick = self.due()
        if tick is None or (until is not None and tick >= until):
            return False
        with self._exclusive(), bind_classes(self.bound), listen_to_programs(twice=self.twice) as trace:
            self.memory.run(tick)
        self._rounds[self.memory.line.height] = trace
        self.clock, self._changed = tick + 1, None
        return True

    def advance(self, ticks: int) -> None:
        """Advance by ``ticks`` ticks; those without events cost nothing."""
        until = self.clock + ticks
        while self.step(until):
            pass
        self.clock = until

    # ---- actions of a test

    def send(self, section: Document, row: Document) -> IngressPosition:
        """Send a message in the next tick.

        Args:
            section: The message as in a script.
            row: The message as a row of ``INGRESS_SCHEMA``.
        """
        with self._exclusive():
            position = self.traffic.add(self.clock, row)
            self.sends.append({"tick": self.clock, **section})
        return IngressPosition(self.clock, row["chain"], position)

    def change(self, make: Callable[[Document], None]) -> None:
        """Change the network from the next tick on.

        Args:
            make: Adds keys to a change (``[[changes]]``).

        Raises:
            InvalidInput: The change is invalid; the network is unchanged.
        """
        document = dict(self._running.document)
        changes = [dict(change) for change in document.get("changes", ())]
        place = bisect_left(changes, self.clock, key=lambda change: change["tick"])
        if place == len(changes) or changes[place]["tick"] != self.clock:
            changes.insert(place, {"tick": self.clock})
        before = len(changes)
        changes[place] = deepcopy(changes[place])  # keeps the tick's earlier changes if this one is refused
        make(changes[place])
        changes[place] = deepcopy(changes[place])  # the test may change its values later
        self._check_planned(changes, place)
        if changes[place].keys() == {"tick"}:
            changes.pop(place)
        document["changes"] = changes
        scenario = scenario_from(document, self.scenario.path)
        base = scenario.traffic()
        begun = scenario.progress(base, min(place, len(changes)), self._begun) if changes else None
        stages = scenario.progress(base, len(changes), begun).stages
        known = self.kernel.kernels if isinstance(self.kernel, ChangingKernel) else (self.kernel,)
        with self._exclusive(), bind_classes(self.bound):
            kernel = build_staged_kernel(scenario, stages, known=known[: place + 1], runner=TracedPrograms)
            kernels = kernel.kernels if isinstance(kernel, ChangingKernel) else (kernel,)
            # Try the upgrade of current states by installed or replaced classes.
            programs: Programs = kernels[min(place + 1, len(kernels) - 1)].programs  # type: ignore[attr-defined]
            frames = self.memory.frames
            states = {name: empty_frame(schema) for name, schema in programs.schemas().items()} | program_frames(frames)
            due = programs.outdated(programs.changed, frames["accounts"], states)
            programs.install(due, frames["accounts"], states)
        self._running, self._begun = _RunningScenario(document, scenario, stages[-1].topology), begun
        self._changed = self.clock if len(changes) == before else None
        self.memory.change(replace(self.memory.deployment, kernel=kernel))

    def _check_planned(self, changes: Sequence[Document], place: int) -> None:
        """Reject a fault before a planned change that heals faults by their numbers."""
        later = [change["tick"] for change in changes[place + 1 :] if isinstance(change.get("heal"), list)]
        if changes[place].get("inject") and later:
            text = f"one is planned for tick {later[0]} that heals faults by their numbers; let that pass first"
            raise InvalidInput(f"{self.scenario.path}: changes: {text}")

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Exclude other threads. Raises ``InvalidInput`` if one uses the network."""
        if not self._lock.acquire(blocking=False):
            raise InvalidInput("another thread runs this network: a network is one thread's, a fork may be another's")
        try:
            yield
        finally:
            self._lock.release()

    def copy(self) -> Engine:
        """Return an independent copy."""
        memory, traffic = self.memory.copy(), self.traffic.copy()
        memory.change(replace(memory.deployment, traffic=traffic))
        other = Engine(self._running, memory, traffic)
        other.clock, other.sends, other._changed = self.clock, list(self.sends), self._changed
        other._rounds, other._begun = dict(self._rounds), self._begun
        other._log = None if self._log is None else (self._log[0], self._log[1].copy())
        other.bound.update(self.bound)
        other.origin, other.twice = self.origin, self.twice
        return other

    def asked(self) -> Sequence[Document]:
        """Return all changes of the network, including future ones."""
        found: Sequence[Document] = self._running.document.get("changes", ())
        return found

    def changes(self) -> list[tuple[int, str]]:
        """Return the changes up to the next tick, each with its tick and a short description."""
        found = []
        for change in self.asked():
            for key, value in change.items():
                for each in value if isinstance(value, list) else [value] if key != "tick" else []:
                    found.append((change["tick"], f"{key} {_describe_section(each)}"))
        return [(tick, text) for tick, text in found if tick <= self.clock]

    def acting(self) -> list[str]:
        """Describe the injected faults that are in effect."""
        injected: list[Document] = []
        healed: set[int] = set()
        before = len(self.scenario.document.faults)
        for change in self.asked():
            if change.get("heal") is True:
                healed.update(range(before + len(injected)))
            elif change.get("heal"):
                healed.update(change["heal"])
            injected += change.get("inject", ())
        return [
            _describe_section(fault)
            for place, fault in enumerate(injected, start=before)
            if place not in healed and fault.get("until", self.clock) >= self.clock
        ]

    # ---- results

    def document(self) -> Document:
        """Return the scenario of all actions; a run of it gives the same roots."""
        document = dict(self._running.document)
        traffic = dict(document.get("traffic", {}))
        if self.sends:
            traffic = {"source": "script", "send": [*traffic.get("send", ()), *self.sends]}
        if traffic:
            document["traffic"] = traffic
        return document

    def write(self, place: str) -> Lake:
        """Write a new lake of all heights and return it. Raises ``LakeError``."""
        scenario = scenario_from(self.document(), self.scenario.path)
        deployment, topology = self.memory.deployment, self.topology
        about = describe_network(scenario, deployment.kernel, topology, deployment.buckets)
        tables: Mapping[str, pa.Table] = {
            "chains": topology.chains,
            "programs": topology.programs,
            "registry": topology.moves,
        }
        return self.memory.write(Lake.at(place), about, tables)

    def host_of(self, program: int) -> int | None:
        """Return the number of the chain that hosts a program in the next tick, or None."""
        position = int(self.kernel.hosts(np.array([program], dtype=np.uint64), self.clock)[0])
        return None if position < 0 else int(self.memory.deployment.numbers[position])


def _describe_section(section: Any) -> str:
    """Describe a section of a change in a few words."""
    if not isinstance(section, Mapping):
        return str(section)
    first, *others = section.items()
    return " ".join([str(first[1]), *(f"{key}={format_value(value)}" for key, value in others)])
