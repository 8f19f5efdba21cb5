"""What the checks of headers and watermarks share: which rows count, and findings about them as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway.audit.arrays import Array, chosen
from causeway.audit.columns import Bools
from causeway.audit.findings import UNKNOWN, VIOLATED, VIOLATIONS_SCHEMA, as_findings, sized
from causeway.ledger.codes import Names
from causeway.ledger.limbs import slices_of, valid_rows
from causeway.ledger.schema import LANE, REVERTED
from causeway.model.order import groups_of, stable_order
from causeway.proofs.distinct.slices import distinct_slices

COUNTS_SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in ("check", "verdict", "reason", *LANE)),
        pa.field("count", pa.int64()),
    ]
)
"""How many findings there are of a check, verdict, reason and lane."""


SHOWN_BY = ("index", "message_id", "chain", "height", "time", "source_file", "source_row", "event")
"""By what the findings of a lane and reason are ordered where they are shown."""


@dataclass(frozen=True)
class Found:
    """Findings of one reason: ``rows`` of a table that they name, in their order there.

    ``magnitude`` in ``unit``; ``instead``: values of columns of ``VIOLATIONS_SCHEMA`` that are not those of the rows;
    ``placed``: whether a finding is about the row itself, so that it says where that one stood in the input.
    """

    verdict: str
    reason: str
    rows: Array
    magnitude: Array | None = None
    unit: str | None = None
    instead: dict[str, pa.Array] | None = None
    placed: bool = True


@dataclass(frozen=True)
class Looked:
    """What came of one look: findings, how many of each kind there are, and the rows that go on to be compared with
    those of other buckets."""

    findings: pa.Table
    counts: pa.Table
    ends: pa.Table


def looked(check: str, rows: pa.Table, found: Sequence[Found], ends: pa.Table, limit: int) -> Looked:
    """Return findings as tables. ``rows``: in the order of their lanes, with the columns of ``LANE`` and those of
    ``VIOLATIONS_SCHEMA`` that they have; ``limit``: so many of a lane and reason are named."""
    tables, counts = [as_findings(None)], [COUNTS_SCHEMA.empty_table()]
    for one in found:
        if not len(one.rows):
            continue
        lanes = _lane_runs(rows, one.rows)
        if len(one.rows) > limit:
            one = _as_shown(one, rows, lanes)
        first, worst = chosen(lanes, one.magnitude, limit)
        named = np.flatnonzero(first | worst)
        tables.append(_table(check, rows, one, named))
        starts = np.flatnonzero(np.diff(lanes, prepend=-1))
        many = np.diff(np.append(starts, len(lanes)))
        counts.append(_counts(check, one.verdict, one.reason, rows, one.rows[starts], many))
    return Looked(pa.concat_tables(tables), pa.concat_tables(counts), ends)


def _as_shown(found: Found, rows: pa.Table, lanes: Array) -> Found:
    """Return the findings of each lane in the order in which they are shown, so that the first are the same of however
    many buckets they come."""
    named = rows.take(pa.array(found.rows))
    shown = [name for name in SHOWN_BY if name in named.column_names]
    keys = pa.table({"lane": pa.array(lanes), **{name: plain_texts(named[name]) for name in shown}})
    order = pc.sort_indices(keys, [(name, "ascending") for name in keys.column_names]).to_numpy()
    magnitude = None if found.magnitude is None else found.magnitude[order]
    instead = {name: values.take(pa.array(order)) for name, values in (found.instead or {}).items()}
    return replace(found, rows=found.rows[order], magnitude=magnitude, instead=instead)


def examined(check: str, rows: pa.Table) -> pa.Table:
    """Return how many rows there are of each lane, in the form of counts; they are in the order of their lanes."""
    every = np.arange(rows.num_rows)
    starts = np.flatnonzero(np.diff(_lane_runs(rows, every), prepend=-1))
    return _counts(check, "", "", rows, every[starts], np.diff(np.append(starts, rows.num_rows)))


def _lane_runs(rows: pa.Table, of: Array) -> Array:
    """Return a number for each of some rows that changes where the lane does."""
    if not len(of):
        return np.zeros(0, np.int64)
    codes = [Names().codes(rows[name])[of] for name in LANE]
    groups = groups_of(*codes)
    return groups.spread(np.arange(len(groups)))


def _counts(check: str, verdict: str, reason: str, rows: pa.Table, at: Array, many: Array) -> pa.Table:
    names = {"check": check, "verdict": verdict, "reason": reason}
    content = {name: pa.array([text] * len(at), pa.string()) for name, text in names.items()}
    content |= {name: plain_texts(rows[name].take(pa.array(at))) for name in LANE}
    return pa.table(content | {"count": pa.array(many.astype(np.int64))}, COUNTS_SCHEMA)


def _table(check: str, rows: pa.Table, found: Found, named: Array) -> pa.Table:
    count = len(named)
    taken = rows.take(pa.array(found.rows[named]))
    content = {}
    for name in VIOLATIONS_SCHEMA.names[:-1]:
        if name in taken.column_names and (found.placed or name not in ("stated_by", "source_file", "source_row")):
            content[name] = plain_texts(taken[name])
        else:
            content[name] = pa.nulls(count)
    texts = {"check": check, "verdict": found.verdict, "reason": found.reason}
    content |= {name: pa.array([text] * count, pa.string()) for name, text in texts.items()}
    if found.magnitude is not None:
        content |= sized(found.magnitude[named])
        content["unit"] = pa.array([found.unit] * count, pa.string())
    for name, values in (found.instead or {}).items():
        content[name] = values.take(pa.array(named))
    return as_findings(content)


def plain_texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column with texts in the place of codes."""
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


def numbers_of(*columns: pa.ChunkedArray) -> list[Array]:
    """Return a number for each text of several columns, equal where the texts are; -1 where it is null."""
    arrays = [plain_texts(column).combine_chunks().cast(pa.large_string()) for column in columns]
    whole = pa.concat_arrays(arrays)
    data, offsets = slices_of(whole)
    numbers = distinct_slices(data, np.ascontiguousarray(offsets[:-1]), np.ascontiguousarray(offsets[1:]))[0]
    numbers = np.where(valid_rows(whole), numbers, -1)
    ends = np.cumsum([len(array) for array in arrays])
    return np.split(numbers, ends[:-1])


def taken_back(rows: pa.Table) -> Bools:
    """Return which rows say that a fork took something back."""
    status = rows["status"]
    if status.null_count == rows.num_rows:
        return np.zeros(rows.num_rows, dtype=bool)
    return np.asarray(pc.fill_null(pc.equal(plain_texts(status), REVERTED), False))


def that_count(back: Bools, about: Sequence[Array], turns: Sequence[Array]) -> Bools:
    """Return which rows count.

    Rows that agree in ``about`` are about one thing. If one of those with the highest ``turns`` among them says that it
    was taken ``back``, none of them counts; else those count that do not say it.
    """
    if not back.any():
        return np.ones(len(back), dtype=bool)
    things = [np.ascontiguousarray(key).astype(np.int64, copy=False).view(np.uint64) for key in about]
    order = stable_order(*things, *turns, back.astype(np.uint64))
    groups = groups_of(*(key[order] for key in things))
    counts = np.empty(len(back), dtype=bool)
    counts[order] = ~groups.spread(back[order][groups.starts + groups.counts - 1])
    return counts & ~back


__all__ = [
    "COUNTS_SCHEMA",
    "UNKNOWN",
    "VIOLATED",
    "Found",
    "Looked",
    "examined",
    "looked",
    "numbers_of",
    "plain_texts",
    "taken_back",
    "that_count",
]
