"""Backlog, traffic and latency over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from causeway.ledger.outcomes import UNSUCCESSFUL
from causeway.report.charts import Series, time_chart
from causeway.report.first_screen import MEASURES, Data, delay_of_all
from causeway.report.outcomes import outcome_series
from causeway.report.page import Section
from causeway.report.scale import axis_text
from causeway.report.svg import element
from causeway.report.tables import Column, table
from causeway.report.text import count, in_unit, many, ticks


def time_section(data: Data) -> Section | None:
    """Return latency and backlog over time."""
    charts = [*_flow_charts(data), *_latency_charts(data)]
    if not charts:
        return None
    lead = "Messages sent, received and pending, and their delays."
    return Section("time", "Over time", element("div", {"class": "charts"}, charts), lead)


def _edges(columns: Mapping[str, Sequence[Any]]) -> tuple[list[float], str]:
    """Return the edges of bins, and what axis they are on."""
    axis = columns["axis"][0]
    begins = [float(each) for each in columns["begin"]]
    width = float(columns["ticks" if axis == "tick" else "seconds"][0])
    return [*begins, begins[-1] + width], axis


def _flow_charts(data: Data) -> list[Markup]:
    flow = data["backlog"]
    if not flow["axis"]:
        return []
    at, axis = _edges(flow)
    pending = [Series("pending", flow["pending"], "b")]
    if flow["in_flight"] != flow["pending"]:
        pending.append(Series("of which in flight", flow["in_flight"], "d"))
    note = f"Messages pending at the end of each interval.{_unplaced(data, axis)}"
    found = [time_chart("Backlog", at, pending, axis=axis, filled=True, note=note)]
    moved = [Series("sent", flow["sent"], "a"), Series("received", flow["received"], "c")]
    moved = [each for each in moved if any(each.values)] or moved[:1]
    found.append(time_chart("Messages", at, moved, axis=axis, filled=True, note=_per(at, axis)))
    unsuccessful = outcome_series(flow)
    if unsuccessful:
        note = f"{_per(at, axis)}{_beside_calls(data)}"
        found.append(time_chart("Unsuccessful messages", at, unsuccessful, axis=axis, note=note))
    return found


def _beside_calls(data: Data) -> str:
    """Return how many unsuccessful messages are no calls, but responses."""
    others = sum(data["totals"].get(each, 0) - data["calls"].get(each, 0) for each in UNSUCCESSFUL)
    return f" {many(others, 'response')} among them." if others > 0 else ""


def _unplaced(data: Data, axis: str) -> str:
    """Return how many messages are in no interval because their sending has no place on the axis."""
    number = data["totals"]["unplaced"]
    if not number:
        return ""
    return f" {many(number, 'message')} without a {axis} of sending left out of the charts."


def _per(at: Sequence[float], axis: str) -> str:
    """Return how long an interval is."""
    width = at[-1] - at[-2]
    if axis == "tick":
        return "Per tick." if width == 1 else f"Per {ticks(width)}."
    return f"Per {axis_text(width, 'seconds')}."


def _latency_charts(data: Data) -> list[Markup]:
    unit = data["totals"]["unit"] or "seconds"
    found = [chart for measure in MEASURES if (chart := _delays_over_time(data, measure, unit)) is not None]
    rows = [(title, delay_of_all(data, measure, unit)) for measure, title in MEASURES.items()]
    cells = [
        [title, *(in_unit(row[each], unit) for each in ("p50", "p90", "p99", "max")), count(row["count"])]
        for title, row in rows
        if row is not None
    ]
    if cells:
        columns = [Column("delay")] + [
            Column(each, "number") for each in ("median", "90 %", "99 %", "longest", "messages")
        ]
        inner = table(columns, cells, caption="Latency", stacked=True)
        head = [element("p", {"class": "chart-title"}, "Latency"), element("p", {"class": "note"}, _DELAYS)]
        found.append(element("div", {"class": "panel-box"}, [*head, inner]))
    return found


_DELAYS = "Delivery: sent to received. Round trip: sent to answered. Service: received to executed."

_QUANTILES = (("median", "p50", "a"), ("99 %", "p99", "b"), ("longest", "max", "muted"))


def _delays_over_time(data: Data, measure: str, unit: str) -> Markup | None:
    """Return a chart of the delays that ended in each bin."""
    over = data["latency_over_time"]
    rows = [place for place, each in enumerate(over["measure"]) if each == measure and over["unit"][place] == unit]
    if not rows:
        return None
    at, axis = _edges(data["backlog"])
    places = {begin: place for place, begin in enumerate(at)}
    values: dict[str, list[float | None]] = {each: [None] * (len(at) - 1) for _, each, _ in _QUANTILES}
    for row in rows:
        begin = over["begin"][row]
        for each, column in values.items():
            column[places[begin]] = over[each][row]
    series = [Series(label, values[each], tone) for label, each, tone in _QUANTILES]
    note = f"By the interval in which the delay ended. {_per(at, axis)}"
    return time_chart(f"{MEASURES[measure]} over time", at, series, unit=unit, axis=axis, note=note)


__all__ = ["time_section"]
