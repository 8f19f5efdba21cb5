"""Numbers that a source counts over all its destinations: what one lane does not have, another one may.

A bridge may number what leaves a chain whatever chain it goes to. Then the lanes of one source and name have no index
in common, and together they have fewer holes than each by itself. Where that is so, an index is missing if none of them
has it.

Strategy: how many indices each lane sent and how many it lacks is known after the first look. It leaves few candidates;
the runs that have these lanes are asked for their indices in the second look.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from causeway.audit.arrays import Words
from causeway.audit.bucket import Bucket
from causeway.audit.findings import UNKNOWN, VIOLATIONS_SCHEMA, as_findings
from causeway.audit.known import SentEnds
from causeway.audit.windows import Lane, Promises
from causeway.ledger.schema import LANE, Event

Group = tuple[str | None, str | None, str | None]
"""Lanes of one protocol, source and name, whatever their destination."""

MOST_INDICES = 1 << 24
"""Of more messages in one group every lane is looked at by itself."""

REASON = "missing_on_all_lanes"
REPLACED = ("missing_inside_window", "missing_outside_windows")
"""Reasons of what is missing on one lane, which say nothing where a number is shared."""

NUMBERS_SCHEMA = pa.schema(
    [*(pa.field(name, pa.string()) for name in LANE if name != "destination"), ("indices", pa.list_(pa.uint64()))]
)
"""One row a lane of a run: its group, and which indices were sent."""


class Missing(NamedTuple):
    """Runs of indices that a group lacks: the first index of each, and how many it has."""

    first: Words
    size: Words


@dataclass(frozen=True)
class Shared:
    """What is missing in groups of lanes that share their numbers. ``lanes``: all lanes of these groups."""

    missing: Mapping[Group, Missing]
    lanes: frozenset[Lane]

    def findings(self) -> pa.Table:
        """Return what is missing as findings of a lane without a destination."""
        content: dict[str, list[object]] = {name: [] for name in VIOLATIONS_SCHEMA.names[:-1]}
        for (protocol, source, lane), missing in self.missing.items():
            for first, size in zip(missing.first.tolist(), missing.size.tolist(), strict=True):
                row: dict[str, object] = {"check": "gaps", "verdict": UNKNOWN, "reason": REASON, "index": first}
                row |= {"protocol": protocol, "source": source, "lane": lane}
                row |= {"magnitude": float(size), "size": str(size), "unit": "messages"}
                for name, values in content.items():
                    values.append(row.get(name))
        return as_findings({name: pa.array(own, VIOLATIONS_SCHEMA.field(name).type) for name, own in content.items()})


def group_of(lane: Lane) -> Group:
    """Return the group of a lane."""
    return lane[0], lane[1], lane[3]


def candidates(
    sent: Mapping[Lane, SentEnds], missing: Mapping[Lane, int], promises: Promises
) -> dict[Group, set[Lane]]:
    """Return the groups that may share their numbers: together they lack fewer indices than each lane by itself.

    Args:
        sent: The first and last index that each lane sent.
        missing: How many indices each lane lacks in between.
        promises: Only lanes that are numbered count.
    """
    groups: dict[Group, set[Lane]] = {}
    for lane in sent:
        if lane[1] is not None and "numbered" in promises.of(lane):
            groups.setdefault(group_of(lane), set()).add(lane)
    found = {}
    for group, lanes in groups.items():
        lacking = sum(missing.get(lane, 0) for lane in lanes)
        count = sum(sent[lane].last - sent[lane].first + 1 for lane in lanes) - lacking
        span = max(sent[lane].last for lane in lanes) - min(sent[lane].first for lane in lanes) + 1
        if len(lanes) > 1 and count <= MOST_INDICES and 0 <= span - count < lacking:
            found[group] = lanes
    return found


def numbers_in(bucket: Bucket) -> pa.Table:
    """Return which indices the lanes of a run sent, of groups that are asked for (``NUMBERS_SCHEMA``)."""
    asked = bucket.known.shared
    if not asked:
        return NUMBERS_SCHEMA.empty_table()
    columns, sent = bucket.columns, bucket.first(Event.SENT)
    numbered = (sent >= 0) & (columns.indexed[columns.starts[:-1]] == 1)
    bounds = np.append(columns.lane_starts, len(sent))
    rows = []
    for code, lane in enumerate(columns.lanes):
        if group_of(lane) in asked:
            own = np.flatnonzero(numbered[bounds[code] : bounds[code + 1]]) + bounds[code]
            protocol, source, name = group_of(lane)
            indices = columns.index[columns.starts[own]]
            rows.append({"protocol": protocol, "source": source, "lane": name, "indices": indices})
    return pa.Table.from_pylist(rows, NUMBERS_SCHEMA)


def shared_numbers(asked: Mapping[Group, set[Lane]], numbers: Iterable[pa.Table]) -> Shared:
    """Return which groups share their numbers, and what they lack.

    Args:
        asked: The candidates.
        numbers: What runs show of them (``numbers_in``).
    """
    indices: dict[Group, list[Words]] = {group: [] for group in asked}
    for table in numbers:
        groups = zip(*(table[name].to_pylist() for name in table.column_names[:-1]), strict=True)
        for group, own in zip(groups, table["indices"].combine_chunks(), strict=True):
            if group in indices:
                indices[group].append(own.values.to_numpy())
    found, lanes = {}, set[Lane]()
    for group, parts in indices.items():
        every = np.sort(np.concatenate(parts)) if parts else np.zeros(0, np.uint64)
        steps = np.diff(every)
        if (steps == 0).any():
            continue
        gaps = np.flatnonzero(steps > 1)
        found[group] = Missing(every[gaps] + np.uint64(1), steps[gaps] - np.uint64(1))
        lanes |= asked[group]
    return Shared(found, frozenset(lanes))


__all__ = [
    "NUMBERS_SCHEMA", "REASON", "REPLACED", "Group", "Shared", "candidates", "group_of", "numbers_in", "shared_numbers",
]  # fmt: skip
