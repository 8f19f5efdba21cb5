"""Assignment of buckets to tasks (``spark.workers``), and worker state across tasks."""

from __future__ import annotations

import gc
import os
import random
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from causeway.cluster import workers
from causeway.cluster.workers import NotAssigned, assign_bucket, check_assigned, choose_bucket

HERE, THERE, NEW, DEAD = 11, 12, 13, 99


def alive(process: int) -> bool:
    return process != DEAD


def test_worker_prefers_own_then_free_buckets_then_the_last_of_the_busiest() -> None:
    homes = {0: THERE, 1: HERE, 2: DEAD, 3: HERE, 4: THERE, 6: THERE}
    free, taken = set(range(7)), []
    while free:
        taken.append(choose_bucket(homes, free, HERE, alive))
        free.remove(taken[-1])
    assert taken == [1, 3, 2, 5, 6, 4, 0]


def test_fresh_worker_takes_the_buckets_of_a_dead_one_first() -> None:
    homes = {0: HERE, 1: DEAD}
    assert choose_bucket(homes, {0, 1}, NEW, alive) == 1
    assert choose_bucket(homes, {0}, NEW, alive) == 0
    # One of two workers with both buckets leaves the first to the one that usually begins with it.
    assert choose_bucket({0: HERE, 1: HERE}, {0, 1}, NEW, alive) == 1


@pytest.mark.parametrize("buckets", [2, 3, 16])
def test_bucket_assignment_stabilizes_for_any_worker_order(buckets: int) -> None:
    """Two workers, either of them first, either of them faster: only the required number of buckets change."""
    drawn, homes = random.Random(7), dict.fromkeys(range(buckets), HERE)
    moved = []
    for _ in range(40):
        order = [HERE, THERE] * buckets
        drawn.shuffle(order)
        order = [HERE, THERE, *order] if drawn.random() < 0.5 else [THERE, HERE, *order]
        free, ran = set(range(buckets)), {}
        for worker in order[:buckets]:
            bucket = choose_bucket(homes, free, worker, alive)
            free.remove(bucket)
            ran[bucket] = worker
        had = [sum(home == worker for home in homes.values()) for worker in (HERE, THERE)]
        has = [sum(home == worker for home in ran.values()) for worker in (HERE, THERE)]
        moved.append(sum(homes[bucket] != ran[bucket] for bucket in ran) - max(0, has[0] - had[0], has[1] - had[1]))
        homes = ran
    assert moved == [0] * 40


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[str]:
    yield str(tmp_path)
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in tmp_path.iterdir())


def test_each_task_gets_its_own_bucket_again_if_repeated(folder: str) -> None:
    homes = {0: 1 << 30, 1: 1 << 30, 2: os.getpid()}  # no process has so high a number
    assert [assign_bucket(task, folder, 3, homes) for task in (2, 0, 2, 1, 0)] == [2, 0, 2, 1, 0]
    with pytest.raises(NotAssigned, match="task 3: all of the 3 buckets are taken"):
        assign_bucket(3, folder, 3, homes)


def test_concurrent_processes_take_each_bucket_once(folder: str) -> None:
    program = (
        "import sys; from causeway.cluster.workers import assign_bucket\n"
        "first, folder = int(sys.argv[1]), sys.argv[2]\n"
        "sys.stdin.read()\n"
        "print(*(assign_bucket(task, folder, 400, {}) for task in range(first, 400, 4)))\n"
    )
    command = [sys.executable, "-c", program]
    pipe = subprocess.PIPE
    tasks = [subprocess.Popen([*command, str(first), folder], stdin=pipe, stdout=pipe) for first in range(4)]
    for task in tasks:
        assert task.stdin is not None
        task.stdin.close()  # now
    told = [task.stdout.read() for task in tasks if task.stdout is not None]
    assert [task.wait() for task in tasks] == [0] * 4
    check_assigned([int(bucket) for line in told for bucket in line.split()], 400)


def test_repeated_and_missing_buckets_are_reported() -> None:
    with pytest.raises(NotAssigned, match=r"tasks ran the buckets \[0, 0, 2\], and not each of 0 to 2 once"):
        check_assigned([0, 2, 0], 3)
    with pytest.raises(NotAssigned, match=r"\[0\]"):
        check_assigned([0], 2)


def test_stale_lock_and_finished_job_are_errors(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "LOCK_SECONDS", 0.05)
    with workers._locked(folder), pytest.raises(NotAssigned, match=r"has been locked for 0\.05 seconds"):
        assign_bucket(0, folder, 2, {})
    assert assign_bucket(0, folder, 2, {}) == 0
    with pytest.raises(NotAssigned, match="the job of this task is over"):
        assign_bucket(0, f"{folder}/none", 2, {})


def test_only_newly_loaded_modules_are_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_modules", 0)
    try:
        workers.freeze_modules()
        first = gc.get_freeze_count()
        kept = [[number] for number in range(5_000)]  # such as a state, which may become garbage
        workers.freeze_modules()
        assert 0 < gc.get_freeze_count() < first + 1_000
        monkeypatch.setitem(sys.modules, "loaded_later", ModuleType("loaded_later"))
        workers.freeze_modules()
        assert gc.get_freeze_count() > first + len(kept) - 1_000
    finally:
        gc.unfreeze()
