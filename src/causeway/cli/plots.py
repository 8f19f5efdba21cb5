"""Plots of characters: what happened over time, and shares of a whole. The same in a pipe, without colour."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from causeway.model.text import duration

HEIGHT = 8
"""Lines of a plot."""

WIDEST = 100
"""Characters of a plot, labels included, at most."""

_EIGHTHS = " ▁▂▃▄▅▆▇█"
_LABEL = 11


def over_time(console: Console, title: str, values: Sequence[float | None], first: str, last: str, unit: str) -> None:
    """Print values that follow each other in time as columns.

    ``first``, ``last``: where the time begins and ends; ``unit``: ``count``, ``ticks`` or ``seconds``. Where there are
    more values than columns, a column is the largest of its values; None: there is none.
    """
    most = max((value for value in values if value is not None), default=0.0)
    highest = amount(most, unit)
    beside = max(_LABEL, cell_len(highest))
    columns = columns_of(values, max(min(console.width, WIDEST) - beside - 2, 10))
    console.print(f"[bold]{escape(title)}[/bold]")
    for line in range(HEIGHT, 0, -1):
        label = highest if line == HEIGHT else "0" if line == 1 else ""
        bars = "".join(_cell(value, most, line) for value in columns)
        console.print(Text(f"{label:>{beside}} ┤", style="dim").append(bars.rstrip(), style="cyan"))
    begins = f"{first:<{max(len(columns) - len(last), 1)}}" if len(columns) > len(first) + len(last) else f"{first} to "
    console.print(Text(f"{'':>{beside}}  {begins}{last}", style="dim"))


def columns_of(values: Sequence[float | None], room: int) -> list[float | None]:
    """Return one value a column: each several times where there is room, else the largest of several."""
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
        eighths = max(eighths, 1)  # what is there is seen
    return _EIGHTHS[min(max(eighths, 0), 8)]


def amount(value: float, unit: str) -> str:
    """Return a value as a label has it."""
    if unit == "seconds":
        return duration(value)
    text = f"{value:,.1f}".removesuffix(".0")
    if unit != "ticks":
        return text
    return f"{text} {'tick' if text == '1' else 'ticks'}"


def share(count: int, total: int, width: int = 40) -> str:
    """Return a bar for a share of a whole."""
    if count <= 0 or total <= 0:
        return ""
    return "█" * max(1, round(width * count / total))


def percent(count: int, total: int) -> str:
    """Return a share of a whole; only all of it is 100.0 %, and only none of it 0.0 %."""
    text = f"{100 * count / total:.1f}"
    if text == "100.0" and count < total:
        return ">99.9 %"
    return "<0.1 %" if text == "0.0" and count else f"{text} %"


def span(bins: Sequence[dict[str, Any]]) -> tuple[str, str]:
    """Return where bins over time begin and end, for people."""
    begin, end = bins[0], bins[-1]
    if begin["axis"] == "tick":
        return f"tick {begin['tick']:,}", f"{end['tick'] + end['ticks'] - 1:,}"
    return _time(begin["time"]), _time(end["time"])


def _time(time: datetime | None) -> str:
    return "?" if time is None else time.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "minutes")


__all__ = ["amount", "columns_of", "over_time", "percent", "share", "span"]
