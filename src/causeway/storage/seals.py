"""Seals: the length of a file and the digests of its pieces, to verify what a reader uses.

A piece has ``PIECE`` bytes. So any part of a large file can be verified without the rest: the pieces that it touches
are read and compared, and exactly the verified bytes are used. The digest is XXH3 with 128 bits, which takes a tenth of
the time to copy a file out of the page cache; SHA-256 takes seven times that time. It detects accidents, not forgers:
an attacker who can replace a file of a lake can replace the manifest that names it. Manifests are chained by SHA-256,
so one digest stored elsewhere pins their whole history.

A lake or a ledger may be untrusted, and files that it names are read and removed. So paths in its files are validated
when they are parsed: each stays below its folder.
"""

from __future__ import annotations

import errno
import io
from collections.abc import Callable, Sequence
from typing import IO, Any, TypeAlias

import xxhash

__all__ = ["DATA_FOLDERS", "MAX_PATH", "FileTooLong", "NotRegularFile", "OutsideRoot", "confine_path", "stays_below"]

PIECE = 1 << 20
"""Number of bytes with a digest of their own."""

_DIGITS = 32
"""Hexadecimal digits of a digest."""

Seal: TypeAlias = tuple[int, str]
"""Length of a file in bytes, and the concatenated digests of its pieces in hexadecimal."""


MISSING = "is missing"
"""Damage text of a missing file."""


class FileDamaged(Exception):
    """A file is missing or corrupted. ``path``: the file; ``what``: the damage."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path} {what}")
        self.path, self.what = path, what


def seal_content(content: bytes) -> Seal:
    """Return the seal of a content.

    Args:
        content: The bytes of a file.
    """
    sealing = SealBuilder()
    sealing.update(content)
    return sealing.seal()


def digest_part(content: Any) -> str:
    """Return the digest of a part of a file that is verified separately.

    Args:
        content: Bytes of the part.
    """
    return xxhash.xxh3_128_hexdigest(content)


class SealBuilder:
    """Computes the seal of a byte stream."""

    def __init__(self) -> None:
        self._length = 0
        self._digests: list[str] = []
        self._piece = xxhash.xxh3_128()

    def update(self, content: Any) -> None:
        """Add the next bytes (any buffer)."""
        view = memoryview(content).cast("B")
        while len(view):
            remaining = PIECE - self._length % PIECE
            chunk = view[:remaining]
            self._piece.update(chunk)
            self._length += len(chunk)
            if len(chunk) == remaining:
                self._digests.append(self._piece.hexdigest())
                self._piece.reset()
            view = view[remaining:]

    def seal(self) -> Seal:
        """Return the seal of all bytes so far."""
        last = [self._piece.hexdigest()] if self._length % PIECE else []
        return self._length, "".join([*self._digests, *last])


def parse_seal(content: Any) -> Seal:
    """Parse a seal from JSON.

    Args:
        content: List of length and digests.

    Raises:
        ValueError: It is no seal.
    """
    length, digests = content if isinstance(content, list | tuple) and len(content) == 2 else (None, None)
    if type(length) is not int or not isinstance(digests, str) or len(digests) != -(-length // PIECE) * _DIGITS:
        raise ValueError(f"{content!r:.80} is no length with digests")
    return length, digests


def check_pieces(path: str, seal: Seal, first: int, content: Any) -> None:
    """Verify whole pieces of a file.

    Args:
        path: Path of the file, for errors.
        seal: Seal of the file.
        first: Number of the first piece.
        content: Bytes of the pieces.

    Raises:
        FileDamaged: The content differs.
    """
    view = memoryview(content).cast("B")
    for number, start in enumerate(range(0, len(view), PIECE), start=first):
        found = xxhash.xxh3_128_hexdigest(view[start : start + PIECE])
        if found != seal[1][number * _DIGITS : (number + 1) * _DIGITS]:
            first_byte, last_byte = number * PIECE, min((number + 1) * PIECE, seal[0]) - 1
            raise FileDamaged(path, f"has other bytes than were written, among bytes {first_byte} to {last_byte}")


def check_length(path: str, seal: Seal, length: int) -> None:
    """Verify the length of a file. Raises ``FileDamaged``."""
    if length != seal[0]:
        raise FileDamaged(path, f"has {length} bytes where {seal[0]} were written")


def check_whole(path: str, seal: Seal, content: Any) -> None:
    """Verify a whole file. Raises ``FileDamaged``."""
    check_length(path, seal, len(content))
    check_pieces(path, seal, 0, content)


def check_part(path: str, start: int, end: int, digest: str, content: Any) -> None:
    """Verify a part of a file by its digest.

    Args:
        path: Path of the file, for errors.
        start: First byte of the part.
        end: End of the part.
        digest: Digest of the part (``digest_part``).
        content: Bytes of the part.

    Raises:
        FileDamaged: The content differs.
    """
    if len(content) != end - start:
        raise FileDamaged(path, f"ends before byte {end} that was written")
    if digest_part(content) != digest:
        raise FileDamaged(path, f"has other bytes than were written, among bytes {start} to {end - 1}")


class SealingWriter(io.RawIOBase):
    """A sequential writer that computes the seal."""

    def __init__(self, sink: IO[bytes]) -> None:
        super().__init__()
        self._sink, self._sealing = sink, SealBuilder()
        self._position = self._cut = 0
        self._part = xxhash.xxh3_128()

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, content: Any) -> int:
        """Write bytes."""
        self._sealing.update(content)
        self._part.update(content)
        self._sink.write(content)
        length = memoryview(content).nbytes
        self._position += length
        return length

    def cut(self) -> tuple[int, int, str]:
        """Return first byte, end and digest of the bytes since the last cut."""
        part = self._cut, self._position, self._part.hexdigest()
        self._cut, self._part = self._position, xxhash.xxh3_128()
        return part

    def seal(self) -> Seal:
        """Return the seal of all bytes so far."""
        return self._sealing.seal()


class RangeReader(io.RawIOBase):
    """A file of known length, read a range at a time.

    ``read_range`` returns the bytes of a range as any buffer; it may raise ``FileDamaged``.
    """

    def __init__(self, length: int, read_range: Callable[[int, int], Any]) -> None:
        super().__init__()
        self._length, self._read_range, self._position = length, read_range, 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the position."""
        self._position = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._length}[whence] + offset
        return self._position

    def read(self, size: int | None = -1) -> Any:
        """Return the next bytes."""
        start = min(self._position, self._length)
        end = self._length if size is None or size < 0 else min(start + size, self._length)
        if end <= start:
            return b""
        found = self._read_range(start, end)
        self._position = start + len(found)
        return found


def part_reader(path: str, length: int, start: int, content: bytes) -> RangeReader:
    """Return a file with one verified part in memory.

    Args:
        path: Path of the file, for errors.
        length: Length of the whole file in bytes.
        start: First byte of the part.
        content: Bytes of the part.
    """
    view, stop = memoryview(content), start + len(content)

    def between(first: int, end: int) -> memoryview:
        if first < start or end > stop:
            raise FileDamaged(path, f"has columns beyond bytes {start} to {stop}")
        return view[first - start : end - start]

    return RangeReader(length, between)


class SealedReader(RangeReader):
    """A file read in parts, each verified against its seal.

    ``read_range`` returns the bytes of a range.
    """

    def __init__(self, path: str, seal: Seal, read_range: Callable[[int, int], bytes]) -> None:
        super().__init__(seal[0], self._between)
        self._path, self._seal, self._read_stored = path, seal, read_range
        self._last_piece: tuple[int, bytes] = (0, b"")

    def _between(self, start: int, end: int) -> bytes:
        first, content = self._pieces_over(start, end)
        offset = first * PIECE
        return content[start - offset : end - offset]

    def _pieces_over(self, start: int, end: int) -> tuple[int, bytes]:
        """Return the whole pieces that cover a range: number of the first, and their bytes."""
        cached_first, cached = self._last_piece
        if cached_first * PIECE <= start and end <= cached_first * PIECE + len(cached):
            return self._last_piece
        first, last = start // PIECE, (end - 1) // PIECE
        begin, stop = first * PIECE, min((last + 1) * PIECE, self._seal[0])
        content = self._read_stored(begin, stop)
        if len(content) != stop - begin:
            raise FileDamaged(self._path, f"ends before byte {stop} of {self._seal[0]} that were written")
        check_pieces(self._path, self._seal, first, content)
        # Columns are adjacent: the next one begins in the last piece of this one.
        self._last_piece = (last, content[(last - first) * PIECE :])
        return first, content


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
