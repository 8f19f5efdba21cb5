"""What is said of a Spark task that failed."""

from __future__ import annotations

from causeway.model.errors import CausewayError


class TaskFailed(CausewayError):
    """A task failed; what it was part of was not committed."""


def python_error(text: str) -> str:
    """Return the last line of a Python traceback inside a Spark error, without the Java one around it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for place, line in enumerate(lines):
        if line.startswith("Traceback"):
            python = [later for later in lines[place:] if not later.startswith("at ")]
            endings = [later for later in python if ": " in later and not later.startswith(("File ", "Traceback"))]
            return endings[-1] if endings else python[-1]
    return lines[0] if lines else "unknown"


__all__ = ["TaskFailed", "python_error"]
