"""A ledger as a Spark data source: all tables, options that select rows, and streams of its commits."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

import causeway as cw
import causeway.spark as cs
from causeway.ledger.commits import LedgerDamaged
from causeway.ledger.ingest.ingest import ingest_files
from causeway.ledger.ingest.mapping import load_mapping
from causeway.ledger.maintenance import remove_garbage
from causeway.ledger.schema import TABLES
from causeway.ledger.store import open_ledger
from causeway.network.opened_ledger import OpenedLedger
from causeway.spark.source import NetworkSource, register_format
from causeway.storage.lake import LakeError
from tests.ledger.ingest.test_ledger_ingest import Folder
from tests.ledger.test_history import grow
from tests.recordings import Recordings
from tests.spark.test_functions import rows_of


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


def test_error_of_a_damaged_ledger_keeps_its_type_in_an_audit(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    grow(folder, 0, 2)
    register_format(spark)
    rows = spark.read.format("causeway").option("table", "ledger").load(str(folder.lake))
    for path in (Path(folder.lake) / "ledger").rglob("*.parquet"):
        content = bytearray(path.read_bytes())
        content[50] ^= 255
        path.write_bytes(content)
    with pytest.raises(LedgerDamaged, match=r"^ledger: cannot be read: ledger/\S+\.parquet ") as caught:
        cs.audit(rows)
    assert "causeway." not in str(caught.value)


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
        ({"table": "ledger", "evnt": "sent"}, 'option "evnt": no such option; did you mean event\\?'),
        ({"table": "ledger", "event": "sunt"}, 'event: "sunt"; allowed: sent, committed, '),
        ({"table": "promises", "promise": "orderd"}, 'promise: "orderd"; allowed: '),
        (
            {"table": "ledger", "index": "3"},
            "index: 3; only text columns select rows: protocol, .*; use where for others",
        ),
        ({"table": "ledger", "heights": "3-4"}, 'option "heights": no such option; '),
        ({"table": "ledger", "startingHeight": "3"}, 'option "startingheight": no such option; '),
        ({"table": "ledger", "maxCommitsPerTrigger": "2"}, "maxCommitsPerTrigger: 2; only of streams"),
    ],
)
def test_wrong_options_are_refused(
    options: dict[str, str], error: str, ledger: OpenedLedger, spark: SparkSession
) -> None:
    with pytest.raises(PySparkException, match=error):
        read_table(spark, ledger, **options).count()


def test_only_tables_that_grow_are_streams(ledger: OpenedLedger) -> None:
    for table in ("observed", "waiting"):
        with pytest.raises(LakeError, match=rf"^table: {table}: only tables that grow are streams: ledger, value,"):
            NetworkSource({"path": ledger.place, "table": table}).streamReader(StructType())


@pytest.mark.parametrize("limit", ["0", "-1", "many", ""])
def test_wrong_limit_is_refused_when_the_stream_is_read(limit: str, ledger: OpenedLedger, spark: SparkSession) -> None:
    register_format(spark)
    stream = spark.readStream.format("causeway").options(table="ledger", maxCommitsPerTrigger=limit)
    with pytest.raises(PySparkException, match=f"maxCommitsPerTrigger: '?{limit}'?; allowed: a whole number from"):
        stream.load(ledger.place)


DAMAGED = [{}, [], "x", 3, {"number": 0}, {"number": "0", "digest": "a" * 64}, {"number": 0, "digest": ""}]


@pytest.mark.parametrize("offset", [*DAMAGED, {"number": -1, "digest": "a" * 64}, {"number": 0, "digest": "x", "a": 1}])
def test_damaged_offsets_are_refused(offset: Any, ledger: OpenedLedger) -> None:
    source = NetworkSource({"path": ledger.place, "table": "ledger"})
    stream: Any = source.streamReader(source.schema())
    begin, end = stream.initialOffset(), stream.latestOffset()
    for call in (
        lambda: stream.latestOffset(offset, None),
        lambda: stream.partitions(offset, end),
        lambda: stream.partitions(begin, offset),
    ):
        with pytest.raises(
            LakeError, match=r'^checkpoint: offset .*; must be {"number": COMMIT, "digest": DIGEST}, as'
        ):
            call()
    with pytest.raises(LakeError, match=r"^checkpoint: offset {.number.: -1, .*; must be a commit after 0, the start"):
        stream.partitions(end, begin)


class Stream:
    """A query that reads what is new of a ledger, with a checkpoint; the driver keeps the rows of its micro-batches."""

    def __init__(self, spark: SparkSession, folder: Path, **options: str) -> None:
        register_format(spark)
        self._spark, self._folder, self._options = spark, folder, options
        self.batches: dict[int, list[str]] = {}

    def drain(self) -> dict[int, list[str]]:
        """Run the query until nothing is new; return the rows of its micro-batches, by number."""
        found: dict[int, list[str]] = {}
        stream = self._spark.readStream.format("causeway").options(table="ledger", **self._options)
        query = stream.load(str(self._folder / "ledger")).writeStream.trigger(availableNow=True)
        query = query.option("checkpointLocation", str(self._folder / "notes"))
        done = query.foreachBatch(lambda frame, number: found.update({number: rows_of(frame.toArrow())})).start()
        assert done.awaitTermination(120)
        self.batches |= found
        return found

    def replace_last_offset(self, text: str) -> None:
        """Edit the end of the last micro-batch in the checkpoint."""
        last = max((self._folder / "notes" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        last.write_text("\n".join([*last.read_text().splitlines()[:-1], text]))
        (last.parent / f".{last.name}.crc").unlink()

    def forget_last_batch(self) -> int:
        """Leave the checkpoint as a driver does that is killed after its last micro-batch."""
        last = max((self._folder / "notes" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        last.unlink()
        (last.parent / f".{last.name}.crc").unlink()
        return int(last.name)


@pytest.mark.slow
def test_stream_yields_the_rows_of_each_commit_once(spark: SparkSession, tmp_path: Path) -> None:
    folder, stream = Folder(tmp_path), Stream(spark, tmp_path, maxCommitsPerTrigger="4")
    grow(folder, 0, 2)
    assert stream.drain() == {0: rows_of(cw.open(folder.lake).ledger.arrow())}
    assert stream.drain() == {}
    last = grow(folder, 2, 11).number  # past a merge
    assert [*stream.drain()] == [*range(1, 1 + -(-(last - 1) // 4))]
    received = [row for rows in stream.batches.values() for row in rows]
    assert len(received) == 22 and sorted(received) == rows_of(cw.open(folder.lake).ledger.arrow())

    # A driver killed in a micro-batch repeats it, also when the commits grow or merge meanwhile.
    number = stream.forget_last_batch()
    before = stream.batches[number]
    ledger = grow(folder, 11, 12)
    again = stream.drain()
    assert again.pop(number) == before and [len(rows) for rows in again.values()] == [2]

    stream.forget_last_batch()
    grow(folder, 12, 20)
    remove_garbage(open_ledger(folder.lake), kept=0.0)
    with pytest.raises(PySparkException, match=rf"commit {ledger.number}: their rows are only in merged files"):
        stream.drain()


def test_stream_refuses_an_edited_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    folder, stream = Folder(tmp_path), Stream(spark, tmp_path)
    grow(folder, 0, 2)
    assert len(stream.drain()) == 1
    stream.replace_last_offset("{}")
    with pytest.raises(PySparkException, match=r'LakeError: checkpoint: offset {}; must be {"number": COMMIT, "digest'):
        stream.drain()


def test_stream_refuses_another_ledger(spark: SparkSession, tmp_path: Path) -> None:
    folder, stream = Folder(tmp_path), Stream(spark, tmp_path, sender="w1")
    grow(folder, 0, 2)
    assert [len(rows) for rows in stream.drain().values()] == [1]
    shutil.rmtree(folder.lake)
    grow(folder, 1, 2)
    with pytest.raises(PySparkException, match="ledger: commit 1 is not the one that was read before; read it from"):
        stream.drain()
