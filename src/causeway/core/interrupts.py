"""Interrupts of the user (Ctrl-C) that a package wraps in an error of its own."""

from __future__ import annotations

_MAX_CAUSES = 64


def was_interrupted(error: BaseException | None) -> bool:
    """Return True if an interrupt caused an error: packages wrap those during imports, Spark those of a job.

    Args:
        error: The error, or None.
    """
    seen = 0
    while error is not None and seen < _MAX_CAUSES:
        if isinstance(error, KeyboardInterrupt):
            return True
        error, seen = error.__cause__ or error.__context__, seen + 1
    return False


__all__ = ["was_interrupted"]
