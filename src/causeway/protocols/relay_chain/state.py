"""The state of any set of chains as columns: the rows of its tables (``tables``).

The state tables: the columns of each, whose its rows are, who is shown them (ICMP reference 2.2, 3.1).

A lane is named by the chains of the messages in it. Substream 0 has what one parachain sends another: its segments are
the egress queues of its blocks. Where ``destination`` is ``source`` the lane is local: calls (0) and answers (1)
between programs of one chain, of which no root is posted.

The relay chain's state at one of its leaves (ICMP reference 2.5, G9).

The state belongs to the block: where the relay chain has several leaves, each has rows of its own in every table of the
relay chain (``leaf``), so that nothing of one can be seen at another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from causeway.core.frame import Frame, concat, empty_frame
from causeway.core.queues import Queues
from causeway.protocols.contract import StateTable, View, Visibility
from causeway.protocols.relay_chain.network import RELAY_POSITION
from causeway.protocols.shared.execution import ACCOUNTS
from causeway.protocols.shared.messages import LANE, LANE_FIELDS, MESSAGE_FIELDS, OUTBOUND_SCHEMA
from causeway.protocols.shared.state_tables import TableState


def _field(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


U8, U32, UINT64, DIGEST = pa.uint8(), pa.uint32(), pa.uint64(), pa.binary(32)

BLOCKS_SCHEMA = pa.schema(
    [
        _field("chain", U32),
        _field("leaf", U8),
        _field("number", UINT64),
        _field("hash", DIGEST),
        _field("parent", DIGEST),
        _field("next_tick", UINT64),
    ]
)
"""One row a leaf of the relay chain: its block, and the first tick after that of the block."""

PARTINGS_SCHEMA = pa.schema([_field("chain", U32), _field("leaf", U8), _field("other", U8), _field("height", UINT64)])
"""One row two leaves of the relay chain, ``leaf`` < ``other``: the height that made the first block of one that is not
the other's."""

PARAS_SCHEMA = pa.schema(
    [
        _field("chain", U32),
        _field("leaf", U8),
        _field("para", U32),
        _field("active", U8),
        _field("number", UINT64),
        _field("head", DIGEST),
        _field("watermark", UINT64),
        _field("watermark_hash", DIGEST),
        _field("included", UINT64),
        _field("refused", DIGEST),
    ]
)
"""One row a parachain that is or was registered at a leaf (2.2): whether it is (1), the number and hash of its last
block that was included, its watermark, the number of the relay block that included it last, and the last block of it
that the relay chain refused (zeros: none)."""

UNROUTED_SCHEMA = pa.schema(
    [
        _field("chain", U32),
        _field("leaf", U8),
        _field("number", UINT64),
        _field("to", U32),
        _field("source", U32),
        _field("issued", UINT64),
        _field("tick", UINT64),
        _field("root", DIGEST),
        _field("hash", DIGEST),
    ]
)
"""One row a queue that the relay block ``number`` (with ``hash``), made in ``tick``, posted and that lies above the
watermark of ``to`` at a leaf (``Unrouted``, 3.1); ``issued``: the number of the sender's own block that it is of."""

CANDIDATES_SCHEMA = pa.schema(
    [
        _field("source", U32),
        _field("destination", U32),
        _field("number", UINT64),
        _field("parent", DIGEST),
        _field("head", DIGEST),
        _field("relay_number", UINT64),
        _field("relay_hash", DIGEST),
        _field("watermark", UINT64),
        _field("watermark_hash", DIGEST),
    ]
)
"""One row the last block of a parachain, until the relay chain (``destination``) has it: its receipt (2.2), with the
relay block that it was built on."""

EGRESS_SCHEMA = pa.schema(
    [_field("source", U32), _field("destination", U32), _field("place", U32), _field("to", U32), _field("root", DIGEST)]
)
"""One row an entry of a receipt's egress_queue_roots, in its order (``place``)."""

TIPS_SCHEMA = pa.schema(
    [_field("chain", U32), _field("number", UINT64), _field("head", DIGEST), _field("height", UINT64)]
)
"""One row the last block that a parachain made, and the height at which it did."""

RETURNS_SCHEMA = pa.schema([_field("chain", U32), _field("height", UINT64), _field("past", UINT64)])
"""One row a parachain that went back at ``height`` to what it was at the height ``past``: what it was between is no
part of its history."""

QUEUES_SCHEMA = pa.schema([*LANE_FIELDS, _field("begin", UINT64), _field("next_index", UINT64)])

RUNS_SCHEMA = pa.schema(
    [
        *LANE_FIELDS,
        _field("height", UINT64),
        _field("first", UINT64),
        _field("count", UINT64),
        _field("number", UINT64),
        _field("root", DIGEST),
    ]
)
"""One row a segment of a lane: an egress queue that its chain keeps, with the number of the parachain's block that
issued it and its root (zeros for local lanes)."""

CURSORS_SCHEMA = pa.schema([*LANE_FIELDS, _field("index", UINT64), _field("number", UINT64)])
"""One row a lane to a chain: the index of the next message that the chain has not consumed, and the number of its block
that consumed the one before."""

ANCESTRY_SCHEMA = pa.schema(
    [_field("chain", U32), _field("leaf", U8), _field("number", UINT64), _field("hash", DIGEST)]
)
"""One row an earlier block of the relay chain, on the chain of a leaf, that a watermark may be moved to."""

BLOCKED_SCHEMA = pa.schema(
    [_field("chain", U32), _field("leaf", U8), _field("to", U32), _field("source", U32), _field("since", UINT64)]
)
"""One row a pair of parachains of which ``to`` has told the relay chain, in the block ``since``, to route nothing from
``source`` (``Blocked``, 5.1 (2))."""

DROPPED_SCHEMA = pa.schema(
    [
        _field("chain", U32),
        _field("leaf", U8),
        _field("to", U32),
        _field("source", U32),
        _field("issued", UINT64),
        _field("why", U8),
        _field("until", UINT64),
    ]
)
"""One row a queue of the block ``issued`` of ``source`` that is not consumed and never will be at a leaf (``why``:
``errors.Gone``). It is told to the sender in the relay blocks up to the number ``until``."""

POOL_SCHEMA = pa.schema([_field("chain", U32), _field("place", UINT64), *MESSAGE_FIELDS])
"""One row a user's message that waits for the next block of its chain, in the order in which they came."""

STATE_TABLES = {
    "blocks": StateTable(BLOCKS_SCHEMA, "chain", ("chain", "leaf"), chains=("chain",), shown=Visibility.EVERYONE),
    "partings": StateTable(
        PARTINGS_SCHEMA, "chain", ("chain", "leaf", "other"), chains=("chain",), shown=Visibility.EVERYONE
    ),
    "paras": StateTable(
        PARAS_SCHEMA, "chain", ("chain", "leaf", "para"), chains=("chain", "para"), shown=Visibility.EVERYONE
    ),
    "unrouted": StateTable(
        UNROUTED_SCHEMA,
        "chain",
        ("chain", "leaf", "number", "to", "source"),
        chains=("chain", "to", "source"),
        shown=Visibility.DESTINATION,
        shown_to="to",
    ),
    "candidates": StateTable(
        CANDIDATES_SCHEMA, "source", ("source",), chains=("source", "destination"), shown=Visibility.DESTINATION
    ),
    "egress": StateTable(
        EGRESS_SCHEMA,
        "source",
        ("source", "place"),
        chains=("source", "destination", "to"),
        shown=Visibility.DESTINATION,
    ),
    "tips": StateTable(TIPS_SCHEMA, "chain", ("chain",), chains=("chain",)),
    "returns": StateTable(RETURNS_SCHEMA, "chain", ("chain", "height"), chains=("chain",)),
    "queues": StateTable(QUEUES_SCHEMA, "source", LANE, chains=("source", "destination")),
    "runs": StateTable(
        RUNS_SCHEMA,
        "source",
        (*LANE, "first"),
        chains=("source", "destination"),
        shown=Visibility.DESTINATION,
    ),
    "cursors": StateTable(
        CURSORS_SCHEMA,
        "destination",
        ("destination", "source", "substream"),
        chains=("source", "destination"),
        shown=Visibility.DESTINATION,
        shown_to="source",
    ),
    "ancestry": StateTable(ANCESTRY_SCHEMA, "chain", ("chain", "leaf", "number"), chains=("chain",)),
    "blocked": StateTable(BLOCKED_SCHEMA, "chain", ("chain", "leaf", "to", "source"), chains=("chain", "to", "source")),
    "dropped": StateTable(
        DROPPED_SCHEMA,
        "chain",
        ("chain", "leaf", "to", "source", "issued"),
        chains=("chain", "to", "source"),
        shown=Visibility.DESTINATION,
        shown_to="source",
    ),
    "pool": StateTable(POOL_SCHEMA, "chain", ("chain", "place"), chains=("chain",)),
    "accounts": ACCOUNTS,
}

UNCOMMITTED = (
    *("pool", "candidates", "egress", "tips", "returns"),
    *("blocks", "partings", "ancestry", "paras", "unrouted", "blocked", "dropped"),
)
"""Tables without a section of their own under a chain's root: what waits, what a block says of itself, and what the
relay chain's state has entries for (``storage``)."""


class State(TableState):
    """The states of a set of chains at one height: the frames of ``STATE_TABLES``, and the programs'."""

    def lanes(self) -> Queues:
        """Return the lanes; their messages lie in the lake."""
        return Queues(LANE, self["queues"], empty_frame(OUTBOUND_SCHEMA), self["runs"], base=0)

    def with_lanes(self, queues: Queues) -> State:
        """Return the state with other lanes."""
        assert queues.segments is not None
        rows = {"queues": queues.counters.select(QUEUES_SCHEMA.names)}
        if queues.segments is not self["runs"]:
            rows["runs"] = queues.segments.select(RUNS_SCHEMA.names)
        return self.with_tables(**rows)


def blank_rows(schema: pa.Schema, count: int, **given: np.ndarray) -> Frame:
    """Return so many rows of a table: the columns that are given, zeros in the others."""
    columns = {}
    for column in schema:
        digest = pa.types.is_fixed_size_binary(column.type)
        shape, kind = ((count, 32), np.uint8) if digest else (count, column.type.to_pandas_dtype())
        columns[column.name] = given.get(column.name, np.zeros(shape, dtype=kind))
    return Frame(columns, count)


MAX_CHAIN_HEADS = 5
"""The relay chain has at most so many leaves (2.5)."""

MOST_ANCESTORS = 4_096
"""A watermark may be moved to one of so many last relay blocks, and to any that posted queues for its parachain."""

OF_LEAVES = ("blocks", "paras", "unrouted", "ancestry", "blocked", "dropped")
"""The tables of which each leaf has rows of its own."""


@dataclass(frozen=True)
class RelayLeaf:
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
    def of(cls, tables: Mapping[str, Frame], leaf: int) -> RelayLeaf:
        """Return the rows of ``leaf`` of the relay chain's tables."""
        if len(tables["blocks"]) == 1:
            return cls(*(tables[name] for name in OF_LEAVES))
        return cls(*(tables[name].filter(tables[name]["leaf"] == np.uint8(leaf)) for name in OF_LEAVES))

    def named(self, leaf: int) -> RelayLeaf:
        """Return these rows as those of ``leaf``."""
        frames = (getattr(self, name) for name in OF_LEAVES)
        return RelayLeaf(*(frame.with_columns(leaf=np.full(len(frame), leaf, dtype=np.uint8)) for frame in frames))


def with_ancestor(leaf: RelayLeaf) -> RelayLeaf:
    """Return the leaf whose block is one of those that it builds on: genesis and the last ``MOST_ANCESTORS`` are."""
    ancestry = concat([leaf.ancestry, leaf.blocks.select(ANCESTRY_SCHEMA.names)])
    if len(ancestry) > MOST_ANCESTORS + 1:
        ancestry = concat([ancestry.slice(0, 1), ancestry.slice(2, len(ancestry))])
    return replace(leaf, ancestry=ancestry)


def read_leaves(tables: Mapping[str, Frame]) -> list[RelayLeaf]:
    """Return the leaves of the relay chain, in order."""
    return [RelayLeaf.of(tables, leaf) for leaf in tables["blocks"]["leaf"].tolist()]


def store_leaves(state: State, leaves: Sequence[RelayLeaf]) -> State:
    """Return the state whose leaves these are, in the order of their numbers."""
    tables = {}
    for name in OF_LEAVES:
        parts = [getattr(leaf, name) for leaf in leaves]
        tables[name] = parts[0] if len(parts) == 1 else concat(parts)
        assert tables[name].names == STATE_TABLES[name].schema.names, name
    return state.with_tables(**tables)


def parting_height(partings: Frame, one: int, other: int) -> int:
    """Return the height at which two leaves parted (``tables.PARTINGS_SCHEMA``)."""
    mine = (partings["leaf"] == np.uint8(min(one, other))) & (partings["other"] == np.uint8(max(one, other)))
    (height,) = partings["height"][mine].tolist()
    return int(height)


def partings_after(partings: Frame, origins: Mapping[int, int], height: int) -> Frame:
    """Return when leaves parted from each other; ``origins``: each leaf with the number that it, or the leaf from which
    it parts at ``height``, had before."""
    rows = [
        (leaf, other, height if before == origin else parting_height(partings, before, origin))
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
