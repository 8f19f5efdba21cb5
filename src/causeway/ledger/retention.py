"""Retention of merged files, which an environment variable sets."""

from __future__ import annotations

import os

from causeway_proofs.errors import InvalidInput

from causeway.core.text import parse_duration

__all__ = ["RETENTION", "retention_seconds"]

RETENTION = "CAUSEWAY_RETENTION"
"""Environment variable: how long committers keep merged files for earlier readers, such as ``2d``."""

_DEFAULT_SECONDS = 3600.0


def retention_seconds() -> float:
    """Return the retention of merged files, in seconds.

    Raises:
        InvalidInput: The variable is no duration.
    """
    text = os.environ.get(RETENTION)
    seconds = _DEFAULT_SECONDS if text is None else parse_duration(text)
    if seconds is None:
        raise InvalidInput(f"{RETENTION}: {text!a:.80}: must be a time such as 90s, 30min, 2h or 2d")
    return seconds
