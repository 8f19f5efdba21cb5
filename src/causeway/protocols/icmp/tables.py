"""The state tables: the columns of each, whose its rows are, who is shown them (ICMP reference 2.2, 3.1).

A lane is named by the chains of the messages in it. Substream 0 has what one parachain sends another: its segments are
the egress queues of its blocks. Where ``destination`` is ``source`` the lane is local: calls (0) and answers (1)
between programs of one chain, of which no root is posted.
"""

from __future__ import annotations

import pyarrow as pa

from causeway.protocols.contract import Shown, StateTable
from causeway.protocols.execution import ACCOUNTS
from causeway.protocols.messages import LANE, LANE_FIELDS, MESSAGE_FIELDS


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
    "blocks": StateTable(BLOCKS_SCHEMA, "chain", ("chain", "leaf"), chains=("chain",), shown=Shown.EVERYONE),
    "partings": StateTable(
        PARTINGS_SCHEMA, "chain", ("chain", "leaf", "other"), chains=("chain",), shown=Shown.EVERYONE
    ),
    "paras": StateTable(
        PARAS_SCHEMA, "chain", ("chain", "leaf", "para"), chains=("chain", "para"), shown=Shown.EVERYONE
    ),
    "unrouted": StateTable(
        UNROUTED_SCHEMA,
        "chain",
        ("chain", "leaf", "number", "to", "source"),
        chains=("chain", "to", "source"),
        shown=Shown.DESTINATION,
        shown_to="to",
    ),
    "candidates": StateTable(
        CANDIDATES_SCHEMA, "source", ("source",), chains=("source", "destination"), shown=Shown.DESTINATION
    ),
    "egress": StateTable(
        EGRESS_SCHEMA,
        "source",
        ("source", "place"),
        chains=("source", "destination", "to"),
        shown=Shown.DESTINATION,
    ),
    "tips": StateTable(TIPS_SCHEMA, "chain", ("chain",), chains=("chain",)),
    "returns": StateTable(RETURNS_SCHEMA, "chain", ("chain", "height"), chains=("chain",)),
    "queues": StateTable(QUEUES_SCHEMA, "source", LANE, chains=("source", "destination")),
    "runs": StateTable(
        RUNS_SCHEMA,
        "source",
        (*LANE, "first"),
        chains=("source", "destination"),
        shown=Shown.DESTINATION,
    ),
    "cursors": StateTable(
        CURSORS_SCHEMA,
        "destination",
        ("destination", "source", "substream"),
        chains=("source", "destination"),
        shown=Shown.DESTINATION,
        shown_to="source",
    ),
    "ancestry": StateTable(ANCESTRY_SCHEMA, "chain", ("chain", "leaf", "number"), chains=("chain",)),
    "blocked": StateTable(BLOCKED_SCHEMA, "chain", ("chain", "leaf", "to", "source"), chains=("chain", "to", "source")),
    "dropped": StateTable(
        DROPPED_SCHEMA,
        "chain",
        ("chain", "leaf", "to", "source", "issued"),
        chains=("chain", "to", "source"),
        shown=Shown.DESTINATION,
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
