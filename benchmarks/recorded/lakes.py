"""What can be seen of a run in the lake it leaves: when each height was committed, files and bytes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.process import BenchmarkFailed

PARTS = ("beginning", "middle", "end")
PART = 0.2
"""How much of the heights is the beginning, the middle or the end of a run."""


@dataclass(frozen=True, order=True)
class Commit:
    """A commit: the height that it reached, and the time of its file."""

    height: int
    time: float


def commits(lake: Path) -> list[Commit]:
    """Return the commits of a lake, genesis first: one a manifest, whether it is of one height or of many.

    Raises:
        BenchmarkFailed: there is none above height 0.
    """
    found = [
        Commit(last_height(json.loads(file.read_bytes())), file.stat().st_mtime)
        for file in (lake / "manifests").glob("*.json")
    ]
    found.sort()
    if not found or found[-1].height < 1:
        raise BenchmarkFailed(f"{lake}: no height was committed")
    return found


def last_height(manifest: dict[str, Any]) -> int:
    """Return the height that a commit reached, from a manifest of this format or of the one before, which had one
    height each.
    """
    if "height" in manifest:
        return int(manifest["height"])
    heights = manifest["heights"]
    return int(heights["first"]) + len(heights["tick"]) - 1


def size(folder: Path) -> tuple[int, int]:
    """Return how many files a folder has, and their bytes."""
    sizes = [os.path.getsize(os.path.join(inner, name)) for inner, _, names in os.walk(folder) for name in names]
    return len(sizes), sum(sizes)


def parts(heights: int) -> dict[str, tuple[float, float]]:
    """Return the heights at which the parts of a run begin and end."""
    span = heights * PART
    begins = {"beginning": 0.0, "middle": (heights - span) / 2, "end": heights - span}
    return {name: (begins[name], begins[name] + span) for name in PARTS}


def milliseconds_a_tick(
    committed: Sequence[Commit], seconds_at: Callable[[float], float] = lambda time: time
) -> dict[str, float] | None:
    """Return what a tick took at the beginning, in the middle and at the end of a run, None where too few commits tell.

    ``seconds_at``: the seconds that were used up to a time: by the clock by default.

    Between two commits every height counts as the same time. A part in which no commit lies would say what the commits
    around it say, so there must be at least one for each part besides the first.
    """
    above = [commit for commit in committed if commit.height > 0]
    if len(above) <= len(PARTS):
        return None
    heights, times = [commit.height for commit in above], [commit.time for commit in above]
    first, last = heights[0], heights[-1]
    found = {}
    for name, (begin, end) in parts(last - first).items():
        earlier, later = np.interp([first + begin, first + end], heights, times)
        found[name] = 1000 * (seconds_at(float(later)) - seconds_at(float(earlier))) / (end - begin)
    return found


def average_of_parts(values: Sequence[int]) -> dict[str, float]:
    """Return the mean of one value a tick, at the beginning, in the middle and at the end."""
    places = np.arange(len(values) + 1)
    sums = np.concatenate([[0], np.cumsum(values)])
    found = {}
    for name, (begin, end) in parts(len(values)).items():
        low, high = np.interp([begin, end], places, sums)
        found[name] = float((high - low) / (end - begin))
    return found
