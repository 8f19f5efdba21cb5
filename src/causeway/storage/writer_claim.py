"""Exclusive right of one run to write a lake, released with its process.

Every claim has an epoch, one above the previous claim's, and every manifest carries the epoch of its writer. In a local
folder the claim is an advisory lock, which ends with a killed process. In an object store it is a file that its holder
renews every few seconds by conditional puts. A claim without renewal is taken over. From then on the former holder can
neither renew it nor commit, since a commit begins with a renewal.
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
"""Interval between renewals of a claim in an object store."""

STALL_TIMEOUT_SECONDS = 30.0
"""Time without renewal after which a claim is taken over."""


class LakeClaimed(Exception):
    """Another run writes the lake; the text names it if known."""


class WriterClaim:
    """The claim on a lake, held until ``release`` or the end of the process.

    ``epoch``: its number.
    """

    def __init__(self, storage: Storage, last_epoch: Callable[[], int], waiting: Callable[[], None]) -> None:
        """Claim the lake.

        Args:
            storage: Storage of the lake.
            last_epoch: Returns the epoch of the last manifest.
            waiting: Called before another claim is watched.

        Raises:
            LakeClaimed: Another run holds the claim.
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
            self._claim_object(self._place, last_epoch, waiting)
        else:
            self._lock_file(storage.absolute(CLAIM_FILE), last_epoch)

    @property
    def is_locked(self) -> bool:
        """True until the claim is released."""
        return self._file is not None or (isinstance(self._place, ObjectPlace) and not self._stop.is_set())

    # ---- local folders

    def _lock_file(self, path: str, last_epoch: Callable[[], int]) -> None:
        file = open(path, "a+b")  # noqa: SIM115 - open as long as the claim is held
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_same_file(file, path):
                raise BlockingIOError  # its holder has just withdrawn and removed it
        except OSError:
            file.seek(0)
            other = _read_claim(file.read())
            file.close()
            raise LakeClaimed(str(other.get("owner", "another process"))) from None
        try:
            file.seek(0)
            self.epoch = _next_epoch(_read_claim(file.read()), last_epoch)
            file.truncate(0)
            file.write(self._content())
            file.flush()
        except BaseException:
            file.close()
            raise
        self._file = file

    # ---- object stores

    def _claim_object(self, place: ObjectPlace, last_epoch: Callable[[], int], waiting: Callable[[], None]) -> None:
        try:
            content, version = place.read_version(CLAIM_FILE)
        except FileNotFoundError:
            self.epoch = _next_epoch({}, last_epoch)
            try:
                place.create(CLAIM_FILE, self._content())
            except AlreadyExists:
                raise LakeClaimed("a process that claimed it just now") from None
            _, self._version = place.read_version(CLAIM_FILE)
        else:
            other = _read_claim(content)
            if other.get("held", True):
                waiting()
                self._watch(place, version, str(other.get("owner", "another process")))
            self.epoch = _next_epoch(other, last_epoch)
            try:
                self._version = place.replace(CLAIM_FILE, self._content(), version)
            except AlreadyExists:
                raise LakeClaimed("a process that claimed it just now") from None
        threading.Thread(target=self._renew, args=(place,), name="causeway-claim", daemon=True).start()

    def _watch(self, place: ObjectPlace, version: Any, owner: str) -> None:
        """Wait for the stall timeout of a claim. Raises ``LakeClaimed`` if it is renewed."""
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
                continue  # the store may recover; the next renewal shows if the claim was lost

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
                        self._version = version  # the write succeeded and its answer was lost
                    else:
                        self._lost = str(_read_claim(content).get("owner", "another process"))
            if self._lost is not None:
                raise LakeError(f"lake: {place.uri} was taken over by {self._lost}; this run has written nothing since")

    # ---- both

    def _content(self, *, held: bool = True) -> bytes:
        return json.dumps({"epoch": self.epoch, "owner": self._owner, "held": held, "beat": self._beat}).encode()

    def confirm(self) -> None:
        """Verify the claim before a commit. Raises ``LakeError``."""
        if isinstance(self._place, ObjectPlace):
            try:
                self._put(self._place, held=True)
            except OSError as error:
                raise LakeError(f"lake: {self._place.uri} cannot be written: {first_line(error)}") from error

    def release(self) -> None:
        """Release the claim; repeated calls are harmless."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if isinstance(self._place, ObjectPlace) and not self._stop.is_set():
            # On failure another run has it, or the store is unreachable and the claim expires.
            with contextlib.suppress(LakeError, OSError):
                self._put(self._place, held=False)
            self._stop.set()


@dataclass(frozen=True)
class FolderBeforeClaim:
    """The state of a lake's folder before it was claimed.

    Attributes:
        folders: Missing folders, the lake's own first, then its parents.
        names: Names in the lake's folder.
    """

    folders: tuple[str, ...]
    names: frozenset[str]

    @classmethod
    def of(cls, storage: Storage) -> FolderBeforeClaim:
        """Record the current state; object stores have no folders."""
        missing: list[str] = []
        if storage.is_local:
            folder = storage.absolute("").rstrip("/") or "/"
            while not os.path.lexists(folder):
                missing.append(folder)
                folder = os.path.dirname(folder)
        names = storage.list("") if storage.is_local and not missing else []
        return cls(tuple(missing), frozenset(names))


def withdraw_claim(held: WriterClaim, storage: Storage, before: FolderBeforeClaim) -> None:
    """Release a claim under which no lake was created, and remove what was created for it.

    In an object store the claim file stays, released: another run may have claimed it since.

    Args:
        held: The claim.
        storage: Storage of the lake.
        before: State of the folder before the claim.
    """
    if storage.is_local and not storage.exists(LAKE_FILE):
        with contextlib.suppress(OSError):  # another process has written to the folder
            if TRAFFIC in storage.list("") and TRAFFIC not in before.names:
                storage.remove_folder(TRAFFIC)
            if CLAIM_FILE not in before.names:
                storage.remove(CLAIM_FILE)
            for folder in before.folders:
                os.rmdir(folder)
    held.release()


def claim_lake(lake: Lake, waiting: Callable[[], None] = lambda: None) -> WriterClaim:
    """Claim the right to write a lake before any change.

    Args:
        lake: The lake.
        waiting: Called before the claim of a possibly dead run is watched.

    Raises:
        LakeError: Another run writes the lake, or the folder cannot be written.
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


def _is_same_file(file: IO[bytes], path: str) -> bool:
    """Return True if an open file is still the one at its path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def _next_epoch(before: dict[str, Any], last_epoch: Callable[[], int]) -> int:
    known = before.get("epoch", 0)
    return max(known if isinstance(known, int) else 0, last_epoch()) + 1


def _read_claim(content: bytes) -> dict[str, Any]:
    """Parse a claim; empty for a truncated one."""
    try:
        found = load_json(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
