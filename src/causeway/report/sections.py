"""The report: its sections, made of pieces, and the whole page."""

from __future__ import annotations

from markupsafe import Markup

from causeway.audit.verdict import Verdict
from causeway.report.compared import compare_page, compare_section
from causeway.report.ended import outcomes_section, value_section
from causeway.report.findings import Anchors, finding
from causeway.report.first_screen import GROUPS, Data, verdict_section
from causeway.report.journey import journey
from causeway.report.over_time import time_section
from causeway.report.page import Section, page, piece
from causeway.report.shown_input import completeness_section
from causeway.report.shown_lanes import lanes_section
from causeway.report.svg import element
from causeway.report.tables import badge
from causeway.report.text import in_unit, many, plain, safe_name
from causeway.report.wording import phrase, promise_of, reason_in_words, title_of

_WHY = {
    "slowest_delivery": "slowest delivery",
    "slowest_round_trip": "slowest round trip",
    "oldest_pending": "oldest pending",
}

_FOOT = "Times are UTC, by the clocks of the chains. A finding that a hole in the input may explain counts as unknown."


def report_page(data: Data) -> str:
    """Return the report as one HTML document. ``data``: of ``data.report_data``."""
    title = f"{safe_name(data['lake'])}: {data['verdict']}"
    return page(title, report_sections(data), verdict=data["verdict"], foot=[_FOOT])


def report_sections(data: Data) -> list[Section]:
    """Return the sections of a report, without empty ones."""
    found = [
        verdict_section(data),
        time_section(data),
        lanes_section(data),
        messages_section(data),
        checks_section(data),
        outcomes_section(data),
        value_section(data),
        run_section(data),
        None if data["compare"] is None else compare_section(data["compare"]),
        completeness_section(data),
    ]
    return [each for each in found if each is not None]


def messages_section(data: Data) -> Section | None:
    """Return messages with their journeys: examples of findings, the slowest, the oldest pending."""
    if not data["messages"]:
        return None
    titles = {**dict(GROUPS), "oldest_pending": "Oldest pending"}
    groups: dict[str, list[Markup]] = {}
    for each in data["messages"]:
        first = each["why"][0]["kind"]
        why = Markup("; ").join(_why(reason) for reason in each["why"][:3])
        card = journey(each, ident=each["ident"], why=why, lane=each["lane_ident"], verdict=first)
        groups.setdefault(titles.get(first, "Slowest"), []).append(card)
    parts = []
    for title, items in groups.items():
        parts += [element("h3", {}, title), element("div", {"class": "journeys"}, items)]
    lead = "Examples of findings, the slowest and the oldest pending messages, with their events."
    return Section("messages", "Messages", Markup("").join(parts), lead)


def _why(reason: Data) -> Markup:
    if "finding" in reason:
        row = reason["finding"]
        return badge(row["verdict"], title_of(row["check"])) + plain(f" {phrase(row)}")
    place = "" if reason["rank"] == 1 else f" ({reason['rank']}.)"
    return plain(f"{_WHY[reason['kind']]}{place}: {in_unit(reason['delay'], reason['unit'] or 'seconds')}")


_ORDER = (Verdict.FAILED, Verdict.INCONCLUSIVE, Verdict.PASSED, Verdict.NOT_APPLICABLE)


def checks_section(data: Data) -> Section:
    """Return every check with its promise, its verdict, its reasons and examples."""
    found = []
    for check in sorted(data["checks"], key=lambda each: _ORDER.index(each["verdict"])):
        idle = None
        if check["verdict"] == Verdict.NOT_APPLICABLE:
            idle = "no lane promises it" if check["promised"] else "the input has no such rows"
        reasons = [(each["verdict"], reason_in_words(each["reason"]), each["findings"]) for each in check["reasons"]]
        examples = [finding(row, Anchors()) for row in check["examples"]]
        found.append({**check, "title": title_of(check["check"]), "promise": promise_of(check["check"]),
                      "found": examples, "words": reasons, "idle": idle})  # fmt: skip
    lead = "A finding is a violation only if the input shows it, and unknown if a hole in the input may explain it."
    return Section("checks", "Checks", piece("checks.html", checks=found, badge=badge), lead)


def run_section(data: Data) -> Section | None:
    """Return the relayers, the failures and the settings of a run of Causeway."""
    run = data["run"]
    if run is None:
        return None
    lead = f"Protocol {safe_name(run['protocol'])}, {many(run['heights'], 'height')}."
    return Section("run", "Run", piece("run.html", run=run), lead)


__all__ = [
    "checks_section", "compare_page", "compare_section", "completeness_section", "lanes_section", "messages_section",
    "outcomes_section", "report_page", "report_sections", "run_section", "time_section", "value_section",
    "verdict_section",
]  # fmt: skip
