"""Headers that must be trusted for a while before anything is proved under them (IBC reference X-11): what a relay
process proves under those that were, and which it brings ahead.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

from causeway.proofs.tendermint.trust import TrustedHeader, is_over
from causeway.service.ibc.lanes import LaneView, Pushed, Rules
from causeway.service.ibc.memory import Memory
from causeway.service.ibc.relay_plan import RelaySettings, Work, may_wait, work_between
from causeway.service.ibc.steps import ReadLane, Step
from causeway.service.ibc.time_outs import expired_packets
from causeway.service.relay_steps import Direction


@dataclass(frozen=True)
class Ahead:
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
    whole: Work
    patient: bool
    settings: RelaySettings

    def work(self, target: LaneView, rules: Rules, memory: Memory) -> Work:
        """Return what is to be brought now. It waits for no more: its header was paid for."""
        work = Work()
        if self.usable:
            work = work_between(self.shown, target, rules, replace(self.settings, min_batch=1), memory)
        whole = self.whole
        return replace(work, backlog=whole.backlog, oldest=whole.oldest, refresh=whole.refresh, patient=self.patient)


def look_ahead(
    direction: Direction, source: LaneView, target: LaneView, rules: Rules, settings: RelaySettings, memory: Memory
) -> Generator[Step, Any, Ahead]:
    """Find out what can be proved to a target, and whether a header should be brought for what cannot be yet."""
    newest, ready = target.trusted[-1], _newest_usable(target, rules)
    shown = yield from _as_of(direction, source, target, ready)
    known = shown if ready is newest else (yield from _as_of(direction, source, target, newest))
    everything = replace(settings, min_batch=1, max_packets=0, proofs_per_header=0)
    now, late = yield from _all_work(direction, source, target, rules, everything, memory)
    then, late_then = Work(), frozenset[int]()
    if known is not None:
        then, late_then = yield from _all_work(direction, known, target, rules, everything, memory)
    packets, receipts = _pushed(now)
    for index in then.packets:
        packets.pop(index, None)
    for index in then.receipts:
        receipts.pop(index, None)
    patient = may_wait(packets, receipts, source, settings)
    needed = bool((packets or receipts) and not patient) or (now.cleanup and not then.cleanup) or bool(late - late_then)
    waits = ready is not newest and bool(then.packets or then.receipts or then.cleanup or late_then)
    return Ahead(
        shown=shown or source,
        usable=shown is not None,
        header=needed and source.height > newest.height,
        waits=waits,
        whole=now,
        patient=patient,
        settings=settings,
    )


def _newest_usable(target: LaneView, rules: Rules) -> TrustedHeader | None:
    """Return the newest trusted header whose delay is over by the target's clock, and that is not too old."""
    for header in reversed(target.trusted):
        if header.added_time + rules.delay_ns <= target.time:
            return None if is_over(header.time, rules.trusting_ns, target.time) else header
    return None


def _as_of(
    direction: Direction, source: LaneView, target: LaneView, header: TrustedHeader | None
) -> Generator[Step, Any, LaneView | None]:
    """Return the source as a header shows it, None where it was not kept, or nothing is proved: at height 0."""
    if header is None or not 0 < header.height <= source.height:
        return None
    begin = target.receipt.first_lacking, target.send.head
    found: LaneView | None = yield ReadLane(direction.end, direction.source, direction.target, *begin, header.height)
    return found


def _all_work(
    direction: Direction, source: LaneView, target: LaneView, rules: Rules, settings: RelaySettings, memory: Memory
) -> Generator[Step, Any, tuple[Work, frozenset[int]]]:
    """Return what there is to bring, and the target's packets that have expired."""
    work, late = work_between(source, target, rules, settings), tuple[int, ...]()
    if work.time_outs:
        late = yield from expired_packets(direction, source, target, rules, work, settings, memory)
    return work, frozenset(late)


def _pushed(work: Work) -> tuple[Pushed, Pushed]:
    """Return the packets and receipts of some work with the heights at which they were pushed."""
    count = len(work.packets)
    packets = dict(zip(work.packets, work.pushed[:count], strict=True))
    return packets, dict(zip(work.receipts, work.pushed[count:], strict=True))
