"""What ``causeway gossip`` asks of nodes that gossip egress queues (``service.gossip``)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from causeway.model.errors import InvalidInput
from causeway.programs.sources import Sources
from causeway.service.gossip import ProcessOptions, Verdict
from causeway.service.icmp.handle import Handle
from causeway.service.icmp.network import Outcome, ProcessNetwork
from causeway.service.icmp.replay import Replayed, replayed
from causeway.service.icmp.scenario import load_gossip_scenario
from causeway.service.icmp.trace import open_trace

WASTEFUL = ("UnexpectedQueue", "RootMismatch", "Malformed", "Impolite")
"""Verdicts on what should not have been sent."""


class EgressProcesses:
    """A network of node processes, as a person sees it."""

    columns = ("node", "pid", "life", "leaves", "peers", "pool", "got", "sent", "wasteful", "coverage")

    def __init__(self, network: ProcessNetwork) -> None:
        self._network = network

    def rows(self) -> Sequence[Sequence[str]]:
        """Return a row a node."""
        return [_row(node) for node in self._network.nodes]

    def stage(self) -> str:
        """Return how far the network is."""
        ready = sum(node.alive for node in self._network.nodes)
        outcome = self._network.outcome
        return f"{ready} of {len(self._network.nodes)} nodes, {outcome.blocks} blocks, {outcome.posted} queues"

    async def run(self, stop: asyncio.Event) -> Verdict:
        """Run it to its end, or until ``stop`` is set."""
        return _verdict(await self._network.run(stop))


def _row(node: Handle) -> Sequence[str]:
    standing = node.standing
    numbers = [standing.get(key, 0) for key in ("leaves", "peers", "pool", "got", "sent")]
    wasteful = sum(standing.get(key, 0) for key in WASTEFUL)
    pid = str(node.pid) if node.alive else "-"
    covered = f"{coverage(standing):.0%}" if standing else "-"
    return [str(node.number), pid, str(node.life), *map(str, [*numbers, wasteful]), covered]


def coverage(standing: Mapping[str, int]) -> float:
    """Return the share of queues that a node has of those that its leaves list."""
    expected = standing.get("expected", 0)
    return standing.get("there", 0) / expected if expected else 1.0


def _verdict(outcome: Outcome) -> Verdict:
    many = len(outcome.nodes)
    made = (
        f"{many} nodes, {outcome.posted} queues in {outcome.blocks} blocks ({outcome.forks} on forks),"
        f" {outcome.killed} killed and started again"
    )
    if outcome.stopped:
        statement = f"stopped before its end: {made}"
    elif outcome.holds:
        statement = f"every queue reached every node that needs it: {made}"
    else:
        statement = f"not every queue reached every node that needs it: {made}"
    more = [*outcome.died]
    for node in outcome.nodes:
        more += [f"node {node.number} put out node {peer} ({why}, {times}x)" for peer, why, times in _put_out(node)]
    if outcome.short:
        more.append(f"{outcome.short} queues are missing at nodes whose leaves list them")
    if outcome.left:
        more.append(f"{outcome.left} queues are left that their parachains never found")
    return Verdict(outcome.holds, statement, more, _plain(outcome), outcome.stopped)


def _put_out(node: Handle) -> Sequence[tuple[int, str, int]]:
    """Return whom a node put out for what it sent: their numbers, why, and how often."""
    return [(peer, why, times) for peer, why, times in node.status.get("put_out", [])]


def _plain(outcome: Outcome) -> dict[str, Any]:
    figures = ("blocks", "forks", "posted", "listed", "killed", "settled", "short", "left", "stopped", "died")
    return {
        "holds": outcome.holds,
        **{name: getattr(outcome, name) for name in figures},
        "nodes": [
            {
                "node": node.number,
                "pid": node.pid,
                "lives": node.life,
                "metrics_port": node.metrics,
                "parachains": [*node.paras],
                "coverage": coverage(node.standing),
                **node.standing,
                "connections_ended": dict(node.status.get("refused", {})),
                "put_out": [dict(zip(("node", "why", "times"), one, strict=True)) for one in _put_out(node)],
            }
            for node in outcome.nodes
        ],
    }


class EgressGossip:
    """Node processes that gossip egress queues."""

    def processes(self, scenario: Path, wanted: ProcessOptions) -> EgressProcesses:
        """Return the network of a scenario. Raises ``InvalidInput``."""
        if wanted.blocks is not None and wanted.seconds is not None:
            raise InvalidInput("--blocks and --seconds: give one of them")
        keys = dict(wanted.keys)
        for key, value in (
            ("nodes.count", wanted.nodes),
            ("nodes.killed", wanted.kill),
            ("relay.blocks", wanted.blocks),
        ):
            if value is not None:
                keys[key] = str(value)
        loaded = load_gossip_scenario(scenario, keys)
        if wanted.seconds is not None:
            keys["relay.blocks"] = str(max(1, math.ceil(wanted.seconds * 1_000 / loaded.relay.interval)))
            loaded = load_gossip_scenario(scenario, keys)
        return EgressProcesses(ProcessNetwork(loaded, wanted.trace, wanted.metrics_port))

    def relay_chain(self, lake: str, sources: Sources, out: Path) -> Mapping[str, int]:
        """Write the relay chain of a lake to a file, and return figures of it. Raises ``InvalidInput``."""
        from causeway.service.icmp.made_chain import write_chain

        return write_chain(lake, sources, out)

    def replayed(self, trace: Path) -> Verdict:
        """Return whether a trace comes out as it was recorded. Raises ``InvalidInput``."""
        return _of_replay(replayed(open_trace(trace)))


def _of_replay(found: Replayed) -> Verdict:
    made = (
        f"{found.steps} steps in {found.lives} lives, {found.got} queues got, {found.received} packets received,"
        f" {found.hashed} bodies hashed"
    )
    holds = found.different == 0
    said = "the state machine gets what the processes got" if holds else f"{found.different} differences"
    left = found.different - len(found.differences)
    more = [*found.differences, *([f"... and {left} more"] if left else [])]
    if not found.closed:
        more.append("the trace was never closed: nothing says that its files are as the processes left them")
    figures = ("steps", "lives", "got", "received", "hashed", "different", "differences", "closed")
    return Verdict(holds, f"{said}: {made}", more, {"holds": holds, **{name: getattr(found, name) for name in figures}})


GOSSIP = EgressGossip()
