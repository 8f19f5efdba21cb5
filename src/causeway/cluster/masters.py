"""Spark masters: their syntax, and the default number of tasks a tick on each."""

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
"""Timeout of a connection to a cluster's master."""

_LOCAL = re.compile(r"local(?:\[(?P<cores>\*|[1-9]\d*)(?:, *(?P<tries>[1-9]\d*))?\])?")
_STANDALONE = re.compile(r"spark://(?P<addresses>[^/,:]+:\d+(?:,[^/,:]+:\d+)*)")

TASK_RETRIES = 4
"""Number of attempts of a task on this machine, as on a cluster.

Spark's default for ``local`` is one, with which a killed worker would end a run.
"""

CLUSTER_TASKS = 16
"""Tasks a tick on a cluster of unknown size; the number of registered executors varies."""


def default_tasks(session: SparkSession) -> int:
    """Return the default number of tasks a tick: local cores, or those in a cluster's settings.

    It ignores how many executors have registered, so that two runs of a scenario are partitioned alike.
    """
    master = session.sparkContext.master or ""
    if is_local(master):
        return session.sparkContext.defaultParallelism
    return default_tasks_on(master, dict(session.sparkContext.getConf().getAll()))


def default_tasks_on(master: str, settings: Mapping[str, str]) -> int:
    """Return the default number of tasks from a master and Spark's settings.

    Raises ``InvalidInput``.
    """
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
    """Return the cores that Java would use, limited by machine, affinity and container quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):  # no control group, or the quota is ``max``
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        cores = min(cores, max(1, math.ceil(int(quota) / int(period))))
    return cores


def with_task_retries(master: str) -> str:
    """Add the number of task attempts to a local master."""
    local = _LOCAL.fullmatch(master)
    if local is None or local["tries"] is not None:
        return master
    return f"local[{local['cores'] or 1},{TASK_RETRIES}]"


def check_master(master: str) -> int:
    """Validate a master; return its number of cores on this machine (all for a remote one).

    Raises:
        InvalidInput: It is malformed, or does not answer.
    """
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
    if master == "yarn" and not {"HADOOP_CONF_DIR", "YARN_CONF_DIR"} & set(os.environ):
        raise InvalidInput("master is 'yarn': HADOOP_CONF_DIR or YARN_CONF_DIR must name the folder of its settings")
    if master == "yarn" or master.startswith("k8s://"):
        return here
    if master.startswith("sc://"):
        raise InvalidInput(
            f"master is {master!r}: open a session through Spark Connect, and call the functions of causeway.spark"
        )
    raise InvalidInput(f"master is {master!r}: give local[*], local[N], spark://host:port, yarn or k8s://...")


def _answers(address: str) -> bool:
    host, port = address.rsplit(":", 1)
    try:
        with socket.create_connection((host, int(port)), timeout=_ANSWER_SECONDS):
            return True
    except (OSError, OverflowError):
        return False


def is_local(master: str) -> bool:
    """Return True if all of Spark runs in one Java process on this machine.

    Args:
        master: The master.
    """
    return _LOCAL.fullmatch(master) is not None


def is_loopback(master: str) -> bool:
    """Return True if a cluster's master is on this machine.

    Args:
        master: The master.
    """
    return master.startswith(("spark://127.", "spark://localhost:"))
