"""Draw a network as a graph: chains as nodes, lanes between them as edges.

The layout is deterministic: the same network has the same drawing on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from causeway.core.text import count_noun, shorten_name
from causeway.explorer.view import PairWeight
from causeway.report.elements import element, format_coordinate, format_count, safe_name

__all__ = [
    "MAX_CHAINS",
    "MAX_EDGES",
    "UNSEEN_PAIR",
    "GraphEdge",
    "GraphNode",
    "draw_graph",
    "edge_widths",
    "place_chains",
]

Points = npt.NDArray[np.float64]

ROUNDS = 160
"""Layout steps of a sparse network; fewer for a large one, so that it takes half a second at most."""

LARGE = 100

DENSE = 0.34
"""Share of connected pairs from which a circle is as clear as any layout."""

HUB = 0.6
"""Share of other chains connected with a hub; a hub is in the middle."""

CIRCLE = 7
"""Number of chains up to which they are always on a circle."""


def place_chains(chains: Sequence[str], pairs: Collection[tuple[str, str]]) -> dict[str, tuple[float, float]]:
    """Return the position of each chain in the unit square.

    Few chains, or densely connected ones, are on a circle with hubs in its middle. Others have a force layout.

    Args:
        chains: in their order around the circle.
        pairs: connected pairs, in any direction.
    """
    return dict(_layout(tuple(chains), tuple(sorted(set(pairs)))))


@lru_cache(maxsize=8)
def _layout(chains: Sequence[str], pairs: Sequence[tuple[str, str]]) -> Mapping[str, tuple[float, float]]:
    count = len(chains)
    at = {chain: place for place, chain in enumerate(chains)}
    edges = sorted({(min(at[a], at[b]), max(at[a], at[b])) for a, b in pairs if a != b and a in at and b in at})
    if count == 1:
        return {chains[0]: (0.5, 0.5)}
    degree = np.zeros(count, dtype=np.int64)
    for one, other in edges:
        degree[one] += 1
        degree[other] += 1
    hubs = _hubs(degree, len(edges), count)
    dense = len(edges) >= DENSE * count * (count - 1) / 2
    if count <= CIRCLE or dense or (hubs and len(edges) <= count - 1 + len(hubs) * count):
        points = _circle(count, hubs)
    else:
        points = _component_layout(count, edges)
    return {chain: (round(float(x), 3), round(float(y), 3)) for chain, (x, y) in zip(chains, points, strict=True)}


def _hubs(degree: npt.NDArray[np.int64], edges: int, count: int) -> list[int]:
    if count < 4:
        return []
    found = np.flatnonzero(degree >= HUB * (count - 1)).tolist()
    return found if len(found) <= max(1, count // 10) else []


def _circle(count: int, hubs: Sequence[int]) -> Points:
    around = [place for place in range(count) if place not in hubs]
    points = np.zeros((count, 2))
    # Two chains are side by side; otherwise the first is at the top.
    begin = np.pi if len(around) == 2 else -np.pi / 2
    for number, place in enumerate(around):
        angle = begin + 2 * np.pi * number / len(around)
        points[place] = 0.5 + 0.5 * np.cos(angle), 0.5 + 0.5 * np.sin(angle)
    for number, place in enumerate(hubs):
        angle = 2 * np.pi * number / len(hubs)
        radius = 0.0 if len(hubs) == 1 else 0.12
        points[place] = 0.5 + radius * np.cos(angle), 0.5 + radius * np.sin(angle)
    return points


def _component_layout(count: int, edges: Sequence[tuple[int, int]]) -> Points:
    """Return the layout of a sparse network: its largest component above the others."""
    part = _components(count, edges)
    sizes = np.bincount(part, minlength=count)
    largest = np.flatnonzero(part == int(np.argmax(sizes)))
    others = [place for place in np.lexsort((np.arange(count), part)) if part[place] != part[largest[0]]]
    inside = {int(place): number for number, place in enumerate(largest)}
    own = [(inside[one], inside[other]) for one, other in edges if one in inside]
    rows = -(-len(others) // PER_ROW)
    high = 1.0 if not others else max(0.55, 1 - 0.09 * rows - 0.05)
    points = np.zeros((count, 2))
    points[largest] = _spread(_force_layout(len(largest), own)) * (1.0, high)
    for number, place in enumerate(others):
        row, column = divmod(number, PER_ROW)
        wide = min(PER_ROW, len(others) - row * PER_ROW)
        points[place] = (column + 0.5) / wide, high + (1 - high) * (row + 1) / rows
    return points


PER_ROW = 24
"""Chains of other components in a row."""


def _components(count: int, edges: Sequence[tuple[int, int]]) -> npt.NDArray[np.int64]:
    """Return the least chain number of each chain's component."""
    part = np.arange(count)
    one, other = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    while True:
        before = part.copy()
        np.minimum.at(part, one, part[other])
        np.minimum.at(part, other, part[one])
        part = part[part]
        if (part == before).all():
            return part


def _spread(points: Points) -> Points:
    """Spread points evenly over a disc; directions and the order of distances stay."""
    middle = points.mean(axis=0)
    away = points - middle
    angle = np.arctan2(away[:, 1], away[:, 0])
    rank = np.argsort(np.argsort(np.round((away**2).sum(axis=1), 9), kind="stable"), kind="stable")
    radius = 0.5 * np.sqrt((rank + 0.5) / len(points))
    found = np.stack([0.5 + radius * np.cos(angle), 0.5 + radius * np.sin(angle)], axis=1)
    least = 0.62 / np.sqrt(len(points))
    for _ in range(MIN_DISTANCE):
        across = [np.subtract.outer(found[:, axis], found[:, axis]) for axis in (0, 1)]
        distance = np.sqrt(across[0] ** 2 + across[1] ** 2) + 9 * np.eye(len(points))
        short = np.maximum(least - distance, 0) / np.maximum(distance, 1e-6)
        for axis in (0, 1):
            found[:, axis] = np.clip(found[:, axis] + 0.5 * (across[axis] * short).sum(axis=1), 0, 1)
        found = np.round(found, 9)
    return found


MIN_DISTANCE = 24
"""Steps that separate chains too close to each other."""


def _force_layout(count: int, edges: Sequence[tuple[int, int]]) -> Points:
    """Return the layout of Fruchterman and Reingold, from a circle."""
    points = _circle(count, ())
    one, other = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    ideal = 0.9 / np.sqrt(count)
    rounds = ROUNDS if count <= LARGE else max(40, ROUNDS * LARGE // count)
    for step in range(rounds):
        moved = np.empty_like(points)
        across = [np.subtract.outer(points[:, axis], points[:, axis]) for axis in (0, 1)]
        push = ideal**2 / np.maximum(across[0] ** 2 + across[1] ** 2, 1e-6)
        for axis in (0, 1):
            moved[:, axis] = (across[axis] * push).sum(axis=1)
        along = points[one] - points[other]
        pull = along * (np.maximum(np.sqrt((along**2).sum(axis=1)), 1e-3) / ideal)[:, None]
        np.add.at(moved, one, -pull)
        np.add.at(moved, other, pull)
        moved += (0.5 - points) * 0.6 * ideal  # keeps unconnected chains in view
        length = np.maximum(np.sqrt((moved**2).sum(axis=1)), 1e-9)
        heat = 0.12 * (1 - step / rounds) + 0.002
        points = points + moved * (np.minimum(length, heat) / length)[:, None]
        points = np.round(points, 9)  # further digits differ between machines
    least, most = points.min(axis=0), points.max(axis=0)
    found: Points = (points - least) / np.maximum(most - least, 1e-9)
    return found


def edge_widths(figures: Mapping[tuple[str, str], int], thin: float, wide: float) -> dict[tuple[str, str], float]:
    """Return the widths of edges, logarithmic in their traffic.

    Args:
        figures: traffic by pair of chains.
        thin: the least width.
        wide: the largest width.

    Returns:
        Widths by pair of chains.
    """
    most = max(figures.values(), default=0)
    if most <= 0:
        return dict.fromkeys(figures, thin)
    scale = (wide - thin) / np.log1p(most)
    return {pair: round(thin + float(np.log1p(figure)) * float(scale), 2) for pair, figure in figures.items()}


MAX_CHAINS = 400
MAX_EDGES = 240
"""Maximum chains and edges in a drawing; those with violations, then those with most traffic come first.

More lines are not distinguishable; the matrix beside the drawing is complete.
"""

DENSE_EDGES = 90
"""Number of edges from which they are thin and translucent."""

LABELLED, NAMED = 60, 30
"""Maximum chains with labels for all; above it, the number of labelled chains by trouble, then traffic."""


@dataclass(frozen=True)
class GraphEdge:
    """The traffic from a chain to another one, or to itself. ``href``: its link."""

    source: str
    destination: str
    lanes: int
    messages: int
    pending: int
    violated: int
    href: str | None


@dataclass(frozen=True)
class GraphNode:
    """A chain.

    ``role``: a special role such as a relay chain. ``href``: its link. ``label``: None: its name. ``seen``: the chain
    is
    known.
    """

    name: str
    href: str | None
    role: str | None = None
    label: str | None = None
    seen: bool = True

    @property
    def called(self) -> str:
        """Return the label."""
        return self.name if self.label is None else self.label


def draw_graph(nodes: Sequence[GraphNode], edges: Sequence[GraphEdge], weights: Mapping[str, PairWeight]) -> Markup:
    """Render a network as SVG.

    Args:
        nodes: in the order of the network, at most about ``MAX_CHAINS``.
        edges: those with violations first, at most about ``MAX_EDGES``.
        weights: violations, pending messages and messages of each node, by name, omitted edges included.
    """
    known = {node.name: weights.get(node.name, (0, 0, 0)) for node in nodes}
    order = {node.name: place for place, node in enumerate(nodes)}
    ranked = sorted(known, key=lambda name: (*(-each for each in known[name]), order[name]))
    labelled = set(ranked[: LABELLED if len(ranked) <= LABELLED else NAMED])
    return _svg(nodes, edges, known, labelled)


def _svg(
    nodes: Sequence[GraphNode], edges: Sequence[GraphEdge], weights: Mapping[str, PairWeight], labelled: set[str]
) -> Markup:
    points = place_chains([node.name for node in nodes], {(edge.source, edge.destination) for edge in edges})
    total = len(nodes)
    radius = 18.0 if total <= 12 else 13.0 if total <= 40 else 8.0 if total <= 150 else 5.0
    width, height = 1000.0, 240.0 if total <= 2 else 460.0 if total <= 12 else 640.0 if total <= 60 else 820.0
    rim = sum((x - 0.5) ** 2 + (y - 0.5) ** 2 > 0.23 for x, y in points.values())
    round_ = total > 12 and rim > 0.8 * total
    if round_:
        height = 860.0
    across, down = 150.0, 150.0 if round_ else radius + 44
    at = {
        chain: (across + x * (width - 2 * across), height / 2 if total <= 2 else down + y * (height - 2 * down))
        for chain, (x, y) in points.items()
    }
    crowded = len(edges) >= DENSE_EDGES
    widest = 2.5 if crowded else 7.0 if total <= 60 else 3.5
    wide = edge_widths({(edge.source, edge.destination): edge.messages for edge in edges}, 1.0, widest)
    loops = {edge.source: edge for edge in edges if edge.source == edge.destination}
    both = {(edge.source, edge.destination) for edge in edges}
    lines = []
    for edge in reversed(edges):  # chains with violations are on top
        if edge.source != edge.destination:
            curved = (edge.destination, edge.source) in both
            lines.append(_edge(edge, at, radius, wide[edge.source, edge.destination], curved=curved))
    middle = (width / 2, height / 2) if round_ else None
    circles = [
        _node(node, at[node.name], radius, weights, loops.get(node.name), node.name in labelled, middle)
        for node in nodes
    ]
    label = f"The network: {count_noun(total, 'chain')}, {count_noun(len(edges), 'direction')} with messages"
    box = {
        "viewBox": f"0 0 {format_coordinate(width)} {format_coordinate(height)}",
        "role": "group",
        "aria-label": label,
    }
    classes = ["graph", *(["small"] if total <= 12 else []), *(["crowded"] if crowded else [])]
    return element("svg", [*lines, *circles], class_=" ".join(classes), **box)


def _edge(
    edge: GraphEdge, at: Mapping[str, tuple[float, float]], radius: float, width: float, *, curved: bool
) -> Markup:
    (x0, y0), (x1, y1) = at[edge.source], at[edge.destination]
    long = math.hypot(x1 - x0, y1 - y0) or 1.0
    ux, uy = (x1 - x0) / long, (y1 - y0) / long
    bend = min(46.0, 0.14 * long + 8) if curved else 0.0
    mx, my = (x0 + x1) / 2 - uy * bend, (y0 + y1) / 2 + ux * bend
    sx, sy = _towards(x0, y0, mx, my, radius + 2)
    tip = 5 + 1.3 * width
    ex, ey = _towards(x1, y1, mx, my, radius + 3)
    bx, by = _towards(x1, y1, mx, my, radius + 3 + tip)
    start, middle, end = (f"{format_coordinate(x)} {format_coordinate(y)}" for x, y in ((sx, sy), (mx, my), (bx, by)))
    line = f"M{start}Q{middle} {end}"
    nx, ny = (by - ey) / tip, (ex - bx) / tip
    half = 2.5 + 0.75 * width
    head = (
        f"M{format_coordinate(ex)} {format_coordinate(ey)}"
        f"L{format_coordinate(bx + nx * half)} {format_coordinate(by + ny * half)}"
        f"L{format_coordinate(bx - nx * half)} {format_coordinate(by - ny * half)}Z"
    )
    state = "bad" if edge.violated else _busy(edge.pending, edge.messages)
    parts = [
        element("title", _description(edge)),
        element("path", class_="seen", d=line, stroke_width=format_coordinate(width)),
        element("path", class_="head", d=head),
        element("path", class_="hit", d=line),
    ]
    label = f"{_end(edge.source)} to {_end(edge.destination)}"
    tag = "g" if edge.href is None else "a"
    return element(tag, parts, class_=f"edge {state}".strip(), href=edge.href, aria_label=label)


def _node(
    node: GraphNode,
    at: tuple[float, float],
    radius: float,
    weights: Mapping[str, PairWeight],
    loop: GraphEdge | None,
    labelled: bool,
    middle: tuple[float, float] | None,
) -> Markup:
    """Render a chain.

    ``middle``: centre of a large circle with labels outside; None: labels are below.
    """
    x, y = at
    violated, pending, messages = weights[node.name]
    facts = [count_noun(messages, "message"), f"{format_count(pending)} pending"]
    facts += [count_noun(violated, "violation")] if violated else []
    facts += [node.role.replace("_", " ")] if node.role else []
    parts = [element("title", f"{shorten_name(node.called)}\n{', '.join(facts)}")]
    if loop is not None and loop.messages:
        ring = {
            "cx": format_coordinate(x),
            "cy": format_coordinate(y),
            "r": format_coordinate(radius + 4),
            "class": "loop",
        }
        parts.append(element("circle", **ring, stroke_dasharray="3 3"))
    parts.append(element("circle", cx=format_coordinate(x), cy=format_coordinate(y), r=format_coordinate(radius)))
    if labelled:
        parts.append(element("text", safe_name(node.called, 22), **_label_position(at, radius, middle)))
    state = "bad" if violated else _busy(pending, messages)
    hub = "hub" if node.role else "" if node.seen else "unseen-end"
    tag = "g" if node.href is None else "a"
    classes = " ".join(each for each in ("node", state, hub) if each)
    return element(tag, parts, class_=classes, href=node.href, aria_label=f"chain {shorten_name(node.called)}")


UNSEEN_PAIR = "\0"
"""Prefix of the names of unknown ends; no chain's name has it."""


def _end(name: str) -> str:
    return "a chain that was not seen" if name.startswith(UNSEEN_PAIR) else shorten_name(name)


def _description(edge: GraphEdge) -> str:
    lines = [f"{_end(edge.source)} → {_end(edge.destination)}"]
    lines.append(
        f"{count_noun(edge.messages, 'message')} in {count_noun(edge.lanes, 'lane')}, "
        f"{format_count(edge.pending)} pending"
    )
    if edge.violated:
        lines.append(count_noun(edge.violated, "violation"))
    return "\n".join(lines)


def _label_position(at: tuple[float, float], radius: float, middle: tuple[float, float] | None) -> dict[str, object]:
    """Return the position of a label: on a circle outwards, so that labels do not overlap."""
    x, y = at
    if middle is None or math.hypot(x - middle[0], y - middle[1]) < 0.5 * middle[1]:
        return {"x": format_coordinate(x), "y": format_coordinate(y + radius + 3), "dy": "1em", "text-anchor": "middle"}
    angle = math.degrees(math.atan2(y - middle[1], x - middle[0]))
    left = abs(angle) > 90
    turned = angle + 180 if left else angle
    return {
        "x": format_coordinate(x + (-1 if left else 1) * (radius + 6)),
        "y": format_coordinate(y + 4),
        "text-anchor": "end" if left else "start",
        "transform": f"rotate({format_coordinate(turned)} {format_coordinate(x)} {format_coordinate(y)})",
    }


SHARES = (0.02, 0.15)
"""Thresholds of the pending share for three shades of yellow."""


def _busy(pending: int, messages: int) -> str:
    if not pending:
        return ""
    return f"busy-{1 + sum(pending > share * messages for share in SHARES)}"


def _towards(x: float, y: float, to_x: float, to_y: float, far: float) -> tuple[float, float]:
    """Return the point at a distance from one point towards another."""
    long = math.hypot(to_x - x, to_y - y) or 1.0
    return x + (to_x - x) * far / long, y + (to_y - y) * far / long
