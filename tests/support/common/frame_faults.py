"""Functions on DataFrames whose tasks fail, hang or are slow, and what is left of them.

As a program it runs them on a cluster, for a test that kills its processes:

    python -m tests.support.common.frame_faults spark://127.0.0.1:7077 FOLDER [hang]
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

import causeway.spark as cs
from causeway.audit import stored
from causeway.cluster.session import spark_session
from causeway.ledger.ingest import tasks
from causeway.ledger.ingest.mapping import MappingDocument
from causeway.ledger.store import Ledger
from causeway.spark import frames
from causeway.spark.frames import FrameLedger

Disturb = Callable[[Path], None]
"""Disturbs a task after its work; the path is a mark of the task, which it may create."""

MAPPING = MappingDocument.model_validate(
    {
        "format": "parquet",
        "stated_by": "t",
        "events": [{"event": "event"}],
        "fields": {
            name: {"text": "p"} if name == "protocol" else name
            for name in ("protocol", "source", "destination", "lane", "index", "chain", "height", "time")
        },
        "windows": {"by": "height"},
    }
)
"""The meaning of ``traffic`` as records of any columns."""


def traffic(messages: int) -> pa.Table:
    """Return the events of messages, nine of ten in one lane; some are never received, some are received twice."""
    rows = []
    for number in range(messages):
        busy = number % 10 != 0
        lane, index = ("busy", number) if busy else (f"quiet {number % 70}", number)
        row = {"source": "a", "destination": "b", "lane": lane, "index": index, "event": "sent", "chain": "a"}
        rows.append({**row, "height": number // 10, "time": 1_000_000 * number})
        for again in range(0 if number % 1000 == 7 else 2 if number % 1000 == 9 else 1):
            height = number // 10 + 5 + again
            rows.append({**row, "event": "received", "chain": "b", "height": height, "time": 1_000_000 * number + 1})
    table = pa.Table.from_pylist(rows)
    return table.set_column(table.schema.get_field_index("time"), "time", table["time"].cast(pa.timestamp("us", "UTC")))


def as_events(records: DataFrame) -> DataFrame:
    """Return traffic with the columns of a ledger."""
    from pyspark.sql import functions as F

    return records.withColumn("protocol", F.lit("p")).withColumn("kind", F.lit("request"))


def disturbed(marks: Path, disturb: Disturb) -> ExitStack:
    """Disturb the tasks of ``store``, ``ingest`` and ``audit`` in a ``with`` statement, each after it has written."""
    patches = ExitStack()

    def after(call: Callable[..., Any], *given: Any) -> Any:
        result = call(*given)
        done: list[Any] | None = [*result] if isinstance(result, Iterator) else None
        context = TaskContext.get()
        assert context is not None
        disturb(marks / f"{context.stageId()}-{context.partitionId()}")
        return result if done is None else iter(done)

    for name in ("_BucketSpooler", "_PartitionWriter"):
        make = getattr(frames, name)
        patches.enter_context(mock.patch.object(frames, name, lambda *given, make=make: partial(after, make(*given))))
    for module, name in ((tasks, "_stage"), (tasks, "_sort"), (stored, "_check_bucket_task")):
        patches.enter_context(mock.patch.object(module, name, partial(after, getattr(module, name))))
    return patches


def results(records: DataFrame, folder: Path, buckets: int = 4) -> dict[str, Any]:
    """Return what the functions say of traffic, and which files of their ledgers no commit names."""
    found: dict[str, Any] = {}
    for name, make in (
        ("store", lambda: cs.store(as_events(records), folder=folder, buckets=buckets)),
        ("ingest", lambda: cs.ingest(records, MAPPING, folder=folder, buckets=buckets)),
    ):
        with make() as ledger:
            outcomes = cs.outcomes(ledger).groupBy("outcome").count().collect()
            found[name] = {
                "ledger": contents(ledger.stored),
                "left": left_files(ledger),
                "audit": cs.audit(ledger).audit.sentence(),
                "outcomes": sorted(list(row) for row in outcomes),
            }
    return found


def contents(ledger: Ledger) -> list[list[Any]]:
    """Return the files of a ledger by their rows and seals, whatever their names."""
    return sorted([file.table, -1 if file.bucket is None else file.bucket, file.rows, str(file.seal)]
                  for file in ledger.live)  # fmt: skip


def left_files(ledger: FrameLedger) -> list[str]:
    """Return the files of rows in a ledger's folder that no commit names."""
    place = Path(ledger.place)
    found = {str(path.relative_to(place)) for path in place.rglob("*.*") if path.suffix in (".parquet", ".arrow")}
    return sorted(found - {file.path for file in ledger.stored.live})


def slowly(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass rows on at a leisurely pace."""
    for batch in batches:
        time.sleep(0.3)
        yield batch


def hang_once(mark: Path) -> None:
    """Let the first attempt of the first task of each stage hang."""
    if mark.name.endswith("-0") and not mark.exists():
        mark.touch()
        time.sleep(120)


SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "500ms",
}


def main(master: str, folder: str, *options: str) -> None:
    """Print the results of the traffic in a folder (``traffic.parquet``)."""
    place, hang = Path(folder), "hang" in options
    settings = {"spark.sql.files.maxPartitionBytes": "64k", "spark.sql.files.openCostInBytes": "0"}
    with ExitStack() as open_:
        session: SparkSession = open_.enter_context(
            spark_session(master, extra={**settings, **(SPECULATION if hang else {})})
        )
        if hang:
            marks = place / "marks"
            marks.mkdir()
            open_.enter_context(disturbed(marks, hang_once))
        records = session.read.parquet(str(place / "traffic.parquet")).repartition(6, "index")
        slow = records.mapInArrow(slowly, records.schema)
        print(json.dumps(results(slow, place / "temporary")), flush=True)


def write_traffic(folder: Path, messages: int) -> None:
    """Write traffic for ``main``."""
    (folder / "temporary").mkdir()
    pq.write_table(traffic(messages), folder / "traffic.parquet")


if __name__ == "__main__":
    main(*sys.argv[1:])
