"""The messages trees of many streams, kept: ``messages / <index>`` of each (IC reference 2.9).

What ``MessagesTree`` is for one stream, over columns. A change hashes what the shape of a tree forces: appending the
forks over the new messages and the right edge; trimming t messages all forks over more messages than the largest power
of two that divides t, those below are moved.
"""

from __future__ import annotations

import numpy as np

from causeway.model.errors import InvalidInput
from causeway.model.order import U64, Codes, Rows, positions_in
from causeway.proofs.hashing import DIGEST_BYTES, Digests
from causeway.proofs.ic.digest_columns import labeled_digests
from causeway.proofs.ic.digests import EMPTY_DIGEST, FORK_DOMAIN
from causeway.proofs.ic.slice_payload import MESSAGES
from causeway.proofs.kept_forest import KeptForest

Keys = Codes
"""Names of streams: numbers of 64 bits, or byte strings of one length; the same kind in all calls."""

_NONE: U64 = np.empty(0, dtype=np.uint64)


class StreamForest:
    """The trees of streams, each named by a key (``Keys``); without any at first.

    ``keys``: those keys, ascending. ``begins``, ``ends``: the bounds of each stream. ``version`` counts the changes:
    whoever has seen an earlier one must not read the trees any more, nor change them.
    """

    def __init__(self) -> None:
        self.keys: Keys = _NONE
        self.begins: U64 = _NONE
        self.ends: U64 = _NONE
        self._forest = KeptForest(np.empty(0, dtype=np.int64), FORK_DOMAIN, EMPTY_DIGEST)

    @property
    def version(self) -> int:
        """Return how often the trees were changed."""
        return self._forest.version

    def update(self, keys: Keys, begins: U64, ends: U64, digests: Digests) -> None:
        """Let the streams be ``keys`` (ascending) with the bounds ``begins`` and ``ends``.

        A stream that was there is trimmed up to its new begin and appended to from its old end on; a new one begins
        where it says. Those that are no longer among ``keys`` are gone.

        Args:
            keys: all streams that there are now.
            begins: index of the first message of each.
            ends: index after the last one.
            digests: of the labeled messages appended, shape (m, 32), by stream and index.

        Raises:
            InvalidInput: keys do not ascend, a stream goes back or is trimmed beyond its old end, or there are not as
                many digests as messages appended. Nothing is changed.
        """
        if bool((keys[1:] <= keys[:-1]).any()):
            raise InvalidInput("the keys of streams do not ascend")
        same = np.array_equal(keys, self.keys)
        origin: Rows = np.arange(len(keys)) if same else positions_in(self.keys, keys)
        old = np.maximum(origin, 0)
        new = origin < 0
        was_begin, was_end = (
            np.where(new, begins, column[old]) if len(column) else begins for column in (self.begins, self.ends)
        )
        wrong = np.flatnonzero((begins < was_begin) | (begins > was_end) | (ends < was_end))
        if len(wrong):
            row = wrong[0]
            raise InvalidInput(
                f"stream {keys[row]} goes from [{was_begin[row]}, {was_end[row]}) to [{begins[row]}, {ends[row]})"
            )
        added, trimmed = (ends - was_end).astype(np.int64), (begins - was_begin).astype(np.int64)
        if int(added.sum()) != len(digests):
            raise InvalidInput(f"{len(digests)} digests are given for {added.sum()} messages appended")
        touched = np.flatnonzero((added > 0) | (trimmed > 0))
        if same and len(touched) == 0:
            return
        forest = self._forest
        if not same:
            forest.rearrange(origin)
        forest.resize((ends - begins).astype(np.int64), trimmed)
        first = (was_end - begins).astype(np.int64)[touched]
        forest.write_ends(touched, first, digests)
        forest.rehash_ends(touched, first, trimmed[touched])
        self.keys, self.begins, self.ends = keys.copy(), begins.copy(), ends.copy()

    def roots(self, keys: Keys) -> Digests:
        """Return the root of each stream's messages, shape (n, 32); without messages that of an empty map."""
        return self._forest.roots(self._rows(keys))

    def counts(self, keys: Keys) -> Rows:
        """Return how many messages each stream has."""
        return self._forest.sizes[self._rows(keys)]

    def left_siblings(self, keys: Keys, positions: U64) -> tuple[Digests, Rows]:
        """Return the siblings of the run from each of ``positions`` (indices) up to the stream's end: see ``sides``."""
        return self.sides(keys, positions, self.ends[self._rows(keys)])

    def sides(self, keys: Keys, first: U64, stop: U64) -> tuple[Digests, Rows]:
        """Return what the run [first, stop) of each stream needs to give the root: digests, joined, and how many each.

        Those of ``forest.side_positions``, in its order. An empty run needs one, of the messages with their label,
        ``labeled("messages", root)``; of a stream without messages nothing is needed.

        Raises:
            InvalidInput: a stream is not there, or a run not inside of it.
        """
        rows = self._rows(keys)
        begins, ends = self.begins[rows], self.ends[rows]
        wrong = np.flatnonzero((first < begins) | (stop < first) | (stop > ends))
        if len(wrong):
            row = wrong[0]
            raise InvalidInput(
                f"there is no run [{first[row]}, {stop[row]}) in stream {keys[row]}, [{begins[row]}, {ends[row]})"
            )
        some = np.flatnonzero(stop > first)
        found, found_counts = self._forest.sides(
            rows[some], (first - begins).astype(np.int64)[some], (stop - first).astype(np.int64)[some]
        )
        none = np.flatnonzero((stop == first) & (ends > begins))
        if len(none) == 0 and len(some) == len(rows):
            return found, found_counts
        counts = np.zeros(len(rows), dtype=np.int64)
        counts[some], counts[none] = found_counts, 1
        digests = np.empty((int(counts.sum()), DIGEST_BYTES), dtype=np.uint8)
        whole = np.zeros(len(rows), dtype=np.bool_)
        whole[none] = True
        of_whole = whole.repeat(counts)
        digests[~of_whole] = found
        digests[of_whole] = labeled_digests(MESSAGES, self._forest.roots(rows[none]))
        return digests, counts

    def _rows(self, keys: Keys) -> Rows:
        rows = positions_in(self.keys, keys)
        if bool((rows < 0).any()):
            raise InvalidInput(f"there is no stream {keys[rows < 0][0]}")
        return rows
