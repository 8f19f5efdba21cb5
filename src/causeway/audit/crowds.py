"""In which ranges of lanes more messages may be in flight than promised: what runs say of them, put together."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from causeway.audit.arrays import Ints
from causeway.audit.back_pressure import CAPACITY
from causeway.audit.flights import Cut, Pressure
from causeway.audit.windows import Lane, Promises
from causeway.ledger.order import lane_numbers
from causeway.model.order import groups_of

RANGE = 1 << 17
"""About so many messages of a large lane make a range."""

_MOST = 2**63 - 1
"""More than any lane can have in flight."""


def pressed(crowds: pa.Table, promises: Promises, begin: int, most: int, limit: int) -> Pressure | None:
    """Return the ranges of lanes that are looked at closely; None: in no lane can be anything to find.

    Args:
        crowds: what all runs say (``CROWDS_SCHEMA``).
        promises: of lanes.
        begin: the first part that is free.
        most: about so many messages come together in a part.
        limit: how many findings of a lane and reason are named.
    """
    names, code = lane_numbers(crowds)
    lanes: list[Lane] = [(a, b, c, d) for a, b, c, d in names]
    if not lanes:
        return None
    capacity = np.array([min(promises.of(lane).get(CAPACITY) or 0, _MOST) for lane in lanes], np.int64)
    high = np.asarray(crowds["by_height"].to_numpy(zero_copy_only=False), bool)
    in_heights = np.bincount(code[high], minlength=len(lanes)) == np.bincount(code[~high], minlength=len(lanes))
    rows = np.flatnonzero(high == in_heights[code])
    own, lane_of_row = crowds.take(pa.array(rows)).combine_chunks(), code[rows]
    unplaced = np.bincount(lane_of_row, own["unplaced"].to_numpy(), len(lanes)) > 0
    large = np.bincount(lane_of_row, own["sent"].to_numpy(), len(lanes)) > most
    lengths = np.diff(own["places"].combine_chunks().offsets.to_numpy()) if own.num_rows else np.zeros(0, np.int64)
    row = np.repeat(np.arange(len(rows)), lengths)
    place, order, level, begun = (
        np.asarray(own[name].combine_chunks().flatten().to_numpy()) for name in ("places", "orders", "most", "begun")
    )
    lane = lane_of_row[row]
    # From how many are in flight to how many more than at the point before.
    change = level.astype(np.int64).copy()
    change[1:] -= np.where(row[1:] == row[:-1], level[:-1], 0)
    by = np.lexsort((order, place, lane))
    lane, place, order, change, begun = lane[by], place[by], order[by], change[by], begun[by]
    level, before = _since_lane(lane, change), _since_lane(lane, begun) - begun
    starts = _range_starts(lane, place, order, np.where(large[lane], before // RANGE, 0))
    range_lane = lane[starts]
    full = np.maximum.reduceat(level, starts) > capacity[range_lane] if len(starts) else np.zeros(0, bool)
    sizes = np.add.reduceat(begun, starts)[full] if len(starts) else np.zeros(0, np.int64)
    groups = np.where(full, np.cumsum(full) - 1, -1)
    parts = begin + (np.cumsum(sizes) - sizes) // most
    count = 1 + int(parts[-1]) - begin if len(parts) else 1
    bounds = np.searchsorted(range_lane, np.arange(len(lanes) + 1))
    cuts = {}
    wanted = unplaced.copy()
    wanted[range_lane[full]] = True
    for number in np.flatnonzero(wanted).tolist():
        some = slice(bounds[number], bounds[number + 1])
        firsts, own_groups = starts[some][1:], groups[some] if bounds[number] < bounds[number + 1] else np.array([-1])
        cuts[lanes[number]] = Cut(
            *(number, bool(in_heights[number]), place[firsts], order[firsts], own_groups, begin + number % count)
        )
    return Pressure(cuts, parts, capacity[range_lane[full]], count, limit) if cuts else None


def _since_lane(lane: Ints, numbers: Ints) -> Ints:
    """Return the sum of numbers up to each in its lane."""
    sums = np.cumsum(numbers)
    first = groups_of(lane)
    return sums - first.spread((sums - numbers)[first.starts])


def _range_starts(lane: Ints, place: Ints, order: Ints, number: Ints) -> Ints:
    """Return where ranges begin: where the number of the point is another one than where the last range began, and no
    point before stands at the same place."""
    alike = groups_of(lane, place, order)
    number = alike.spread(number[alike.starts])
    new = np.ones(len(lane), bool)
    new[1:] = (lane[1:] != lane[:-1]) | (number[1:] != number[:-1])
    return np.flatnonzero(new)
