"""Findings of checks, as rows of a run and as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.distinct import distinct_slices
from causeway_proofs.order import group_rows, stable_order

from causeway.audit.arrays import Array, Ints, select_top_findings
from causeway.audit.columns import Bools
from causeway.audit.verdict import NOTED, UNKNOWN, VIOLATED
from causeway.ledger.encodings import NameCodes, text_slices, valid_mask
from causeway.ledger.schema import LANE, REVERTED

__all__ = [
    "COUNTS_SCHEMA",
    "NOTED",
    "UNKNOWN",
    "VIOLATED",
    "VIOLATIONS_SCHEMA",
    "AssertionFindings",
    "CheckResult",
    "Finding",
    "PartialCheck",
    "count_rows",
    "decode_texts",
    "format_magnitudes",
    "is_counted",
    "is_reverted",
    "number_texts",
    "to_findings_table",
    "to_partial_check",
]

VIOLATIONS_SCHEMA = pa.schema(
    [
        pa.field("check", pa.string(), nullable=False),
        pa.field("verdict", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        *(pa.field(name, pa.string()) for name in LANE),
        pa.field("index", pa.uint64()),
        pa.field("message_id", pa.string()),
        pa.field("event", pa.string()),
        pa.field("chain", pa.string()),
        pa.field("height", pa.uint64()),
        pa.field("time", pa.timestamp("us", "UTC")),
        pa.field("transaction", pa.string()),
        pa.field("detail", pa.string()),
        pa.field("magnitude", pa.float64()),
        pa.field("size", pa.string()),
        pa.field("unit", pa.string()),
        pa.field("stated_by", pa.string()),
        pa.field("source_file", pa.string()),
        pa.field("source_row", pa.uint64()),
        pa.field("example", pa.string(), nullable=False),
    ]
)
"""One row a finding, with its ``verdict`` (``VIOLATED``, ``UNKNOWN``, ``NOTED``) and ``reason``.

``index``: of the message, or the first missing one. ``event`` to ``detail``: the named row, null for a finding about a
message or several. ``magnitude``: its size in ``unit`` (``microseconds``, ``messages``, ``units`` of an asset), rounded
to a float, or null; ``size``: the same as decimal digits where exact. From ``stated_by`` on: origin of the row in the
input. ``example``: ``first`` of its lane and reason, ``worst``, or ``both``."""


def to_findings_table(content: dict[str, pa.Array] | None) -> pa.Table:
    """Build a table of findings without ``example``; None: an empty one.

    Args:
        content: Columns of ``VIOLATIONS_SCHEMA`` without ``example``, by name; ``size`` and ``detail`` may be missing;
            or None.

    Returns:
        Rows of ``VIOLATIONS_SCHEMA`` without ``example``.
    """
    schema = VIOLATIONS_SCHEMA.remove(len(VIOLATIONS_SCHEMA) - 1)
    if content is None:
        return schema.empty_table()
    for name in ("size", "detail"):
        if name not in content:
            content = {**content, name: pa.nulls(len(content["check"]), pa.string())}
    return pa.table([content[name].cast(kind) for name, kind in zip(schema.names, schema.types, strict=True)], schema)


def format_magnitudes(magnitude: Array) -> dict[str, pa.Array]:
    """Return magnitudes as columns, with exact digits for integers; NaN: unknown.

    Args:
        magnitude: Size of each finding, integers or floats.

    Returns:
        Columns ``magnitude`` (float64) and ``size`` (decimal digits), null where unknown; all ``size`` are null for
        floats.
    """
    size = magnitude.astype(np.float64)
    whole = np.issubdtype(magnitude.dtype, np.integer)
    exact = pa.array(magnitude).cast(pa.string()) if whole else pa.nulls(len(size), pa.string())
    return {"magnitude": pa.array(size, mask=np.isnan(size)), "size": exact}


class Finding(NamedTuple):
    """Rows that a check names for one reason.

    Attributes:
        check: Name of the check.
        verdict: ``VIOLATED``, ``UNKNOWN`` or ``NOTED``.
        reason: Name of the reason.
        rows: Rows of the run.
        magnitude: Size of each finding, integers if exact, NaN: unknown; or None.
        unit: Unit of the magnitude, or None.
        from_index: Index of the first missing message, in place of the row's own; or None.
        placed: The finding is about the row itself, not only about its message.
    """

    check: str
    verdict: str
    reason: str
    rows: Ints
    magnitude: Array | None = None
    unit: str | None = None
    from_index: Array | None = None
    placed: bool = True


class CheckResult(NamedTuple):
    """Result of one check on one run.

    Attributes:
        check: Name of the check.
        examined: Number of examined messages by lane.
        found: Findings.
    """

    check: str
    examined: Ints
    found: list[Finding]


COUNTS_SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in ("check", "verdict", "reason", *LANE)),
        pa.field("count", pa.int64()),
    ]
)
"""Number of findings by check, verdict, reason and lane."""


EVIDENCE_COLUMNS = ("index", "message_id", "chain", "height", "time", "source_file", "source_row", "event")
"""Display order of the findings of a lane and reason."""


@dataclass(frozen=True)
class AssertionFindings:
    """Findings of one reason about rows of headers or watermarks.

    Attributes:
        verdict: ``VIOLATED``, ``UNKNOWN`` or ``NOTED``.
        reason: Name of the reason.
        rows: The named rows, in order.
        magnitude: Size of each finding, or None.
        unit: Unit of the magnitude, or None.
        instead: Values for columns of ``VIOLATIONS_SCHEMA`` that differ from those of the rows.
        placed: The finding is about the row itself, and shows its origin.
    """

    verdict: str
    reason: str
    rows: Array
    magnitude: Array | None = None
    unit: str | None = None
    instead: dict[str, pa.Array] | None = None
    placed: bool = True


@dataclass(frozen=True)
class PartialCheck:
    """Result of a check on a part of the rows.

    Attributes:
        findings: Findings.
        counts: Number of findings of each kind.
        ends: Rows to compare with those of other buckets.
    """

    findings: pa.Table
    counts: pa.Table
    ends: pa.Table


def to_partial_check(
    check: str, rows: pa.Table, found: Sequence[AssertionFindings], ends: pa.Table, limit: int
) -> PartialCheck:
    """Convert findings to tables.

    Args:
        check: Name of the check.
        rows: Rows in the order of their lanes, with columns of ``LANE`` and ``VIOLATIONS_SCHEMA``.
        found: Findings about these rows.
        ends: Rows to compare with those of other buckets.
        limit: Maximum number of named findings of a lane and reason.

    Returns:
        The tables.
    """
    tables, counts = [to_findings_table(None)], [COUNTS_SCHEMA.empty_table()]
    for one in found:
        if not len(one.rows):
            continue
        lanes = _lane_runs(rows, one.rows)
        if len(one.rows) > limit:
            one = _sort_evidence(one, rows, lanes)
        first, worst = select_top_findings(lanes, one.magnitude, limit)
        named = np.flatnonzero(first | worst)
        tables.append(_table(check, rows, one, named))
        starts = np.flatnonzero(np.diff(lanes, prepend=-1))
        numbers = np.diff(np.append(starts, len(lanes)))
        counts.append(_counts(check, one.verdict, one.reason, rows, one.rows[starts], numbers))
    return PartialCheck(pa.concat_tables(tables), pa.concat_tables(counts), ends)


def _sort_evidence(found: AssertionFindings, rows: pa.Table, lanes: Array) -> AssertionFindings:
    """Sort the findings of each lane in display order.

    So the first ones are the same for every partition into buckets.
    """
    named = rows.take(pa.array(found.rows))
    columns = [name for name in EVIDENCE_COLUMNS if name in named.column_names]
    keys = pa.table({"lane": pa.array(lanes), **{name: decode_texts(named[name]) for name in columns}})
    order = pc.sort_indices(keys, [(name, "ascending") for name in keys.column_names]).to_numpy()
    magnitude = None if found.magnitude is None else found.magnitude[order]
    instead = {name: values.take(pa.array(order)) for name, values in (found.instead or {}).items()}
    return replace(found, rows=found.rows[order], magnitude=magnitude, instead=instead)


def count_rows(check: str, rows: pa.Table) -> pa.Table:
    """Count the rows of each lane; rows are in the order of their lanes.

    Args:
        check: Name of the check.
        rows: Rows with the columns of ``LANE``, in the order of their lanes.

    Returns:
        One row a lane (``COUNTS_SCHEMA``) with empty ``verdict`` and ``reason``.
    """
    every = np.arange(rows.num_rows)
    starts = np.flatnonzero(np.diff(_lane_runs(rows, every), prepend=-1))
    return _counts(check, "", "", rows, every[starts], np.diff(np.append(starts, rows.num_rows)))


def _lane_runs(rows: pa.Table, of: Array) -> Array:
    """Return a number for each of some rows that changes with the lane."""
    if not len(of):
        return np.zeros(0, np.int64)
    codes = [NameCodes().codes(rows[name])[of] for name in LANE]
    groups = group_rows(*codes)
    return groups.spread(np.arange(len(groups)))


def _counts(check: str, verdict: str, reason: str, rows: pa.Table, at: Array, many: Array) -> pa.Table:
    names = {"check": check, "verdict": verdict, "reason": reason}
    content = {name: pa.array([text] * len(at), pa.string()) for name, text in names.items()}
    content |= {name: decode_texts(rows[name].take(pa.array(at))) for name in LANE}
    return pa.table(content | {"count": pa.array(many.astype(np.int64))}, COUNTS_SCHEMA)


def _table(check: str, rows: pa.Table, found: AssertionFindings, named: Array) -> pa.Table:
    count = len(named)
    named_rows = rows.take(pa.array(found.rows[named]))
    content = {}
    for name in VIOLATIONS_SCHEMA.names[:-1]:
        if name in named_rows.column_names and (found.placed or name not in ("stated_by", "source_file", "source_row")):
            content[name] = decode_texts(named_rows[name])
        else:
            content[name] = pa.nulls(count)
    texts = {"check": check, "verdict": found.verdict, "reason": found.reason}
    content |= {name: pa.array([text] * count, pa.string()) for name, text in texts.items()}
    if found.magnitude is not None:
        content |= format_magnitudes(found.magnitude[named])
        content["unit"] = pa.array([found.unit] * count, pa.string())
    for name, values in (found.instead or {}).items():
        content[name] = values.take(pa.array(named))
    return to_findings_table(content)


def decode_texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column with texts in place of dictionary codes.

    Args:
        column: Texts, or a dictionary of texts.

    Returns:
        The texts; the column itself if it is no dictionary.
    """
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


def number_texts(*columns: pa.ChunkedArray) -> list[Array]:
    """Assign numbers to the texts of several columns, equal for equal texts; -1 for null."""
    arrays = [decode_texts(column).combine_chunks().cast(pa.large_string()) for column in columns]
    whole = pa.concat_arrays(arrays)
    data, offsets = text_slices(whole)
    numbers = distinct_slices(data, np.ascontiguousarray(offsets[:-1]), np.ascontiguousarray(offsets[1:]))[0]
    numbers = np.where(valid_mask(whole), numbers, -1)
    ends = np.cumsum([len(array) for array in arrays])
    return np.split(numbers, ends[:-1])


def is_reverted(rows: pa.Table) -> Bools:
    """Return a mask of rows that report a reversal by a fork.

    Args:
        rows: Rows with a column ``status``.

    Returns:
        Mask, shape (n,); null: False.
    """
    status = rows["status"]
    if status.null_count == rows.num_rows:
        return np.zeros(rows.num_rows, dtype=bool)
    return np.asarray(pc.fill_null(pc.equal(decode_texts(status), REVERTED), False))


def is_counted(back: Bools, about: Sequence[Array], turns: Sequence[Array]) -> Bools:
    """Return a mask of rows that count.

    Rows with equal ``about`` describe one thing. If one of those with the highest ``turns`` reports a reversal
    (``back``), none of them counts; otherwise all without a reversal count.

    Args:
        back: Mask of rows that report a reversal, shape (n,).
        about: Integer columns that identify a thing, shape (n,) each.
        turns: Columns of unsigned integers, shape (n,) each, most significant first.

    Returns:
        Mask, shape (n,).
    """
    if not back.any():
        return np.ones(len(back), dtype=bool)
    things = [np.ascontiguousarray(key).astype(np.int64, copy=False).view(np.uint64) for key in about]
    order = stable_order(*things, *turns, back.astype(np.uint64))
    groups = group_rows(*(key[order] for key in things))
    counts = np.empty(len(back), dtype=bool)
    counts[order] = ~groups.spread(back[order][groups.starts + groups.counts - 1])
    return counts & ~back
