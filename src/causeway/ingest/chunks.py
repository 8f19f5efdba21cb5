"""Pieces of files: whole records of CSV or lines, a few megabytes at a time, whatever the file holds.

Bounded before anything is parsed: a record that is longer than ``MOST_RECORD`` is set aside, a packed file that becomes
much larger than it was is refused.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from causeway.model.errors import InvalidInput

CHUNK = 8 << 20
"""Bytes of a piece, or one record more."""

MOST_RECORD = 1 << 20
"""Bytes of a line or record."""

MOST_TIMES = 300
"""So many times its size a packed file becomes at most, beyond ``FREE_BYTES``."""

FREE_BYTES = 256 << 20
SHOWN = 1000
_PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


class Stream(Protocol):
    """Bytes that are read from their beginning on."""

    def read(self, size: int = ..., /) -> bytes:
        """Return at most so many bytes, none at the end."""

    def tell(self) -> int:
        """Return how many bytes were read."""


@dataclass(frozen=True)
class Piece:
    """Whole records. ``broken``: it is the beginning of a record that is too long."""

    content: bytes
    broken: bool = False


def unpacked_name(name: str) -> str:
    """Return the name of what is in a packed file."""
    ending = next((ending for ending in _PACKED if name.endswith(ending)), "")
    return name.removesuffix(ending)


def unpacked(stream: Stream, name: str, size: int) -> Stream:
    """Return what is in a file that is packed, by its name, or the file itself. ``size``: of the file."""
    for ending, codec in _PACKED.items():
        if name.endswith(ending):
            return _Bounded(pa.CompressedInputStream(pa.PythonFile(stream, mode="r"), codec), name, size)
    return stream


class _Bounded(io.RawIOBase):
    def __init__(self, stream: Any, name: str, size: int) -> None:
        super().__init__()
        self._stream, self._name, self._left = stream, name, size * MOST_TIMES + FREE_BYTES

    def read(self, size: int | None = -1) -> bytes:
        try:
            found: bytes = self._stream.read(size)
        except OSError as error:
            raise InvalidInput(f"{self._name}: cannot be unpacked: {error}") from None
        self._left -= len(found)
        if self._left < 0:
            raise InvalidInput(f"{self._name}: becomes more than {MOST_TIMES} times its size when unpacked; refused")
        return found


def pieces(stream: Stream, separator: bytes | None, chunk: int = CHUNK) -> Iterator[Piece]:
    """Yield the records of a stream in pieces. ``separator``: of the fields of CSV, whose quoted fields may hold ends
    of lines; None: a record is a line."""
    rest, ended = b"", False
    while not ended:
        read = stream.read(chunk)
        ended = not read
        rest += read
        end = len(rest) if ended else _whole(rest, separator)
        if end:
            yield from _without_long(rest[:end], separator)
            rest = rest[end:]
        while len(rest) > MOST_RECORD:
            # One record and no end of it: its first line goes, and what follows is read anew.
            yield Piece(rest[:SHOWN], broken=True)
            place = rest.find(b"\n")
            while place < 0:
                rest = stream.read(chunk)
                if not rest:
                    return
                place = rest.find(b"\n")
            rest = rest[place + 1 :]
            end = _whole(rest, separator)
            if end:
                yield from _without_long(rest[:end], separator)
                rest = rest[end:]


def _whole(content: bytes, separator: bytes | None) -> int:
    """Return where the last whole record ends."""
    if separator is None or b'"' not in content:
        return content.rfind(b"\n") + 1
    ends = record_places(content, separator)
    return int(ends[-1]) if len(ends) else 0


def record_places(content: bytes, separator: bytes) -> Any:
    """Return where each record of CSV ends, behind its end of line."""
    from causeway.ingest.text_loops import record_ends

    ends = np.empty(content.count(b"\n"), dtype=np.int64)
    data = np.frombuffer(content, dtype=np.uint8)
    return ends[: record_ends(data, np.frombuffer(separator, dtype=np.uint8), ends)]


def line_places(content: bytes) -> Any:
    """Return where each line ends, behind its end of line."""
    return np.flatnonzero(np.frombuffer(content, dtype=np.uint8) == 10) + 1


def _has_long(content: bytes) -> bool:
    """Return whether a line is too long."""
    begin = 0
    while len(content) - begin > MOST_RECORD:
        begin = content.rfind(b"\n", begin, begin + MOST_RECORD) + 1
        if begin == 0:
            return True
    return False


def _without_long(content: bytes, separator: bytes | None) -> Iterator[Piece]:
    """Yield whole records, and those that are too long as such."""
    quoted = separator is not None and b'"' in content
    if not quoted and not _has_long(content):
        if content:
            yield Piece(content)
        return
    ends = record_places(content, separator or b",") if quoted else line_places(content)
    if not len(ends) or ends[-1] < len(content):
        ends = np.append(ends, len(content))
    long = np.flatnonzero(np.diff(ends, prepend=0) > MOST_RECORD)
    begin = 0
    for place in long.tolist():
        start = int(ends[place - 1]) if place else 0
        if start > begin:
            yield Piece(content[begin:start])
        yield Piece(content[start : start + SHOWN], broken=True)
        begin = int(ends[place])
        if quoted and separator is not None and (line := content.find(b"\n", start, begin) + 1):
            # Perhaps a quote that nobody closed: only its first line goes.
            yield from _without_long(content[line:begin], separator)
    if begin < len(content):
        yield Piece(content[begin:])


__all__ = [
    "MOST_RECORD",
    "SHOWN",
    "Piece",
    "Stream",
    "line_places",
    "pieces",
    "record_places",
    "unpacked",
    "unpacked_name",
]
