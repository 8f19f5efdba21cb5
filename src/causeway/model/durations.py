"""Durations as a user writes them."""

from __future__ import annotations

import re

_DURATION = re.compile(r"(\d{1,15}(?:\.\d{1,9})?) ?(ms|s|min|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def seconds_of(text: str) -> float | None:
    """Read a duration such as ``90s``, ``1500ms``, ``5min``, ``2h`` or ``2d``.

    Args:
        text: A number and its unit.

    Returns:
        Seconds, or None if the text is no duration.
    """
    found = _DURATION.fullmatch(text.strip())
    return None if found is None else float(found[1]) * _SECONDS[found[2]]


__all__ = ["seconds_of"]
