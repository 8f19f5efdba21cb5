"""How much the input shows."""

from __future__ import annotations

from markupsafe import Markup

from causeway.report.first_screen import Data
from causeway.report.page import Section
from causeway.report.svg import element
from causeway.report.tables import Column, table
from causeway.report.text import in_unit, many, plain, safe_name
from causeway.report.wording import reason_in_words

_COVERED = "share of what lies between the first and the last window that is in one"


def completeness_section(data: Data) -> Section:
    """Return how much the input shows."""
    found = data["completeness"]
    chains, gaps = found["chains"], found["gaps"]
    items = [element("li", {}, plain(each)) for each in _remarks(found)]
    parts = [element("ul", {"class": "remarks"}, items), element("h3", {}, "Chains")]
    titles = (("chain", "name"), ("rows", "number"), ("last height", "number"), ("last time", "time"))
    columns = [*(Column(*each) for each in titles), Column("covered", "number", _COVERED)]
    rows = [
        [row["chain"], row["rows"], row["last_height"], row["last_time"], in_unit(row["covered"], "share")]
        for row in chains["rows"]
    ]
    said = "How far the input shows each chain"
    parts.append(table(columns, rows, caption=said, more=chains["more"], stacked=True, tall=True))
    if gaps["rows"]:
        columns = [Column("from", "name"), Column("to", "name"), Column("lane", "name"), Column("side")]
        columns += [*(Column(each, "number") for each in ("rows", "missing", "in runs")), Column("other end")]
        rows = [
            [
                *(row["source"] or "?", row["destination"], row["lane"], row["side"], row["rows"]),
                *(row["missing"] or None, row["missing_runs"] or None, "not seen" if row["one_sided"] else None),
            ]
            for row in gaps["rows"]
        ]
        parts.append(element("h3", {}, "Holes"))
        parts.append(table(columns, rows, caption="Lanes with holes", more=gaps["more"], stacked=True, tall=True))
    return Section("completeness", "Input", Markup("").join(parts), "How much of the truth the input shows.")


def _remarks(found: Data) -> list[str]:
    sides = "was recorded" if found["one_sided_lanes"] == 1 else "were recorded"
    windows = "says" if found["windows"] == 1 else "say"
    said = [
        f"{many(found['missing'], 'message')} missing between the first and the last number sent of numbered lanes.",
        f"{many(found['one_sided_lanes'], 'lane')} of {found['lanes']:,} {sides} at one end only.",
        f"{many(found['windows'], 'window')} {windows} what the input covers.",
    ]
    said += [f"{many(number, 'row')} {each.replace('_', ' ')}." for each, number in found["unseen"].items() if number]
    for row in found["quarantine"]:
        field = safe_name(row["field"] or "record")
        said.append(f"{many(row['count_all'], 'record')} set aside: {field}: {reason_in_words(row['reason'])}.")
    return said


__all__ = ["completeness_section"]
