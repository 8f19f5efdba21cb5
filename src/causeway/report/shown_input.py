"""The coverage of the input."""

from __future__ import annotations

from markupsafe import Markup

from causeway.report.first_screen import Data
from causeway.report.page import Section
from causeway.report.svg import element
from causeway.report.tables import Column, table
from causeway.report.text import in_unit, many, plain, safe_name
from causeway.report.wording import reason_in_words

_COVERED = "share of the time between the first and the last window that windows cover"


def completeness_section(data: Data) -> Section:
    """Return the coverage of each chain, the lanes with holes, and the records in quarantine."""
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
    parts.append(table(columns, rows, caption="Coverage of each chain", more=chains["more"], stacked=True, tall=True))
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
    return Section("completeness", "Input", Markup("").join(parts), "What the input covers, and what it lacks.")


def _remarks(found: Data) -> list[str]:
    said = [
        f"{many(found['missing'], 'message')} missing between the first and the last number sent of numbered lanes.",
        f"{many(found['one_sided_lanes'], 'lane')} of {found['lanes']:,} recorded at one end only.",
        f"{many(found['windows'], 'window')} of coverage.",
    ]
    said += [f"{many(number, 'row')} {each.replace('_', ' ')}." for each, number in found["unseen"].items() if number]
    for row in found["quarantine"]:
        field = safe_name(row["field"] or "record")
        said.append(f"{many(row['count_all'], 'record')} in quarantine: {field}: {reason_in_words(row['reason'])}.")
    return said


__all__ = ["completeness_section"]
