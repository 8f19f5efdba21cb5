"""When a network's next round is due, for protocols that cannot tell exactly when what waits will move."""

from __future__ import annotations

from causeway.protocols.contract import Tick

QUIET_TICKS = 1_000
"""After so many ticks in which nothing moved, nothing is expected to move of itself any more."""


def wake(tick: Tick, *, idle: bool, planned: int | None, pause: int | None = None) -> int | None:
    """Return the next tick at which something happens of itself, None when nothing does any more.

    ``idle``: nothing waits to move. ``planned``: the next tick at which something is planned (a fault, a move of a
    program). ``pause``: the most ticks between two rounds as long as anything is still to come.
    """
    following = tick.tick + 1
    if not idle:
        return following
    if pause is None or (planned is None and tick.coming is None):
        return planned
    return earliest(planned, max(following, tick.tick + pause))


def earliest(*ticks: int | None) -> int | None:
    """Return the earliest of ticks, or heights, of which each may be none; None where all are."""
    return min((tick for tick in ticks if tick is not None), default=None)


def gives_up(tick: Tick, *, settled: int, idle_limit: int = QUIET_TICKS) -> int:
    """Return the tick from which on a round in which nothing moves is the last: what waits will not move any more.

    ``settled``: the tick from which on nothing that is planned can still have an effect. ``idle_limit``: how many
    rounds in which nothing moves there are before; more than what waits may rest, by a time-out at the latest.
    """
    return max(tick.quiet_since, settled) + idle_limit - 1
