"""Scales of charts: round numbers at an axis, in any unit, linear or logarithmic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from causeway.report.text import byte_size, moment_of, narrow, percent

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0

_SECONDS = (
    *(base * 10**power for power in (-6, -5, -4, -3, -2, -1) for base in (1, 2, 5)),
    *(1, 2, 5, 10, 15, 30, _MINUTE, 2 * _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE),
    *(_HOUR, 2 * _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR, _DAY, 2 * _DAY, 5 * _DAY),
)
"""Round times; from days on the steps are those of numbers."""

_DECADES_OF_SECONDS = (
    *(10.0**power for power in range(-6, 2)),
    *(_MINUTE, 10 * _MINUTE, _HOUR, 10 * _HOUR, _DAY, *(_DAY * 10.0**power for power in range(1, 9))),
)

_APART = 0.14
"""Marks of a logarithmic scale are so far from each other, as a share of the height."""

LOG_FROM = 100.0
"""So many times the least value is the greatest where a scale is logarithmic."""


@dataclass(frozen=True)
class Scale:
    """From values to shares of the height, 0 at the bottom. ``marks``: the round values that are named at the axis;
    ``unit``: of the values."""

    bottom: float
    top: float
    marks: tuple[float, ...]
    unit: str
    log: bool = False

    def share(self, value: float) -> float:
        """Return where a value is, from 0 to 1."""
        if self.log:
            value = max(value, self.bottom)
            whole = math.log(self.top / self.bottom)
            return min(max(math.log(value / self.bottom) / whole, 0.0), 1.0)
        return min(max((value - self.bottom) / (self.top - self.bottom), 0.0), 1.0)

    def label(self, value: float) -> str:
        """Return how a mark is named."""
        return axis_text(value, self.unit)


def axis_text(value: float, unit: str) -> str:
    """Return a round value as an axis names it."""
    if unit == "seconds":
        return _seconds_text(value)
    if unit == "bytes":
        return byte_size(value).replace(".0 ", " ")
    if unit == "share":
        return percent(value)
    return narrow(value)


def _seconds_text(value: float) -> str:
    for size, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min"), (1.0, "s"), (1e-3, "ms")):
        if value >= size:
            return f"{narrow(value / size)} {name}"
    return "0" if not value else f"{value * 1e6:.3g} µs"


def scale_of(values: Sequence[float], unit: str, *, marks: int = 4, log: bool | None = None) -> Scale:
    """Return a scale that has all values.

    Args:
        values: finite, not below 0.
        unit: ``count``, ``seconds``, ``ticks``, ``bytes``, ``share``, or any other word.
        marks: about so many round values are named.
        log: None: logarithmic where the greatest value is ``LOG_FROM`` times the least that is not 0, and 0 is none.
    """
    top = max(values, default=0.0)
    least = min((value for value in values if value > 0), default=0.0)
    if log is None:
        log = unit == "seconds" and least > 0 and top / least >= LOG_FROM and min(values) > 0
    if log and least > 0 and top > least:
        return _log_scale(least, top, unit)
    if unit == "share":
        top = 1.0 if top > 0.5 else top
    if top <= 0:
        top = 1.0
    step = _step(top / marks, unit)
    steps = max(1, math.ceil(top / step - 1e-9))
    return Scale(0.0, step * steps, tuple(step * number for number in range(steps + 1)), unit)


def _log_scale(least: float, top: float, unit: str) -> Scale:
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(top)) + 1)
    decades = _DECADES_OF_SECONDS if unit == "seconds" else tuple(10.0**power for power in powers)
    bottom = max((each for each in decades if each <= least), default=decades[0])
    over = min((each for each in decades if each >= top), default=top)
    whole = math.log(over / bottom)
    marks: list[float] = []
    for each in decades:
        if bottom <= each <= over and (not marks or math.log(each / marks[-1]) / whole >= _APART):
            marks.append(each)
    return Scale(bottom, over, tuple(marks), unit, log=True)


def _step(least: float, unit: str) -> float:
    """Return the least round step that is not below ``least``."""
    if unit == "seconds" and least < 5 * _DAY:
        return next(step for step in _SECONDS if step >= least - 1e-12)
    if unit == "seconds":
        return _DAY * _step(least / _DAY, "count")
    if unit == "bytes":
        return float(2 ** max(0, math.ceil(math.log2(least) - 1e-9)))
    power = 10.0 ** math.floor(math.log10(least))
    step = next(base * power for base in (1, 2, 5, 10) if base * power >= least * (1 - 1e-9))
    return max(step, 1.0) if unit in ("count", "ticks") else step


def time_label(seconds: float, span: float) -> str:
    """Return a time at an axis that is ``span`` seconds long."""
    moment = moment_of(seconds)
    if span < 5 * _MINUTE:
        return f"{moment:%H:%M:%S}"
    if span < _DAY:
        return f"{moment:%H:%M}"
    if span < 5 * _DAY:
        return f"{moment:%m-%d %H:%M}"
    return moment.strftime("%Y-%m-%d").rjust(10, "0")


__all__ = ["LOG_FROM", "Scale", "axis_text", "scale_of", "time_label"]
