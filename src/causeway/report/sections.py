"""The sections of a report, and the whole page."""

from __future__ import annotations

from markupsafe import Markup

from causeway.audit.findings import UNKNOWN, VIOLATED
from causeway.audit.verdict import Verdict
from causeway.core.text import count_noun
from causeway.report.comparison import compare_page, compare_section
from causeway.report.elements import (
    TableColumn,
    element,
    escape_html,
    format_in_unit,
    format_name,
    group_digits,
    list_words,
    render_table,
    safe_name,
    table_columns,
    verdict_badge,
)
from causeway.report.findings import (
    PageAnchors,
    check_promise,
    check_title,
    finding_phrase,
    finding_sentence,
    reason_words,
)
from causeway.report.first_screen import GROUPS, MEASURES, Data, time_section, verdict_section
from causeway.report.journey import draw_journey
from causeway.report.matrix import PairFigures, draw_matrix
from causeway.report.outcomes import OUTCOME_STYLES, outcome_bars, outcome_mark
from causeway.report.page import PageSection, render_page, render_piece

__all__ = [
    "checks_section",
    "compare_page",
    "compare_section",
    "completeness_section",
    "lanes_section",
    "messages_section",
    "outcomes_section",
    "report_page",
    "report_sections",
    "run_section",
    "time_section",
    "value_section",
    "verdict_section",
]

_SUMMED = ("sent", "received", "fees", "refunded", "pending")

ABROAD = ("chain", "other")
"""Columns of the table ``abroad``: the home chain of an asset, and the chain with its balance."""


def outcomes_section(data: Data) -> PageSection | None:
    """Return the outcomes of messages, by code and reason.

    Args:
        data: the report data (``report_data``).

    Returns:
        The section; None if it is empty.
    """
    totals, codes = data["totals"], data["outcomes"]
    ends = {each: totals[each] for each in OUTCOME_STYLES if totals.get(each)}
    if not ends:
        return None
    calls = data["calls"]
    others = {each: number - calls.get(each, 0) for each, number in ends.items()}
    if calls and any(others.values()):
        bars = outcome_bars("Calls", calls) + outcome_bars("Responses", others)
    else:
        bars = outcome_bars("Messages", ends)
    columns = table_columns("outcome", "kind", "code:number", "reason:name", "messages:number", "example:name")
    rows = [
        [
            *(
                outcome_mark(row["outcome"]),
                row["kind"],
                f"{row['code']}" if row["code"] else "",
                row["detail"] or None,
            ),
            row["messages"],
            _example(row),
        ]
        for row in codes["rows"]
    ]
    listed = render_table(columns, rows, caption="Outcomes by code", more=codes["more"], stacked=True)
    body = element("div", bars, class_="panel-box") + element("h3", "By code and reason") + listed
    return PageSection("outcomes", "Outcomes", body, _apart(totals))


_APART = {"from_users": "from users", "control": "of the protocol", "forged": "forged"}
"""Messages not between programs, counted separately."""


def _apart(totals: Data) -> str | None:
    parts = [f"{totals[each]:,} {words}" for each, words in _APART.items() if totals.get(each)]
    return f"Messages that are counted apart: {list_words(parts)}." if parts else None


def _example(row: Data) -> Markup:
    number = row["message_id"] if row["index"] is None else str(row["index"])
    if number is None:
        return Markup("")
    ends = [format_name(row[each], 16) for each in ("source", "destination") if row[each] is not None]
    lane = [] if row["lane"] is None or row["index"] is None else [escape_html("lane ") + format_name(row["lane"], 16)]
    way = [Markup(" \u2192 ").join(ends)] if ends else []
    return Markup(", ").join([*way, *lane, format_name(number, 24)])


def value_section(data: Data) -> PageSection | None:
    """Return movements of value by reason, fees among them, and the sums by lane.

    Args:
        data: the report data (``report_data``).

    Returns:
        The section; None if it is empty.
    """
    value = data["value"]
    parts = [*_movements(value), *_sums(value), *_abroad(value)]
    lead = "Value that moved with the messages: exact, in the smallest units of each asset."
    return PageSection("value", "Value", Markup("").join(parts), lead) if parts else None


def _movements(value: Data) -> list[Markup]:
    found = value["movements"]
    if not found["rows"]:
        return []
    columns = table_columns("reason:name", "asset:name", "fee", "movements:number", "amount:number")
    rows = [
        [row["why"], row["asset"], "fee" if row["is_fee"] else None, row["movements"], group_digits(row["amount"])]
        for row in found["rows"]
    ]
    caption = "Movements of value by reason"
    listed = render_table(columns, rows, caption=caption, more=found["more"], stacked=True, tall=True)
    return [element("h3", "Movements and fees"), listed]


def _sums(value: Data) -> list[Markup]:
    found = value["sums"]
    if not found["rows"]:
        return []
    columns = table_columns(
        *("from:name", "to:name", "lane:name", "asset:name"),
        *(f"{each}:number" for each in ("difference", *_SUMMED)),
    )
    rows = [
        [
            *(row["source"] or "?", row["destination"], row["lane"], row["asset"], group_digits(row["difference"])),
            *(group_digits(row[each]) if row[each] != "0" else None for each in _SUMMED),
        ]
        for row in found["rows"]
    ]
    off = value["not_equal"]
    summary = f"{count_noun(off, 'sum')} with a difference." if off else "No differences."
    note = f"{summary} Difference = sent - received - fees - refunded - pending."
    caption = "Sums by lane and asset"
    listed = render_table(columns, rows, caption=caption, more=found["more"], stacked=True, tall=True)
    return [element("h3", caption), element("p", note, class_="note"), listed]


def _abroad(value: Data) -> list[Markup]:
    found = value["abroad"]
    if not found["rows"]:
        return []
    columns = table_columns("chain:name", "abroad:name", "asset:name", "left:number", "came back:number")
    rows = [
        [*(row[each] for each in ABROAD), row["asset"], group_digits(row["left"]), group_digits(row["back"])]
        for row in found["rows"]
    ]
    caption = "Value that left chains for others"
    listed = render_table(columns, rows, caption=caption, more=found["more"], stacked=True, tall=True)
    return [element("h3", "Abroad"), listed]


_COVERED = "share of the time between the first and the last window that windows cover"


def completeness_section(data: Data) -> PageSection:
    """Return the coverage of each chain, incomplete lanes, and records in quarantine.

    Args:
        data: the report data (``report_data``).

    Returns:
        The section.
    """
    found = data["completeness"]
    chains, gaps = found["chains"], found["gaps"]
    items = [element("li", escape_html(each)) for each in _remarks(found)]
    parts = [element("ul", items, class_="remarks"), element("h3", "Chains")]
    columns = table_columns(
        *("chain:name", "rows:number", "last height:number", "last time:time"),
        TableColumn("covered", "number", _COVERED),
    )
    rows = [
        [row["chain"], row["rows"], row["last_height"], row["last_time"], format_in_unit(row["covered"], "share")]
        for row in chains["rows"]
    ]
    parts.append(
        render_table(columns, rows, caption="Coverage of each chain", more=chains["more"], stacked=True, tall=True)
    )
    if gaps["rows"]:
        columns = table_columns(
            *("from:name", "to:name", "lane:name", "side"),
            *("rows:number", "missing:number", "in runs:number", "other end"),
        )
        rows = [
            [
                *(row["source"] or "?", row["destination"], row["lane"], row["side"], row["rows"]),
                *(row["missing"] or None, row["missing_runs"] or None, "not seen" if row["one_sided"] else None),
            ]
            for row in gaps["rows"]
        ]
        parts.append(element("h3", "Holes"))
        parts.append(
            render_table(columns, rows, caption="Lanes with holes", more=gaps["more"], stacked=True, tall=True)
        )
    return PageSection("completeness", "Input", Markup("").join(parts), "Coverage and gaps of the input.")


def _remarks(found: Data) -> list[str]:
    remarks = [
        f"{count_noun(found['missing'], 'message')} missing between the first and the last number sent "
        "of numbered lanes.",
        f"{count_noun(found['one_sided_lanes'], 'lane')} of {found['lanes']:,} recorded at one end only.",
        f"{count_noun(found['windows'], 'window')} of coverage.",
    ]
    remarks += [
        f"{count_noun(number, 'row')} {each.replace('_', ' ')}." for each, number in found["unseen"].items() if number
    ]
    for row in found["quarantine"]:
        field = safe_name(row["field"] or "record")
        remarks.append(
            f"{count_noun(row['count_all'], 'record')} in quarantine: {field}: {reason_words(row['reason'])}."
        )
    return remarks


def lanes_section(data: Data) -> PageSection | None:
    """Return the lanes as a matrix, and a table of the worst.

    Args:
        data: the report data (``report_data``).

    Returns:
        The section; None if it is empty.
    """
    lanes = data["lanes"]
    if not lanes["rows"]:
        return None
    unit, measure = lanes["unit"], lanes["latency"]
    cells = {
        (tuple(each["source"]), tuple(each["destination"])): PairFigures(
            *(each[field] for field in ("lanes", "messages", "open", "violated", "unknown", "latency", "href"))
        )
        for each in lanes["matrix"]
    }
    measure_text = f"{MEASURES[measure].lower()}, 99 %" if measure is not None else "latency"
    parts = [draw_matrix(cells, latency=measure_text, unit=unit)] if len(cells) > 1 else []
    parts.append(_lanes_table(lanes, measure, unit))
    between = "of" if lanes["chains"] == 1 else "between"
    among = f"{count_noun(data['totals']['lanes'], 'lane')} {between} {count_noun(lanes['chains'], 'chain')}"
    lead = f"{among}."
    return PageSection("lanes", "Lanes", Markup("").join(parts), lead)


def _lanes_table(lanes: Data, measure: str | None, unit: str) -> Markup:
    delay = "" if measure is None else f"{MEASURES[measure].lower()} "
    columns = table_columns(
        *("from:name", "to:name", "lane:name", "protocol:name", "messages:number"),
        TableColumn("pending", "number", "sent, without an outcome"),
        TableColumn("oldest", "number", "age of the oldest pending message at the end of the input"),
        *("fees:number", f"{delay}median:number", f"{delay}99 %:number", "violations:number"),
        TableColumn("unknown", "number", "findings that a hole in the input may explain"),
    )
    rows = []
    for each in lanes["rows"]:
        age = each["oldest_pending_ticks"] if unit == "ticks" else each["oldest_pending_seconds"]
        delays = [None, None] if measure is None else [each[f"{measure}_p50"], each[f"{measure}_p99"]]
        rows.append(
            [
                *(_source(each), each["destination"], each["lane"], each["protocol"], each["messages"]),
                *(each["pending"] or None, None if age is None else format_in_unit(age, unit)),
                None if each["fees"] in (None, "0") else group_digits(each["fees"]),
                *(None if delay is None else format_in_unit(delay, unit) for delay in delays),
                verdict_badge(VIOLATED, f"{each['violated']:,}") if each["violated"] else None,
                verdict_badge(UNKNOWN, f"{each['unknown_findings']:,}") if each["unknown_findings"] else None,
            ]
        )
    others = lanes["others"]
    idents = [each["ident"] for each in lanes["rows"]]
    caption = "Lanes, by violations, then pending, then messages"
    listed = render_table(columns, rows, caption=caption, idents=idents, stacked=True, tall=True)
    box = {
        "class": "filter",
        "type": "search",
        "data-filter": "lanes-table",
        "placeholder": "Filter lanes",
        "hidden": "",
    }
    field = Markup("")
    if len(rows) > 8:
        field = element("input", **box, aria_label="Filter the lanes that are listed")
        in_none = sum(_is_in_no_lane(each) for each in lanes["rows"])
        besides = " and rows without a lane" if in_none else ""
        note = f"The table has {count_noun(len(rows) - in_none, 'lane')}{besides}; scroll in it to see all."
        field += element("p", note, class_="note scrolls")
    rest = Markup("")
    if others["lanes"]:
        note = f"{count_noun(others['lanes'], 'more lane')} not listed: {count_noun(others['messages'], 'message')}, "
        rest = element(
            "p", note + f"{others['pending']:,} pending, {count_noun(others['violated'], 'violation')}.", class_="note"
        )
    return element("h3", "Lane by lane") + field + element("div", listed, id="lanes-table") + rest


def _source(lane: Data) -> str | Markup:
    """Return the source of a lane; messages in no lane have none."""
    if _is_in_no_lane(lane):
        return element("em", "in no lane")
    return lane["source"] or "?"


def _is_in_no_lane(lane: Data) -> bool:
    """Return True for the row of messages in no lane."""
    return all(lane[each] is None for each in ("source", "destination", "lane"))


_WHY = {
    "slowest_delivery": "slowest delivery",
    "slowest_round_trip": "slowest round trip",
    "oldest_pending": "oldest pending",
}

_FOOT = "Times are UTC, by the clocks of the chains. A finding that a hole in the input may explain counts as unknown."


def report_page(data: Data) -> str:
    """Return the report (of ``report_data``) as one HTML document.

    Args:
        data: the report data (``report_data``).

    Returns:
        An HTML document.
    """
    title = f"{safe_name(data['lake'])}: {data['verdict']}"
    return render_page(title, report_sections(data), verdict=data["verdict"], foot=[_FOOT])


def report_sections(data: Data) -> list[PageSection]:
    """Return the sections of a report, without empty ones.

    Args:
        data: the report data (``report_data``).

    Returns:
        The sections.
    """
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


def messages_section(data: Data) -> PageSection | None:
    """Return messages with their journeys: example findings, the slowest, the oldest pending.

    Args:
        data: the report data (``report_data``).

    Returns:
        The section; None if it is empty.
    """
    if not data["messages"]:
        return None
    titles = {**dict(GROUPS), "oldest_pending": "Oldest pending"}
    groups: dict[str, list[Markup]] = {}
    for each in data["messages"]:
        first = each["why"][0]["kind"]
        why = Markup("; ").join(_why(reason) for reason in each["why"][:3])
        card = draw_journey(each, ident=each["ident"], why=why, lane=each["lane_ident"], verdict=first)
        groups.setdefault(titles.get(first, "Slowest"), []).append(card)
    parts = []
    for title, items in groups.items():
        parts += [element("h3", title), element("div", items, class_="journeys")]
    lead = "Examples of findings, the slowest and the oldest pending messages, with their events."
    return PageSection("messages", "Messages", Markup("").join(parts), lead)


def _why(reason: Data) -> Markup:
    if "finding" in reason:
        row = reason["finding"]
        return verdict_badge(row["verdict"], check_title(row["check"])) + escape_html(f" {finding_phrase(row)}")
    place = "" if reason["rank"] == 1 else f" ({reason['rank']}.)"
    return escape_html(f"{_WHY[reason['kind']]}{place}: {format_in_unit(reason['delay'], reason['unit'] or 'seconds')}")


_ORDER = (Verdict.FAILED, Verdict.INCONCLUSIVE, Verdict.PASSED, Verdict.NOT_APPLICABLE)


def checks_section(data: Data) -> PageSection:
    """Return every check with its promise, verdict, reasons and examples.

    Args:
        data: the report data (``report_data``).

    Returns:
        The section.
    """
    found = []
    for check in sorted(data["checks"], key=lambda each: _ORDER.index(each["verdict"])):
        idle = None
        if check["verdict"] == Verdict.NOT_APPLICABLE:
            idle = "no lane promises it" if check["promised"] else "the input has no such rows"
        reasons = [(each["verdict"], reason_words(each["reason"]), each["findings"]) for each in check["reasons"]]
        examples = [finding_sentence(row, PageAnchors()) for row in check["examples"]]
        found.append({**check, "title": check_title(check["check"]), "promise": check_promise(check["check"]),
                      "found": examples, "words": reasons, "idle": idle})  # fmt: skip
    lead = "A finding is a violation only if the input shows it, and unknown if a hole in the input may explain it."
    return PageSection("checks", "Checks", render_piece("checks.html", checks=found, badge=verdict_badge), lead)


def run_section(data: Data) -> PageSection | None:
    """Return the relayers, failures and settings of a run of Causeway.

    Args:
        data: the report data (``report_data``).

    Returns:
        The section; None if it is empty.
    """
    run = data["run"]
    if run is None:
        return None
    lead = f"Protocol {safe_name(run['protocol'])}, {count_noun(run['heights'], 'height')}."
    return PageSection("run", "Run", render_piece("run.html", run=run), lead)
