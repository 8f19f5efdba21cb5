"""Jobs of a session that anybody started, classic or through Spark Connect: shared values and descriptions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from causeway.cluster.masters import is_local
from causeway.cluster.tasks import convert_spark_errors

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

__all__ = [
    "InlineValue",
    "SharedJobState",
    "default_parallelism",
    "is_one_process",
    "session_folder",
    "share_value",
    "spark_context",
    "spark_jobs",
    "spark_master",
]

_DESCRIPTION = "spark.job.description"


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
    """
    # The classes of Spark Connect import gRPC, which a classic session does not need.
    return None if type(session).__module__.startswith("pyspark.sql.connect.") else session.sparkContext


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
def spark_jobs(session: SparkSession, text: str) -> Iterator[None]:
    """Describe the jobs of the body, as Spark's web page lists them, and convert their errors.

    Args:
        session: The session.
        text: The description; a tag of the jobs through Spark Connect, which takes no commas.

    Raises:
        LakeError: Spark cannot read a file.
        TaskFailed: A task failed otherwise.
    """
    context = spark_context(session)
    if context is None:
        tag = f"causeway: {text}".replace(",", ";")
        session.addTag(tag)
        try:
            with convert_spark_errors():
                yield
        finally:
            session.removeTag(tag)
        return
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, f"causeway: {text}")
    try:
        with convert_spark_errors():
            yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type]
