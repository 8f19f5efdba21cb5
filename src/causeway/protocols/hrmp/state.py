"""State tables of HRMP: of the relay chain (``chain`` is its position) and of parachains.

A channel is named by its ``sender`` and ``recipient``, which are chain positions.

Reference: ICMP, X-6.
"""

from __future__ import annotations

import pyarrow as pa

from causeway.protocols.contract import StateTable, Visibility
from causeway.protocols.relay_chain.state import STATE_TABLES


def _field(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


U8, U32, UINT64, DIGEST = pa.uint8(), pa.uint32(), pa.uint64(), pa.binary(32)

PAIR = ("sender", "recipient")
"""Key of a channel."""

_CHANNEL = [_field("chain", U32), _field("sender", U32), _field("recipient", U32)]
_SIZES = [_field("max_capacity", U32), _field("max_total_size", U32), _field("max_message_size", U32)]
_DEPOSITS = [_field("sender_deposit", UINT64), _field("recipient_deposit", UINT64)]

SOVEREIGN_SCHEMA = pa.schema(
    [_field("chain", U32), _field("para", U32), _field("free", UINT64), _field("held", UINT64)]
)
"""One row a parachain: free and held balance of its account on the relay chain."""

REQUESTS_SCHEMA = pa.schema([*_CHANNEL, *_SIZES, *_DEPOSITS, _field("confirmed", U8)])
"""One row a requested channel; ``confirmed`` is 1 after the recipient's acceptance."""

CHANNELS_SCHEMA = pa.schema(
    [
        *_CHANNEL,
        *_SIZES,
        *_DEPOSITS,
        _field("msg_count", U32),
        _field("total_size", U32),
        _field("mqc_head", DIGEST),
        _field("closing", UINT64),
    ]
)
"""One row an open channel; ``closing`` is the block of the close request, else 0."""

CONTENTS_SCHEMA = pa.schema(
    [
        *_CHANNEL,
        _field("sent_at", UINT64),
        _field("data", pa.binary()),
    ]
)
"""One row an HRMP message that its recipient has not consumed."""

DIGESTS_SCHEMA = pa.schema(
    [_field("chain", U32), _field("recipient", U32), _field("number", UINT64), _field("sender", U32)]
)
"""One row a message for a recipient in a relay block above its watermark.

The watermark may land on that block.
"""

SENT_SCHEMA = pa.schema(
    [
        _field("source", U32),
        _field("destination", U32),
        _field("place", U32),
        _field("to", U32),
        _field("data", pa.binary()),
    ]
)
"""One row a message of the last block of ``source``, in order of ``place``.

``destination`` is the relay chain.
"""

CALLS_SCHEMA = pa.schema(
    [
        _field("source", U32),
        _field("destination", U32),
        _field("place", U32),
        _field("data", pa.binary()),
    ]
)
"""One row an upward call of the last block of ``source``, in order of ``place``."""

BLOCKS_SCHEMA = pa.schema(
    [
        _field("chain", U32),
        _field("number", UINT64),
        _field("hash", DIGEST),
        _field("parent", DIGEST),
        _field("next_tick", UINT64),
    ]
)
"""The last block of the relay chain, and the first tick after it."""

_BLOCK = [_field("number", UINT64), _field("head", DIGEST), _field("watermark", UINT64)]

PARAS_SCHEMA = pa.schema(
    [_field("chain", U32), _field("para", U32), *_BLOCK, _field("active", U8), _field("leaving", UINT64)]
)
"""One row a parachain: last included block, watermark and registration (1).

``leaving`` is the relay block of a pending deregistration, 0 without one.
"""

TIPS_SCHEMA = pa.schema([_field("chain", U32), *_BLOCK, _field("next_tick", UINT64)])
"""One row the last block of a parachain.

``next_tick`` is the first tick with planned calls that no block has.
"""

CANDIDATES_SCHEMA = pa.schema(
    [
        _field("source", U32),
        _field("destination", U32),
        _field("parent", DIGEST),
        *_BLOCK,
        _field("relay_parent", UINT64),
    ]
)
"""One row the last block of a parachain until its inclusion: its receipt.

``destination`` is the relay chain.
"""

PAGES_SCHEMA = pa.schema(
    [
        _field("source", U32),
        _field("destination", U32),
        _field("place", UINT64),
        _field("number", UINT64),
        _field("first", UINT64),
        _field("count", UINT64),
        _field("data", pa.binary()),
    ]
)
"""One row a page of messages that waits for its channel.

``place`` ascends along a lane. ``number`` is the block of ``source`` that began the page; ``first`` and ``count`` are
the lane indices of its messages.
"""

ENDS_SCHEMA = pa.schema(
    [
        _field("chain", U32),
        _field("foreign", U32),
        _field("head", DIGEST),
        _field("suspended", U8),
        _field("suspended_by", U8),
        _field("signal", U8),
    ]
)
"""One row a peer of ``chain``.

``head`` is the running head of its messages. ``suspended`` marks a peer suspended by ``chain``, ``suspended_by`` the
opposite. ``signal`` is a pending ``ChannelSignal``.
"""

WAITING_SCHEMA = pa.schema(
    [
        _field("chain", U32),
        _field("sent_at", UINT64),
        _field("sender", U32),
        _field("data", pa.binary()),
    ]
)
"""One row a received page of ``chain`` before its execution."""

_ENDS = ("chain", *PAIR)

HRMP_TABLES = {
    "blocks": StateTable(BLOCKS_SCHEMA, "chain", ("chain", "number"), chains=("chain",), shown=Visibility.EVERYONE),
    "paras": StateTable(PARAS_SCHEMA, "chain", ("chain", "para"), chains=("chain", "para"), shown=Visibility.EVERYONE),
    "tips": StateTable(TIPS_SCHEMA, "chain", ("chain",), chains=("chain",)),
    "candidates": StateTable(
        CANDIDATES_SCHEMA, "source", ("source",), chains=("source", "destination"), shown=Visibility.DESTINATION
    ),
    "sovereign": StateTable(
        SOVEREIGN_SCHEMA, "chain", ("chain", "para"), chains=("chain", "para"), shown=Visibility.EVERYONE
    ),
    "requests": StateTable(REQUESTS_SCHEMA, "chain", _ENDS, chains=_ENDS, shown=Visibility.EVERYONE),
    "channels": StateTable(CHANNELS_SCHEMA, "chain", _ENDS, chains=_ENDS, shown=Visibility.EVERYONE),
    "contents": StateTable(
        CONTENTS_SCHEMA,
        "chain",
        ("chain", "recipient", "sent_at", "sender"),
        chains=_ENDS,
        shown=Visibility.DESTINATION,
        shown_to="recipient",
    ),
    "digests": StateTable(DIGESTS_SCHEMA, "chain", ("chain", "recipient", "number", "sender"), chains=("chain", *PAIR)),
    "sent": StateTable(
        SENT_SCHEMA, "source", ("source", "place"), chains=("source", "destination", "to"), shown=Visibility.DESTINATION
    ),
    "calls": StateTable(
        CALLS_SCHEMA,
        "source",
        ("source", "place"),
        chains=("source", "destination"),
        shown=Visibility.DESTINATION,
    ),
    "pages": StateTable(PAGES_SCHEMA, "source", ("source", "destination", "place"), chains=("source", "destination")),
    "ends": StateTable(ENDS_SCHEMA, "chain", ("chain", "foreign"), chains=("chain", "foreign")),
    "waiting": StateTable(WAITING_SCHEMA, "chain", ("chain", "sent_at", "sender"), chains=("chain", "sender")),
}
"""Tables of HRMP by name."""

ALL_TABLES = HRMP_TABLES | {name: STATE_TABLES[name] for name in ("queues", "runs", "cursors", "pool", "accounts")}
"""All tables of a network with HRMP."""

SECTIONS = ("queues", "runs", "cursors", "accounts", "pages", "ends", "waiting")
"""Tables under a parachain's root, besides those of programs."""
