"""What several protocols made of the same traffic, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from causeway.audit.verdict import Verdict
from causeway.report.charts import Bar, Series, bars, time_chart
from causeway.report.page import Section, page
from causeway.report.svg import element, share, tone_class
from causeway.report.tables import badge
from causeway.report.text import in_unit, listed, name, plain, safe_name

TONES = ("a", "b", "c", "d", "e", "f")
"""The colours of the columns, in their order."""

_HOLDS = {"yes": Verdict.PASSED, "partly": Verdict.INCONCLUSIVE, "no": Verdict.FAILED}

Compared = Mapping[str, Any]


def compare_page(compare: Compared) -> str:
    """Return a comparison as one HTML document. ``compare``: as of ``compare_section``."""
    return page(str(compare["title"]), compare_sections(compare))


def compare_sections(compare: Compared) -> list[Section]:
    """Return a comparison as the sections of a page."""
    heading = element("h1", {"class": "compared"}, plain(compare["title"]))
    about = Markup("") if not compare.get("note") else element("p", {"class": "lead"}, plain(compare["note"]))
    found = [Section("top", None, heading + about), Section("compare", "Side by side", figures_of(compare))]
    for ident, title, body in (
        ("lines", "Over time", lines_of(compare)),
        ("guarantees", "Guarantees", guarantees_of(compare)),
        ("faults", "Faults", faults_of(compare)),
    ):
        if body:
            found.append(Section(ident, title, body))
    return found


def compare_section(compare: Compared) -> Section:
    """Return a comparison as one section of a report.

    ``compare``: ``title``, ``note``, ``columns`` (names of the protocols), ``rows`` (each ``what``, ``unit``,
    ``values`` in the order of ``columns``, ``better``: ``less``, ``more`` or None, ``group``), and if there are any
    ``charts`` (``title``, ``unit``, ``values`` by column), ``lines`` (``title``, ``axis``, ``unit``, ``at``, ``series``
    by column, and ``log`` where the axis is logarithmic), ``guarantees`` (by protocol) and ``faults``: tables of
    ``columns`` and ``rows``.
    """
    parts = [figures_of(compare)]
    for title, body in (
        ("Over time", lines_of(compare)),
        ("Guarantees", guarantees_of(compare)),
        ("Faults", faults_of(compare)),
    ):
        if body:
            parts += [element("h3", {}, title), body]
    return Section("compare", "Compare", Markup("").join(parts), compare.get("note"))


def figures_of(compare: Compared) -> Markup:
    """Return the table of figures, a bar in each cell, and the charts."""
    columns: Sequence[str] = compare["columns"]
    heads = [element("td", {}, "")]
    heads += [
        element("th", {"scope": "col", "class": f"number {tone_class(tone)}"}, name(each))
        for each, tone in zip(columns, _tones(columns), strict=True)
    ]
    body: list[Markup] = []
    group = None
    for row in compare["rows"]:
        if row["group"] != group:
            group = row["group"]
            cell = element("th", {"scope": "rowgroup", "colspan": len(columns) + 1}, plain(group or ""))
            body.append(element("tr", {"class": "group"}, cell))
        body.append(_row(row, columns))
    caption = element("caption", {"class": "quiet"}, plain(compare["title"]))
    inner = element(
        "table",
        {"class": "compare"},
        [caption, element("thead", {}, element("tr", {}, heads)), element("tbody", {}, body)],
    )
    scroll = {"class": "scroll", "tabindex": 0, "role": "region", "aria-label": "Figures side by side"}
    return element("div", scroll, inner) + _charts(compare)


def _row(row: Mapping[str, Any], columns: Sequence[str]) -> Markup:
    figures = [each for each in row["values"] if isinstance(each, int | float) and not isinstance(each, bool)]
    most = max(figures, default=0.0)
    best = {"less": min, "more": max}.get(row["better"] or "")
    cells = [element("th", {"scope": "row"}, plain(row["what"]))]
    for value, column, tone in zip(row["values"], columns, _tones(columns), strict=True):
        is_figure = isinstance(value, int | float) and not isinstance(value, bool)
        shown = plain(in_unit(value, row["unit"]) if is_figure else "" if value is None else value)
        if is_figure and best is not None and len(set(figures)) > 1 and value == best(figures):
            shown = element("strong", {}, shown)
        if is_figure and most > 0 and value >= 0:
            box = {"width": share(max(value / most, 0.004) if value else 0.0), "height": "100%"}
            rect = element("rect", {**box, "class": tone_class(tone)})
            shown += element("svg", {"class": "under", "width": "100%", "height": 4, "aria-hidden": "true"}, rect)
        cells.append(element("td", {"class": "number" if is_figure else None, "data-label": column}, shown))
    return element("tr", {}, cells)


def _charts(compare: Compared) -> Markup:
    tones = dict(zip(compare["columns"], _tones(compare["columns"]), strict=True))
    drawn = [
        element(
            "div",
            {"class": "panel-box"},
            bars(
                each["title"],
                [
                    Bar(column, value, tone=tones[column])
                    for column, value in each["values"].items()
                    if value is not None
                ],
                unit=each["unit"],
            ),
        )
        for each in compare.get("charts") or ()
    ]
    return element("div", {"class": "charts"}, drawn) if drawn else Markup("")


def lines_of(compare: Compared) -> Markup:
    """Return what is over time, a line a protocol."""
    tones = dict(zip(compare["columns"], _tones(compare["columns"]), strict=True))
    drawn = [
        time_chart(
            each["title"],
            each["at"],
            [Series(column, values, tones[column]) for column, values in each["series"].items()],
            unit=each["unit"],
            axis=each["axis"],
            log=bool(each.get("log")),
            note=_on_each_other(each["series"]),
        )
        for each in compare.get("lines") or ()
    ]
    return element("div", {"class": "charts"}, drawn) if drawn else Markup("")


def _on_each_other(series: Mapping[str, Sequence[float | None]]) -> str | None:
    """Return which lines are one, since one hides the others."""
    same: dict[tuple[float | None, ...], list[str]] = {}
    for column, values in series.items():
        same.setdefault(tuple(values), []).append(safe_name(column))
    found = [listed(names) for names in same.values() if len(names) > 1]
    return f"One line: {'; '.join(found)}." if found else None


def guarantees_of(compare: Compared) -> Markup:
    """Return a table for each protocol: what it guarantees, where its reference says so, and what the audit found."""
    tables = (_words(table, f"Guarantees of {name}") for name, table in (compare.get("guarantees") or {}).items())
    return Markup("").join(tables)


def faults_of(compare: Compared) -> Markup:
    """Return what each fault does to each protocol."""
    return _words(compare.get("faults"), "Faults")


def _words(table: Mapping[str, Any] | None, title: str) -> Markup:
    if not table or not table["rows"]:
        return Markup("")
    heads = [
        element("th" if each else "td", {"scope": "col" if each else None}, plain(each)) for each in table["columns"]
    ]
    body = []
    for first, *others in table["rows"]:
        cells = [element("th", {"scope": "row"}, _said(first))]
        cells += [
            element("td", {"data-label": column}, _said(each))
            for column, each in zip(table["columns"][1:], others, strict=True)
        ]
        body.append(element("tr", {}, cells))
    caption = element("caption", {"class": "quiet"}, plain(title))
    parts = [caption, element("thead", {}, element("tr", {}, heads)), element("tbody", {}, body)]
    scroll = {"class": "scroll", "tabindex": 0, "role": "region", "aria-label": f"{title}: table"}
    return element("div", scroll, element("table", {"class": "words stacked"}, parts))


def _said(cell: Any) -> Markup:
    if not isinstance(cell, Mapping):
        return plain("" if cell is None else cell)
    if "verdict" in cell:
        return plain("-") if cell["verdict"] is None else badge(cell["verdict"])
    shown = badge(_HOLDS[cell["holds"]], cell["holds"]) if cell.get("holds") else Markup("")
    return element("div", {"class": "said"}, [shown, element("span", {}, plain(cell.get("text") or ""))])


def _tones(columns: Sequence[str]) -> list[str]:
    return [TONES[place % len(TONES)] for place in range(len(columns))]


__all__ = [
    "compare_page",
    "compare_section",
    "compare_sections",
    "faults_of",
    "figures_of",
    "guarantees_of",
    "lines_of",
]
