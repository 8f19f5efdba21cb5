"""A lake as a Spark data source: tables, heights, filters, and a stream across restarts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from causeway.dataframes.data_source import HeightPartition, LakeSource, require_known_options
from causeway.network.network import LakeNetwork
from causeway.spark.source import register_format
from causeway.storage.lake import LakeError

SCENARIO = Path(__file__).resolve().parents[2] / "examples" / "generated.toml"
SMALL = {
    "network.executor": "in_process",
    "network.partitions": "2",
    "options.certification": "off",
    "traffic.messages": "300",
    "traffic.ticks": "40",
}


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeNetwork]:
    place = tmp_path_factory.mktemp("source") / "lake"
    with LakeNetwork.from_scenario(SCENARIO, SMALL, lake=str(place)) as network:
        network.run()
        yield network


def read_table(spark: SparkSession, network: LakeNetwork, **options: object) -> DataFrame:
    register_format(spark)
    reader = spark.read.format("causeway")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load(network.lake.storage.uri)


def test_every_kind_of_table(spark: SparkSession, network: LakeNetwork) -> None:
    for table in ("outbound", "events"):
        assert read_table(spark, network, table=table).count() == network.tables.log(table).count()
    chains = read_table(spark, network, table="chains")
    assert chains.count() == len(network.lake.about()["chains"])
    accounts = read_table(spark, network, table="accounts", height=3)
    assert sorted(accounts.collect()) == sorted(network.state("accounts", height=3).collect())
    assert dict(accounts.dtypes) == dict(network.state("accounts").dtypes)


def test_state_of_a_height_within_a_commit(spark: SparkSession, network: LakeNetwork, tmp_path: Path) -> None:
    overrides = {**SMALL, "network.partitions": "1", "network.commit_every": "4"}
    with LakeNetwork.from_scenario(SCENARIO, overrides, lake=str(tmp_path / "lake")) as grouped:
        grouped.run(ticks=6)
        assert grouped.lake.manifest(3).last == 4
        for table in ("accounts", "input_queues"):
            expected = network.state(table, height=3)
            rows = read_table(spark, grouped, table=table, height=3)
            assert sorted(rows.collect()) == sorted(grouped.state(table, 3).collect()) == sorted(expected.collect())
            assert rows.dtypes == grouped.state(table, 3).dtypes == expected.dtypes
        own = grouped.state("accounts", 3, grouped.lake.about()["chains"][0]["name"])
        assert 0 < own.count() < grouped.state("accounts", 3).count()


@pytest.mark.parametrize(
    ("text", "heights"), [("5-6", (5, 7)), ("5-", (5, None)), ("-6", (0, 7)), ("6", (6, 7)), ("6-6", (6, 7))]
)
def test_range_of_heights(text: str, heights: tuple[int, int | None]) -> None:
    assert HeightPartition.parse(text) == HeightPartition(*heights)


@pytest.mark.parametrize("text", ["", "-", "a", "1-2-3", "1 - 2", "-1-2", "9" * 19, "\u0661"])
def test_other_texts_are_no_range_of_heights(text: str) -> None:
    with pytest.raises(LakeError, match=r"^heights: .*; allowed: ranges such as 10-20, 10- or -20$"):
        HeightPartition.parse(text)


def test_range_of_heights_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(LakeError, match=r"^heights: '7-6'; the first must be at most the last$"):
        HeightPartition.parse("7-6")


def test_heights_select_the_files_to_open(spark: SparkSession, network: LakeNetwork) -> None:
    source = LakeSource({"path": network.lake.storage.uri, "table": "events", "heights": "5-6"})
    reader = source.reader(source.schema())
    assert 0 < len(reader.partitions()) <= 4
    frame = read_table(spark, network, table="events", heights="3-8").where("height in (3, 5) or height > 6")
    expected = network.tables.log("events").where("(height in (3, 5) or height > 6) and height < 9")
    assert frame.count() == expected.count() > 0


def test_filter_of_a_query_does_not_change_the_next_one(spark: SparkSession, network: LakeNetwork) -> None:
    """Spark would keep a filter that the source takes."""
    events = read_table(spark, network, table="events")
    whole = events.count()
    assert 0 < events.where("height = 5").count() < events.count() == whole


def test_stream_delivers_each_row_once_to_a_sink_across_restarts(spark: SparkSession, tmp_path: Path) -> None:
    register_format(spark)
    place, sink, notes = (str(tmp_path / name) for name in ("lake", "sink", "notes"))

    def drain() -> None:
        stream = spark.readStream.format("causeway").option("table", "outbound").option("maxHeightsPerTrigger", 20)
        query = stream.load(place).writeStream.format("parquet").option("checkpointLocation", notes)
        assert query.trigger(availableNow=True).start(sink).awaitTermination(120)

    with LakeNetwork.from_scenario(SCENARIO, SMALL, lake=place) as network:
        network.run(ticks=10)
        drain()
        network.run()  # past a compaction, which the query's next run encounters
        drain()
        drain()
        expected = sorted(network.tables.log("outbound").select("source", "destination", "index", "height").collect())
        found = sorted(spark.read.parquet(sink).select("source", "destination", "index", "height").collect())
        assert found == expected and network.lake.compactions()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "table: missing; allowed: outbound, events"),
        ({"table": "nothing"}, "table: nothing; allowed: outbound"),
        ({"table": "events", "height": "1"}, "only a state table is read at one height"),
        ({"table": "accounts", "heights": "1-2"}, "heights: 1-2; only of a log table: outbound, events"),
        ({"table": "accounts", "height": "-1"}, "height: '-1'; allowed: a whole number from 0"),
        ({"table": "accounts", "height": "4000"}, "4000"),
        ({"table": "events", "hieghts": "1-2"}, 'option "hieghts": no such option; did you mean heights\\?'),
        ({"table": "events", "event": "sent"}, 'option "event": no such option; there are 6: path, table, height,'),
        ({"table": "events", "startingHeight": "x"}, "startingHeight: 'x'; allowed: a whole number from 0"),
        ({"table": "events", "startingHeight": "9" * 19}, "startingHeight: '9{19}'; allowed: a whole number from 0"),
        ({"table": "events", "maxHeightsPerTrigger": "0"}, "maxHeightsPerTrigger: 0; allowed: a whole number from 1"),
        ({"table": "events", "startingHeight": "3"}, "startingHeight: 3; only of streams; heights selects rows"),
    ],
)
def test_unreadable_input_is_reported(network: LakeNetwork, options: dict[str, str], text: str) -> None:
    source = LakeSource({"path": network.lake.storage.uri, **options})
    with pytest.raises(LakeError, match=text):
        source.reader(source.schema()).partitions()


def test_options_of_batches_are_refused_in_streams(network: LakeNetwork) -> None:
    source = LakeSource({"path": network.lake.storage.uri, "table": "events", "heights": "1-2"})
    with pytest.raises(LakeError, match=r"^heights: 1-2; not of streams; they have startingHeight$"):
        source.streamReader(source.schema())


@pytest.mark.parametrize(
    "offset", [{}, [], 7, {"height": -1}, {"height": "3"}, {"height": True}, {"height": 1, "a": 2}]
)
def test_damaged_offsets_are_refused(network: LakeNetwork, offset: Any) -> None:
    source = LakeSource({"path": network.lake.storage.uri, "table": "events"})
    stream, error = source.streamReader(source.schema()), r'^checkpoint: offset .*; must be {"height": NUMBER}, as a'
    for call in (
        lambda: stream.latestOffset(offset),
        lambda: stream.partitions(offset, {"height": 9}),
        lambda: stream.partitions({"height": 0}, offset),
    ):
        with pytest.raises(LakeError, match=error):
            call()
    with pytest.raises(LakeError, match=r"^checkpoint: offset {.height.: 2}; must be a height from 3, the start"):
        stream.partitions({"height": 3}, {"height": 2})


def test_properties_of_tables_are_no_options() -> None:
    """Spark adds them to the options of a table of its catalog."""
    known = LakeSource.known_options
    table = {"provider": "causeway", "owner": "me", "location": "s3://b/l", "path": "s3://b/l", "option.heights": "3"}
    require_known_options({**table, "heights": "3", "comment": "c"}, known)
    with pytest.raises(LakeError, match=r'^option "hieghts": no such option; did you mean heights\?$'):
        require_known_options({**table, "option.hieghts": "3"}, known)
    require_known_options({"startingheight": "3"}, known)


def test_only_log_tables_stream(spark: SparkSession, network: LakeNetwork) -> None:
    register_format(spark)
    stream = spark.readStream.format("causeway").option("table", "accounts").load(network.lake.storage.uri)
    with pytest.raises(PySparkException, match="only log tables grow"):
        stream.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination(120)
