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
"""One row a name of a message that another one carries on: a digest of its protocol and id. Null: there are too many
to be told (``MOST_NAMES``)."""

MOST_NAMES = 1 << 24
"""So many names are told apart in a ledger; where there are more, it is unknown which messages are carried on."""

TOO_MANY = pa.table([pa.nulls(1, pa.uint64())], CARRIED_SCHEMA)
"""Stands for the names of a run where there are too many."""


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


def are_too_many_names(names: int) -> bool:
    """Return whether a ledger has more names than are told apart."""
    return names > MOST_NAMES


def carried_names(tables: Iterable[pa.Table]) -> pa.Array | None:
    """Return all names of messages that others carry on, in order; None: there are too many."""
    every = pa.concat_tables([CARRIED_SCHEMA.empty_table(), *tables])["name"]
    return None if every.null_count or are_too_many_names(len(every)) else pa.array(np.unique(every.to_numpy()))


def is_carried(bucket: Bucket, rows: Ints) -> tuple[Bools, bool]:
    """Return which messages, given by rows of them, others carry on, as far as that is known; and whether it is."""
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


__all__ = ["CARRIED_SCHEMA", "TOO_MANY", "are_too_many_names", "carried_in", "carried_names", "is_carried"]
