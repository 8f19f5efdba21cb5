"""Relay chain of a simulation: blocks, posted queues, and the unrouted queues at each block.

The relay chain is an input: ``create_relay_chain`` generates it from a scenario's figures, and tests
supply recorded ones. Blocks, roots and queues have numbers that are valid for the whole run; tables
and mail use them instead of digests.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from causeway_proofs.hashing import Digests, blake2_256
from causeway_proofs.order import U64, Rows, distinct, find_positions, group_rows
from causeway_proofs.substrate import egress_root

from causeway.core.frame import Frame
from causeway.core.joins import expand_ranges
from causeway.gossip.listings import TO, from_to_topics, queue_topics
from causeway.gossip.options import GossipOptions
from causeway.gossip.simulation.options import RelaySection, SimulationOptions
from causeway.gossip.simulation.relay_table import NO_BLOCK
from causeway.protocols.shared.digests import digests
from causeway.protocols.shared.random_numbers import SimulationDraw, uniforms, words

_WORD = 8
"""Bytes of content per random word."""

MANY_PAIRS = 1 << 20
"""Maximum number of parachain pairs for drawing without repetition."""


@dataclass(frozen=True)
class SimulatedRelayChain:
    """Relay chain of a simulation.

    Attributes:
        options: Options of gossip.
        hashes: Hash of each block.
        heights: Number of each block on its chain.
        parents: Parent of each block, ``NO_BLOCK`` for genesis (block 0).
        times: Time of each block in ms.
        issued: Block of each entry; an entry is a queue that a block posts.
        sources: Sending parachain of each entry.
        destinations: Receiving parachain of each entry.
        root: Root number of each entry.
        roots: Digest of each root.
        sizes: Size in bytes of each root's body.
        messages: Number of messages of each root's body.
        unrouted: Unrouted entries at each block, in the runtime's order.
        bodies: Messages of each root, if bodies are hashed.
    """

    options: GossipOptions
    hashes: Digests
    heights: U64
    parents: Rows
    times: Rows
    issued: Rows
    sources: Rows
    destinations: Rows
    root: Rows
    roots: Digests
    sizes: U64
    messages: U64
    unrouted: Sequence[Rows]
    bodies: Sequence[Sequence[bytes]] | None = None

    @cached_property
    def topic_counts(self) -> int:
        """Number of topics of each entry."""
        return 2 if self.options.topology == "from_to" else 1

    @cached_property
    def _labels(self) -> U64:
        """Subscription of each topic of each entry, with ``from_to``."""
        return np.stack([self.sources, self.destinations + TO], axis=1).reshape(-1).astype(np.uint64)

    @cached_property
    def _topics(self) -> Digests:
        """Topics of the entries, ``topic_counts`` of each."""
        if self.options.topology == "from_to":
            return from_to_topics(self.hashes[np.repeat(self.issued, 2)], self._labels)
        if self.options.topic_mode == "root":
            return queue_topics(self.roots)[self.root]
        return queue_topics(self.hashes)[self.issued]

    @cached_property
    def _queues(self) -> tuple[Rows, Rows, Digests, U64, Rows, Rows]:
        root = np.repeat(self.root, self.topic_counts)
        codes = _codes(self.roots[root], self._topics)
        _, first, code_index = np.unique(codes, return_index=True, return_inverse=True)
        order = np.argsort(first, kind="stable")
        number = np.empty(len(order), dtype=np.int64)
        number[order] = np.arange(len(order))
        first = first[order]
        known = codes[first]
        ascending = np.argsort(known, kind="stable")
        return number[code_index.reshape(-1)], root[first], self._topics[first], known[ascending], ascending, first

    def queues_of(self, entries: Rows) -> Rows:
        """Return the queues of entries, ``topic_counts`` of each.

        Equal roots under equal topics are one queue.
        """
        return self._queues[0].reshape(-1, self.topic_counts)[entries].reshape(-1)

    def requested_queue(self, entries: Rows) -> Rows:
        """Return the queue named by a fallback request of an entry: that of its recipient's topic."""
        return np.asarray(self._queues[0].reshape(-1, self.topic_counts)[entries, -1])

    @property
    def queue_root(self) -> Rows:
        """Root number of each queue."""
        return self._queues[1]

    @property
    def queue_topic(self) -> Digests:
        """Topic of each queue."""
        return self._queues[2]

    @cached_property
    def queue_issued(self) -> Rows:
        """First block that posts each queue."""
        return self.issued[self._queues[5] // self.topic_counts]

    @property
    def queue_label(self) -> U64:
        """Subscription of each queue, with ``from_to``."""
        return self._labels[self._queues[5]]

    @cached_property
    def root_issued(self) -> Rows:
        """First block that posts each root."""
        found = np.empty(len(self.roots), dtype=np.int64)
        found[self.root[::-1]] = self.issued[::-1]
        return found

    def queue_numbers(self, roots: Digests, topics: Digests) -> Rows:
        """Return the number of each queue by its digests; all must be known."""
        known, order = self._queues[3], self._queues[4]
        return order[known.searchsorted(_codes(roots, topics))]

    @cached_property
    def _roots(self) -> tuple[U64, Rows]:
        words = _digest_words(self.roots)
        order = np.argsort(words, kind="stable")
        return words[order], order

    def root_numbers(self, roots: Digests) -> Rows:
        """Return the number of each root; all must be known."""
        return self._roots[1][self._roots[0].searchsorted(_digest_words(roots))]

    @cached_property
    def _blocks(self) -> tuple[U64, Rows]:
        words = _digest_words(self.hashes)
        order = np.argsort(words, kind="stable")
        return words[order], order

    def block_numbers(self, hashes: Digests) -> Rows:
        """Return the number of each block by its hash, or -1 for an unknown hash."""
        words, order = self._blocks
        found = find_positions(words, _digest_words(hashes))
        return np.where(found >= 0, order[found], NO_BLOCK)

    @cached_property
    def children(self) -> list[list[int]]:
        """Children of each block."""
        found: list[list[int]] = [[] for _ in self.parents]
        for block, parent in enumerate(self.parents.tolist()):
            if parent != NO_BLOCK:
                found[parent].append(block)
        return found

    @cached_property
    def first_listing_block(self) -> Rows:
        """First block that lists each entry, or ``NO_BLOCK``."""
        found = np.full(len(self.issued), NO_BLOCK, dtype=np.int64)
        for block in np.argsort(-self.times, kind="stable").tolist():
            found[self.unrouted[block]] = block
        return found

    @cached_property
    def first_listed_time(self) -> Rows:
        """Time in ms of the first block that lists each entry, or -1."""
        return np.where(self.first_listing_block == NO_BLOCK, -1, self.times[self.first_listing_block])

    def context(self, blocks: Rows) -> tuple[Frame, Frame]:
        """Return the input of ``on_leaves`` for blocks: the tables ``blocks`` and ``unrouted``."""
        depth = self.options.ancestors
        older = np.zeros((len(blocks), depth, 32), dtype=np.uint8)
        at = blocks
        for place in range(depth):
            at = np.where(at >= 0, self.parents[at], NO_BLOCK)
            older[at >= 0, place] = self.hashes[at[at >= 0]]
        frame = Frame({"hash": self.hashes[blocks], "number": self.heights[blocks], "ancestors": older}, len(blocks))
        listed = [self.unrouted[block] for block in blocks.tolist()]
        entry = np.concatenate([np.empty(0, dtype=np.int64), *listed])
        listing_block = np.repeat(blocks, [len(rows) for rows in listed])
        columns = {"block": self.hashes[listing_block], "issued": self.hashes[self.issued[entry]]}
        sender, recipient = (side[entry].astype(np.uint32) for side in (self.sources, self.destinations))
        columns |= {"root": self.roots[self.root[entry]], "sender": sender, "recipient": recipient}
        return frame, Frame(columns, len(entry))

    @cached_property
    def entries_by_sender(self) -> list[tuple[Rows, Rows]]:
        """Entries listed by each block, sorted by sending parachain, with these parachains."""
        found = []
        for rows in self.unrouted:
            order = rows[np.argsort(self.sources[rows], kind="stable")]
            found.append((order, self.sources[order]))
        return found

    def collator_queues(self, nodes: npt.NDArray[np.uint32], paras: Rows, blocks: Rows) -> Frame:
        """Return the queues that collators keep of the listings of blocks.

        Args:
            nodes: Node of each leaf.
            paras: Parachain of each leaf's node.
            blocks: Block of each leaf.

        Returns:
            Rows of ``kept`` of ``StepInputs``.
        """
        found_node, found_root = [np.empty(0, dtype=np.uint32)], [np.empty(0, dtype=np.int64)]
        for block in distinct(blocks).tolist():
            mine = blocks == block
            entries, sources = self.entries_by_sender[block]
            row, place = expand_ranges(
                sources.searchsorted(paras[mine]), sources.searchsorted(paras[mine], side="right")
            )
            found_node.append(nodes[mine][row])
            found_root.append(self.root[entries[place]])
        node, root = np.concatenate(found_node), np.concatenate(found_root)
        return Frame({"node": node, "root": self.roots[root], "size": self.sizes[root]}, len(node))

    def body_root(self, root: int, altered: bool) -> bytes:
        """Compute the root of a body, original or altered, from its bytes."""
        assert self.bodies is not None
        body = self.bodies[root]
        last = body[-1]
        return egress_root([*body[:-1], last[:-1] + bytes([last[-1] ^ 1])] if altered else body)


def _digest_words(column: Digests) -> U64:
    """Return the first eight bytes of digests; distinct digests differ in them."""
    return np.ascontiguousarray(column[:, :_WORD]).view("<u8").reshape(-1).astype(np.uint64, copy=False)


def _codes(roots: Digests, topics: Digests) -> U64:
    return _digest_words(roots) ^ (_digest_words(topics) << np.uint64(1))


def create_relay_chain(options: SimulationOptions, seed: int) -> SimulatedRelayChain:
    """Generate the relay chain of a scenario.

    It has a block each interval, random siblings, and queues between random pairs of parachains, each
    listed by the configured number of blocks.

    Args:
        options: Options of the simulation.
        seed: Seed of the generator.
    """
    relay = options.relay
    last = options.end * options.slice // relay.interval
    heights, parents, times, twins, main = [0], [NO_BLOCK], [0], [NO_BLOCK], 0
    forked = uniforms(seed, SimulationDraw.FORK, np.arange(last + 1)) < relay.forks
    for number in range(1, last + 1):
        heights.append(number)
        parents.append(main)
        times.append(number * relay.interval)
        twins.append(NO_BLOCK)
        block = len(heights) - 1
        if forked[number]:
            heights.append(number)
            parents.append(main)
            later = int(words(seed, SimulationDraw.FORK, number, 1)[()] % np.uint64(relay.interval // 2))
            times.append(number * relay.interval + later)
            twins.append(block)
        main = block
    hashes = digests(
        [blake2_256(b"block" + seed.to_bytes(8, "little") + n.to_bytes(8, "little")) for n in range(len(heights))]
    )
    columns: dict[str, list[Rows]] = {name: [] for name in ("issued", "sources", "destinations", "root")}
    roots, posted_by_block = 0, dict[int, tuple[Rows, Rows, Rows]]()
    for block, twin in enumerate(twins):
        if not 1 <= heights[block] <= relay.blocks:
            continue
        if twin == NO_BLOCK:
            # Distinct pairs of parachains, ascending.
            most = options.nodes.parachains * (options.nodes.parachains - 1)
            if most <= MANY_PAIRS:
                pair_words = words(seed, SimulationDraw.QUEUE, np.arange(most), block)
                code = np.sort(np.argsort(pair_words, kind="stable")[: relay.queues])
            else:
                code = distinct(
                    words(seed, SimulationDraw.QUEUE, np.arange(relay.queues), block) % np.uint64(most)
                ).astype(np.int64)
            source, other = code // (options.nodes.parachains - 1), code % (options.nodes.parachains - 1)
            pairs = source, np.where(other >= source, other + 1, other)
            posted_by_block[block] = (*pairs, np.arange(roots, roots + len(pairs[0])))
            roots += len(pairs[0])
        posted = posted_by_block[block if twin == NO_BLOCK else twin]
        for name, column in zip(columns, (np.full(len(posted[0]), block), *posted), strict=True):
            columns[name].append(column)
    entries = {name: np.concatenate([np.empty(0, dtype=np.int64), *found]) for name, found in columns.items()}
    numbers = np.arange(roots)
    sizes = words(seed, SimulationDraw.QUEUE, numbers, 0, 1) % np.uint64(2 * relay.bytes - 1) + np.uint64(1)
    sizes = np.maximum(sizes, np.uint64(relay.messages))
    bodies = _bodies(seed, sizes, relay.messages) if relay.bodies == "hashed" else None
    if bodies is None:
        root_digests = [
            blake2_256(b"queue" + seed.to_bytes(8, "little") + n.to_bytes(8, "little")) for n in range(roots)
        ]
    else:
        root_digests = [egress_root(body) for body in bodies]
    parent = np.array(parents, dtype=np.int64)
    height = np.array(heights, dtype=np.int64)
    return SimulatedRelayChain(
        options.gossip,
        hashes,
        height.astype(np.uint64),
        parent,
        np.array(times, dtype=np.int64),
        **entries,
        roots=digests(root_digests),
        sizes=sizes,
        messages=np.full(roots, relay.messages, dtype=np.uint64),
        unrouted=_unrouted(relay, parent, height, entries),
        bodies=bodies,
    )


def _bodies(seed: int, sizes: U64, messages: int) -> list[list[bytes]]:
    found = []
    for root, size in enumerate(sizes.tolist()):
        content = words(seed, SimulationDraw.CONTENT, root, np.arange(-(-size // _WORD))).tobytes()[:size]
        cuts = [size * part // messages for part in range(messages + 1)]
        found.append([content[begin:end] for begin, end in itertools.pairwise(cuts)])
    return found


def _unrouted(relay: RelaySection, parents: Rows, heights: Rows, entries: dict[str, Rows]) -> list[Rows]:
    """Return the entries of each block's last ``listed`` ancestors, by recipient, block, sender."""
    groups = group_rows(entries["issued"])
    entry_ranges = {
        int(entries["issued"][start]): (start, start + count)
        for start, count in zip(groups.starts, groups.counts, strict=True)
    }
    found = []
    for block in range(len(parents)):
        rows, at = [np.empty(0, dtype=np.int64)], int(parents[block])
        for _ in range(relay.listed):
            if at == NO_BLOCK:
                break
            begin, end = entry_ranges.get(at, (0, 0))
            rows.append(np.arange(begin, end))
            at = int(parents[at])
        row = np.concatenate(rows)
        keys = entries["sources"][row], heights[entries["issued"][row]], entries["destinations"][row]
        found.append(row[np.lexsort(keys)])
    return found
