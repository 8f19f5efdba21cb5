"""What a step returns beside the state: what goes out, what it says of what came in, what pools took and gave up.

What is taken from peers in one step: the rest waits where it is, so that a peer that floods slows itself down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import partial

import numpy as np
import pyarrow as pa
from causeway_proofs.order import group_rows, stable_order

from causeway.core.frame import Frame, concat, empty_frame
from causeway.gossip.listings import Mask
from causeway.gossip.options import GossipOptions


def _field(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


_NODE, _PEER = _field("node", pa.uint32()), _field("peer", pa.uint32())
_DIGEST = pa.binary(32)

QUEUES_SCHEMA = pa.schema([_NODE, _PEER, _field("topic", _DIGEST), _field("root", _DIGEST)])
"""One row a queue that ``node`` sends to ``peer``; its body is the verified one with this root."""

VERDICTS_SCHEMA = pa.schema(
    [
        _NODE,
        _PEER,
        _field("kind", pa.uint8()),
        _field("row", pa.int64()),
        _field("code", pa.uint8()),
        _field("change", pa.int64()),
    ]
)
"""One row a packet or queue that came, in the order of the input (``row``): its code (``Verdict``), and the change of
the peer's reputation. ``kind``: ``PACKET``, ``QUEUE``, ``SKETCH``, ``ANSWER`` or
``SUBSCRIPTION``."""

PEERS_SCHEMA = pa.schema([_NODE, _PEER, _field("code", pa.uint8())])

POOL_SCHEMA = pa.schema([_NODE, _field("root", _DIGEST), _field("topic", _DIGEST)])

BENEFICIAL_SCHEMA = pa.schema(
    [_NODE, _PEER, _field("topic", _DIGEST), _field("root", _DIGEST), _field("size", pa.uint64())]
)
"""One row a good queue, with the bytes of its messages: ``on_beneficial`` (5.1, 5)."""

_CAPACITY = _field("capacity", pa.uint64())

SKETCHES_SCHEMA = pa.schema([_NODE, _PEER, _CAPACITY, _field("sketch", pa.large_binary())])

MORE_SCHEMA = pa.schema([_NODE, _PEER, _CAPACITY])

ASKS_SCHEMA = pa.schema([_NODE, _PEER, _field("id", pa.uint64())])
"""One row a short id that ``node`` asks ``peer`` for."""

PACKET, QUEUE, SKETCH, ANSWER, SUBSCRIPTION = (np.uint8(kind) for kind in range(5))

_NO_SUBSCRIPTIONS = Frame(
    {
        "node": np.empty(0, dtype=np.uint32),
        "peer": np.empty(0, dtype=np.uint32),
        "labels": np.empty((0, 1), dtype=np.uint64),
    },
    0,
)

_NO_HEADS = Frame(
    {
        "node": np.empty(0, dtype=np.uint32),
        "peer": np.empty(0, dtype=np.uint32),
        "count": np.empty(0, dtype=np.uint64),
        "heads": np.empty((0, 5, 32), dtype=np.uint8),
    },
    0,
)


@dataclass(frozen=True)
class StepOutput:
    """Rows that a step makes.

    ``heads``: neighbour packets to send (``node``, ``peer``, ``count``, ``heads``). ``queues``: queues to send.
    ``verdicts``: on what came. ``disconnected``: peers to disconnect, and for what. ``got``: queues that are new in
    a node's pool. ``purged``: queues that a pool gave up. ``beneficial``: what peers earned.
    ``sketches``, ``more``, ``asks``: what goes out instead of queues where pools are reconciled (``reconcile``).
    ``subscriptions``: what peers are told that nodes subscribe to (``node``, ``peer``, ``labels``).
    """

    heads: Frame = _NO_HEADS
    queues: Frame = field(default_factory=partial(empty_frame, QUEUES_SCHEMA))
    verdicts: Frame = field(default_factory=partial(empty_frame, VERDICTS_SCHEMA))
    disconnected: Frame = field(default_factory=partial(empty_frame, PEERS_SCHEMA))
    got: Frame = field(default_factory=partial(empty_frame, POOL_SCHEMA))
    purged: Frame = field(default_factory=partial(empty_frame, POOL_SCHEMA))
    beneficial: Frame = field(default_factory=partial(empty_frame, BENEFICIAL_SCHEMA))
    sketches: Frame = field(default_factory=partial(empty_frame, SKETCHES_SCHEMA))
    more: Frame = field(default_factory=partial(empty_frame, MORE_SCHEMA))
    asks: Frame = field(default_factory=partial(empty_frame, ASKS_SCHEMA))
    subscriptions: Frame = _NO_SUBSCRIPTIONS


def merge_outputs(outputs: Sequence[StepOutput]) -> StepOutput:
    """Return the rows of several outputs, one after the other."""
    return StepOutput(*(concat([getattr(output, item.name) for output in outputs]) for item in fields(StepOutput)))


def admit_packets(waiting: Frame, options: GossipOptions) -> Mask:
    """Return which of the packets or queues that wait (``node``, ``peer``, ``size`` in bytes, u64), in the order in
    which they came, a step takes: of each peer the first ``max_step_packets``, as long as they have at most
    ``max_step_bytes`` together. The first one is always taken."""
    order = stable_order(waiting["node"], waiting["peer"])
    groups = group_rows(waiting["node"][order], waiting["peer"][order])
    # No packet counts for more than a step takes: sums cannot overflow, whatever sizes are said.
    size = np.minimum(waiting["size"][order], np.uint64(options.max_step_bytes + 1)).astype(np.int64)
    total = np.cumsum(size)
    total -= groups.spread(total[groups.starts] - size[groups.starts])
    rank = groups.ranks()
    taken = (rank < options.max_step_packets) & ((total <= options.max_step_bytes) | (rank == 0))
    found = np.empty(len(waiting), dtype=bool)
    found[order] = taken
    return found
