"""Files of recorded traffic, read piece by piece: what is in memory is a few pieces, however long a file is.

A file is read whole or in parts, in any order and by any process: its records are the same, with the same numbers.
"""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from causeway.ingest.chunks import (
    CHUNK,
    MOST_RECORD,
    BadFile,
    Piece,
    Stream,
    line_end,
    pieces,
    record_count,
    unpacked,
    unpacked_name,
)
from causeway.ingest.columns import Columns, csv_columns, header_of, json_columns
from causeway.ingest.mapping import MappingDocument
from causeway.ingest.naming import names_as_known
from causeway.ingest.parquet import ParquetSource
from causeway.ingest.taking import Plan, Taken, named_columns, plan_for

THREADS = min(os.cpu_count() or 1, 8)

_MARK = b"\xef\xbb\xbf"
"""What some programs write before a text to say that it is UTF-8."""


@dataclass(frozen=True)
class Part:
    """A part of a file: its bytes from ``begin`` to ``end`` (None: the end of the file), of Parquet its row groups.

    ``first``: how many records stand before it; ``records``: how many it has, None: that is not known; ``final``:
    whether a record ends where it ends; if not, the last one is left out.
    """

    begin: int = 0
    end: int | None = None
    first: int = 0
    records: int | None = None
    final: bool = True


WHOLE = Part()


def is_divisible(file: str) -> bool:
    """Return whether parts of a file can be read by themselves: it is not packed."""
    return unpacked_name(file) == file


def is_text(file: str, mapping: MappingDocument) -> bool:
    """Return whether a file is text that is not packed, to which more may be appended."""
    return mapping.format_of(file) != "parquet" and is_divisible(file)


def take_file(
    stream: Stream,
    file: str,
    size: int,
    mapping: MappingDocument,
    chunk: int = CHUNK,
    part: Part = WHOLE,
    threads: int = THREADS,
    then: Callable[[Taken], Taken] | None = None,
) -> Iterator[Taken]:
    """Yield what becomes of the records of a file, or of a part of it, in their order.

    ``stream``: its bytes, from the beginning on (of Parquet, and of a part: one that can be moved in); ``file``: its
    name; ``size``: its length; ``then``: what the threads make of each piece of it. Raises ``BadFile`` for a file that
    is not of the mapping's format, or lacks a column.
    """
    if mapping.format_of(file) == "parquet":
        known = partial(names_as_known, mapping=mapping, where=file)
        source = ParquetSource(stream, file, size, named_columns(mapping), known)
        plan = plan_for(mapping, file, source.names)
        groups = source.columns(plan.columns, part.begin, source.groups if part.end is None else part.end)
        for taken in _in_threads(groups, plan.take if then is None else lambda found: then(plan.take(found)), threads):
            yield taken.moved(part.first)
        return
    content = unpacked(stream, file, size)
    separator = _separator(file, mapping)
    names, rest, begin = _header(content, file, mapping)
    plan = plan_for(mapping, file, names)
    columns = _columns_of(plan, names)
    if part.begin:
        stream.seek(part.begin)
        rest, begin = b"", part.begin
    source_end = None if part.end is None else part.end - begin
    found = pieces(_Continued(rest, content, source_end), separator, chunk, at=begin, final=part.final)
    before = part.first

    def take(piece: Piece) -> Taken:
        taken = replace(plan.take(columns(piece)), end=piece.end)
        return taken if then is None else then(taken)

    for taken in _in_threads(found, take, threads):
        yield taken.moved(before)
        before += taken.records


def parts_of(stream: Stream, file: str, size: int, mapping: MappingDocument, most: int) -> list[Part]:
    """Return the parts that a file is cut into, each of about ``most`` bytes: one, where it cannot be cut.

    Arguments and errors as of ``take_file``. All of a text is read for it, and nothing of it is looked at but where its
    records end.
    """
    if size <= most or not is_divisible(file):
        return [WHOLE]
    if mapping.format_of(file) == "parquet":
        return _groups_of(ParquetSource(stream, file, size), most)
    separator = _separator(file, mapping)
    _, rest, at = _header(stream, file, mapping)
    parts, begin, first, count = [], 0, 0, 0
    for piece in pieces(_Continued(rest, stream, size - at), separator, at=at):
        count += record_count(piece, separator)
        if piece.end - begin >= most:
            parts.append(Part(begin, piece.end, first, count))
            begin, first, count = piece.end, first + count, 0
    if count or not parts:
        parts.append(Part(begin, size, first, count))
    return parts


def _groups_of(source: ParquetSource, most: int) -> list[Part]:
    parts, begin, first = [], 0, 0
    for end in range(1, source.groups + 1):
        if source.bytes(begin, end) >= most or end == source.groups:
            count = source.rows(begin, end)
            parts.append(Part(begin, end, first, count))
            begin, first = end, first + count
    return parts or [WHOLE]


def _separator(file: str, mapping: MappingDocument) -> bytes | None:
    return None if mapping.format_of(file) == "jsonl" else mapping.delimiter.encode()


def _header(content: Stream, file: str, mapping: MappingDocument) -> tuple[list[str] | None, bytes, int]:
    """Return the names of a file's columns (None: it has no header), what was read behind them, and where that
    begins."""
    if mapping.format_of(file) == "jsonl":
        read = content.read(len(_MARK))
        return None, read.removeprefix(_MARK), len(_MARK) if read == _MARK else 0
    read, end, ended = b"", 0, False
    while not end and not ended:
        more = content.read(1 << 16)
        read, ended = read + more, not more
        end = line_end(read, ended=ended)
        if not end and len(read) > MOST_RECORD:
            raise BadFile(f"{file}: its first line is longer than {MOST_RECORD:,} bytes", "too_large")
    if not read.strip():
        raise BadFile(f"{file}: empty; a CSV file begins with the names of its columns", "empty")
    end = end or len(read)
    names = header_of(read[:end].rstrip(b"\r\n"), mapping.delimiter, file)
    return names_as_known(names, mapping, file), read[end:], end


def _columns_of(plan: Plan, names: list[str] | None) -> Callable[[Piece], Columns]:
    if names is None:
        return partial(json_columns, wanted=plan.columns, loose=plan.mapping.names == "loose")
    named = named_columns(plan.mapping)
    return partial(csv_columns, names=names, wanted=plan.columns, delimiter=plan.mapping.delimiter, named=named)


def _in_threads(
    found: Iterator[Piece] | Iterator[Columns], take: Callable[..., Taken], threads: int
) -> Iterator[Taken]:
    """Take pieces in threads, a few ahead, and yield what becomes of them in their order."""
    if threads < 2:
        yield from map(take, found)
        return
    with ThreadPoolExecutor(threads, "causeway-ingest") as pool:
        waiting: deque[Future[Taken]] = deque()
        ended = False
        while True:
            while not ended and len(waiting) <= threads:
                piece = next(found, None)
                ended = piece is None
                if piece is not None:
                    waiting.append(pool.submit(take, piece))
            if not waiting:
                return
            yield waiting.popleft().result()


class _Continued(io.RawIOBase):
    """Some bytes, and then those of a stream, so many in all (None: all)."""

    def __init__(self, begin: bytes, stream: Stream, size: int | None) -> None:
        super().__init__()
        self._begin, self._stream, self._left = begin, stream, size

    def read(self, size: int | None = -1) -> bytes:
        wanted = -1 if size is None else size
        if self._left is not None:
            wanted = self._left if wanted < 0 else min(wanted, self._left)
        if not wanted:
            return b""
        if self._begin:
            cut = len(self._begin) if wanted < 0 else wanted
            found, self._begin = self._begin[:cut], self._begin[cut:]
        else:
            found = self._stream.read(wanted)
        if self._left is not None:
            self._left -= len(found)
        return found


__all__ = ["WHOLE", "Part", "is_divisible", "is_text", "parts_of", "take_file"]
