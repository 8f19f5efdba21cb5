"""Paths out of files: each stays below the folder that its file is of.

A lake or a ledger may be a stranger's. What its files name is read, and removed, only below its own folder; so a path
is looked at when it is parsed, before anything is done with it.
"""

from __future__ import annotations

from typing import Any

MOST_PATH = 512
"""Maximum number of characters of a path."""


class NoFile(OSError):
    """A path names no readable regular file; ``strerror`` says why."""


class OutsideRoot(NoFile):
    """A path, or a symbolic link on its way, leads out of its folder."""


def confined(path: Any) -> str:
    """Return a relative path that stays below its folder, as it is.

    Raises:
        ValueError: It is none: no text, empty or too long, absolute, with a part ``.`` or ``..``, with a backslash or
            what is not printed.
    """
    plain = isinstance(path, str) and len(path) <= MOST_PATH and path.isprintable() and "\\" not in path
    if not plain or not stays_below(path):
        raise ValueError(f"{path!r:.80} is no path within its folder")
    return str(path)


def stays_below(path: str) -> bool:
    """Return whether a path stays below its root; its characters are not checked."""
    return all(part not in ("", ".", "..") for part in path.split("/"))


__all__ = ["MOST_PATH", "NoFile", "OutsideRoot", "confined", "stays_below"]
