"""Rules for rows of a ledger that come from outside: allowed words, ranges of heights, whole amounts.

Ingest quarantines records that break them; tables and DataFrames are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.errors import InvalidInput

from causeway.core.text import shorten_name
from causeway.ledger.encodings import NameCodes
from causeway.ledger.schema import (
    ANSWERED_WITHIN,
    CLOCK_TOLERANCE,
    DECLARED,
    EXPECTED_WITHIN,
    HEADER,
    INFERRED,
    LIMBS,
    MAX_HEIGHT,
    MAX_REVISION,
    MAY_DROP,
    PROMISES,
    RECEIVED_WITHIN,
    REVERTED,
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

PROMISE_OPTIONS = {
    ANSWERED_WITHIN: "seconds", "final_after": "seconds", RECEIVED_WITHIN: "seconds", EXPECTED_WITHIN: "seconds",
    CLOCK_TOLERANCE: "seconds", "capacity": "number", MAY_DROP: "cause",
}  # fmt: skip
"""Option of each guarantee that has one, by its name in mappings. In rows it is ``detail`` for a cause, or else
``number``."""

_BOUNDS = (("first_height", "last_height"), ("first_time", "last_time"))

_FIRST_TIME, _LAST_TIME = -(2**63) + 1, 2**63 - 2
"""Microseconds since 1970. One less and one more mean "unknown" in audits."""


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
    """Find the rows with an unknown event, kind or status, and reverted rows that name no event.

    Null is no unknown word.

    Args:
        columns: Columns by name; others than ``event``, ``kind``, ``status`` and ``detail`` are ignored.

    Yields:
        The column, a mask of its rows, and the allowed words.
    """
    for name, allowed in (("event", tuple(LedgerEvent)), ("kind", tuple(LedgerKind)), ("status", (REVERTED,))):
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


def find_window_fault(window: Mapping[str, Any]) -> str | None:
    """Describe what is wrong with the bounds of a window.

    Args:
        window: ``revision``, ``first_height``, ``last_height``, ``first_time`` and ``last_time``; None: not given.

    Returns:
        The column, its value and what is allowed, or None.
    """
    for first, last in _BOUNDS:
        if (window[first] is None) != (window[last] is None):
            missing = first if window[first] is None else last
            return f"{missing}: missing: {first} and {last} are given together"
        if window[first] is not None and window[first] > window[last]:
            return f"{last}: {window[last]}: lies before {first} ({window[first]})"
    if window["first_height"] is None and window["revision"] is not None:
        return f"revision: {window['revision']}: has no effect without first_height and last_height"
    if window["first_height"] is None and window["first_time"] is None:
        return "first_height: missing: give first_height and last_height, or first_time and last_time"
    return None


def find_promise_fault(promise: str, own: str | None, options: Mapping[str, object]) -> str | None:
    """Describe what is wrong with the options of a guarantee.

    Args:
        promise: Name of the guarantee.
        own: Name of its option (``PROMISE_OPTIONS``), or None.
        options: All options by name; None: not given.

    Returns:
        The option, its value and what is allowed, or None.
    """
    if own is not None and promise != ANSWERED_WITHIN and options[own] is None:
        return f"{own}: missing: {promise} needs {own}"
    for name, value in options.items():
        if name != own and value is not None:
            return f"{name}: {shorten_name(str(value))}: has no effect on {promise}"
    return None


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
        InvalidInput: A word is unknown, a height or revision too large, a time out of range, an amount null in some
            columns only, or a window or guarantee one that no mapping may declare.
    """
    columns = dict(zip(rows.column_names, rows.columns, strict=True))
    for name, mask, allowed in find_unknown_words(columns):
        if mask.any():
            word = columns[name][int(mask.argmax())].as_py()
            place = f"{what}: {name}{' of a reverted row' * (name == 'detail')}"
            raise name_error(place, word, (*allowed, *["null"] * (name == "status")))
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
    times = {name: column.cast(pa.int64()) for name, column in columns.items() if pa.types.is_timestamp(column.type)}
    for name, column in times.items():
        for end in pc.min_max(column).values():
            if end.is_valid and not _FIRST_TIME <= end.as_py() <= _LAST_TIME:
                raise InvalidInput(
                    f"{what}: {name}: {end} microseconds from 1970: must be from {_FIRST_TIME} to {_LAST_TIME}"
                )
    for fault in _faults(columns | times):
        if fault is not None:
            raise InvalidInput(f"{what}: {fault}")
    return rows


def _faults(columns: Mapping[str, Column]) -> Iterator[str | None]:
    """Yield the fault of each window or guarantee, or None."""
    if "promise" in columns:
        rows = (columns[name].to_pylist() for name in ("promise", "number", "detail"))
        for promise, number, detail in zip(*rows, strict=True):
            option = PROMISE_OPTIONS.get(promise)
            own = None if option is None else "detail" if option == "cause" else "number"
            yield find_promise_fault(promise, own, {"number": number, "detail": detail})
    elif "first_time" in columns and "how" in columns:
        names = ("revision", *(name for bounds in _BOUNDS for name in bounds))
        for values in zip(*(columns[name].to_pylist() for name in names), strict=True):
            window = dict(zip(names, values, strict=True))
            for name in _BOUNDS[1]:
                # As text a date, also outside the calendar of Python.
                window[name] = None if window[name] is None else np.datetime64(window[name], "us")
            yield find_window_fault(window)


__all__ = [
    "PROMISE_OPTIONS",
    "find_large_heights",
    "find_promise_fault",
    "find_unknown_words",
    "find_window_fault",
    "name_error",
    "require_amount_columns",
    "require_valid_rows",
]
