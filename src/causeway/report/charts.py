"""Charts as SVG: values over time, bars. Pure data in, HTML out.

A chart is as wide as its page and its text never scales with it: positions along it are shares of its width, and lines
lie in a picture of their own that is stretched. Every chart has a title, a tip at every interval (with the pointer, or
with the arrow keys), and its figures as a table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup, escape

from causeway.report.scale import Scale, scale_of, time_label
from causeway.report.svg import alone, element, number, path, share, tone_class
from causeway.report.tables import Cell, Column, table
from causeway.report.text import count, in_unit, plain, safe_name, time_text

MOST_POINTS = 256
"""Intervals of a chart; of more the neighbours have to be put together before."""

HEIGHT, _TOP, _BOTTOM = 190, 14, 22
_WIDE = 1_000


@dataclass(frozen=True)
class Series:
    """A line of a chart: a value for each interval, None: not known. ``tone``: with which colour (``svg.TONES``)."""

    name: str
    values: Sequence[float | None]
    tone: str = "a"


@dataclass(frozen=True)
class Bar:
    """A row of bars: a label, a value and what is beside it. ``href``: where the label leads in the page."""

    label: str
    value: float
    href: str | None = None
    tone: str = "a"
    hint: str | None = None


def time_chart(
    title: str,
    at: Sequence[float],
    series: Sequence[Series],
    *,
    unit: str = "count",
    axis: str = "time",
    filled: bool = False,
    note: str | None = None,
    log: bool = False,
) -> Markup:
    """Return a chart of values over time.

    Args:
        title: what is shown.
        at: edges of the intervals, one more than values; seconds since 1970 (``axis`` ``time``), ticks or heights.
        series: at most six.
        unit: of the values; see ``text.in_unit``.
        axis: ``time``, or what one step of it is called, as ``tick``.
        filled: the area below the first line is filled.
        note: a sentence below the title.
        log: the axis along the chart is logarithmic, but for its first step; for what begins at 0 and is no time.

    Raises:
        ValueError: the lengths do not fit together, or there are more than ``MOST_POINTS`` intervals.
    """
    cells = len(at) - 1
    if not 1 <= cells <= MOST_POINTS or any(len(each.values) != cells for each in series):
        raise ValueError(f"{len(at)} edges: must be one more than values, and at most {MOST_POINTS + 1}")
    known = [value for each in series for value in each.values if value is not None]
    scale = scale_of(known, unit)
    begin, span = at[0], (at[-1] - at[0]) or 1.0
    edges = [_along(edge - begin, span, log) for edge in at]
    tips = []
    for cell in range(cells):
        lines = [_interval(at[cell], at[cell + 1], axis)]
        lines += [f"{each.name}: {in_unit(each.values[cell], unit)}" for each in series]
        tips.append("\n".join(lines))
    parts = [_grid(scale), _lines(series, edges, scale, filled=filled), _marks(scale)]
    parts += [_log_axis(span, axis) if log else _axis(begin, span, axis), _hits(edges, tips)]
    first = Column("from", "time" if axis == "time" else "number")
    columns = [first, *(Column(each.name, "number") for each in series)]
    rows: list[list[Cell]] = []
    for cell in range(cells):
        rows.append([at[cell], *(in_unit(each.values[cell], unit) for each in series)])
    said = f"{note} " if note else ""
    logs = f"{said}The scale is logarithmic." if scale.log else note
    return _figure(title, parts, _legend(series), logs, table(columns, rows, caption=title))


def bars(title: str, rows: Sequence[Bar], *, unit: str = "count", note: str | None = None) -> Markup:
    """Return horizontal bars with labels and figures; the longest is the greatest value."""
    most = max((each.value for each in rows), default=0.0) or 1.0
    lines = []
    for each in rows:
        label = plain(safe_name(each.label))
        if each.href is not None:
            label = element("a", {"href": each.href}, label)
        if each.hint is not None:
            label += element("small", {}, plain(each.hint))
        figure = element("td", {"class": "number"}, in_unit(each.value, unit))
        head = element("th", {"scope": "row"}, label)
        lines.append(
            element("tr", {}, head + element("td", {"class": "bar"}, _bar(each.value / most, each.tone)) + figure)
        )
    caption = element("caption", {}, [element("span", {"class": "chart-title"}, title), _note(note)])
    return element("table", {"class": "bars"}, caption + element("tbody", {}, lines))


def _bar(part: float, tone: str) -> Markup:
    width = share(max(part, 0.004) if part else 0.0)
    inside = element("rect", {"width": width, "height": "100%", "class": tone_class(tone)})
    return element("svg", {"width": "100%", "height": 10, "aria-hidden": "true"}, inside)


def _plot_height() -> float:
    return HEIGHT - _TOP - _BOTTOM


def _grid(scale: Scale) -> Markup:
    parts = []
    for mark in scale.marks:
        y = number(_TOP + (1 - scale.share(mark)) * _plot_height())
        base = "base" if mark == scale.bottom else None
        parts.append(element("line", {"x1": 0, "x2": "100%", "y1": y, "y2": y, "class": base}))
    return element("g", {"class": "grid"}, parts)


def _marks(scale: Scale) -> Markup:
    """Return the names of the lines of a grid; they stand above what is drawn."""
    parts = []
    for mark in scale.marks:
        if mark:
            y = number(_TOP + (1 - scale.share(mark)) * _plot_height())
            parts.append(element("text", {"x": 0, "y": y, "dy": -3}, scale.label(mark)))
    return element("g", {"class": "grid"}, parts)


def _lines(series: Sequence[Series], edges: Sequence[float], scale: Scale, *, filled: bool) -> Markup:
    height = _plot_height()
    middles = [_WIDE * (a + b) / 2 for a, b in pairwise(edges)]
    parts = []
    for place, each in enumerate(series):
        points = [
            None if value is None else (x, height * (1 - scale.share(value)))
            for x, value in zip(middles, each.values, strict=True)
        ]
        if filled and not place:
            parts.append(element("path", {"class": f"area {tone_class(each.tone)}", "d": _area(points, height)}))
        parts.append(element("path", {"class": f"line {tone_class(each.tone)}", "d": path(points)}))
        if spots := alone(points):
            parts.append(element("path", {"class": f"line spots {tone_class(each.tone)}", "d": path(spots)}))
    box = {"x": 0, "y": _TOP, "width": "100%", "height": number(height), "viewBox": f"0 0 {_WIDE} {number(height)}"}
    return element("svg", {**box, "preserveAspectRatio": "none", "class": "lines", "aria-hidden": "true"}, parts)


def _area(points: Sequence[tuple[float, float] | None], height: float) -> str:
    parts: list[str] = []
    run: list[tuple[float, float]] = []
    for point in [*points, None]:
        if point is not None:
            run.append(point)
        elif run:
            inner = "L".join(f"{number(x)} {number(y)}" for x, y in run)
            parts.append(f"M{number(run[0][0])} {number(height)}L{inner}L{number(run[-1][0])} {number(height)}Z")
            run = []
    return "".join(parts)


def _axis(begin: float, span: float, axis: str) -> Markup:
    parts = []
    for quarter in range(5):
        at = begin + span * quarter / 4
        text = time_label(at, span) if axis == "time" else f"{axis} {count(round(at))}"
        parts.append(_label(quarter / 4, text, wide=quarter % 2 == 1))
    return element("g", {"class": "axis"}, parts)


def _along(value: float, span: float, log: bool) -> float:
    """Return where something is along a chart, as a share of its width."""
    return math.log1p(value) / math.log1p(span) if log else value / span


def _log_axis(span: float, axis: str) -> Markup:
    decades = [0.0, *(10.0**power for power in range(int(math.log10(max(span, 1.0))) + 1))]
    parts = []
    for place, at in enumerate(decades):
        where = _along(at, span, log=True)
        if where <= 0.98 and not (place == 1 and where < _CLOSE):
            parts.append(_label(where, f"{axis} {count(round(at))}" if not place else count(round(at)), wide=False))
    return element("g", {"class": "axis"}, parts)


_CLOSE = 0.15
"""Nearer to the beginning of an axis than this a mark would stand in the text of the first one."""


def _label(part: float, text: str, *, wide: bool) -> Markup:
    anchor = "start" if part < 0.02 else "end" if part > 0.98 else "middle"
    place = {"x": share(part), "y": HEIGHT - 6, "text_anchor": anchor}
    return element("text", {**place, "class": "axis-label wide-only" if wide else "axis-label"}, text)


def _hits(edges: Sequence[float], tips: Sequence[str]) -> Markup:
    boxes = []
    for place, tip in enumerate(tips):
        box = {"x": share(edges[place]), "width": share(edges[place + 1] - edges[place]), "y": 0, "height": HEIGHT}
        boxes.append(element("rect", box, element("title", {}, tip)))
    return element("g", {"class": "hits"}, boxes)


def _legend(series: Sequence[Series]) -> Markup:
    if len(series) < 2:
        return Markup("")
    items = [element("li", {"class": tone_class(each.tone)}, plain(each.name)) for each in series]
    return element("ul", {"class": "legend"}, items)


def _note(note: str | None) -> Markup:
    return Markup("") if note is None else element("span", {"class": "note"}, note)


def _figure(title: str, parts: Sequence[Markup], legend: Markup, note: str | None, figures: Markup) -> Markup:
    drawn = element("svg", {"width": "100%", "height": HEIGHT, "role": "img", "aria-label": title}, parts)
    keys = f"{title}: arrow keys show the figures"
    plot = element("div", {"class": "plot", "tabindex": 0, "role": "group", "aria-label": keys}, drawn)
    caption = element("figcaption", {}, [element("span", {"class": "chart-title"}, title), legend, _note(note)])
    summary = element("summary", {}, escape("Figures as a table"))
    return element("figure", {"class": "chart"}, [caption, plot, element("details", {}, [summary, figures])])


def _interval(begin: float, end: float, axis: str) -> str:
    if axis == "time":
        return time_text(begin)
    last = math.ceil(end) - 1
    return f"{axis} {count(begin)}" if last <= begin else f"{axis}s {count(math.ceil(begin))} to {count(last)}"


__all__ = ["HEIGHT", "MOST_POINTS", "Bar", "Series", "bars", "time_chart"]
