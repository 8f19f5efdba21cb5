"""What headers and watermarks of a ledger that grows show: in ranges of heights, of which those are looked at again
that have new ones, and a few that windows could change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from causeway.audit.arrays import Ints
from causeway.audit.stated import Stated, stated_in
from causeway.audit.windows import Windows
from causeway.ledger.chain_order import segments_of
from causeway.ledger.codes import Names
from causeway.ledger.schema import HEADERS_SCHEMA, WATERMARKS_SCHEMA
from causeway.model.errors import CausewayError
from causeway.pipeline.followed_files import STATED, added_files, commits_since, files_of
from causeway.pipeline.kept_buckets import Failed, KeptBuckets, later
from causeway.pipeline.ledger_commits import LedgerCommit
from causeway.pipeline.ledger_parts import groups_with_heights
from causeway.pipeline.ledger_store import Ledger, StoredFile

RANGE_BITS = 12
"""2**12 heights of all chains of a bucket are looked at together."""


@dataclass(frozen=True)
class _Held:
    """What a range showed with the windows of a serial number. ``open``: other windows could change it."""

    serial: int
    rows: int
    open: bool
    shown: Stated


@dataclass
class _Bucket:
    at: Ledger
    seen: set[str]


@dataclass
class FollowedStated(KeptBuckets[_Held]):
    """What the ranges of all buckets show. ``limit``: how many findings of a chain or lane and reason are named;
    ``bits``: a range is 2**bits heights."""

    limit: int
    bits: int = field(default_factory=lambda: RANGE_BITS)
    held: dict[int, dict[int, _Held]] = field(default_factory=dict)
    failed: dict[int, Failed] = field(default_factory=dict)
    _states: dict[int, _Bucket] = field(default_factory=dict)
    _again: dict[int, set[int]] = field(default_factory=dict)
    _new: dict[int, list[StoredFile] | None] = field(default_factory=dict)
    _ledger: Ledger | None = None
    _serial: int = 0

    def begin(self, ledger: Ledger, serial: int) -> None:
        """Choose what is looked at. ``serial``: of the windows."""
        self._ledger, self._serial, self._again, self._new = ledger, serial, {}, {}
        since: dict[int, list[LedgerCommit] | None] = {}
        for bucket in range(ledger.buckets):
            files, state = files_of(ledger, bucket, STATED), self._states.get(bucket)
            failed = self._failed_with(bucket, files)
            if not files:
                self.held.pop(bucket, None)
                self._states.pop(bucket, None)
            elif failed is None or failed.left <= 0:
                if state is None:
                    self._again[bucket], self._new[bucket] = set(), None
                    continue
                if state.at.number not in since:
                    since[state.at.number] = commits_since(state.at, ledger)
                new = added_files(ledger, bucket, state.seen, since[state.at.number], (), STATED)
                if new is None or new:
                    self._again[bucket], self._new[bucket] = set(), new
                else:
                    state.seen, state.at = set(files), ledger
        for bucket, number in self._some_behind():
            self._again.setdefault(bucket, set()).add(number)
            self._new.setdefault(bucket, [])

    def run(
        self,
        parallel: Callable[[Callable[[int], None], Iterable[int]], list[tuple[int, CausewayError | None]]],
        windows: Windows,
    ) -> list[Stated]:
        """Look at what was chosen, and return what all ranges show."""
        for bucket, error in parallel(lambda bucket: self._judge(bucket, windows), sorted(self._again)):
            if error is None:
                self.failed.pop(bucket, None)
                continue
            self._states.pop(bucket, None)
            key = tuple(sorted(files_of(self._opened(), bucket, STATED)))
            self.failed[bucket] = later(self.failed.get(bucket), key, str(error))
        return [held.shown for _, ranges in sorted(self.held.items()) for _, held in sorted(ranges.items())]

    def _opened(self) -> Ledger:
        assert self._ledger is not None, "begin was called"
        return self._ledger

    def _judge(self, bucket: int, windows: Windows) -> None:
        ledger, new, again = self._opened(), self._new[bucket], set(self._again[bucket])
        files = files_of(ledger, bucket, STATED)
        held = {} if new is None else dict(self.held.get(bucket, {}))
        for file in files.values() if new is None else new:
            again |= set(np.unique(segments_of(ledger.read(file, ["height"])["height"], self.bits)).tolist())
        if again:
            tables = [self._rows(ledger, files.values(), table, again, whole=new is None) for table in STATED]
            bounds = [_bounds(table, sorted(again), self.bits) for table in tables]
            for place, number in enumerate(sorted(again)):
                headers, watermarks = (
                    table.take(order[ends[place] : ends[place + 1]])
                    for table, (order, ends) in zip(tables, bounds, strict=True)
                )
                shown = stated_in(headers, watermarks, windows, self.limit, self.bits)
                held[number] = _Held(self._serial, len(headers) + len(watermarks), _has_gaps(headers), shown)
        self.held[bucket] = held
        self._states[bucket] = _Bucket(ledger, set(files))

    def _rows(
        self, ledger: Ledger, files: Iterable[StoredFile], table: str, ranges: Collection[int], *, whole: bool
    ) -> pa.Table:
        schema = HEADERS_SCHEMA if table == "headers" else WATERMARKS_SCHEMA
        found = [schema.empty_table()]
        spans = [(number << self.bits, ((number + 1) << self.bits) - 1) for number in ranges]
        for file in files:
            if file.table == table:
                for rows in [ledger.read(file)] if whole else groups_with_heights(ledger, file, spans):
                    inside = np.isin(segments_of(rows["height"], self.bits), np.array([*ranges], np.uint64))
                    found.append(rows.filter(pa.array(inside)))
        return pa.concat_tables(found).unify_dictionaries().combine_chunks()


def _bounds(rows: pa.Table, ranges: list[int], bits: int) -> tuple[pa.Array, Ints]:
    """Return rows by their ranges, as they stand in each, and where those of each range begin and end."""
    of = segments_of(rows["height"], bits)
    order = np.argsort(of, kind="stable")
    begins = np.searchsorted(of[order], np.array(ranges, np.uint64))
    return pa.array(order), np.append(begins, len(order))


def _has_gaps(headers: pa.Table) -> bool:
    """Return whether between two headers of a chain others are missing."""
    seen = headers.filter(headers["height"].is_valid())
    chain, height = Names().codes(seen["chain"]), seen["height"].to_numpy()
    order = np.lexsort((height, chain))
    chain, height = chain[order], height[order]
    return bool(((chain[1:] == chain[:-1]) & (height[1:] - height[:-1] > 1)).any())


__all__ = ["FollowedStated"]
