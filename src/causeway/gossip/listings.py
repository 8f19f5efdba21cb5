"""Digests by numbers: a set of digests in ascending order, in which each has its place as its number.

What blocks list (ICMP reference 2.5, leafTopics): the queues unrouted at each, and the topics of these.

It is the same for every node that has the block, so that it is kept once. Blocks, roots, topics and queues have
numbers that ascend with their digests; a queue here is a pair of root and topic.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from causeway_proofs.errors import InvalidInput
from causeway_proofs.hashing import DIGEST_BYTES, Digests, HashFunction, digest_rows
from causeway_proofs.order import U64, Rows, distinct, find_positions, group_rows

from causeway.core.frame import Frame
from causeway.gossip.options import GossipOptions

FEW = 64
"""Digests up to which it does not matter how they are searched."""

NO_DIGESTS: Digests = np.empty((0, DIGEST_BYTES), dtype=np.uint8)


def digest_column(column: Digests) -> npt.NDArray[Any]:
    """Return digests, shape (n, 32), as one column of byte strings, which order like them."""
    return np.ascontiguousarray(column).reshape(-1, DIGEST_BYTES).view(f"S{DIGEST_BYTES}").reshape(-1)


def merge_digests(*columns: Digests) -> Digests:
    """Return the digests of all columns, each once, ascending."""
    found = np.unique(digest_column(np.concatenate(columns)))
    return found.view(np.uint8).reshape(-1, DIGEST_BYTES)


def digest_positions(known: Digests, asked: Digests) -> Rows:
    """Return the number of each digest in ``known`` (ascending, each once), -1 where it is absent."""
    leading = _words(known)[:, 0].astype(np.uint64)
    if len(known) == 0 or len(asked) < FEW or (leading[1:] == leading[:-1]).any():
        return find_positions(digest_column(known), digest_column(asked))
    # Words are searched several times as fast as texts. Two that begin alike can be made, so that is looked at above.
    words = _words(asked)
    found = find_positions(leading, words[:, 0].astype(np.uint64))
    others = _words(known)
    there = found >= 0
    for place in range(1, words.shape[1]):
        there &= others[found, place] == words[:, place]
    return np.where(there, found, -1)


def _words(column: Digests) -> npt.NDArray[Any]:
    """Return digests as words, shape (n, 4), which order like them."""
    return np.ascontiguousarray(column).reshape(-1, DIGEST_BYTES).view(">u8")


Mask = npt.NDArray[np.bool_]

TO = 2**32
"""Of labels: that of a sender is its number, that of a recipient is its number and this."""

NO_LABELS: U64 = np.empty(0, dtype=np.uint64)

_SUFFIX = np.frombuffer(b"message_queue", dtype=np.uint8)


@dataclass(frozen=True)
class LeafListings:
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
        return merge_digests(self.blocks, older[older.any(axis=1)])

    @cached_property
    def paths(self) -> Rows:
        """Numbers in ``headers`` of each block and its ancestors, the nearest first, shape (blocks + 1, 1 + a), -1 for
        none."""
        count, depth = self.ancestors.shape[:2]
        rows = np.full((count + 1, 1 + depth), -1, dtype=np.int64)
        rows[:-1, 0] = digest_positions(self.headers, self.blocks)
        rows[:-1, 1:] = digest_positions(self.headers, self.ancestors).reshape(count, depth)
        return rows

    @cached_property
    def path_blocks(self) -> Rows:
        """Numbers of the blocks of ``paths``, ``nothing`` for those that nobody described."""
        found = np.append(digest_positions(self.blocks, self.headers), -1)[self.paths]
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
    def queues_by_root(self) -> tuple[Rows, Rows]:
        """The queues by root, and where those of each root begin, and at last where they end, shape (roots + 1)."""
        order = np.argsort(self.root_of, kind="stable")
        return order, self.root_of[order].searchsorted(np.arange(len(self.roots) + 1))

    def _codes(self, root: Rows, topic: Rows) -> U64:
        return (topic * len(self.roots) + root).astype(np.uint64)

    def queue_numbers(self, root: Rows, topic: Rows) -> Rows:
        """Return the number of each queue by its root's and its topic's, -1 where there is none."""
        found = find_positions(self.codes, self._codes(root, topic))
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


def add_blocks(listed: LeafListings, blocks: Frame, unrouted: Frame, options: GossipOptions) -> LeafListings:
    """Return what is listed with further ``blocks`` (``hash``, ``number``, ``ancestors``), none of which is known.

    ``unrouted``: what they list, in the runtime's order: ``block``, ``issued`` (the hash of the relay block in which
    the queue was issued), ``root``, and with ``from_to`` ``sender`` and ``recipient`` (u32). Of each the first
    ``max_leaf_queues`` are kept.
    """
    fresh = digest_positions(blocks["hash"], unrouted["block"])
    unrouted, fresh = unrouted.filter(fresh >= 0), fresh[fresh >= 0]
    order = np.argsort(fresh, kind="stable")
    unrouted, fresh = unrouted.take(order), fresh[order]
    first = group_rows(fresh).ranks() < options.max_leaf_queues
    unrouted, fresh = unrouted.filter(first), fresh[first]
    # The topics that queues are on: the row of each, the topic, its label.
    if options.topology == "flat":
        hashes = unrouted["root" if options.topic_mode == "root" else "issued"]
        named = merge_digests(hashes)
        row, of, label = np.arange(len(unrouted)), queue_topics(named)[digest_positions(named, hashes)], NO_LABELS
    else:
        if "sender" not in unrouted or "recipient" not in unrouted:
            raise InvalidInput("unrouted: topology = from_to needs the columns sender and recipient")
        row = np.repeat(np.arange(len(unrouted)), 2)
        label = np.stack(
            [unrouted["sender"].astype(np.uint64), unrouted["recipient"].astype(np.uint64) + np.uint64(TO)], axis=1
        ).reshape(-1)
        row, of, label = row, from_to_topics(unrouted["issued"][row], label), label
    roots, topics = merge_digests(listed.roots, unrouted["root"]), merge_digests(listed.topics, of)
    width = max(len(roots), 1)
    old_root, old_topics = digest_positions(roots, listed.roots), digest_positions(topics, listed.topics)
    old = old_topics[listed.topic_of] * width + old_root[listed.root_of]
    new = digest_positions(topics, of) * width + digest_positions(roots, unrouted["root"])[row]
    codes = distinct(np.concatenate([old, new]).astype(np.int64))
    known = merge_digests(listed.blocks, blocks["hash"])
    before, here = digest_positions(known, listed.blocks), digest_positions(known, blocks["hash"])
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
        labels[old_topics], labels[digest_positions(topics, of)] = listed.labels, label
    return LeafListings(known, heights, ancestors, roots, topics, codes % width, codes // width, lists, labels)


def restrict_listings(listed: LeafListings, blocks: Mask, queues: Mask) -> LeafListings:
    """Return what is listed with these blocks and queues only."""
    roots, used = np.zeros(len(listed.roots), dtype=bool), np.zeros(len(listed.topics), dtype=bool)
    roots[listed.root_of[queues]] = True
    used[listed.topic_of[queues]] = True
    return LeafListings(
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
