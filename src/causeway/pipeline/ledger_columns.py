"""Tables of a ledger in the types of others: which Spark has for its columns, and what does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from causeway.ledger.typed import OPTIONAL, as_table, require_columns
from causeway.model.errors import InvalidInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def chosen_columns(frame: DataFrame, schema: pa.Schema, what: str) -> DataFrame:
    """Return the columns of a table of the ledger that a DataFrame has; ``what`` is what errors call it.

    Raises ``InvalidInput`` for a column that is missing, there twice or of a type that does not fit.
    """
    from pyspark.sql import functions as F

    names = frame.columns
    require_columns(names, schema, what)
    kinds = {field.name: field.dataType.typeName() for field in frame.schema.fields}
    for field in schema:
        if field.name in names and kinds[field.name] not in _allowed(field.type):
            allowed = " or ".join(_allowed(field.type))
            raise InvalidInput(f"{what}: {field.name}: is of type {kinds[field.name]}: must be {allowed}")
    # By their places: Spark does not tell names apart that differ in case.
    whole = frame.toDF(*(f"c{place}" for place in range(len(names))))
    return whole.select(
        *(F.col(f"c{names.index(field.name)}").alias(field.name) for field in schema if field.name in names)
    )


_WHOLE = ("decimal", "byte", "short", "integer", "long")


def _allowed(kind: pa.DataType) -> tuple[str, ...]:
    """Return the Spark types of which a column can be."""
    if pa.types.is_integer(kind):
        return _WHOLE
    if pa.types.is_timestamp(kind):
        return "timestamp", "timestamp_ntz"
    if pa.types.is_list(kind):
        return ("array",)
    return ("binary",) if pa.types.is_fixed_size_binary(kind) else ("string", "varchar", "char")


def given_table(given: DataFrame | pa.Table | None, schema: pa.Schema, what: str) -> pa.Table:
    """Return a small table of a ledger that is a DataFrame or a table; None: without rows. Raises ``InvalidInput``."""
    if given is None:
        return schema.empty_table()
    table = given if isinstance(given, pa.Table) else chosen_columns(given, schema, what).toArrow()
    return as_table(table, schema, what)


__all__ = ["OPTIONAL", "as_table", "chosen_columns", "given_table"]
