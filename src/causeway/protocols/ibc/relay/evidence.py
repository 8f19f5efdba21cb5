"""Roots of the proofs in submissions, of runs of entries or of single entries.

Every entry is hashed again from the delivered message. Nothing of the relayer is trusted but paths to a trusted root
(IBC reference 2.6, step 7 of 3.3 and step 5 of 3.4).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from causeway_proofs.hashing import DIGEST_BYTES, Digests
from causeway_proofs.merkle_forest import LevelSides, leaf_roots, leaf_sides, run_roots
from causeway_proofs.order import Groups, Rows
from causeway_proofs.work import count_proof_bytes

from causeway.core.frame import Frame
from causeway.core.joins import lookup_rows
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.keys import HEAD_KEY, MAX_INDEX, TAIL_KEY, KeyPart
from causeway.protocols.ibc.packets import binary_lengths
from causeway.protocols.ibc.queue_entries import end_leaves, index_leaves, position_leaves
from causeway.protocols.ibc.relayer_view import NO_PROOF, Alteration, SubmissionKind
from causeway.protocols.ibc.state import RECEIPT
from causeway.protocols.shared.messages import LANE, LANE_COLUMNS


@dataclass(frozen=True)
class ProvenRoots:
    """The roots of proofs.

    Attributes:
        roots: One root a run (range proofs), or one an entry (single proofs).
        single: True for single proofs.
        row: The row of ``roots`` of each submission's first entry, or run; ``NO_PROOF`` without one.
        position_roots: The roots of proofs of a head, a tail or an absence, by submission.
    """

    roots: Digests
    single: bool
    row: Rows
    position_roots: dict[int, bytes]

    def proven_until(self, submission: int, skip: int, count: int, root: bytes) -> int:
        """Return the number of entries proved under ``root``, of ``count`` after ``skip``."""
        row = int(self.row[submission])
        if row == NO_PROOF:
            return 0
        if not self.single:
            return count if self.roots[row].tobytes() == root else 0
        found = self.roots[row + skip : row + skip + count]
        if found.tobytes() == root * count:  # mostly
            return count
        wrong = (found != np.frombuffer(root, dtype=np.uint8)).any(axis=1)
        return int(np.argmax(wrong)) if wrong.any() else count


def verify_proofs(rows: Frame, proofs: Frame, messages: Frame, leaves: Digests, context: Context) -> ProvenRoots:
    """Compute the roots of the proofs in submissions.

    Args:
        rows: The submissions.
        proofs: The proofs that they refer to.
        messages: All entries that the proofs cover, by lane and index.
        leaves: The leaf hashes of these entries.
        context: The metadata of the block; an option selects single proofs.
    """
    single = context.options.relay.proofs == "single"
    proof = carried_proofs(rows, proofs)
    positions = _position_roots(rows, proofs, context)
    covered = np.flatnonzero(proof != NO_PROOF)
    tampered = (rows["alteration"][covered] == Alteration.TAMPERED).astype(np.int64)
    used, of_row = np.unique(proof[covered] * 2 + tampered, return_inverse=True)
    runs = proofs.take(used // 2)
    counts = runs["count"].astype(np.int64)
    groups = Groups(np.cumsum(counts) - counts, counts, int(counts.sum()))
    first_entry = lookup_rows(messages, runs.select(LANE).with_columns(index=runs["first"]), LANE_COLUMNS)
    entry_leaves = leaves[groups.spread(first_entry) + groups.ranks()]
    entry_leaves[groups.starts[used % 2 == 1], 0] ^= 1
    sides, side_counts = _sides(runs)
    row = np.full(len(rows), NO_PROOF, dtype=np.int64)
    if not single:
        # Each submission of a run carries its own copy of the proof.
        count_proof_bytes(DIGEST_BYTES * int(side_counts[of_row].sum()))
        row[covered] = of_row
        roots = run_roots(entry_leaves, groups, runs["position"], runs["size"], sides, side_counts)
        return ProvenRoots(roots, single, row, positions)
    own_position, own_sides = leaf_sides(entry_leaves, groups, runs["position"], runs["size"], sides, side_counts)
    first = np.maximum(rows["begin"][covered], runs["first"][of_row]) - runs["first"][of_row]
    first[rows["alteration"][covered] == Alteration.FOREIGN] = 0  # a foreign proof starts at its begin
    row[covered] = groups.starts[of_row] + first.astype(np.int64)
    roots = leaf_roots(entry_leaves, own_position, groups.spread(runs["size"]), _counted(own_sides))
    return ProvenRoots(roots, single, row, positions)


def _counted(levels: LevelSides) -> LevelSides:
    """Yield the digests beside leaves, and count them."""
    for rows, sides in levels:
        count_proof_bytes(sides.nbytes)
        yield rows, sides


def _position_roots(rows: Frame, proofs: Frame, context: Context) -> dict[int, bytes]:
    """Return the root of each proof of a head, a tail or an absence, by submission."""
    asking = np.flatnonzero((rows["call"] >= SubmissionKind.TIMEOUT) & (rows["proof"] >= 0))
    if len(asking) == 0:
        return {}
    position_proofs = proofs.take(rows["proof"][asking])
    absent = position_proofs["part"] == KeyPart.ABSENT
    counts = np.where(absent, 2, 1)
    each = Groups(np.cumsum(counts) - counts, counts, int(counts.sum()))
    leaves = np.empty((int(counts.sum()), DIGEST_BYTES), dtype=np.uint8)
    for part, key in ((KeyPart.HEAD, HEAD_KEY), (KeyPart.TAIL, TAIL_KEY)):
        of_part = np.flatnonzero(position_proofs["part"] == part)
        leaves[each.starts[of_part]] = position_leaves(
            position_proofs.take(of_part), key, position_proofs["first"][of_part], context.zones
        )
    sides, side_counts = _sides(position_proofs)
    count_proof_bytes(sides.nbytes)
    if absent.any():
        gaps, first_side = position_proofs.filter(absent), (np.cumsum(side_counts) - side_counts)[absent]
        for side, found in enumerate(_beside(gaps, sides[first_side], sides[first_side + 1], context)):
            leaves[each.starts[absent] + side] = found
        value_sides = np.concatenate([first_side, first_side + 1])
        sides, side_counts = np.delete(sides, value_sides, axis=0), side_counts - 2 * absent
    leaves[each.starts[rows["alteration"][asking] == Alteration.TAMPERED], 0] ^= 1
    roots = run_roots(leaves, each, position_proofs["position"], position_proofs["size"], sides, side_counts)
    within = rows["begin"][asking] >= position_proofs["first"]
    within &= rows["end"][asking] <= position_proofs["first"] + position_proofs["count"]
    found_roots = zip(asking, roots, within | ~absent, strict=True)
    return {int(submission): root.tobytes() for submission, root, holds in found_roots if holds}


def _beside(gaps: Frame, before: Digests, behind: Digests, context: Context) -> tuple[Digests, Digests]:
    """Return the leaves on both sides of absent entries, from the hashes of their values."""
    zones, first, stop = context.zones, gaps["first"], gaps["first"] + gaps["count"]
    found = []
    for values, at_end, key, index in (
        (before, first == 0, HEAD_KEY, first - np.uint64(1)),
        (behind, stop == MAX_INDEX, TAIL_KEY, stop),
    ):
        leaves = np.empty_like(values)
        leaves[at_end] = end_leaves(gaps.filter(at_end), key, values[at_end], zones)
        named = gaps["destination"][~at_end], index[~at_end], RECEIPT
        leaves[~at_end] = index_leaves(*named, values[~at_end], zones)
        found.append(leaves)
    return found[0], found[1]


def carried_proofs(rows: Frame, proofs: Frame) -> Rows:
    """Return the proof of each submission, ``NO_PROOF`` unless it covers all its entries.

    A foreign proof is the first that another chain offers to the same zone.
    """
    proof: Rows = rows["proof"].copy()
    if len(proofs) == 0:
        return np.full(len(rows), NO_PROOF, dtype=np.int64)
    run = np.maximum(proof, 0)
    stop = proofs["first"][run] + proofs["count"][run]
    proof[(rows["begin"] < proofs["first"][run]) | (rows["end"] > stop)] = NO_PROOF
    proof[rows["call"] >= SubmissionKind.TIMEOUT] = NO_PROOF
    foreign = (rows["alteration"] == Alteration.FOREIGN) & (rows["call"] < SubmissionKind.TIMEOUT)
    for row in np.flatnonzero(foreign).tolist():
        others = (proofs["destination"] == rows["destination"][row]) & (proofs["source"] != rows["source"][row])
        others &= (proofs["part"] == KeyPart.INDEX) & (proofs["count"] >= rows["end"][row] - rows["begin"][row])
        found = np.flatnonzero(others)
        proof[row] = found[0] if len(found) else NO_PROOF
    return proof


def _sides(runs: Frame) -> tuple[Digests, Rows]:
    """Return the joined digests beside runs, and the number of each."""
    column = runs["sides"]
    lengths = binary_lengths(column)
    joined = b"".join(column.to_pylist())
    return np.frombuffer(joined, dtype=np.uint8).reshape(-1, DIGEST_BYTES), lengths // DIGEST_BYTES
