"""Ages of pending messages: one rule for every face of the product.

A message is as old as the input shows it without an end: from its sending to the time at which the audit judges its
arrival (``Windows.arrivals_until``). That is the end of the window of its destination that has the sending, where one
is declared or the rows show several; else the last time of its chains, or of the ledger.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from causeway.audit.columns import NO_TIME
from causeway.audit.windows import Lane, Promises, Windows

_MOST = (1 << 63) - 1


class Ages:
    """Returns how old pending messages are at the end of what the input covers.

    Args:
        span: the ends of the rows: ``first_tick``, ``last_tick``, ``first_time``, ``last_time`` (microseconds), each
            None where no row has one.
        observed: the windows of the ledger; None: none are known, and messages age until the last row.
        promises: what its lanes promise.
    """

    def __init__(
        self, span: dict[str, Any], observed: pa.Table | None = None, promises: pa.Table | None = None
    ) -> None:
        self._last_tick: int | None = span["last_tick"]
        self._last_time: int | None = span["last_time"]
        self._windows = None if observed is None else Windows(observed, self._last_time)
        self._promises = None if promises is None else Promises(promises)
        self._tick_length = _tick_length(span)

    def in_ticks(self, lane: Lane, tick: int) -> int | None:
        """Return the age in ticks of a message of a lane that was sent at a tick, None if it is unknown."""
        if self._last_tick is None:
            return None
        last, length = self._last_tick, self._tick_length
        if length is not None and (until := self._until(lane, tick * length)) is not None:
            last = until // length
        return min(max(last - tick, 0), _MOST)

    def in_microseconds(self, lane: Lane, time: int) -> int | None:
        """Return the age in microseconds of a message of a lane that was sent at a time, None if it is unknown."""
        until = self._until(lane, time)
        return None if until is None else min(max(until - time, 0), _MOST)

    def _until(self, lane: Lane, time: int) -> int | None:
        """Return until which time, in microseconds, the input shows a message of a lane, None if it is unknown."""
        if self._windows is None or not -_MOST <= time <= _MOST:
            return self._last_time
        within = None if self._promises is None else self._promises.deadline(lane)[0]
        end = int(self._windows.arrivals_until(lane, np.array([time], np.int64), within or 0).end[0])
        return self._last_time if end == NO_TIME else end


def _tick_length(span: dict[str, Any]) -> int | None:
    """Return the microseconds of a tick where times are ticks since 1970, as in ledgers of runs; None elsewhere."""
    if None in span.values() or span["last_tick"] < 1 or span["last_time"] < 1:
        return None
    length, rest = divmod(span["last_time"], span["last_tick"])
    return None if rest or span["first_time"] != span["first_tick"] * length else int(length)


__all__ = ["Ages"]
