"""The right to write a lake: one run at a time has it, and loses it with its process.

Every claim has an epoch, one more than the claim before it, and every manifest carries the epoch under which it was
written. In a folder of this machine the claim is an advisory lock, which a killed process cannot keep. In an object
store it is a file that its holder renews every few seconds by conditional puts: one that is not renewed is taken over,
and from then on no renewal of the holder before succeeds, nor a commit of his, which begins with one.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

from causeway.core.text import load_json
from causeway.storage.files import AlreadyExists, Storage, first_line
from causeway.storage.lake import Lake, LakeError
from causeway.storage.layout import LAKE_FILE, TRAFFIC
from causeway.storage.object_store import ObjectPlace

try:
    import fcntl
except ImportError:  # no advisory locks on this system
    fcntl = None  # type: ignore[assignment]

CLAIM_FILE = "writer"

HEARTBEAT_SECONDS = 5.0
"""How often a claim in an object store is renewed."""

STALL_TIMEOUT_SECONDS = 30.0
"""A claim that nobody renews for so long is taken over."""


class LakeClaimed(Exception):
    """Another run writes the lake; the text says which, as far as it is known."""


class WriterClaim:
    """The claim on one lake, held from construction to ``release`` or the end of the process. ``epoch``: its number."""

    def __init__(self, storage: Storage, last_epoch: Callable[[], int], waiting: Callable[[], None]) -> None:
        """``last_epoch``: returns the epoch of the last manifest. ``waiting``: called when a claim is being watched.

        Raises ``Claimed``.
        """
        self._file: IO[bytes] | None = None
        self._place = storage.place
        self._owner = f"process {os.getpid()} on {socket.gethostname()}"
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._lost: str | None = None
        self._version: Any = None
        self._beat = 0
        if isinstance(self._place, ObjectPlace):
            self._take(self._place, last_epoch, waiting)
        else:
            self._lock_file(storage.absolute(CLAIM_FILE), last_epoch)

    @property
    def held(self) -> bool:
        """Return whether it was not released."""
        return self._file is not None or (isinstance(self._place, ObjectPlace) and not self._stop.is_set())

    # ---- in a folder of this machine

    def _lock_file(self, path: str, last_epoch: Callable[[], int]) -> None:
        file = open(path, "a+b")  # noqa: SIM115 - open as long as the claim is held
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_there(file, path):
                raise BlockingIOError  # whoever had it has withdrawn it just now
        except OSError:
            file.seek(0)
            other = _read(file.read())
            file.close()
            raise LakeClaimed(str(other.get("owner", "another process"))) from None
        try:
            file.seek(0)
            self.epoch = _next(_read(file.read()), last_epoch)
            file.truncate(0)
            file.write(self._content())
            file.flush()
        except BaseException:
            file.close()
            raise
        self._file = file

    # ---- in an object store

    def _take(self, place: ObjectPlace, last_epoch: Callable[[], int], waiting: Callable[[], None]) -> None:
        try:
            content, version = place.read_version(CLAIM_FILE)
        except FileNotFoundError:
            self.epoch = _next({}, last_epoch)
            try:
                place.create(CLAIM_FILE, self._content())
            except AlreadyExists:
                raise LakeClaimed("a process that claimed it just now") from None
            _, self._version = place.read_version(CLAIM_FILE)
        else:
            other = _read(content)
            if other.get("held", True):
                waiting()
                self._watch(place, version, str(other.get("owner", "another process")))
            self.epoch = _next(other, last_epoch)
            try:
                self._version = place.replace(CLAIM_FILE, self._content(), version)
            except AlreadyExists:
                raise LakeClaimed("a process that claimed it just now") from None
        threading.Thread(target=self._renew, args=(place,), name="causeway-claim", daemon=True).start()

    def _watch(self, place: ObjectPlace, version: Any, owner: str) -> None:
        """Wait until a claim has not been renewed for long enough. Raises ``Claimed`` when it is."""
        until = time.monotonic() + STALL_TIMEOUT_SECONDS
        while time.monotonic() < until:
            time.sleep(min(1.0, HEARTBEAT_SECONDS))
            if place.read_version(CLAIM_FILE)[1] != version:
                raise LakeClaimed(owner)

    def _renew(self, place: ObjectPlace) -> None:
        while not self._stop.wait(HEARTBEAT_SECONDS):
            try:
                self._put(place, held=True)
            except LakeError:
                return
            except OSError:
                continue  # the store may answer again: whether the claim still holds is known then

    def _put(self, place: ObjectPlace, *, held: bool) -> None:
        with self._lock:
            if self._lost is None and not self._stop.is_set():
                self._beat += 1
                try:
                    self._version = place.replace(CLAIM_FILE, self._content(held=held), self._version)
                    if not held:
                        self._stop.set()
                except AlreadyExists:
                    content, version = place.read_version(CLAIM_FILE)
                    if content == self._content(held=held):
                        self._version = version  # the store took it and lost its answer
                    else:
                        self._lost = str(_read(content).get("owner", "another process"))
            if self._lost is not None:
                raise LakeError(f"lake: {place.uri} was taken over by {self._lost}; this run has written nothing since")

    # ---- both

    def _content(self, *, held: bool = True) -> bytes:
        return json.dumps({"epoch": self.epoch, "owner": self._owner, "held": held, "beat": self._beat}).encode()

    def confirm(self) -> None:
        """Make sure that the claim is still held, before something is committed under it. Raises ``LakeError``."""
        if isinstance(self._place, ObjectPlace):
            try:
                self._put(self._place, held=True)
            except OSError as error:
                raise LakeError(f"lake: {self._place.uri} cannot be written: {first_line(error)}") from error

    def release(self) -> None:
        """Give the claim up; doing so twice is harmless."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if isinstance(self._place, ObjectPlace) and not self._stop.is_set():
            # Else it is another's already, or the store is gone: then it is taken over when its time is up.
            with contextlib.suppress(LakeError, OSError):
                self._put(self._place, held=False)
            self._stop.set()


@dataclass(frozen=True)
class FolderBeforeClaim:
    """What there was of a lake's folder before it was claimed. ``folders``: those that were missing, the lake's own
    first, then those that it is in; ``names``: what was in it."""

    folders: tuple[str, ...]
    names: frozenset[str]

    @classmethod
    def of(cls, storage: Storage) -> FolderBeforeClaim:
        """Return what there is now; in an object store there are no folders."""
        missing: list[str] = []
        if storage.is_local:
            folder = storage.absolute("").rstrip("/") or "/"
            while not os.path.lexists(folder):
                missing.append(folder)
                folder = os.path.dirname(folder)
        names = storage.list("") if storage.is_local and not missing else []
        return cls(tuple(missing), frozenset(names))


def withdraw_claim(held: WriterClaim, storage: Storage, before: FolderBeforeClaim) -> None:
    """Give a claim up under which no lake was made, and remove what was made for it: the folder is as it was before.

    In an object store the claim stays, given up: whether nobody else has it since cannot be told.
    """
    if storage.is_local and not storage.exists(LAKE_FILE):
        with contextlib.suppress(OSError):  # somebody has put something there
            if TRAFFIC in storage.list("") and TRAFFIC not in before.names:
                storage.remove_folder(TRAFFIC)
            if CLAIM_FILE not in before.names:
                storage.remove(CLAIM_FILE)
            for folder in before.folders:
                os.rmdir(folder)
    held.release()


def claim_lake(lake: Lake, waiting: Callable[[], None] = lambda: None) -> WriterClaim:
    """Claim the right to write a lake, before anything in it is changed.

    ``waiting``: called when the claim of a run that may be dead has to be watched for a while. Raises ``LakeError``.
    """

    def last_epoch() -> int:
        last = lake.last_height() if lake.exists() else -1
        return lake.manifest(last).epoch if last >= 0 else 0

    storage = lake.storage
    try:
        storage.make_folder("")
        return WriterClaim(storage, last_epoch, waiting)
    except LakeClaimed as other:
        raise LakeError(f"lake: {storage.uri} is being written by {other}") from None
    except OSError as error:
        raise LakeError(f"lake: {storage.uri} cannot be written: {first_line(error)}") from error


def _is_there(file: IO[bytes], path: str) -> bool:
    """Return whether an open file is the one that has this path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def _next(before: dict[str, Any], last_epoch: Callable[[], int]) -> int:
    known = before.get("epoch", 0)
    return max(known if isinstance(known, int) else 0, last_epoch()) + 1


def _read(content: bytes) -> dict[str, Any]:
    """Return what a claim says; nothing where it was cut off."""
    try:
        found = load_json(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
