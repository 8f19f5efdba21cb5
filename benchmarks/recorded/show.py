"""What the command took on recorded traffic, as tables for people."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

MIB = 2**20

RATIOS = {
    "seconds": "all",
    "processor_seconds": "processor time",
    "start": "start",
    "ticks": "ticks",
    "ticks_processor": "processor time of ticks",
    "summary": "summary",
    "files": "files",
    "bytes": "bytes",
}


def recorded(result: dict[str, Any]) -> RenderableType:
    """Return what ``bench_recorded`` gave as tables."""
    executor = "in process" if result["executor"] == "in_process" else "on Spark"
    title = f"causeway run on {result['recording']}, {executor}; seconds, in brackets of the processor"
    table = Table(title=title, title_justify="left")
    for name in ("", "", ""):
        table.add_column(name)
    for name in ("all", "genesis", "start", "ticks", "summary", "heights", "commits", "files", "MiB", "memory MiB"):
        table.add_column(name, justify="right")
    notes: list[Text] = []
    for protocol, found in result["protocols"].items():
        for name, contestant in found["contestants"].items():
            for run in contestant["runs"]:
                table.add_row(protocol, name, run["kind"], *_row(run))
        plain = found["plain"]
        table.add_row(protocol, "plain Python", "", f"{plain['seconds']:.2f} ({plain['processor_seconds']:.2f})")
        table.add_section()
        notes += [Text(line, style="dim") for line in _notes(protocol, found)]
    return Group(table, _growth(result), *notes)


def _row(run: dict[str, Any]) -> list[str]:
    phases = [f"{run['phases'][name]:.1f} ({run['phases_processor'][name]:.1f})" for name in run["phases"]]
    return [
        f"{run['seconds']:.1f} ({run['processor_seconds']:.1f})",
        f"{run['genesis_seconds']:.1f}",
        *phases,
        f"{run['heights']:,}",
        f"{run['commits']:,}",
        f"{run['files']:,}",
        f"{run['bytes'] / MIB:,.1f}",
        f"{run['peak_bytes'] // MIB:,}",
    ]


def _growth(result: dict[str, Any]) -> Table:
    table = Table(title="Milliseconds a tick, in brackets of the processor", title_justify="left")
    for name in ("", "", ""):
        table.add_column(name)
    for name in ("beginning", "middle", "end"):
        table.add_column(name, justify="right")
    for protocol, found in result["protocols"].items():
        for name, contestant in found["contestants"].items():
            for run in contestant["runs"]:
                took, used = run["milliseconds_a_tick"], run["processor_milliseconds_a_tick"]
                shown = ["too few commits"] * 3
                if took is not None:
                    shown = [f"{took[part]:.1f} ({used[part]:.1f})" for part in took]
                table.add_row(protocol, name, run["kind"], *shown)
        table.add_row(protocol, "messages a tick", "", *(f"{value:.0f}" for value in found["messages_a_tick"].values()))
        table.add_section()
    return table


def _notes(protocol: str, found: dict[str, Any]) -> list[str]:
    plain = found["plain"]
    names = list(found["contestants"])
    lines = [
        f"{protocol}: {plain['sent']:,} packets; {names[0]} takes {plain['ratio']} times as long as plain Python "
        f"(processor time: {plain['ratio_of_processor_time']}), which has no proofs and no lake"
    ]
    for name in names:
        first = max(run["first_height"] for run in found["contestants"][name]["runs"])
        if first > 1:
            lines.append(f"{protocol}: {name}: start includes the {first:,} heights of the first commit")
    for name in names[1:]:
        other = found["contestants"][name]
        compared = ", ".join(f"{meaning} {other['ratios'][key]:.2f}" for key, meaning in RATIOS.items())
        root = "the same root" if other["same_root"] else "ANOTHER ROOT"
        lines.append(f"{protocol}: {name} by {names[0]}: {compared}; {root}")
    return lines
