"""Proofs that leaves are in a Merkle mountain range (XDM reference 2.4).

Items come mountain by mountain, left to right. A mountain without a proven leaf is one item, its peak; one with proven
leaves gives the siblings that cannot be computed, level by level from below, each level left to right. The mountains
after the last proven leaf are one item together: their peaks, bagged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from causeway.proofs.hashing import DIGEST_BYTES, HashFunction, digest_rows, keccak256
from causeway.proofs.mmr.errors import CorruptedProof, RootMismatch
from causeway.proofs.mmr.positions import MAX_LEAVES, Node, node_to_position, peaks_of
from causeway.proofs.mmr.scale import Reader, encode_u64
from causeway.proofs.steps import Step
from causeway.proofs.substrate.compact import encode_compact


@dataclass(frozen=True, slots=True)
class LeafProof:
    """A proof for some leaves of a range.

    Attributes:
        leaf_indices: the proven leaves, counted from 0, ascending.
        leaf_count: how many leaves the range had when the proof was made.
        items: the nodes that the verifier cannot compute, 32 bytes each.
    """

    leaf_indices: tuple[int, ...]
    leaf_count: int
    items: tuple[bytes, ...]

    def encode(self) -> bytes:
        """Return the SCALE encoding: ``leaf_indices Vec<u64>, leaf_count u64, items Vec<[32]>``."""
        indices = b"".join([encode_u64(index) for index in self.leaf_indices])
        items = encode_compact(len(self.items)) + b"".join(self.items)
        return encode_compact(len(self.leaf_indices)) + indices + encode_u64(self.leaf_count) + items

    @classmethod
    def decode(cls, data: bytes) -> LeafProof:
        """Return the proof that ``data`` is the SCALE encoding of, to the last byte.

        Raises:
            OverLimit: there are more bytes than any proof has.
            MalformedProof: it is not such an encoding.
        """
        reader = Reader(data, "the leaf proof")
        proof = cls(reader.u64_list(), reader.u64(), reader.digest_list())
        reader.end()
        return proof


def verify_leaf_proof(
    proof: LeafProof, leaves: Sequence[bytes], root: bytes, leaf_count: int | None = None
) -> tuple[Step, ...]:
    """Verify that the leaves with these hashes are in the range with this root, at the proof's indices.

    A root does not say how many leaves it stands over, and one list of items may hold for several counts. Who needs to
    be sure of an index therefore gives the number of leaves that the trusted root is known to have.

    Args:
        proof: the proof.
        leaves: the hash of each proven leaf (``leaf_hash``), in the order of ``proof.leaf_indices``.
        root: the trusted root.
        leaf_count: the trusted number of leaves, where it is known.

    Returns:
        What was done, leaves first, the root last.

    Raises:
        CorruptedProof: indices out of order, twice or out of range; items missing or left over; a leaf not of 32 bytes.
        InvalidSize: a leaf count that no range has.
        RootMismatch: it leads to another root, or is of a range with another number of leaves.
    """
    _require_shape(proof, leaves)
    if leaf_count is not None and proof.leaf_count != leaf_count:
        raise RootMismatch(f"the proof is of a range of {proof.leaf_count} leaves, the root is of one of {leaf_count}")
    found, steps = _root(proof, leaves)
    require_same_root(found, root, steps)
    return tuple(steps)


def leaf_proof_root(proof: LeafProof, leaves: Sequence[bytes]) -> tuple[bytes, tuple[Step, ...]]:
    """Return the root that a proof leads to from the leaves with these hashes, and the steps there.

    ``verify_leaf_proof`` compares it with the trusted one.

    Raises:
        CorruptedProof, InvalidSize: as for ``verify_leaf_proof``.
    """
    _require_shape(proof, leaves)
    root, steps = _root(proof, leaves)
    return root, tuple(steps)


def _root(proof: LeafProof, leaves: Sequence[bytes]) -> tuple[bytes, list[Step]]:
    named = zip(proof.leaf_indices, leaves, strict=True)
    steps = [Step("leaf", f"leaf {index}", leaf) for index, leaf in named]
    items = iter(proof.items)
    mountains_left = peaks_of(proof.leaf_count)
    peaks: list[bytes] = []
    given = 0
    for part in _by_mountain(proof.leaf_indices, proof.leaf_count):
        peak = mountains_left.pop(0)
        known = list(zip(part, leaves[given : given + len(part)], strict=True))
        given += len(part)
        peaks.append(_climb(known, peak, items, steps) if known else _next(items, "the peak of a mountain"))
    if mountains_left:
        peaks.append(_next(items, "the bagged peaks on the right"))
    if next(items, None) is not None:
        raise CorruptedProof(f"the proof has {len(proof.items)} items, fewer are used")
    return bag(peaks, steps), steps


def bag(peaks: Sequence[bytes], steps: list[Step]) -> bytes:
    """Return the root over peaks, left to right, at least one; what is done is added to ``steps``."""
    bagged = peaks[-1]
    for position in range(len(peaks) - 2, -1, -1):
        bagged = keccak256(bagged + peaks[position])
        steps.append(Step("bag", f"what is on the right with peak {position}", bagged))
    return bagged


def require_same_root(found: bytes, root: bytes, steps: list[Step]) -> None:
    """Refuse a root that is not ``root``; that it is the same is added to ``steps``.

    Raises:
        RootMismatch: it is another.
    """
    if found != root:
        raise RootMismatch(f"the proof leads to the root {found.hex()}, the trusted one is {root.hex()}")
    steps.append(Step("root", "as trusted", found))


def _require_shape(proof: LeafProof, leaves: Sequence[bytes]) -> None:
    indices = proof.leaf_indices
    if not indices:
        raise CorruptedProof("the proof has no leaf index, at least one is wanted")
    if any(left >= right for left, right in pairwise(indices)):
        raise CorruptedProof("the proof's leaf indices are not ascending, each once")
    if not 0 < proof.leaf_count <= MAX_LEAVES or indices[0] < 0 or indices[-1] >= proof.leaf_count:
        raise CorruptedProof(f"leaf index {indices[-1]} is not in a range of {proof.leaf_count} leaves")
    if len(leaves) != len(indices):
        raise CorruptedProof(f"{len(leaves)} leaves are given for {len(indices)} leaf indices")
    if any(len(digest) != DIGEST_BYTES for digest in (*leaves, *proof.items)):
        raise CorruptedProof(f"a leaf's hash or an item of the proof does not have {DIGEST_BYTES} bytes")


def _by_mountain(indices: Sequence[int], leaf_count: int) -> Iterator[list[int]]:
    """Yield the indices below each peak from the left, up to the last peak that has any."""
    position, end = 0, 0
    for peak in peaks_of(leaf_count):
        if position == len(indices):
            return
        end += 1 << peak.height
        start = position
        while position < len(indices) and indices[position] < end:
            position += 1
        yield list(indices[start:position])


def _climb(known: list[tuple[int, bytes]], peak: Node, items: Iterator[bytes], steps: list[Step]) -> bytes:
    """Return the peak over the known leaves, level by level; siblings that are not known are the next items."""
    for height in range(peak.height):
        parents: list[int] = []
        pairs: list[bytes] = []
        position = 0
        while position < len(known):
            index, digest = known[position]
            position += 1
            if index & 1:
                pair = _next(items, "a left sibling") + digest
            elif position < len(known) and known[position][0] == index + 1:
                pair = digest + known[position][1]
                position += 1
            else:
                pair = digest + _next(items, "a right sibling")
            parents.append(index >> 1)
            pairs.append(pair)
        known = list(zip(parents, _digests(pairs), strict=True))
        steps.extend([inner_step(Node(height + 1, index), node) for index, node in known])
    return known[0][1]


def _digests(pairs: list[bytes]) -> list[bytes]:
    """Return the Keccak-256 digest of each of ``pairs``, 64 bytes each; many are hashed as columns."""
    rows = np.frombuffer(b"".join(pairs), dtype=np.uint8).reshape(len(pairs), 2 * DIGEST_BYTES)
    joined = digest_rows(HashFunction.KECCAK_256, rows).tobytes()
    return [joined[start : start + DIGEST_BYTES] for start in range(0, len(joined), DIGEST_BYTES)]


def inner_step(node: Node, digest: bytes) -> Step:
    """Return the step that computes an inner node."""
    return Step("inner", f"position {node_to_position(node)}, height {node.height}", digest)


def _next(items: Iterator[bytes], what: str) -> bytes:
    item = next(items, None)
    if item is None:
        raise CorruptedProof(f"the proof ends where {what} is wanted")
    return item
