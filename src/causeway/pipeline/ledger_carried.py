"""Rows of the ledger as they go through Spark: names as strings, unsigned numbers as signed ones of the same order, and
movements of value among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway.ledger.chain_order import value_buckets
from causeway.ledger.order import EVENTS, buckets_of
from causeway.ledger.schema import LANE, LEDGER_SCHEMA, STATEMENT, VALUE_SCHEMA
from causeway.model.errors import CausewayError, InvalidInput
from causeway.pipeline.ledger_columns import as_table
from causeway.pipeline.ledger_tasks import prepare_worker

if TYPE_CHECKING:
    from pyspark.sql import Column

Batches = Iterator[pa.RecordBatch]

_FLIP = np.uint64(1 << 63)
"""What unsigned numbers are xored with, so that as signed ones they have the same order."""


def _carried_type(kind: pa.DataType) -> tuple[str, pa.DataType]:
    if pa.types.is_dictionary(kind) or pa.types.is_string(kind):
        return "string", pa.string()
    if pa.types.is_fixed_size_binary(kind):
        return "binary", pa.binary()
    return "bigint", pa.int64()


def carried_ddl() -> str:
    """Return the columns as Spark declares them."""
    own = [f"`{field.name}` {_carried_type(field.type)[0]}" for field in LEDGER_SCHEMA]
    return ", ".join(["bucket int", "error string", "event_rank int", *own])


def _carried_schema() -> pa.Schema:
    own = [pa.field(field.name, _carried_type(field.type)[1]) for field in LEDGER_SCHEMA]
    return pa.schema([("bucket", pa.int32()), ("error", pa.string()), ("event_rank", pa.int32()), *own])


def row_order() -> list[Column]:
    """Return what rows are sorted by: errors first, movements of value, then in the order of the ledger and by their
    statements, then by all other columns, so that chance decides nothing."""
    from pyspark.sql import functions as F

    named = F.when(F.col("index").isNull(), F.col("message_id"))
    first = list(LANE)
    then = ["event_rank", "chain", "revision", "height", "position", *STATEMENT]
    rest = [name for name in LEDGER_SCHEMA.names if name not in (*first, *then, "index", "event")]
    return [
        *(F.col("bucket"), F.col("error").asc_nulls_last(), (F.col("event_rank") != OF_VALUE).asc_nulls_last()),
        *(F.col(name).asc_nulls_first() for name in first),
        F.col("index").asc_nulls_last(),
        named.asc_nulls_first(),
        *(F.col(name).asc_nulls_first() for name in (*then, *rest)),
    ]


OF_VALUE = -1
"""The ``event_rank`` of movements of value, which go through Spark as rows of the ledger do."""

_AS_ROWS = {"why": "detail", "from": "sender", "to": "receiver"}
"""In which columns those of ``VALUE_SCHEMA`` go that rows of the ledger do not have."""


def carry(buckets: int, schema: pa.Schema = LEDGER_SCHEMA) -> Callable[[Batches], Batches]:
    """Return a task that checks rows and says in which bucket each lies. ``schema``: of the ledger, or of value."""
    of_value = schema is not LEDGER_SCHEMA

    def run(batches: Batches) -> Batches:
        prepare_worker()
        carried = _carried_schema()
        for batch in batches:
            try:
                given = pa.Table.from_batches([batch])
                if of_value:
                    table = _carried_value(as_table(given, VALUE_SCHEMA, "value"), buckets)
                else:
                    table = carried_rows(as_table(given, LEDGER_SCHEMA, "ledger"), buckets)
            except CausewayError as error:
                # It goes the way of the rows, so that it is one line in the end, and no trace of a failed task.
                nothing = {**dict.fromkeys(carried.names), "bucket": 0, "error": f"{error.name} {error}"}
                table = pa.Table.from_pylist([nothing], carried)
            yield from table.to_batches()

    return run


def carried_rows(rows: pa.Table, buckets: int) -> pa.Table:
    """Return rows of the ledger as they go through Spark. Raises ``InvalidInput`` for an event that has no name."""
    ranks = pc.index_in(rows["event"].cast(pa.string()), pa.array(EVENTS))
    if ranks.null_count:
        bad = rows["event"].filter(ranks.is_null())[0].as_py()
        raise InvalidInput(f"event {bad!r}: must be one of {', '.join(EVENTS)}")
    columns = [pa.array(buckets_of(rows, buckets).astype(np.int32)), pa.nulls(rows.num_rows, pa.string()), ranks]
    for field in LEDGER_SCHEMA:
        column = rows[field.name]
        if field.type == pa.uint64():
            column = _flipped(column, np.uint64, np.int64)
        columns.append(column.cast(_carried_type(field.type)[1]))
    return pa.table(columns, _carried_schema())


def _carried_value(value: pa.Table, buckets: int) -> pa.Table:
    """Return movements of value as they go through Spark."""
    count = value.num_rows
    of = {_AS_ROWS.get(name, name): value[name] for name in value.column_names}
    of |= {"event": pa.array(["sent"] * count, pa.string()), "kind": pa.array(["request"] * count, pa.string())}
    columns = [of[each.name] if each.name in of else pa.nulls(count, each.type) for each in LEDGER_SCHEMA]
    rows = carried_rows(pa.table(columns, LEDGER_SCHEMA.names), buckets)
    for name, values in (("bucket", value_buckets(value, buckets)), ("event_rank", np.full(count, OF_VALUE))):
        rows = rows.set_column(rows.schema.get_field_index(name), name, pa.array(values.astype(np.int32)))
    return rows.cast(_carried_schema())


def value_back(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Return movements of value from what came through Spark. Raises as ``taken_back``."""
    rows = taken_back(batches)
    columns = [rows[_AS_ROWS.get(each.name, each.name)].cast(each.type) for each in VALUE_SCHEMA]
    return pa.table(columns, VALUE_SCHEMA)


def taken_back(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Return rows of the ledger from what came through Spark. Raises ``InvalidInput`` where an error came with them."""
    rows = pa.Table.from_batches(batches).combine_chunks()
    if rows["error"].null_count < rows.num_rows:
        name, _, text = rows["error"].drop_null()[0].as_py().partition(" ")
        raise InvalidInput(text if name == "InvalidInput" else f"{name}: {text}")
    columns = []
    for field in LEDGER_SCHEMA:
        column = rows[field.name]
        if field.type == pa.uint64():
            column = _flipped(column, np.int64, np.uint64)
        elif pa.types.is_dictionary(field.type):
            column = column.dictionary_encode()
        columns.append(column.cast(field.type))
    return pa.table(columns, LEDGER_SCHEMA)


def _flipped(column: pa.ChunkedArray, kind: Any, wanted: Any) -> pa.ChunkedArray:
    whole = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], column.type)
    words = np.asarray(whole.fill_null(0)).astype(kind, copy=False).view(np.uint64) ^ _FLIP
    missing = np.asarray(whole.is_null()) if whole.null_count else None
    return pa.chunked_array([pa.array(words.view(wanted), mask=missing)])


__all__ = ["OF_VALUE", "carried_ddl", "carried_rows", "carry", "row_order", "taken_back", "value_back"]
