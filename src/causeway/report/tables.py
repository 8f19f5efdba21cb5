"""Tables, badges and figures as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from causeway.audit.findings import NOTED, UNKNOWN, VIOLATED
from causeway.audit.verdict import Verdict
from causeway.report.svg import element
from causeway.report.text import count, many, name, plain, time_text

KINDS = ("text", "number", "name", "time", "code")
"""What a column holds: words, figures, names from the ledger, times, or digits that are read one by one."""

_CHECK, _CROSS, _DASH = "M3 8.5l3.2 3.2L13 4.8", "M4 4l8 8M12 4l-8 8", "M4 8h8"
_QUESTION = "M5.5 6a2.5 2.5 0 1 1 3.6 2.2c-.8.4-1.1.8-1.1 1.6M8 12.4v.2"
_LETTER_I = "M8 7v5.2M8 3.9v.2"

_SHAPES = {
    Verdict.PASSED: _CHECK, Verdict.FAILED: _CROSS, Verdict.INCONCLUSIVE: _QUESTION, Verdict.NOT_APPLICABLE: _DASH,
    VIOLATED: _CROSS, UNKNOWN: _QUESTION, NOTED: _LETTER_I,
}  # fmt: skip
"""The shape of each verdict, of checks and of findings: it is recognised without colours."""


@dataclass(frozen=True)
class Column:
    """A column of a table. ``hint``: what its title means, in a sentence."""

    title: str
    kind: str = "text"
    hint: str | None = None


@dataclass(frozen=True)
class Link:
    """A cell that leads to another place of the page."""

    text: str
    href: str


Cell = str | int | float | Markup | Link | None


def table(
    columns: Sequence[Column],
    rows: Iterable[Sequence[Cell]],
    *,
    caption: str,
    more: int = 0,
    idents: Sequence[str | None] | None = None,
    stacked: bool = False,
    tall: bool = False,
    visible: bool = False,
    empty: str = "No rows.",
) -> Markup:
    """Return a table that scrolls on its own where it is wider than the page; columns without any value are left out.

    Args:
        columns: titles and kinds (``KINDS``).
        rows: a cell for each column.
        caption: what the rows are.
        more: so many rows are not shown.
        idents: of each row the anchor that others link to.
        stacked: on a phone each row is a block, each cell a line.
        tall: it scrolls on its own where it is longer than a screen.
        visible: whether the caption is shown, or only read aloud.
        empty: shown where there are no rows.
    """
    shown = [[_shown(column.kind, value) for column, value in zip(columns, row, strict=True)] for row in rows]
    if not shown:
        return element("p", {"class": "empty"}, empty)
    kept = [place for place in range(len(columns)) if not place or any(row[place] for row in shown)]
    body = []
    for number, row in enumerate(shown):
        cells = [_cell(columns[place], row[place], first=not place) for place in kept]
        body.append(element("tr", {"id": idents[number] if idents is not None else None}, cells))
    heads = []
    for column in (columns[place] for place in kept):
        mark = {"scope": "col", "class": "number" if column.kind == "number" else None, "title": column.hint}
        heads.append(element("th", mark, column.title))
    parts = [
        element("caption", {"class": None if visible else "quiet"}, caption),
        element("thead", {}, element("tr", {}, heads)),
        element("tbody", {}, body),
    ]
    if more > 0:
        said = f"{many(more, 'more row')} not shown"
        parts.append(element("tfoot", {}, element("tr", {}, element("td", {"colspan": len(kept)}, said))))
    inner = element("table", {"class": "stacked" if stacked else None}, parts)
    box = {"class": "scroll tall" if tall else "scroll", "tabindex": 0, "role": "region", "aria-label": caption}
    return element("div", box, inner)


def _cell(column: Column, shown: Markup, *, first: bool) -> Markup:
    kind = column.kind if column.kind in ("number", "code", "time") else None
    if first:
        return element("th", {"scope": "row", "class": kind}, shown)
    empty = "none" if not shown else None
    classes = " ".join(each for each in (kind, empty) if each) or None
    return element("td", {"class": classes, "data-label": column.title}, shown)


def _shown(kind: str, value: Cell) -> Markup:
    if isinstance(value, Markup):
        return value
    if isinstance(value, Link):
        return element("a", {"href": value.href}, name(value.text))
    if value is None:
        return Markup("")
    if kind == "number" and not isinstance(value, str):
        return plain(count(value))
    if kind == "time":
        return plain(time_text(value))
    if kind in ("name", "code"):
        return name(str(value))
    return plain(value)


def badge(verdict: str, text: str | None = None) -> Markup:
    """Return a verdict with its shape. ``text``: instead of its word."""
    return element("span", {"class": f"badge {verdict_class(verdict)}"}, shape(verdict) + plain(text or verdict))


def verdict_class(verdict: str) -> str:
    """Return the CSS class of a verdict, which gives its colours."""
    return verdict.lower().replace(" ", "-")


def shape(verdict: str) -> Markup:
    """Return the shape of a verdict. Raises ``ValueError`` for a word that is none."""
    if verdict not in _SHAPES:
        raise ValueError(f"verdict {verdict}: must be one of {', '.join(_SHAPES)}")
    drawn = element("path", {"d": _SHAPES[verdict]})
    box = {"viewBox": "0 0 16 16", "width": 16, "height": 16, "aria-hidden": "true"}
    return element("svg", {"class": "shape", **box}, drawn)


@dataclass(frozen=True)
class Fact:
    """A figure that is shown large. ``note``: a few words below it; ``verdict``: gives its colour."""

    title: str
    figure: str | Markup
    note: str | Markup | None = None
    verdict: str | None = None
    href: str | None = None


def facts(pairs: Sequence[Fact]) -> Markup:
    """Return large figures side by side."""
    cells = []
    for each in pairs:
        figure = plain(each.figure)
        if each.href is not None:
            figure = element("a", {"href": each.href}, figure)
        parts = [element("dt", {}, each.title), element("dd", {"class": "figure"}, figure)]
        if each.note is not None:
            parts.append(element("dd", {"class": "note"}, plain(each.note)))
        cells.append(element("div", {"class": f"fact {verdict_class(each.verdict or '')}".strip()}, parts))
    return element("dl", {"class": "facts"}, cells)


__all__ = ["KINDS", "Cell", "Column", "Fact", "Link", "badge", "facts", "shape", "table", "verdict_class"]
