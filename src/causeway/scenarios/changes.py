"""Changes of a running network: the stages between them, with programs, moves and faults.

Splits of chains (``[[splits]]``) are checked here, with the moves that they cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
from causeway_proofs.errors import InvalidInput

from causeway.config.faults import Faults
from causeway.config.topology import PROGRAMS_SCHEMA, Topology
from causeway.core.text import format_value, suggest_known
from causeway.protocols.registry import ProtocolInfo, find_protocol, protocol_names
from causeway.protocols.shared.faults import FaultSection
from causeway.scenarios import settings
from causeway.scenarios.directory import NameDirectory, encode_options, genesis_topology

__all__ = ["NetworkChanges", "NetworkStage", "StageProgress", "check_splits", "installed_programs", "moves_from_splits"]


def moves_from_splits(sections: Sequence[settings.SplitSection]) -> list[tuple[str, settings.MoveSection]]:
    """Return the moves of splits, each with its key in the scenario.

    Args:
        sections: Sections ``[[splits]]``.
    """
    return [
        (f"splits[{place}].programs[{row}]", settings.MoveSection(tick=section.tick, program=name, chain=section.into))
        for place, section in enumerate(sections)
        for row, name in enumerate(section.programs)
    ]


def check_splits(topology: Topology, path: str) -> None:
    """Check the chains of programs before and after each split.

    Args:
        topology: Topology with moves and splits.
        path: The scenario file, for errors.

    Raises:
        InvalidInput: A program of a split chain moves to a third chain, or a program of another chain moves to the new
            one.
    """
    due = {(split.tick, split.chain): split for split in topology.membership.splits}
    created = {(split.tick, split.into): split for split in topology.membership.splits}
    if not due:
        return
    programs = topology.programs
    hosts = dict(zip(programs["number"].to_pylist(), programs["chain"].to_pylist(), strict=True))
    names = dict(zip(programs["number"].to_pylist(), programs["name"].to_pylist(), strict=True))
    chains = dict(zip(topology.chains["number"].to_pylist(), topology.chains["name"].to_pylist(), strict=True))
    for move in topology.moves.sort_by("tick").to_pylist():
        tick, program, target = move["tick"], move["program"], move["chain"]
        before, name = hosts.get(program), format_value(str(names.get(program, program)))
        source_split = None if before is None else due.get((tick, before))
        target_split = None if target is None else created.get((tick, target))
        if source_split is not None and target not in (source_split.chain, source_split.into):
            text = f"allowed: {format_value(chains[source_split.chain])} and {format_value(chains[source_split.into])}"
            raise InvalidInput(
                f"{path}: splits: {name} leaves {format_value(chains[source_split.chain])} at tick {tick}, "
                "at which that is split; "
                f"{text}"
            )
        if target_split is not None and before != target_split.chain:
            raise InvalidInput(
                f"{path}: splits: {name} comes to {format_value(chains[target_split.into])} at tick {tick}; "
                "allowed at the split "
                f"that it begins with: programs of {format_value(chains[target_split.chain])}"
            )
        hosts[program] = target


@dataclass(frozen=True)
class NetworkStage:
    """A network from a tick up to its next change.

    A healed fault that had begun ends in the tick before healing: kernels know the network's past.

    Attributes:
        tick: First tick.
        topology: Programs so far, with all moves known so far.
        faults: Faults known so far.
    """

    tick: int
    topology: Topology
    faults: Faults


@dataclass
class _KnownState:
    """Accumulated changes of a network.

    Attributes:
        programs: Rows of programs.
        moves: Moves with their keys.
        faults: Faults with their keys.
        healed: Tick of healing by position of the fault.
    """

    programs: list[dict[str, Any]]
    moves: list[tuple[str, settings.MoveSection]] = field(default_factory=list)
    faults: list[tuple[str, FaultSection]] = field(default_factory=list)
    healed: dict[int, int] = field(default_factory=dict)

    @property
    def numbers(self) -> dict[str, int]:
        return {row["name"]: row["number"] for row in self.programs}

    def copy(self) -> _KnownState:
        return _KnownState(list(self.programs), list(self.moves), list(self.faults), dict(self.healed))


@dataclass(frozen=True)
class StageProgress:
    """The network before and after its first changes (``stages``), and the accumulated state."""

    stages: tuple[NetworkStage, ...]
    known: _KnownState


@dataclass(frozen=True)
class NetworkChanges:
    """The changes of a scenario over a network.

    Attributes:
        whole: Chains and programs before any change.
        info: The protocol.
        path: The scenario file, for errors.
        sections: The changes.
        moves: Moves known from the start, with their keys.
        faults: Faults known from the start.
        skip: ``transport.skip``.
    """

    whole: Topology
    info: ProtocolInfo
    path: str
    sections: Sequence[settings.ChangeSection]
    moves: Sequence[tuple[str, settings.MoveSection]]
    faults: Sequence[FaultSection]
    skip: float

    def stages(self) -> list[NetworkStage]:
        """Return the network before any change and after each. Raises ``InvalidInput`` with the key."""
        return list(self.progress(len(self.sections)).stages)

    def progress(self, count: int, begun: StageProgress | None = None) -> StageProgress:
        """Return the network after the first changes.

        Args:
            count: Number of changes.
            begun: The same after fewer changes, to continue from.

        Raises:
            InvalidInput: A change is invalid; the text names the key.
        """
        if begun is None or not 1 < len(begun.stages) <= count + 1:
            known = self._initial_state()
            found = [self._stage(0, known)]
        else:
            known, found = begun.known.copy(), list(begun.stages)
        for position in range(len(found) - 1, count):
            section, key = self.sections[position], f"changes[{position}]"
            before = self.sections[position - 1].tick if position else -1
            if section.tick <= before:
                raise self._fail(f"{key}.tick", f"{section.tick}: must be above {before}, that of the change before")
            self._change(known, section, key)
            found.append(self._stage(section.tick, known))
        return StageProgress(tuple(found), known)

    def after(self) -> tuple[Topology, list[tuple[str, settings.MoveSection]]]:
        """Return the chains and programs after all changes, and all moves."""
        known = self._initial_state()
        for position, section in enumerate(self.sections):
            self._change(known, section, f"changes[{position}]")
        return self._topology(known), known.moves

    def _initial_state(self) -> _KnownState:
        known = _KnownState([])
        if self.sections:  # otherwise rows are never read one by one
            known.programs = self.whole.programs.to_pylist()
        known.moves = [*self.moves]
        known.faults = [(f"faults[{place}]", section) for place, section in enumerate(self.faults)]
        return known

    def _topology(self, known: _KnownState) -> Topology:
        if not self.sections:
            return self.whole
        return replace(self.whole, programs=pa.Table.from_pylist(known.programs, schema=PROGRAMS_SCHEMA))

    def _stage(self, tick: int, known: _KnownState) -> NetworkStage:
        topology = self._topology(known)
        topology = replace(topology, moves=NameDirectory(topology, self.path).moves(known.moves))
        topology = self._complete(topology)
        check_splits(topology, self.path)
        keys, sections = [key for key, _ in known.faults], [section for _, section in known.faults]
        return NetworkStage(
            tick, topology, NameDirectory(topology, self.path).faults(sections, self.skip, keys, known.healed)
        )

    def _complete(self, topology: Topology) -> Topology:
        try:
            return self.info.complete(genesis_topology(topology))
        except InvalidInput as error:
            raise type(error)(f"{self.path}: {error}") from error

    def _change(self, known: _KnownState, section: settings.ChangeSection, key: str) -> None:
        for place, install in enumerate(section.install):
            self._install(known, section.tick, install, f"{key}.install[{place}]")
        for place, upgrade in enumerate(section.upgrade):
            self._upgrade(known, upgrade, f"{key}.upgrade[{place}]")
        for place, moved in enumerate(section.move):
            self._move(known, section.tick, moved, f"{key}.move[{place}]")
        for place, name in enumerate(section.remove):
            self._remove(known, section.tick, name, f"{key}.remove[{place}]")
        self._heal(known, section, key)
        directory = NameDirectory(self._complete(self._topology(known)), self.path)
        for place, fault in enumerate(section.inject):
            where = f"{key}.inject[{place}]"
            first = fault.fault(directory, where).first
            if first < section.tick:
                raise self._fail(where, f"begins at tick {first}, before the change, which is at tick {section.tick}")
            known.faults.append((where, fault))

    def _install(self, known: _KnownState, tick: int, section: settings.InstallSection, key: str) -> None:
        self._require_changing(key)
        chains = dict(zip(self.whole.chains["name"].to_pylist(), self.whole.chains["number"].to_pylist(), strict=True))
        if section.chain not in chains:
            raise self._fail(f"{key}.chain", suggest_known("chain", section.chain, chains))
        numbers = known.numbers
        if section.name in numbers:
            raise self._fail(key, f"the name {format_value(section.name)} is taken")
        if section.balance and self.info.fixed_issue:
            text = f"{section.balance}: under {self.info.name} all value is issued at genesis; send it some"
            raise self._fail(f"{key}.balance", text)
        numbers[section.name] = max(numbers.values(), default=-1) + 1
        known.programs.append(
            {
                "number": numbers[section.name],
                "name": section.name,
                "chain": None if self.info.moves else chains[section.chain],
                "program": None if section.program == settings.NOTHING_INSTALLED else section.program,
                "options": encode_options(section.options, numbers, f"{self.path}: {key}.options"),
                "balance": Decimal(section.balance),
            }
        )
        if self.info.moves:
            move = settings.MoveSection(tick=tick, program=section.name, chain=section.chain)
            known.moves.append((key, move))

    def _upgrade(self, known: _KnownState, section: settings.UpgradeSection, key: str) -> None:
        self._require_changing(key)
        numbers = known.numbers
        if section.program not in numbers:
            raise self._fail(f"{key}.program", suggest_known("program", section.program, numbers))
        (place,) = [place for place, row in enumerate(known.programs) if row["name"] == section.program]
        row = {**known.programs[place], "program": section.to}
        if known.programs[place]["program"] is None:
            raise self._fail(
                f"{key}.program", f"{format_value(section.program)}: no program is installed under this name"
            )
        if section.options is not None:
            row["options"] = encode_options(section.options, numbers, f"{self.path}: {key}.options")
        known.programs[place] = row

    def _move(self, known: _KnownState, tick: int, section: settings.MovedSection, key: str) -> None:
        if not self.info.moves:
            raise self._fail(
                key, f"under {self.info.name} programs stay on their chain; those of {_movers()} may leave it"
            )
        if section.program not in known.numbers:
            raise self._fail(f"{key}.program", suggest_known("program", section.program, known.numbers))
        known.moves.append((key, settings.MoveSection(tick=tick, program=section.program, chain=section.chain)))

    def _remove(self, known: _KnownState, tick: int, name: str, key: str) -> None:
        if not self.info.moves:
            text = f"under {self.info.name} programs stay on their chain, and do not end; those of {_movers()} do"
            raise self._fail(key, f"{text}. Upgrade it to a program that rejects what comes")
        if name not in known.numbers:
            raise self._fail(key, suggest_known("program", name, known.numbers))
        known.moves.append((key, settings.MoveSection(tick=tick, program=name, chain=None)))

    def _heal(self, known: _KnownState, section: settings.ChangeSection, key: str) -> None:
        positions = section.heal
        if isinstance(positions, bool):
            positions = [*range(len(known.faults))] if positions else []
        for place, position in enumerate(positions):
            if position >= len(known.faults):
                text = f"{position}: there are {len(known.faults)} faults before, numbered from 0"
                raise self._fail(f"{key}.heal[{place}]", text)
            known.healed.setdefault(position, section.tick)

    def _require_changing(self, key: str) -> None:
        if not self.info.changes_programs:
            able = ", ".join(each for each in protocol_names() if find_protocol(each).changes_programs)
            text = f"under {self.info.name} programs are those of the beginning; allowed under: {able}"
            raise self._fail(key, text)

    def _fail(self, key: str, text: str) -> InvalidInput:
        return InvalidInput(f"{self.path}: {key}: {text}")


def _movers() -> str:
    """Name the protocols whose programs may leave their chain."""
    return " and ".join(each for each in protocol_names() if find_protocol(each).moves)


def installed_programs(sections: Sequence[settings.ChangeSection]) -> dict[str, str]:
    """Return the program classes that changes name, by key.

    Args:
        sections: Sections ``[[changes]]``.
    """
    found: dict[str, str] = {}
    for position, section in enumerate(sections):
        key = f"changes[{position}]"
        found |= {f"{key}.install[{place}].program": each.program for place, each in enumerate(section.install)}
        found |= {f"{key}.upgrade[{place}].to": each.to for place, each in enumerate(section.upgrade)}
    return found
