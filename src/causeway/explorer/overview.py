"""The first page: the verdict, the key figures, backlog and latency over time, and the slowest messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from causeway.core.arrow_types import to_python_rows
from causeway.explorer.addresses import LINKS, lane_address
from causeway.explorer.frame import ExplorerPage, PagePart
from causeway.explorer.live import LiveHead
from causeway.explorer.view import LedgerView
from causeway.ledger.schema import LANE
from causeway.report.elements import (
    KeyFigure,
    TableCell,
    TableColumn,
    format_count,
    format_in_unit,
    format_name,
    format_time,
    render_table,
    svg_element,
)
from causeway.report.first_screen import first_screen, time_section
from causeway.report.matrix import draw_matrix
from causeway.report.outcomes import outcome_mark
from causeway.report.summary import figures_data, over_time_data

if TYPE_CHECKING:
    from causeway.analysis.figures.figures import LedgerFigures

MAX_WORST = 10
"""Rows of each list of messages that took or wait longest."""


def overview_page(view: LedgerView, head: LiveHead) -> ExplorerPage:
    """Return the first page: the verdict, the key figures, examples of findings, charts and the lanes."""
    sections = [PagePart("verdict", None, first_screen(view.summary, LINKS, more=_progress(head)))]
    if (charts := overview_charts(view.figures)) is not None:
        sections.append(charts)
    if view.lanes.num_rows:
        sections.append(PagePart("lanes", "Lanes", lanes_matrix(view), "A cell links to the lanes between two chains."))
    if worst := _worst(view):
        sections.append(PagePart("worst", "Longest", worst))
    return ExplorerPage("Overview", sections, "Overview")


def _progress(head: LiveHead) -> list[KeyFigure]:
    """Return the height of a lake, and its rate of messages."""
    rows: list[KeyFigure] = []
    if head.height is not None:
        rows.append(
            KeyFigure("Height", format_count(head.height), f"tick {format_count(head.tick or 0)}", href="/height")
        )
    if head.rate:
        rows.append(KeyFigure("Messages a second", format_count(round(head.rate)), "over the last seconds"))
    return rows


def name_link(text: object, href: str | None) -> Markup:
    """Return a name that leads somewhere, or only the name."""
    shown = format_name(None if text is None else str(text))
    return shown if href is None else svg_element("a", {"href": href}, shown)


def lane_link(lane: Sequence[str | None]) -> Markup:
    """Return a lane by its chains and name, as a link."""
    _, source, destination, own = lane
    ends = format_name(source, 24) + Markup(" → ") + format_name(destination, 24)
    if own is not None:
        ends += Markup(" · ") + format_name(own, 24)
    href = lane_address(lane)
    return ends if href is None else svg_element("a", {"href": href}, ends)


def message_parties(row: Mapping[str, Any]) -> Markup | None:
    """Return the sender and the receiver; None where neither is known."""
    sender, receiver = row["sender"], row["receiver"]
    if not (sender or receiver):
        return None
    return svg_element("span", {}, format_name(sender, 22) + Markup(" → ") + format_name(receiver, 22))


def overview_charts(figures: LedgerFigures) -> PagePart | None:
    """Return backlog, traffic and latency over time, as the report shows them; None where nothing has a time."""
    found = time_section({**over_time_data(figures), **figures_data(figures)})
    return None if found is None else PagePart(found.ident, found.title, found.body, found.lead)


def lanes_matrix(view: LedgerView) -> Markup:
    """Return the matrix of lanes; its cells link to them."""
    return draw_matrix(view.pairs.cells(), unit=view.unit)


_WHY = (
    ("oldest_pending", "Oldest pending"), ("slowest_delivery", "Slowest deliveries"),
    ("slowest_round_trip", "Slowest round trips"),
)  # fmt: skip


def _worst(view: LedgerView) -> Markup:
    rows = to_python_rows(view.figures.worst)
    parts = []
    for why, title in _WHY:
        own = [row for row in rows if row["why"] == why][:MAX_WORST]
        if not own:
            continue
        columns = [
            TableColumn("message", "name"),
            TableColumn("lane"),
            TableColumn("outcome"),
            TableColumn("delay", "number"),
            TableColumn("sent"),
        ]
        cells: list[list[TableCell]] = [
            [
                message_link(row),
                lane_link([row[each] for each in LANE]),
                outcome_mark(row["outcome"]),
                format_in_unit(row["delay"], row["unit"]),
                format_time(row["sent_time"]) if row["sent_tick"] is None else f"tick {row['sent_tick']:,}",
            ]
            for row in own
        ]
        parts.append(
            svg_element(
                "div",
                {"class": "panel-box"},
                [
                    svg_element("h3", {"class": "chart-title"}, title),
                    render_table(columns, cells, caption=title, stacked=True),
                ],
            )
        )
    return svg_element("div", {"class": "pair"}, parts) if parts else Markup("")


def message_link(row: dict[str, Any]) -> Markup:
    """Return the number or name of a message as a link. ``row``: with its lane, ``index`` and ``message_id``."""
    return name_link(row["message_id"] if row["index"] is None else str(row["index"]), LINKS.message(row))


__all__ = [
    "lane_link",
    "lanes_matrix",
    "message_link",
    "message_parties",
    "name_link",
    "overview_charts",
    "overview_page",
]
