"""The check ``conservation``: received and paid out amounts equal the sent ones.

Payments of messages without rows in the ledger are checked after the pass over their bucket.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from causeway_proofs.order import stable_order

from causeway.audit.arrays import Ints, order_preserving_times
from causeway.audit.bucket import BucketMessages
from causeway.audit.columns import NO_HEIGHT, NO_TIME, Bools, event_code
from causeway.audit.findings import (
    UNKNOWN,
    VIOLATED,
    AssertionFindings,
    CheckResult,
    Finding,
    PartialCheck,
    count_rows,
    to_partial_check,
)
from causeway.audit.lane_context import PAID_NOT_SENT, UNDECIDED_PAID, LaneContext, unsent_reason, unsent_verdict
from causeway.audit.payments import PaidAmounts
from causeway.ledger.encodings import rank_names, valid_mask
from causeway.ledger.schema import LANE, VALUE, LedgerEvent

__all__ = ["check_conservation", "find_unattributed_payments"]


def check_conservation(bucket: BucketMessages) -> CheckResult:
    """Check "conservation": received and paid amounts of each message equal the sent ones.

    Args:
        bucket: Rows of a run and the outcome of its messages.

    Returns:
        Findings, and the number by lane of messages with a value outcome, if the lane conserves value.
    """
    value = np.where(bucket.promised("conserved")[bucket.lane], bucket.messages.value, 0)
    rows, by = bucket.messages.value_row.astype(np.int64), bucket.messages.value_by
    found = [Finding("conservation", UNKNOWN, "amount_unseen", rows[value == 1])]
    found.append(Finding("conservation", VIOLATED, "asset_differs", rows[value == 2]))
    mixed = _partly_without_content(bucket, np.flatnonzero(np.isin(value, (3, 4, 8, 9))), len(value))
    found.append(Finding("conservation", UNKNOWN, "content_unseen", rows[mixed], by[mixed], "units"))
    value, examined = np.where(mixed, 0, value), bucket.count(value > 0)
    covered = _payments_covered(bucket, np.flatnonzero(value == 4), len(value))
    for verdict, reason, chosen in (
        (VIOLATED, "more_received", value == 3),
        (VIOLATED, "less_received", (value == 4) & covered),
        (UNKNOWN, "payments_not_covered", ((value == 4) & ~covered) | (value == 9)),
        (VIOLATED, "received_and_refunded", value == 5),
        (VIOLATED, "more_paid", value == 8),
    ):
        found.append(Finding("conservation", verdict, reason, rows[chosen], by[chosen], "units"))
    found += bucket.unsent("conservation", rows[value == 6])
    return CheckResult("conservation", examined, found)


def _partly_without_content(bucket: BucketMessages, messages: Ints, count: int) -> Bools:
    """Return a mask of messages with sent or received rows both with and without content.

    Their duplicates are undecidable. ``messages``: candidates, of ``count`` messages.
    """
    columns, found = bucket.columns, np.zeros(count, dtype=bool)
    if not len(messages):
        return found
    sizes = columns.starts[messages + 1] - columns.starts[messages]
    message_of_row = np.repeat(np.arange(len(messages)), sizes)
    rows = (
        np.arange(len(message_of_row))
        - np.repeat(np.cumsum(sizes) - sizes, sizes)
        + columns.starts[messages][message_of_row]
    )
    for event in (LedgerEvent.SENT, LedgerEvent.RECEIVED):
        own = (columns.event[rows] == event_code(event)) & (columns.alive[rows] > 0)
        has = columns.has_content[rows] > 0
        with_it, without = (np.bincount(message_of_row[own & side], minlength=len(messages)) for side in (has, ~has))
        found[messages] |= (with_it > 0) & (without > 0)
    return found


def _payments_covered(bucket: BucketMessages, messages: Ints, count: int) -> Bools:
    """Return a mask of messages whose payments the input covers.

    The last value window of the chain must have the sending and the receipt; that of the sending must reach the receipt
    in time. Chains without value windows are exempt. ``messages``: candidates, of ``count`` messages.
    """
    columns, covered = bucket.columns, np.ones(count, dtype=bool)
    receipt = bucket.first(LedgerEvent.RECEIVED)[messages]
    for event in (LedgerEvent.SENT, LedgerEvent.RECEIVED) if len(messages) else ():
        rows = bucket.first(event)[messages]
        for places, spans, _ in bucket.spans(rows, columns.chain[rows], VALUE):
            if spans.count:
                height, time = columns.height[rows[places]], columns.time[rows[places]]
                by_height = (height != NO_HEIGHT) & bool(len(spans.heights[0]))
                by_time = (time != NO_TIME) & spans.is_in_last_time_window(time)
                covered[messages[places]] &= np.where(by_height, spans.is_in_last_height_window(height), by_time)
                if event is LedgerEvent.SENT:
                    arrived, lasts = columns.time[receipt[places]], spans.times[1]
                    reaches = by_time & (arrived <= lasts[-1]) & (arrived != NO_TIME) if len(lasts) else False
                    covered[messages[places]] &= reaches
    return covered


CHECK = "conservation"

_NAMED = (*LANE, "index", "message_id", "chain", "height", "time", "stated_by", "source_file", "source_row")


def find_unattributed_payments(
    paid: PaidAmounts, known: LaneContext, limit: int, waiting: int
) -> tuple[PartialCheck, pa.Table, bool]:
    """Check payments of messages without rows in their bucket.

    Args:
        paid: Payments of the bucket, after a pass over its runs.
        known: Windows and guarantees.
        limit: Maximum number of named findings of a lane and reason.
        waiting: Maximum number of undecided findings of a lane.

    Returns:
        Findings, the number of examined messages by lane, and True if a lane has more undecided findings than the
        limit.
    """
    conserved = np.array(["conserved" in known.promises.of(lane) for lane in paid.lanes], bool)
    unfound = conserved[paid.lane] & ~paid.found
    first = _first_payments(paid)
    of_messages = np.flatnonzero(unfound)
    counted = paid.rows.select(_NAMED).take(pa.array(_first_rows(paid)[of_messages]))
    messages = np.flatnonzero(unfound & _is_paid(paid) & (first >= 0))
    rows = paid.rows.select(_NAMED).take(pa.array(first[messages]))
    times = rows["time"].cast(pa.int64()).fill_null(int(NO_TIME)).to_numpy()
    early = times < paid.latest[messages]
    numbers = np.arange(len(messages))
    found = [AssertionFindings(VIOLATED, PAID_NOT_SENT, numbers[early])]
    others, too_many = numbers[~early], False
    if known.complete:
        reasons = unsent_reason(
            *(known, paid.lanes, paid.lane[messages], paid.indexed[messages], paid.index[messages], times)
        )
        reasons[early] = ""
        is_violated = np.array([unsent_verdict(each) for each in reasons.tolist()], object) == VIOLATED
        found = [AssertionFindings(VIOLATED, PAID_NOT_SENT, numbers[early | is_violated])]
        for reason in sorted(set(reasons[~early & ~is_violated].tolist())):
            found.append(AssertionFindings(UNKNOWN, reason, numbers[reasons == reason]))
        return _partial_check(rows, found, [], limit, waiting), count_rows(CHECK, counted), False
    if len(others):
        too_many = bool(np.bincount(paid.lane[messages[others]]).max() > waiting)
    undecided = [AssertionFindings(UNKNOWN, UNDECIDED_PAID, others)]
    return _partial_check(rows, found, undecided, limit, waiting), count_rows(CHECK, counted), too_many


def _partial_check(
    rows: pa.Table, found: list[AssertionFindings], undecided: list[AssertionFindings], limit: int, waiting: int
) -> PartialCheck:
    nothing = rows.slice(0, 0)
    one, other = (
        to_partial_check(CHECK, rows, found, nothing, limit),
        to_partial_check(CHECK, rows, undecided, nothing, waiting),
    )
    every = [pa.concat_tables([a, b]) for a, b in ((one.findings, other.findings), (one.counts, other.counts))]
    return PartialCheck(every[0], every[1], nothing)


def _is_paid(paid: PaidAmounts) -> Bools:
    """Return a mask of messages with more paid out than given back, or with an unknown payment."""
    found = paid.unseen_paid & ~paid.given_back
    groups = np.repeat(np.arange(paid.count), paid.ends - paid.begins)
    differs = paid.paid != paid.given
    word = paid.paid.shape[1] - 1 - np.argmax(differs[:, ::-1], axis=1)
    each = np.arange(len(word))
    more = differs.any(axis=1) & (paid.paid[each, word] > paid.given[each, word])
    found[groups[more]] = True
    return found


def _first_rows(paid: PaidAmounts) -> Ints:
    """Return the first movement of each message."""
    return np.searchsorted(paid.message, np.arange(paid.count)).astype(np.int64)


def _first_payments(paid: PaidAmounts) -> Ints:
    """Return the first payment of each message by height, time and reporter, or -1."""
    rows = np.flatnonzero(~paid.reversal)
    payments = paid.rows.select(_NAMED).take(pa.array(rows))
    source = payments["source_row"]
    time = payments["time"].cast(pa.int64()).fill_null(int(NO_TIME)).to_numpy()
    order = stable_order(
        paid.message[rows].astype(np.uint64),
        payments["height"].fill_null(int(NO_HEIGHT)).to_numpy(),
        order_preserving_times(time),
        *(rank_names(payments[name]) for name in ("stated_by", "source_file")),
        *(valid_mask(source).view(np.uint8), source.fill_null(0).to_numpy()),
    )
    found = np.full(paid.count, -1, np.int64)
    of = paid.message[rows][order]
    firsts = np.flatnonzero(np.diff(of, prepend=-1))
    found[of[firsts]] = rows[order[firsts]]
    return found
