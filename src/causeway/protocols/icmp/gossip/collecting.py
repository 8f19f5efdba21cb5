"""What a collator or validator finds in its pool of what a parachain may consume (ICMP reference 3.9; G2)."""

from __future__ import annotations

import numpy as np

from causeway.model.frame import Frame
from causeway.model.order import groups_of, stable_order
from causeway.protocols.icmp.gossip.listed import Mask
from causeway.protocols.icmp.gossip.numbers import places
from causeway.protocols.icmp.gossip.state import GossipState


def held(state: GossipState, asked: Frame) -> Mask:
    """Return which queues are in the pools of nodes, asked for by ``node``, ``topic`` and ``root`` (3.9, 1). Raises
    ``InvalidInput`` for a node that is not there."""
    listed = state.listed
    at = state.node_rows(asked["node"], "asked")
    queue = listed.queue_numbers(places(listed.roots, asked["root"]), places(listed.topics, asked["topic"]))
    found = queue >= 0
    found[found] = state.pool[at[found], queue[found]]
    return found


def complete_prefix(state: GossipState, wanted: Frame) -> Mask:
    """Return which queues are in the longest run of blocks of which the node has all (3.9, 2).

    ``wanted``: ingress(B, p) as nodes ask for it, in any order: ``node``, ``para`` (u32), ``number`` (u64, of the relay
    block, below 2**32), ``topic``, ``root``. Each node's run for a parachain ends before the first block of which a
    queue is missing.
    """
    there = held(state, wanted)
    order = stable_order(wanted["node"], wanted["para"], wanted["number"])
    rows = wanted.select(("node", "para", "number")).take(order)
    runs = groups_of(rows["node"], rows["para"])
    last = np.iinfo(np.uint64).max
    stop = np.where(there[order], last, rows["number"])
    first = np.minimum.reduceat(stop, runs.starts) if len(runs) else stop
    found = np.empty(len(wanted), dtype=bool)
    found[order] = rows["number"] < runs.spread(first)
    return found
