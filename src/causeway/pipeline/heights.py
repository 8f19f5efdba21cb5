"""One height after the other: what all buckets together say of a height, and when the next one is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from causeway.model.traffic import Traffic
from causeway.pipeline.manifests import Line
from causeway.pipeline.record import NOTHING, Outside, brings
from causeway.protocols.contract import Tick

FIRST_HEIGHT = 0
"""The height of genesis."""

GENESIS = Tick(FIRST_HEIGHT, 0)


class Said(NamedTuple):
    """What one bucket says of a height: as of ``RoundResult``, and how many rows each log table got."""

    wake: int | None
    needs: int | None
    gives_up: int | None
    rows: Mapping[str, int]
    upkeep: Sequence[str] = ()


def line_of(tick: Tick, said: Sequence[Said]) -> Line:
    """Return what is known of a height from what each bucket says of it.

    A bucket that gives up does not wake any more: whether anything moved is known here, of all of them.
    """
    rows: dict[str, int] = {}
    for one in said:
        for table, count in one.rows.items():
            rows[table] = rows.get(table, 0) + count
    upkeep = {table for one in said for table in one.upkeep}
    quiet = not moved({table: count for table, count in rows.items() if table not in upkeep})
    ends = tick.tick if quiet and tick.coming is None else -1
    wakes = [one.wake for one in said if one.wake is not None and (one.gives_up is None or one.gives_up > ends)]
    needs = [one.needs for one in said if one.needs is not None]
    quiet_since = tick.quiet_since if quiet else tick.tick + 1
    return Line(tick.height, tick.tick, min(wakes, default=None), quiet_since, min(needs, default=None), rows)


def moved(rows: Mapping[str, int]) -> bool:
    """Return whether anything happened at a height, by its numbers of rows.

    Headers do not count, nor what carriers brought, refused or taken, nor handlers that failed, which may be tried for
    ever: where that moved a message, it has events of its own.
    """
    still = ("headers", "events", "of_carriers", "failures")
    others = sum(count for table, count in rows.items() if table not in still)
    return others > 0 or rows.get("events", 0) > rows.get("of_carriers", 0)


def tick_after(before: Line, tick: int, traffic: Traffic, outside: Outside = NOTHING) -> Tick:
    """Return a tick as the height after ``before``. ``outside``: what was recorded for it."""
    came = brings(outside) or traffic.next_tick(tick) == tick
    quiet_since = max(before.quiet_since, tick) if came else before.quiet_since
    return Tick(before.height + 1, tick, traffic.next_tick(tick + 1), quiet_since)


def next_tick(before: Line, traffic: Traffic) -> int | None:
    """Return the tick that runs after a height, None when nothing is left to do: idle ticks without traffic are
    skipped."""
    following = before.tick + (1 if before.height else 0)
    due = (before.wake, traffic.next_tick(following))
    return min((max(tick, following) for tick in due if tick is not None), default=None)
