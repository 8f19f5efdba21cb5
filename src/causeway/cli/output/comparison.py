"""A comparison on a terminal; 80 columns fit four protocols."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from causeway.cli.output.audit import VERDICT_COLORS, color_verdict
from causeway.compare.table import (
    MEASURED,
    ComparisonRow,
    comparison_rows,
    format_cell,
    group_rows_by_title,
    guarantee_rows,
)
from causeway.core.text import to_one_line

STYLES = {"yes": "green", "partly": "yellow", "no": "red", **VERDICT_COLORS}
"""The styles of words."""

LABEL_WIDTH = 26
"""Width of the labels of rows."""

WIDE_COLUMNS = 150
"""Least terminal width for the mechanisms of guarantees."""


def show_comparison(found: Mapping[str, Any], console: Console) -> None:
    """Print a comparison.

    Args:
        found: JSON of ``Comparison.as_json``.
        console: the console.
    """
    traffic = found["traffic"]
    console.print(
        f"[bold]{escape(found['scenario'])}[/bold]: {_messages(traffic)} under "
        f"{len(found['protocols'])} protocols; a tick is {found['seconds_per_tick']:g} s"
    )
    if traffic["digest"] is not None:
        console.print(f"All took in the same: digest {traffic['digest'][:32]}...")
    for name, column in found["columns"].items():
        if column["failed"] is not None:
            console.print(Text(to_one_line(f"{name} failed: {column['failed']}"), style="red"), soft_wrap=True)
        elif column["note"]:
            console.print(Text(to_one_line(f"{name} {column['note']}")), soft_wrap=True)
    if any(column["failed"] is None for column in found["columns"].values()):
        console.print(_figures(found))
    _show_guarantees(found, console)
    if found["faults"] is not None:
        _show_faults(found["faults"], console)
    console.print(_verdict(found))


def _messages(traffic: Mapping[str, Any]) -> str:
    return "no run ended" if traffic["digest"] is None else f"{traffic['messages']:,} messages of users"


def _table(names: list[str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=True)
    table.add_column("", width=LABEL_WIDTH, overflow="fold")
    for name in names:
        table.add_column(name, justify="right", overflow="fold")
    return table


def _figures(found: Mapping[str, Any]) -> Table:
    names = found["protocols"]
    table = _table(names)
    failed = {name: found["columns"][name]["failed"] is not None for name in names}
    if any(failed.values()):
        cells = (Text("failed", style="bold red") if failed[name] else Text("done") for name in names)
        table.add_row(Text("Run", style="bold"), *cells)
    for group, rows in group_rows_by_title(comparison_rows(found)):
        style = "bold" if group != MEASURED else "bold italic"
        table.add_row(Text(group[0].upper() + group[1:], style=style))
        for row in rows:
            table.add_row(Text("  " + row.what), *(_cell(row, name) for name in names))
    return table


def _cell(row: ComparisonRow, name: str) -> Text:
    text = format_cell(row.values.get(name), row.unit)
    return Text(to_one_line(text), style=STYLES.get(text, ""))


def _show_guarantees(found: Mapping[str, Any], console: Console) -> None:
    wide = console.width >= WIDE_COLUMNS
    for name, rows in guarantee_rows(found).items():
        console.print(f"\n[bold]Guarantees of {escape(name)}[/bold], with reference sections and audit checks")
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for head in ("", "holds", *(["how"] if wide else []), "reference", "check", "in this run"):
            table.add_column(head, overflow="fold", min_width=LABEL_WIDTH if not head else None)
        for row in rows:
            verdict = row.verdict or "-"
            table.add_row(
                Text(row.what),
                Text(row.holds, style=STYLES[row.holds]),
                *([Text(to_one_line(row.how))] if wide else []),
                Text(to_one_line(row.reference), style="dim"),
                Text("-" if row.check is None else to_one_line(row.check).replace("_", " ")),
                Text(to_one_line(verdict), style=STYLES.get(verdict, "")),
            )
        console.print(table)


def _show_faults(faults: Mapping[str, Any], console: Console) -> None:
    between = faults["between"]
    where = f" between {escape(to_one_line(between[0]))} and {escape(to_one_line(between[1]))}" if between else ""
    on = "a small network" if faults["scenario"] == "sample" else "this scenario"
    console.print(f"\n[bold]What faults do[/bold], each alone, on {on}{where}")
    for name, what in faults["tries"].items():
        console.print(f"[bold]{name}[/bold]: {what}")
        for protocol, found in faults["found"].items():
            text = Text(f"{protocol:5} ", style="bold").append(to_one_line(found[name]["text"]), style="not bold")
            console.print(Padding.indent(text, 2))


def _verdict(found: Mapping[str, Any]) -> str:
    columns = found["columns"]
    failed = [name for name, column in columns.items() if column["failed"] is not None]
    ran = {name: column for name, column in columns.items() if name not in failed}
    lines = [f"[bold red]Failed[/bold red]: {', '.join(failed)}."] if failed else []
    lines += [f"{name}: {color_verdict(one['audit']['sentence'])}" for name, one in ran.items()]
    return "\n" + "\n".join(lines)
