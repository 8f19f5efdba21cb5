"""The backlog: what each lane still waits for, how old the oldest of it is, and how far the input shows each chain.

All of it is of the events that the ledger has, whoever delivered the messages, and by the clocks of the data: how old
something is, the latest time says that the input shows of the two chains of its lane.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway.audit.engine import AuditResult
from causeway.core.arrow_types import null_invalid_years, to_python_rows
from causeway.ledger.schema import LANE, LedgerEvent
from causeway.ledger.windows import Lane, LanePromises, ObservedSpans, ObservedWindowTable, row_lane

ANSWERING = frozenset(("answered", "capacity"))
"""Promises with which the source of a lane hears what became of its messages."""


@dataclass(frozen=True)
class LaneBacklog:
    """What a lane waits for.

    ``messages``: those seen; ``open``: sent, and nothing says that they came or will not come; ``unacknowledged``:
    sent, and nothing says that their source is done with them, 0 where that is never said: no acknowledgement was seen,
    and none is promised; ``missing``: indices that the input lacks. ``..._age``: seconds since the oldest such message
    was sent, None where there is none or no time was seen. ``overdue``: for how many seconds the oldest open one was
    final (``final_after``; without that promise: sent) and its destination, as far as the input shows that, went on
    without it; None where the destination was not seen since.
    """

    lane: Lane
    messages: int
    open: int
    unacknowledged: int
    missing: int
    open_age: float | None
    unacknowledged_age: float | None
    overdue: float | None


@dataclass(frozen=True)
class ChainCoverage:
    """How far the input shows a chain.

    ``rows``: of the ledger, on its sides of lanes; ``last_height``, ``last_time``: of a row or window; ``covered``:
    which share of what lies between the first and the last window is in one, the least of its lanes; None: no windows.
    """

    chain: str
    rows: int
    last_height: int | None
    last_time: datetime | None
    covered: float | None


def chain_coverage(audit: AuditResult, observed: pa.Table) -> list[ChainCoverage]:
    """Return how far the input shows each chain, by name. ``observed``: the windows that the input covers."""
    stated = observed.append_column("rows", pa.array(np.zeros(observed.num_rows, np.int64)))
    sides = audit.completeness
    every = pa.concat_tables([each.select(_SHOWN_SCHEMA.names).cast(_SHOWN_SCHEMA) for each in (stated, sides)])
    found = (
        null_invalid_years(every)
        .group_by("chain")
        .aggregate([("last_height", "max"), ("last_time", "max"), ("rows", "sum")])
    )
    shares = _shares(ObservedWindowTable(observed), sides)
    return [
        ChainCoverage(
            *(row["chain"], row["rows_sum"], row["last_height_max"], row["last_time_max"], shares.get(row["chain"]))
        )
        for row in sorted(to_python_rows(found.filter(found["chain"].is_valid())), key=lambda row: row["chain"])
    ]


_SHOWN_SCHEMA = pa.schema(
    [
        *(("chain", pa.string()), ("last_height", pa.uint64())),
        *(("last_time", pa.timestamp("us", "UTC")), ("rows", pa.int64())),
    ]
)


def _shares(windows: ObservedWindowTable, sides: pa.Table) -> dict[str, float]:
    """Return the least share of each chain that is covered, of its lanes."""
    known: dict[int, float | None] = {}  # lanes without windows of their own have the same spans, which stay
    found: dict[str, float] = {}
    columns = (sides[name].to_pylist() for name in (*LANE, "side", "chain"))
    for *lane, side, chain in zip(*columns, strict=True):
        if chain is None:
            continue
        event = LedgerEvent.SENT if side == "source" else LedgerEvent.RECEIVED
        spans = windows.of(chain, tuple(lane), event.value)
        if id(spans) not in known:
            known[id(spans)] = covered_share(spans)
        share = known[id(spans)]
        if share is not None:
            found[chain] = min(share, found.get(chain, share))
    return found


def covered_share(spans: ObservedSpans) -> float | None:
    """Return which share of what lies between the first and the last window is in one: of heights, where there are
    windows in heights, else of time. None: there is no window."""
    firsts, lasts = spans.heights if len(spans.heights[0]) else spans.times
    if not len(firsts):
        return None
    one = int(len(spans.heights[0]) > 0)  # both ends of a window in heights are blocks
    pairs = [*zip(firsts.tolist(), lasts.tolist(), strict=True)]
    whole = pairs[-1][1] - pairs[0][0] + one
    return sum(last - first + one for first, last in pairs) / whole if whole else 1.0


def lane_backlogs(audit: AuditResult, chains: Iterable[ChainCoverage], promised: pa.Table) -> list[LaneBacklog]:
    """Return what each lane waits for, in the order of the table ``lanes``. ``promised``: what lanes promise."""
    promises = LanePromises(promised)
    last = {each.chain: each.last_time for each in chains}
    found = []
    for row in to_python_rows(audit.lanes):
        lane = row_lane(row)
        times = [time for chain in lane[1:3] if chain is not None and (time := last.get(chain)) is not None]
        now = max(times, default=None)
        promise = promises.of(lane)
        said = row["acknowledged"] > 0 or not ANSWERING.isdisjoint(promise)
        there = None if lane[2] is None else last.get(lane[2])
        found.append(
            LaneBacklog(
                lane,
                *(int(row["messages"]), int(row["open"]), int(row["unacknowledged"]) if said else 0),
                *(int(row["missing"]), _age(now, row["oldest_open"])),
                _age(now, row["oldest_unacknowledged"]) if said else None,
                _overdue(there, row["oldest_open"], promise.get("final_after") or 0),
            )
        )
    return found


def count_lanes(audit: AuditResult) -> int:
    """Return how many lanes there are: what never came into one is in none; what several of them lack is in none."""
    missing = audit.lanes["missing"]
    whole = pc.equal(missing, pa.scalar(0, missing.type))  # a plain 0 is an int64, and more than that may be missing
    own = pc.or_(whole, pc.greater(audit.lanes["messages"], 0))
    seen = audit.lanes.filter(own).select(["source", "destination", "lane"])
    return sum(
        any(name is not None for name in names) for names in zip(*(each.to_pylist() for each in seen), strict=True)
    )


def count_one_sided_lanes(audit: AuditResult) -> int:
    """Return of how many lanes only one end was recorded."""
    rows = audit.completeness.filter(pc.field("one_sided"))
    return int(rows.group_by(list(LANE)).aggregate([]).num_rows)


def _age(now: datetime | None, sent: datetime | None) -> float | None:
    return None if now is None or sent is None else max((now - sent).total_seconds(), 0.0)


def _overdue(there: datetime | None, sent: datetime | None, final_after: int) -> float | None:
    """Return for how long what was sent could have come, by the time that the input shows of where it was to come."""
    if there is None or sent is None:
        return None
    seconds = (there - sent).total_seconds() - final_after / 1_000_000
    return seconds if seconds > 0 else None


__all__ = [
    "ChainCoverage",
    "LaneBacklog",
    "chain_coverage",
    "count_lanes",
    "count_one_sided_lanes",
    "covered_share",
    "lane_backlogs",
]
