"""Which buckets of a ledger that is followed are looked at again, and when.

What other windows could change is looked at again a few rows at a time, until nothing is behind. A bucket that cannot
be read is tried again later and later, and counts as it was last read until then.
"""

from __future__ import annotations

from dataclasses import dataclass

ROWS_AGAIN = 2_000_000
SHARE_AGAIN = 16
"""Because of windows alone so many rows are judged again at a time, or this part of all if that is more."""

LONGEST_PAUSE = 64
"""A bucket that cannot be read is tried again at every look, every second one, ... every so many."""


@dataclass
class Failed:
    """A bucket of some files that cannot be read. ``pause``: so many looks pass until it is tried again, ``left`` of
    them are still to come."""

    key: tuple[str, ...]
    text: str
    pause: int = 1
    left: int = 0


def later(before: Failed | None, key: tuple[str, ...], text: str) -> Failed:
    """Return that a bucket cannot be read, and is tried again later than the last time (``before``)."""
    pause = 1 if before is None else min(2 * before.pause, LONGEST_PAUSE)
    return Failed(key, text, pause, pause)


__all__ = ["ROWS_AGAIN", "SHARE_AGAIN", "Failed", "later"]
