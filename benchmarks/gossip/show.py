"""What gossip costs, as tables for people."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table


def gossip(result: dict[str, Any]) -> RenderableType:
    """Return what ``bench_gossip`` gave as tables."""
    return Group(_floods(result), _leaves(result), _parts(result))


def _floods(result: dict[str, Any]) -> Table:
    table = Table(title="Queues that reach all nodes (processor time)", title_justify="left")
    table.add_column("")
    for column in ("nodes", "queues", "seconds", "node-queues a second", "MiB at most"):
        table.add_column(column, justify="right")
    for row in result["floods"]:
        seconds = float(np.median(row["seconds"]))
        rate = row["nodes"] * row["queues"] / seconds
        memory = f"{row['peak_bytes'] / 2**20:,.0f}" if "peak_bytes" in row else ""
        table.add_row(
            row["engine"], f"{row['nodes']:,}", f"{row['queues']:,}", f"{seconds:.2f}", f"{rate:,.0f}", memory
        )
    return table


def _leaves(result: dict[str, Any]) -> Table:
    table = Table(title="A leaf that lists so many queues (milliseconds of the processor)", title_justify="left")
    names = ("nodes", "queues", "update of leaves", "1,000 expected queues", "1,000 unexpected")
    for column in names:
        table.add_column(column, justify="right")
    for row in result["leaves"]:
        times = [f"{row[name]:.1f}" for name in ("update", "expected", "unexpected")]
        table.add_row(f"{row['nodes']:,}", f"{row['queues']:,}", *times)
    return table


def _parts(result: dict[str, Any]) -> Table:
    table = Table(title="Where the time of the largest flood goes", title_justify="left")
    table.add_column("")
    table.add_column("share", justify="right")
    for row in result["parts"]:
        table.add_row(row["function"], f"{100 * row['share']:.0f} %")
    return table
