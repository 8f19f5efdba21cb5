"""Latency, backlog and what was sent and came, over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from causeway.report.charts import Series, time_chart
from causeway.report.ended import OUTCOMES
from causeway.report.first_screen import MEASURES, Data, delay_of_all
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
    lead = "What was sent and what came, what waited, and how long messages took."
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
    waiting = [Series("pending", flow["pending"], "b")]
    if flow["in_flight"] != flow["pending"]:
        waiting.append(Series("of which in flight", flow["in_flight"], "d"))
    note = f"Messages that were sent and had not ended by then.{_unplaced(data, axis)}"
    found = [time_chart("Backlog", at, waiting, axis=axis, filled=True, note=note)]
    moved = [Series("sent", flow["sent"], "a"), Series("received", flow["received"], "c")]
    moved = [each for each in moved if any(each.values)] or moved[:1]
    found.append(time_chart("Messages", at, moved, axis=axis, filled=True, note=_per(at, axis)))
    failed = [Series(each.replace("_", " "), flow[each], OUTCOMES[each]) for each in FAILED if any(flow[each])]
    if failed:
        note = f"{_per(at, axis)}{_beside_requests(data)}"
        found.append(time_chart("Rejected, timed out or dropped", at, failed, axis=axis, note=note))
    return found


FAILED = ("rejected", "refunded", "timed_out", "dropped")


def _beside_requests(data: Data) -> str:
    """Return how many messages that failed are no requests: the tables over time count messages of every kind."""
    others = sum(data["totals"][each] - data["requests"].get(each, 0) for each in FAILED)
    if not others:
        return ""
    are = "is no request" if others == 1 else "are no requests"
    return f" Messages of every kind: {others:,} that ended so {are}, but for instance what relayers tried."


def _unplaced(data: Data, axis: str) -> str:
    """Return how many messages are in no interval, as nothing says when they were sent."""
    number = data["totals"]["unplaced"]
    if not number:
        return ""
    are = "is" if number == 1 else "are"
    return f" {many(number, 'more message')} of which the {axis} of sending was not seen {are} in none of the charts."


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
    """Return the delays of the messages that came, or were answered, in each bin."""
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
    note = f"Of the messages that came in an interval. {_per(at, axis)}"
    return time_chart(f"{MEASURES[measure]} over time", at, series, unit=unit, axis=axis, note=note)


__all__ = ["time_section"]
