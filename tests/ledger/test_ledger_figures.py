"""Figures of a stored ledger in this process and on Spark are equal to the last row."""

from __future__ import annotations

from dataclasses import fields
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import causeway as cw
from benchmarks.audit.stored import write_ledger
from benchmarks.audit.workload import Workload
from causeway.analysis.figures.filters import MessageFilter
from causeway.analysis.stored_figures import compute_figures
from causeway.dataframes.lake_tables import LakeTables
from causeway.ledger import bucket_scan
from causeway.ledger.store import Ledger, LedgerDamaged, open_ledger
from causeway.network.network import LakeNetwork
from causeway.storage.lake import Lake
from tests.ledger.test_figures import EXAMPLES, store_ledger, there_and_back


@pytest.mark.slow
def test_figures_runner_makes_no_difference(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_ledger(Workload(8_000, 20), str(tmp_path / "large"), 4, 2)
    store_ledger(tmp_path / "small", there_and_back(), [{"lane": "asks", "promise": "answered"}])
    jobs: list[list[int]] = []
    told: list[int] = []
    run = bucket_scan.run_buckets

    def watched(session: SparkSession, ledger: Ledger, buckets: list[int], *more: Any, **named: Any) -> Any:
        jobs.append(buckets)
        return run(session, ledger, buckets, *more, **named)

    def tell(done: int, of: int) -> None:
        told.append(done)

    monkeypatch.setattr(bucket_scan, "run_buckets", watched)
    for place, where, looks in (("large", MessageFilter(), 1), ("small", MessageFilter.of(lane="asks"), 4)):
        ledger = open_ledger(str(tmp_path / place))
        jobs.clear()
        told.clear()
        found = compute_figures(ledger, where=where, by_lane=True, session=spark, progress=tell)
        assert len(jobs) == looks and told[-1] == found.totals["rows"]
        for cores in (1, 3):
            monkeypatch.setattr(bucket_scan, "available_cores", lambda cores=cores: cores)
            here = compute_figures(ledger, where=where, by_lane=True, executor="in_process")
            for name in (field.name for field in fields(found)):
                one, other = getattr(found, name), getattr(here, name)
                assert one.equals(other) if isinstance(one, pa.Table) else one == other, name


def test_state_tables_match_those_read_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "lake")
    settings = {"network.executor": "in_process", "network.commit_every": "2"}
    with LakeNetwork.from_scenario(EXAMPLES / "two_subnets.toml", settings, lake=place) as net:
        net.run()
    with cw.open(place) as opened:
        tables = LakeTables(spark, Lake.at(place), opened._states._replayed.tables)
        height = next(each for each in tables.heights() if tables.manifest(each).last > each > 1)  # within a commit
        for table, chain, at in (("heads", None, None), ("program_caller", "left", height), ("lanes", "right", 2)):
            order = list(tables.state_tables()[table].order)
            expected = [tuple(row) for row in tables.state(table, at, chain).orderBy(*order).collect()]
            found = [tuple(row.values()) for row in opened.state(table, at, chain)]
            assert [[*map(plain, row)] for row in found] == [[*map(plain, row)] for row in expected], table
        named = opened.state("program_caller", names=True).arrow()["program"].to_pylist()
        assert named == ["alice"]
        with pytest.raises(cw.InvalidInput, match=r"table: .*lanes"):
            opened.state("lane")
        with pytest.raises(cw.CausewayError, match="chain"):
            opened.state("lanes", chain="middle").arrow()


def plain(value: Any) -> Any:
    return int(value) if isinstance(value, Decimal) else bytes(value) if isinstance(value, bytearray) else value


def test_messages_are_a_frame_of_the_users_session(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAUSEWAY_SESSION_ROWS", "0")  # so that the session is used for figures, too
    with cw.open(
        store_ledger(tmp_path / "ledger", there_and_back(), [{"lane": "asks", "promise": "answered"}])
    ) as opened:
        frame = opened.calls.spark()
        counted = frame.groupBy("outcome").count().orderBy("outcome").collect()
        assert [tuple(row) for row in counted] == [("answered", 3), ("pending", 2), ("refunded", 1), ("rejected", 2)]
        assert frame.agg(F.sum("round_trip_seconds")).collect()[0][0] == 9.0 * sum(range(1, 7))
        assert opened.calls.where(outcome="pending").spark().count() == 2
        assert (
            opened.lanes.spark().where("pending > 0").count() == opened.lanes.where(lane="asks").arrow().num_rows == 1
        )
        path = next(Path(opened.place).rglob("*.parquet"))
        path.write_bytes(b"PAR1" + path.read_bytes()[4:-1] + b"2")
        with pytest.raises(LedgerDamaged):
            _ = opened.where(kind="request").figures
