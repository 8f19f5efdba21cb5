"""Unrouted queues and topics listed by blocks (ICMP reference 2.5, leafTopics).

A listing is equal for all nodes that have the block, so it is stored once. Blocks, roots, topics and
queues are numbered by the ascending order of their digests; a queue is a pair of root and topic.
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
"""Number of digests below which the search method does not matter."""

NO_DIGESTS: Digests = np.empty((0, DIGEST_BYTES), dtype=np.uint8)


def digest_column(column: Digests) -> npt.NDArray[Any]:
    """View digests, shape (n, 32), as a column of byte strings with the same order."""
    return np.ascontiguousarray(column).reshape(-1, DIGEST_BYTES).view(f"S{DIGEST_BYTES}").reshape(-1)


def merge_digests(*columns: Digests) -> Digests:
    """Return the distinct digests of all columns, ascending."""
    found = np.unique(digest_column(np.concatenate(columns)))
    return found.view(np.uint8).reshape(-1, DIGEST_BYTES)


def digest_positions(known: Digests, asked: Digests) -> Rows:
    """Return the position of each digest in ``known`` (ascending, distinct), or -1.

    Args:
        known: Digests to search in, shape (n, 32).
        asked: Digests to search for.
    """
    leading = _words(known)[:, 0].astype(np.uint64)
    if len(known) == 0 or len(asked) < FEW or (leading[1:] == leading[:-1]).any():
        return find_positions(digest_column(known), digest_column(asked))
    # Words are searched faster than byte strings. Forged digests may share the first word: see above.
    words = _words(asked)
    found = find_positions(leading, words[:, 0].astype(np.uint64))
    others = _words(known)
    matches = found >= 0
    for place in range(1, words.shape[1]):
        matches &= others[found, place] == words[:, place]
    return np.where(matches, found, -1)


def _words(column: Digests) -> npt.NDArray[Any]:
    """View digests as words, shape (n, 4), with the same order."""
    return np.ascontiguousarray(column).reshape(-1, DIGEST_BYTES).view(">u8")


Mask = npt.NDArray[np.bool_]

TO = 2**32
"""Offset of a recipient's label from its number; a sender's label is its number."""

NO_LABELS: U64 = np.empty(0, dtype=np.uint64)

_SUFFIX = np.frombuffer(b"message_queue", dtype=np.uint8)


@dataclass(frozen=True)
class LeafListings:
    """Blocks and the queues that they list.

    Attributes:
        blocks: Hashes of the blocks, ascending.
        heights: Numbers of the blocks.
        ancestors: Hashes, the nearest first, shape (blocks, a, 32), zero-padded.
        roots: Roots of queues, ascending.
        topics: Topics of queues, ascending.
        root_of: Root of each queue; queues are sorted by (topic, root).
        topic_of: Topic of each queue.
        lists: Mask of the queues listed by each block, shape (blocks + 1, queues). The last row is the
            unknown block, which lists none.
        labels: Subscription label of each topic; empty if nodes do not subscribe.
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
        """Number of the unknown block."""
        return len(self.blocks)

    @cached_property
    def headers(self) -> Digests:
        """Hashes of the blocks and their ancestors, ascending."""
        older = self.ancestors.reshape(-1, DIGEST_BYTES)
        return merge_digests(self.blocks, older[older.any(axis=1)])

    @cached_property
    def paths(self) -> Rows:
        """Positions in ``headers`` of each block and its ancestors, padded with -1.

        The shape is (blocks + 1, 1 + a).
        """
        count, depth = self.ancestors.shape[:2]
        rows = np.full((count + 1, 1 + depth), -1, dtype=np.int64)
        rows[:-1, 0] = digest_positions(self.headers, self.blocks)
        rows[:-1, 1:] = digest_positions(self.headers, self.ancestors).reshape(count, depth)
        return rows

    @cached_property
    def path_blocks(self) -> Rows:
        """Block numbers of ``paths``, ``nothing`` for blocks without a listing."""
        found = np.append(digest_positions(self.blocks, self.headers), -1)[self.paths]
        return np.where(found >= 0, found, self.nothing)

    @cached_property
    def leaf_topics(self) -> Mask:
        """Mask of the topics of each block, shape (blocks + 1, topics)."""
        found = np.zeros((len(self.lists), len(self.topics)), dtype=bool)
        block, queue = self.lists.nonzero()
        found[block, self.topic_of[queue]] = True
        return found

    @cached_property
    def codes(self) -> U64:
        """One code a queue, ascending."""
        return self._codes(self.root_of, self.topic_of)

    @cached_property
    def queues_by_root(self) -> tuple[Rows, Rows]:
        """Queues sorted by root, and the offsets of each root's queues, shape (roots + 1)."""
        order = np.argsort(self.root_of, kind="stable")
        return order, self.root_of[order].searchsorted(np.arange(len(self.roots) + 1))

    def _codes(self, root: Rows, topic: Rows) -> U64:
        return (topic * len(self.roots) + root).astype(np.uint64)

    def queue_numbers(self, root: Rows, topic: Rows) -> Rows:
        """Return the number of each queue by its root's and topic's numbers, or -1."""
        found = find_positions(self.codes, self._codes(root, topic))
        return np.where((root >= 0) & (topic >= 0), found, -1)


def queue_topics(hashes: Digests) -> Digests:
    """Compute queueTopic(h) of each hash (2.4)."""
    suffix = np.broadcast_to(_SUFFIX, (len(hashes), len(_SUFFIX)))
    return digest_rows(HashFunction.BLAKE2B_256, np.concatenate([hashes, suffix], axis=1))


def from_to_topics(blocks: Digests, labels: U64) -> Digests:
    """Compute H(block || "from" || x) or H(block || "to" || y) of each block and label (5.1, 3)."""
    found = np.empty((len(blocks), 32), dtype=np.uint8)
    para = np.ascontiguousarray((labels % np.uint64(TO)).astype("<u4")).view(np.uint8).reshape(-1, 4)
    for text, mask in ((b"from", labels < TO), (b"to", labels >= TO)):
        word = np.broadcast_to(np.frombuffer(text, dtype=np.uint8), (int(mask.sum()), len(text)))
        found[mask] = digest_rows(HashFunction.BLAKE2B_256, np.concatenate([blocks[mask], word, para[mask]], axis=1))
    return found


def add_blocks(listed: LeafListings, blocks: Frame, unrouted: Frame, options: GossipOptions) -> LeafListings:
    """Add blocks to listings.

    Args:
        listed: The listings.
        blocks: Unknown blocks: ``hash``, ``number``, ``ancestors``.
        unrouted: The queues that they list, in the runtime's order: ``block``, ``issued`` (hash of the
            issuing relay block), ``root``, and with ``from_to`` also ``sender`` and ``recipient`` (u32). The
            first ``max_leaf_queues`` of each block are kept.
        options: Options of gossip.

    Raises:
        InvalidInput: ``sender`` or ``recipient`` is missing.
    """
    block_row = digest_positions(blocks["hash"], unrouted["block"])
    unrouted, block_row = unrouted.filter(block_row >= 0), block_row[block_row >= 0]
    order = np.argsort(block_row, kind="stable")
    unrouted, block_row = unrouted.take(order), block_row[order]
    first = group_rows(block_row).ranks() < options.max_leaf_queues
    unrouted, block_row = unrouted.filter(first), block_row[first]
    # One entry for each topic of each queue: row, topic, label.
    if options.topology == "flat":
        hashes = unrouted["root" if options.topic_mode == "root" else "issued"]
        named = merge_digests(hashes)
        row, entry_topics, label = (
            np.arange(len(unrouted)),
            queue_topics(named)[digest_positions(named, hashes)],
            NO_LABELS,
        )
    else:
        if "sender" not in unrouted or "recipient" not in unrouted:
            raise InvalidInput("unrouted: topology = from_to needs the columns sender and recipient")
        row = np.repeat(np.arange(len(unrouted)), 2)
        label = np.stack(
            [unrouted["sender"].astype(np.uint64), unrouted["recipient"].astype(np.uint64) + np.uint64(TO)], axis=1
        ).reshape(-1)
        row, entry_topics, label = row, from_to_topics(unrouted["issued"][row], label), label
    roots, topics = merge_digests(listed.roots, unrouted["root"]), merge_digests(listed.topics, entry_topics)
    width = max(len(roots), 1)
    old_root, old_topics = digest_positions(roots, listed.roots), digest_positions(topics, listed.topics)
    old = old_topics[listed.topic_of] * width + old_root[listed.root_of]
    new = digest_positions(topics, entry_topics) * width + digest_positions(roots, unrouted["root"])[row]
    codes = distinct(np.concatenate([old, new]).astype(np.int64))
    known = merge_digests(listed.blocks, blocks["hash"])
    old_rows, new_rows = digest_positions(known, listed.blocks), digest_positions(known, blocks["hash"])
    lists = np.zeros((len(known) + 1, len(codes)), dtype=bool)
    lists[np.ix_(old_rows, codes.searchsorted(old))] = listed.lists[:-1]
    lists[new_rows[block_row[row]], codes.searchsorted(new)] = True
    heights = np.empty(len(known), dtype=np.uint64)
    heights[old_rows], heights[new_rows] = listed.heights, blocks["number"]
    ancestors = np.empty((len(known), *listed.ancestors.shape[1:]), dtype=np.uint8)
    ancestors[old_rows], ancestors[new_rows] = listed.ancestors, blocks["ancestors"]
    labels = NO_LABELS
    if options.topology == "from_to":
        labels = np.empty(len(topics), dtype=np.uint64)
        labels[old_topics], labels[digest_positions(topics, entry_topics)] = listed.labels, label
    return LeafListings(known, heights, ancestors, roots, topics, codes % width, codes // width, lists, labels)


def restrict_listings(listed: LeafListings, blocks: Mask, queues: Mask) -> LeafListings:
    """Restrict listings to some blocks and queues."""
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
