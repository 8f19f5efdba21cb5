"""Tables for people: as wide as they have to be, and where the terminal is narrower a few lines a row. Nothing is cut.

Cells are Rich markup.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

FOLDED = 16
"""A column that may be folded has at least so many characters, or all that it needs."""

_BETWEEN = 2


def show_table(
    console: Console,
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: Collection[str],
    folds: Collection[str] = (),
) -> None:
    """Print a table with a line a row, or where that does not fit, a line a cell.

    ``titles``: of the columns, the first of which names the row; ``left``: columns of text, the others are numbers, on
    the right; ``folds``: columns that may be broken into lines.
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
    """Print a line a cell; what is empty is left out."""
    for row in rows:
        console.print(f"[bold]{row[0] or titles[0]}[/bold]")
        show_pairs(console, [(f"  {title}", cell) for title, cell in zip(titles[1:], row[1:], strict=True) if cell])


def show_pairs(console: Console, rows: Sequence[tuple[str, str]], *, right: bool = False) -> None:
    """Print pairs, each a line, or where the second does not fit, several below each other. ``right``: the first ones
    are numbers."""
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


__all__ = ["FOLDED", "show_pairs", "show_table"]
