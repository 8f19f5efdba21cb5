"""What came of a run: the object that ``--json`` prints, and the lines that a person reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from causeway.cli.watch import Watch
from causeway.network.carriers import CarrierSummary, carrier_summary

if TYPE_CHECKING:
    from causeway.network.network import Network


@dataclass(frozen=True)
class Outcome:
    """A run's figures; ``counts`` (``calls.COUNTS``) and ``lost_because`` (cause -> calls) are from the ledger,
    ``seconds`` and ``routed`` from this command alone. ``finished``: nothing more would happen, however long it ran.
    """

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
    finished: bool = False
    lost_because: Mapping[str, int] = field(default_factory=dict)
    carriers: CarrierSummary = field(default_factory=CarrierSummary)

    @property
    def broken(self) -> dict[str, int]:
        """Return the guarantees that are broken (keys of ``BROKEN``), with how often.

        A reject is an answer. A call that waits for the program called to answer is that program's affair, and a call
        that ended with one of its two programs, which the scenario removed, is the scenario's.
        """
        counts = self.counts
        found = {
            "duplicates": counts["duplicates"],
            "out_of_order": counts["out_of_order"],
            "lost": counts["lost"] - counts["lost_with_program"],
            "never": counts["on_the_way"] if self.finished else 0,
        }
        return {name: count for name, count in found.items() if count}

    @property
    def holds(self) -> bool:
        """Return whether no guarantee is broken."""
        return not self.broken

    @property
    def messages_per_second(self) -> float:
        """Return how many messages a second this command moved between chains."""
        return self.routed / self.seconds["run"] if self.seconds["run"] > 0 else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints."""
        return {
            "scenario": self.scenario,
            "protocol": self.protocol,
            "chains": self.chains,
            "ticks": self.ticks,
            "heights": self.heights,
            **self.counts,
            "lost_because": dict(self.lost_because),
            **self.carriers.content,
            "root": self.root,
            "seconds": round(self.seconds["run"], 3),
            "setup_seconds": round(self.seconds["setup"], 3),
            "summary_seconds": round(self.seconds["summary"], 3),
            "messages_per_second": round(self.messages_per_second, 1),
            "peak_memory_bytes": self.peak_memory_bytes,
            "lake": self.lake,
            "stalled": self.stalled,
            "holds": self.holds,
        }


def outcome_of(
    network: Network,
    scenario: str,
    lake: str | None,
    watch: Watch,
    summary: Mapping[str, Any],
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
        counts={name: count for name, count in summary.items() if name != "lost_because"},
        root=root,
        seconds=seconds,
        routed=watch.messages,
        peak_memory_bytes=peak_memory_bytes,
        lake=lake or network.scenario.network.lake,
        stalled=network.stalled,
        finished=(network.stalled or network.next_tick() is None) and not network.has_external,
        lost_because=summary["lost_because"],
        carriers=carrier_summary(network.lake, network.manifest),
    )


COUNTS = {
    "sent": "calls that programs made",
    "delivered": "came into a queue of the program called",
    "answered": "came back with data",
    "rejected": "came back with a reject",
    "lost": "will never come back",
    "pending": "still open",
    "duplicates": "delivered or answered twice",
    "out_of_order": "executed after a later call of the same pair",
    "ingress_refused": "messages from users that were turned away",
}
"""The counts of a summary and what they mean."""

SELDOM = ("lost", "ingress_refused")
"""Counts that are shown where there is something to count."""

BROKEN = {
    "duplicates": "came twice",
    "out_of_order": "out of order",
    "lost": "lost",
    "never": "with a message under way that nothing will ever move",
}
"""The guarantees that a run can break, as a verdict says it."""


def show(outcome: Outcome, console: Console) -> None:
    """Print the summary that a person reads."""
    console.print(
        f"[bold]{escape(outcome.scenario)}[/bold]: {outcome.chains:,} chains, protocol {outcome.protocol}, "
        f"{outcome.heights:,} heights, {outcome.ticks:,} ticks"
    )
    console.print(counts_table(outcome))
    rate = f"in {outcome.seconds['run']:.1f} s: {outcome.messages_per_second:,.0f} a second"
    moved = f"{outcome.routed:,} of them now, {rate}" if outcome.routed else "none of them now"
    console.print(
        f"{outcome.counts['messages']:,} messages between chains, {moved}. "
        f"Peak memory {size(outcome.peak_memory_bytes)}."
    )
    for line in outcome.carriers.lines:
        console.print(escape(line))
    if outcome.stalled:
        console.print(
            "The network stalled: messages are left that nothing will ever move (a halted chain, a cut line)."
        )
    console.print(f"Root {outcome.root}", soft_wrap=True)
    console.print(verdict(outcome))
    if outcome.lake is None:
        console.print("The lake was temporary; --lake DIR keeps one.")
    else:
        console.print(f"Next: causeway state {escape(outcome.lake)}", soft_wrap=True)


def counts_table(outcome: Outcome) -> Padding:
    """Return the counts as a table without lines."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    for name, meaning in COUNTS.items():
        count = outcome.counts[name]
        if name in SELDOM and not count:
            continue
        if name == "lost":
            meaning = f"{meaning}: {causes(outcome)}"
        style = "bold red" if name in outcome.broken else None
        table.add_row(name.replace("_", " "), f"{count:,}", meaning, style=style)
    return indented(table)


def indented(table: Table) -> Padding:
    """Return a table two columns to the right."""
    return Padding.indent(table, 2)


def causes(outcome: Outcome) -> str:
    """Return why calls were lost, the most frequent cause first."""
    found = sorted(outcome.lost_because.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} {escape(cause) or 'for no reason given'}" for cause, count in found)


def verdict(outcome: Outcome) -> str:
    """Return the sentence that says whether the guarantees hold."""
    counts = outcome.counts
    ended = counts["lost_with_program"]
    removed = f"; {ended:,} calls ended with a program that the scenario removed" if ended else ""
    if broken := outcome.broken:
        what = ", ".join(f"{count:,} {BROKEN[name]}" for name, count in broken.items())
        return f"[bold red]Broken[/bold red]: of the calls, {what}{removed}."
    if not counts["pending"]:
        end = "every call has ended"
    elif outcome.finished:
        end = f"{counts['pending']:,} calls wait for a program to answer"
    else:
        end = f"{counts['pending']:,} calls are still under way"
    return f"[bold green]Holds[/bold green]: nothing came twice, nothing out of order; {end}{removed}."


def size(count: float) -> str:
    """Return a number of bytes for people."""
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}"
        count /= 1024
    return f"{count:,.1f} GiB"
