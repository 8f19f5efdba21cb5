"""What the relay chain tells senders of queues that nobody will ever consume (ICMP reference D-3, D-12, 5.1 (2)).

Whoever is deregistered, does not want to hear a sender, or has its watermark moved, leaves queues that were posted and
are not routed. Their sender, which keeps the bodies, can tell them neither from those that wait nor from those that
were consumed: so each leaf lists them for some blocks.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from causeway.model.frame import Frame, concat
from causeway.model.order import stable_order
from causeway.protocols.icmp.chains import RELAY_POSITION
from causeway.protocols.icmp.errors import Gone
from causeway.protocols.icmp.leaves import Leaf
from causeway.protocols.icmp.tables import DROPPED_SCHEMA, STATE_TABLES

TOLD_BLOCKS = 5
"""A queue is listed in so many blocks at least. Its sender gives up the body in the tick after the first, or where
there were several leaves after the second, which is alone; in that tick it makes no block, so that it never goes back
behind it for one. But for one that it had made before: that is refused by the second block after the one that it saw,
so that it has gone back when there is a third, and gives the body up in the tick after."""


def with_gone(leaf: Leaf, queues: Frame, why: Gone, number: int) -> Leaf:
    """Return the leaf that lists ``queues`` (``to``, ``source``, ``issued``), which the block ``number`` lets go."""
    count = len(queues)
    if count == 0:
        return leaf
    columns = {
        "chain": np.full(count, RELAY_POSITION, dtype=np.uint32),
        "leaf": np.full(count, leaf.blocks["leaf"][0], dtype=np.uint8),
        **{name: queues[name] for name in ("to", "source", "issued")},
        "why": np.full(count, why, dtype=np.uint8),
        "until": np.full(count, number + TOLD_BLOCKS - 1, dtype=np.uint64),
    }
    joined = concat([leaf.dropped, Frame(columns, count).select(DROPPED_SCHEMA.names)])
    order = STATE_TABLES["dropped"].order
    return replace(leaf, dropped=joined.take(stable_order(*(joined[name] for name in order))))


def told(leaf: Leaf, number: int, *, alone: bool) -> Leaf:
    """Return the leaf as its block ``number`` begins: without what was told long enough. As long as it is not ``alone``
    nobody gives anything up, and nothing is told."""
    dropped = leaf.dropped
    if len(dropped) == 0:
        return leaf
    if not alone:
        until = np.full(len(dropped), number + TOLD_BLOCKS - 1, dtype=np.uint64)
        return replace(leaf, dropped=dropped.with_columns(until=until).select(DROPPED_SCHEMA.names))
    stays = dropped["until"] >= np.uint64(number)
    return leaf if stays.all() else replace(leaf, dropped=dropped.filter(stays))
