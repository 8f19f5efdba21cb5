"""The page of a comparison: several protocols side by side on the same traffic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

from markupsafe import Markup

from causeway.audit.verdict import Verdict
from causeway.report.charts import ChartBar, ChartSeries, bar_chart, time_chart
from causeway.report.elements import element, escape_html, format_in_unit, list_words, safe_name, verdict_badge
from causeway.report.page import PageSection, render_page, render_piece

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
    heading = element("h1", escape_html(compare["title"]), class_="compared")
    about = Markup("") if not compare.get("note") else element("p", escape_html(compare["note"]), class_="lead")
    found = [PageSection("top", None, heading + about), PageSection("compare", "Side by side", figures_table(compare))]
    return found + [PageSection(ident, title, body) for ident, title, body in _parts(compare)]


def _parts(compare: ComparisonData) -> list[tuple[str, str, Markup]]:
    """Return anchor, title and content of the parts below the figures, without empty ones."""
    guarantees = [
        _word_table(table, f"Guarantees of {name}") for name, table in (compare.get("guarantees") or {}).items()
    ]
    parts = [
        ("lines", "Over time", time_charts(compare)),
        ("guarantees", "Guarantees", Markup("").join(guarantees)),
        ("faults", "Faults", _word_table(compare.get("faults"), "Faults")),
    ]
    return [part for part in parts if part[2]]


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
    for _, title, body in _parts(compare):
        parts += [element("h3", title), body]
    return PageSection("compare", "Compare", Markup("").join(parts), compare.get("note"))


def figures_table(compare: ComparisonData) -> Markup:
    """Render the table of figures with a bar in each cell, and the charts.

    Args:
        compare: a comparison (``compare_section``).

    Returns:
        HTML.
    """
    tones = _tones(compare)
    charts = [
        bar_chart(each["title"], [ChartBar(name, value, tone=tones[name]) for name, value in each["values"].items()
                                  if value is not None], unit=each["unit"])
        for each in compare.get("charts") or ()
    ]  # fmt: skip
    rows = [(row, _cells(row, tones)) for row in compare["rows"]]
    return render_piece("elements/comparison.html", title=compare["title"], tones=tones, rows=rows, charts=charts)


def _cells(row: Mapping[str, Any], tones: Mapping[str, str]) -> list[tuple[str, str, str, bool, bool, float | None]]:
    """Return column, tone, text, True for a figure, True for the best one, and the length of the bar, or None."""
    figures = [each for each in row["values"] if isinstance(each, int | float) and not isinstance(each, bool)]
    most = max(figures, default=0.0)
    best = {"less": min, "more": max}.get(row["better"] or "")
    cells = []
    for value, (column, tone) in zip(row["values"], tones.items(), strict=True):
        is_figure = isinstance(value, int | float) and not isinstance(value, bool)
        text = format_in_unit(value, row["unit"]) if is_figure else "" if value is None else str(value)
        is_best = is_figure and best is not None and len(set(figures)) > 1 and value == best(figures)
        length = (max(value / most, 0.004) if value else 0.0) if is_figure and most > 0 and value >= 0 else None
        cells.append((column, tone, text, is_figure, is_best, length))
    return cells


def time_charts(compare: ComparisonData) -> Markup:
    """Render values over time, one line a protocol.

    Args:
        compare: a comparison (``compare_section``).

    Returns:
        HTML.
    """
    tones = _tones(compare)
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
    return element("div", charts, class_="charts") if charts else Markup("")


def _coinciding_lines(series: Mapping[str, Sequence[float | None]]) -> str | None:
    """Return a note on coinciding lines; None without any."""
    same: dict[tuple[float | None, ...], list[str]] = {}
    for column, values in series.items():
        same.setdefault(tuple(values), []).append(safe_name(column))
    found = [list_words(names) for names in same.values() if len(names) > 1]
    return f"One line: {'; '.join(found)}." if found else None


def _word_table(table: Mapping[str, Any] | None, title: str) -> Markup:
    if not table or not table["rows"]:
        return Markup("")
    columns = table["columns"]
    rows = [
        (_word(first), [(column, _word(cell)) for column, cell in zip(columns[1:], others, strict=True)])
        for first, *others in table["rows"]
    ]
    return render_piece("elements/word_table.html", title=title, columns=columns, rows=rows)


def _word(cell: Any) -> Markup:
    """Render a cell: a text, a verdict, or a guarantee that holds or not, with an explanation."""
    if not isinstance(cell, Mapping):
        return escape_html("" if cell is None else cell)
    if "verdict" in cell:
        return escape_html("-") if cell["verdict"] is None else verdict_badge(cell["verdict"])
    badge = verdict_badge(_HOLDS[cell["holds"]], cell["holds"]) if cell.get("holds") else Markup("")
    return element("div", badge + element("span", escape_html(cell.get("text") or "")), class_="said")


def _tones(compare: ComparisonData) -> dict[str, str]:
    """Return the tone of each column."""
    return dict(zip(compare["columns"], cycle(TONES), strict=False))


__all__ = ["compare_page", "compare_section", "compare_sections", "figures_table", "time_charts"]
