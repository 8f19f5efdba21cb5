"""A progress line of the jobs of a session, in notebooks and terminals: finished tasks of each job."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol, cast

from causeway_proofs.errors import InvalidInput

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.shell.progress import ProgressHandler, StageInfo

__all__ = ["PROGRESS", "show_progress", "watch_tasks"]

PROGRESS = "CAUSEWAY_PROGRESS"
"""Environment variable: ``off`` shows no progress line, ``auto`` (the default) in notebooks and terminals."""

_SECONDS = 0.5
"""Interval between two reads of the task counts of a classic session, in seconds."""

_GROUP = "spark.jobGroup.id"

_BAR = 20
"""Width of a bar, in characters."""


class ProgressDisplay(Protocol):
    """One line of text that is replaced."""

    def show(self, text: str) -> None:
        """Replace the line."""
        ...

    def close(self, text: str) -> None:
        """Replace the line for the last time."""
        ...


class TerminalLine:
    """The line of a terminal below the cursor; it is erased at the end."""

    def show(self, text: str) -> None:
        """Replace the line."""
        sys.stderr.write(f"\r\x1b[K{text[: shutil.get_terminal_size().columns - 1]}")
        sys.stderr.flush()

    def close(self, text: str) -> None:
        """Erase the line."""
        self.show("")
        sys.stderr.write("\r")


class NotebookLine:
    """An output of a notebook's cell. It keeps its last text."""

    def __init__(self, display: Any) -> None:
        self._display = display
        self._handle: Any = None

    def show(self, text: str) -> None:
        """Replace the text of the output."""
        content = {"text/plain": text}
        if self._handle is None:
            self._handle = self._display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)

    close = show


_shown: ContextVar[ProgressDisplay | None] = ContextVar("shown", default=None)


@contextlib.contextmanager
def show_progress(title: str) -> Iterator[None]:
    """Show a progress line of the jobs of the body, in a notebook or a terminal, unless ``CAUSEWAY_PROGRESS`` is off.

    Within another body, do nothing.

    Args:
        title: What the body does, for the last text.

    Raises:
        InvalidInput: ``CAUSEWAY_PROGRESS`` has another value.
    """
    display = _find_display() if _shown.get() is None else None
    if display is None:
        yield
        return
    token, end = _shown.set(display), "failed"
    try:
        yield
        end = "done"
    finally:
        _shown.reset(token)
        display.close(f"causeway: {title}: {end}")


def _find_display() -> ProgressDisplay | None:
    setting = os.environ.get(PROGRESS, "auto")
    if setting not in ("auto", "off"):
        raise InvalidInput(f"{PROGRESS}: {setting}: must be auto or off")
    if setting == "off":
        return None
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if hasattr(shell, "kernel"):  # Jupyter, Databricks: not IPython in a terminal
        return NotebookLine(sys.modules["IPython"].display.display)
    return TerminalLine() if sys.stderr.isatty() else None


@contextlib.contextmanager
def watch_tasks(session: SparkSession, context: SparkContext | None, text: str) -> Iterator[None]:
    """Show the finished tasks of the body's jobs on the line of ``show_progress``, if there is one.

    Args:
        session: The session.
        context: Its context; None through Spark Connect: its server reports tasks to the client.
        text: Description of the jobs.
    """
    display = _shown.get()
    if display is None or (isinstance(display, TerminalLine) and _spark_shows(context)):
        yield
        return
    display.show(_progress_text(text, 0, 0))
    with _watch_server(session, display, text) if context is None else _watch_context(context, display, text):
        yield


def _spark_shows(context: SparkContext | None) -> bool:
    """Return True if Spark draws a line of its own on this terminal."""
    return context is not None and context.getConf().get("spark.ui.showConsoleProgress") == "true"


def _progress_text(text: str, done: int, total: int) -> str:
    filled = _BAR * done // total if total else 0
    counts = f" {done:,} of {total:,} tasks" if total else ""
    return f"causeway: {'█' * filled}{'░' * (_BAR - filled)}{counts}: {text}"


@contextlib.contextmanager
def _watch_server(session: SparkSession, display: ProgressDisplay, text: str) -> Iterator[None]:
    def show(stages: Iterable[StageInfo] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        known = [*(stages or ())]
        display.show(
            _progress_text(text, sum(each.num_completed_tasks for each in known), sum(each.num_tasks for each in known))
        )

    handler = cast("ProgressHandler", show)
    session.registerProgressHandler(handler)
    try:
        yield
    finally:
        session.removeProgressHandler(handler)


@contextlib.contextmanager
def _watch_context(context: SparkContext, display: ProgressDisplay, text: str) -> Iterator[None]:
    """Show the jobs of this thread's group; without a group, the body has its own."""
    own, tracker, ended = context.getLocalProperty(_GROUP), context.statusTracker(), threading.Event()
    group = own or f"causeway-{uuid.uuid4().hex}"
    before = set(tracker.getJobIdsForGroup(group))

    def watch() -> None:
        last = False
        while not last:
            last = ended.wait(_SECONDS)
            jobs = [tracker.getJobInfo(job) for job in sorted({*tracker.getJobIdsForGroup(group)} - before)]
            found = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
            stages = [stage for stage in found if stage is not None]
            done, total = sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
            display.show(_progress_text(text, done, total))

    context.setLocalProperty(_GROUP, group)
    watching = threading.Thread(target=watch, name="causeway-progress", daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()
        context.setLocalProperty(_GROUP, own)  # type: ignore[arg-type]
