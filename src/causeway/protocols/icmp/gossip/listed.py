"""What blocks list (ICMP reference 2.5, leafTopics): the queues unrouted at each, and the topics of these.

It is the same for every node that has the block, so that it is kept once. Blocks, roots, topics and queues have
numbers that ascend with their digests; a queue here is a pair of root and topic.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from causeway.model.errors import InvalidInput
from causeway.model.frame import Frame
from causeway.model.order import U64, Rows, distinct, groups_of, positions_in
from causeway.proofs.hashing import DIGEST_BYTES, Digests, HashFunction, digest_rows
from causeway.protocols.icmp.gossip.numbers import places, united
from causeway.protocols.icmp.gossip.options import GossipOptions

Mask = npt.NDArray[np.bool_]

TO = 2**32
"""Of labels: that of a sender is its number, that of a recipient is its number and this."""

NO_LABELS: U64 = np.empty(0, dtype=np.uint64)

_SUFFIX = np.frombuffer(b"message_queue", dtype=np.uint8)


@dataclass(frozen=True)
class Listed:
    """Blocks and what they list.

    ``blocks``, ``roots``, ``topics``: digests, ascending. ``heights``: numbers of blocks; ``ancestors``: hashes, the
    nearest first, shape (blocks, a, 32), zeros for none.
    ``root_of``, ``topic_of``: of each queue, by (topic, root). ``lists``: which block lists which queue, shape
    (blocks + 1, queues): the last row is the block that is not known, which lists none. ``labels``: of each topic, the
    subscription that it is of (``subscriptions``), none where all nodes see all.
    """

    blocks: Digests
    heights: U64
    ancestors: npt.NDArray[np.uint8]
    roots: Digests
    topics: Digests
    root_of: Rows
    topic_of: Rows
    lists: Mask
    labels: U64 = field(default_factory=lambda: NO_LABELS)

    @property
    def nothing(self) -> int:
        """The number that stands for no block."""
        return len(self.blocks)

    @cached_property
    def headers(self) -> Digests:
        """The blocks and their ancestors that are told, each once, ascending."""
        older = self.ancestors.reshape(-1, DIGEST_BYTES)
        return united(self.blocks, older[older.any(axis=1)])

    @cached_property
    def paths(self) -> Rows:
        """Numbers in ``headers`` of each block and its ancestors, the nearest first, shape (blocks + 1, 1 + a), -1 for
        none."""
        count, depth = self.ancestors.shape[:2]
        rows = np.full((count + 1, 1 + depth), -1, dtype=np.int64)
        rows[:-1, 0] = places(self.headers, self.blocks)
        rows[:-1, 1:] = places(self.headers, self.ancestors).reshape(count, depth)
        return rows

    @cached_property
    def path_blocks(self) -> Rows:
        """Numbers of the blocks of ``paths``, ``nothing`` for those that nobody described."""
        found = np.append(places(self.blocks, self.headers), -1)[self.paths]
        return np.where(found >= 0, found, self.nothing)

    @cached_property
    def leaf_topics(self) -> Mask:
        """Which block has which topic, shape (blocks + 1, topics)."""
        found = np.zeros((len(self.lists), len(self.topics)), dtype=bool)
        block, queue = self.lists.nonzero()
        found[block, self.topic_of[queue]] = True
        return found

    @cached_property
    def codes(self) -> U64:
        """One number a queue, ascending."""
        return self._codes(self.root_of, self.topic_of)

    @cached_property
    def of_roots(self) -> tuple[Rows, Rows]:
        """The queues by root, and where those of each root begin, and at last where they end, shape (roots + 1)."""
        order = np.argsort(self.root_of, kind="stable")
        return order, self.root_of[order].searchsorted(np.arange(len(self.roots) + 1))

    def _codes(self, root: Rows, topic: Rows) -> U64:
        return (topic * len(self.roots) + root).astype(np.uint64)

    def queue_numbers(self, root: Rows, topic: Rows) -> Rows:
        """Return the number of each queue by its root's and its topic's, -1 where there is none."""
        found = positions_in(self.codes, self._codes(root, topic))
        return np.where((root >= 0) & (topic >= 0), found, -1)


def queue_topics(hashes: Digests) -> Digests:
    """Return queueTopic(h) of each hash (2.4)."""
    suffix = np.broadcast_to(_SUFFIX, (len(hashes), len(_SUFFIX)))
    return digest_rows(HashFunction.BLAKE2B_256, np.concatenate([hashes, suffix], axis=1))


def from_to_topics(blocks: Digests, labels: U64) -> Digests:
    """Return H(block || "from" || x) or H(block || "to" || y) of each block and label (5.1, 3)."""
    found = np.empty((len(blocks), 32), dtype=np.uint8)
    para = np.ascontiguousarray((labels % np.uint64(TO)).astype("<u4")).view(np.uint8).reshape(-1, 4)
    for text, mine in ((b"from", labels < TO), (b"to", labels >= TO)):
        word = np.broadcast_to(np.frombuffer(text, dtype=np.uint8), (int(mine.sum()), len(text)))
        found[mine] = digest_rows(HashFunction.BLAKE2B_256, np.concatenate([blocks[mine], word, para[mine]], axis=1))
    return found


def with_blocks(listed: Listed, blocks: Frame, unrouted: Frame, options: GossipOptions) -> Listed:
    """Return what is listed with further ``blocks`` (``hash``, ``number``, ``ancestors``), none of which is known.

    ``unrouted``: what they list, in the runtime's order: ``block``, ``issued`` (the hash of the relay block in which
    the queue was issued), ``root``, and with ``from_to`` ``sender`` and ``recipient`` (u32). Of each the first
    ``max_leaf_queues`` are kept.
    """
    fresh = places(blocks["hash"], unrouted["block"])
    unrouted, fresh = unrouted.filter(fresh >= 0), fresh[fresh >= 0]
    order = np.argsort(fresh, kind="stable")
    unrouted, fresh = unrouted.take(order), fresh[order]
    first = groups_of(fresh).ranks() < options.max_leaf_queues
    unrouted, fresh = unrouted.filter(first), fresh[first]
    # The topics that queues are on: the row of each, the topic, its label.
    if options.topology == "flat":
        hashes = unrouted["root" if options.topic_mode == "root" else "issued"]
        named = united(hashes)
        row, of, label = np.arange(len(unrouted)), queue_topics(named)[places(named, hashes)], NO_LABELS
    else:
        if "sender" not in unrouted or "recipient" not in unrouted:
            raise InvalidInput("unrouted: topology = from_to needs the columns sender and recipient")
        row = np.repeat(np.arange(len(unrouted)), 2)
        label = np.stack(
            [unrouted["sender"].astype(np.uint64), unrouted["recipient"].astype(np.uint64) + np.uint64(TO)], axis=1
        ).reshape(-1)
        row, of, label = row, from_to_topics(unrouted["issued"][row], label), label
    roots, topics = united(listed.roots, unrouted["root"]), united(listed.topics, of)
    width = max(len(roots), 1)
    old_root, old_topics = places(roots, listed.roots), places(topics, listed.topics)
    old = old_topics[listed.topic_of] * width + old_root[listed.root_of]
    new = places(topics, of) * width + places(roots, unrouted["root"])[row]
    codes = distinct(np.concatenate([old, new]).astype(np.int64))
    known = united(listed.blocks, blocks["hash"])
    before, here = places(known, listed.blocks), places(known, blocks["hash"])
    lists = np.zeros((len(known) + 1, len(codes)), dtype=bool)
    lists[np.ix_(before, codes.searchsorted(old))] = listed.lists[:-1]
    lists[here[fresh[row]], codes.searchsorted(new)] = True
    heights = np.empty(len(known), dtype=np.uint64)
    heights[before], heights[here] = listed.heights, blocks["number"]
    ancestors = np.empty((len(known), *listed.ancestors.shape[1:]), dtype=np.uint8)
    ancestors[before], ancestors[here] = listed.ancestors, blocks["ancestors"]
    labels = NO_LABELS
    if options.topology == "from_to":
        labels = np.empty(len(topics), dtype=np.uint64)
        labels[old_topics], labels[places(topics, of)] = listed.labels, label
    return Listed(known, heights, ancestors, roots, topics, codes % width, codes // width, lists, labels)


def restricted(listed: Listed, blocks: Mask, queues: Mask) -> Listed:
    """Return what is listed with these blocks and queues only."""
    roots, used = np.zeros(len(listed.roots), dtype=bool), np.zeros(len(listed.topics), dtype=bool)
    roots[listed.root_of[queues]] = True
    used[listed.topic_of[queues]] = True
    return Listed(
        listed.blocks[blocks],
        listed.heights[blocks],
        listed.ancestors[blocks],
        listed.roots[roots],
        listed.topics[used],
        (np.cumsum(roots) - 1)[listed.root_of[queues]],
        (np.cumsum(used) - 1)[listed.topic_of[queues]],
        listed.lists[np.append(blocks, True)][:, queues],
        listed.labels[used] if len(listed.labels) else NO_LABELS,
    )
