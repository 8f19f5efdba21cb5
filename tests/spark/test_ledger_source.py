"""A ledger as a Spark data source: all tables, and options that select rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import causeway as cw
from causeway.ledger.ingest.ingest import ingest_files
from causeway.ledger.ingest.mapping import load_mapping
from causeway.ledger.schema import TABLES
from causeway.network.opened_ledger import OpenedLedger
from causeway.spark.source import register_format
from tests.recordings import Recordings


@pytest.fixture(scope="module")
def ledger(recordings: Recordings, tmp_path_factory: pytest.TempPathFactory) -> OpenedLedger:
    place = tmp_path_factory.mktemp("source") / "ledger"
    ingest_files(str(recordings.bridge_events), str(place), load_mapping("bridge-events"), buckets=3)
    return cw.open(place)


def read_table(spark: SparkSession, ledger: OpenedLedger, **options: str) -> DataFrame:
    register_format(spark)
    return spark.read.format("causeway").options(**options).load(ledger.place)


def stored(ledger: OpenedLedger, table: str, spark: SparkSession) -> DataFrame:
    frame: DataFrame = getattr(ledger, table).spark(spark)
    return frame


@pytest.mark.parametrize("table", TABLES)
def test_tables_equal_those_of_the_opened_ledger(table: str, ledger: OpenedLedger, spark: SparkSession) -> None:
    found, expected = read_table(spark, ledger, table=table).toArrow(), stored(ledger, table, spark).toArrow()
    assert found.schema == expected.schema and found.num_rows == expected.num_rows
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, expected.to_pylist()))


def test_options_select_rows(ledger: OpenedLedger, spark: SparkSession) -> None:
    received = read_table(spark, ledger, table="ledger", event="received", chain="moonbeam")
    assert received.where("index = 11367").count() == 1 and received.where("event <> 'received'").count() == 0
    assert 0 < received.count() < read_table(spark, ledger, table="ledger").count()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"table": "lanes"}, "table: lanes; allowed: ledger, "),
        ({}, "table: missing; allowed: ledger, "),
        ({"table": "ledger", "height": "3"}, "height: a ledger is read as of its last commit"),
    ],
)
def test_wrong_options_are_refused(
    options: dict[str, str], error: str, ledger: OpenedLedger, spark: SparkSession
) -> None:
    with pytest.raises(PySparkException, match=error):
        read_table(spark, ledger, **options).count()


def test_ledger_is_no_stream(ledger: OpenedLedger, spark: SparkSession, tmp_path: Path) -> None:
    register_format(spark)
    stream = spark.readStream.format("causeway").option("table", "ledger").load(ledger.place)
    with pytest.raises(PySparkException, match="is a ledger; only log tables of a lake are streams"):
        stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start().awaitTermination()
