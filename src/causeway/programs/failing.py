"""What is known of a handler that raised: which it was, what it raised, and where in the program."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa

from causeway.model.frame import Frame, repeated_text

MAX_TEXT = 1_000
"""Characters of an error's text that are kept."""

NO_RAISED = Frame(
    {
        "row": np.empty(0, dtype=np.int64),
        **{name: repeated_text("", 0) for name in ("handler", "error", "file")},
        "line": np.empty(0, dtype=np.uint32),
    },
    0,
)
"""One row a handler call that raised: the input's ``row``; ``handler``: its name; ``error``: what it raised; ``file``
and ``line``: where in the program."""


@dataclass(frozen=True)
class Raised:
    """A handler call that raised.

    Attributes:
        row: of the input.
        handler: the name of the method.
        error: what it raised.
        file, line: the innermost place in the file of the program's class; that of the handler where the fault is in
            what it returned.
    """

    row: int
    handler: str
    error: BaseException
    file: str
    line: int


def raised(row: int, handler: Callable[..., Any], error: BaseException) -> Raised:
    """Return what is known of ``handler`` (a method) that raised ``error`` on the input ``row``."""
    code = handler.__code__ if inspect.isfunction(handler) else getattr(handler, "__func__", handler).__code__
    file, line = code.co_filename, code.co_firstlineno
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return Raised(row, handler.__name__, error, file, line)


def raised_rows(found: Sequence[Raised]) -> Frame:
    """Return handler calls that raised as ``NO_RAISED`` has them."""
    if not found:
        return NO_RAISED

    def texts(values: list[str]) -> pa.Array:
        return pa.array(values, pa.string()).dictionary_encode()

    return Frame(
        {
            "row": np.array([each.row for each in found], dtype=np.int64),
            "handler": texts([each.handler for each in found]),
            "error": texts([failure_text(each.error)[:MAX_TEXT] for each in found]),
            "file": texts([each.file for each in found]),
            "line": np.array([each.line for each in found], dtype=np.uint32),
        },
        len(found),
    )


def failure_text(error: BaseException) -> str:
    """Return the reject text of a handler that raised, whatever it raised."""
    try:
        text = f"{type(error).__name__}: {error}"
    except KeyboardInterrupt:
        raise
    except BaseException:  # an error may fail even at telling what it is
        text = type(error).__name__
    return text.encode(errors="backslashreplace").decode()
