"""Compiled loops over lanes: order, gaps, tallies, and in-flight counts.

A piece is a run of messages of one lane; ``sent``, ``received``, ``acknowledged`` are each message's first rows of
these events, -1: none (``message_loops.evaluate_messages``). Unknown heights, positions and times are the maximum of
their type.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from causeway_proofs.jit import BYTES, INT64, NOTHING, ROWS, ROWS_OUT, compile_loop, read_only_arrays, writable_arrays

from causeway.audit.message_loops import CODES, NO_HEIGHT, NO_TIME, RECEIVED, SENT, WORDS

NOTHING_BEFORE = np.int64(-0x8000000000000000)
"""Time before every time."""


@compile_loop(allocates=False)
def is_behind_position(height: Any, time: Any, top: Any, top_at: Any) -> Any:
    """Return True if a row precedes a higher position of its chain: its time is not later."""
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
    """Scan pieces in index order.

    Entries with three columns are for sent, received and acknowledged. On input ``top`` to ``top_time`` are the last
    positions before a piece; on output they include the piece. On a restarted chain a row is behind a higher position
    only if its time is not later (``is_behind_position``).

    Args:
        starts: First message of each piece.
        stops: Message after the last one of each piece.
        index: Index of each message.
        sent: First sent row of each message, -1: none.
        received: Receipt of each message, -1: none.
        acknowledged: First acknowledged row of each message, -1: none.
        height: Height of each row.
        position: Position of each row.
        time: Time of each row.
        is_open: Messages that were sent, without any final event.
        until: Time until which the input would show an end of each message; ``NOTHING_BEFORE``: none.
        top: Greatest height.
        top_position: Position at that height.
        top_at: Time at that height.
        has_top: 1 if there is any height.
        last_at: Latest time of a row with a height.
        last: Height at that time.
        top_time: Latest time of rows without height.
        least: Output: least height in the piece.
        least_time: Output: earliest time of rows without height.
        below: Output: 1 if the event of a message precedes that of an earlier message.
        ends: Output: first and last sent message.
        gaps: Output: pairs of consecutive sent messages with missing indices in between.
        skips: Output: previous received message, next received message, first open one in between, their number, and
            the least ``until``; only where the piece has a previous one.
        lead: Output: first open message before the first received one, their number, the first received message, and
            the least ``until``.
        tail: Output: the same after the last received message.
        sizes: Output: number of gaps and skips.
        anew: Pieces of lanes with a restarted chain.
        slot: Slot of each piece in ``raising``, -1: none.
        raised: Output: number of stored rows.
        raising: Output: first rows of each event that no earlier message's row is after.
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
            stored = 0
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
                elif own >= 0 and stored < raising.shape[2] and (at != NO_HEIGHT or time[row] != NO_TIME):
                    raising[own, each, stored] = row
                    stored += 1
            if own >= 0:
                raised[own, each] = stored
            has_top[piece, each], top[piece, each], top_position[piece, each] = has, high, high_position
            top_at[piece, each], last_at[piece, each], last[piece, each] = high_at, latest, latest_height
            top_time[piece, each], least[piece, each], least_time[piece, each] = late, low, early
        before_sent, last_received = -1, -1
        waiting, first_waiting, least_until = 0, -1, NO_TIME
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
                    lead[piece, 3] = least_until
                elif waiting > 0:
                    skips[skip_count, 0] = last_received
                    skips[skip_count, 1] = message
                    skips[skip_count, 2] = first_waiting
                    skips[skip_count, 3] = waiting
                    skips[skip_count, 4] = least_until
                    skip_count += 1
                last_received = message
                waiting, first_waiting, least_until = 0, -1, NO_TIME
            elif is_open[message]:
                if waiting == 0:
                    first_waiting = message
                waiting += 1
                least_until = min(least_until, until[message])
        ends[piece, 1] = before_sent
        if last_received < 0:
            lead[piece, 0] = first_waiting
            lead[piece, 1] = waiting
            lead[piece, 2] = -1
            lead[piece, 3] = least_until
            waiting, first_waiting, least_until = 0, -1, NO_TIME
        tail[piece, 0] = first_waiting
        tail[piece, 1] = waiting
        tail[piece, 2] = last_received
        tail[piece, 3] = least_until
    sizes[0] = gap_count
    sizes[1] = skip_count


SIDES = 3
"""Number of sides of a lane: source, destination, elsewhere."""

TALLIED = 9
"""Number of counts of a side: rows, rows without index, name, height, time, content and amount, sent or received
rows, and those without content."""

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
    """Count rows by lane and side (``TALLIED``), and extend the extents of heights and times.

    ``ident`` is empty if every row has an index.
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


WORDS_OUT = writable_arrays("uint64")

_CROWD = [
    ROWS,
    ROWS,
    ROWS,
    WORDS,
    WORDS,
    BYTES,
    WORDS,
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
    """Write a point for every ``steps`` sendings and ends of each lane; return their number.

    Args:
        starts: First sending of each lane.
        end_starts: First end of each lane.
        steps: Number of sendings and ends a point; the last one of a lane always has a point.
        place: Position of each sending; sendings are sorted by position and order.
        order: Order of each sending at its position.
        flies: Sendings that start a flight.
        end: Position of each end, ascending; an end precedes the sendings at its position.
        lanes: Output: lane of each point.
        places: Output: position of each point.
        orders: Output: order of each point.
        most: Output: maximum number in flight from a point to the next one.
        begun: Output: number of sendings from a point to the next one.
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


@compile_loop(NOTHING, [WORDS, WORDS, WORDS, WORDS, ROWS_OUT], allocates=False)
def count_range_pairs(place: Any, order: Any, places: Any, orders: Any, found: Any) -> None:
    """Write the number of ascending pairs (``places``, ``orders``) up to each pair."""
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
    WORDS,
    BYTES,
    ROWS,
    WORDS,
    ROWS,
    WORDS,
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
    """Write the certain and the possible number in flight at each sending, inclusive.

    Args:
        starts: First message of each range; messages are in order.
        place: Position of each message.
        state: Bits ``FLYING``, ``UNENDED``, ``COVERED`` of each message.
        end_starts: First end of each range.
        end: Ends, ascending in each range, of messages in it or before.
        until_starts: First end of coverage of each range.
        until: Ends of coverage, ascending in each range.
        sums: Number of messages of each state in flight at the begin of each range.
        certain: Output: certain number.
        possible: Output: possible number.
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
