"""Read files of recorded traffic in pieces, with bounded memory.

A file is read whole or in parts, in any order and process: records and their numbers are the same.
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
"""UTF-8 byte order mark."""


@dataclass(frozen=True)
class FilePart:
    """A part of a file.

    Attributes:
        begin: First byte, or row group of Parquet.
        end: Byte or row group after the last one; None: the end of the file.
        first: Number of records before it.
        records: Number of its records, or None.
        final: Its end is the end of a record; otherwise the last record is left out.
    """

    begin: int = 0
    end: int | None = None
    first: int = 0
    records: int | None = None
    final: bool = True


WHOLE_FILE = FilePart()


def is_divisible(file: str) -> bool:
    """Return True if parts of a file can be read separately: it is not compressed.

    Args:
        file: File name.

    Returns:
        True without an ending of compression.
    """
    return decompressed_name(file) == file


def is_appendable_text(file: str, mapping: MappingDocument) -> bool:
    """Return True if a file is uncompressed text that may grow.

    Args:
        file: File name.
        mapping: Meaning of the records, with the formats of files.

    Returns:
        True for CSV and JSON lines without compression.
    """
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
    """Convert the records of a file, or of a part of it, in order.

    Args:
        stream: The file; seekable for Parquet and parts.
        file: Its name.
        size: Its length in bytes.
        mapping: Meaning of the records.
        chunk: Number of bytes to read at once.
        part: The part.
        threads: Number of threads.
        then: Applied to each piece in its thread.

    Yields:
        Rows of the ledger, a piece at a time.

    Raises:
        BadFile: The file does not fit the mapping.
    """
    if mapping.file_format(file) == "parquet":
        known = partial(match_names, mapping=mapping, where=file)
        source = ParquetSource(stream, file, size, dictionary_columns(mapping), known)
        plan = plan_reading(mapping, file, source.names)
        groups = source.columns(plan.columns, part.begin, source.groups if part.end is None else part.end)
        for ingested in _in_threads(
            groups, plan.take if then is None else lambda found: then(plan.take(found)), threads
        ):
            yield ingested.moved(part.first)
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
    found = read_pieces(_PrefixedStream(rest, content, source_end), separator, chunk, at=begin, final=part.final)
    before = part.first

    def ingest_piece(piece: RecordPiece) -> IngestedRecords:
        ingested = replace(plan.take(columns(piece)), end=piece.end)
        return ingested if then is None else then(ingested)

    for ingested in _in_threads(found, ingest_piece, threads):
        yield ingested.moved(before)
        before += ingested.records


def split_file(stream: ByteStream, file: str, size: int, mapping: MappingDocument, most: int) -> list[FilePart]:
    """Split a file into parts of about ``most`` bytes; an indivisible file is one part.

    Text is read once to find the ends of records.

    Args:
        stream: The file.
        file: Its name.
        size: Its length in bytes.
        mapping: Meaning of the records.
        most: Size of a part, in bytes.

    Returns:
        The parts.

    Raises:
        BadFile: The file is unreadable.
    """
    if size <= most or not is_divisible(file):
        return [WHOLE_FILE]
    if mapping.file_format(file) == "parquet":
        return _groups_of(ParquetSource(stream, file, size), most)
    separator = _separator(file, mapping)
    _, rest, at = _header(stream, file, mapping)
    parts, begin, first, count = [], 0, 0, 0
    for piece in read_pieces(_PrefixedStream(rest, stream, size - at), separator, at=at):
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
    """Return the column names (None: no header), the bytes read after them, and their position."""
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
    """Process pieces in threads, a few ahead, and yield the results in order."""
    if threads < 2:
        yield from map(take, found)
        return
    with ThreadPoolExecutor(threads, "causeway-ingest") as pool:
        pending: deque[Future[IngestedRecords]] = deque()
        ended = False
        while True:
            while not ended and len(pending) <= threads:
                piece = next(found, None)
                ended = piece is None
                if piece is not None:
                    pending.append(pool.submit(take, piece))
            if not pending:
                return
            yield pending.popleft().result()


class _PrefixedStream(io.RawIOBase):
    """Some bytes followed by a stream, up to a total size (None: unlimited)."""

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
