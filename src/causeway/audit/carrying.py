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
from causeway.audit.columns import CONTROL, Bools, code_of
from causeway.audit.delays import NO_TIME, microseconds
from causeway.audit.known import Carried
from causeway.audit.naming import digests_of
from causeway.ledger.schema import Event

CARRIED_SCHEMA = pa.schema([("name", pa.uint64()), ("by", pa.uint64()), ("time", pa.int64())])
"""Continued messages, one row each and message that carries it on. ``name``, ``by``: of the two, a digest of protocol
and id, ``by`` null without id; ``time``: when the other one was sent, in microseconds, ``NO_TIME``: not seen. A row
without name stands for more rows than ``MOST_NAMES``."""

MOST_NAMES = 1 << 24
"""Maximum number of names of a ledger. With more, it is unknown which messages are continued."""


def carried_in(bucket: Bucket) -> pa.Table:
    """Return the messages that those sent in a run carry on (``CARRIED_SCHEMA``).

    What nobody judges by its arrival, forged messages and those of the protocol, carries nothing on.
    """
    columns = bucket.columns
    if not columns.rows.has("continues"):
        return CARRIED_SCHEMA.empty_table()
    column = columns.rows.read(("continues",))["continues"]
    sent = (columns.event == code_of(Event.SENT)) & (columns.alive > 0) & (columns.kind != CONTROL) & ~columns.forged
    rows = np.flatnonzero(sent & np.asarray(column.is_valid()))
    names, _ = _names(bucket, rows, "continues")
    by, named = _names(bucket, rows, "message_id")
    other = ~named | (by != names)  # no message carries itself on
    content = [names[other], pa.array(by[other], mask=~named[other]), columns.time[rows[other]]]
    return pa.table(content, CARRIED_SCHEMA)


def are_too_many_names(names: int) -> bool:
    """Return whether the number of names exceeds the maximum."""
    return names > MOST_NAMES


def carried_names(tables: Iterable[pa.Table]) -> Carried | None:
    """Return the messages that others carry on, but for those that carry each other on in a circle: none of these
    arrives. Of several that carry on one message the last counts. None: there are too many."""
    every = pa.concat_tables([CARRIED_SCHEMA.empty_table(), *tables])
    if every["name"].null_count or are_too_many_names(every.num_rows):
        return None
    every = every.sort_by([("name", "ascending"), ("time", "ascending"), ("by", "ascending")])
    names, times = every["name"].to_numpy(), every["time"].to_numpy()
    last = np.append(names[1:] != names[:-1], np.ones(min(len(names), 1), bool))
    by, ends = every["by"].fill_null(0).to_numpy()[last], np.asarray(every["by"].is_null())[last]
    names, times = names[last], times[last]
    at = np.minimum(np.searchsorted(names, by), max(len(names) - 1, 0))
    # Each step doubles how far is looked along; the last place stands for an end.
    following = np.append(np.where(~ends & (names[at] == by), at, len(names)), len(names))
    for _ in range(len(names).bit_length()):
        following = following[following]
    ending = following[:-1] == len(names)
    return Carried(names[ending], times[ending])


def is_carried(bucket: Bucket, rows: Ints) -> tuple[Bools, bool]:
    """Return a mask of the messages that a later message continues, and whether all continued names are known.

    ``rows``: with which each message was sent. Times are compared with the tolerance of the chains' clocks.
    """
    carried, found = bucket.known.carried, np.zeros(len(rows), bool)
    if carried is None or not len(carried.names) or not len(rows):
        return found, carried is not None
    names, named = _names(bucket, rows, "message_id")
    at = np.minimum(np.searchsorted(carried.names, names), len(carried.names) - 1)
    sent, again = bucket.columns.time[rows], carried.times[at]
    seen = (sent != NO_TIME) & (again != NO_TIME)
    before = seen & (microseconds(again, sent)[0] > bucket.slack(rows))
    found[:] = named & (carried.names[at] == names) & ~before
    return found, True


def _names(bucket: Bucket, rows: Ints, column: str) -> tuple[Words, Bools]:
    """Return the names of messages in a column of rows, and which rows have one."""
    digests, named = digests_of(bucket.columns, rows, column)
    words = [np.frombuffer(sha256((lane[0] or "").encode()).digest()[:8], "<u8")[0] for lane in bucket.columns.lanes]
    names: Words = digests[:, 0] ^ np.array(words, np.uint64)[bucket.columns.lane[rows]]
    return names, named


__all__ = ["CARRIED_SCHEMA", "are_too_many_names", "carried_in", "carried_names", "is_carried"]
