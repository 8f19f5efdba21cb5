"""Topology of a network: chains, programs, moves, and membership of chains and nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.order import U64

MAX_NODES = 1000
"""Maximum number of nodes of a chain at first, and of nodes that join at once."""


@dataclass(frozen=True)
class TickSpan:
    """Ticks of a chain in the registry, from ``first`` to ``last`` inclusive; None: for ever."""

    first: int = 0
    last: int | None = None

    def holds(self, tick: int) -> bool:
        """Return True if the span includes a tick."""
        return self.first <= tick and (self.last is None or tick <= self.last)

    def __str__(self) -> str:
        """Return it as in a sentence: ``from tick 3 on``, ``until tick 7``."""
        begin, end = f"from tick {self.first} on", f"until tick {self.last}"
        if self.last is None:
            return begin
        return f"from tick {self.first} {end}" if self.first else end


ALWAYS = TickSpan()


@dataclass(frozen=True)
class NodeChange:
    """A change of a chain's nodes, in force before the round of ``tick``.

    Attributes:
        tick: The tick.
        chain: Number of the chain.
        add: Number of new nodes; they are numbered after the highest number ever used.
        remove: Numbers of the nodes that leave.
    """

    tick: int
    chain: int
    add: int = 0
    remove: tuple[int, ...] = ()


@dataclass(frozen=True)
class ChainSplit:
    """A split of ``chain`` before the round of ``tick``: some programs move to ``into``.

    Chains are numbers; ``into`` begins at the tick. The moved programs are among the moves of the topology.
    """

    tick: int
    chain: int
    into: int


@dataclass(frozen=True)
class Membership:
    """Lifetimes and nodes of chains, by chain number.

    Attributes:
        spans: Lifetimes of the chains that begin or end.
        nodes: Initial number of nodes, if declared; they are numbered from 0.
        changes: Changes of nodes, by tick.
        splits: Splits of chains, by tick.
    """

    spans: Mapping[int, TickSpan] = field(default_factory=dict)
    nodes: Mapping[int, int] = field(default_factory=dict)
    changes: tuple[NodeChange, ...] = ()
    splits: tuple[ChainSplit, ...] = ()

    def span(self, chain: int) -> TickSpan:
        """Return the lifetime of a chain."""
        return self.spans.get(chain, ALWAYS)

    def members(self, chains: U64, tick: int) -> npt.NDArray[np.bool_]:
        """Return a mask of the chains in the registry in the round of ``tick``."""
        absent = [chain for chain, span in self.spans.items() if not span.holds(tick)]
        return ~np.isin(chains, np.array(absent, dtype=np.uint64))

    @cached_property
    def ticks(self) -> tuple[int, ...]:
        """Ticks before whose rounds the membership changes, ascending."""
        coming = [span.first for span in self.spans.values() if span.first]
        going = [span.last + 1 for span in self.spans.values() if span.last is not None]
        planned = [change.tick for change in self.changes] + [split.tick for split in self.splits]
        return tuple(sorted({*coming, *going, *planned}))

    @cached_property
    def _splitting(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for split in self.splits:
            found.setdefault(split.tick, []).extend((split.chain, split.into))
        return found

    def splitting(self, tick: int) -> tuple[int, ...]:
        """Return the chains of splits before the round of ``tick``: split and new ones."""
        return tuple(self._splitting.get(tick, ()))

    @cached_property
    def _changes_of(self) -> dict[int, list[NodeChange]]:
        found: dict[int, list[NodeChange]] = {}
        for change in self.changes:
            found.setdefault(change.chain, []).append(change)
        return found

    def nodes_of(self, chain: int, tick: int, default: int) -> tuple[int, ...]:
        """Return the numbers of a chain's nodes in the round of ``tick``, ascending.

        Args:
            chain: Number of the chain.
            tick: The tick.
            default: Initial number of nodes, if not declared.
        """
        nodes = _Nodes(self.nodes.get(chain, default))
        for change in self._changes_of.get(chain, ()):
            if change.tick <= tick:
                nodes.make(change)
        return tuple(sorted(nodes.there))

    def first_invalid_change(self, default: int) -> tuple[int, str] | None:
        """Return position and description of the first invalid change, or None.

        It removes an unknown node, or the last one.

        Args:
            default: Initial number of nodes, if not declared.
        """
        chains: dict[int, _Nodes] = {}
        for row, change in enumerate(self.changes):
            nodes = chains.setdefault(change.chain, _Nodes(self.nodes.get(change.chain, default)))
            unknown = sorted({*change.remove} - nodes.there)
            if unknown:
                there = ", ".join(str(node) for node in sorted(nodes.there))
                return row, f"node {unknown[0]} is not there at tick {change.tick}; there are {there}"
            nodes.make(change)
            if not nodes.there:
                return row, f"no node is left at tick {change.tick}; there must be one at least"
        return None

    def encoded(self) -> dict[str, Any]:
        """Encode it as a JSON object; ``splits`` is omitted if empty."""
        found: dict[str, Any] = {
            "spans": [[chain, span.first, span.last] for chain, span in sorted(self.spans.items())],
            "nodes": [[chain, count] for chain, count in sorted(self.nodes.items())],
            "changes": [[change.tick, change.chain, change.add, list(change.remove)] for change in self.changes],
        }
        if self.splits:
            found["splits"] = [[split.tick, split.chain, split.into] for split in self.splits]
        return found

    @classmethod
    def decoded(cls, content: Mapping[str, Any]) -> Membership:
        """Decode an object of ``encoded``; a missing key is empty."""
        return cls(
            {chain: TickSpan(first, last) for chain, first, last in content.get("spans", ())},
            dict(content.get("nodes", ())),
            tuple(
                NodeChange(tick, chain, add, tuple(remove)) for tick, chain, add, remove in content.get("changes", ())
            ),
            tuple(ChainSplit(*row) for row in content.get("splits", ())),
        )


class _Nodes:
    """The nodes of a chain during changes."""

    def __init__(self, count: int) -> None:
        self.there = set(range(count))
        self._next_number = count

    def make(self, change: NodeChange) -> None:
        """Apply a change."""
        self.there.difference_update(change.remove)
        self.there.update(range(self._next_number, self._next_number + change.add))
        self._next_number += change.add


CHAINS_SCHEMA = pa.schema(
    [
        pa.field("number", pa.uint64(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
    ]
)
"""One row a chain; numbers and names are unique."""

PROGRAMS_SCHEMA = pa.schema(
    [
        pa.field("number", pa.uint64(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("chain", pa.uint64()),
        pa.field("program", pa.string()),
        pa.field("options", pa.string(), nullable=False),
        pa.field("balance", pa.decimal128(38, 0), nullable=False),
    ]
)
"""One row a program instance at genesis.

``chain`` null: on no chain. ``program`` null: mapped to a chain, nothing installed. ``options``: JSON object for the
program's class. ``balance``: initial units of value.
"""

MOVES_SCHEMA = pa.schema(
    [
        pa.field("tick", pa.uint64(), nullable=False),
        pa.field("program", pa.uint64(), nullable=False),
        pa.field("chain", pa.uint64()),
    ]
)
"""One row a move, in force before the round of ``tick``; ``chain`` null: to no chain."""


@dataclass(frozen=True)
class Topology:
    """The chains of a network, their programs at genesis, and later changes.

    Attributes:
        chains: Chains (``CHAINS_SCHEMA``).
        programs: Programs (``PROGRAMS_SCHEMA``).
        moves: Moves (``MOVES_SCHEMA``).
        external: Numbers of chains run by another lake: names and programs are known, blocks are not made.
        roles: Roles by chain number, for protocols with roles.
        membership: Lifetimes and nodes; their effects on programs are in ``programs`` and ``moves``.
    """

    chains: pa.Table
    programs: pa.Table
    moves: pa.Table = field(default_factory=MOVES_SCHEMA.empty_table)
    external: tuple[int, ...] = ()
    roles: Mapping[int, str] = field(default_factory=dict)
    membership: Membership = field(default_factory=Membership)
