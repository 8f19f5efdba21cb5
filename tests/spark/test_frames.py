"""Audits of a DataFrame equal those of a stored ledger for any Spark types; bad columns fail."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import causeway.spark as cs
from benchmarks.audit.stored import Tables
from benchmarks.audit.workload import Workload
from causeway.audit.engine import audit_table
from causeway.ledger.encodings import amount_texts
from causeway.ledger.ingest.mapping import MappingDocument
from causeway.ledger.row_rules import PROMISE_OPTIONS, find_window_fault
from causeway.ledger.schema import LEDGER_SCHEMA, LIMBS, OBSERVED_SCHEMA, PROMISES_SCHEMA, VALUE_SCHEMA
from tests.ledger.test_ledger_audit import CHANCE, ZONES
from tests.support.properties.audit_ledgers import Case, by_chance, table, zones_by_chance

NOON = dt.datetime(2026, 1, 1, 12)


def frame(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Return rows as Spark reads them from Parquet."""
    kinds = [pa.decimal128(20, 0) if kind == pa.uint64() else kind for kind in rows.schema.types]
    plain = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in kinds]
    plain = [pa.binary() if pa.types.is_fixed_size_binary(kind) else kind for kind in plain]
    return spark.createDataFrame(rows.cast(pa.schema(zip(rows.column_names, plain, strict=True))))


def test_frame_audit_equals_the_row_audit(spark: SparkSession) -> None:
    tables = Tables(Workload(1_600, 10))
    rows = pa.concat_tables([part for own in tables.segments(3) for part in tables.bucket(own)])
    lane = {"protocol": "bridge", "source": "chain-00", "destination": "chain-01", "lane": "one end"}
    told = {"kind": "request", "event": "received", "chain": "chain-01", "stated_by": "test"}
    others = [{**lane, **told, "index": 2**64 - 1 - index, "height": 2**63 + index} for index in range(1_003)]
    others += [{**lane, **told, "message_id": name, "event": event} for name in "ba" for event in ("received", "sent")]
    calls = {**lane, "lane": "calls", "kind": "request", "event": "sent", "chain": "chain-00", "stated_by": "test"}
    replies = {**lane, "source": "chain-01", "destination": "chain-00", "lane": "replies", "stated_by": "test"}
    replies |= {"kind": "response", "event": "received", "chain": "chain-00"}
    others += [{**calls, "index": index << 18, "message_id": f"call {index}", "height": 9} for index in range(5)]
    others += [{**replies, "index": index << 18, "answers": f"call {index % 3}", "height": 10} for index in range(2, 7)]
    upgraded = {**lane, "lane": "anew", "kind": "request", "index": 1, "chain": "upgraded", "stated_by": "test"}
    others += [{**upgraded, "event": "sent", "height": 100, "time": 1}]
    others += [{**upgraded, "event": "committed", "height": 7, "time": 2}]
    rows = pa.concat_tables([rows, table(others, LEDGER_SCHEMA)]).unify_dictionaries()
    expected = audit_table(rows, tables.observed(), tables.promises())
    given = frame(spark, rows).orderBy(F.rand(1)).withColumn("note", F.lit(1))
    found = cs.audit(given, observed=frame(spark, tables.observed()), promises=tables.promises(), buckets=3)
    assert found.checks == expected.checks and not found.holds
    assert ("violated", "committed_before_sent") not in expected.checks["causality"].reasons
    assert found.checks["exactly_once"].reasons["violated", "answered_twice"] == 2
    for name in ("violations", "completeness", "lanes", "sums"):
        assert getattr(found.audit, name).equals(getattr(expected, name)), name
    assert found.violations.count() == expected.violations.num_rows
    sent = found.lanes.where("lane = 'one end'").select("sent", "missing").collect()
    assert [tuple(row) for row in sent] == [(2, Decimal(0))]


def keep_allowed(case: Case) -> None:
    """Remove the windows and guarantees that DataFrames must not have, and audits of stored ledgers skip."""
    names = ("revision", "first_height", "last_height", "first_time", "last_time")
    case.observed = [row for row in case.observed if find_window_fault({name: row.get(name) for name in names}) is None]
    case.promises = [
        row for row in case.promises if (row.get("number") is not None) == (row["promise"] in PROMISE_OPTIONS)
    ]


def test_headers_and_watermarks_are_checked(spark: SparkSession) -> None:
    case = by_chance(Random(CHANCE))
    case.observed = [{**row, "first_time": None, "last_time": None, "events": None} for row in case.observed]
    keep_allowed(case)
    headers, watermarks = (frame(spark, part) for part in case.stated(1)[0]())
    rows, windows = (
        table(case.rows, LEDGER_SCHEMA),
        spark.createDataFrame(
            [(row["chain"], row["first_height"], row["last_height"]) for row in case.observed],
            "chain string, first_height int, last_height int",
        ),
    )
    found = cs.audit(
        frame(spark, rows), observed=windows, headers=headers.orderBy("root"), watermarks=watermarks, buckets=2
    )
    for row in case.observed:
        row |= dict.fromkeys(("protocol", "source", "destination", "lane"))
    case.promises = []
    expected = case.audit()
    for name in ("headers", "watermarks"):
        assert found.checks[name] == expected.checks[name] and found.checks[name].violated


def test_causal_order_is_checked(spark: SparkSession) -> None:
    case = zones_by_chance(Random(ZONES))
    rows, observed, promises = case.tables()
    found, expected = cs.audit(frame(spark, rows), observed=observed, promises=promises, buckets=3), case.audit()
    assert found.checks == expected.checks and found.checks["causal_order"].violated
    assert found.audit.violations.equals(expected.violations)


def test_movements_of_value_are_checked(spark: SparkSession) -> None:
    case = by_chance(Random(56))
    case.headers, case.watermarks = [], []
    keep_allowed(case)
    windows = [{**row, "how": "declared", "stated_by": "test"} for row in case.observed]
    promised = [{**row, "stated_by": "test"} for row in case.promises]
    given = {"observed": table(windows, OBSERVED_SCHEMA), "promises": table(promised, PROMISES_SCHEMA)}
    rows, value = table(case.rows, LEDGER_SCHEMA), table(case.value, VALUE_SCHEMA)
    found = cs.audit(frame(spark, rows), **given, value=frame(spark, value).orderBy("why", F.rand(1)), buckets=3)
    expected = case.audit()
    assert found.checks == expected.checks and found.abroad.count() == expected.abroad.num_rows > 0
    for name in ("violations", "completeness", "lanes", "sums", "abroad"):
        assert getattr(found.audit, name).equals(getattr(expected, name)), name
    with pytest.raises(InvalidInput, match="value: why: is null"):
        cs.audit(frame(spark, rows), value=spark.createDataFrame([("p", None)], "protocol string, why string"))


def not_utf8(column: str, schema: pa.Schema) -> pa.Table:
    """Return a row of a table with a text that is not UTF-8."""
    octets = pa.array([b"a\xffb"], pa.binary()).buffers()
    names = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), pa.StringArray.from_buffers(1, *octets[1:]))
    rows = table([{column: "a", "how": "declared", "stated_by": "me"}], schema)
    return rows.set_column(schema.get_field_index(column), schema.field(column), names)


SMALL = "protocol string, source string, lane string, index int, kind string, event string, time timestamp_ntz"
ROW = ("p", "a", "1", 1, "request", "sent", NOON)


def test_absent_columns_are_unrecorded(spark: SparkSession) -> None:
    rows = [ROW, (*ROW[:5], "received", NOON + dt.timedelta(seconds=9))]
    found = cs.audit(spark.createDataFrame(rows, SMALL))
    assert found.checks["exactly_once"].verdict == "PASSED" and found.checks["exactly_once"].examined == 1
    (side,) = found.completeness.where("side = 'source'").select("first_time", "last_time").collect()
    assert side["first_time"].replace(tzinfo=dt.UTC) == side["last_time"].replace(tzinfo=dt.UTC)
    assert found.audit.completeness["first_time"][0].as_py() == NOON.replace(tzinfo=dt.UTC)


def test_amount_may_be_one_column(spark: SparkSession) -> None:
    amounts = {1: "7", 2: str(2**64), 3: None, 4: str(2**255 - 1)}
    rows = [(*ROW[:3], index, *ROW[4:], "gold", amount) for index, amount in amounts.items()]
    texts = spark.createDataFrame(rows, f"{SMALL}, asset string, amount string")
    with cs.store(texts) as stored:
        found = stored.ledger.arrow().sort_by("index")
    assert amount_texts([found[name] for name in LIMBS]).to_pylist() == [*amounts.values()]
    decimals = texts.where("index < 4").withColumn("amount", F.col("amount").cast("decimal(38, 9)"))
    assert cs.audit(decimals).audit.sums["sent"].to_pylist() == [str(2**64 + 7)]


NOT_UTF8 = "cast(x'61ff62' as string)"


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda df: df.drop("event"), "ledger: there is no column event; needed are protocol, kind, event"),
        (lambda df: df.withColumn("event", F.lit("sunt")), "ledger: event: sunt: must be one of sent, committed, .*"),
        (lambda df: df.withColumn("kind", F.lit("call")), "ledger: kind: call: must be one of request, response, .*"),
        (
            lambda df: df.withColumn("event", F.lit("reverted")),
            "ledger: detail of a reverted row: null: must be one of sent, committed, .*",
        ),
        (lambda df: df.withColumn("lane", F.expr(NOT_UTF8)), r"ledger: lane: a\\xffb: must be UTF-8"),
        (lambda df: df.withColumn("amount", F.expr(NOT_UTF8)), r"ledger: amount: a\\xffb: must be UTF-8"),
        (
            lambda df: df.withColumns({"amount_1": F.lit(0), "amount_0": F.lit(0)}),
            "ledger: there is no column amount_2, amount_3; an amount needs amount_0, amount_1, amount_2, amount_3",
        ),
        (
            lambda df: df.select(
                "*", F.explode(F.array(F.lit(Decimal("5.00")), F.lit(Decimal("1.50")))).alias("amount")
            ),
            r"ledger: amount: 1\.50: must be a whole number from 0 to 2.*",
        ),
        (lambda df: df.withColumn("kind", F.lit(None).cast("string")), "ledger: kind: is null in a row: must not be"),
        (lambda df: df.withColumn("index", F.lit(-2)), "ledger: index: -2: must be a whole number from 0 to 1844.*"),
        (lambda df: df.withColumn("index", F.lit(Decimal(2**64))), "ledger: index: 18446744073709551616: must be a.*"),
        (lambda df: df.withColumn("index", F.lit(Decimal("1.5"))), "ledger: index: 1.5: must be a whole number .*"),
        (lambda df: df.withColumn("index", F.lit(1.0)), "ledger: index: is of type double: must be decimal or byte .*"),
        (lambda df: df.withColumn("lane", F.lit(1)), "ledger: lane: is of type integer: must be string or varchar .*"),
        (lambda df: df.withColumn("payload_hash", F.lit(b"x")), "ledger: payload_hash: a value of 1 bytes: must be 32"),
        (lambda df: df.select("*", F.lit("x").alias("lane")), "ledger: lane: there are two columns of this name"),
        (lambda df: df.withColumn("amount", F.lit(Decimal("1.5"))), r"ledger: amount: 1\.5: must be a whole number .*"),
        (lambda df: df.withColumn("amount", F.lit("-1")), "ledger: amount: -1: must be a whole number from 0 to 2.*"),
        (lambda df: df.withColumn("amount", F.lit(1.0)), "ledger: amount: is of type double: must be decimal or .*"),
        (
            lambda df: df.withColumns({"amount": F.lit(1), "amount_2": F.lit(0)}),
            "ledger: amount: stands beside amount_2: one of them is allowed",
        ),
        (
            lambda df: df.withColumn("time", F.expr(f"timestamp_micros({2**63 - 1})")),
            f"ledger: time: {2**63 - 1} microseconds from 1970: must be from {1 - 2**63} to {2**63 - 2}",
        ),
        (
            lambda df: df.withColumn("timeout_time", F.expr(f"timestamp_micros({1 - 2**63} - 1)")),
            f"ledger: timeout_time: {-(2**63)} microseconds from 1970: must be from {1 - 2**63} to {2**63 - 2}",
        ),
        (lambda df: df.withColumn("Amount", F.lit(1)), "ledger: Amount: the column of this name is written amount"),
    ],
)
def test_bad_column_is_one_error(spark: SparkSession, change: Any, error: str) -> None:
    rows = change(spark.createDataFrame([ROW, ROW], SMALL).repartition(2))
    with pytest.raises(InvalidInput, match=f"^{error}$"):
        cs.audit(rows)


def test_status_of_a_header_is_reverted_or_null(spark: SparkSession) -> None:
    headers = spark.createDataFrame([("a", 1, None), ("a", 2, "revertd")], "chain string, height int, status string")
    with pytest.raises(InvalidInput, match=r"^headers: status: revertd: must be one of reverted, null$"):
        cs.audit(spark.createDataFrame([ROW], SMALL), headers=headers)


def test_windows_and_guarantees_have_their_columns(spark: SparkSession) -> None:
    rows = spark.createDataFrame([ROW], SMALL)
    with pytest.raises(InvalidInput, match=r"^promises: there is no column promise; needed are promise$"):
        cs.audit(rows, promises=spark.createDataFrame([("p",)], "protocol string"))
    with pytest.raises(InvalidInput, match=r"^observed: events: is of type string: must be array<string>$"):
        cs.audit(rows, observed=spark.createDataFrame([("a", "sent")], "chain string, events string"))
    with pytest.raises(InvalidInput, match=r"^observed: events: is of type array<integer>: must be array<string>$"):
        cs.audit(rows, observed=spark.createDataFrame([("a", [1])], "chain string, events array<int>"))
    with pytest.raises(InvalidInput, match=r"^buckets: 0: must be a whole number from 1 to 4096$"):
        cs.audit(rows, buckets=0)


@pytest.mark.parametrize(
    ("tables", "error"),
    [
        (
            {"promise": None},
            "promise: unknown: allowed are observed, promises, headers, .*",
        ),
        ({"folder": ""}, "folder: is empty: must be a folder or URI"),
        ({"headers": "headers"}, "headers: is of type str: must be a Spark DataFrame"),
        ({"folder": 5}, "folder: 5: must be the path or URI of a folder"),
        ({"folder": "/dev/null"}, "folder: /dev/null: cannot be written: a part of the path is a file"),
        ({"folder": "/dev/null/x"}, "folder: /dev/null/x: cannot be written: a part of the path is a file"),
        ({"folder": "/proc/x"}, "folder: /proc/x: cannot be written: No such file or directory"),
        ({"folder": "dbfs:/x"}, "folder: dbfs:/x: a URI has two slashes before the host or folder, .*"),
        ({"folder": "file://"}, "folder: file:// names no folder; write file:///folder"),
        ({"folder": "a\0b"}, r"folder: a\\x00b: has a null character, which no path has"),
        ({"folder": "hdfs://h/x"}, "folder: hdfs://h/x is not a place that can be opened: allowed are a folder and .*"),
        ({"buckets": "4"}, 'buckets: "4": must be a whole number from 1 to 4096'),
        ({"buckets": 2.0}, "buckets: 2.0: must be a whole number from 1 to 4096"),
        ({"limit": 0}, "limit: 0: must be a whole number from 1 on"),
        ({"limit": "3"}, 'limit: "3": must be a whole number from 1 on'),
        ({"deadlines": "received=1h"}, 'deadlines: "received=1h": must be a list of texts such as received=1h'),
        ({"deadlines": None}, "deadlines: null: must be a list of texts such as received=1h"),
        ({"tolerances": [5]}, r"tolerances: \[5\]: must be a list of texts such as CHAIN=500ms"),
        (
            {"promises": [{"promise": "numbered"}]},
            "promises: is of type list: must be a Spark DataFrame or an Arrow .*",
        ),
        (
            {"promises": pa.table({"protocol": ["p"]})},
            "promises: there is no column promise; needed are promise",
        ),
        (
            {"observed": pa.table({"CHAIN": ["a"]})},
            "observed: CHAIN: the column of this name is written chain",
        ),
        (
            {"observed": pa.table([["a"], ["b"]], ["chain", "chain"])},
            "observed: chain: there are two columns of this name",
        ),
        (
            {"observed": pa.table([[], []], ["chain", "chain"])},
            "observed: chain: there are two columns of this name",
        ),
        (
            {"promises": pa.table({"promise": ["setled"], "stated_by": ["me"]})},
            "promises: promise: setled: must be one of numbered, ordered_sends, .*",
        ),
        (
            {"observed": pa.table({"chain": ["a"], "events": [["sunt"]], "how": ["declared"], "stated_by": ["me"]})},
            "observed: events: sunt: must be one of sent, committed, .*",
        ),
        (
            {"observed": pa.table({"chain": ["a"], "events": [[1]]})},
            "observed: events: is of type list<item: int64>: must be list<item: string>",
        ),
        (
            {"observed": pa.table({"chain": ["a"], "events": [["x" * 5_000]]})},
            "observed: events: x{99}…x{20}: must be one of sent, committed, .*",
        ),
        (
            {"observed": pa.table({"chain": ["a"], "revision": [2**40], "first_height": [1], "last_height": [5]})},
            "observed: revision: 1099511627776: must be from 0 to 67108862",
        ),
        (
            {"observed": pa.table({"chain": ["a"], "revision": [1], "first_height": [1], "last_height": [2**38]})},
            "observed: last_height: 274877906944: must be from 0 to 274877906943 with a revision",
        ),
        (
            {"observed": pa.table({"chain": pa.array([b"a\xffb"])})},
            r"observed: chain: a\\xffb: must be UTF-8",
        ),
        (
            {"observed": not_utf8("chain", OBSERVED_SCHEMA)},
            r"observed: chain: a\\xffb: must be UTF-8",
        ),
        (
            {"promises": not_utf8("promise", PROMISES_SCHEMA)},
            r"promises: promise: a\\xffb: must be UTF-8",
        ),
        (
            {"observed": pa.table({"chain": ["a", "b"], "first_height": [1, 9], "last_height": [5, 8]})},
            r"observed: last_height: 8: lies before first_height \(9\)",
        ),
        (
            {"observed": pa.table({"chain": ["a"], "first_time": [NOON], "last_time": [NOON - dt.timedelta(days=1)]})},
            r"observed: last_time: 2025-12-31T12:00:00\.0*: lies before first_time \(2026-01-01T12:00:00\.0*\)",
        ),
        (
            {"observed": pa.table({"chain": ["a"], "first_height": [1]})},
            "observed: last_height: missing: first_height and last_height are given together",
        ),
        (
            {"observed": pa.table({"chain": ["a"]})},
            "observed: first_height: missing: give first_height and last_height, or first_time and last_time",
        ),
        (
            {"promises": pa.table({"promise": ["numbered", "capacity"]})},
            "promises: number: missing: capacity needs number",
        ),
        (
            {"promises": pa.table({"promise": ["may_drop"], "number": [3]})},
            "promises: detail: missing: may_drop needs detail",
        ),
        (
            {"promises": pa.table({"promise": ["numbered"], "number": [3]})},
            "promises: number: 3: has no effect on numbered",
        ),
        (
            {"observed": pa.table({"chain": ["a"], "how": ["guessed"], "stated_by": ["me"]})},
            "observed: how: guessed: must be one of declared, inferred",
        ),
    ],
)
def test_bad_argument_is_one_error(spark: SparkSession, tables: Any, error: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{error}$"):
        cs.audit(spark.createDataFrame([ROW], SMALL), **tables)


@pytest.mark.parametrize(
    ("mapping", "error"),
    [
        (
            5,
            "mapping: 5: must be a MappingDocument, the path of a mapping file, or one of bridge-events, .*",
        ),
        (
            ["ibc-events"],
            r'mapping: \["ibc-events"\]: must be a MappingDocument, the path of a mapping file, or one of .*',
        ),
        ("ibc", 'mapping: "ibc": no such kind of traffic; there are 5: bridge-events, ibc-events, ibc-packets, .*'),
        ("", 'mapping: "": no such kind of traffic; there are 5: .*'),
        ("none.toml", "none.toml: no such mapping file"),
        (Path("/none/mapping"), "/none/mapping: no such mapping file"),
    ],
)
def test_bad_mapping_is_one_error(spark: SparkSession, mapping: Any, error: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{error}$"):
        cs.ingest(spark.createDataFrame([ROW], SMALL), mapping)


def test_only_batch_dataframes_with_exact_names_are_read(spark: SparkSession) -> None:
    rows = spark.createDataFrame([ROW], SMALL)
    with pytest.raises(InvalidInput, match=r"^ledger: LANE: the column of this name is written lane$"):
        cs.audit(rows.withColumnRenamed("lane", "LANE"))
    with pytest.raises(InvalidInput, match=r"^ledger: is of type Table: must be a Spark DataFrame$"):
        cs.audit(LEDGER_SCHEMA.empty_table())
    with pytest.raises(InvalidInput, match=r"^ledger: is of type pandas.DataFrame: must be a Spark DataFrame$"):
        cs.audit(type("DataFrame", (), {"__module__": "pandas.core.frame"})())
    with pytest.raises(InvalidInput, match=r"^records: is a stream: must be a DataFrame of spark\.read or of a table$"):
        cs.ingest(spark.readStream.format("rate").load(), "ibc-packets")


def test_records_without_the_columns_of_a_mapping_are_refused_before_a_job(spark: SparkSession) -> None:
    records = spark.createDataFrame([("x",)], "direction string")
    before = spark.sparkContext.statusTracker().getJobIdsForGroup(None)
    with pytest.raises(InvalidInput, match=r"^records: column for source: "):
        cs.ingest(records.withColumnRenamed("direction", "other"), "bridge-events")
    with pytest.raises(InvalidInput, match=r"^records: the mapping has no event for a file of this name; it has for: "):
        cs.ingest(records, "two-tables")
    assert spark.sparkContext.statusTracker().getJobIdsForGroup(None) == before


SENT = MappingDocument.model_validate(
    {
        "format": "parquet",
        "stated_by": "me",
        "fields": {
            **{name: {"text": name} for name in ("protocol", "source", "destination", "lane", "chain")},
            "kind": {"text": "request"},
            "index": "origin.index",
            "time": {"column": "time", "optional": True},
        },
        "events": [{"event": {"text": "sent"}}],
    }
)


@pytest.mark.parametrize("zone", ["GMT+8", "UTC+1", "Z", "America/New_York"])
def test_times_are_the_same_in_any_time_zone_of_the_session(spark: SparkSession, zone: str) -> None:
    records = spark.sql(f"select timestamp'{NOON} UTC' time, struct(id as index) origin from range(2)")
    windows = spark.sql(f"select 'chain' chain, timestamp'{NOON} UTC' first_time, timestamp'{NOON} UTC' last_time")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        with cs.ingest(records, SENT) as ledger:
            assert set(ledger.ledger.arrow()["time"].to_pylist()) == {NOON.replace(tzinfo=dt.UTC)}
            rows = ledger.ledger.spark(spark)
            assert set(rows.select("time").toArrow()["time"].cast(pa.timestamp("us", "UTC")).to_pylist()) == {
                NOON.replace(tzinfo=dt.UTC)
            }
            with cs.store(rows, observed=windows) as stored:
                assert set(stored.ledger.arrow()["time"].to_pylist()) == {NOON.replace(tzinfo=dt.UTC)}
                assert stored.observed.arrow()["last_time"].to_pylist() == [NOON.replace(tzinfo=dt.UTC)]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_only_the_columns_of_a_mapping_are_read(spark: SparkSession) -> None:
    """They are named exactly; those within structs by path, or a name with points."""
    others = "interval '1' year y, interval '1' day d, struct() nothing, map(1, 2) m, 1 o, 2 o"
    for index in ("struct(id as index, interval '1' year as other, 7 as INDEX_) origin", "id `origin.index`"):
        records = spark.sql(f"select {others}, 7 TIME, {index} from range(2)")
        with cs.ingest(records, SENT) as ledger:
            assert sorted(ledger.ledger.arrow()["index"].to_pylist()) == [0, 1]
    for columns, error in {
        "1 `origin.index`, interval '1' year time": 'records: column "time" is interval year; a mapping reads text, .*',
        "1 `origin.index`, struct(1 as index) origin": 'records: "origin.index": there are two columns of this name',
        "1 `origin.index`, null time, null time": 'records: "time": there are two columns of this name',
        "struct() origin": r'records: column for index: "origin\.index": no such column; there are 0: none',
    }.items():
        with pytest.raises(InvalidInput, match=f"^{error}$"):
            cs.ingest(spark.sql(f"select {columns}"), SENT)


def test_index_may_stand_beside_a_column_that_differs_in_case(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        rows = spark.createDataFrame([ROW], SMALL).withColumn("INDEX", F.lit(7))
        with cs.store(rows) as stored:
            assert stored.ledger.arrow()["index"].to_pylist() == [1]
        records = rows.select(F.struct(F.col("index"), F.col("INDEX")).alias("origin"))
        with cs.ingest(records, SENT) as ledger:
            assert ledger.ledger.arrow()["index"].to_pylist() == [1]
    finally:
        spark.conf.set("spark.sql.caseSensitive", "false")


def test_quarantined_records_are_counted(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "causeway.spark")  # commands in this process may have turned logging off
    indices = spark.createDataFrame([(1,), (-1,), (None,), (-7,)], "index int")
    records = indices.select(F.struct("index").alias("origin"))
    with cs.ingest(records, SENT) as ledger:
        assert "quarantine 3 records;" in repr(ledger) and "3 records" in ledger._repr_html_()
    assert caplog.messages == ["ingest: 3 records in quarantine: 1 missing, 2 negative"]
    caplog.clear()
    with cs.ingest(records.limit(1), SENT) as ledger:
        assert "quarantine" not in repr(ledger)
    assert not caplog.messages


def test_error_of_a_query_names_the_table_and_its_cause(spark: SparkSession) -> None:
    rows = spark.createDataFrame([ROW], SMALL)
    with pytest.raises(InvalidInput, match=r"^observed: cannot be read: \[CAST_INVALID_INPUT\] The value 'ax' .*$"):
        cs.audit(rows, observed=rows.selectExpr("source chain", "cast(source || 'x' as long) first_height"))
    divided = rows.select(F.struct(F.udf(lambda index: index // 0, "int")("index").alias("index")).alias("origin"))
    with pytest.raises(InvalidInput, match=r"^records: cannot be read: ZeroDivisionError: integer division or modulo "):
        cs.ingest(divided, SENT)


def test_nothing_to_audit_is_an_error(spark: SparkSession) -> None:
    with pytest.raises(InvalidInput, match=r"^ledger: no rows: there is nothing to audit$"):
        cs.audit(spark.createDataFrame([], SMALL))
    assert cs.outcomes(spark.createDataFrame([], SMALL)).count() == 0


def test_stopped_session_is_one_error(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = spark.createDataFrame([ROW], SMALL)
    with cs.store(rows, folder=tmp_path) as stored:
        audited = cs.audit(stored)
        calls: list[Callable[[], object]] = []
        calls += [partial(function, given) for given in (rows, stored) for function in (cs.audit, cs.outcomes)]
        calls += [partial(cs.latency, stored), partial(getattr, audited, "lanes"), partial(cs.ingest, rows, SENT)]
        with monkeypatch.context() as stop:
            stop.setattr(spark.sparkContext, "_jsc", None)
            for call in calls:
                with pytest.raises(InvalidInput, match=r"^Spark session: was stopped; open another one, and make"):
                    call()


@pytest.mark.parametrize("limit", ["0", "-1"])
def test_session_may_have_no_limit_of_rows_in_a_batch(spark: SparkSession, limit: str) -> None:
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, limit)
    try:
        with cs.store(spark.createDataFrame([ROW, (*ROW[:3], 2, *ROW[4:])], SMALL)) as stored:
            audited = cs.audit(stored)
            assert [row["sent"] for row in audited.lanes.collect()] == [2] and audited.sums.count() == 0
            assert cs.outcomes(stored).count() == 2
    finally:
        spark.conf.set(name, str(before))


def test_equal_movements_of_value_count_for_any_partitions(spark: SparkSession) -> None:
    """As those of one file."""
    mapping = MappingDocument.model_validate(
        {
            "format": "parquet",
            "stated_by": "me",
            "value": [
                {name: {"text": name} for name in ("protocol", "why", "chain", "asset")}
                | {name: {"column": name} for name in ("height", "amount")}
            ],
        }
    )
    for partitions in (1, 2):
        records = spark.range(0, 2, 1, partitions).select(F.lit(7).alias("height"), F.lit(5).alias("amount"))
        with cs.ingest(records, mapping) as ledger:
            assert ledger.value.arrow().num_rows == 2


def test_temporary_ledger_is_independent_of_the_working_directory(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    stored = cs.store(spark.createDataFrame([ROW], SMALL), folder="own")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert cs.outcomes(stored).count() == 1
    stored.close()
    assert list((tmp_path / "own").iterdir()) == []
