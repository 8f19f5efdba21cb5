"""What the input covers: the windows of each chain, put together, and promises of lanes.

Chains whose heights began anew with no revision that tells, as after an upgrade or a relaunch.

Two blocks of a chain show it: at the latest time a lower height than at the earliest time. They are the same in
whatever order rows are added, and merge over parts of the rows.
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
    *(
        LedgerEvent.RECEIVED,
        LedgerEvent.EXECUTED,
        LedgerEvent.FAILED,
        LedgerEvent.ANSWERED,
        LedgerEvent.REJECTED,
        LedgerEvent.DROPPED,
        LedgerEvent.REDUNDANT,
    ),
)
"""Events with which a chain shows what becomes of messages that come to it."""

_MESSAGES = tuple(LedgerEvent)
_MAX_TOLERANCE = 1 << 60
_NO_TIME = int(np.iinfo(np.int64).min)
_GENESIS = 1
"""A window that begins at this height or before has all of a chain's blocks, unless another one shows that the chain
has a block 0."""


@dataclass(frozen=True)
class ObservedSpans:
    """Windows of one chain for one lane and event, put together where they touch: firsts and lasts in order.

    ``all_until``: until which time, in microseconds, all since the chain's first block is covered; None: nothing is.
    ``genesis``: the height of that block, as far as windows show it.
    """

    heights: tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]
    times: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
    all_until: int | None
    genesis: int = _GENESIS

    @property
    def count(self) -> int:
        """Return how many windows there are."""
        return max(len(self.heights[0]), len(self.times[0]))

    @property
    def is_one(self) -> bool:
        """Return whether there is one window in times."""
        return len(self.times[0]) == 1

    def share_height_window(self, first: npt.NDArray[Any], last: npt.NDArray[Any]) -> Bools:
        """Return whether one window has both heights."""
        return _together(self.heights, first, last)

    def share_time_window(self, first: npt.NDArray[Any], last: npt.NDArray[Any]) -> Bools:
        """Return whether one window has both times."""
        return _together(self.times, first, last)

    def is_in_last_height_window(self, height: npt.NDArray[Any]) -> Bools:
        """Return whether the last window in heights has each height."""
        return _in_last(self.heights, height)

    def is_in_last_time_window(self, time: npt.NDArray[Any]) -> Bools:
        """Return whether the last window in times has each time."""
        return _in_last(self.times, time)

    def window_end(self, time: int) -> int | None:
        """Return the last time of the window that a time is in, None if it is in none."""
        firsts, lasts = self.times
        at = int(np.searchsorted(firsts, time, side="right")) - 1
        return int(lasts[at]) if at >= 0 and time <= lasts[at] else None

    def ends_of(self, times: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the last time of the window that each time is in, the least number where it is in none."""
        firsts, lasts = self.times
        if not len(firsts):
            return np.full(len(times), _NO_TIME)
        at = np.searchsorted(firsts, times, side="right") - 1
        last = lasts[np.maximum(at, 0)]
        return np.where((at >= 0) & (times <= last), last, _NO_TIME)

    def since_genesis(self, height: npt.NDArray[Any]) -> Bools:
        """Return whether one window has a height and the chain's first block."""
        firsts, lasts = self.heights
        if not len(firsts) or firsts[0] > self.genesis:
            return np.zeros(len(height), dtype=bool)
        return np.asarray(height <= lasts[0])


def _together(spans: tuple[npt.NDArray[Any], npt.NDArray[Any]], first: Any, last: Any) -> Bools:
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
    """Until which time the input would show something, of each of some times.

    Attributes:
        end: int64, in microseconds; the least number: no window has the time.
        to_the_end: whether the windows have all from then on until they end.
        recorded: whether the input shows the chain where it would happen.
        declared: whether the windows are declared.
    """

    end: npt.NDArray[np.int64]
    to_the_end: Bools
    recorded: bool
    declared: bool = False


def _until(spans: Sequence[ObservedSpans], times: npt.NDArray[np.int64]) -> CoverageEnd:
    """Return until which time all of some windows go on."""
    ends = [each.ends_of(times) for each in spans]
    lasts = [each.times[1][-1] if len(each.times[1]) else _NO_TIME for each in spans]
    whole = [(end == last) & (end != _NO_TIME) for end, last in zip(ends, lasts, strict=True)]
    return CoverageEnd(np.minimum.reduce(ends), np.logical_and.reduce(whole), True, declared=True)


class ObservedWindowTable:
    """The ``observed`` table, asked by chain, lane and event.

    Args:
        observed: windows that the input covers (``OBSERVED_SCHEMA``).
        end: the last time of any row of the ledger, in microseconds; None: no row has a time.

    Attributes:
        last: the last time of any row or declared window, in microseconds; None: nothing has a time.
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
            # The first block of a chain is one of its first revision.
            row["begins_at"] = None if (row["revision"] or 0) > 1 else row["first_height"]
            if row["revision"]:
                for name in ("first_height", "last_height"):
                    row[name] = None if row[name] is None else row["revision"] << REVISION_SHIFT | row[name]
            self._of.setdefault((row["chain"], row_lane(row)), []).append(row)
        self.last = max(times, default=None)
        self._known: dict[tuple[str | None, Lane, tuple[str, ...], bool], ObservedSpans] = {}

    def of(self, chain: str | None, lane: Lane, event: str, *, closing: bool = False) -> ObservedSpans:
        """Return the windows of a chain that have a lane's event; none of a chain that was not seen.

        Args:
            chain, lane, event: of which event of which lane, on which chain.
            closing: whether inferred windows count that have no such event: the input had it if it had happened.
        """
        return self._spans_of(chain, lane, (event,), closing=closing)

    def arrivals(self, chain: str | None, lane: Lane) -> ObservedSpans:
        """Return the windows of a chain that show arrivals of any kind (``ARRIVALS``)."""
        return self._spans_of(chain, lane, ARRIVALS)

    def _spans_of(
        self, chain: str | None, lane: Lane, events: tuple[str, ...], *, closing: bool = False
    ) -> ObservedSpans:
        # Where no window is the lane's own, all lanes of the chain have the same.
        key = (chain, lane if (chain, lane) in self._of else EVERY_CHAIN_OR_LANE, events, closing)
        if key not in self._known:
            self._known[key] = self._spans(*key)
        return self._known[key]

    def replies_until(
        self, chain: str | None, lane: Lane, times: npt.NDArray[np.int64], over_lanes: bool
    ) -> CoverageEnd:
        """Return until which time the input would show replies to requests of a lane, that a chain sent at some times.

        Where a window is declared that has replies, or the rows show several windows of the chain, it is the end of the
        one that has the sending; else the last time that the input has of the chain, or of the ledger.

        Args:
            chain, lane, times: of requests.
            over_lanes: whether responses may come over other lanes.
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
        """Return until which time the input would show the arrivals of messages of a lane.

        Where a window of the destination is declared, it is the end of the one that has the sending, and of that of the
        source for time-outs, if there is one. Else the rows show windows. A message sent in the last one of the
        destination, or after it, is judged at the end of the window of the source that has the sending, if that is
        later; one sent in an earlier one at the end of that. Where the destination shows no arrivals at all, its side
        may not have been recorded, and the source, or else the ledger, says when the input ends.

        Args:
            lane: of messages.
            times: when they were sent, in microseconds.
            limit: by how many microseconds a message may be sent before the first of several windows and count as sent
                in it.
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
        """Return until which time a chain would show what follows some times: of several windows to the end of the one
        that has each, of one to its end. None: nothing says when it was recorded."""
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
        """Return until the last time of the ledger."""
        end = _NO_TIME if self.end is None else self.end
        return CoverageEnd(np.full(count, end), np.ones(count, bool), False)

    def ends(self, lane: Lane) -> tuple[int | None, bool]:
        """Return the last time by which messages of a lane without declared windows are judged, None: nothing has a
        time; and whether the rows show several windows of that chain."""
        chosen = self.arrivals(lane[2], lane), self._spans_of(lane[1], lane, _MESSAGES)
        known = [spans for spans in chosen if len(spans.times[0])]
        if not known:
            return self.end, False
        return max(int(spans.times[1][-1]) for spans in known), not known[0].is_one

    def declares(self, chain: str | None, lane: Lane, event: str | None = None) -> bool:
        """Return whether a window that was declared, not inferred, has a lane's event; None: any."""
        rows = [
            *self._of.get((chain, EVERY_CHAIN_OR_LANE), ()),
            *(self._of.get((chain, lane), ()) if lane != EVERY_CHAIN_OR_LANE else ()),
        ]
        return any(row["how"] == DECLARED and (event is None or _shows(row, event)) for row in rows)

    def _spans(self, chain: str | None, lane: Lane, events: tuple[str, ...], closing: bool) -> ObservedSpans:
        own = self._of.get((chain, lane), []) if lane != EVERY_CHAIN_OR_LANE else []
        every = [*self._of.get((chain, EVERY_CHAIN_OR_LANE), ()), *own] if chain is not None else []
        rows = [row for row in every if _shows(row, *events) or (closing and row["how"] == INFERRED)]
        heights = _joined([(row["first_height"], row["last_height"]) for row in rows], 1)
        times = _joined([(row["first_time"], row["last_time"]) for row in rows] + _between(rows), 0)
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
    """Return in times what windows cover together whose blocks follow each other, one behind the other: there is no
    block between them, and so no time in which one is missing."""
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


def _joined(spans: Sequence[tuple[int | None, int | None]], step: int) -> list[tuple[int, int]]:
    """Return spans whose two ends are known, in order, as one where they overlap or touch."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted((a, b) for a, b in spans if a is not None and b is not None and a <= b):
        if joined and first <= joined[-1][1] + step:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined


class LanePromises:
    """The ``promises`` table, asked by lane: of several numbers of one promise the strictest counts."""

    def __init__(self, promises: pa.Table) -> None:
        self._of: dict[Lane, list[dict[str, Any]]] = {}
        self.rows: list[dict[str, Any]] = promises.to_pylist()
        for row in self.rows:
            self._of.setdefault(row_lane(row), []).append(row)
        # Which of the four names promises give: most name the whole lane, or none.
        self._given = list(dict.fromkeys(tuple(name is not None for name in names) for names in self._of))
        self._together: dict[tuple[int, ...], dict[str, int | None]] = {}
        self._known: dict[Lane, dict[str, int | None]] = {}
        self._same: dict[tuple[tuple[str, int | None], ...], dict[str, int | None]] = {}

    def of(self, lane: Lane) -> dict[str, int | None]:
        """Return what a lane promises, with the number of each."""
        found = self._known.get(lane)
        if found is None:
            found = self._found(lane)
            # Many lanes promise the same, and are told the same object.
            found = self._known[lane] = self._same.setdefault(tuple(found.items()), found)
        return found

    def deadline(self, lane: Lane) -> tuple[int | None, bool]:
        """Return within how many microseconds messages of a lane arrive, None without a deadline, and whether that is
        promised, not a default."""
        promised = self.of(lane)
        if promised.get(RECEIVED_WITHIN) is not None:
            return promised[RECEIVED_WITHIN], True
        return promised.get(EXPECTED_WITHIN), False

    def restarts(self, chain: str | None) -> bool:
        """Return whether the heights of a chain began anew, so that they say nothing where times contradict them."""
        rows = [] if chain is None else self._of.get((None, chain, None, None), ())
        return any(row["promise"] == RESTARTED for row in rows)

    def is_anew(self, lane: Lane) -> bool:
        """Return whether heights of a chain at an end of a lane began anew, or those of any where the end is unseen."""
        if None in lane[1:3]:
            return any(row["promise"] == RESTARTED for rows in self._of.values() for row in rows)
        return self.restarts(lane[1]) or self.restarts(lane[2])

    def tolerance(self, chain: str | None) -> int:
        """Return by how many microseconds the clock of a chain may be wrong."""
        rows = [row for lane in ((None, chain, None, None), EVERY_CHAIN_OR_LANE) for row in self._of.get(lane, ())]
        numbers = [row["number"] or 0 for row in rows if row["promise"] == CLOCK_TOLERANCE]
        return min(max(numbers, default=0), _MAX_TOLERANCE)

    def causes(self, lane: Lane) -> frozenset[str]:
        """Return the causes for which the protocol of a lane drops messages."""
        found = frozenset[str]()
        for names, rows in self._of.items():
            if all(name in (None, own) for name, own in zip(names, lane, strict=True)):
                found |= {row["detail"] for row in rows if row["promise"] == MAY_DROP and row["detail"] is not None}
        return found

    @cached_property
    def chain_promises(self) -> frozenset[tuple[Any, ...]]:
        """What ``of`` does not tell: which clocks may be wrong, which heights began anew, what may be dropped."""
        names = (CLOCK_TOLERANCE, RESTARTED, MAY_DROP)
        return frozenset(
            (*row_lane(row), *map(row.get, PROMISE_COLUMNS)) for row in self.rows if row["promise"] in names
        )

    def _found(self, lane: Lane) -> dict[str, int | None]:
        one, two, three, four = lane
        hits = []
        for a, b, c, d in self._given:
            rows = self._of.get((one if a else None, two if b else None, three if c else None, four if d else None))
            if rows is not None:
                hits.append(rows)
        key = tuple(map(id, hits))  # the lists stay
        if key not in self._together:
            self._together[key] = self._strictest(hits)
        return self._together[key]

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
    """Return the lane that a row names."""
    return row["protocol"], row["source"], row["destination"], row["lane"]


def table_lanes(rows: pa.Table) -> list[Lane]:
    """Return the lane of each row of a table."""
    return [(a, b, c, d) for a, b, c, d in zip(*(rows[name].to_pylist() for name in LANE), strict=True)]


Block = tuple[int, int]
"""A block: its time in microseconds since 1970, and its height."""

_NOT_OF_A_BLOCK = (LedgerEvent.OBSERVED.value, LedgerEvent.REVERTED.value)
"""Events whose time is not that of the block at their height."""


class HeightBounds:
    """The earliest and the latest block of each chain.

    Args:
        first: The earliest block by chain; of several at one time the lowest.
        last: The latest block by chain; of several at one time the highest.
    """

    def __init__(self, first: Mapping[str, Block] | None = None, last: Mapping[str, Block] | None = None) -> None:
        self.first, self.last = dict(first or {}), dict(last or {})

    def add(self, rows: pa.Table) -> None:
        """Add rows of the ledger; those without chain, time or height, or with a revision, show nothing.

        Args:
            rows: Columns ``chain``, ``event``, ``revision``, ``height`` and ``time``.
        """
        names = NameCodes()
        codes = names.codes(rows["chain"])
        shown = (codes >= 0) & (NameCodes(_NOT_OF_A_BLOCK).codes(rows["event"]) >= len(_NOT_OF_A_BLOCK))
        height, time = rows["height"].combine_chunks(), rows["time"].combine_chunks()
        shown &= valid_mask(height) & valid_mask(time) & np.asarray(rows["revision"].is_null())
        times = time.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)[shown]
        heights = height.fill_null(0).to_numpy(zero_copy_only=False)[shown]
        codes = codes[shown]
        if not len(codes):
            return
        earliest = _extremes(np.minimum, codes, times, heights, len(names))
        latest = _extremes(np.maximum, codes, times, heights, len(names))
        seen = np.unique(codes).tolist()
        known = names.known()
        self.merge(HeightBounds({known[at]: earliest[at] for at in seen}, {known[at]: latest[at] for at in seen}))

    def merge(self, other: HeightBounds) -> None:
        """Add the blocks of other rows."""
        for chain, block in other.first.items():
            self.first[chain] = min(block, self.first.get(chain, block))
        for chain, block in other.last.items():
            self.last[chain] = max(block, self.last.get(chain, block))

    def restarted(self) -> list[str]:
        """Return the chains whose heights began anew, ascending."""
        return sorted(chain for chain, block in self.first.items() if self.last[chain][1] < block[1])


def mark_restarts(promises: pa.Table, chains: Iterable[str], stated_by: str) -> pa.Table:
    """Return what lanes promise, and that the heights of some chains began anew.

    Args:
        promises: ``PROMISES_SCHEMA``.
        chains: As of ``HeightBounds.restarted``.
        stated_by: Whose statement that is.
    """
    rows = [{"source": chain, "promise": RESTARTED, "stated_by": stated_by} for chain in chains]
    if not rows:
        return promises
    return pa.concat_tables([promises, conform_table(pa.Table.from_pylist(rows), PROMISES_SCHEMA, "promises")])


def find_restarted_chains(rows: pa.Table) -> list[str]:
    """Return the chains whose heights began anew with no revision that tells.

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
    """Return by code the least or greatest time, and of the rows at that time the least or greatest height."""
    time, height = np.zeros(count, np.int64), np.zeros(count, np.uint64)
    time[codes] = times  # any row of each
    choose.at(time, codes, times)
    at = times == time[codes]
    height[codes[at]] = heights[at]
    choose.at(height, codes[at], heights[at])
    return list(zip(time.tolist(), height.tolist(), strict=True))
