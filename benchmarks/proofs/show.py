"""What proofs cost, as tables for people."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

MIB = 2**20


def proofs(result: dict[str, Any]) -> RenderableType:
    """Return what ``bench_proofs`` gave as one table a family."""
    shown: list[RenderableType] = [_family(family) for family in result["families"]]
    if result["others_left_out"] is not None:
        shown.append(Text(f"Other people's verifiers are left out: {result['others_left_out']}", style="dim"))
    return Group(*shown)


def _family(family: dict[str, Any]) -> RenderableType:
    title = f"{family['family']} ({family['seconds']:.0f} s, peak {family['peak_bytes'] // MIB:,} MiB)"
    table = Table(title=title, title_justify="left")
    for name in ("", "what", "by", "items", "median ms", "microseconds", "processor", "a second", "times ours"):
        table.add_column(name, justify="left" if name in ("", "what", "by") else "right")
    part = None
    for row in family["rows"]:
        if part not in (None, row["part"]):
            table.add_section()
        for number, (name, figures) in enumerate(row["figures"].items()):
            ratio = figures.get("ratio")
            table.add_row(
                row["part"] if row["part"] != part else "",
                row["what"] if not number else "",
                name,
                f"{figures['items']:,}",
                f"{1000 * figures['median_seconds']:,.2f}",
                short(figures["microseconds_each"]),
                short(1e6 * figures["median_processor_seconds"] / figures["items"]),
                short(figures["per_second"]),
                "" if ratio is None else short(ratio),
            )
            part = row["part"]
    return table


def short(value: float) -> str:
    """Return a number with three figures that count, without an exponent."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 0.001 else f"{value:.4f}"
