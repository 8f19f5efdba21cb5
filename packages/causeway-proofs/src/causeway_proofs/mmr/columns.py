"""Build and verify many single-leaf proofs in columns (XDM reference 2.4).

Each distinct node is hashed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway_proofs.arrays import integer_array, part_ends, require_digests
from causeway_proofs.distinct import distinct_slices
from causeway_proofs.errors import InvalidInput, ProofError, RootMismatch
from causeway_proofs.hashing import DIGEST_BYTES, Digests, HashFunction, digest_rows
from causeway_proofs.mmr.errors import CorruptedProof
from causeway_proofs.mmr.mountain_range import MAX_LEAVES
from causeway_proofs.mmr.proof import LeafProof, verify_leaf_proof
from causeway_proofs.order import Rows
from causeway_proofs.substrate.byte_columns import byte_column, column_data, column_offsets, contiguous_column

Counts = npt.NDArray[np.uint64]

_PAIR = 2 * DIGEST_BYTES


class LeafVerdict(IntEnum):
    """Verdict on a proof: valid, or the error that ``verify_leaf_proof`` raises."""

    HOLDS = 0
    CORRUPTED_PROOF = 1
    ROOT_MISMATCH = 2

    @property
    def error(self) -> type[ProofError] | None:
        """Return the error's type, or None for a valid proof."""
        return {LeafVerdict.CORRUPTED_PROOF: CorruptedProof, LeafVerdict.ROOT_MISMATCH: RootMismatch}.get(self)


@dataclass(frozen=True, slots=True, eq=False)
class LeafProofs:
    """Single-leaf proofs as columns.

    Attributes:
        leaf_indices: index of each leaf from 0, shape (n,).
        leaf_counts: leaves of each range, shape (n,).
        items: concatenated items of all proofs, shape (m, 32).
        offsets: start of each proof's items and, last, the end, shape (n + 1,).
    """

    leaf_indices: Counts
    leaf_counts: Counts
    items: Digests
    offsets: Rows

    def __post_init__(self) -> None:
        require_digests(self.items, "items")
        indices = integer_array(self.leaf_indices, "leaf indices", np.uint64)
        counts = integer_array(self.leaf_counts, "leaf counts", np.uint64)
        offsets = part_ends(self.offsets, "offsets", len(self.items))
        if not len(indices) == len(counts) == len(offsets) - 1:
            raise InvalidInput(
                f"{len(indices)} leaf indices, {len(counts)} leaf counts and {len(offsets)} offsets: there must be as "
                "many counts as indices, and one offset more"
            )
        for name, value in (("leaf_indices", indices), ("leaf_counts", counts), ("offsets", offsets)):
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, proofs: Sequence[LeafProof]) -> LeafProofs:
        """Convert single-leaf proofs to columns.

        Args:
            proofs: n proofs of one leaf each.

        Returns:
            The columns.

        Raises:
            InvalidInput: a proof has more or fewer leaf indices than one, a number that is not a u64, or an item
                without 32 bytes.
        """
        numbers = [(*proof.leaf_indices, proof.leaf_count) for proof in proofs]
        for number, row in enumerate(numbers):
            if len(row) != 2 or not all(0 <= value < 1 << 64 for value in row):
                raise InvalidInput(f"proof {number} has leaf indices and leaf count {row}, one u64 of each is wanted")
        items = [item for proof in proofs for item in proof.items]
        if any(len(item) != DIGEST_BYTES for item in items):
            raise InvalidInput(f"an item of a leaf proof does not have {DIGEST_BYTES} bytes")
        columns = np.array(numbers, dtype=np.uint64).reshape(-1, 2)
        return cls(
            np.ascontiguousarray(columns[:, 0]),
            np.ascontiguousarray(columns[:, 1]),
            np.frombuffer(b"".join(items), dtype=np.uint8).reshape(-1, DIGEST_BYTES),
            np.cumsum([0, *(len(proof.items) for proof in proofs)], dtype=np.int64),
        )

    @classmethod
    def from_lists(cls, leaf_indices: Counts, leaf_counts: Counts, items: pa.Array | pa.ChunkedArray) -> LeafProofs:
        """Build proofs from an Arrow column of digest lists, as decoded from envelopes.

        Args:
            leaf_indices: index of each leaf, shape (n,).
            leaf_counts: leaves of each range, shape (n,).
            items: n lists of 32-byte strings.

        Returns:
            The columns.

        Raises:
            InvalidInput: the column has nulls, values without 32 bytes, or another length.
        """
        items = contiguous_column(items, "items")
        if items.null_count or not (pa.types.is_list(items.type) or pa.types.is_large_list(items.type)):
            raise InvalidInput(f"the items are {items.type} with {items.null_count} nulls, lists of digests are wanted")
        offsets = items.offsets.to_numpy().astype(np.int64)
        values = items.values[offsets[0] : offsets[-1]]
        if values.null_count or not pa.types.is_fixed_size_binary(values.type):
            values = byte_column(values)
            if not bool((np.diff(column_offsets(values)) == DIGEST_BYTES).all()):
                raise InvalidInput(f"an item of a leaf proof does not have {DIGEST_BYTES} bytes")
            rows = column_data(values)[column_offsets(values)[0] :]
        elif values.type.byte_width != DIGEST_BYTES:
            raise InvalidInput(f"items of leaf proofs have {values.type.byte_width} bytes, {DIGEST_BYTES} are wanted")
        else:
            rows = np.frombuffer(values.buffers()[1] or b"", dtype=np.uint8)[values.offset * DIGEST_BYTES :]
        rows = rows[: len(values) * DIGEST_BYTES].reshape(-1, DIGEST_BYTES)
        return cls(leaf_indices, leaf_counts, rows, offsets - offsets[0])

    def __len__(self) -> int:
        return len(self.leaf_indices)

    def proof(self, row: int) -> LeafProof:
        """Return one proof.

        Args:
            row: its row.

        Returns:
            The proof.
        """
        items = self.items[self.offsets[row] : self.offsets[row + 1]]
        return LeafProof(
            (int(self.leaf_indices[row]),), int(self.leaf_counts[row]), tuple(item.tobytes() for item in items)
        )


@dataclass(frozen=True, slots=True, eq=False)
class LeafVerdicts:
    """Verdicts on leaf proofs.

    Attributes:
        proofs: the proofs.
        leaves: hash of each leaf, shape (n, 32).
        roots: trusted root of each, shape (n, 32).
        trusted_counts: trusted number of leaves of each, or None.
        codes: verdict of each (``LeafVerdict``), shape (n,).
    """

    proofs: LeafProofs
    leaves: Digests
    roots: Digests
    trusted_counts: Counts | None
    codes: npt.NDArray[np.int8]

    @property
    def refused(self) -> Rows:
        """Return the rows of invalid proofs."""
        return np.flatnonzero(self.codes)

    def error(self, row: int) -> ProofError | None:
        """Return the error of one proof, as of ``verify_leaf_proof``, or None.

        Args:
            row: the proof's row.

        Returns:
            The error, or None.
        """
        if self.codes[row] == LeafVerdict.HOLDS:
            return None
        count = None if self.trusted_counts is None else int(self.trusted_counts[row])
        try:
            verify_leaf_proof(self.proofs.proof(row), [self.leaves[row].tobytes()], self.roots[row].tobytes(), count)
        except ProofError as error:
            return error
        raise AssertionError(f"leaf proof {row} is refused in columns and holds alone")


def verify_leaf_proofs(
    proofs: LeafProofs, leaves: Digests, roots: Digests | bytes, leaf_counts: Counts | int | None = None
) -> LeafVerdicts:
    """Verify that each leaf is in the range with its root: ``verify_leaf_proof`` by columns.

    Args:
        proofs: n proofs.
        leaves: hash of each leaf, shape (n, 32).
        roots: trusted root of each, shape (n, 32), or one for all.
        leaf_counts: trusted number of leaves of each, or one for all, if known: a root does not bind it.

    Returns:
        The verdicts.

    Raises:
        InvalidInput: a column has another shape.
    """
    from causeway_proofs.mmr.column_loops import plan_proofs, write_pairs

    count = len(proofs)
    if isinstance(roots, bytes):
        roots = np.tile(np.frombuffer(roots, dtype=np.uint8), (count, 1))
    for column, noun in ((leaves, "leaves"), (roots, "roots")):
        require_digests(column, noun)
        if len(column) != count:
            raise InvalidInput(f"{len(column)} {noun} are given for {count} proofs, one each is wanted")
    trusted = None
    if leaf_counts is not None:
        trusted = integer_array(
            [leaf_counts] if isinstance(leaf_counts, int) else leaf_counts, "leaf counts", np.uint64
        )
        if len(trusted) != count:
            if not isinstance(leaf_counts, int):
                raise InvalidInput(f"{len(trusted)} leaf counts are given for {count} proofs, one each is wanted")
            trusted = np.broadcast_to(trusted, (count,))
    codes = np.zeros(count, dtype=np.int8)
    in_range = (proofs.leaf_indices < proofs.leaf_counts) & (proofs.leaf_counts <= np.uint64(MAX_LEAVES))
    heights, lefts, rights = (np.empty(count, dtype=np.int64) for _ in range(3))
    plan_proofs(proofs.leaf_indices, proofs.leaf_counts, heights, lefts, rights)
    steps = np.diff(proofs.offsets)
    codes[steps != lefts + heights + rights] = LeafVerdict.CORRUPTED_PROOF
    if trusted is not None:
        codes[trusted != proofs.leaf_counts] = LeafVerdict.ROOT_MISMATCH
    codes[~in_range] = LeafVerdict.CORRUPTED_PROOF
    current = np.array(leaves)
    items = np.ascontiguousarray(proofs.items)
    for step in range(int(steps[codes == LeafVerdict.HOLDS].max(initial=0))):
        rows = np.flatnonzero((codes == LeafVerdict.HOLDS) & (steps > step))
        pairs = np.empty((len(rows), _PAIR), dtype=np.uint8)
        write_pairs(
            rows, step, proofs.leaf_indices, heights, lefts, rights, proofs.offsets,
            items.reshape(-1), current.reshape(-1), pairs.reshape(-1),
        )  # fmt: skip
        current[rows] = _digests(pairs)
    codes[(codes == LeafVerdict.HOLDS) & (current != roots).any(axis=1)] = LeafVerdict.ROOT_MISMATCH
    return LeafVerdicts(proofs, leaves, roots, trusted, codes)


def _digests(pairs: Digests) -> Digests:
    """Return the Keccak-256 digest of each row; equal rows are hashed once."""
    starts = np.arange(len(pairs), dtype=np.int64) * _PAIR
    numbers, firsts = distinct_slices(pairs.reshape(-1), starts, starts + _PAIR)
    if len(firsts) == len(pairs):
        return digest_rows(HashFunction.KECCAK_256, pairs)
    return digest_rows(HashFunction.KECCAK_256, pairs[firsts])[numbers]
