"""Tables and text plots for terminals and pipes.

A table is as wide as its content; on a narrow terminal it has several lines a row. Nothing is cut. Cells are Rich
markup. Plots show values over time, and shares of a whole.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from causeway.core.text import format_duration

__all__ = [
    "FOLDED",
    "fit_columns",
    "format_amount",
    "format_percent",
    "format_span",
    "plot_over_time",
    "share_bar",
    "show_pairs",
    "show_table",
]

FOLDED = 16
"""Least width of a foldable column, unless its content is narrower."""

_BETWEEN = 2


def show_table(
    console: Console,
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: Collection[str],
    folds: Collection[str] = (),
) -> None:
    """Print a table with a line a row, or, on a narrow terminal, a line a cell.

    Args:
        console: the console.
        titles: titles of the columns; the first one names the row.
        rows: cells.
        left: left-aligned text columns; the others are numbers.
        folds: columns that may wrap.
    """
    widths = []
    for place, title in enumerate(titles):
        wanted = max(cell_len(title), *(_width(row[place]) for row in rows)) if rows else cell_len(title)
        widths.append(min(wanted, FOLDED) if title in folds else wanted)
    if sum(widths) + _BETWEEN * (len(widths) - 1) > console.width:
        _show_records(console, titles, rows)
        return
    table = Table(box=None, pad_edge=False, padding=(0, _BETWEEN, 0, 0), header_style="bold")
    for title in titles:
        side = "left" if title in left else "right"
        table.add_column(title, justify="left" if side == "left" else "right", no_wrap=title not in folds)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _show_records(console: Console, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a line a cell without empty ones."""
    for row in rows:
        console.print(f"[bold]{row[0] or titles[0]}[/bold]")
        show_pairs(console, [(f"  {title}", cell) for title, cell in zip(titles[1:], row[1:], strict=True) if cell])


def show_pairs(console: Console, rows: Sequence[tuple[str, str]], *, right: bool = False) -> None:
    """Print pairs, a line each; a long second value wraps.

    Args:
        console: the console.
        rows: the pairs.
        right: align the first values to the right.
    """
    if not console.is_terminal:
        wide = max((_width(first) for first, _ in rows), default=0)
        for first, second in rows:
            gap = " " * (wide - _width(first))
            console.print(f"{gap}{first}  {second}" if right else f"{first}{gap}  {second}", soft_wrap=True)
        return
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, _BETWEEN, 0, 0))
    table.add_column(justify="right" if right else "left", no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _width(cell: str) -> int:
    return cell_len(Text.from_markup(cell).plain)


HEIGHT = 8
"""Lines of a plot."""

WIDEST = 100
"""Maximum characters of a plot with its labels."""

_EIGHTHS = " ▁▂▃▄▅▆▇█"
_LABEL = 11


def plot_over_time(
    console: Console, title: str, values: Sequence[float | None], first: str, last: str, unit: str
) -> None:
    """Print consecutive values as columns.

    Args:
        console: the console.
        title: the title.
        values: the values; None: unknown. If there are more than columns, a column has the largest of its values.
        first: label of the beginning.
        last: label of the end.
        unit: ``count``, ``ticks`` or ``seconds``.
    """
    most = max((value for value in values if value is not None), default=0.0)
    highest = format_amount(most, unit)
    beside = max(_LABEL, cell_len(highest))
    columns = fit_columns(values, max(min(console.width, WIDEST) - beside - 2, 10))
    console.print(f"[bold]{escape(title)}[/bold]")
    for line in range(HEIGHT, 0, -1):
        label = highest if line == HEIGHT else "0" if line == 1 else ""
        bars = "".join(_cell(value, most, line) for value in columns)
        console.print(Text(f"{label:>{beside}} ┤", style="dim").append(bars.rstrip(), style="cyan"))
    begins = f"{first:<{max(len(columns) - len(last), 1)}}" if len(columns) > len(first) + len(last) else f"{first} to "
    console.print(Text(f"{'':>{beside}}  {begins}{last}", style="dim"))


def fit_columns(values: Sequence[float | None], room: int) -> list[float | None]:
    """Return one value a column: repeated if there is space, else the largest of several.

    Args:
        values: the values.
        room: number of columns.

    Returns:
        The values of the columns.
    """
    if not values:
        return []
    if len(values) <= room:
        return [value for value in values for _ in range(room // len(values))]
    edges = [place * len(values) // room for place in range(room + 1)]
    return [
        max((value for value in values[start:end] if value is not None), default=None) for start, end in pairwise(edges)
    ]


def _cell(value: float | None, most: float, line: int) -> str:
    if value is None or value <= 0 or most <= 0:
        return " "
    eighths = round(value / most * HEIGHT * 8) - (line - 1) * 8
    if line == 1:
        eighths = max(eighths, 1)  # values above 0 stay visible
    return _EIGHTHS[min(max(eighths, 0), 8)]


def format_amount(value: float, unit: str) -> str:
    """Format a value for a label.

    Args:
        value: the value.
        unit: ``count``, ``ticks`` or ``seconds``.

    Returns:
        The text.
    """
    if unit == "seconds":
        return format_duration(value)
    text = f"{value:,.1f}".removesuffix(".0")
    if unit != "ticks":
        return text
    return f"{text} {'tick' if text == '1' else 'ticks'}"


def share_bar(count: int, total: int, width: int = 40) -> str:
    """Return a bar for a share of a whole.

    Args:
        count: the part.
        total: the whole.
        width: maximum characters.

    Returns:
        The bar.
    """
    if count <= 0 or total <= 0:
        return ""
    return "█" * max(1, round(width * count / total))


def format_percent(count: int, total: int) -> str:
    """Format a share in per cent; only the whole is 100.0 %, only nothing is 0.0 %.

    Args:
        count: the part.
        total: the whole.

    Returns:
        The text.
    """
    text = f"{100 * count / total:.1f}"
    if text == "100.0" and count < total:
        return ">99.9 %"
    return "<0.1 %" if text == "0.0" and count else f"{text} %"


def format_span(bins: Sequence[dict[str, Any]]) -> tuple[str, str]:
    """Return labels of the beginning and the end of bins over time.

    Args:
        bins: the bins.

    Returns:
        Two texts.
    """
    begin, end = bins[0], bins[-1]
    if begin["axis"] == "tick":
        return f"tick {begin['tick']:,}", f"{end['tick'] + end['ticks'] - 1:,}"
    return _time(begin["time"]), _time(end["time"])


def _time(time: datetime | None) -> str:
    return "?" if time is None else time.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "minutes")
