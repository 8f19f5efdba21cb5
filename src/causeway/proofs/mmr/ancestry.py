"""Proofs that a Merkle mountain range is the beginning of a longer one.

As in the MMR pallet's ancestry proofs: the peaks of the earlier range, and the nodes of the later one that are needed
beside them, each with its position. Peaks that both ranges have stand for themselves; the others all lie below one
mountain of the later range, on its left edge, and only right siblings are missing to climb it.
"""

from __future__ import annotations

from dataclasses import dataclass

from causeway.proofs.hashing import DIGEST_BYTES, keccak256
from causeway.proofs.mmr.errors import CorruptedProof, RootMismatch
from causeway.proofs.mmr.positions import Node, node_to_position, peaks_of, require_leaf_count
from causeway.proofs.mmr.proof import bag, inner_step, require_same_root
from causeway.proofs.mmr.scale import Reader, encode_u64
from causeway.proofs.steps import Step
from causeway.proofs.substrate.compact import encode_compact

_ITEM_BYTES = 8 + DIGEST_BYTES


@dataclass(frozen=True, slots=True)
class AncestryProof:
    """A proof that a range is the beginning of a later one.

    Attributes:
        prev_peaks: the peaks of the earlier range, left to right, 32 bytes each.
        prev_leaf_count: how many leaves the earlier range has.
        leaf_count: how many leaves the later range has.
        items: nodes of the later range, position and hash, by position; the mountains that the earlier range does not
            reach are one item, their bagged peaks, at the position of the leftmost.
    """

    prev_peaks: tuple[bytes, ...]
    prev_leaf_count: int
    leaf_count: int
    items: tuple[tuple[int, bytes], ...]

    def encode(self) -> bytes:
        """Return the SCALE encoding of the four parts in order; an item is a u64 and 32 bytes."""
        peaks = encode_compact(len(self.prev_peaks)) + b"".join(self.prev_peaks)
        counts = encode_u64(self.prev_leaf_count) + encode_u64(self.leaf_count)
        items = b"".join([encode_u64(position) + digest for position, digest in self.items])
        return peaks + counts + encode_compact(len(self.items)) + items

    @classmethod
    def decode(cls, data: bytes) -> AncestryProof:
        """Return the proof that ``data`` is the SCALE encoding of, to the last byte.

        Raises:
            OverLimit: there are more bytes than any proof has.
            MalformedProof: it is not such an encoding.
        """
        reader = Reader(data, "the ancestry proof")
        peaks, prev_leaf_count, leaf_count = reader.digest_list(), reader.u64(), reader.u64()
        items = tuple((reader.u64(), reader.take(DIGEST_BYTES)) for _ in range(reader.length(_ITEM_BYTES)))
        reader.end()
        return cls(peaks, prev_leaf_count, leaf_count, items)


def verify_ancestry_proof(
    proof: AncestryProof, root: bytes, prev_root: bytes, leaf_count: int | None = None
) -> tuple[Step, ...]:
    """Verify that the range with the root ``prev_root`` is the beginning of the one with the root ``root``.

    Args:
        proof: the proof.
        root: the trusted root of the later range.
        prev_root: the root of the earlier range that is to be shown.
        leaf_count: the trusted number of leaves of the later range, where it is known (a root does not say it).

    Returns:
        What was done, the earlier root first, the trusted one last.

    Raises:
        CorruptedProof: peaks or items missing, left over or in other places than the leaf counts call for.
        InvalidSize: a leaf count that no range has.
        RootMismatch: it leads to another root, earlier or later, or is of a range with another number of leaves.
    """
    found = ancestry_roots(proof)
    if leaf_count is not None and proof.leaf_count != leaf_count:
        raise RootMismatch(f"the proof is of a range of {proof.leaf_count} leaves, the root is of one of {leaf_count}")
    steps = list(found.prev_steps)
    require_same_root(found.prev_root, prev_root, steps)
    steps += found.steps
    require_same_root(found.root, root, steps)
    return tuple(steps)


@dataclass(frozen=True, slots=True)
class AncestryRoots:
    """What an ancestry proof leads to.

    Attributes:
        prev_root: the root of the earlier range.
        prev_steps: the way to it, from its peaks.
        root: the root of the later range.
        steps: the way to that one, from the same peaks.
    """

    prev_root: bytes
    prev_steps: tuple[Step, ...]
    root: bytes
    steps: tuple[Step, ...]


def ancestry_roots(proof: AncestryProof) -> AncestryRoots:
    """Return the roots that a proof leads to: ``verify_ancestry_proof`` compares them with those that are known.

    Raises:
        CorruptedProof, InvalidSize: as for ``verify_ancestry_proof``.
    """
    common, siblings, beyond = _require_shape(proof)
    prev_steps: list[Step] = []
    prev_root = bag(proof.prev_peaks, prev_steps)
    steps: list[Step] = []
    items = [digest for _, digest in proof.items]
    peaks = list(proof.prev_peaks[:common])
    below = list(proof.prev_peaks[common:])
    if below:
        peaks.append(_climb(proof.prev_leaf_count, below, dict(zip(siblings, items, strict=False)), steps))
    if beyond:
        peaks.append(items[-1])
    return AncestryRoots(prev_root, tuple(prev_steps), bag(peaks, steps), tuple(steps))


def _require_shape(proof: AncestryProof) -> tuple[int, list[Node], list[Node]]:
    require_leaf_count(proof.leaf_count)
    if not 1 <= proof.prev_leaf_count <= proof.leaf_count:
        raise CorruptedProof(
            f"leaf counts {proof.prev_leaf_count} and {proof.leaf_count}: wanted are 1 <= earlier <= later"
        )
    if len(proof.prev_peaks) != proof.prev_leaf_count.bit_count():
        raise CorruptedProof(
            f"the proof has {len(proof.prev_peaks)} peaks, a range of {proof.prev_leaf_count} leaves has "
            f"{proof.prev_leaf_count.bit_count()}"
        )
    common, siblings, beyond = _plan(proof.prev_leaf_count, proof.leaf_count)
    positions = [node_to_position(node) for node in (*siblings, *beyond[:1])]
    if [position for position, _ in proof.items] != positions:
        raise CorruptedProof(f"the proof's items are not those at the positions {positions}")
    if any(len(digest) != DIGEST_BYTES for digest in (*proof.prev_peaks, *(digest for _, digest in proof.items))):
        raise CorruptedProof(f"a peak or an item of the proof does not have {DIGEST_BYTES} bytes")
    return common, siblings, beyond


def _plan(prev_leaf_count: int, leaf_count: int) -> tuple[int, list[Node], list[Node]]:
    """Return how many peaks both ranges have, the right siblings to climb with, and the peaks that lie beyond."""
    prev_peaks, peaks = peaks_of(prev_leaf_count), peaks_of(leaf_count)
    common = 0
    while common < len(prev_peaks) and prev_peaks[common] == peaks[common]:
        common += 1
    if common == len(prev_peaks):
        return common, [], peaks[common:]
    mountain = peaks[common]
    siblings = []
    height, index = prev_peaks[-1].height, prev_peaks[-1].index
    while height < mountain.height:
        if not index & 1:
            siblings.append(Node(height, index + 1))
        height, index = height + 1, index >> 1
    return common, siblings, peaks[common + 1 :]


def _climb(prev_leaf_count: int, below: list[bytes], siblings: dict[Node, bytes], steps: list[Step]) -> bytes:
    """Return the peak over the earlier range's last peaks: left siblings are those peaks, right ones are items."""
    last = peaks_of(prev_leaf_count)[-1]
    height, index = last.height, last.index
    digest = below.pop()
    while below or siblings:
        if index & 1:
            digest = keccak256(below.pop() + digest)
        else:
            digest = keccak256(digest + siblings.pop(Node(height, index + 1)))
        height, index = height + 1, index >> 1
        steps.append(inner_step(Node(height, index), digest))
    return digest
