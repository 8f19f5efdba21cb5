"""The ledger of a lake as Spark DataFrames: the rows of ``causeway ingest lake``, for any partitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from causeway_proofs.errors import CausewayError
from pyspark.sql import SparkSession

import causeway.spark as cs
from causeway.audit.stored import audit_ledger
from causeway.dataframes.lake_tables import LakeTables, lake_ledger_dataframe, lake_value_dataframe
from causeway.dataframes.ledger_tables import ledger_dataframe, table_to_dataframe, to_spark_schema
from causeway.ledger.lake.ingest import open_or_derive_ledger
from causeway.ledger.schema import LEDGER_SCHEMA
from causeway.ledger.store import Ledger
from causeway.storage.lake import Lake
from tests.chance_lakes import chance_lake
from tests.ledger.test_lake_ledger import STREAM_OF_ONE
from tests.support.ic import ic_lake


def rows(frame: Any) -> list[str]:
    return sorted(map(repr, frame.collect()))


def of_heights(ledger: Ledger, session: SparkSession, heights: range) -> list[str]:
    return rows(ledger_dataframe(session, ledger, "ledger").where(f"height between {heights[0]} and {heights[-1]}"))


def test_tasks_yield_the_rows_of_the_ingested_ledger(tmp_path: Path, spark: SparkSession) -> None:
    """Under xdm with forks and value, in tasks of a height or two each."""
    lake = Lake.at(chance_lake(tmp_path, "xdm", 11))
    whole, tables = range(lake.last_height() + 1), LakeTables(spark, lake)
    with open_or_derive_ledger(lake.storage.uri) as ledger:
        found = lake_ledger_dataframe(spark, lake, whole, task_rows=20)
        assert found.rdd.getNumPartitions() > 5
        assert rows(found) == rows(ledger_dataframe(spark, ledger, "ledger"))
        assert rows(lake_value_dataframe(spark, lake, whole, task_rows=20)) == rows(
            table_to_dataframe(spark, ledger.table("value"))
        )
        windows = ledger.table("observed").filter(pc.list_value_length(pc.field("events")) > 1)
        assert rows(tables.observed()) == rows(table_to_dataframe(spark, windows)) != []
        assert rows(tables.promises()) == rows(table_to_dataframe(spark, ledger.table("promises"))) != []
        audit = audit_ledger(ledger, executor="in_process")
    shown = cs.audit(tables.ledger(), observed=tables.observed(), promises=tables.promises())
    stated = ("headers", "watermarks", "conservation")  # which read tables that are not given here
    assert {name: (each.verdict, each.examined) for name, each in shown.checks.items() if name not in stated} == {
        name: (each.verdict, each.examined) for name, each in audit.checks.items() if name not in stated
    }


@pytest.mark.parametrize("until", [4, 5, 9])
def test_messages_pending_after_the_requested_heights_were_sent(
    until: int, tmp_path: Path, spark: SparkSession
) -> None:
    """The first heights of a longer lake equal those of a lake that ends with them."""
    for name in ("whole", "cut"):
        (tmp_path / name).mkdir()
    whole = Lake.at(ic_lake.make_lake(tmp_path / "whole", options=STREAM_OF_ONE, certification="off"))
    cut = ic_lake.make_lake(tmp_path / "cut", options=STREAM_OF_ONE, certification="off", until=until)
    heights = range(Lake.at(cut).last_height() + 1)
    with open_or_derive_ledger(cut) as ledger:
        assert ledger.table("waiting").num_rows
        assert rows(lake_ledger_dataframe(spark, whole, heights, task_rows=1)) == of_heights(ledger, spark, heights)
        late = heights[2:]
        assert rows(lake_ledger_dataframe(spark, whole, late, task_rows=1)) == of_heights(ledger, spark, late)


def test_numbers_beyond_the_signed_range_are_exact(spark: SparkSession, tmp_path: Path) -> None:
    from causeway.dataframes.ledger_tables import task_dataframe

    schema = pa.schema([("number", pa.uint64()), ("name", pa.dictionary(pa.int32(), pa.string()))])
    numbers = [0, 1, 2**63 - 1, 2**63, 2**64 - 1, None]
    columns = [pa.array(numbers, pa.uint64()), pa.array(["a"] * 5 + [None])]
    table = pa.table(columns, schema.names).cast(schema)
    found = task_dataframe(spark, schema, 2, lambda number: iter([table.slice(3 * number, 3)]))
    assert [row["number"] if row["number"] is None else int(row["number"]) for row in found.collect()] == numbers
    assert found.dtypes == [("number", "decimal(20,0)"), ("name", "string")]


def test_corrupted_log_is_named_before_any_task(tmp_path: Path, spark: SparkSession) -> None:
    lake = ic_lake.make_lake(tmp_path, ticks=3, certification="off")
    (log,) = sorted(Path(lake).glob("heights/*/events-*.parquet"))[:1]
    log.write_bytes(log.read_bytes()[:-1] + b"?")
    with pytest.raises(CausewayError, match=rf"is damaged: {log.relative_to(lake)}"):
        LakeTables(spark, Lake.at(lake)).ledger()


def test_empty_tables_do_not_pass_through_arrow(spark: SparkSession) -> None:
    table = LEDGER_SCHEMA.empty_table()
    with patch.object(spark, "createDataFrame", wraps=spark.createDataFrame) as create:
        frame = table_to_dataframe(spark, table)
    assert create.call_args.args[0] == []  # Spark Connect refuses an empty Arrow table
    assert frame.schema == spark.createDataFrame(table.cast(to_spark_schema(table.schema))).schema
