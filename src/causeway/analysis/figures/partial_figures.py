"""Partial figures of one part of a ledger: small tables that merge in any order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway.analysis.figures import latency, over_time
from causeway.analysis.figures.fees import SUMS_SCHEMA, sum_fees
from causeway.analysis.figures.filters import ALL_MESSAGES, MessageFilter
from causeway.analysis.figures.lanes import (
    CHAIN_COUNTS_SCHEMA,
    LANE_COUNTS_SCHEMA,
    count_chains,
    count_lanes,
    merge_chain_counts,
    merge_lane_counts,
)
from causeway.analysis.figures.message_rows import WORST, WORST_KEYS_SCHEMA, find_worst, merge_worst
from causeway.analysis.figures.outcomes import CODES_SCHEMA, MessageOutcomes, count_codes, merge_codes
from causeway.analysis.figures.replies import AnswerSource, naming_responses
from causeway.audit.arrays import Ints
from causeway.audit.bucket import BucketMessages
from causeway.audit.columns import RowColumns
from causeway.audit.lane_context import LaneContext
from causeway.ledger.parts import BucketPart, split_runs

_ENDS = (("tick", pa.uint64()), ("time", pa.int64()))

SPAN_SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.int64(), nullable=False) for name in ("rows", "without_tick", "without_time")),
        *(pa.field(name, pa.int64(), nullable=False) for name in ("unanswered", "naming")),
        *(
            ("first_tick", pa.uint64()),
            ("last_tick", pa.uint64()),
            ("first_time", pa.int64()),
            ("last_time", pa.int64()),
        ),
    ]
)
"""One row a part: counts, and its first and last tick and time (microseconds).

Counts: rows; messages sent without a known tick or time; sent requests without acknowledgement or time-out; receipts
of responses that name their request.
"""


@dataclass(frozen=True)
class FigureRequest:
    """The options of a count.

    ``where``: the messages to count; ``by_lane``: compute the backlog of each lane; ``worst``: number of worst
    messages.
    """

    where: MessageFilter = ALL_MESSAGES
    by_lane: bool = False
    worst: int = WORST


@dataclass(frozen=True)
class PartialFigures:
    """The figures of one part.

    ``lanes``: one row a lane; the other tables refer to lanes by row. ``delays``, ``extents``, ``flow``, ``pace``,
    ``worst``, ``codes``, ``chains``: see the modules of these figures. ``fees``: sums of value. ``span``: see
    ``SPAN_SCHEMA``.
    """

    lanes: pa.Table
    delays: pa.Table
    extents: pa.Table
    flow: pa.Table
    pace: pa.Table
    worst: pa.Table
    codes: pa.Table
    chains: pa.Table
    fees: pa.Table
    span: pa.Table


def no_figures() -> PartialFigures:
    """Return the figures of an empty part.

    Returns:
        Empty tables.
    """
    schemas = (
        LANE_COUNTS_SCHEMA,
        latency.DELAYS_SCHEMA,
        latency.EXTENTS_SCHEMA,
        over_time.FLOW_SCHEMA,
        over_time.CELLS_SCHEMA,
    )
    more = (WORST_KEYS_SCHEMA, CODES_SCHEMA, CHAIN_COUNTS_SCHEMA, SUMS_SCHEMA, SPAN_SCHEMA)
    return PartialFigures(*(schema.empty_table() for schema in (*schemas, *more)))


def requested_outcomes(
    parts: Iterable[BucketPart],
    known: LaneContext,
    where: MessageFilter = ALL_MESSAGES,
    replies: AnswerSource | None = None,
) -> Iterator[MessageOutcomes]:
    """Yield the matching messages of a bucket, one run at a time.

    Args:
        parts: rows of a ledger (``LEDGER_SCHEMA``), in its order, with all rows of each message.
        known: windows and guarantees.
        where: the filter on messages.
        replies: answers on other lanes.

    Yields:
        The messages of a run.

    Raises:
        InvalidInput: an event or kind has no known name, or rows are not in the order of the ledger.
    """
    chosen = (own for part in parts if (own := where.part(part)) is not None)
    for run in split_runs(chosen):
        yield where.messages(MessageOutcomes(BucketMessages(RowColumns.of(run), known), replies))


def bucket_figures(
    parts: Iterable[BucketPart],
    known: LaneContext,
    request: FigureRequest,
    value: pa.Table | None = None,
    replies: AnswerSource | None = None,
) -> PartialFigures:
    """Compute the figures of a bucket.

    Args:
        parts: as of ``requested_outcomes``.
        known: windows and guarantees.
        request: the options of the count.
        value: its value movements (``VALUE_SCHEMA``).
        replies: answers on other lanes.

    Returns:
        The figures.

    Raises:
        InvalidInput: as of ``requested_outcomes``.
    """
    spans: list[pa.Table] = []

    def seen() -> Iterator[BucketPart]:
        for part in parts:
            spans.append(_span(part))
            yield part

    found = [_run_figures(outcomes, request) for outcomes in requested_outcomes(seen(), known, request.where, replies)]
    whole = merge_figures(found, request.worst) if found else no_figures()
    fees = whole.fees if value is None else sum_fees(value, request.where)
    return replace(whole, fees=fees, span=_spans([whole.span, *spans]))


def _run_figures(every: MessageOutcomes, request: FigureRequest) -> PartialFigures:
    outcomes = every if every.is_message.all() else every.only(every.is_message)
    measured = latency.measure_delays(outcomes)
    entries, extents = latency.delay_distribution(outcomes, measured)
    flows, without_tick, without_time = over_time.count_flow(outcomes, request.by_lane)
    span = {"rows": 0, "without_tick": without_tick, "without_time": without_time}
    span |= {"unanswered": len(every.unanswered), "naming": len(naming_responses(outcomes.bucket))}
    return PartialFigures(
        count_lanes(outcomes, every),
        entries,
        extents,
        flows,
        over_time.count_latency(outcomes, measured),
        find_worst(outcomes, measured, request.worst),
        count_codes(every),
        count_chains(outcomes),
        SUMS_SCHEMA.empty_table(),
        pa.Table.from_pylist([span], SPAN_SCHEMA),
    )


def _span(part: BucketPart) -> pa.Table:
    rows = part.read(("tick", "time"))
    ends: dict[str, Any] = {"rows": part.num_rows, "without_tick": 0, "without_time": 0}
    ends |= {"unanswered": 0, "naming": 0}
    for name in ("tick", "time"):
        column = rows[name].cast(pa.int64()) if name == "time" else rows[name]
        extent = pc.min_max(column).as_py()
        ends |= {f"first_{name}": extent["min"], f"last_{name}": extent["max"]}
    return pa.Table.from_pylist([ends], SPAN_SCHEMA)


def _spans(parts: Sequence[pa.Table]) -> pa.Table:
    every = pa.concat_tables([SPAN_SCHEMA.empty_table(), *parts])
    found: dict[str, Any] = {}
    for name in SPAN_SCHEMA.names:
        how = pc.min if name.startswith("first") else pc.max if name.startswith("last") else pc.sum
        value = how(every[name])
        kind = SPAN_SCHEMA.field(name)
        found[name] = pa.array([value.as_py() if value.is_valid or kind.nullable else 0], kind.type)
    return pa.table(found, SPAN_SCHEMA)


def merge_figures(parts: Sequence[PartialFigures], worst: int = WORST) -> PartialFigures:
    """Merge the figures of several parts; the result does not depend on the partition.

    Args:
        parts: the figures of each part.
        worst: number of worst messages of each ranking.

    Returns:
        The merged figures.
    """
    lanes, numbers = merge_lane_counts([part.lanes for part in parts])
    entries, extents = latency.merge_distributions(
        [_renumber_lanes(part.delays, own) for part, own in zip(parts, numbers, strict=True)],
        [_renumber_lanes(part.extents, own) for part, own in zip(parts, numbers, strict=True)],
    )
    flows = over_time.merge_flows([_renumber_lanes(part.flow, own) for part, own in zip(parts, numbers, strict=True)])
    return PartialFigures(
        lanes,
        entries,
        extents,
        flows,
        over_time.merge_latency([part.pace for part in parts], over_time.axis_levels(flows)),
        merge_worst([part.worst for part in parts], worst),
        merge_codes([part.codes for part in parts]),
        merge_chain_counts([part.chains for part in parts]),
        pa.concat_tables([part.fees for part in parts]),
        _spans([part.span for part in parts]),
    )


def _renumber_lanes(table: pa.Table, numbers: Ints) -> pa.Table:
    """Replace lane numbers; -1 stays."""
    place = table.schema.get_field_index("lane")
    lane = np.append(numbers, -1)[table["lane"].to_numpy()].astype(np.int32)
    return table.set_column(place, table.schema.field(place), pa.array(lane))


__all__ = ["FigureRequest", "PartialFigures", "bucket_figures", "merge_figures", "no_figures", "requested_outcomes"]
