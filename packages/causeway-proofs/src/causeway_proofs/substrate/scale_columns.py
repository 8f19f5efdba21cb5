"""Encode a table to a column of SCALE encodings, and decode it back.

Create one ``ScaleColumns`` a type. Rows are rejected for the reasons of ``ScaleTypes.decode``; other rows are read
regardless. Columns follow the type:

| type | column |
|---|---|
| u8 to u64, i8 to i64, ``Compact`` of them | uint8 to uint64, int8 to int64 |
| u128, i128, u256, ``H256``, ``[u8; N]`` | fixed_size_binary of 16, 16, 32, 32, N bytes, numbers little-endian |
| ``Vec<u8>`` | large_binary |
| bool | uint8, 0 or 1 |
| enum | uint8, the variant's index, and the columns of all variants, null for other variants |
| enum of one variant | the columns of that one |
| enum of a bare variant and one with a plain value | the value's column, null for the bare one |
| ``Option`` of a plain value | the value's column, null for None |
| list, set, map | large_list, of plain values or of structs |

``to_limbs`` converts numbers of 128 and 256 bits to 64-bit integers. Other types (tuples, arrays of anything but bytes,
text, bits, lists and options of multi-column types) have no columns.

The loops see all columns of a program as three arrays: the values, a presence byte a value, and the offsets of lists
and byte strings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway_proofs.arrays import integer_array
from causeway_proofs.errors import InvalidInput, OverLimit, ProofError
from causeway_proofs.limits import MAX_PROOF_BYTES
from causeway_proofs.order import Rows
from causeway_proofs.substrate import scale_shapes as wrong
from causeway_proofs.substrate.byte_columns import (
    Bytes,
    bitmap,
    byte_column,
    column_data,
    column_from_buffers,
    column_offsets,
    contiguous_column,
)
from causeway_proofs.substrate.scale import FAULTS, ScaleTypes, decoding_error
from causeway_proofs.substrate.scale_program import ScaleProgram, Slot, compile_type
from causeway_proofs.substrate.scale_shapes import COMPACT, ENUM, LIST, OPTION, SLOT_FIELDS, STRING

_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class BufferLayout:
    """Positions of the columns in the loops' arrays, and the lengths of these arrays."""

    slots: npt.NDArray[np.int64]
    counts: list[int]
    values: int
    present: int
    offsets: int


def plan_buffers(program: ScaleProgram, count: int, sizes: Rows) -> BufferLayout:
    """Lay out columns of ``count`` rows; ``sizes`` are those of the variable-length columns."""
    counts, variable = [count] * len(program.bare), program.variable
    for own, number in enumerate(variable):
        child = program.slots[number].child
        if child >= 0:
            counts[child] = int(sizes[own])
    slots = np.zeros((len(program.slots), SLOT_FIELDS), dtype=np.int64)
    values = present = offsets = 0
    for number, slot in enumerate(program.slots):
        rows = counts[slot.level]
        own = variable.index(number) if not slot.width else -1
        slots[number] = slot.level, slot.width, own, values, present, offsets
        length = rows * slot.width if slot.width else 0 if slot.child >= 0 else int(sizes[own])
        values += -(-length // _ALIGNMENT) * _ALIGNMENT
        present += rows
        offsets += rows + 1 if own >= 0 else 0
    return BufferLayout(slots, counts, values, present, offsets)


_BESIDE = {ENUM: 1, OPTION: 1, STRING: 9, LIST: 9, COMPACT: 2}
"""Most bytes that a step writes besides a value."""


def max_encoded_size(program: ScaleProgram, table: BufferLayout) -> int:
    """Return an upper bound of the encodings' total size.

    No value is written twice, and no step runs more than once an element of its level.
    """
    return table.values + sum(table.counts) * sum(_BESIDE.get(kind, 0) for kind in program.steps[:, 0].tolist())


class OutputColumns:
    """Arrow columns over the arrays written by a loop."""

    def __init__(
        self, program: ScaleProgram, table: BufferLayout, values: Bytes, present: Bytes, offsets: Rows
    ) -> None:
        self._program, self._table = program, table
        self._values, self._present, self._offsets = values, present, offsets

    def columns(self, level: int = 0) -> list[pa.Array]:
        """Return the columns of one level, in order."""
        slots = enumerate(self._program.slots)
        return [self._column(number, slot) for number, slot in slots if slot.level == level]

    def _column(self, number: int, slot: Slot) -> pa.Array:
        count = self._table.counts[slot.level]
        *_, at, flags, edges = self._table.slots[number].tolist()
        validity = bitmap(self._present[flags : flags + count].view(np.bool_))
        if slot.width:
            return build_array(slot.type, count, validity, self._values[at : at + count * slot.width])
        offsets = self._offsets[edges : edges + count + 1]
        if slot.child < 0:
            return build_array(slot.type, count, validity, offsets, self._values[at : at + int(offsets[-1])])
        inside = self.columns(slot.child)
        if self._program.bare[slot.child]:
            child = inside[0]
        else:
            child = pa.StructArray.from_arrays(inside, fields=list(slot.type.value_type))
        return pa.Array.from_buffers(slot.type, count, [validity, pa.py_buffer(offsets)], children=[child])


class InputArrays:
    """The arrays that a loop reads, built from Arrow columns."""

    def __init__(self, program: ScaleProgram, columns: Mapping[str, pa.Array], type_name: str) -> None:
        lengths = {len(column) for column in columns.values()}
        if len(lengths) != 1:
            raise InvalidInput(f"columns of {type_name} of one length each are wanted, not of {sorted(lengths)}")
        self.count = lengths.pop()
        self._program = program
        self._arrays: dict[int, pa.Array] = {}
        self._offsets: dict[int, Rows] = {}
        self._take(0, columns, type_name)
        sizes = np.array([self._offsets[number][-1] for number in program.variable], dtype=np.int64)
        self.table = plan_buffers(program, self.count, sizes)
        self.values = np.empty(self.table.values, dtype=np.uint8)
        self.present = np.empty(self.table.present, dtype=np.uint8)
        self.offsets = np.empty(self.table.offsets, dtype=np.int64)
        for number in range(len(program.slots)):
            self._fill(number)

    def _take(self, level: int, columns: Mapping[str, pa.Array], type_name: str) -> None:
        """Cast the columns of a level to the schema's types and descend into its lists."""
        own = {slot.name: number for number, slot in enumerate(self._program.slots) if slot.level == level}
        for name in columns:
            if name not in own:
                raise InvalidInput(f"{type_name} has no column {name}; it has {', '.join(own)}")
        count = len(next(iter(columns.values())))
        for name, number in own.items():
            slot = self._program.slots[number]
            column = columns.get(name)
            array = pa.nulls(count, slot.type) if column is None else _cast(column, slot, type_name)
            self._arrays[number] = array
            if slot.width:
                continue
            if slot.child < 0:
                self._offsets[number] = column_offsets(array) - column_offsets(array)[0]
                continue
            edges = np.asarray(array.offsets)
            child = array.values.slice(int(edges[0]), int(edges[-1] - edges[0]))
            self._offsets[number] = edges - edges[0]
            if self._program.bare[slot.child]:
                inside = {next(own.name for own in self._program.slots if own.level == slot.child): child}
            else:
                inside = dict(zip((field.name for field in child.type), child.flatten(), strict=True))
            self._take(slot.child, inside, f"{type_name}.{name}")

    def _fill(self, number: int) -> None:
        slot, array = self._program.slots[number], self._arrays[number]
        *_, at, flags, edges = self.table.slots[number].tolist()
        count = len(array)
        self.present[flags : flags + count] = _flags(array)
        if slot.width:
            self.values[at : at + count * slot.width] = fixed_bytes(array, slot.width)
            return
        self.offsets[edges : edges + count + 1] = self._offsets[number]
        if slot.child < 0:
            begin = int(column_offsets(array)[0])
            length = int(self._offsets[number][-1])
            self.values[at : at + length] = column_data(array)[begin : begin + length]


def _cast(column: Any, slot: Slot, type_name: str) -> pa.Array:
    """Cast a column to the schema's type and validate its buffers for the loops."""
    try:
        if not isinstance(column, pa.Array | pa.ChunkedArray):
            # With an explicit type, Arrow would truncate fractions of Python numbers.
            column = pa.array(column)
        if not _is_alike(column.type, slot.type):
            raise InvalidInput(f"{type_name}: the column {slot.name} is no {slot.type}, but {column.type}")
        column = contiguous_column(column, slot.name)
        array = column if column.type == slot.type else column.cast(slot.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidInput(f"{type_name}: the column {slot.name} is no {slot.type}: {error}") from error
    return array


def _is_alike(actual: pa.DataType, expected: pa.DataType) -> bool:
    """Return True if two types hold the same kind of values; Arrow would parse texts, too."""
    if pa.types.is_null(actual) or actual == expected:
        return True
    if pa.types.is_large_list(expected):
        listed = pa.types.is_list(actual) or pa.types.is_large_list(actual) or pa.types.is_fixed_size_list(actual)
        return bool(listed) and _is_alike(actual.value_type, expected.value_type)
    if pa.types.is_struct(expected):
        known = {field.name: field.type for field in expected}
        return bool(pa.types.is_struct(actual)) and all(
            _is_alike(field.type, known[field.name]) for field in actual if field.name in known
        )
    if pa.types.is_integer(expected):
        return bool(pa.types.is_integer(actual))
    return bool(pa.types.is_binary(actual) or pa.types.is_large_binary(actual) or pa.types.is_fixed_size_binary(actual))


def fixed_bytes(array: pa.Array, width: int) -> Bytes:
    """Return the bytes of a fixed-width column, or zeros for none."""
    buffer = array.buffers()[1]
    if buffer is None or buffer.size == 0:
        return np.zeros(len(array) * width, dtype=np.uint8)
    data = np.frombuffer(buffer, dtype=np.uint8)
    return data[array.offset * width : (array.offset + len(array)) * width]


def _flags(array: pa.Array) -> Bytes | bool:
    """Return the presence flags, a byte each."""
    if not array.null_count:
        return True
    bits = np.frombuffer(array.buffers()[0], dtype=np.uint8)
    first, last = array.offset // 8, -(-(array.offset + len(array)) // 8)
    flags = np.unpackbits(bits[first:last], bitorder="little")
    return flags[array.offset - 8 * first :][: len(array)]


def build_array(kind: pa.DataType, count: int, validity: pa.Buffer | None, *buffers: npt.NDArray[Any]) -> pa.Array:
    """Return a column over shared buffers, without a copy."""
    return pa.Array.from_buffers(kind, count, [validity, *map(pa.py_buffer, buffers)])


_LIMB = 8


@dataclass(frozen=True, slots=True)
class RowVerdicts:
    """Verdicts on rows as encodings of a type.

    Attributes:
        codes: fault of each row, 0 for none.
        positions: byte of the fault in the row.
        lengths: bytes of each row.
    """

    codes: Rows
    positions: Rows
    lengths: Rows
    _faults: Rows
    _noun: str
    _limit: int
    _program: ScaleProgram

    def refused(self) -> Rows:
        """Return the invalid rows, ascending."""
        return np.flatnonzero(self.codes)

    def error(self, row: int) -> ProofError | None:
        """Return the error of a row, or None for a valid one.

        Args:
            row: the row.

        Returns:
            ``OverLimit`` or ``FailedToDecode``, or None.
        """
        code = int(self.codes[row])
        if code == wrong.READ:
            return None
        if code == wrong.TOO_LONG:
            return OverLimit(f"{self._noun} has {self.lengths[row]} bytes, at most {self._limit} are read")
        fault = int(self._faults[row])
        position, length = int(self.positions[row]), int(self.lengths[row])
        path, most = self._program.paths[fault], int(self._program.steps[fault, 2])
        return decoding_error(self._noun, code, position, length, path, most)

    def require_all(self) -> None:
        """Require that every row is valid.

        Raises:
            OverLimit, FailedToDecode: the error of the first invalid row; the text names the row.
        """
        refused = self.refused()
        if len(refused):
            row = int(refused[0])
            error = cast("ProofError", self.error(row))
            raise type(error)(f"row {row} of {len(self.codes)} ({len(refused)} are refused): {error}")


@dataclass(frozen=True, slots=True)
class DecodedColumns:
    """Decoded columns, a row an encoding; an invalid row is null in all of them."""

    columns: pa.RecordBatch
    verdicts: RowVerdicts

    def require_all(self) -> pa.RecordBatch:
        """Return the columns if every row is valid.

        Returns:
            The columns.

        Raises:
            OverLimit, FailedToDecode: as ``RowVerdicts.require_all``.
        """
        self.verdicts.require_all()
        return self.columns


class ScaleColumns:
    """Codec of one SCALE type by columns.

    Args:
        types: the definitions.
        type_name: one of them.
        noun: noun for a row in messages, such as "a cross-domain message".
        limit: most bytes of an encoding.
        names: column names, as for ``compile_type``.
        tags: tag column names, as for ``compile_type``.
    """

    def __init__(
        self,
        types: ScaleTypes,
        type_name: str,
        noun: str,
        limit: int = MAX_PROOF_BYTES,
        names: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        self.type_name, self.noun, self.limit = type_name, noun, limit
        self.program = compile_type(types, type_name, names, tags)
        self.schema = self.program.schema

    def decode(self, encodings: pa.Array | pa.ChunkedArray) -> DecodedColumns:
        """Decode a column of canonical encodings, each to its last byte.

        Args:
            encodings: n byte strings without nulls.

        Returns:
            n rows of ``schema`` and their verdicts. Invalid rows are null in every column.

        Raises:
            InvalidInput: a value is null or not a byte string.
        """
        read = _Reading(self, byte_column(encodings))
        return DecodedColumns(pa.RecordBatch.from_arrays(read.columns(), schema=self.schema), read.verdicts)

    def encode(self, columns: pa.RecordBatch | Mapping[str, pa.Array]) -> pa.LargeBinaryArray:
        """Encode every row.

        Args:
            columns: n rows of ``schema``, in any order; a missing column is null in all rows. A row has values exactly
                in the columns of its variants.

        Returns:
            n encodings.

        Raises:
            InvalidInput: a column is unknown, or of another type or length; a row is not a value of the type, or its
                encoding would be rejected. The text names the row and the column.
        """
        from causeway_proofs.substrate.scale_loops import write_rows

        given = InputArrays(self.program, _as_mapping(columns), self.type_name)
        program, table, count = self.program, given.table, given.count
        edges, fault = np.empty(count + 1, dtype=np.int64), np.zeros(4, dtype=np.int64)
        data = np.empty(max_encoded_size(program, table), dtype=np.uint8)
        inputs = (given.values, given.present, given.offsets)
        row = write_rows(count, program.steps, program.jumps, table.slots, *inputs, edges, data, fault)
        if row >= 0:
            raise InvalidInput(self._refusal(row, fault))
        lengths = np.diff(edges)
        if count and int(lengths.max()) > self.limit:
            row = int(np.argmax(lengths > self.limit))
            raise InvalidInput(f"row {row}: {self.noun} takes {lengths[row]} bytes, at most {self.limit} are read")
        encodings = column_from_buffers(data[: edges[-1]], edges)
        if (program.steps[:, 0] == wrong.KEY).any():
            # Order is checked in one place, the reader.
            try:
                _Reading(self, encodings).verdicts.require_all()
            except ProofError as error:
                raise InvalidInput(str(error)) from error
        return encodings

    def _refusal(self, row: int, fault: Rows) -> str:
        code, step, slot, element = fault.tolist()
        name = self.program.slots[slot].name
        inside = f", element {element} of the lists," if self.program.slots[slot].level else ""
        fault_text = FAULTS[code]
        if code == wrong.NO_VARIANT:
            fault_text = f"has none of the {self.program.steps[step, 2]} variants in the column"
        elif code == wrong.OVER_LIMIT:
            fault_text = f"has more than {self.program.steps[step, 2]} elements in the column"
        return f"row {row}{inside} is no {self.type_name}: it {fault_text} {name} ({self.program.paths[step]})"


class _Reading:
    """A column of encodings, validated on construction and decoded on demand."""

    def __init__(self, kind: ScaleColumns, encodings: pa.LargeBinaryArray) -> None:
        program, count = kind.program, len(encodings)
        self._kind = kind
        self._data, self._edges = column_data(encodings), column_offsets(encodings)
        codes, positions, faults = (np.zeros(count, dtype=np.int64) for _ in range(3))
        self._marks = codes, positions, faults
        self._sizes = np.zeros(len(program.variable), dtype=np.int64)
        nothing = np.empty(0, dtype=np.uint8)
        self._read(plan_buffers(program, count, self._sizes), False, self._sizes, nothing, nothing, self._sizes)
        lengths = np.diff(self._edges)
        self.verdicts = RowVerdicts(codes, positions, lengths, faults, kind.noun, kind.limit, program)

    def columns(self) -> list[pa.Array]:
        table = plan_buffers(self._kind.program, len(self._edges) - 1, self._sizes)
        values, present = np.zeros(table.values, dtype=np.uint8), np.zeros(table.present, dtype=np.uint8)
        offsets = np.zeros(table.offsets, dtype=np.int64)
        self._read(table, True, np.zeros_like(self._sizes), values, present, offsets)
        return OutputColumns(self._kind.program, table, values, present, offsets).columns()

    def _read(
        self, table: BufferLayout, writing: bool, sizes: Rows, values: Bytes, present: Bytes, offsets: Rows
    ) -> None:
        from causeway_proofs.substrate.scale_loops import read_rows

        steps, jumps = self._kind.program.steps, self._kind.program.jumps
        rows = (self._data, self._edges, self._kind.limit)
        read_rows(*rows, steps, jumps, table.slots, writing, *self._marks, sizes, values, present, offsets)


def to_limbs(column: pa.FixedSizeBinaryArray) -> npt.NDArray[np.uint64]:
    """Split little-endian numbers into 64-bit limbs, lowest first, without a copy.

    Args:
        column: byte strings of a multiple of 8 bytes; limbs under nulls are arbitrary.

    Returns:
        Limbs, shape (n, width // 8).

    Raises:
        InvalidInput: the column has another type.
    """
    if not isinstance(column, pa.FixedSizeBinaryArray) or column.type.byte_width % _LIMB:
        raise InvalidInput(f"numbers of 64 bits and more are fixed_size_binary of 16 or 32 bytes, not {column.type}")
    width = int(column.type.byte_width)
    return fixed_bytes(column, width).view(np.uint64).reshape(len(column), width // _LIMB)


def limbs_column(limbs: npt.NDArray[np.uint64], valid: npt.NDArray[np.bool_] | None = None) -> pa.FixedSizeBinaryArray:
    """Join 64-bit limbs into numbers, the inverse of ``to_limbs``.

    Args:
        limbs: uint64, shape (n, limbs), lowest first.
        valid: mask of non-null rows, shape (n,).

    Returns:
        The column.

    Raises:
        InvalidInput: ``limbs`` has another shape or dtype, or ``valid`` another length.
    """
    if limbs.ndim != 2 or limbs.dtype != np.uint64:
        raise InvalidInput(f"limbs are {limbs.dtype} in the shape {limbs.shape}, uint64 in (n, limbs) is wanted")
    count, width = limbs.shape
    if valid is not None and valid.shape != (count,):
        raise InvalidInput(f"flags in the shape {valid.shape} are given for {count} numbers, one each is wanted")
    return build_array(pa.binary(width * _LIMB), count, bitmap(valid), np.ascontiguousarray(limbs))


def numbers_column(
    numbers: npt.NDArray[np.uint64], width: int, valid: npt.NDArray[np.bool_] | None = None
) -> pa.FixedSizeBinaryArray:
    """Widen numbers below 2**64 to a column of u128 or u256.

    Args:
        numbers: uint64, shape (n,).
        width: bytes of a value: 16 or 32.
        valid: mask of non-null rows, shape (n,).

    Returns:
        The column.

    Raises:
        InvalidInput: ``numbers`` or ``width`` is of another kind.
    """
    if width < _LIMB or width % _LIMB:
        raise InvalidInput(f"numbers have 16 or 32 bytes, not {width}")
    numbers = integer_array(numbers, "numbers", np.uint64)
    limbs = np.zeros((len(numbers), width // _LIMB), dtype=np.uint64)
    limbs[:, 0] = numbers
    return limbs_column(limbs, valid)


def _as_mapping(columns: pa.RecordBatch | Mapping[str, pa.Array]) -> Mapping[str, pa.Array]:
    if isinstance(columns, pa.RecordBatch | pa.Table):
        return dict(zip(columns.schema.names, columns.columns, strict=True))
    return columns
