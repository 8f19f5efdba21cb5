"""Work from one chain to another (IBC reference 3.5, X-1, X-2, X-6, X-11, X-13).

The plan is a function of both chains' queue bounds and trusted headers, without stored state: a relay
process may be killed and restarted at any time, and run beside others. The plan includes expired packets
(X-1, X-6) and, with a proof delay (X-11), the headers usable now and those to submit ahead.
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
    PacketRelayMemory,
    Pushed,
    ReadLane,
    ReadPackets,
    RelayRules,
    Step,
)
from causeway.service.relay.loop import Direction

HUNDRED_BLOCKS = 100


@dataclass(frozen=True)
class RelaySettings:
    """Settings of a relay process.

    Attributes:
        min_batch: Number of packets and receipts to wait for.
        max_wait: Maximum wait in blocks of the source; 0 for none.
        max_packets: Maximum number of packets and receipts in a pass; 0 for no limit.
        proofs_per_header: Maximum number of a pass's proofs per header; 0 for no limit.
        max_calls: Maximum number of calls in a transaction.
        max_bytes: Maximum size of a transaction.
        chunk: Number of proofs in a request.
        cleanup_after: Removable receipts that trigger a cleanup; packets blocked by receipts do at once.
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
        """Maximum number of packets and receipts in a pass, or None."""
        return min([limit for limit in (self.max_packets, self.proofs_per_header) if limit], default=None)


@dataclass(frozen=True)
class RelayWork:
    """Work from ``source`` to ``target``.

    Attributes:
        packets: Indices of packets to submit now, ascending, in the source's queue for the target.
        receipts: Indices of receipts to submit now, ascending.
        backlog: Number of all pending packets and receipts.
        oldest: Oldest of the backlog: True for a packet, index, height of its push.
        cleanup: True to clean up the target's receipts, up to the source's head.
        time_outs: True if packets of the target may have expired, so that their limits must be read.
        pushed: Heights of the pushes of ``packets`` and ``receipts``; None if unknown.
        refresh: True if the target's client needs a new header to stay active.
        patient: True if all work may wait.
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
    source: LaneView,
    target: LaneView,
    rules: RelayRules,
    settings: RelaySettings,
    memory: PacketRelayMemory | None = None,
) -> RelayWork:
    """Plan the work from one end of a connection to the other.

    Args:
        source: View of the source.
        target: View of the target.
        rules: Rules of the network.
        settings: Settings of the process.
        memory: Memory of earlier submissions, so that refused ones are not repeated in every pass.
    """
    memory = memory or PacketRelayMemory()
    cleanup, packets_blocked = _cleanup_due(source, target, rules, settings)
    packets = _pending_packets(source, target, rules, packets_blocked)
    receipts = _pending_receipts(source, target, rules)
    backlog = len(packets) + len(receipts)
    if rules.ordered:
        # Counts also unlisted and blocked entries.
        sent = source.send.tail - max(target.receipt.tail, source.send.head)
        processable = min(source.receipt.ready, target.send.tail) - target.send.head
        backlog = max(sent, 0) + max(processable, 0)
    oldest = _oldest(packets, receipts)
    time_outs = rules.timeouts and _may_have_expired(source, target, receipts, rules)
    patient = _may_wait(backlog, oldest, source, settings) and not (packets_blocked or time_outs)
    if patient:
        cleanup, packets, receipts = False, {}, {}
    packets, receipts = (
        memory.due(kind, entries, target.height, ordered=rules.ordered)
        for kind, entries in (("receive", packets), ("receipt", receipts))
    )
    cleanup = cleanup and bool(memory.due("cleanup", {source.send.head: None}, target.height, ordered=True))
    packets, receipts = _limit_entries(packets, receipts, settings.limit)
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


def _cleanup_due(source: LaneView, target: LaneView, rules: RelayRules, settings: RelaySettings) -> tuple[bool, bool]:
    """Return True to clean up the target's receipts, and True if they block packets (X-2)."""
    if not rules.cleanup:
        return False, False
    free = source.send.head - target.receipt.head
    needed = rules.ordered and source.send.head > target.receipt.tail and source.send.tail > source.send.head
    return needed or free >= max(settings.cleanup_after, 1), needed


def _pending_packets(source: LaneView, target: LaneView, rules: RelayRules, cleaned: bool) -> Pushed:
    """Return the packets that the target has not received."""
    if rules.ordered:
        begin = max(target.receipt.tail, source.send.head) if cleaned else target.receipt.tail
        return source.send.contiguous_entries(begin, source.send.tail)
    pending = source.send.pushed(target.receipt.first_missing_index, source.send.tail)
    return {index: height for index, height in pending.items() if target.receipt.lacks(index)}


def _pending_receipts(source: LaneView, target: LaneView, rules: RelayRules) -> Pushed:
    """Return the receipts that the target has not processed."""
    if rules.ordered:
        return source.receipt.contiguous_entries(target.send.head, min(source.receipt.tail, target.send.tail))
    written = source.receipt.pushed(target.send.head, target.send.tail)
    mine = target.send.pushed(target.send.head, target.send.tail)
    return {index: height for index, height in written.items() if index in mine}


def missing_packets(source: LaneView, target: LaneView) -> tuple[int, ...]:
    """Return the target's packets that the source lacks, in any order (X-6), ascending.

    Args:
        source: View of the source.
        target: View of the target.
    """
    sent = target.send.pushed(target.send.head, target.send.tail)
    return tuple(index for index in sent if index >= source.receipt.head and source.receipt.lacks(index))


def _may_have_expired(source: LaneView, target: LaneView, receipts: Pushed, rules: RelayRules) -> bool:
    """Return True if the target has unreceived packets that may time out next (X-1)."""
    if not rules.ordered:
        return bool(missing_packets(source, target))
    settled = target.send.head + len(receipts) >= source.receipt.tail and not source.receipt.waiting
    return settled and target.send.tail > max(target.send.head + len(receipts), source.receipt.tail)


def _oldest(packets: Pushed, receipts: Pushed) -> tuple[bool, int, int | None] | None:
    first = [(sent, *next(iter(found.items()))) for sent, found in ((True, packets), (False, receipts)) if found]
    return min(first, key=lambda item: -1 if item[2] is None else item[2], default=None)


def _may_wait(
    backlog: int, oldest: tuple[bool, int, int | None] | None, source: LaneView, settings: RelaySettings
) -> bool:
    """Return True if the backlog may wait for more (``min_batch``, ``max_wait``)."""
    if backlog >= settings.min_batch or oldest is None or oldest[2] is None:
        return False
    return source.height - oldest[2] < settings.max_wait


def _limit_entries(packets: Pushed, receipts: Pushed, limit: int | None) -> tuple[Pushed, Pushed]:
    """Limit packets and receipts to ``limit`` in total, divided evenly."""
    if limit is None or len(packets) + len(receipts) <= limit:
        return packets, receipts
    share = max(limit - len(receipts), limit // 2)
    limited_packets = dict(islice(packets.items(), share))
    return limited_packets, dict(islice(receipts.items(), limit - len(limited_packets)))


def proving_height(source: LaneView, target: LaneView, work: RelayWork, expired: bool) -> tuple[int, bool]:
    """Return the source's height for all proofs, and True if its header must be submitted first.

    A header that the target already trusts is reused if all entries were pushed by then. The bounds of queues
    (for cleanups, and for time-outs of ``expired`` packets) are proved at the last height.

    Args:
        source: View of the source.
        target: View of the target.
        work: The work.
        expired: True if packets have expired.
    """
    trusted = target.trusted[-1].height
    if trusted >= source.height:
        return source.height, source.height not in {header.height for header in target.trusted}
    latest = work.cleanup or expired or not work.pushed
    if not latest and all(height is not None and height <= trusted for height in work.pushed):
        return trusted, work.refresh
    return source.height, True


def _refresh_due(source: LaneView, target: LaneView, rules: RelayRules) -> bool:
    """Return True if the target's client needs a new header to stay active (X-4)."""
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
    memory: PacketRelayMemory,
) -> Generator[Step, Any, tuple[int, ...]]:
    """Return the target's unreceived packets expired by the source's header, ascending.

    In an ordered queue these are the first ones, up to one that has not expired: later ones wait for it. In an
    unordered one all count: after the recovery of a client, later packets may have earlier limits. Of the packets
    with unknown limits, the first ``chunk`` are read.

    Args:
        direction: The direction.
        source: View of the source.
        target: View of the target.
        rules: Rules of the network.
        work: The work.
        settings: Settings of the process.
        memory: Memory of limits read before.
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
        memory.know(target.send, {index: _decode_limits(value) for index, value in enumerate(values, start=first)})

    def has_expired(index: int) -> bool:
        if index not in limits:
            return False
        return bool(is_expired(*limits[index], source.height, source.time, rules.expiry))

    return tuple((takewhile if rules.ordered else filter)(has_expired, waiting))


def _decode_limits(value: bytes) -> Limits:
    """Return the limits of a packet; invalid bytes never expire."""
    try:
        packet = decode_packet(value)
    except IbcError:
        return NO_LIMIT, NO_LIMIT
    return packet.max_height, packet.max_time


@dataclass(frozen=True)
class HeaderOutlook:
    """Provable work now, and after further headers.

    Attributes:
        shown: The source as of the newest usable header, or as it is now without one.
        usable: True if there is a usable header.
        header: True to submit the source's newest header: it proves something that no trusted one does.
        waits: True if a trusted header that is not usable yet proves pending work.
        whole: All work, provable or not.
        patient: True if work that no trusted header proves may wait for more.
        settings: Settings of the process.
    """

    shown: LaneView
    usable: bool
    header: bool
    waits: bool
    whole: RelayWork
    patient: bool
    settings: RelaySettings

    def work(self, target: LaneView, rules: RelayRules, memory: PacketRelayMemory) -> RelayWork:
        """Return the work to do now, without waiting for more: its header is paid for."""
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
    memory: PacketRelayMemory,
) -> Generator[Step, Any, HeaderOutlook]:
    """Determine the provable work, and the need for a header for the rest.

    Args:
        direction: The direction.
        source: View of the source.
        target: View of the target.
        rules: Rules of the network.
        settings: Settings of the process.
        memory: Memory of the direction.
    """
    newest, ready = target.trusted[-1], _newest_usable(target, rules)
    view = yield from _view_at_header(direction, source, target, ready)
    newest_view = view if ready is newest else (yield from _view_at_header(direction, source, target, newest))
    everything = replace(settings, min_batch=1, max_packets=0, proofs_per_header=0)
    current_work, expired = yield from _all_work(direction, source, target, rules, everything, memory)
    provable_work, provable_expired = RelayWork(), frozenset[int]()
    if newest_view is not None:
        provable_work, provable_expired = yield from _all_work(
            direction, newest_view, target, rules, everything, memory
        )
    packets, receipts = _entries_with_heights(current_work)
    for index in provable_work.packets:
        packets.pop(index, None)
    for index in provable_work.receipts:
        receipts.pop(index, None)
    # All work may wait (``min_batch``, ``max_wait``).
    count = len(packets) + len(receipts)
    patient = count > 0 and _may_wait(count, _oldest(packets, receipts), source, settings)
    needed = (
        bool((packets or receipts) and not patient)
        or (current_work.cleanup and not provable_work.cleanup)
        or bool(expired - provable_expired)
    )
    waits = ready is not newest and bool(
        provable_work.packets or provable_work.receipts or provable_work.cleanup or provable_expired
    )
    return HeaderOutlook(
        shown=view or source,
        usable=view is not None,
        header=needed and source.height > newest.height,
        waits=waits,
        whole=current_work,
        patient=patient,
        settings=settings,
    )


def _newest_usable(target: LaneView, rules: RelayRules) -> TrustedHeader | None:
    """Return the newest unexpired trusted header with an elapsed delay on the target's clock."""
    for header in reversed(target.trusted):
        if header.added_time + rules.delay_ns <= target.time:
            return None if is_period_over(header.time, rules.trusting_ns, target.time) else header
    return None


def _view_at_header(
    direction: Direction, source: LaneView, target: LaneView, header: TrustedHeader | None
) -> Generator[Step, Any, LaneView | None]:
    """Return the source as of a header; None if it is not stored, or for height 0."""
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
    memory: PacketRelayMemory,
) -> Generator[Step, Any, tuple[RelayWork, frozenset[int]]]:
    """Return all work, and the target's expired packets."""
    work, expired = plan_work(source, target, rules, settings), tuple[int, ...]()
    if work.time_outs:
        expired = yield from expired_packets(direction, source, target, rules, work, settings, memory)
    return work, frozenset(expired)


def _entries_with_heights(work: RelayWork) -> tuple[Pushed, Pushed]:
    """Return the packets and receipts of some work with the heights of their pushes."""
    count = len(work.packets)
    packets = dict(zip(work.packets, work.pushed[:count], strict=True))
    return packets, dict(zip(work.receipts, work.pushed[count:], strict=True))
