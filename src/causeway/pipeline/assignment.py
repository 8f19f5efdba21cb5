"""Which bucket a task runs, where all Python workers are on one machine: the one whose state is in the memory of the
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
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping

from causeway.model.errors import CausewayError

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


def chosen(homes: Mapping[int, int], free: Collection[int], worker: int, is_alive: Callable[[int], bool]) -> int:
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


def assigned(task: int, folder: str, buckets: int, homes: Mapping[int, int]) -> int:
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
        bucket = chosen(homes, free, os.getpid(), _is_alive)
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
