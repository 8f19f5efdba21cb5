"""``exchange``: what a tick opens and reads when the chains are cut into many buckets, and how large a manifest is."""

from __future__ import annotations

import os
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

from causeway_proofs.errors import InvalidInput

from benchmarks.machine import machine
from benchmarks.rounds import Progress, next_tick, work_folder
from benchmarks.workload import Workload, description
from causeway.cluster.tasks import result_of, run_pickled
from causeway.storage.lake import Lake, Manifest
from causeway.storage.object_store import LocalPlace
from causeway.tick.bucket import BucketCommit
from causeway.tick.deployment import Deployment, TickGroup
from causeway.tick.executors import Request, encode_request, run_task
from causeway.tick.run import commit_genesis

WARM_UP = 6
"""Ticks before the measured ones, after which every tick carries as many messages."""


class Tasks:
    """Runs the buckets one after the other in this process, each as the task of a Spark job does."""

    def __init__(self, deployment: Deployment, lake: Lake) -> None:
        self._deployment, self._lake = deployment, lake

    def genesis(self) -> Sequence[BucketCommit]:
        """Write the state of all buckets at height 0."""
        return self._run(None)

    def run(self, before: Manifest, group: TickGroup) -> Sequence[BucketCommit]:
        """Run a group of ticks on top of the committed height ``before``."""
        return self._run(encode_request(before, group))

    def _run(self, request: Request | None) -> Sequence[BucketCommit]:
        buckets = range(len(self._deployment.buckets))
        done = [partial(run_task, self._deployment, self._lake, bucket, request) for bucket in buckets]
        return [result_of(run_pickled(each)) for each in done]


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count in the body of a ``with`` statement what is asked of the file system: ``opens`` for reading, ``looks``
    whether a file is there, ``files`` written; and the ``bytes`` read."""
    found: Counter[str] = Counter()

    def counting(method: str, what: str) -> Any:
        real = getattr(LocalPlace, method)

        def call(self: LocalPlace, *arguments: Any) -> Any:
            found[what] += 1
            result = real(self, *arguments)
            if what == "opens":
                found["bytes"] += sum(map(len, result)) if isinstance(result, list) else len(result)
            return result

        return patch.object(LocalPlace, method, call)

    with (
        counting("read", "opens"),
        counting("read_ranges", "opens"),
        counting("size", "looks"),
        counting("writer", "files"),
        counting("create", "files"),
    ):
        yield found


def bench_exchange(
    buckets: Sequence[int] = (4, 16, 64),
    *,
    messages: int = 2_000,
    ticks: int = 4,
    subnets: int = 256,
    canisters: int = 2_560,
    payload_bytes: int = 64,
    lake_folder: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Run ticks of ``messages`` with each number of ``buckets``, as tasks do; return figures that fit JSON: per tick
    the files opened, looked for and written, the bytes read, and the bytes of a manifest.

    Raises ``InvalidInput``.
    """
    if ticks < 1 or any(not 1 <= count <= subnets for count in buckets):
        raise InvalidInput(f"buckets and ticks: at least 1, and at most {subnets} buckets")
    about = machine()
    workload = Workload(messages, subnets, canisters, payload_bytes)
    figures = {}
    for count in buckets:
        if progress is not None:
            progress(f"{count} buckets")
        deployment = workload.deployment(count)
        with work_folder(lake_folder) as folder:
            lake = Lake.at(os.path.join(folder, "lake"))
            lake.create(description(deployment))
            figures[str(count)] = _measured(deployment, lake, ticks)
    return {
        "benchmark": "exchange",
        "machine": about,
        "workload": {
            "messages": messages, "subnets": subnets, "canisters": canisters, "payload_bytes": payload_bytes,
        },
        "ticks": ticks,
        "figures": figures,
    }  # fmt: skip


def _measured(deployment: Deployment, lake: Lake, ticks: int) -> dict[str, Any]:
    tasks = Tasks(deployment, lake)
    before = commit_genesis(tasks, lake)
    for _ in range(WARM_UP):
        before = next_tick(deployment, tasks, lake, before)
    seconds, manifests = [], []
    with counted() as found:
        for _ in range(ticks):
            start = time.perf_counter()
            before = next_tick(deployment, tasks, lake, before)
            seconds.append(time.perf_counter() - start)
            manifests.append(len(before.content))
    return {
        **{name: round(found[name] / ticks) for name in ("opens", "looks", "files", "bytes")},
        "manifest_bytes": round(statistics.mean(manifests)),
        "median_ms": round(1000 * statistics.median(seconds), 1),
    }
