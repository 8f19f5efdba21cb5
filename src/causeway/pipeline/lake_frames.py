"""The ledger of a lake that Causeway ran as Spark DataFrames: a task derives a range of heights, and one what waits.

A task is a function of the lake's files alone: it looks for messages of earlier heights of which its rows speak. So the
rows are those of ``lake_taking``, in the same order however many tasks run at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from causeway.ingest.run_value import LOG
from causeway.ledger.schema import LEDGER_SCHEMA, VALUE_SCHEMA
from causeway.pipeline.lake import Lake
from causeway.pipeline.lake_ledger import READ, LakeLedger
from causeway.pipeline.ledger_tasks import prepare_worker
from causeway.pipeline.stored_frames import frame_by

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASK_ROWS = 1 << 18
"""Log rows that a task derives, about; a height is never cut."""

Derive = Callable[[LakeLedger, int, int], Iterable[pa.Table]]


def ledger_frame(session: SparkSession, lake: Lake, heights: range, task_rows: int = TASK_ROWS) -> DataFrame:
    """Return the rows of the ledger (``LEDGER_SCHEMA`` in types that Spark has, as of ``stored_frames``) of what
    happened at some committed heights, as it was known at the last of them."""
    return _frame(session, lake, heights, LEDGER_SCHEMA, READ, task_rows, _rows, _waiting)


def value_frame(session: SparkSession, lake: Lake, heights: range, task_rows: int = TASK_ROWS) -> DataFrame:
    """Return the movements of value (``VALUE_SCHEMA``) in the same way; none of a lake that has no log of them."""
    logged = LOG in LakeLedger(lake).logs.schemas
    return _frame(session, lake, heights if logged else range(0), VALUE_SCHEMA, (LOG,), task_rows, _movements)


def _rows(derived: LakeLedger, first: int, end: int) -> Iterator[pa.Table]:
    for part in derived.rows(first, end):
        yield part.rows


def _waiting(derived: LakeLedger, first: int, end: int) -> Iterator[pa.Table]:
    yield derived.as_rows(derived.still_waiting(first, end))


def _movements(derived: LakeLedger, first: int, end: int) -> Iterator[pa.Table]:
    yield from derived.movements(first, end)


def _frame(
    session: SparkSession,
    lake: Lake,
    heights: range,
    schema: pa.Schema,
    tables: tuple[str, ...],
    task_rows: int,
    derive: Derive,
    of_all: Derive | None = None,
) -> DataFrame:
    """Return what a function derives of each range of heights, and another one of all of them."""
    derived = LakeLedger(lake)
    ranges = [*derived.logs.ranges(heights.start, heights.stop, task_rows, tables)] if len(heights) else []
    tasks = [(derive, each) for each in ranges]
    if of_all is not None and ranges:
        tasks.append((of_all, heights))

    def read(number: int) -> Iterator[pa.Table]:
        prepare_worker()
        work, span = tasks[number]
        for rows in work(LakeLedger(lake), span.start, span.stop):
            # What waited for a lane was sent before it came into one.
            yield rows.filter(pc.greater_equal(rows["height"], heights.start)) if heights.start else rows

    return frame_by(session, schema, len(tasks), read)


__all__ = ["TASK_ROWS", "ledger_frame", "value_frame"]
