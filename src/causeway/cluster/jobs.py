"""Jobs of a session that anybody started, classic or through Spark Connect: shared values, descriptions, counts."""

from __future__ import annotations

import contextlib
import logging
import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import pyarrow as pa
from causeway_proofs.errors import CausewayError, InvalidInput

from causeway.cluster.masters import is_local
from causeway.cluster.progress import watch_tasks
from causeway.cluster.tasks import SESSION_STOPPED, convert_spark_errors
from causeway.core.text import count_noun

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

__all__ = [
    "InlineValue",
    "SharedJobState",
    "default_parallelism",
    "is_one_process",
    "run_tasks",
    "session_folder",
    "share_value",
    "spark_context",
    "spark_jobs",
    "spark_master",
]

_DESCRIPTION = "spark.job.description"

_LOGGER = logging.getLogger("causeway.spark")


class SharedJobState(Protocol):
    """Value of a job in each worker."""

    @property
    def value(self) -> Any:
        """The value."""
        ...


@dataclass(frozen=True)
class InlineValue:
    """A value that is part of the task itself: in this process, or through Spark Connect, which has no broadcasts.

    Attributes:
        value: The value.
    """

    value: Any


def spark_context(session: SparkSession) -> SparkContext | None:
    """Return the context of a classic session; None for Spark Connect, whose client has none.

    Args:
        session: The session.

    Raises:
        InvalidInput: The session was stopped.
    """
    # The classes of Spark Connect import gRPC, which a classic session does not need.
    connect: Any = session if type(session).__module__.startswith("pyspark.sql.connect.") else None
    context = None if connect is not None else session.sparkContext
    if connect.is_stopped if context is None else _is_stopped(context):
        raise InvalidInput(SESSION_STOPPED)
    return context


def _is_stopped(context: SparkContext) -> bool:
    try:
        context.getLocalProperty(_DESCRIPTION)
    except AttributeError:  # a stopped context has no Java object
        return True
    return False


def spark_master(session: SparkSession) -> str:
    """Return the master of a session; through Spark Connect, that of its server, or an empty text.

    Args:
        session: The session.
    """
    context = spark_context(session)
    return (session.conf.get("spark.master", "") if context is None else context.master) or ""


def is_one_process(session: SparkSession) -> bool:
    """Return True if driver and tasks run in this process and its workers, and so see the same files.

    Args:
        session: The session.
    """
    return spark_context(session) is not None and is_local(spark_master(session))


def session_folder() -> str:
    """Return a temporary folder of this process's classic session, which Java removes, even after a kill."""
    from pyspark import SparkFiles

    return SparkFiles.getRootDirectory()


def default_parallelism(session: SparkSession) -> int:
    """Return the number of partitions that Spark gives a table of numbers.

    Args:
        session: The session.
    """
    context = spark_context(session)
    if context is not None:
        return int(context.defaultParallelism)
    from pyspark.sql import functions as F

    with spark_jobs(session, "count partitions"):
        return session.range(1 << 16).select(F.spark_partition_id()).distinct().count()


@contextlib.contextmanager
def share_value(session: SparkSession, value: Any) -> Iterator[SharedJobState]:
    """Yield a value for the tasks of jobs in the body: broadcast where the session can.

    Args:
        session: The session.
        value: Picklable value.
    """
    context = spark_context(session)
    if context is None:
        yield InlineValue(value)
        return
    shared = context.broadcast(value)
    try:
        yield shared
    finally:
        shared.unpersist()


@contextlib.contextmanager
def spark_jobs(session: SparkSession, text: str, table: str | None = None) -> Iterator[Counter[str]]:
    """Describe the jobs of the body, as Spark's web page lists them, log a line at their end, and convert their errors.

    The line has the counts that the body adds, such as ``rows``, and the duration. Handlers of the logger
    ``causeway.spark`` find them in ``job``, ``counts`` and ``seconds`` of its record.

    Args:
        session: The session.
        text: The description; a tag of the jobs through Spark Connect, which takes no commas.
        table: As in ``convert_spark_errors``.

    Yields:
        The counts, in the order of the line.

    Raises:
        InvalidInput: The session was stopped, or the query of the user's table failed.
        LakeError: Spark cannot read a file.
        TaskFailed: A task failed otherwise.
    """
    counts, started = Counter[str](), time.perf_counter()
    with _describe_jobs(session, text), watch_tasks(session, spark_context(session), text), convert_spark_errors(table):
        yield counts
    seconds = time.perf_counter() - started
    line = ", ".join([*(f"{count:,} {name}" for name, count in counts.items()), f"{seconds:.1f} s"])
    _LOGGER.info("%s: %s", text, line, extra={"job": text, "counts": dict(counts), "seconds": seconds})


@contextlib.contextmanager
def _describe_jobs(session: SparkSession, text: str) -> Iterator[None]:
    context = spark_context(session)
    if context is None:
        tag = f"causeway: {text}".replace(",", ";")
        session.addTag(tag)
        try:
            yield
        finally:
            session.removeTag(tag)
        return
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, f"causeway: {text}")
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type]


Session: TypeAlias = "Callable[[], SparkSession]"
"""Returns a Spark session, waiting while Java starts."""

TaskInput = TypeVar("TaskInput")
TaskOutput = TypeVar("TaskOutput")


def run_tasks(
    task: Callable[[TaskInput], TaskOutput], inputs: Sequence[TaskInput], spark: Session | None, text: str
) -> list[TaskOutput]:
    """Run a function on each input.

    Without a session the inputs are processed here in sequence; with one, each is a Spark task. A task may run twice,
    so it must write the same each time.

    Args:
        task: The function.
        inputs: The inputs.
        spark: Returns the Spark session; None: none.
        text: The work, for the description of the job.

    Returns:
        The results, in order.

    Raises:
        CausewayError: The first error in order of the inputs.
    """
    if spark is None or len(inputs) < 2:
        return [task(item) for item in inputs]

    def run_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for position in batch.column(0).to_pylist():
                content = pickle.dumps((position, _outcome(task, inputs[position])))
                yield pa.RecordBatch.from_pydict({"result": pa.array([content], pa.binary())})

    session = spark()
    with spark_jobs(session, f"{text}, {count_noun(len(inputs), 'task')}"):
        rows = session.range(0, len(inputs), 1, len(inputs)).mapInArrow(run_batches, "result binary").collect()
    outcomes = [outcome for _, outcome in sorted((pickle.loads(row[0]) for row in rows), key=lambda pair: pair[0])]
    for outcome in outcomes:
        if isinstance(outcome, CausewayError):
            raise outcome
    return outcomes


def _outcome(task: Callable[[Any], Any], item: Any) -> Any:
    """Return the result of a task, or its ``CausewayError``."""
    try:
        return task(item)
    except CausewayError as error:
        return error
