"""State tables of HRMP: of the relay chain (``chain`` is its position) and of parachains.

A channel is named by its ``sender`` and ``recipient``, which are chain positions.

Reference: ICMP, X-6.
"""

from __future__ import annotations

from causeway.protocols.contract import BYTES, DIGEST, UINT8, UINT32, UINT64, StateTable, Visibility, table_schema
from causeway.protocols.relay_chain.state import STATE_TABLES

PAIR = ("sender", "recipient")
"""Key of a channel."""

_CHANNEL = {"chain": UINT32, "sender": UINT32, "recipient": UINT32}
_SIZES = {"max_capacity": UINT32, "max_total_size": UINT32, "max_message_size": UINT32}
_DEPOSITS = {"sender_deposit": UINT64, "recipient_deposit": UINT64}

SOVEREIGN_SCHEMA = table_schema(chain=UINT32, para=UINT32, free=UINT64, held=UINT64)
"""One row a parachain: free and held balance of its account on the relay chain."""

REQUESTS_SCHEMA = table_schema(**_CHANNEL, **_SIZES, **_DEPOSITS, confirmed=UINT8)
"""One row a requested channel; ``confirmed`` is 1 after the recipient's acceptance."""

CHANNELS_SCHEMA = table_schema(
    **_CHANNEL, **_SIZES, **_DEPOSITS, msg_count=UINT32, total_size=UINT32, mqc_head=DIGEST, closing=UINT64
)
"""One row an open channel; ``closing`` is the block of the close request, else 0."""

CONTENTS_SCHEMA = table_schema(**_CHANNEL, sent_at=UINT64, data=BYTES)
"""One row an HRMP message that its recipient has not consumed."""

DIGESTS_SCHEMA = table_schema(chain=UINT32, recipient=UINT32, number=UINT64, sender=UINT32)
"""One row a message for a recipient in a relay block above its watermark.

The watermark may land on that block.
"""

SENT_SCHEMA = table_schema(source=UINT32, destination=UINT32, place=UINT32, to=UINT32, data=BYTES)
"""One row a message of the last block of ``source``, in order of ``place``.

``destination`` is the relay chain.
"""

CALLS_SCHEMA = table_schema(source=UINT32, destination=UINT32, place=UINT32, data=BYTES)
"""One row an upward call of the last block of ``source``, in order of ``place``."""

BLOCKS_SCHEMA = table_schema(chain=UINT32, number=UINT64, hash=DIGEST, parent=DIGEST, next_tick=UINT64)
"""The last block of the relay chain, and the first tick after it."""

_BLOCK = {"number": UINT64, "head": DIGEST, "watermark": UINT64}

PARAS_SCHEMA = table_schema(chain=UINT32, para=UINT32, **_BLOCK, active=UINT8, leaving=UINT64)
"""One row a parachain: last included block, watermark and registration (1).

``leaving`` is the relay block of a pending deregistration, 0 without one.
"""

TIPS_SCHEMA = table_schema(chain=UINT32, **_BLOCK, next_tick=UINT64)
"""One row the last block of a parachain.

``next_tick`` is the first tick with planned calls that no block has.
"""

CANDIDATES_SCHEMA = table_schema(source=UINT32, destination=UINT32, parent=DIGEST, **_BLOCK, relay_parent=UINT64)
"""One row the last block of a parachain until its inclusion: its receipt.

``destination`` is the relay chain.
"""

PAGES_SCHEMA = table_schema(
    source=UINT32, destination=UINT32, place=UINT64, number=UINT64, first=UINT64, count=UINT64, data=BYTES
)
"""One row a page of messages that waits for its channel.

``place`` ascends along a lane. ``number`` is the block of ``source`` that began the page; ``first`` and ``count`` are
the lane indices of its messages.
"""

ENDS_SCHEMA = table_schema(chain=UINT32, foreign=UINT32, head=DIGEST, suspended=UINT8, suspended_by=UINT8, signal=UINT8)
"""One row a peer of ``chain``.

``head`` is the running head of its messages. ``suspended`` marks a peer suspended by ``chain``, ``suspended_by`` the
opposite. ``signal`` is a pending ``ChannelSignal``.
"""

WAITING_SCHEMA = table_schema(chain=UINT32, sent_at=UINT64, sender=UINT32, data=BYTES)
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
        CALLS_SCHEMA, "source", ("source", "place"), chains=("source", "destination"), shown=Visibility.DESTINATION
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
