"""Pieces of files: whole records of CSV or lines, a few megabytes at a time, whatever the file holds.

Bounded before anything is parsed: a record that is longer than ``MOST_RECORD`` is set aside, a packed file that becomes
much larger than it was is refused.
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
"""Bytes of a piece, or one record more."""

MAX_RECORD = 1 << 20
"""Bytes of a line or record."""

MAX_RECORDS = 1 << 16
"""Records of a piece: short ones take much more room as rows than as bytes."""

MAX_TIMES = 300
"""So many times its size a packed file becomes at most, and the texts of Parquet, beyond ``FREE_BYTES``."""

FREE_BYTES = 32 << 20
MAX_EXCERPT = 1000
_FEED, _RETURN = 10, 13
_LINE_END, _LAST_LINE_END = re.compile(rb"\r?\n|\r(?=[^\n])"), re.compile(rb"\r?\n|\r")
_PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


class ByteStream(Protocol):
    """Bytes that are read from their beginning on."""

    def read(self, size: int = ..., /) -> bytes:
        """Return at most so many bytes, none at the end."""

    def tell(self) -> int:
        """Return how many bytes were read."""

    def seek(self, offset: int, whence: int = ..., /) -> int:
        """Go to a place."""


class BadFile(InvalidInput):
    """A file that cannot be read at all. ``reason``: its name."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True)
class RecordPiece:
    """Whole records. ``broken``: the name of a reason: it is the beginning of one record, which is set aside.
    ``end``: where it ends in its file; ``ends``: where each record ends in it, if that is known."""

    content: bytes
    broken: str | None = None
    end: int = 0
    ends: npt.NDArray[np.int64] | None = None


def decompressed_name(name: str) -> str:
    """Return the name of what is in a packed file."""
    ending = next((ending for ending in _PACKED if name.endswith(ending)), "")
    return name.removesuffix(ending)


def open_decompressed(stream: ByteStream, name: str, size: int) -> ByteStream:
    """Return what is in a file that is packed, by its name, or the file itself. ``size``: of the file."""
    for ending, codec in _PACKED.items():
        if name.endswith(ending):
            return _Bounded(pa.CompressedInputStream(pa.PythonFile(stream, mode="r"), codec), name, size)
    return stream


class _Bounded(io.RawIOBase):
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
        stream: of which everything is read.
        separator: of the fields of CSV, whose quoted fields may hold ends of lines; None: a record is a line.
        chunk: how many bytes are read at once.
        at: where the stream begins in its file.
        final: whether its end is the end of a record. If not, what stands behind the last end is left out.
    """
    for piece in _pieces(stream, separator, chunk, at, final=final):
        yield from _cut(piece, separator)


def _cut(piece: RecordPiece, separator: bytes | None) -> Iterator[RecordPiece]:
    """Yield a piece in pieces of at most ``MOST_RECORDS``."""
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
            # A record that has no end, or a quote that nobody closed: its first line goes, and what follows is read
            # anew. The last record needs no end, but for a quote.
            line, before = _line_end(rest, 0, separator, ended=ended), at
            if len(rest) <= MAX_RECORD and not (line and _is_open(rest, separator)):
                yield RecordPiece(rest, None, at + len(rest))
                return
            shown = _shown(rest, 0, line or len(rest))
            while not line:
                kept = rest[-1:] if rest.endswith(b"\r") else b""  # perhaps a line feed follows
                at += len(rest) - len(kept)
                rest = stream.read(chunk)
                if not rest:
                    if final:
                        yield RecordPiece(shown, "too_long", at + len(kept))
                    return
                rest = kept + rest
                line = _line_end(rest, 0, separator)
            rest, at = rest[line:], at + line
            yield RecordPiece(shown, _reason(at - before), at)
            found, used = _split(rest, separator, at)
            yield from found
            rest, at = rest[used:], at + used


def _plain_end(rest: bytes, read: bytes, separator: bytes | None) -> int:
    """Return where the last record ends of what was read, where ``rest`` stands before it and records end where lines
    do and are short; 0: perhaps they are not so."""
    whole = read.rfind(b"\n") + 1
    first, left = len(rest) + read.find(b"\n") + 1, len(read) - whole
    if not whole or max(first, left) > MAX_RECORD or _has_long(read):
        return 0
    return whole if _is_plain(read, separator) and (not rest or _is_plain(rest, separator)) else 0


def _split(content: bytes, separator: bytes | None, at: int) -> tuple[list[RecordPiece], int]:
    """Return the whole records at the beginning, those that are too long as such, and how many bytes they are.

    Of a record that is too long its first line is one, and what follows is read anew: perhaps nobody closed a quote.
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
            ends = ends[:-1]  # perhaps a line feed follows
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
    """Return where the line that begins at ``start`` ends, 0: nowhere. ``ended``: nothing follows on the content."""
    if separator is None:
        return content.find(b"\n", start) + 1
    return find_line_end(content, start, ended=ended)


def find_line_end(content: bytes, start: int = 0, *, ended: bool = False) -> int:
    """Return where a line of CSV ends that begins at ``start``, 0: nowhere. ``ended``: nothing follows on it."""
    found = (_LAST_LINE_END if ended else _LINE_END).search(content, start)
    return 0 if found is None else found.end()


def _shown(content: bytes, start: int, end: int) -> bytes:
    return content[start : min(end, start + MAX_EXCERPT)].rstrip(b"\r\n")


def _reason(line: int) -> str:
    """Return why a record is set aside whose first line has so many bytes."""
    return "too_long" if line > MAX_RECORD else "open_quote"


def _is_open(content: bytes, separator: bytes | None) -> bool:
    """Return whether a quote is open at the end."""
    return separator is not None and b'"' in content and bool(_places(content, separator)[1])


def _is_plain(content: bytes, separator: bytes | None) -> bool:
    """Return whether records end where lines do, with a line feed."""
    if separator is None:
        return True
    return b'"' not in content and (b"\r" not in content or content.count(b"\r") == content.count(b"\r\n"))


def find_record_ends(content: bytes, separator: bytes | None) -> npt.NDArray[np.int64]:
    """Return where each record ends, behind its end of line; ``separator`` as of ``pieces``. In CSV a carriage return
    alone is an end of line, too."""
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
    """Return how many records a piece has; ``separator`` as of ``pieces``."""
    content = piece.content
    if piece.broken is not None:
        return 1
    if _is_plain(content, separator):
        return content.count(b"\n") + (not content.endswith(b"\n"))
    ends = find_record_ends(content, separator)
    return len(ends) + int((int(ends[-1]) if len(ends) else 0) < len(content))


def _has_long(content: bytes) -> bool:
    """Return whether a line that has an end is too long."""
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
