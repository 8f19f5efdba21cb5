"""``msg_limit``: how many messages a slice may bring (IC reference 3.9 (9), X-5)."""

from __future__ import annotations

import numpy as np

from causeway.model.frame import Frame
from causeway.model.order import U64
from causeway.model.queues import MAX_INDEX
from causeway.protocols.contract import Chains
from causeway.protocols.ic.context import Context
from causeway.protocols.ic.expected_indexes import Expected
from causeway.protocols.ic.options import IcOptions
from causeway.protocols.ic.registry import Registry


def message_limits(slices: Frame, expected_of: Expected, context: Context) -> U64:
    """Return the most messages that each slice may bring (``most_messages``)."""
    held = expected_of.held(slices) if context.registry.system.any() else np.zeros(len(slices), dtype=np.uint64)
    return most_messages(slices["destination"], slices["source"], held, context.options, context.registry)


def most_messages(own: Chains, peer: Chains, held: U64, options: IcOptions, registry: Registry) -> U64:
    """Return the most messages that subnets may take at a time; ``MAX_INDEX`` where there is no limit.

    ``own``: their positions, ``peer``: of the subnets that the messages are from, ``held``: how many messages the
    stream of the former to the latter has. System subnets take few: the NNS from everybody, others from who is none,
    and the fewer the more of their own messages wait for the other side.
    """
    limit, none = options.limit, np.uint64(MAX_INDEX)
    if options.limits != "deployed":
        return np.full(len(own), none, dtype=np.uint64)
    found = np.full(len(own), limit.slice_messages or none, dtype=np.uint64)
    if not registry.system.any():
        return found
    known = peer < len(registry.system)
    system_peer = known & registry.system[np.where(known, peer, 0)]
    few = registry.nns[own] | (registry.system[own] & ~system_peer)
    most = np.uint64(limit.system_slice_messages)
    return np.where(few, np.minimum(found, most - np.minimum(held, most)), found)
