"""The state of a relay chain and its parachains as columns: tables, lanes and leaves.

A lane is named by the source and destination of its messages. Substream 0 has the messages between parachains; its
segments are the egress queues of blocks. A lane with equal source and destination is local: calls (0) and answers (1)
between programs of one chain, without a posted root.

Each leaf of the relay chain has separate rows in every table of the relay chain (``leaf``), so leaves do not affect
each other.

Reference: ICMP, sections 2.2, 2.5 and 3.1; G9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from causeway.core.frame import Frame, concat, empty_frame
from causeway.core.queues import Queues
from causeway.protocols.contract import DIGEST, UINT8, UINT32, UINT64, StateTable, Visibility, table_schema
from causeway.protocols.relay_chain.options import RELAY_POSITION
from causeway.protocols.shared.execution import ACCOUNTS
from causeway.protocols.shared.messages import LANE, LANE_FIELDS, MESSAGE_FIELDS, OUTBOUND_SCHEMA
from causeway.protocols.shared.state_tables import TableState, blank_rows

BLOCKS_SCHEMA = table_schema(chain=UINT32, leaf=UINT8, number=UINT64, hash=DIGEST, parent=DIGEST, next_tick=UINT64)
"""One row a leaf of the relay chain: its block, and the first tick after that block."""

PARTINGS_SCHEMA = table_schema(chain=UINT32, leaf=UINT8, other=UINT8, height=UINT64)
"""One row a pair of leaves, ``leaf`` < ``other``: the height of their first separate block."""

_LEAF = {"chain": UINT32, "leaf": UINT8}
_WATERMARK = {"watermark": UINT64, "watermark_hash": DIGEST}

PARAS_SCHEMA = table_schema(
    **_LEAF, para=UINT32, active=UINT8, number=UINT64, head=DIGEST, **_WATERMARK, included=UINT64, refused=DIGEST
)
"""One row a parachain ever registered at a leaf (ICMP 2.2).

Registration (1), number and hash of the last included block, watermark, number of the last including relay block, hash
of the last refused block (zeros: none).
"""

UNROUTED_SCHEMA = table_schema(
    **_LEAF, number=UINT64, to=UINT32, source=UINT32, issued=UINT64, tick=UINT64, root=DIGEST, hash=DIGEST
)
"""One row a queue above the watermark of ``to`` at a leaf (``Unrouted``, 3.1).

Relay block ``number`` with ``hash`` posted it in ``tick``. ``issued`` is the sender's block number.
"""

_RELAY_PARENT = {"relay_number": UINT64, "relay_hash": DIGEST}

CANDIDATES_SCHEMA = table_schema(
    source=UINT32, destination=UINT32, number=UINT64, parent=DIGEST, head=DIGEST, **_RELAY_PARENT, **_WATERMARK
)
"""One row the last block of a parachain until its inclusion: its receipt (ICMP 2.2).

``destination`` is the relay chain, ``relay_number`` and ``relay_hash`` the relay parent.
"""

EGRESS_SCHEMA = table_schema(source=UINT32, destination=UINT32, place=UINT32, to=UINT32, root=DIGEST)
"""One row an entry of a receipt's egress_queue_roots, in order of ``place``."""

TIPS_SCHEMA = table_schema(chain=UINT32, number=UINT64, head=DIGEST, height=UINT64)
"""One row the last block of a parachain, and its height."""

RETURNS_SCHEMA = table_schema(chain=UINT32, height=UINT64, past=UINT64)
"""One row a rollback of a parachain at ``height`` to its state at height ``past``.

Heights between are not part of its history.
"""

QUEUES_SCHEMA = table_schema(*LANE_FIELDS, begin=UINT64, next_index=UINT64)

RUNS_SCHEMA = table_schema(*LANE_FIELDS, height=UINT64, first=UINT64, count=UINT64, number=UINT64, root=DIGEST)
"""One row a segment of a lane: a stored egress queue.

``number`` is the issuing block of the parachain, ``root`` the queue's root (zeros for local lanes).
"""

CURSORS_SCHEMA = table_schema(*LANE_FIELDS, index=UINT64, number=UINT64)
"""One row a lane to a chain: next index, and the chain's last consuming block."""

ANCESTRY_SCHEMA = table_schema(chain=UINT32, leaf=UINT8, number=UINT64, hash=DIGEST)
"""One row an ancestor of a leaf that a watermark may name."""

BLOCKED_SCHEMA = table_schema(chain=UINT32, leaf=UINT8, to=UINT32, source=UINT32, since=UINT64)
"""One row a censored pair of parachains (``Blocked``, ICMP 5.1 (2)).

``to`` censors ``source`` since block ``since``.
"""

DROPPED_SCHEMA = table_schema(**_LEAF, to=UINT32, source=UINT32, issued=UINT64, why=UINT8, until=UINT64)
"""One row a queue of block ``issued`` of ``source`` that a leaf never routes.

``why`` is a ``DropReason``. The relay blocks up to number ``until`` list it for the sender.
"""

POOL_SCHEMA = pa.schema([*table_schema(chain=UINT32, place=UINT64), *MESSAGE_FIELDS])
"""One row a pending message from a user to a chain, in order of arrival."""

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
        RUNS_SCHEMA, "source", (*LANE, "first"), chains=("source", "destination"), shown=Visibility.DESTINATION
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
"""Tables without their own section under a chain's root.

They are pools, the content of blocks, or have entries in the relay chain's storage.
"""


class State(TableState):
    """States of a set of chains at one height: ``STATE_TABLES`` and tables of programs."""

    def lanes(self) -> Queues:
        """Return the lanes; the lake stores their messages."""
        return Queues(LANE, self["queues"], empty_frame(OUTBOUND_SCHEMA), self["runs"], base=0)

    def with_lanes(self, queues: Queues) -> State:
        """Return the state with new lanes.

        Args:
            queues: Counters and segments of the lanes.
        """
        assert queues.segments is not None
        rows = {"queues": queues.counters.select(QUEUES_SCHEMA.names)}
        if queues.segments is not self["runs"]:
            rows["runs"] = queues.segments.select(RUNS_SCHEMA.names)
        return self.with_tables(**rows)


MAX_CHAIN_HEADS = 5
"""Maximum number of leaves of the relay chain (ICMP 2.5)."""

MOST_ANCESTORS = 4_096
"""Number of recent relay blocks that a watermark may name.

It may also name any block that posted queues for its parachain.
"""

OF_LEAVES = ("blocks", "paras", "unrouted", "ancestry", "blocked", "dropped")
"""Tables with rows a leaf."""


@dataclass(frozen=True)
class RelayLeaf:
    """The rows of one leaf, in table order; ``blocks`` has one row."""

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

    def named(self, leaf: int) -> RelayLeaf:
        """Return these rows as those of another leaf.

        Args:
            leaf: Number of the leaf.
        """
        frames = (getattr(self, name) for name in OF_LEAVES)
        return RelayLeaf(*(frame.with_columns(leaf=np.uint8(leaf)) for frame in frames))


def with_ancestor(leaf: RelayLeaf) -> RelayLeaf:
    """Return the leaf with its block as an ancestor: genesis and the last ``MOST_ANCESTORS``."""
    ancestry = concat([leaf.ancestry, leaf.blocks.select(ANCESTRY_SCHEMA.names)])
    if len(ancestry) > MOST_ANCESTORS + 1:
        ancestry = concat([ancestry.slice(0, 1), ancestry.slice(2, len(ancestry))])
    return replace(leaf, ancestry=ancestry)


def read_leaves(tables: Mapping[str, Frame]) -> list[RelayLeaf]:
    """Return the leaves of the relay chain in order.

    Args:
        tables: Tables by name.
    """
    rows = [tables[name] for name in OF_LEAVES]
    if len(tables["blocks"]) == 1:
        return [RelayLeaf(*rows)]
    leaves = tables["blocks"]["leaf"]
    return [RelayLeaf(*(frame.filter(frame["leaf"] == leaf) for frame in rows)) for leaf in leaves]


def store_leaves(state: State, leaves: Sequence[RelayLeaf]) -> State:
    """Return the state with new leaves.

    Args:
        state: State of the relay chain.
        leaves: Leaves in order of their numbers.
    """
    tables = {}
    for name in OF_LEAVES:
        parts = [getattr(leaf, name) for leaf in leaves]
        tables[name] = parts[0] if len(parts) == 1 else concat(parts)
        assert tables[name].names == STATE_TABLES[name].schema.names, name
    return state.with_tables(**tables)


def parting_height(partings: Frame, one: int, other: int) -> int:
    """Return the parting height of two leaves.

    Args:
        partings: ``PARTINGS_SCHEMA``.
        one: Number of a leaf.
        other: Number of the other leaf.
    """
    pair = (partings["leaf"] == np.uint8(min(one, other))) & (partings["other"] == np.uint8(max(one, other)))
    (height,) = partings["height"][pair].tolist()
    return int(height)


def partings_after(partings: Frame, origins: Mapping[int, int], height: int) -> Frame:
    """Return the partings of new leaves.

    Args:
        partings: ``PARTINGS_SCHEMA``.
        origins: Previous number of each leaf, or of the leaf that it parts from at ``height``.
        height: Height of the new leaves.
    """
    rows = [
        (leaf, other, height if before == origin else parting_height(partings, before, origin))
        for leaf, before in origins.items()
        for other, origin in origins.items()
        if leaf < other
    ]
    columns = zip(("leaf", "other", "height"), np.array(rows, dtype=np.uint64).reshape(-1, 3).T, strict=True)
    return blank_rows(PARTINGS_SCHEMA, len(rows), chain=RELAY_POSITION, **dict(columns))
