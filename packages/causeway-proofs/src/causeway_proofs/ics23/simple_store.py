"""Commit to entries in the simple store and prove ranges of adjacent entries.

The simple store sorts entries by key under an RFC 6962 tree, ICS-23's TendermintSpec (IBC reference 2.6). A range proof
shows adjacent entries with O(log n) digests beside them.

**Encoding**: protobuf ``RangeProof`` (wire/range_proof.proto), canonical form only. Keys and values are concatenated,
with columns of their lengths. ``steps`` has one byte for each level at which a digest joins the range, from the leaves
up. Bit 0 marks a digest on the left of the first node, bit 1 one on the right of the last node. At each such level the
left digest, the range's nodes and the right digest are paired from the left; an odd last node moves up unchanged.
``left`` and ``right`` hold the digests, 32 bytes each, in order of use.

**Guarantee**: the entries are adjacent in the tree. Without left digests the range begins with the store's first entry;
without right digests it ends with the last.

**Why it holds**: leaves are hashed with prefix 00 and inner nodes with 01, so neither passes for the other. Digests
that join on the left cover leaves before the whole range, those on the right cover leaves after it. Two trees with one
root that differ by an entry inside the range would give a SHA-256 collision.

**Positions and counts are not encoded, because a root does not bind them.** The digest beside a range stands for a
subtree of unknown size: the third of 3 leaves and the second of 2 have proofs of one shape, (digest, leaf), under one
possible root. A verifier that needs such numbers must get the size from a trusted source, as in RFC 6962.

A root does bind the shape, and each shape has one sequence of steps. Take the first step at which two sequences differ.
If they differ on the left, the range's first node is a right child in one and a left child in the other. If they differ
on the right, its last node is a left child in one and a right child or the root in the other. Both cannot be of one
tree. So no bit of a proof can change: levels without a joining digest are not written, a node that moved up once lies
at the right edge forever, and all digests are used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from causeway_proofs.errors import MalformedProof, NotProven, OverLimit
from causeway_proofs.hashing import DIGEST_BYTES, Digests
from causeway_proofs.ics23.entries import (
    Entries,
    Mask,
    Part,
    StoreError,
    from_lengths,
    leaf_digests,
    place_rows,
    ranks,
    take_values,
    value_data,
    value_lengths,
)
from causeway_proofs.ics23.store_proofs import INNER_HEAD, PATH, SUFFIX, ProvableStore
from causeway_proofs.limits import MAX_DEPTH, MAX_PROOF_BYTES
from causeway_proofs.merkle import Levels, Positions, level_above
from causeway_proofs.protobuf import parse_canonical
from causeway_proofs.steps import Step
from causeway_proofs.wire.range_proof_pb2 import RangeProof

ON_LEFT = 1
ON_RIGHT = 2


@dataclass(frozen=True, slots=True)
class VerifiedRun:
    """The result of a verified range proof.

    Attributes:
        entries: the entries, sorted by key; neighbors are adjacent in the store.
        begins_store: the range begins with the store's first entry.
        ends_store: the range ends with the store's last entry.
        steps: the path from the range to the root.
    """

    entries: Entries
    begins_store: bool
    ends_store: bool
    steps: tuple[Step, ...]


def encode_range_proof(run: Entries, tree: Levels, first: int) -> bytes:
    """Encode the proof of the non-empty ``run``, the leaves of ``tree`` from position ``first``."""
    low, high = first, first + len(run)
    steps, left, right = bytearray(), bytearray(), bytearray()
    for level in tree.levels[:-1]:
        on_left = low % 2
        on_right = high % 2 and high < len(level)
        if high - low > 1 or on_left or on_right:
            steps.append((ON_LEFT if on_left else 0) | (ON_RIGHT if on_right else 0))
        if on_left:
            left += level[low - 1].tobytes()
        if on_right:
            right += level[high].tobytes()
        low, high = low // 2, (high + 1) // 2
    proof = RangeProof(
        key_lengths=value_lengths(run.keys).tolist(),
        keys=value_data(run.keys),
        value_lengths=value_lengths(run.values).tolist(),
        values=value_data(run.values),
        steps=bytes(steps),
        left=bytes(left),
        right=bytes(right),
    )
    return proof.SerializeToString(deterministic=True)


def verify_range_proof(root: bytes, proof: bytes, limit: int = MAX_PROOF_BYTES) -> VerifiedRun:
    """Verify that ``proof`` shows adjacent entries of the simple store with ``root``.

    A range proof may be longer than other messages: it has no fields that expand in the parser.

    Args:
        root: the trusted root, 32 bytes.
        proof: an encoded RangeProof.
        limit: most bytes of ``proof``.

    Returns:
        The verified range.

    Raises:
        OverLimit: the proof exceeds ``limit`` bytes or ``MAX_DEPTH`` steps.
        MalformedProof: the proof is not a canonical RangeProof, an entry is empty or out of order, or the steps do not
            form a tree.
        NotProven: the proof leads to another root.
    """
    computed, run = range_proof_root(proof, limit)
    if computed != root:
        raise NotProven(f"range proof leads to root {computed.hex()}, not {root.hex()}")
    return run


def range_proof_root(proof: bytes, limit: int = MAX_PROOF_BYTES) -> tuple[bytes, VerifiedRun]:
    """Return the root of ``proof`` and the range that it shows under that root.

    The caller compares the root with the trusted one, as ``verify_range_proof`` does.

    Args:
        proof: an encoded RangeProof.
        limit: most bytes of ``proof``.

    Returns:
        The root, 32 bytes, and the range.

    Raises:
        OverLimit, MalformedProof: as for ``verify_range_proof``.
    """
    message = parse_canonical(RangeProof, proof, "range proof", limit)
    if len(message.steps) > MAX_DEPTH:
        raise OverLimit(f"range proof has {len(message.steps)} steps, at most {MAX_DEPTH} are gone")
    entries = _entries_of(message)
    left, right = _digests(message.left, "left"), _digests(message.right, "right")
    nodes = leaf_digests(entries)
    path = [Step("leaf", f"{len(entries)} neighbouring entries", _single_digest(nodes))]
    used_left = used_right = 0
    at_edge = False
    for number, step in enumerate(message.steps):
        on_left, on_right = step & ON_LEFT, step & ON_RIGHT
        if step > ON_LEFT | ON_RIGHT:
            raise MalformedProof(f"step {number} is {step}, allowed are 0 to 3")
        if len(nodes) == 1 and not step:
            raise MalformedProof(f"step {number} joins nothing")
        odd = (len(nodes) + (1 if on_left else 0)) % 2
        if on_right and (at_edge or not odd):
            raise MalformedProof(f"step {number} has a digest on the right, where the tree has none")
        at_edge = at_edge or bool(odd and not on_right)
        before, behind = left[used_left : used_left + 1], right[used_right : used_right + 1]
        if (on_left and not len(before)) or (on_right and not len(behind)):
            raise MalformedProof(f"step {number} needs a digest that is missing")
        row = [*([before] if on_left else []), nodes, *([behind] if on_right else [])]
        nodes = level_above(np.concatenate(row))
        used_left += 1 if on_left else 0
        used_right += 1 if on_right else 0
        path.append(Step("inner", _sides(step), _single_digest(nodes)))
    if len(nodes) != 1:
        raise MalformedProof(f"the steps end with {len(nodes)} nodes, not with the root")
    if used_left < len(left) or used_right < len(right):
        raise MalformedProof("range proof has digests that no step uses")
    return nodes[0].tobytes(), VerifiedRun(entries, not len(left), not len(right), tuple(path))


def _single_digest(nodes: Digests) -> bytes:
    """Return the digest of a single node, or empty bytes for several nodes."""
    return nodes[0].tobytes() if len(nodes) == 1 else b""


def _sides(step: int) -> str:
    sides = [name for flag, name in ((ON_LEFT, "left"), (ON_RIGHT, "right")) if step & flag]
    return f"digest on the {' and on the '.join(sides)}" if sides else "pairs of the run"


def _digests(data: bytes, side: str) -> Digests:
    if len(data) % DIGEST_BYTES:
        raise MalformedProof(f"{side} has {len(data)} bytes, which are no digests of {DIGEST_BYTES}")
    return np.frombuffer(data, dtype=np.uint8).reshape(-1, DIGEST_BYTES)


def _entries_of(message: RangeProof) -> Entries:
    columns = []
    for noun, lengths, data in (
        ("keys", np.array(message.key_lengths, dtype=np.int64), message.keys),
        ("values", np.array(message.value_lengths, dtype=np.int64), message.values),
    ):
        if int(lengths.sum()) != len(data):
            raise MalformedProof(f"{noun} have {len(data)} bytes, their lengths add up to {int(lengths.sum())}")
        columns.append(from_lengths(lengths, data))
    if not len(columns[0]):
        raise MalformedProof("range proof has no entry")
    try:
        return Entries.of(*columns)
    except StoreError as error:
        raise MalformedProof(f"range proof: {error}") from error


SIMPLE_LEAF_OP = bytes.fromhex("09 0801 1801 2001 2a0100")
"""LeafOp of TendermintSpec with its length prefix."""

INNER = b"\x01"
STEP_LEFT = PATH + b"\x25" + INNER_HEAD + b"\x21" + INNER
"""Bytes of a step with a left sibling, up to the sibling: the prefix is 01 and the sibling."""

STEP_RIGHT = PATH + b"\x27" + INNER_HEAD + b"\x01" + INNER + SUFFIX + b"\x20"
"""Bytes of a step with a right sibling before the sibling: prefix 01, suffix head."""


def sibling_steps(siblings: list[tuple[Positions, Digests]]) -> list[tuple[Part, ...]]:
    """Convert ``Levels.siblings`` to ``path`` fields of steps with inner prefix 01."""
    return [
        (take_values([STEP_LEFT, STEP_RIGHT, b""], side), place_rows(digests, side < 2)) for side, digests in siblings
    ]


class SimpleStore(ProvableStore):
    """An immutable committed store.

    Attributes:
        entries: the entries, sorted by key.
        tree: all levels of the tree over them.
    """

    __slots__ = ("entries", "tree")

    def __init__(self, entries: Entries, tree: Levels) -> None:
        self.entries = entries
        self.tree = tree

    @classmethod
    def of(cls, keys: pa.BinaryArray, values: pa.BinaryArray) -> SimpleStore:
        """Commit to two columns.

        Args:
            keys: strictly ascending keys.
            values: one a key.

        Returns:
            The store.

        Raises:
            EmptyKey: a key is empty.
            EmptyValue: a value is empty.
            UnsortedKeys: a key is not greater than its predecessor.
        """
        return cls.over(Entries.of(keys, values))

    @classmethod
    def over(cls, entries: Entries) -> SimpleStore:
        """Commit to ``entries``."""
        return cls(entries, Levels.of(leaf_digests(entries)))

    @classmethod
    def empty(cls) -> SimpleStore:
        """Return the store without entries; its root is SHA-256 of the empty string."""
        return cls(Entries.none(), Levels([]))

    @property
    def root(self) -> bytes:
        """Return the root, 32 bytes."""
        return self.tree.root

    def __len__(self) -> int:
        return len(self.entries)

    def locate(self, keys: pa.BinaryArray) -> tuple[Positions, Mask]:
        """Return the rank of each key among the entries, and a mask of keys present."""
        return ranks(self.entries.keys, keys)

    def entries_at(self, positions: Positions) -> Entries:
        """Return the entries at ``positions``, in that order."""
        return self.entries.take(positions)

    def leaf_ops(self, positions: Positions) -> Part:
        """Return the spec's LeafOp."""
        return SIMPLE_LEAF_OP

    def steps(self, positions: Positions) -> list[tuple[Part, ...]]:
        """Return the steps from leaves to the root."""
        return sibling_steps(self.tree.siblings(positions))

    def range_proof(self, first: int, last: int) -> bytes:
        """Return the encoded RangeProof of the entries from ``first`` to ``last``, inclusive.

        Args:
            first: position of the first entry.
            last: position of the last entry.

        Returns:
            The proof.

        Raises:
            StoreError: the range is empty or out of bounds.
        """
        if not 0 <= first <= last < len(self):
            raise StoreError(f"no run from {first} to {last} in a store of {len(self)} entries")
        return encode_range_proof(self.entries.slice(first, last + 1), self.tree, first)
