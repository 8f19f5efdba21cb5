"""What messages with their responses cost, as tables for people."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from benchmarks.cycles.show import EXECUTORS, MIB

TITLES = {
    "load": "Messages with their responses, every proof checked",
    "channels": "The same traffic over few and many channels (max_future_nonces is no limit)",
    "keys": "Two domains, whose storage has other entries, too",
}


def domains(result: dict[str, Any]) -> RenderableType:
    """Return what ``bench_domains`` gave as tables."""
    work = result["workload"]
    shown: list[RenderableType] = [_section(name, result[name], work) for name in TITLES if name in result]
    shown += [_phases(row) for row in result.get("load", []) if row["phases"] is not None]
    return Group(*shown)


def _section(name: str, rows: list[dict[str, Any]], work: dict[str, Any]) -> Table:
    title = f"{TITLES[name]}: {work['messages']:,} calls in each of {work['ticks']} blocks"
    table = Table(title=title, title_justify="left")
    table.add_column("")
    names = ("channels", "other entries", "messages", "median s", "messages/s", "full blocks", "processor s")
    for column in (*names, "microseconds", "peak MiB", "Java MiB"):
        table.add_column(column, justify="right")
    for row in rows:
        full = row["messages_per_second_of_full_blocks"]
        table.add_row(
            f"{EXECUTORS[row['executor']]}, {row['tasks']} task{'s' if row['tasks'] > 1 else ''}",
            f"{row['channels']:,}",
            f"{row['others']:,}",
            f"{row['messages']:,}",
            f"{row['median_seconds']:.2f}",
            f"{row['messages_per_second']:,}",
            "" if full is None else f"{full:,}",
            f"{row['median_processor_seconds']:.2f}",
            f"{1e6 * row['median_processor_seconds'] / row['messages']:.1f}",
            f"{row['peak_bytes'] // MIB:,}",
            f"{row['java_peak_bytes'] // MIB:,}" if row["java_peak_bytes"] else "",
        )
    return table


def _phases(row: dict[str, Any]) -> Table:
    table = Table(title="Processor time of a message with its response, in process", title_justify="left")
    for column in ("", "microseconds", "share"):
        table.add_column(column, justify="left" if not column else "right")
    total = sum(row["phases"].values())
    for phase, value in row["phases"].items():
        table.add_row(phase, f"{value:.2f}", f"{value / max(total, 1e-9):.0%}")
    return table
