"""A network as a graph: chains as nodes, what goes between them as edges, each a link."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from causeway.explorer.layout import placed, widths
from causeway.explorer.pairs import Weight
from causeway.model.text import name_of
from causeway.report.svg import element, number
from causeway.report.text import count, many, safe_name

MOST_CHAINS = 400
MOST_EDGES = 240
"""Chains and edges that are drawn; of more those with trouble first, then those with most traffic: an eye follows no
more lines than that, and the matrix beside the drawing has all."""

CROWDED = 90
"""From so many edges on they are thin, and let others shine through."""

LABELLED, NAMED = 60, 30
"""So many chains at most have all their names drawn; of more so many of those in trouble, or the busiest, have."""


@dataclass(frozen=True)
class Edge:
    """What goes from a chain to another one, or to itself. ``href``: where it leads."""

    source: str
    destination: str
    lanes: int
    messages: int
    pending: int
    violated: int
    href: str | None


@dataclass(frozen=True)
class Node:
    """A chain. ``role``: that others depend on it, as a relay chain has one; ``href``: where it leads; ``label``: what
    stands beside it, where that is not its name; ``seen``: whether anybody said which chain it is."""

    name: str
    href: str | None
    role: str | None = None
    label: str | None = None
    seen: bool = True

    @property
    def called(self) -> str:
        """Return what stands beside it."""
        return self.name if self.label is None else self.label


def graph(nodes: Sequence[Node], edges: Sequence[Edge], weights: Mapping[str, Weight]) -> Markup:
    """Return a network as SVG.

    Args:
        nodes: in the order in which the network has them, at most about ``MOST_CHAINS``.
        edges: between them, those in trouble first, at most about ``MOST_EDGES``.
        weights: violations, pending messages and messages of each node, by name, also of edges that are not drawn.
    """
    known = {node.name: weights.get(node.name, (0, 0, 0)) for node in nodes}
    order = {node.name: place for place, node in enumerate(nodes)}
    ranked = sorted(known, key=lambda name: (*(-each for each in known[name]), order[name]))
    labelled = set(ranked[: LABELLED if len(ranked) <= LABELLED else NAMED])
    return _svg(nodes, edges, known, labelled)


def _svg(nodes: Sequence[Node], edges: Sequence[Edge], weights: Mapping[str, Weight], labelled: set[str]) -> Markup:
    points = placed([node.name for node in nodes], {(edge.source, edge.destination) for edge in edges})
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
    crowded = len(edges) >= CROWDED
    widest = 2.5 if crowded else 7.0 if total <= 60 else 3.5
    wide = widths({(edge.source, edge.destination): edge.messages for edge in edges}, 1.0, widest)
    loops = {edge.source: edge for edge in edges if edge.source == edge.destination}
    both = {(edge.source, edge.destination) for edge in edges}
    lines = []
    for edge in reversed(edges):  # what is in trouble lies on top
        if edge.source != edge.destination:
            curved = (edge.destination, edge.source) in both
            lines.append(_edge(edge, at, radius, wide[edge.source, edge.destination], curved=curved))
    middle = (width / 2, height / 2) if round_ else None
    circles = [
        _node(node, at[node.name], radius, weights, loops.get(node.name), node.name in labelled, middle)
        for node in nodes
    ]
    said = f"The network: {many(total, 'chain')}, {many(len(edges), 'direction')} with messages"
    box = {"viewBox": f"0 0 {number(width)} {number(height)}", "role": "group", "aria-label": said}
    classes = ["graph", *(["small"] if total <= 12 else []), *(["crowded"] if crowded else [])]
    return element("svg", {"class": " ".join(classes), **box}, [*lines, *circles])


def _edge(edge: Edge, at: Mapping[str, tuple[float, float]], radius: float, width: float, *, curved: bool) -> Markup:
    (x0, y0), (x1, y1) = at[edge.source], at[edge.destination]
    long = math.hypot(x1 - x0, y1 - y0) or 1.0
    ux, uy = (x1 - x0) / long, (y1 - y0) / long
    bend = min(46.0, 0.14 * long + 8) if curved else 0.0
    mx, my = (x0 + x1) / 2 - uy * bend, (y0 + y1) / 2 + ux * bend
    sx, sy = _towards(x0, y0, mx, my, radius + 2)
    tip = 5 + 1.3 * width
    ex, ey = _towards(x1, y1, mx, my, radius + 3)
    bx, by = _towards(x1, y1, mx, my, radius + 3 + tip)
    drawn = f"M{number(sx)} {number(sy)}Q{number(mx)} {number(my)} {number(bx)} {number(by)}"
    nx, ny = (by - ey) / tip, (ex - bx) / tip
    half = 2.5 + 0.75 * width
    head = (
        f"M{number(ex)} {number(ey)}L{number(bx + nx * half)} {number(by + ny * half)}"
        f"L{number(bx - nx * half)} {number(by - ny * half)}Z"
    )
    state = "bad" if edge.violated else _busy(edge.pending, edge.messages)
    parts = [
        element("title", {}, _said(edge)),
        element("path", {"class": "seen", "d": drawn, "stroke-width": number(width)}),
        element("path", {"class": "head", "d": head}),
        element("path", {"class": "hit", "d": drawn}),
    ]
    label = f"{_end(edge.source)} to {_end(edge.destination)}"
    tag = "g" if edge.href is None else "a"
    return element(tag, {"class": f"edge {state}".strip(), "href": edge.href, "aria-label": label}, parts)


def _node(
    node: Node,
    at: tuple[float, float],
    radius: float,
    weights: Mapping[str, Weight],
    loop: Edge | None,
    labelled: bool,
    middle: tuple[float, float] | None,
) -> Markup:
    """Draw a chain. ``middle``: of a circle of many, outside of which names stand; None: they stand below."""
    x, y = at
    violated, pending, messages = weights[node.name]
    said = [many(messages, "message"), f"{count(pending)} pending"]
    said += [many(violated, "violation")] if violated else []
    said += [node.role.replace("_", " ")] if node.role else []
    parts = [element("title", {}, f"{name_of(node.called)}\n{', '.join(said)}")]
    if loop is not None and loop.messages:
        ring = {"cx": number(x), "cy": number(y), "r": number(radius + 4), "class": "loop"}
        parts.append(element("circle", {**ring, "stroke-dasharray": "3 3"}))
    parts.append(element("circle", {"cx": number(x), "cy": number(y), "r": number(radius)}))
    if labelled:
        parts.append(element("text", {**_beside(at, radius, middle), "class": None}, safe_name(node.called, 22)))
    state = "bad" if violated else _busy(pending, messages)
    hub = "hub" if node.role else "" if node.seen else "unseen-end"
    tag = "g" if node.href is None else "a"
    classes = " ".join(each for each in ("node", state, hub) if each)
    return element(tag, {"class": classes, "href": node.href, "aria-label": f"chain {name_of(node.called)}"}, parts)


UNSEEN = "\0"
"""How names of ends begin of which nobody said what chain they are; no chain's name does."""


def _end(name: str) -> str:
    return "a chain that was not seen" if name.startswith(UNSEEN) else name_of(name)


def _said(edge: Edge) -> str:
    lines = [f"{_end(edge.source)} → {_end(edge.destination)}"]
    lines.append(f"{many(edge.messages, 'message')} in {many(edge.lanes, 'lane')}, {count(edge.pending)} pending")
    if edge.violated:
        lines.append(many(edge.violated, "violation"))
    return "\n".join(lines)


def _beside(at: tuple[float, float], radius: float, middle: tuple[float, float] | None) -> dict[str, object]:
    """Return where the name of a chain stands: on a circle in the direction from its middle, so that neighbours' names
    do not cover each other."""
    x, y = at
    if middle is None or math.hypot(x - middle[0], y - middle[1]) < 0.5 * middle[1]:
        return {"x": number(x), "y": number(y + radius + 3), "dy": "1em", "text-anchor": "middle"}
    angle = math.degrees(math.atan2(y - middle[1], x - middle[0]))
    left = abs(angle) > 90
    turned = angle + 180 if left else angle
    return {
        "x": number(x + (-1 if left else 1) * (radius + 6)),
        "y": number(y + 4),
        "text-anchor": "end" if left else "start",
        "transform": f"rotate({number(turned)} {number(x)} {number(y)})",
    }


SHARES = (0.02, 0.15)
"""Of so many messages as are pending an edge is a little, more and most yellow."""


def _busy(pending: int, messages: int) -> str:
    if not pending:
        return ""
    return f"busy-{1 + sum(pending > share * messages for share in SHARES)}"


def _towards(x: float, y: float, to_x: float, to_y: float, far: float) -> tuple[float, float]:
    """Return the point so far from one on the way to another."""
    long = math.hypot(to_x - x, to_y - y) or 1.0
    return x + (to_x - x) * far / long, y + (to_y - y) * far / long


__all__ = ["MOST_CHAINS", "MOST_EDGES", "UNSEEN", "Edge", "Node", "graph"]
