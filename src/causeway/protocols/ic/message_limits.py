"""``msg_limit``: how many messages a slice may bring (IC reference 3.9 (9), X-5)."""

from __future__ import annotations

import numpy as np

from causeway.model.frame import Frame
from causeway.model.order import U64
from causeway.model.queues import MAX_INDEX
from causeway.protocols.ic.context import Context
from causeway.protocols.ic.expected_indexes import Expected


def message_limits(slices: Frame, expected_of: Expected, context: Context) -> U64:
    """Return the most messages that each slice may bring; ``MAX_INDEX`` where there is no limit.

    System subnets take few: the NNS from everybody, others from who is none, and the fewer the more of their own
    messages wait for the other side.
    """
    options, limit, registry = context.options, context.options.limit, context.registry
    none = np.uint64(MAX_INDEX)
    if options.limits != "deployed":
        return np.full(len(slices), none, dtype=np.uint64)
    found = np.full(len(slices), limit.slice_messages or none, dtype=np.uint64)
    if not registry.system.any():
        return found
    own, peer = slices["destination"], slices["source"]
    known = peer < len(registry.system)
    system_peer = known & registry.system[np.where(known, peer, 0)]
    few = registry.nns[own] | (registry.system[own] & ~system_peer)
    most = np.uint64(limit.system_slice_messages)
    room = most - np.minimum(expected_of.held(slices), most)
    return np.where(few, np.minimum(found, room), found)
