"""Spark masters: how they are written, and how many tasks a tick has on each by default."""

from __future__ import annotations

import contextlib
import math
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from causeway_proofs.errors import InvalidInput

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ANSWER_SECONDS = 5
"""How long a cluster's master may take to accept a connection."""

_LOCAL = re.compile(r"local(?:\[(?P<cores>\*|[1-9]\d*)(?:, *(?P<tries>[1-9]\d*))?\])?")
_STANDALONE = re.compile(r"spark://(?P<addresses>[^/,:]+:\d+(?:,[^/,:]+:\d+)*)")

TASK_RETRIES = 4
"""How often a task is tried on this machine, as on a cluster. Spark's own default for ``local`` is once, so that one
killed worker ended a run."""

CLUSTER_TASKS = 16
"""Tasks a tick on a cluster of which the settings do not say how many cores it has: how many executors have registered
by now is chance."""


def default_tasks(session: SparkSession) -> int:
    """Return how many tasks a tick has by default: the cores of this machine, or those that a cluster's settings name.

    It does not depend on how many executors have registered: two runs of one scenario are cut alike.
    """
    master = session.sparkContext.master or ""
    if is_local(master):
        return int(session.sparkContext.defaultParallelism)
    return default_tasks_on(master, dict(session.sparkContext.getConf().getAll()))


def default_tasks_on(master: str, settings: Mapping[str, str]) -> int:
    """Return the same from a master and Spark's settings. Raises ``InvalidInput``."""
    parallelism = _count(settings, "spark.default.parallelism")
    if parallelism is None and is_local(master):
        return check_master(master)
    parallelism = parallelism or _count(settings, "spark.cores.max")
    if parallelism is not None:
        return parallelism
    executors, cores = _count(settings, "spark.executor.instances"), _count(settings, "spark.executor.cores")
    return executors * cores if executors and cores else CLUSTER_TASKS


def _count(settings: Mapping[str, str], key: str) -> int | None:
    text = settings.get(key)
    if text is None:
        return None
    if not re.fullmatch(r"[1-9][0-9]{0,6}", text):
        raise InvalidInput(f"{key} is {text!r}: give a whole number from 1")
    return int(text)


def available_cores() -> int:
    """Return how many cores this process may use, as Java counts them: those of the machine, of its affinity, and of
    the container's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):  # no control group, or no quota: ``max``
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        cores = min(cores, max(1, math.ceil(int(quota) / int(period))))
    return cores


def with_task_retries(master: str) -> str:
    """Return a master on this machine with how often it tries a task; any other as it is."""
    local = _LOCAL.fullmatch(master)
    if local is None or local["tries"] is not None:
        return master
    return f"local[{local['cores'] or 1},{TASK_RETRIES}]"


def check_master(master: str) -> int:
    """Return how many cores the master gives on this machine (all of them when it is elsewhere)."""
    here = available_cores()
    if master.startswith("local"):
        local = _LOCAL.fullmatch(master)
        if local is None:
            raise InvalidInput(f"master is {master!r}: a local one is written local, local[4] or local[*]")
        cores = local["cores"]
        return 1 if cores is None else here if cores == "*" else int(cores)
    if master.startswith("spark://"):
        standalone = _STANDALONE.fullmatch(master)
        if standalone is None:
            raise InvalidInput(f"master is {master!r}: a standalone one is written spark://host:port")
        if not any(_answers(address) for address in standalone["addresses"].split(",")):
            raise InvalidInput(f"no Spark master answers at {master}: is it running, and reachable from here?")
        return here
    if master == "yarn" or master.startswith("k8s://"):
        return here
    raise InvalidInput(f"master is {master!r}: give local[*], local[N], spark://host:port, yarn or k8s://...")


def _answers(address: str) -> bool:
    host, port = address.rsplit(":", 1)
    try:
        with socket.create_connection((host, int(port)), timeout=_ANSWER_SECONDS):
            return True
    except (OSError, OverflowError):
        return False


def is_local(master: str) -> bool:
    """Return whether all of Spark is in one Java process of this machine."""
    return master.startswith("local")


def is_loopback(master: str) -> bool:
    """Return whether a cluster's master is on this machine."""
    return master.startswith(("spark://127.", "spark://localhost:"))
