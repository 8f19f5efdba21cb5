"""A loop over requests that were replied to in their own lanes: which replies were in time."""

from __future__ import annotations

from typing import Any

from causeway.audit.message_loops import CODES, NO_TIME, between
from causeway.model.compiled import BYTES, BYTES_OUT, INT64, NOTHING, ROWS, compiled, written


@compiled(
    NOTHING, [BYTES, CODES, ROWS, CODES, CODES, ROWS, BYTES_OUT, written("float64"), INT64, INT64], allocates=False
)
def judge_replies(
    asked: Any,
    lane: Any,
    limits: Any,
    sent: Any,
    reply: Any,
    time: Any,
    outcome: Any,
    magnitude: Any,
    late: Any,
    without_time: Any,
) -> None:
    """Write what is found of each message that was asked and has a reply, and after how many microseconds it came.

    ``limits``: of each lane, in microseconds, -1: none; ``sent``, ``reply``: the rows of each message, -1: none;
    ``late``, ``without_time``: what is written.
    """
    for message in range(len(asked)):
        limit = limits[lane[message]]
        if not asked[message] or limit < 0 or reply[message] < 0:
            continue
        one, other = time[sent[message]], time[reply[message]]
        if one == NO_TIME or other == NO_TIME:
            outcome[message] = without_time
        else:
            delay = between(one, other)
            magnitude[message] = delay
            if delay > limit:
                outcome[message] = late
