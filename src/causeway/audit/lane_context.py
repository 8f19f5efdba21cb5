"""Context of lanes beyond one bucket, and verdicts on messages without any sent row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np

from causeway.audit.arrays import MIN_DELAY, Array, Ints, Words
from causeway.audit.causal_links import MisplacedLinks
from causeway.audit.columns import NO_HEIGHT, NO_TIME, Bools
from causeway.audit.findings import UNKNOWN, VIOLATED
from causeway.ledger.schema import LedgerEvent
from causeway.ledger.windows import Lane, LanePromises, ObservedWindowTable

UNDECIDED = "undecided"
"""Reason of findings decided after all buckets."""

NOT_SENT_YET = "not_sent_yet"

OVERDUE_UNDECIDED = "overdue_undecided"
"""Reason of an overdue message in a lane whose other end may be unrecorded."""

RECEIPT_NOT_COVERED = "receipt_not_covered"

RECEIPT_UNDECIDED = "receipt_undecided"
"""Reason of an acknowledged message without arrival outside of arrival windows: later ``RECEIPT_NOT_COVERED``, or
dropped if the lane's destination is unrecorded."""

UNDECIDED_PAID = "undecided_paid"
"""Undecided reason of payments of unknown messages."""

PAID_NOT_SENT = "paid_not_sent"
"""Reason in place of ``not_sent`` and ``not_sent_yet`` for payments."""


class SentEnds(NamedTuple):
    """Known sendings of a lane.

    Attributes:
        first: First sent index.
        last: Last sent index.
        last_time: Send time of the last one; ``NO_TIME``: unknown.
        before: For each piece in order: its first index, and the latest send time of earlier pieces (``MIN_DELAY``:
            none).
    """

    first: int
    last: int
    last_time: int
    before: tuple[tuple[int, int], ...] = ()


class ContinuedNames(NamedTuple):
    """Continued messages.

    Attributes:
        names: Names, ascending.
        times: Last send time of a continuing message; ``NO_TIME``: unknown.
    """

    names: Words
    times: Ints


class ReachedHeights(NamedTuple):
    """Least height of receipts on a chain at or after a time.

    Attributes:
        times: Times, ascending, int64 microseconds.
        heights: Least height of a receipt at or after each time.
    """

    times: Ints
    heights: Words

    def after(self, times: Ints) -> Words:
        """Return the least height of a receipt after each time, or ``NO_HEIGHT``."""
        found: Words = np.append(self.heights, NO_HEIGHT)[np.searchsorted(self.times, times, side="right")]
        return found


@dataclass
class LaneContext:
    """Context of lanes beyond a bucket's rows.

    All attributes but windows and guarantees are known in a second pass only.

    Attributes:
        windows: Windows that the input covers.
        promises: Guarantees of lanes.
        sent: Sendings by lane.
        complete: The sendings are known.
        shared: Candidate groups of lanes with shared numbers (``lane_order``).
        misplaced: Misplaced causal links by lane.
        carried: Continued messages; None: too many.
        reached: Reached heights by chain; None: too many.
    """

    windows: ObservedWindowTable
    promises: LanePromises
    sent: dict[Lane, SentEnds] = field(default_factory=dict)
    complete: bool = False
    shared: frozenset[tuple[str | None, ...]] = frozenset()
    misplaced: Mapping[Lane, MisplacedLinks] = field(default_factory=dict)
    carried: ContinuedNames | None = field(
        default_factory=lambda: ContinuedNames(np.zeros(0, np.uint64), np.zeros(0, np.int64))
    )
    reached: Mapping[str, ReachedHeights] | None = field(default_factory=dict)

    def second_pass_fields(self) -> dict[str, Any]:
        """Return the fields known only in a second pass, by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)[2:]}

    def second_pass_input(self, lanes: Iterable[Lane]) -> tuple[Any, ...]:
        """Return the input of a second pass over some lanes as a comparable value."""
        own = [(lane, self.sent.get(lane), self.misplaced.get(lane), self._heights.get(lane[2])) for lane in lanes]
        return own, self.complete, self.shared, self._carried_digest, self.reached is None

    @cached_property
    def _carried_digest(self) -> bytes:
        return _digest(self.carried)

    @cached_property
    def _heights(self) -> dict[str | None, bytes]:
        return {chain: _digest(heights) for chain, heights in (self.reached or {}).items()}


def _digest(columns: Iterable[Array] | None) -> bytes:
    """Return a digest of arrays; None differs from empty ones."""
    found = sha256(b"" if columns is None else b"known")
    for column in columns or ():
        found.update(column.tobytes())
    return found.digest()


def unsent_reason(
    known: LaneContext, lanes: Sequence[Lane], lane: Array, indexed: Bools, index: Array, time: Array
) -> Array:
    """Return the reason why no sending is known of messages with other events.

    ``not_sent_yet``: sends are ordered, and a lower index was sent later than the time of the row. ``not_sent``: the
    windows would show the sending. Up to the time of the row, the windows of the source cover everything since its
    first block. In a numbered lane with a higher index, coverage since the last known sending suffices.

    Args:
        known: Context with the sendings of lanes.
        lanes: The lanes.
        lane: Lane number of each row.
        indexed: Mask of rows with an index.
        index: Index of each row.
        time: Time of each row; ``NO_TIME``: unknown.

    Returns:
        A reason for each row.
    """
    reasons = np.full(len(lane), "sends_not_covered", dtype=object)
    never = np.iinfo(np.int64).min
    order = np.argsort(lane, kind="stable")
    bounds = np.searchsorted(lane[order], np.arange(len(lanes) + 1))
    for number, own in enumerate(lanes):
        places = order[bounds[number] : bounds[number + 1]]
        if not len(places):
            continue
        spans, sent = known.windows.of(own[1], own, LedgerEvent.SENT.value), known.sent.get(own)
        until = np.full(len(places), never if spans.all_until is None else spans.all_until, np.int64)
        if sent is not None:
            row_index = index[places]
            is_numbered = indexed[places] & ("numbered" in known.promises.of(own))
            end = spans.window_end(sent.last_time)
            if end is not None:
                until = np.where(is_numbered & (row_index > np.uint64(sent.last)), np.maximum(until, end), until)
        covered = (time[places] != NO_TIME) & (time[places] <= until)
        reasons[places[covered]] = "not_sent"
        if sent is not None:
            inside = is_numbered & (row_index >= np.uint64(sent.first)) & (row_index <= np.uint64(sent.last))
            reasons[places[inside]] = "missing_in_sequence"
            reasons[places[is_numbered & (row_index < np.uint64(sent.first)) & ~covered]] = "before_first_sent"
            if sent.before and "ordered_sends" in known.promises.of(own):
                at = np.searchsorted(np.array([first for first, _ in sent.before], np.uint64), row_index, side="right")
                latest = np.array([MIN_DELAY, *(time for _, time in sent.before)], np.int64)[at]
                reasons[places[indexed[places] & (time[places] < latest)]] = NOT_SENT_YET
    return reasons


def unsent_verdict(reason: str) -> str:
    """Return the verdict of a reason of ``unsent_reason``."""
    return VIOLATED if reason in ("not_sent", NOT_SENT_YET) else UNKNOWN
