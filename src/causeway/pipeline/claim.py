"""The right to write a lake: one run at a time has it, and loses it with its process."""

from __future__ import annotations

import os
import socket
from typing import IO

from causeway.pipeline.storage import AlreadyExists, Storage

try:
    import fcntl
except ImportError:  # no advisory locks on this system: a claim file stands for one
    fcntl = None  # type: ignore[assignment]

CLAIM_FILE = "writer"


class Claimed(Exception):
    """Another run writes the lake; the text says which, as far as it is known."""


class WriterClaim:
    """The claim on one lake, held from construction to ``release`` or the end of the process.

    On a local file system it is an advisory lock, which a killed process cannot keep. Elsewhere it is a file with
    the writer's name that ``release`` removes; after a kill it must be removed by hand, because nobody can tell a
    dead writer from a slow one.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._file: IO[bytes] | None = None
        owner = f"process {os.getpid()} on {socket.gethostname()}"
        if storage.is_local and fcntl is not None:
            file = open(storage.absolute(CLAIM_FILE), "a+b")  # noqa: SIM115 - open as long as the claim is held
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.seek(0)
                other = file.read().decode(errors="replace")
                file.close()
                raise Claimed(other or "another process") from None
            file.truncate(0)
            file.write(owner.encode())
            file.flush()
            self._file = file
            return
        try:
            storage.create(CLAIM_FILE, owner.encode())
        except AlreadyExists:
            other = storage.read_bytes(CLAIM_FILE).decode(errors="replace")
            raise Claimed(f"{other}; if it is dead, remove the file {CLAIM_FILE}") from None
        self._held = True

    def release(self) -> None:
        """Give the claim up; doing so twice is harmless."""
        if self._file is not None:
            self._file.close()
            self._file = None
        elif getattr(self, "_held", False):
            self._held = False
            self._storage.remove(CLAIM_FILE)
