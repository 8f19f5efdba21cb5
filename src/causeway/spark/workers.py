"""Which Python the workers of anyone's Spark session run on: what they import must be there.

How a worker process keeps the memory of one tick for the next.

Where the tasks of a tick run: on a cluster each bucket has an executor that it goes back to, so that its state is in
the memory of a worker there.

Executors are asked for when a task did not find its state, and now and then; only when they are others than before is
the query planned anew. A task whose executor is gone, or busy for longer than ``spark.locality.wait``, runs elsewhere,
and reads its state from the lake.

Among the Python workers of one executor Spark chooses, and cannot be told. Where all workers are on one machine, their
tasks agree who runs what (``assignment``); executors of a cluster share no folder that they could do so in, and a lake
in an object store has no locks.

Spark's DataFrames cannot say where a task should run; an RDD can. So the numbers of the buckets are an RDD with a
preferred executor each, and the query over it keeps the preference, because nothing is exchanged between the two.

Which bucket a task runs, where all Python workers are on one machine: the one whose state is in the memory of the
worker that the task got.

Spark gives a task whichever worker is idle for longest, and cannot be told another. So there the number of a task does
not say which bucket it runs: once it has a worker, it takes a bucket that this worker ran last, and leaves those of
others to them as long as there are any left. The tasks of a job agree by files without content in a folder of the job,
``<task>-<bucket>``, made under a lock of the folder that the system takes back from whoever dies. A task that Spark
repeats finds its own file, and runs the same bucket.

All of this decides who runs a bucket, and nothing else: a bucket's tick is a function of committed files.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from causeway_proofs.errors import CausewayError, InvalidInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["require_workers"]

SECONDS = 60.0
"""So long a Python may take to import what workers need."""


def require_workers(session: SparkSession) -> None:
    """Raise ``InvalidInput`` where the workers of a session on this machine run on a Python without Causeway: Spark
    takes ``python3`` of the PATH unless ``PYSPARK_PYTHON`` names another before the session begins."""
    context = session.sparkContext
    if not (context.master or "").startswith("local"):
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
"""Blocks up to this size are taken from kept memory, and that much may stay unused at its end."""


@functools.cache
def retain_freed_memory(arrow: bool = True) -> None:
    """Let this process keep what it frees, where the C library can: for those that do the same again and again, such as
    workers every tick.

    By default large blocks go back to the system when they are freed and come back as pages to be cleared, which took a
    fifth of the time of a round of a million messages.

    Args:
        arrow: whether Arrow's columns are among the blocks that are kept. In a process that keeps a small result of
            each bucket, these lie between the blocks and hold them apart: an audit of 1e8 rows took 4.7 GiB, not 1.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        if mallopt(MMAP_THRESHOLD, RETAINED_BYTES) and mallopt(TRIM_THRESHOLD, RETAINED_BYTES) and arrow:
            pa.set_memory_pool(pa.system_memory_pool())
    if not arrow:
        with contextlib.suppress(NotImplementedError):
            pa.set_memory_pool(pa.mimalloc_memory_pool())


_modules = 0
"""How many modules were loaded when ``spare_modules`` did something last."""


def freeze_modules() -> None:
    """Exempt what is loaded by now from the collection of garbage, where modules were loaded since the last call.

    PySpark lets a worker collect garbage after every task, and modules never are any: looking at those that a certified
    round imports took 45 ms, of a task of 600 for half a million messages.
    """
    global _modules
    if len(sys.modules) != _modules:
        gc.collect()
        gc.freeze()
        _modules = len(sys.modules)


_DRIVER = "driver"
"""What Spark calls the executor inside the driver's process."""


class ExecutorSlot(NamedTuple):
    """An executor: the machine that it is on, and its number in the application."""

    host: str
    executor: str


def is_single_machine(session: SparkSession) -> bool:
    """Return whether all Python workers are on this machine: Spark runs in one process."""
    context: Any = session.sparkContext
    return bool(context._jsc.sc().isLocal())


def list_executors(session: SparkSession) -> tuple[ExecutorSlot, ...]:
    """Return the executors that are there now, in the order of their numbers; none where Spark runs in one process."""
    if is_single_machine(session):
        return ()
    context: Any = session.sparkContext
    known = context._jsc.sc().statusStore().executorList(True).iterator()
    found = []
    while known.hasNext():
        summary = known.next()
        host = summary.hostPort().rpartition(":")[0]  # empty until all is known of it
        if summary.id() != _DRIVER and host:
            found.append(ExecutorSlot(host, summary.id()))
    return tuple(sorted(found, key=lambda place: (len(place.executor), place.executor)))


def numbered_partitions(session: SparkSession, count: int, executors: tuple[ExecutorSlot, ...]) -> DataFrame:
    """Return the numbers from 0 to ``count`` - 1 as a table with the column ``id`` and a partition each, which
    ``executors`` take in turns; where they are fewer than two, whoever is free takes any."""
    if len(executors) < 2:
        return session.range(0, count, 1, count)
    from pyspark.sql import DataFrame

    jvm: Any = session.sparkContext._jvm
    java: Any = session.sparkContext._jsc
    gateway: Any = session.sparkContext._gateway
    rows = jvm.java.util.ArrayList()
    for number in range(count):
        place = executors[number % len(executors)]
        cells = gateway.new_array(jvm.java.lang.Object, 1)
        cells[0] = number
        preferred = jvm.java.util.ArrayList()
        preferred.add(f"executor_{place.host}_{place.executor}")
        rows.add(jvm.scala.Tuple2(jvm.org.apache.spark.sql.RowFactory.create(cells), _sequence(jvm, preferred)))
    kind = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("org.apache.spark.sql.Row"))
    rdd = java.sc().makeRDD(_sequence(jvm, rows), kind).toJavaRDD()
    schema = jvm.org.apache.spark.sql.types.StructType.fromDDL("id INT NOT NULL")
    return DataFrame(session._jsparkSession.createDataFrame(rdd, schema), session)


def _sequence(jvm: Any, items: Any) -> Any:
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(items).toSeq()


try:
    import fcntl
except ImportError:  # Windows, where Spark starts a worker for every task
    fcntl = None  # type: ignore[assignment]

WORKERS_STAY = fcntl is not None
"""Whether there is anything to assign: a worker that runs more than one task."""

LOCK_SECONDS = 30.0
"""Holding the lock takes less than a millisecond; who waits longer than this for it gives up, and Spark tries again."""

_PAUSE_SECONDS = 0.001


class NotAssigned(CausewayError):
    """A task got no bucket, or the tasks of a job did not run each bucket once."""


def choose_bucket(homes: Mapping[int, int], free: Collection[int], worker: int, is_alive: Callable[[int], bool]) -> int:
    """Return which bucket a worker takes.

    The first of its own; else the first that nobody is going to ask for; else the last of the worker that has most
    left, since that one begins at the other end.

    Args:
        homes: process id of the worker that ran a bucket last, by bucket.
        free: the buckets that no task of this job has taken; at least one.
        worker: the process id of the worker.
        is_alive: whether there is a process of this id.
    """
    own = [bucket for bucket in free if homes.get(bucket) == worker]
    if own:
        return min(own)
    alive = {home for home in {homes[bucket] for bucket in free if bucket in homes} if is_alive(home)}
    loose = [bucket for bucket in free if homes.get(bucket) not in alive]
    if loose:
        return min(loose)
    left = Counter(homes[bucket] for bucket in free)
    busiest = max(left, key=lambda home: (left[home], home))
    return max(bucket for bucket in free if homes[bucket] == busiest)


def assign_bucket(task: int, folder: str, buckets: int, homes: Mapping[int, int]) -> int:
    """Return the bucket of a task, and leave word of it in the folder of the job.

    Args:
        task: its number, from 0; the same when Spark repeats it.
        folder: the job's own.
        buckets: how many there are, one a task.
        homes: as of ``chosen``.

    Raises:
        NotAssigned: all buckets are taken, the job is over, or its folder stays locked.
    """
    with _locked(folder):
        taken = dict(_numbers(name) for name in os.listdir(folder))
        if task in taken:
            return taken[task]
        free = set(range(buckets)) - set(taken.values())
        if not free:
            raise NotAssigned(f"task {task}: all of the {buckets} buckets are taken")
        bucket = choose_bucket(homes, free, os.getpid(), _is_alive)
        os.close(os.open(os.path.join(folder, f"{task}-{bucket}"), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        return bucket


def check_assigned(ran: Collection[int], buckets: int) -> None:
    """Check that tasks ran each bucket once. Raises ``NotAssigned``."""
    if sorted(ran) != list(range(buckets)):
        raise NotAssigned(f"tasks ran the buckets {sorted(ran)}, and not each of 0 to {buckets - 1} once")


def _numbers(name: str) -> tuple[int, int]:
    task, _, bucket = name.partition("-")
    return int(task), int(bucket)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError:  # there is none, or one of another user, which is no worker of ours
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
