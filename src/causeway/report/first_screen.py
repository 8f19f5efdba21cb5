"""The first screen (verdict, key figures, gaps, example findings), and figures over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from markupsafe import Markup

from causeway.audit.findings import NOTED, UNKNOWN, VIOLATED
from causeway.audit.verdict import Verdict
from causeway.core.text import count_noun
from causeway.ledger.outcomes import UNSUCCESSFUL
from causeway.report.charts import ChartSeries, axis_text, time_chart
from causeway.report.elements import (
    KeyFigure,
    element,
    escape_html,
    format_count,
    format_in_unit,
    format_name,
    format_ticks,
    group_digits,
    list_words,
    render_key_figures,
    render_table,
    table_columns,
)
from causeway.report.findings import (
    FindingLinks,
    PageAnchors,
    check_promise,
    check_title,
    finding_sentence,
    link_text,
    reason_words,
)
from causeway.report.outcomes import BAD, outcome_series, outcome_word
from causeway.report.page import PageSection, render_piece
from causeway.report.summary import worst_and_first

__all__ = [
    "GROUPS",
    "MEASURES",
    "describe_input",
    "first_screen",
    "headline",
    "key_figures",
    "overall_delay",
    "time_section",
    "verdict_section",
]

MAX_CARDS = 3
"""Number of cards up to which each has two examples, else one."""

MEASURES = {"delivery": "Delivery", "round_trip": "Round trip", "service": "Service"}
"""Titles of delays: sent to received; sent to answered; received to executed."""

GROUPS = ((VIOLATED, "Violations"), (UNKNOWN, "Unknown"), (NOTED, "Noted"))
"""The groups of findings with their headings."""

Data = Mapping[str, Any]


def verdict_section(data: Data) -> PageSection:
    """Return the first screen of a report, from its data (``report_data``).

    Args:
        data: the report data (``report_data``).

    Returns:
        The section.
    """
    notices = [] if data["run"] is None or data["run"]["at_rest"] else ["The run is not finished: messages are due."]
    return PageSection("verdict", None, first_screen(data, PageAnchors(), describe_input(data), notices=notices))


def first_screen(
    data: Data,
    links: FindingLinks,
    about: Sequence[Markup] = (),
    more: Sequence[KeyFigure] = (),
    notices: Sequence[str] = (),
) -> Markup:
    """Render the verdict, the key figures, the checks and example findings.

    Args:
        data: of ``summary_data``.
        links: of the page.
        about: the description of the input, in a few words each.
        more: figures before the key figures.
        notices: further sentences about the input.

    Returns:
        HTML.
    """
    groups = [
        (verdict, title, [_card(each, verdict, links) for each in data["checks"] if each[verdict]])
        for verdict, title in GROUPS
    ]
    return render_piece(
        "verdict.html",
        data=data,
        about=about,
        title=headline(data["sentence"], data["verdict"]),
        lead=_lead(data),
        facts=render_key_figures([*more, *key_figures(data, links)]),
        groups=[(verdict, title, cards, len(cards) > MAX_CARDS) for verdict, title, cards in groups if cards],
        notices=[*_notices(data, links), *(escape_html(each) for each in (*notices, *data["remarks"]))],
        idle=list_words([check_title(each["check"]) for each in data["checks"] if not _applies(each)]),
        checks=[(links.check(each["check"]), check_title(each["check"]), each["verdict"]) for each in data["checks"]],
    )


def headline(sentence: str, verdict: str) -> Markup:
    """Render a sentence that begins with its verdict, with the verdict in its colour.

    Args:
        sentence: the sentence.
        verdict: the verdict.

    Returns:
        HTML.
    """
    return element("em", verdict) + element("span", sentence.removeprefix(verdict))


def describe_input(data: Data) -> list[Markup]:
    """Return the description of the input, in a few words each.

    Args:
        data: the report data (``report_data``).

    Returns:
        HTML, one for each fact.
    """
    input_, totals, run = data["input"], data["totals"], data["run"]
    found = [element("strong", format_name(data["lake"]))]
    kinds = "a run of Causeway" if data["kind"] == "lake" else "recorded traffic"
    protocols = Markup(", ").join(format_name(each, 24) for each in input_["protocols"][:4])
    parts: list[Markup | str] = [kinds, protocols] if protocols else [kinds]
    parts += [count_noun(input_["chains"], "chain"), count_noun(totals["lanes"], "lane")]
    if run is not None:
        parts.append(count_noun(run["heights"], "height") + ("" if run["at_rest"] else " so far"))
    if totals["unit"] != "ticks" and None not in (totals["first_time"], totals["last_time"]):
        first, last = (datetime.fromisoformat(totals[each]).date() for each in ("first_time", "last_time"))
        parts.append(f"{first}" if first == last else f"{first} to {last}")
    return [*found, *(element("span", escape_html(each)) for each in parts)]


def _applies(check: Data) -> bool:
    return bool(check["verdict"] != Verdict.NOT_APPLICABLE)


def _lead(data: Data) -> Markup:
    checks = [each for each in data["checks"] if _applies(each)]
    if not checks:
        return escape_html("No check applies: the input has no messages.")
    parts = [f"{count_noun(len(checks), 'check')} of {count_noun(data['totals']['messages'], 'message')}"]
    for verdict in (Verdict.PASSED, Verdict.FAILED, Verdict.INCONCLUSIVE):
        number = sum(each["verdict"] == verdict for each in checks)
        parts += [f"{number} {verdict.lower()}"] if number else []
    idle = len(data["checks"]) - len(checks)
    parts += [f"{idle} not applicable"] if idle else []
    return escape_html(f"{parts[0]}: {', '.join(parts[1:])}.")


def _notices(data: Data, links: FindingLinks) -> list[Markup]:
    """Return the gaps of the input: records in quarantine, and incomplete lanes."""
    found = []
    if data["quarantined"]:
        reason, most = next(iter(data["quarantined"].items()))
        total = sum(data["quarantined"].values())
        why = f": {reason_words(reason)}" if most == total else f", most ({most:,}): {reason_words(reason)}"
        found.append(element("b", f"{count_noun(total, 'record')} in quarantine") + escape_html(f"{why}."))
    incomplete = data["incomplete"]
    if incomplete["lanes"]:
        head = element("b", f"{count_noun(incomplete['lanes'], 'lane')} incomplete")
        lanes = Markup("; ").join(_incomplete(each, links) for each in incomplete["rows"][:MAX_LANES])
        left = incomplete["lanes"] - min(incomplete["lanes"], MAX_LANES)
        found.append(head + Markup(": ") + lanes + escape_html(f"; and {left:,} more." if left else "."))
    return found


MAX_LANES = 3
"""Maximum incomplete lanes on the first screen."""


def _incomplete(lane: Data, links: FindingLinks) -> Markup:
    ends = [format_name(lane[each], 20) for each in ("source", "destination") if lane[each] is not None]
    own = [format_name(lane["lane"], 20)] if lane["lane"] is not None else []
    text = Markup(" ").join([*([Markup(" \u2192 ").join(ends)] if ends else []), *own]) or escape_html("no lane")
    reasons = ", ".join(f"{reason_words(each)} {number:,}" for each, number in [*lane["reasons"].items()][:2])
    return link_text(text, links.lane(lane)) + escape_html(f" ({reasons})")


def key_figures(data: Data, links: FindingLinks) -> list[KeyFigure]:
    """Return the key figures: messages, backlog, delays, calls and missing messages.

    Args:
        data: the report data (``report_data``).
        links: the links of the page.

    Returns:
        The figures.
    """
    totals, unit = data["totals"], data["totals"]["unit"] or "seconds"
    found = [
        KeyFigure("Messages", _large(totals["messages"]), _sent_and_received(totals), href=links.figure("messages"))
    ]
    oldest, pending = data["oldest_pending"], totals["pending"]
    note: Markup | str = "none without an outcome"
    if pending:
        note = escape_html(f"no outcome yet; still in time: {_still_in_time(data):,}")
        if oldest is not None:
            age = escape_html(f"oldest: {format_in_unit(oldest['delay'], oldest['unit'])}")
            note = note + escape_html("; ") + link_text(age, links.message(oldest))
    found.append(KeyFigure("Pending", _large(pending), note, UNKNOWN if pending else None, links.figure("pending")))
    for measure in ("delivery", "round_trip"):
        row = overall_delay(data, measure, unit)
        if row is not None:
            note = f"99 %: {format_in_unit(row['p99'], unit)}; longest: {format_in_unit(row['max'], unit)}"
            title = f"{MEASURES[measure]}, median"
            found.append(KeyFigure(title, format_in_unit(row["p50"], unit), note, href=links.figure("delays")))
    found += _calls(data["calls"], links)
    if totals.get("forged"):
        found.append(
            KeyFigure("Forged", _large(totals["forged"]), "sent by no program", VIOLATED, links.figure("calls"))
        )
    missing, one_sided = data["completeness"]["missing"], data["completeness"]["one_sided_lanes"]
    sides = (
        f"{count_noun(one_sided, 'lane')} recorded at one end only" if one_sided else "all lanes recorded at both ends"
    )
    sides = sides if totals["lanes"] else "no lanes"
    verdict = UNKNOWN if missing else None
    found.append(KeyFigure("Missing in the input", _large(missing), sides, verdict, links.figure("missing")))
    return found


def _still_in_time(data: Data) -> int:
    """Return the number of pending messages: open, neither overdue nor uncovered."""
    found = [each for check in data["checks"] if check["check"] == "delivery" for each in check["reasons"]]
    in_time = [(NOTED, "pending"), (NOTED, "carried_on")]
    return sum(each["findings"] for each in found if (each["verdict"], each["reason"]) in in_time)


def _calls(calls: Data, links: FindingLinks) -> list[KeyFigure]:
    """Return the number of answered calls, and other outcomes."""
    ended = [(each, calls[each]) for each in UNSUCCESSFUL if calls.get(each)]
    if not calls.get("answered") and not ended:
        return []
    parts = [(each in BAD, f"{number:,} {outcome_word(each)}") for each, number in ended]
    words = [element("span", text, class_="outcome bad") if bad else escape_html(text) for bad, text in parts]
    note = Markup(", ").join(words) or "none failed"
    return [KeyFigure("Calls answered", format_count(calls.get("answered", 0)), note, href=links.figure("calls"))]


def _sent_and_received(totals: Data) -> str:
    if not totals["messages"]:
        return "none was sent or received"
    sent, received = totals["sent"], totals["received"]
    arrived = "all received" if received == sent > 1 else f"{received:,} received" if received else "arrivals not seen"
    return f"{sent:,} sent, {arrived}"


def _large(number: int) -> str | Markup:
    """Format a large figure; a shortened one has the full number as title."""
    return format_count(number) if number < _FITS else group_digits(str(number), 1)


_FITS = 10**9


def overall_delay(data: Data, measure: str, unit: str) -> Data | None:
    """Return the delays of all lanes together, or None.

    Args:
        data: the report data (``report_data``).
        measure: name of the measure.
        unit: the unit.

    Returns:
        The row of delays, or None.
    """
    rows = [each for each in data["latency"] if each["measure"] == measure and each["unit"] == unit]
    return rows[0] if rows else None


def _card(check: Data, verdict: str, links: FindingLinks) -> dict[str, Any]:
    reasons = [each for each in check["reasons"] if each["verdict"] == verdict]
    return {
        "href": links.check(check["check"]),
        "title": check_title(check["check"]),
        "promise": check_promise(check["check"]),
        "reasons": [f"{reason_words(each['reason'])} {each['findings']:,}" for each in reasons],
        "examples": [
            (which if check[verdict] > 1 else "", finding_sentence(row, links))
            for which, row in worst_and_first(check, verdict)
        ],
    }


def time_section(data: Data) -> PageSection | None:
    """Return latency and backlog over time.

    Args:
        data: the report data (``report_data``).

    Returns:
        The section; None if it is empty.
    """
    charts = [*_flow_charts(data), *_latency_charts(data)]
    if not charts:
        return None
    lead = "Messages sent, received and pending, and their delays."
    return PageSection("time", "Over time", element("div", charts, class_="charts"), lead)


def _edges(columns: Mapping[str, Sequence[Any]]) -> tuple[list[float], str]:
    """Return the edges of bins, and their axis."""
    axis = columns["axis"][0]
    begins = [float(each) for each in columns["begin"]]
    width = float(columns["ticks" if axis == "tick" else "seconds"][0])
    return [*begins, begins[-1] + width], axis


def _flow_charts(data: Data) -> list[Markup]:
    flow = data["backlog"]
    if not flow["axis"]:
        return []
    at, axis = _edges(flow)
    pending = [ChartSeries("pending", flow["pending"], "b")]
    if flow["in_flight"] != flow["pending"]:
        pending.append(ChartSeries("of which in flight", flow["in_flight"], "d"))
    note = f"Messages pending at the end of each interval.{_unplaced(data, axis)}"
    found = [time_chart("Backlog", at, pending, axis=axis, filled=True, note=note)]
    moved = [ChartSeries("sent", flow["sent"], "a"), ChartSeries("received", flow["received"], "c")]
    moved = [each for each in moved if any(each.values)] or moved[:1]
    found.append(time_chart("Messages", at, moved, axis=axis, filled=True, note=_per(at, axis)))
    unsuccessful = outcome_series(flow)
    if unsuccessful:
        note = f"{_per(at, axis)}{_beside_calls(data)}"
        found.append(time_chart("Unsuccessful messages", at, unsuccessful, axis=axis, note=note))
    return found


def _beside_calls(data: Data) -> str:
    """Return a note on unsuccessful messages that are responses, not calls."""
    others = sum(data["totals"].get(each, 0) - data["calls"].get(each, 0) for each in UNSUCCESSFUL)
    return f" {count_noun(others, 'response')} among them." if others > 0 else ""


def _unplaced(data: Data, axis: str) -> str:
    """Return a note on messages without a position on the axis."""
    number = data["totals"]["unplaced"]
    if not number:
        return ""
    return f" {count_noun(number, 'message')} without a {axis} of sending left out of the charts."


def _per(at: Sequence[float], axis: str) -> str:
    """Return the length of an interval in words."""
    width = at[-1] - at[-2]
    if axis == "tick":
        return "Per tick." if width == 1 else f"Per {format_ticks(width)}."
    return f"Per {axis_text(width, 'seconds')}."


def _latency_charts(data: Data) -> list[Markup]:
    unit = data["totals"]["unit"] or "seconds"
    found = [chart for measure in MEASURES if (chart := _delays_over_time(data, measure, unit)) is not None]
    rows = [(title, overall_delay(data, measure, unit)) for measure, title in MEASURES.items()]
    cells = [
        [title, *(format_in_unit(row[each], unit) for each in ("p50", "p90", "p99", "max")), format_count(row["count"])]
        for title, row in rows
        if row is not None
    ]
    if cells:
        titles = ("median", "90 %", "99 %", "longest", "messages")
        columns = table_columns("delay", *(f"{each}:number" for each in titles))
        inner = render_table(columns, cells, caption="Latency", stacked=True)
        head = [element("p", "Latency", class_="chart-title"), element("p", _DELAYS, class_="note")]
        found.append(element("div", [*head, inner], class_="panel-box"))
    return found


_DELAYS = "Delivery: sent to received. Round trip: sent to answered. Service: received to executed."

_QUANTILES = (("median", "p50", "a"), ("99 %", "p99", "b"), ("longest", "max", "muted"))


def _delays_over_time(data: Data, measure: str, unit: str) -> Markup | None:
    """Render the delays completed in each bin."""
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
    series = [ChartSeries(label, values[each], tone) for label, each, tone in _QUANTILES]
    note = f"By the interval in which the delay ended. {_per(at, axis)}"
    return time_chart(f"{MEASURES[measure]} over time", at, series, unit=unit, axis=axis, note=note)
