"""The state tables of HRMP (ICMP reference X-6): of the relay chain (``chain`` is its position), and of parachains.

A channel is named by its ``sender`` and its ``recipient``, positions of chains like all others.
"""

from __future__ import annotations

import pyarrow as pa

from causeway.protocols.contract import StateTable, Visibility
from causeway.protocols.relay_chain.state import STATE_TABLES


def _field(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


U8, U32, UINT64, DIGEST = pa.uint8(), pa.uint32(), pa.uint64(), pa.binary(32)

PAIR = ("sender", "recipient")
"""What names a channel."""

_CHANNEL = [_field("chain", U32), _field("sender", U32), _field("recipient", U32)]
_SIZES = [_field("max_capacity", U32), _field("max_total_size", U32), _field("max_message_size", U32)]
_DEPOSITS = [_field("sender_deposit", UINT64), _field("recipient_deposit", UINT64)]

SOVEREIGN_SCHEMA = pa.schema(
    [_field("chain", U32), _field("para", U32), _field("free", UINT64), _field("held", UINT64)]
)
"""One row a parachain: what its account on the relay chain has, and what of it is held for channels."""

REQUESTS_SCHEMA = pa.schema([*_CHANNEL, *_SIZES, *_DEPOSITS, _field("confirmed", U8)])
"""One row a channel that was asked for: ``confirmed`` 1 once the recipient accepted."""

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
"""One row an open channel. ``closing``: the relay block in which it was asked to be closed, 0: it was not."""

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
"""One row a message that a relay block brought for a recipient, above its watermark: what it may land on."""

SENT_SCHEMA = pa.schema(
    [
        _field("source", U32),
        _field("destination", U32),
        _field("place", U32),
        _field("to", U32),
        _field("data", pa.binary()),
    ]
)
"""One row a message of the last block of ``source``, in its order (``place``); ``destination`` is the relay chain."""

CALLS_SCHEMA = pa.schema(
    [
        _field("source", U32),
        _field("destination", U32),
        _field("place", U32),
        _field("data", pa.binary()),
    ]
)
"""One row an upward message (``upward``) of the last block of ``source``, in its order."""

BLOCKS_SCHEMA = pa.schema(
    [
        _field("chain", U32),
        _field("number", UINT64),
        _field("hash", DIGEST),
        _field("parent", DIGEST),
        _field("next_tick", UINT64),
    ]
)
"""One row the last block of the relay chain, and the first tick after it."""

_BLOCK = [_field("number", UINT64), _field("head", DIGEST), _field("watermark", UINT64)]

PARAS_SCHEMA = pa.schema(
    [_field("chain", U32), _field("para", U32), *_BLOCK, _field("active", U8), _field("leaving", UINT64)]
)
"""One row a parachain: the number and hash of its last block that was included, its watermark, whether it is registered
(1), and the relay block in which it was deregistered that is not gone yet, 0: it was not."""

TIPS_SCHEMA = pa.schema([_field("chain", U32), *_BLOCK, _field("next_tick", UINT64)])
"""One row the last block that a parachain made, and the first tick whose planned calls neither it nor an earlier one
has."""

CANDIDATES_SCHEMA = pa.schema(
    [
        _field("source", U32),
        _field("destination", U32),
        _field("parent", DIGEST),
        *_BLOCK,
        _field("relay_parent", UINT64),
    ]
)
"""One row the last block of a parachain, until the relay chain (``destination``) has it: its receipt."""

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
"""One row a page of messages that waits for its channel: ``place`` ascends along a lane; ``number``: the block of
``source`` that began it; ``first``, ``count``: the indices in the lane of the messages in it."""

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
"""One row a chain that ``chain`` exchanges messages with: the running head of what came from it; whether ``chain`` has
suspended it, and it ``chain``; the signal that is due to it (``pages.Signal``)."""

WAITING_SCHEMA = pa.schema(
    [
        _field("chain", U32),
        _field("sent_at", UINT64),
        _field("sender", U32),
        _field("data", pa.binary()),
    ]
)
"""One row a page that came to ``chain`` and was not executed yet."""

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
"""What HRMP has of its own, by name."""

ALL_TABLES = HRMP_TABLES | {name: STATE_TABLES[name] for name in ("queues", "runs", "cursors", "pool", "accounts")}
"""The tables of a network with HRMP."""

SECTIONS = ("queues", "runs", "cursors", "accounts", "pages", "ends", "waiting")
"""Tables that a parachain's root commits to, beside those of programs."""
