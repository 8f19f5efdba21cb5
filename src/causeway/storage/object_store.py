"""Where a lake may lie: a folder of this machine, or a prefix in an object store, behind the same few calls.

Both create a file only if it is absent, whoever else tries: with a hard link here, with a conditional put there (S3,
Google Cloud Storage and Azure have them; so has every store that says it speaks S3 of today).
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import cache
from typing import IO, Any, TypeVar
from urllib.parse import unquote, urlsplit

from causeway_proofs.errors import InvalidInput
from obstore import exceptions as store_errors
from obstore import store as object_stores

from causeway.storage.paths import FileTooLong, NotRegularFile, OutsideRoot, stays_below

MAX_WHOLE_BYTES = 1 << 31
"""Maximum number of bytes of a file that is read at once."""

IO_THREADS = 8
"""Threads that wait for the disk or the store."""

SCHEMES = ("file", "s3", "s3a", "gs", "az", "adl", "abfs", "abfss")
"""What a URI of a lake may begin with."""

_RETRIES: Any = {"max_retries": 6, "retry_timeout": timedelta(seconds=60)}
"""How long a store may fail to answer; shorter than its own minutes, which look like a command that hangs."""

_METADATA = "http://169.254.169.254/"
"""Where the clients of all stores ask for credentials last, when they were given none: a machine in a cloud has some
there."""

_NO_CREDENTIALS = (
    "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (S3), GOOGLE_APPLICATION_CREDENTIALS (Google), "
    "AZURE_STORAGE_ACCOUNT_KEY (Azure), or run on a machine that has a role there"
)

IoResult = TypeVar("IoResult")


class AlreadyExists(Exception):
    """A file that was to be created if absent exists, or one that was to be replaced was replaced by another."""


class ObjectStoreError(OSError):
    """An object store does not answer as it should, or asks for credentials that there are none of."""


class LocalPlace:
    """A folder on a file system of this machine."""

    def __init__(self, root: str) -> None:
        self.root = root

    def full(self, path: str) -> str:
        """Return the whole path of a file. Raises ``OutsideRoot``."""
        return f"{self.root}/{_within(path)}" if path else self.root

    def own(self, path: str) -> str:
        """Return the whole path of a file that is written or removed: no symbolic link may lead out of the folder.

        Raises ``OutsideRoot``.
        """
        at = self.root
        for part in _within(path).split("/"):
            at = f"{at}/{part}"
            if os.path.islink(at) and not _is_below(os.path.realpath(at), os.path.realpath(self.root)):
                raise OutsideRoot(errno.EPERM, "a symbolic link leads out of its folder", at)
        return at

    def list(self, folder: str) -> list[str]:
        """Return the names in a folder, ascending; none when it does not exist."""
        with contextlib.suppress(FileNotFoundError), os.scandir(self.full(folder)) as entries:
            return sorted(entry.name for entry in entries)
        return []

    def walk(self) -> Iterator[str]:
        """Yield the paths of all files."""
        for folder, _, names in os.walk(self.root):
            for name in names:
                yield os.path.relpath(os.path.join(folder, name), self.root).replace(os.sep, "/")

    def size(self, path: str) -> int | None:
        """Return the length of a file, None when it does not exist."""
        try:
            return os.stat(self.full(path)).st_size
        except FileNotFoundError:
            return None

    def modified(self, path: str) -> float | None:
        """Return when a file was written, in seconds of the Unix epoch, None when it does not exist."""
        try:
            return os.stat(self.full(path)).st_mtime
        except FileNotFoundError:
            return None

    def read(self, path: str, most: int = MAX_WHOLE_BYTES) -> bytes:
        """Return a file's content. Raises ``TooLong``."""
        with _opened(self.full(path)) as file:
            length = os.fstat(file.fileno()).st_size
            if length > most:
                raise FileTooLong(self.full(path), length, most)
            return file.readall()

    def read_range(self, path: str, start: int, end: int) -> bytes:
        """Return the bytes of a file from one position to another, fewer where it ends before."""
        return self.read_ranges(path, [(start, end)])[0]

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        """Return the bytes of several ranges of a file, fewer where it ends before."""
        with _opened(self.full(path)) as file:
            return [_range(file, start, end) for start, end in ranges]

    def create(self, path: str, content: bytes) -> None:
        """Create a file whole or not at all, and only if it is absent; raises ``AlreadyExists``."""
        full = self.own(path)
        temporary = f"{full}.{uuid.uuid4().hex}.tmp"
        try:
            with name_errors(full), open(temporary, "xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(temporary, full)
            except FileExistsError:
                raise AlreadyExists(path) from None
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
        _sync(os.path.dirname(full))

    def put(self, path: str, content: bytes) -> None:
        """Create a file, or replace what it holds by as many bytes: in place, so that no entry of a folder changes."""
        full = self.own(path)
        descriptor = os.open(full, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, 0o644)
        try:
            with name_errors(full):
                if os.pwrite(descriptor, content, 0) < len(content):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def writer(self, path: str) -> Iterator[IO[bytes]]:
        """Open a file to be written from front to back."""
        full = self.own(path)
        with name_errors(full), open(full, "wb", buffering=1 << 20) as file:
            yield file

    def make_folder(self, path: str) -> None:
        """Make a folder and those above it."""
        os.makedirs(self.own(path) if path else self.root, exist_ok=True)

    def remove(self, path: str) -> None:
        """Remove a file; one that is not there is no error."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.own(path))

    def remove_folder(self, path: str) -> None:
        """Remove a folder and all in it."""
        import shutil

        shutil.rmtree(self.own(path))

    def sync(self, paths: Iterable[str]) -> None:
        """Have the disk keep files and the entries of folders.

        Many are written first and synced at once: then the disk does most of the work for all of them together.
        """
        for _ in io_threads(os.getpid()).map(_sync, [self.full(path) for path in paths]):
            pass


class ObjectPlace:
    """A prefix in an object store."""

    def __init__(self, uri: str) -> None:
        self.uri = uri.rstrip("/")
        self._store: Any = object_stores.from_url(self.uri, retry_config=_RETRIES)

    def list(self, folder: str) -> list[str]:
        """Return the names under a prefix up to the next slash, ascending."""
        prefix = f"{folder}/" if folder else None
        found = _reached(lambda: self._store.list_with_delimiter(prefix))
        names = [item["path"] for item in found["objects"]] + [*found["common_prefixes"]]
        return sorted(name.rstrip("/").rsplit("/", 1)[-1] for name in names)

    def sizes(self, folder: str) -> Sequence[tuple[str, int, float]]:
        """Return the names of the files in a folder, ascending, with their length and when they were written, in
        seconds of the Unix epoch."""
        found = _reached(lambda: self._store.list_with_delimiter(f"{folder}/" if folder else None))
        return sorted(
            (item["path"].rsplit("/", 1)[-1], int(item["size"]), item["last_modified"].timestamp())
            for item in found["objects"]
        )

    def walk(self) -> Iterator[str]:
        """Yield the paths of all files."""
        for batch in _reached(lambda: list(self._store.list())):
            yield from (item["path"] for item in batch)

    def size(self, path: str) -> int | None:
        """Return the length of a file, None when it does not exist."""
        try:
            return int(_reached(lambda: self._store.head(_within(path)))["size"])
        except FileNotFoundError:
            return None

    def modified(self, path: str) -> float | None:
        """Return when a file was written, in seconds of the Unix epoch, None when it does not exist."""
        try:
            found: datetime = _reached(lambda: self._store.head(_within(path)))["last_modified"]
        except FileNotFoundError:
            return None
        return found.timestamp()

    def read(self, path: str, most: int = MAX_WHOLE_BYTES) -> bytes:
        """Return a file's content. Raises ``TooLong``."""

        def get() -> bytes:
            found = self._store.get(_within(path))
            if found.meta["size"] > most:
                raise FileTooLong(path, found.meta["size"], most)
            return bytes(found.bytes())

        return _reached(get)

    def read_version(self, path: str) -> tuple[bytes, Any]:
        """Return a file's content, and what tells this version of it from others."""

        def get() -> tuple[bytes, Any]:
            found = self._store.get(_within(path))
            return bytes(found.bytes()), _version(found.meta)

        return _reached(get)

    def replace(self, path: str, content: bytes, version: Any) -> Any:
        """Replace a file if it is still of that version; return its new version. Raises ``AlreadyExists`` when it is of
        another."""
        return _version(_reached(lambda: self._store.put(_within(path), content, mode=version, use_multipart=False)))

    def read_range(self, path: str, start: int, end: int) -> bytes:
        """Return the bytes of a file from one position to another."""
        return _reached(lambda: bytes(self._store.get_range(_within(path), start=start, end=end)))

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        """Return the bytes of several ranges of a file, with one request where they lie close together."""
        starts, ends = [start for start, _ in ranges], [end for _, end in ranges]
        get = self._store.get_ranges
        return _reached(lambda: [bytes(part) for part in get(_within(path), starts=starts, ends=ends)])

    def create(self, path: str, content: bytes) -> None:
        """Create a file whole or not at all, and only if it is absent; raises ``AlreadyExists``."""
        _reached(lambda: self._store.put(_within(path), content, mode="create", use_multipart=False))

    def put(self, path: str, content: bytes) -> None:
        """Create a file, or replace what it holds."""
        _reached(lambda: self._store.put(_within(path), content, use_multipart=False))

    @contextlib.contextmanager
    def writer(self, path: str) -> Iterator[IO[bytes]]:
        """Open a file to be written from front to back; it is there when the block has ended without an error."""
        import obstore

        file: Any = _reached(lambda: obstore.open_writer(self._store, _within(path)))
        yield file
        _reached(file.close)

    def make_folder(self, path: str) -> None:
        """Do nothing: a store has no folders."""

    def remove(self, path: str) -> None:
        """Remove a file; one that is not there is no error."""
        with contextlib.suppress(FileNotFoundError):
            _reached(lambda: self._store.delete(_within(path)))

    def remove_folder(self, path: str) -> None:
        """Remove all under a prefix."""
        for batch in _reached(lambda: list(self._store.list(f"{_within(path)}/"))):
            if batch:
                names = [item["path"] for item in batch]
                _reached(lambda names=names: self._store.delete(names))  # type: ignore[misc]

    def sync(self, paths: Iterable[str]) -> None:
        """Do nothing: what a store has taken it keeps."""


def _version(found: Any) -> dict[str, str]:
    """Return what names one version of an object, as conditional puts take it."""
    return {name: found[name] for name in ("e_tag", "version") if found.get(name) is not None}


def _reached(call: Callable[[], IoResult]) -> IoResult:
    """Return what a call to a store returns; its errors become those of a file system, on one line."""
    try:
        return call()
    except (store_errors.AlreadyExistsError, store_errors.PreconditionError) as error:
        raise AlreadyExists(first_line(error)) from None
    except FileNotFoundError:
        raise
    except store_errors.BaseError as error:
        text = first_line(error)
        if _METADATA in text:
            raise ObjectStoreError(_NO_CREDENTIALS) from error
        raise ObjectStoreError(f"the store does not answer as it should: {text}") from error


def open_place(uri: str) -> LocalPlace | ObjectPlace:
    """Return the place of a path or URI. Raises ``InvalidInput`` for one of another kind, or that cannot be had."""
    if "://" not in uri:
        return LocalPlace(os.path.abspath(uri))
    parts = urlsplit(uri)
    if parts.scheme not in SCHEMES:
        raise InvalidInput(
            f"lake: {uri} is not a place that can be opened: allowed are a folder and URIs that begin with "
            f"{', '.join(f'{scheme}://' for scheme in SCHEMES)}"
        )
    if parts.query or parts.fragment:
        raise InvalidInput(
            f"lake: {uri}: nothing may follow the path; endpoints and keys are given by the environment (AWS_...)"
        )
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise InvalidInput(f"lake: {uri} names the host {parts.netloc}; write file:///folder")
        return LocalPlace(os.path.abspath(unquote(parts.path)))
    try:
        return ObjectPlace(uri)
    except (store_errors.BaseError, ValueError) as error:
        raise InvalidInput(f"lake: {uri} is not a place that can be opened: {first_line(error)}") from None


@cache
def io_threads(process: int) -> ThreadPoolExecutor:
    """Return the threads of this process: those of the one it was forked from are not here."""
    return ThreadPoolExecutor(IO_THREADS, "causeway-sync")


def _within(path: str) -> str:
    if not stays_below(path):
        raise OutsideRoot(errno.EPERM, f"{path!r:.80} is no path within its folder")
    return path


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root.rstrip(os.sep)}{os.sep}")


@contextlib.contextmanager
def _opened(full: str) -> Iterator[io.FileIO]:
    """Open a file to be read, if it is one: a pipe or a device may never end, or never begin."""
    descriptor = os.open(full, os.O_RDONLY | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotRegularFile(errno.EINVAL, "is no regular file", full)
        with io.FileIO(descriptor, closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def _range(file: io.RawIOBase, start: int, end: int) -> bytes:
    file.seek(start)
    found = file.read(end - start) or b""
    while len(found) < end - start and (more := file.read(end - start - len(found))):
        found += more
    return found


@contextlib.contextmanager
def name_errors(full: str) -> Iterator[None]:
    """Have an error of the system name its file: one of writing, on a full disk say, does not."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = full
        raise


def _sync(full: str) -> None:
    descriptor = os.open(full, os.O_RDONLY)
    try:
        with name_errors(full):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text; of one of the system what is wrong, and with which file."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.strerror} ({os.fsdecode(error.filename)})"
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
