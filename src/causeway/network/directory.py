"""Names of chains and programs to their numbers, and the tables of a topology made of the sections of a scenario."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from causeway.model.errors import InvalidInput
from causeway.model.faults import FOR_EVER, Fault, Faults
from causeway.model.membership import ALWAYS, Membership, NodeChange, Span, Split
from causeway.model.section import U64_MAX
from causeway.model.text import shown, unknown
from causeway.model.topology import CHAINS_SCHEMA, MOVES_SCHEMA, PROGRAMS_SCHEMA, Topology
from causeway.network.membership import Move, moves_of_membership
from causeway.network.settings import (
    NOTHING_INSTALLED,
    ChainSection,
    MoveSection,
    NodesSection,
    ProgramSection,
    SplitSection,
)
from causeway.programs.naming import refs_in, resolved
from causeway.protocols.faults import FaultSection


class Directory:
    """The chains and programs of a topology by name; every failed look-up is an ``InvalidInput`` that names the key."""

    def __init__(self, topology: Topology, path: str) -> None:
        """``path``: the scenario file, for error lines."""
        self._path = path
        self._topology = topology
        self._chains = _index(topology.chains)
        self._programs = _index(topology.programs)

    def fail(self, key: str, text: str) -> InvalidInput:
        """Return the error about ``key``."""
        return InvalidInput(f"{self._path}: {key}: {text}")

    def chain(self, name: str, key: str) -> int:
        """Return the number of the chain ``name``."""
        if name not in self._chains:
            raise self.fail(key, unknown("chain", name, self._chains))
        return self._chains[name]

    def first_tick(self, name: str) -> int:
        """Return the first tick at which the chain ``name`` is in the registry."""
        return self._topology.membership.span(self._chains[name]).first

    def member(self, name: str, tick: int, key: str) -> int:
        """Return the number of the chain ``name``, which must be in the registry at ``tick``."""
        number = self.chain(name, key)
        span = self._topology.membership.span(number)
        if not span.holds(tick):
            raise self.fail(key, f"{shown(name)}: in the registry {span}, not at tick {tick}")
        return number

    def program(self, reference: int | str, key: str) -> int:
        """Return the number of a program given by name; a number stands for itself, whether or not it exists."""
        if isinstance(reference, int):
            return reference
        if reference not in self._programs:
            raise self.fail(key, unknown("program", reference, self._programs))
        return self._programs[reference]

    def moves(self, sections: Sequence[tuple[str, MoveSection]]) -> pa.Table:
        """Return all moves as ``MOVES_SCHEMA``, by tick, then in the order of ``sections``, each given with its key.

        Those of ``sections``, and those that chains make by coming and going: the programs of one that comes later
        are on it from then on, unless they were moved elsewhere, and those on one that goes are on no chain.
        """
        rows: list[Move] = []
        for key, section in sections:
            program = self.program(section.program, f"{key}.program")
            chain = None if section.chain is None else self.member(section.chain, section.tick, f"{key}.chain")
            if any((section.tick, program) == (row["tick"], row["program"]) for row in rows):
                raise self.fail(key, f"{section.program} moves twice before the round of tick {section.tick}")
            rows.append({"tick": section.tick, "program": program, "chain": chain})
        rows += moves_of_membership(self._topology, rows)
        return pa.Table.from_pylist(sorted(rows, key=lambda row: row["tick"] or 0), schema=MOVES_SCHEMA)

    def faults(
        self,
        sections: Sequence[FaultSection],
        skip: float,
        keys: Sequence[str] | None = None,
        healed: Mapping[int, int] = MappingProxyType({}),
    ) -> Faults:
        """Return ``[[faults]]`` with names resolved, in the order of the file.

        Args:
            sections: The faults.
            skip: Passed on.
            keys: Keys of the sections, where they are others than ``[[faults]]``.
            healed: The tick in which a fault was healed, by its position. The fault ends in the tick before; one that
                had not begun is left out.

        Raises:
            InvalidInput: A name is unknown, a chain is never in the registry, or a fault is there twice.
        """
        found: list[Fault] = []
        lanes = set[tuple[str, int | None, int | None]]()
        for position, section in enumerate(sections):
            key = f"faults[{position}]" if keys is None else keys[position]
            fault = section.fault(self, key)
            self._check_members(section, fault, key)
            end = healed.get(position)
            if end is not None:
                if fault.first < end:
                    found.append(replace(fault, last=min(fault.last, end - 1)))
                continue
            if section.once and _lane(fault) in lanes:
                raise self.fail(key, f"a second {fault.kind} between the same chains; allowed: one")
            lanes.add(_lane(fault))
            found.append(fault)
        return Faults.of(*found, skip=skip)

    def _check_members(self, section: FaultSection, fault: Fault, key: str) -> None:
        """Refuse a fault of a chain that is not in the registry at any tick of it.

        What a chain offered while it was there may be brought after it went, so its source need only have come.
        """
        keys = section.keys()
        source, destination = (which if which in keys else "chain" for which in ("source", "destination"))
        ends = ((source, fault.source), (destination, fault.destination))
        for which, number in ends:
            if number is None:
                continue
            span = self._topology.membership.span(number)
            gone = which != "source" and span.last is not None and fault.first > span.last
            if gone or fault.last < span.first:
                name = shown(str(getattr(section, which, number)))
                at = f"tick {fault.first}" if fault.first == fault.last else f"ticks {fault.first} to {fault.last}"
                at = f"tick {fault.first} and later" if fault.last >= FOR_EVER else at
                raise self.fail(f"{key}.{which}", f"{name}: in the registry {span}, the fault is at {at}")


def _lane(fault: Fault) -> tuple[str, int | None, int | None]:
    return fault.kind, fault.source, fault.destination


def own_topology(
    chains: Sequence[ChainSection],
    programs: Sequence[ProgramSection],
    nodes: Sequence[NodesSection],
    path: str,
    splits: Sequence[SplitSection] = (),
) -> Topology:
    """Return the chains and programs that the file itself declares; ``InvalidInput`` names the key that is wrong.

    A program stands on the chain that the file says, also if that one comes later (``at_genesis``).
    """
    table, external, roles, membership = _chains(chains, path)
    directory = Directory(Topology(table, PROGRAMS_SCHEMA.empty_table(), membership=membership), path)
    changes = _node_changes(nodes, directory)
    membership = replace(membership, changes=changes, splits=_resolve_splits(splits, directory))
    return Topology(table, _programs(programs, table, path), external=external, roles=roles, membership=membership)


def merged(first: Topology, second: Topology, moves: pa.Table | None = None) -> Topology:
    """Return the chains and programs of both, by number, and the membership of the first."""
    chains = pa.concat_tables([first.chains, second.chains]).sort_by("number")
    programs = pa.concat_tables([first.programs, second.programs]).sort_by("number")
    external = tuple(sorted({*first.external, *second.external}))
    moves = MOVES_SCHEMA.empty_table() if moves is None else moves
    return Topology(chains, programs, moves, external, {**first.roles, **second.roles}, first.membership)


def programs_table(
    numbers: np.ndarray[tuple[int], np.dtype[np.uint64]],
    names: Sequence[str] | pa.Array,
    chains: Sequence[int | None] | np.ndarray[tuple[int], np.dtype[np.uint64]],
    program: Sequence[str],
    balance: Sequence[int],
) -> pa.Table:
    """Return instances without options as ``PROGRAMS_SCHEMA``."""
    count = len(numbers)
    columns = [
        pa.array(numbers, pa.uint64()),
        pa.array(names, pa.string()),
        pa.array(chains, pa.uint64()),
        pa.array(program, pa.string()),
        pa.repeat(pa.scalar("{}"), count),
        pa.array([Decimal(units) for units in balance], pa.decimal128(38, 0)),
    ]
    return pa.Table.from_arrays(columns, schema=PROGRAMS_SCHEMA)


def _index(table: pa.Table) -> dict[str, int]:
    return dict(zip(table["name"].to_pylist(), table["number"].to_pylist(), strict=True))


def _chains(
    sections: Sequence[ChainSection], path: str
) -> tuple[pa.Table, tuple[int, ...], dict[int, str], Membership]:
    """Return the chains of all sections, the numbers of those that another lake runs, the roles by number, and what
    the sections say of membership."""
    names: dict[str, int] = {}
    numbers: set[int] = set()
    external: list[int] = []
    roles: dict[int, str] = {}
    spans: dict[int, Span] = {}
    nodes: dict[int, int] = {}
    following = 0
    for position, section in enumerate(sections):
        first = following if section.number is None else section.number
        size = 1 if section.count is None else section.count
        if first + size - 1 > U64_MAX:
            raise InvalidInput(f"{path}: chains[{position}]: the last chain would have a number above 2**64 - 1")
        for place in range(size):
            name = section.name if section.name is not None else f"{section.prefix}{place}"
            if name in names:
                raise InvalidInput(f"{path}: chains[{position}]: the name {shown(name)} is taken")
            if first + place in numbers:
                raise InvalidInput(f"{path}: chains[{position}].number: {first + place} is taken")
            names[name] = first + place
            numbers.add(first + place)
            if section.external:
                external.append(first + place)
            if section.role:
                roles[first + place] = section.role
            if section.span != ALWAYS:
                spans[first + place] = section.span
            if section.nodes is not None:
                nodes[first + place] = section.nodes
        following = first + size
    columns = [pa.array(list(names.values()), pa.uint64()), pa.array(list(names), pa.string())]
    table = pa.Table.from_arrays(columns, schema=CHAINS_SCHEMA)
    return table, tuple(sorted(external)), roles, Membership(spans, nodes)


def _resolve_splits(sections: Sequence[SplitSection], directory: Directory) -> tuple[Split, ...]:
    """Return splits by tick, with the numbers of their chains.

    Raises:
        InvalidInput: A chain is unknown, a chain to be split is not in the registry then, or was split at that tick
            already, or the new chain does not begin at the tick.
    """
    found: dict[tuple[int, int], Split] = {}
    for place, section in enumerate(sections):
        key = f"splits[{place}]"
        chain = directory.member(section.chain, section.tick - 1, f"{key}.chain")
        directory.member(section.chain, section.tick, f"{key}.chain")
        into, first = directory.chain(section.into, f"{key}.into"), directory.first_tick(section.into)
        if first != section.tick:
            begins = f"begins at tick {first}" if first else "is there from the beginning"
            text = f"{shown(section.into)} {begins}; allowed: a chain with from = {section.tick}"
            raise directory.fail(f"{key}.into", text)
        if (section.tick, chain) in found:
            raise directory.fail(key, f"{shown(section.chain)} is split twice before the round of tick {section.tick}")
        if any(split.into == into for split in found.values()):
            raise directory.fail(f"{key}.into", f"{shown(section.into)} is the new chain of another split")
        found[section.tick, chain] = Split(section.tick, chain, into)
    return tuple(sorted(found.values(), key=lambda split: (split.tick, split.chain)))


def _node_changes(sections: Sequence[NodesSection], directory: Directory) -> tuple[NodeChange, ...]:
    """Return ``[[nodes]]`` by tick, then in the order of the file."""
    changes = []
    for position, section in enumerate(sections):
        chain = directory.member(section.chain, section.tick, f"nodes[{position}].chain")
        changes.append(NodeChange(section.tick, chain, section.add, tuple(section.remove)))
    return tuple(sorted(changes, key=lambda change: change.tick))


def _programs(sections: Sequence[ProgramSection], chains: pa.Table, path: str) -> pa.Table:
    numbers_of = _index(chains)
    placed: list[tuple[list[str], list[int | None]]] = []
    taken: dict[str, int] = {}
    for position, section in enumerate(sections):
        key = f"programs[{position}]"
        if section.chain is not None and section.chain not in numbers_of:
            raise InvalidInput(f"{path}: {key}.chain: {unknown('chain', section.chain, numbers_of)}")
        placed.append(_instances(section, numbers_of))
        for name in placed[-1][0]:
            if name in taken:
                raise InvalidInput(f"{path}: {key}: the name {shown(name)} is taken")
            taken[name] = len(taken)
    tables = [PROGRAMS_SCHEMA.empty_table()]
    before = 0
    for position, (section, (names, hosts)) in enumerate(zip(sections, placed, strict=True)):
        size = len(names)
        installed = None if section.program == NOTHING_INSTALLED else section.program
        options = options_of(section.options, taken, f"{path}: programs[{position}].options")
        columns = [
            pa.array(np.arange(before, before + size, dtype=np.uint64)),
            pa.array(names, pa.string()),
            pa.array(hosts, pa.uint64()),
            pa.repeat(pa.scalar(installed, pa.string()), size),
            pa.repeat(pa.scalar(options), size),
            pa.repeat(pa.scalar(Decimal(section.balance), pa.decimal128(38, 0)), size),
        ]
        tables.append(pa.Table.from_arrays(columns, schema=PROGRAMS_SCHEMA))
        before += size
    return pa.concat_tables(tables).combine_chunks()


def options_of(options: Mapping[str, Any], numbers: Mapping[str, int], key: str) -> str:
    """Return options of a program as JSON, numbers in the place of names of programs. ``key``: for errors."""
    for place, name in refs_in(options):
        if name not in numbers:
            raise InvalidInput(f"{key}.{place}: {unknown('program', name, numbers)}")
    options = resolved(options, numbers.__getitem__)
    return json.dumps(options, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _instances(section: ProgramSection, chains: dict[str, int]) -> tuple[list[str], list[int | None]]:
    """Return names and chains of the instances of one section."""
    if section.name is not None:
        return [section.name], [None if section.chain is None else chains[section.chain]]
    places = range(section.per_chain or 0)
    hosts = chains if section.chain is None else {section.chain: chains[section.chain]}
    names = [f"{section.prefix}{chain}-{place}" for chain in hosts for place in places]
    numbers: list[int | None] = [number for number in hosts.values() for _ in places]
    return names, numbers
