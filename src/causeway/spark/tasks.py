"""The same function over many inputs, in this process or as tasks of Spark.

Errors of tasks that Spark runs: what went wrong in Python or in a file, without the Java around it.
"""

from __future__ import annotations

import contextlib
import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import pyarrow as pa
from causeway_proofs.errors import CausewayError, InvalidInput, describe_os_error

from causeway.storage.layout import LakeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "TaskFailed",
    "convert_spark_errors",
    "convert_storage_errors",
    "extract_python_error",
    "result_of",
    "run_pickled",
]

_AROUND = re.compile(r"^(?:Caused by: |: )?(?:[a-z]\w*\.)+\w+: |\s*SQLSTATE: \w+$")
"""The class of a Java exception before its text, and the code of it behind."""

_UNREADABLE = "[FAILED_READ_FILE"
"""How Spark says that it cannot read a file."""


class TaskFailed(CausewayError):
    """A task failed; what it was part of was not committed."""


@contextlib.contextmanager
def convert_spark_errors() -> Iterator[None]:
    """Let an error of Spark in the body of a ``with`` statement be a ``TaskFailed``, or a ``LakeError`` where a file
    is not what its ending says."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        text = extract_python_error(str(error))
        if text.startswith(_UNREADABLE):
            raise LakeError(f"lake: {text.removeprefix(_UNREADABLE).partition(']')[2].strip()}") from None
        raise TaskFailed(f"a task failed: {text}") from None


@contextlib.contextmanager
def convert_storage_errors() -> Iterator[None]:
    """In a task, let an error of a place that a user can mend, such as a full disk, be an ``InvalidInput``: it comes
    back from the task as it is."""
    try:
        yield
    except OSError as error:
        place = describe_os_error(error)
        if place is None:
            raise
        raise InvalidInput(place) from None


def run_pickled(call: Callable[[], Any]) -> bytes:
    """Return what a call in a task returns, or the ``CausewayError`` that it raises, pickled."""
    try:
        with convert_storage_errors():
            return pickle.dumps(call())
    except CausewayError as error:
        return pickle.dumps(error)


def result_of(content: bytes) -> Any:
    """Return what ``run_pickled`` ran. Raises ``InvalidInput`` as it was, and ``TaskFailed`` for any other error."""
    found = pickle.loads(content)
    if isinstance(found, InvalidInput):
        raise found
    if isinstance(found, CausewayError):
        raise TaskFailed(f"{found.name}: {found}")
    return found


def extract_python_error(text: str) -> str:
    """Return the last line of a Python traceback inside a Spark error, or else its first line and its last cause."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for place, line in enumerate(lines):
        if line.startswith("Traceback"):
            python = [later for later in lines[place:] if not later.startswith("at ")]
            endings = [later for later in python if ": " in later and not later.startswith(("File ", "Traceback"))]
            return endings[-1] if endings else python[-1]
    said = [line for line in lines if line.startswith((": ", "Caused by: "))] or lines[:1]
    texts = dict.fromkeys(_AROUND.sub("", line) for line in (said[0], said[-1])) if said else ["unknown"]
    return ": ".join(texts)


Session: TypeAlias = "Callable[[], SparkSession]"
"""A Spark session that is waited for where it is asked for: Java may still be starting."""

TaskInput = TypeVar("TaskInput")
TaskOutput = TypeVar("TaskOutput")


def run_tasks(
    task: Callable[[TaskInput], TaskOutput], inputs: Sequence[TaskInput], spark: Session | None
) -> list[TaskOutput]:
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
