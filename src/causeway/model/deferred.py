"""Columns that are gathered when someone reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Column = Any
"""A NumPy array, or an Arrow array of text, bytes or dictionary-encoded text."""

Rows = npt.NDArray[np.integer[Any]]


class Deferred:
    """A column that is to be gathered when someone reads it: ``rows`` of ``source``.

    Rows of rows are composed without touching the source, so that a message's payload is copied once on its way through
    a round, however often the messages are put into another order.
    """

    __slots__ = ("_rows", "_source", "_value")

    def __init__(self, source: Column, rows: Rows) -> None:
        self._source: Column = source
        self._rows: Any = rows
        self._value: Column = None

    def __len__(self) -> int:
        return len(self._rows if self._value is None else self._value)

    def gathered(self) -> Column:
        """Return the column itself; from now on the source is not held any more."""
        if self._value is None:
            self._value = _gather(self._source, self._rows)
            self._source = self._rows = None
        return self._value

    @property
    def pending(self) -> tuple[Column, Rows] | None:
        """Return source and rows while the column is not gathered."""
        return (self._source, self._rows) if self._value is None else None

    def is_of(self, kind: pa.DataType) -> bool:
        """Return whether this is, as far as can be said without gathering, a column of an Arrow type without nulls."""
        source = self._source if self._value is None else self._value
        return not isinstance(source, np.ndarray) and bool(source.type == kind and source.null_count == 0)


def pending_of(column: Column) -> tuple[Column, Rows] | None:
    """Return source and rows of a column that is not gathered yet, None for another."""
    return column.pending if type(column) is Deferred else None


def _gather(source: Column, rows: Rows) -> Column:
    if isinstance(source, np.ndarray):
        column = source.take(rows, axis=0)
        # Frames share it, so nobody may write to it.
        column.setflags(write=False)
        return column
    return _TAKE.call([source, pa.array(rows, _ROW_TYPE)], _CHECKED)


_TAKE, _CHECKED, _ROW_TYPE = pc.get_function("array_take"), pc.TakeOptions(boundscheck=True), pa.int64()
"""What ``Array.take`` does for an array, without looking it up every time."""
