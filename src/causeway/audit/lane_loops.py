"""A loop over the messages of lanes in the order of their indices: order, and what is missing.

A segment is a run of messages of one lane; ``firsts`` are the first rows of a message's events, -1 for none
(``message_loops.judge``). What was not seen of a height, position or time is the largest value of its type.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from causeway.audit.message_loops import ACKNOWLEDGED, NO_HEIGHT, NO_TIME, RECEIVED, SENT, WORDS
from causeway.model.compiled import BYTES, NOTHING, ROWS, compiled, read, written

NOTHING_BEFORE = np.int64(-0x8000000000000000)
"""The time before every time."""

_WALK = [
    *(ROWS, ROWS, WORDS, read("int32", 2), WORDS, WORDS, read("int64"), BYTES),
    *(written("uint64", 2), written("uint64", 2), written("uint8", 2), written("int64", 2)),
    *(written("uint64", 2), written("int64", 2), written("uint8", 2)),
    *(written("int64", 2), written("int64", 2), written("int64", 2), written("int64", 2), written("int64", 2)),
    written("int64"),
]


@compiled(NOTHING, _WALK, allocates=False)
def walk(
    starts: Any,
    stops: Any,
    index: Any,
    firsts: Any,
    height: Any,
    position: Any,
    time: Any,
    is_open: Any,
    top: Any,
    top_position: Any,
    has_top: Any,
    top_time: Any,
    least: Any,
    least_time: Any,
    below: Any,
    ends: Any,
    gaps: Any,
    skips: Any,
    lead: Any,
    tail: Any,
    sizes: Any,
) -> None:
    """Walk along segments, each the messages from its start up to its stop.

    ``is_open``: messages that were sent and of which nothing else is known. ``top``, ``top_position``, ``has_top``,
    ``top_time``: of a segment and each of sent, received, acknowledged, the last place before it, and then the last
    place in it or before. Written are: ``least``, ``least_time``: the first place in it; ``below``: whether a message's
    event was before that of an earlier message; ``ends``: the first and the last message that was sent; ``gaps``: pairs
    of sent messages between whose indices some are missing; ``skips``: (the received message before or -1, the next
    received one, the first of the open ones in between, how many) where there is one before in the segment; ``lead``:
    (the first open one, how many, the first received message) before any is received, ``tail``: the same after the
    last, with the last received message; ``sizes``: how many gaps and skips.
    """
    gap_count, skip_count = 0, 0
    for segment in range(len(starts)):
        before_sent, received = -1, -1
        waiting, first_waiting = 0, -1
        for message in range(starts[segment], stops[segment]):
            for each in range(3):
                row = firsts[message, SENT if each == 0 else (RECEIVED if each == 1 else ACKNOWLEDGED)]
                if row < 0:
                    continue
                at = height[row]
                if at != NO_HEIGHT:
                    least[segment, each] = min(least[segment, each], at)
                    if not has_top[segment, each] or at > top[segment, each]:
                        has_top[segment, each] = 1
                        top[segment, each] = at
                        top_position[segment, each] = position[row]
                    elif at < top[segment, each]:
                        below[message, each] = 1
                    elif position[row] != NO_HEIGHT:
                        if top_position[segment, each] == NO_HEIGHT or position[row] > top_position[segment, each]:
                            top_position[segment, each] = position[row]
                        elif position[row] < top_position[segment, each]:
                            below[message, each] = 1
                elif time[row] != NO_TIME:
                    least_time[segment, each] = min(least_time[segment, each], time[row])
                    if time[row] < top_time[segment, each]:
                        below[message, each] = 1
                    else:
                        top_time[segment, each] = time[row]
            if firsts[message, SENT] >= 0:
                if before_sent < 0:
                    ends[segment, 0] = message
                elif index[message] - index[before_sent] > np.uint64(1):
                    gaps[gap_count, 0] = before_sent
                    gaps[gap_count, 1] = message
                    gap_count += 1
                before_sent = message
            if firsts[message, RECEIVED] >= 0:
                if received < 0:
                    lead[segment, 0] = first_waiting
                    lead[segment, 1] = waiting
                    lead[segment, 2] = message
                elif waiting > 0:
                    skips[skip_count, 0] = received
                    skips[skip_count, 1] = message
                    skips[skip_count, 2] = first_waiting
                    skips[skip_count, 3] = waiting
                    skip_count += 1
                received = message
                waiting, first_waiting = 0, -1
            elif is_open[message]:
                if waiting == 0:
                    first_waiting = message
                waiting += 1
        ends[segment, 1] = before_sent
        if received < 0:
            lead[segment, 0] = first_waiting
            lead[segment, 1] = waiting
            lead[segment, 2] = -1
            waiting, first_waiting = 0, -1
        tail[segment, 0] = first_waiting
        tail[segment, 1] = waiting
        tail[segment, 2] = received
    sizes[0] = gap_count
    sizes[1] = skip_count


SIDES = 3
"""Rows of a lane by where their event happens: at its source, at its destination, elsewhere."""

TALLIED = 9
"""What is counted of a side: rows, and those without index, name of the message, height, time, content, amount; of
sent and received rows alone: how many there are, and those of them without content."""

_TALLY = [
    *(ROWS, read("int8"), BYTES, read("int32"), WORDS, read("int64"), BYTES, BYTES),
    *(written("int64", 3), written("uint64", 3), written("int64", 3)),
]


@compiled(NOTHING, _TALLY, allocates=False)
def tally(
    lane: Any,
    event: Any,
    indexed: Any,
    ident: Any,
    height: Any,
    time: Any,
    has_content: Any,
    has_amount: Any,
    counts: Any,
    heights: Any,
    times: Any,
) -> None:
    """Count rows by lane and side (``TALLIED``), and widen the first and last height and time of each."""
    for row in range(len(lane)):
        kind = event[row]
        side = 2
        if kind == 0 or kind == 1 or kind == 6 or kind == 8 or kind == 10:
            side = 0
        elif kind == 3 or kind == 4 or kind == 5 or kind == 7:
            side = 1
        at = lane[row]
        counts[at, side, 0] += 1
        counts[at, side, 1] += not indexed[row]
        counts[at, side, 2] += not indexed[row] and ident[row] < 0
        counts[at, side, 3] += height[row] == NO_HEIGHT
        counts[at, side, 4] += time[row] == NO_TIME
        counts[at, side, 5] += not has_content[row]
        counts[at, side, 6] += not has_amount[row]
        if kind in (SENT, RECEIVED):
            counts[at, side, 7] += 1
            counts[at, side, 8] += not has_content[row]
        if height[row] != NO_HEIGHT:
            heights[at, side, 0] = min(heights[at, side, 0], height[row])
            heights[at, side, 1] = max(heights[at, side, 1], height[row])
        if time[row] != NO_TIME:
            times[at, side, 0] = min(times[at, side, 0], time[row])
            times[at, side, 1] = max(times[at, side, 1], time[row])
