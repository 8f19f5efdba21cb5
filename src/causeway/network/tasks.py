"""The same function over many inputs, in this process or as tasks of Spark."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import pyarrow as pa

from causeway.model.errors import CausewayError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Session: TypeAlias = "Callable[[], SparkSession]"
"""A Spark session that is waited for where it is asked for: Java may still be starting."""

Input = TypeVar("Input")
Output = TypeVar("Output")


def run_tasks(task: Callable[[Input], Output], inputs: Sequence[Input], spark: Session | None) -> list[Output]:
    """Return ``task`` of each input, in the order of the inputs.

    Without a session the inputs are worked off one after the other here; with one, each is a Spark task. A task may
    run twice, so what it writes must be the same each time. The first ``CausewayError`` in the order of the inputs is
    raised.
    """
    if spark is None or len(inputs) < 2:
        return [task(item) for item in inputs]

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for place in batch.column(0).to_pylist():
                content = pickle.dumps((place, _outcome(task, inputs[place])))
                yield pa.RecordBatch.from_pydict({"result": pa.array([content], pa.binary())})

    rows = spark().range(0, len(inputs), 1, len(inputs)).mapInArrow(work, "result binary").collect()
    outcomes = [outcome for _, outcome in sorted((pickle.loads(row[0]) for row in rows), key=lambda pair: pair[0])]
    for outcome in outcomes:
        if isinstance(outcome, CausewayError):
            raise outcome
    return outcomes


def _outcome(task: Callable[[Any], Any], item: Any) -> Any:
    """Return what the task returns, or the error that a user shall read."""
    try:
        return task(item)
    except CausewayError as error:
        return error
