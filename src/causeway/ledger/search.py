"""Search a stored ledger for messages, related messages, headers and rows.

Only row groups whose column bounds admit a match are read, and of these only the compared columns. Rows are read bucket
by bucket, each event once.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from causeway_proofs.errors import InvalidInput

from causeway.core.arrow_types import to_python_rows
from causeway.ledger.commits import table_schema
from causeway.ledger.row_order import SEGMENT_BITS, assign_header_buckets, drop_repeats, message_bucket
from causeway.ledger.schema import HEADERS_SCHEMA, LANE, LEDGER_SCHEMA, STATEMENT
from causeway.ledger.store import Ledger, StoredFile

__all__ = [
    "BUCKETED",
    "CONTINUATIONS",
    "MAX_FOUND",
    "RELATIONS",
    "Condition",
    "EventPosition",
    "MessageKey",
    "TextPattern",
    "ValueRange",
    "condition_mask",
    "find_messages",
    "find_related",
    "headers_at",
    "message_keys",
    "read_matching",
    "read_message_rows",
    "select_rows",
]

MAX_FOUND = 1_000
"""Default maximum number of found messages."""


@dataclass(frozen=True)
class TextPattern:
    """Texts with a given begin and end.

    Attributes:
        begin: First characters.
        end: Last characters.
    """

    begin: str
    end: str = ""

    def matches(self, text: str | None) -> bool:
        """Return True if a text matches."""
        long_enough = text is not None and len(text) >= len(self.begin) + len(self.end)
        return long_enough and str(text).startswith(self.begin) and str(text).endswith(self.end)


@dataclass(frozen=True)
class ValueRange:
    """Numbers or times in a closed range.

    Attributes:
        first: Lower bound, or None.
        last: Upper bound, or None.
    """

    first: int | datetime | None = None
    last: int | datetime | None = None


Condition = Mapping[str, Collection[str | int | None] | TextPattern | ValueRange]
"""Columns with allowed values; a row must match in each column."""

_KEY = (*LANE, "index", "message_id")
_THREADS = 4


@dataclass(frozen=True)
class MessageKey:
    """Identity of a message.

    Attributes:
        lane: Protocol, source, destination and lane name.
        index: Index in the lane, or None.
        message_id: Identifier of a message without index, or None.
    """

    lane: tuple[str | None, ...]
    index: int | None
    message_id: str | None


class EventPosition(NamedTuple):
    """Position of an event.

    Attributes:
        chain: Name of the chain.
        height: Height on the chain.
        tick: Tick of a run, or None.
    """

    chain: str
    height: int
    tick: int | None


def find_messages(ledger: Ledger, any_of: Sequence[Condition], most: int = MAX_FOUND) -> list[MessageKey]:
    """Find the messages with a row that matches one of several conditions.

    Args:
        ledger: The ledger.
        any_of: Conditions; one suffices.
        most: Maximum number of messages.

    Returns:
        The messages, in the order of the ledger's files.

    Raises:
        LedgerDamaged: A file is damaged.
    """
    found: dict[MessageKey, None] = {}
    files = ledger.files("ledger")

    def search_file(file: StoredFile) -> pa.Table:
        return pa.concat_tables([read_matching(ledger, file, condition, _KEY, most) for condition in any_of])

    with ThreadPoolExecutor(min(os.cpu_count() or 1, _THREADS), "causeway-search") as threads:
        for first in range(0, len(files), _THREADS):  # a few at a time, so that early matches end the search
            for rows in threads.map(search_file, files[first : first + _THREADS]):
                found |= dict.fromkeys(message_keys(rows))
            if len(found) >= most:
                break
    return [*found][:most]


def message_keys(rows: pa.Table) -> list[MessageKey]:
    """Return the messages of ledger rows, in order of appearance.

    Args:
        rows: Rows with the columns of ``LANE``, ``index`` and ``message_id``.

    Returns:
        The distinct messages.
    """
    columns = [rows[name].to_pylist() for name in _KEY]
    found: dict[MessageKey, None] = {}
    for *lane, index, ident in zip(*columns, strict=True):
        if index is not None or ident is not None:
            found[MessageKey(tuple(lane), index, ident if index is None else None)] = None
    return [*found]


def read_message_rows(ledger: Ledger, messages: Iterable[MessageKey]) -> pa.Table:
    """Read all rows of some messages.

    Args:
        ledger: The ledger.
        messages: The messages.

    Returns:
        Their rows, in ledger order.

    Raises:
        LedgerDamaged: A file is damaged.
    """
    parts = [LEDGER_SCHEMA.empty_table()]
    for message in messages:
        condition: dict[str, Collection[str | int | None] | TextPattern | ValueRange] = {
            name: (value,) for name, value in zip(LANE, message.lane, strict=True)
        }
        condition["index"] = (message.index,)
        if message.index is None:
            condition["message_id"] = (message.message_id,)
        bucket = message_bucket(message.lane, message.index, message.message_id, ledger.buckets)
        for file in ledger.files("ledger", bucket):
            parts.append(read_matching(ledger, file, condition, LEDGER_SCHEMA.names).cast(LEDGER_SCHEMA))
    return drop_repeats(pa.concat_tables(parts).unify_dictionaries().combine_chunks())


CONTINUATIONS = (("message_id", "continues"), ("continues", "message_id"))
"""Pairs of columns with equal values if one message continues the other."""

ANSWERS = (("message_id", "answers"), ("answers", "message_id"), ("answers", "answers"))

RELATIONS = (("journey", "journey"), *ANSWERS, *CONTINUATIONS)
"""Pairs of columns with equal values in related messages: of one journey, requests and answers, answers of one
request (a rerouted one has positions in two lanes), and continuations."""


def find_related(
    ledger: Ledger, rows: pa.Table, most: int = MAX_FOUND, relations: Sequence[tuple[str, str]] = RELATIONS
) -> list[MessageKey]:
    """Find the messages related to those of some rows.

    Args:
        ledger: The ledger.
        rows: Rows of messages.
        most: Maximum number of messages.
        relations: Pairs of columns to compare.

    Returns:
        The related messages.

    Raises:
        LedgerDamaged: A file is damaged.
    """
    conditions: list[Condition] = []
    for own, other in relations:
        seen = sorted({value for value in rows[own].to_pylist() if value is not None})
        if seen:
            conditions.append({other: seen[:most]})
    return find_messages(ledger, conditions, most) if conditions else []


def headers_at(ledger: Ledger, places: Collection[EventPosition]) -> dict[EventPosition, list[dict[str, Any]]]:
    """Return the headers of chains at the positions of events.

    In a run the height of a position is that of the network. A chain may number its blocks differently (a subnet after
    a split or a halt, a parachain). Then a header belongs to the positions of its ``tick``. Heights are compared where
    the header or the position has no tick.

    Args:
        ledger: The ledger.
        places: Positions of events.

    Returns:
        Headers by position.

    Raises:
        LedgerDamaged: A file is damaged.
    """
    found: dict[EventPosition, list[dict[str, Any]]] = {}
    for place, row in _headers(ledger, places, by_tick=False):
        if None in (row["tick"], place.tick) or (row["tick"] == place.tick and row["status"] is None):
            found.setdefault(place, []).append(row)
    others: dict[EventPosition, list[dict[str, Any]]] = {}
    remaining = [place for place in places if place not in found and place.tick is not None]
    for place, row in _headers(ledger, remaining, by_tick=True):
        if row["status"] is None:
            others.setdefault(place, []).append(row)
    for place, rows in others.items():
        last = max(row["height"] for row in rows)
        found[place] = [row for row in rows if row["height"] == last]
    return found


def _headers(
    ledger: Ledger, places: Collection[EventPosition], *, by_tick: bool
) -> Iterator[tuple[EventPosition, dict[str, Any]]]:
    """Yield the headers at the heights of positions, or at their ticks (``by_tick``)."""
    if not places or not ledger.files("headers"):
        return
    wanted: dict[int, dict[tuple[str, int | None], list[EventPosition]]] = {}
    for place in sorted(set(places), key=lambda place: (place.chain, place.height, place.tick or 0)):
        most = max(place.height, (place.tick or 0) + 1)
        heights = [*range(0, most, 1 << SEGMENT_BITS), most] if by_tick else [place.height]
        named = pa.table(
            {"chain": pa.array([place.chain] * len(heights)), "height": pa.array(heights, pa.uint64())},
        )
        for bucket in set(assign_header_buckets(named, ledger.buckets).tolist()):
            key = place.chain, place.tick if by_tick else place.height
            wanted.setdefault(bucket, {}).setdefault(key, []).append(place)
    column = "tick" if by_tick else "height"
    for bucket, own in sorted(wanted.items()):
        condition: Condition = {"chain": [chain for chain, _ in own], column: [value for _, value in own]}
        for file in ledger.files("headers", bucket):
            for row in to_python_rows(read_matching(ledger, file, condition, HEADERS_SCHEMA.names)):
                for place in own.get((row["chain"], row[column]), ()):
                    yield place, row


def read_matching(
    ledger: Ledger, file: StoredFile, condition: Condition, names: Sequence[str], most: int | None = None
) -> pa.Table:
    """Read some columns of the rows of a file that match a condition.

    Args:
        ledger: The ledger.
        file: A file of it.
        condition: The condition.
        names: Names of columns.
        most: Number of matches that ends the read after its row group.

    Returns:
        The matching rows.

    Raises:
        LedgerDamaged: The file is damaged.
    """
    parts: list[pa.Table] = []
    count = 0
    with ledger.opened(file) as opened:
        schema = opened.schema_arrow
        for group in range(opened.num_row_groups):
            if not _may_have(opened.metadata.row_group(group), schema, condition):
                continue
            tested = opened.read_row_group(group, columns=[*condition], use_threads=False)
            hits = np.flatnonzero(condition_mask(tested, condition))
            if len(hits):
                own = opened.read_row_group(group, columns=[*names], use_threads=False).select([*names])
                parts.append(own.take(pa.array(hits)))
                count += len(hits)
            if most is not None and count >= most:
                break
        if not parts:
            parts.append(pa.schema([schema.field(name) for name in names]).empty_table())
    return pa.concat_tables(parts)


def condition_mask(rows: pa.Table, condition: Condition) -> npt.NDArray[np.bool_]:
    """Return a mask of rows that match a condition.

    Args:
        rows: Rows with the columns of the condition.
        condition: The condition.
    """
    found = np.ones(rows.num_rows, dtype=bool)
    for name, values in condition.items():
        column = rows[name]
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if isinstance(values, TextPattern):
            hits = pc.and_(pc.starts_with(column, values.begin), pc.ends_with(column, values.end))
            found &= np.asarray(pc.fill_null(hits, False))
        elif isinstance(values, ValueRange):
            for bound, within in ((values.first, pc.greater_equal), (values.last, pc.less_equal)):
                if bound is not None:
                    found &= np.asarray(pc.fill_null(within(column, pa.scalar(bound, column.type)), False))
        else:
            found &= np.asarray(pc.is_in(column, pa.array([*values], column.type)))
    return found


def _may_have(group: pq.RowGroupMetaData, schema: pa.Schema, condition: Condition) -> bool:
    """Return True if a row group may match a condition, by its column bounds."""
    for name, values in condition.items():
        statistics = group.column(schema.get_field_index(name)).statistics
        if statistics is None:
            continue
        null = not isinstance(values, TextPattern | ValueRange) and None in values
        if not statistics.has_min_max:
            if statistics.has_null_count and statistics.null_count == group.num_rows and not null:
                return False
            continue
        try:
            least, most = statistics.min, statistics.max
        except (OverflowError, ValueError):
            continue  # times outside of Python's range
        if isinstance(values, TextPattern):
            if most < values.begin or least[: len(values.begin)] > values.begin:
                return False
            continue
        if isinstance(least, int) and (least < 0 or most < 0):
            continue  # unsigned values with signed statistics
        if isinstance(values, ValueRange):
            if (values.first is not None and most < values.first) or (values.last is not None and least > values.last):
                return False
            continue
        nulls = not statistics.has_null_count or statistics.null_count > 0
        if not any(nulls if value is None else least <= value <= most for value in values):
            return False
    return True


BUCKETED = ("ledger", "value", "headers", "watermarks")
"""Tables with buckets, whose rows need deduplication across files."""


def select_rows(
    ledger: Ledger,
    table: str = "ledger",
    condition: Condition | None = None,
    most: int | None = None,
    *,
    buckets: Iterable[int] | None = None,
) -> Iterator[pa.Table]:
    """Yield the rows of a table that match a condition, bucket by bucket.

    The order is the ledger's, independent of its files.

    Args:
        ledger: The ledger.
        table: Name of the table.
        condition: The condition; None: all rows.
        most: Maximum number of rows.
        buckets: Buckets of a bucketed table; None: all.

    Raises:
        InvalidInput: The table lacks a column of the condition.
        LedgerDamaged: A file is damaged.
    """
    condition = condition or {}
    schema = table_schema(table)
    for name in condition:
        if name not in schema.names:
            raise InvalidInput(f"{name}: the table {table} has no such column; it has {', '.join(schema.names)}")
    remaining = most
    chosen = range(ledger.buckets) if buckets is None else buckets
    for bucket in chosen if table in BUCKETED else (None,):
        if remaining == 0:
            return
        rows = ledger.table(table) if bucket is None else _of_bucket(ledger, table, bucket, condition)
        if condition and rows.num_rows:
            rows = rows.filter(pa.array(condition_mask(rows, condition)))
        rows = rows if remaining is None else rows.slice(0, remaining)
        if remaining is not None:
            remaining -= rows.num_rows
        if rows.num_rows:
            yield rows


def _of_bucket(ledger: Ledger, table: str, bucket: int, condition: Condition) -> pa.Table:
    """Return rows of a bucket, among them all that fulfil a condition."""
    if not condition or table != "ledger" or any(name in STATEMENT for name in condition):
        # The statement of a row decides among duplicates, so all of them are needed.
        return ledger.rows(bucket, table=table)
    names: Sequence[str] = table_schema(table).names
    own = [file for file in ledger.files(table, bucket) if file.bucket is not None]
    parts = [read_matching(ledger, file, condition, names).cast(table_schema(table)) for file in own]
    loose = ledger.loose(bucket)
    if loose is not None:
        parts.append(loose.filter(pa.array(condition_mask(loose, condition))))
    found = [part for part in parts if part.num_rows]
    if len(parts) == 1 and loose is None:
        return parts[0]
    return drop_repeats(pa.concat_tables(found)) if found else table_schema(table).empty_table()
