"""SVG plots of simulations: coverage over time, and timely bodies by selfish nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import pyarrow as pa

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 420, 64, 24, 48, 56

_LINES = (("needed", "#0b5394", "nodes that need the queue"), ("all", "#b45f06", "all honest nodes"))


def curve(coverage: pa.Table, interval: int, title: str) -> str:
    """Plot the share of delivered bodies over the time since their listing.

    Args:
        coverage: Table of coverage (``COVERAGE_SCHEMA``).
        interval: Interval between two blocks in ms, marked in the plot.
        title: Title of the plot.

    Returns:
        The plot as SVG.
    """
    times = coverage["time"].to_pylist()
    end = max(times[-1], 1)

    def x(time: float) -> float:
        return float(round(LEFT + (WIDTH - LEFT - RIGHT) * time / end, 1))

    parts = _plot_frame(f"{title}: bodies that have arrived")
    for part in range(5):
        time = end * part / 4
        parts.append(f'<text x="{x(time)}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{time / 1000:g} s</text>')
    mark = x(interval)
    parts.append(f'<line x1="{mark}" y1="{TOP}" x2="{mark}" y2="{_y(0)}" stroke="#888888" stroke-dasharray="4 4"/>')
    parts.append(f'<text x="{mark + 6}" y="{TOP + 14}" fill="#666666">next block</text>')
    for place, (name, colour, text) in enumerate(_LINES):
        shares = coverage[name].to_pylist()
        if None in shares:
            continue
        points = " ".join(f"{x(time)},{_y(share)}" for time, share in zip(times, shares, strict=True))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        at, begin, stop = _y(0.14) + 18 * place, x(0.62 * end), x(0.66 * end)
        ends = f'x1="{begin}" y1="{at - 4}" x2="{stop}" y2="{at - 4}"'
        parts.append(f'<line {ends} stroke="{colour}" stroke-width="2"/><text x="{stop + 8}" y="{at}">{text}</text>')
    middle, bottom = (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12
    parts.append(f'<text x="{middle}" y="{bottom}" text-anchor="middle">time since the queue was listed</text>')
    return "\n".join([*parts, "</svg>", ""])


_COLOURS = {True: "#0b5394", False: "#b45f06"}
_DASHES = ("", "8 4", "2 4", "8 4 2 4")


def selfish_curves(shares: Mapping[tuple[int, bool], Sequence[tuple[float, float]]]) -> str:
    """Plot the share of bodies in time by the share of selfish nodes.

    Args:
        shares: Points, both shares from 0 to 1, by number of nodes and use of tickets.

    Returns:
        The plot as SVG.
    """
    end = max((point[0] for points in shares.values() for point in points), default=0.0) or 1.0

    def x(share: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * share / end, 1)

    parts = _plot_frame("Bodies in time, with and without tickets")
    for part in range(6):
        share = end * part / 5
        parts.append(f'<text x="{x(share)}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{share:.0%}</text>')
    sizes = sorted({count for count, _ in shares})
    for row, ((count, tickets), points) in enumerate(shares.items()):
        style = f'stroke="{_COLOURS[tickets]}" stroke-dasharray="{_DASHES[sizes.index(count) % len(_DASHES)]}"'
        line = " ".join(f"{x(share)},{_y(timely)}" for share, timely in points)
        parts.append(f'<polyline points="{line}" fill="none" {style} stroke-width="2"/>')
        at = _y(0.08) - 18 * (len(shares) - 1 - row)
        parts.append(f'<line x1="{LEFT + 16}" y1="{at - 4}" x2="{LEFT + 56}" y2="{at - 4}" {style} stroke-width="2"/>')
        text = f"{count:,} nodes, {'with' if tickets else 'without'} tickets"
        parts.append(f'<text x="{LEFT + 64}" y="{at}">{text}</text>')
    middle, bottom = (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12
    parts.append(f'<text x="{middle}" y="{bottom}" text-anchor="middle">share of selfish nodes</text>')
    return "\n".join([*parts, "</svg>", ""])


def _y(share: float) -> float:
    return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share, 1)


def _plot_frame(title: str) -> list[str]:
    """Start a plot: title and axis of shares."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="24" font-size="15">{escape(title)}</text>',
    ]
    for percent in range(0, 101, 20):
        at = _y(percent / 100)
        parts.append(f'<line x1="{LEFT}" y1="{at}" x2="{WIDTH - RIGHT}" y2="{at}" stroke="#dddddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{at + 4}" text-anchor="end">{percent}%</text>')
    return parts
