"""Batched reads of packet recordings: CSV, Parquet or JSON lines with declared columns.

Memory is bounded by a batch, whatever the size of the file. ``RecordingColumn`` converts foreign columns to exact
values: whole numbers, text, times and bytes. Errors name column, row and value.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.fs as pa_fs
import pyarrow.json as pa_json
import pyarrow.parquet as pq
from causeway_proofs.errors import InvalidInput
from causeway_proofs.order import U64

from causeway.core.text import format_value
from causeway.scenarios.traffic_settings import RecordedSection

_TIMESTAMP = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}:?[0-9]{2})?)?$"
)
_LARGEST = str(2**64 - 1)


class RecordingColumn:
    """A column of a batch, with its name and row numbers for errors."""

    def __init__(self, values: pa.Array, name: str, rows: npt.NDArray[np.int64], file: str) -> None:
        """Wrap a column.

        Args:
            values: Values of the column.
            name: Name of the column.
            rows: Row number of each value in the file, from 1.
            file: The file.
        """
        self.values = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
        self.name = name
        self._rows = rows
        self._file = file

    def texts(self) -> pa.Array:
        """Return the values as non-empty text; whole numbers become their digits."""
        kind = self.values.type
        if not (_is_text(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
            raise self._wrong_type("text")
        values = self.values.cast(pa.string())
        self._require_none(pc.equal(pc.fill_null(values, ""), ""), "is empty")
        return values

    def optional_texts(self) -> pa.Array:
        """Return the values as text, null where empty."""
        values = self.values.cast(pa.string())
        return pc.if_else(pc.equal(values, ""), pa.scalar(None, pa.string()), values)

    def contents(self) -> pa.Array:
        """Return the values as bytes: text in UTF-8; null becomes empty."""
        kind = self.values.type
        if not (_is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
            raise self._wrong_type("text or bytes")
        return pc.fill_null(self.values.cast(pa.binary()), b"")

    def whole_numbers(self) -> U64:
        """Return the values as exact numbers from 0 to 2**64 - 1."""
        kind = self.values.type
        if _is_text(kind):
            return self._parsed(self.values.cast(pa.string()))
        if pa.types.is_null(kind):
            self._require_none(self.values.is_null(), "is empty")
        if not (pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
            raise self._wrong_type("whole numbers")
        self._require_none(self.values.is_null(), "is empty")
        if not pa.types.is_unsigned_integer(kind):
            self._require_none(pc.less(self.values, pa.scalar(0).cast(kind)), "must not be negative")
        try:
            return np.asarray(self.values.cast(pa.uint64()).to_numpy(zero_copy_only=False), dtype=np.uint64)
        except pa.ArrowInvalid as error:
            raise InvalidInput(
                f"{self._file}: column {self.name}: not whole numbers up to 2**64 - 1: {error}"
            ) from None

    def microseconds(self) -> U64:
        """Return timestamps or ISO 8601 text as microseconds since 1970, in UTC without a zone."""
        values = self.values
        kind = values.type
        if pa.types.is_integer(kind) or (_is_text(kind) and self._all_digits()):
            raise InvalidInput(
                f"{self._file}: column {self.name} holds whole numbers, not timestamps; "
                "use traffic.blocks_per_tick instead of traffic.seconds_per_tick"
            )
        if _is_text(kind):
            values = self._timestamps()
        elif not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
            raise self._wrong_type("timestamps")
        self._require_none(values.is_null(), "is empty")
        numbers = values.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
        self._require_none(pc.less(numbers, 0), "must not be before 1970")
        return np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.uint64)

    def _parsed(self, texts: pa.Array) -> U64:
        filled = pc.utf8_trim_whitespace(pc.fill_null(texts, ""))
        self._require_none(pc.equal(filled, ""), "is empty")
        self._require_none(pc.match_substring_regex(filled, r"^-[0-9]"), "must not be negative")
        digits = pc.utf8_ltrim(filled, characters="0")
        short = pc.less_equal(pc.utf8_length(digits), len(_LARGEST) - 1)
        fits = pc.or_(short, pc.and_(pc.equal(pc.utf8_length(digits), len(_LARGEST)), pc.less_equal(digits, _LARGEST)))
        good = pc.and_(pc.match_substring_regex(filled, r"^[0-9]+$"), fits)
        self._require_none(pc.invert(good), "must be a whole number from 0 to 2**64 - 1")
        return np.asarray(filled.cast(pa.uint64()).to_numpy(zero_copy_only=False), dtype=np.uint64)

    def _all_digits(self) -> bool:
        texts = pc.drop_null(self.values.cast(pa.string()))
        return len(texts) > 0 and bool(pc.all(pc.match_substring_regex(texts, r"^[0-9]+$")).as_py())

    def _timestamps(self) -> pa.Array:
        texts = pc.utf8_trim_whitespace(self.values.cast(pa.string()))
        self._require_none(pc.equal(pc.fill_null(texts, ""), ""), "is empty")
        zoned = pc.match_substring_regex(texts, r"(Z|[+-][0-9]{2}:?[0-9]{2})$")
        good = pc.match_substring_regex(texts, _TIMESTAMP)
        self._require_none(pc.invert(good), "must be a timestamp such as 2024-10-06T12:31:37Z, at most microseconds")
        full = pc.if_else(zoned, texts, pc.binary_join_element_wise(texts, pa.scalar("Z"), ""))
        try:
            return full.cast(pa.timestamp("us", "UTC"))
        except pa.ArrowInvalid as error:
            raise InvalidInput(f"{self._file}: column {self.name}: {error}") from None

    def _require_none(self, bad: pa.Array, text: str) -> None:
        """Raise an error for the first value where ``bad`` is true."""
        index = pc.index(bad, pa.scalar(True)).as_py()
        if index >= 0:
            value = self.values[index].as_py()
            shown = "" if value in (None, "") else f"{format_value(value)} "
            raise InvalidInput(f"{self._file}: row {int(self._rows[index])}: {self.name}: {shown}{text}")

    def _wrong_type(self, wanted: str) -> InvalidInput:
        return InvalidInput(f"{self._file}: column {self.name} has type {self.values.type}, but {wanted} are needed")


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


PACKETS_SCHEMA = pa.schema(
    [
        pa.field("chain", pa.string(), nullable=False),
        pa.field("end", pa.string(), nullable=False),
        pa.field("destination", pa.string()),
        pa.field("time", pa.uint64(), nullable=False),
        pa.field("body", pa.binary(), nullable=False),
    ]
)
"""One row a packet. ``time``: blocks, or microseconds for a timestamp."""

BATCH_ROWS = 65_536
PIECE_ROWS = 4_000_000
_BLOCK_BYTES = 8 * 1024 * 1024
_EDGE_BYTES = 1024 * 1024
_ENDINGS = {"parquet": "parquet", "csv": "csv", "jsonl": "jsonl", "ndjson": "jsonl", "json": "jsonl"}


@dataclass(frozen=True)
class RecordingPiece:
    """A part of a recording read by one task: a file, or row groups of a Parquet file.

    Attributes:
        file: Path or URI.
        format: ``parquet``, ``csv`` or ``jsonl``.
        groups: Row groups; empty for the whole file.
        first_row: Number of rows of the file before the piece.
    """

    file: str
    format: str
    groups: tuple[int, ...] = ()
    first_row: int = 0


def file_system(path: str) -> tuple[pa_fs.FileSystem, str]:
    """Return the file system of a path or URI, and the path within it."""
    if "://" in path:
        try:
            system, inside = pa_fs.FileSystem.from_uri(path)
        except (pa.ArrowInvalid, OSError) as error:
            raise InvalidInput(f"{path}: cannot be reached: {_one_line(error)}") from None
        return system, inside
    return pa_fs.LocalFileSystem(), path


def split_recording(section: RecordedSection) -> list[RecordingPiece]:
    """Split a recording into pieces, by file name, then by row group.

    Args:
        section: Settings of the recording.

    Raises:
        InvalidInput: A file's format is unknown, or it cannot be read.
    """
    pieces: list[RecordingPiece] = []
    for file in _files(section.path or ""):
        ending = file.rsplit(".", 1)[-1].lower()
        kind = section.format or _ENDINGS.get(ending)
        if kind is None:
            raise InvalidInput(f"{file}: format not known by the ending; set traffic.format to parquet, csv or jsonl")
        if kind == "parquet":
            pieces += _parquet_pieces(file)
        else:
            pieces.append(RecordingPiece(file, kind))
    return pieces


def fingerprint_files(path: str) -> list[list[str | int]]:
    """Return name, size and a digest of both ends of each file, to identify a recording."""
    found: list[list[str | int]] = []
    for file in _files(path):
        system, inside = file_system(file)
        size = system.get_file_info(inside).size
        with system.open_input_file(inside) as stream:
            digest = hashlib.sha256(stream.read(_EDGE_BYTES))
            if size > _EDGE_BYTES:
                stream.seek(max(_EDGE_BYTES, size - _EDGE_BYTES))
                digest.update(stream.read(_EDGE_BYTES))
        found.append([file.rsplit("/", 1)[-1], size, digest.hexdigest()])
    return found


def read_packets(piece: RecordingPiece, section: RecordedSection) -> Iterator[pa.Table]:
    """Read a piece in order.

    Args:
        piece: The piece.
        section: Settings of the recording.

    Yields:
        Tables of ``PACKETS_SCHEMA``.

    Raises:
        InvalidInput: A value is invalid; the text names file, row, column and value.
    """
    seen = piece.first_row
    try:
        for batch in _batches(piece, _needed_columns(section)):
            rows = np.arange(seen + 1, seen + 1 + batch.num_rows, dtype=np.int64)
            seen += batch.num_rows
            yield _normalize(batch, rows, piece.file, section)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OSError) as error:
        raise InvalidInput(f"{piece.file}: cannot be read as {piece.format}: {_one_line(error)}") from None


def _normalize(batch: pa.RecordBatch, rows: npt.NDArray[np.int64], file: str, section: RecordedSection) -> pa.Table:
    names = section.columns
    if section.where:
        keep = np.ones(batch.num_rows, dtype=np.bool_)
        for name, value in section.where.items():
            same = pc.equal(RecordingColumn(batch.column(name), name, rows, file).values.cast(pa.string()), value)
            keep &= np.asarray(pc.fill_null(same, False).to_numpy(zero_copy_only=False))
        batch, rows = batch.filter(pa.array(keep)), rows[keep]

    def column(name: str) -> RecordingColumn:
        return RecordingColumn(batch.column(name), name, rows, file)

    ends = column(names.source_end).texts()
    sequences = column(names.sequence).whole_numbers()
    time = column(names.time)
    if section.seconds_per_tick is not None:
        times = time.microseconds()
    elif pa.types.is_timestamp(time.values.type):
        raise InvalidInput(f"{file}: column {time.name} holds timestamps; set traffic.seconds_per_tick")
    else:
        times = time.whole_numbers()
    if names.source_chain is not None:
        chains = column(names.source_chain).texts()
    else:
        chains = pa.repeat(pa.scalar(section.source_chain or ""), batch.num_rows)
    destinations = pa.nulls(batch.num_rows, pa.string())
    if names.destination is not None:
        destinations = column(names.destination).optional_texts()
    if names.payload is not None:
        bodies = column(names.payload).contents()
    else:
        bodies = pc.binary_join_element_wise(ends, pa.array(sequences).cast(pa.string()), "/").cast(pa.binary())
    return pa.Table.from_arrays([chains, ends, destinations, pa.array(times), bodies], schema=PACKETS_SCHEMA)


def _needed_columns(section: RecordedSection) -> dict[str, str]:
    """Return the needed columns with the scenario key of each."""
    names = section.columns.model_dump()
    wanted = {name: f"traffic.columns.{key}" for key, name in names.items() if name is not None}
    return wanted | {name: f"traffic.where.{name}" for name in section.where}


def _check_columns(wanted: dict[str, str], present: list[str], file: str) -> None:
    for name, key in wanted.items():
        if name not in present:
            raise InvalidInput(f'{file}: no column "{name}" ({key}); the file has {", ".join(present) or "no columns"}')


def _batches(piece: RecordingPiece, wanted: dict[str, str]) -> Iterator[pa.RecordBatch]:
    system, inside = file_system(piece.file)
    if piece.format == "parquet":
        with pq.ParquetFile(system.open_input_file(inside)) as file:
            _check_columns(wanted, file.schema_arrow.names, piece.file)
            yield from file.iter_batches(BATCH_ROWS, row_groups=list(piece.groups), columns=list(wanted))
    elif piece.format == "csv":
        yield from _csv_batches(system, inside, piece.file, wanted)
    else:
        yield from _json_batches(system, inside, piece.file, wanted)


def _csv_batches(system: pa_fs.FileSystem, inside: str, file: str, wanted: dict[str, str]) -> Iterator[pa.RecordBatch]:
    options = pa_csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False)
    with system.open_input_stream(inside) as stream, pa_csv.open_csv(stream, read_options=options) as reader:
        _check_columns(wanted, reader.schema.names, file)
    texts = pa_csv.ConvertOptions(
        include_columns=list(wanted), column_types=dict.fromkeys(wanted, pa.string()), strings_can_be_null=False
    )
    with (
        system.open_input_stream(inside) as stream,
        pa_csv.open_csv(stream, read_options=options, convert_options=texts) as reader,
    ):
        yield from reader


def _json_batches(system: pa_fs.FileSystem, inside: str, file: str, wanted: dict[str, str]) -> Iterator[pa.RecordBatch]:
    options = pa_json.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False)
    with system.open_input_stream(inside) as stream:
        schema = pa_json.open_json(stream, read_options=options).schema
    _check_columns(wanted, schema.names, file)
    fields = [schema.field(name) for name in wanted]
    parse = pa_json.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore")
    with system.open_input_stream(inside) as stream:
        yield from pa_json.open_json(stream, read_options=options, parse_options=parse)


def _parquet_pieces(file: str) -> list[RecordingPiece]:
    system, inside = file_system(file)
    try:
        with pq.ParquetFile(system.open_input_file(inside)) as opened:
            metadata = opened.metadata
            sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    except (pa.ArrowInvalid, OSError) as error:
        raise InvalidInput(f"{file}: cannot be read as parquet: {_one_line(error)}") from None
    pieces: list[RecordingPiece] = []
    groups: list[int] = []
    first = rows = 0
    for group, size in enumerate(sizes):
        groups.append(group)
        rows += size
        if rows >= PIECE_ROWS or group == len(sizes) - 1:
            pieces.append(RecordingPiece(file, "parquet", tuple(groups), first))
            first, rows, groups = first + rows, 0, []
    return pieces


def _files(path: str) -> list[str]:
    """Return the files of a recording, by name."""
    system, inside = file_system(path)
    info = system.get_file_info(inside)
    if info.type == pa_fs.FileType.NotFound:
        raise InvalidInput(f"{path}: no such recording (traffic.path)")
    if info.type == pa_fs.FileType.File:
        return [path]
    found = system.get_file_info(pa_fs.FileSelector(inside, recursive=True))
    inner = sorted(entry.path for entry in found if entry.type == pa_fs.FileType.File)
    names = [name[len(inside) :].lstrip("/") for name in inner if not name.rsplit("/", 1)[-1].startswith((".", "_"))]
    if not names:
        raise InvalidInput(f"{path}: the folder holds no files (traffic.path)")
    return [f"{path.rstrip('/')}/{name}" for name in names]


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
