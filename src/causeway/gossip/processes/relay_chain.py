"""The relay chain that a network of processes stands on: blocks with forks, the queues that they post, and what each
lists as unrouted (ICMP reference 3.1 to 3.3).

It is made as it goes: which queues a block routes is what a collator says that it has found (3.4), so that a queue that
nobody brings to its parachain stays unrouted. What is posted, and where the chain forks, follows from the seed.
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
"""Blocks so many numbers below the best one are forgotten."""

FORK_GOES_ON, FORK_WINS = 0.5, 0.3
"""How likely a fork has one more block, and how likely the next block stands on it: then the other side is left."""

Queue = tuple[bytes, ...]


@dataclass(frozen=True)
class PostedQueue:
    """A queue that a block posted: ``number`` and ``issued`` (hash) of the block, sender, recipient, root."""

    number: int
    issued: bytes
    source: int
    destination: int
    root: bytes


@dataclass(frozen=True)
class RelayBlock:
    """A block: ``watermarks`` (numbers) after it, ``unrouted`` after it, in the runtime's order; ``posted``: the
    messages of its own queues by (source, destination)."""

    hash: bytes
    number: int
    parent: bytes
    watermarks: Mapping[int, int] = field(default_factory=dict)
    unrouted: tuple[PostedQueue, ...] = ()
    posted: Mapping[tuple[int, int], Queue] = field(default_factory=dict)

    @property
    def listed(self) -> tuple[PostedQueue, ...]:
        """ingress(B, p) of all p: what was posted before this block and is not routed (3.2; D-2: exclusive)."""
        return tuple(entry for entry in self.unrouted if entry.number < self.number)

    @property
    def own(self) -> tuple[PostedQueue, ...]:
        """The queues that this block posted."""
        return tuple(entry for entry in self.unrouted if entry.number == self.number)


class GeneratedRelayChain:
    """Blocks of a seed. ``prefix`` says, of a block's hash and a parachain, up to which number a collator has found
    all that the parachain may consume there; None: nobody says anything."""

    def __init__(
        self, seed: int, parachains: int, section: ProcessRelaySection, prefix: Callable[[bytes, int], int | None]
    ):
        self.genesis = RelayBlock(blake2_256(b"genesis" + seed.to_bytes(8, "little")), 0, bytes(32))
        self.blocks = {self.genesis.hash: self.genesis}
        self.best = self.genesis
        self.posted = 0
        """Queues on the blocks of all forks."""
        self._paras = range(1, parachains + 1)
        self._section, self._prefix = section, prefix
        self._side: RelayBlock | None = None
        self._random = Random(f"causeway/gossip/{seed}")

    def made(self, posting: bool = True) -> list[RelayBlock]:
        """Make the next block, and by chance one more at the same height, on a fork that begins or goes on; return
        both. ``posting``: whether they post queues, and forks begin."""
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
                # It cannot be above the parent: the list ends there.
                watermarks[para] = max(watermarks.get(para, 0), min(found, parent.number))
        posted = self._queues() if posting else {}
        new = [PostedQueue(number, name, *pair, egress_root(queue)) for pair, queue in sorted(posted.items())]
        kept = (entry for entry in parent.unrouted if entry.number > watermarks.get(entry.destination, 0))
        unrouted = sorted((*kept, *new), key=lambda entry: (entry.destination, entry.number, entry.source))
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
        """Return a block as nodes are told it, with so many ancestors."""
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
        """Return ingress(B, p) of some parachains."""
        mine = {*paras}
        return tuple(
            (entry.destination, entry.number, entry.issued, entry.root)
            for entry in found.listed
            if entry.destination in mine
        )


class RelayChainClient:
    """What one node's relay chain client has imported: the leaves of that, without those that finality left behind."""

    def __init__(self, chain: GeneratedRelayChain, finality: int) -> None:
        self._chain, self._finality = chain, finality
        self._has = {chain.genesis.hash: chain.genesis}

    def imports(self, block: RelayBlock) -> None:
        """Take a block; its parent came before."""
        self._has[block.hash] = block
        lowest = self._chain.best.number - REMEMBERED
        self._has = {name: known for name, known in self._has.items() if known.number >= lowest}

    def blocks(self) -> list[RelayBlock]:
        """Return the blocks, in the order in which they came."""
        return [*self._has.values()]

    def leaves(self) -> list[RelayBlock]:
        """Return the leaves, the best first: the highest, of equal numbers the lower hash."""
        parents = {block.parent for block in self._has.values()}
        tips = [block for name, block in self._has.items() if name not in parents]
        lowest = max(block.number for block in tips) - self._finality
        return sorted((one for one in tips if one.number >= lowest), key=lambda one: (-one.number, one.hash))
