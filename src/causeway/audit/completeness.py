"""Completeness: what the input shows of each lane, at its source, at its destination and elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway.audit.passing import SIDES, TALLIES
from causeway.audit.windows import Windows
from causeway.ledger.codes import Names
from causeway.ledger.order import lane_numbers
from causeway.ledger.schema import LANE, Event

_TIME = pa.timestamp("us", "UTC")

COMPLETENESS_SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in LANE),
        pa.field("side", pa.string(), nullable=False),
        pa.field("chain", pa.string()),
        pa.field("windows", pa.int64(), nullable=False),
        *(pa.field(name, pa.int64(), nullable=False) for name in TALLIES),
        pa.field("first_height", pa.uint64()),
        pa.field("last_height", pa.uint64()),
        pa.field("first_time", _TIME),
        pa.field("last_time", _TIME),
        pa.field("missing", pa.uint64(), nullable=False),
        pa.field("missing_runs", pa.int64(), nullable=False),
        pa.field("missing_runs_inside_windows", pa.int64(), nullable=False),
        pa.field("one_sided", pa.bool_(), nullable=False),
    ]
)
"""One row a lane and ``side``: ``source`` (sent, committed, acknowledged, timed out, collected), ``destination``
(received, executed, answered, rejected), or ``elsewhere``; a side without rows has none.

``chain``: the chain on that side; ``windows``: how many windows of it there are, put together where they touch.
``rows``, and of them those ``without_...``; ``unnamed``: with neither index nor ``message_id``; ``sent_or_received``:
rows that are compared by content. ``missing``, in so many ``missing_runs``: indices of a numbered lane that were not
seen as sent between the first and the last one that was. ``one_sided``: the other end of the lane has no rows. What is
in no lane (source, destination and lane are null) has no ends."""

_MISSING = ("missing", "missing_runs", "missing_runs_inside_windows")


def completeness_of(sides: pa.Table, lanes: pa.Table, windows: Windows) -> pa.Table:
    """Return the table ``completeness``.

    Args:
        sides: counts and extents of each lane and side, of each bucket.
        lanes: figures of each lane.
        windows: what the input covers.
    """
    extents = [
        (f"{end}_{what}", how) for end, how in (("first", "min"), ("last", "max")) for what in ("height", "time")
    ]
    found = sides.group_by([*LANE, "side"]).aggregate([*((name, "sum") for name in TALLIES), *extents])
    # Lanes have numbers in the order of their names.
    names, codes = lane_numbers(pa.concat_tables([found.select(LANE), lanes.select(LANE)]))
    lane, of_figures = codes[: len(found)], codes[len(found) :]
    side = Names(SIDES).codes(found["side"])
    order = np.lexsort((side, lane))
    found, lane, side = found.take(pa.array(order)), lane[order], side[order]
    content: dict[str, Any] = {name: found[name] for name in (*LANE, "side")}
    content |= {name: found[f"{name}_sum"] for name in TALLIES}
    content |= {name: found[f"{name}_{how}"] for name, how in extents}
    nobody = pa.nulls(len(found), pa.string())
    at_source, at_destination = (pa.array(side == SIDES.index(name)) for name in SIDES[:2])
    content["chain"] = pc.if_else(at_source, found["source"], pc.if_else(at_destination, found["destination"], nobody))
    counts = np.zeros(len(found), np.int64)
    for row, (chain, number, of_side) in enumerate(
        zip(content["chain"].to_pylist(), lane.tolist(), side.tolist(), strict=True)
    ):
        one, two, three, four = names[number]
        event = Event.SENT if of_side == 0 else Event.RECEIVED
        counts[row] = windows.of(chain, (one, two, three, four), event.value).count
    content["windows"] = counts
    for name in _MISSING:
        figures = lanes[name].to_numpy()
        of_lane = np.zeros(len(names), figures.dtype)
        of_lane[of_figures] = figures
        content[name] = np.where(side == 0, of_lane[lane], figures.dtype.type(0))
    has = np.zeros((len(names), len(SIDES)), bool)
    has[lane, side] = True
    in_lane = np.zeros(len(found), bool)
    for name in LANE[1:]:
        in_lane |= np.asarray(found[name].is_valid())
    content["one_sided"] = in_lane & (side < 2) & ~has[lane, np.where(side == 0, 1, 0)]
    columns = [
        each if isinstance(each := content[field.name], pa.ChunkedArray | pa.Array) else pa.array(each)
        for field in COMPLETENESS_SCHEMA
    ]
    return pa.table(columns, COMPLETENESS_SCHEMA.names).cast(COMPLETENESS_SCHEMA).combine_chunks()
