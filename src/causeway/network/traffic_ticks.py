"""When traffic comes: the ticks that bring any, and the last of them."""

from __future__ import annotations

from causeway.model.traffic import Traffic


def ticks_with_traffic(traffic: Traffic, first: int, end: int | None, most: int) -> list[int] | None:
    """Return the ticks from ``first`` on, below ``end``, that bring traffic; None: there are more than ``most``."""
    found: list[int] = []
    tick = traffic.next_tick(first)
    while tick is not None and (end is None or tick < end):
        if len(found) == most:
            return None
        found.append(tick)
        tick = traffic.next_tick(tick + 1)
    return found


def last_tick(traffic: Traffic) -> int | None:
    """Return the last tick that brings traffic, None when there is none."""
    known = traffic.next_tick(0)
    if known is None:
        return None
    beyond = known + 1
    while (found := traffic.next_tick(beyond)) is not None:
        known, beyond = found, 2 * found + 1
    # Nothing comes from ``beyond`` on: close in on the last tick before it.
    while beyond - known > 1:
        middle = (known + beyond) // 2
        found = traffic.next_tick(middle)
        known, beyond = (known, middle) if found is None else (found, beyond)
    return known


__all__ = ["last_tick", "ticks_with_traffic"]
