"""The first page: verdict, key figures, charts over time, and the slowest messages."""

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
    element,
    format_count,
    format_in_unit,
    format_name,
    format_time,
    render_table,
    table_columns,
)
from causeway.report.first_screen import first_screen, time_section
from causeway.report.matrix import draw_matrix
from causeway.report.outcomes import outcome_mark
from causeway.report.summary import figures_data, over_time_data

if TYPE_CHECKING:
    from causeway.analysis.figures.figures import LedgerFigures

MAX_WORST = 10
"""Rows of each list of the slowest and oldest messages."""


def overview_page(view: LedgerView, head: LiveHead) -> ExplorerPage:
    """Return the first page: verdict, key figures, example findings, charts and lanes.

    Args:
        view: the snapshot's data.
        head: the head of the lake.

    Returns:
        The page.
    """
    sections = [PagePart("verdict", None, first_screen(view.summary, LINKS, more=_progress(head)))]
    if (charts := overview_charts(view.figures)) is not None:
        sections.append(charts)
    if view.lanes.num_rows:
        sections.append(PagePart("lanes", "Lanes", lanes_matrix(view), "A cell links to the lanes between two chains."))
    if worst := _worst(view):
        sections.append(PagePart("worst", "Longest", worst))
    return ExplorerPage("Overview", sections, "Overview")


def _progress(head: LiveHead) -> list[KeyFigure]:
    """Return the height of a lake, and its message rate."""
    rows: list[KeyFigure] = []
    if head.height is not None:
        rows.append(
            KeyFigure("Height", format_count(head.height), f"tick {format_count(head.tick or 0)}", href="/height")
        )
    if head.rate:
        rows.append(KeyFigure("Messages a second", format_count(round(head.rate)), "over the last seconds"))
    return rows


def name_link(text: object, href: str | None) -> Markup:
    """Render a name, as a link if it has an address.

    Args:
        text: the name.
        href: the address, or None.

    Returns:
        HTML.
    """
    name = format_name(None if text is None else str(text))
    return name if href is None else element("a", name, href=href)


def lane_link(lane: Sequence[str | None]) -> Markup:
    """Render a lane by chains and name, as a link.

    Args:
        lane: protocol, source, destination and lane.

    Returns:
        HTML.
    """
    _, source, destination, own = lane
    ends = format_name(source, 24) + Markup(" → ") + format_name(destination, 24)
    if own is not None:
        ends += Markup(" · ") + format_name(own, 24)
    href = lane_address(lane)
    return ends if href is None else element("a", ends, href=href)


def message_parties(row: Mapping[str, Any]) -> Markup | None:
    """Render the sender and the receiver; None if both are unknown.

    Args:
        row: a row with ``sender`` and ``receiver``.

    Returns:
        HTML, or None.
    """
    sender, receiver = row["sender"], row["receiver"]
    if not (sender or receiver):
        return None
    return element("span", format_name(sender, 22) + Markup(" → ") + format_name(receiver, 22))


def overview_charts(figures: LedgerFigures) -> PagePart | None:
    """Render backlog, traffic and latency over time, as in the report; None without times.

    Args:
        figures: the figures of the ledger.

    Returns:
        The part, or None.
    """
    found = time_section({**over_time_data(figures), **figures_data(figures)})
    return None if found is None else PagePart(found.ident, found.title, found.body, found.lead)


def lanes_matrix(view: LedgerView) -> Markup:
    """Render the matrix of lanes with links.

    Args:
        view: the snapshot's data.

    Returns:
        HTML.
    """
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
        columns = table_columns("message:name", "lane", "outcome", "delay:number", "sent")
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
            element(
                "div",
                [element("h3", title, class_="chart-title"), render_table(columns, cells, caption=title, stacked=True)],
                class_="panel-box",
            )
        )
    return element("div", parts, class_="pair") if parts else Markup("")


def message_link(row: dict[str, Any]) -> Markup:
    """Render the number or name of a message as a link, from a row with its lane.

    Args:
        row: a row with its lane, ``index`` and ``message_id``.

    Returns:
        HTML.
    """
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
