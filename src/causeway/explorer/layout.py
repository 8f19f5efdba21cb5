"""Where the chains of a network are drawn: the same network lies the same way, on every machine."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Points = npt.NDArray[np.float64]

ROUNDS = 160
"""Steps that the layout of a sparse network takes; of a large one fewer, so that it is done in half a second."""

LARGE = 100

DENSE = 0.34
"""Where so many of all pairs of chains have lanes, no drawing tells them apart better than a circle."""

HUB = 0.6
"""A chain that has lanes with so many of the others, where few have, is drawn in the middle."""

CIRCLE = 7
"""Chains that always lie on a circle."""


def placed(chains: Sequence[str], pairs: Collection[tuple[str, str]]) -> dict[str, tuple[float, float]]:
    """Return where each chain is drawn, in the unit square.

    A few chains, or many that all have lanes with each other, lie on a circle, those that have lanes with nearly all
    in its middle; others where those that have lanes pull each other, and all push each other away.

    Args:
        chains: in the order in which they go round the circle.
        pairs: of chains that have lanes, in any direction.
    """
    return dict(_placed(tuple(chains), tuple(sorted(set(pairs)))))


@lru_cache(maxsize=8)
def _placed(chains: Sequence[str], pairs: Sequence[tuple[str, str]]) -> Mapping[str, tuple[float, float]]:
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
        points = _parted(count, edges)
    return {chain: (round(float(x), 3), round(float(y), 3)) for chain, (x, y) in zip(chains, points, strict=True)}


def _hubs(degree: npt.NDArray[np.int64], edges: int, count: int) -> list[int]:
    if count < 4:
        return []
    found = np.flatnonzero(degree >= HUB * (count - 1)).tolist()
    return found if len(found) <= max(1, count // 10) else []


def _circle(count: int, hubs: Sequence[int]) -> Points:
    around = [place for place in range(count) if place not in hubs]
    points = np.zeros((count, 2))
    # Two chains lie side by side, and of others the first is at the top.
    begin = np.pi if len(around) == 2 else -np.pi / 2
    for number, place in enumerate(around):
        angle = begin + 2 * np.pi * number / len(around)
        points[place] = 0.5 + 0.5 * np.cos(angle), 0.5 + 0.5 * np.sin(angle)
    for number, place in enumerate(hubs):
        angle = 2 * np.pi * number / len(hubs)
        radius = 0.0 if len(hubs) == 1 else 0.12
        points[place] = 0.5 + radius * np.cos(angle), 0.5 + radius * np.sin(angle)
    return points


def _parted(count: int, edges: Sequence[tuple[int, int]]) -> Points:
    """Return the layout of a sparse network: its largest part above, the others in rows below it."""
    part = _parts(count, edges)
    sizes = np.bincount(part, minlength=count)
    largest = np.flatnonzero(part == int(np.argmax(sizes)))
    others = [place for place in np.lexsort((np.arange(count), part)) if part[place] != part[largest[0]]]
    inside = {int(place): number for number, place in enumerate(largest)}
    own = [(inside[one], inside[other]) for one, other in edges if one in inside]
    rows = -(-len(others) // PER_ROW)
    high = 1.0 if not others else max(0.55, 1 - 0.09 * rows - 0.05)
    points = np.zeros((count, 2))
    points[largest] = _spread(_pulled(len(largest), own)) * (1.0, high)
    for number, place in enumerate(others):
        row, column = divmod(number, PER_ROW)
        wide = min(PER_ROW, len(others) - row * PER_ROW)
        points[place] = (column + 0.5) / wide, high + (1 - high) * (row + 1) / rows
    return points


PER_ROW = 24
"""Chains of other parts that lie in a row."""


def _parts(count: int, edges: Sequence[tuple[int, int]]) -> npt.NDArray[np.int64]:
    """Return of each chain the least number of a chain that lanes connect it with."""
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
    """Return points as evenly over a disc as they are many: each in its direction from the middle, as far as so many
    others are nearer to it."""
    middle = points.mean(axis=0)
    away = points - middle
    angle = np.arctan2(away[:, 1], away[:, 0])
    rank = np.argsort(np.argsort(np.round((away**2).sum(axis=1), 9), kind="stable"), kind="stable")
    radius = 0.5 * np.sqrt((rank + 0.5) / len(points))
    found = np.stack([0.5 + radius * np.cos(angle), 0.5 + radius * np.sin(angle)], axis=1)
    least = 0.62 / np.sqrt(len(points))
    for _ in range(APART):
        across = [np.subtract.outer(found[:, axis], found[:, axis]) for axis in (0, 1)]
        distance = np.sqrt(across[0] ** 2 + across[1] ** 2) + 9 * np.eye(len(points))
        short = np.maximum(least - distance, 0) / np.maximum(distance, 1e-6)
        for axis in (0, 1):
            found[:, axis] = np.clip(found[:, axis] + 0.5 * (across[axis] * short).sum(axis=1), 0, 1)
        found = np.round(found, 9)
    return found


APART = 24
"""Steps in which chains that lie too close are moved apart."""


def _pulled(count: int, edges: Sequence[tuple[int, int]]) -> Points:
    """Return the layout of Fruchterman and Reingold, begun from a circle."""
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
        moved += (0.5 - points) * 0.6 * ideal  # so that parts without lanes between them stay in sight
        length = np.maximum(np.sqrt((moved**2).sum(axis=1)), 1e-9)
        heat = 0.12 * (1 - step / rounds) + 0.002
        points = points + moved * (np.minimum(length, heat) / length)[:, None]
        points = np.round(points, 9)  # what is beyond differs between machines
    least, most = points.min(axis=0), points.max(axis=0)
    found: Points = (points - least) / np.maximum(most - least, 1e-9)
    return found


def widths(figures: Mapping[tuple[str, str], int], thin: float, wide: float) -> dict[tuple[str, str], float]:
    """Return how wide edges are drawn, by what goes over them: by its logarithm, since traffic differs by decades."""
    most = max(figures.values(), default=0)
    if most <= 0:
        return dict.fromkeys(figures, thin)
    scale = (wide - thin) / np.log1p(most)
    return {pair: round(thin + float(np.log1p(figure)) * float(scale), 2) for pair, figure in figures.items()}


__all__ = ["placed", "widths"]
