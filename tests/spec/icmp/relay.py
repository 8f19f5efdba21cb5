"""Relay blocks, and what a receipt says of a parachain block (2.2)."""

from dataclasses import dataclass, field
from typing import NamedTuple

from tests.spec.icmp.trie import H, u32

Hash = bytes
ParaId = int
Egress = tuple[tuple[ParaId, Hash], ...]


class Mark(NamedTuple):
    """A watermark: a relay block by number and hash (D-11)."""

    number: int
    hash: Hash


@dataclass(frozen=True)
class Block:
    hash: Hash
    parent: Hash | None
    number: int

    @property
    def mark(self) -> Mark:
        return Mark(self.number, self.hash)


GENESIS = Block(H(b"genesis"), None, 0)


def block_on(parent: Block, seal: bytes = b"") -> Block:
    """A block on a parent. Decision: its hash is H(parent || number || seal), `seal` being what its author adds to make
    it differ from its siblings; what stands in a block is not hashed, so that a test can name a block before it knows
    what goes in."""
    number = parent.number + 1
    return Block(H(parent.hash + u32(number) + seal), parent.hash, number)


@dataclass
class Relay:
    """The tree of relay blocks."""

    blocks: dict[Hash, Block] = field(default_factory=lambda: {GENESIS.hash: GENESIS})

    def add(self, block: Block) -> None:
        assert block.hash not in self.blocks, f"{block} is there already: its author needs another seal"
        assert block.parent in self.blocks and block.number == self.blocks[block.parent].number + 1, block
        self.blocks[block.hash] = block

    def parent(self, B: Hash) -> Hash:
        parent = self.blocks[B].parent
        assert parent is not None, "genesis has no parent"
        return parent

    def chain(self, B: Hash) -> list[Block]:
        """B and its ancestors, genesis first."""
        found = []
        h: Hash | None = B
        while h is not None:
            found.append(self.blocks[h])
            h = self.blocks[h].parent
        return found[::-1]

    def on_chain(self, mark: Mark, B: Hash) -> bool:
        """Whether a block of that number and hash is B or an ancestor."""
        return any(block.mark == mark for block in self.chain(B))

    def at(self, B: Hash, number: int) -> Block:
        """The block of that number on the chain of B."""
        return self.chain(B)[number]

    def leaves(self) -> list[Block]:
        parents = {block.parent for block in self.blocks.values()}
        return [block for block in self.blocks.values() if block.hash not in parents]


@dataclass(frozen=True)
class Receipt:
    """The fields of a CandidateReceipt that matter, and the relay block that the candidate was built on.

    Decision. The reference lists no relay parent among the fields (2.2), yet `Included` and `has_messages` need it.
    """

    para: ParaId
    relay_parent: Hash
    parent_head: bytes
    head_data: bytes
    egress_queue_roots: Egress
    watermark: Mark

    @property
    def candidate(self) -> Hash:
        """By which the log knows a candidate: the hash of all that the receipt says."""
        roots = b"".join(u32(to) + root for to, root in self.egress_queue_roots)
        said = (self.relay_parent, self.parent_head, self.head_data, roots, u32(self.watermark.number))
        return H(u32(self.para) + b"".join(H(part) for part in said) + self.watermark.hash)
