"""A Spark session on its way: Java starts, and a thread opens the session, while this process does what needs neither.

Spark's start is mostly Java's own, and so are the seconds that a first command waits for. The Python workers import
what their first task needs while the driver still plans it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from causeway.pipeline.gateway import Gateway

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


class Opening:
    """Opens a session in a thread of its own.

    Args:
        gateway: the Java process, which is starting.
        start: makes the session with that process. What it raises is raised by ``session``.
    """

    def __init__(self, gateway: Gateway, start: Callable[[Gateway], SparkSession]) -> None:
        # Here, while Java starts, and not in the thread: two threads must not import what imports itself in circles.
        for name in ("pyspark.sql", "pyspark.java_gateway"):
            importlib.import_module(name)
        self._gateway, self._start = gateway, start
        self._session: Future[SparkSession] = Future()
        self._preparing: threading.Thread | None = None
        self._ends = False
        self._opening = threading.Thread(target=self._open, name="causeway-spark", daemon=True)
        self._opening.start()

    def _open(self) -> None:
        try:
            self._session.set_result(self._start(self._gateway))
        except BaseException as error:
            self._session.set_exception(error)

    @property
    def ended(self) -> bool:
        """Return whether the session is open, or could not be opened."""
        return self._session.done()

    def session(self) -> SparkSession:
        """Wait for the session and return it. Raises with what it could not be opened."""
        return self._session.result()

    def prepare(self, workers: int, modules: Sequence[str]) -> None:
        """Let so many Python workers import modules as soon as there is a session; return at once.

        ``module:function`` is a function without arguments that is called, too. The workers are those that
        ``mapInArrow`` uses. Once a session is enough.
        """
        if self._preparing is None:
            work = functools.partial(self._prepare, workers, tuple(modules))
            self._preparing = threading.Thread(target=work, name="causeway-workers", daemon=True)
            self._preparing.start()

    def _prepare(self, workers: int, modules: Sequence[str]) -> None:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            session = self._session.result()
        except BaseException:
            return  # ``session`` raises it
        try:
            rows = session.range(0, workers, 1, workers)
            rows.mapInArrow(functools.partial(_import, modules), "id long").collect()
        except (Py4JError, PySparkException):
            return  # what ends a worker here ends it again in its first task, where it is said
        except Exception:
            if not self._ends:  # PySpark fails in many ways without its Java
                raise

    def prepared(self) -> None:
        """Wait until the workers that are being prepared are."""
        if self._preparing is not None:
            self._preparing.join()

    def ends(self) -> None:
        """Take notice that the session is going to end, whatever the workers do."""
        self._ends = True

    def abandon(self) -> None:
        """End a Java process that is still starting, or whose session is being made."""
        self.ends()
        self._gateway.abandon()
        self._opening.join()
        self.prepared()


def _import(modules: Sequence[str], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for name in modules:
        module, _, function = name.partition(":")
        with contextlib.suppress(ImportError):  # the first task that needs it says so
            imported = importlib.import_module(module)
            if function:
                getattr(imported, function)()
    yield from batches
