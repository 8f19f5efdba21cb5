"""The Spark session: one a process, set for many small jobs whose bulk data lives in Python workers."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING

import psutil

from causeway.model.errors import InvalidInput
from causeway.pipeline.gateway import Gateway
from causeway.pipeline.java import check_memory, find_java
from causeway.pipeline.masters import check_master, is_local, is_loopback, tasks_of, tasks_on, with_tries
from causeway.pipeline.opening import Opening

if TYPE_CHECKING:
    from py4j.protocol import Py4JError
    from pyspark.sql import SparkSession

_GIB = 1024
"""MiB in a GiB."""

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

_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Where ``spark-submit`` says how to reach the Java process that it has started for this program."""

_LATE_COMPILER = (
    "-XX:Tier4InvocationThreshold=100000",
    "-XX:Tier4MinInvocationThreshold=20000",
    "-XX:Tier4CompileThreshold=300000",
    "-XX:Tier4BackEdgeThreshold=1000000",
)
"""Java's optimising compiler begins twenty times later: what starts a session and runs ticks hardly repeats, and its
compilation took a third of the processor time until the first job. A query over millions of rows passes it at once."""

_lock = threading.Lock()
_gateway: Gateway | None = None
_opening: Opening | None = None
_guessed = False
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
    with _lock:
        if _gateway is None and (theirs := _session_of_the_caller() or _submitted()) is not None:
            return theirs
        opening = _begin((master, memory, dict(extra)))
        try:
            session = opening.session()
        except BaseException:
            _end()
            raise
        return _taken(session)


def begin_session(
    master: str = "local[*]", *, memory: str | None = None, extra: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Start to open the session that ``open_session`` will be asked for with the same arguments; return at once.

    Where a session of the calling program would be used, do nothing. ``close_session`` ends what was begun, and so does
    the end of this process.

    Raises:
        InvalidInput: as ``open_session``, as far as it can be said without Java.
    """
    with _lock:
        if _gateway is not None or (_session_of_the_caller() is None and _SUBMITTED not in os.environ):
            _begin((master, memory, dict(extra)))


def guess_session(master: str, extra: Mapping[str, str]) -> None:
    """Begin to open a session that will probably be asked for with these arguments; do nothing where they are wrong.

    Only on this machine. One that is asked for with others takes its place.
    """
    global _guessed
    if not is_local(master) or _gateway is not None or _SUBMITTED in os.environ or "pyspark" in sys.modules:
        return
    with contextlib.suppress(InvalidInput):
        begin_session(master, extra=extra)
        _guessed = True


def tasks_asked(master: str, extra: Mapping[str, str]) -> int:
    """Return how many tasks a tick has by default in the session with these arguments: without waiting for it, where
    it is ours and no file of settings says more. Raises ``InvalidInput``."""
    if _opening is not None and not _opening.ended and "SPARK_CONF_DIR" not in os.environ:
        return tasks_on(master, extra)
    return tasks_of(open_session(master, extra=extra))


def prepare_workers(count: int, modules: Sequence[str]) -> None:
    """Let Python workers on this machine import what their first tasks need, while the session is still being made.

    Where the session is not on this machine, or not ours, do nothing.
    """
    if _opening is not None and _opened_with is not None and is_local(_opened_with[0]):
        _opening.prepare(min(count, check_master(_opened_with[0])), modules)


def workers_prepared() -> None:
    """Wait until the workers that are being prepared are: until then a task would get one that is not."""
    if _opening is not None:
        _opening.prepared()


def open_one() -> SparkSession | None:
    """Return the Spark session that is open in this process, with whatever arguments, or None."""
    with _lock:
        if _gateway is not None and _opening is not None and not (_opening.ended and _alive(_gateway, _opening)):
            return None
        return _session_of_the_caller()


def close_session() -> None:
    """Close the session that ``open_session`` opened, and end its Java process. Without one, do nothing."""
    with _lock:
        _end()


@contextlib.contextmanager
def spark_session(
    master: str = "local[*]", *, memory: str | None = None, extra: Mapping[str, str] = MappingProxyType({})
) -> Iterator[SparkSession]:
    """Open a session for the body of a ``with`` statement; arguments and errors are those of ``open_session``."""
    session = open_session(master, memory=memory, extra=extra)
    try:
        yield session
    finally:
        close_session()


def _begin(asked: tuple[str, str | None, dict[str, str]]) -> Opening:
    """Return the session that is open or on its way with these arguments, or begin to open it. Raises
    ``InvalidInput``."""
    global _gateway, _opening, _opened_with, _guessed
    master, memory, extra = asked
    if _gateway is not None and _opening is not None:
        if _alive(_gateway, _opening):
            if asked == _opened_with:
                _guessed = False
                return _opening
            if not _guessed:
                other = _opened_with[0] if _opened_with else master
                text = f"a Spark session on {other} with other settings is open in this process"
                raise InvalidInput(f"{text}: close it before opening another")
            _end()
        else:
            _forget()  # it died, or its session was stopped behind our back
    _guessed = False
    cores = check_master(master)
    heap = check_memory(memory) if memory is not None else _default_memory(cores)
    _gateway = _start_gateway(master, cores, heap, extra)
    _opened_with = asked
    _opening = Opening(_gateway, functools.partial(_start_session, master=master, extra=extra))
    return _opening


def _start_gateway(master: str, cores: int, heap: str, extra: Mapping[str, str]) -> Gateway:
    on_this_machine = is_local(master) or is_loopback(master)
    settings = {
        **_SETTINGS,
        **(_LOOPBACK if on_this_machine else {}),
        "spark.driver.memory": heap,
        **({"spark.sql.shuffle.partitions": str(2 * cores)} if is_local(master) else {}),
        **extra,
    }
    # Workers start the Python that PYSPARK_PYTHON names, which on this machine can only be this one.
    if on_this_machine or "PYSPARK_PYTHON" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    environ = {"SPARK_LOCAL_IP": "127.0.0.1"} if on_this_machine else {}
    arguments = ["--master", with_tries(master)]
    for name, value in settings.items():
        arguments += ["--conf", f"{name}={value}"]
    return Gateway(find_java(), arguments, memory=heap, options=_options(cores), environ=environ)


def _start_session(gateway: Gateway, master: str, extra: Mapping[str, str]) -> SparkSession:
    client = gateway.connect()
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    try:
        # The settings are in the Java process already: they were arguments of its start.
        context = SparkContext(gateway=client, conf=SparkConf(_jvm=client.jvm))
        session = SparkSession(context)
    except Py4JError as error:
        raise InvalidInput(f"Spark does not start on {master}: {_first_line(error)}") from None
    if not is_local(master) and "spark.sql.shuffle.partitions" not in extra:
        # Only the cluster knows its cores, and only now.
        session.conf.set("spark.sql.shuffle.partitions", str(max(2, 2 * context.defaultParallelism)))
    return session


def _taken(session: SparkSession) -> SparkSession:
    """Make a session that another thread opened this thread's own: the active one, and ended by Ctrl-C."""
    from pyspark.sql import SparkSession as Sessions

    Sessions._get_j_spark_session_class(session._jvm).setActiveSession(session._jsparkSession)
    in_main = threading.current_thread() is threading.main_thread()
    if in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupted)
    return session


def _interrupted(number: int, frame: FrameType | None) -> None:
    """Cancel what Spark does, as PySpark's own handler does, which it installs in the main thread only."""
    from pyspark import SparkContext

    try:
        if SparkContext._active_spark_context is not None:
            SparkContext._active_spark_context.cancelAllJobs()
    finally:
        raise KeyboardInterrupt


def _end() -> None:
    if _gateway is None:
        return
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    _gateway.fall_silent()
    if _opening is not None:
        _opening.ends()
        if not _opening.ended:
            _opening.abandon()
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

    global _gateway, _opening, _opened_with
    ended, _gateway, _opening, _opened_with = _gateway, None, None, None
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None
    if ended is not None:
        ended.close()


def _alive(gateway: Gateway, opening: Opening) -> bool:
    """Return whether a session is open, or on its way."""
    from pyspark import SparkContext

    if gateway.process.poll() is not None:
        return False
    return not opening.ended or SparkContext._active_spark_context is not None


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


def _default_memory(cores: int) -> str:
    """Half a GiB a core, at least 2 and at most 16, but never more than a quarter of the machine."""
    wanted = min(max(2 * _GIB, cores * _GIB // 2), 16 * _GIB)
    machine = psutil.virtual_memory().total // 2**20
    return f"{max(512, min(wanted, machine // 4))}m"


def _options(cores: int) -> list[str]:
    """Return how Java uses this machine: with few cores, its threads take time from the workers'."""
    if cores > 4:
        return []
    return ["-XX:+UseSerialGC", *_LATE_COMPILER]


def _first_line(error: Py4JError) -> str:
    """Return what went wrong, without the Java stack trace that follows."""
    java = getattr(error, "java_exception", None)
    text = str(java.toString()) if java is not None else str(error)
    line = text.strip().splitlines()[0] if text.strip() else type(error).__name__
    return re.sub(r"^(?:[a-z]\w*\.)+[A-Z]\w*: ", "", line)


atexit.register(close_session)
