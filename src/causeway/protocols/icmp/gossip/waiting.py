"""What is taken from peers in one step: the rest waits where it is, so that a peer that floods slows itself down."""

from __future__ import annotations

import numpy as np

from causeway.model.frame import Frame
from causeway.model.order import groups_of, stable_order
from causeway.protocols.icmp.gossip.listed import Mask
from causeway.protocols.icmp.gossip.options import GossipOptions


def admitted(waiting: Frame, options: GossipOptions) -> Mask:
    """Return which of the packets or queues that wait (``node``, ``peer``, ``size`` in bytes, u64), in the order in
    which they came, a step takes: of each peer the first ``max_step_packets``, as long as they have at most
    ``max_step_bytes`` together. The first one is always taken."""
    order = stable_order(waiting["node"], waiting["peer"])
    groups = groups_of(waiting["node"][order], waiting["peer"][order])
    # No packet counts for more than a step takes: sums cannot overflow, whatever sizes are said.
    size = np.minimum(waiting["size"][order], np.uint64(options.max_step_bytes + 1)).astype(np.int64)
    total = np.cumsum(size)
    total -= groups.spread(total[groups.starts] - size[groups.starts])
    rank = groups.ranks()
    taken = (rank < options.max_step_packets) & ((total <= options.max_step_bytes) | (rank == 0))
    found = np.empty(len(waiting), dtype=bool)
    found[order] = taken
    return found
