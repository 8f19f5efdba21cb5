"""Immutable tables for kernels: NumPy arrays for numbers, Arrow arrays for text and bytes.

``take`` and ``filter`` defer the gather of a column to its first read. So a round may permute messages many times and
copies each payload once. A column of one repeated value is a broadcast view with zero strides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Column = Any
"""A NumPy array, or an Arrow array of text, bytes or dictionary-encoded text."""

Rows = npt.NDArray[np.integer[Any]]


class DeferredColumn:
    """A column gathered on first read: ``rows`` of ``source``.

    Rows of rows are composed without reading the source.
    """

    __slots__ = ("_rows", "_source", "_value")

    def __init__(self, source: Column, rows: Rows) -> None:
        self._source: Column = source
        self._rows: Any = rows
        self._value: Column = None

    def __len__(self) -> int:
        return len(self._rows if self._value is None else self._value)

    def gathered(self) -> Column:
        """Gather the column and release the source."""
        if self._value is None:
            self._value = _gather(self._source, self._rows)
            self._source = self._rows = None
        return self._value

    @property
    def pending(self) -> tuple[Column, Rows] | None:
        """Source and rows until the column is gathered, then None."""
        return (self._source, self._rows) if self._value is None else None

    def is_of(self, kind: pa.DataType) -> bool:
        """Return True if the column has an Arrow type and no nulls, without gathering it.

        A deferred column with nulls in other rows of its source returns False.
        """
        source = self._source if self._value is None else self._value
        return not isinstance(source, np.ndarray) and bool(source.type == kind and source.null_count == 0)


def pending_gather(column: Column) -> tuple[Column, Rows] | None:
    """Return source and rows of a column not gathered yet, else None."""
    return column.pending if type(column) is DeferredColumn else None


def _gather(source: Column, rows: Rows) -> Column:
    if isinstance(source, np.ndarray):
        column = source.take(rows, axis=0)
        # Frames share the column.
        column.setflags(write=False)
        return column
    return _TAKE.call([source, pa.array(rows, _ROW_TYPE)], _CHECKED)


_TAKE, _CHECKED, _ROW_TYPE = pc.get_function("array_take"), pc.TakeOptions(boundscheck=True), pa.int64()
"""The kernel of ``Array.take``, without its lookup on every call."""


T = TypeVar("T")


class Frame:
    """An immutable table for kernels: Arrow tables belong to the lake, frames to a round.

    ``frame["name"]`` reads a column. Numbers are NumPy arrays (unsigned where a specification requires it). A column of
    one repeated value may be a broadcast view, which is free to take from or to concatenate. After ``take`` and
    ``filter`` a column is gathered on its first read; ``frame.column("name")`` passes it to another frame without
    gathering.
    """

    __slots__ = ("_columns", "_length")

    def __init__(self, columns: Mapping[str, Column], length: int | None = None) -> None:
        self._columns = dict(columns)
        if length is None:
            length = len(next(iter(self._columns.values()))) if self._columns else 0
        self._length = length
        for name, column in self._columns.items():
            if len(column) != length:
                raise ValueError(f"column {name} has {len(column)} rows, the frame {length}")

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, name: str) -> Column:
        column = self._columns[name]
        if type(column) is DeferredColumn:
            column = self._columns[name] = column.gathered()
        return column

    def column(self, name: str) -> Column:
        """Return a column for another frame; unlike ``frame[name]`` it does not gather it."""
        return self._columns[name]

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def get(self, name: str, default: Any) -> Any:
        """Return column ``name``, or ``default`` if it is absent."""
        return self[name] if name in self._columns else default

    def __repr__(self) -> str:
        return f"Frame({self._length} rows: {', '.join(self._columns)})"

    @property
    def names(self) -> list[str]:
        """Column names in order."""
        return list(self._columns)

    def take(self, rows: Rows) -> Frame:
        """Return the frame of ``rows``, in that order. ``rows`` must not change afterwards."""
        length = len(rows)
        if length == 0:
            # An empty result must not keep the source columns alive.
            if self._length == 0:
                return self
            return _frame({name: _empty_column(column) for name, column in self._columns.items()}, 0)
        composed: dict[int, Rows] = {}
        columns: dict[str, Column] = {}
        for name, column in self._columns.items():
            if type(column) is DeferredColumn:
                inner = column._rows
                if inner is not None:
                    found = composed.get(id(inner))
                    if found is None:
                        found = composed[id(inner)] = inner.take(rows)
                    columns[name] = DeferredColumn(column._source, found)
                    continue
                column = column._value
            if type(column) is np.ndarray and column.strides[0] == 0:
                columns[name] = column[:length] if length <= len(column) else repeat_value(column[0], length)
            else:
                columns[name] = DeferredColumn(column, rows)
        return _frame(columns, length)

    def read_only(self) -> Frame:
        """Return the frame with read-only columns."""
        columns: dict[str, Column] = {}
        for name, column in self._columns.items():
            if isinstance(column, np.ndarray):
                column = column.view()
                column.flags.writeable = False
            columns[name] = column
        return _frame(columns, self._length)

    def filter(self, mask: npt.NDArray[np.bool_]) -> Frame:
        """Return the rows where ``mask`` is true, in order; the frame itself if all are."""
        count = np.count_nonzero(mask)
        if count == len(mask):
            return self
        return self.take(mask.nonzero()[0] if count else _NO_ROWS)

    def slice(self, start: int, stop: int) -> Frame:
        """Return rows ``start`` to ``stop`` - 1 without copying."""
        if stop <= start:
            return self.take(_NO_ROWS)
        sliced: dict[int, Rows] = {}
        columns: dict[str, Column] = {}
        for name, column in self._columns.items():
            pending = pending_gather(column)
            if pending is None:
                columns[name] = self[name][start:stop]
                continue
            source, rows = pending
            if id(rows) not in sliced:
                sliced[id(rows)] = rows[start:stop]
            columns[name] = DeferredColumn(source, sliced[id(rows)])
        return Frame(columns, stop - start)

    def select(self, names: Iterable[str]) -> Frame:
        """Return the frame of some columns, in the order of ``names``."""
        return _frame({name: self._columns[name] for name in names}, self._length)

    def with_columns(self, **columns: Column) -> Frame:
        """Return the frame with columns added or replaced; NumPy and Python scalars are repeated."""
        added = {
            name: column if hasattr(column, "__len__") else repeat_value(column, self._length)
            for name, column in columns.items()
        }
        return Frame({**self._columns, **added}, self._length)

    def to_table(self, schema: pa.Schema) -> pa.Table:
        """Return the Arrow table of the schema's columns."""
        arrays = [_to_arrow(self[name], kind) for name, kind in schema_fields(schema)]
        # From one batch: a table built from arrays takes three times as long.
        return pa.Table.from_batches([pa.RecordBatch.from_arrays(arrays, schema=schema)], schema)

    def changed_since(self, before: Frame) -> FrameChanges | None:
        """Return the changes since an earlier frame, or None if unknown, as for most frames."""
        return None


class FrameChanges(NamedTuple):
    """The difference between a frame and an earlier one, both with unique keys.

    Attributes:
        added: Added rows; their keys were not in the earlier frame.
        gone: Keys of the removed rows.
    """

    added: Frame
    gone: Frame


class LazyFrame(Frame):
    """A frame of ``length`` rows that ``make`` builds on the first read of a column."""

    __slots__ = ("_built", "_make")

    def __init__(self, length: int, make: Callable[[], Frame]) -> None:
        self._length = length
        self._make: Callable[[], Frame] | None = make
        self._built: dict[str, Column] = {}

    @property
    def _columns(self) -> dict[str, Column]:  # type: ignore[override]
        if self._make is not None:
            self._built, self._make = self._make()._columns, None
        return self._built


def _frame(columns: dict[str, Column], length: int) -> Frame:
    """Create a frame from columns of equal length, without a check; it owns the dictionary."""
    frame = Frame.__new__(Frame)
    frame._columns, frame._length = columns, length
    return frame


def from_table(table: pa.Table) -> Frame:
    """Convert an Arrow table: fixed-width columns to NumPy arrays, others to Arrow arrays.

    Args:
        table: The table.
    """
    columns: dict[str, Column] = {}
    for name, chunked in zip(table.column_names, table.itercolumns(), strict=True):
        kind = chunked.type
        if chunked.num_chunks == 1:
            array = chunked.chunk(0)
        else:
            array = (chunked.unify_dictionaries() if pa.types.is_dictionary(kind) else chunked).combine_chunks()
        if pa.types.is_primitive(kind) and not pa.types.is_temporal(kind):
            columns[name] = _compress_constant(array.to_numpy(zero_copy_only=False))
        elif pa.types.is_fixed_size_binary(kind):
            columns[name] = _fixed_bytes(array)
        else:
            columns[name] = array
    return Frame(columns, table.num_rows)


_EMPTY: dict[int, tuple[pa.Schema, Frame]] = {}
_FIELDS: dict[int, tuple[pa.Schema, list[tuple[str, pa.DataType]]]] = {}
"""Empty frames, and names and types, by the identity of their schema.

The schema is stored with them. Comparing schemas is slow, and so is reading their fields.
"""

_MAX_SCHEMAS = 1024
"""Maximum number of cached schemas.

Then the cache is cleared: a process that creates many networks would otherwise hold the schemas of closed ones.
"""


def empty_frame(schema: pa.Schema) -> Frame:
    """Return the frame of a schema without rows; it is cached.

    Args:
        schema: The schema.
    """
    found = _EMPTY.get(id(schema))
    if found is None:
        found = schema, from_table(schema.empty_table())
        _cache_schema(_EMPTY, found)
    return found[1]


def schema_fields(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    """Return the names and types of a schema; they are cached.

    Args:
        schema: The schema.
    """
    found = _FIELDS.get(id(schema))
    if found is None:
        found = schema, [(item.name, item.type) for item in schema]
        _cache_schema(_FIELDS, found)
    return found[1]


def _cache_schema(cache: dict[int, tuple[pa.Schema, T]], entry: tuple[pa.Schema, T]) -> None:
    if len(cache) >= _MAX_SCHEMAS:
        cache.clear()
    cache[id(entry[0])] = entry


def concat(frames: Sequence[Frame]) -> Frame:
    """Concatenate frames.

    Args:
        frames: Frames that have the columns of the first, at least one.
    """
    if len(frames) > 1:
        frames = [frame for frame in frames if frame._length] or [frames[0]]
    if len(frames) == 1:
        return frames[0]
    length = sum(frame._length for frame in frames)
    composed: dict[tuple[int, ...], Rows] = {}
    columns: dict[str, Column] = {}
    for name, first in frames[0]._columns.items():
        source = first._source if type(first) is DeferredColumn else None
        pending = [pending_gather(frame._columns[name]) for frame in frames] if source is not None else []
        if pending and all(item is not None and item[0] is source for item in pending):
            parts = [item[1] for item in pending if item is not None]
            key = tuple(map(id, parts))
            if key not in composed:
                composed[key] = np.concatenate(parts)
            columns[name] = DeferredColumn(source, composed[key])
        else:
            columns[name] = _join([frame[name] for frame in frames], length)
    return _frame(columns, length)


def repeat_value(value: Any, length: int) -> npt.NDArray[Any]:
    """Return a column of one repeated value, stored once.

    Args:
        value: A number, or an array for each row.
        length: Number of rows.
    """
    if isinstance(value, _CACHEABLE):
        return _endless(value)[:length]
    one = np.asarray(value)
    column: npt.NDArray[Any] = np.ndarray((length, *one.shape), one.dtype, one, 0, (0, *one.strides))
    column.setflags(write=False)
    return column


_CACHEABLE = (np.integer, np.bool_)
"""Types whose equal values are equal in every bit."""

_ENDLESS = 1 << 48
"""Rows of a broadcast column, more than any frame has."""

_SHORT = 1024
"""Rows of the cached columns of one text; shorter columns are slices of them."""


@lru_cache(maxsize=1024, typed=True)
def _endless(value: Any) -> npt.NDArray[Any]:
    one = np.asarray(value)
    column: npt.NDArray[Any] = np.ndarray((_ENDLESS,), one.dtype, one, 0, (0,))
    column.setflags(write=False)
    return column


def repeat_text(text: str, length: int) -> pa.DictionaryArray:
    """Return a dictionary-encoded text column of one repeated value.

    Args:
        text: The value.
        length: Number of rows.
    """
    return _short_text(text).slice(0, length) if length <= _SHORT else _text_column(text, length)


@lru_cache(maxsize=256)
def _short_text(text: str) -> pa.DictionaryArray:
    return _text_column(text, _SHORT)


def _text_column(text: str, length: int) -> pa.DictionaryArray:
    """Build a dictionary column with one text in every row.

    Args:
        text: The text.
        length: Number of rows.
    """
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(length, dtype=np.int32)), pa.array([text], pa.string()))


def repeat_bytes(value: bytes, length: int) -> pa.BinaryArray:
    """Return a bytes column of one repeated value.

    Args:
        value: The value.
        length: Number of rows.
    """
    if length <= _SHORT and len(value) == 0:
        return _NO_BYTES.slice(0, length)
    return pa.array([value], pa.binary()).take(pa.array(np.zeros(length, dtype=np.int32)))


_NO_BYTES = pa.array([b""] * _SHORT, pa.binary())

_NO_ROWS: Rows = np.empty(0, dtype=np.int64)

_NO_VALUES: dict[pa.DataType, pa.Array] = {}
"""Empty arrays by type."""


def _empty_column(column: Column) -> Column:
    """Return an empty column of the same type that shares no memory."""
    if type(column) is DeferredColumn:
        column = column._source if column._value is None else column._value
    if isinstance(column, np.ndarray):
        return np.empty((0, *column.shape[1:]), dtype=column.dtype)
    found = _NO_VALUES.get(column.type)
    if found is None:
        found = _NO_VALUES[column.type] = pa.array([], column.type)
    return found


def _compress_constant(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a broadcast view of a constant column: many message columns are constant."""
    if len(column) > 1 and column[0] == column[-1]:
        first = column[0]
        if len(column) > _SHORT and not (column[:: len(column) // 64] == first).all():
            return column
        if not np.count_nonzero(column != first):
            return repeat_value(first, len(column))
    return column


def _is_repeated(column: npt.NDArray[Any]) -> bool:
    return bool(len(column)) and column.strides[0] == 0


def _join(columns: Sequence[Column], length: int) -> Column:
    first = columns[0]
    if isinstance(first, np.ndarray):
        if (
            _is_repeated(first)
            and all(_is_repeated(column) for column in columns)
            and all((column[0] == first[0]).all() for column in columns)
        ):
            return repeat_value(first[0], length)
        return np.concatenate(columns)
    if type(first) is pa.DictionaryArray:
        if all(column.dictionary.equals(first.dictionary) for column in columns):
            return pa.DictionaryArray.from_arrays(
                pa.concat_arrays([column.indices for column in columns]), first.dictionary
            )
        joined = pa.chunked_array(columns).unify_dictionaries().combine_chunks()
        return joined.chunk(0) if isinstance(joined, pa.ChunkedArray) else joined
    return pa.concat_arrays(columns)


def _to_arrow(column: Column, kind: pa.DataType) -> pa.Array:
    if isinstance(column, np.ndarray):
        if pa.types.is_fixed_size_binary(kind):
            data = np.ascontiguousarray(column)
            return pa.FixedSizeBinaryArray.from_buffers(kind, len(column), [None, pa.py_buffer(data)])
        if _is_repeated(column) and not column[0] and pa.types.is_integer(kind):
            return pa.Array.from_buffers(kind, len(column), [None, _zeros(len(column) * (kind.bit_width // 8))])
        return pa.array(np.ascontiguousarray(column), kind)
    if column.type == kind:
        return column
    if pa.types.is_dictionary(kind) and not pa.types.is_dictionary(column.type):
        return column.dictionary_encode().cast(kind)
    return column.cast(kind)


_ZEROS = [pa.py_buffer(bytes(1 << 16))]


def _zeros(size: int) -> pa.Buffer:
    """Return a shared buffer of at least ``size`` zero bytes: many message columns are zero."""
    if _ZEROS[0].size < size:
        _ZEROS[0] = pa.py_buffer(bytes(size))
    return _ZEROS[0]


def _fixed_bytes(array: pa.FixedSizeBinaryArray) -> npt.NDArray[np.uint8]:
    width = array.type.byte_width
    if len(array) == 0:
        return np.empty((0, width), dtype=np.uint8)
    data = np.frombuffer(array.buffers()[1], dtype=np.uint8)
    return data[array.offset * width : (array.offset + len(array)) * width].reshape(len(array), width)
