"""Python workers of Spark: their memory, their placement, and the bucket of each task.

A bucket's tick is fast if its state is in the memory of the worker that runs it, so tasks return to the same worker
where possible. All of this decides only the worker of a bucket: a bucket's tick is a function of committed files.

On a cluster each bucket has a preferred executor: Spark stores the bucket's number there, as the only row of a
partition of a persisted table, and the query over the table exchanges nothing. The table is placed again when other
executors are found, which are looked for when a task did not find its state, and periodically. A task whose executor
is gone, or busy for longer than ``spark.locality.wait``, runs elsewhere and reads its state from the lake. Among the
workers of one executor Spark chooses, without control from outside.

With all workers on one machine, Spark gives a task to the longest idle worker, so the task number does not decide the
bucket. Instead a task claims a bucket that its worker ran last, and leaves the buckets of other workers to them while
there are free ones. The tasks of a job coordinate by empty files ``<task>-<bucket>`` in a folder of the job, created
under a folder lock that the system releases when its holder dies. A repeated task finds its own file and runs the same
bucket. Executors of a cluster share no folder for that, and object stores have no locks.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import os
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa
from causeway_proofs.errors import CausewayError, InvalidInput

from causeway.cluster.jobs import default_parallelism, is_one_process, spark_context, spark_jobs, spark_master
from causeway.cluster.masters import is_local
from causeway.core.text import count_noun

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["require_workers"]

SECONDS = 60.0
"""Timeout of the import check of a worker's Python, in seconds."""


def require_workers(session: SparkSession) -> None:
    """Check that local workers can import Causeway.

    Spark uses ``python3`` of the PATH unless ``PYSPARK_PYTHON`` names another before the session starts.

    Args:
        session: The session.

    Raises:
        InvalidInput: The workers' Python cannot import Causeway.
    """
    context = spark_context(session)
    if context is None or not is_local(spark_master(session)):
        return
    python = context.pythonExec
    found = shutil.which(python)
    if found is not None and os.path.dirname(found) == os.path.dirname(sys.executable):
        return
    if found is None or not _imports(found):
        text = f"its workers run on {python}, which does not import causeway; set PYSPARK_PYTHON={sys.executable}"
        raise InvalidInput(f"Spark session: {text} before it begins")


@lru_cache(maxsize=8)
def _imports(python: str) -> bool:
    command = [python, "-c", "import causeway, numpy, pyarrow"]
    try:
        return subprocess.run(command, capture_output=True, timeout=SECONDS).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's ``mallopt``."""

RETAINED_BYTES = 1 << 30
"""Maximum size of blocks served from retained memory, and of unused memory at its end."""


@functools.cache
def retain_freed_memory(arrow: bool = True) -> None:
    """Let this process retain freed memory, where the C library supports it.

    It suits processes that repeat the same work, such as workers every tick. By default large freed blocks return to
    the system and come back as pages to be cleared, which took a fifth of the time of a round of a million messages.

    Args:
        arrow: Retain the memory of Arrow columns too. In a process that keeps a small result of each bucket, these
            results fragment the retained blocks: an audit of 1e8 rows took 4.7 GiB rather than 1.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        if mallopt(MMAP_THRESHOLD, RETAINED_BYTES) and mallopt(TRIM_THRESHOLD, RETAINED_BYTES) and arrow:
            pa.set_memory_pool(pa.system_memory_pool())
    if not arrow:
        with contextlib.suppress(NotImplementedError):
            pa.set_memory_pool(pa.mimalloc_memory_pool())


_modules = 0
"""Number of loaded modules at the last ``freeze_modules``."""


def freeze_modules() -> None:
    """Exempt loaded modules from garbage collection, if any were loaded since the last call.

    PySpark lets a worker collect garbage after every task, and modules are never garbage. Scanning those of a certified
    round took 45 ms of a task of 600 ms for half a million messages.
    """
    global _modules
    if len(sys.modules) != _modules:
        gc.collect()
        gc.freeze()
        _modules = len(sys.modules)


HOLD_SECONDS = 0.1
"""Time that an executor takes for each partition that it stores, so that executors take turns."""


def numbered_partitions(session: SparkSession, count: int) -> DataFrame:
    """Return a table of numbers with one partition each; on a cluster each stays on an executor.

    Spark stores the partitions in its executors, and prefers for a task the executor that has its partition. One that
    is lost is stored again where its next task runs.

    Args:
        session: The session.
        count: Number of rows: 0 to ``count`` - 1 in column ``id``.
    """
    numbers = session.range(0, count, 1, count)
    if is_one_process(session):
        return numbers
    held = numbers.mapInArrow(_hold, "id long").persist()
    with spark_jobs(session, f"place {count_noun(count, 'bucket')}"):
        held.count()
    return held


def _hold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    time.sleep(HOLD_SECONDS)
    yield from batches


def find_executors(session: SparkSession) -> frozenset[str]:
    """Return names of the executors that now run tasks; empty if Spark runs in one process.

    An executor is named by its host and the process that starts its Python workers.

    Args:
        session: The session.
    """
    if is_one_process(session):
        return frozenset()
    tasks = 2 * default_parallelism(session)
    with spark_jobs(session, "find executors"):
        rows = session.range(0, tasks, 1, tasks).mapInArrow(_name_executor, "executor string").collect()
    return frozenset(row["executor"] for row in rows)


def _name_executor(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    name = f"{socket.gethostname()}:{os.getppid()}"
    for batch in _hold(batches):
        yield pa.RecordBatch.from_pydict({"executor": [name] * batch.num_rows})


try:
    import fcntl
except ImportError:  # Windows, where Spark starts a worker for every task
    fcntl = None  # type: ignore[assignment]

WORKERS_STAY = fcntl is not None
"""True if workers run more than one task, so that assigning buckets helps."""

LOCK_SECONDS = 30.0
"""Timeout of the folder lock, held for less than a millisecond; then Spark retries the task."""

_PAUSE_SECONDS = 0.001


class NotAssigned(CausewayError):
    """A task got no bucket, or the tasks of a job did not run each bucket exactly once."""


def choose_bucket(homes: Mapping[int, int], free: Collection[int], worker: int, is_alive: Callable[[int], bool]) -> int:
    """Choose the bucket of a worker.

    The first of its own; else the first without a live worker; else the last of the worker with most free buckets,
    since that worker begins at the other end.

    Args:
        homes: Process id of the last worker by bucket.
        free: Buckets not yet claimed in this job, at least one.
        worker: Process id of the worker.
        is_alive: Tests a process id.
    """
    own = [bucket for bucket in free if homes.get(bucket) == worker]
    if own:
        return min(own)
    alive = {home for home in {homes[bucket] for bucket in free if bucket in homes} if is_alive(home)}
    unclaimed = [bucket for bucket in free if homes.get(bucket) not in alive]
    if unclaimed:
        return min(unclaimed)
    counts = Counter(homes[bucket] for bucket in free)
    busiest = max(counts, key=lambda home: (counts[home], home))
    return max(bucket for bucket in free if homes[bucket] == busiest)


def assign_bucket(task: int, folder: str, buckets: int, homes: Mapping[int, int]) -> int:
    """Claim a bucket for a task in the folder of its job.

    Args:
        task: Number of the task from 0; equal when Spark repeats it.
        folder: The job's own folder.
        buckets: Number of buckets, one a task.
        homes: As in ``choose_bucket``.

    Raises:
        NotAssigned: All buckets are claimed, the job is over, or its folder stays locked.
    """
    with _locked(folder):
        names = (name.partition("-") for name in os.listdir(folder))
        claimed = {int(other): int(bucket) for other, _, bucket in names}
        if task in claimed:
            return claimed[task]
        free = set(range(buckets)) - set(claimed.values())
        if not free:
            raise NotAssigned(f"task {task}: all of the {buckets} buckets are taken")
        bucket = choose_bucket(homes, free, os.getpid(), _is_alive)
        os.close(os.open(os.path.join(folder, f"{task}-{bucket}"), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        return bucket


def check_assigned(ran: Collection[int], buckets: int) -> None:
    """Check that tasks ran each bucket exactly once.

    Args:
        ran: Buckets that ran.
        buckets: Number of buckets.

    Raises:
        NotAssigned: A bucket ran twice or never.
    """
    if sorted(ran) != list(range(buckets)):
        raise NotAssigned(f"tasks ran the buckets {sorted(ran)}, and not each of 0 to {buckets - 1} once")


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError:  # no such process, or one of another user
        return False
    return True


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Hold the lock of a folder."""
    try:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        raise NotAssigned("the job of this task is over") from None
    try:
        end = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise NotAssigned(f"{folder} has been locked for {LOCK_SECONDS:g} seconds") from None
                time.sleep(_PAUSE_SECONDS)
        yield
    finally:
        os.close(opened)
