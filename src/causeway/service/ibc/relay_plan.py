"""What there is to relay from one chain to another, by what both say of themselves (IBC reference 3.5, X-1, X-2, X-13).

Everything follows from the heads and tails of queues and from the headers that are trusted: nothing is remembered, so a
relay process may be killed at any time, started again, and run beside others.

Which packets of a target can be shown to have expired (IBC reference X-1, X-6).

Headers that must be trusted for a while before anything is proved under them (IBC reference X-11): what a relay
process proves under those that were, and which it brings ahead.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from typing import Any

import numpy as np
from causeway_proofs.tendermint.trust import TrustedHeader, is_period_over

from causeway.core.joins import merge_ranges
from causeway.protocols.ibc.errors import IbcError
from causeway.protocols.ibc.expiry import is_expired
from causeway.protocols.ibc.packets import NO_LIMIT, decode_packet
from causeway.protocols.ibc.relay.maintenance import REFRESH
from causeway.protocols.shared.limits import MAX_TRANSACTION_BYTES
from causeway.service.ibc.relay_state import (
    LaneView,
    Limits,
    Pushed,
    ReadLane,
    ReadPackets,
    RelayMemory,
    RelayRules,
    Step,
)
from causeway.service.relay.steps import Direction

HUNDRED_BLOCKS = 100


@dataclass(frozen=True)
class RelaySettings:
    """How a relay process works.

    Attributes:
        min_batch: it waits for that many packets and receipts of one direction ...
        max_wait: ... but no longer than so many blocks of the chain they come from; 0 = it does not wait.
        max_packets: it brings at most so many in one pass; 0 = all that there are.
        proofs_per_header: one header serves at most so many proofs of a pass; 0 = all.
        max_calls, max_bytes: of one transaction.
        chunk: proofs that are asked for at a time.
        cleanup_after: it cleans up once so many receipts can go; what waits for a cleanup does not wait for this.
    """

    min_batch: int = 1
    max_wait: int = 0
    max_packets: int = 0
    proofs_per_header: int = 0
    max_calls: int = 30
    max_bytes: int = MAX_TRANSACTION_BYTES
    chunk: int = 50
    cleanup_after: int = HUNDRED_BLOCKS

    @property
    def limit(self) -> int | None:
        """Return how many packets and receipts a pass brings at most, None for any number."""
        return min([limit for limit in (self.max_packets, self.proofs_per_header) if limit], default=None)


@dataclass(frozen=True)
class RelayWork:
    """What is to be brought from ``source`` to ``target``.

    Attributes:
        packets, receipts: indices to bring now, ascending, of the source's queues for the target.
        backlog: how many packets and receipts there are, those left for later included.
        oldest: the oldest of the backlog: whether it is a packet, its index, and the height that pushed it.
        cleanup: whether to clean up the target's receipts, up to the source's head.
        time_outs: whether packets of the target may have expired, so that their limits must be read.
        pushed: the heights at which what is brought now was pushed; None: not known any more.
        refresh: whether the target's client must have a new header, so that it does not expire.
        patient: whether all that there is may wait.
    """

    packets: tuple[int, ...] = ()
    receipts: tuple[int, ...] = ()
    backlog: int = 0
    oldest: tuple[bool, int, int | None] | None = None
    cleanup: bool = False
    time_outs: bool = False
    pushed: tuple[int | None, ...] = ()
    refresh: bool = False
    patient: bool = False


def plan_work(
    source: LaneView, target: LaneView, rules: RelayRules, settings: RelaySettings, memory: RelayMemory | None = None
) -> RelayWork:
    """Return what is to be brought from one end of a connection to the other.

    ``memory``: of what was submitted before, so that what is refused is not brought in every pass.
    """
    memory = memory or RelayMemory()
    cleanup, needed = _cleanup(source, target, rules, settings)
    packets = _packets(source, target, rules, needed)
    receipts = _receipts(source, target, rules)
    backlog = len(packets) + len(receipts)
    if rules.ordered:
        # All of them, also those that are not listed, or that something is in the way of.
        sent = source.send.tail - max(target.receipt.tail, source.send.head)
        written = min(source.receipt.ready, target.send.tail) - target.send.head
        backlog = max(sent, 0) + max(written, 0)
    oldest = _oldest(packets, receipts)
    time_outs = rules.timeouts and _may_have_expired(source, target, receipts, rules)
    patient = _patient(backlog, oldest, source, settings) and not (needed or time_outs)
    if patient:
        cleanup, packets, receipts = False, {}, {}
    packets, receipts = (
        memory.due(kind, entries, target.height, ordered=rules.ordered)
        for kind, entries in (("receive", packets), ("receipt", receipts))
    )
    cleanup = cleanup and bool(memory.due("cleanup", {source.send.head: None}, target.height, ordered=True))
    packets, receipts = _first(packets, receipts, settings.limit)
    return RelayWork(
        packets=tuple(packets),
        receipts=tuple(receipts),
        backlog=backlog,
        oldest=oldest,
        cleanup=cleanup,
        time_outs=time_outs,
        pushed=(*packets.values(), *receipts.values()),
        refresh=_refresh_due(source, target, rules),
        patient=patient and backlog > 0,
    )


def _cleanup(source: LaneView, target: LaneView, rules: RelayRules, settings: RelaySettings) -> tuple[bool, bool]:
    """Return whether to clean up the target's receipts, and whether packets wait for that (X-2)."""
    if not rules.cleanup:
        return False, False
    free = source.send.head - target.receipt.head
    needed = rules.ordered and source.send.head > target.receipt.tail and source.send.tail > source.send.head
    return needed or free >= max(settings.cleanup_after, 1), needed


def _packets(source: LaneView, target: LaneView, rules: RelayRules, cleaned: bool) -> Pushed:
    """Return the packets that the target has not received."""
    if rules.ordered:
        begin = max(target.receipt.tail, source.send.head) if cleaned else target.receipt.tail
        return source.send.contiguous_entries(begin, source.send.tail)
    pending = source.send.pushed(target.receipt.first_missing_index, source.send.tail)
    return {index: height for index, height in pending.items() if target.receipt.lacks(index)}


def _receipts(source: LaneView, target: LaneView, rules: RelayRules) -> Pushed:
    """Return the receipts that the target has not processed."""
    if rules.ordered:
        return source.receipt.contiguous_entries(target.send.head, min(source.receipt.tail, target.send.tail))
    written = source.receipt.pushed(target.send.head, target.send.tail)
    mine = target.send.pushed(target.send.head, target.send.tail)
    return {index: height for index, height in written.items() if index in mine}


def missing_packets(source: LaneView, target: LaneView) -> tuple[int, ...]:
    """Return the target's packets that the source has not received, in any order (X-6), ascending."""
    sent = target.send.pushed(target.send.head, target.send.tail)
    return tuple(index for index in sent if index >= source.receipt.head and source.receipt.lacks(index))


def _may_have_expired(source: LaneView, target: LaneView, receipts: Pushed, rules: RelayRules) -> bool:
    """Return whether the target has packets that the source has not received and that are next to time out (X-1)."""
    if not rules.ordered:
        return bool(missing_packets(source, target))
    settled = target.send.head + len(receipts) >= source.receipt.tail and not source.receipt.waiting
    return settled and target.send.tail > max(target.send.head + len(receipts), source.receipt.tail)


def _oldest(packets: Pushed, receipts: Pushed) -> tuple[bool, int, int | None] | None:
    first = [(sent, *next(iter(found.items()))) for sent, found in ((True, packets), (False, receipts)) if found]
    return min(first, key=lambda item: -1 if item[2] is None else item[2], default=None)


def _patient(
    backlog: int, oldest: tuple[bool, int, int | None] | None, source: LaneView, settings: RelaySettings
) -> bool:
    """Return whether what there is may wait for more (``min_batch``, ``max_wait``)."""
    if backlog >= settings.min_batch or oldest is None or oldest[2] is None:
        return False
    return source.height - oldest[2] < settings.max_wait


def can_wait(packets: Pushed, receipts: Pushed, source: LaneView, settings: RelaySettings) -> bool:
    """Return whether there is something, and all of it may wait for more (``min_batch``, ``max_wait``)."""
    count = len(packets) + len(receipts)
    return count > 0 and _patient(count, _oldest(packets, receipts), source, settings)


def _first(packets: Pushed, receipts: Pushed, limit: int | None) -> tuple[Pushed, Pushed]:
    """Return the first of both, at most ``limit`` in all, each its share."""
    if limit is None or len(packets) + len(receipts) <= limit:
        return packets, receipts
    share = max(limit - len(receipts), limit // 2)
    kept = dict(islice(packets.items(), share))
    return kept, dict(islice(receipts.items(), limit - len(kept)))


def proving_height(source: LaneView, target: LaneView, work: RelayWork, expired: bool) -> tuple[int, bool]:
    """Return the source's height to prove all under, and whether its header must be submitted first.

    A header that the target trusts already serves, if all was pushed by then: somebody has paid for it. Where queues
    begin and end (cleanups, and time-outs if packets have ``expired``) is proved under the last one.
    """
    trusted = target.trusted[-1].height
    if trusted >= source.height:
        return source.height, source.height not in {header.height for header in target.trusted}
    latest = work.cleanup or expired or not work.pushed
    if not latest and all(height is not None and height <= trusted for height in work.pushed):
        return trusted, work.refresh
    return source.height, True


def _refresh_due(source: LaneView, target: LaneView, rules: RelayRules) -> bool:
    """Return whether the target's client must have a new header, so that it does not expire (X-4)."""
    latest = target.trusted[-1]
    return source.height > latest.height and is_period_over(
        latest.time, rules.unbonding_ns // REFRESH, max(target.time, source.time)
    )


def expired_packets(
    direction: Direction,
    source: LaneView,
    target: LaneView,
    rules: RelayRules,
    work: RelayWork,
    settings: RelaySettings,
    memory: RelayMemory,
) -> Generator[Step, Any, tuple[int, ...]]:
    """Return the target's packets that have expired by the source's header, and that it has not received, ascending.

    In an ordered queue the first ones, up to one that has not expired: those behind it wait for it. In any order all,
    wherever they are: once a client was recovered, later packets have earlier limits. ``memory`` has the limits that
    were read before; of the packets that it does not know, the first ``chunk`` are read.
    """
    waiting: Sequence[int]
    if rules.ordered:
        first = max(target.send.head + len(work.receipts), source.receipt.tail)
        waiting = range(first, min(first + settings.chunk, target.send.tail))
    else:
        waiting = missing_packets(source, target)
    limits = memory.limits
    unknown = [index for index in waiting if index not in limits][: settings.chunk]
    _, begin, end = merge_ranges(np.array(unknown, dtype=np.uint64))
    for first, stop in zip(begin.tolist(), end.tolist(), strict=True):
        place = (direction.other, direction.target, direction.source)
        values = yield ReadPackets(*place, target.height, first, stop - first)
        memory.know(target.send, {index: _limits(value) for index, value in enumerate(values, start=first)})

    def has_expired(index: int) -> bool:
        if index not in limits:
            return False
        return bool(is_expired(*limits[index], source.height, source.time, rules.expiry))

    return tuple((takewhile if rules.ordered else filter)(has_expired, waiting))


def _limits(value: bytes) -> Limits:
    """Return the limits of a packet; bytes that are none have no end that could be shown."""
    try:
        packet = decode_packet(value)
    except IbcError:
        return NO_LIMIT, NO_LIMIT
    return packet.max_height, packet.max_time


@dataclass(frozen=True)
class HeaderOutlook:
    """What a target can be proved now, and what it will.

    Attributes:
        shown: the source as the newest header shows it that can be used; ``usable``: whether there is one, else it is
            the source as it is.
        header: whether to bring the source's newest header: it shows something that no trusted one shows.
        waits: whether a trusted header that cannot be used yet shows something to bring.
        whole: all that there is to bring, whether it can be proved or not.
        patient: whether what no trusted header shows may wait for more.
        settings: of the process.
    """

    shown: LaneView
    usable: bool
    header: bool
    waits: bool
    whole: RelayWork
    patient: bool
    settings: RelaySettings

    def work(self, target: LaneView, rules: RelayRules, memory: RelayMemory) -> RelayWork:
        """Return what is to be brought now. It waits for no more: its header was paid for."""
        work = RelayWork()
        if self.usable:
            work = plan_work(self.shown, target, rules, replace(self.settings, min_batch=1), memory)
        whole = self.whole
        return replace(work, backlog=whole.backlog, oldest=whole.oldest, refresh=whole.refresh, patient=self.patient)


def plan_headers(
    direction: Direction,
    source: LaneView,
    target: LaneView,
    rules: RelayRules,
    settings: RelaySettings,
    memory: RelayMemory,
) -> Generator[Step, Any, HeaderOutlook]:
    """Find out what can be proved to a target, and whether a header should be brought for what cannot be yet."""
    newest, ready = target.trusted[-1], _newest_usable(target, rules)
    shown = yield from _as_of(direction, source, target, ready)
    known = shown if ready is newest else (yield from _as_of(direction, source, target, newest))
    everything = replace(settings, min_batch=1, max_packets=0, proofs_per_header=0)
    now, late = yield from _all_work(direction, source, target, rules, everything, memory)
    then, late_then = RelayWork(), frozenset[int]()
    if known is not None:
        then, late_then = yield from _all_work(direction, known, target, rules, everything, memory)
    packets, receipts = _pushed(now)
    for index in then.packets:
        packets.pop(index, None)
    for index in then.receipts:
        receipts.pop(index, None)
    patient = can_wait(packets, receipts, source, settings)
    needed = bool((packets or receipts) and not patient) or (now.cleanup and not then.cleanup) or bool(late - late_then)
    waits = ready is not newest and bool(then.packets or then.receipts or then.cleanup or late_then)
    return HeaderOutlook(
        shown=shown or source,
        usable=shown is not None,
        header=needed and source.height > newest.height,
        waits=waits,
        whole=now,
        patient=patient,
        settings=settings,
    )


def _newest_usable(target: LaneView, rules: RelayRules) -> TrustedHeader | None:
    """Return the newest trusted header whose delay is over by the target's clock, and that is not too old."""
    for header in reversed(target.trusted):
        if header.added_time + rules.delay_ns <= target.time:
            return None if is_period_over(header.time, rules.trusting_ns, target.time) else header
    return None


def _as_of(
    direction: Direction, source: LaneView, target: LaneView, header: TrustedHeader | None
) -> Generator[Step, Any, LaneView | None]:
    """Return the source as a header shows it, None where it was not kept, or nothing is proved: at height 0."""
    if header is None or not 0 < header.height <= source.height:
        return None
    begin = target.receipt.first_missing_index, target.send.head
    found: LaneView | None = yield ReadLane(direction.end, direction.source, direction.target, *begin, header.height)
    return found


def _all_work(
    direction: Direction,
    source: LaneView,
    target: LaneView,
    rules: RelayRules,
    settings: RelaySettings,
    memory: RelayMemory,
) -> Generator[Step, Any, tuple[RelayWork, frozenset[int]]]:
    """Return what there is to bring, and the target's packets that have expired."""
    work, late = plan_work(source, target, rules, settings), tuple[int, ...]()
    if work.time_outs:
        late = yield from expired_packets(direction, source, target, rules, work, settings, memory)
    return work, frozenset(late)


def _pushed(work: RelayWork) -> tuple[Pushed, Pushed]:
    """Return the packets and receipts of some work with the heights at which they were pushed."""
    count = len(work.packets)
    packets = dict(zip(work.packets, work.pushed[:count], strict=True))
    return packets, dict(zip(work.receipts, work.pushed[count:], strict=True))
