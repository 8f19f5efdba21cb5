"""The Spark session of this process, built by ``SparkSession.builder`` in a thread.

Starting Java takes seconds, so a command starts the session first and validates its input meanwhile.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING

import psutil
from causeway_proofs.errors import InvalidInput

from causeway.cluster.class_archive import archive_options
from causeway.cluster.java import SPARK_FOLDER, check_memory, find_java, java_home
from causeway.cluster.masters import (
    check_master,
    default_tasks,
    default_tasks_on,
    is_local,
    is_loopback,
    with_task_retries,
)

if TYPE_CHECKING:
    import pyarrow as pa
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
        # Saves 45 ms a Python stage over TCP.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.worker.reuse": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # From 32 files on, the default, Spark lists files in a separate job, which takes ten times as long (0.6 s for
        # 90 files on a disk).
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
    }
)
"""Spark settings on every master."""

_ON_THIS_MACHINE = MappingProxyType(
    {
        # Listen on the loopback interface only, and avoid resolving the host name.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.python.daemon.module": "causeway.cluster.worker_daemon",
    }
)
"""Spark settings with the driver and all workers on this machine."""

_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Variable in which ``spark-submit`` passes the port of the Java process of this program."""

_LATE_COMPILER = (
    "-XX:Tier4InvocationThreshold=100000",
    "-XX:Tier4MinInvocationThreshold=20000",
    "-XX:Tier4CompileThreshold=300000",
    "-XX:Tier4BackEdgeThreshold=1000000",
)
"""Thresholds that delay Java's optimizing compiler twentyfold.

Starting a session and running ticks hardly repeats code, and its compilation took a third of the processor time until
the first job. A query over millions of rows passes the thresholds at once.
"""

_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

_lock = threading.Lock()


class _Start:
    """A session opened by a thread."""

    def __init__(self, master: str, memory: str | None, extra: Mapping[str, str]) -> None:
        cores = check_master(master)
        heap = check_memory(memory) if memory is not None else _default_memory(cores)
        self.arguments = (master, memory, dict(extra))
        self.ending = False
        self._options, self._environment = _options(master, cores, heap, extra), _environment(master)
        # In this thread: circular imports fail if two threads import them at once.
        importlib.import_module("pyspark.sql")
        self.session: Future[SparkSession] = Future()
        self._opening = threading.Thread(target=self._open, name="causeway-spark", daemon=True)
        self._preparing: threading.Thread | None = None
        self._opening.start()

    def _open(self) -> None:
        try:
            self.session.set_result(_build(self._options, self._environment))
        except BaseException as error:
            self.session.set_exception(error)

    def prepare(self, workers: int, modules: Sequence[str]) -> None:
        """Let Python workers import modules once the session is open.

        Only the first call has an effect.
        """
        if self._preparing is None:
            work = functools.partial(self._prepare, workers, tuple(modules))
            self._preparing = threading.Thread(target=work, name="causeway-workers", daemon=True)
            self._preparing.start()

    def _prepare(self, workers: int, modules: Sequence[str]) -> None:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            session = self.session.result()
        except BaseException:
            return  # ``open_session`` raises the error
        try:
            rows = session.range(0, workers, 1, workers)
            rows.mapInArrow(functools.partial(_import, modules), "id long").collect()
        except (Py4JError, PySparkException):
            return  # the first task fails in the same way and reports it
        except Exception:
            if not self.ending:  # PySpark fails in many ways once Java ends
                raise

    def join(self) -> None:
        """Wait for the workers in preparation."""
        if self._preparing is not None:
            self._preparing.join()

    def kill(self) -> None:
        """Kill a Java process that is still starting."""
        self.ending = True
        while self._opening.is_alive():
            for process in psutil.Process().children():
                with contextlib.suppress(psutil.Error):
                    if "pyspark-shell" in process.cmdline():
                        for each in [process, *process.children(recursive=True)]:
                            each.kill()
            self._opening.join(0.05)
        self.join()


_start: _Start | None = None


def open_session(
    master: str = "local[*]", *, memory: str | None = None, extra: Mapping[str, str] = MappingProxyType({})
) -> SparkSession:
    """Open the Spark session of this process.

    An active session is used as it is, and so is the Java process of ``spark-submit``; both ignore the arguments.

    Args:
        master: ``local[*]``, ``local[N]``, ``spark://host:port``, or another master that Spark knows.
        memory: Maximum heap of this process's Java, such as ``2g``; None: a default for the machine. Messages are in
            Python workers, not in the heap.
        extra: Further Spark settings; they override the defaults.

    Raises:
        InvalidInput: An argument is wrong, the master does not answer, or Java does not start.
    """
    with _lock:
        if _SUBMITTED in os.environ:
            return _build({}, {})
        session = None if _is_pending() else active_session()
        if session is None:
            start = _start_or_reuse(master, memory, extra)
            try:
                session = start.session.result()
            except BaseException:
                _end()
                raise
    in_main = threading.current_thread() is threading.main_thread()
    if in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, functools.partial(_cancel, session))
    return session


def start_session(
    master: str = "local[*]", *, memory: str | None = None, extra: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Start to open the session for a later ``open_session``, and return at once.

    With an active session, do nothing. The end of this process ends the session.

    Args:
        master: As in ``open_session``.
        memory: As in ``open_session``.
        extra: As in ``open_session``.

    Raises:
        InvalidInput: An argument is wrong, or the master does not answer.
    """
    with _lock:
        if _SUBMITTED not in os.environ and (_is_pending() or active_session() is None):
            _start_or_reuse(master, memory, extra)


def requested_tasks(master: str, extra: Mapping[str, str]) -> int:
    """Return the default number of tasks a tick, without waiting for the session if possible.

    Args:
        master: As in ``open_session``.
        extra: As in ``open_session``.

    Raises:
        InvalidInput: An argument is wrong.
    """
    if _is_pending() and "SPARK_CONF_DIR" not in os.environ:
        return default_tasks_on(master, extra)
    return default_tasks(open_session(master, extra=extra))


def prepare_workers(count: int, modules: Sequence[str]) -> None:
    """Let local Python workers import modules for their first tasks while the session starts.

    They are the workers of ``mapInArrow``. With a remote session, or one of another owner, do nothing.

    Args:
        count: Number of workers.
        modules: Names of modules; ``module:function`` also calls a function without arguments.
    """
    if _start is not None and is_local(_start.arguments[0]):
        _start.prepare(min(count, check_master(_start.arguments[0])), modules)


def wait_for_workers() -> None:
    """Wait for the workers in preparation, since a task might get an unprepared one until then."""
    if _start is not None:
        _start.join()


def active_session() -> SparkSession | None:
    """Return the active or default Spark session, or None, without importing Spark."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def close_session() -> None:
    """Close the session of ``open_session`` or ``start_session``. Java ends with this process."""
    with _lock:
        _close()


@contextlib.contextmanager
def spark_session(
    master: str = "local[*]", *, memory: str | None = None, extra: Mapping[str, str] = MappingProxyType({})
) -> Iterator[SparkSession]:
    """Open a session for the body of a ``with`` statement.

    Args:
        master: As in ``open_session``.
        memory: As in ``open_session``.
        extra: As in ``open_session``.

    Raises:
        InvalidInput: As in ``open_session``.
    """
    session = open_session(master, memory=memory, extra=extra)
    try:
        yield session
    finally:
        close_session()


def _is_pending() -> bool:
    return _start is not None and not _start.session.done()


def _start_or_reuse(master: str, memory: str | None, extra: Mapping[str, str]) -> _Start:
    """Return the session being opened with these arguments, or start to open it.

    Raises:
        InvalidInput: An argument is wrong.
    """
    global _start
    if "SPARK_REMOTE" in os.environ:
        raise InvalidInput(
            "SPARK_REMOTE is set, but Causeway starts Spark itself: unset it, or open a session through Spark Connect, "
            "and call the functions of causeway.spark"
        )
    if _start is None or _start.arguments != (master, memory, dict(extra)) or not _is_pending():
        starting = _start
        check_master(master)
        if starting is not None:  # it has other arguments, or was stopped by its user
            with contextlib.suppress(Exception):
                starting.session.result()
            _close()
        _start = _Start(master, memory, extra)
    return _start


def _close() -> None:
    global _start
    ended, _start = _start, None
    if ended is None:
        return
    ended.ending = True
    with contextlib.suppress(Exception):
        ended.session.result().stop()
    ended.join()


def _end() -> None:
    """Close the session, or kill its Java process if it is still starting."""
    if _start is not None and not _start.session.done():
        _start.kill()
    _close()


def _options(master: str, cores: int, heap: str, extra: Mapping[str, str]) -> dict[str, str]:
    here = is_local(master) or is_loopback(master)
    java = [*garbage_collection(cores), "-Xlog:disable", "-Dfile.encoding=UTF-8", *archive_options(find_java(), cores)]
    # An executor on this machine may run another Java, which does not use the archive.
    executors = {"spark.executor.defaultJavaOptions": " ".join(["-XX:+IgnoreUnrecognizedVMOptions", *java])}
    return {
        **_SETTINGS,
        **(_ON_THIS_MACHINE if here else {}),
        **(executors if is_loopback(master) else {}),
        "spark.master": with_task_retries(master),
        "spark.driver.memory": heap,
        "spark.driver.defaultJavaOptions": " ".join([*java, *_log_options()]),
        **({"spark.sql.shuffle.partitions": str(2 * cores)} if is_local(master) else {}),
        **extra,
    }


def _environment(master: str) -> dict[str, str]:
    """Return the environment for PySpark's start of Java."""
    here = is_local(master) or is_loopback(master)
    # PYSPARK_PYTHON is the Python of workers; on this machine it must be the current one.
    if here or "PYSPARK_PYTHON" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    # The user's SPARK_HOME may be of another release than the Python package.
    found = {"JAVA_HOME": str(java_home(find_java())), "SPARK_HOME": str(SPARK_FOLDER)}
    # Spark's launcher is a separate Java process that only prints a command line.
    found["SPARK_LAUNCHER_OPTS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"
    if os.environ.get("LC_ALL") in ("C", "POSIX"):
        found["LC_ALL"] = "C.UTF-8"  # by which Java reads and writes names of files
    return {**found, **({"SPARK_LOCAL_IP": "127.0.0.1"} if here else {})}


def _build(options: Mapping[str, str], environment: Mapping[str, str]) -> SparkSession:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        session = SparkSession.builder.config(map=dict(options)).getOrCreate()
    except (PySparkException, Py4JError) as error:
        if "JAVA_GATEWAY_EXITED" in str(error):
            raise InvalidInput("Spark's Java did not start: its own message is above") from None
        raise InvalidInput(f"Spark does not start on {options.get('spark.master')}: {first_line(error)}") from None
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    if options and "spark.sql.shuffle.partitions" not in options:
        # The cluster reports its cores only once the session is open.
        partitions = max(2, 2 * session.sparkContext.defaultParallelism)
        session.conf.set("spark.sql.shuffle.partitions", str(partitions))
    return session


def _cancel(session: SparkSession, number: int, frame: FrameType | None) -> None:
    """Cancel Spark's jobs on Ctrl-C, as PySpark does for sessions opened in the main thread."""
    try:
        with contextlib.suppress(Exception):
            session.sparkContext.cancelAllJobs()
    finally:
        raise KeyboardInterrupt


def _default_memory(cores: int) -> str:
    """Return half a GiB a core, from 2 to 16 GiB, but at most a quarter of the machine's memory."""
    wanted = min(max(2 * _GIB, cores * _GIB // 2), 16 * _GIB)
    machine = psutil.virtual_memory().total // 2**20
    return f"{max(512, min(wanted, machine // 4))}m"


def garbage_collection(cores: int) -> list[str]:
    """Return Java options for few cores, where its threads would take time from the workers."""
    return [] if cores > 4 else ["-XX:+UseSerialGC", *_LATE_COMPILER]


def _log_options() -> list[str]:
    options = [f'"-Dlog4j2.configurationFile={_LOG_SETTINGS}"']
    level = os.environ.get("CAUSEWAY_SPARK_LOG")
    if level:
        options += [f"-Dcauseway.log.root={level}", f"-Dcauseway.log.tasks={level}", "-Dcauseway.log.trace=full"]
    return options


def first_line(error: Exception) -> str:
    """Return the message of an error and of its first cause, without Java's stack trace.

    Args:
        error: The error.
    """
    java = getattr(error, "java_exception", None)
    if java is None:
        return _message(str(error)) or type(error).__name__
    found = _message(str(java.toString()))
    while java.getCause() is not None:
        java = java.getCause()
    cause = _message(str(java.toString()))
    return found if cause in found else f"{found}: {cause}"


def _message(text: str) -> str:
    """Return the first line of a text, without the name of Java's class before it."""
    line = text.strip().partition("\n")[0]
    return re.sub(r"^(?:[a-z]\w*\.)+[A-Z]\w*: ", "", line)


def _import(modules: Sequence[str], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for name in modules:
        module, _, function = name.partition(":")
        with contextlib.suppress(ImportError):  # the first task that needs the module reports the error
            imported = importlib.import_module(module)
            if function:
                getattr(imported, function)()
    yield from batches


def _run_archive_job(master: str, option: str) -> None:
    """Run a job whose classes Java writes to an archive at exit."""
    os.nice(19)
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # run only when the machine is idle
        # Where the system shares processors among groups of processes first, this one would have its full share.
        with contextlib.suppress(OSError):
            Path("/proc/self/autogroup").write_text("19")
    extra = {"spark.driver.extraJavaOptions": f'"{option}"'}
    with tempfile.TemporaryDirectory() as folder, spark_session(master, extra=extra) as session:
        rows = session.range(0, 100, 1, 2).mapInArrow(functools.partial(_import, ()), "id long")
        rows.write.parquet(f"{folder}/rows")
        session.read.parquet(f"{folder}/rows").groupBy("id").count().orderBy("id").collect()


atexit.register(_end)

if __name__ == "__main__":
    _run_archive_job(*sys.argv[1:])
