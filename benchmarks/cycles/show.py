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
    names = ("cycles", "median s", "cycles/s", "full blocks", "processor s", "microseconds", "peak MiB", "Java MiB")
    for name in names:
        table.add_column(name, justify="right")
    for row in result["rows"]:
        full = row["cycles_per_second_of_full_blocks"]
        table.add_row(
            f"{EXECUTORS[row['executor']]}, {row['tasks']} task{'s' if row['tasks'] > 1 else ''}",
            row["proofs"],
            "in one block" if row["shape"] == "batch" else f"in {work['ticks']} blocks",
            f"{row['cycles']:,}",
            f"{row['median_seconds']:.2f}",
            f"{row['cycles_per_second']:,}",
            "" if full is None else f"{full:,}",
            f"{row['median_processor_seconds']:.2f}",
            f"{1e6 * row['median_processor_seconds'] / row['cycles']:.2f}",
            f"{row['peak_bytes'] // MIB:,}",
            f"{row['java_peak_bytes'] // MIB:,}" if row["java_peak_bytes"] else "",
        )
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


def _phases(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="Processor time of a cycle in process, microseconds", title_justify="left")
    table.add_column("")
    for row in rows:
        table.add_column(f"{row['proofs']}, {row['shape']}", justify="right")
    for phase in rows[0]["phases"]:
        table.add_row(phase, *(f"{row['phases'][phase]:.2f}" for row in rows))
    return table
