"""The first page: the verdict, the key figures, backlog and latency over time, and the slowest messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from causeway.explorer.addresses import LINKS, lane_address
from causeway.explorer.frame import Page, Part
from causeway.explorer.live import Head
from causeway.explorer.view import View
from causeway.ledger.schema import LANE
from causeway.ledger.typed import plain_rows
from causeway.report.first_screen import first_screen
from causeway.report.matrix import matrix
from causeway.report.outcomes import mark
from causeway.report.over_time import time_section
from causeway.report.summary import figures_data, over_time_data
from causeway.report.svg import element
from causeway.report.tables import Cell, Column, Fact, table
from causeway.report.text import count, in_unit, name, time_text

if TYPE_CHECKING:
    from causeway.figures.figures import Figures

WORST = 10
"""Rows of each list of messages that took or wait longest."""


def overview(view: View, head: Head) -> Page:
    """Return the first page: the verdict, the key figures, examples of findings, charts and the lanes."""
    sections = [Part("verdict", None, first_screen(view.summary, LINKS, more=_progress(head)))]
    if (charts := over_time(view.figures)) is not None:
        sections.append(charts)
    if view.lanes.num_rows:
        sections.append(Part("lanes", "Lanes", lanes_matrix(view), "A cell links to the lanes between two chains."))
    if worst := _worst(view):
        sections.append(Part("worst", "Longest", worst))
    return Page("Overview", sections, "Overview")


def _progress(head: Head) -> list[Fact]:
    """Return the height of a lake, and its rate of messages."""
    rows: list[Fact] = []
    if head.height is not None:
        rows.append(Fact("Height", count(head.height), f"tick {count(head.tick or 0)}", href="/height"))
    if head.rate:
        rows.append(Fact("Messages a second", count(round(head.rate)), "over the last seconds"))
    return rows


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
    """Return the sender and the receiver; None where neither is known."""
    sender, receiver = row["sender"], row["receiver"]
    if not (sender or receiver):
        return None
    return element("span", {}, name(sender, 22) + Markup(" → ") + name(receiver, 22))


def over_time(figures: Figures) -> Part | None:
    """Return backlog, traffic and latency over time, as the report shows them; None where nothing has a time."""
    found = time_section({**over_time_data(figures), **figures_data(figures)})
    return None if found is None else Part(found.ident, found.title, found.body, found.lead)


def lanes_matrix(view: View) -> Markup:
    """Return the matrix of lanes; its cells link to them."""
    return matrix(view.pairs.cells(), unit=view.unit)


_WHY = (
    ("oldest_pending", "Oldest pending"), ("slowest_delivery", "Slowest deliveries"),
    ("slowest_round_trip", "Slowest round trips"),
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
                mark(row["outcome"]),
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
    """Return the number or name of a message as a link. ``row``: with its lane, ``index`` and ``message_id``."""
    return link(row["message_id"] if row["index"] is None else str(row["index"]), LINKS.message(row))


__all__ = ["lane_link", "lanes_matrix", "link", "message_link", "over_time", "overview", "parties"]
