"""The Spark session: one a process, set for many small jobs whose bulk data lives in Python workers."""

from __future__ import annotations

import atexit
import os
import re
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING

import psutil

from causeway.model.errors import InvalidInput
from causeway.pipeline.gateway import Gateway
from causeway.pipeline.java import check_memory, find_java

if TYPE_CHECKING:
    from py4j.protocol import Py4JError
    from pyspark.sql import SparkSession

_GIB = 1024
"""MiB in a GiB."""

_ANSWER_SECONDS = 5
"""How long a cluster's master may take to accept a connection."""

_SETTINGS = MappingProxyType(
    {
        "spark.app.name": "causeway",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        # 45 ms less a Python stage than over TCP.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.worker.reuse": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Up to this many files are looked up by the driver: from 32 on, the default, Spark starts a job of its own
        # for it, which takes ten times as long (0.6 s for 90 files on a disk).
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
    }
)

_LOOPBACK = MappingProxyType({"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"})
"""Nothing listens to the outside, and no name of this machine has to resolve, when all of Spark is on it."""

_LOCAL = re.compile(r"local(?:\[(?P<cores>\*|[1-9]\d*)(?:, *(?P<tries>[1-9]\d*))?\])?")
_STANDALONE = re.compile(r"spark://(?P<addresses>[^/,:]+:\d+(?:,[^/,:]+:\d+)*)")

TRIES = 4
"""How often a task is tried on this machine, as on a cluster. Spark's own default for ``local`` is once, so that one
killed worker ended a run."""

CLUSTER_TASKS = 16
"""Tasks a tick on a cluster of which the settings do not say how many cores it has: how many executors have registered
by now is chance."""

_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Where ``spark-submit`` says how to reach the Java process that it has started for this program."""

_lock = threading.Lock()
_gateway: Gateway | None = None
_opened_with: tuple[str, str | None, dict[str, str]] | None = None


def open_session(
    master: str = "local[*]", *, memory: str | None = None, extra: Mapping[str, str] = MappingProxyType({})
) -> SparkSession:
    """Open the Spark session of this process, or return it when it is open with the same arguments.

    A session that the calling program has started through PySpark itself is used as it is, and so is the Java process
    of ``spark-submit``; ``master``, ``memory`` and ``extra`` are those it was started with then.

    Args:
        master: ``local[*]``, ``local[N]``, ``spark://host:port``, or another master that Spark knows.
        memory: the largest heap of this process's Java, such as ``2g``; by default what suits the machine. Messages do
            not lie in it, they are in Python workers.
        extra: further Spark settings, which also replace those made here.

    Raises:
        InvalidInput: an argument is wrong, the master does not answer, Java does not start, or a session with other
            arguments is open.
    """
    global _gateway, _opened_with
    with _lock:
        asked = (master, memory, dict(extra))
        if _gateway is None:
            theirs = _session_of_the_caller() or _submitted()
            if theirs is not None:
                return theirs
        elif _alive(_gateway):
            if asked == _opened_with:
                from pyspark import SparkContext
                from pyspark.sql import SparkSession

                return SparkSession(SparkContext.getOrCreate())
            raise InvalidInput(
                f"a Spark session on {_opened_with[0] if _opened_with else master} with other settings is open in this "
                "process: close it before opening another"
            )
        else:
            _forget()  # it died, or its session was stopped behind our back
        cores = _check_master(master)
        heap = check_memory(memory) if memory is not None else _default_memory(cores)
        _gateway = _start_gateway(master, cores, heap, extra)
        _opened_with = asked
        try:
            return _start_session(_gateway, master, extra)
        except BaseException:
            _end()
            raise


def open_one() -> SparkSession | None:
    """Return the Spark session that is open in this process, with whatever arguments, or None."""
    with _lock:
        if _gateway is not None and not _alive(_gateway):
            return None
        return _session_of_the_caller()


def close_session() -> None:
    """Close the session that ``open_session`` opened, and end its Java process. Without one, do nothing."""
    with _lock:
        _end()


@contextmanager
def spark_session(
    master: str = "local[*]", *, memory: str | None = None, extra: Mapping[str, str] = MappingProxyType({})
) -> Iterator[SparkSession]:
    """Open a session for the body of a ``with`` statement; arguments and errors are those of ``open_session``."""
    session = open_session(master, memory=memory, extra=extra)
    try:
        yield session
    finally:
        close_session()


def _start_gateway(master: str, cores: int, heap: str, extra: Mapping[str, str]) -> Gateway:
    on_this_machine = _is_local(master) or _is_loopback(master)
    settings = {
        **_SETTINGS,
        **(_LOOPBACK if on_this_machine else {}),
        "spark.driver.memory": heap,
        **({"spark.sql.shuffle.partitions": str(2 * cores)} if _is_local(master) else {}),
        **extra,
    }
    # Workers start the Python that PYSPARK_PYTHON names, which on this machine can only be this one.
    if on_this_machine or "PYSPARK_PYTHON" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    environ = {"SPARK_LOCAL_IP": "127.0.0.1"} if on_this_machine else {}
    arguments = ["--master", _with_tries(master)]
    for name, value in settings.items():
        arguments += ["--conf", f"{name}={value}"]
    return Gateway(find_java(), arguments, memory=heap, options=_collector(cores), environ=environ)


def _start_session(gateway: Gateway, master: str, extra: Mapping[str, str]) -> SparkSession:
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    try:
        # The settings are in the Java process already: they were arguments of its start.
        context = SparkContext(gateway=gateway.client, conf=SparkConf(_jvm=gateway.client.jvm))
        session = SparkSession(context)
    except Py4JError as error:
        raise InvalidInput(f"Spark does not start on {master}: {_first_line(error)}") from None
    if not _is_local(master) and "spark.sql.shuffle.partitions" not in extra:
        # Only the cluster knows its cores, and only now.
        session.conf.set("spark.sql.shuffle.partitions", str(max(2, 2 * context.defaultParallelism)))
    return session


def _end() -> None:
    if _gateway is None:
        return
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    _gateway.fall_silent()
    try:
        context = SparkContext._active_spark_context
        if context is not None and _gateway.process.poll() is None:
            SparkSession(context).stop()
    finally:
        _forget()


def _forget() -> None:
    """End the Java process, and let PySpark forget that it had one, so that it can have another."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    global _gateway, _opened_with
    ended, _gateway, _opened_with = _gateway, None, None
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None
    if ended is not None:
        ended.close()


def _alive(gateway: Gateway) -> bool:
    from pyspark import SparkContext

    return gateway.process.poll() is None and SparkContext._active_spark_context is not None


def _session_of_the_caller() -> SparkSession | None:
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context = SparkContext._active_spark_context
    return SparkSession(context) if context is not None else None


def _submitted() -> SparkSession | None:
    """Return the session of a program that ``spark-submit`` has started, None where it has not."""
    if _SUBMITTED not in os.environ:
        return None
    from py4j.protocol import Py4JError
    from pyspark.sql import SparkSession

    try:
        return SparkSession.builder.getOrCreate()
    except Py4JError as error:
        raise InvalidInput(f"the session of spark-submit does not start: {_first_line(error)}") from None


def tasks_of(session: SparkSession) -> int:
    """Return how many tasks a tick has by default: the cores of this machine, or those that a cluster's settings name.

    It does not depend on how many executors have registered: two runs of one scenario are cut alike.
    """
    settings = session.sparkContext.getConf()
    master = session.sparkContext.master or ""
    if _is_local(master):
        return int(session.sparkContext.defaultParallelism)
    parallelism = settings.get("spark.default.parallelism") or settings.get("spark.cores.max")
    if parallelism is not None:
        return max(1, int(parallelism))
    executors, cores = settings.get("spark.executor.instances"), settings.get("spark.executor.cores")
    return max(1, int(executors) * int(cores)) if executors and cores else CLUSTER_TASKS


def _with_tries(master: str) -> str:
    """Return a master on this machine with how often it tries a task; any other as it is."""
    local = _LOCAL.fullmatch(master)
    if local is None or local["tries"] is not None:
        return master
    return f"local[{local['cores'] or 1},{TRIES}]"


def _check_master(master: str) -> int:
    """Return how many cores the master gives on this machine (all of them when it is elsewhere)."""
    here = os.cpu_count() or 1
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


def _is_local(master: str) -> bool:
    return master.startswith("local")


def _is_loopback(master: str) -> bool:
    return master.startswith(("spark://127.", "spark://localhost:"))


def _default_memory(cores: int) -> str:
    """Half a GiB a core, at least 2 and at most 16, but never more than a quarter of the machine."""
    wanted = min(max(2 * _GIB, cores * _GIB // 2), 16 * _GIB)
    machine = psutil.virtual_memory().total // 2**20
    return f"{max(512, min(wanted, machine // 4))}m"


def _collector(cores: int) -> list[str]:
    """Choose the garbage collector: with few cores, the parallel ones' threads take time from the workers."""
    return ["-XX:+UseSerialGC"] if cores <= 4 else []


def _first_line(error: Py4JError) -> str:
    """Return what went wrong, without the Java stack trace that follows."""
    java = getattr(error, "java_exception", None)
    text = str(java.toString()) if java is not None else str(error)
    line = text.strip().splitlines()[0] if text.strip() else type(error).__name__
    return re.sub(r"^(?:[a-z]\w*\.)+[A-Z]\w*: ", "", line)


atexit.register(close_session)
