"""Charts as SVG: values over time, and bars. Pure data in, HTML out.

A chart is as wide as its page, and its text does not scale. So positions along it are shares of its width, and lines
are
in a separate, stretched image. Every chart has a title, a tip at every interval (by pointer or arrow keys), and its
figures as a table. Axes have round numbers in any unit, linear or logarithmic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from causeway.report.elements import (
    TableCell,
    TableColumn,
    format_bytes,
    format_coordinate,
    format_count,
    format_in_unit,
    format_narrow,
    format_percent,
    format_time,
    isolated_points,
    parse_moment,
    render_table,
    svg_path,
    tone_class,
)
from causeway.report.page import render_piece

__all__ = [
    "HEIGHT",
    "LOG_FROM",
    "MAX_POINTS",
    "ChartBar",
    "ChartScale",
    "ChartSeries",
    "axis_text",
    "bar_chart",
    "fit_scale",
    "time_chart",
    "time_label",
]

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0

_SECONDS = (
    *(base * 10**power for power in (-6, -5, -4, -3, -2, -1) for base in (1, 2, 5)),
    *(1, 2, 5, 10, 15, 30, _MINUTE, 2 * _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE),
    *(_HOUR, 2 * _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR, _DAY, 2 * _DAY, 5 * _DAY),
)
"""Round times in seconds; beyond one day steps are those of numbers."""

_DECADES_OF_SECONDS = (
    *(10.0**power for power in range(-6, 2)),
    *(_MINUTE, 10 * _MINUTE, _HOUR, 10 * _HOUR, _DAY, *(_DAY * 10.0**power for power in range(1, 9))),
)

_MIN_MARK_DISTANCE = 0.14
"""Least distance of marks on a logarithmic axis, as a share of the height."""

LOG_FROM = 100.0
"""Ratio of the greatest to the least value from which an axis is logarithmic."""


@dataclass(frozen=True)
class ChartScale:
    """A map from values to shares of the height, 0 at the bottom.

    ``marks``: labelled values; ``unit``: of the values.
    """

    bottom: float
    top: float
    marks: tuple[float, ...]
    unit: str
    log: bool = False

    def share(self, value: float) -> float:
        """Return the position of a value, from 0 to 1."""
        if self.log:
            value = max(value, self.bottom)
            whole = math.log(self.top / self.bottom)
            return min(max(math.log(value / self.bottom) / whole, 0.0), 1.0)
        return min(max((value - self.bottom) / (self.top - self.bottom), 0.0), 1.0)

    def label(self, value: float) -> str:
        """Return the label of a mark."""
        return axis_text(value, self.unit)


def axis_text(value: float, unit: str) -> str:
    """Format a round value for an axis.

    Args:
        value: the value.
        unit: the unit.

    Returns:
        The text.
    """
    if unit == "seconds":
        return _seconds_text(value)
    if unit == "bytes":
        return format_bytes(value).replace(".0 ", " ")
    if unit == "share":
        return format_percent(value)
    return format_narrow(value)


def _seconds_text(value: float) -> str:
    for size, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min"), (1.0, "s"), (1e-3, "ms")):
        if value >= size:
            return f"{format_narrow(value / size)} {name}"
    return "0" if not value else f"{value * 1e6:.3g} µs"


def fit_scale(values: Sequence[float], unit: str) -> ChartScale:
    """Return a scale that contains all values.

    Args:
        values: finite, not below 0.
        unit: ``count``, ``seconds``, ``ticks``, ``bytes``, ``share``, or any other word.

    Returns:
        The scale.
    """
    top = max(values, default=0.0)
    least = min((value for value in values if value > 0), default=0.0)
    if unit == "seconds" and least > 0 and top / least >= LOG_FROM and min(values) > 0:
        return _log_scale(least, top, unit)
    if unit == "share":
        top = 1.0 if top > 0.5 else top
    if top <= 0:
        top = 1.0
    step = _step(top / 4, unit)
    steps = max(1, math.ceil(top / step - 1e-9))
    return ChartScale(0.0, step * steps, tuple(step * number for number in range(steps + 1)), unit)


def _log_scale(least: float, top: float, unit: str) -> ChartScale:
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(top)) + 1)
    decades = _DECADES_OF_SECONDS if unit == "seconds" else tuple(10.0**power for power in powers)
    bottom = max((each for each in decades if each <= least), default=decades[0])
    over = min((each for each in decades if each >= top), default=top)
    whole = math.log(over / bottom)
    marks: list[float] = []
    for each in decades:
        if bottom <= each <= over and (not marks or math.log(each / marks[-1]) / whole >= _MIN_MARK_DISTANCE):
            marks.append(each)
    return ChartScale(bottom, over, tuple(marks), unit, log=True)


def _step(least: float, unit: str) -> float:
    """Return the least round step of at least ``least``."""
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
    """Format a time for an axis of ``span`` seconds.

    Args:
        seconds: the time, in seconds since 1970.
        span: length of the axis in seconds.

    Returns:
        The text.
    """
    moment = parse_moment(seconds)
    if span < 5 * _MINUTE:
        return f"{moment:%H:%M:%S}"
    if span < _DAY:
        return f"{moment:%H:%M}"
    if span < 5 * _DAY:
        return f"{moment:%m-%d %H:%M}"
    return moment.strftime("%Y-%m-%d").rjust(10, "0")


MAX_POINTS = 256
"""Maximum intervals of a chart; callers merge neighbours of more."""

HEIGHT, _TOP, _BOTTOM = 190, 14, 22
_PLOT, _WIDE = HEIGHT - _TOP - _BOTTOM, 1_000


@dataclass(frozen=True)
class ChartSeries:
    """A line of a chart: one value an interval, None: unknown. ``tone``: its colour (``TONES``)."""

    name: str
    values: Sequence[float | None]
    tone: str = "a"


@dataclass(frozen=True)
class ChartBar:
    """A bar: label, value, and text beside it. ``href``: link of the label."""

    label: str
    value: float
    href: str | None = None
    tone: str = "a"
    hint: str | None = None


def time_chart(
    title: str,
    at: Sequence[float],
    series: Sequence[ChartSeries],
    *,
    unit: str = "count",
    axis: str = "time",
    filled: bool = False,
    note: str | None = None,
    log: bool = False,
) -> Markup:
    """Render a chart of values over time.

    Args:
        title: its title.
        at: edges of the intervals, one more than values; seconds since 1970 (``axis`` ``time``), ticks or heights.
        series: at most six; without any, or without values, the chart is empty.
        unit: of the values; see ``format_in_unit``.
        axis: ``time``, or the name of one step such as ``tick``.
        filled: fill the area below the first line.
        note: a sentence below the title.
        log: logarithmic horizontal axis, except for its first step; for axes that begin at 0 and are no time.

    Returns:
        HTML.

    Raises:
        ValueError: the lengths differ, or there are more than ``MAX_POINTS`` intervals.
    """
    cells = len(at) - 1
    if not 0 <= cells <= MAX_POINTS or any(len(each.values) != cells for each in series):
        raise ValueError(f"{len(at)} edges: must be one more than values, and at most {MAX_POINTS + 1}")
    scale = fit_scale([value for each in series for value in each.values if value is not None], unit)
    begin, span = at[0], (at[-1] - at[0]) or 1.0
    edges = [_x_share(edge - begin, span, log) for edge in at]
    figures = [[format_in_unit(each.values[cell], unit) for each in series] for cell in range(cells)]
    names = [each.name for each in series]
    tips = [
        "\n".join([_interval(*interval, axis), *map("{}: {}".format, names, texts)])
        for interval, texts in zip(pairwise(at), figures, strict=True)
    ]
    first = TableColumn("from", "time" if axis == "time" else "number")
    columns = [first, *(TableColumn(name, "number") for name in names)]
    rows: list[list[TableCell]] = [[edge, *texts] for edge, texts in zip(at, figures, strict=False)]
    return render_piece(
        "elements/time_chart.html",
        title=title,
        note=f"{f'{note} ' if note else ''}The scale is logarithmic." if scale.log else note,
        series=series,
        size={"height": HEIGHT, "top": _TOP, "plot": _PLOT, "wide": _WIDE},
        marks=[(_y(scale, mark), scale.label(mark) if mark else "", mark == scale.bottom) for mark in scale.marks],
        lines=_lines(series, edges, scale, filled=filled),
        labels=_log_labels(span, axis) if log else _labels(begin, span, axis),
        hits=[(begin, end - begin, tip) for (begin, end), tip in zip(pairwise(edges), tips, strict=True)],
        figures=render_table(columns, rows, caption=title),
    )


def bar_chart(title: str, rows: Sequence[ChartBar], *, unit: str = "count") -> Markup:
    """Render horizontal bars with labels and figures; the longest is the greatest value.

    Args:
        title: the title.
        rows: the bars.
        unit: of the values.

    Returns:
        HTML.
    """
    return render_piece("elements/bar_chart.html", title=title, rows=rows, unit=unit,
                        most=max((each.value for each in rows), default=0.0) or 1.0)  # fmt: skip


def _y(scale: ChartScale, value: float) -> float:
    return _TOP + (1 - scale.share(value)) * _PLOT


def _lines(
    series: Sequence[ChartSeries], edges: Sequence[float], scale: ChartScale, *, filled: bool
) -> list[tuple[str, str]]:
    """Return the class and the path of each line: the area below it, the line, and its isolated points."""
    middles = [_WIDE * (a + b) / 2 for a, b in pairwise(edges)]
    paths = []
    for place, each in enumerate(series):
        points = [
            None if value is None else (x, _PLOT * (1 - scale.share(value)))
            for x, value in zip(middles, each.values, strict=True)
        ]
        tone = tone_class(each.tone)
        if filled and not place:
            paths.append((f"area {tone}", _area(points)))
        paths.append((f"line {tone}", svg_path(points)))
        if spots := isolated_points(points):
            paths.append((f"line spots {tone}", svg_path(spots)))
    return paths


def _area(points: Sequence[tuple[float, float] | None]) -> str:
    parts: list[str] = []
    run: list[tuple[float, float]] = []
    for point in [*points, None]:
        if point is not None:
            run.append(point)
        elif run:
            bottom = [(run[0][0], _PLOT), *run, (run[-1][0], _PLOT)]
            parts.append(f"M{'L'.join(f'{format_coordinate(x)} {format_coordinate(y)}' for x, y in bottom)}Z")
            run = []
    return "".join(parts)


def _labels(begin: float, span: float, axis: str) -> list[tuple[float, str, bool]]:
    """Return position, text, and True for the labels of wide pages only."""
    places = [(quarter, begin + span * quarter / 4) for quarter in range(5)]
    return [
        (quarter / 4, time_label(at, span) if axis == "time" else f"{axis} {format_count(round(at))}", quarter % 2 == 1)
        for quarter, at in places
    ]


def _x_share(value: float, span: float, log: bool) -> float:
    """Return a horizontal position as a share of the width."""
    return math.log1p(value) / math.log1p(span) if log else value / span


def _log_labels(span: float, axis: str) -> list[tuple[float, str, bool]]:
    decades = [0.0, *(10.0**power for power in range(int(math.log10(max(span, 1.0))) + 1))]
    labels = []
    for place, at in enumerate(decades):
        share = _x_share(at, span, log=True)
        if share <= 0.98 and not (place == 1 and share < _MIN_LABEL_DISTANCE):
            labels.append((share, f"{'' if place else f'{axis} '}{format_count(round(at))}", False))
    return labels


_MIN_LABEL_DISTANCE = 0.15
"""Least distance of a mark from the first label of an axis."""


def _interval(begin: float, end: float, axis: str) -> str:
    if axis == "time":
        return format_time(begin)
    last = math.ceil(end) - 1
    return (
        f"{axis} {format_count(begin)}"
        if last <= begin
        else f"{axis}s {format_count(math.ceil(begin))} to {format_count(last)}"
    )
