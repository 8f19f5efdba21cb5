"""Gossip simulation of a relay chain from a run, and a run fed with its results."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic_core import PydanticCustomError

from causeway.gossip.simulation import relay_table
from causeway.gossip.simulation.relay_table import (
    INTERVAL,
    MOST_BLOCKS,
    PARACHAINS,
    RELAY_TABLE_SCHEMA,
    read_relay_table,
)
from causeway.network.opened_lake import open_lake
from causeway.protocols.relay_chain.options import read_body_table
from tests.support.common.command_line import Run, command_line
from tests.support.icmp.icmp_lake import FORK, make_lake

SIMULATION = """
slice = 200
[network]
seed = 2
executor = "in_process"
[nodes]
count = 16
parachains = 3
[topology]
degree = 4
[links]
most = 200
[relay]
table = "relay.parquet"
interval = 1000
propagation = 300
"""


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    yield from command_line(capsys, tmp_path, monkeypatch)


def _rows(lake: str, table: str) -> list[dict[str, Any]]:
    opened = open_lake(lake)
    files = opened.lake.log_files(table)
    return [row for path, seal in files.items() for row in opened.lake.sealed_table(path, seal).to_pylist()]


def test_generated_run_is_gossiped_and_results_feed_a_run(cli: Run, tmp_path: Path) -> None:
    """Use a fork and a stalled parachain; the second run delays bodies as simulated."""
    lake = make_lake(tmp_path, faults=FORK)
    code, out, _ = cli("gossip", "relay-chain", lake, "--out", "relay.parquet", "--json")
    about = json.loads(out)
    rows = pq.read_table("relay.parquet").to_pylist()
    made = [row for row in _rows(lake, "headers") if row["chain"] == 0]
    assert code == 0 and {row["hash"] for row in rows} == {row["hash"] for row in made}
    assert about["blocks"] == len(rows) - 1 > about["numbers"] == max(row["number"] for row in rows)
    posted = {queue["root"]: queue for row in rows for queue in row["posted"]}
    sent = [row for row in _rows(lake, "outbound") if row["source"] != row["destination"]]
    assert 0 < sum(queue["messages"] for queue in posted.values()) <= len(sent)
    assert about["queues"] == sum(len(row["posted"]) for row in rows) > len(posted), "some on two forks"

    Path("gossip.toml").write_text(SIMULATION)
    code, out, err = cli("gossip", "simulate", "gossip.toml", "--out", "gossip", "--json")
    found = json.loads(out)
    assert (code, found["never"], found["queues"]) == (0, 0, len(posted)), err
    bodies = pq.read_table("gossip/results/bodies.parquet").to_pylist()
    keys = {
        (rows[at]["number"], queue["source"], queue["destination"])
        for at in range(len(rows))
        for place, queue in enumerate(rows[at]["posted"])
        if any(_entry(rows, at, place) in row["unrouted"] for row in rows)
    }
    assert {(row["number"], row["source"], row["destination"]) for row in bodies} == keys and len(bodies) == len(keys)

    options = ("--set", "options.bodies=simulated", "--set", "options.body_table=gossip/results/bodies.parquet")
    code, out, err = cli("run", "scenario.toml", "--lake", "again", "--json", *options)
    again = json.loads(out)
    assert (code, again["holds"], again["pending"]) == (0, True, 0), err


def _entry(rows: list[dict[str, Any]], at: int, place: int) -> int:
    return sum(len(row["posted"]) for row in rows[:at]) + place


def _table() -> list[dict[str, Any]]:
    """Build genesis, two blocks on it (the first posts a queue), and one on the first, which lists it."""
    queue = {"source": 0, "destination": 1, "root": b"r" * 32, "size": 9, "messages": 2}
    parts: tuple[tuple[Any, ...], ...] = ((0, -1, [], []), (1, 0, [queue], []), (1, 0, [], []), (2, 1, [], [0]))
    names = ("number", "parent", "posted", "unrouted")
    made = [dict(zip(names, part, strict=True)) for part in parts]
    times = (0, 1_000, 1_000, 2_000)
    return [
        {"hash": bytes([at]) * 32, "time": time, **row} for at, (row, time) in enumerate(zip(made, times, strict=True))
    ]


def _write_table(path: Path, rows: list[dict[str, Any]], about: dict[bytes, bytes] | None = None) -> str:
    about = {PARACHAINS: b"2", INTERVAL: b"1000"} if about is None else about
    pq.write_table(pa.Table.from_pylist(rows, schema=RELAY_TABLE_SCHEMA.with_metadata(about)), path)
    return str(path)


Change = Callable[[list[dict[str, Any]]], object]

WRONG: dict[str, Change] = {
    "listed on the other fork": lambda rows: rows[2]["unrouted"].append(0),
    "listed by the block that posts it": lambda rows: rows[1]["unrouted"].append(0),
    "listed twice": lambda rows: rows[3]["unrouted"].append(0),
    "listed, and never posted": lambda rows: rows[3]["unrouted"].append(1),
    "a parent after its child": lambda rows: rows[1].update(parent=2),
    "no parent": lambda rows: rows[2].update(parent=-1),
    "a number that does not follow": lambda rows: rows[3].update(number=3),
    "a hash twice": lambda rows: rows[3].update(hash=rows[1]["hash"]),
    "times that go back": lambda rows: rows[3].update(time=0),
    "a time between two blocks": lambda rows: rows[3].update(time=2_500),
    "a time beyond all": lambda rows: rows[3].update(time=1 << 63),
    "to itself": lambda rows: rows[1]["posted"][0].update(destination=0),
    "a parachain that is none": lambda rows: rows[1]["posted"][0].update(destination=2),
    "no bytes": lambda rows: rows[1]["posted"][0].update(size=0, messages=0),
    "too many bytes": lambda rows: rows[1]["posted"][0].update(size=1 << 40),
    "nothing posted": lambda rows: (rows[1]["posted"].clear(), rows[3]["unrouted"].clear()),
    "no root": lambda rows: rows[1]["posted"][0].update(root=None),
    "no number": lambda rows: rows[3].update(number=None),
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_tables_other_than_relay_chains_are_rejected(change: Change, tmp_path: Path) -> None:
    rows = _table()
    change(rows)
    with pytest.raises(PydanticCustomError, match="blocks after their parents, and queues that an ancestor posted"):
        read_relay_table(_write_table(tmp_path / "table", rows))


def test_files_other_than_tables_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "table"
    found = read_relay_table(_write_table(path, _table()))
    assert found is not None and found.unrouted[3].tolist() == [0] and found.sizes.tolist() == [9]
    for about in ({}, {PARACHAINS: b"2"}, {PARACHAINS: b"-2", INTERVAL: b"1"}, {PARACHAINS: b"2", INTERVAL: b"0"}):
        with pytest.raises(PydanticCustomError, match="parachains and interval in its metadata"):
            read_relay_table(_write_table(path, _table(), about))
    for rows in (_table()[:1], _table()[:1] * (MOST_BLOCKS + 1)):
        with pytest.raises(PydanticCustomError, match="2 to 16,384 blocks"):
            read_relay_table(_write_table(path, rows))
    pq.write_table(pa.table({"hash": [1, 2]}), path)
    with pytest.raises(PydanticCustomError, match="what gossip relay-chain writes"):
        read_relay_table(str(path))
    path.write_text("hash")
    os.mkfifo(tmp_path / "pipe")
    for unread in (path, tmp_path / "pipe"):
        for read in (read_relay_table, read_body_table):
            with pytest.raises(PydanticCustomError, match="can be read"):
                read(str(unread))


def test_oversized_relay_chains_are_rejected_before_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = _table()
    path = _write_table(tmp_path / "long.parquet", [*rows[:-1], {**rows[-1], "unrouted": [0] * 9}])
    monkeypatch.setattr(relay_table, "MOST_LISTED", 6)
    monkeypatch.setattr(relay_table, "MOST_BLOCKS", 4)
    monkeypatch.setattr(pq.ParquetFile, "read", None)
    with pytest.raises(PydanticCustomError, match="lists at most"):
        read_relay_table(path)


def test_sampling_options_are_rejected_with_a_recorded_relay_chain(cli: Run, tmp_path: Path) -> None:
    _write_table(Path("relay.parquet"), _table())
    Path("gossip.toml").write_text(SIMULATION)
    for given, said in (
        ("relay.queues=3", "relay.queues: 3: it does nothing with relay.table"),
        ("relay.interval=5000", "relay.interval: 5000: the blocks of relay.table are 1000 ms apart"),
        ("nodes.parachains=3", "nodes: parachains = 3: relay.table has 2"),
        ("relay.table=nowhere", 'relay.table: "nowhere": must be a Parquet file that can be read (FileNotFoundError)'),
    ):
        code, out, err = cli("gossip", "simulate", "gossip.toml", "--set", given)
        assert (code, out) == (2, "") and said in err
    code, _, err = cli("gossip", "relay-chain", "nowhere", "--out", "chain.parquet")
    assert code == 2 and "nowhere" in err


def test_relay_chain_export_never_overwrites_lakes_or_files(cli: Run, tmp_path: Path) -> None:
    made = Path("relay.parquet")
    made.write_bytes(b"mine")
    code, _, err = cli("gossip", "relay-chain", "lake", "--out", made)
    assert (code, made.read_bytes()) == (2, b"mine") and "exists already; name another file, or add --overwrite" in err
    Path("elsewhere").symlink_to(tmp_path / "lake")
    for inside in ("lake/relay.parquet", "./lake/state/../x", "elsewhere/x", tmp_path / "lake" / "x"):
        code, _, err = cli("gossip", "relay-chain", "lake", "--out", inside, "--overwrite")
        assert code == 2 and err.count("\n") == 1 and "is inside the lake lake" in err
    os.mkfifo("pipe")
    code, _, err = cli("gossip", "relay-chain", "lake", "--out", "pipe", "--overwrite")
    assert (code, err) == (2, "causeway: --out pipe: is no file\n"), "nobody reads it: a command would wait for ever"
    code, _, err = cli("gossip", "relay-chain", "lake", "--out", made, "--overwrite")
    assert code == 2 and "lake" in err and "--out" not in err, "there is no lake"
