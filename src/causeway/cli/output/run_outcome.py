"""The result of a run: its JSON object, and its summary on a terminal."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from causeway.cli import shell
from causeway.cli.output.progress import RunProgress
from causeway.cli.peak_memory import PeakMemory
from causeway.core.text import count_noun, escape_controls, to_one_line
from causeway.network import run_records
from causeway.protocols.registry import find_protocol

if TYPE_CHECKING:
    from causeway.analysis.run_summary import RunSummary
    from causeway.network.network import LakeNetwork


@dataclass(frozen=True)
class RunFigures:
    """The figures of a run.

    ``summary``: from its ledger. ``seconds``, ``processor_seconds`` (of all processes) and ``routed`` (messages between
    chains): of this command only. ``whole``: this command ran all ticks. ``finished``: nothing is left to do.
    ``remark``: the
    protocol's note on the options.
    """

    scenario: str
    protocol: str
    chains: int
    ticks: int
    heights: int
    summary: RunSummary
    root: str
    seconds: Mapping[str, float]
    routed: int
    peak_memory_bytes: int
    processor_seconds: float
    lake: str | None
    whole: bool = True
    finished: bool = False
    carriers: run_records.CarrierSummary = field(default_factory=run_records.CarrierSummary)
    failures: run_records.HandlerFailures = field(default_factory=run_records.HandlerFailures)
    stopped: tuple[run_records.StoppedChain, ...] = ()
    remark: str | None = None

    @property
    def stalled(self) -> bool:
        """Return True if nothing is left to do, but messages are in flight."""
        return self.finished and self.summary.in_flight > 0

    @property
    def exit_code(self) -> int:
        """Return the exit code of the verdict; a run without anything to audit succeeds."""
        verdict = self.summary.verdict
        return shell.OK if verdict == "NOT APPLICABLE" else shell.exit_code(verdict)

    @property
    def messages_per_second(self) -> float:
        """Return the rate of messages between chains of this command."""
        return self.routed / self.seconds["run"] if self.seconds["run"] > 0 else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the object of ``--json``."""
        return {
            "scenario": self.scenario,
            "protocol": self.protocol,
            "chains": self.chains,
            "ticks": self.ticks,
            "heights": self.heights,
            **self.summary.plain(),
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
        }


def measure_run(
    network: LakeNetwork,
    scenario: str,
    lake: str | None,
    watch: RunProgress,
    summary: RunSummary,
    root: str,
    seconds: Mapping[str, float],
    memory: PeakMemory,
) -> RunFigures:
    """Build the figures of a finished network.

    Args:
        network: the network.
        scenario: the scenario file.
        lake: folder or URI of the lake, or None.
        watch: its progress.
        summary: the summary of its ledger.
        root: its root.
        seconds: durations by step.
        memory: the sampled memory.

    Returns:
        The figures.
    """
    about = network.lake.about()
    return RunFigures(
        scenario=scenario,
        protocol=about["protocol"],
        chains=len(about["chains"]),
        ticks=network.tick + 1 if network.height else 0,
        heights=network.height,
        summary=summary,
        root=root,
        seconds=seconds,
        routed=watch.messages,
        peak_memory_bytes=memory.peak_bytes,
        processor_seconds=memory.processor_seconds,
        lake=lake or network.scenario.network.lake,
        whole=watch.messages == network.manifest.totals.get("outbound", 0),
        finished=network.is_finished,
        carriers=run_records.carrier_summary(network.lake, network.manifest),
        failures=run_records.read_failures(network.lake, network.topology),
        stopped=run_records.stopped_chains(network.lake, network.manifest),
        remark=find_protocol(about["protocol"]).load_semantics().remark(about["scenario"]["options"]),
    )


COUNTS = {
    "sent": "calls made by programs",
    "received": "reached a queue of the program called",
    "answered": "answered with data",
    "delivered": "delivered; their lanes promise no answer",
    "rejected": "answered with a reject",
    "failed": "failed to execute",
    "refunded": "came back with their value",
    "timed_out": "timed out",
    "dropped": "will never be answered",
    "contradicted": "of these, with different outcomes on two chains",
    "pending": "not answered yet",
    "unknown": "of these, with no recorded sending",
    "duplicates": "messages delivered or answered again",
    "out_of_order": "messages executed out of their order",
    "forged": "messages that no program sent",
    "ingress_refused": "messages from users that were refused",
    "reverted_heights": "heights at which forks took blocks back",
    "reverted_messages": "messages between chains that were taken back with them",
}
"""The counts of a summary in display order, with their meaning."""

ALWAYS_SHOWN = ("sent", "received", "answered", "rejected", "pending", "duplicates", "out_of_order")
"""Counts shown even if 0."""

_BAD = ("duplicates", "out_of_order", "contradicted")


def show_outcome(outcome: RunFigures, console: Console) -> None:
    """Print the summary of a run.

    Args:
        outcome: the figures.
        console: the console.
    """
    console.print(
        f"[bold]{escape(outcome.scenario)}[/bold]: {outcome.chains:,} chains, protocol {outcome.protocol}, "
        f"{outcome.heights:,} heights, {outcome.ticks:,} ticks"
    )
    console.print(counts_table(outcome))
    console.print(
        f"{routed_line(outcome)} {timing_line(outcome)} Peak memory {format_size(outcome.peak_memory_bytes)}."
    )
    if outcome.remark is not None:
        console.print(escape(outcome.remark))
    for line in outcome.carriers.lines:
        console.print(Text(escape_controls(line)))
    for each in outcome.stopped:
        stop = f"{each.chain} stopped at height {each.height:,}: it violated an invariant ({each.cause})."
        console.print(Text(to_one_line(stop), style="red"), soft_wrap=True)
    for text in failure_lines(outcome.failures):
        console.print(text, soft_wrap=True)
    if outcome.stalled:
        console.print(
            "The network stalled: some messages can never be delivered (a halted chain, a lane that nobody carries)."
        )
    console.print(f"Root {outcome.root}", soft_wrap=True)
    for line in verdict_lines(outcome):
        console.print(line, soft_wrap=True)
    if outcome.lake is None:
        console.print("The lake was temporary; use --lake DIR to keep it.")
    else:
        console.print(f"Next: causeway state {escape(shlex.quote(outcome.lake))}", soft_wrap=True)


def failure_lines(found: run_records.HandlerFailures) -> list[Text]:
    """Return the lines about handlers that raised; empty without any.

    Args:
        found: the failures.

    Returns:
        The lines.
    """
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
        lines.append(Text(to_one_line(what)))
    return lines


def routed_line(outcome: RunFigures) -> str:
    """Return a line with the messages between chains, of all and of this command if resumed.

    Args:
        outcome: the figures.

    Returns:
        The line.
    """
    total = outcome.summary.messages
    if not outcome.routed:
        return f"{total:,} messages between chains, none in this run."
    rate = f"in {outcome.seconds['run']:.1f} s, {outcome.messages_per_second:,.0f} per second"
    if outcome.whole:
        return f"{total:,} messages between chains {rate}."
    return f"{total:,} messages between chains, {outcome.routed:,} in this run {rate}."


def timing_line(outcome: RunFigures) -> str:
    """Return a line with the time before the first tick, and after the last one.

    Args:
        outcome: the figures.

    Returns:
        The line.
    """
    return f"Start {outcome.seconds['setup']:.1f} s, summary {outcome.seconds['summary']:.1f} s."


def counts_table(outcome: RunFigures) -> Padding:
    """Return the counts as a table without lines.

    Args:
        outcome: the figures.

    Returns:
        The table.
    """
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    from causeway.audit.findings import VIOLATED

    counts = outcome.summary.counts
    dropped = outcome.summary.audit.checks["delivery"].reasons.get((VIOLATED, "dropped"), 0)
    for name, meaning in COUNTS.items():
        count = counts.get(name, 0)
        if not count and name not in ALWAYS_SHOWN:
            continue
        if name == "dropped":
            meaning = f"{meaning}: {drop_causes(outcome)}"
        bad = count and (name in _BAD or (name == "dropped" and dropped))
        table.add_row(name.replace("_", " "), f"{count:,}", meaning, style="bold red" if bad else None)
    return indent_table(table)


def indent_table(table: Table) -> Padding:
    """Indent a table by two columns.

    Args:
        table: the table.

    Returns:
        The indented table.
    """
    return Padding.indent(table, 2)


def drop_causes(outcome: RunFigures) -> str:
    """Return the causes of dropped calls, the most frequent first.

    Args:
        outcome: the figures.

    Returns:
        One line.
    """
    return ", ".join(f"{count:,} {escape(cause)}" for cause, count in outcome.summary.dropped_because.items())


def verdict_lines(outcome: RunFigures) -> list[str]:
    """Return the verdict of the audit, and the earliest violation of each check.

    Args:
        outcome: the figures.

    Returns:
        The lines.
    """
    from causeway.cli.output.audit import color_verdict, first_violations

    audit, counts = outcome.summary.audit, outcome.summary.counts
    pending, dropped = counts["pending"], counts["dropped"]
    parts = [f"{count_noun(dropped, 'call')} will never be answered"] if dropped else []
    if pending:
        parts.append(f"{count_noun(pending, 'call')} {'without an answer' if outcome.finished else 'in progress'}")
    end = ", ".join(parts) if parts else "All calls have completed"
    return [f"{color_verdict(audit.sentence())}. {end}.", *first_violations(audit.checks.values())]


def format_size(count: float) -> str:
    """Format a number of bytes.

    Args:
        count: the number.

    Returns:
        The text.
    """
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}"
        count /= 1024
    return f"{count:,.1f} GiB"
