"""Files that a ledger is made from: which there are, which of them were taken before, and what has changed since."""

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
    """A file, as it was when it was looked at. ``storage``: what it is in, and its ``path`` there; ``name``: what rows
    and messages call it. ``modified``: nanoseconds of the Unix epoch; ``inode``: which file it is, 0 in a store."""

    storage: Storage
    path: str
    name: str
    size: int
    modified: int
    inode: int = 0

    def open(self) -> IO[bytes] | RangeReader:
        """Open it. Raises ``BadFile`` where it is gone, or no file any more."""
        place = self.storage.place
        if not isinstance(place, LocalPlace):
            return self.storage.remote(self.path, self.size)
        # Without O_NONBLOCK a pipe that has taken its name would never be open.
        with self.said():
            descriptor = os.open(place.full(self.path), os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                raise BadFile(f"{self.name}: is no file any more", "changed")
            return open(descriptor, "rb", buffering=0)

    @contextlib.contextmanager
    def said(self) -> Iterator[None]:
        """Say of the errors of a file system in the body what is wrong with the file."""
        try:
            yield
        except FileNotFoundError:
            raise BadFile(f"{self.name}: is gone", "gone") from None
        except OSError as error:
            raise BadFile(f"{self.name}: cannot be read: {error.strerror or error}", "not_read") from None

    def check_unchanged(self, *, appended: bool = False) -> None:
        """Raise ``BadFile`` unless it still holds what it held. ``appended``: that something was is no change."""
        now = inspect_file(self.storage, self.path)
        if now is None:
            raise BadFile(f"{self.name}: is gone", "gone")
        same = (now.size, now.modified) == (self.size, self.modified) or (appended and now.size > self.size)
        if now.inode != self.inode or not same:
            raise BadFile(f"{self.name}: changed while it was read; run again", "changed")

    def digest(self, start: int = 0, end: int | None = None, digest: Any = None) -> Any:
        """Return the SHA-256 of its bytes from one position to another, following on a ``digest``. Raises
        ``BadFile``."""
        digest = hashlib.sha256() if digest is None else digest
        left = (self.size if end is None else end) - start
        with self.open() as stream, self.said():
            stream.seek(start)
            while left:
                content = stream.read(min(left, _READ))
                if not content:
                    raise BadFile(f"{self.name}: became shorter while it was read; run again", "changed")
                digest.update(content)
                left -= len(content)
        return digest


@dataclass(frozen=True)
class PendingInput:
    """What is to be taken of a file: from ``begin`` on, before which ``first`` records stand. ``digest``: the SHA-256
    of the whole, where it is known; ``final``: as of ``Part``."""

    source: SourceFile
    begin: int = 0
    first: int = 0
    digest: str | None = None
    final: bool = True


def inspect_file(storage: Storage, path: str) -> SourceFile | None:
    """Return a file as it is now, None where there is none."""
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
    """Return a path as a text that is UTF-8 and has no characters that a terminal takes for commands."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def locate_source(source: str) -> tuple[Storage, str | None]:
    """Return the folder of a file and its name there, or a folder and None. Raises ``InvalidInput``."""
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
    """Return the files of a folder that are of some formats, by their names, and how many others there are. Those whose
    names begin with a point are neither."""
    if isinstance(folder.place, LocalPlace):
        names = [name for name in folder.list("") if not name.startswith(".")]
        looked = [inspect_file(folder, name) if has_format(formats, name) else None for name in names]
        return [source for source in looked if source is not None], looked.count(None)
    there = [each for each in folder.place.sizes("") if not each[0].startswith(".")]
    found = [
        SourceFile(folder, name, displayed_path(name), size, int(modified * _SECOND))
        for name, size, modified in there
        if has_format(formats, name)
    ]
    return found, len(there) - len(found)


def find_sources(source: str, mapping: MappingDocument) -> tuple[list[SourceFile], int]:
    """Return the files to take, by their names, and how many others a folder has. Raises ``InvalidInput``."""
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
    """Return the error that says that there are none."""
    endings = ", ".join(ending for each in mapping.format for ending in ENDINGS[each])
    return InvalidInput(f"{source}: no files of format {' or '.join(mapping.format)} ({endings})")


class IngestHistory:
    """What was taken before by one mapping."""

    def __init__(self, inputs: Iterable[InputFile], mapping: str) -> None:
        self._digests: set[bytes] = set()
        self._sizes: Counter[int] = Counter()
        self._named: dict[str, list[InputFile]] = {}
        self._mapping = mapping
        for each in inputs:
            self.add(each)

    def add(self, taken: InputFile) -> None:
        """Know one more; it takes the place of what the same file was when less of it had been written."""
        if taken.mapping != self._mapping:
            return
        named = self._named.setdefault(taken.file, [])
        for before in named if taken.goes_on else []:
            if before.bytes == taken.goes_on:
                named.remove(before)
                self._digests.discard(bytes.fromhex(before.sha256))
                self._sizes[before.bytes] -= 1
                break
        named.append(taken)
        self._digests.add(bytes.fromhex(taken.sha256))
        self._sizes[taken.bytes] += 1

    def is_fully_ingested(self, source: SourceFile) -> bool:
        """Return whether a file was taken whole, to judge by its name, length and time."""
        return any(
            (each.bytes, each.modified) == (source.size, source.modified) for each in self._named.get(source.name, ())
        )

    def find_new(
        self, sources: Sequence[SourceFile], of: MappingDocument
    ) -> tuple[list[PendingInput], dict[str, tuple[str, str]]]:
        """Return what is new in files: of one that has grown by whole records, what was appended; and by name those
        that cannot be read, with the reason and a text."""
        found, failed = list[PendingInput](), dict[str, tuple[str, str]]()
        seen: set[bytes] = set()
        sizes = Counter(source.size for source in sources)
        for source in sources:
            try:
                digest = None
                if self._sizes[source.size] > 0 or sizes[source.size] > 1:
                    made = source.digest()
                    if made.digest() in seen or made.digest() in self._digests:
                        continue
                    seen.add(made.digest())
                    digest = made.hexdigest()
                found.append(self._grown(source, of, digest))
            except BadFile as error:
                failed[source.name] = error.reason, str(error)
        return found, failed

    def _grown(self, source: SourceFile, of: MappingDocument, digest: str | None) -> PendingInput:
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
