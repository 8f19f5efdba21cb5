"""Figures of stored ledgers and lakes: by hand, against DuckDB, beside a writer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import causeway as cw
from causeway.analysis.figures.partial_figures import FigureRequest, PartialFigures
from causeway.analysis.stored_figures import FiguresCache, compute_figures
from causeway.ledger.row_order import sort_rows
from causeway.ledger.schema import LEDGER_SCHEMA, OBSERVED_SCHEMA, PROMISES_SCHEMA, VALUE_SCHEMA
from causeway.ledger.store import Ledger, LedgerWriter, create_ledger, group_by_bucket, open_ledger
from causeway.network.network import LakeNetwork
from tests.audit.test_audit_recorded import packets
from tests.recordings import Recordings
from tests.support.properties.audit_ledgers import table

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SECOND = 1_000_000
Row = dict[str, Any]


def store_ledger(place: Path, rows: pa.Table | list[Row], promises: list[Row], value: list[Row] | None = None) -> str:
    """Rows as a stored ledger of several buckets."""
    writer = LedgerWriter(create_ledger(str(place), 8))
    given = rows if isinstance(rows, pa.Table) else table([{"stated_by": "test", **row} for row in rows], LEDGER_SCHEMA)
    for bucket, own in group_by_bucket(given, 8).items():
        writer.write("ledger", sort_rows(own), bucket)
    for bucket, own in group_by_bucket(
        table([{"stated_by": "test", **row} for row in value or []], VALUE_SCHEMA), 8, "value"
    ).items():
        writer.write("value", own, bucket)
    writer.write("promises", table([{"stated_by": "test", **row} for row in promises], PROMISES_SCHEMA))
    writer.write("observed", table([], OBSERVED_SCHEMA))
    writer.commit([], {})
    return str(place)


def there_and_back() -> list[Row]:
    """Requests from ``a`` to ``b``, and responses in a separate lane, each with the name of its request.

    Request n is sent at n, received at n + 2, and answered at 10 * n; the last two are not answered.
    """
    rows: list[Row] = []
    for number in range(1, 9):
        there: Row = {"protocol": "p", "source": "a", "destination": "b", "lane": "asks", "kind": "request"}
        there |= {"index": number, "message_id": f"ask {number}", "sender": f"user {number % 2}"}
        rows.append({**there, "event": "sent", "chain": "a", "height": number, "time": number * SECOND})
        if number == 8:
            continue
        rows.append({**there, "event": "received", "chain": "b", "height": 1, "time": (number + 2) * SECOND})
        if number == 7:
            continue
        back: Row = {"protocol": "p", "source": "b", "destination": "a", "lane": "answers", "answers": f"ask {number}"}
        back |= {"kind": {2: "reject", 3: "refund"}.get(number, "response"), "message_id": f"answer {number}"}
        back |= {"code": 5 if number in (2, 4) else None}
        rows.append({**back, "event": "sent", "chain": "b", "height": 2, "time": (number + 3) * SECOND})
        rows.append({**back, "event": "received", "chain": "a", "height": 99, "time": 10 * number * SECOND})
    return rows


def test_answers_in_separate_lanes_match_requests_in_any_bucket(tmp_path: Path) -> None:
    fees = [
        {"protocol": "p", "source": "a", "destination": "b", "lane": "asks", "index": 1, "chain": "a", "why": "fee",
         "asset": "gold", "amount": amount, "from": "account:x", "to": "rewards"}
        for amount in (2**255, 2**255, 2**64, 5)
    ]  # fmt: skip
    promises = [{"protocol": "p", "lane": "asks", "promise": "answered"}]
    with cw.open(store_ledger(tmp_path / "ledger", there_and_back(), promises, fees)) as opened:
        assert len({file.bucket for file in opened.stored.files("ledger")}) > 3
        calls = {row["index"]: row for row in opened.calls}
        assert {index: row["outcome"] for index, row in calls.items()} == {
            **dict.fromkeys((1, 5, 6), "answered"), **dict.fromkeys((2, 4), "rejected"),
            3: "refunded", 7: "pending", 8: "pending",
        }  # fmt: skip
        assert {index: row["round_trip_seconds"] for index, row in calls.items()} == {
            **{number: 9.0 * number for number in range(1, 7)}, 7: None, 8: None
        }  # fmt: skip
        assert calls[1]["ended_chain"] == "a" and calls[1]["round_trip_heights"] == 98
        lanes = {row["lane"]: row for row in opened.lanes}
        asks = lanes["asks"]
        assert (asks["answered"], asks["rejected"], asks["refunded"], asks["pending"]) == (3, 2, 1, 2)
        assert (asks["in_flight"], asks["oldest_pending_index"], asks["oldest_pending_seconds"]) == (1, 7, 53.0)
        assert (asks["delivery_p50"], asks["round_trip_p50"], asks["round_trip_max"]) == (2.0, 27.0, 54.0)
        assert (asks["fee_asset"], asks["fees"]) == ("gold", str(2**256 + 2**64 + 5))
        assert (lanes["answers"]["delivered"], lanes["answers"]["requests"]) == (6, 0)
        bins = opened.where(lane="asks").backlog.arrow().to_pylist()
        assert bins[0]["seconds"] == 1.0 and len(bins) == 60
        assert [row["pending"] for row in bins][:10] == [1, 2, 3, 4, 5, 6, 7, 8, 8, 7]
        assert bins[-1]["pending"] == 2 and [row["in_flight"] for row in bins][:4] == [1, 2, 2, 2]
        worst = [(row["why"], row["rank"], row["delay"], row["lane"], row["index"]) for row in opened.worst]
        assert worst[0] == ("slowest_delivery", 1, 51.0, "answers", None)
        assert ("slowest_round_trip", 1, 54.0, "asks", 6) in worst
        assert [row[1:] for row in worst if row[0] == "oldest_pending"] == [(1, 53.0, "asks", 7), (2, 52.0, "asks", 8)]
        over = {row["time"].second: row for row in opened.latency_over_time.where(measure="round_trip")}
        assert over[50]["count"] == 1 and abs(over[50]["p50"] - 45) <= 45 / 256 and over[50]["max"] == 45.0
        some = opened.where(sender="user 0", outcome=["rejected", "pending"])
        assert sorted(row["index"] for row in some.calls) == [2, 4, 8] and some.figures.totals["messages"] == 3
        assert [row["index"] for row in opened.calls.where(index=7)] == [7]
        assert opened.fees.where(is_fee=True).arrow()["movements"].to_pylist() == [4]
        with pytest.raises(cw.InvalidInput, match='outcome: "lost": must be one of answered, rejected'):
            opened.where(outcome="lost")
        with pytest.raises(cw.InvalidInput, match="has no state"):
            opened.state("lanes")


def test_untrusted_names_are_inert_on_display(tmp_path: Path) -> None:
    name = "<script>alert(1)</script>\x1b[2J"
    row = {"protocol": name, "source": name, "destination": "b", "lane": name, "kind": "request", "index": 2**64 - 1}
    rows = [
        {**row, "event": "sent", "chain": name, "tick": tick, "time": time, "message_id": name, "index": index}
        for index, tick, time in ((2**64 - 1, 2**64 - 1, 2**62), (1, 0, 7), (2, None, -(2**63)))
    ]
    with cw.open(store_ledger(tmp_path / "ledger", rows, [])) as opened:
        assert opened.figures.totals["pending"] == 3
        for shown in (opened, opened.lanes, opened.calls, opened.chains, opened.where(lane=name)):
            text = shown._repr_html_() if hasattr(shown, "_repr_html_") else repr(shown)
            assert "\x1b" not in repr(shown) + text
            assert "<script" not in text or shown not in (opened, opened.lanes)


def test_recorded_packets_match_the_counts_of_duckdb(tmp_path: Path, recordings: Recordings) -> None:
    source = str(recordings.hub_packets)
    place = store_ledger(tmp_path / "ledger", packets(Path(source)), [{"promise": "answered"}])
    of_channel = f"""
      select channel_id as lane, count(send_height) as sent,
        count(ack_height) filter (send_height is not null) as answered,
        list_transform(quantile_disc(epoch_us(ack_time) - epoch_us(send_time), [0.5, 0.99]), lambda x: x / 1e6) as took,
        max(ack_height - send_height)::double as heights
      from (select distinct on (channel_id, sequence) * from read_parquet('{source}') order by all)
      group by all order by all
    """
    expected = {lane: row for lane, *row in duckdb.execute(of_channel).fetchall()}
    with cw.open(place) as opened:
        lanes = {row["lane"]: row for row in opened.lanes}
        slowest = {row["lane"]: row["max"] for row in opened.latency.where(unit="heights", scope="lane")}
    assert len(lanes) == len(expected) == 55
    for lane, (sent, answered, took, heights) in expected.items():
        row = lanes[lane]
        assert (row["sent"], row["answered"]) == (sent, answered)
        for name, seconds in zip(("round_trip_p50", "round_trip_p99"), took or (None, None), strict=True):
            assert row[name] == seconds or abs(row[name] - seconds) <= seconds / 4096
        assert slowest.get(lane) == heights


@pytest.mark.parametrize(
    "protocol", ["icmp", *(pytest.param(name, marks=pytest.mark.slow) for name in ("ic", "ibc", "xdm"))]
)
def test_calls_of_a_lake_match_the_counts_of_its_run(protocol: str, tmp_path: Path) -> None:
    settings = {"network.protocol": protocol, "network.executor": "in_process", "traffic.messages": "300"}
    settings |= {"traffic.ticks": "3", "chains[0].count": "3", "traffic.channels": "3"}
    place = tmp_path / "lake"
    scenario = EXAMPLES / "generated.toml"
    with LakeNetwork.from_scenario(scenario, settings, lake=str(place)) as net:
        net.run(ticks=3)
        before = {path: path.stat().st_mtime_ns for path in place.rglob("*")}
        with cw.open(place) as opened:
            assert {path: path.stat().st_mtime_ns for path in place.rglob("*")} == before
            first = opened.figures.totals
            assert opened.about.heights == (0, net.height) and not opened.reload()
            net.run()
            assert opened.figures.totals == first  # as of its opening
            kept = FiguresCache()
            assert compute_figures(opened.stored, kept=kept).totals == first
            assert compute_figures(opened.stored, kept=kept).totals == first  # all of it was retained
            assert opened.reload() and opened.about.heights == (0, net.height)
            assert compute_figures(opened.stored, kept=kept).lanes.equals(opened.figures.lanes)
            summary = net.summary()
            outcomes = opened.calls.arrow().to_pandas()["outcome"].value_counts().to_dict()
            totals = opened.figures.totals
            assert sum(outcomes.values()) == summary["sent"] == 300 > first["answered"]
            assert outcomes.get("answered", 0) == summary["answered"] > 0
            assert outcomes.get("rejected", 0) == summary["rejected"]
            assert totals["unit"] == "ticks" and totals["unplaced"] == 0
            bins = opened.backlog.arrow()
            assert bins["pending"].to_pylist()[-1] == totals["pending"]
            assert sum(bins["sent"].to_pylist()) == totals["sent"]
            names = opened.state().where(rows=0).arrow()["table"].to_pylist()
            table = next(row["table"] for row in opened.state() if row["table"] not in names)
            mine = [opened.state(table, chain=chain).arrow().num_rows for chain in opened.about.chains]
            assert sum(mine) == opened.state(table).arrow().num_rows > 0
            at = opened.state(table, height=1).arrow()
            assert at.schema.equals(opened.state(table).schema)


def test_replaced_lake_is_reopened(tmp_path: Path) -> None:
    import shutil

    place = tmp_path / "lake"
    settings = {"network.executor": "in_process"}
    with LakeNetwork.from_scenario(EXAMPLES / "two_subnets.toml", settings, lake=str(place)) as net:
        net.run()
    with cw.open(place) as opened:
        many = opened.figures.totals["messages"]
        shutil.rmtree(place)
        with LakeNetwork.from_scenario(EXAMPLES / "two_subnets.toml", settings, lake=str(place)) as net:
            net.run(ticks=1)
        assert opened.reload() and 0 < opened.figures.totals["messages"] < many


def test_only_changed_buckets_of_a_growing_ledger_are_scanned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"protocol": "p", "source": "a", "destination": "b", "lane": f"lane {lane}", "index": index, "kind": "request",
         "event": "sent", "chain": "a", "time": index * SECOND}
        for lane in range(24) for index in range(3)
    ]  # fmt: skip
    place = store_ledger(tmp_path / "ledger", rows, [])
    kept = FiguresCache()
    looked: list[int] = []
    look = FiguresCache.keep

    def watched(self: FiguresCache, ledger: Ledger, asked: FigureRequest, bucket: int, shown: PartialFigures) -> None:
        looked.append(bucket)
        look(self, ledger, asked, bucket, shown)

    monkeypatch.setattr(FiguresCache, "keep", watched)
    compute_figures(open_ledger(place), kept=kept)
    assert len(looked) == 8
    came = {**rows[0], "event": "received", "chain": "b", "time": 9 * SECOND, "stated_by": "test", "source_row": 7}
    for bucket, many in ((None, 1), (None, 1), (3, 1)):  # a loose file, another one, and one of a bucket
        writer = LedgerWriter(open_ledger(place))
        writer.write("ledger", table([came], LEDGER_SCHEMA) if bucket is None else table([], LEDGER_SCHEMA), bucket)
        writer.commit([], {})
        looked.clear()
        found = compute_figures(open_ledger(place), kept=kept)
        assert len(looked) == many and found.totals["delivered"] == 1
        assert found.lanes.equals(compute_figures(open_ledger(place)).lanes)
        came = {**came, "chain": "b", "source_row": 8}


def test_other_messages_are_not_read_if_no_answer_refers_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row for row in there_and_back() if row["lane"] == "asks"]
    place = store_ledger(tmp_path / "ledger", rows, [{"protocol": "p", "promise": "answered"}])
    monkeypatch.setattr("causeway.analysis.stored_figures.collect_replies", None)
    with cw.open(place) as opened:
        assert opened.where(lane="asks").figures.totals["pending"] == 8
