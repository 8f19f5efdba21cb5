"""A loop over the messages of lanes in the order of their indices: order, and what is missing.

A piece is a run of messages of one lane; ``sent``, ``received``, ``acknowledged`` are each message's first rows of
these events, -1 for none (``message_loops.judge``). What was not seen of a height, position or time is the largest
value of its type.

Loops over the messages of lanes in the order in which they are sent, and the ends of their flights.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from causeway_proofs.jit import BYTES, INT64, NOTHING, ROWS, ROWS_OUT, compile_loop, read_only_arrays, writable_arrays

from causeway.audit.message_loops import CODES, NO_HEIGHT, NO_TIME, RECEIVED, SENT, WORDS

NOTHING_BEFORE = np.int64(-0x8000000000000000)
"""The time before every time."""


@compile_loop(allocates=False)
def is_behind_position(height: Any, time: Any, top: Any, top_at: Any) -> Any:
    """Return whether a row is before another place of a chain that is of a greater height: unless its time is later."""
    return height < top and not (time != NO_TIME and top_at != NO_TIME and time > top_at)


_WALK = [
    *(
        ROWS,
        ROWS,
        WORDS,
        CODES,
        CODES,
        CODES,
        WORDS,
        WORDS,
        read_only_arrays("int64"),
        BYTES,
        read_only_arrays("int64"),
    ),
    *(
        writable_arrays("uint64", 2),
        writable_arrays("uint64", 2),
        writable_arrays("int64", 2),
        writable_arrays("uint8", 2),
    ),
    *(writable_arrays("int64", 2), writable_arrays("uint64", 2), writable_arrays("int64", 2)),
    *(writable_arrays("uint64", 2), writable_arrays("int64", 2), writable_arrays("uint8", 2)),
    *(
        writable_arrays("int64", 2),
        writable_arrays("int64", 2),
        writable_arrays("int64", 2),
        writable_arrays("int64", 2),
        writable_arrays("int64", 2),
    ),
    *(
        writable_arrays("int64"),
        BYTES,
        read_only_arrays("int64"),
        writable_arrays("int32", 2),
        writable_arrays("int32", 3),
    ),
]


@compile_loop(NOTHING, _WALK, allocates=False)
def scan_lanes(
    starts: Any,
    stops: Any,
    index: Any,
    sent: Any,
    received: Any,
    acknowledged: Any,
    height: Any,
    position: Any,
    time: Any,
    is_open: Any,
    until: Any,
    top: Any,
    top_position: Any,
    top_at: Any,
    has_top: Any,
    last_at: Any,
    last: Any,
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
    anew: Any,
    slot: Any,
    raised: Any,
    raising: Any,
) -> None:
    """Walk along pieces, each the messages from its start up to its stop.

    ``is_open``: messages that were sent and of which nothing else is known, ``until``: until which time the input would
    show it if they had ended (``NOTHING_BEFORE``: it would not). Of a piece and each of sent, received, acknowledged,
    the last places before it, and then in it or before: ``top`` with ``top_position`` and the time ``top_at``: the
    greatest height (``has_top``: whether there is any); ``last_at`` with the height ``last``: the latest time of a row
    with a height; ``top_time``: the latest time of rows without height. Of pieces ``anew`` a row is behind a place of
    greater height only unless its time is later: then heights began anew in between (``is_behind``). Written are:
    ``least``, ``least_time``: the first place in it; ``below``: whether a message's event was before that of an earlier
    message; ``ends``: the first and the last message that was sent; ``gaps``: pairs of sent messages between whose
    indices some are missing; ``skips``: (the received message before or -1, the next received one, the first of the
    open ones in between, how many, the least ``until`` of them) where there is one before in the piece; ``lead``: (the
    first open one, how many, the first received message, the least ``until``) before any is received, ``tail``: the
    same after the last, with the last received message; ``sizes``: how many gaps and skips. Of a piece with a ``slot``
    (others: -1) ``raising`` has the first rows of each event that are not before that of an earlier message, ``raised``
    how many.
    """
    gap_count, skip_count = 0, 0
    for piece in range(len(starts)):
        own = slot[piece]
        for each in range(3):
            rows = sent if each == 0 else (received if each == 1 else acknowledged)
            has, high, high_position, high_at = (
                has_top[piece, each],
                top[piece, each],
                top_position[piece, each],
                top_at[piece, each],
            )
            latest, latest_height, late = last_at[piece, each], last[piece, each], top_time[piece, each]
            low, early = least[piece, each], least_time[piece, each]
            kept = 0
            for message in range(starts[piece], stops[piece]):
                row = rows[message]
                if row < 0:
                    continue
                at = height[row]
                behind = False
                if at != NO_HEIGHT:
                    low = min(low, at)
                    if not has or at > high:
                        has, high, high_position, high_at = 1, at, position[row], time[row]
                    elif at < high:
                        behind = not anew[piece] or (
                            is_behind_position(at, time[row], high, high_at)
                            or is_behind_position(at, time[row], latest_height, latest)
                        )
                    elif position[row] != NO_HEIGHT:
                        if high_position == NO_HEIGHT or position[row] > high_position:
                            high_position, high_at = position[row], time[row]
                        elif position[row] < high_position:
                            behind = True
                    if (
                        anew[piece]
                        and time[row] != NO_TIME
                        and (time[row] > latest or (time[row] == latest and at > latest_height))
                    ):
                        latest, latest_height = time[row], at
                elif time[row] != NO_TIME:
                    early = min(early, time[row])
                    if time[row] < late:
                        behind = True
                    else:
                        late = time[row]
                if behind:
                    below[each, message] = 1
                elif own >= 0 and kept < raising.shape[2] and (at != NO_HEIGHT or time[row] != NO_TIME):
                    raising[own, each, kept] = row
                    kept += 1
            if own >= 0:
                raised[own, each] = kept
            has_top[piece, each], top[piece, each], top_position[piece, each] = has, high, high_position
            top_at[piece, each], last_at[piece, each], last[piece, each] = high_at, latest, latest_height
            top_time[piece, each], least[piece, each], least_time[piece, each] = late, low, early
        before_sent, last_received = -1, -1
        waiting, first_waiting, shown = 0, -1, NO_TIME
        for message in range(starts[piece], stops[piece]):
            if sent[message] >= 0:
                if before_sent < 0:
                    ends[piece, 0] = message
                elif index[message] - index[before_sent] > np.uint64(1):
                    gaps[gap_count, 0] = before_sent
                    gaps[gap_count, 1] = message
                    gap_count += 1
                before_sent = message
            if received[message] >= 0:
                if last_received < 0:
                    lead[piece, 0] = first_waiting
                    lead[piece, 1] = waiting
                    lead[piece, 2] = message
                    lead[piece, 3] = shown
                elif waiting > 0:
                    skips[skip_count, 0] = last_received
                    skips[skip_count, 1] = message
                    skips[skip_count, 2] = first_waiting
                    skips[skip_count, 3] = waiting
                    skips[skip_count, 4] = shown
                    skip_count += 1
                last_received = message
                waiting, first_waiting, shown = 0, -1, NO_TIME
            elif is_open[message]:
                if waiting == 0:
                    first_waiting = message
                waiting += 1
                shown = min(shown, until[message])
        ends[piece, 1] = before_sent
        if last_received < 0:
            lead[piece, 0] = first_waiting
            lead[piece, 1] = waiting
            lead[piece, 2] = -1
            lead[piece, 3] = shown
            waiting, first_waiting, shown = 0, -1, NO_TIME
        tail[piece, 0] = first_waiting
        tail[piece, 1] = waiting
        tail[piece, 2] = last_received
        tail[piece, 3] = shown
    sizes[0] = gap_count
    sizes[1] = skip_count


SIDES = 3
"""Rows of a lane by where their event happens: at its source, at its destination, elsewhere."""

TALLIED = 9
"""What is counted of a side: rows, and those without index, name of the message, height, time, content, amount; of
sent and received rows alone: how many there are, and those of them without content."""

_TALLY = [
    *(CODES, CODES, BYTES, CODES, WORDS, read_only_arrays("int64"), BYTES, BYTES),
    *(writable_arrays("int64", 3), writable_arrays("uint64", 3), writable_arrays("int64", 3)),
]


@compile_loop(NOTHING, _TALLY, allocates=False)
def tally_rows(
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
    """Count rows by lane and side (``TALLIED``), and widen the first and last height and time of each.

    ``ident``: empty where every row has an index.
    """
    for row in range(len(lane)):
        kind = event[row]
        side = 2
        if kind == 0 or kind == 1 or kind == 6 or kind == 8 or kind == 10:
            side = 0
        elif kind == 3 or kind == 4 or kind == 5 or kind == 7:
            side = 1
        at = lane[row]
        counts[at, side, 0] += 1
        if not indexed[row]:
            counts[at, side, 1] += 1
            counts[at, side, 2] += ident[row] < 0
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


RANGE_WORDS, WORDS_OUT = read_only_arrays("uint64"), writable_arrays("uint64")

_CROWD = [
    ROWS,
    ROWS,
    ROWS,
    RANGE_WORDS,
    RANGE_WORDS,
    BYTES,
    RANGE_WORDS,
    ROWS_OUT,
    WORDS_OUT,
    WORDS_OUT,
    ROWS_OUT,
    ROWS_OUT,
]


@compile_loop(INT64, _CROWD, allocates=False)
def write_range_points(
    starts: Any,
    end_starts: Any,
    steps: Any,
    place: Any,
    order: Any,
    flies: Any,
    end: Any,
    lanes: Any,
    places: Any,
    orders: Any,
    most: Any,
    begun: Any,
) -> Any:
    """Write a point for every so many sendings and ends of each lane (``steps``), and for its last one; return how many
    there are.

    ``starts``, ``end_starts``: where the sendings of each lane begin, by ``place`` and ``order``, and its ends, by
    place; an end comes before what is sent at its place. ``flies``: which sendings begin a flight. ``lanes``,
    ``places``, ``orders``: of points; ``most``: how many are in flight at most from there up to the next one;
    ``begun``: how many are sent.
    """
    count = 0
    for lane in range(len(steps)):
        send, stop, close, close_stop = starts[lane], starts[lane + 1], end_starts[lane], end_starts[lane + 1]
        total, flying = stop - send + close_stop - close, 0
        for event in range(total):
            ends = close < close_stop and (send >= stop or end[close] <= place[send])
            if event % steps[lane] == 0 or event == total - 1:
                lanes[count] = lane
                places[count] = end[close] if ends else place[send]
                orders[count] = np.uint64(0) if ends else order[send]
                most[count], begun[count] = 0, 0
                count += 1
            if ends:
                flying -= 1
                close += 1
            else:
                flying += flies[send]
                begun[count - 1] += 1
                send += 1
            most[count - 1] = max(most[count - 1], flying)
    return count


@compile_loop(NOTHING, [RANGE_WORDS, RANGE_WORDS, RANGE_WORDS, RANGE_WORDS, ROWS_OUT], allocates=False)
def count_range_pairs(place: Any, order: Any, places: Any, orders: Any, found: Any) -> None:
    """Write how many of some ascending pairs (``places``, ``orders``) are at most each pair."""
    for row in range(len(place)):
        low, high = 0, len(places)
        while low < high:
            middle = (low + high) >> 1
            if places[middle] < place[row] or (places[middle] == place[row] and orders[middle] <= order[row]):
                low = middle + 1
            else:
                high = middle
        found[row] = low


_FLIGHTS = [
    ROWS,
    RANGE_WORDS,
    BYTES,
    ROWS,
    RANGE_WORDS,
    ROWS,
    RANGE_WORDS,
    read_only_arrays("int64", 2),
    ROWS_OUT,
    ROWS_OUT,
]


@compile_loop(NOTHING, _FLIGHTS, allocates=False)
def count_inflight(
    starts: Any,
    place: Any,
    state: Any,
    end_starts: Any,
    end: Any,
    until_starts: Any,
    until: Any,
    sums: Any,
    certain: Any,
    possible: Any,
) -> None:
    """Write how many messages surely are in flight when each is sent, and how many may be; it is one of them.

    ``starts``: where the messages of each range begin, in their order; ``state``: bits ``back_pressure.FLYING``,
    ``UNENDED``, ``COVERED``; ``end``, ``until``: ascending in each range, of messages in it or before; ``sums``: how
    many of each state are in flight where each range begins.
    """
    for group in range(len(starts) - 1):
        flying, unended, covered = sums[group, 0], sums[group, 1], sums[group, 2]
        close, lost = end_starts[group], until_starts[group]
        for row in range(starts[group], starts[group + 1]):
            while close < end_starts[group + 1] and end[close] <= place[row]:
                flying -= 1
                close += 1
            while lost < until_starts[group + 1] and until[lost] < place[row]:
                covered -= 1
                lost += 1
            flying += state[row] & 1
            unended += (state[row] >> 1) & 1
            covered += (state[row] >> 2) & 1
            certain[row] = flying + covered
            possible[row] = flying + unended
