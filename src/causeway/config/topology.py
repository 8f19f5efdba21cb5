"""What a network consists of: its chains, the programs on them, and when programs move.

Which chains are in a network's registry at which ticks, and which nodes they have.
"""

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
"""Nodes that a chain has at first, or that join at once, at most."""


@dataclass(frozen=True)
class TickSpan:
    """The ticks at which a chain is in the registry: from ``first`` to ``last``, both included; None: for ever."""

    first: int = 0
    last: int | None = None

    def holds(self, tick: int) -> bool:
        """Return whether the chain is in the registry at ``tick``."""
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
    """A change of the nodes of ``chain`` (its number), in force before the round of ``tick``.

    ``add``: how many new nodes join; they get the numbers after the highest that the chain ever gave. ``remove``: the
    numbers of those that leave.
    """

    tick: int
    chain: int
    add: int = 0
    remove: tuple[int, ...] = ()


@dataclass(frozen=True)
class ChainSplit:
    """The split of ``chain`` before the round of ``tick``: some of its programs go to ``into``, which begins there.

    Chains are numbers. Which programs go is part of the moves of the topology.
    """

    tick: int
    chain: int
    into: int


@dataclass(frozen=True)
class Membership:
    """The chains that are not in the registry all the time, and the nodes of chains. Chains are numbers.

    ``spans``: of those that come or go. ``nodes``: how many nodes a chain has at first, where that is said; they have
    the numbers from 0 on. ``changes``: by tick. ``splits``: by tick.
    """

    spans: Mapping[int, TickSpan] = field(default_factory=dict)
    nodes: Mapping[int, int] = field(default_factory=dict)
    changes: tuple[NodeChange, ...] = ()
    splits: tuple[ChainSplit, ...] = ()

    def span(self, chain: int) -> TickSpan:
        """Return when ``chain`` is in the registry."""
        return self.spans.get(chain, ALWAYS)

    def members(self, chains: U64, tick: int) -> npt.NDArray[np.bool_]:
        """Return which of ``chains`` are in the registry in the round of ``tick``."""
        absent = [chain for chain, span in self.spans.items() if not span.holds(tick)]
        return ~np.isin(chains, np.array(absent, dtype=np.uint64))

    @cached_property
    def ticks(self) -> tuple[int, ...]:
        """Return the ticks before whose rounds something changes, ascending."""
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
        """Return the chains that a split before the round of ``tick`` is about: those that are split, and the new."""
        return tuple(self._splitting.get(tick, ()))

    @cached_property
    def _changes_of(self) -> dict[int, list[NodeChange]]:
        found: dict[int, list[NodeChange]] = {}
        for change in self.changes:
            found.setdefault(change.chain, []).append(change)
        return found

    def nodes_of(self, chain: int, tick: int, default: int) -> tuple[int, ...]:
        """Return the numbers of the nodes of ``chain`` in the round of ``tick``, ascending.

        ``default``: how many there are at first where that is not said. See ``first_mistake`` for
        changes that cannot be made.
        """
        nodes = _Nodes(self.nodes.get(chain, default))
        for change in self._changes_of.get(chain, ()):
            if change.tick <= tick:
                nodes.make(change)
        return tuple(sorted(nodes.there))

    def first_invalid_change(self, default: int) -> tuple[int, str] | None:
        """Return the first of ``changes`` that cannot be made, and why; None if all can.

        A node leaves that is not there, or none is left. ``default``: as of ``nodes_of``.
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
        """Return it as a JSON object; it has ``splits`` only where there are some."""
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
        """Return what ``encoded`` was made of; of an object without a key, what it says is empty."""
        return cls(
            {chain: TickSpan(first, last) for chain, first, last in content.get("spans", ())},
            dict(content.get("nodes", ())),
            tuple(
                NodeChange(tick, chain, add, tuple(remove)) for tick, chain, add, remove in content.get("changes", ())
            ),
            tuple(ChainSplit(*row) for row in content.get("splits", ())),
        )


class _Nodes:
    """The nodes of one chain while changes are made."""

    def __init__(self, count: int) -> None:
        self.there = set(range(count))
        self._following = count

    def make(self, change: NodeChange) -> None:
        """Make one change."""
        self.there.difference_update(change.remove)
        self.there.update(range(self._following, self._following + change.add))
        self._following += change.add


CHAINS_SCHEMA = pa.schema(
    [
        pa.field("number", pa.uint64(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
    ]
)
"""One row a chain; numbers are unique, names too."""

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
"""One row a program instance at genesis. ``chain`` null: on no chain. ``program`` null: mapped to a chain, but nothing
is installed there. ``options``: a JSON object for the program's class. ``balance``: units of value it starts with."""

MOVES_SCHEMA = pa.schema(
    [
        pa.field("tick", pa.uint64(), nullable=False),
        pa.field("program", pa.uint64(), nullable=False),
        pa.field("chain", pa.uint64()),
    ]
)
"""One row a change of the registry, in force before the round of ``tick``. ``chain`` null: on no chain from then on."""


@dataclass(frozen=True)
class Topology:
    """The chains of a network, the programs on them at genesis, and the changes that follow.

    ``external``: numbers of chains that another lake runs; this one knows their names and programs, and makes no block
    of theirs. ``roles``: what chains (by number) are among the others, where the protocol has roles. ``membership``:
    which of them are in the registry when, and their nodes; what that means for programs stands in ``programs`` and
    ``moves``.
    """

    chains: pa.Table
    programs: pa.Table
    moves: pa.Table = field(default_factory=MOVES_SCHEMA.empty_table)
    external: tuple[int, ...] = ()
    roles: Mapping[int, str] = field(default_factory=dict)
    membership: Membership = field(default_factory=Membership)
