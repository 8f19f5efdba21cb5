"""How the buckets of a stored ledger are passed over: in this process, a few at once, or by Spark, a task a bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from causeway.model.errors import InvalidInput
from causeway.pipeline.ledger_store import Ledger
from causeway.pipeline.masters import cores_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Found = TypeVar("Found")

EXECUTORS = ("auto", "in_process", "spark")

SPARK_ROWS = 50_000_000
"""From so many rows on ``auto`` takes Spark: below, a session takes longer to start than the pass."""

MOST_THREADS = 8
"""Buckets that are looked at at once in one process, at most: each takes memory, and they share one interpreter."""

Progress = Callable[[int, int], None]
"""Told how many rows were looked at, and of how many."""

Steps = Callable[[str], Progress]
"""Begins a step of a longer work, and gives what is told how far it is."""


class Shared(Protocol):
    """What a job has in each worker."""

    @property
    def value(self) -> Any:
        """Return it."""
        ...


def bucket_rows(ledger: Ledger) -> list[int]:
    """Return how many rows of the table ``ledger`` the files of each bucket have."""
    return [sum(file.rows for file in ledger.files("ledger", bucket)) for bucket in range(ledger.buckets)]


def takes_spark(executor: str, session: SparkSession | None, rows: Sequence[int]) -> bool:
    """Return whether Spark passes over buckets of so many rows: ``executor`` is ``spark``, or it is ``auto`` and there
    is a session or ``SPARK_ROWS`` rows. Raises ``InvalidInput`` for an executor that there is not."""
    if executor not in EXECUTORS:
        raise InvalidInput(f"executor: {executor}: must be one of {', '.join(EXECUTORS)}")
    return executor == "spark" or (executor == "auto" and (session is not None or sum(rows) >= SPARK_ROWS))


def opened_session(
    master: str, settings: Mapping[str, str] = MappingProxyType({}), tasks: int = 1, modules: Sequence[str] = ()
) -> SparkSession:
    """Return a session whose workers have imported what so many tasks need."""
    from causeway.pipeline.ledger_tasks import MODULES
    from causeway.pipeline.session import begin_session, open_session, prepare_workers, tasks_asked, workers_prepared

    begin_session(master, extra=settings)
    prepare_workers(min(tasks, tasks_asked(master, settings)), (*MODULES, *modules))
    session = open_session(master, extra=settings)
    workers_prepared()
    return session


def threads() -> ThreadPoolExecutor:
    """Return the threads of a pass in this process."""
    return ThreadPoolExecutor(min(cores_here(), MOST_THREADS), "causeway-pass")


def largest_first(rows: Sequence[int], only: Iterable[int] | None = None) -> list[int]:
    """Return the buckets to look at, so that the last ones to end are small."""
    return sorted(range(len(rows)) if only is None else only, key=lambda bucket: (-rows[bucket], bucket))


Work = Callable[[Shared, int], Iterable[tuple[int, Any]]]
"""Given what all buckets share and the number of one, yields what its runs show, by their numbers; a function of a
module."""


@dataclass(frozen=True)
class Here:
    """What a pass in this process shares."""

    value: Any


@dataclass(frozen=True)
class Passes:
    """Passes over buckets: by Spark where there is a ``session``, else in this process."""

    session: SparkSession | None

    def over(self, buckets: Sequence[int], work: Work, value: Any, kind: type[Found]) -> Iterator[tuple[int, Found]]:
        """Yield what the runs of buckets show, with the number of each bucket, in the order of ``buckets``.

        ``value``: what all share, picklable; ``kind``: a dataclass of tables and truth values. Raises as
        ``ledger_tasks.run_buckets``.
        """
        if self.session is None:
            with threads() as pool:
                each = pool.map(lambda bucket: [shown for _, shown in work(Here(value), bucket)], buckets)
                for bucket, found in zip(buckets, each, strict=True):
                    yield from ((bucket, shown) for shown in found)
            return
        from causeway.pipeline.ledger_tasks import run_buckets
        from causeway.pipeline.worker_python import require_workers

        require_workers(self.session)
        shared = self.session.sparkContext.broadcast(value)
        try:
            by_run = run_buckets(self.session, buckets, work, shared, kind)
        finally:
            shared.unpersist()
        place = {bucket: number for number, bucket in enumerate(buckets)}
        for bucket, run in sorted(by_run, key=lambda key: (place[key[0]], key[1])):
            yield bucket, by_run[bucket, run]


class Told:
    """How far a pass is."""

    def __init__(self, progress: Progress | None, rows: Sequence[int]) -> None:
        self._progress, self._rows, self._total, self._done = progress, rows, sum(rows), 0
        if progress is not None:
            progress(0, self._total)

    def bucket(self, bucket: int) -> None:
        """Say that a bucket was looked at."""
        self._done += self._rows[bucket]
        if self._progress is not None:
            self._progress(min(self._done, self._total), self._total)


__all__ = [
    "EXECUTORS", "MOST_THREADS", "SPARK_ROWS", "Here", "Passes", "Progress", "Shared", "Steps", "Told", "Work",
    "bucket_rows", "largest_first", "opened_session", "takes_spark", "threads",
]  # fmt: skip
