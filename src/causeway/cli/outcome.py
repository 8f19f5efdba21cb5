"""What came of a run: the object that ``--json`` prints, and the lines that a person reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from causeway.cli.memory import PeakMemory
from causeway.cli.watch import Watch
from causeway.model.text import readable
from causeway.network.carriers import CarrierSummary, carrier_summary
from causeway.network.failures import Failures, failures
from causeway.network.stopped import Stopped, stopped_chains
from causeway.protocols.registry import protocol

if TYPE_CHECKING:
    from causeway.network.network import Network


@dataclass(frozen=True)
class Outcome:
    """A run's figures; ``counts`` (``calls.COUNTS``) and ``lost_because`` (cause -> calls) are from the ledger,
    ``seconds``, ``processor_seconds`` (of all its processes) and ``routed`` from this command alone. ``finished``:
    nothing more would happen, however long it ran; ``stalled``: and yet messages are on their way. ``remark``:
    what the protocol says of the options.
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
    processor_seconds: float
    lake: str | None
    stalled: bool = False
    finished: bool = False
    lost_because: Mapping[str, int] = field(default_factory=dict)
    carriers: CarrierSummary = field(default_factory=CarrierSummary)
    failures: Failures = field(default_factory=Failures)
    stopped: tuple[Stopped, ...] = ()
    remark: str | None = None

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
            "stopped": len(self.stopped),
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
            "handler_failures": {"count": self.failures.count, "first": [asdict(each) for each in self.failures.first]},
            "stopped_chains": [asdict(each) for each in self.stopped],
            **self.carriers.content,
            "root": self.root,
            "seconds": round(self.seconds["run"], 3),
            "setup_seconds": round(self.seconds["setup"], 3),
            "summary_seconds": round(self.seconds["summary"], 3),
            "messages_per_second": round(self.messages_per_second, 1),
            "peak_memory_bytes": self.peak_memory_bytes,
            "processor_seconds": round(self.processor_seconds, 2),
            "lake": self.lake,
            "remark": self.remark,
            "finished": self.finished,
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
    memory: PeakMemory,
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
        peak_memory_bytes=memory.peak_bytes,
        processor_seconds=memory.processor_seconds,
        lake=lake or network.scenario.network.lake,
        stalled=finished(network) and summary["on_the_way"] > 0,
        finished=finished(network),
        lost_because=summary["lost_because"],
        carriers=carrier_summary(network.lake, network.manifest),
        failures=failures(network.lake, network.topology),
        stopped=stopped_chains(network.lake, network.manifest),
        remark=remark_on(about),
    )


def remark_on(about: Mapping[str, Any]) -> str | None:
    """Return what the protocol of a lake has to say about its options, None for nothing."""
    part = protocol(about["protocol"]).part("remark")
    found: str | None = None if part is None else part(about["scenario"]["options"])
    return found


def finished(network: Network) -> bool:
    """Return whether nothing more would happen in a network, however long it ran.

    Of one with chains that another lake runs this is never said: relay processes may always bring something.
    """
    return network.next_tick() is None and not network.has_external


COUNTS = {
    "sent": "calls made by programs",
    "delivered": "reached a queue of the program called",
    "answered": "answered with data",
    "rejected": "answered with a reject",
    "lost": "will never be answered",
    "pending": "not answered yet",
    "duplicates": "delivered or answered again",
    "out_of_order": "executed after a later call between the same two programs",
    "ingress_refused": "messages from users that were refused",
    "reverted_heights": "heights at which forks took blocks back",
    "reverted_messages": "messages between chains that were taken back with them",
}
"""The counts of a summary and what they mean."""

SELDOM = ("lost", "ingress_refused", "reverted_heights", "reverted_messages")
"""Counts that are shown where there is something to count."""

BROKEN = {
    "duplicates": "duplicates",
    "out_of_order": "calls out of order",
    "lost": "calls lost",
    "never": "calls with a message stuck in transit",
    "stopped": "chains stopped",
}
"""The guarantees that a run can break, as a verdict says it."""


def show(outcome: Outcome, console: Console) -> None:
    """Print the summary that a person reads."""
    console.print(
        f"[bold]{escape(outcome.scenario)}[/bold]: {outcome.chains:,} chains, protocol {outcome.protocol}, "
        f"{outcome.heights:,} heights, {outcome.ticks:,} ticks"
    )
    console.print(counts_table(outcome))
    console.print(f"{moved(outcome)} {besides(outcome)} Peak memory {size(outcome.peak_memory_bytes)}.")
    if outcome.remark is not None:
        console.print(escape(outcome.remark))
    for line in outcome.carriers.lines:
        console.print(escape(line))
    for each in outcome.stopped:
        stop = f"{each.chain} stopped at height {each.height:,}: it violated an invariant ({each.cause})."
        console.print(Text(readable(stop), style="red"), soft_wrap=True)
    for text in failed(outcome.failures):
        console.print(text, soft_wrap=True)
    if outcome.stalled:
        console.print(
            "The network stalled: some messages can never be delivered (a halted chain, a lane that nobody carries)."
        )
    console.print(f"Root {outcome.root}", soft_wrap=True)
    console.print(verdict(outcome))
    if outcome.lake is None:
        console.print("The lake was temporary; use --lake DIR to keep it.")
    else:
        console.print(f"Next: causeway state {escape(outcome.lake)}", soft_wrap=True)


def failed(found: Failures) -> list[Text]:
    """Return what is said of handlers that raised; nothing where none did."""
    if not found.count:
        return []
    which = "" if found.count == len(found.first) else f"; the first {len(found.first)}"
    lines = [
        Text(
            f"Handlers of programs raised {found.count:,} {'time' if found.count == 1 else 'times'}{which}:",
            style="yellow",
        )
    ]
    for each in found.first:
        where = f"{each.file}:{each.line}"
        what = f"  {each.program} on {each.chain}, tick {each.tick}: {each.handler}: {each.error} ({where})"
        lines.append(Text(readable(what)))
    return lines


def moved(outcome: Outcome) -> str:
    """Return how many messages went between chains, and how many of them in this run, which may be a resumed one."""
    total = outcome.counts["messages"]
    if not outcome.routed:
        return f"{total:,} messages between chains, none in this run."
    rate = f"in {outcome.seconds['run']:.1f} s, {outcome.messages_per_second:,.0f} per second"
    if outcome.routed == total + outcome.counts.get("reverted_messages", 0):
        return f"{total:,} messages between chains {rate}."
    return f"{total:,} messages between chains, {outcome.routed:,} in this run {rate}."


def besides(outcome: Outcome) -> str:
    """Return how long one waited for the first tick and, after the last, for the counts."""
    return f"Start {outcome.seconds['setup']:.1f} s, summary {outcome.seconds['summary']:.1f} s."


def counts_table(outcome: Outcome) -> Padding:
    """Return the counts as a table without lines."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    for name, meaning in COUNTS.items():
        count = outcome.counts.get(name, 0)
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
    return ", ".join(f"{count:,} {escape(cause) or 'without a stated reason'}" for cause, count in found)


def verdict(outcome: Outcome) -> str:
    """Return the sentence that says whether the guarantees hold."""
    counts = outcome.counts
    ended = counts["lost_with_program"]
    removed = f"; {ended:,} calls ended because the scenario removed one of their programs" if ended else ""
    if broken := outcome.broken:
        what = ", ".join(f"{count:,} {BROKEN[name]}" for name, count in broken.items())
        return f"[bold red]Guarantees broken[/bold red]: {what}{removed}."
    if not counts["pending"]:
        end = "all calls have completed"
    elif outcome.finished:
        end = f"{counts['pending']:,} calls are waiting for a program to answer"
    else:
        end = f"{counts['pending']:,} calls are still in progress"
    return f"[bold green]Guarantees hold[/bold green]: no duplicates, nothing out of order; {end}{removed}."


def size(count: float) -> str:
    """Return a number of bytes for people."""
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}"
        count /= 1024
    return f"{count:,.1f} GiB"
