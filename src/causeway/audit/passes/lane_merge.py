"""Merge the pieces of each lane across runs: gaps, skipped messages, and order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from causeway.audit.arrays import MAX_DELAY, MIN_DELAY, Ints
from causeway.audit.bucket import ENDED_AT_DESTINATION, ORDERED
from causeway.audit.checks.lane_order import RAISING, EventTriple, PieceKey, PrecedingPositions, overdue_mask
from causeway.audit.columns import NO_HEIGHT, NO_TIME
from causeway.audit.findings import UNKNOWN, VIOLATED, VIOLATIONS_SCHEMA, to_findings_table
from causeway.audit.lane_context import LaneContext, SentEnds
from causeway.ledger.row_order import number_lanes
from causeway.ledger.schema import LANE, LedgerEvent
from causeway.ledger.windows import Lane, ObservedSpans


class MergedLanes(NamedTuple):
    """Result of the merge.

    Attributes:
        findings: Gaps and skipped messages between pieces.
        missing: By lane: messages missing between pieces, the number of gaps, and of gaps inside a window.
        sent: First and last sent index by lane.
        before: Positions before each piece, if any.
        behind: By row of the table of pieces: the lane, and the number of messages out of order only because of earlier
            pieces, each for sent, received and acknowledged.
        again: Rows of the table of pieces whose order needs a second pass.
    """

    findings: pa.Table
    missing: dict[Lane, tuple[int, int, int]]
    sent: dict[Lane, SentEnds]
    before: dict[PieceKey, PrecedingPositions]
    behind: dict[int, tuple[Lane, EventTriple]]
    again: list[int]


def merge_lanes(pieces: pa.Table, known: LaneContext) -> MergedLanes:
    """Merge the pieces of all buckets.

    Args:
        pieces: Summaries of pieces (``LaneScan.summary``), in any order.
        known: Windows and guarantees.

    Returns:
        The merged lanes.
    """
    lists = [name for name in pieces.column_names if name.startswith("raising_")]
    narrow, raising = pieces.drop_columns(lists).combine_chunks(), pieces.select(lists).combine_chunks()
    names, codes = number_lanes(pieces)
    order = np.lexsort((pieces["first"].to_numpy(), codes))
    bounds = np.searchsorted(codes[order], np.arange(len(names) + 1))
    single = np.diff(bounds) == 1
    no_skips = (pieces["lead_count"].to_numpy() == 0) | np.asarray(pieces["first_received_index"].is_null())
    single &= no_skips[order[bounds[:-1]]]
    ends = [pieces[f"{name}_sent_{part}"].to_pylist() for name, part in _ENDS]
    joined = MergedLanes(to_findings_table(None), {}, {}, {}, {}, [])
    found: list[dict[str, Any]] = []
    others = _iterate_rows(narrow, order[np.repeat(~single, np.diff(bounds))])
    for number, lane in enumerate(names):
        own: Lane = (lane[0], lane[1], lane[2], lane[3])
        rows = order[bounds[number] : bounds[number + 1]].tolist()
        if not single[number]:
            found += _merge_lane(own, list(islice(others, len(rows))), rows, known, joined, raising)
            continue
        first, last, time = (column[rows[0]] for column in ends)
        if first is not None:
            joined.sent[own] = SentEnds(first, last, int(NO_TIME) if time is None else time)
    content = {name: pa.array([row.get(name) for row in found], VIOLATIONS_SCHEMA.field(name).type) for name in _NAMES}
    return joined._replace(findings=to_findings_table(content))


_NAMES = VIOLATIONS_SCHEMA.names[:-1]


_ENDS = (("first", "index"), ("last", "index"), ("last", "time"))


def _iterate_rows(table: pa.Table, positions: Ints) -> Iterator[dict[str, Any]]:
    """Yield rows of a table, with a bounded number in memory."""
    for begin in range(0, len(positions), _AT_ONCE):
        yield from table.take(pa.array(positions[begin : begin + _AT_ONCE])).to_pylist()


_AT_ONCE = 1 << 14


def _merge_lane(
    lane: Lane,
    pieces: list[dict[str, Any]],
    rows: list[int],
    known: LaneContext,
    joined: MergedLanes,
    raising: pa.Table,
) -> Iterator[dict[str, Any]]:
    """Yield the findings between the ordered pieces of one lane."""
    promised = known.promises.of(lane)
    last_sent: dict[str, Any] | None = None
    last_received: dict[str, Any] | None = None
    first_open: dict[str, Any] | None = None
    open_count, until = 0, int(NO_TIME)
    missing = [0, 0, 0]
    unseen, never = (int(NO_HEIGHT),) * 3, (int(MIN_DELAY),) * 3
    top = PrecedingPositions((0, 0, 0), unseen, (int(NO_TIME),) * 3, (0, 0, 0), never, (0, 0, 0), never)
    latest, before_pieces = int(MIN_DELAY), []
    for row, piece in zip(rows, pieces, strict=True):
        key = (lane, piece["first"])
        if any(top.has_height) or any(time > MIN_DELAY for time in top.time):
            joined.before[key] = top
            behind = _count_behind(top, piece, raising, row, known.promises.is_anew(lane))
            if behind is None or any(
                open_count and name in promised for open_count, name in zip(behind, ORDERED, strict=True)
            ):
                joined.again.append(row)
            elif any(behind):
                joined.behind[row] = lane, behind
        top = _advance(top, piece)
        before_pieces.append((piece["first"], latest))
        latest = max(latest, piece["latest_sent"])
        ends = _end(piece, "first_sent"), _end(piece, "last_sent")
        if ends[0] is not None and ends[1] is not None:
            if last_sent is not None and ends[0]["index"] - last_sent["index"] > 1 and "numbered" in promised:
                inside = _share_window(known, lane, last_sent, ends[0], LedgerEvent.SENT)
                size = ends[0]["index"] - last_sent["index"] - 1
                missing = [missing[0] + size, missing[1] + 1, missing[2] + inside]
                reason = "missing_inside_window" if inside else "missing_outside_windows"
                yield _gap(lane, UNKNOWN, reason, last_sent["index"] + 1, size)
            last_sent = ends[1]
            before = joined.sent.get(lane)
            time = int(NO_TIME) if ends[1]["time"] is None else ends[1]["time"]
            joined.sent[lane] = SentEnds(before.first if before else ends[0]["index"], ends[1]["index"], time)
        if piece["lead_count"]:
            first_open = first_open or _end(piece, "lead")
            open_count, until = open_count + piece["lead_count"], min(until, piece["lead_until"])
        received = _end(piece, "first_received")
        if received is not None:
            if open_count and first_open is not None and "ordered_receives" in promised:
                received_at = received["time"]
                covered = until == int(MAX_DELAY) or (received_at is not None and int(MIN_DELAY) < until >= received_at)
                covered &= all(
                    _share_window(known, lane, last_received, received, event, closing=True)
                    for event in ENDED_AT_DESTINATION
                )
                sent_at = int(NO_TIME) if first_open["time"] is None else first_open["time"]
                covered |= bool(overdue_mask(known, lane, np.array([sent_at]))[0])
                reason = "skipped" if covered else "skipped_not_covered"
                yield _gap(lane, VIOLATED if covered else UNKNOWN, reason, first_open["index"], open_count)
            last_received = _end(piece, "last_received")
            first_open = _end(piece, "tail")
            open_count, until = piece["tail_count"], piece["tail_until"]
    if lane in joined.sent:
        joined.sent[lane] = joined.sent[lane]._replace(before=tuple(before_pieces))
    if missing[1]:
        joined.missing[lane] = (missing[0], missing[1], missing[2])


def _gap(lane: Lane, verdict: str, reason: str, index: int, size: int) -> dict[str, Any]:
    found = {"check": "gaps", "verdict": verdict, "reason": reason, **dict(zip(LANE, lane, strict=True))}
    return {**found, "index": index, "magnitude": float(size), "size": str(size), "unit": "messages"}


def _end(piece: dict[str, Any], name: str) -> dict[str, Any] | None:
    if piece[f"{name}_index"] is None:
        return None
    return {part: piece[f"{name}_{part}"] for part in ("index", "chain", "height", "time")}


def _share_window(
    known: LaneContext,
    lane: Lane,
    one: dict[str, Any] | None,
    other: dict[str, Any],
    event: LedgerEvent,
    *,
    closing: bool = False,
) -> bool:
    """Return True if one window has both rows, or with one row only the genesis and that row."""
    spans: ObservedSpans = known.windows.of(other["chain"], lane, event.value, closing=closing)
    if one is None:
        return other["height"] is not None and bool(spans.since_genesis(np.array([other["height"]], np.uint64))[0])
    if one["chain"] != other["chain"]:
        return False
    if one["height"] is not None and other["height"] is not None:
        heights = (np.array([row["height"]], np.uint64) for row in (one, other))
        if spans.share_height_window(*heights)[0]:
            return True
    if one["time"] is not None and other["time"] is not None:
        return bool(spans.share_time_window(np.array([one["time"]]), np.array([other["time"]]))[0])
    return False


def _count_behind(
    top: PrecedingPositions, piece: dict[str, Any], raising: pa.Table, row: int, anew: bool
) -> EventTriple | None:
    """Count the messages of a piece, ordered among themselves, that are behind earlier pieces.

    The counts are for sent, received and acknowledged. None means that the stored rows do not decide it, as on
    restarted chains.
    """
    found = []
    for number, promise in enumerate(ORDERED):
        high, position, has = top.height[number], top.position[number], top.has_height[number]
        late, unseen, behind_count = top.time[number], int(NO_HEIGHT), 0
        open_height = bool(has) and piece[f"least_{promise}"] <= high
        open_time = piece[f"least_time_{promise}"] < late
        if not open_height and not open_time:
            found.append(0)
            continue
        if anew:
            return None
        rows = [raising[f"raising_{name}_{promise}"][row].as_py() for name in ("height", "position", "time")]
        for at, place, time in zip(*rows, strict=True):
            if at != unseen:
                if not has or at > high:
                    has, high, position, open_height = 1, at, place, False
                elif at < high:
                    behind_count += 1
                elif place != unseen:
                    behind_count += position != unseen and place < position
                    position = place if position == unseen else max(position, place)
            elif time < late:
                behind_count += 1
            else:
                late, open_time = time, False
        if (open_height or open_time) and len(rows[0]) in (0, RAISING):
            return None
        found.append(behind_count)
    return _three(found)


def _advance(top: PrecedingPositions, piece: dict[str, Any]) -> PrecedingPositions:
    """Return the last positions after a piece."""
    heights, has, lasts, times = [], [], [], []
    for number, promise in enumerate(ORDERED):
        before = (top.height[number], top.position[number], top.height_at[number])
        own = tuple(piece[f"{name}_{promise}"] for name in ("top", "top_position", "top_at"))
        own_seen, before_seen = bool(piece[f"has_top_{promise}"]), bool(top.has_height[number])
        heights.append(_highest([each for each, seen in ((before, before_seen), (own, own_seen)) if seen]))
        has.append(int(before_seen or own_seen))
        last = piece[f"last_at_{promise}"], piece[f"last_{promise}"]
        lasts.append(max((top.last_at[number], top.last[number]), last))
        times.append(max(top.time[number], piece[f"top_time_{promise}"]))
    height, position, height_at = (_three([each[part] for each in heights]) for part in range(3))
    last_at, last_height = (_three([each[part] for each in lasts]) for part in range(2))
    return PrecedingPositions(height, position, height_at, _three(has), last_at, last_height, _three(times))


def _highest(places: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the greatest height with its last known position, and the time of that row."""
    if not places:
        return (0, int(NO_HEIGHT), int(NO_TIME))
    top = max(height for height, _, _ in places)
    found = [place for place in places if place[0] == top]
    # An unknown position sorts first, and of equal ones the first row wins.
    return max(found, key=lambda place: -1 if place[1] == int(NO_HEIGHT) else place[1])


def _three(values: list[int]) -> EventTriple:
    one, two, three = values
    return one, two, three
