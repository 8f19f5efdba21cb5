"""SCALE by whole columns: a table of values to a column of encodings, and back.

One ``ScaleColumns`` is made per type. What is refused row by row is what ``ScaleTypes.decode`` refuses one by one, for
the same reason; the rows beside are read. Columns follow the type:

| type | column |
|---|---|
| u8 to u64, i8 to i64, ``Compact`` of them | uint8 to uint64, int8 to int64 |
| u128, i128, u256, ``H256``, ``[u8; N]`` | fixed_size_binary of 16, 16, 32, 32, N bytes, numbers little-endian |
| ``Vec<u8>`` | large_binary |
| bool | uint8, 0 or 1 |
| enum | uint8, the variant's index, and the columns of all variants, null where another one is taken |
| enum of one variant | the columns of that one |
| enum of a bare variant and one with a plain value | the value's column, null for the bare one |
| ``Option`` of a plain value | the value's column, null for None |
| list, set, map | large_list, of plain values or of structs |

``limbs_of`` gives numbers of 128 and 256 bits as integers of 64. Other types (tuples, arrays of other than bytes, text,
bits, lists and options of what takes several columns) have no columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.errors import InvalidInput
from causeway.model.order import Rows
from causeway.proofs.arrays import integers
from causeway.proofs.errors import OverLimit, ProofError
from causeway.proofs.limits import MAX_PROOF_BYTES
from causeway.proofs.substrate import scale_steps_loops as wrong
from causeway.proofs.substrate.byte_columns import Bytes, bitmap, byte_column, data_of, from_parts, offsets_of
from causeway.proofs.substrate.scale import ScaleTypes
from causeway.proofs.substrate.scale_arrays import Built, Given, Table, array_of, fixed_bytes, room, table_of
from causeway.proofs.substrate.scale_faults import FAULTS, decoding_error
from causeway.proofs.substrate.scale_program import Program, compile_type

_LIMB = 8


@dataclass(frozen=True, slots=True)
class RowVerdicts:
    """Which rows are encodings of a type, and what is wrong with the others.

    Attributes:
        codes: what is wrong with each row, 0 for nothing.
        positions: the byte of the row at which.
        lengths: the bytes of each row.
    """

    codes: Rows
    positions: Rows
    lengths: Rows
    _faults: Rows
    _what: str
    _limit: int
    _program: Program

    def refused(self) -> Rows:
        """Return the rows that are no encoding, ascending."""
        return np.flatnonzero(self.codes)

    def error(self, row: int) -> ProofError | None:
        """Return what is wrong with a row, OverLimit or FailedToDecode; None if it is an encoding."""
        code = int(self.codes[row])
        if code == wrong.READ:
            return None
        if code == wrong.TOO_LONG:
            return OverLimit(f"{self._what} has {self.lengths[row]} bytes, at most {self._limit} are read")
        fault = int(self._faults[row])
        position, length = int(self.positions[row]), int(self.lengths[row])
        path, most = self._program.paths[fault], int(self._program.steps[fault, 2])
        return decoding_error(self._what, code, position, length, path, most)

    def require_all(self) -> None:
        """Return when every row is an encoding.

        Raises:
            OverLimit, FailedToDecode: what is wrong with the first row that is none; the text says which one it is.
        """
        refused = self.refused()
        if len(refused):
            row = int(refused[0])
            error = cast("ProofError", self.error(row))
            raise type(error)(f"row {row} of {len(self.codes)} ({len(refused)} are refused): {error}")


@dataclass(frozen=True, slots=True)
class Decoded:
    """Columns that were read, a row an encoding; a row that was refused is null in all of them."""

    columns: pa.RecordBatch
    verdicts: RowVerdicts

    def require_all(self) -> pa.RecordBatch:
        """Return the columns when every row was read; raises as ``RowVerdicts.require_all``."""
        self.verdicts.require_all()
        return self.columns


class ScaleColumns:
    """One SCALE type by columns.

    Args:
        types, type_name: the definitions, and which of them.
        what: what a row is, for messages, such as "a cross-domain message".
        limit: longest encoding that is read or written, in bytes.
        names, tags: names of columns, as for ``compile_type``.
    """

    def __init__(
        self,
        types: ScaleTypes,
        type_name: str,
        what: str,
        limit: int = MAX_PROOF_BYTES,
        names: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        self.type_name, self.what, self.limit = type_name, what, limit
        self.program = compile_type(types, type_name, names, tags)
        self.schema = self.program.schema

    def decode(self, encodings: pa.Array | pa.ChunkedArray) -> Decoded:
        """Read a column of encodings, each to its last byte and only in its canonical form.

        Args:
            encodings: n byte strings; none is null.

        Returns:
            n rows of ``schema``. Rows that are no encoding are null in every column, and are told of beside them.

        Raises:
            InvalidInput: there is a null, or no byte strings.
        """
        read = _Reading(self, byte_column(encodings))
        return Decoded(pa.RecordBatch.from_arrays(read.columns(), schema=self.schema), read.verdicts)

    def encode(self, columns: pa.RecordBatch | Mapping[str, pa.Array]) -> pa.LargeBinaryArray:
        """Return the encoding of every row.

        Args:
            columns: n rows of ``schema``, in any order; a column that is left out is null in all of them. A row has
                values exactly in the columns that its variants have.

        Raises:
            InvalidInput: a column is unknown, of another type or length, a row is no value of the type, or its
                encoding could not be read again; the text names the row and the column.
        """
        from causeway.proofs.substrate.scale_write_loops import write_rows

        given = Given(self.program, _as_mapping(columns), self.type_name)
        program, table, count = self.program, given.table, given.count
        edges, fault = np.empty(count + 1, dtype=np.int64), np.zeros(4, dtype=np.int64)
        data = np.empty(room(program, table), dtype=np.uint8)
        inputs = (given.values, given.present, given.offsets)
        row = write_rows(count, program.steps, program.jumps, table.slots, *inputs, edges, data, fault)
        if row >= 0:
            raise InvalidInput(self._refusal(row, fault))
        lengths = np.diff(edges)
        if count and int(lengths.max()) > self.limit:
            row = int(np.argmax(lengths > self.limit))
            raise InvalidInput(f"row {row}: {self.what} takes {lengths[row]} bytes, at most {self.limit} are read")
        encodings = from_parts(data[: edges[-1]], edges)
        if (program.steps[:, 0] == wrong.KEY).any():
            # What must ascend is compared in one place, where it is read.
            try:
                _Reading(self, encodings).verdicts.require_all()
            except ProofError as error:
                raise InvalidInput(str(error)) from error
        return encodings

    def _refusal(self, row: int, fault: Rows) -> str:
        code, step, slot, element = fault.tolist()
        name = self.program.slots[slot].name
        inside = f", element {element} of the lists," if self.program.slots[slot].level else ""
        said = FAULTS[code]
        if code == wrong.NO_VARIANT:
            said = f"has none of the {self.program.steps[step, 2]} variants in the column"
        elif code == wrong.OVER_LIMIT:
            said = f"has more than {self.program.steps[step, 2]} elements in the column"
        return f"row {row}{inside} is no {self.type_name}: it {said} {name} ({self.program.paths[step]})"


class _Reading:
    """A column of encodings, validated when this is made and read when it is asked for its columns."""

    def __init__(self, kind: ScaleColumns, encodings: pa.LargeBinaryArray) -> None:
        program, count = kind.program, len(encodings)
        self._kind = kind
        self._data, self._edges = data_of(encodings), offsets_of(encodings)
        codes, positions, faults = (np.zeros(count, dtype=np.int64) for _ in range(3))
        self._marks = codes, positions, faults
        self._sizes = np.zeros(len(program.variable), dtype=np.int64)
        nothing = np.empty(0, dtype=np.uint8)
        self._read(table_of(program, count, self._sizes), False, self._sizes, nothing, nothing, self._sizes)
        lengths = np.diff(self._edges)
        self.verdicts = RowVerdicts(codes, positions, lengths, faults, kind.what, kind.limit, program)

    def columns(self) -> list[pa.Array]:
        table = table_of(self._kind.program, len(self._edges) - 1, self._sizes)
        values, present = np.zeros(table.values, dtype=np.uint8), np.zeros(table.present, dtype=np.uint8)
        offsets = np.zeros(table.offsets, dtype=np.int64)
        self._read(table, True, np.zeros_like(self._sizes), values, present, offsets)
        return Built(self._kind.program, table, values, present, offsets).columns()

    def _read(self, table: Table, writing: bool, sizes: Rows, values: Bytes, present: Bytes, offsets: Rows) -> None:
        from causeway.proofs.substrate.scale_read_loops import read_rows

        steps, jumps = self._kind.program.steps, self._kind.program.jumps
        rows = (self._data, self._edges, self._kind.limit)
        read_rows(*rows, steps, jumps, table.slots, writing, *self._marks, sizes, values, present, offsets)


def limbs_of(column: pa.FixedSizeBinaryArray) -> npt.NDArray[np.uint64]:
    """Return little-endian numbers as limbs of 64 bits, the lowest first: shape (n, width // 8).

    Nothing is copied; under nulls stands anything.

    Raises:
        InvalidInput: the column is of another type than byte strings of a multiple of 8 bytes each.
    """
    if not isinstance(column, pa.FixedSizeBinaryArray) or column.type.byte_width % _LIMB:
        raise InvalidInput(f"numbers of 64 bits and more are fixed_size_binary of 16 or 32 bytes, not {column.type}")
    width = int(column.type.byte_width)
    return fixed_bytes(column, width).view(np.uint64).reshape(len(column), width // _LIMB)


def limbs_column(limbs: npt.NDArray[np.uint64], valid: npt.NDArray[np.bool_] | None = None) -> pa.FixedSizeBinaryArray:
    """Return the column that ``limbs_of`` gives back; null where ``valid`` is false.

    Raises:
        InvalidInput: the limbs are no uint64 of shape (n, limbs), or there are not as many flags.
    """
    if limbs.ndim != 2 or limbs.dtype != np.uint64:
        raise InvalidInput(f"limbs are {limbs.dtype} in the shape {limbs.shape}, uint64 in (n, limbs) is wanted")
    count, width = limbs.shape
    if valid is not None and valid.shape != (count,):
        raise InvalidInput(f"flags in the shape {valid.shape} are given for {count} numbers, one each is wanted")
    return array_of(pa.binary(width * _LIMB), count, bitmap(valid), np.ascontiguousarray(limbs))


def numbers_column(
    numbers: npt.NDArray[np.uint64], width: int, valid: npt.NDArray[np.bool_] | None = None
) -> pa.FixedSizeBinaryArray:
    """Return numbers below 2**64 as a column of ``width`` bytes each, 16 for u128 and 32 for u256.

    Raises:
        InvalidInput: there is something else than such numbers, or another width.
    """
    if width < _LIMB or width % _LIMB:
        raise InvalidInput(f"numbers have 16 or 32 bytes, not {width}")
    numbers = integers(numbers, "numbers", np.uint64)
    limbs = np.zeros((len(numbers), width // _LIMB), dtype=np.uint64)
    limbs[:, 0] = numbers
    return limbs_column(limbs, valid)


def _as_mapping(columns: pa.RecordBatch | Mapping[str, pa.Array]) -> Mapping[str, pa.Array]:
    if isinstance(columns, pa.RecordBatch | pa.Table):
        return dict(zip(columns.schema.names, columns.columns, strict=True))
    return columns
