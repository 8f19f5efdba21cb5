"""What is known of lanes beside the rows of one bucket, and what it says of messages that no row shows as sent."""

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
"""The reason of what is decided when all buckets were seen."""

NOT_SENT_YET = "not_sent_yet"

OVERDUE_UNDECIDED = "overdue_undecided"
"""The reason of an overdue message of a lane of which the other end may not have been recorded at all."""

RECEIPT_NOT_COVERED = "receipt_not_covered"

RECEIPT_UNDECIDED = "receipt_undecided"
"""The reason of an acknowledged message without arrival where no window has arrivals: it is ``RECEIPT_NOT_COVERED``,
or nothing where the destination of its lane was not recorded at all."""

UNDECIDED_PAID = "undecided_paid"
"""The same of what was paid out of messages that no row shows."""

PAID_NOT_SENT = "paid_not_sent"
"""What ``not_sent`` and ``not_sent_yet`` are of what was paid out of a message."""


class SentEnds(NamedTuple):
    """The first and the last index that a lane is known to have sent, and when the last was sent (``NO_TIME``).

    ``before``: of each piece of the lane, in their order, its first index and the latest time at which a message of the
    pieces before it was sent (``NEVER``); empty where there are none.
    """

    first: int
    last: int
    last_time: int
    before: tuple[tuple[int, int], ...] = ()


class ContinuedNames(NamedTuple):
    """Names of messages that others carry on, ascending, and the last time at which such another one was sent
    (``NO_TIME``: not seen)."""

    names: Words
    times: Ints


class ReachedHeights(NamedTuple):
    """At each of some ``times`` and after it, ascending, the least height at which a chain received anything."""

    times: Ints
    heights: Words

    def after(self, times: Ints) -> Words:
        """Return the least height of a receipt after each time, ``NO_HEIGHT`` where there is none."""
        found: Words = np.append(self.heights, NO_HEIGHT)[np.searchsorted(self.times, times, side="right")]
        return found


@dataclass
class LaneContext:
    """What is known of lanes beside a bucket's rows: windows, promises and, in a second look, ``sent`` of each lane.
    ``complete``: whether that is known; ``shared``: groups of lanes whose indices are asked for (``numbering``);
    ``misplaced``: causal links of lanes; ``carried``: messages that others carry on (``carrying``);
    ``reached``: how high chains were (``reached``); None, of these two: there is too much. All but windows and promises
    is known in a second look alone."""

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
        """Return the fields that are known in a second look alone, by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)[2:]}

    def second_pass_input(self, lanes: Iterable[Lane]) -> tuple[Any, ...]:
        """Return the input of a second look at some lanes as a comparable value."""
        own = [(lane, self.sent.get(lane), self.misplaced.get(lane), self._heights.get(lane[2])) for lane in lanes]
        return own, self.complete, self.shared, self._carried_digest, self.reached is None

    @cached_property
    def _carried_digest(self) -> bytes:
        return _digest(self.carried)

    @cached_property
    def _heights(self) -> dict[str | None, bytes]:
        return {chain: _digest(heights) for chain, heights in (self.reached or {}).items()}


def _digest(columns: Iterable[Array] | None) -> bytes:
    """Return a digest of arrays, of None another than of empty ones."""
    found = sha256(b"" if columns is None else b"known")
    for column in columns or ():
        found.update(column.tobytes())
    return found.digest()


def unsent_reason(
    known: LaneContext, lanes: Sequence[Lane], lane: Array, indexed: Bools, index: Array, time: Array
) -> Array:
    """Return why nothing shows that messages were sent of which something else was seen.

    ``not_sent_yet``, where sends are ordered and a message with a lower index was sent later than the time of the row.
    ``not_sent``, where the windows would show the sending: those of the source have everything since its first block
    or, where the lane is numbered and the index above the last one sent, since that one; until the time of the row.

    Args:
        known: what lanes sent, too.
        lanes, lane: the lanes, and which of them each row's is.
        indexed, index, time: of rows; ``NO_TIME``: not seen.
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
            its_index = index[places]
            is_numbered = indexed[places] & ("numbered" in known.promises.of(own))
            end = spans.window_end(sent.last_time)
            if end is not None:
                until = np.where(is_numbered & (its_index > np.uint64(sent.last)), np.maximum(until, end), until)
        covered = (time[places] != NO_TIME) & (time[places] <= until)
        reasons[places[covered]] = "not_sent"
        if sent is not None:
            inside = is_numbered & (its_index >= np.uint64(sent.first)) & (its_index <= np.uint64(sent.last))
            reasons[places[inside]] = "missing_in_sequence"
            reasons[places[is_numbered & (its_index < np.uint64(sent.first)) & ~covered]] = "before_first_sent"
            if sent.before and "ordered_sends" in known.promises.of(own):
                at = np.searchsorted(np.array([first for first, _ in sent.before], np.uint64), its_index, side="right")
                latest = np.array([MIN_DELAY, *(time for _, time in sent.before)], np.int64)[at]
                reasons[places[indexed[places] & (time[places] < latest)]] = NOT_SENT_YET
    return reasons


def unsent_verdict(reason: str) -> str:
    """Return the verdict that goes with a reason of ``why_unsent``."""
    return VIOLATED if reason in ("not_sent", NOT_SENT_YET) else UNKNOWN
