"""The outcomes of messages, and the value that moved with them."""

from __future__ import annotations

from markupsafe import Markup

from causeway.report.first_screen import Data
from causeway.report.outcomes import LOOKS, mark, outcome_bars
from causeway.report.page import Section
from causeway.report.svg import element
from causeway.report.tables import Column, table
from causeway.report.text import digits, listed, many, name, plain

_SUMMED = ("sent", "received", "fees", "refunded", "pending")

ABROAD = ("chain", "other")
"""Columns of the table ``abroad``: the chain of an asset, and the chain where it is."""


def outcomes_section(data: Data) -> Section | None:
    """Return the outcomes of messages, by code and reason."""
    totals, codes = data["totals"], data["outcomes"]
    ends = {each: totals[each] for each in LOOKS if totals.get(each)}
    if not ends:
        return None
    calls = data["calls"]
    others = {each: number - calls.get(each, 0) for each, number in ends.items()}
    if calls and any(others.values()):
        drawn = outcome_bars("Calls", calls) + outcome_bars("Responses", others)
    else:
        drawn = outcome_bars("Messages", ends)
    columns = [Column("outcome"), Column("kind"), Column("code", "number"), Column("reason", "name"),
               Column("messages", "number"), Column("example", "name")]  # fmt: skip
    rows = [
        [
            *(mark(row["outcome"]), row["kind"], f"{row['code']}" if row["code"] else "", row["detail"] or None),
            row["messages"],
            _example(row),
        ]
        for row in codes["rows"]
    ]
    listed = table(columns, rows, caption="Outcomes by code", more=codes["more"], stacked=True)
    body = element("div", {"class": "panel-box"}, drawn) + element("h3", {}, "By code and reason") + listed
    return Section("outcomes", "Outcomes", body, _apart(totals))


_APART = {"from_users": "from users", "control": "of the protocol", "forged": "forged"}
"""What is no message between programs, and counted apart."""


def _apart(totals: Data) -> str | None:
    parts = [f"{totals[each]:,} {words}" for each, words in _APART.items() if totals.get(each)]
    return f"Messages that are counted apart: {listed(parts)}." if parts else None


def _example(row: Data) -> Markup:
    number = row["message_id"] if row["index"] is None else str(row["index"])
    if number is None:
        return Markup("")
    ends = [name(row[each], 16) for each in ("source", "destination") if row[each] is not None]
    lane = [] if row["lane"] is None or row["index"] is None else [plain("lane ") + name(row["lane"], 16)]
    way = [Markup(" \u2192 ").join(ends)] if ends else []
    return Markup(", ").join([*way, *lane, name(number, 24)])


def value_section(data: Data) -> Section | None:
    """Return movements of value by reason, fees among them, and the sums by lane."""
    value = data["value"]
    parts = [*_movements(value), *_sums(value), *_abroad(value)]
    lead = "Value that moved with the messages: exact, in the smallest units of each asset."
    return Section("value", "Value", Markup("").join(parts), lead) if parts else None


def _movements(value: Data) -> list[Markup]:
    found = value["movements"]
    if not found["rows"]:
        return []
    columns = [Column("reason", "name"), Column("asset", "name"), Column("fee"), Column("movements", "number")]
    columns += [Column("amount", "number")]
    rows = [
        [row["why"], row["asset"], "fee" if row["is_fee"] else None, row["movements"], digits(row["amount"])]
        for row in found["rows"]
    ]
    caption = "Movements of value by reason"
    listed = table(columns, rows, caption=caption, more=found["more"], stacked=True, tall=True)
    return [element("h3", {}, "Movements and fees"), listed]


def _sums(value: Data) -> list[Markup]:
    found = value["sums"]
    if not found["rows"]:
        return []
    columns = [Column("from", "name"), Column("to", "name"), Column("lane", "name"), Column("asset", "name")]
    columns += [Column("difference", "number"), *(Column(each, "number") for each in _SUMMED)]
    rows = [
        [
            *(row["source"] or "?", row["destination"], row["lane"], row["asset"], digits(row["difference"])),
            *(digits(row[each]) if row[each] != "0" else None for each in _SUMMED),
        ]
        for row in found["rows"]
    ]
    off = value["not_equal"]
    said = f"{many(off, 'sum')} with a difference." if off else "No differences."
    note = f"{said} Difference = sent - received - fees - refunded - pending."
    caption = "Sums by lane and asset"
    listed = table(columns, rows, caption=caption, more=found["more"], stacked=True, tall=True)
    return [element("h3", {}, caption), element("p", {"class": "note"}, note), listed]


def _abroad(value: Data) -> list[Markup]:
    found = value["abroad"]
    if not found["rows"]:
        return []
    columns = [Column("chain", "name"), Column("abroad", "name"), Column("asset", "name"), Column("left", "number")]
    columns += [Column("came back", "number")]
    rows = [
        [*(row[each] for each in ABROAD), row["asset"], digits(row["left"]), digits(row["back"])]
        for row in found["rows"]
    ]
    caption = "Value that left chains for others"
    listed = table(columns, rows, caption=caption, more=found["more"], stacked=True, tall=True)
    return [element("h3", {}, "Abroad"), listed]


__all__ = ["outcomes_section", "value_section"]
