"""The relay chain's state at one of its leaves (ICMP reference 2.5, G9).

The state belongs to the block: where the relay chain has several leaves, each has rows of its own in every table of the
relay chain (``leaf``), so that nothing of one can be seen at another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from causeway.model.frame import Frame, concat
from causeway.protocols.contract import View
from causeway.protocols.icmp.chains import RELAY_POSITION
from causeway.protocols.icmp.state import State
from causeway.protocols.icmp.tables import ANCESTRY_SCHEMA, PARTINGS_SCHEMA, STATE_TABLES

MAX_CHAIN_HEADS = 5
"""The relay chain has at most so many leaves (2.5)."""

MOST_ANCESTORS = 4_096
"""A watermark may be moved to one of so many last relay blocks, and to any that posted queues for its parachain."""

OF_LEAVES = ("blocks", "paras", "unrouted", "ancestry", "blocked", "dropped")
"""The tables of which each leaf has rows of its own."""


@dataclass(frozen=True)
class Leaf:
    """The rows of one leaf, in the order of their tables; ``blocks`` has one."""

    blocks: Frame
    paras: Frame
    unrouted: Frame
    ancestry: Frame
    blocked: Frame
    dropped: Frame

    @property
    def number(self) -> int:
        """Return the number of the leaf's block."""
        return int(self.blocks["number"][0])

    @property
    def hash(self) -> bytes:
        """Return the hash of the leaf's block."""
        return bytes(self.blocks["hash"][0].tobytes())

    @classmethod
    def of(cls, tables: Mapping[str, Frame], leaf: int) -> Leaf:
        """Return the rows of ``leaf`` of the relay chain's tables."""
        if len(tables["blocks"]) == 1:
            return cls(*(tables[name] for name in OF_LEAVES))
        return cls(*(tables[name].filter(tables[name]["leaf"] == np.uint8(leaf)) for name in OF_LEAVES))

    def named(self, leaf: int) -> Leaf:
        """Return these rows as those of ``leaf``."""
        frames = (getattr(self, name) for name in OF_LEAVES)
        return Leaf(*(frame.with_columns(leaf=np.full(len(frame), leaf, dtype=np.uint8)) for frame in frames))


def with_ancestor(leaf: Leaf) -> Leaf:
    """Return the leaf whose block is one of those that it builds on: genesis and the last ``MOST_ANCESTORS`` are."""
    ancestry = concat([leaf.ancestry, leaf.blocks.select(ANCESTRY_SCHEMA.names)])
    if len(ancestry) > MOST_ANCESTORS + 1:
        ancestry = concat([ancestry.slice(0, 1), ancestry.slice(2, len(ancestry))])
    return replace(leaf, ancestry=ancestry)


def leaves_of(tables: Mapping[str, Frame]) -> list[Leaf]:
    """Return the leaves of the relay chain, in order."""
    return [Leaf.of(tables, leaf) for leaf in tables["blocks"]["leaf"].tolist()]


def with_leaves(state: State, leaves: Sequence[Leaf]) -> State:
    """Return the state whose leaves these are, in the order of their numbers."""
    tables = {}
    for name in OF_LEAVES:
        parts = [getattr(leaf, name) for leaf in leaves]
        tables[name] = parts[0] if len(parts) == 1 else concat(parts)
        assert tables[name].names == STATE_TABLES[name].schema.names, name
    return state.with_tables(**tables)


def parted_at(partings: Frame, one: int, other: int) -> int:
    """Return the height at which two leaves parted (``tables.PARTINGS_SCHEMA``)."""
    mine = (partings["leaf"] == np.uint8(min(one, other))) & (partings["other"] == np.uint8(max(one, other)))
    (height,) = partings["height"][mine].tolist()
    return int(height)


def partings_after(partings: Frame, origins: Mapping[int, int], height: int) -> Frame:
    """Return when leaves parted from each other; ``origins``: each leaf with the number that it, or the leaf from which
    it parts at ``height``, had before."""
    rows = [
        (leaf, other, height if before == origin else parted_at(partings, before, origin))
        for leaf, before in origins.items()
        for other, origin in origins.items()
        if leaf < other
    ]
    columns = np.array(rows, dtype=np.uint64).reshape(-1, 3).T
    kept = {
        field.name: column.astype(field.type.to_pandas_dtype())
        for field, column in zip(
            (PARTINGS_SCHEMA.field(name) for name in ("leaf", "other", "height")), columns, strict=True
        )
    }
    return Frame({"chain": np.full(len(rows), RELAY_POSITION, dtype=np.uint32), **kept}, len(rows))


def seen_leaf(view: View, leaf: int, name: str) -> Frame:
    """Return the rows of ``leaf`` of a table of the relay chain that is shown."""
    table = view.tables[name]
    return table.filter(table["leaf"] == np.uint8(leaf))
