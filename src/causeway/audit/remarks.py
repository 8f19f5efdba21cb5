"""What a person has to know of how a ledger was judged, as sentences."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import pyarrow as pa

from causeway.audit.known import Known
from causeway.audit.windows import Lane, Promises, lane_of, lanes_in
from causeway.ledger.schema import CLOCK_TOLERANCE, LANE, STATED_BY, Event
from causeway.model.text import EPOCH, moment_text, name_of

MOST_NAMED = 3
"""Maximum number of promises, and of clocks, that are named."""


def remarks(lanes: pa.Table, known: Known) -> tuple[str, ...]:
    """Return how a ledger was judged where its reader could take it otherwise.

    By which time deadlines are judged where no window is declared, by how much clocks may be wrong, and which promises
    are of no lane that there is. ``lanes``: the figures of lanes.
    """
    every = lanes_in(lanes)
    return (*_ends(every, known), *_clocks(known.promises), *_of_no_lane(every, known.promises))


def _ends(lanes: list[Lane], known: Known) -> list[str]:
    found, holes = set(), False
    for lane in lanes:
        limit, _ = known.promises.deadline(lane)
        if limit is not None and not known.windows.declares(lane[2], lane, Event.RECEIVED):
            end, several = known.windows.ends(lane)
            found.add(end)
            holes |= several
    times = sorted(end for end in found if end is not None)
    if not times:
        return []
    span = " to ".join(dict.fromkeys((_moment(times[0]), _moment(times[-1]))))
    if holes:
        return [f"Deadlines are judged at the ends of the windows that the rows show (until {span}): none is declared."]
    arrivals = " with arrivals" if any(known.windows.declares(lane[2], lane) for lane in lanes) else ""
    return [f"Deadlines are judged by the last time of the input ({span}): no window{arrivals} is declared."]


def _moment(time: int) -> str:
    try:
        return f"{moment_text(EPOCH + timedelta(microseconds=time))} UTC"
    except OverflowError:  # no calendar has it
        return f"{time // 1_000_000:,} s after 1970"


def _clocks(promises: Promises) -> list[str]:
    chains = sorted({row["source"] or "" for row in promises.rows if row["promise"] == CLOCK_TOLERANCE})
    found = [(chain, promises.tolerance(chain or None)) for chain in chains]
    named = [f"{name_of(of) or 'every chain'} {micros / 1e6:,.6g} s" for of, micros in found if micros]
    return [f"Clocks may be wrong, and messages early by as much: {_some(named)}."] if named else []


def _of_no_lane(lanes: list[Lane], promises: Promises) -> list[str]:
    """Of a lake that Causeway ran it is no mistake that a chain or a lane has no messages, nor of a kind of input that
    one of its protocols has none."""
    chains, names = ({lane[at] for lane in lanes for at in places} | {None} for places in ((1, 2), (3,)))
    unmet: list[str] = []
    for row in promises.rows:
        known = row["source"] in chains and row["destination"] in chains and row["lane"] in names
        if not known and row["stated_by"] != STATED_BY:
            unmet.append(f"{name_of(row['promise'])} of {_name(lane_of(row))}")
    return [f"Promises without effect, as the input has no such chain or lane: {_some(unmet)}."] if unmet else []


def _name(names: tuple[str | None, ...]) -> str:
    given = zip(LANE, names, strict=True)
    return ", ".join(f"{name} {value!r}" for name, value in given if value is not None)


def _some(names: Iterable[str]) -> str:
    each = list(dict.fromkeys(names))
    more = f" and {len(each) - MOST_NAMED:,} more" if len(each) > MOST_NAMED else ""
    return ", ".join(each[:MOST_NAMED]) + more


__all__ = ["remarks"]
