"""Messages of a stored ledger, found by what a user knows of them, without reading the whole of it.

Of each row group the least and the largest value of a column are in its file: only those that may have what is sought
are read, and of these only the columns that are compared.
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

from causeway.ledger.chain_order import header_buckets
from causeway.ledger.order import SEGMENT_BITS, bucket_of, without_repeats
from causeway.ledger.schema import HEADERS_SCHEMA, LANE, LEDGER_SCHEMA
from causeway.ledger.typed import plain_rows
from causeway.pipeline.ledger_store import Ledger, StoredFile

MOST_FOUND = 1_000
"""So many messages are found at most."""


@dataclass(frozen=True)
class Like:
    """Texts that begin and end in some way."""

    begin: str
    end: str = ""

    def matches(self, text: str | None) -> bool:
        """Return whether a text is one."""
        long_enough = text is not None and len(text) >= len(self.begin) + len(self.end)
        return long_enough and str(text).startswith(self.begin) and str(text).endswith(self.end)


@dataclass(frozen=True)
class Between:
    """Numbers or times from ``first`` to ``last``, both included; None: without a bound."""

    first: int | datetime | None = None
    last: int | datetime | None = None


Condition = Mapping[str, Collection[str | int | None] | Like | Between]
"""Columns, and the values of which a row has one in each."""

_KEY = (*LANE, "index", "message_id")
_THREADS = 4


@dataclass(frozen=True)
class MessageKey:
    """What names a message: its lane (protocol, source, destination, lane) and index, or without index its
    ``message_id``."""

    lane: tuple[str | None, ...]
    index: int | None
    message_id: str | None


class Place(NamedTuple):
    """The chain and height of an event, and in a run its tick."""

    chain: str
    height: int
    tick: int | None


def find(ledger: Ledger, any_of: Sequence[Condition], most: int = MOST_FOUND) -> list[MessageKey]:
    """Return the messages of which a row fulfils one of some conditions, in the order of the ledger's files.

    ``most``: so many at the most. Raises ``LedgerDamaged``.
    """
    found: dict[MessageKey, None] = {}
    files = ledger.files("ledger")

    def look(file: StoredFile) -> pa.Table:
        return pa.concat_tables([matching(ledger, file, condition, _KEY, most) for condition in any_of])

    with ThreadPoolExecutor(min(os.cpu_count() or 1, _THREADS), "causeway-search") as threads:
        for first in range(0, len(files), _THREADS):  # a few at a time, so that what is found early ends the search
            for rows in threads.map(look, files[first : first + _THREADS]):
                found |= dict.fromkeys(keys_of(rows))
            if len(found) >= most:
                break
    return [*found][:most]


def keys_of(rows: pa.Table) -> list[MessageKey]:
    """Return the messages that rows of the ledger are about, in their order."""
    columns = [rows[name].to_pylist() for name in _KEY]
    found: dict[MessageKey, None] = {}
    for *lane, index, ident in zip(*columns, strict=True):
        if index is not None or ident is not None:
            found[MessageKey(tuple(lane), index, ident if index is None else None)] = None
    return [*found]


def rows_of(ledger: Ledger, messages: Iterable[MessageKey]) -> pa.Table:
    """Return all rows of some messages, in the order of the ledger. Raises ``LedgerDamaged``."""
    parts = [LEDGER_SCHEMA.empty_table()]
    for message in messages:
        condition: dict[str, Collection[str | int | None] | Like | Between] = {
            name: (value,) for name, value in zip(LANE, message.lane, strict=True)
        }
        condition["index"] = (message.index,)
        if message.index is None:
            condition["message_id"] = (message.message_id,)
        bucket = bucket_of(message.lane, message.index, message.message_id, ledger.buckets)
        for file in ledger.files("ledger", bucket):
            parts.append(matching(ledger, file, condition, LEDGER_SCHEMA.names).cast(LEDGER_SCHEMA))
    return without_repeats(pa.concat_tables(parts).unify_dictionaries().combine_chunks())


CONTINUATIONS = (("message_id", "continues"), ("continues", "message_id"))
"""Pairs of columns with one value in messages of which one carries on the other."""

ANSWERS = (("message_id", "answers"), ("answers", "message_id"), ("answers", "answers"))

RELATIONS = (("journey", "journey"), *ANSWERS, *CONTINUATIONS)
"""The same of messages that belong together: of one journey, requests and answers, answers of one request (one that was
routed anew has a place in two lanes), those that carry on others."""


def related(
    ledger: Ledger, rows: pa.Table, most: int = MOST_FOUND, relations: Sequence[tuple[str, str]] = RELATIONS
) -> list[MessageKey]:
    """Return the messages that belong to those of some rows.

    Raises ``LedgerDamaged``.
    """
    conditions: list[Condition] = []
    for own, other in relations:
        seen = sorted({value for value in rows[own].to_pylist() if value is not None})
        if seen:
            conditions.append({other: seen[:most]})
    return find(ledger, conditions, most) if conditions else []


def headers_at(ledger: Ledger, places: Collection[Place]) -> dict[Place, list[dict[str, Any]]]:
    """Return the headers that chains made where something happened, as the ledger has them.

    Of a run, ``height`` of a place is that of the network, and chains may number their blocks otherwise (a subnet that
    a split made or that was halted, a parachain): a header belongs to the places of its ``tick``. Where the header or
    the place has no tick, the heights are compared. Raises ``LedgerDamaged``.
    """
    found: dict[Place, list[dict[str, Any]]] = {}
    for place, row in _headers(ledger, places, by_tick=False):
        if None in (row["tick"], place.tick) or (row["tick"] == place.tick and row["status"] is None):
            found.setdefault(place, []).append(row)
    others: dict[Place, list[dict[str, Any]]] = {}
    left = [place for place in places if place not in found and place.tick is not None]
    for place, row in _headers(ledger, left, by_tick=True):
        if row["status"] is None:
            others.setdefault(place, []).append(row)
    for place, rows in others.items():
        last = max(row["height"] for row in rows)
        found[place] = [row for row in rows if row["height"] == last]
    return found


def _headers(ledger: Ledger, places: Collection[Place], *, by_tick: bool) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Yield the headers of the chains of places that have their heights, or ``by_tick`` those that have their ticks."""
    if not places or not ledger.files("headers"):
        return
    wanted: dict[int, dict[tuple[str, int | None], list[Place]]] = {}
    for place in sorted(set(places), key=lambda place: (place.chain, place.height, place.tick or 0)):
        most = max(place.height, (place.tick or 0) + 1)
        heights = [*range(0, most, 1 << SEGMENT_BITS), most] if by_tick else [place.height]
        named = pa.table(
            {"chain": pa.array([place.chain] * len(heights)), "height": pa.array(heights, pa.uint64())},
        )
        for bucket in set(header_buckets(named, ledger.buckets).tolist()):
            key = place.chain, place.tick if by_tick else place.height
            wanted.setdefault(bucket, {}).setdefault(key, []).append(place)
    column = "tick" if by_tick else "height"
    for bucket, own in sorted(wanted.items()):
        condition: Condition = {"chain": [chain for chain, _ in own], column: [value for _, value in own]}
        for file in ledger.files("headers", bucket):
            for row in plain_rows(matching(ledger, file, condition, HEADERS_SCHEMA.names)):
                for place in own.get((row["chain"], row[column]), ()):
                    yield place, row


def matching(
    ledger: Ledger, file: StoredFile, condition: Condition, names: Sequence[str], most: int | None = None
) -> pa.Table:
    """Return some columns of the rows of a file that fulfil a condition. Raises ``LedgerDamaged``.

    ``most``: no further row group is looked at once so many are found.
    """
    parts: list[pa.Table] = []
    count = 0
    with ledger.opened(file) as opened:
        schema = opened.schema_arrow
        for group in range(opened.num_row_groups):
            if not _may_have(opened.metadata.row_group(group), schema, condition):
                continue
            tested = opened.read_row_group(group, columns=[*condition], use_threads=False)
            hits = np.flatnonzero(fulfil(tested, condition))
            if len(hits):
                own = opened.read_row_group(group, columns=[*names], use_threads=False).select([*names])
                parts.append(own.take(pa.array(hits)))
                count += len(hits)
            if most is not None and count >= most:
                break
        if not parts:
            parts.append(pa.schema([schema.field(name) for name in names]).empty_table())
    return pa.concat_tables(parts)


def fulfil(rows: pa.Table, condition: Condition) -> npt.NDArray[np.bool_]:
    """Return which rows fulfil a condition."""
    found = np.ones(rows.num_rows, dtype=bool)
    for name, values in condition.items():
        column = rows[name]
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if isinstance(values, Like):
            hits = pc.and_(pc.starts_with(column, values.begin), pc.ends_with(column, values.end))
            found &= np.asarray(pc.fill_null(hits, False))
        elif isinstance(values, Between):
            for bound, within in ((values.first, pc.greater_equal), (values.last, pc.less_equal)):
                if bound is not None:
                    found &= np.asarray(pc.fill_null(within(column, pa.scalar(bound, column.type)), False))
        else:
            found &= np.asarray(pc.is_in(column, pa.array([*values], column.type)))
    return found


def _may_have(group: pq.RowGroupMetaData, schema: pa.Schema, condition: Condition) -> bool:
    """Return whether a row group may have a row that fulfils a condition, by the bounds of its columns."""
    for name, values in condition.items():
        statistics = group.column(schema.get_field_index(name)).statistics
        if statistics is None:
            continue
        null = not isinstance(values, Like | Between) and None in values
        if not statistics.has_min_max:
            if statistics.has_null_count and statistics.null_count == group.num_rows and not null:
                return False
            continue
        try:
            least, most = statistics.min, statistics.max
        except (OverflowError, ValueError):
            continue  # times that Python does not have
        if isinstance(values, Like):
            if most < values.begin or least[: len(values.begin)] > values.begin:
                return False
            continue
        if isinstance(least, int) and (least < 0 or most < 0):
            continue  # unsigned words that were taken for signed ones
        if isinstance(values, Between):
            if (values.first is not None and most < values.first) or (values.last is not None and least > values.last):
                return False
            continue
        nulls = not statistics.has_null_count or statistics.null_count > 0
        if not any(nulls if value is None else least <= value <= most for value in values):
            return False
    return True


__all__ = [
    "CONTINUATIONS", "MOST_FOUND", "RELATIONS", "Between", "Condition", "Like", "MessageKey", "Place", "find",
    "fulfil", "headers_at", "keys_of", "matching", "related", "rows_of",
]  # fmt: skip
