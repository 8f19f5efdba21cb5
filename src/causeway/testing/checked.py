"""What a test may say of ticks and rounds."""

from __future__ import annotations

from causeway.model.errors import InvalidInput
from causeway.model.text import shown
from causeway.protocols.block_numbers import LAST_TICK


def bounded(key: str, value: object, *, least: int, most: int = LAST_TICK) -> None:
    """Check that ``value``, of what ``key`` names, is a whole number from ``least`` to ``most``. Raises
    ``InvalidInput``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(f"{key}: {shown(value)}: must be a whole number")
    if not least <= value <= most:
        raise InvalidInput(f"{key}: {shown(value)}: must be from {least} to {most}")


__all__ = ["LAST_TICK", "bounded"]
