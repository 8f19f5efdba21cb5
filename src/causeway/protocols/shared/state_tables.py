"""States as tables: conversion, selection and merging; static hosting of programs.

All follows from the declaration of state tables.

Chains are positions here and in every column of a kernel; each protocol has its own order of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.errors import InvalidInput
from causeway_proofs.order import U64, find_positions, stable_order

from causeway.config.topology import CHAINS_SCHEMA, Topology
from causeway.core.frame import Column, Frame, concat, empty_frame, from_table, repeat_bytes, schema_fields
from causeway.protocols.contract import NO_HOST, Chains, ChainState, Hosts, Kernel, StateTable
from causeway.protocols.shared.execution import PROGRAM_TABLE, ProgramRunner, find_outdated_programs, program_frames

State = TypeVar("State", bound=ChainState)


def restore_state(kernel: Kernel[State, Any], tables: Mapping[str, pa.Table]) -> State:
    """Return the state with these tables; absent tables are empty.

    Args:
        kernel: The kernel.
        tables: The tables by name, in any row order.
    """
    return kernel.state(
        {
            name: sort_table(table, from_table(tables[name])) if name in tables else empty_frame(table.schema)
            for name, table in kernel.tables().items()
        }
    )


def blank_rows(schema: pa.Schema, count: int, **given: Any) -> Frame:
    """Create rows of a table with given columns, and zeros or empty bytes elsewhere.

    Args:
        schema: Schema of the table, of numbers, digests and bytes.
        count: Number of rows.
        given: Columns by name, or one number for all rows.
    """
    columns = {name: _blank_column(kind, count, given.pop(name, 0)) for name, kind in schema_fields(schema)}
    assert not given, f"columns not in the schema: {', '.join(given)}"
    return Frame(columns, count)


def _blank_column(kind: pa.DataType, count: int, value: Any) -> Column:
    if not isinstance(value, np.ndarray | np.generic | int):
        return value  # an Arrow column
    if pa.types.is_binary(kind):
        assert not isinstance(value, np.ndarray)
        return repeat_bytes(b"", count)
    digests = pa.types.is_fixed_size_binary(kind)
    shape, number = ((count, kind.byte_width), np.uint8) if digests else (count, kind.to_pandas_dtype())
    return value.astype(number, copy=False) if isinstance(value, np.ndarray) else np.full(shape, value, number)


def select_chains(kernel: Kernel[State, Any], state: State, chains: Chains, tick: int) -> State:
    """Select the rows of ``state`` that belong to ``chains`` in the round of ``tick``.

    Args:
        kernel: The kernel, for its tables and hosts.
        state: The state.
        chains: Positions of chains.
        tick: The tick of the round.
    """
    tables = kernel.tables()

    def select(name: str, frame: Frame) -> Frame:
        return frame.filter(np.isin(row_owners(kernel, tables[name], frame, tick), chains)) if len(frame) else frame

    return kernel.state({name: select(name, frame) for name, frame in state.frames().items()})


def row_owners(kernel: Kernel[State, Any], table: StateTable, frame: Frame, tick: int) -> npt.NDArray[np.uint32]:
    """Return the position of the chain that owns each row of a table, uint32.

    Args:
        kernel: The kernel, for the hosts of programs.
        table: The declaration of the table.
        frame: The rows.
        tick: The tick of the round.
    """
    column = frame[table.owner]
    if table.belongs_to_program:
        return kernel.hosts(column, tick).view(np.uint32)
    owner: npt.NDArray[np.uint32] = column
    return owner


def merge_states(kernel: Kernel[State, Any], states: Sequence[State]) -> State:
    """Merge the states of disjoint sets of chains, every table in its order.

    Args:
        kernel: The kernel, for its tables.
        states: The states.
    """
    if len(states) == 1:
        return states[0]
    frames = [state.frames() for state in states]
    return kernel.state(
        {
            name: sort_table(
                table, concat([part[name] for part in frames if name in part] or [empty_frame(table.schema)])
            )
            for name, table in kernel.tables().items()
        }
    )


def sort_table(table: StateTable, frame: Frame) -> Frame:
    """Sort the rows of a table in its order.

    Args:
        table: The declaration of the table.
        frame: The rows.
    """
    order = stable_order(*(frame[key] for key in table.order))
    return frame if bool((order[1:] > order[:-1]).all()) else frame.take(order)


def replace_chains(table: StateTable, frame: Frame, chains: Chains, rows: Frame) -> Frame:
    """Replace the rows of some chains in a table.

    Args:
        table: The declaration of the table.
        frame: The rows of all chains.
        chains: Positions of the chains, in the column of the owner.
        rows: The new rows; further columns are left out.
    """
    others = frame.filter(~np.isin(frame[table.owner], chains))
    return sort_table(table, concat([others, rows.select(table.schema.names)]))


def add_role_chain(topology: Topology, role: str, title: str) -> Topology:
    """Add a chain with ``role``, named after the role, unless there is one.

    Args:
        topology: The network.
        role: The role.
        title: The description of the chain in error texts.

    Raises:
        InvalidInput: Two chains have the role, or the chain cannot be added.
    """
    holders = [number for number, name in topology.roles.items() if name == role]
    names = topology.chains["name"].to_pylist()
    if len(holders) > 1:
        named = dict(zip(topology.chains["number"].to_pylist(), names, strict=True))
        both = " and ".join(repr(named[number]) for number in sorted(holders)[:2])
        raise InvalidInput(f"chains: {both} have the role {role!r}; allowed: one chain")
    if holders:
        return topology
    if topology.external:
        text = f"a network in several lakes has one {role} chain"
        raise InvalidInput(f"chains: {text}: name it in every scenario, with role = {role!r}")
    if role in names:
        text = f"say role = {role!r} if it is {title}, or call it otherwise"
        raise InvalidInput(f"chains: {role!r} is a chain without a role; {text}")
    number = max(topology.chains["number"].to_pylist(), default=-1) + 1
    added = pa.table({"number": [number], "name": [role]}, schema=CHAINS_SCHEMA)
    chains = pa.concat_tables([topology.chains, added])
    return replace(topology, chains=chains, roles={**topology.roles, number: role})


@dataclass(frozen=True)
class Hosting(ABC):
    """The chains of a topology by position, and the chain of each program."""

    topology: Topology

    @abstractmethod
    def _rank(self, name: str, number: int) -> Any:
        """Return the sort key of a chain; ``number``: its number in the topology."""

    @cached_property
    def _order(self) -> list[tuple[str, int]]:
        rows = zip(self.topology.chains["name"].to_pylist(), self.topology.chains["number"].to_pylist(), strict=True)
        return sorted(rows, key=lambda row: self._rank(*row))

    @cached_property
    def names(self) -> list[str]:
        """Return the chains' names by position."""
        return [name for name, _ in self._order]

    @cached_property
    def numbers(self) -> U64:
        """Return the chains' numbers in the topology by position."""
        return np.array([number for _, number in self._order], dtype=np.uint64)

    def positions_of(self, numbers: U64) -> Chains:
        """Return the positions of chains from their numbers."""
        order = np.argsort(self.numbers, kind="stable")
        positions: Chains = order[np.searchsorted(self.numbers[order], numbers)].astype(np.uint32)
        return positions

    @cached_property
    def _programs(self) -> tuple[U64, Hosts]:
        numbers: U64 = self.topology.programs["number"].to_numpy().astype(np.uint64)
        by_number = {int(number): position for position, number in enumerate(self.numbers)}
        chains = self.topology.programs["chain"].to_pylist()
        hosts = [NO_HOST if chain is None else by_number[chain] for chain in chains]
        order = np.argsort(numbers, kind="stable")
        return numbers[order], np.array(hosts, dtype=np.int32)[order]

    @property
    def programs(self) -> U64:
        """Return the numbers of all programs, ascending."""
        return self._programs[0]

    def host_of(self, programs: U64) -> Hosts:
        """Return the chain of each program, or ``NO_HOST``."""
        known, hosts = self._programs
        if len(known) == 0:
            return np.full(len(programs), NO_HOST, dtype=np.int32)
        rows = find_positions(known, programs)
        return np.where(rows >= 0, hosts[rows], np.int32(NO_HOST))

    def programs_on(self, chains: Chains) -> U64:
        """Return the numbers of the programs on ``chains``, ascending."""
        programs, hosts = self._programs
        return programs[np.isin(hosts, chains.astype(np.int32))]

    @property
    def hosting_chains(self) -> Chains:
        """Return the chains that host programs, ascending."""
        _, hosts = self._programs
        return np.unique(hosts[hosts >= 0]).astype(np.uint32)


class StaticHosting(ABC):
    """The part of a kernel (``contract.Kernel``) for networks whose programs never move."""

    @property
    @abstractmethod
    def hosting(self) -> Hosting:
        """Return the chains and the hosts of programs."""

    def chains(self) -> Sequence[str]:
        """Return the chains' names by position."""
        return self.hosting.names

    def numbers(self) -> U64:
        """Return the chains' numbers in the topology by position."""
        return self.hosting.numbers

    def weights(self) -> npt.NDArray[np.float64]:
        """Return one plus the number of programs of each chain."""
        hosts = self.hosting.host_of(self.hosting.programs)
        return np.bincount(hosts[hosts >= 0], minlength=len(self.hosting.names)).astype(np.float64) + 1

    def registry_version(self, tick: int) -> int:
        """Return 0: programs stay on their chains."""
        return 0

    def hosts(self, programs: U64, tick: int) -> Hosts:
        """Return the chain of each program, at any tick."""
        return self.hosting.host_of(programs)


@dataclass
class TrieCache:
    """Tries derived from tables, or None: a cache that does not affect roots."""

    tries: object = None


@dataclass(frozen=True)
class TableState:
    """The states of a set of chains at one height: tables by name, and programs by class.

    Each table is in its order.

    ``kept`` is a derived index.
    """

    tables: Mapping[str, Frame]
    programs: Mapping[str, Frame]
    kept: TrieCache = field(default_factory=TrieCache, compare=False)

    def __getitem__(self, name: str) -> Frame:
        return self.tables[name]

    def frames(self) -> dict[str, Frame]:
        """Return the rows of every table by name; unchanged tables stay the same objects."""
        return dict(self.tables) | {PROGRAM_TABLE + name: frame for name, frame in self.programs.items()}

    def with_tables(self, **tables: Frame) -> Self:
        """Return the state with some of its tables replaced."""
        return replace(self, tables={**self.tables, **tables})

    def with_programs(self, accounts: Frame, programs: Mapping[str, Frame]) -> Self:
        """Return the state with the results of execution."""
        return replace(self.with_tables(accounts=accounts), programs=programs)

    @classmethod
    def from_frames(
        cls, frames: Mapping[str, Frame], tables: Mapping[str, StateTable], program_schemas: Mapping[str, pa.Schema]
    ) -> Self:
        """Return the state with these frames; absent tables and program classes are empty."""
        rows = {name: frames.get(name, empty_frame(table.schema)) for name, table in tables.items()}
        programs = {name: empty_frame(schema) for name, schema in program_schemas.items()}
        return cls(rows, programs | program_frames(frames))


Tabled = TypeVar("Tabled", bound=TableState)


def change_programs(state: Tabled, hosting: Hosting, programs: ProgramRunner, chains: Chains) -> Tabled:
    """Install new and changed programs.

    Args:
        state: The state.
        hosting: The hosts of programs.
        programs: The program runner.
        chains: Positions of the chains.
    """
    hosts = hosting.host_of(programs.changed)
    due = find_outdated_programs(programs, hosts, chains, state["accounts"], state.programs)
    return state.with_programs(*programs.install(due, state["accounts"], state.programs)) if len(due) else state
