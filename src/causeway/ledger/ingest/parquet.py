"""Read rows of Parquet files as columns, with bounded memory for untrusted files.

The footer is parsed here first: Arrow aborts the process on inconsistent column metadata.

Reference: Parquet format, ``parquet.thrift``, in Thrift's compact protocol.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from causeway.core.arrow_types import is_utf8
from causeway.core.text import format_value
from causeway.ledger.encodings import text_slices, valid_mask
from causeway.ledger.ingest.chunks import FREE_BYTES, MAX_TIMES, BadFile, ByteStream
from causeway.ledger.ingest.columns import RecordColumns, decode_text

__all__ = [
    "MAX_FOOTER",
    "READABLE",
    "ROWS_AT_ONCE",
    "ColumnChunk",
    "ParquetSource",
    "RowGroup",
    "format_hex",
    "read_row_groups",
    "to_plain_column",
]

MAGIC = b"PAR1"
MAX_FOOTER = 64 << 20
"""Maximum size of a footer, in bytes."""

_MAX_DEPTH = 32
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _TEXT, _LIST, _SET, _MAP, _STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 11, 12
_WHOLE = (4, 5, 6)
_BYTE_ARRAY, _DELTA_BYTE_ARRAY = 6, 7


@dataclass
class ColumnChunk:
    """A column of a row group.

    Attributes:
        path: Name of the column; names within structs are joined by points.
        packed: Compressed size in bytes.
        unpacked: Uncompressed size in bytes.
        is_text: Values are byte arrays.
        shares: Values are delta-encoded byte arrays (prefix sharing).
        has_dictionary: Values are dictionary-encoded.
    """

    path: str = ""
    packed: int = 0
    unpacked: int = 0
    is_text: bool = False
    shares: bool = False
    has_dictionary: bool = False


@dataclass
class RowGroup:
    """A row group."""

    rows: int = 0
    chunks: list[ColumnChunk] = field(default_factory=list)


def read_row_groups(stream: ByteStream, size: int) -> list[RowGroup]:
    """Read the row groups of a file from its footer.

    Args:
        stream: The file, seekable.
        size: Its length in bytes.

    Returns:
        The row groups.

    Raises:
        ValueError: The footer is invalid; the text is the reason.
    """
    stream.seek(max(size - 8, 0))
    end = stream.read(8)
    if len(end) < 8 or end[4:] != MAGIC:
        raise ValueError("it does not end as a Parquet file does")
    length = int.from_bytes(end[:4], "little")
    if length > min(size - 12, MAX_FOOTER):
        raise ValueError(f"a footer of {length:,} bytes; the file has {size:,}, and a footer {MAX_FOOTER:,} at most")
    stream.seek(size - 8 - length)
    reader = _Reader(stream.read(length))
    found: list[RowGroup] = []
    for number, kind in reader.fields():
        if (number, kind) == (4, _LIST):
            found = [_group(reader, size) for _ in reader.elements(_STRUCT)]
        else:
            reader.skip(kind)
    return found


def _group(reader: _Reader, size: int) -> RowGroup:
    found = RowGroup()
    for number, kind in reader.fields():
        if (number, kind) == (1, _LIST):
            found.chunks = [_chunk(reader, size) for _ in reader.elements(_STRUCT)]
        elif number == 3 and kind in _WHOLE:
            found.rows = reader.whole()
        else:
            reader.skip(kind)
    if found.rows < 0:
        raise ValueError(f"a row group of {found.rows:,} rows")
    return found


def _chunk(reader: _Reader, size: int) -> ColumnChunk:
    found = ColumnChunk()
    for number, kind in reader.fields():
        if (number, kind) == (3, _STRUCT):
            found = _column_metadata(reader, size)
        elif (number, kind) == (1, _TEXT) and reader.text():
            raise ValueError("a column that is in another file")
        elif (number, kind) != (1, _TEXT):
            reader.skip(kind)
    return found


def _column_metadata(reader: _Reader, size: int) -> ColumnChunk:
    found = ColumnChunk()
    for number, kind in reader.fields():
        if number == 1 and kind in _WHOLE:
            found.is_text = reader.whole() == _BYTE_ARRAY
        elif (number, kind) == (2, _LIST):
            found.shares = _DELTA_BYTE_ARRAY in [reader.whole() for _ in reader.elements(*_WHOLE)]
        elif (number, kind) == (3, _LIST):
            found.path = ".".join(reader.text().decode(errors="replace") for _ in reader.elements(_TEXT))
        elif number == 6 and kind in _WHOLE:
            found.unpacked = reader.whole()
        elif number == 7 and kind in _WHOLE:
            found.packed = reader.whole()
        else:
            found.has_dictionary |= number == 11
            reader.skip(kind)
    if not 0 <= found.packed <= size or found.unpacked < 0:
        raise ValueError(f"a column of {found.packed:,} bytes, {found.unpacked:,} unpacked, in a file of {size:,}")
    return found


class _Reader:
    """Reader of Thrift's compact protocol. It always ends: each step consumes at least one byte."""

    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    def byte(self) -> int:
        if self._at >= len(self._content):
            raise ValueError("its footer is cut off")
        self._at += 1
        return self._content[self._at - 1]

    def number(self) -> int:
        """Read an unsigned number of up to 64 bits."""
        found = shift = 0
        while True:
            byte = self.byte()
            found |= (byte & 127) << shift
            if byte < 128:
                return found & (1 << 64) - 1
            shift += 7
            if shift > 63:
                raise ValueError("its footer has a number of more than 64 bits")

    def whole(self) -> int:
        """Read a zigzag-encoded signed number."""
        found = self.number()
        return (found >> 1) ^ -(found & 1)

    def text(self) -> bytes:
        length = self.number()
        self._forward(length)
        return self._content[self._at - length : self._at]

    def fields(self) -> Any:
        """Yield number and type of each field; the caller reads or skips its value."""
        number = 0
        while (head := self.byte()) & 15 != _STOP:
            number = number + (head >> 4) if head >> 4 else self.whole()
            yield number, head & 15

    def elements(self, *kinds: int) -> range:
        """Return the indices of a list with elements of the given types."""
        count, kind = self._list()
        if count and kind not in kinds:
            raise ValueError("its footer has a list of another type")
        return range(count)

    def skip(self, kind: int, depth: int = 0) -> None:
        """Skip a value."""
        if depth > _MAX_DEPTH:
            raise ValueError(f"its footer is nested more than {_MAX_DEPTH} deep")
        if kind in (_TRUE, _FALSE):
            return
        if kind == _BYTE:
            self.byte()
        elif kind in _WHOLE:
            self.number()
        elif kind == _DOUBLE:
            self._forward(8)
        elif kind == _TEXT:
            self._forward(self.number())
        elif kind in (_LIST, _SET):
            count, of = self._list()
            for _ in range(count):
                self.skip(_BYTE if of in (_TRUE, _FALSE) else of, depth + 1)
        elif kind == _MAP:
            count = self._counted(self.number())
            kinds = self.byte() if count else 0
            for _ in range(count):
                self.skip(kinds >> 4, depth + 1)
                self.skip(kinds & 15, depth + 1)
        elif kind == _STRUCT:
            for _, of in self.fields():
                self.skip(of, depth + 1)
        else:
            raise ValueError(f"its footer has a value of type {kind}")

    def _list(self) -> tuple[int, int]:
        head = self.byte()
        return self._counted(self.number() if head >> 4 == 15 else head >> 4), head & 15

    def _counted(self, count: int) -> int:
        if count > len(self._content) - self._at:
            raise ValueError("its footer has a list that is longer than itself")
        return count

    def _forward(self, length: int) -> None:
        if length > len(self._content) - self._at:
            raise ValueError("its footer is cut off")
        self._at += length


ROWS_AT_ONCE = 1 << 16

MAX_ROW_GROUP = 2 << 30
"""Maximum uncompressed size of the columns read of a row group, in bytes."""

MAX_AT_ONCE = 32 << 20
"""Maximum size of texts expanded from a dictionary at once, in bytes."""

ROWS_A_BYTE, FREE_ROWS = 100, 10_000_000
"""Maximum number of rows a byte of a file, beyond ``FREE_ROWS``."""

_FEW = 256
"""Number of rows read at once of a column with prefix sharing."""

_EXACT = 2.0**53
"""A float64 represents every integer below this bound exactly."""

READABLE = "text, whole numbers, decimals without fraction, times, booleans and bytes"
"""Types of columns that a mapping reads, for errors."""


class ParquetSource:
    """An open Parquet file.

    Attributes:
        names: Names of its columns; those within structs are paths, ``origin.chainId``.
    """

    def __init__(
        self,
        stream: ByteStream,
        where: str,
        size: int,
        named: Collection[str] = (),
        known: Callable[[Sequence[str]], list[str]] = list,
    ) -> None:
        """Open a file.

        Args:
            stream: The file, seekable.
            where: Its name.
            size: Its length in bytes.
            named: Columns with few distinct values, read as dictionaries.
            known: Maps the file's column names to the mapping's names.

        Raises:
            BadFile: The file is unreadable.
        """
        self.where, self._stream, self._named = where, stream, named
        self._left = size * MAX_TIMES + FREE_BYTES
        self._groups = self._read_row_groups(size)
        self.file = self._opened([])
        leaves = self._leaves()
        self._types, stored = dict(leaves), [name for name, _ in leaves]
        duplicate = next((name for name, count in Counter(stored).items() if count > 1), None)
        if duplicate is not None:
            text = f"{where}: column {format_value(duplicate)} is there twice; each needs a name of its own"
            raise BadFile(text, "column_twice")
        rows = sum(group.rows for group in self._groups)
        if (self.file.num_row_groups, self.file.metadata.num_rows) != (len(self._groups), rows):
            raise _unreadable(where, f"{rows:,} rows where it says {self.file.metadata.num_rows:,}")
        if rows > FREE_ROWS + ROWS_A_BYTE * size:
            raise BadFile(f"{where}: {rows:,} rows in {size:,} bytes; refused", "too_large")
        self.names = tuple(known(stored))
        self._stored = dict(zip(self.names, stored, strict=True))
        self._coded = frozenset(name for known, name in self._stored.items() if known in named)
        texts = [name for known, name in self._stored.items() if known in named and _is_text(self._types[name])]
        if texts:
            self.file = self._opened(texts)
            self._types = dict(self._leaves())

    def _leaves(self) -> list[tuple[str, pa.DataType]]:
        try:
            found = list(_leaves(self.file.schema_arrow, ""))
            clocks = {kind.tz for _, kind in found if pa.types.is_timestamp(kind)}  # may be invalid UTF-8
            "".join([name for name, _ in found] + [str(clock) for clock in clocks]).encode()
            for clock in clocks:  # detect an unknown time zone here, not at its first row
                pc.strftime(pa.array([0], pa.timestamp("us", clock)))
        except ValueError as error:
            raise _unreadable(self.where, str(error)) from None
        return found

    def _read_row_groups(self, size: int) -> list[RowGroup]:
        try:
            return read_row_groups(self._stream, size)
        except ValueError as error:
            raise _unreadable(self.where, str(error)) from None

    def _opened(self, dictionaries: list[str]) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(
                pa.PythonFile(self._stream, mode="r"),
                read_dictionary=dictionaries,
                pre_buffer=False,
                coerce_int96_timestamp_unit="us",
                thrift_string_size_limit=MAX_FOOTER,
                thrift_container_size_limit=1 << 20,
                schema_depth_limit=100,
            )
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _unreadable(self.where, str(error)) from None

    @property
    def groups(self) -> int:
        """Number of row groups."""
        return len(self._groups)

    def rows(self, first: int, end: int) -> int:
        """Return the declared number of rows in a range of row groups."""
        return sum(group.rows for group in self._groups[first:end])

    def bytes(self, first: int, end: int) -> int:
        """Return the declared compressed size of a range of row groups, in bytes."""
        return sum(chunk.packed for group in self._groups[first:end] for chunk in group.chunks)

    def columns(self, wanted: Collection[str], first: int, end: int) -> Iterator[RecordColumns]:
        """Yield the rows of some row groups in batches, numbered from 1.

        Args:
            wanted: Names of columns.
            first: First row group.
            end: Row group after the last one.

        Raises:
            BadFile: The file is unreadable.
        """
        chosen = {known: name for known, name in self._stored.items() if known in wanted}
        for name in chosen.values():
            if not _readable(self._types[name]):
                kind = self._types[name]
                raise BadFile(f"{self.where}: column {name} is {kind}; a mapping reads {READABLE}", "column_type")
        before = 0
        try:
            for group in range(first, end):
                declared = self.rows(group, group + 1)
                read = 0
                for columns in self._group(group, chosen):
                    yield columns.moved(before + read)
                    read += columns.records
                if read != declared:
                    raise _unreadable(self.where, f"{read:,} rows where it says {declared:,}")
                before += read
        except (pa.ArrowException, OSError, OverflowError, ValueError) as error:
            raise _unreadable(self.where, str(error)) from None

    def _group(self, group: int, chosen: dict[str, str]) -> Iterator[RecordColumns]:
        if not chosen:
            count = self.rows(group, group + 1)
            for start in range(0, count, ROWS_AT_ONCE):
                count_now = min(count - start, ROWS_AT_ONCE)
                yield RecordColumns(np.arange(1, count_now + 1, dtype=np.uint64), {}, count_now)
            return
        stored = list(chosen.values())
        at_once = self._rows_at_once(group, stored)
        for batch in self.file.iter_batches(at_once, row_groups=[group], columns=stored, use_threads=False):
            rows = np.arange(1, batch.num_rows + 1, dtype=np.uint64)
            values = {known: to_plain_column(_within(batch, name)) for known, name in chosen.items()}
            self._left -= sum(_text_bytes(column) for known, column in values.items() if known not in self._named)
            if self._left < 0:
                text = f"{self.where}: its texts become more than {MAX_TIMES} times its size; refused"
                raise BadFile(text, "too_large")
            yield _check_utf8(RecordColumns(rows, values, batch.num_rows))

    def _rows_at_once(self, group: int, chosen: list[str]) -> int:
        """Return the batch size that bounds the texts expanded from dictionaries."""
        size, peeked, few = 0, [], ROWS_AT_ONCE
        for chunk in self._groups[group].chunks:
            if chunk.path not in chosen:
                continue
            size += chunk.unpacked
            if not chunk.is_text:
                continue
            if chunk.shares:
                few = _FEW
            if chunk.has_dictionary and chunk.path not in self._coded:
                peeked.append(chunk.path)
        if size > MAX_ROW_GROUP:
            text = f"{self.where}: a row group of {size:,} bytes; at most {MAX_ROW_GROUP:,} can be read"
            raise BadFile(text, "too_large")
        for path in peeked:
            few = min(few, self._rows_of_dictionary(group, path))
        return few

    def _rows_of_dictionary(self, group: int, path: str) -> int:
        batch = next(self._opened([path]).iter_batches(1, row_groups=[group], columns=[path], use_threads=False), None)
        column = None if batch is None or not batch.num_rows else _within(batch, path)
        if column is None or not pa.types.is_dictionary(column.type):
            return ROWS_AT_ONCE
        longest = pc.max(pc.binary_length(column.dictionary)).as_py() or 1
        return int(min(max(MAX_AT_ONCE // longest, 1), ROWS_AT_ONCE))


def _text_bytes(column: pa.Array) -> int:
    """Return the size of the texts of all rows, with dictionaries expanded."""
    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes) if _is_text(column.type) else 0
    return int(pc.sum(pc.binary_length(column.dictionary).take(column.indices)).as_py() or 0)


def _leaves(fields: pa.Schema | pa.StructType, before: str) -> Iterator[tuple[str, pa.DataType]]:
    for leaf in fields:
        name = f"{before}{leaf.name}"
        if pa.types.is_struct(leaf.type):
            yield from _leaves(leaf.type, f"{name}.")
        else:
            yield name, leaf.type


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind))


def _readable(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    whole = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    text = _is_text(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    octets = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    time = pa.types.is_timestamp(kind) or pa.types.is_date(kind)
    return bool(whole or text or octets or time or pa.types.is_boolean(kind) or pa.types.is_null(kind))


def _within(batch: pa.RecordBatch, path: str) -> pa.Array:
    """Return a column, or a field of nested structs; null where a struct is null."""
    if path in batch.schema.names:
        return batch.column(path)
    first, *others = path.split(".")
    while first not in batch.schema.names:  # the name itself has points
        first, others = f"{first}.{others[0]}", others[1:]
    column = batch.column(first)
    while others:
        step = others.pop(0)
        while column.type.get_field_index(step) < 0:
            step = f"{step}.{others.pop(0)}"
        column = pc.struct_field(column, [column.type.get_field_index(step)])
    return column


def _check_utf8(found: RecordColumns) -> RecordColumns:
    """Return rows with UTF-8 texts only; other rows become broken records."""
    texts = {name: column for name, column in found.values.items() if _is_text(_value_type(column))}
    if all(is_utf8(column) for column in texts.values()):
        return found
    octets = {name: column.cast(pa.string()).cast(pa.binary()) for name, column in texts.items()}
    others = {name: column for name, column in found.values.items() if name not in texts}
    before = found.rows
    checked = decode_text(RecordColumns(before, {}, found.records), octets)
    left = pa.array(np.flatnonzero(np.isin(before, checked.rows)))
    checked.values |= {name: column.take(left) for name, column in others.items()}
    return checked


def _value_type(column: pa.Array) -> pa.DataType:
    return column.type.value_type if pa.types.is_dictionary(column.type) else column.type


def to_plain_column(column: pa.Array) -> pa.Array:
    """Convert a column to texts, times or integers.

    Dictionaries of texts stay dictionaries, and bytes become ``0x`` and digits. Of floats, integers below 2**53 are
    exact; other values become texts that are no integers.

    Args:
        column: Column of a Parquet file, of any type.

    Returns:
        Texts, a dictionary of texts, timestamps or integers; dates become timestamps in microseconds.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        if _is_text(kind.value_type):
            return column
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or _is_text(kind):
        return column
    if pa.types.is_date(kind):
        return column.cast(pa.timestamp("ms")).cast(pa.timestamp("us"))
    if pa.types.is_floating(kind):
        return _whole(column.cast(pa.float64()))
    if pa.types.is_decimal(kind) and kind.scale:
        # Arrow writes a zero of more than six decimal places as 0E-18.
        return pc.replace_substring_regex(column.cast(pa.string()), r"^(-?\d+)\.0+$|^(0)E-\d+$", r"\1\2")
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return format_hex(column.cast(pa.large_binary()))
    return column.cast(pa.string())


def _whole(column: pa.Array) -> pa.Array:
    """Convert floats to integers, or to texts if some have a fraction; NaN becomes null."""
    values = column.fill_null(np.nan).to_numpy(zero_copy_only=False)
    missing = np.isnan(values)
    good = ~missing & (np.abs(values) < _EXACT) & (values == np.floor(np.where(np.isfinite(values), values, 0)))
    numbers = pa.array(np.where(good, values, 0).astype(np.int64), mask=~good)
    if bool((good | missing).all()):
        return numbers
    pairs = zip(missing, values.tolist(), strict=True)
    texts = pa.array(
        [None if absent else repr(value) if abs(value) < _EXACT else f"{value:.16e}" for absent, value in pairs]
    )
    return pc.if_else(pa.array(good), numbers.cast(pa.string()), texts)


_DIGITS = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)


def format_hex(column: pa.LargeBinaryArray) -> pa.Array:
    """Format bytes as ``0x`` and two digits a byte.

    Args:
        column: Bytes, n values.

    Returns:
        Texts (string), null for null.
    """
    data, offsets = text_slices(column)
    lengths = np.where(valid_mask(column), np.diff(offsets), 0)
    ends = np.cumsum(2 * lengths + 2)
    out = np.empty(int(ends[-1]) if len(ends) else 0, dtype=np.uint8)
    starts = ends - 2 * lengths - 2
    out[starts], out[starts + 1] = ord("0"), ord("x")
    within: npt.NDArray[np.int64] = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    octets = data[within + np.repeat(offsets[:-1], lengths)]
    places = np.repeat(starts + 2, lengths) + 2 * within
    out[places], out[places + 1] = _DIGITS[octets >> 4], _DIGITS[octets & 15]
    bounds = np.concatenate([np.zeros(1, dtype=np.int64), ends])
    mask = pa.py_buffer(np.packbits(valid_mask(column), bitorder="little")) if column.null_count else None
    buffers = [mask, pa.py_buffer(bounds), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.large_string(), len(column), buffers).cast(pa.string())


def _unreadable(where: str, why: str) -> BadFile:
    return BadFile(f"{where}: cannot be read as Parquet: {(why.splitlines() or ['no reason given'])[0]}", "not_parquet")
