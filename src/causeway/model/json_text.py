"""JSON of which nobody knows who wrote it."""

from __future__ import annotations

import json
from typing import Any


def loads(text: str | bytes) -> Any:
    """Return the value that a text in JSON is. Raises ``ValueError``: it is none, or is nested too deeply to be
    read."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
