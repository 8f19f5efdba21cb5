"""Topologies from scenario sections: numbers for names, and moves with chain lifetimes.

``declared_topology`` builds the tables. ``NameDirectory`` resolves the names in moves and faults. ``genesis_topology``
and ``membership_moves`` place programs by the lifetime of their chains.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.errors import InvalidInput

from causeway.config.faults import FOR_EVER, FaultRule, Faults
from causeway.config.section import U64_MAX
from causeway.config.topology import (
    ALWAYS,
    CHAINS_SCHEMA,
    MOVES_SCHEMA,
    PROGRAMS_SCHEMA,
    ChainSplit,
    Membership,
    NodeChange,
    TickSpan,
    Topology,
)
from causeway.core.text import format_value, suggest_known
from causeway.programs.naming import find_refs, resolve_refs
from causeway.protocols.shared.faults import FaultSection
from causeway.scenarios import settings

ProgramMove = dict[str, int | None]
"""A row of ``MOVES_SCHEMA``."""


def genesis_topology(topology: Topology) -> Topology:
    """Return the topology at genesis: programs of chains that begin later are on no chain."""
    late = [chain for chain, span in topology.membership.spans.items() if span.first]
    if not late:
        return topology
    programs = topology.programs
    hosts = programs["chain"].combine_chunks()
    waits = pc.is_in(hosts, value_set=pa.array(late, pa.uint64()))
    hosts = pc.if_else(waits, pa.scalar(None, pa.uint64()), hosts)
    programs = programs.set_column(programs.schema.get_field_index("chain"), PROGRAMS_SCHEMA.field("chain"), hosts)
    return replace(topology, programs=programs)


def membership_moves(topology: Topology, moves: Sequence[ProgramMove]) -> list[ProgramMove]:
    """Return the moves caused by chains that begin or end.

    Programs of a chain that begins later move to it then, unless moved elsewhere before. Programs on a chain that ends
    move to no chain.

    Args:
        topology: Topology with programs on their declared chains.
        moves: The scenario's own moves.
    """
    spans = topology.membership.spans
    if not spans:
        return []
    chains = topology.programs["chain"]
    at_home = topology.programs.filter(pc.is_in(chains, value_set=pa.array(list(spans), pa.uint64())))
    homes = dict(zip(at_home["number"].to_pylist(), at_home["chain"].to_pylist(), strict=True))
    concerned = {*homes, *(move["program"] for move in moves if move["chain"] in spans)}
    own: dict[int, list[tuple[int, int | None]]] = {program or 0: [] for program in concerned}
    for move in sorted(moves, key=lambda move: move["tick"] or 0):
        declared = own.get(move["program"] or 0)
        if declared is not None:
            declared.append((move["tick"] or 0, move["chain"]))
    return [
        {"tick": tick, "program": program, "chain": chain}
        for program, stays in sorted(own.items())
        for tick, chain in _moves_of_program(homes.get(program), stays, spans)
    ]


def _moves_of_program(
    home: int | None, moves: list[tuple[int, int | None]], spans: Mapping[int, TickSpan]
) -> list[tuple[int, int | None]]:
    """Return one program's moves (tick, chain) besides ``moves``: to its home, off ended chains."""
    first = spans.get(home, ALWAYS).first if home is not None else 0
    elsewhere = bool(moves) and moves[0][0] <= first
    found: list[tuple[int, int | None]] = [(first, home)] if first and not elsewhere else []
    stays = ([(first, home)] if not elsewhere else []) + moves
    ends = [tick for tick, _ in stays[1:]] + [None]
    for (_, chain), end in zip(stays, ends, strict=True):
        last = spans.get(chain, ALWAYS).last if chain is not None else None
        if last is not None and (end is None or end > last + 1):
            found.append((last + 1, None))
    return found


class NameDirectory:
    """Chains and programs of a topology by name; an unknown name raises ``InvalidInput``."""

    def __init__(self, topology: Topology, path: str) -> None:
        """Index a topology. ``path``: the scenario file, for errors."""
        self._path = path
        self._topology = topology
        self._chains = _index(topology.chains)
        self._programs = _index(topology.programs)

    def fail(self, key: str, text: str) -> InvalidInput:
        """Return an error about ``key``."""
        return InvalidInput(f"{self._path}: {key}: {text}")

    def chain(self, name: str, key: str) -> int:
        """Return the number of the chain ``name``. Raises ``InvalidInput``."""
        if name not in self._chains:
            raise self.fail(key, suggest_known("chain", name, self._chains))
        return self._chains[name]

    def first_tick(self, name: str) -> int:
        """Return the first tick of a chain in the registry."""
        return self._topology.membership.span(self._chains[name]).first

    def member(self, name: str, tick: int, key: str) -> int:
        """Return the number of a chain that is in the registry at ``tick``. Raises ``InvalidInput``."""
        number = self.chain(name, key)
        span = self._topology.membership.span(number)
        if not span.holds(tick):
            raise self.fail(key, f"{format_value(name)}: in the registry {span}, not at tick {tick}")
        return number

    def program(self, reference: int | str, key: str) -> int:
        """Return the number of a program by name; a number is returned as it is, even if unknown.

        Raises:
            InvalidInput: The name is unknown.
        """
        if isinstance(reference, int):
            return reference
        if reference not in self._programs:
            raise self.fail(key, suggest_known("program", reference, self._programs))
        return self._programs[reference]

    def moves(self, sections: Sequence[tuple[str, settings.MoveSection]]) -> pa.Table:
        """Return all moves (``MOVES_SCHEMA``) by tick, including those of chains that begin or end.

        Args:
            sections: Moves of the scenario with their keys; equal ticks keep their order.

        Raises:
            InvalidInput: A name is unknown, or a program moves twice in a tick.
        """
        rows: list[ProgramMove] = []
        for key, section in sections:
            program = self.program(section.program, f"{key}.program")
            chain = None if section.chain is None else self.member(section.chain, section.tick, f"{key}.chain")
            if any((section.tick, program) == (row["tick"], row["program"]) for row in rows):
                raise self.fail(key, f"{section.program} moves twice before the round of tick {section.tick}")
            rows.append({"tick": section.tick, "program": program, "chain": chain})
        rows += membership_moves(self._topology, rows)
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
            skip: ``transport.skip``.
            keys: Keys of the sections, if other than ``[[faults]]``.
            healed: Tick of healing by position of the fault. The fault ends in the tick before; one not begun by then
                is omitted.

        Raises:
            InvalidInput: A name is unknown, a chain is never in the registry, or a fault is repeated.
        """
        found: list[FaultRule] = []
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

    def _check_members(self, section: FaultSection, fault: FaultRule, key: str) -> None:
        """Reject a fault of a chain that is not in the registry during the fault.

        Offers of an ended chain may be delivered later, so the source need only have begun.
        """
        keys = section.keys()
        source, destination = (which if which in keys else "chain" for which in ("source", "destination"))
        ends = ((source, fault.source), (destination, fault.destination))
        for which, number in ends:
            if number is None:
                continue
            span = self._topology.membership.span(number)
            ended = which != "source" and span.last is not None and fault.first > span.last
            if ended or fault.last < span.first:
                name = format_value(str(getattr(section, which, number)))
                at = f"tick {fault.first}" if fault.first == fault.last else f"ticks {fault.first} to {fault.last}"
                at = f"tick {fault.first} and later" if fault.last >= FOR_EVER else at
                raise self.fail(f"{key}.{which}", f"{name}: in the registry {span}, the fault is at {at}")


def _lane(fault: FaultRule) -> tuple[str, int | None, int | None]:
    return fault.kind, fault.source, fault.destination


def declared_topology(
    chains: Sequence[settings.ChainSection],
    programs: Sequence[settings.ProgramSection],
    nodes: Sequence[settings.NodesSection],
    path: str,
    splits: Sequence[settings.SplitSection] = (),
) -> Topology:
    """Return the chains and programs that a scenario file declares.

    A program is on its declared chain even if that begins later (``genesis_topology``).

    Args:
        chains: Sections ``[[chains]]``.
        programs: Sections ``[[programs]]``.
        nodes: Sections ``[[nodes]]``.
        path: The file, for errors.
        splits: Sections ``[[splits]]``.

    Raises:
        InvalidInput: A section is invalid; the text names the key.
    """
    table, external, roles, membership = _chains(chains, path)
    directory = NameDirectory(Topology(table, PROGRAMS_SCHEMA.empty_table(), membership=membership), path)
    changes = _node_changes(nodes, directory)
    membership = replace(membership, changes=changes, splits=_resolve_splits(splits, directory))
    return Topology(table, _programs(programs, table, path), external=external, roles=roles, membership=membership)


def merge_topologies(first: Topology, second: Topology, moves: pa.Table | None = None) -> Topology:
    """Merge chains and programs by number; the membership is that of the first.

    Args:
        first: A topology.
        second: A topology with other numbers.
        moves: Moves of the result; None: none.
    """
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
    """Build program instances without options (``PROGRAMS_SCHEMA``).

    Args:
        numbers: Numbers of the instances.
        names: Their names.
        chains: Numbers of their chains.
        program: Names of their classes.
        balance: Their initial balances.
    """
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
    sections: Sequence[settings.ChainSection], path: str
) -> tuple[pa.Table, tuple[int, ...], dict[int, str], Membership]:
    """Return the chains, the numbers of external ones, roles by number, and the membership."""
    names: dict[str, int] = {}
    numbers: set[int] = set()
    external: list[int] = []
    roles: dict[int, str] = {}
    spans: dict[int, TickSpan] = {}
    nodes: dict[int, int] = {}
    next_number = 0
    for position, section in enumerate(sections):
        first = next_number if section.number is None else section.number
        size = 1 if section.count is None else section.count
        if first + size - 1 > U64_MAX:
            raise InvalidInput(f"{path}: chains[{position}]: the last chain would have a number above 2**64 - 1")
        for offset in range(size):
            name = section.name if section.name is not None else f"{section.prefix}{offset}"
            if name in names:
                raise InvalidInput(f"{path}: chains[{position}]: the name {format_value(name)} is taken")
            if first + offset in numbers:
                raise InvalidInput(f"{path}: chains[{position}].number: {first + offset} is taken")
            names[name] = first + offset
            numbers.add(first + offset)
            if section.external:
                external.append(first + offset)
            if section.role:
                roles[first + offset] = section.role
            if section.span != ALWAYS:
                spans[first + offset] = section.span
            if section.nodes is not None:
                nodes[first + offset] = section.nodes
        next_number = first + size
    columns = [pa.array(list(names.values()), pa.uint64()), pa.array(list(names), pa.string())]
    table = pa.Table.from_arrays(columns, schema=CHAINS_SCHEMA)
    return table, tuple(sorted(external)), roles, Membership(spans, nodes)


def _resolve_splits(sections: Sequence[settings.SplitSection], directory: NameDirectory) -> tuple[ChainSplit, ...]:
    """Resolve the chains of splits, by tick.

    Raises:
        InvalidInput: A chain is unknown; the split chain is not in the registry, or is split twice; or the new chain
            does not begin at the tick.
    """
    found: dict[tuple[int, int], ChainSplit] = {}
    for place, section in enumerate(sections):
        key = f"splits[{place}]"
        chain = directory.member(section.chain, section.tick - 1, f"{key}.chain")
        directory.member(section.chain, section.tick, f"{key}.chain")
        into, first = directory.chain(section.into, f"{key}.into"), directory.first_tick(section.into)
        if first != section.tick:
            begins = f"begins at tick {first}" if first else "is there from the beginning"
            text = f"{format_value(section.into)} {begins}; allowed: a chain with from = {section.tick}"
            raise directory.fail(f"{key}.into", text)
        if (section.tick, chain) in found:
            raise directory.fail(
                key, f"{format_value(section.chain)} is split twice before the round of tick {section.tick}"
            )
        if any(split.into == into for split in found.values()):
            raise directory.fail(f"{key}.into", f"{format_value(section.into)} is the new chain of another split")
        found[section.tick, chain] = ChainSplit(section.tick, chain, into)
    return tuple(sorted(found.values(), key=lambda split: (split.tick, split.chain)))


def _node_changes(sections: Sequence[settings.NodesSection], directory: NameDirectory) -> tuple[NodeChange, ...]:
    """Return ``[[nodes]]`` by tick, then in the order of the file."""
    changes = []
    for position, section in enumerate(sections):
        chain = directory.member(section.chain, section.tick, f"nodes[{position}].chain")
        changes.append(NodeChange(section.tick, chain, section.add, tuple(section.remove)))
    return tuple(sorted(changes, key=lambda change: change.tick))


def _programs(sections: Sequence[settings.ProgramSection], chains: pa.Table, path: str) -> pa.Table:
    numbers_of = _index(chains)
    instances: list[tuple[list[str], list[int | None]]] = []
    numbers: dict[str, int] = {}
    for position, section in enumerate(sections):
        key = f"programs[{position}]"
        if section.chain is not None and section.chain not in numbers_of:
            raise InvalidInput(f"{path}: {key}.chain: {suggest_known('chain', section.chain, numbers_of)}")
        instances.append(_instances(section, numbers_of))
        for name in instances[-1][0]:
            if name in numbers:
                raise InvalidInput(f"{path}: {key}: the name {format_value(name)} is taken")
            numbers[name] = len(numbers)
    tables = [PROGRAMS_SCHEMA.empty_table()]
    offset = 0
    for position, (section, (names, hosts)) in enumerate(zip(sections, instances, strict=True)):
        size = len(names)
        installed = None if section.program == settings.NOTHING_INSTALLED else section.program
        options = encode_options(section.options, numbers, f"{path}: programs[{position}].options")
        columns = [
            pa.array(np.arange(offset, offset + size, dtype=np.uint64)),
            pa.array(names, pa.string()),
            pa.array(hosts, pa.uint64()),
            pa.repeat(pa.scalar(installed, pa.string()), size),
            pa.repeat(pa.scalar(options), size),
            pa.repeat(pa.scalar(Decimal(section.balance), pa.decimal128(38, 0)), size),
        ]
        tables.append(pa.Table.from_arrays(columns, schema=PROGRAMS_SCHEMA))
        offset += size
    return pa.concat_tables(tables).combine_chunks()


def encode_options(options: Mapping[str, Any], numbers: Mapping[str, int], key: str) -> str:
    """Encode a program's options as JSON, with program names replaced by numbers.

    Args:
        options: The options.
        numbers: Program numbers by name.
        key: Key of the options, for errors.

    Raises:
        InvalidInput: A program name is unknown.
    """
    for place, name in find_refs(options):
        if name not in numbers:
            raise InvalidInput(f"{key}.{place}: {suggest_known('program', name, numbers)}")
    options = resolve_refs(options, numbers.__getitem__)
    return json.dumps(options, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _instances(section: settings.ProgramSection, chains: dict[str, int]) -> tuple[list[str], list[int | None]]:
    """Return names and chains of the instances of a section."""
    if section.name is not None:
        return [section.name], [None if section.chain is None else chains[section.chain]]
    indices = range(section.per_chain or 0)
    hosts = chains if section.chain is None else {section.chain: chains[section.chain]}
    names = [f"{section.prefix}{chain}-{index}" for chain in hosts for index in indices]
    numbers: list[int | None] = [number for number in hosts.values() for _ in indices]
    return names, numbers
