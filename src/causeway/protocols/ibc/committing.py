"""The commitment of a block: the trees of zones' stores, changed where the state has (IBC reference 2.6).

The trees are kept with the state. A block hashes what it changes, and what that moves to another position in its tree,
which is all that lies behind: so an entry that comes or goes costs the leaves behind it, and the path above. They are a
derived index: without them they are built from the state's tables.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from causeway.model.order import Rows, positions_in
from causeway.proofs.hashing import DIGEST_BYTES
from causeway.proofs.kept_forest import KeptForest
from causeway.protocols.contract import Chains
from causeway.protocols.ibc.application import Committing, application_of
from causeway.protocols.ibc.entries import position_leaves
from causeway.protocols.ibc.keys import HEAD_KEY, TAIL_KEY
from causeway.protocols.ibc.leaves import Leaves
from causeway.protocols.ibc.state import State
from causeway.protocols.ibc.store import Queued, Store

Mask = npt.NDArray[np.bool_]

_NO_ROOTS = np.empty((0, DIGEST_BYTES), dtype=np.uint8)

HEAD, TAIL = 0, 1
"""Columns of the leaves of queues' ends."""


def commit(state: State, context: Committing) -> Store:
    """Return the stores of a state's zones.

    The trees of ``state.kept`` are changed where the state has, if they are of these zones and no other block has
    changed them since; else all are built.
    """
    chains: Chains = context.chains
    before = state.kept.store if isinstance(state.kept.store, Store) else None
    if before is not None and not ((before.forest.version == before.version) and np.array_equal(before.chains, chains)):
        before = None
    queued = Queued.of(state, chains, None if before is None else before.queued)
    if before is not None and queued.keys is not before.queued.keys:
        before = None
    application = application_of(state, context, None if before is None else before.application)
    counts = state.leaves.counts(queued.keys)
    fixed = application.leaves.shape[1]
    sizes = np.bincount(queued.owner, weights=counts + 2, minlength=len(chains)).astype(np.int64) + fixed
    bases = np.cumsum(sizes) - sizes
    # Of all zones' queues joined, where each begins; less those of the zones before.
    joined = np.cumsum(counts + 2) - (counts + 2)
    heads: Rows = fixed + joined - (bases - fixed * np.arange(len(chains)))[queued.owner]
    moved = _moved_ends(queued, before)
    # The leaves of the heads and tails of queues, shape (queues, 2, 32).
    lanes = queued.lanes
    ends = np.empty((len(lanes), 2, DIGEST_BYTES), dtype=np.uint8) if before is None else before.ends.copy()
    for side, name, key in ((HEAD, "begin", HEAD_KEY), (TAIL, "next_index", TAIL_KEY)):
        rows = np.flatnonzero(moved[:, side])
        if len(rows):
            asked = lanes.take(rows)
            ends[rows, side] = position_leaves(asked, key, asked[name], context.zones)
    forest = KeptForest(sizes) if before is None else before.forest
    same = {} if before is None else _same_first(queued, state.leaves, before)
    shifts = np.zeros(len(chains), dtype=np.int64)
    if before is not None:
        if not same and not moved.any() and application.leaves is before.application.leaves:
            return before
        shifts = sizes.copy()
        resized = [row for row in same if counts[row] != before.counts[row]]
        kept = np.array([same[row] for row in resized], dtype=np.int64)
        np.minimum.at(shifts, queued.owner[resized], heads[resized] + 1 + kept)
        forest.resize(sizes)
    made = Store(chains, queued, heads, ends, state.leaves, counts, application, _NO_ROOTS, forest, forest.version)
    _write(made, shifts, same, moved, before)
    return replace(made, roots=forest.roots())


def _moved_ends(queued: Queued, before: Store | None) -> Mask:
    """Return which queues have another head or tail than before, shape (queues, 2)."""
    names = ("begin", "next_index")
    if before is None:
        return np.ones((len(queued.lanes), 2), dtype=bool)
    return np.stack([queued.lanes[name] != before.lanes[name] for name in names], axis=1)


def _same_first(queued: Queued, leaves: Leaves, before: Store) -> dict[int, int]:
    """Return the queues (rows of ``lanes``) of which entries have come or gone, with how many of the first stayed."""
    keys = sorted(leaves.changed(before.leaves))
    rows = positions_in(queued.keys, np.array(keys, dtype=np.uint64))
    found = {}
    for key, row in zip(keys, rows.tolist(), strict=True):
        held, known = leaves.get(key), before.leaves.get(key)
        if row >= 0:
            found[row] = 0 if held is None or known is None else held.same_first(known)
    return found


def _write(store: Store, shifts: Rows, same: dict[int, int], moved: Mask, before: Store | None) -> None:
    """Write the leaves that are new, or at another position, and hash what is above them.

    ``shifts``: from which position on all leaves of each tree are written; ``same``: see ``_same_first``; ``moved``:
    which ends of queues are others.
    """
    forest, owner, heads, counts = store.forest, store.queued.owner, store.heads, store.counts
    leaves, bases, shift = forest.leaves, forest.offsets[owner], shifts[owner]
    application = store.application.leaves
    changed = np.ones(application.shape[:2], dtype=bool)
    if before is not None:
        changed = (application != before.application.leaves).any(axis=2)
    zone, place = np.nonzero(changed)
    leaves[forest.offsets[zone] + place] = application[zone, place]
    written = [(zone, place)]
    for side, position in ((HEAD, heads), (TAIL, heads + 1 + counts)):
        rows = np.flatnonzero(moved[:, side] | (position >= shift))
        leaves[(bases + position)[rows]] = store.ends[rows, side]
        written.append((owner[rows], position[rows]))
    behind = np.flatnonzero((counts > 0) & (heads + 1 + counts > shift))
    first = dict(zip(behind.tolist(), np.maximum(shift - heads - 1, 0)[behind].tolist(), strict=True))
    for row, rank in {**same, **first}.items():
        held = store.leaves.get(int(store.queued.keys[row]))
        if held is not None and rank < len(held):
            at = int(bases[row] + heads[row]) + 1
            leaves[at + rank : at + len(held)] = held.digests[rank:]
            positions = np.arange(rank, len(held)) + (heads[row] + 1)
            written.append((np.full(len(positions), owner[row]), positions))
    tree, position = (np.concatenate(column) for column in zip(*written, strict=True))
    places = tree << 40 | position
    if not bool((places[1:] > places[:-1]).all()):
        places.sort()
        places = places[np.append(True, places[1:] != places[:-1])]
    forest.rehash(places >> 40, places & ((1 << 40) - 1))
