"""Results of tasks, and their errors.

Errors of Spark are reduced to the Python or file error behind them, without Java's stack.
"""

from __future__ import annotations

import contextlib
import pickle
import re
from collections.abc import Callable, Iterator
from typing import Any

from causeway_proofs.errors import CausewayError, InvalidInput, describe_os_error

from causeway.core.interrupts import was_interrupted
from causeway.storage.layout import LakeError

__all__ = [
    "TaskFailed",
    "convert_spark_errors",
    "convert_storage_errors",
    "extract_python_error",
    "result_of",
    "run_pickled",
]

_AROUND = re.compile(r"^(?:Caused by: |: )?(?:[a-z]\w*\.)+\w+: ")
"""Class of a Java exception before its text."""

_OWN = re.compile(r"^(causeway\w*(?:\.\w+)+): (?=.)")
"""Class of an error of Causeway before its text."""

_CODE = re.compile(r"\s*SQLSTATE: \w+;?")
_TRACE = "Traceback (most recent call last)"

_UNREADABLE = "[FAILED_READ_FILE"
"""Prefix of Spark's error for an unreadable file."""


_LOST = "ExecutorLostFailure"
_CLOSED = "[INVALID_HANDLE.SESSION_"
"""Within errors of Spark Connect for a session that its server closed, or does not know after a restart."""

SESSION_STOPPED = "Spark session: was stopped; open another one, and make the DataFrames again in it"


class TaskFailed(CausewayError):
    """A task failed; its commit was not written."""


@contextlib.contextmanager
def convert_spark_errors(table: str | None = None) -> Iterator[None]:
    """Convert Spark errors in the body of a ``with`` statement to ``TaskFailed``.

    An unreadable file becomes a ``LakeError``, and an interrupt, after which Spark cancels the job, stays one. If the
    body reads a DataFrame of the user, errors of its query, such as a failed function of the user, become
    ``InvalidInput``, or keep their type if Causeway's data source raised them; those of Causeway's own function and
    lost executors do not. So does a session that was stopped.

    Args:
        table: Name of the user's table in errors; None: the body reads none.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        if was_interrupted(error):
            raise KeyboardInterrupt from None
        kind, text = _own_error(extract_python_error(str(error)))
        if _CLOSED in text:
            raise InvalidInput(SESSION_STOPPED) from None
        if table is not None and not any(name in str(error) for name in (run_pickled.__name__, _LOST)):
            raise kind(f"{table}: cannot be read: {text}") from None
        if text.startswith(_UNREADABLE):
            raise LakeError(f"lake: {text.removeprefix(_UNREADABLE).partition(']')[2].strip()}") from None
        raise TaskFailed(f"a task failed: {text}") from None


def _own_error(text: str) -> tuple[type[InvalidInput], str]:
    """Return the type of an error of Causeway, and its text without the class; ``InvalidInput`` for any other."""
    found = _OWN.match(text)
    if found is None:
        return InvalidInput, text
    kinds: list[type[InvalidInput]] = [InvalidInput]
    for kind in kinds:
        kinds += kind.__subclasses__()
    # Those with more arguments than a text cannot be made anew.
    known = (each for each in kinds if each.__init__ is InvalidInput.__init__)
    named = (each for each in known if f"{each.__module__}.{each.__name__}" == found[1])
    return next(named, InvalidInput), text[found.end() :]


@contextlib.contextmanager
def convert_storage_errors() -> Iterator[None]:
    """Convert OS errors that a user can fix, such as a full disk, to ``InvalidInput``.

    Tasks return it unchanged.
    """
    try:
        yield
    except OSError as error:
        place = describe_os_error(error)
        if place is None:
            raise
        raise InvalidInput(place) from None


def run_pickled(call: Callable[[], Any]) -> bytes:
    """Run a call in a task and pickle the outcome.

    Args:
        call: The call.

    Returns:
        Its pickled result, or its ``CausewayError``.
    """
    try:
        with convert_storage_errors():
            return pickle.dumps(call())
    except CausewayError as error:
        return pickle.dumps(error)


def result_of(content: bytes) -> Any:
    """Return the outcome of ``run_pickled``.

    Args:
        content: The pickled outcome.

    Raises:
        InvalidInput: The call raised it.
        TaskFailed: The call raised another ``CausewayError``.
    """
    found = pickle.loads(content)
    if isinstance(found, InvalidInput):
        raise found
    if isinstance(found, CausewayError):
        raise TaskFailed(f"{found.name}: {found}")
    return found


def extract_python_error(text: str) -> str:
    """Return the last line of a Python traceback in a Spark error, or else its outer causes.

    Args:
        text: Text of the Spark error.
    """
    lines = [line.strip() for line in _CODE.sub("", text).splitlines() if line.strip()]
    for position, line in enumerate(lines):
        if _TRACE in line:
            python = [later for later in lines[position:] if not later.startswith("at ")]
            endings = [
                later for later in python if ": " in later and not later.startswith("File ") and _TRACE not in later
            ]
            return endings[-1] if endings else python[-1]
    # A text of Spark Connect begins with the error; lines of a query's plan may begin like a cause.
    begins = "Caused by: " if lines and lines[0].startswith("[") else (": ", "Caused by: ")
    causes = [line for line in lines if line.startswith(begins)]
    causes = [lines[0], *causes] if isinstance(begins, str) else causes or lines[:1]
    texts = (
        dict.fromkeys(_AROUND.sub("", line).rstrip(": ") for line in (causes[0], causes[-1])) if causes else ["unknown"]
    )
    return ": ".join(texts)
