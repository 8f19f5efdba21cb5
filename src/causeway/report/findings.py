"""A finding as a sentence, with links to its message, lane and chain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from markupsafe import Markup, escape

from causeway.model.text import escaped
from causeway.report.svg import element
from causeway.report.text import name, plain
from causeway.report.wording import phrase, subject, where_and_when

Row = Mapping[str, Any]


class Links(Protocol):
    """Addresses that a page links to: places in the page, or other pages. None: no link."""

    def check(self, name: str) -> str | None:
        """Return the address of a check."""

    def message(self, row: Row) -> str | None:
        """Return the address of the message, or the number, that a row is about."""

    def lane(self, row: Row) -> str | None:
        """Return the address of the lane of a row."""

    def chain(self, chain: str | None) -> str | None:
        """Return the address of a chain."""

    def block(self, row: Row) -> str | None:
        """Return the address of the block of a row."""

    def figure(self, name: str) -> str | None:
        """Return the address of the details of a key figure."""


class Anchors:
    """Links to places in the same page, a report: the rows have them as ``message_ident`` and ``lane_ident``."""

    _FIGURES: Mapping[str, str] = {"delays": "#time", "calls": "#outcomes", "missing": "#completeness"}

    def check(self, name: str) -> str | None:
        """Return the anchor of a check."""
        return f"#check-{name}"

    def message(self, row: Row) -> str | None:
        """Return the anchor of the journey of a message."""
        ident = row.get("message_ident")
        return None if ident is None else f"#{ident}"

    def lane(self, row: Row) -> str | None:
        """Return the anchor of the row of a lane."""
        ident = row.get("lane_ident")
        return None if ident is None else f"#{ident}"

    def chain(self, chain: str | None) -> str | None:
        """Return None: a report has no place for a chain."""
        return None

    def block(self, row: Row) -> str | None:
        """Return None: a report has no place for a block."""
        return None

    def figure(self, name: str) -> str | None:
        """Return the anchor of the section with the details of a key figure."""
        return self._FIGURES.get(name)


def finding(row: Row, links: Links, *, named: bool = True) -> Markup:
    """Return a finding as a sentence.

    Args:
        row: of the table ``violations``.
        links: of the page.
        named: whether the sentence names the lane.
    """
    word, number, of = subject(row)
    target = links.block(row) if word == "Block" else links.chain(number) if word == "Chain" else links.message(row)
    parts = [plain(word)] if number is None else [plain(f"{word} "), linked(name(number, 32), target)]
    if word == "Block" and of is not None:
        parts += [Markup(" of "), linked(name(of, 32), links.chain(of))]
    elif word != "Chain" and named:
        parts += _lane(row, of, links)
    sentence = Markup("").join(parts) + escape(escaped(f" {phrase(row)}."))
    when = where_and_when(row)
    return sentence + (Markup(" ") + element("span", {"class": "when"}, plain(when)) if when else Markup(""))


def _lane(row: Row, of: str | None, links: Links) -> list[Markup]:
    """Return the words for the lane of a finding, with the link on its name, or on its ends where it has none."""
    ends = [name(row[each], 20) for each in ("source", "destination") if row[each] is not None]
    way = Markup("from {} to {}").format(*ends) if len(ends) == 2 and row["check"] != "watermarks" else None
    if of is not None:
        between = [] if way is None else [Markup(" "), way]
        return [*between, Markup(", lane "), linked(name(of, 32), links.lane(row)), Markup(",")]
    return [] if way is None else [Markup(" "), linked(way, links.lane(row)), Markup(",")]


def linked(text: Markup, href: str | None) -> Markup:
    """Return a text that links to an address, if there is one."""
    return text if href is None else element("a", {"href": href}, text)


__all__ = ["Anchors", "Links", "Row", "finding", "linked"]
