"""The Spark session of this process: built by ``SparkSession.builder`` in a thread, while Python imports and checks."""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING

import psutil
from causeway_proofs.errors import InvalidInput

from causeway.spark.class_archive import archive_options
from causeway.spark.java import SPARK_FOLDER, check_memory, find_java, java_home
from causeway.spark.masters import (
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
        # 45 ms less a Python stage than over TCP.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.worker.reuse": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # From 32 files on, the default, Spark lists them in a job of its own, which takes ten times as long (0.6 s for
        # 90 files on a disk).
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
    }
)

_ON_THIS_MACHINE = MappingProxyType(
    {
        # Nothing listens to the outside, and no name of this machine has to resolve.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.python.daemon.module": "causeway.spark.worker_daemon",
    }
)

_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""The variable by which ``spark-submit`` names the Java process that it started for this program."""

_LATE_COMPILER = (
    "-XX:Tier4InvocationThreshold=100000",
    "-XX:Tier4MinInvocationThreshold=20000",
    "-XX:Tier4CompileThreshold=300000",
    "-XX:Tier4BackEdgeThreshold=1000000",
)
"""Java's optimising compiler begins twenty times later: what starts a session and runs ticks hardly repeats, and its
compilation took a third of the processor time until the first job. A query over millions of rows passes it at once."""

_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

_lock = threading.Lock()


class _Start:
    """A session that a thread opens, or has opened."""

    def __init__(self, master: str, memory: str | None, extra: Mapping[str, str]) -> None:
        cores = check_master(master)
        heap = check_memory(memory) if memory is not None else _default_memory(cores)
        self.arguments = (master, memory, dict(extra))
        self.ending = False
        self._options, self._environment = _options(master, cores, heap, extra), _environment(master)
        # Here and not in the thread: two threads must not import what imports itself in circles.
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
        """Let so many Python workers import modules as soon as there is a session; once a session is enough."""
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
            return  # ``open_session`` raises it
        try:
            rows = session.range(0, workers, 1, workers)
            rows.mapInArrow(functools.partial(_import, modules), "id long").collect()
        except (Py4JError, PySparkException):
            return  # what ends a worker here ends it again in its first task, where it is reported
        except Exception:
            if not self.ending:  # PySpark fails in many ways without its Java
                raise

    def join(self) -> None:
        """Wait until the workers that are being prepared are."""
        if self._preparing is not None:
            self._preparing.join()

    def kill(self) -> None:
        """End a Java process that is still starting."""
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

    An active session is used as it is, whoever opened it, and so is the Java process of ``spark-submit``; ``master``,
    ``memory`` and ``extra`` are those it was started with then.

    Args:
        master: ``local[*]``, ``local[N]``, ``spark://host:port``, or another master that Spark knows.
        memory: the largest heap of this process's Java, such as ``2g``; by default what suits the machine. Messages do
            not lie in it, they are in Python workers.
        extra: further Spark settings, which also replace those made here.

    Raises:
        InvalidInput: an argument is wrong, the master does not answer, or Java does not start.
    """
    with _lock:
        if _SUBMITTED in os.environ:
            return _build({}, {})
        session = None if _is_pending() else active_session()
        if session is None:
            start = _begin(master, memory, extra)
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
    """Start to open the session that ``open_session`` will be asked for; return at once.

    Where a session is active, do nothing. The end of this process ends what was begun.

    Raises:
        InvalidInput: an argument is wrong, or the master does not answer.
    """
    with _lock:
        if _SUBMITTED not in os.environ and (_is_pending() or active_session() is None):
            _begin(master, memory, extra)


def requested_tasks(master: str, extra: Mapping[str, str]) -> int:
    """Return how many tasks a tick has by default in the session with these arguments, if possible without waiting for
    it. Raises ``InvalidInput``."""
    if _is_pending() and "SPARK_CONF_DIR" not in os.environ:
        return default_tasks_on(master, extra)
    return default_tasks(open_session(master, extra=extra))


def prepare_workers(count: int, modules: Sequence[str]) -> None:
    """Let Python workers on this machine import what their first tasks need, while the session is still being made.

    ``module:function`` is a function without arguments that is called, too. The workers are those that ``mapInArrow``
    uses. Where the session is not on this machine, or not ours, do nothing.
    """
    if _start is not None and is_local(_start.arguments[0]):
        _start.prepare(min(count, check_master(_start.arguments[0])), modules)


def wait_for_workers() -> None:
    """Wait until the workers that are being prepared are: until then a task would get one that is not."""
    if _start is not None:
        _start.join()


def active_session() -> SparkSession | None:
    """Return the active or default Spark session of this process, None if there is none. Imports nothing of Spark."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def close_session() -> None:
    """Close the session that ``open_session`` or ``begin_session`` opened. Its Java ends with this process."""
    with _lock:
        _close()


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


def _is_pending() -> bool:
    return _start is not None and not _start.session.done()


def _begin(master: str, memory: str | None, extra: Mapping[str, str]) -> _Start:
    """Return the session that is on its way with these arguments, or begin to open it. Raises ``InvalidInput``."""
    global _start
    if _start is None or _start.arguments != (master, memory, dict(extra)) or not _is_pending():
        starting = _start
        check_master(master)
        if starting is not None:  # it was begun for another command's arguments, or stopped behind our back
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
    """Close the session, or end its Java process if that is still starting."""
    if _start is not None and not _start.session.done():
        _start.kill()
    _close()


def _options(master: str, cores: int, heap: str, extra: Mapping[str, str]) -> dict[str, str]:
    here = is_local(master) or is_loopback(master)
    java = [*garbage_collection(cores), *_log_options(), "-Xlog:disable", "-Dfile.encoding=UTF-8"]
    java += archive_options(find_java(), cores)
    return {
        **_SETTINGS,
        **(_ON_THIS_MACHINE if here else {}),
        "spark.master": with_task_retries(master),
        "spark.driver.memory": heap,
        "spark.driver.defaultJavaOptions": " ".join(java),
        **({"spark.sql.shuffle.partitions": str(2 * cores)} if is_local(master) else {}),
        **extra,
    }


def _environment(master: str) -> dict[str, str]:
    """Return the environment in which PySpark starts Java."""
    here = is_local(master) or is_loopback(master)
    # Workers start the Python that PYSPARK_PYTHON names, which on this machine can only be this one.
    if here or "PYSPARK_PYTHON" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    # A SPARK_HOME of the user's may name another release than the Python side.
    found = {"JAVA_HOME": str(java_home(find_java())), "SPARK_HOME": str(SPARK_FOLDER)}
    # Spark's launcher is a Java process of its own, which only makes a command line.
    found["SPARK_LAUNCHER_OPTS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"
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
        raise InvalidInput(f"Spark does not start on {options.get('spark.master')}: {_first_line(error)}") from None
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    if options and "spark.sql.shuffle.partitions" not in options:
        # Only the cluster knows its cores, and only now.
        partitions = max(2, 2 * session.sparkContext.defaultParallelism)
        session.conf.set("spark.sql.shuffle.partitions", str(partitions))
    return session


def _cancel(session: SparkSession, number: int, frame: FrameType | None) -> None:
    """Cancel Spark's jobs on Ctrl-C, as PySpark's own handler does, which it installs in the main thread only."""
    try:
        with contextlib.suppress(Exception):
            session.sparkContext.cancelAllJobs()
    finally:
        raise KeyboardInterrupt


def _default_memory(cores: int) -> str:
    """Return half a GiB a core, at least 2 and at most 16, but never more than a quarter of the machine."""
    wanted = min(max(2 * _GIB, cores * _GIB // 2), 16 * _GIB)
    machine = psutil.virtual_memory().total // 2**20
    return f"{max(512, min(wanted, machine // 4))}m"


def garbage_collection(cores: int) -> list[str]:
    """Return Java's options for few cores, of which its threads would take time from the workers."""
    return [] if cores > 4 else ["-XX:+UseSerialGC", *_LATE_COMPILER]


def _log_options() -> list[str]:
    options = [f'"-Dlog4j2.configurationFile={_LOG_SETTINGS}"']
    level = os.environ.get("CAUSEWAY_SPARK_LOG")
    if level:
        options += [f"-Dcauseway.log.root={level}", f"-Dcauseway.log.tasks={level}", "-Dcauseway.log.trace=full"]
    return options


def _first_line(error: Exception) -> str:
    """Return the message without the Java stack trace that follows."""
    java = getattr(error, "java_exception", None)
    text = str(java.toString()) if java is not None else str(error)
    line = text.strip().splitlines()[0] if text.strip() else type(error).__name__
    return re.sub(r"^(?:[a-z]\w*\.)+[A-Z]\w*: ", "", line)


def _import(modules: Sequence[str], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for name in modules:
        module, _, function = name.partition(":")
        with contextlib.suppress(ImportError):  # the first task that needs it reports it
            imported = importlib.import_module(module)
            if function:
                getattr(imported, function)()
    yield from batches


atexit.register(_end)
