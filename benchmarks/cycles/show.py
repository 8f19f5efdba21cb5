"""What cycles cost, as tables for people."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

MIB = 2**20
EXECUTORS = {"in_process": "in process", "spark": "Spark"}


def cycles(result: dict[str, Any]) -> RenderableType:
    """Return what ``bench_cycles`` gave as tables."""
    work = result["workload"]
    title = f"Cycles of {work['zones']} zones, {work['messages']:,} calls a block, {work['payload_bytes']}-byte bodies"
    table = Table(title=title, title_justify="left")
    for name in ("", "proofs", "calls"):
        table.add_column(name)
    for name in headings("cycles"):
        table.add_column(name, justify="right")
    for row in result["rows"]:
        calls = "in one block" if row["shape"] == "batch" else f"in {work['ticks']} blocks"
        table.add_row(executor(row), row["proofs"], calls, *figures(row, "cycles", 2))
    shown: list[RenderableType] = [table]
    measured = [row for row in result["rows"] if row["phases"] is not None]
    if measured:
        shown.append(_phases(measured))
    plain = result["plain"]
    if plain is not None:
        text = f"{plain['cycles']:,} cycles of two zones, single proofs: {plain['causeway_microseconds']} microseconds"
        text += f" of the processor each; plain Python, one by one, {plain['plain_microseconds']}: "
        shown.append(Text(f"{text}{plain['ratio_of_processor_time']} times as long", style="dim"))
    return Group(*shown)


def figures(row: dict[str, Any], word: str, digits: int) -> list[str]:
    """Return the cells of a row: what it took; what of it a call, called ``word``, took, to so many ``digits``."""
    full = row[f"{word}_per_second_of_full_blocks"]
    return [
        f"{row[word]:,}",
        f"{row['median_seconds']:.2f}",
        f"{row[f'{word}_per_second']:,}",
        "" if full is None else f"{full:,}",
        f"{row['median_processor_seconds']:.2f}",
        f"{1e6 * row['median_processor_seconds'] / row[word]:.{digits}f}",
        f"{row['peak_bytes'] // MIB:,}",
        f"{row['java_peak_bytes'] // MIB:,}" if row["java_peak_bytes"] else "",
    ]


def headings(word: str) -> tuple[str, ...]:
    """Return what stands above the cells of ``figures``."""
    times = (word, "median s", f"{word}/s", "full blocks", "processor s", "microseconds")
    return *times, "peak MiB", "Java MiB"


def executor(row: dict[str, Any]) -> str:
    """Return the cell that says who ran the blocks of a row."""
    return f"{EXECUTORS[row['executor']]}, {row['tasks']} task{'s' if row['tasks'] > 1 else ''}"


def _phases(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="Processor time of a cycle in process, microseconds", title_justify="left")
    table.add_column("")
    for row in rows:
        table.add_column(f"{row['proofs']}, {row['shape']}", justify="right")
    for phase in rows[0]["phases"]:
        table.add_row(phase, *(f"{row['phases'][phase]:.2f}" for row in rows))
    return table
