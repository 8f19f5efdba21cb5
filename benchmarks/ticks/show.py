"""What small ticks cost, as a table for people."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType
from rich.table import Table

MIB = 2**20


def ticks(result: dict[str, Any]) -> RenderableType:
    """Return what ``bench_ticks`` gave as a table."""
    title = f"A tick with {result['workload']['messages']:,} messages, amortised over {result['ticks']:,}; milliseconds"
    table = Table(title=title, title_justify="left")
    for name in ("", "", ""):
        table.add_column(name)
    for name in ("median", "least", "of the processor", "memory MiB", "times ours", "processor time"):
        table.add_column(name, justify="right")
    for row in result["rows"]:
        table.add_row(
            f"{row['protocol']}, {row['certification']}" if "certification" in row else row["protocol"],
            "in process" if row["executor"] == "in_process" else "Spark",
            row["name"],
            *(f"{row[key]:.1f}" for key in ("median_ms", "least_ms", "processor_ms")),
            f"{row['peak_bytes'] // MIB:,}",
            *(f"{row[key]:.2f}" if key in row else "" for key in ("ratio_median_ms", "ratio_processor_ms")),
        )
    return table
