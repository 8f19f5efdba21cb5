"""The report: its sections, made of pieces, and the whole page."""

from __future__ import annotations

from markupsafe import Markup

from causeway.report.charts import Bar, bars
from causeway.report.compared import compare_page, compare_section
from causeway.report.ended import outcomes_section, value_section
from causeway.report.first_screen import Data, finding, verdict_section
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
    "oldest_pending": "oldest in the backlog",
}


def report_page(data: Data) -> str:
    """Return the report as one HTML document. ``data``: of ``data.report_data``."""
    foot = ["Times are UTC, by the clocks of the chains. What the input does not show is called unknown, never wrong."]
    said = "nothing violated as far as the input shows" if data["totals"]["messages"] else "nothing to examine"
    titled = {"holds": "holds", "violated": "violated", "unknown": said}
    title = f"{safe_name(data['lake'])}: {titled[data['verdict']]}"
    return page(title, report_sections(data), verdict=data["verdict"], foot=foot)


def report_sections(data: Data) -> list[Section]:
    """Return the sections of a report that have something to say."""
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
    """Return messages with their journeys: examples of findings, the slowest, the oldest that are open."""
    if not data["messages"]:
        return None
    groups: dict[str, list[Markup]] = {}
    for each in data["messages"]:
        first = each["why"][0]["kind"]
        group = {"violated": "Violated", "unknown": "Not known", "oldest_pending": "Oldest in the backlog"}.get(
            first, "Slowest"
        )
        why = Markup("; ").join(_why(reason) for reason in each["why"][:3])
        groups.setdefault(group, []).append(journey(each, ident=each["ident"], why=why, lane=each["lane_ident"]))
    parts = []
    for title, items in groups.items():
        parts += [element("h3", {}, title), element("div", {"class": "journeys"}, items)]
    lead = "Examples of what was found, the slowest messages and the oldest that wait, each with what happened to it."
    return Section("messages", "Messages", Markup("").join(parts), lead)


def _why(reason: Data) -> Markup:
    if "finding" in reason:
        row = reason["finding"]
        verdict = row["verdict"]
        return badge(verdict, title_of(row["check"])) + plain(f" {phrase(row)}")
    place = "" if reason["rank"] == 1 else f" ({reason['rank']}.)"
    return plain(f"{_WHY[reason['kind']]}{place}: {in_unit(reason['delay'], reason['unit'] or 'seconds')}")


_SEVERITY = ("violated", "unknown", "holds", "idle")


def _state(check: Data) -> str:
    return "idle" if not check["examined"] and not check["unknown"] else str(check["verdict"])


def checks_section(data: Data) -> Section:
    """Return every check with what it asks, its verdict, why, and examples."""
    found = []
    for check in sorted(data["checks"], key=lambda each: _SEVERITY.index(_state(each))):
        examples = [finding(row) for row in check["examples"]]
        promised = check["promised"]
        idle = None
        if promised is not None:
            idle = "no lane promises it" if promised else "the input has no such rows"
        reasons = [(each["verdict"], reason_in_words(each["reason"]), each["findings"]) for each in check["reasons"]]
        found.append({**check, "title": title_of(check["check"]), "promise": promise_of(check["check"]),
                      "found": examples, "words": reasons, "idle": idle})  # fmt: skip
    lead = (
        "A check is violated only where the input shows it. Where a hole in the input could explain it, it is unknown."
    )
    return Section("checks", "Checks", piece("checks.html", checks=found, badge=badge), lead)


def run_section(data: Data) -> Section | None:
    """Return what a lake that Causeway ran says beside its ledger."""
    run = data["run"]
    if run is None:
        return None
    counts = [] if run["counts"] is None else [
        Bar(each.replace("_", " "), number) for each, number in run["counts"].items()
        if isinstance(number, int) and number
    ]  # fmt: skip
    body = piece(
        "run.html", run=run, bars=bars("Calls and messages, as the run counts them", counts) if counts else None
    )
    lead = (
        f"What the run says beside its ledger: protocol {safe_name(run['protocol'])}, {many(run['heights'], 'height')}."
    )
    return Section("run", "Run", body, lead)


__all__ = [
    "checks_section", "compare_page", "compare_section", "completeness_section", "lanes_section", "messages_section",
    "outcomes_section", "report_page", "report_sections", "run_section", "time_section", "value_section",
    "verdict_section",
]  # fmt: skip
