"""Contenders that take turns, and what came of it: medians, rates, ratios."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from benchmarks.process import BenchmarkFailed

OURS = "causeway"

Samples = list[tuple[float, float]]
"""Seconds by the clock and of the processor, a pair a repetition."""

Clocked = Callable[[], tuple[float, float]]
"""Does something once and returns how long it took, by the clock and of the processor."""

Row = dict[str, Any]
"""One thing measured, as it goes into JSON: ``part``, ``what``, ``unit``, and ``figures`` by contender."""

LEAST_SECONDS = 1e-9

Result = TypeVar("Result")


def clock(work: Callable[..., Result], *arguments: Any) -> tuple[Result, tuple[float, float]]:
    """Return ``work(*arguments)``, and how long it took by the clock and of the processor."""
    begun, used = time.perf_counter(), time.process_time()
    result = work(*arguments)
    return result, (time.perf_counter() - begun, time.process_time() - used)


def timed(work: Callable[[], object]) -> Clocked:
    """Return ``work`` with a clock."""
    return lambda: clock(work)[1]


def take_turns(contenders: Mapping[str, Clocked], repeats: int, warm_up: bool = True) -> dict[str, Samples]:
    """Let all contenders do their work ``repeats`` times, one after the other each time; return what each took."""
    samples: dict[str, Samples] = {name: [] for name in contenders}
    for number in range(repeats + warm_up):
        for name, clocked in contenders.items():
            took = clocked()
            if number >= warm_up:
                samples[name].append(took)
    return samples


def row(part: str, what: str, unit: str, contenders: Mapping[str, tuple[Samples, int]]) -> Row:
    """Return the row of contenders of which each did a number of ``unit`` (plural) in every one of its samples.

    The first contender is the one that the others' ratios are over: their time for one unit by its time.
    """
    figures = {name: _figures(samples, items) for name, (samples, items) in contenders.items()}
    first = next(iter(figures.values()))
    for own in list(figures.values())[1:]:
        for ratio, figure in (
            ("ratio", "median_seconds"),
            ("ratio_of_minima", "min_seconds"),
            ("ratio_of_processor_time", "median_processor_seconds"),
        ):
            own[ratio] = _rounded(own[figure] / own["items"] / (first[figure] / first["items"]))
    return {"part": part, "what": what, "unit": unit, "figures": figures}


def compared(part: str, what: str, unit: str, contenders: Mapping[str, tuple[Clocked, int]], repeats: int) -> Row:
    """Measure contenders, a warm-up before, and return their row."""
    samples = take_turns({name: clocked for name, (clocked, _) in contenders.items()}, repeats)
    return row(part, what, unit, {name: (samples[name], items) for name, (_, items) in contenders.items()})


def require_same(ours: object, theirs: object, what: str) -> None:
    """Return when two contenders have come to the same result.

    Raises:
        BenchmarkFailed: they have not, so their times say nothing.
    """
    if ours != theirs:
        raise BenchmarkFailed(f"{what}: the contenders' results differ")


def _figures(samples: Samples, items: int) -> dict[str, Any]:
    seconds, used = [wall for wall, _ in samples], [processor for _, processor in samples]
    median = max(statistics.median(seconds), LEAST_SECONDS)
    return {
        "items": items,
        "seconds": [_rounded(value) for value in seconds],
        "median_seconds": _rounded(median),
        "min_seconds": _rounded(max(min(seconds), LEAST_SECONDS)),
        "median_processor_seconds": _rounded(max(statistics.median(used), LEAST_SECONDS)),
        "per_second": _rounded(items / median),
        "microseconds_each": _rounded(1e6 * median / items),
    }


def _rounded(value: float) -> float:
    """Return a figure to four digits, more than any of them is good for."""
    return float(f"{value:.4g}")
