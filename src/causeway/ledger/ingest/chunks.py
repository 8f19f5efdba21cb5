"""Split files into pieces of whole CSV records or lines, a few megabytes each.

Input is bounded before parsing: a record longer than ``MAX_RECORD`` is rejected, and a compressed file that expands too
much is refused.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.errors import InvalidInput

CHUNK = 8 << 20
"""Size of a piece, in bytes; it may exceed it by one record."""

MAX_RECORD = 1 << 20
"""Maximum size of a line or record, in bytes."""

MAX_RECORDS = 1 << 16
"""Maximum number of records of a piece: short ones need more memory as rows than as bytes."""

MAX_TIMES = 300
"""Maximum expansion factor of compressed files and of Parquet texts, beyond ``FREE_BYTES``."""

FREE_BYTES = 32 << 20
MAX_EXCERPT = 1000
_FEED, _RETURN = 10, 13
_LINE_END, _LAST_LINE_END = re.compile(rb"\r?\n|\r(?=[^\n])"), re.compile(rb"\r?\n|\r")
_PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


class ByteStream(Protocol):
    """A stream of bytes."""

    def read(self, size: int = ..., /) -> bytes:
        """Read at most ``size`` bytes; none at the end."""

    def tell(self) -> int:
        """Return the number of bytes read."""

    def seek(self, offset: int, whence: int = ..., /) -> int:
        """Move to a position."""


class BadFile(InvalidInput):
    """An unreadable file.

    Attributes:
        reason: Name of the reason.
    """

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True)
class RecordPiece:
    """Whole records of a file.

    Attributes:
        content: Their bytes.
        broken: Reason of rejection; then ``content`` is the begin of one record.
        end: End of the piece in its file, in bytes.
        ends: End of each record in ``content``, or None.
    """

    content: bytes
    broken: str | None = None
    end: int = 0
    ends: npt.NDArray[np.int64] | None = None


def decompressed_name(name: str) -> str:
    """Return a file name without the ending of its compression.

    Args:
        name: File name or path.

    Returns:
        The name without ``.gz``, ``.bz2`` or ``.zst``.
    """
    ending = next((ending for ending in _PACKED if name.endswith(ending)), "")
    return name.removesuffix(ending)


def open_decompressed(stream: ByteStream, name: str, size: int) -> ByteStream:
    """Open a file for decompression according to its name; other files are returned unchanged.

    Args:
        stream: The file.
        name: Its name.
        size: Its length in bytes.

    Returns:
        A stream of the decompressed bytes.
    """
    for ending, codec in _PACKED.items():
        if name.endswith(ending):
            return _BoundedStream(pa.CompressedInputStream(pa.PythonFile(stream, mode="r"), codec), name, size)
    return stream


class _BoundedStream(io.RawIOBase):
    def __init__(self, stream: Any, name: str, size: int) -> None:
        super().__init__()
        self._stream, self._name, self._left = stream, name, size * MAX_TIMES + FREE_BYTES

    def read(self, size: int | None = -1) -> bytes:
        try:
            found: bytes = self._stream.read(size)
        except OSError as error:
            raise BadFile(f"{self._name}: cannot be unpacked: {error}", "not_packed") from None
        self._left -= len(found)
        if self._left < 0:
            text = f"{self._name}: becomes more than {MAX_TIMES} times its size when unpacked; refused"
            raise BadFile(text, "too_large")
        return found


def read_pieces(
    stream: ByteStream, separator: bytes | None, chunk: int = CHUNK, *, at: int = 0, final: bool = True
) -> Iterator[RecordPiece]:
    """Yield the records of a stream in pieces.

    Args:
        stream: The stream, read to its end.
        separator: Field separator of CSV, whose quoted fields may hold line ends; None: a record is a line.
        chunk: Number of bytes to read at once.
        at: Position of the stream in its file.
        final: The end of the stream is the end of a record. Otherwise the remainder after the last end is dropped.
    """
    for piece in _pieces(stream, separator, chunk, at, final=final):
        yield from _cut(piece, separator)


def _cut(piece: RecordPiece, separator: bytes | None) -> Iterator[RecordPiece]:
    """Split a piece into pieces of at most ``MAX_RECORDS`` records."""
    content = piece.content
    if piece.broken is not None:
        yield piece
        return
    ends = find_record_ends(content, separator)
    if len(ends) <= MAX_RECORDS:
        yield replace(piece, ends=ends)
        return
    cuts = ends[MAX_RECORDS - 1 :: MAX_RECORDS].tolist()
    begin, before = 0, piece.end - len(content)
    for end in [*(end for end in cuts if end < len(content)), len(content)]:
        yield RecordPiece(content[begin:end], None, before + end)
        begin = end


def _pieces(stream: ByteStream, separator: bytes | None, chunk: int, at: int, *, final: bool) -> Iterator[RecordPiece]:
    rest, ended = b"", False
    while not ended:
        read = stream.read(chunk)
        ended = not read
        whole = _plain_end(rest, read, separator)
        if whole:
            yield RecordPiece(b"".join((rest, memoryview(read)[:whole])), None, at + len(rest) + whole)
            rest, at = read[whole:], at + len(rest) + whole
            continue
        rest += read
        found, used = _split(rest, separator, at)
        yield from found
        rest, at = rest[used:], at + used
        while len(rest) > MAX_RECORD or (ended and final and rest):
            # The record has no end, or an unclosed quote: reject its first line, and read on after it. The last record
            # needs no line end, but must close its quotes.
            line, before = _line_end(rest, 0, separator, ended=ended), at
            if len(rest) <= MAX_RECORD and not (line and _is_open(rest, separator)):
                yield RecordPiece(rest, None, at + len(rest))
                return
            shown = _shown(rest, 0, line or len(rest))
            while not line:
                pending_return = rest[-1:] if rest.endswith(b"\r") else b""  # a line feed may follow
                at += len(rest) - len(pending_return)
                rest = stream.read(chunk)
                if not rest:
                    if final:
                        yield RecordPiece(shown, "too_long", at + len(pending_return))
                    return
                rest = pending_return + rest
                line = _line_end(rest, 0, separator)
            rest, at = rest[line:], at + line
            yield RecordPiece(shown, _reason(at - before), at)
            found, used = _split(rest, separator, at)
            yield from found
            rest, at = rest[used:], at + used


def _plain_end(rest: bytes, read: bytes, separator: bytes | None) -> int:
    """Return the end of the last record in new data, if all records are short lines.

    ``rest`` precedes the data. 0 means that a full scan is needed.
    """
    whole = read.rfind(b"\n") + 1
    first, left = len(rest) + read.find(b"\n") + 1, len(read) - whole
    if not whole or max(first, left) > MAX_RECORD or _has_long(read):
        return 0
    return whole if _is_plain(read, separator) and (not rest or _is_plain(rest, separator)) else 0


def _split(content: bytes, separator: bytes | None, at: int) -> tuple[list[RecordPiece], int]:
    """Split off complete records; return pieces and their total size.

    Of an overlong record only the first line is rejected: the cause may be an unclosed quote.
    """
    found: list[RecordPiece] = []
    begin = 0
    while True:
        part = content[begin:] if begin else content
        if _is_plain(part, separator) and not _has_long(part):
            whole = part.rfind(b"\n") + 1
            if whole:
                found.append(RecordPiece(part[:whole], None, at + begin + whole))
            return found, begin + whole
        ends = find_record_ends(part, separator)
        if len(ends) and part[ends[-1] - 1] == _RETURN and ends[-1] == len(part):
            ends = ends[:-1]  # a line feed may follow
        long = np.flatnonzero(np.diff(ends, prepend=0) > MAX_RECORD)
        if not len(long):
            whole = int(ends[-1]) if len(ends) else 0
            if whole:
                found.append(RecordPiece(part[:whole], None, at + begin + whole))
            return found, begin + whole
        start = int(ends[long[0] - 1]) if long[0] else 0
        if start:
            found.append(RecordPiece(part[:start], None, at + begin + start))
        line = _line_end(part, start, separator)
        found.append(RecordPiece(_shown(part, start, line), _reason(line - start), at + begin + line))
        begin += line


def _line_end(content: bytes, start: int, separator: bytes | None, *, ended: bool = False) -> int:
    """Return the end of the line at ``start``, 0: none. ``ended``: no data follows."""
    if separator is None:
        return content.find(b"\n", start) + 1
    return find_line_end(content, start, ended=ended)


def find_line_end(content: bytes, start: int = 0, *, ended: bool = False) -> int:
    """Return the end of the CSV line at ``start``, 0: none. ``ended``: no data follows.

    Args:
        content: Bytes of a CSV file.
        start: Position of the line in ``content``, in bytes.
        ended: ``content`` goes to the end of the file.

    Returns:
        Position after the line end, in bytes.
    """
    found = (_LAST_LINE_END if ended else _LINE_END).search(content, start)
    return 0 if found is None else found.end()


def _shown(content: bytes, start: int, end: int) -> bytes:
    return content[start : min(end, start + MAX_EXCERPT)].rstrip(b"\r\n")


def _reason(line: int) -> str:
    """Return the reason to reject a record, given the length of its first line."""
    return "too_long" if line > MAX_RECORD else "open_quote"


def _is_open(content: bytes, separator: bytes | None) -> bool:
    """Return True if a quote is open at the end."""
    return separator is not None and b'"' in content and bool(_places(content, separator)[1])


def _is_plain(content: bytes, separator: bytes | None) -> bool:
    """Return True if records end with lines and line feeds."""
    if separator is None:
        return True
    return b'"' not in content and (b"\r" not in content or content.count(b"\r") == content.count(b"\r\n"))


def find_record_ends(content: bytes, separator: bytes | None) -> npt.NDArray[np.int64]:
    """Return the end of each record, after its line end.

    In CSV a lone carriage return is a line end as well. ``separator``: as of ``read_pieces``.

    Args:
        content: Whole records; the last one may have no line end.
        separator: Field separator of CSV; None: a record is a line.

    Returns:
        Positions in bytes, ascending, int64; a last record without line end has none.
    """
    if separator is None or _is_plain(content, separator):
        return np.flatnonzero(np.frombuffer(content, dtype=np.uint8) == _FEED) + 1
    return _places(content, separator)[0]


def _places(content: bytes, separator: bytes) -> tuple[npt.NDArray[np.int64], int]:
    from causeway.ledger.ingest.text_loops import record_ends as find_ends

    most = content.count(b"\n") + content.count(b"\r")
    ends = np.empty(most + 1, dtype=np.int64)
    data = np.frombuffer(content, dtype=np.uint8)
    found = find_ends(data, np.frombuffer(separator, dtype=np.uint8), ends)
    return ends[:found], int(ends[most])


def count_records(piece: RecordPiece, separator: bytes | None) -> int:
    """Return the number of records of a piece; ``separator``: as of ``read_pieces``.

    Args:
        piece: Whole records of a file.
        separator: Field separator of CSV; None: a record is a line.

    Returns:
        Number of records; a broken piece counts as one.
    """
    content = piece.content
    if piece.broken is not None:
        return 1
    if _is_plain(content, separator):
        return content.count(b"\n") + (not content.endswith(b"\n"))
    ends = find_record_ends(content, separator)
    return len(ends) + int((int(ends[-1]) if len(ends) else 0) < len(content))


def _has_long(content: bytes) -> bool:
    """Return True if a terminated line is too long."""
    begin = 0
    while len(content) - begin > MAX_RECORD:
        begin = content.rfind(b"\n", begin, begin + MAX_RECORD) + 1
        if begin == 0:
            return b"\n" in content
    return False


__all__ = [
    "MAX_EXCERPT",
    "MAX_RECORD",
    "BadFile",
    "ByteStream",
    "RecordPiece",
    "count_records",
    "decompressed_name",
    "find_line_end",
    "find_record_ends",
    "open_decompressed",
    "read_pieces",
]  # fmt: skip
