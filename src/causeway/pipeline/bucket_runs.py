"""The rows of one bucket of a ledger that is followed, cut into runs of messages, of which new rows are in a few.

What came last is the run ``RECENT``, whose rows are in memory; when it is too large, the messages in which least is to
be expected are settled: they become a run of their own, whose rows are in files alone. A row of a settled message that
comes late makes its run look at them once more, and the message a recent one. So what is new in a bucket costs as much
as its recent run, however many rows it has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from causeway.audit.arrays import Ints, Words
from causeway.audit.bucket import Bucket
from causeway.audit.columns import Bools, Columns
from causeway.audit.known import Known
from causeway.audit.parts import READ, Run, TablePart
from causeway.audit.windows import Lane
from causeway.ledger.limbs import slices_of, valid_rows
from causeway.ledger.order import lane_numbers, lane_word, whole, without_repeats
from causeway.ledger.schema import LANE, LEDGER_SCHEMA, VALUE_SCHEMA, Event
from causeway.proofs.hashing import HashFunction, digest_slices

RECENT = 0

OPEN_KEPT = 256
"""So many messages that are open stay recent, though others of their lanes that came later are settled."""

NAME = (*LANE, "index", "message_id")
"""Columns that name the message of a row."""

_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_LAST = 2**64 - 1

Rows = tuple[pa.Table, pa.Table]
"""Rows of the ledger, and movements of value of the same messages."""

Ranges = tuple[Words, Ints]
"""Of a lane where ranges of indices begin, ascending, and the run of each; before the first one: ``RECENT``."""


class Claims:
    """In which run each message of a bucket is: of each lane ranges of indices, and names of messages without index."""

    def __init__(self) -> None:
        self._lanes: dict[Lane, Ranges] = {}
        self._names: dict[int, Words] = {}
        self._named_in: dict[int, set[Lane]] = {}

    def of(self, rows: pa.Table) -> tuple[Ints, Ints]:
        """Return the run of each row's message, and the number of its range in its lane. ``rows``: have ``NAME``."""
        found, ranges = np.zeros(rows.num_rows, np.int64), np.zeros(rows.num_rows, np.int64)
        if not rows.num_rows or not (self._lanes or self._names):
            return found, ranges
        lanes, codes = lane_numbers(rows)
        index, indexed = _indices(rows)
        order = np.argsort(codes, kind="stable")
        bounds = np.searchsorted(codes[order], np.arange(len(lanes) + 1))
        for number, (one, two, three, four) in enumerate(lanes):
            own = self._lanes.get((one, two, three, four))
            if own is not None:
                places = order[bounds[number] : bounds[number + 1]]
                places = places[indexed[places]]
                at = np.searchsorted(own[0], index[places], side="right")
                found[places] = np.append(own[1], RECENT)[at - 1]
                ranges[places] = at
        if self._names and not indexed.all():
            others = np.flatnonzero(~indexed)
            words = message_words(rows.select(NAME).take(pa.array(others)))
            for run, names in self._names.items():
                at = np.minimum(np.searchsorted(names, words), len(names) - 1)
                found[others[names[at] == words]] = run
        return found, ranges

    def move(self, rows: pa.Table, of: int, to: Ints) -> None:
        """Put messages of the run ``of`` into others. ``rows``: all rows of the run, in order; ``to``: the run of each,
        the same on all of a message."""
        lanes, codes = lane_numbers(rows)
        index, indexed = _indices(rows)
        bounds = np.searchsorted(codes, np.arange(len(lanes) + 1))
        for number, (one, two, three, four) in enumerate(lanes):
            places = slice(int(bounds[number]), int(bounds[number + 1]))
            own = indexed[places]
            after = to[places][own]
            if len(after) and (after != of).any():
                lane = (one, two, three, four)
                self._lanes[lane] = _moved(self._lanes.get(lane, _NOTHING), index[places][own], of, after)
        others = np.flatnonzero(~indexed & (to != of))
        if len(others):
            some = rows.select(NAME).take(pa.array(others))
            words = message_words(some)
            self._forget(of, words)
            for run in np.unique(to[others]).tolist():
                if run != RECENT:
                    self._add_names(run, words[to[others] == run], some.filter(pa.array(to[others] == run)))

    def put(self, parts: Iterable[tuple[int, pa.Table, bool]]) -> None:
        """Put all messages of a bucket into runs. ``parts``: of each run its number, the names (``NAME``) of its
        messages, in order, and whether they need not be neighbours; the runs in order but for such a one."""
        begins: dict[Lane, list[tuple[Words, int]]] = {}
        last: dict[Lane, int] = {}
        for run, rows, scattered in parts:
            lanes, codes = lane_numbers(rows)
            index, indexed = _indices(rows)
            bounds = np.searchsorted(codes, np.arange(len(lanes) + 1))
            for number, (one, two, three, four) in enumerate(lanes):
                lane = (one, two, three, four)
                own = index[bounds[number] : bounds[number + 1]][indexed[bounds[number] : bounds[number + 1]]]
                if len(own):
                    begins.setdefault(lane, []).append((np.unique(own) if scattered else own[:1].copy(), run))
                    last[lane] = max(last.get(lane, 0), int(own[-1]))
            others = np.flatnonzero(~indexed)
            if len(others):
                some = rows.take(pa.array(others))
                self._add_names(run, message_words(some), some)
        for lane, found in begins.items():
            ends = [(np.array([last[lane] + 1], np.uint64), RECENT)] if last[lane] < _LAST else []
            firsts = np.concatenate([first for first, _ in (*found, *ends)])
            runs = np.concatenate([np.full(len(first), run) for first, run in (*found, *ends)])
            self._lanes[lane] = _joined(firsts, runs)

    def lanes_of(self, run: int) -> tuple[dict[Lane, list[tuple[int, int]]], set[Lane]]:
        """Return the lanes of a run, with the ranges of indices that it has in each (first and last), and those of
        which it has messages without index."""
        found: dict[Lane, list[tuple[int, int]]] = {}
        for lane, (begins, runs) in self._lanes.items():
            at = np.flatnonzero(runs == run)
            if len(at):
                ends = np.append(begins[1:] - np.uint64(1), np.uint64(_LAST))
                found[lane] = [*zip(begins[at].tolist(), ends[at].tolist(), strict=True)]
        return found, self._named_in.get(run, set())

    def drop(self, run: int) -> None:
        """Forget a run that has no messages."""
        self._names.pop(run, None)
        self._named_in.pop(run, None)

    def _add_names(self, run: int, words: Words, rows: pa.Table) -> None:
        self._names[run] = np.union1d(self._names.get(run, np.zeros(0, np.uint64)), words)
        lanes = {(one, two, three, four) for one, two, three, four in lane_numbers(rows)[0]}
        self._named_in.setdefault(run, set()).update(lanes)

    def _forget(self, run: int, words: Words) -> None:
        if run in self._names:
            left = np.setdiff1d(self._names[run], words, assume_unique=False)
            if len(left):
                self._names[run] = left
            else:
                self.drop(run)


_NOTHING: Ranges = np.zeros(0, np.uint64), np.zeros(0, np.int64)


def _moved(ranges: Ranges, index: Words, of: int, to: Ints) -> Ranges:
    """Return the ranges of a lane in which messages of the run ``of`` are in others. ``index``: of the rows of all its
    messages in the lane, ascending."""
    begins, runs = ranges
    at = np.searchsorted(begins, index, side="right") - 1
    of_range = np.append(True, at[1:] != at[:-1])
    new = of_range | np.append(True, to[1:] != to[:-1])
    if of == RECENT:
        # What comes behind the last message of a range is recent.
        last = np.flatnonzero(np.append(of_range[1:], True))
        last = last[(to[last] != RECENT) & (index[last] < np.uint64(_LAST))]
        behind = index[last] + np.uint64(1)
        behind = behind[~np.isin(behind, begins)]
        firsts = np.concatenate((begins, index[new], behind))
        # Of two that begin at one index the later one counts.
        return _joined(firsts, np.concatenate((runs, to[new], np.full(len(behind), RECENT))))
    begins_here = np.where(of_range, begins[at], index)[new]
    kept = np.ones(len(begins), bool)
    kept[at] = False
    return _joined(np.concatenate((begins[kept], begins_here)), np.concatenate((runs[kept], to[new])))


def _joined(firsts: Words, runs: Ints) -> Ranges:
    order = np.argsort(firsts, kind="stable")
    order = order[np.append(firsts[order][1:] != firsts[order][:-1], True)] if len(order) else order
    firsts, runs = firsts[order], runs[order]
    changes = runs != np.concatenate(([RECENT], runs[:-1]))
    return np.ascontiguousarray(firsts[changes]), np.ascontiguousarray(runs[changes])


def message_words(rows: pa.Table) -> Words:
    """Return a number for each row (``NAME``) that is equal on all rows of a message, and hardly ever on two others."""
    lanes, codes = lane_numbers(rows)
    words = np.array([lane_word(lane) for lane in lanes], np.uint64)[codes] if len(lanes) else np.zeros(0, np.uint64)
    index, indexed = _indices(rows)
    words ^= np.where(indexed, (index + np.uint64(1)) * _SPREAD, np.uint64(0))
    others = np.flatnonzero(~indexed)
    if len(others):
        texts = rows["message_id"].take(pa.array(others)).combine_chunks().cast(pa.string())
        texts = pa.concat_arrays(texts.chunks) if isinstance(texts, pa.ChunkedArray) else texts
        named = np.asarray(texts.is_valid())
        data, offsets = slices_of(texts)
        digests = digest_slices(HashFunction.SHA256, data, offsets[:-1], offsets[1:])
        own = np.ascontiguousarray(digests[:, :8]).view("<u8").reshape(-1).astype(np.uint64, copy=False)
        words[others] ^= np.where(named, own, np.uint64(0))
    return words


def _indices(rows: pa.Table) -> tuple[Words, Bools]:
    index = rows["index"].combine_chunks()
    index = pa.concat_arrays(index.chunks) if isinstance(index, pa.ChunkedArray) else index
    return index.fill_null(0).to_numpy(zero_copy_only=False), valid_rows(index)


def run_of(rows: pa.Table, ranges: Ints) -> Run:
    """Return rows in order as a run to pass over. ``ranges``: as of ``Claims.of``."""
    rows = whole(rows)
    return Run(rows.select(list(READ)), ((TablePart(rows), 0, rows.num_rows),), ranges=ranges)


Read = Callable[[Collection[int]], Mapping[int, Rows]]
"""What reads the rows of settled runs from files."""


@dataclass
class BucketRuns:
    """The runs of a bucket. ``most``: so many rows are recent, up to twice as many before some are settled; ``sizes``:
    of the settled ones how many rows each has."""

    most: int
    claims: Claims = field(default_factory=Claims)
    recent: Rows = field(default_factory=lambda: (LEDGER_SCHEMA.empty_table(), VALUE_SCHEMA.empty_table()))
    sizes: dict[int, int] = field(default_factory=dict)
    next: int = 1

    def take(self, new: Rows, read: Read, known: Known, *, among_read: bool = False) -> dict[int, Rows]:
        """Take new rows, and return the runs that are others now; of one without rows there are none.

        ``new``: rows of the ledger, and movements of messages; ``read``: reads the rows that settled runs had before,
        or ``among_read`` those that they have now.
        """
        of_rows, of_value = (self.claims.of(rows)[0] for rows in new)
        late = sorted({*np.unique(of_rows).tolist(), *np.unique(of_value).tolist()} - {RECENT})
        before = read(late) if late else {}
        words = message_words(new[0])
        others: dict[int, Rows] = {}
        recent = [self.recent]
        recent.append((new[0].filter(pa.array(of_rows == RECENT)), new[1].filter(pa.array(of_value == RECENT))))
        for run in late:
            rows, value = before[run]
            if not among_read:
                rows = _together(rows, new[0].filter(pa.array(of_rows == run)))
                value = pa.concat_tables([value, new[1].filter(pa.array(of_value == run))])
            moves = np.isin(message_words(rows), words) | self._waits(rows, known)
            back, kept = self._move((rows, value), run, np.where(moves, RECENT, run))
            recent.append(back)
            others[run] = kept
            self.sizes[run] = kept[0].num_rows
            if not kept[0].num_rows and not kept[1].num_rows:
                self.drop(run)
        rows = [each[0] for each in recent]
        self.recent = _together(*rows), pa.concat_tables([each[1] for each in recent])
        while self.recent[0].num_rows > 2 * self.most:
            others[self.next] = self._settle(known)
            self.next += 1
        others[RECENT] = self.recent
        return others

    def drop(self, run: int) -> None:
        """Forget a settled run that has no rows."""
        self.sizes.pop(run, None)
        self.claims.drop(run)

    def _move(self, rows: Rows, of: int, to: Ints) -> tuple[Rows, Rows]:
        """Put messages of a run into another one; return the rows of that, and what is left."""
        goes = to != of
        if goes.any():
            self.claims.move(rows[0], of, to)
        value = self.claims.of(rows[1])[0] != of if rows[1].num_rows else np.zeros(0, bool)
        one, other = (
            (rows[0].filter(pa.array(mask)), rows[1].filter(pa.array(mask_of_value)))
            for mask, mask_of_value in ((goes, value), (~goes, ~value))
        )
        return one, other

    def _settle(self, known: Known) -> Rows:
        """Make a run of the recent messages in which least is to be expected, and return its rows."""
        rows = whole(self.recent[0])
        bucket = Bucket(Columns.of(run_of(rows, np.zeros(rows.num_rows, np.int64))), known)
        starts = bucket.columns.starts
        behind = _behind(bucket)
        behind[_last_open(bucket, behind)] = 0
        order = np.argsort(behind, kind="stable")
        kept = np.zeros(len(behind), bool)
        kept[order[np.cumsum(np.diff(starts)[order]) <= self.most]] = True
        settled = np.repeat(~kept, np.diff(starts))
        gone, self.recent = self._move((rows, self.recent[1]), RECENT, np.where(settled, self.next, RECENT))
        self.sizes[self.next] = gone[0].num_rows
        return gone

    def _waits(self, rows: pa.Table, known: Known) -> Bools:
        """Return which rows are of messages of a settled run that had better been left among the recent ones."""
        rows = whole(rows)
        bucket = Bucket(Columns.of(run_of(rows, np.zeros(rows.num_rows, np.int64))), known)
        waits = np.zeros(len(bucket.lane), bool)
        waits[_last_open(bucket, _behind(bucket))] = True
        return np.repeat(waits, np.diff(bucket.columns.starts))


def _behind(bucket: Bucket) -> Ints:
    """Return how many messages of its lane each one has behind it."""
    ends = np.append(bucket.columns.lane_starts[1:], len(bucket.lane))
    return ends[bucket.lane] - 1 - np.arange(len(bucket.lane))


def _last_open(bucket: Bucket, behind: Ints) -> Ints:
    """Return the last messages, ``OPEN_KEPT`` of them, of which more is to be expected."""
    waiting = np.flatnonzero(bucket.is_open | (bucket.is_unacknowledged & _acknowledging(bucket)[bucket.lane]))
    return waiting[np.argsort(behind[waiting], kind="stable")[:OPEN_KEPT]]


def _acknowledging(bucket: Bucket) -> Bools:
    """Return in which lanes something is acknowledged."""
    return bucket.count(bucket.has(Event.SENT) & ~bucket.is_unacknowledged) > 0


def _together(*parts: pa.Table) -> pa.Table:
    """Return rows of the ledger in order, each event once."""
    some = [part for part in parts if part.num_rows]
    if not some:
        return parts[0]
    return whole(some[0]) if len(some) == 1 else without_repeats(pa.concat_tables(some))


__all__ = ["NAME", "RECENT", "BucketRuns", "Claims", "Rows", "message_words", "run_of"]
