"""Build many single-leaf proofs in columns, and verify them hashing each distinct node once (XDM reference 2.4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway_proofs.arrays import integer_array, part_ends, require_digests
from causeway_proofs.distinct import distinct_slices
from causeway_proofs.errors import InvalidInput, ProofError
from causeway_proofs.hashing import DIGEST_BYTES, Digests, HashFunction, digest_rows
from causeway_proofs.mmr.mountain_range import MAX_LEAVES, CorruptedProof, RootMismatch
from causeway_proofs.mmr.proof import LeafProof, verify_leaf_proof
from causeway_proofs.order import Rows
from causeway_proofs.substrate.byte_columns import byte_column, column_data, column_offsets, contiguous_column

Counts = npt.NDArray[np.uint64]

_PAIR = 2 * DIGEST_BYTES


class LeafVerdict(IntEnum):
    """What becomes of a proof: it holds, or the error that is raised for it one by one."""

    HOLDS = 0
    CORRUPTED_PROOF = 1
    ROOT_MISMATCH = 2

    @property
    def error(self) -> type[ProofError] | None:
        """Return the type of the error, None where the proof holds."""
        return {LeafVerdict.CORRUPTED_PROOF: CorruptedProof, LeafVerdict.ROOT_MISMATCH: RootMismatch}.get(self)


@dataclass(frozen=True, slots=True, eq=False)
class LeafProofs:
    """Proofs of one leaf each, as columns.

    Attributes:
        leaf_indices: the leaf of each proof, counted from 0, shape (n,).
        leaf_counts: how many leaves its range had, shape (n,).
        items: the items of all proofs, one behind the other, shape (m, 32).
        offsets: where the items of each proof start and, last, where the last ones end, shape (n + 1,).
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
        """Return proofs of one leaf each as columns.

        Raises:
            InvalidInput: a proof has another number of leaf indices than one, a number that is no u64, or an item of
                another length than 32 bytes.
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
        """Return the proofs whose items are an Arrow column of lists of digests, as envelopes are decoded to.

        Raises:
            InvalidInput: the column has nulls or other values than byte strings of 32, or another length.
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
        """Return one of the proofs."""
        items = self.items[self.offsets[row] : self.offsets[row + 1]]
        return LeafProof(
            (int(self.leaf_indices[row]),), int(self.leaf_counts[row]), tuple(item.tobytes() for item in items)
        )


@dataclass(frozen=True, slots=True, eq=False)
class LeafVerdicts:
    """What becomes of leaf proofs.

    Attributes:
        proofs: the proofs.
        leaves: the hash of each leaf.
        roots: the trusted root of each.
        trusted_counts: the trusted number of leaves of each, None where it is not known.
        codes: what becomes of each (``Verdict``).
    """

    proofs: LeafProofs
    leaves: Digests
    roots: Digests
    trusted_counts: Counts | None
    codes: npt.NDArray[np.int8]

    @property
    def refused(self) -> Rows:
        """Return the rows of the proofs that do not hold."""
        return np.flatnonzero(self.codes)

    def error(self, row: int) -> ProofError | None:
        """Return the error of one proof, as ``verify_leaf_proof`` raises it; None where it holds."""
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
    """Verify, for each proof, that its leaf is in the range with its root: ``verify_leaf_proof`` for many.

    Args:
        proofs: the proofs.
        leaves: the hash of each leaf, shape (n, 32).
        roots: the trusted root of each, shape (n, 32), or one for all.
        leaf_counts: the trusted number of leaves of each, or one for all, where it is known: a root does not say it.

    Raises:
        InvalidInput: the columns do not have these shapes.
    """
    from causeway_proofs.mmr.column_loops import plan_proofs, write_pairs

    count = len(proofs)
    if isinstance(roots, bytes):
        roots = np.tile(np.frombuffer(roots, dtype=np.uint8), (count, 1))
    for column, what in ((leaves, "leaves"), (roots, "roots")):
        require_digests(column, what)
        if len(column) != count:
            raise InvalidInput(f"{len(column)} {what} are given for {count} proofs, one each is wanted")
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
    heights, lefts, rights = _empty(count), _empty(count), _empty(count)
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
    """Return the Keccak-256 digest of each row, of which equal ones are hashed once."""
    starts = np.arange(len(pairs), dtype=np.int64) * _PAIR
    numbers, firsts = distinct_slices(pairs.reshape(-1), starts, starts + _PAIR)
    if len(firsts) == len(pairs):
        return digest_rows(HashFunction.KECCAK_256, pairs)
    return digest_rows(HashFunction.KECCAK_256, pairs[firsts])[numbers]


def _empty(count: int) -> Rows:
    return np.empty(count, dtype=np.int64)
