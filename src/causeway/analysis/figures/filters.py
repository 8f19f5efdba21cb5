"""Filter messages by lanes, kinds, outcomes, names and ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.errors import InvalidInput

from causeway.analysis.figures.outcomes import MessageOutcomes
from causeway.audit.arrays import Array
from causeway.audit.columns import KINDS, NO_HEIGHT, NO_TIME, Bools
from causeway.core.arrow_types import value_type
from causeway.core.text import format_moment, format_value, to_one_line, to_utc
from causeway.ledger.outcomes import OUTCOMES
from causeway.ledger.parts import BucketPart, TablePart
from causeway.ledger.schema import LANE, LEDGER_SCHEMA

TEXT_COLUMNS = ("sender", "receiver", "message_id", "answers", "journey")
"""Text columns; a message has the first value among its rows."""

NAME_COLUMNS = (*LANE, "kind", "outcome", "index", *TEXT_COLUMNS)
"""Columns to filter by value."""

CHAIN_COLUMNS = "chain"
"""Columns of source and destination chains."""

RANGE_COLUMNS = ("index", "sent_height", "sent_tick", "sent_time")
"""Number and time columns to filter by range."""

_ALLOWED = {"kind": KINDS, "outcome": OUTCOMES}
_MAX_INDEX = (1 << 64) - 1

FilterValues = tuple[str | int | None, ...]
FilterRange = tuple[int | None, int | None]
"""First and last value, both inclusive; None: unbounded. Times in microseconds since 1970."""


@dataclass(frozen=True)
class MessageFilter:
    """A filter on messages; all conditions must hold.

    Attributes:
        values: the allowed values of each column (``NAME_COLUMNS``); None among them matches unknown values.
        calls: only requests sent by chains, none of users.
        chains: sets of chains; a message must come from or go to a chain of each set.
        ranges: the allowed range of each column (``RANGE_COLUMNS``); unknown values do not match.
    """

    values: Mapping[str, FilterValues] = field(default_factory=dict)
    calls: bool = False
    chains: tuple[FilterValues, ...] = ()
    ranges: Mapping[str, FilterRange] = field(default_factory=dict)

    @classmethod
    def of(cls, **values: Any) -> MessageFilter:
        """Build a filter from one or several allowed values of each column.

        Args:
            values: values by column; ``chain`` matches source or destination.

        Returns:
            The filter.

        Raises:
            InvalidInput: a column is unknown, or cannot have such a value.
        """
        found: dict[str, FilterValues] = {}
        for name, given in values.items():
            if name not in (*NAME_COLUMNS, CHAIN_COLUMNS):
                raise InvalidInput(f"{name}: must be one of {', '.join((*NAME_COLUMNS, CHAIN_COLUMNS))}")
            several = isinstance(given, Sequence | set | frozenset) and not isinstance(given, str | bytes)
            every = tuple(dict.fromkeys(given)) if several else (given,)
            for value in every:
                _check(name, value)
            found[name] = every
        chains = found.pop(CHAIN_COLUMNS, None)
        return cls(found, chains=() if chains is None else (chains,))

    @classmethod
    def between(cls, **ranges: Any) -> MessageFilter:
        """Build a filter from ranges.

        Args:
            ranges: first and last value by column (``RANGE_COLUMNS``), None: unbounded. Times as ``datetime`` or ISO
                8601
                (UTC without a zone).

        Returns:
            The filter.

        Raises:
            InvalidInput: a column is unknown, or a bound is invalid.
        """
        found: dict[str, FilterRange] = {}
        for name, given in ranges.items():
            if name not in RANGE_COLUMNS:
                raise InvalidInput(f"{name}: must be one of {', '.join(RANGE_COLUMNS)}")
            if not isinstance(given, tuple | list) or len(given) != 2:
                raise InvalidInput(f"{name}: {format_value(given)}: must be the first and the last; None: no bound")
            first, last = (None if each is None else _bound(name, each) for each in given)
            if first is not None and last is not None and first > last:
                raise InvalidInput(
                    f"{name}: {format_value(given[0])} is after {format_value(given[1])}: the range is empty"
                )
            found[name] = first, last
        return cls(ranges=found)

    def and_(self, other: MessageFilter) -> MessageFilter:
        """Return the conjunction with another filter."""
        both = dict(self.values)
        for name, values in other.values.items():
            both[name] = tuple(value for value in both[name] if value in values) if name in both else values
        ranges = dict(self.ranges)
        for name, range_ in other.ranges.items():
            ranges[name] = _within(ranges[name], range_) if name in ranges else range_
        return MessageFilter(
            both, self.calls or other.calls, tuple(dict.fromkeys((*self.chains, *other.chains))), ranges
        )

    @property
    def of_lanes(self) -> bool:
        """Return True if the filter restricts lanes."""
        return bool(self.lanes or self.chains)

    @property
    def lanes(self) -> dict[str, FilterValues]:
        """Return the conditions on lane columns."""
        return {name: self.values[name] for name in LANE if name in self.values}

    @property
    def texts(self) -> dict[str, FilterValues]:
        """Return the conditions on text columns."""
        return {name: self.values[name] for name in TEXT_COLUMNS if name in self.values}

    def __bool__(self) -> bool:
        return bool(self.values or self.calls or self.chains or self.ranges)

    def __str__(self) -> str:
        words = ["calls"] if self.calls else []
        for name, values in self.values.items():
            words.append(f"{name} {_format_values(values)}")
        words += [f"from or to {_format_values(values)}" for values in self.chains]
        for name, bounds in self.ranges.items():
            ends = [None if end is None else _end(name, end) for end in bounds]
            words += [f"{name} {word} {end}" for word, end in zip(("from", "to"), ends, strict=True) if end is not None]
        return ", ".join(words)

    def part(self, part: BucketPart) -> BucketPart | None:
        """Return the rows of a part in matching lanes; None if there are none."""
        if not self.of_lanes or not part.num_rows:
            return part
        ends = ("source", "destination") if self.chains else ()
        rows = self.rows(part.read([*dict.fromkeys((*self.lanes, *ends))]))
        if rows.all():
            return part
        if not rows.any():
            return None
        return TablePart(part.take(LEDGER_SCHEMA.names, np.flatnonzero(rows)))

    def rows(self, table: pa.Table) -> Bools:
        """Return a mask of the rows in matching lanes."""
        found = np.ones(table.num_rows, bool)
        for name, values in self.lanes.items():
            found &= in_values(table[name], values)
        for values in self.chains:
            found &= in_values(table["source"], values) | in_values(table["destination"], values)
        return found

    def messages(self, outcomes: MessageOutcomes) -> MessageOutcomes:
        """Return the matching messages, by all conditions except those on lanes."""
        chosen = outcomes.is_call.copy() if self.calls else np.ones(len(outcomes), bool)
        if "kind" in self.values:
            chosen &= np.isin(outcomes.kind, [KINDS.index(str(kind)) for kind in self.values["kind"]])
        if "index" in self.values:
            columns, base = outcomes.columns, outcomes.base
            numbers = [value for value in self.values["index"] if isinstance(value, int)]
            indexed = columns.indexed[base] == 1
            own = indexed & np.isin(columns.index[base], np.array(numbers, np.uint64))
            chosen &= own | (~indexed if None in self.values["index"] else False)
        if "outcome" in self.values:
            chosen &= np.isin(outcomes.outcome, [OUTCOMES.index(str(name)) for name in self.values["outcome"]])
        for name, values in self.texts.items():
            chosen &= in_values(outcomes.first_seen(name), values)
        for name, (first, last) in self.ranges.items():
            column, seen = _column(outcomes, name)
            chosen &= seen
            for bound, within in ((first, np.greater_equal), (last, np.less_equal)):
                if bound is not None:
                    chosen &= within(column, column.dtype.type(bound))
        return outcomes if chosen.all() else outcomes.only(chosen)


ALL_MESSAGES = MessageFilter()


def in_values(column: pa.Array | pa.ChunkedArray, values: FilterValues) -> Bools:
    """Return a mask of the rows of a column with one of some values; None matches null.

    Args:
        column: the column.
        values: the allowed values.

    Returns:
        Booleans, one a row.
    """
    kind = column.type
    texts = pa.array([value for value in values if value is not None], value_type(kind))
    if pa.types.is_dictionary(kind):
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        found = [_coded(chunk, texts) for chunk in chunks]
        hits = np.concatenate([np.zeros(0, bool), *found])
    else:
        hits = np.asarray(pc.fill_null(pc.is_in(column, texts), False))
    return hits | np.asarray(column.is_null()) if None in values else hits


def _coded(chunk: pa.DictionaryArray, texts: pa.Array) -> Bools:
    among = np.append(np.asarray(pc.fill_null(pc.is_in(chunk.dictionary, texts), False), bool), False)
    found: Bools = among[chunk.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
    return found


def _column(outcomes: MessageOutcomes, name: str) -> tuple[Array, Bools]:
    """Return a number or time of each message, and a mask of the known ones."""
    if name == "index":
        columns, base = outcomes.columns, outcomes.base
        return columns.index[base], columns.indexed[base] == 1
    numbers = getattr(outcomes.sent, name.removeprefix("sent_"))
    return numbers, numbers != (NO_TIME if name == "sent_time" else NO_HEIGHT)


def _within(one: FilterRange, other: FilterRange) -> FilterRange:
    firsts = [each for each in (one[0], other[0]) if each is not None]
    lasts = [each for each in (one[1], other[1]) if each is not None]
    return max(firsts, default=None), min(lasts, default=None)


def _bound(name: str, value: Any) -> int:
    """Parse a bound of a range as a number.

    Raises:
        InvalidInput: the bound is invalid.
    """
    if name != "sent_time":
        _check("index", value, name)
        return int(value)
    try:
        if not isinstance(value, str | datetime):
            raise ValueError
        time = to_utc(value)
    except (ValueError, OverflowError):
        raise InvalidInput(
            f"{name}: {format_value(value)}: must be a time, such as 2024-10-09 "
            "or 2024-10-09T14:54:48, in the years 1 to 9999"
        ) from None
    return (time - _EPOCH) // _MICROSECOND


def _end(name: str, bound: int) -> str:
    return format_moment(_EPOCH + bound * _MICROSECOND) if name == "sent_time" else f"{bound}"


_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)


def _format_values(values: FilterValues) -> str:
    return " or ".join("null" if value is None else to_one_line(str(value)) for value in values)


def _check(name: str, value: Any, called: str | None = None) -> None:
    if name == "index":
        if value is not None and not (type(value) is int and 0 <= value <= _MAX_INDEX):
            raise InvalidInput(
                f"{called or name}: {format_value(value)}: must be a whole number from 0 to {_MAX_INDEX}"
            )
    elif name in _ALLOWED:
        if value not in _ALLOWED[name]:
            raise InvalidInput(f"{name}: {format_value(value)}: must be one of {', '.join(_ALLOWED[name])}")
    elif value is not None and not isinstance(value, str):
        raise InvalidInput(f"{name}: {format_value(value)}: must be a text")


__all__ = [
    "ALL_MESSAGES",
    "CHAIN_COLUMNS",
    "NAME_COLUMNS",
    "RANGE_COLUMNS",
    "TEXT_COLUMNS",
    "MessageFilter",
    "in_values",
]
