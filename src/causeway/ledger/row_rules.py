"""Rules for rows of a ledger that come from outside: allowed words, ranges of heights, whole amounts.

Ingest quarantines records that break them; tables and DataFrames are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.errors import InvalidInput

from causeway.core.text import shorten_name
from causeway.ledger.encodings import NameCodes
from causeway.ledger.schema import (
    DECLARED,
    HEADER,
    INFERRED,
    LIMBS,
    MAX_HEIGHT,
    MAX_REVISION,
    PROMISES,
    REVERTED_EVENTS,
    VALUE,
    LedgerEvent,
    LedgerKind,
)

Column: TypeAlias = pa.Array | pa.ChunkedArray
RowMask = npt.NDArray[np.bool_]

_HEIGHTS_OF = {"revision": ("height", "first_height", "last_height"), "timeout_revision": ("timeout_height",)}
"""Columns of heights by the column of their revision."""

_WINDOW_EVENTS = (*LedgerEvent, HEADER, VALUE)


def name_error(place: str, name: str | None, allowed: Sequence[str]) -> InvalidInput:
    """Return the error of a name that is not allowed.

    Args:
        place: Place of the name.
        name: The name, or None for null.
        allowed: The allowed names.
    """
    shown = "null" if name is None else shorten_name(name)
    return InvalidInput(f"{place}: {shown}: must be one of {', '.join(allowed)}")


def find_unknown_words(columns: Mapping[str, Column]) -> Iterator[tuple[str, RowMask, Sequence[str]]]:
    """Find the rows with an unknown event or kind, and reverted rows that name no event; null is no unknown word.

    Args:
        columns: Columns by name; others than ``event``, ``kind`` and ``detail`` are ignored.

    Yields:
        The column, a mask of its rows, and the allowed words.
    """
    for name, allowed in (("event", tuple(LedgerEvent)), ("kind", tuple(LedgerKind))):
        if name in columns and not _names(columns[name]) <= {*allowed}:
            yield name, NameCodes(allowed).codes(columns[name]) >= len(allowed), allowed
    if "event" in columns and LedgerEvent.REVERTED in _names(columns["event"]):
        reverted = NameCodes([LedgerEvent.REVERTED]).codes(columns["event"]) == 0
        known = np.zeros(len(reverted), dtype=bool)
        if "detail" in columns:
            detail = NameCodes(REVERTED_EVENTS).codes(columns["detail"])
            known = (detail >= 0) & (detail < len(REVERTED_EVENTS))
        yield "detail", reverted & ~known, REVERTED_EVENTS


def _names(column: Column) -> set[str]:
    """Return the names of a column, with unused ones of its dictionary."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    names = [chunk.dictionary if pa.types.is_dictionary(chunk.type) else chunk.unique() for chunk in chunks]
    return {name for each in names for name in each.drop_null().to_pylist()}


def find_large_heights(columns: Mapping[str, Column]) -> Iterator[tuple[str, RowMask, int]]:
    """Find the rows whose height or revision is too large to compare across revisions.

    Args:
        columns: Columns by name; others than heights and revisions are ignored.

    Yields:
        The column, a mask of its rows, and the largest allowed number.
    """
    for revision, heights in _HEIGHTS_OF.items():
        if revision not in columns:
            continue
        given = np.asarray(columns[revision].is_valid())
        for name, most in (*((height, MAX_HEIGHT) for height in heights), (revision, MAX_REVISION)):
            if name in columns:
                large = pc.fill_null(pc.greater(columns[name], pa.scalar(most, pa.uint64())), False)
                yield name, given & np.asarray(large), most


def require_amount_columns(names: Sequence[str], schema: pa.Schema, what: str) -> None:
    """Check that a table has all columns of an amount, or none.

    Args:
        names: Columns of the table.
        schema: The schema that it needs.
        what: Name of the table, for errors.

    Raises:
        InvalidInput: Some are missing.
    """
    missing = [name for name in LIMBS if name not in names]
    if LIMBS[0] in schema.names and 0 < len(missing) < len(LIMBS):
        raise InvalidInput(f"{what}: there is no column {', '.join(missing)}; an amount needs {', '.join(LIMBS)}")


def require_valid_rows(rows: pa.Table, what: str) -> pa.Table:
    """Check the values of a table.

    Args:
        rows: Rows with the schema of a table of the ledger.
        what: Name of the table, for errors.

    Returns:
        The rows.

    Raises:
        InvalidInput: A word is unknown, a height or revision too large, or an amount null in some columns only.
    """
    columns = dict(zip(rows.column_names, rows.columns, strict=True))
    for name, mask, allowed in find_unknown_words(columns):
        if mask.any():
            word = columns[name][int(mask.argmax())].as_py()
            raise name_error(f"{what}: {name}{' of a reverted row' * (name == 'detail')}", word, allowed)
    if "events" in columns:
        # A misspelt event, origin or guarantee would have no effect.
        columns["events"] = pc.list_flatten(columns["events"])
    for name, allowed in (("events", _WINDOW_EVENTS), ("how", (DECLARED, INFERRED)), ("promise", PROMISES)):
        if name in columns:
            for word in columns[name].drop_null().unique().to_pylist():
                if word not in allowed:
                    raise name_error(f"{what}: {name}", word, allowed)
    for name, mask, most in find_large_heights(columns):
        if mask.any():
            height = columns[name][int(mask.argmax())]
            beside = "" if name in _HEIGHTS_OF else " with a revision"
            raise InvalidInput(f"{what}: {name}: {height}: must be from 0 to {most}{beside}")
    for name in LIMBS[1:]:
        if name in columns and (np.asarray(columns[name].is_null()) != np.asarray(columns[LIMBS[0]].is_null())).any():
            raise InvalidInput(f"{what}: {LIMBS[0]} and {name}: one is null in a row without the other: must not be")
    return rows


__all__ = [
    "find_large_heights",
    "find_unknown_words",
    "name_error",
    "require_amount_columns",
    "require_valid_rows",
]
