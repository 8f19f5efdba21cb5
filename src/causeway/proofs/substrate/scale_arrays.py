"""Arrow columns as the flat arrays that the SCALE loops take, and back.

All columns of a program stand in three arrays, one behind the other: the values, a byte a value that says whether it is
there, and the offsets of lists and byte strings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.errors import InvalidInput
from causeway.model.order import Rows
from causeway.proofs.substrate.byte_columns import Bytes, bitmap, data_of, offsets_of, whole
from causeway.proofs.substrate.scale_program import Program, Slot
from causeway.proofs.substrate.scale_steps_loops import COMPACT, ENUM, LIST, OPTION, SLOT_FIELDS, STRING

_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Table:
    """Where the columns lie in the arrays that the loops take, and how long these are."""

    slots: npt.NDArray[np.int64]
    counts: list[int]
    values: int
    present: int
    offsets: int


def table_of(program: Program, count: int, sizes: Rows) -> Table:
    """Return the places of columns of ``count`` rows, whose columns of variable length have ``sizes``."""
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
    return Table(slots, counts, values, present, offsets)


_BESIDE = {ENUM: 1, OPTION: 1, STRING: 9, LIST: 9, COMPACT: 2}
"""Bytes that a step writes besides a value, at most."""


def room(program: Program, table: Table) -> int:
    """Return as many bytes as the encodings of all rows take at most: no value is written twice, and no step is
    followed more than once an element of its level."""
    return table.values + sum(table.counts) * sum(_BESIDE.get(kind, 0) for kind in program.steps[:, 0].tolist())


class Built:
    """Arrow columns over the arrays that a loop has written."""

    def __init__(self, program: Program, table: Table, values: Bytes, present: Bytes, offsets: Rows) -> None:
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
            return array_of(slot.type, count, validity, self._values[at : at + count * slot.width])
        offsets = self._offsets[edges : edges + count + 1]
        if slot.child < 0:
            return array_of(slot.type, count, validity, offsets, self._values[at : at + int(offsets[-1])])
        inside = self.columns(slot.child)
        if self._program.bare[slot.child]:
            child = inside[0]
        else:
            child = pa.StructArray.from_arrays(inside, fields=list(slot.type.value_type))
        return pa.Array.from_buffers(slot.type, count, [validity, pa.py_buffer(offsets)], children=[child])


class Given:
    """The arrays that a loop reads, out of Arrow columns."""

    def __init__(self, program: Program, columns: Mapping[str, pa.Array], type_name: str) -> None:
        lengths = {len(column) for column in columns.values()}
        if len(lengths) != 1:
            raise InvalidInput(f"columns of {type_name} of one length each are wanted, not of {sorted(lengths)}")
        self.count = lengths.pop()
        self._program = program
        self._arrays: dict[int, pa.Array] = {}
        self._offsets: dict[int, Rows] = {}
        self._take(0, columns, type_name)
        sizes = np.array([self._offsets[number][-1] for number in program.variable], dtype=np.int64)
        self.table = table_of(program, self.count, sizes)
        self.values = np.empty(self.table.values, dtype=np.uint8)
        self.present = np.empty(self.table.present, dtype=np.uint8)
        self.offsets = np.empty(self.table.offsets, dtype=np.int64)
        for number in range(len(program.slots)):
            self._fill(number)

    def _take(self, level: int, columns: Mapping[str, pa.Array], type_name: str) -> None:
        """Keep the columns of a level, in the types of the schema, and go down into its lists."""
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
                self._offsets[number] = offsets_of(array) - offsets_of(array)[0]
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
            begin = int(offsets_of(array)[0])
            length = int(self._offsets[number][-1])
            self.values[at : at + length] = data_of(array)[begin : begin + length]


def _cast(column: Any, slot: Slot, type_name: str) -> pa.Array:
    """Return a column in the type of the schema, its buffers validated: the loops trust its offsets."""
    try:
        if not isinstance(column, pa.Array | pa.ChunkedArray):
            # Of a type that it is told, Arrow would cut the fractions off Python's numbers.
            column = pa.array(column)
        if not _is_alike(column.type, slot.type):
            raise InvalidInput(f"{type_name}: the column {slot.name} is no {slot.type}, but {column.type}")
        column = whole(column, slot.name)
        array = column if column.type == slot.type else column.cast(slot.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidInput(f"{type_name}: the column {slot.name} is no {slot.type}: {error}") from error
    return array


def _is_alike(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether the values of two types are of one kind: Arrow reads numbers from text and from fractions too."""
    if pa.types.is_null(given) or given == wanted:
        return True
    if pa.types.is_large_list(wanted):
        listed = pa.types.is_list(given) or pa.types.is_large_list(given) or pa.types.is_fixed_size_list(given)
        return bool(listed) and _is_alike(given.value_type, wanted.value_type)
    if pa.types.is_struct(wanted):
        known = {field.name: field.type for field in wanted}
        return bool(pa.types.is_struct(given)) and all(
            _is_alike(field.type, known[field.name]) for field in given if field.name in known
        )
    if pa.types.is_integer(wanted):
        return bool(pa.types.is_integer(given))
    return bool(pa.types.is_binary(given) or pa.types.is_large_binary(given) or pa.types.is_fixed_size_binary(given))


def fixed_bytes(array: pa.Array, width: int) -> Bytes:
    """Return the bytes of a column of fixed width, zeros where it has none."""
    buffer = array.buffers()[1]
    if buffer is None or buffer.size == 0:
        return np.zeros(len(array) * width, dtype=np.uint8)
    data = np.frombuffer(buffer, dtype=np.uint8)
    return data[array.offset * width : (array.offset + len(array)) * width]


def _flags(array: pa.Array) -> Bytes | bool:
    """Return which values are there, a byte each."""
    if not array.null_count:
        return True
    bits = np.frombuffer(array.buffers()[0], dtype=np.uint8)
    first, last = array.offset // 8, -(-(array.offset + len(array)) // 8)
    flags = np.unpackbits(bits[first:last], bitorder="little")
    return flags[array.offset - 8 * first :][: len(array)]


def array_of(kind: pa.DataType, count: int, validity: pa.Buffer | None, *buffers: npt.NDArray[Any]) -> pa.Array:
    """Return the column over buffers that are kept, not copied."""
    return pa.Array.from_buffers(kind, count, [validity, *map(pa.py_buffer, buffers)])
