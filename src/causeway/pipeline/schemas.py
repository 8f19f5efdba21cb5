"""The columns of the lake's tables: declared once, in Arrow, and what Spark calls them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import pyarrow as pa
from pyspark.sql import types as T

from causeway.model.ledger import COLLECTED_SCHEMA, EVENTS_SCHEMA
from causeway.model.topology import CHAINS_SCHEMA, MOVES_SCHEMA, PROGRAMS_SCHEMA
from causeway.pipeline.bucket import stamped_schema
from causeway.pipeline.lake import LakeError
from causeway.programs.catalogue import program_class
from causeway.programs.scalar import Program
from causeway.programs.scalar_runner import SCALAR_SCHEMA
from causeway.protocols.contract import HEADERS_SCHEMA
from causeway.protocols.ic.messages import STREAMED_SCHEMA
from causeway.protocols.ic.state import PROGRAM_TABLE, STATE_SCHEMAS

TOPOLOGY_SCHEMAS: Mapping[str, pa.Schema] = {
    "chains": CHAINS_SCHEMA,
    "programs": PROGRAMS_SCHEMA,
    "registry": MOVES_SCHEMA,
}
"""Tables that are written once, when the lake is made."""

LOG_TABLES: Mapping[str, pa.Schema] = {
    "transfers": stamped_schema(STREAMED_SCHEMA),
    "events": stamped_schema(EVENTS_SCHEMA),
    "collected": stamped_schema(COLLECTED_SCHEMA),
    "headers": stamped_schema(HEADERS_SCHEMA),
}
"""Tables that every height adds rows to."""

STATE_TABLES: Mapping[str, pa.Schema] = STATE_SCHEMAS
"""Tables that say how a height stands; each program class adds ``program_<class>``."""

PROGRAM_OF_A_CHAIN: Mapping[str, str] = {
    "ingress_counters": "first",
    "input_counters": "first",
    "output_counters": "first",
    "ingress_queues": "receiver",
    "input_queues": "receiver",
    "output_queues": "sender",
    "canisters": "canister",
}
"""For state tables without a column ``chain``: the one that holds the program whose chain a row belongs to."""


def owner_column(table: str, schema: pa.Schema) -> str:
    """Return the column that says where a state row belongs: ``chain``, or one that holds a program."""
    return "chain" if "chain" in schema.names else PROGRAM_OF_A_CHAIN.get(table, "canister")


def program_schema(name: str) -> pa.Schema:
    """Return the schema of the state table of a program class, named as in a scenario. Raises ``InvalidInput``."""
    found = program_class(name)
    return SCALAR_SCHEMA if issubclass(found, Program) else found.schema


@cache
def spark_type(kind: pa.DataType) -> T.DataType:
    """Return the Spark type in which a Parquet column of this Arrow type is read.

    Spark has no unsigned numbers, so each becomes the next larger type; 64-bit ones become ``decimal(20,0)``.
    """
    if pa.types.is_dictionary(kind):
        return spark_type(kind.value_type)
    if pa.types.is_decimal(kind):
        return T.DecimalType(kind.precision, kind.scale)
    if pa.types.is_fixed_size_binary(kind):
        return T.BinaryType()
    found = _TYPES.get(kind)
    if found is None:
        raise LakeError(f"a table has a column of type {kind}, which Spark cannot read")
    return found


_TYPES: dict[pa.DataType, T.DataType] = {
    pa.uint8(): T.ShortType(),
    pa.uint16(): T.IntegerType(),
    pa.uint32(): T.LongType(),
    pa.uint64(): T.DecimalType(20, 0),
    pa.int8(): T.ByteType(),
    pa.int16(): T.ShortType(),
    pa.int32(): T.IntegerType(),
    pa.int64(): T.LongType(),
    pa.float32(): T.FloatType(),
    pa.float64(): T.DoubleType(),
    pa.bool_(): T.BooleanType(),
    pa.string(): T.StringType(),
    pa.large_string(): T.StringType(),
    pa.binary(): T.BinaryType(),
    pa.large_binary(): T.BinaryType(),
}


def spark_schema(schema: pa.Schema) -> T.StructType:
    """Return an Arrow schema as Spark's."""
    return T.StructType([T.StructField(item.name, spark_type(item.type), nullable=True) for item in schema])


__all__ = [
    "LOG_TABLES",
    "PROGRAM_TABLE",
    "STATE_TABLES",
    "TOPOLOGY_SCHEMAS",
    "owner_column",
    "program_schema",
    "spark_schema",
    "spark_type",
]
