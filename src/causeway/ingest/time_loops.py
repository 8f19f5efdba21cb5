"""Loops over times as they are written."""

from __future__ import annotations

from typing import Any

from causeway.ledger.number_loops import stripped
from causeway.model.compiled import BYTES, BYTES_OUT, NOTHING, ROWS, ROWS_OUT, compiled


@compiled(allocates=False)
def digits_at(data: Any, at: Any, stop: Any, count: Any) -> Any:
    """Return the number of so many digits, -1 where there are others."""
    if stop - at < count:
        return -1
    value = 0
    for place in range(at, at + count):
        digit = data[place] - 48
        if digit < 0 or digit > 9:
            return -1
        value = value * 10 + digit
    return value


@compiled(allocates=False)
def days_before(year: Any, month: Any, day: Any) -> Any:
    """Return the days from 1970-01-01 to a day of the Gregorian calendar."""
    if month <= 2:
        year -= 1
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


@compiled(NOTHING, [BYTES, ROWS, ROWS, ROWS_OUT, BYTES_OUT])
def read_times(data: Any, starts: Any, stops: Any, micros: Any, found: Any) -> None:
    """Read times as ISO 8601 writes them: ``2022-01-11T12:00:00.5+01:00``; the day alone is its beginning.

    ``micros``: since 1970-01-01, of the clock that the text is of. ``found``: 0 it is no time, 1 without a zone (its
    clock is not known), 2 with one (``micros`` is in UTC), 3 nothing is there. What is finer than a microsecond is cut.
    """
    for row in range(len(starts)):
        at, stop = stripped(data, starts[row], stops[row])
        micros[row], found[row] = 0, 3
        if at == stop:
            continue
        found[row] = 0
        year, month, day = (
            digits_at(data, at, stop, 4),
            digits_at(data, at + 5, stop, 2),
            digits_at(data, at + 8, stop, 2),
        )
        if year < 1 or month < 1 or month > 12 or day < 1 or data[at + 4] != 45 or data[at + 7] != 45:
            continue
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        longest = 31 - (month in (4, 6, 9, 11))
        if month == 2:
            longest = 28 + leap
        if day > longest:
            continue
        value = days_before(year, month, day) * 86_400_000_000
        at += 10
        if at < stop:
            if data[at] != 84 and data[at] != 116 and data[at] != 32:
                continue
            hour, minute = digits_at(data, at + 1, stop, 2), digits_at(data, at + 4, stop, 2)
            if hour < 0 or hour > 23 or minute < 0 or minute > 59 or data[at + 3] != 58:
                continue
            value += (hour * 60 + minute) * 60_000_000
            at += 6
            if at < stop and data[at] == 58:
                second = digits_at(data, at + 1, stop, 2)
                if second < 0 or second > 59:
                    continue
                value += second * 1_000_000
                at += 3
                if at < stop and (data[at] == 46 or data[at] == 44):
                    at += 1
                    begin, scale = at, 100_000
                    while at < stop and 48 <= data[at] <= 57:
                        value += (data[at] - 48) * scale
                        scale //= 10
                        at += 1
                    if at == begin:
                        continue
        while at < stop and data[at] == 32:
            at += 1
        if at == stop:
            micros[row], found[row] = value, 1
            continue
        if data[at] == 90 or data[at] == 122:
            if at + 1 == stop:
                micros[row], found[row] = value, 2
            continue
        if stop - at >= 3 and data[at] == 85 and data[at + 1] == 84 and data[at + 2] == 67:
            if at + 3 == stop:
                micros[row], found[row] = value, 2
            continue
        if data[at] != 43 and data[at] != 45:
            continue
        sign, hours = 1 if data[at] == 43 else -1, digits_at(data, at + 1, stop, 2)
        rest, minutes = at + 3, 0
        if rest < stop:
            if data[rest] == 58:
                rest += 1
            minutes = digits_at(data, rest, stop, 2)
            rest += 2
        if hours < 0 or hours > 23 or minutes < 0 or minutes > 59 or rest != stop:
            continue
        micros[row], found[row] = value - sign * (hours * 60 + minutes) * 60_000_000, 2
