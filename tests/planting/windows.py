"""Removed parts of the input, declared as missing."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from tests.spec.audit.ledger import Row
from tests.support.properties.audit_ledgers import Case

Ends = tuple[int, int]


class Cut(NamedTuple):
    """Heights and times of a chain, both included; without ``heights`` those of its rows are unknown."""

    chain: str
    heights: Ends | None
    times: Ends


def cut_by_chance(random: Random, case: Case) -> Cut:
    """A few random neighbouring blocks of a chain, of which the input has some, or all to the end."""
    rows = [row for row in (*case.rows, *case.watermarks, *case.value) if row["time"] is not None]
    chain = random.choice(sorted({row["chain"] for row in case.observed} & {row["chain"] for row in rows}))
    rows = [row for row in rows if row["chain"] == chain]
    if any(row["height"] is None for row in rows):
        times = sorted({row["time"] for row in rows})
        first = random.randrange(len(times))
        return Cut(chain, None, (times[first], times[min(len(times) - 1, first + random.choice((0, 10, 1000)))]))
    low = random.choice(rows)["height"]
    if random.random() < 0.2:
        times = [row["time"] for row in rows if low <= row["height"]]
        ends = [row["last_time"] for row in case.observed if row["chain"] == chain and row["last_time"] is not None]
        return Cut(chain, (low, 2**63), (min(times), max(times + ends)))
    high = low + random.choice((0, 1, 3, 8))
    times = [row["time"] for row in rows if low <= row["height"] <= high]
    return Cut(chain, (low, high), (min(times), max(times)))


def without(case: Case, cut: Cut) -> tuple[Case, list[Row]]:
    """The input without the events of a chain in some blocks, and the rows of messages that are then missing."""

    def inside(row: Row) -> bool:
        kind, ends = ("time", cut.times) if row["height"] is None else ("height", cut.heights)
        own = row[kind]
        return row["chain"] == cut.chain and ends is not None and own is not None and ends[0] <= own <= ends[1]

    def in_time(row: Row) -> bool:
        own = row["time"]
        return row["chain"] == cut.chain and own is not None and cut.times[0] <= own <= cut.times[1]

    blocks = [row["height"] for row in case.headers if in_time(row)]  # a chain may number its blocks differently
    of_headers = (min(blocks), max(blocks)) if blocks else None
    observed: list[Row] = []
    for row in case.observed:
        if row["chain"] != cut.chain:
            observed.append(row)
            continue
        ends = of_headers if row["events"] == ["header"] else cut.heights
        heights = pieces(row["first_height"], row["last_height"], ends)
        times = pieces(row["first_time"], row["last_time"], cut.times)
        for height, time in zip(heights, times, strict=True):
            if height is not None or time is not None:
                names = ("first_height", "last_height", "first_time", "last_time")
                both = (height or (None, None)) + (time or (None, None))
                observed.append({**row, **dict(zip(names, both, strict=True))})
    tables = (case.rows, case.watermarks, case.value)
    rows, watermarks, value = ([row for row in rows if not inside(row)] for rows in tables)
    headers = [row for row in case.headers if not in_time(row)]
    gone = [row for row in (*case.rows, *case.value) if inside(row)]
    return Case(rows, observed, case.promises, watermarks, headers, value), gone


def pieces(begin: Any, end: Any, cut: Ends | None) -> list[Ends | None]:
    """The rest of a window on both sides of a cut; None: empty, or without such ends."""
    if begin is None or end is None:
        return [None, None]
    if cut is None:
        return [(begin, end), None]
    sides = ((begin, min(end, cut[0] - 1)), (max(begin, cut[1] + 1), end))
    return [side if side[0] <= side[1] else None for side in sides]
