"""How messages ended, and what moved with them."""

from __future__ import annotations

from markupsafe import Markup

from causeway.report.charts import Bar, bars
from causeway.report.first_screen import Data
from causeway.report.page import Section
from causeway.report.svg import element
from causeway.report.tables import Column, table
from causeway.report.text import digits, many, name

OUTCOMES = {
    "answered": "good", "rejected": "bad", "refunded": "warn", "timed_out": "e", "dropped": "d", "delivered": "c",
    "pending": "warn", "unknown": "muted",
}  # fmt: skip
"""Outcomes, and the colour of each."""

_SUMMED = ("difference", "sent", "received", "fees", "refunded", "pending")


def outcomes_section(data: Data) -> Section | None:
    """Return how messages ended, by code."""
    totals, codes = data["totals"], data["outcomes"]
    ends = [(each, totals[each]) for each in OUTCOMES if totals[each]]
    if not ends:
        return None
    drawn = bars(
        "How messages ended", [Bar(each.replace("_", " "), number, tone=OUTCOMES[each]) for each, number in ends]
    )
    columns = [Column("outcome"), Column("kind"), Column("code", "number"), Column("reason", "name"),
               Column("messages", "number"), Column("for example", "name")]  # fmt: skip
    rows = [
        [
            *(
                row["outcome"].replace("_", " "),
                row["kind"],
                "" if row["code"] is None else f"{row['code']}",
                row["detail"] or "",
            ),
            row["messages"],
            _example(row),
        ]
        for row in codes["rows"]
    ]
    listed = table(columns, rows, caption="Outcomes by code", more=codes["more"], stacked=True)
    body = element("div", {"class": "panel-box"}, drawn) + element("h3", {}, "By code and reason") + listed
    return Section("outcomes", "Outcomes", body)


def _example(row: Data) -> Markup:
    number = row["message_id"] if row["index"] is None else str(row["index"])
    if number is None:
        return Markup("")
    return name(row["lane"] or row["source"] or "?", 24) + Markup(" ") + name(number, 24)


def value_section(data: Data) -> Section | None:
    """Return movements of value: fees, and what sums of lanes leave over."""
    value = data["value"]
    parts = []
    if value["sums"]["rows"]:
        columns = [Column("lane", "name"), Column("asset", "name")]
        columns += [
            Column(each, "number") for each in ("sent", "received", "fees", "refunded", "pending", "difference")
        ]
        rows = [
            [row["lane"] or row["source"], row["asset"], *(digits(row[each.title]) for each in columns[2:])]
            for row in value["sums"]["rows"]
        ]
        said = (
            f"{many(value['not_equal'], 'sum')} leave something over."
            if value["not_equal"]
            else "Nothing is left over."
        )
        parts += [element("h3", {}, "Sums by lane and asset"), element("p", {"class": "note"}, said)]
        parts.append(table(columns, rows, caption="Sums by lane and asset", more=value["sums"]["more"], stacked=True))
    if value["fees"]["rows"]:
        columns = [Column("lane", "name"), Column("asset", "name"), Column("why", "name"), Column("fee"),
                   Column("movements", "number"), Column("amount", "number")]  # fmt: skip
        rows = [
            [
                row["lane"] or row["source"],
                row["asset"],
                row["why"],
                "fee" if row["is_fee"] else "",
                row["movements"],
                digits(row["amount"]),
            ]
            for row in value["fees"]["rows"]
        ]
        parts += [element("h3", {}, "Movements of value")]
        parts.append(table(columns, rows, caption="Movements of value", more=value["fees"]["more"], stacked=True))
    if value["abroad"]["rows"]:
        columns = [Column("chain", "name"), Column("abroad", "name"), Column("asset", "name"), Column("left", "number"),
                   Column("came back", "number")]  # fmt: skip
        fields = [*value["abroad"]["rows"][0]]
        rows = [[row[fields[0]], row[fields[1]], row["asset"], digits(row["left"]), digits(row["back"])]
                for row in value["abroad"]["rows"]]  # fmt: skip
        parts += [element("h3", {}, "Abroad")]
        parts.append(
            table(columns, rows, caption="What left chains for others", more=value["abroad"]["more"], stacked=True)
        )
    return Section("value", "Value", Markup("").join(parts)) if parts else None


__all__ = ["OUTCOMES", "outcomes_section", "value_section"]
