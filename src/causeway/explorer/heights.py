"""The page of a height: the headers of all chains there, and the events of messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from causeway.audit.findings import UNKNOWN
from causeway.explorer.addresses import MOST_NUMBER, Asked, chain_address, height_address
from causeway.explorer.forms import form, number_box
from causeway.explorer.found import of_height
from causeway.explorer.frame import Page, Part
from causeway.explorer.overview import lane_link, link, message_link, parties
from causeway.explorer.reading import events_at, headers_of
from causeway.explorer.view import View
from causeway.ledger.schema import LANE
from causeway.report.svg import element
from causeway.report.tables import Cell, Column, badge, table
from causeway.report.text import many, name, safe_name, time_text

HEADERS = 400
EVENTS = 300
"""Headers and events of a height that are shown."""


def height(view: View, asked: Asked) -> Page:
    """Return the page of a height, by default the last one."""
    last = view.last_height
    chain = asked.text("chain")
    number = asked.number("n")
    if number is None:
        number = last
    if number is None:
        said = "This ledger has no headers, and its events name no blocks of one network."
        return Page(
            "Heights",
            [
                Part(
                    "height",
                    "Heights",
                    element("p", {"class": "empty"}, said) + element("div", {"class": "turn"}, _form(chain)),
                )
            ],
            "Heights",
        )
    events, whole = events_at(view.ledger, number, chain, EVENTS)
    tick = view.tick_of(number)
    ticks = {row["tick"] for row in events} - {None} if tick is None else {tick}
    headers = headers_of(view.ledger, number, ticks, chain, HEADERS)
    lead = many(len(headers), "header")
    if chain is not None:
        lead += f" of {safe_name(chain)}"
    if headers and headers[0]["time"] is not None:
        lead += f", {time_text(headers[0]['time'])}"
    sections = [
        Part("height", f"Height {number:,}", _moves(number, last, chain) + _headers(headers, number, view), f"{lead}.")
    ]
    if (found := of_height(view, number, chain)) is not None:
        sections.append(found)
    said = "" if whole else f" The first {EVENTS} are shown; a lane or chain narrows them."
    sections.append(Part("events", "Events of messages", _events(events), f"{many(len(events), 'event')}.{said}"))
    return Page(f"Height {number:,}", sections, "Heights")


def _moves(number: int, last: int | None, chain: str | None) -> Markup:
    def to(word: str, other: int | None) -> Markup:
        beyond = MOST_NUMBER if last is None else last
        if other is None or other == number or not 0 <= other <= beyond:
            return element("span", {"class": "off"}, word)
        return element("a", {"href": height_address(other, chain)}, word)

    parts = [to("First", 0), to("Before", number - 1), to("Next", number + 1)]
    parts.append(element("a", {"href": "/height"}, "Last"))
    if chain is not None:
        parts.append(element("a", {"href": height_address(number)}, "All chains"))
    return element("div", {"class": "turn"}, [*parts, _form(chain)])


def _form(chain: str | None) -> Markup:
    return form("/height", [number_box("n", "Height")], {"chain": chain})


def _headers(headers: Sequence[Mapping[str, Any]], number: int, view: View) -> Markup:
    columns = [
        Column("chain", "name"),
        Column("block", "number"),
        Column("hash", "code"),
        Column("parent", "code"),
        Column("root", "code"),
        Column("status"),
    ]
    if all(row["hash"] is None for row in headers):
        columns = [column for column in columns if column.title not in ("hash", "parent")]
    if all(row["height"] == number for row in headers):
        columns = [column for column in columns if column.title != "block"]
    cells: list[list[Cell]] = []
    for row in headers:
        shown: dict[str, Cell] = {title: _digest(row[title]) for title in ("hash", "parent", "root")}
        shown["chain"], shown["block"] = link(row["chain"], chain_address(row["chain"])), row["height"]
        shown["status"] = badge(UNKNOWN, row["status"]) if row["status"] else None
        cells.append([shown[column.title] for column in columns])
    if not any(row["status"] for row in headers):
        columns, cells = columns[:-1], [row[:-1] for row in cells]
    empty = "No header of this height is in the ledger."
    return element(
        "div", {"class": "gap"}, table(columns, cells, caption=f"Headers of height {number}", empty=empty, stacked=True)
    )


def _digest(text: str | None) -> Cell:
    return None if text is None else element("span", {"class": "code"}, name(text, 30))


def _events(events: Sequence[Mapping[str, Any]]) -> Markup:
    columns = [
        Column("chain", "name"),
        Column("event"),
        Column("message"),
        Column("lane"),
        Column("kind"),
        Column("from → to"),
        Column("reason"),
    ]
    cells: list[list[Cell]] = []
    for row in events:
        lane = [row[each] for each in LANE]
        because = [safe_name(row["detail"])] if row["detail"] else []
        because += [f"code {row['code']}"] if row["code"] else []
        cells.append(
            [
                link(row["chain"], chain_address(row["chain"])),
                row["event"].replace("_", " "),
                message_link(dict(row)),
                lane_link(lane) if any(lane[1:]) else None,
                row["kind"],
                parties(row),
                ", ".join(because) or None,
            ]
        )
    return table(columns, cells, caption="Events", stacked=True, empty="No events of messages at this height.")


__all__ = ["height"]
