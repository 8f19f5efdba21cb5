"""Observed windows of each chain, guarantees of lanes, and detection of restarted chains.

Windows of a chain are merged where they touch, so that a check can ask if the input covers an event. A chain has
restarted, as after an upgrade or a relaunch without a new revision, if its latest block is lower than its earliest.
Both blocks are independent of row order, and merge over parts of the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.core.arrow_types import conform_table
from causeway.ledger.encodings import NameCodes, valid_mask
from causeway.ledger.schema import (
    CLOCK_TOLERANCE,
    DECLARED,
    EXPECTED_WITHIN,
    INFERRED,
    LANE,
    MAY_DROP,
    PROMISES_SCHEMA,
    RECEIVED_WITHIN,
    RESTARTED,
    REVISION_SHIFT,
    LedgerEvent,
)

__all__ = ["HeightBounds", "find_restarted_chains", "mark_restarts"]

Lane = tuple[str | None, str | None, str | None, str | None]
Bools = npt.NDArray[np.bool_]
EVERY_CHAIN_OR_LANE: Lane = (None, None, None, None)
PROMISE_COLUMNS = ("promise", "number", "detail")
ARRIVALS = (
    LedgerEvent.RECEIVED,
    LedgerEvent.EXECUTED,
    LedgerEvent.FAILED,
    LedgerEvent.ANSWERED,
    LedgerEvent.REJECTED,
    LedgerEvent.DROPPED,
    LedgerEvent.REDUNDANT,
)
"""Events that show the fate of a message on its destination."""

_MESSAGES = tuple(LedgerEvent)
_MAX_TOLERANCE = 1 << 60
_NO_TIME = int(np.iinfo(np.int64).min)
_GENESIS = 1
"""Height of a chain's first block, unless a window shows block 0. A window from this height on covers all blocks."""


@dataclass(frozen=True)
class ObservedSpans:
    """Merged windows of one chain for one lane and event.

    Attributes:
        heights: First and last heights of the windows, ascending, uint64.
        times: First and last times of the windows, ascending, int64 microseconds.
        all_until: Time up to which everything since genesis is covered, in microseconds, or None.
        genesis: Height of the first block, as far as the windows show it.
    """

    heights: tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]
    times: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
    all_until: int | None
    genesis: int = _GENESIS

    @property
    def count(self) -> int:
        """Number of windows."""
        return max(len(self.heights[0]), len(self.times[0]))

    @property
    def is_one(self) -> bool:
        """True if there is exactly one window in time."""
        return len(self.times[0]) == 1

    def share_height_window(self, first: npt.NDArray[Any], last: npt.NDArray[Any]) -> Bools:
        """Return a mask of pairs of heights that lie in one window."""
        return _share_window(self.heights, first, last)

    def share_time_window(self, first: npt.NDArray[Any], last: npt.NDArray[Any]) -> Bools:
        """Return a mask of pairs of times that lie in one window."""
        return _share_window(self.times, first, last)

    def is_in_last_height_window(self, height: npt.NDArray[Any]) -> Bools:
        """Return a mask of heights in the last window."""
        return _in_last(self.heights, height)

    def is_in_last_time_window(self, time: npt.NDArray[Any]) -> Bools:
        """Return a mask of times in the last window."""
        return _in_last(self.times, time)

    def window_end(self, time: int) -> int | None:
        """Return the last time of the window around a time, or None outside of windows."""
        firsts, lasts = self.times
        at = int(np.searchsorted(firsts, time, side="right")) - 1
        return int(lasts[at]) if at >= 0 and time <= lasts[at] else None

    def ends_of(self, times: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the last time of the window around each time; the minimum int64 outside of windows."""
        firsts, lasts = self.times
        if not len(firsts):
            return np.full(len(times), _NO_TIME)
        at = np.searchsorted(firsts, times, side="right") - 1
        last = lasts[np.maximum(at, 0)]
        return np.where((at >= 0) & (times <= last), last, _NO_TIME)

    def since_genesis(self, height: npt.NDArray[Any]) -> Bools:
        """Return a mask of heights in one window with the chain's first block."""
        firsts, lasts = self.heights
        if not len(firsts) or firsts[0] > self.genesis:
            return np.zeros(len(height), dtype=bool)
        return np.asarray(height <= lasts[0])


def _share_window(spans: tuple[npt.NDArray[Any], npt.NDArray[Any]], first: Any, last: Any) -> Bools:
    firsts, lasts = spans
    if not len(firsts):
        return np.zeros(len(first), dtype=bool)
    low, high = np.minimum(first, last), np.maximum(first, last)
    at = np.searchsorted(firsts, low, side="right") - 1
    return np.asarray((at >= 0) & (high <= lasts[np.maximum(at, 0)]))


def _in_last(spans: tuple[npt.NDArray[Any], npt.NDArray[Any]], values: npt.NDArray[Any]) -> Bools:
    if not len(spans[0]):
        return np.zeros(len(values), dtype=bool)
    return np.asarray((values >= spans[0][-1]) & (values <= spans[1][-1]))


class CoverageEnd(NamedTuple):
    """End of the coverage after each of several times.

    Attributes:
        end: Last covered time, int64 microseconds; the minimum int64 outside of windows.
        to_the_end: Mask: coverage is continuous until the input ends.
        recorded: The input records the chain of the expected event.
        declared: The windows are declared, not inferred.
    """

    end: npt.NDArray[np.int64]
    to_the_end: Bools
    recorded: bool
    declared: bool = False


def _until(spans: Sequence[ObservedSpans], times: npt.NDArray[np.int64]) -> CoverageEnd:
    """Return the end of the joint coverage of several windows."""
    ends = [each.ends_of(times) for each in spans]
    lasts = [each.times[1][-1] if len(each.times[1]) else _NO_TIME for each in spans]
    whole = [(end == last) & (end != _NO_TIME) for end, last in zip(ends, lasts, strict=True)]
    return CoverageEnd(np.minimum.reduce(ends), np.logical_and.reduce(whole), True, declared=True)


class ObservedWindowTable:
    """The ``observed`` table, indexed by chain, lane and event.

    Args:
        observed: Windows that the input covers (``OBSERVED_SCHEMA``).
        end: Last time of any ledger row, in microseconds, or None.

    Attributes:
        last: Last time of any row or declared window, in microseconds, or None.
    """

    def __init__(self, observed: pa.Table, end: int | None = None) -> None:
        self.end = end
        self._of: dict[tuple[str | None, Lane], list[dict[str, Any]]] = {}
        self._from_0: set[str] = set()
        rows = observed.set_column(
            observed.schema.get_field_index("first_time"), "first_time", observed["first_time"].cast(pa.int64())
        )
        rows = rows.set_column(
            rows.schema.get_field_index("last_time"), "last_time", rows["last_time"].cast(pa.int64())
        )
        times = [] if end is None else [end]
        for row in rows.to_pylist():
            if row["how"] == DECLARED and row["last_time"] is not None:
                times.append(row["last_time"])
            if row["first_height"] == 0:
                self._from_0.add(row["chain"])
            # Only a window of the first revision can have a chain's first block.
            row["begins_at"] = None if (row["revision"] or 0) > 1 else row["first_height"]
            if row["revision"]:
                for name in ("first_height", "last_height"):
                    row[name] = None if row[name] is None else row["revision"] << REVISION_SHIFT | row[name]
            self._of.setdefault((row["chain"], row_lane(row)), []).append(row)
        self.last = max(times, default=None)
        self._known: dict[tuple[str | None, Lane, tuple[str, ...], bool], ObservedSpans] = {}

    def of(self, chain: str | None, lane: Lane, event: str, *, closing: bool = False) -> ObservedSpans:
        """Return the windows of a chain that cover an event of a lane.

        Args:
            chain: Name of the chain; None is covered by no window.
            lane: The lane.
            event: The event.
            closing: Count inferred windows without such an event: the input would have recorded it.
        """
        return self._spans_of(chain, lane, (event,), closing=closing)

    def arrivals(self, chain: str | None, lane: Lane) -> ObservedSpans:
        """Return the windows of a chain that cover arrivals of any kind (``ARRIVALS``)."""
        return self._spans_of(chain, lane, ARRIVALS)

    def _spans_of(
        self, chain: str | None, lane: Lane, events: tuple[str, ...], *, closing: bool = False
    ) -> ObservedSpans:
        # Lanes without windows of their own share those of the chain.
        key = (chain, lane if (chain, lane) in self._of else EVERY_CHAIN_OR_LANE, events, closing)
        if key not in self._known:
            self._known[key] = self._spans(*key)
        return self._known[key]

    def replies_until(
        self, chain: str | None, lane: Lane, times: npt.NDArray[np.int64], over_lanes: bool
    ) -> CoverageEnd:
        """Return the end of coverage for replies to requests of a lane.

        With a declared window for replies, or several inferred windows of the chain, it is the end of the window that
        has the sending. Otherwise it is the last time of the chain, or of the ledger.

        Args:
            chain: Chain that sent the requests.
            lane: Lane of the requests.
            times: Send times, int64 microseconds.
            over_lanes: Responses may use other lanes.

        Returns:
            The end of coverage for each request.
        """
        shown_by = [
            (lane, LedgerEvent.ACKNOWLEDGED),
            (lane, LedgerEvent.TIMED_OUT),
            *([(EVERY_CHAIN_OR_LANE, LedgerEvent.RECEIVED)] * over_lanes),
        ]
        if not any(self.declares(chain, of, event) for of, event in shown_by):
            until = self._inferred_until(self._spans_of(chain, lane, _MESSAGES), times)
            return self._until_end(len(times)) if until is None else until
        return _until([self.of(chain, of, event) for of, event in shown_by], times)

    def arrivals_until(self, lane: Lane, times: npt.NDArray[np.int64], limit: int = 0) -> CoverageEnd:
        """Return the end of coverage for arrivals of messages of a lane.

        With a declared window of the destination, it is the end of the window that has the sending, and for time-outs
        also of the source's window. Otherwise windows are inferred from rows. A message sent in an earlier window of
        the destination ends with that window. One sent in the last window, or after it, ends with the source's window
        if that is later. If the destination shows no arrivals, its side may be unrecorded: the source, or else the
        ledger, gives the end.

        Args:
            lane: Lane of the messages.
            times: Send times, int64 microseconds.
            limit: Maximum time of a sending before the first of several windows to count as sent in it, in
                microseconds.

        Returns:
            The end of coverage for each message.
        """
        _, source, destination, _ = lane
        if self.declares(destination, lane, LedgerEvent.RECEIVED):
            shown_by = [(destination, LedgerEvent.RECEIVED)]
            if self.declares(source, lane, LedgerEvent.TIMED_OUT):
                shown_by.append((source, LedgerEvent.TIMED_OUT))
            return _until([self.of(chain, lane, event) for chain, event in shown_by], times)
        there = self._inferred_until(self.arrivals(destination, lane), times, limit)
        here = self._inferred_until(self._spans_of(source, lane, _MESSAGES), times, limit)
        if there is None:
            return self._until_end(len(times)) if here is None else here
        lasts = self.arrivals(destination, lane).times[1]
        if here is not None and len(lasts):
            after = (there.end == _NO_TIME) & (times > lasts[-1])
            end = np.where(there.to_the_end | after, np.maximum(there.end, here.end), there.end)
            there = there._replace(end=end, to_the_end=there.to_the_end | (after & here.to_the_end))
        return there._replace(recorded=True)

    def _inferred_until(self, spans: ObservedSpans, times: npt.NDArray[np.int64], limit: int = 0) -> CoverageEnd | None:
        """Return the end of coverage from inferred windows, or None without recording times.

        With several windows, it is the end of the window around each time; with one, its end.
        """
        firsts, lasts = spans.times
        if not len(firsts):
            unknown = np.full(len(times), _NO_TIME)
            return CoverageEnd(unknown, np.zeros(len(times), bool), False) if len(spans.heights[0]) > 1 else None
        if spans.is_one:
            return CoverageEnd(np.full(len(times), lasts[0]), np.ones(len(times), bool), False)
        ends = spans.ends_of(times)
        early = (times < firsts[0]) & (times >= max(int(firsts[0]) - limit, _NO_TIME))
        ends[early] = lasts[0]
        return CoverageEnd(ends, ends == lasts[-1], False)

    def _until_end(self, count: int) -> CoverageEnd:
        """Return the last time of the ledger as the end of coverage."""
        end = _NO_TIME if self.end is None else self.end
        return CoverageEnd(np.full(count, end), np.ones(count, bool), False)

    def ends(self, lane: Lane) -> tuple[int | None, bool]:
        """Return the inferred deadline reference of a lane.

        Args:
            lane: The lane.

        Returns:
            The last time of the inferred windows in microseconds, or None; and True if its chain has several windows.
        """
        chosen = self.arrivals(lane[2], lane), self._spans_of(lane[1], lane, _MESSAGES)
        known = [spans for spans in chosen if len(spans.times[0])]
        if not known:
            return self.end, False
        return max(int(spans.times[1][-1]) for spans in known), not known[0].is_one

    def declares(self, chain: str | None, lane: Lane, event: str | None = None) -> bool:
        """Return True if a declared window covers an event of a lane.

        Args:
            chain: Name of the chain.
            lane: The lane.
            event: The event; None: any.
        """
        rows = [
            *self._of.get((chain, EVERY_CHAIN_OR_LANE), ()),
            *(self._of.get((chain, lane), ()) if lane != EVERY_CHAIN_OR_LANE else ()),
        ]
        return any(row["how"] == DECLARED and (event is None or _shows(row, event)) for row in rows)

    def _spans(self, chain: str | None, lane: Lane, events: tuple[str, ...], closing: bool) -> ObservedSpans:
        own = self._of.get((chain, lane), []) if lane != EVERY_CHAIN_OR_LANE else []
        every = [*self._of.get((chain, EVERY_CHAIN_OR_LANE), ()), *own] if chain is not None else []
        rows = [row for row in every if _shows(row, *events) or (closing and row["how"] == INFERRED)]
        heights = _merge_spans([(row["first_height"], row["last_height"]) for row in rows], 1)
        times = _merge_spans([(row["first_time"], row["last_time"]) for row in rows] + _between(rows), 0)
        until = None
        genesis = 0 if chain in self._from_0 else _GENESIS
        begun = [row for row in rows if row["begins_at"] is not None and row["begins_at"] <= genesis]
        ends = [row["last_time"] for row in begun if row["last_time"] is not None]
        if ends:
            reached = max(ends)
            until = next((last for first, last in times if first <= reached <= last), reached)
        return ObservedSpans(
            (np.array([a for a, _ in heights], np.uint64), np.array([b for _, b in heights], np.uint64)),
            (np.array([a for a, _ in times], np.int64), np.array([b for _, b in times], np.int64)),
            until,
            genesis,
        )


def _shows(row: dict[str, Any], *events: str) -> bool:
    return row["events"] is None or any(event in row["events"] for event in events)


def _between(rows: Sequence[dict[str, Any]]) -> list[tuple[int, int]]:
    """Merge windows with consecutive blocks into spans of time.

    No block lies between them, so no time between them is uncovered.
    """
    names = ("first_height", "last_height", "first_time", "last_time")
    whole = sorted(ends for row in rows if None not in (ends := tuple(row[name] for name in names)))
    found: list[tuple[int, int, int]] = []
    for first, last, begin, end in whole:
        if first > last or begin > end:
            continue
        if found and first <= found[-1][0] + 1:
            found[-1] = (max(found[-1][0], last), min(found[-1][1], begin), max(found[-1][2], end))
        else:
            found.append((last, begin, end))
    return [(begin, end) for _, begin, end in found]


def _merge_spans(spans: Sequence[tuple[int | None, int | None]], step: int) -> list[tuple[int, int]]:
    """Merge bounded spans that overlap or touch, in order."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted((a, b) for a, b in spans if a is not None and b is not None and a <= b):
        if joined and first <= joined[-1][1] + step:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined


class LanePromises:
    """The ``promises`` table, indexed by lane; the strictest number of each guarantee counts."""

    def __init__(self, promises: pa.Table) -> None:
        self._of: dict[Lane, list[dict[str, Any]]] = {}
        self.rows: list[dict[str, Any]] = promises.to_pylist()
        for row in self.rows:
            self._of.setdefault(row_lane(row), []).append(row)
        # Combinations of non-null names: most guarantees name the whole lane, or nothing.
        self._name_patterns = list(dict.fromkeys(tuple(name is not None for name in names) for names in self._of))
        self._merged: dict[tuple[int, ...], dict[str, int | None]] = {}
        self._known: dict[Lane, dict[str, int | None]] = {}
        self._same: dict[tuple[tuple[str, int | None], ...], dict[str, int | None]] = {}

    def of(self, lane: Lane) -> dict[str, int | None]:
        """Return the guarantees of a lane, with the number of each."""
        found = self._known.get(lane)
        if found is None:
            found = self._found(lane)
            # Lanes with equal guarantees share one object.
            found = self._known[lane] = self._same.setdefault(tuple(found.items()), found)
        return found

    def deadline(self, lane: Lane) -> tuple[int | None, bool]:
        """Return the deadline of a lane.

        Args:
            lane: The lane.

        Returns:
            Microseconds, or None; and True if the deadline is guaranteed, not a default.
        """
        promised = self.of(lane)
        if promised.get(RECEIVED_WITHIN) is not None:
            return promised[RECEIVED_WITHIN], True
        return promised.get(EXPECTED_WITHIN), False

    def restarts(self, chain: str | None) -> bool:
        """Return True if a chain's heights restarted, so that times overrule them."""
        rows = [] if chain is None else self._of.get((None, chain, None, None), ())
        return any(row["promise"] == RESTARTED for row in rows)

    def is_anew(self, lane: Lane) -> bool:
        """Return True if an end of a lane restarted, or any chain if an end is unknown."""
        if None in lane[1:3]:
            return any(row["promise"] == RESTARTED for rows in self._of.values() for row in rows)
        return self.restarts(lane[1]) or self.restarts(lane[2])

    def tolerance(self, chain: str | None) -> int:
        """Return the clock tolerance of a chain in microseconds."""
        rows = [row for lane in ((None, chain, None, None), EVERY_CHAIN_OR_LANE) for row in self._of.get(lane, ())]
        numbers = [row["number"] or 0 for row in rows if row["promise"] == CLOCK_TOLERANCE]
        return min(max(numbers, default=0), _MAX_TOLERANCE)

    def causes(self, lane: Lane) -> frozenset[str]:
        """Return the accepted causes of dropped messages in a lane."""
        found = frozenset[str]()
        for names, rows in self._of.items():
            if all(name in (None, own) for name, own in zip(names, lane, strict=True)):
                found |= {row["detail"] for row in rows if row["promise"] == MAY_DROP and row["detail"] is not None}
        return found

    @cached_property
    def chain_promises(self) -> frozenset[tuple[Any, ...]]:
        """Guarantees that ``of`` omits: clock tolerances, restarts and causes of drops."""
        names = (CLOCK_TOLERANCE, RESTARTED, MAY_DROP)
        return frozenset(
            (*row_lane(row), *map(row.get, PROMISE_COLUMNS)) for row in self.rows if row["promise"] in names
        )

    def _found(self, lane: Lane) -> dict[str, int | None]:
        one, two, three, four = lane
        hits = []
        for a, b, c, d in self._name_patterns:
            rows = self._of.get((one if a else None, two if b else None, three if c else None, four if d else None))
            if rows is not None:
                hits.append(rows)
        key = tuple(map(id, hits))  # safe: ``_of`` keeps the lists alive
        if key not in self._merged:
            self._merged[key] = self._strictest(hits)
        return self._merged[key]

    def _strictest(self, given: Sequence[list[dict[str, Any]]]) -> dict[str, int | None]:
        found: dict[str, int | None] = {}
        for rows in given:
            for row in rows:
                name, number = row["promise"], row["number"]
                known = found.get(name)
                if known is not None and number is not None:
                    number = max(known, number) if name == "final_after" else min(known, number)
                found[name] = known if number is None else number
        return found


def row_lane(row: dict[str, Any]) -> Lane:
    """Return the lane of a row.

    Args:
        row: A row with the names of ``LANE``.
    """
    return row["protocol"], row["source"], row["destination"], row["lane"]


def table_lanes(rows: pa.Table) -> list[Lane]:
    """Return the lane of each row of a table.

    Args:
        rows: A table with the columns of ``LANE``.

    Returns:
        One lane a row.
    """
    return [(a, b, c, d) for a, b, c, d in zip(*(rows[name].to_pylist() for name in LANE), strict=True)]


Block = tuple[int, int]
"""A block: its time in microseconds since 1970, and its height."""

_NOT_OF_A_BLOCK = (LedgerEvent.OBSERVED.value, LedgerEvent.REVERTED.value)
"""Events whose time is not the time of the block at their height."""


class HeightBounds:
    """Earliest and latest block of each chain.

    Args:
        first: Earliest block by chain; the lowest at equal times.
        last: Latest block by chain; the highest at equal times.
    """

    def __init__(self, first: Mapping[str, Block] | None = None, last: Mapping[str, Block] | None = None) -> None:
        self.first, self.last = dict(first or {}), dict(last or {})

    def add(self, rows: pa.Table) -> None:
        """Add rows of the ledger; ignore rows with a revision or without chain, time or height.

        Args:
            rows: Columns ``chain``, ``event``, ``revision``, ``height`` and ``time``.
        """
        names = NameCodes()
        codes = names.codes(rows["chain"])
        usable = (codes >= 0) & (NameCodes(_NOT_OF_A_BLOCK).codes(rows["event"]) >= len(_NOT_OF_A_BLOCK))
        height, time = rows["height"].combine_chunks(), rows["time"].combine_chunks()
        usable &= valid_mask(height) & valid_mask(time) & np.asarray(rows["revision"].is_null())
        times = time.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)[usable]
        heights = height.fill_null(0).to_numpy(zero_copy_only=False)[usable]
        codes = codes[usable]
        if not len(codes):
            return
        earliest = _extremes(np.minimum, codes, times, heights, len(names))
        latest = _extremes(np.maximum, codes, times, heights, len(names))
        seen = np.unique(codes).tolist()
        known = names.known()
        self.merge(HeightBounds({known[at]: earliest[at] for at in seen}, {known[at]: latest[at] for at in seen}))

    def merge(self, other: HeightBounds) -> None:
        """Merge the bounds of other rows."""
        for chain, block in other.first.items():
            self.first[chain] = min(block, self.first.get(chain, block))
        for chain, block in other.last.items():
            self.last[chain] = max(block, self.last.get(chain, block))

    def restarted(self) -> list[str]:
        """Return the restarted chains, ascending."""
        return sorted(chain for chain, block in self.first.items() if self.last[chain][1] < block[1])


def mark_restarts(promises: pa.Table, chains: Iterable[str], stated_by: str) -> pa.Table:
    """Add restarted chains to a table of guarantees.

    Args:
        promises: Guarantees (``PROMISES_SCHEMA``).
        chains: Names of restarted chains.
        stated_by: Reporter of the restarts.

    Returns:
        The extended table.
    """
    rows = [{"source": chain, "promise": RESTARTED, "stated_by": stated_by} for chain in chains]
    if not rows:
        return promises
    return pa.concat_tables([promises, conform_table(pa.Table.from_pylist(rows), PROMISES_SCHEMA, "promises")])


def find_restarted_chains(rows: pa.Table) -> list[str]:
    """Return the chains whose heights restarted without a new revision.

    Args:
        rows: Rows of the ledger: columns ``chain``, ``event``, ``revision``, ``height`` and ``time``.

    Returns:
        Their names, ascending.
    """
    bounds = HeightBounds()
    bounds.add(rows)
    return bounds.restarted()


def _extremes(
    choose: np.ufunc,
    codes: npt.NDArray[np.int32],
    times: npt.NDArray[np.int64],
    heights: npt.NDArray[np.uint64],
    count: int,
) -> list[Block]:
    """Return the extreme time of each code, with the extreme height at that time."""
    time, height = np.zeros(count, np.int64), np.zeros(count, np.uint64)
    time[codes] = times  # a start value of each code
    choose.at(time, codes, times)
    at = times == time[codes]
    height[codes[at]] = heights[at]
    choose.at(height, codes[at], heights[at])
    return list(zip(time.tolist(), height.tolist(), strict=True))
