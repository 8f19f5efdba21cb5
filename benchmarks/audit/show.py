"""What audits took, as tables for people."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

MIB = 2**20

_WRITTEN = {
    "ledger": "written as a ledger",
    "arrived": "written as they arrive",
    "taken": "taken from there by causeway ingest",
}


def audit(result: dict[str, Any]) -> RenderableType:
    """Return what ``bench_audit`` gave as tables."""
    title = f"An audit of {result['rows']:,} rows in {result['lanes']:,} lanes, {result['cores']} cores"
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name in (
        "s",
        "least",
        "cold",
        "M rows/s",
        "processor s",
        "M rows/processor s",
        "peak MiB",
        "Java",
        "times ours",
    ):
        table.add_column(name, justify="right")
    for name, own in result["contestants"].items():
        table.add_row(
            name,
            f"{own['seconds']:.2f}",
            f"{own['least_seconds']:.2f}",
            "" if own["cold_seconds"] is None else f"{own['cold_seconds']:.2f}",
            f"{own['rows_per_second'] / 1e6:.2f}",
            f"{own['processor_seconds']:.2f}",
            f"{own['rows_per_processor_second'] / 1e6:.2f}",
            f"{own['peak_bytes'] // MIB:,}",
            f"{own['java_bytes'] // MIB:,}" if own["java_bytes"] else "",
            f"{own['ratio']:.1f} ({own['ratio_of_processor_time']:.1f})",
        )
    for name, why in result["not_done"].items():
        table.add_row(name, why)
    planted = sum(sum(numbers) for numbers in result["planted"].values())
    found = f"every one that was done found the {planted} planted findings and no others, and the same sums"
    notes = [Text(found, style="dim")]
    return Group(table, _files(result["written"]), *notes)


def _files(written: dict[str, Any]) -> Table:
    table = Table(title="The files", title_justify="left")
    table.add_column("")
    for name in ("rows", "MiB", "s", "M rows/s", "processor s", "peak MiB"):
        table.add_column(name, justify="right")
    for name, own in written.items():
        took = ["there before", "", "", ""]
        if "seconds" in own:
            took = [f"{own['seconds']:.1f}", f"{own['rows'] / own['seconds'] / 1e6:.2f}",
                    f"{own['processor_seconds']:.1f}", f"{own['peak_bytes'] // MIB:,}"]  # fmt: skip
        size = f"{own['bytes'] // MIB:,}" if "bytes" in own else ""
        table.add_row(_WRITTEN[name], f"{own['rows']:,}", size, *took)
    return table


def nomad(result: dict[str, Any]) -> RenderableType:
    """Return what ``bench_nomad`` gave as a table."""
    title = f"{result['copies']} copies of {result['recording']}, {result['rows']:,} rows: CSV to findings"
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name in ("s", "least", "ingest", "audit", "processor s", "times ours"):
        table.add_column(name, justify="right")
    for name, own in result["contestants"].items():
        table.add_row(
            name,
            *(f"{own[key]:.2f}" for key in ("seconds", "least_seconds")),
            *("" if own[key] is None else f"{own[key]:.2f}" for key in ("ingest_seconds", "audit_seconds")),
            f"{own['processor_seconds']:.2f}",
            f"{own['ratio']:.1f} ({own['ratio_of_processor_time']:.1f})",
        )
    return table
