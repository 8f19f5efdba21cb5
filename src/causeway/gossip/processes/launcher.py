"""Implementation of ``causeway gossip``: process networks, trace replay, relay chain export.

The export reads the relay chain of a recorded lake and writes it as input for a gossip simulation.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from causeway_proofs.errors import InvalidInput
from causeway_proofs.order import group_rows, stable_order

from causeway.core.frame import Frame, from_table
from causeway.gossip.options import ProcessOptions, RunVerdict
from causeway.gossip.processes.network import NetworkOutcome, NodeHandle, ProcessNetwork
from causeway.gossip.processes.replay import ReplayResult, replay_trace
from causeway.gossip.processes.scenario import load_gossip_scenario
from causeway.gossip.processes.trace import open_trace
from causeway.gossip.simulation.relay_table import INTERVAL, PARACHAINS, RELAY_TABLE_SCHEMA
from causeway.network.opened_lake import OpenedLake, open_lake, select_rows
from causeway.programs.user_modules import NOWHERE, ModuleSources
from causeway.protocols.relay_chain.block import queue_roots
from causeway.protocols.relay_chain.options import RELAY_POSITION
from causeway.protocols.shared.contents import encode_contents
from causeway.protocols.shared.messages import LANE, OUTBOUND_SCHEMA
from causeway.proving.icmp.messages import program_free_rows, relay_leaves
from causeway.storage.lake import LakeError

__all__ = ["read_recorded_chain", "write_relay_table"]

WASTEFUL = ("UnexpectedQueue", "RootMismatch", "Malformed", "Impolite")
"""Verdicts on packets that an honest peer does not send."""


class EgressProcesses:
    """Network of node processes with the status table of the command line."""

    columns = ("node", "pid", "life", "leaves", "peers", "pool", "got", "sent", "wasteful", "coverage")

    def __init__(self, network: ProcessNetwork) -> None:
        self._network = network

    def rows(self) -> Sequence[Sequence[str]]:
        """Return one table row a node."""
        return [_row(node) for node in self._network.nodes]

    def stage(self) -> str:
        """Return a one-line progress summary."""
        ready = sum(node.alive for node in self._network.nodes)
        outcome = self._network.outcome
        return f"{ready} of {len(self._network.nodes)} nodes, {outcome.blocks} blocks, {outcome.posted} queues"

    async def run(self, stop: asyncio.Event) -> RunVerdict:
        """Run the network to its end, or until ``stop`` is set."""
        return _verdict(await self._network.run(stop))


def _row(node: NodeHandle) -> Sequence[str]:
    standing = node.standing
    numbers = [standing.get(key, 0) for key in ("leaves", "peers", "pool", "got", "sent")]
    wasteful = sum(standing.get(key, 0) for key in WASTEFUL)
    pid = str(node.pid) if node.alive else "-"
    covered = f"{coverage(standing):.0%}" if standing else "-"
    return [str(node.number), pid, str(node.life), *map(str, [*numbers, wasteful]), covered]


def coverage(standing: Mapping[str, int]) -> float:
    """Return the share of the queues listed by its leaves that a node holds."""
    expected = standing.get("expected", 0)
    return standing.get("there", 0) / expected if expected else 1.0


def _verdict(outcome: NetworkOutcome) -> RunVerdict:
    count = len(outcome.nodes)
    summary = (
        f"{count} nodes, {outcome.posted} queues in {outcome.blocks} blocks ({outcome.forks} on forks),"
        f" {outcome.killed} killed and started again"
    )
    if outcome.stopped:
        statement = f"stopped before its end: {summary}"
    elif outcome.holds:
        statement = f"every queue reached every node that needs it: {summary}"
    else:
        statement = f"not every queue reached every node that needs it: {summary}"
    details = [*outcome.died]
    for node in outcome.nodes:
        details += [
            f"node {node.number} put out node {peer} ({why}, {times}x)" for peer, why, times in _excluded_peers(node)
        ]
    if outcome.short:
        details.append(f"{outcome.short} queues are missing at nodes whose leaves list them")
    if outcome.left:
        details.append(f"{outcome.left} queues are left that their parachains never found")
    return RunVerdict(outcome.holds, statement, details, _outcome_json(outcome), outcome.stopped)


def _excluded_peers(node: NodeHandle) -> Sequence[tuple[int, str, int]]:
    """Return the excluded peers of a node: number, reason, count."""
    return [(peer, why, times) for peer, why, times in node.status.get("put_out", [])]


def _outcome_json(outcome: NetworkOutcome) -> dict[str, Any]:
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
                "put_out": [dict(zip(("node", "why", "times"), one, strict=True)) for one in _excluded_peers(node)],
            }
            for node in outcome.nodes
        ],
    }


class EgressGossip:
    """Node processes that gossip egress queues."""

    def processes(self, scenario: Path, wanted: ProcessOptions) -> EgressProcesses:
        """Create the network of a scenario.

        Args:
            scenario: Path of the scenario's TOML file.
            wanted: Options of the command line; they override the file.

        Raises:
            InvalidInput: The scenario or an option is invalid.
        """
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

    def relay_chain(self, lake: str, sources: ModuleSources, out: Path) -> Mapping[str, int]:
        """Write the relay chain of a lake to a file and return its figures.

        Raises:
            InvalidInput: The lake has no usable relay chain, or the file cannot be written.
        """
        return write_relay_table(lake, sources, out)

    def replayed(self, trace: Path) -> RunVerdict:
        """Replay a trace and compare it with its record.

        Raises:
            InvalidInput: The trace is invalid.
        """
        return _replay_verdict(replay_trace(open_trace(trace)))


def _replay_verdict(result: ReplayResult) -> RunVerdict:
    summary = (
        f"{result.steps} steps in {result.lives} lives, {result.got} queues got, {result.received} packets received,"
        f" {result.hashed} bodies hashed"
    )
    holds = result.different == 0
    verdict = "the state machine has the same inputs as the processes" if holds else f"{result.different} differences"
    unlisted = result.different - len(result.differences)
    details = [*result.differences, *([f"... and {unlisted} more"] if unlisted else [])]
    if not result.closed:
        details.append("the trace was never closed: nothing says that its files are as the processes left them")
    figures = ("steps", "lives", "got", "received", "hashed", "different", "differences", "closed")
    return RunVerdict(
        holds, f"{verdict}: {summary}", details, {"holds": holds, **{name: getattr(result, name) for name in figures}}
    )


GOSSIP = EgressGossip()


NANOSECONDS = 1_000_000
"""Nanoseconds in a millisecond."""


def write_relay_table(uri: str, sources: ModuleSources, out: Path) -> dict[str, int]:
    """Write the relay chain of a lake to a Parquet file.

    Args:
        uri: Location of the lake.
        sources: Modules of user programs.
        out: Path of the Parquet file.

    Returns:
        Figures by name: ``blocks``, ``numbers`` (heights), ``parachains``, ``queues``, ``bytes`` and
        ``interval`` (ms).

    Raises:
        InvalidInput: The lake has no usable relay chain, or the file cannot be written.
        LakeError: The lake is corrupted.
    """
    table = read_recorded_chain(uri, sources)
    try:
        with out.open("wb") as file:
            pq.write_table(table, file)
    except OSError as error:
        raise InvalidInput(f"--out {out}: cannot be written: {error.strerror}") from None
    posted = pa.concat_arrays([chunk.flatten() for chunk in table["posted"].chunks])
    return {
        "blocks": table.num_rows - 1,
        "numbers": pc.max(table["number"]).as_py(),
        "parachains": int(table.schema.metadata[PARACHAINS]),
        "queues": len(posted),
        "bytes": pc.sum(posted.field("size")).as_py() or 0,
        "interval": int(table.schema.metadata[INTERVAL]),
    }


def read_recorded_chain(uri: str, sources: ModuleSources = NOWHERE) -> pa.Table:
    """Read the relay chain of a lake as a table (``RELAY_TABLE_SCHEMA``).

    The table holds all blocks of all leaves, the queues that they post with the sizes of their bodies,
    and the unrouted queues at each block. A block's time is ``tick + 1`` ticks after genesis.

    Args:
        uri: Location of the lake.
        sources: Modules of user programs; unsaved states are computed by executing heights again.

    Raises:
        InvalidInput: The lake has no relay chain, or its tick is not whole milliseconds.
        LakeError: The lake is corrupted.
    """
    opened = open_lake(uri, sources)
    relay_leaves(opened)
    interval, rest = divmod(opened.tick_ns, NANOSECONDS)
    if rest or not interval:
        raise InvalidInput(f"lake: {uri}: a tick has {opened.tick_ns:,} ns; allowed: whole milliseconds")
    sizes, inclusive = _sizes(opened), opened.options.get("ingress_upper") == "inclusive"
    numbers: dict[bytes, int] = {}
    entries: dict[tuple[bytes, int, int], int] = {}
    blocks: list[dict[str, Any]] = []
    for height in range(opened.last_height() + 1):
        manifest = opened.manifest(height)
        tables = {name: program_free_rows(opened, manifest, name, RELAY_POSITION) for name in ("blocks", "unrouted")}
        leaves = tables["blocks"]
        for row, leaf in enumerate(leaves["leaf"].tolist()):
            if leaves["hash"][row].tobytes() in numbers:
                continue
            mine = tables["unrouted"].filter(tables["unrouted"]["leaf"] == np.uint8(leaf))
            blocks.append(_block(leaves.slice(row, row + 1), mine, numbers, entries, sizes, interval, inclusive))
    names = {PARACHAINS: str(len(opened.names) - 1).encode(), INTERVAL: str(interval).encode()}
    return pa.Table.from_pylist(blocks, schema=RELAY_TABLE_SCHEMA.with_metadata(names))


def _block(
    block: Frame,
    unrouted: Frame,
    numbers: dict[bytes, int],
    entries: dict[tuple[bytes, int, int], int],
    sizes: Mapping[bytes, tuple[int, int]],
    interval: int,
    inclusive: bool,
) -> dict[str, Any]:
    """Build the row of a new relay block and register the block and its queues."""
    name, number = block["hash"][0].tobytes(), int(block["number"][0])
    parent = numbers.get(block["parent"][0].tobytes(), -1)
    if (parent < 0) != (number == 0):
        raise LakeError(f"lake: the parent of relay block {number} is not in it")
    numbers[name] = len(numbers)
    rows = unrouted.take(stable_order(*(unrouted[column] for column in ("to", "number", "source"))))
    posted, listed = [], []
    for row in range(len(rows)):
        at = rows["hash"][row].tobytes()
        key = (at, int(rows["source"][row]), int(rows["to"][row]))
        root = rows["root"][row].tobytes()
        if root not in sizes:
            # The root of an empty posting: no such body exists.
            continue
        if at == name:
            entries[key] = len(entries)
            size, messages = sizes[root]
            ends = {"source": key[1] - 1, "destination": key[2] - 1}
            posted.append({**ends, "root": root, "size": size, "messages": messages})
        if at != name or inclusive:
            listed.append(entries[key])
    time = 0 if number == 0 else int(block["next_tick"][0]) * interval
    return {"hash": name, "number": number, "parent": parent, "time": time, "posted": posted, "unrouted": listed}


def _sizes(opened: OpenedLake) -> dict[bytes, tuple[int, int]]:
    """Return size and message count of every queue that parachains sent, by its root."""
    found: dict[bytes, tuple[int, int]] = {}
    names = [*OUTBOUND_SCHEMA.names, "height"]
    for path, seal in opened.lake.log_files("outbound").items():
        rows = from_table(select_rows(opened.lake, path, seal, names, lambda batch: np.ones(len(batch), dtype=bool)))
        rows = rows.filter(rows["source"] != rows["destination"])
        if len(rows) == 0:
            continue
        # A chain makes one block a height, and a block sends each other chain one queue.
        rows = rows.take(stable_order(*(rows[name] for name in (*LANE, "height", "index"))))
        rows = rows.with_columns(first=rows["height"])
        roots, starts = queue_roots(rows)
        counts = group_rows(*(rows[name] for name in (*LANE, "first"))).counts
        lengths = np.asarray(pc.binary_length(encode_contents(rows)), dtype=np.int64)
        size = np.add.reduceat(lengths, starts)
        for root, own, count in zip(roots, size.tolist(), counts.tolist(), strict=True):
            found[root.tobytes()] = (own, count)
    return found
