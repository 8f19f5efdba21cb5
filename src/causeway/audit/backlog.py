"""The backlog of lanes: pending messages and their age, and the coverage of chains.

All figures derive from ledger events and the clocks of the data. The present is the latest known time of the two chains
of a lane.
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
"""Guarantees that report the end of messages to the source of a lane."""


@dataclass(frozen=True)
class LaneBacklog:
    """Pending messages of a lane.

    Attributes:
        lane: The lane.
        messages: Number of messages.
        open: Number of sent messages without any final event.
        unacknowledged: Number of sent messages that their source is not done with. 0 where that is never reported:
            without any acknowledgement or guarantee of one.
        missing: Number of missing indices.
        open_age: Age of the oldest open message in seconds, or None.
        unacknowledged_age: Age of the oldest unacknowledged message in seconds, or None.
        overdue: Time in seconds that the destination advanced without the oldest open message after it was final
            (``final_after``; otherwise sent); None if the destination was not seen since.
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
    """Coverage of a chain.

    Attributes:
        chain: Name of the chain.
        rows: Number of ledger rows on its sides of lanes.
        last_height: Last height of a row or window, or None.
        last_time: Last time of a row or window, or None.
        covered: Share covered by windows between the first and the last one, the least of its lanes; None: no windows.
    """

    chain: str
    rows: int
    last_height: int | None
    last_time: datetime | None
    covered: float | None


def chain_coverage(audit: AuditResult, observed: pa.Table) -> list[ChainCoverage]:
    """Return the coverage of each chain, by name.

    Args:
        audit: Result of an audit.
        observed: Windows that the input covers.

    Returns:
        One entry a chain.
    """
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
    """Return the least covered share of each chain over its lanes."""
    known: dict[int, float | None] = {}  # by id: lanes without windows of their own share one object
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
    """Return the covered share of heights if possible, else of time; None: no windows.

    Args:
        spans: Windows of one chain for one lane and event.

    Returns:
        Share of the range from the first window to the last one, from 0 to 1.
    """
    firsts, lasts = spans.heights if len(spans.heights[0]) else spans.times
    if not len(firsts):
        return None
    one = int(len(spans.heights[0]) > 0)  # both ends of a window in heights are blocks
    pairs = [*zip(firsts.tolist(), lasts.tolist(), strict=True)]
    whole = pairs[-1][1] - pairs[0][0] + one
    return sum(last - first + one for first, last in pairs) / whole if whole else 1.0


def lane_backlogs(audit: AuditResult, chains: Iterable[ChainCoverage], promised: pa.Table) -> list[LaneBacklog]:
    """Return the backlog of each lane, in the order of the table ``lanes``.

    Args:
        audit: Result of an audit.
        chains: Coverage of chains.
        promised: Guarantees of lanes (``PROMISES_SCHEMA``).

    Returns:
        One entry a lane.
    """
    promises = LanePromises(promised)
    last = {each.chain: each.last_time for each in chains}
    found = []
    for row in to_python_rows(audit.lanes):
        lane = row_lane(row)
        times = [time for chain in lane[1:3] if chain is not None and (time := last.get(chain)) is not None]
        now = max(times, default=None)
        promise = promises.of(lane)
        is_reported = row["acknowledged"] > 0 or not ANSWERING.isdisjoint(promise)
        destination_time = None if lane[2] is None else last.get(lane[2])
        found.append(
            LaneBacklog(
                lane,
                *(int(row["messages"]), int(row["open"]), int(row["unacknowledged"]) if is_reported else 0),
                *(int(row["missing"]), _age(now, row["oldest_open"])),
                _age(now, row["oldest_unacknowledged"]) if is_reported else None,
                _overdue(destination_time, row["oldest_open"], promise.get("final_after") or 0),
            )
        )
    return found


def count_lanes(audit: AuditResult) -> int:
    """Count the lanes; messages outside of lanes and gaps of shared numbers do not count.

    Args:
        audit: Result of an audit.
    """
    missing = audit.lanes["missing"]
    whole = pc.equal(missing, pa.scalar(0, missing.type))  # typed: an int64 zero would overflow the comparison
    own = pc.or_(whole, pc.greater(audit.lanes["messages"], 0))
    seen = audit.lanes.filter(own).select(["source", "destination", "lane"])
    return sum(
        any(name is not None for name in names) for names in zip(*(each.to_pylist() for each in seen), strict=True)
    )


def count_one_sided_lanes(audit: AuditResult) -> int:
    """Count the lanes with only one recorded end.

    Args:
        audit: Result of an audit.
    """
    rows = audit.completeness.filter(pc.field("one_sided"))
    return int(rows.group_by(list(LANE)).aggregate([]).num_rows)


def _age(now: datetime | None, sent: datetime | None) -> float | None:
    return None if now is None or sent is None else max((now - sent).total_seconds(), 0.0)


def _overdue(destination_time: datetime | None, sent: datetime | None, final_after: int) -> float | None:
    """Return the time since finality that the destination advanced, in seconds, or None."""
    if destination_time is None or sent is None:
        return None
    seconds = (destination_time - sent).total_seconds() - final_after / 1_000_000
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
