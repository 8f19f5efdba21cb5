"""Paths out of files: each stays below the folder that its file is of.

A lake or a ledger may be a stranger's. What its files name is read, and removed, only below its own folder; so a path
is looked at when it is parsed, before anything is done with it.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any

MAX_PATH = 512
"""Maximum number of characters of a path."""


DATA_FOLDERS = ("heights", "compacted", "record")
"""Where a lake has the files that manifests and records of compactions name. What is removed because one names it no
more is in one of them, and neither a manifest nor what the lake itself is."""


class NotRegularFile(OSError):
    """A path names no readable regular file; ``strerror`` says why."""


class OutsideRoot(NotRegularFile):
    """A path, or a symbolic link on its way, leads out of its folder."""


class FileTooLong(NotRegularFile):
    """A file has more bytes than are read at once. ``length``: how many."""

    def __init__(self, path: str, length: int, most: int) -> None:
        super().__init__(errno.EFBIG, f"has more than {most:,} bytes", path)
        self.length = length


def confine_path(path: Any, folders: Sequence[str] = ()) -> str:
    """Return a relative path that stays below its folder, as it is. ``folders``: it is in one of them, if any.

    Raises:
        ValueError: It is none: no text, empty or too long, absolute, with a part ``.`` or ``..``, with a backslash or
            what is not printed; or it is in none of the ``folders``.
    """
    plain = isinstance(path, str) and len(path) <= MAX_PATH and path.isprintable() and "\\" not in path
    if not plain or not stays_below(path):
        raise ValueError(f"{path!r:.80} is no path within its folder")
    if folders and path.partition("/")[0] not in folders:
        raise ValueError(f"{path!r:.80} is in none of the folders {', '.join(folders)}")
    return str(path)


def stays_below(path: str) -> bool:
    """Return whether a path stays below its root; its characters are not checked."""
    return all(part not in ("", ".", "..") for part in path.split("/"))


__all__ = ["DATA_FOLDERS", "MAX_PATH", "FileTooLong", "NotRegularFile", "OutsideRoot", "confine_path", "stays_below"]
