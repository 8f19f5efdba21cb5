"""Tables of few rows, such as those with a row a domain, as rows with names, and the other way round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.deferred import Column
from causeway.model.frame import Frame, concat


def rows_of(frame: Frame) -> list[dict[str, Any]]:
    """Return the rows of a table, each by the names of its columns; digests are bytes."""
    columns = []
    for name in frame.names:
        column = frame[name]
        if isinstance(column, np.ndarray):
            columns.append([row.tobytes() for row in column] if column.ndim == 2 else column.tolist())
        else:
            columns.append(column.to_pylist())
    return [dict(zip(frame.names, row, strict=True)) for row in zip(*columns, strict=True)]


def table_of(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> Frame:
    """Return a table with the columns of ``schema`` from rows as ``rows_of`` gives them."""
    return Frame({field.name: _column([row[field.name] for row in rows], field.type) for field in schema}, len(rows))


def _column(values: list[Any], kind: pa.DataType) -> Column:
    if pa.types.is_fixed_size_binary(kind):
        digests: npt.NDArray[np.uint8] = np.frombuffer(b"".join(values), dtype=np.uint8)
        return digests.reshape(-1, kind.byte_width)
    return np.array(values, dtype=kind.to_pandas_dtype()) if pa.types.is_integer(kind) else pa.array(values, kind)


def of_domains(before: Frame, newest: Frame) -> Frame:
    """Return a table with a row a domain, those of ``newest`` in the place of what these domains had ``before``."""
    found = concat([before.filter(~np.isin(before["domain"], newest["domain"])), newest])
    return found.take(np.argsort(found["domain"], kind="stable"))
