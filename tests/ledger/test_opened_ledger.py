"""``cw.open``: ledgers and lakes of runs, read from Python without a scenario."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import causeway as cw
from causeway.analysis.figures.message_rows import MESSAGES_SCHEMA
from causeway.analysis.selections import Rows
from causeway.cli.app import build_app
from causeway.cli.shell import OK, execute
from causeway.ledger.schema import VALUE_SCHEMA
from causeway.ledger.store import LedgerWriter, group_by_bucket, open_ledger
from causeway.network.network import LakeNetwork
from tests.support.properties.audit_ledgers import table

HEAD = "direction,side,chain,timestamp,tx_hash,nonce,token_dst,beneficiary,amount\n"
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def ingest_records(folder: Path, nonces: range, *, twice: bool = False) -> str:
    rows = []
    for nonce in nonces:
        for side, chain, at in (("send", "ethereum", 10_000), ("recv", "moonbeam", 20_000)):
            amount = 7 if (side, nonce) == ("recv", 3) else 2**100
            rows.append(f"eth->moonbeam,{side},{chain},{at + nonce},0x{side}{nonce},{nonce},gold,me,{amount}\n")
    place = str(folder / "ledger")
    for name, text in (("a.csv", HEAD + "".join(rows)), ("b.csv", HEAD + "".join(reversed(rows)))):
        if name == "a.csv" or twice:
            (folder / name).write_text(text)
            assert (
                execute(["ingest", "bridge-events", str(folder / name), "--lake", place], build_app, "causeway") == OK
            )
    return place


def test_ledger_is_audited_traced_and_read_as_tables(tmp_path: Path) -> None:
    with cw.open(ingest_records(tmp_path, range(5), twice=True)) as ledger:
        found = ledger.audit()
        assert not found.holds and found.checks["authenticity"].violated == 1
        assert ledger.audit("finality").holds and [*ledger.audit("finality").checks] == ["finality"]
        assert ledger.audit("finality").violations.arrow().num_rows == 0
        assert {*found.violations.pandas()["index"]} == {3}
        assert "authenticity" in repr(found) and "<table>" in found._repr_html_()
        (life,) = ledger.trace("0xsend2").lives
        assert (life.index, life.outcome) == (2, "received")
        assert ledger.ledger.arrow().num_rows == 10  # each event once, though two files record it
        assert "&lt;" in ledger.observed._repr_html_() or "ethereum" in ledger.observed._repr_html_()
        assert "quarantine" in dir(ledger) and repr(ledger).startswith("<ledger ")
        with pytest.raises(AttributeError, match="its tables are ledger"):
            _ = ledger.packets
        with pytest.raises(cw.InvalidInput, match="check: honesty: must be one of"):
            ledger.audit("honesty")


def test_later_commits_are_visible_after_a_reload(tmp_path: Path) -> None:
    with cw.open(ingest_records(tmp_path, range(3))) as ledger:
        (tmp_path / "more").mkdir()
        (tmp_path / "more" / "c.csv").write_text(HEAD + "eth->moonbeam,send,ethereum,9,0xnew,9,gold,me,1\n")
        more = ["ingest", "bridge-events", str(tmp_path / "more"), "--lake", ledger.place]
        assert execute(more, build_app, "causeway") == OK
        assert ledger.ledger.arrow().num_rows == 6
        ledger.reload()
        assert ledger.ledger.arrow().num_rows == 7


def test_lake_of_a_run_is_opened_as_a_ledger_and_left_unchanged(tmp_path: Path) -> None:
    place = tmp_path / "lake"
    with LakeNetwork.from_scenario(
        EXAMPLES / "auction.toml", {"network.executor": "in_process"}, lake=str(place)
    ) as net:
        net.run()
    before = {path: path.stat().st_mtime_ns for path in place.rglob("*")}
    with cw.open(place) as ledger:
        found = ledger.audit()
        assert found.holds and found.checks["conservation"].examined > 20 and found.checks["headers"].examined > 0
        derived = Path(ledger._ledger.storage.uri)
        assert derived.exists() and not str(derived).startswith(str(place))
        rows = ledger.ledger.arrow()
    assert not derived.exists() and rows.num_rows > 100
    assert {path: path.stat().st_mtime_ns for path in place.rglob("*")} == before


def test_tables_are_frames_of_the_users_session(tmp_path: Path, spark: SparkSession) -> None:
    place = ingest_records(tmp_path, range(5), twice=True)
    for name in ("a", "b"):  # two files record one movement
        moved = {
            "protocol": "p",
            "chain": "x",
            "height": 7,
            "asset": "gold",
            "amount_0": 2**64 - 1,
            "why": "fee",
            "stated_by": name,
        }
        ledger_writer = LedgerWriter(open_ledger(place))
        for bucket, own in group_by_bucket(table([moved], VALUE_SCHEMA), ledger_writer.ledger.buckets, "value").items():
            ledger_writer.write("value", own, bucket)
        ledger_writer.commit([], {})
    with cw.open(place) as ledger:
        assert ledger.value.arrow()["stated_by"].to_pylist() == ["a"] and ledger.value.count is None
        assert [int(row["amount_0"]) for row in ledger.value.spark(spark).collect()] == [2**64 - 1]
        frame = ledger.ledger.spark(spark)
        assert frame.where("event = 'sent'").count() == 5
        assert sorted(int(row["index"]) for row in frame.where("event = 'received'").collect()) == [*range(5)]
        assert ledger.promises.spark(spark).count() == ledger.promises.arrow().num_rows > 0
        assert ledger.observed.spark(spark).count() == 2
        found = ledger.audit(executor="spark", session=spark)
        assert found.violations.arrow().equals(ledger.audit(executor="in_process").violations.arrow())


def test_mistakes_are_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "packets.parquet").write_bytes(b"PAR1")
    for wrong, text in (
        (tmp_path, "no lake or ledger found"),
        (tmp_path / "nowhere", "no lake or ledger found"),
        (tmp_path / "packets.parquet", "a file, and a lake or a ledger is a folder; causeway ingest"),
        ("", "must be the path or URI of a lake or a ledger"),
        (None, "place: null: must be the path"),
    ):
        with pytest.raises(cw.InvalidInput, match=text):
            cw.open(wrong)
    place = tmp_path / "lake"
    with LakeNetwork.from_scenario(
        EXAMPLES / "two_subnets.toml", {"network.executor": "in_process"}, lake=str(place)
    ) as net:
        net.run(ticks=1)
    with cw.open(place) as opened:
        rows = [opened.calls, opened.ledger]
        for height in ("5", -1, True):
            with pytest.raises(cw.InvalidInput, match=r"height: .*: must be a whole number from 0 on"):
                opened.state("lanes", height=height)  # type: ignore[arg-type]
    for late in (*(each.arrow for each in rows), lambda: opened.figures, opened.audit, lambda: opened.value):
        with pytest.raises(cw.InvalidInput, match="lake: was closed; open it again"):
            late()
    assert "closed" in repr(opened) and "closed" in opened._repr_html_()
    assert opened.reload() is not None and opened.calls.arrow().num_rows > 0
    opened.close()


def test_documented_columns_of_calls_match_the_code() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "open-a-lake.md").read_text()
    rows = text.partition("| column | type | meaning |")[2].partition("\n\n")[0].splitlines()[2:]
    told = {
        name.strip("` "): kind.strip()
        for _, names, kind, _, _ in (row.split("|") for row in rows)
        for name in names.split(",")
    }
    assert told == {field.name: str(field.type) for field in MESSAGES_SCHEMA}


def test_pandas_groups_by_the_names_of_rows(tmp_path: Path) -> None:
    with cw.open(ingest_records(tmp_path, range(3))) as opened:
        for rows in (opened.ledger, opened.calls, opened.lanes):
            frame = rows.pandas()
            assert not any(isinstance(kind, pd.CategoricalDtype) for kind in frame.dtypes), rows.name
        groups = opened.ledger.pandas().groupby(["source", "destination", "chain", "event"]).size()
        assert groups.min() > 0 and groups.sum() == opened.ledger.arrow().num_rows


def test_arrow_stream_readers_accept_tables_directly(tmp_path: Path) -> None:
    with cw.open(ingest_records(tmp_path, range(4))) as opened:
        rows, lanes = opened.ledger, opened.lanes
        assert rows.columns == rows.arrow().column_names and lanes.columns[:2] == ["protocol", "source"]
        assert (
            pa.table(rows).select(["chain", "index"]).to_pylist() == rows.arrow().select(["chain", "index"]).to_pylist()
        )
        assert pl.DataFrame(lanes).height == lanes.arrow().num_rows == 1
        counted = duckdb.sql('select event, count(*), max("index") from rows group by event order by event')
        assert counted is not None and counted.fetchall() == [("received", 4, 3), ("sent", 4, 3)]
        assert rows.head(3).arrow().equals(rows.arrow().slice(0, 3)) and rows.head(0).arrow().num_rows == 0
        for wrong in (-1, 1.5, True):
            with pytest.raises(cw.InvalidInput, match=r"head: .*must be a whole number"):
                rows.head(wrong)  # type: ignore[arg-type]


def test_first_rows_are_read_without_the_others() -> None:
    read = []

    def parts() -> Iterator[pa.Table]:
        for number in range(5):
            read.append(number)
            yield pa.table({"number": [number, number]})

    rows = Rows("numbers", pa.schema([("number", pa.int64())]), parts)
    assert rows.head(3).arrow()["number"].to_pylist() == [0, 0, 1] and read == [0, 1]
