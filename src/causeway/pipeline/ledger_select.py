"""Rows of a stored ledger that fulfil a condition: bucket by bucket, each event once, of files only what may match."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from causeway.ledger.order import without_repeats
from causeway.ledger.schema import STATEMENT
from causeway.model.errors import InvalidInput
from causeway.pipeline.ledger_commits import schema_of
from causeway.pipeline.ledger_search import Condition, fulfil, matching
from causeway.pipeline.ledger_store import Ledger

BUCKETED = ("ledger", "value", "headers", "watermarks")
"""Tables that lie in buckets: of what several files say one row counts, which reading tells."""


def selected(
    ledger: Ledger, table: str = "ledger", condition: Condition | None = None, most: int | None = None
) -> Iterator[pa.Table]:
    """Yield the rows of a table that fulfil a condition, of one bucket after the other; no bucket: all at once.

    The order is that of the ledger, and does not depend on how its rows lie in files. ``most``: so many rows at the
    most. Raises ``InvalidInput`` for a column that the table does not have, ``LedgerDamaged``.
    """
    condition = condition or {}
    schema = schema_of(table)
    for name in condition:
        if name not in schema.names:
            raise InvalidInput(f"{name}: the table {table} has no such column; it has {', '.join(schema.names)}")
    left = most
    for bucket in range(ledger.buckets) if table in BUCKETED else (None,):
        if left == 0:
            return
        rows = ledger.table(table) if bucket is None else _of_bucket(ledger, table, bucket, condition)
        if condition and rows.num_rows:
            rows = rows.filter(pa.array(fulfil(rows, condition)))
        rows = rows if left is None else rows.slice(0, left)
        if left is not None:
            left -= rows.num_rows
        if rows.num_rows:
            yield rows


def _of_bucket(ledger: Ledger, table: str, bucket: int, condition: Condition) -> pa.Table:
    """Return rows of a bucket, among them all that fulfil a condition."""
    if not condition or table != "ledger" or any(name in STATEMENT for name in condition):
        # Who states a row decides which of several like it counts: that one is found among all of them.
        return ledger.rows(bucket, table=table)
    names: Sequence[str] = schema_of(table).names
    own = [file for file in ledger.files(table, bucket) if file.bucket is not None]
    parts = [matching(ledger, file, condition, names).cast(schema_of(table)) for file in own]
    loose = ledger.loose(bucket)
    if loose is not None:
        parts.append(loose.filter(pa.array(fulfil(loose, condition))))
    found = [part for part in parts if part.num_rows]
    if len(parts) == 1 and loose is None:
        return parts[0]
    return without_repeats(pa.concat_tables(found)) if found else schema_of(table).empty_table()


__all__ = ["BUCKETED", "selected"]
