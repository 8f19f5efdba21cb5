"""Simulation tables against an independent recomputation from the event log.

The scenario gives the blocks, their lists, and the presence and behaviour of nodes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from causeway.core.frame import Frame
from causeway.gossip.simulation.kernel import GossipKernel
from causeway.gossip.simulation.mail import post_mail as made_under_way
from causeway.gossip.simulation.report import SimulationResults, build_results
from causeway.gossip.simulation.state import ASK, DECLARED, JUNK, MORE, REQUEST, SKETCH
from causeway.gossip.simulation.world import HONEST, SimulationWorld
from causeway.protocols.relay_chain.errors import PeerVerdict
from tests.gossip.test_gossip_simulation import ROUGH, SMALL, kernel_of
from tests.support.gossip.gossip_networks import ticks

NEVER = 1 << 62

FINE = {PeerVerdict.OK, PeerVerdict.Duplicate}

Rows = list[dict[str, Any]]


class EventLog:
    """Event log per tick as plain rows, and the results of the simulation."""

    def __init__(self, kernel: GossipKernel, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kernel = kernel
        self.events: list[tuple[int, dict[str, Rows]]] = []
        schemas = kernel.logs
        told: dict[str, list[pa.Table]] = {name: [] for name in ("got", "samples", "disconnected")}
        sent: list[Any] = []

        def posted(world: SimulationWorld, sending: Any, *rest: int) -> Any:
            sent.append(sending)  # including messages lost in transit
            return made_under_way(world, sending, *rest)

        monkeypatch.setattr("causeway.gossip.simulation.kernel.post_mail", posted)
        for tick, _, logs in ticks(kernel):
            tables = {name: frame.to_table(schemas[name]) for name, frame in logs.items() if name in schemas}
            for name in told.keys() & tables.keys():
                ticks_ = pa.array([tick] * len(tables[name]), pa.int64())
                told[name].append(tables[name].append_column("tick", ticks_))
            found = {name: table.to_pylist() for name, table in tables.items() if name.startswith("trace_")}
            for name in ("packets", "sketches"):
                found[name] = [row for one in sent for row in classify_sends(getattr(one, name))]
            sent.clear()
            self.events.append((tick, found))
        self.made: SimulationResults = build_results(
            kernel, {name: pa.concat_tables(tables) for name, tables in told.items()}
        )


def classify_sends(rows: Frame) -> Rows:
    """Return sender and kind of packets or sketches; for sketches also their bytes and value."""
    columns = [rows["source"].tolist(), rows["kind"].tolist()]
    if "data" in rows:
        columns += [[len(data) for data in rows["data"].to_pylist()], rows["value"].tolist()]
    return [dict(zip(("source", "kind", "bytes", "value"), row, strict=False)) for row in zip(*columns, strict=True)]


def recompute_work(told: EventLog) -> tuple[list[dict[str, Any]], dict[tuple[int, int], int]]:
    """Return the rows of the work table per tick, and first arrival times of each root by node."""
    world, slice_ = told.kernel.world, told.kernel.options.slice
    relay, junk = world.relay, told.kernel.options.relay.bytes
    honest = [node for node, how in enumerate(world.behaviour.tolist()) if how == HONEST]
    of = dict(zip(relay.root.tolist(), relay.sources.tolist(), strict=True))
    root_of, sizes = relay.queue_root.tolist(), relay.sizes.tolist()

    def size(queue: int) -> int:
        return junk if queue >= JUNK else sizes[root_of[queue]]

    pools: dict[int, set[int]] = {node: set() for node in range(len(world.behaviour))}
    done, most, found = Counter[str](), 0, []
    had: dict[tuple[int, int], int] = {}
    for tick, rows in told.events:
        time = tick * slice_
        for node, pool in pools.items():
            if not is_present(world, node, time):
                pool.clear()
        good = {(row["chain"], root_of[row["queue"]]) for row in rows["trace_got"] if row["code"] == PeerVerdict.OK}
        new = set()
        for row in rows["trace_put"]:
            pools[row["chain"]].add(row["queue"])
            new.add((row["chain"], root_of[row["queue"]]))
        for pair in new:
            had.setdefault(pair, time)
        for row in rows["trace_purged"]:
            pools[row["chain"]].discard(row["queue"])
        own = [row for row in rows["trace_sent"] if world.behaviour[row["chain"]] == HONEST]
        done["sent_queues"] += len(own)
        done["sent_bytes"] += sum(size(row["queue"]) for row in own)
        done["sent_heads"] += sum(
            row["kind"] == DECLARED and world.behaviour[row["source"]] == HONEST for row in rows["packets"]
        )
        mine = [row for row in rows["sketches"] if world.behaviour[row["source"]] == HONEST]
        done["sent_sketches"] += sum(row["kind"] in (SKETCH, MORE, ASK) for row in mine)
        done["sent_bytes"] += sum(
            # A capacity and a short id have 4 bytes, a request the root of a queue; an answer carries the queue.
            {SKETCH: row["bytes"], MORE: 4, ASK: 4, REQUEST: 32}.get(row["kind"]) or sizes[relay.root[row["value"]]]
            for row in mine
        )
        done["requests"] += sum(row["kind"] == REQUEST for row in mine)
        judged = [
            row
            for row in rows["trace_got"]
            if world.behaviour[row["chain"]] == HONEST and row["code"] != PeerVerdict.NotConnected
        ]
        bad = [row for row in judged if row["code"] not in FINE]
        done["got_queues"] += len(judged)
        done["got_bytes"] += sum(size(row["queue"]) for row in judged)
        done["wasted"] += len(bad)
        done["wasted_bytes"] += sum(size(row["queue"]) for row in bad)
        done["repeated"] += len(judged) - len(bad)
        # Collators know a queue posted by their parachain from the block that lists it.
        came = {pair for pair in new if world.behaviour[pair[0]] == HONEST and world.keeps[pair[0]] != of[pair[1]]}
        done["new"] += len(came)
        done["answered"] += len(came - good)  # sent by the requested node, not by a gossiping one
        bytes_ = [sum(map(size, pools[node])) for node in honest]
        most = max(most, *bytes_)
        found.append(
            {
                "time": time,
                "pool_bytes_mean": sum(bytes_) / len(honest),
                "pool_bytes_most": max(bytes_),
                "pool_queues_mean": sum(len(pools[node]) for node in honest) / len(honest),
                **done,
                "most_pool_bytes": most,
            }
        )
    return found, had


def is_present(world: SimulationWorld, node: int, time: int) -> bool:
    return bool(world.there(np.array([node]), time)[0])


def recompute_coverage(told: EventLog, had: dict[tuple[int, int], int]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the rows of the coverage table, and the needed and timely queues of the summary."""
    world, options = told.kernel.world, told.kernel.options
    relay, nodes, interval = world.relay, options.nodes, options.relay.interval
    listed: dict[int, int] = {}
    to: dict[int, int] = {}
    for block, entries in enumerate(relay.unrouted):
        for entry in entries.tolist():
            root = int(relay.root[entry])
            time = int(relay.times[block])
            listed[root] = min(listed.get(root, time), time)
            to[root] = int(relay.destinations[entry])
    placed = nodes.parachains * (nodes.collators + nodes.validators)
    late: dict[str, list[int]] = defaultdict(list)
    in_time: dict[int, bool] = {}
    for root, since in listed.items():
        for node, how in enumerate(world.behaviour.tolist()):
            if how != HONEST:
                continue
            time = had[node, root] - since if (node, root) in had else NEVER
            late["all"].append(time)
            if node < placed and node % nodes.parachains == to[root] and is_present(world, node, since + interval):
                late["needed"].append(time)
                in_time[root] = in_time.get(root, True) and time <= interval

    def share(times: list[int], most: int) -> float:
        return sum(time <= most for time in times) / len(times)

    rows = [
        {"time": time, **{name: share(late[name], time) for name in ("needed", "all")}}
        for time in range(0, 2 * interval + 1, options.slice)
    ]
    summary = {
        "needed": len(late["needed"]),
        "never": late["needed"].count(NEVER),
        "in_time": round(sum(in_time.values()) / len(in_time), 4),
        "in_time_of_needed": round(share(late["needed"], interval), 4),
        "p100_ms": max(time for time in late["needed"] if time != NEVER),
    }
    return rows, summary


OPTIONS = {"plain": "", "sketches": 'reconciliation = "minisketch"\nfallback_request = "on"\nfallback_after = 500\n'}


@pytest.mark.parametrize("options", ["plain", pytest.param("sketches", marks=pytest.mark.slow)])
def test_tables_record_events(tmp_path: Path, options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use lying and spamming nodes, joining and leaving nodes, lost messages, and sibling blocks."""
    path = tmp_path / "scenario.toml"
    text = SMALL.replace("[relay]", "[relay]\nforks = 0.4").replace("[gossip]", "[gossip]\n" + OPTIONS[options])
    text = text.replace("sample = 1_000", "sample = 400").replace("tail = 0", "tail = 2")
    path.write_text('events = "all"\n' + text + ROUGH)
    told = EventLog(kernel_of(path), monkeypatch)
    work, had = recompute_work(told)
    by_time = {row["time"]: row for row in work}
    made = told.made.tables["work"].to_pylist()
    assert len(made) > 10 and made[-1]["got_queues"] > made[-1]["new"] > 0 < made[-1]["wasted"]
    for row in made:
        mine = by_time[row["time"]]
        # An answer arriving together with the gossiped queue is valid too.
        assert mine.pop("answered") <= row.pop("answered") <= mine["requests"], row["time"]
        assert row == pytest.approx(mine), row["time"]
    rows, summary = recompute_coverage(told, had)
    assert told.made.tables["coverage"].to_pylist() == [pytest.approx(row) for row in rows]
    assert {name: told.made.summary[name] for name in summary} == summary
    assert rows[0]["all"] < 0.2 < rows[-1]["all"] < 1 and 0 < summary["in_time_of_needed"] < 1
