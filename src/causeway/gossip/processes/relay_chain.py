"""Generated relay chain of a process network (ICMP reference 3.1 to 3.3).

The chain grows with the run: a block routes the queues that a collator reports as found (3.4), so an
undelivered queue stays unrouted. Posted queues and forks follow from the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random

from causeway_proofs.hashing import blake2_256
from causeway_proofs.substrate.egress import egress_root

from causeway.gossip.processes.node import Wanted
from causeway.gossip.processes.scenario import ProcessRelaySection
from causeway.gossip.processes.step_trace import ImportedBlock

REMEMBERED = 64
"""Depth below the best block at which blocks are dropped."""

FORK_GOES_ON, FORK_WINS = 0.5, 0.3
"""Probabilities that a fork grows, and that the next block extends it and orphans the main branch."""

Queue = tuple[bytes, ...]


@dataclass(frozen=True)
class PostedQueue:
    """Queue posted by a block: block ``number`` and hash (``issued``), sender, recipient, root."""

    number: int
    issued: bytes
    source: int
    destination: int
    root: bytes


@dataclass(frozen=True)
class RelayBlock:
    """Relay block with its state.

    Attributes:
        hash: Hash of the block.
        number: Number of the block.
        parent: Hash of the parent.
        watermarks: Last routed block number by parachain, after this block.
        unrouted: Unrouted queues after this block, in the runtime's order.
        posted: Messages of the block's own queues, by (source, destination).
    """

    hash: bytes
    number: int
    parent: bytes
    watermarks: Mapping[int, int] = field(default_factory=dict)
    unrouted: tuple[PostedQueue, ...] = ()
    posted: Mapping[tuple[int, int], Queue] = field(default_factory=dict)

    @property
    def listed(self) -> tuple[PostedQueue, ...]:
        """Ingress(B, p) of all p: unrouted queues posted before this block (3.2; D-2: exclusive)."""
        return tuple(entry for entry in self.unrouted if entry.number < self.number)

    @property
    def own(self) -> tuple[PostedQueue, ...]:
        """Queues posted by this block."""
        return tuple(entry for entry in self.unrouted if entry.number == self.number)


class GeneratedRelayChain:
    """Relay chain generated from a seed.

    Args:
        seed: The seed.
        parachains: Number of parachains.
        section: Options of the relay chain.
        prefix: Reported prefix of a block's hash and a parachain, or None without a report.
    """

    def __init__(
        self, seed: int, parachains: int, section: ProcessRelaySection, prefix: Callable[[bytes, int], int | None]
    ):
        self.genesis = RelayBlock(blake2_256(b"genesis" + seed.to_bytes(8, "little")), 0, bytes(32))
        self.blocks = {self.genesis.hash: self.genesis}
        self.best = self.genesis
        self.posted = 0
        """Number of queues on the blocks of all forks."""
        self._paras = range(1, parachains + 1)
        self._section, self._prefix = section, prefix
        self._side: RelayBlock | None = None
        self._random = Random(f"causeway/gossip/{seed}")

    def generate_blocks(self, posting: bool = True) -> list[RelayBlock]:
        """Generate the next block, and by chance a sibling on a new or existing fork.

        Args:
            posting: If False, blocks post no queues and no forks start.

        Returns:
            One or two new blocks.
        """
        draw = self._random.random
        blocks = [self._block(self.best, 0, posting)]
        if self._side is not None:
            if posting and draw() < FORK_GOES_ON:
                blocks.append(self._block(self._side, 1, posting))
        elif posting and draw() < self._section.forks:
            blocks.append(self._block(self.best, 1, posting))
        self.best, self._side = blocks[0], blocks[1] if len(blocks) > 1 else None
        if self._side is not None and draw() < FORK_WINS:
            self.best, self._side = self._side, self.best
        lowest = self.best.number - REMEMBERED
        self.blocks = {name: block for name, block in self.blocks.items() if block.number >= lowest}
        return blocks

    def _block(self, parent: RelayBlock, place: int, posting: bool) -> RelayBlock:
        number = parent.number + 1
        name = blake2_256(parent.hash + number.to_bytes(8, "little") + bytes([place]))
        watermarks = dict(parent.watermarks)
        for para in self._paras:
            found = self._prefix(parent.hash, para)
            if found is not None:
                # The parent bounds the watermark: the listing ends there.
                watermarks[para] = max(watermarks.get(para, 0), min(found, parent.number))
        posted = self._queues() if posting else {}
        new = [PostedQueue(number, name, *pair, egress_root(queue)) for pair, queue in sorted(posted.items())]
        still_unrouted = (entry for entry in parent.unrouted if entry.number > watermarks.get(entry.destination, 0))
        unrouted = sorted((*still_unrouted, *new), key=lambda entry: (entry.destination, entry.number, entry.source))
        block = RelayBlock(name, number, parent.hash, watermarks, tuple(unrouted), posted)
        self.blocks[name] = block
        self.posted += len(posted)
        return block

    def _queues(self) -> dict[tuple[int, int], Queue]:
        section, draw = self._section, self._random
        pairs = [(x, y) for x in self._paras for y in self._paras if x != y]
        chosen = draw.sample(pairs, min(section.queues, len(pairs)))
        return {
            pair: tuple(draw.randbytes(draw.randint(1, section.most_message)) for _ in range(section.messages))
            for pair in chosen
        }

    def block(self, found: RelayBlock, ancestors: int) -> ImportedBlock:
        """Convert a block to a node's view of it, with the given number of ancestors."""
        older: list[bytes] = []
        parent = found.parent
        while len(older) < ancestors and parent in self.blocks:
            older.append(parent)
            parent = self.blocks[parent].parent
        return ImportedBlock(
            found.hash, found.number, tuple(older), tuple((entry.issued, entry.root) for entry in found.listed)
        )

    @staticmethod
    def wanted(found: RelayBlock, paras: Iterable[int]) -> tuple[Wanted, ...]:
        """Return ingress(B, p) of the given parachains."""
        mine = {*paras}
        return tuple(
            (entry.destination, entry.number, entry.issued, entry.root)
            for entry in found.listed
            if entry.destination in mine
        )


class RelayChainClient:
    """Relay chain client of one node: imported blocks, and leaves within the finality depth."""

    def __init__(self, chain: GeneratedRelayChain, finality: int) -> None:
        self._chain, self._finality = chain, finality
        self._imported = {chain.genesis.hash: chain.genesis}

    def imports(self, block: RelayBlock) -> None:
        """Import a block after its parent."""
        self._imported[block.hash] = block
        lowest = self._chain.best.number - REMEMBERED
        self._imported = {name: known for name, known in self._imported.items() if known.number >= lowest}

    def blocks(self) -> list[RelayBlock]:
        """Return the blocks in import order."""
        return [*self._imported.values()]

    def leaves(self) -> list[RelayBlock]:
        """Return the leaves, the best first: by number, then by lower hash."""
        parents = {block.parent for block in self._imported.values()}
        tips = [block for name, block in self._imported.items() if name not in parents]
        lowest = max(block.number for block in tips) - self._finality
        return sorted((one for one in tips if one.number >= lowest), key=lambda one: (-one.number, one.hash))
