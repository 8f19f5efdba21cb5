"""Loops over the messages of lanes in the order in which they are sent, and the ends of their flights."""

from __future__ import annotations

from typing import Any

import numpy as np

from causeway.model.compiled import BYTES, INT64, NOTHING, ROWS, ROWS_OUT, compiled, read, written

WORDS, WORDS_OUT = read("uint64"), written("uint64")

_CROWD = [ROWS, ROWS, ROWS, WORDS, WORDS, BYTES, WORDS, ROWS_OUT, WORDS_OUT, WORDS_OUT, ROWS_OUT, ROWS_OUT]


@compiled(INT64, _CROWD, allocates=False)
def crowd(
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


@compiled(NOTHING, [WORDS, WORDS, WORDS, WORDS, ROWS_OUT], allocates=False)
def ranges(place: Any, order: Any, places: Any, orders: Any, found: Any) -> None:
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


_FLIGHTS = [ROWS, WORDS, BYTES, ROWS, WORDS, ROWS, WORDS, read("int64", 2), ROWS_OUT, ROWS_OUT]


@compiled(NOTHING, _FLIGHTS, allocates=False)
def in_flight(
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
