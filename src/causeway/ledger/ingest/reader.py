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

from causeway.ledger.ingest.chunks import (
    CHUNK,
    MAX_RECORD,
    BadFile,
    ByteStream,
    RecordPiece,
    count_records,
    decompressed_name,
    find_line_end,
    open_decompressed,
    read_pieces,
)
from causeway.ledger.ingest.columns import RecordColumns, match_names, parse_csv, parse_json_lines, read_csv_header
from causeway.ledger.ingest.mapping import MappingDocument
from causeway.ledger.ingest.parquet import ParquetSource
from causeway.ledger.ingest.records import IngestedRecords, ReadPlan, dictionary_columns, plan_reading

THREADS = min(os.cpu_count() or 1, 8)

_MARK = b"\xef\xbb\xbf"
"""What some programs write before a text to say that it is UTF-8."""


@dataclass(frozen=True)
class FilePart:
    """A part of a file: its bytes from ``begin`` to ``end`` (None: the end of the file), of Parquet its row groups.

    ``first``: how many records stand before it; ``records``: how many it has, None: that is not known; ``final``:
    whether a record ends where it ends; if not, the last one is left out.
    """

    begin: int = 0
    end: int | None = None
    first: int = 0
    records: int | None = None
    final: bool = True


WHOLE_FILE = FilePart()


def is_divisible(file: str) -> bool:
    """Return whether parts of a file can be read by themselves: it is not packed."""
    return decompressed_name(file) == file


def is_appendable_text(file: str, mapping: MappingDocument) -> bool:
    """Return whether a file is text that is not packed, to which more may be appended."""
    return mapping.file_format(file) != "parquet" and is_divisible(file)


def ingest_file(
    stream: ByteStream,
    file: str,
    size: int,
    mapping: MappingDocument,
    chunk: int = CHUNK,
    part: FilePart = WHOLE_FILE,
    threads: int = THREADS,
    then: Callable[[IngestedRecords], IngestedRecords] | None = None,
) -> Iterator[IngestedRecords]:
    """Yield what becomes of the records of a file, or of a part of it, in their order.

    ``stream``: its bytes, from the beginning on (of Parquet, and of a part: one that can be moved in); ``file``: its
    name; ``size``: its length; ``then``: what the threads make of each piece of it. Raises ``BadFile`` for a file that
    is not of the mapping's format, or lacks a column.
    """
    if mapping.file_format(file) == "parquet":
        known = partial(match_names, mapping=mapping, where=file)
        source = ParquetSource(stream, file, size, dictionary_columns(mapping), known)
        plan = plan_reading(mapping, file, source.names)
        groups = source.columns(plan.columns, part.begin, source.groups if part.end is None else part.end)
        for taken in _in_threads(groups, plan.take if then is None else lambda found: then(plan.take(found)), threads):
            yield taken.moved(part.first)
        return
    content = open_decompressed(stream, file, size)
    separator = _separator(file, mapping)
    names, rest, begin = _header(content, file, mapping)
    plan = plan_reading(mapping, file, names)
    columns = _columns_of(plan, names)
    if part.begin:
        stream.seek(part.begin)
        rest, begin = b"", part.begin
    source_end = None if part.end is None else part.end - begin
    found = read_pieces(_Continued(rest, content, source_end), separator, chunk, at=begin, final=part.final)
    before = part.first

    def take(piece: RecordPiece) -> IngestedRecords:
        taken = replace(plan.take(columns(piece)), end=piece.end)
        return taken if then is None else then(taken)

    for taken in _in_threads(found, take, threads):
        yield taken.moved(before)
        before += taken.records


def split_file(stream: ByteStream, file: str, size: int, mapping: MappingDocument, most: int) -> list[FilePart]:
    """Return the parts that a file is cut into, each of about ``most`` bytes: one, where it cannot be cut.

    Arguments and errors as of ``take_file``. All of a text is read for it, and nothing of it is looked at but where its
    records end.
    """
    if size <= most or not is_divisible(file):
        return [WHOLE_FILE]
    if mapping.file_format(file) == "parquet":
        return _groups_of(ParquetSource(stream, file, size), most)
    separator = _separator(file, mapping)
    _, rest, at = _header(stream, file, mapping)
    parts, begin, first, count = [], 0, 0, 0
    for piece in read_pieces(_Continued(rest, stream, size - at), separator, at=at):
        count += count_records(piece, separator)
        if piece.end - begin >= most:
            parts.append(FilePart(begin, piece.end, first, count))
            begin, first, count = piece.end, first + count, 0
    if count or not parts:
        parts.append(FilePart(begin, size, first, count))
    return parts


def _groups_of(source: ParquetSource, most: int) -> list[FilePart]:
    parts, begin, first = [], 0, 0
    for end in range(1, source.groups + 1):
        if source.bytes(begin, end) >= most or end == source.groups:
            count = source.rows(begin, end)
            parts.append(FilePart(begin, end, first, count))
            begin, first = end, first + count
    return parts or [WHOLE_FILE]


def _separator(file: str, mapping: MappingDocument) -> bytes | None:
    return None if mapping.file_format(file) == "jsonl" else mapping.delimiter.encode()


def _header(content: ByteStream, file: str, mapping: MappingDocument) -> tuple[list[str] | None, bytes, int]:
    """Return the names of a file's columns (None: it has no header), what was read behind them, and where that
    begins."""
    if mapping.file_format(file) == "jsonl":
        read = content.read(len(_MARK))
        return None, read.removeprefix(_MARK), len(_MARK) if read == _MARK else 0
    read, end, ended = b"", 0, False
    while not end and not ended:
        more = content.read(1 << 16)
        read, ended = read + more, not more
        end = find_line_end(read, ended=ended)
        if not end and len(read) > MAX_RECORD:
            raise BadFile(f"{file}: its first line is longer than {MAX_RECORD:,} bytes", "too_large")
    if not read.strip():
        raise BadFile(f"{file}: empty; a CSV file begins with the names of its columns", "empty")
    end = end or len(read)
    names = read_csv_header(read[:end].rstrip(b"\r\n"), mapping.delimiter, file)
    return match_names(names, mapping, file), read[end:], end


def _columns_of(plan: ReadPlan, names: list[str] | None) -> Callable[[RecordPiece], RecordColumns]:
    if names is None:
        return partial(parse_json_lines, wanted=plan.columns, loose=plan.mapping.names == "loose")
    named = dictionary_columns(plan.mapping)
    return partial(parse_csv, names=names, wanted=plan.columns, delimiter=plan.mapping.delimiter, named=named)


def _in_threads(
    found: Iterator[RecordPiece] | Iterator[RecordColumns], take: Callable[..., IngestedRecords], threads: int
) -> Iterator[IngestedRecords]:
    """Take pieces in threads, a few ahead, and yield what becomes of them in their order."""
    if threads < 2:
        yield from map(take, found)
        return
    with ThreadPoolExecutor(threads, "causeway-ingest") as pool:
        waiting: deque[Future[IngestedRecords]] = deque()
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

    def __init__(self, begin: bytes, stream: ByteStream, size: int | None) -> None:
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


__all__ = ["WHOLE_FILE", "FilePart", "ingest_file", "is_appendable_text", "is_divisible", "split_file"]
