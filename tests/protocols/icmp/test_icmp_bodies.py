"""Availability of bodies at collators, sampled or from a simulation table, and effects of missing bodies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from causeway.config.faults import FaultRule
from causeway.core.frame import Frame
from causeway.core.vocabulary import Event
from causeway.protocols.icmp.bodies import body_arrivals
from causeway.protocols.relay_chain.options import BODY_TABLE_SCHEMA, IcmpOptions
from tests.support.icmp.icmp_network import Network

CHAINS = {name: {10 * n: "caller", 10 * n + 1: "echo"} for n, name in enumerate("abcd", 1)}

Row = tuple[int, int | None, int, int | None]


def _table(folder: Path, rows: list[Row]) -> str:
    columns = [list(column) for column in zip(*rows, strict=True)]
    path = folder / "bodies.parquet"
    nullable = pa.schema([field.with_nullable(True) for field in BODY_TABLE_SCHEMA])
    pq.write_table(pa.table(columns, schema=nullable), path)
    return str(path)


def _received_calls(net: Network, at: int) -> list[tuple[int, int]]:
    """Return (sender, body) of the calls received by programs of a chain, in order."""
    rows = net.surviving(Event.RECEIVED)
    mine = rows.filter((rows["chain"] == at) & (rows["kind"] == 1) & (rows["source"] != at))
    return list(zip(mine["source"].tolist(), mine["index"].tolist(), strict=True))


def _three_blocks(options: dict[str, object], ticks: int) -> Network:
    """Create three relay blocks in each of which b, c and d post a queue each for a."""
    net = Network(CHAINS, options=options)
    for _ in range(3):
        for n in (2, 3, 4):
            net.call(10 * n, 11, b"x")
        net.step(2)
    net.step(ticks)
    return net


def _posting_blocks(net: Network) -> list[int]:
    """Return the numbers of relay blocks with a queue for a."""
    leaf = net.state["unrouted"]
    return sorted(set(leaf["number"][leaf["to"] == 1].tolist()))


def test_one_missing_body_of_three_stops_its_block_and_later_ones(tmp_path: Path) -> None:
    waits = _three_blocks({"bodies": "drawn", "body_loss": 1.0}, 4)
    first, second, third = _posting_blocks(waits)
    rows: list[Row] = [(n, x, 0, 0) for n in (first, second, third) for x in (1, 2, 3)]
    rows[4] = (second, 2, 0, None)
    path = _table(tmp_path, rows)
    net = _three_blocks({"bodies": "simulated", "body_table": path}, 8)
    assert _received_calls(net, 1) == [(2, 0), (3, 0), (4, 0)]
    assert _posting_blocks(net) == [second, third]
    brought = {"fallback_request": "on", "fallback_after": 6}
    net = _three_blocks({"bodies": "simulated", "body_table": path, **brought}, 12)
    assert _received_calls(net, 1) == [(x, i) for i in range(3) for x in (2, 3, 4)]


class _AlteredBody(Network):
    """Corruption of a body until ``healed``: the first of c (3) for a (1), from its second block."""

    healed = False

    def _entries(self, ranges: Frame) -> Frame:
        rows = super()._entries(ranges)
        mine = (rows["source"] == 3) & (rows["destination"] == 1) & (rows["index"] == 1)
        if self.healed or not mine.any():
            return rows
        wrong = [b"y" if bad else body for body, bad in zip(rows["payload"].to_pylist(), mine, strict=True)]
        return rows.with_columns(payload=pa.array(wrong, rows["payload"].type))


def test_altered_body_stops_its_block_and_later_ones() -> None:
    """All three blocks are offered at once, since a halts until they are posted (hazard 9, G4)."""
    net = _AlteredBody(CHAINS, faults=[FaultRule("halt", 0, None, 0, 11)], cuts=2)
    for _ in range(3):
        for n in (2, 3, 4):
            net.call(10 * n, 11, b"x")
        net.step(2)
    net.step(16)
    assert _received_calls(net, 1) == [(2, 0), (3, 0), (4, 0)]
    wrong = net.surviving(Event.REJECTED)
    where = {*zip(wrong["chain"].tolist(), wrong["source"].tolist(), wrong["index"].tolist(), strict=True)}
    assert set(wrong["reason"].to_pylist()) == {"IngressRootMismatch"} and where == {(1, 3, 1)}
    net.healed = True
    net.step(10)
    assert _received_calls(net, 1) == [(x, i) for i in range(3) for x in (2, 3, 4)]


def test_table_delays_are_rounded_up_to_ticks(tmp_path: Path) -> None:
    """A tick lasts a second: arrivals after 2,001 ms count in the third tick after the block."""
    came = []
    for delay in (0, 1_000, 1_001, 2_000, 2_001):
        path = _table(tmp_path, [(1, 1, 0, delay)])
        net = Network(CHAINS, options={"bodies": "simulated", "body_table": path, "ingress_upper": "inclusive"})
        net.call(20, 11, b"x")
        while not _received_calls(net, 1):
            net.step()
        came.append(net.tick)
    assert [tick - came[0] for tick in came] == [0, 0, 1, 1, 2]


def test_queues_missing_in_a_table_reuse_its_delays(tmp_path: Path) -> None:
    never = _table(tmp_path, [(10**6, 1, 0, None)])
    net = _three_blocks({"bodies": "simulated", "body_table": never}, 8)
    assert _received_calls(net, 1) == []


def test_sampled_delays_differ_by_queue_and_are_reproducible() -> None:
    once, again = (_three_blocks({"bodies": "drawn", "body_ticks": 3.0}, 20) for _ in range(2))
    ideal = _three_blocks({}, 20)
    assert _received_calls(once, 1) == _received_calls(ideal, 1) == [(x, i) for i in range(3) for x in (2, 3, 4)]
    assert [frame["index"].tolist() for _, frame in once.events] == [
        frame["index"].tolist() for _, frame in again.events
    ]
    heights = [[height for height, frame in net.events if (frame["chain"] == 1).any()] for net in (once, ideal)]
    assert heights[0] != heights[1]


def test_no_two_queues_share_a_sample() -> None:
    """Two delays of 1,000 with a mean of 10**6 ticks are almost never equal unless sampled together."""
    row = np.arange(1_000)
    columns = {"to": row // 500, "source": row % 10, "number": row // 10 % 50, "tick": row * 0}
    listed = Frame({name: column.astype(np.uint32) for name, column in columns.items()}, len(row))
    came = body_arrivals(listed, 7, 10**9, IcmpOptions(bodies="drawn", body_ticks=1e6, body_loss=0.0))
    assert len(np.unique(came)) > 990 and 0.9e6 < came.mean() < 1.1e6


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"bodies": "simulated"}, "missing; with bodies"),
        ({"body_table": "TABLE"}, "only then"),
        ({"bodies": "simulated", "body_table": "nowhere.parquet"}, "can be read"),
        ({"bodies": "simulated", "body_table": "TEXT"}, "can be read"),
        ({"bodies": "simulated", "body_table": "TWICE"}, "one row a queue"),
        ({"bodies": "simulated", "body_table": "LATE"}, "can be read"),
        ({"bodies": "simulated", "body_table": "NULL"}, "or source is null"),
        ({"bodies": "simulated", "body_table": "OTHER"}, "with the columns number, source, destination, delay"),
    ],
)
def test_invalid_table_is_reported(given: dict[str, str], said: str, tmp_path: Path) -> None:
    places = {"TABLE": _table(tmp_path, [(1, 1, 0, 0)]), "TEXT": str(tmp_path / "text")}
    (tmp_path / "text").write_text("number,source\n")
    for name in ("TWICE", "OTHER", "LATE", "NULL"):
        (tmp_path / name).mkdir()
    places["LATE"] = _table(tmp_path / "LATE", [(1, 1, 0, 2**63)])
    places["NULL"] = _table(tmp_path / "NULL", [(1, None, 0, 5)])
    places["TWICE"] = _table(tmp_path / "TWICE", [(1, 1, 0, 0), (1, 1, 0, 5)])
    pq.write_table(pa.table({"number": [1]}), tmp_path / "OTHER" / "bodies.parquet")
    places["OTHER"] = str(tmp_path / "OTHER" / "bodies.parquet")
    with pytest.raises(ValidationError, match=said):
        IcmpOptions(**{key: places.get(value, value) for key, value in given.items()})  # type: ignore[arg-type]
