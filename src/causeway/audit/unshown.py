"""What was paid out of messages that no row of the ledger shows as sent or received, once a bucket was passed over."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from causeway.audit.arrays import Ints, time_places
from causeway.audit.columns import NO_HEIGHT, NO_TIME, Bools
from causeway.audit.findings import UNKNOWN, VIOLATED
from causeway.audit.known import PAID_NOT_SENT, UNDECIDED_PAID, Known, verdict_of_unsent, why_unsent
from causeway.audit.stated_rows import Found, Looked, examined, looked
from causeway.audit.value import Paid
from causeway.ledger.codes import name_ranks
from causeway.ledger.limbs import valid_rows
from causeway.ledger.schema import LANE
from causeway.model.order import stable_order

CHECK = "conservation"

_NAMED = (*LANE, "index", "message_id", "chain", "height", "time", "stated_by", "source_file", "source_row")


def unshown(paid: Paid, known: Known, limit: int, waiting: int) -> tuple[Looked, pa.Table, bool]:
    """Return what is found of messages of which something was paid, and that no run of their bucket has; how many of
    each lane were looked at (as ``Passed.examined``); and whether more of a lane are undecided than are named.

    ``limit``: how many findings of a lane and reason are named, ``waiting``: how many undecided ones.
    """
    conserved = np.array(["conserved" in known.promises.of(lane) for lane in paid.lanes], bool)
    left = conserved[paid.lane] & ~paid.found
    first = _first_payments(paid)
    of_messages = np.flatnonzero(left)
    counted = paid.rows.select(_NAMED).take(pa.array(_first_rows(paid)[of_messages]))
    messages = np.flatnonzero(left & _is_paid(paid) & (first >= 0))
    rows = paid.rows.select(_NAMED).take(pa.array(first[messages]))
    times = rows["time"].cast(pa.int64()).fill_null(int(NO_TIME)).to_numpy()
    early = times < paid.latest[messages]
    numbers = np.arange(len(messages))
    found = [Found(VIOLATED, PAID_NOT_SENT, numbers[early])]
    others, too_many = numbers[~early], False
    if known.complete:
        reasons = why_unsent(
            *(known, paid.lanes, paid.lane[messages], paid.indexed[messages], paid.index[messages], times)
        )
        reasons[early] = ""
        shown = np.array([verdict_of_unsent(each) for each in reasons.tolist()], object) == VIOLATED
        found = [Found(VIOLATED, PAID_NOT_SENT, numbers[early | shown])]
        for reason in sorted(set(reasons[~early & ~shown].tolist())):
            found.append(Found(UNKNOWN, reason, numbers[reasons == reason]))
        return _looked(rows, found, [], limit, waiting), examined(CHECK, counted), False
    if len(others):
        too_many = bool(np.bincount(paid.lane[messages[others]]).max() > waiting)
    undecided = [Found(UNKNOWN, UNDECIDED_PAID, others)]
    return _looked(rows, found, undecided, limit, waiting), examined(CHECK, counted), too_many


def _looked(rows: pa.Table, found: list[Found], undecided: list[Found], limit: int, waiting: int) -> Looked:
    nothing = rows.slice(0, 0)
    one, other = looked(CHECK, rows, found, nothing, limit), looked(CHECK, rows, undecided, nothing, waiting)
    every = [pa.concat_tables([a, b]) for a, b in ((one.findings, other.findings), (one.counts, other.counts))]
    return Looked(every[0], every[1], nothing)


def _is_paid(paid: Paid) -> Bools:
    """Return of which messages more was paid out than given back, or an amount that was not seen."""
    found = paid.unseen_paid & ~paid.given_back
    groups = np.repeat(np.arange(paid.count), paid.ends - paid.begins)
    differs = paid.paid != paid.given
    word = paid.paid.shape[1] - 1 - np.argmax(differs[:, ::-1], axis=1)
    each = np.arange(len(word))
    more = differs.any(axis=1) & (paid.paid[each, word] > paid.given[each, word])
    found[groups[more]] = True
    return found


def _first_rows(paid: Paid) -> Ints:
    """Return a row of each message."""
    return np.searchsorted(paid.message, np.arange(paid.count)).astype(np.int64)


def _first_payments(paid: Paid) -> Ints:
    """Return the first row of each message that pays out of it, -1 for none: by height, time and who states it."""
    rows = np.flatnonzero(~paid.reversal)
    taken = paid.rows.select(_NAMED).take(pa.array(rows))
    source = taken["source_row"]
    time = taken["time"].cast(pa.int64()).fill_null(int(NO_TIME)).to_numpy()
    order = stable_order(
        paid.message[rows].astype(np.uint64),
        taken["height"].fill_null(int(NO_HEIGHT)).to_numpy(),
        time_places(time),
        *(name_ranks(taken[name]) for name in ("stated_by", "source_file")),
        *(valid_rows(source).view(np.uint8), source.fill_null(0).to_numpy()),
    )
    found = np.full(paid.count, -1, np.int64)
    of = paid.message[rows][order]
    firsts = np.flatnonzero(np.diff(of, prepend=-1))
    found[of[firsts]] = rows[order[firsts]]
    return found


__all__ = ["unshown"]
