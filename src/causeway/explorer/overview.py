"""The first page: what is wrong, how far the network is, and how backlog and latency went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from causeway.explorer.addresses import address, chain_address, lane_address, message_address
from causeway.explorer.frame import Page, Part
from causeway.explorer.live import Head
from causeway.explorer.view import View
from causeway.ledger.schema import LANE
from causeway.ledger.typed import plain_rows
from causeway.pipeline.ledger_search import MessageKey
from causeway.report.data import columns_over_time, requests_of
from causeway.report.matrix import matrix
from causeway.report.over_time import time_section
from causeway.report.svg import element
from causeway.report.tables import Cell, Column, Fact, badge, facts, shape, table
from causeway.report.text import count, in_unit, listed, many, name, time_text
from causeway.report.wording import phrase, promise_of, title_of, where_and_when

if TYPE_CHECKING:
    from causeway.figures.figures import Figures

WORST = 10
"""Rows of each list of messages that took or wait longest."""


def overview(view: View, head: Head) -> Page:
    """Return the first page."""
    sections = [Part("verdict", None, _verdict(view) + _facts(view, head))]
    if wrong := _wrong(view):
        sections.append(Part("wrong", "What is wrong", wrong))
    if (charts := over_time(view.figures)) is not None:
        sections.append(charts)
    if view.lanes.num_rows:
        sections.append(Part("lanes", "Lanes", lanes_matrix(view), "From which chain to which; a cell leads to it."))
    if worst := _worst(view):
        sections.append(Part("worst", "Longest", worst))
    return Page("Overview", sections, "Overview")


def _verdict(view: View) -> Markup:
    checks = view.audit.checks.values()
    violated = [check for check in checks if check.verdict == "violated"]
    unknown = [check for check in checks if check.unknown]
    held = [check for check in checks if check.verdict == "holds"]
    if violated:
        head = Markup("<em>{}</em> {}").format(
            "Violated:", listed([f"{title_of(check.name).lower()} ({check.violated:,})" for check in violated])
        )
        said = f"{many(sum(check.violated for check in violated), 'finding')} in {many(len(violated), 'check')}"
    elif held or unknown:
        head = Markup("<em>{}</em>").format("Nothing is violated")
        said = f"{many(len(held), 'check')} hold" if len(held) != 1 else "1 check holds"
    else:
        head, said = Markup("Nothing to check yet"), "no events were seen"
    if unknown:
        said += f"; {many(len(unknown), 'check')} met what the input does not show"
    parts = [
        element("span", {"class": "sign"}, shape(view.verdict)),
        element("div", {}, [element("h1", {}, head), element("p", {}, f"{said}.")]),
    ]
    strip = [
        element(
            "a",
            {
                "class": f"{check.verdict}{'' if check.examined or check.unknown else ' idle'}",
                "href": f"/findings?check={check.name}",
            },
            shape(check.verdict) + Markup("{}").format(title_of(check.name)),
        )
        for check in checks
    ]
    return element("div", {"class": f"hero {view.verdict}"}, parts) + element("div", {"class": "strip"}, strip)


def _facts(view: View, head: Head) -> Markup:
    totals = view.figures.totals
    rows: list[Fact] = []
    if head.height is not None:
        rows.append(Fact("Height", count(head.height), f"tick {count(head.tick or 0)}", href="/height"))
    if head.rate:
        rows.append(Fact("Messages a second", count(round(head.rate)), "over the last seconds"))
    rows.append(Fact("Messages", count(totals.get("messages", 0)), many(totals.get("lanes", 0), "lane"), href="/lanes"))
    calls = requests_of(view.figures.codes)
    if ended := calls.get("answered", 0) + calls.get("rejected", 0):
        note = f"{count(calls['rejected'])} of them rejected" if calls.get("rejected") else "none was rejected"
        rows.append(Fact("Requests answered", count(ended), note))
    elif totals.get("delivered"):
        rows.append(Fact("Delivered", count(totals["delivered"])))
    pending = totals.get("pending", 0)
    note = f"{count(totals.get('in_flight', 0))} under way"
    rows.append(Fact("Pending", count(pending), note, "unknown" if pending else None, "/lanes?sort=pending"))
    for measure, title in (("delivery", "Delivery"), ("round_trip", "Round trip")):
        quantiles = _quantiles(view, measure)
        if quantiles is not None:
            middle, high, unit = quantiles
            rows.append(Fact(f"{title}, median", in_unit(middle, unit), f"99 %: {in_unit(high, unit)}"))
    if lost := calls.get("dropped", 0) + calls.get("timed_out", 0):
        rows.append(Fact("Requests dropped, timed out", count(lost), None, "unknown"))
    return facts(rows)


def _quantiles(view: View, measure: str) -> tuple[float, float, str] | None:
    for row in view.figures.latency.slice(0, MOST_MEASURES).to_pylist():
        if row["scope"] == "all" and row["measure"] == measure and row["unit"] == view.unit:
            return row["p50"], row["p99"], row["unit"]
    return None


def _wrong(view: View) -> Markup:
    """Return a card for each check that is violated, with its first and its worst finding."""
    cards = []
    for check in view.audit.checks.values():
        if check.verdict != "violated":
            continue
        all_of = f"/findings?check={check.name}"
        title = element("h3", {}, element("a", {"href": all_of}, title_of(check.name)))
        head = element("header", {}, [title, element("span", {"class": "tally"}, many(check.violated, "finding"))])
        parts = [head, element("p", {"class": "promise"}, promise_of(check.name))]
        examples = [("first", check.first), ("worst", check.worst if check.worst != check.first else None)]
        items = [
            element("li", {}, [element("span", {"class": "which"}, which), element("div", {}, finding(row))])
            for which, row in examples
            if row is not None
        ]
        parts.append(element("ul", {"class": "examples"}, items))
        cards.append(element("article", {"class": "card violated"}, parts))
    return element("div", {"class": "cards"}, cards) if cards else Markup("")


def finding(row: dict[str, Any], *, named: bool = True) -> Markup:
    """Return a finding as a sentence that leads to what it is about. ``named``: whether it says of which lane it is."""
    lane = tuple(row[each] for each in LANE)
    key = MessageKey(lane, row["index"], row["message_id"])
    number = row["message_id"] if row["index"] is None else f"{row['index']:,}"
    parts: list[Markup] = []
    if row["check"] == "headers":
        parts.append(link(f"Block {row['height'] or 0:,}", address("/height", {"n": row["height"]})))
        parts.append(Markup(" of ") + link(row["chain"], chain_address(row["chain"])))
    elif number is not None:
        target = message_address(key)
        if row["check"] == "watermarks":
            target = lane_address(lane)
        elif row["check"] == "gaps":  # of a run of messages: the first may have no rows, so no page
            target = lane_address(lane, **{"from": row["index"]})
        parts.append(Markup("Watermark " if row["check"] == "watermarks" else "Message ") + link(number, target))
        if named and (row["lane"] is not None or row["source"] is not None):
            parts.append(Markup(" of ") + lane_link(lane))
    else:
        parts.append(link(row["chain"] or row["destination"], chain_address(row["chain"] or row["destination"])))
    parts.append(Markup(" {}.").format(phrase(row)))
    when = where_and_when(row)
    said = Markup("").join(parts)
    return said + Markup(" ") + element("span", {"class": "when"}, when) if when else said


def link(text: object, href: str | None) -> Markup:
    """Return a name that leads somewhere, or only the name."""
    shown = name(None if text is None else str(text))
    return shown if href is None else element("a", {"href": href}, shown)


def lane_link(lane: Sequence[str | None]) -> Markup:
    """Return a lane by its chains and name, as a link."""
    _, source, destination, own = lane
    ends = name(source, 24) + Markup(" → ") + name(destination, 24)
    if own is not None:
        ends += Markup(" · ") + name(own, 24)
    href = lane_address(lane)
    return ends if href is None else element("a", {"href": href}, ends)


def parties(row: Mapping[str, Any]) -> Markup | None:
    """Return who sends to whom; None where nobody says."""
    sender, receiver = row["sender"], row["receiver"]
    if not (sender or receiver):
        return None
    return element("span", {}, name(sender, 22) + Markup(" → ") + name(receiver, 22))


def over_time(figures: Figures) -> Part | None:
    """Return backlog, traffic and latency over time, as the report shows them; None where nothing has a time."""
    data = {
        "backlog": columns_over_time(figures.backlog),
        "latency_over_time": columns_over_time(figures.latency_over_time),
        "latency": [row for row in figures.latency.slice(0, MOST_MEASURES).to_pylist() if row["scope"] == "all"],
        "totals": figures.totals,
        "requests": requests_of(figures.codes),
    }
    found = time_section(data)
    return None if found is None else Part(found.ident, found.title, found.body, found.lead)


MOST_MEASURES = 64
"""Rows of the table of latencies among which those of all lanes are."""


def lanes_matrix(view: View) -> Markup:
    """Return the matrix of lanes; its cells lead to them."""
    return matrix(view.pairs.cells(), unit=view.unit)


_WHY = (
    ("oldest_pending", "Waits longest"), ("slowest_delivery", "Slowest deliveries"),
    ("slowest_round_trip", "Slowest answers"),
)  # fmt: skip


def _worst(view: View) -> Markup:
    rows = plain_rows(view.figures.worst)
    parts = []
    for why, title in _WHY:
        own = [row for row in rows if row["why"] == why][:WORST]
        if not own:
            continue
        columns = [
            Column("message", "name"),
            Column("lane"),
            Column("outcome"),
            Column("delay", "number"),
            Column("sent"),
        ]
        cells: list[list[Cell]] = [
            [
                message_link(row),
                lane_link([row[each] for each in LANE]),
                row["outcome"].replace("_", " "),
                in_unit(row["delay"], row["unit"]),
                time_text(row["sent_time"]) if row["sent_tick"] is None else f"tick {row['sent_tick']:,}",
            ]
            for row in own
        ]
        parts.append(
            element(
                "div",
                {"class": "panel-box"},
                [element("h3", {"class": "chart-title"}, title), table(columns, cells, caption=title, stacked=True)],
            )
        )
    return element("div", {"class": "pair"}, parts) if parts else Markup("")


def message_link(row: dict[str, Any]) -> Markup:
    """Return the number or name of a message, as a link; ``row``: with its lane, ``index`` and ``message_id``."""
    key = MessageKey(
        tuple(row[each] for each in LANE), row["index"], row["message_id"] if row["index"] is None else None
    )
    return link(row["message_id"] if row["index"] is None else f"{row['index']:,}", message_address(key))


__all__ = ["badge", "finding", "lane_link", "lanes_matrix", "link", "message_link", "over_time", "overview", "parties"]
