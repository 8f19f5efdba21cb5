"""Errors of tasks that Spark runs: what went wrong in Python or in a file, without the Java around it."""

from __future__ import annotations

import contextlib
import pickle
import re
from collections.abc import Callable, Iterator
from typing import Any

from causeway.model.errors import CausewayError, InvalidInput, bad_place
from causeway.pipeline.layout import LakeError

_AROUND = re.compile(r"^(?:Caused by: |: )?(?:[a-z]\w*\.)+\w+: |\s*SQLSTATE: \w+$")
"""The class of a Java exception before its text, and the code of it behind."""

_UNREADABLE = "[FAILED_READ_FILE"
"""How Spark says that it cannot read a file."""


class TaskFailed(CausewayError):
    """A task failed; what it was part of was not committed."""


@contextlib.contextmanager
def spark_tasks() -> Iterator[None]:
    """Let an error of Spark in the body of a ``with`` statement be a ``TaskFailed``, or a ``LakeError`` where a file
    is not what its ending says."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        text = python_error(str(error))
        if text.startswith(_UNREADABLE):
            raise LakeError(f"lake: {text.removeprefix(_UNREADABLE).partition(']')[2].strip()}") from None
        raise TaskFailed(f"a task failed: {text}") from None


@contextlib.contextmanager
def told_places() -> Iterator[None]:
    """In a task, let an error of a place that a user can mend, such as a full disk, be an ``InvalidInput``: it comes
    back from the task as it is."""
    try:
        yield
    except OSError as error:
        place = bad_place(error)
        if place is None:
            raise
        raise InvalidInput(place) from None


def run_pickled(call: Callable[[], Any]) -> bytes:
    """Return what a call in a task returns, or the ``CausewayError`` that it raises, pickled."""
    try:
        with told_places():
            return pickle.dumps(call())
    except CausewayError as error:
        return pickle.dumps(error)


def result_of(content: bytes) -> Any:
    """Return what ``run_pickled`` ran. Raises ``InvalidInput`` as it was, and ``TaskFailed`` for any other error."""
    found = pickle.loads(content)
    if isinstance(found, InvalidInput):
        raise found
    if isinstance(found, CausewayError):
        raise TaskFailed(f"{found.name}: {found}")
    return found


def python_error(text: str) -> str:
    """Return the last line of a Python traceback inside a Spark error, or else its first line and its last cause."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for place, line in enumerate(lines):
        if line.startswith("Traceback"):
            python = [later for later in lines[place:] if not later.startswith("at ")]
            endings = [later for later in python if ": " in later and not later.startswith(("File ", "Traceback"))]
            return endings[-1] if endings else python[-1]
    said = [line for line in lines if line.startswith((": ", "Caused by: "))] or lines[:1]
    texts = dict.fromkeys(_AROUND.sub("", line) for line in (said[0], said[-1])) if said else ["unknown"]
    return ": ".join(texts)


__all__ = ["TaskFailed", "python_error", "result_of", "run_pickled", "spark_tasks", "told_places"]
