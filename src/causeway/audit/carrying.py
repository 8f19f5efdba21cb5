"""Messages that others carry on under a new id: what becomes of those becomes of them.

A message that is carried on may lie in another bucket than the one that names it in ``continues``. So the names are
gathered in the first look, and the runs that have open messages are looked at again where there are any.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

import numpy as np
import pyarrow as pa

from causeway.audit.arrays import Ints, Words
from causeway.audit.bucket import Bucket
from causeway.audit.columns import Bools, code_of
from causeway.audit.naming import digests_of
from causeway.ledger.schema import Event

CARRIED_SCHEMA = pa.schema([("name", pa.uint64())])
"""Names of continued messages, one row each: a digest of protocol and id. A null stands for more names than
``MOST_NAMES``."""

MOST_NAMES = 1 << 24
"""Maximum number of names of a ledger. With more, it is unknown which messages are continued."""


def carried_in(bucket: Bucket) -> pa.Table:
    """Return the names of messages that those sent in a run carry on (``CARRIED_SCHEMA``)."""
    columns = bucket.columns
    column = columns.rows.read(("continues",))["continues"]
    if column.null_count == len(column):
        return CARRIED_SCHEMA.empty_table()
    sent = (columns.event == code_of(Event.SENT)) & (columns.alive > 0)
    rows = np.flatnonzero(sent & np.asarray(column.is_valid()))
    names, _ = _names(bucket, rows, "continues")
    return pa.table([np.unique(names)], CARRIED_SCHEMA)


def number_of_names(names: pa.Table) -> int:
    """Return the number of names in a table (``CARRIED_SCHEMA``)."""
    return int(names.num_rows)


def are_too_many_names(names: int) -> bool:
    """Return whether the number of names exceeds the maximum."""
    return names > MOST_NAMES


def without_names(names: pa.Table) -> pa.Table:
    """Return a null in the place of names, nothing in the place of none."""
    return pa.table([pa.nulls(min(names.num_rows, 1), pa.uint64())], CARRIED_SCHEMA)


def carried_names(tables: Iterable[pa.Table]) -> pa.Array | None:
    """Return all names of messages that others carry on, in order; None: there are too many."""
    every = pa.concat_tables([CARRIED_SCHEMA.empty_table(), *tables])["name"]
    return None if every.null_count or are_too_many_names(len(every)) else pa.array(np.unique(every.to_numpy()))


def is_carried(bucket: Bucket, rows: Ints) -> tuple[Bools, bool]:
    """Return which messages, given by a row of each, another one continues, and whether the names are complete."""
    carried, found = bucket.known.carried, np.zeros(len(rows), bool)
    if carried is None or not len(carried) or not len(rows):
        return found, carried is not None
    known = carried.to_numpy()
    names, named = _names(bucket, rows, "message_id")
    at = np.minimum(np.searchsorted(known, names), len(known) - 1)
    found[:] = named & (known[at] == names)
    return found, True


def _names(bucket: Bucket, rows: Ints, column: str) -> tuple[Words, Bools]:
    """Return the names of messages in a column of rows, and which rows have one."""
    digests, named = digests_of(bucket.columns, rows, column)
    words = [np.frombuffer(sha256((lane[0] or "").encode()).digest()[:8], "<u8")[0] for lane in bucket.columns.lanes]
    names: Words = digests[:, 0] ^ np.array(words, np.uint64)[bucket.columns.lane[rows]]
    return names, named


__all__ = [
    "CARRIED_SCHEMA", "are_too_many_names", "carried_in", "carried_names", "is_carried", "number_of_names",
    "without_names",
]  # fmt: skip
