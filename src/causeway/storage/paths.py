"""Validation of paths in untrusted files: each stays below its folder.

A lake or a ledger may be untrusted, and what its files name is read and removed. So paths are validated when they are
parsed.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any

MAX_PATH = 512
"""Maximum number of characters of a path."""


DATA_FOLDERS = ("heights", "compacted", "record")
"""Folders of files that manifests and compaction records name.

Files removed because nothing names them are in these folders; manifests and the lake's description are not.
"""


class NotRegularFile(OSError):
    """A path names no readable regular file; ``strerror`` gives the reason."""


class OutsideRoot(NotRegularFile):
    """A path, or a symbolic link on it, leads out of its folder."""


class FileTooLong(NotRegularFile):
    """A file exceeds the limit of a single read. ``length``: its size in bytes."""

    def __init__(self, path: str, length: int, most: int) -> None:
        super().__init__(errno.EFBIG, f"has more than {most:,} bytes", path)
        self.length = length


def confine_path(path: Any, folders: Sequence[str] = ()) -> str:
    """Validate a relative path below its folder.

    Args:
        path: The path.
        folders: Allowed first folders; empty: any.

    Raises:
        ValueError: It is not text, empty, too long or absolute; it has a part ``.`` or ``..``, a backslash or an
            unprintable character; or it is in no allowed folder.
    """
    plain = isinstance(path, str) and len(path) <= MAX_PATH and path.isprintable() and "\\" not in path
    if not plain or not stays_below(path):
        raise ValueError(f"{path!r:.80} is no path within its folder")
    if folders and path.partition("/")[0] not in folders:
        raise ValueError(f"{path!r:.80} is in none of the folders {', '.join(folders)}")
    return str(path)


def stays_below(path: str) -> bool:
    """Return True if a path stays below its root.

    Args:
        path: The relative path; its characters are not checked.
    """
    return all(part not in ("", ".", "..") for part in path.split("/"))


__all__ = ["DATA_FOLDERS", "MAX_PATH", "FileTooLong", "NotRegularFile", "OutsideRoot", "confine_path", "stays_below"]
