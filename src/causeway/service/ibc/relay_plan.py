"""What there is to relay from one chain to another, by what both say of themselves (IBC reference 3.5, X-1, X-2, X-13).

Everything follows from the heads and tails of queues and from the headers that are trusted: nothing is remembered, so a
relay process may be killed at any time, started again, and run beside others.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from causeway.proofs.tendermint.trust import is_over
from causeway.protocols.ibc.upkeep import REFRESH
from causeway.protocols.limits import MAX_TRANSACTION_BYTES
from causeway.service.ibc.lanes import LaneView, Pushed, Rules
from causeway.service.ibc.memory import Memory

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
class Work:
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


def work_between(
    source: LaneView, target: LaneView, rules: Rules, settings: RelaySettings, memory: Memory | None = None
) -> Work:
    """Return what is to be brought from one end of a connection to the other.

    ``memory``: of what was submitted before, so that what is refused is not brought in every pass.
    """
    memory = memory or Memory()
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
    return Work(
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


def _cleanup(source: LaneView, target: LaneView, rules: Rules, settings: RelaySettings) -> tuple[bool, bool]:
    """Return whether to clean up the target's receipts, and whether packets wait for that (X-2)."""
    if not rules.cleanup:
        return False, False
    free = source.send.head - target.receipt.head
    needed = rules.ordered and source.send.head > target.receipt.tail and source.send.tail > source.send.head
    return needed or free >= max(settings.cleanup_after, 1), needed


def _packets(source: LaneView, target: LaneView, rules: Rules, cleaned: bool) -> Pushed:
    """Return the packets that the target has not received."""
    if rules.ordered:
        begin = max(target.receipt.tail, source.send.head) if cleaned else target.receipt.tail
        return source.send.unbroken(begin, source.send.tail)
    pending = source.send.pushed(target.receipt.first_lacking, source.send.tail)
    return {index: height for index, height in pending.items() if target.receipt.lacks(index)}


def _receipts(source: LaneView, target: LaneView, rules: Rules) -> Pushed:
    """Return the receipts that the target has not processed."""
    if rules.ordered:
        return source.receipt.unbroken(target.send.head, min(source.receipt.tail, target.send.tail))
    written = source.receipt.pushed(target.send.head, target.send.tail)
    mine = target.send.pushed(target.send.head, target.send.tail)
    return {index: height for index, height in written.items() if index in mine}


def not_received(source: LaneView, target: LaneView) -> tuple[int, ...]:
    """Return the target's packets that the source has not received, in any order (X-6), ascending."""
    sent = target.send.pushed(target.send.head, target.send.tail)
    return tuple(index for index in sent if index >= source.receipt.head and source.receipt.lacks(index))


def _may_have_expired(source: LaneView, target: LaneView, receipts: Pushed, rules: Rules) -> bool:
    """Return whether the target has packets that the source has not received and that are next to time out (X-1)."""
    if not rules.ordered:
        return bool(not_received(source, target))
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


def may_wait(packets: Pushed, receipts: Pushed, source: LaneView, settings: RelaySettings) -> bool:
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


def proving_height(source: LaneView, target: LaneView, work: Work, expired: bool) -> tuple[int, bool]:
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


def _refresh_due(source: LaneView, target: LaneView, rules: Rules) -> bool:
    """Return whether the target's client must have a new header, so that it does not expire (X-4)."""
    latest = target.trusted[-1]
    return source.height > latest.height and is_over(
        latest.time, rules.unbonding_ns // REFRESH, max(target.time, source.time)
    )
