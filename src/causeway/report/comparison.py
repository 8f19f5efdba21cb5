"""The page of a comparison: several protocols side by side on the same traffic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from causeway.audit.verdict import Verdict
from causeway.report.charts import ChartBar, ChartSeries, bar_chart, time_chart
from causeway.report.elements import (
    escape_html,
    format_in_unit,
    format_name,
    format_share,
    list_words,
    safe_name,
    svg_element,
    tone_class,
    verdict_badge,
)
from causeway.report.page import PageSection, render_page

TONES = ("a", "b", "c", "d", "e", "f")
"""The colours of the columns, in order."""

_HOLDS = {"yes": Verdict.PASSED, "partly": Verdict.INCONCLUSIVE, "no": Verdict.FAILED}

ComparisonData = Mapping[str, Any]


def compare_page(compare: ComparisonData) -> str:
    """Return a comparison (of ``compare_section``) as one HTML document.

    Args:
        compare: a comparison (``compare_section``).

    Returns:
        An HTML document.
    """
    return render_page(str(compare["title"]), compare_sections(compare))


def compare_sections(compare: ComparisonData) -> list[PageSection]:
    """Return a comparison as the sections of a page.

    Args:
        compare: a comparison (``compare_section``).

    Returns:
        The sections.
    """
    heading = svg_element("h1", {"class": "compared"}, escape_html(compare["title"]))
    about = Markup("") if not compare.get("note") else svg_element("p", {"class": "lead"}, escape_html(compare["note"]))
    found = [PageSection("top", None, heading + about), PageSection("compare", "Side by side", figures_table(compare))]
    for ident, title, body in (
        ("lines", "Over time", time_charts(compare)),
        ("guarantees", "Guarantees", guarantee_tables(compare)),
        ("faults", "Faults", fault_table(compare)),
    ):
        if body:
            found.append(PageSection(ident, title, body))
    return found


def compare_section(compare: ComparisonData) -> PageSection:
    """Return a comparison as one section of a report.

    Args:
        compare: ``title``, ``note``, ``columns`` (names of the protocols) and ``rows`` (each with ``what``, ``unit``,
            ``values`` in the order of ``columns``, ``better``: ``less``, ``more`` or None, and ``group``). Optional:
            ``charts`` (``title``, ``unit``, ``values`` by column), ``lines`` (``title``, ``axis``, ``unit``, ``at``,
            ``series`` by column, and ``log`` for a logarithmic axis), ``guarantees`` (by protocol) and ``faults``:
            tables
            of ``columns`` and ``rows``.

    Returns:
        The section.
    """
    parts = [figures_table(compare)]
    for title, body in (
        ("Over time", time_charts(compare)),
        ("Guarantees", guarantee_tables(compare)),
        ("Faults", fault_table(compare)),
    ):
        if body:
            parts += [svg_element("h3", {}, title), body]
    return PageSection("compare", "Compare", Markup("").join(parts), compare.get("note"))


def figures_table(compare: ComparisonData) -> Markup:
    """Render the table of figures with a bar in each cell, and the charts.

    Args:
        compare: a comparison (``compare_section``).

    Returns:
        HTML.
    """
    columns: Sequence[str] = compare["columns"]
    heads = [svg_element("td", {}, "")]
    heads += [
        svg_element("th", {"scope": "col", "class": f"number {tone_class(tone)}"}, format_name(each))
        for each, tone in zip(columns, _tones(columns), strict=True)
    ]
    body: list[Markup] = []
    group = None
    for row in compare["rows"]:
        if row["group"] != group:
            group = row["group"]
            cell = svg_element("th", {"scope": "rowgroup", "colspan": len(columns) + 1}, escape_html(group or ""))
            body.append(svg_element("tr", {"class": "group"}, cell))
        body.append(_row(row, columns))
    caption = svg_element("caption", {"class": "quiet"}, escape_html(compare["title"]))
    inner = svg_element(
        "table",
        {"class": "compare"},
        [caption, svg_element("thead", {}, svg_element("tr", {}, heads)), svg_element("tbody", {}, body)],
    )
    scroll = {"class": "scroll", "tabindex": 0, "role": "region", "aria-label": "Figures side by side"}
    return svg_element("div", scroll, inner) + _charts(compare)


def _row(row: Mapping[str, Any], columns: Sequence[str]) -> Markup:
    figures = [each for each in row["values"] if isinstance(each, int | float) and not isinstance(each, bool)]
    most = max(figures, default=0.0)
    best = {"less": min, "more": max}.get(row["better"] or "")
    cells = [svg_element("th", {"scope": "row"}, escape_html(row["what"]))]
    for value, column, tone in zip(row["values"], columns, _tones(columns), strict=True):
        is_figure = isinstance(value, int | float) and not isinstance(value, bool)
        content = escape_html(format_in_unit(value, row["unit"]) if is_figure else "" if value is None else value)
        if is_figure and best is not None and len(set(figures)) > 1 and value == best(figures):
            content = svg_element("strong", {}, content)
        if is_figure and most > 0 and value >= 0:
            box = {"width": format_share(max(value / most, 0.004) if value else 0.0), "height": "100%"}
            rect = svg_element("rect", {**box, "class": tone_class(tone)})
            content += svg_element("svg", {"class": "under", "width": "100%", "height": 4, "aria-hidden": "true"}, rect)
        cells.append(svg_element("td", {"class": "number" if is_figure else None, "data-label": column}, content))
    return svg_element("tr", {}, cells)


def _charts(compare: ComparisonData) -> Markup:
    tones = dict(zip(compare["columns"], _tones(compare["columns"]), strict=True))
    charts = [
        svg_element(
            "div",
            {"class": "panel-box"},
            bar_chart(
                each["title"],
                [
                    ChartBar(column, value, tone=tones[column])
                    for column, value in each["values"].items()
                    if value is not None
                ],
                unit=each["unit"],
            ),
        )
        for each in compare.get("charts") or ()
    ]
    return svg_element("div", {"class": "charts"}, charts) if charts else Markup("")


def time_charts(compare: ComparisonData) -> Markup:
    """Render values over time, one line a protocol.

    Args:
        compare: a comparison (``compare_section``).

    Returns:
        HTML.
    """
    tones = dict(zip(compare["columns"], _tones(compare["columns"]), strict=True))
    charts = [
        time_chart(
            each["title"],
            each["at"],
            [ChartSeries(column, values, tones[column]) for column, values in each["series"].items()],
            unit=each["unit"],
            axis=each["axis"],
            log=bool(each.get("log")),
            note=_coinciding_lines(each["series"]),
        )
        for each in compare.get("lines") or ()
    ]
    return svg_element("div", {"class": "charts"}, charts) if charts else Markup("")


def _coinciding_lines(series: Mapping[str, Sequence[float | None]]) -> str | None:
    """Return a note on coinciding lines; None without any."""
    same: dict[tuple[float | None, ...], list[str]] = {}
    for column, values in series.items():
        same.setdefault(tuple(values), []).append(safe_name(column))
    found = [list_words(names) for names in same.values() if len(names) > 1]
    return f"One line: {'; '.join(found)}." if found else None


def guarantee_tables(compare: ComparisonData) -> Markup:
    """Render a table for each protocol: guarantees, reference sections and audit verdicts.

    Args:
        compare: a comparison (``compare_section``).

    Returns:
        HTML.
    """
    tables = (_word_table(table, f"Guarantees of {name}") for name, table in (compare.get("guarantees") or {}).items())
    return Markup("").join(tables)


def fault_table(compare: ComparisonData) -> Markup:
    """Render the effect of each fault under each protocol.

    Args:
        compare: a comparison (``compare_section``).

    Returns:
        HTML.
    """
    return _word_table(compare.get("faults"), "Faults")


def _word_table(table: Mapping[str, Any] | None, title: str) -> Markup:
    if not table or not table["rows"]:
        return Markup("")
    heads = [
        svg_element("th" if each else "td", {"scope": "col" if each else None}, escape_html(each))
        for each in table["columns"]
    ]
    body = []
    for first, *others in table["rows"]:
        cells = [svg_element("th", {"scope": "row"}, _word_cell(first))]
        cells += [
            svg_element("td", {"data-label": column}, _word_cell(each))
            for column, each in zip(table["columns"][1:], others, strict=True)
        ]
        body.append(svg_element("tr", {}, cells))
    caption = svg_element("caption", {"class": "quiet"}, escape_html(title))
    parts = [caption, svg_element("thead", {}, svg_element("tr", {}, heads)), svg_element("tbody", {}, body)]
    scroll = {"class": "scroll", "tabindex": 0, "role": "region", "aria-label": f"{title}: table"}
    return svg_element("div", scroll, svg_element("table", {"class": "words stacked"}, parts))


def _word_cell(cell: Any) -> Markup:
    if not isinstance(cell, Mapping):
        return escape_html("" if cell is None else cell)
    if "verdict" in cell:
        return escape_html("-") if cell["verdict"] is None else verdict_badge(cell["verdict"])
    badge = verdict_badge(_HOLDS[cell["holds"]], cell["holds"]) if cell.get("holds") else Markup("")
    return svg_element("div", {"class": "said"}, [badge, svg_element("span", {}, escape_html(cell.get("text") or ""))])


def _tones(columns: Sequence[str]) -> list[str]:
    return [TONES[place % len(TONES)] for place in range(len(columns))]


__all__ = [
    "compare_page",
    "compare_section",
    "compare_sections",
    "fault_table",
    "figures_table",
    "guarantee_tables",
    "time_charts",
]
