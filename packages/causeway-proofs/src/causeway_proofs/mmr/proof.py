"""Verify proofs over Merkle mountain ranges: of leaves, and of a range as a prefix.

**Leaf proofs.** Items come mountain by mountain, left to right. A mountain without a proven leaf is one item, its peak.
A mountain with proven leaves gives the siblings that the verifier cannot compute, level by level, bottom-up and left to
right. The mountains after the last proven leaf form one item: their bagged peaks.

**Ancestry proofs**, as in the MMR pallet: the peaks of the earlier range and the nodes of the later one that are needed
beside them, each with its position. Peaks common to both ranges stand for themselves. The other earlier peaks lie below
one mountain of the later range, on its left edge, so only right siblings are missing.

The SCALE forms of these proofs are read strictly.

Reference:
    XDM reference 2.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from causeway_proofs.errors import MalformedProof, RootMismatch
from causeway_proofs.hashing import DIGEST_BYTES, HashFunction, digest_rows, keccak256
from causeway_proofs.limits import require_length
from causeway_proofs.mmr.errors import CorruptedProof
from causeway_proofs.mmr.mountain_range import MAX_LEAVES, MmrNode, node_to_position, peak_nodes, require_leaf_count
from causeway_proofs.steps import Step
from causeway_proofs.substrate.byte_columns import decode_compact, encode_compact

_U64 = 8


def encode_u64(value: int) -> bytes:
    """Encode a fixed-width u64, little-endian."""
    return value.to_bytes(_U64, "little")


class ScaleReader:
    """Reads consecutive SCALE values from bytes; ``noun`` names the whole in errors.

    Raises:
        OverLimit: in the constructor, if the bytes exceed the longest proof.
        MalformedProof: on reading, if the bytes end early or a length is not in its shortest form.
    """

    def __init__(self, data: bytes, noun: str) -> None:
        require_length(data, noun)
        self._data = data
        self._noun = noun
        self._place = 0

    def take(self, length: int) -> bytes:
        """Return the next ``length`` bytes."""
        end = self._place + length
        if end > len(self._data):
            raise MalformedProof(f"{self._noun} ends at byte {len(self._data)}, {end} are wanted")
        chunk = self._data[self._place : end]
        self._place = end
        return chunk

    def u64(self) -> int:
        """Return the next u64."""
        return int.from_bytes(self.take(_U64), "little")

    def length(self, width: int) -> int:
        """Return the length of a list of ``width``-byte elements, checked against the data."""
        start = self._place
        value, self._place = decode_compact(self._data, start, self._noun)
        if value * width > len(self._data) - self._place:
            raise MalformedProof(f"{self._noun} has at byte {start} a list of {value}, longer than what is left")
        return value

    def u64_list(self) -> tuple[int, ...]:
        """Return a list of u64."""
        count = self.length(_U64)
        data = self.take(count * _U64)
        return tuple(int.from_bytes(data[at : at + _U64], "little") for at in range(0, len(data), _U64))

    def digest_list(self) -> tuple[bytes, ...]:
        """Return a list of digests."""
        count = self.length(DIGEST_BYTES)
        data = self.take(count * DIGEST_BYTES)
        return tuple(data[at : at + DIGEST_BYTES] for at in range(0, len(data), DIGEST_BYTES))

    def end(self) -> None:
        """Reject trailing bytes."""
        if self._place != len(self._data):
            raise MalformedProof(f"{self._noun} has {len(self._data) - self._place} bytes after its end")


@dataclass(frozen=True, slots=True)
class LeafProof:
    """A proof for some leaves of a range.

    Attributes:
        leaf_indices: indices of the proven leaves from 0, ascending.
        leaf_count: leaves of the range when the proof was built.
        items: the nodes that the verifier cannot compute, 32 bytes each.
    """

    leaf_indices: tuple[int, ...]
    leaf_count: int
    items: tuple[bytes, ...]

    def encode(self) -> bytes:
        """Return the SCALE encoding: ``leaf_indices Vec<u64>, leaf_count u64, items Vec<[32]>``.

        Returns:
            The encoding.
        """
        indices = b"".join([encode_u64(index) for index in self.leaf_indices])
        items = encode_compact(len(self.items)) + b"".join(self.items)
        return encode_compact(len(self.leaf_indices)) + indices + encode_u64(self.leaf_count) + items

    @classmethod
    def decode(cls, data: bytes) -> LeafProof:
        """Parse the SCALE encoding of a proof, to the last byte.

        Args:
            data: the encoding.

        Returns:
            The proof.

        Raises:
            OverLimit: ``data`` exceeds the longest proof.
            MalformedProof: ``data`` is not such an encoding.
        """
        reader = ScaleReader(data, "the leaf proof")
        proof = cls(reader.u64_list(), reader.u64(), reader.digest_list())
        reader.end()
        return proof


def verify_leaf_proof(
    proof: LeafProof, leaves: Sequence[bytes], root: bytes, leaf_count: int | None = None
) -> tuple[Step, ...]:
    """Verify that leaves with these hashes are in the range at the proof's indices.

    A root does not bind its leaf count, and one list of items may hold for several counts. To be sure of an index, pass
    the leaf count that the trusted root is known to have.

    Args:
        proof: the proof.
        leaves: the hash of each proven leaf (``leaf_hash``), in the order of ``proof.leaf_indices``.
        root: the trusted root, 32 bytes.
        leaf_count: the trusted number of leaves, if known.

    Returns:
        The steps, leaves first, root last.

    Raises:
        CorruptedProof: indices out of order, duplicated or out of range; items missing or left over; a leaf without 32
            bytes.
        InvalidSize: an impossible leaf count.
        RootMismatch: the proof leads to another root, or is of a range with another number of leaves.

    Reference:
        XDM reference 2.4.
    """
    _require_shape(proof, leaves)
    if leaf_count is not None and proof.leaf_count != leaf_count:
        raise RootMismatch(f"the proof is of a range of {proof.leaf_count} leaves, the root is of one of {leaf_count}")
    found, steps = _root(proof, leaves)
    require_same_root(found, root, steps)
    return tuple(steps)


def leaf_proof_root(proof: LeafProof, leaves: Sequence[bytes]) -> tuple[bytes, tuple[Step, ...]]:
    """Return the root of a proof for the leaves with these hashes, and the steps to it.

    The caller compares the root with the trusted one, as ``verify_leaf_proof`` does.

    Args:
        proof: the proof.
        leaves: the hash of each proven leaf.

    Returns:
        The root, 32 bytes, and the steps.

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
    mountains_left = peak_nodes(proof.leaf_count)
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
    return bag_with_steps(peaks, steps), steps


def bag_with_steps(peaks: Sequence[bytes], steps: list[Step]) -> bytes:
    """Return the root over one or more peaks, left to right, and append the steps to ``steps``."""
    bagged = peaks[-1]
    for position in range(len(peaks) - 2, -1, -1):
        bagged = keccak256(bagged + peaks[position])
        steps.append(Step("bag", f"what is on the right with peak {position}", bagged))
    return bagged


def require_same_root(found: bytes, root: bytes, steps: list[Step]) -> None:
    """Require that ``found`` equals ``root``, and append the step to ``steps``.

    Raises:
        RootMismatch: the roots differ.
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
    """Yield the indices below each peak from the left, up to the last peak with any."""
    position, end = 0, 0
    for peak in peak_nodes(leaf_count):
        if position == len(indices):
            return
        end += 1 << peak.height
        start = position
        while position < len(indices) and indices[position] < end:
            position += 1
        yield list(indices[start:position])


def _climb(known: list[tuple[int, bytes]], peak: MmrNode, items: Iterator[bytes], steps: list[Step]) -> bytes:
    """Return the peak over the known leaves, bottom-up; missing siblings are the next items."""
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
        steps.extend([inner_step(MmrNode(height + 1, index), node) for index, node in known])
    return known[0][1]


def _digests(pairs: list[bytes]) -> list[bytes]:
    """Return the Keccak-256 digest of each 64-byte pair; many are hashed as columns."""
    rows = np.frombuffer(b"".join(pairs), dtype=np.uint8).reshape(len(pairs), 2 * DIGEST_BYTES)
    joined = digest_rows(HashFunction.KECCAK_256, rows).tobytes()
    return [joined[start : start + DIGEST_BYTES] for start in range(0, len(joined), DIGEST_BYTES)]


def inner_step(node: MmrNode, digest: bytes) -> Step:
    """Return the step that computes an inner node."""
    return Step("inner", f"position {node_to_position(node)}, height {node.height}", digest)


def _next(items: Iterator[bytes], noun: str) -> bytes:
    item = next(items, None)
    if item is None:
        raise CorruptedProof(f"the proof ends where {noun} is wanted")
    return item


_ITEM_BYTES = 8 + DIGEST_BYTES


@dataclass(frozen=True, slots=True)
class AncestryProof:
    """A proof that a range is the prefix of a later one.

    Attributes:
        prev_peaks: peaks of the earlier range, left to right, 32 bytes each.
        prev_leaf_count: leaves of the earlier range.
        leaf_count: leaves of the later range.
        items: nodes of the later range (position, hash) by position. The mountains beyond the earlier range are one
            item, their bagged peaks, at the position of the leftmost.
    """

    prev_peaks: tuple[bytes, ...]
    prev_leaf_count: int
    leaf_count: int
    items: tuple[tuple[int, bytes], ...]

    def encode(self) -> bytes:
        """Return the SCALE encoding of the four fields in order; an item is a u64 and 32 bytes.

        Returns:
            The encoding.
        """
        peaks = encode_compact(len(self.prev_peaks)) + b"".join(self.prev_peaks)
        counts = encode_u64(self.prev_leaf_count) + encode_u64(self.leaf_count)
        items = b"".join([encode_u64(position) + digest for position, digest in self.items])
        return peaks + counts + encode_compact(len(self.items)) + items

    @classmethod
    def decode(cls, data: bytes) -> AncestryProof:
        """Parse the SCALE encoding of a proof, to the last byte.

        Args:
            data: the encoding.

        Returns:
            The proof.

        Raises:
            OverLimit: ``data`` exceeds the longest proof.
            MalformedProof: ``data`` is not such an encoding.
        """
        reader = ScaleReader(data, "the ancestry proof")
        peaks, prev_leaf_count, leaf_count = reader.digest_list(), reader.u64(), reader.u64()
        items = tuple((reader.u64(), reader.take(DIGEST_BYTES)) for _ in range(reader.length(_ITEM_BYTES)))
        reader.end()
        return cls(peaks, prev_leaf_count, leaf_count, items)


def verify_ancestry_proof(
    proof: AncestryProof, root: bytes, prev_root: bytes, leaf_count: int | None = None
) -> tuple[Step, ...]:
    """Verify that the range with root ``prev_root`` is a prefix of the range with root ``root``.

    Args:
        proof: the proof.
        root: the trusted root of the later range, 32 bytes.
        prev_root: the claimed root of the earlier range, 32 bytes.
        leaf_count: the trusted number of leaves of the later range, if known (a root does not bind it).

    Returns:
        The steps, earlier root first, trusted root last.

    Raises:
        CorruptedProof: peaks or items missing, left over, or at other positions than the leaf counts require.
        InvalidSize: an impossible leaf count.
        RootMismatch: the proof leads to another root, earlier or later, or is of a range with another number of leaves.
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
    """The roots computed from an ancestry proof.

    Attributes:
        prev_root: root of the earlier range.
        prev_steps: steps from its peaks to it.
        root: root of the later range.
        steps: steps from the same peaks to it.
    """

    prev_root: bytes
    prev_steps: tuple[Step, ...]
    root: bytes
    steps: tuple[Step, ...]


def ancestry_roots(proof: AncestryProof) -> AncestryRoots:
    """Return the roots of a proof, to compare with trusted ones.

    Raises:
        CorruptedProof, InvalidSize: as for ``verify_ancestry_proof``.
    """
    common, siblings, beyond = _ancestry_require_shape(proof)
    prev_steps: list[Step] = []
    prev_root = bag_with_steps(proof.prev_peaks, prev_steps)
    steps: list[Step] = []
    items = [digest for _, digest in proof.items]
    peaks = list(proof.prev_peaks[:common])
    below = list(proof.prev_peaks[common:])
    if below:
        peaks.append(_ancestry_climb(proof.prev_leaf_count, below, dict(zip(siblings, items, strict=False)), steps))
    if beyond:
        peaks.append(items[-1])
    return AncestryRoots(prev_root, tuple(prev_steps), bag_with_steps(peaks, steps), tuple(steps))


def _ancestry_require_shape(proof: AncestryProof) -> tuple[int, list[MmrNode], list[MmrNode]]:
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


def _plan(prev_leaf_count: int, leaf_count: int) -> tuple[int, list[MmrNode], list[MmrNode]]:
    """Return the number of common peaks, the right siblings to climb with, and the peaks beyond."""
    prev_peaks, peaks = peak_nodes(prev_leaf_count), peak_nodes(leaf_count)
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
            siblings.append(MmrNode(height, index + 1))
        height, index = height + 1, index >> 1
    return common, siblings, peaks[common + 1 :]


def _ancestry_climb(
    prev_leaf_count: int, below: list[bytes], siblings: dict[MmrNode, bytes], steps: list[Step]
) -> bytes:
    """Return the peak over the last earlier peaks; items are the right siblings."""
    last = peak_nodes(prev_leaf_count)[-1]
    height, index = last.height, last.index
    digest = below.pop()
    while below or siblings:
        if index & 1:
            digest = keccak256(below.pop() + digest)
        else:
            digest = keccak256(digest + siblings.pop(MmrNode(height, index + 1)))
        height, index = height + 1, index >> 1
        steps.append(inner_step(MmrNode(height, index), digest))
    return digest
