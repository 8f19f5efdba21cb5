"""How many messages of a lane are in flight: those of one range of it, out of whatever buckets they came."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway.audit.arrays import Array, Ints, Words
from causeway.audit.back_pressure import CHECK, OVER, UNCOVERED
from causeway.audit.candidates import TALLY_SCHEMA, Group, Met, met_of, shown_of
from causeway.audit.flights import COVERED, FLIGHTS_SCHEMA, FLYING, SUMS_SCHEMA, Pressure


def flights_met(records: Mapping[str, pa.Table], state: Pressure) -> Met:
    """Return what the records of one part show (``flights.RECORDS``), which has all of each range that it has any
    of."""
    every = _in_order(records["flights"])
    groups, number = np.unique(every["group"], return_inverse=True)
    number = number.reshape(-1).astype(np.int64)
    own_state = every["state"]
    stops = records["stops"]
    closings = []
    for kind, name in ((FLYING, "end"), (COVERED, "until")):
        chosen = (own_state & kind) > 0
        others = stops.filter(pc.equal(stops["state"], kind))
        closings.append(
            _closings(
                groups,
                np.concatenate((every["group"][chosen], others["group"].to_numpy())),
                np.concatenate((every[name][chosen], others["place"].to_numpy())),
            )
        )
    certain, possible = _counted(groups, number, every, closings, _sums(records["sums"], groups))
    capacity = state.capacities[every["group"]]
    over = certain > capacity
    unsure = ~over & (possible > capacity)
    found = [
        Group(CHECK, OVER, every, np.flatnonzero(over), (certain - capacity)[over].astype(np.float64)),
        Group(CHECK, UNCOVERED, every, np.flatnonzero(unsure), (possible - capacity)[unsure].astype(np.float64)),
    ]
    met = met_of(found, {}, state.limit)
    unplaced = records["unplaced_many"].group_by(["reason", "lane"]).aggregate([("count", "sum")])
    tally = unplaced.rename_columns({"count_sum": "count"}).select(TALLY_SCHEMA.names).cast(TALLY_SCHEMA)
    return Met(
        pa.concat_tables([met.candidates, shown_of(records["unplaced"].combine_chunks(), state.limit)]),
        pa.concat_tables([met.tally, tally]),
        met.examined,
    )


def _in_order(flights: pa.Table) -> dict[str, Array]:
    """Return messages by range and place, those of one place in the order of their lane."""
    names = [name for name in FLIGHTS_SCHEMA.names if name != "message_id"]
    own = {name: flights[name].to_numpy() for name in names}
    keys: list[Array] = [own["index"], 1 - own["indexed"].astype(np.int8), own["place"], own["group"]]
    if flights["message_id"].null_count < flights.num_rows:
        order = pc.sort_indices(flights["message_id"]).to_numpy()
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        # All with an index have none, and are alike in this.
        rank[own["indexed"] == 1] = -1
        keys.insert(0, np.where(own["indexed"] == 1, 0, rank))
    order = np.lexsort(keys)
    return {name: column[order] for name, column in own.items()}


def _closings(groups: Ints, group: Ints, place: Words) -> tuple[Ints, Words]:
    """Return where those of each range begin, and places, ascending in each range."""
    own = np.isin(group, groups)
    group, place = group[own], place[own]
    order = np.lexsort((place, group))
    starts = np.searchsorted(group[order], groups)
    return np.append(starts, len(order)).astype(np.int64), np.ascontiguousarray(place[order])


def _sums(sums: pa.Table, groups: Ints) -> Ints:
    """Return how many are in flight of each state where each range begins."""
    found = np.zeros((len(groups), 3), np.int64)
    at = np.searchsorted(groups, sums["group"].to_numpy())
    inside = at < len(groups)
    inside[inside] = groups[at[inside]] == sums["group"].to_numpy()[inside]
    for place, name in enumerate(SUMS_SCHEMA.names[1:]):
        np.add.at(found[:, place], at[inside], sums[name].to_numpy()[inside])
    return found


def _counted(
    groups: Ints, number: Ints, every: Mapping[str, Array], closings: list[tuple[Ints, Words]], sums: Ints
) -> tuple[Ints, Ints]:
    from causeway.audit.back_pressure_loops import in_flight

    certain, possible = np.empty(len(number), np.int64), np.empty(len(number), np.int64)
    starts = np.searchsorted(number, np.arange(len(groups) + 1)).astype(np.int64)
    (end_starts, end), (until_starts, until) = closings
    in_flight(*(starts, every["place"], every["state"], end_starts, end, until_starts, until, sums, certain, possible))
    return certain, possible
