"""Lanes as a matrix of chains, shaded by backlog, violations or latency."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from causeway.core.text import count_noun
from causeway.report.elements import format_count, format_in_unit, format_narrow
from causeway.report.page import render_piece

MAX_CHAINS = 24
"""Maximum chains with a row and column of their own; the others share one."""

LEVELS = 7
"""Number of shades of a cell."""


@dataclass(frozen=True)
class PairFigures:
    """The figures of the lanes between two chains.

    ``latency``: of the slowest lane, or None. ``href``: address of the list of lanes.
    """

    lanes: int = 0
    messages: int = 0
    open: int = 0
    violated: int = 0
    unknown: int = 0
    latency: float | None = None
    href: str | None = None

    def __add__(self, other: PairFigures) -> PairFigures:
        known = [each for each in (self.latency, other.latency) if each is not None]
        return PairFigures(
            self.lanes + other.lanes,
            self.messages + other.messages,
            self.open + other.open,
            self.violated + other.violated,
            self.unknown + other.unknown,
            max(known, default=None),
            self.href or other.href,
        )


@dataclass(frozen=True)
class ShadingMeasure:
    """A measure that shades the matrix.

    It has a name, a tone, and the figure of a cell. ``root``: as of ``shade_level``.
    """

    ident: str
    title: str
    tone: str
    figure: Callable[[PairFigures], float | None]
    root: bool = True


MEASURES = (
    ShadingMeasure("violated", "Violations", "bad", lambda each: each.violated),
    ShadingMeasure("open", "Backlog", "warn", lambda each: each.open),
    ShadingMeasure("latency", "Latency", "b", lambda each: each.latency, root=False),
    ShadingMeasure("messages", "Messages", "a", lambda each: each.messages),
)

MatrixEnd = tuple[int, str]
"""A row or column: (0, chain name), ``UNSEEN`` or ``OTHERS``; chain names cannot collide with these."""

UNSEEN, OTHERS = (1, "not seen"), (2, "others")

PairCells = Mapping[tuple[str | None, str | None], PairFigures]
MatrixCells = Mapping[tuple[MatrixEnd, MatrixEnd], PairFigures]


def draw_matrix(cells: MatrixCells, *, latency: str = "delivery, p99", unit: str = "seconds") -> Markup:
    """Render the matrix of lanes, with a choice of the shading measure.

    Args:
        cells: figures by source and destination (``fold_matrix``).
        latency: name of the latency of a cell.
        unit: of the latency.

    Returns:
        HTML.
    """
    measures = [each for each in MEASURES if any(each.figure(found) for found in cells.values())] or [MEASURES[-1]]

    def order(end: MatrixEnd) -> tuple[int, list[tuple[int, int, str]]]:
        return end[0], natural_key(end[1])

    return render_piece(
        "elements/matrix.html",
        panels=[(each, _panel(each, cells, latency, unit)) for each in measures],
        sources=sorted({source for source, _ in cells}, key=order),
        destinations=sorted({destination for _, destination in cells}, key=order),
        latency=latency,
        levels=range(1, LEVELS + 1),
    )


def fold_matrix(pairs: PairCells, most: int = MAX_CHAINS) -> dict[tuple[MatrixEnd, MatrixEnd], PairFigures]:
    """Fold figures by (source, destination) into a matrix of at most ``most`` rows.

    None is an unknown chain. Chains come by violations, then backlog, then messages; the others share one row.

    Args:
        pairs: figures by source and destination; None: unknown.
        most: maximum number of rows.

    Returns:
        Figures by ends of the matrix.
    """
    weights: dict[str | None, list[int]] = {}
    for (source, destination), found in pairs.items():
        for chain in {source, destination}:
            own = weights.setdefault(chain, [0, 0, 0])
            for place, figure in enumerate((found.violated, found.open, found.messages)):
                own[place] += figure
    ordered: list[str | None] = sorted(
        weights, key=lambda chain: (*(-each for each in weights[chain]), chain is None, chain or "")
    )
    listed = set(ordered if len(ordered) <= most else ordered[: most - 1])

    def end(chain: str | None) -> MatrixEnd:
        return OTHERS if chain not in listed else UNSEEN if chain is None else (0, chain)

    cells: dict[tuple[MatrixEnd, MatrixEnd], PairFigures] = {}
    for (source, destination), found in pairs.items():
        cell = end(source), end(destination)
        cells[cell] = cells.get(cell, PairFigures()) + found
    return cells


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """Return a natural sort key: numbers in names compare by value.

    Args:
        text: the name.

    Returns:
        The sort key.
    """
    parts = re.split(r"([0-9]{1,18})", text)
    return [(1, int(part), "") if place % 2 else (0, 0, part) for place, part in enumerate(parts)]


def _panel(measure: ShadingMeasure, cells: MatrixCells, latency: str, unit: str) -> dict[str, Any]:
    """Return the largest figure, and shade, text and tip of each cell, under a measure."""

    def format_figure(figure: float) -> str:
        return format_in_unit(figure, unit) if measure.ident == "latency" else format_narrow(figure)

    most = max((figure for found in cells.values() if (figure := measure.figure(found))), default=0.0)
    squares = {}
    for place, found in cells.items():
        figure = measure.figure(found) or 0
        tip = [count_noun(found.lanes, "lane"), count_noun(found.messages, "message")]
        tip += [f"{format_count(found.open)} pending"]
        tip += [count_noun(found.violated, "violation")] if found.violated else []
        tip += [f"{latency}: {format_in_unit(found.latency, unit)}"] if found.latency is not None else []
        shade = shade_level(figure, most, root=measure.root)
        squares[place] = (shade, format_figure(figure) if figure else "·", ", ".join(tip), found.href)
    return {"most": format_figure(most), "squares": squares}


def shade_level(figure: float, most: float, *, root: bool = True) -> int:
    """Return the shade of a figure, 0 for none.

    Args:
        figure: the figure.
        most: the largest figure.
        root: scale by the square root, to distinguish small figures from none.

    Returns:
        The shade, from 0 to ``LEVELS``.
    """
    if figure <= 0:
        return 0
    part = math.sqrt(figure / most) if root else figure / most
    return max(1, min(LEVELS, math.ceil(LEVELS * part)))


__all__ = [
    "LEVELS",
    "MAX_CHAINS",
    "MEASURES",
    "OTHERS",
    "UNSEEN",
    "MatrixCells",
    "PairCells",
    "PairFigures",
    "draw_matrix",
    "fold_matrix",
    "natural_key",
    "shade_level",
]  # fmt: skip
