"""Messages that others carry on under a new id: what becomes of those becomes of them.

A message that is carried on may lie in another bucket than the one that names it in ``continues``. So the names are
gathered in the first look, and the runs that have open messages are looked at again where there are any.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from causeway.audit.arrays import Ints
from causeway.audit.bucket import Bucket
from causeway.audit.columns import Bools, code_of
from causeway.audit.known import Name
from causeway.audit.naming import digests_of
from causeway.ledger.schema import Event

CARRIED_SCHEMA = pa.schema([("protocol", pa.string()), ("id_0", pa.uint64()), ("id_1", pa.uint64())])
"""One row a name of a message that another one carries on: its protocol and half of the SHA-256 of its id."""


def carried_in(bucket: Bucket) -> pa.Table:
    """Return the names of messages that those sent in a run carry on (``CARRIED_SCHEMA``)."""
    columns = bucket.columns
    column = columns.rows.read(("continues",))["continues"]
    if column.null_count == len(column):
        return CARRIED_SCHEMA.empty_table()
    sent = (columns.event == code_of(Event.SENT)) & (columns.alive > 0)
    rows = np.flatnonzero(sent & np.asarray(column.is_valid()))
    names = _names(bucket, rows, "continues")
    return pa.table([[name[place] for name in names] for place in range(len(CARRIED_SCHEMA))], CARRIED_SCHEMA)


def carried_names(tables: Iterable[pa.Table]) -> frozenset[Name]:
    """Return all names of messages that others carry on."""
    return frozenset(
        name for table in tables if table.num_rows for name in zip(*(each.to_pylist() for each in table), strict=True)
    )


def is_carried(bucket: Bucket, rows: Ints) -> Bools:
    """Return which messages, given by rows of them, others carry on, as far as that is known."""
    known = bucket.known.carried
    if not known or not len(rows):
        return np.zeros(len(rows), bool)
    return np.array([name in known for name in _names(bucket, rows, "message_id")], bool)


def _names(bucket: Bucket, rows: Ints, column: str) -> list[Name]:
    """Return the names of messages in a column of rows."""
    digests, named = digests_of(bucket.columns, rows, column)
    protocols = [bucket.columns.lanes[lane][0] for lane in bucket.columns.lane[rows].tolist()]
    return [
        (protocol, id_0, id_1) if seen else (protocol, 0, 0)
        for protocol, (id_0, id_1), seen in zip(protocols, digests.tolist(), named.tolist(), strict=True)
    ]


__all__ = ["CARRIED_SCHEMA", "carried_in", "carried_names", "is_carried"]
