"""Witnesses of heights by columns: those of many states at once, made and verified (IC reference 2.9).

Witnesses of one shape differ in nothing but digests and in them at the same positions, so one of them is built, or
read and judged, by itself, and the others are copies of it with digests of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.proofs.errors import ProofError
from causeway.proofs.hashing import DIGEST_BYTES, Digests, HashFunction, digest_pairs, sha256
from causeway.proofs.ic.digest_columns import RIGHT, labeled_digests, leaf_digests
from causeway.proofs.ic.digests import FORK_DOMAIN
from causeway.proofs.ic.leb128 import encode_leb128
from causeway.proofs.ic.slice_certification import HEIGHT, METADATA, Certification
from causeway.proofs.ic.witness import KNOWN, Fork, Known, Node, Pruned, Witness, decode_witness, encode_witness

Bytes = npt.NDArray[np.uint8]

Steps = Sequence[tuple[int, bytes]]
"""Forks from a node upwards: the side of the sibling (``digest_columns.LEFT`` or ``RIGHT``) and its digest."""


def _height_witness(previous: bytes | None, steps: Steps) -> Witness:
    """Return the witness of ``metadata / height`` in a state.

    Args:
        previous: the digest of the label beside the height, that of the root before; None where there is none.
        steps: the forks above ``metadata``.
    """
    witness: Witness = Node(HEIGHT, KNOWN)
    if previous is not None:
        witness = Fork(witness, Pruned(previous))
    witness = Node(METADATA, witness)
    for side, sibling in steps:
        witness = Fork(witness, Pruned(sibling)) if side == RIGHT else Fork(Pruned(sibling), witness)
    return witness


def encode_height_witnesses(with_previous: bool, sides: Sequence[int], digests: npt.NDArray[np.uint8]) -> list[bytes]:
    """Return encoded witnesses of one shape.

    Args:
        with_previous: whether there is a root before, whose label's digest is then the first of a witness.
        sides: of the siblings above ``metadata``, from there upwards.
        digests: of all nodes that are pruned, shape (n, nodes, 32).
    """
    marks = [_mark(at) for at in range(with_previous + len(sides))]
    steps = list(zip(sides, marks[with_previous:], strict=True))
    encoded = encode_witness(_height_witness(marks[0] if with_previous else None, steps))
    rows = np.tile(np.frombuffer(encoded, dtype=np.uint8), (len(digests), 1))
    for at, mark in enumerate(marks):
        start = encoded.index(mark)
        rows[:, start : start + DIGEST_BYTES] = digests[:, at]
    return [row.tobytes() for row in rows]


def verify_heights(certifications: Sequence[Certification]) -> list[bool | ProofError]:
    """Return of each certification what ``Certification.verify_height`` returns, or the error that it raises.

    Of those with witnesses of one length, the others of the shape of the first that holds are verified by columns.
    """
    found: list[bool | ProofError] = [False] * len(certifications)
    lengths: dict[int, list[int]] = {}
    for row, certification in enumerate(certifications):
        if certification.height_witness is not None:
            lengths.setdefault(len(certification.height_witness), []).append(row)
    for rows in lengths.values():
        waiting = iter(rows)
        for row in waiting:
            found[row] = _verify(certifications[row])
            if found[row] is True:
                others = list(waiting)
                holds = _hold_alike(certifications[row], [certifications[other] for other in others])
                for other, holding in zip(others, holds, strict=True):
                    found[other] = True if holding else _verify(certifications[other])
    return found


def _verify(certification: Certification) -> bool | ProofError:
    try:
        return certification.verify_height()
    except ProofError as error:
        return error


def _hold_alike(first: Certification, others: Sequence[Certification]) -> npt.NDArray[np.bool_]:
    """Return which certifications hold because their witnesses have the shape of that of the ``first``, which holds,
    and their heights and digests give their roots. The witnesses have one length."""
    shape = _Shape.of(first.height_witness or b"")
    encoded = b"".join(other.height_witness or b"" for other in others)
    rows = np.frombuffer(encoded, dtype=np.uint8).reshape(len(others), len(shape.is_digest))
    heights = pa.array([encode_leb128(other.height) for other in others], pa.binary())
    certified = np.frombuffer(b"".join(other.root_hash for other in others), dtype=np.uint8).reshape(-1, DIGEST_BYTES)
    alike = (rows == shape.encoded)[:, ~shape.is_digest].all(axis=1)
    holds: npt.NDArray[np.bool_] = alike & (shape.roots(leaf_digests(heights), rows) == certified).all(axis=1)
    return holds


@dataclass(frozen=True)
class _Shape:
    """A witness of which the digests are marks, and where those stand in its encoding. ``encoded``: the witness that it
    is made of, which holds: so it has no labels but those of the height."""

    encoded: Bytes
    witness: Witness
    starts: dict[bytes, int]
    is_digest: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, encoded: bytes) -> _Shape:
        marked = _Marking()
        witness = marked.of(decode_witness(encoded))
        written = encode_witness(witness)
        starts = {mark: written.index(mark) for mark in marked.marks}
        is_digest = np.zeros(len(written), dtype=bool)
        for start in starts.values():
            is_digest[start : start + DIGEST_BYTES] = True
        return cls(np.frombuffer(encoded, dtype=np.uint8), witness, starts, is_digest)

    def roots(self, leaves: Digests, rows: Bytes) -> Digests:
        """Return the roots of witnesses of this shape, by the digests of what they know and their encodings."""
        return self._above(self.witness, leaves, rows)

    def _above(self, node: Witness, leaves: Digests, rows: Bytes) -> Digests:
        match node:
            case Fork(left, right):
                sides = self._above(left, leaves, rows), self._above(right, leaves, rows)
                return digest_pairs(HashFunction.SHA256, FORK_DOMAIN, *sides)
            case Node(label, below):
                return labeled_digests(label, self._above(below, leaves, rows))
            case Pruned(mark):
                start = self.starts[mark]
                return np.ascontiguousarray(rows[:, start : start + DIGEST_BYTES])
            case Known():
                return leaves


@dataclass
class _Marking:
    """Puts a mark in the place of each digest."""

    marks: list[bytes] = field(default_factory=list)

    def of(self, node: Witness) -> Witness:
        match node:
            case Fork(left, right):
                return Fork(self.of(left), self.of(right))
            case Node(label, below):
                return Node(label, self.of(below))
            case Pruned():
                self.marks.append(_mark(len(self.marks)))
                return Pruned(self.marks[-1])
            case Known():
                return node


def _mark(number: int) -> bytes:
    """Return a digest that stands nowhere but where it is put."""
    return sha256(b"mark" + number.to_bytes(8, "big"))
