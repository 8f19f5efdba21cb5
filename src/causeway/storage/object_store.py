"""Storage places of a lake: local folders and object store prefixes, behind one interface.

Both create a file only if it is absent, also under concurrent writers: a local folder by a hard link, an object store
by a conditional put (S3, Google Cloud Storage, Azure and current S3-compatible stores have them).
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
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

from causeway.core.text import escape_controls
from causeway.storage.seals import FileTooLong, NotRegularFile, OutsideRoot, stays_below

MAX_WHOLE_BYTES = 1 << 31
"""Maximum number of bytes of a file read at once."""

IO_THREADS = 8
"""Number of threads that wait for the disk or the store."""

SCHEMES = ("file", "s3", "s3a", "gs", "az", "adl", "abfs", "abfss")
"""URI schemes of a lake."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
"""Begins a URI; one letter before the colon is a drive of Windows."""

_RETRIES: Any = {"max_retries": 6, "retry_timeout": timedelta(seconds=60)}
"""Retry limits of a store. The defaults are minutes, in which a command seems to hang."""

_METADATA = "http://169.254.169.254/"
"""Metadata endpoint of cloud machines: store clients look for credentials there last."""

_NO_CREDENTIALS = (
    "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (S3), GOOGLE_APPLICATION_CREDENTIALS (Google), "
    "AZURE_STORAGE_ACCOUNT_KEY (Azure), or run on a machine that has a role there"
)

IoResult = TypeVar("IoResult")


class AlreadyExists(Exception):
    """A file to create exists already, or a file to replace has a newer version."""


class ObjectStoreError(OSError):
    """An object store answers with an error, or no credentials are configured."""


class LocalPlace:
    """A folder on a local file system."""

    def __init__(self, root: str) -> None:
        self.root = root

    def full(self, path: str) -> str:
        """Return the full path of a file. Raises ``OutsideRoot``."""
        return f"{self.root}/{_require_within(path)}" if path else self.root

    def own(self, path: str) -> str:
        """Return the full path of a file to write or remove.

        Symbolic links must not lead out of the folder.

        Raises:
            OutsideRoot: The path leaves the folder.
        """
        at = self.root
        for part in _require_within(path).split("/"):
            at = f"{at}/{part}"
            if os.path.islink(at) and not _is_below(os.path.realpath(at), os.path.realpath(self.root)):
                raise OutsideRoot(errno.EPERM, "a symbolic link leads out of its folder", at)
        return at

    def list(self, folder: str) -> list[str]:
        """Return the names in a folder, ascending; empty if it does not exist."""
        with contextlib.suppress(FileNotFoundError), os.scandir(self.full(folder)) as entries:
            return sorted(entry.name for entry in entries)
        return []

    def walk(self) -> Iterator[str]:
        """Yield the paths of all files."""
        for folder, _, names in os.walk(self.root):
            for name in names:
                yield os.path.relpath(os.path.join(folder, name), self.root).replace(os.sep, "/")

    def size(self, path: str) -> int | None:
        """Return the length of a file in bytes, or None if it does not exist."""
        try:
            return os.stat(self.full(path)).st_size
        except FileNotFoundError:
            return None

    def modified(self, path: str) -> float | None:
        """Return the modification time of a file in Unix seconds, or None if it does not exist."""
        try:
            return os.stat(self.full(path)).st_mtime
        except FileNotFoundError:
            return None

    def read(self, path: str, most: int = MAX_WHOLE_BYTES) -> bytes:
        """Return the content of a file. Raises ``FileTooLong``."""
        with _open_regular(self.full(path)) as file:
            length = os.fstat(file.fileno()).st_size
            if length > most:
                raise FileTooLong(self.full(path), length, most)
            return file.readall()

    def read_range(self, path: str, start: int, end: int) -> bytes:
        """Return a byte range of a file, truncated at its end."""
        return self.read_ranges(path, [(start, end)])[0]

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        """Return several byte ranges of a file, each truncated at its end."""
        with _open_regular(self.full(path)) as file:
            return [_read_range(file, start, end) for start, end in ranges]

    def create(self, path: str, content: bytes) -> None:
        """Create a file atomically, and only if it is absent. Raises ``AlreadyExists``."""
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
        """Create a file, or overwrite it in place with equally many bytes; no folder entry changes."""
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
        """Open a file for sequential writing."""
        full = self.own(path)
        with name_errors(full), open(full, "wb", buffering=1 << 20) as file:
            yield file

    def make_folder(self, path: str) -> None:
        """Create a folder and its parents."""
        os.makedirs(self.own(path) if path else self.root, exist_ok=True)

    def make_subfolder(self, path: str) -> None:
        """Create a folder and its parents, but not the root. Raises ``FileNotFoundError`` without a root."""
        parts = path.split("/")
        for end in range(1, len(parts) + 1):
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.own("/".join(parts[:end])))

    def remove(self, path: str) -> None:
        """Remove a file if it exists."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.own(path))

    def remove_folder(self, path: str) -> None:
        """Remove a folder and its content; from the first step on, no other process finds it."""
        import shutil

        full = self.own(path)
        if os.path.isdir(full) and not os.path.islink(full):
            os.rename(full, removed := f"{full}.{uuid.uuid4().hex}.removed")
            full = removed
        shutil.rmtree(full)

    def sync(self, paths: Iterable[str]) -> None:
        """Flush files and folder entries to disk.

        Writing many files first and syncing them at once lets the disk batch the work.
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
        found = _call_store(lambda: self._store.list_with_delimiter(prefix))
        names = [item["path"] for item in found["objects"]] + [*found["common_prefixes"]]
        return sorted(name.rstrip("/").rsplit("/", 1)[-1] for name in names)

    def sizes(self, folder: str) -> Sequence[tuple[str, int, float]]:
        """Return the files in a folder: name, length in bytes, modification time in Unix seconds.

        Ascending by name.
        """
        found = _call_store(lambda: self._store.list_with_delimiter(f"{folder}/" if folder else None))
        return sorted(
            (item["path"].rsplit("/", 1)[-1], int(item["size"]), item["last_modified"].timestamp())
            for item in found["objects"]
        )

    def walk(self) -> Iterator[str]:
        """Yield the paths of all files."""
        for batch in _call_store(lambda: list(self._store.list())):
            yield from (item["path"] for item in batch)

    def size(self, path: str) -> int | None:
        """Return the length of a file in bytes, or None if it does not exist."""
        try:
            return int(_call_store(lambda: self._store.head(_require_within(path)))["size"])
        except FileNotFoundError:
            return None

    def modified(self, path: str) -> float | None:
        """Return the modification time of a file in Unix seconds, or None if it does not exist."""
        try:
            found: datetime = _call_store(lambda: self._store.head(_require_within(path)))["last_modified"]
        except FileNotFoundError:
            return None
        return found.timestamp()

    def read(self, path: str, most: int = MAX_WHOLE_BYTES) -> bytes:
        """Return the content of a file. Raises ``FileTooLong``."""

        def get() -> bytes:
            found = self._store.get(_require_within(path))
            if found.meta["size"] > most:
                raise FileTooLong(path, found.meta["size"], most)
            return bytes(found.bytes())

        return _call_store(get)

    def read_version(self, path: str) -> tuple[bytes, Any]:
        """Return the content of a file and its version, as ``replace`` takes it."""

        def get() -> tuple[bytes, Any]:
            found = self._store.get(_require_within(path))
            return bytes(found.bytes()), _version(found.meta)

        return _call_store(get)

    def replace(self, path: str, content: bytes, version: Any) -> Any:
        """Replace a file that still has a version; return its new version.

        Raises:
            AlreadyExists: The file has another version.
        """
        return _version(
            _call_store(lambda: self._store.put(_require_within(path), content, mode=version, use_multipart=False))
        )

    def read_range(self, path: str, start: int, end: int) -> bytes:
        """Return a byte range of a file."""
        return _call_store(lambda: bytes(self._store.get_range(_require_within(path), start=start, end=end)))

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        """Return several byte ranges of a file, by one request where they lie close together."""
        starts, ends = [start for start, _ in ranges], [end for _, end in ranges]
        get = self._store.get_ranges
        return _call_store(lambda: [bytes(part) for part in get(_require_within(path), starts=starts, ends=ends)])

    def create(self, path: str, content: bytes) -> None:
        """Create a file atomically, and only if it is absent. Raises ``AlreadyExists``."""
        _call_store(lambda: self._store.put(_require_within(path), content, mode="create", use_multipart=False))

    def put(self, path: str, content: bytes) -> None:
        """Create a file, or replace its content."""
        _call_store(lambda: self._store.put(_require_within(path), content, use_multipart=False))

    @contextlib.contextmanager
    def writer(self, path: str) -> Iterator[IO[bytes]]:
        """Open a file for sequential writing; it exists once the block ends without an error."""
        import obstore

        upload: Any = _call_store(lambda: obstore.open_writer(self._store, _require_within(path)))
        file: Any = _UploadFile(upload)
        yield file
        _call_store(upload.close)

    def make_folder(self, path: str) -> None:
        """Do nothing: a store has no folders."""

    make_subfolder = make_folder

    def remove(self, path: str) -> None:
        """Remove a file if it exists."""
        with contextlib.suppress(FileNotFoundError):
            _call_store(lambda: self._store.delete(_require_within(path)))

    def remove_folder(self, path: str) -> None:
        """Remove all files under a prefix."""
        for batch in _call_store(lambda: list(self._store.list(f"{_require_within(path)}/"))):
            if batch:
                names = [item["path"] for item in batch]
                _call_store(lambda names=names: self._store.delete(names))  # type: ignore[misc]

    def sync(self, paths: Iterable[str]) -> None:
        """Do nothing: a store keeps completed writes."""


class _UploadFile(io.RawIOBase):
    """Upload as a file of Python, which Arrow takes: ``closed`` of the store's own file is a method.

    Closing it does not end the upload.
    """

    def __init__(self, upload: Any) -> None:
        super().__init__()
        self._upload = upload

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, content: Any) -> int:
        """Write all bytes; return their number."""
        return int(_call_store(lambda: self._upload.write(memoryview(content).cast("B"))))


def _version(found: Any) -> dict[str, str]:
    """Return the version of an object, as conditional puts take it."""
    return {name: found[name] for name in ("e_tag", "version") if found.get(name) is not None}


def _call_store(call: Callable[[], IoResult]) -> IoResult:
    """Return the result of a store call; convert its errors to one-line ``OSError``."""
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


def open_place(uri: str, what: str = "lake") -> LocalPlace | ObjectPlace:
    """Return the place of a path or URI.

    Args:
        uri: Path of a folder, or URI with a scheme of ``SCHEMES``.
        what: The place in errors.

    Raises:
        InvalidInput: The URI has another scheme, or the store rejects it.
    """
    if "\0" in uri:
        raise InvalidInput(f"{what}: {escape_controls(uri)}: has a null character, which no path has")
    if not _SCHEME.match(uri):
        return LocalPlace(os.path.abspath(uri))
    if "://" not in uri:  # as Spark prints file:/folder, and names dbfs:/folder
        raise InvalidInput(f"{what}: {uri}: a URI has two slashes before the host or folder, such as file:///folder")
    parts = urlsplit(uri)
    if parts.scheme not in SCHEMES:
        raise InvalidInput(
            f"{what}: {uri} is not a place that can be opened: allowed are a folder and URIs that begin with "
            f"{', '.join(f'{scheme}://' for scheme in SCHEMES)}"
        )
    if parts.query or parts.fragment:
        raise InvalidInput(
            f"{what}: {uri}: nothing may follow the path; endpoints and keys are given by the environment (AWS_...)"
        )
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise InvalidInput(f"{what}: {uri} names the host {parts.netloc}; write file:///folder")
        if not parts.path:
            raise InvalidInput(f"{what}: {uri} names no folder; write file:///folder")
        return LocalPlace(os.path.abspath(unquote(parts.path)))
    try:
        return ObjectPlace(uri)
    except (store_errors.BaseError, ValueError) as error:
        raise InvalidInput(f"{what}: {uri} is not a place that can be opened: {first_line(error)}") from None


@cache
def io_threads(process: int) -> ThreadPoolExecutor:
    """Return the thread pool of a process; a fork does not inherit the threads of its parent.

    Args:
        process: Id of the process.
    """
    return ThreadPoolExecutor(IO_THREADS, "causeway-sync")


def _require_within(path: str) -> str:
    if not stays_below(path):
        raise OutsideRoot(errno.EPERM, f"{path!r:.80} is no path within its folder")
    return path


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root.rstrip(os.sep)}{os.sep}")


@contextlib.contextmanager
def _open_regular(full: str) -> Iterator[io.FileIO]:
    """Open a regular file for reading; pipes and devices may block for ever."""
    descriptor = os.open(full, os.O_RDONLY | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotRegularFile(errno.EINVAL, "is no regular file", full)
        with io.FileIO(descriptor, closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def _read_range(file: io.RawIOBase, start: int, end: int) -> bytes:
    file.seek(start)
    content = file.read(end - start) or b""
    while len(content) < end - start and (rest := file.read(end - start - len(content))):
        content += rest
    return content


@contextlib.contextmanager
def name_errors(full: str) -> Iterator[None]:
    """Add the file name to OS errors: write errors, as on a full disk, lack it."""
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
    """Return the first line of an error's text; for OS errors the problem and the file."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.strerror} ({os.fsdecode(error.filename)})"
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
