"""Findings of cross-bucket joins.

Candidates are row numbers first; only named rows are read afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from causeway_proofs.order import group_rows

from causeway.audit.arrays import MICROSECONDS, Array, select_top_findings
from causeway.audit.checks import back_pressure
from causeway.audit.findings import NOTED, UNKNOWN, VIOLATED, to_findings_table
from causeway.audit.passes.bucket_pass import EVENT_COLUMNS, MESSAGE_COLUMNS
from causeway.ledger.schema import LANE
from causeway.ledger.windows import Lane

REASONS = (
    ("exactly_once", VIOLATED, "answered_twice", None),
    ("answers", VIOLATED, "late", MICROSECONDS),
    ("answers", UNKNOWN, "time_unseen", None),
    ("answers", VIOLATED, "unanswered", MICROSECONDS),
    ("answers", UNKNOWN, "open", None),
    ("answers", NOTED, "pending", None),
    ("answers_without_request", VIOLATED, "no_request", None),
    ("answers_without_request", UNKNOWN, "request_not_covered", None),
    (back_pressure.CHECK, VIOLATED, back_pressure.OVER, "messages"),
    (back_pressure.CHECK, UNKNOWN, back_pressure.UNCOVERED, "messages"),
    (back_pressure.CHECK, UNKNOWN, back_pressure.UNPLACED, None),
)
"""Findings of joins: check, verdict, reason, unit of the magnitude."""

CANDIDATES_SCHEMA = pa.schema(
    [
        *(("reason", pa.int16()), ("lane", pa.int32()), ("bucket", pa.int32()), ("row", pa.int64())),
        *(("index", pa.uint64()), ("indexed", pa.uint8()), ("own_0", pa.uint64()), ("own_1", pa.uint64())),
        ("magnitude", pa.float64()),
    ]
)
"""A row that a finding names. ``reason``: position in ``REASONS``; ``index``, ``indexed``, ``own_0``, ``own_1``:
sort keys within a lane and reason."""

TALLY_SCHEMA = pa.schema([("reason", pa.int16()), ("lane", pa.int32()), ("count", pa.int64())])

EXAMINED_SCHEMA = pa.schema([("check", pa.string()), ("lane", pa.int32()), ("count", pa.int64())])


MAX_CANDIDATES = 1 << 18
"""Number of candidates before the excess over the limits is dropped."""


class FindingGroup(NamedTuple):
    """Findings of one reason.

    Attributes:
        check: Name of the check.
        reason: Name of the reason.
        records: Columns of records.
        which: Positions of the named records.
        magnitude: Size of each finding, or None.
    """

    check: str
    reason: str
    records: Mapping[str, Array]
    which: Array
    magnitude: Array | None = None


@dataclass(frozen=True)
class JoinResult:
    """Result of the records of one part.

    Attributes:
        candidates: Rows that may be named.
        tally: Number of findings by reason and lane.
        examined: Number of examined records by check and lane.
    """

    candidates: pa.Table
    tally: pa.Table
    examined: pa.Table


def to_tables(groups: Sequence[FindingGroup], examined: Mapping[str, Array], limit: int) -> JoinResult:
    """Convert findings to tables.

    Args:
        groups: Findings.
        examined: Lane of each examined record, by check.
        limit: Maximum number of named findings of a lane and reason.

    Returns:
        The result of a part.
    """
    found = [_candidates(group) for group in groups if len(group.which)]
    every = pa.concat_tables([CANDIDATES_SCHEMA.empty_table(), *found]).combine_chunks()
    examined_tables = [EXAMINED_SCHEMA.empty_table()]
    for check, lanes in examined.items():
        numbers, counts = np.unique(lanes, return_counts=True)
        examined_tables.append(
            _table(EXAMINED_SCHEMA, check=np.full(len(numbers), check, object), lane=numbers, count=counts)
        )
    reason, lane = every["reason"].to_numpy(), every["lane"].to_numpy()
    order = np.lexsort((lane, reason))
    runs = group_rows(reason[order], lane[order])
    starts = order[runs.starts]
    tally = _table(TALLY_SCHEMA, reason=reason[starts], lane=lane[starts], count=runs.counts)
    return JoinResult(top_findings(every, limit), tally, pa.concat_tables(examined_tables))


def _candidates(group: FindingGroup) -> pa.Table:
    own = {name: group.records[name][group.which] for name in CANDIDATES_SCHEMA.names if name in group.records}
    size = np.full(len(group.which), np.nan) if group.magnitude is None else group.magnitude
    return _table(
        CANDIDATES_SCHEMA,
        **{**own, "reason": np.full(len(group.which), reason_number(group.check, group.reason)), "magnitude": size},
    )


def reason_number(check: str, reason: str) -> int:
    """Return the position of a finding in ``REASONS``."""
    return next(at for at, each in enumerate(REASONS) if (each[0], each[2]) == (check, reason))


def _table(schema: pa.Schema, **columns: Array) -> pa.Table:
    return pa.table([pa.array(columns[field.name]).cast(field.type) for field in schema], schema)


def top_findings(candidates: pa.Table, limit: int) -> pa.Table:
    """Return the first and the worst candidates of each lane and reason."""
    columns = {name: candidates[name].to_numpy() for name in CANDIDATES_SCHEMA.names}
    keys = ("reason", "lane", "indexed", "index", "own_0", "own_1", "bucket", "row")
    sorts = [1 - columns[key].astype(np.int8) if key == "indexed" else columns[key] for key in keys]
    order = np.lexsort(sorts[::-1])
    lanes = group_rows(columns["reason"][order], columns["lane"][order])
    number = lanes.spread(np.arange(len(lanes)))
    first, worst = select_top_findings(number, columns["magnitude"][order], limit)
    return candidates.take(pa.array(order[first | worst]))


def merge_results(met: Iterable[JoinResult], limit: int) -> JoinResult:
    """Merge the results of parts, dropping excess candidates."""
    candidates = CANDIDATES_SCHEMA.empty_table()
    tally, examined = [TALLY_SCHEMA.empty_table()], [EXAMINED_SCHEMA.empty_table()]
    most = MAX_CANDIDATES
    for each in met:
        candidates = pa.concat_tables([candidates, each.candidates])
        tally.append(each.tally)
        examined.append(each.examined)
        if candidates.num_rows > most:
            candidates = top_findings(candidates.combine_chunks(), limit)
            most = max(MAX_CANDIDATES, 2 * candidates.num_rows)
    return JoinResult(candidates, pa.concat_tables(tally), pa.concat_tables(examined))


def named_rows(candidates: pa.Table) -> dict[int, Array]:
    """Return the named rows of each bucket, ascending."""
    bucket, row = candidates["bucket"].to_numpy(), candidates["row"].to_numpy()
    return {each: np.unique(row[bucket == each]) for each in np.unique(bucket).tolist()}


def build_findings(candidates: pa.Table, rows: Mapping[int, pa.Table]) -> pa.Table:
    """Build findings from candidates and the named rows of each bucket (``NAMED``)."""
    tables = [to_findings_table(None)]
    bucket, row = candidates["bucket"].to_numpy(), candidates["row"].to_numpy()
    wanted = named_rows(candidates)
    for number, (check, verdict, reason, unit) in enumerate(REASONS):
        own = np.flatnonzero(candidates["reason"].to_numpy() == number)
        for each in np.unique(bucket[own]).tolist():
            chosen_ones = own[bucket[own] == each]
            at = np.searchsorted(wanted[each], row[chosen_ones])
            named = rows[each].take(pa.array(at))
            count = len(chosen_ones)
            content: dict[str, Any] = {name: named[name] for name in NAMED}
            texts = {"check": check, "verdict": verdict, "reason": reason, "unit": unit}
            content |= {name: pa.array([text] * count, pa.string()) for name, text in texts.items()}
            size = candidates["magnitude"].to_numpy()[chosen_ones]
            content["magnitude"] = pa.array(size, mask=np.isnan(size))
            tables.append(to_findings_table(content))
    return pa.concat_tables(tables)


NAMED = (*MESSAGE_COLUMNS, *EVENT_COLUMNS)
"""Columns of the ledger in a finding."""


def count_findings(met: Sequence[JoinResult], lanes: Sequence[Lane]) -> tuple[pa.Table, pa.Table]:
    """Return the counts of findings and of examined records, by lane names."""
    tally = pa.concat_tables([TALLY_SCHEMA.empty_table(), *(each.tally for each in met)])
    examined_records = pa.concat_tables([EXAMINED_SCHEMA.empty_table(), *(each.examined for each in met)])
    names = [REASONS[number] for number in tally["reason"].to_pylist()]
    texts = {"check": [name[0] for name in names], "verdict": [name[1] for name in names]}
    texts["reason"] = [name[2] for name in names]
    counts = {name: pa.array(values, pa.string()) for name, values in texts.items()}
    nothing = pa.array([""] * examined_records.num_rows, pa.string())
    examined = {"check": examined_records["check"], "verdict": nothing, "reason": nothing}
    return (
        pa.table({**counts, **_lane_names(tally["lane"], lanes), "count": tally["count"]}),
        pa.table({**examined, **_lane_names(examined_records["lane"], lanes), "count": examined_records["count"]}),
    )


def _lane_names(numbers: pa.ChunkedArray, lanes: Sequence[Lane]) -> dict[str, pa.Array]:
    columns = [pa.array([lane[place] for lane in lanes], pa.string()) for place in range(len(LANE))]
    return {name: column.take(numbers.combine_chunks()) for name, column in zip(LANE, columns, strict=True)}
