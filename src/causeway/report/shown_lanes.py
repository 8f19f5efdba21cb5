"""The lanes as a matrix, and the worst as a table."""

from __future__ import annotations

from markupsafe import Markup

from causeway.audit.findings import UNKNOWN, VIOLATED
from causeway.report.first_screen import MEASURES, Data
from causeway.report.matrix import Figures, matrix
from causeway.report.page import Section
from causeway.report.svg import element
from causeway.report.tables import Column, badge, table
from causeway.report.text import digits, in_unit, many


def lanes_section(data: Data) -> Section | None:
    """Return the lanes as a matrix, and a table of the worst."""
    lanes = data["lanes"]
    if not lanes["rows"]:
        return None
    unit, measure = lanes["unit"], lanes["latency"]
    cells = {
        (tuple(each["source"]), tuple(each["destination"])): Figures(
            *(each[field] for field in ("lanes", "messages", "open", "violated", "unknown", "latency", "href"))
        )
        for each in lanes["matrix"]
    }
    said = f"{MEASURES[measure].lower()}, 99 %" if measure is not None else "latency"
    parts = [matrix(cells, latency=said, unit=unit)] if len(cells) > 1 else []
    parts.append(_lanes_table(lanes, measure, unit))
    between = "of" if lanes["chains"] == 1 else "between"
    among = f"{many(data['totals']['lanes'], 'lane')} {between} {many(lanes['chains'], 'chain')}"
    lead = f"{among}."
    return Section("lanes", "Lanes", Markup("").join(parts), lead)


def _lanes_table(lanes: Data, measure: str | None, unit: str) -> Markup:
    columns = [Column("from", "name"), Column("to", "name"), Column("lane", "name"), Column("protocol", "name")]
    columns += [Column("messages", "number"), Column("pending", "number", "sent, without an outcome")]
    columns += [Column("oldest", "number", "age of the oldest pending message at the end of what the input covers")]
    delay = "" if measure is None else f"{MEASURES[measure].lower()} "
    columns += [
        Column("fees", "number"),
        Column(f"{delay}median", "number"),
        Column(f"{delay}99 %", "number"),
        Column("violations", "number"),
        Column("unknown", "number", "findings that a hole in the input may explain"),
    ]
    rows = []
    for each in lanes["rows"]:
        age = each["oldest_pending_ticks"] if unit == "ticks" else each["oldest_pending_seconds"]
        delays = [None, None] if measure is None else [each[f"{measure}_p50"], each[f"{measure}_p99"]]
        rows.append(
            [
                *(_source(each), each["destination"], each["lane"], each["protocol"], each["messages"]),
                *(each["pending"] or None, None if age is None else in_unit(age, unit)),
                None if each["fees"] in (None, "0") else digits(each["fees"]),
                *(None if delay is None else in_unit(delay, unit) for delay in delays),
                badge(VIOLATED, f"{each['violated']:,}") if each["violated"] else None,
                badge(UNKNOWN, f"{each['unknown_findings']:,}") if each["unknown_findings"] else None,
            ]
        )
    others = lanes["others"]
    idents = [each["ident"] for each in lanes["rows"]]
    caption = "Lanes, by violations, then pending, then messages"
    listed = table(columns, rows, caption=caption, idents=idents, stacked=True, tall=True)
    box = {
        "class": "filter",
        "type": "search",
        "data-filter": "lanes-table",
        "placeholder": "Filter lanes",
        "hidden": "",
    }
    field = Markup("")
    if len(rows) > 8:
        field = element("input", {**box, "aria-label": "Filter the lanes that are listed"})
        in_none = sum(_is_in_no_lane(each) for each in lanes["rows"])
        besides = " and what is in no lane" if in_none else ""
        said = f"The table has {many(len(rows) - in_none, 'lane')}{besides}; scroll in it to see all."
        field += element("p", {"class": "note scrolls"}, said)
    rest = Markup("")
    if others["lanes"]:
        said = f"{many(others['lanes'], 'more lane')} not listed: {many(others['messages'], 'message')}, "
        rest = element(
            "p", {"class": "note"}, said + f"{others['pending']:,} pending, {many(others['violated'], 'violation')}."
        )
    return element("h3", {}, "Lane by lane") + field + element("div", {"id": "lanes-table"}, listed) + rest


def _source(lane: Data) -> str | Markup:
    """Return the source of a lane; messages in no lane have none."""
    if _is_in_no_lane(lane):
        return element("em", {}, "in no lane")
    return lane["source"] or "?"


def _is_in_no_lane(lane: Data) -> bool:
    """Return whether a row is that of the messages without a lane."""
    return all(lane[each] is None for each in ("source", "destination", "lane"))


__all__ = ["lanes_section"]
