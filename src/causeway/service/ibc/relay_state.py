"""What a relay process knows of both ends of a connection: one chain's queues for the other, and its client of it.

What a relay process remembers of a direction from one pass to the next (IBC reference 3.5, X-13).

What there is to relay follows from both chains alone. This is about what is *not* worth doing: submitting again and
again what the target refuses, and reading again a header that was compared or the limits of a packet. A process that
is started again has lost nothing but its patience.

What the relay loop asks for and hands over, as data: whoever runs it answers (IBC reference 3.5).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from causeway_proofs.tendermint.trust import TrustedHeader

from causeway.service.ibc.answers import LaneAnswer, OptionsAnswer
from causeway.service.relay import steps

MOST_LISTED = 10_000
"""Entries that are listed one by one at most, whatever ranges a lake names: the first ones. Others wait their turn."""

Pushed = dict[int, int | None]
"""Indices of entries, ascending, and the heights at which they were pushed; None: not known any more."""


@dataclass(frozen=True)
class QueueView:
    """A queue at a height.

    Attributes:
        head, tail: where it begins, and the index that comes next.
        ready: entries below it have a value.
        entries: ranges (first, count, height at which they were pushed) of what is in it, ascending.
        missing: ranges (first, count) between head and tail, ascending, in which nothing was received: what came before
            its turn is behind them. Of a receipt queue; the first ones.
        waiting: whether receipts have a place and no value yet.
    """

    head: int
    tail: int
    ready: int
    entries: tuple[tuple[int, int, int | None], ...]
    missing: tuple[tuple[int, int], ...] = ()
    waiting: bool = False

    def pushed(self, begin: int, end: int) -> Pushed:
        """Return the entries with indices ``begin`` to ``end`` - 1, the first ``MOST_LISTED``."""
        found: Pushed = {}
        for first, count, height in self.entries:
            stop = min(first + count, end)
            for index in range(max(first, begin), stop):
                if len(found) == MOST_LISTED:
                    return found
                found[index] = height
        return found

    def lacks(self, index: int) -> bool:
        """Return whether a receipt queue has no place for a packet yet: it was not received."""
        place = bisect_right(self.missing, index, key=lambda gap: gap[0]) - 1
        return index >= self.tail or (place >= 0 and index < sum(self.missing[place]))

    @property
    def first_missing_index(self) -> int:
        """Return the first index for which a receipt queue has no place."""
        return self.missing[0][0] if self.missing else self.tail

    def contiguous_entries(self, begin: int, end: int) -> Pushed:
        """Return the entries from ``begin`` on, below ``end``, up to the first index that has none."""
        found = self.pushed(begin, end)
        for place, index in enumerate(found):
            if index != begin + place:
                return dict(list(found.items())[:place])
        return found


@dataclass(frozen=True)
class LaneView:
    """What a chain keeps for ``counterparty`` at a height.

    Attributes:
        height, time: of the chain, time in nanoseconds.
        send, receipt: its queues.
        trusted: the newest headers of ``counterparty`` that it trusts, ascending; one at least.
        state: of its client: active, frozen or disconnecting.
    """

    chain: str
    counterparty: str
    height: int
    time: int
    send: QueueView
    receipt: QueueView
    trusted: tuple[TrustedHeader, ...]
    state: str = "active"


@dataclass(frozen=True)
class RelayRules:
    """The options of a network that decide what a relay process has to do.

    Attributes:
        ordered: whether packets are received in their order only.
        expiry: whether a packet has expired already at its limit (``protocols.ibc.expiry.is_expired``).
        timeouts, cleanup: whether packets can expire, and receipts be cleaned up.
        unbonding_ns: how long a header is trusted.
        delay_ns: how long it must have been trusted before anything is proved under it.
    """

    ordered: bool = True
    expiry: str = "strict"
    timeouts: bool = False
    cleanup: bool = False
    unbonding_ns: int = 21 * 86_400 * 10**9
    delay_ns: int = 0

    @property
    def trusting_ns(self) -> int:
        """The age (ns) at which a trusted header is over: light clients count from that very instant."""
        return self.unbonding_ns + 1


def lane_view(content: Mapping[str, Any]) -> LaneView:
    """Return the lane of a JSON object (``Views.lane``).

    Raises:
        ValueError: it is none.
    """
    return view_from_answer(LaneAnswer.model_validate(content))


def view_from_answer(lane: LaneAnswer) -> LaneView:
    """Return the lane that a lake answered."""
    trusted = tuple(
        TrustedHeader(
            height=item.height,
            time=item.time,
            root=item.root,
            next_validators_hash=item.next_validators_hash,
            validators_hash=item.validators_hash,
            header_hash=item.header_hash,
            added_height=item.added,
            added_time=item.added_time,
        )
        for item in lane.client.trusted
    )
    sent, received = lane.send, lane.receipt
    send = QueueView(sent.head, sent.tail, sent.tail, tuple(sent.entries))
    receipt = QueueView(
        received.head,
        received.tail,
        received.ready,
        tuple(received.entries),
        tuple(received.missing),
        bool(received.waiting),
    )
    return LaneView(lane.chain, lane.counterparty, lane.height, lane.time, send, receipt, trusted, lane.client.state)


def read_rules(options: OptionsAnswer) -> RelayRules:
    """Return the rules that the options of a status say."""
    return RelayRules(
        ordered=options.order == "ordered",
        expiry=options.expiry,
        timeouts=options.timeouts == "on",
        cleanup=options.cleanup == "on",
        unbonding_ns=options.unbonding_ns,
        delay_ns=options.delay_ns,
    )


MOST_BLOCKS = 64
"""So many blocks what was refused waits at most before it is submitted again."""

MOST_TOLD = 8
"""So many of the entries that wait are told."""

MOST_COMPARED = 1_000
"""Headers of which is remembered that they were compared; the last ones."""

Limits = tuple[int, int]
"""The height and the time (ns) of the other chain up to which a packet can be received."""


@dataclass
class DeliveryAttempt:
    """An entry that was handed over and is still due: at which height of the target, how often in vain, and whether it
    waits now: until which height, or for how many more passes where the target makes no blocks."""

    height: int
    refused: int = 0
    waits: bool = False
    until: int = 0
    passes: int = 0


@dataclass
class RelayMemory:
    """The memory of one direction.

    ``held``: of the present pass, what is not submitted though it is due, in words; the first ones. ``limits``: of the
    target's packets that were read, by index.
    """

    held: list[str] = field(default_factory=list)
    limits: dict[int, Limits] = field(default_factory=dict)
    _tried: dict[str, dict[int, DeliveryAttempt]] = field(default_factory=dict)
    _compared: dict[tuple[int, bytes], None] = field(default_factory=dict)

    def due(self, kind: str, entries: Pushed, height: int, *, ordered: bool) -> Pushed:
        """Return which of the entries that are due are to be submitted now; ``height``: the target's.

        What was handed over before a block and is still due after it was refused: the n-th time in a row it waits for
        ``min(2**n, 64)`` blocks, or as many passes. In an ordered queue what is behind it waits with it.
        """
        tried = self._tried.setdefault(kind, {})
        for index in [index for index in tried if index not in entries]:
            del tried[index]
        waiting = {index for index, entry in tried.items() if self._waits(kind, index, entry, height)}
        if not waiting:
            return entries
        if not ordered:
            return {index: pushed for index, pushed in entries.items() if index not in waiting}
        return {index: pushed for index, pushed in entries.items() if index < min(waiting)}

    def _waits(self, kind: str, index: int, entry: DeliveryAttempt, height: int) -> bool:
        if not entry.waits and height > entry.height:
            entry.refused += 1
            blocks = min(2 ** min(entry.refused, 10), MOST_BLOCKS)
            entry.waits, entry.until, entry.passes = True, height + blocks, blocks
        elif entry.waits:
            entry.passes -= 1
        if not entry.waits or height >= entry.until or entry.passes <= 0:
            return False
        if len(self.held) == MOST_TOLD:
            return True
        times = "once" if entry.refused == 1 else f"{entry.refused} times"
        self.held.append(f"{kind} {index} was not taken, {times}: it waits for block {entry.until}")
        return True

    def handed_over(self, kind: str, indices: Collection[int], height: int, *, ordered: bool) -> None:
        """Note what is submitted at a height of the target; of an ordered queue the first decides for all."""
        tried = self._tried.setdefault(kind, {})
        for index in sorted(indices)[:1] if ordered else indices:
            before = tried.get(index)
            tried[index] = DeliveryAttempt(height, before.refused if before is not None else 0)

    def know(self, queue: QueueView, limits: Mapping[int, Limits]) -> None:
        """Note the limits of packets that were read, and forget those of packets that have left ``queue``."""
        here = queue.pushed(queue.head, queue.tail)
        for index in [index for index in self.limits if index not in here]:
            del self.limits[index]
        self.limits.update(limits)

    def is_compared(self, height: int, header_hash: bytes) -> bool:
        """Return whether a header of the source is known to be its own."""
        return (height, header_hash) in self._compared

    def compared(self, height: int, header_hash: bytes) -> None:
        """Note that a header is the source's own."""
        self._compared[height, header_hash] = None
        if len(self._compared) > MOST_COMPARED:
            del self._compared[next(iter(self._compared))]


@dataclass(frozen=True)
class ReadLane:
    """Asks for the ``LaneView`` of a chain for ``counterparty``, at its last height.

    ``packets_from``, ``receipts_from``: entries below these indices need not be in it. ``height``: as it was at that
    height instead, None where the lake has not kept it.
    """

    end: str
    chain: str
    counterparty: str
    packets_from: int = 0
    receipts_from: int = 0
    height: int | None = None


@dataclass(frozen=True)
class ReadHeader:
    """Asks for the signed header of a chain at a height, as bytes."""

    end: str
    chain: str
    height: int


@dataclass(frozen=True)
class ReadProofs:
    """Asks for (value, proof) of each key in a chain's store at a height; None for a key with nothing under it."""

    end: str
    chain: str
    height: int
    keys: tuple[bytes, ...]


@dataclass(frozen=True)
class ReadPackets:
    """Asks for the values of the packets that a chain has for ``counterparty`` from an index on, ``count`` at most."""

    end: str
    chain: str
    counterparty: str
    height: int
    first: int
    count: int


@dataclass(frozen=True)
class SubmitWithHeaders(steps.Submit):
    """Hands over a transaction. ``headers``: the header updates in it."""

    headers: int


Step = ReadLane | ReadHeader | ReadProofs | ReadPackets | SubmitWithHeaders
