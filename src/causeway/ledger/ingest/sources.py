"""Source files of a ledger: discovery, ingest history, and changes since."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

from causeway_proofs.errors import InvalidInput

from causeway.ledger.commits import LEDGER_FILE, InputFile
from causeway.ledger.ingest.chunks import BadFile
from causeway.ledger.ingest.mapping import ENDINGS, MappingDocument, has_format
from causeway.ledger.ingest.reader import is_appendable_text
from causeway.storage.files import Storage
from causeway.storage.object_store import LocalPlace
from causeway.storage.seals import RangeReader

_READ = 8 << 20
_SECOND = 1_000_000_000


@dataclass(frozen=True)
class SourceFile:
    """A file as of its inspection.

    Attributes:
        storage: Storage of the file.
        path: Its path in the storage.
        name: Its name in rows and messages.
        size: Its length in bytes.
        modified: Modification time, nanoseconds of the Unix epoch.
        inode: Its inode, 0 in an object store.
    """

    storage: Storage
    path: str
    name: str
    size: int
    modified: int
    inode: int = 0

    def open(self) -> IO[bytes] | RangeReader:
        """Open the file.

        Raises:
            BadFile: It was removed, or is no regular file any more.
        """
        place = self.storage.place
        if not isinstance(place, LocalPlace):
            return self.storage.remote(self.path, self.size)
        # O_NONBLOCK: opening a pipe of that name would block forever.
        with self.convert_errors():
            descriptor = os.open(place.full(self.path), os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                raise BadFile(f"{self.name}: is no file any more", "changed")
            return open(descriptor, "rb", buffering=0)

    @contextlib.contextmanager
    def convert_errors(self) -> Iterator[None]:
        """Convert errors of the file system in a ``with`` block to ``BadFile``."""
        try:
            yield
        except FileNotFoundError:
            raise BadFile(f"{self.name}: is gone", "gone") from None
        except OSError as error:
            raise BadFile(f"{self.name}: cannot be read: {error.strerror or error}", "not_read") from None

    def check_unchanged(self, *, appended: bool = False) -> None:
        """Check that the content is unchanged.

        Args:
            appended: Appended data is allowed.

        Raises:
            BadFile: The file was removed or changed.
        """
        now = inspect_file(self.storage, self.path)
        if now is None:
            raise BadFile(f"{self.name}: is gone", "gone")
        same = (now.size, now.modified) == (self.size, self.modified) or (appended and now.size > self.size)
        if now.inode != self.inode or not same:
            raise BadFile(f"{self.name}: changed while it was read; run again", "changed")

    def digest(self, start: int = 0, end: int | None = None, digest: Any = None) -> Any:
        """Compute the SHA-256 of a range of bytes.

        Args:
            start: First byte.
            end: Byte after the last one; None: the length of the file.
            digest: State to continue, or None.

        Returns:
            The digest state.

        Raises:
            BadFile: The file is unreadable or became shorter.
        """
        digest = hashlib.sha256() if digest is None else digest
        remaining = (self.size if end is None else end) - start
        with self.open() as stream, self.convert_errors():
            stream.seek(start)
            while remaining:
                content = stream.read(min(remaining, _READ))
                if not content:
                    raise BadFile(f"{self.name}: became shorter while it was read; run again", "changed")
                digest.update(content)
                remaining -= len(content)
        return digest


@dataclass(frozen=True)
class PendingInput:
    """Part of a file to ingest.

    Attributes:
        source: The file.
        begin: First byte.
        first: Number of records before it.
        digest: SHA-256 of the whole file, or None.
        final: As of ``FilePart``.
    """

    source: SourceFile
    begin: int = 0
    first: int = 0
    digest: str | None = None
    final: bool = True


def inspect_file(storage: Storage, path: str) -> SourceFile | None:
    """Inspect a file; return None if it is no regular file.

    Args:
        storage: Folder of the file.
        path: Path in the folder.

    Returns:
        The file with its size in bytes and modification time in nanoseconds.
    """
    name = displayed_path(path)
    if isinstance(storage.place, LocalPlace):
        try:
            found = os.stat(storage.place.full(path))
        except OSError:
            return None
        if not stat.S_ISREG(found.st_mode):
            return None
        return SourceFile(storage, path, name, found.st_size, found.st_mtime_ns, found.st_ino)
    size, modified = storage.size(path), storage.modified(path)
    return None if size is None or modified is None else SourceFile(storage, path, name, size, int(modified * _SECOND))


def displayed_path(path: str) -> str:
    """Return a path as UTF-8 without characters that a terminal interprets.

    Args:
        path: Path; it need not be valid UTF-8.

    Returns:
        The path, with escapes for such characters and bytes.
    """
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def locate_source(source: str) -> tuple[Storage, str | None]:
    """Return the folder of a file and its name, or a folder and None.

    Args:
        source: Path or URI of a file or folder.

    Returns:
        The folder, and the name of the file in it or None.

    Raises:
        InvalidInput: The source does not exist or is unsuitable.
    """
    if not source:
        raise InvalidInput("source: empty; give a file, a folder or a URI")
    whole = Storage(source.rstrip("/") or "/")
    if isinstance(whole.place, LocalPlace):
        path = whole.place.root
        if os.path.isdir(path):
            return _no_ledger(whole, source), None
        if not os.path.lexists(path):
            raise InvalidInput(f"{source}: no such file or folder")
        parent, name = os.path.split(path)
        if inspect_file(Storage(parent), name) is None:
            raise InvalidInput(f"{source}: is no file that can be read again: a pipe, a device or a link to nothing")
        return Storage(parent), name
    parent, _, name = whole.uri.rpartition("/")
    if "://" in parent and Storage(parent).size(name) is not None:
        return Storage(parent), name
    return _no_ledger(whole, source), None


def _no_ledger(folder: Storage, source: str) -> Storage:
    if folder.exists(LEDGER_FILE):
        raise InvalidInput(f"{source}: is a ledger; give the files that are to be taken into one")
    return folder


def list_files(folder: Storage, formats: Sequence[str]) -> tuple[list[SourceFile], int]:
    """Return a folder's files of given formats, and the number of others, without dot files.

    Args:
        folder: The folder.
        formats: Names of formats (``ENDINGS``).

    Returns:
        The files, and the number of others.
    """
    if isinstance(folder.place, LocalPlace):
        names = [name for name in folder.list("") if not name.startswith(".")]
        inspected = [inspect_file(folder, name) if has_format(formats, name) else None for name in names]
        return [source for source in inspected if source is not None], inspected.count(None)
    listed = [each for each in folder.place.sizes("") if not each[0].startswith(".")]
    found = [
        SourceFile(folder, name, displayed_path(name), size, int(modified * _SECOND))
        for name, size, modified in listed
        if has_format(formats, name)
    ]
    return found, len(listed) - len(found)


def find_sources(source: str, mapping: MappingDocument) -> tuple[list[SourceFile], int]:
    """Find the files of a source.

    Args:
        source: Path or URI of a file or folder.
        mapping: The mapping.

    Returns:
        The files by name, and the number of other files in a folder.

    Raises:
        InvalidInput: There are no files.
    """
    folder, name = locate_source(source)
    if name is not None:
        found = inspect_file(folder, name)
        if found is None:
            raise InvalidInput(f"{source}: is gone")
        return [found], 0
    files, others = list_files(folder, mapping.format)
    if not files:
        raise no_files_error(source, mapping)
    return files, others


def no_files_error(source: str, mapping: MappingDocument) -> InvalidInput:
    """Return the error for a source without files.

    Args:
        source: Path or URI, as the user gave it.
        mapping: Meaning of the records, with the formats of files.

    Returns:
        The error, not raised.
    """
    endings = ", ".join(ending for each in mapping.format for ending in ENDINGS[each])
    return InvalidInput(f"{source}: no files of format {' or '.join(mapping.format)} ({endings})")


class IngestHistory:
    """Input that one mapping ingested before."""

    def __init__(self, inputs: Iterable[InputFile], mapping: str) -> None:
        self._digests: set[bytes] = set()
        self._sizes: Counter[int] = Counter()
        self._named: dict[str, list[InputFile]] = {}
        self._mapping = mapping
        for each in inputs:
            self.add(each)

    def add(self, ingested: InputFile) -> None:
        """Add an input; it replaces an earlier, shorter input of the same file."""
        if ingested.mapping != self._mapping:
            return
        named = self._named.setdefault(ingested.file, [])
        for before in named if ingested.goes_on else []:
            if before.bytes == ingested.goes_on:
                named.remove(before)
                self._digests.discard(bytes.fromhex(before.sha256))
                self._sizes[before.bytes] -= 1
                break
        named.append(ingested)
        self._digests.add(bytes.fromhex(ingested.sha256))
        self._sizes[ingested.bytes] += 1

    def is_fully_ingested(self, source: SourceFile) -> bool:
        """Return True if a file was ingested completely, by name, length and time."""
        return any(
            (each.bytes, each.modified) == (source.size, source.modified) for each in self._named.get(source.name, ())
        )

    def find_new(
        self, sources: Sequence[SourceFile], of: MappingDocument
    ) -> tuple[list[PendingInput], dict[str, tuple[str, str]]]:
        """Find the new part of files; of appended files only the appended records.

        Returns:
            Pending input, and by name the unreadable files with reason and text.
        """
        found, failed = list[PendingInput](), dict[str, tuple[str, str]]()
        seen: set[bytes] = set()
        sizes = Counter(source.size for source in sources)
        for source in sources:
            try:
                digest = None
                if self._sizes[source.size] > 0 or sizes[source.size] > 1:
                    content_digest = source.digest()
                    if content_digest.digest() in seen or content_digest.digest() in self._digests:
                        continue
                    seen.add(content_digest.digest())
                    digest = content_digest.hexdigest()
                found.append(self._find_appended(source, of, digest))
            except BadFile as error:
                failed[source.name] = error.reason, str(error)
        return found, failed

    def _find_appended(self, source: SourceFile, of: MappingDocument, digest: str | None) -> PendingInput:
        if is_appendable_text(source.path, of):
            before = [
                each for each in self._named.get(source.name, ()) if each.ends_record and each.bytes < source.size
            ]
            longest = max(before, key=lambda each: each.bytes, default=None)
            if longest is not None and source.digest(0, longest.bytes).hexdigest() == longest.sha256:
                return PendingInput(source, longest.bytes, longest.records, digest)
        return PendingInput(source, 0, 0, digest)


__all__ = [
    "IngestHistory",
    "PendingInput",
    "SourceFile",
    "displayed_path",
    "find_sources",
    "inspect_file",
    "list_files",
    "locate_source",
    "no_files_error",
]
