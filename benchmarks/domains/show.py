"""What messages with their responses cost, as tables for people."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from benchmarks.cycles.show import executor, figures, headings

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
    for column in ("channels", "other entries", *headings("messages")):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(executor(row), f"{row['channels']:,}", f"{row['others']:,}", *figures(row, "messages", 1))
    return table


def _phases(row: dict[str, Any]) -> Table:
    table = Table(title="Processor time of a message with its response, in process", title_justify="left")
    for column in ("", "microseconds", "share"):
        table.add_column(column, justify="left" if not column else "right")
    total = sum(row["phases"].values())
    for phase, value in row["phases"].items():
        table.add_row(phase, f"{value:.2f}", f"{value / max(total, 1e-9):.0%}")
    return table
