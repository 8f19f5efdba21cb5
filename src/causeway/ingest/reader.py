"""Files of recorded traffic, read piece by piece: what is in memory is a few pieces, however long a file is."""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from causeway.ingest.chunks import CHUNK, MOST_RECORD, Piece, Stream, pieces, unpacked, unpacked_name
from causeway.ingest.columns import Columns, csv_columns, header_of, json_columns, parquet_columns
from causeway.ingest.mapping import MappingDocument
from causeway.ingest.taking import Plan, Taken, plan_for
from causeway.model.errors import InvalidInput

ENDINGS = {"csv": (".csv",), "jsonl": (".jsonl", ".ndjson", ".json"), "parquet": (".parquet",)}
"""How names of files of a format end, that are packed in addition with .gz, .bz2 or .zst."""

THREADS = min(os.cpu_count() or 1, 8)


def is_of(format_name: str, file: str) -> bool:
    """Return whether a file of a folder is of a format, by its name."""
    return unpacked_name(file).lower().endswith(ENDINGS[format_name])


def take_file(stream: Stream, file: str, size: int, mapping: MappingDocument, chunk: int = CHUNK) -> Iterator[Taken]:
    """Yield what becomes of the records of a file, in their order.

    ``stream``: its bytes (of Parquet: one that can be moved in); ``file``: its name; ``size``: its length. Raises
    ``InvalidInput`` for a file that is not of the mapping's format, or lacks a column.
    """
    if mapping.format == "parquet":
        yield from _parquet(stream, file, mapping)
        return
    content = unpacked(stream, file, size)
    if mapping.format == "jsonl":
        plan = plan_for(mapping, file, None)
        yield from _taken(pieces(content, None, chunk), partial(json_columns, wanted=plan.columns), plan)
        return
    header, rest = _first_line(content, file)
    names = header_of(header, mapping.delimiter, file)
    plan = plan_for(mapping, file, names)
    columns = partial(csv_columns, names=names, wanted=plan.columns, delimiter=mapping.delimiter)
    yield from _taken(pieces(_Continued(rest, content), mapping.delimiter.encode(), chunk), columns, plan)


def _taken(found: Iterator[Piece], columns: Callable[[Piece], Columns], plan: Plan) -> Iterator[Taken]:
    """Read pieces in threads, a few ahead, and yield what becomes of them in their order."""

    def take(piece: Piece) -> Taken:
        return plan.take(columns(piece))

    before = 0
    with ThreadPoolExecutor(THREADS, "causeway-ingest") as pool:
        waiting: deque[Future[Taken]] = deque()
        ended = False
        while True:
            while not ended and len(waiting) <= THREADS:
                piece = next(found, None)
                ended = piece is None
                if piece is not None:
                    waiting.append(pool.submit(take, piece))
            if not waiting:
                return
            taken = waiting.popleft().result()
            yield taken.moved(before)
            before += taken.records


def _parquet(stream: Stream, file: str, mapping: MappingDocument) -> Iterator[Taken]:
    try:
        opened = pq.ParquetFile(pa.PythonFile(stream, mode="r"), thrift_container_size_limit=1 << 20)
    except (pa.ArrowException, OSError) as error:
        raise InvalidInput(f"{file}: cannot be read as Parquet: {str(error).splitlines()[0]}") from None
    plan = plan_for(mapping, file, opened.schema_arrow.names)
    for records in parquet_columns(opened, plan.columns, file):
        yield plan.take(records)


def _first_line(content: Stream, file: str) -> tuple[bytes, bytes]:
    """Return the first line of a file, and what was read behind it."""
    read = b""
    while b"\n" not in read:
        more = content.read(1 << 16)
        if not more:
            if not read.strip():
                raise InvalidInput(f"{file}: empty; a CSV file begins with the names of its columns")
            break
        read += more
        if len(read) > MOST_RECORD:
            raise InvalidInput(f"{file}: its first line is longer than {MOST_RECORD:,} bytes")
    line, _, rest = read.partition(b"\n")
    return line.rstrip(b"\r"), rest


class _Continued(io.RawIOBase):
    """Some bytes, and then those of a stream."""

    def __init__(self, begin: bytes, stream: Stream) -> None:
        super().__init__()
        self._begin, self._stream = begin, stream

    def read(self, size: int | None = -1) -> bytes:
        begin, self._begin = self._begin, b""
        return begin or self._stream.read(-1 if size is None else size)


__all__ = ["ENDINGS", "is_of", "take_file"]
