"""Output of a step (packets to send, verdicts, changes of pools), and admission of input.

A step admits a bounded input from each peer; the rest waits, so a flooding peer slows only itself.
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
"""One row an input packet or queue, in input order (``row``).

``code``: its ``PeerVerdict``; ``change``: change of the peer's reputation; ``kind``: ``PACKET``,
``QUEUE``, ``SKETCH``, ``ANSWER`` or ``SUBSCRIPTION``.
"""

PEERS_SCHEMA = pa.schema([_NODE, _PEER, _field("code", pa.uint8())])

POOL_SCHEMA = pa.schema([_NODE, _field("root", _DIGEST), _field("topic", _DIGEST)])

BENEFICIAL_SCHEMA = pa.schema(
    [_NODE, _PEER, _field("topic", _DIGEST), _field("root", _DIGEST), _field("size", pa.uint64())]
)
"""One row a good queue, with the size of its messages in bytes: ``on_beneficial`` (5.1, 5)."""

_CAPACITY = _field("capacity", pa.uint64())

SKETCHES_SCHEMA = pa.schema([_NODE, _PEER, _CAPACITY, _field("sketch", pa.large_binary())])

MORE_SCHEMA = pa.schema([_NODE, _PEER, _CAPACITY])

ASKS_SCHEMA = pa.schema([_NODE, _PEER, _field("id", pa.uint64())])
"""One row a short id that ``node`` requests from ``peer``."""

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
    """Output of a step.

    Attributes:
        heads: Neighbour packets to send (``node``, ``peer``, ``count``, ``heads``).
        queues: Queues to send.
        verdicts: Verdicts on the input.
        disconnected: Peers to disconnect, with the reason.
        got: New queues in a node's pool.
        purged: Queues removed from a pool.
        beneficial: Good queues of peers.
        sketches: Sketches to send (``reconcile``).
        more: Requests for larger sketches.
        asks: Requests for queues by short ids.
        subscriptions: Announcements of nodes' subscriptions (``node``, ``peer``, ``labels``).
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
    """Concatenate outputs."""
    return StepOutput(*(concat([getattr(output, item.name) for output in outputs]) for item in fields(StepOutput)))


def admit_packets(waiting: Frame, options: GossipOptions) -> Mask:
    """Return a mask of the pending packets and queues that a step accepts.

    Of each peer these are the first ``max_step_packets`` with at most ``max_step_bytes`` together; the
    first one is always accepted.

    Args:
        waiting: Rows of ``node``, ``peer`` and ``size`` (bytes, u64), in order of arrival.
        options: Options of gossip.
    """
    order = stable_order(waiting["node"], waiting["peer"])
    groups = group_rows(waiting["node"][order], waiting["peer"][order])
    # Sizes are clipped to the limit, so declared sizes cannot overflow the sums.
    size = np.minimum(waiting["size"][order], np.uint64(options.max_step_bytes + 1)).astype(np.int64)
    total = np.cumsum(size)
    total -= groups.spread(total[groups.starts] - size[groups.starts])
    rank = groups.ranks()
    admitted = (rank < options.max_step_packets) & ((total <= options.max_step_bytes) | (rank == 0))
    found = np.empty(len(waiting), dtype=bool)
    found[order] = admitted
    return found
