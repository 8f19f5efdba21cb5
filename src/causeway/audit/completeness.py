"""Completeness: what the input shows of each lane, at its source, at its destination and elsewhere."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from causeway.audit.passing import SIDES, TALLIES
from causeway.audit.windows import Windows, lane_of
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
    ends = [(f"first_{what}", "min") for what in ("height", "time")] + [
        (f"last_{what}", "max") for what in ("height", "time")
    ]
    found = sides.group_by([*LANE, "side"]).aggregate([*((name, "sum") for name in TALLIES), *ends])
    missing = {lane_of(row): row for row in lanes.select([*LANE, *_MISSING]).to_pylist()}
    rows = found.to_pylist()
    seen = {(lane_of(row), row["side"]) for row in rows}
    content = []
    for row in sorted(
        rows, key=lambda row: (tuple((n is not None, n or "") for n in lane_of(row)), SIDES.index(row["side"]))
    ):
        lane, side = lane_of(row), row["side"]
        chain = {"source": lane[1], "destination": lane[2]}.get(side)
        event = Event.SENT if side == "source" else Event.RECEIVED
        own: dict[str, Any] = {name: row[name] for name in LANE}
        own |= {"side": side, "chain": chain, "windows": windows.of(chain, lane, event.value).count}
        own |= {name: row[f"{name}_sum"] for name in TALLIES}
        own |= {name: row[f"{name}_{how}"] for name, how in ends}
        for name in _MISSING:
            own[name] = missing[lane][name] if side == "source" else 0
        other = {"source": "destination", "destination": "source"}.get(side)
        in_lane = any(name is not None for name in lane[1:])
        own["one_sided"] = in_lane and other is not None and (lane, other) not in seen
        content.append(own)
    columns = [
        pa.array([own[field.name] for own in content], pa.int64() if field.type == _TIME else field.type).cast(
            field.type
        )
        for field in COMPLETENESS_SCHEMA
    ]
    return pa.table(columns, COMPLETENESS_SCHEMA)
