"""What a person has to know of how a ledger was judged, as sentences."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from causeway.audit.known import Known
from causeway.audit.windows import EVERY, Lane, Promises, lanes_in
from causeway.ledger.schema import CLOCK_TOLERANCE, RESTARTED, STATED_BY, Event
from causeway.ledger.typed import plain_rows
from causeway.model.text import name_of

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
    ends = pa.table({"time": pa.array([times[0], times[-1]], pa.timestamp("us", "UTC"))})
    first, last = (row["time"] for row in plain_rows(ends))
    span = f"{first:%Y-%m-%d %H:%M:%S}" + (f" to {last:%Y-%m-%d %H:%M:%S}" if last != first else "")
    if holes:
        return [
            f"Deadlines are judged at the ends of the windows that the rows show (until {span} UTC): none is declared."
        ]
    return [f"Deadlines are judged by the last time of the input ({span} UTC): no window is declared."]


def _clocks(promises: Promises) -> list[str]:
    chains = sorted({row["source"] or "" for row in promises.rows if row["promise"] == CLOCK_TOLERANCE})
    found = [(chain, promises.tolerance(chain or None)) for chain in chains]
    named = [f"{name_of(of) or 'every chain'} {micros / 1e6:,.6g} s" for of, micros in found if micros]
    return [f"Clocks may be wrong, and messages early by as much: {_some(named)}."] if named else []


def _of_no_lane(lanes: list[Lane], promises: Promises) -> list[str]:
    """Of a lake that Causeway ran it is no mistake that a lane or a chain has no messages."""
    chains = {chain for lane in lanes for chain in lane[1:3]}
    known: dict[tuple[bool, ...], set[tuple[str | None, ...]]] = {}
    unmet: list[str] = []
    for row in promises.rows:
        names = row["protocol"], row["source"], row["destination"], row["lane"]
        if names[1:] == EVERY[1:] or row["stated_by"] == STATED_BY:
            continue
        if row["promise"] in (CLOCK_TOLERANCE, RESTARTED):
            met = row["source"] in chains
        else:
            given = tuple(name is not None for name in names)
            if given not in known:
                known[given] = {_given(lane, given) for lane in lanes}
            met = _given(names, given) in known[given]
        if not met:
            unmet.append(f"{row['promise']} of {_name(names)}")
    return [f"Promises without effect, as no lane of the input has these names: {_some(unmet)}."] if unmet else []


def _given(names: tuple[str | None, ...], given: tuple[bool, ...]) -> tuple[str | None, ...]:
    return tuple(name for name, is_given in zip(names, given, strict=True) if is_given)


def _name(names: tuple[str | None, ...]) -> str:
    given = zip(("protocol", "source", "destination", "lane"), names, strict=True)
    return ", ".join(f"{name} {value!r}" for name, value in given if value is not None)


def _some(names: Iterable[str]) -> str:
    each = list(dict.fromkeys(names))
    more = f" and {len(each) - MOST_NAMED:,} more" if len(each) > MOST_NAMED else ""
    return ", ".join(each[:MOST_NAMED]) + more


__all__ = ["remarks"]
