"""What came of a run: the object that ``--json`` prints, and the lines that a person reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from causeway.cli.watch import Watch

if TYPE_CHECKING:
    from causeway.network.network import Network


@dataclass(frozen=True)
class Outcome:
    """A run's figures; ``counts`` are from the ledger, ``seconds`` and ``routed`` from this command alone."""

    scenario: str
    protocol: str
    chains: int
    ticks: int
    heights: int
    counts: Mapping[str, int]
    root: str
    seconds: Mapping[str, float]
    routed: int
    peak_memory_bytes: int
    lake: str | None
    stalled: bool = False

    @property
    def holds(self) -> bool:
        """Return whether no guarantee is broken: nothing was delivered or concluded twice, nothing out of order."""
        return self.counts["duplicates"] == 0 and self.counts["out_of_order"] == 0

    @property
    def messages_per_second(self) -> float:
        """Return how many messages a second this command moved between chains."""
        return self.routed / self.seconds["run"] if self.seconds["run"] > 0 else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints."""
        names = (
            "sent",
            "delivered",
            "answered",
            "rejected",
            "pending",
            "lost",
            "duplicates",
            "out_of_order",
            "messages",
        )
        return {
            "scenario": self.scenario,
            "protocol": self.protocol,
            "chains": self.chains,
            "ticks": self.ticks,
            "heights": self.heights,
            **{name: self.counts[name] for name in names},
            "root": self.root,
            "seconds": round(self.seconds["run"], 3),
            "setup_seconds": round(self.seconds["setup"], 3),
            "summary_seconds": round(self.seconds["summary"], 3),
            "messages_per_second": round(self.messages_per_second, 1),
            "peak_memory_bytes": self.peak_memory_bytes,
            "lake": self.lake,
            "stalled": self.stalled,
        }


def outcome_of(
    network: Network,
    scenario: str,
    lake: str | None,
    watch: Watch,
    summary: Mapping[str, int],
    root: str,
    seconds: Mapping[str, float],
    peak_memory_bytes: int,
) -> Outcome:
    """Return the figures of a network that has run."""
    about = network.lake.about()
    return Outcome(
        scenario=scenario,
        protocol=about["protocol"],
        chains=len(about["chains"]),
        ticks=network.tick + 1 if network.height else 0,
        heights=network.height,
        counts=summary,
        root=root,
        seconds=seconds,
        routed=watch.messages,
        peak_memory_bytes=peak_memory_bytes,
        lake=lake or network.scenario.network.lake,
        stalled=network.stalled,
    )


COUNTS = {
    "sent": "calls that programs made",
    "delivered": "reached the program called",
    "answered": "came back with data",
    "rejected": "came back with a reject",
    "lost": "ended without an answer, as the protocol allows",
    "pending": "still under way",
    "duplicates": "delivered or answered twice",
    "out_of_order": "delivered after a later call of the same pair",
}
"""The counts of a summary and what they mean."""


def show(outcome: Outcome, console: Console) -> None:
    """Print the summary that a person reads."""
    console.print(
        f"[bold]{outcome.scenario}[/bold]: {outcome.chains:,} chains, protocol {outcome.protocol}, "
        f"{outcome.heights:,} heights, {outcome.ticks:,} ticks"
    )
    console.print(counts_table(outcome.counts))
    rate = f"in {outcome.seconds['run']:.1f} s: {outcome.messages_per_second:,.0f} a second"
    moved = f"{outcome.routed:,} of them now, {rate}" if outcome.routed else "none of them now"
    console.print(
        f"{outcome.counts['messages']:,} messages between chains, {moved}. "
        f"Peak memory {size(outcome.peak_memory_bytes)}."
    )
    if outcome.stalled:
        console.print(
            "The network stalled: messages are left that nothing will ever move (a halted chain, a cut line)."
        )
    console.print(f"Root {outcome.root}", soft_wrap=True)
    console.print(verdict(outcome.counts))
    if outcome.lake is None:
        console.print("The lake was temporary; --lake DIR keeps one.")
    else:
        console.print(f"Next: causeway state {outcome.lake}", soft_wrap=True)


def counts_table(counts: Mapping[str, int]) -> Padding:
    """Return the counts as a table without lines."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    for name, meaning in COUNTS.items():
        if name == "lost" and not counts[name]:
            continue
        bad = name in ("duplicates", "out_of_order") and counts[name] > 0
        table.add_row(name.replace("_", " "), f"{counts[name]:,}", meaning, style="bold red" if bad else None)
    return indented(table)


def indented(table: Table) -> Padding:
    """Return a table two columns to the right."""
    return Padding.indent(table, 2)


def verdict(counts: Mapping[str, int]) -> str:
    """Return the sentence that says whether the guarantees hold."""
    if counts["duplicates"] or counts["out_of_order"]:
        return (
            f"[bold red]Broken[/bold red]: {counts['duplicates']:,} messages came twice, "
            f"{counts['out_of_order']:,} out of order."
        )
    end = "every call has ended" if not counts["pending"] else f"{counts['pending']:,} calls are still under way"
    return f"[bold green]Holds[/bold green]: nothing came twice, nothing out of order; {end}."


def size(count: float) -> str:
    """Return a number of bytes for people."""
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}"
        count /= 1024
    return f"{count:,.1f} GiB"
