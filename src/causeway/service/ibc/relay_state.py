"""State of the relay loop: views of both ends, rules, memory, and requests as data.

The work follows from both chains alone (IBC reference 3.5, X-13). The memory only avoids useless repetition:
resubmitting refused entries, comparing a header twice, or reading a packet's limits twice. A restarted process
loses nothing but its back-off. Requests are answered by the process that runs the loop (IBC reference 3.5).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from causeway_proofs.tendermint.trust import TrustedHeader

from causeway.service.ibc.answers import LaneAnswer, ZoneOptionsAnswer
from causeway.service.relay import loop

MOST_LISTED = 10_000
"""Maximum number of entries listed individually; later ones wait for another pass."""

Pushed = dict[int, int | None]
"""Heights of the pushes by ascending index; None if unknown."""


@dataclass(frozen=True)
class QueueView:
    """Queue at a height.

    Attributes:
        head: Index of its begin.
        tail: Next index.
        ready: Index below which all entries have a value.
        entries: Ranges (first, count, height of the push) of its entries, ascending.
        missing: Unreceived ranges (first, count) between head and tail of a receipt queue, ascending; the first
            ones.
        waiting: True if receipts are without a value yet.
    """

    head: int
    tail: int
    ready: int
    entries: tuple[tuple[int, int, int | None], ...]
    missing: tuple[tuple[int, int], ...] = ()
    waiting: bool = False

    def pushed(self, begin: int, end: int) -> Pushed:
        """Return the entries with indices ``begin`` to ``end`` - 1, at most ``MOST_LISTED``."""
        found: Pushed = {}
        for first, count, height in self.entries:
            stop = min(first + count, end)
            for index in range(max(first, begin), stop):
                if len(found) == MOST_LISTED:
                    return found
                found[index] = height
        return found

    def lacks(self, index: int) -> bool:
        """Return True if a receipt queue has not received a packet."""
        place = bisect_right(self.missing, index, key=lambda gap: gap[0]) - 1
        return index >= self.tail or (place >= 0 and index < sum(self.missing[place]))

    @property
    def first_missing_index(self) -> int:
        """First index that a receipt queue has not received."""
        return self.missing[0][0] if self.missing else self.tail

    def contiguous_entries(self, begin: int, end: int) -> Pushed:
        """Return the entries from ``begin`` on, below ``end``, up to the first gap."""
        found = self.pushed(begin, end)
        for place, index in enumerate(found):
            if index != begin + place:
                return dict(list(found.items())[:place])
        return found


@dataclass(frozen=True)
class LaneView:
    """State of a chain for ``counterparty`` at a height.

    Attributes:
        chain: Name of the chain.
        counterparty: Name of the other chain.
        height: Height of the chain.
        time: Time of the chain in ns.
        send: Its send queue.
        receipt: Its receipt queue.
        trusted: Newest trusted headers of ``counterparty``, ascending; at least one.
        state: State of its client: active, frozen or disconnecting.
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
    """Options of a network that determine the work of a relay process.

    Attributes:
        ordered: True if packets are received only in order.
        expiry: Rule for a packet exactly at its limit (``protocols.ibc.expiry.is_expired``).
        timeouts: True if packets can expire.
        cleanup: True if receipts can be cleaned up.
        unbonding_ns: Trusting period of a header.
        delay_ns: Delay between trusting a header and proving under it.
    """

    ordered: bool = True
    expiry: str = "strict"
    timeouts: bool = False
    cleanup: bool = False
    unbonding_ns: int = 21 * 86_400 * 10**9
    delay_ns: int = 0

    @property
    def trusting_ns(self) -> int:
        """Age in ns at which a trusted header has expired; light clients count inclusively."""
        return self.unbonding_ns + 1


def lane_view(content: Mapping[str, Any]) -> LaneView:
    """Parse the lane of a JSON object (``ZoneViews.lane``).

    Args:
        content: The object.

    Raises:
        ValueError: The object is no lane.
    """
    return view_from_answer(LaneAnswer.model_validate(content))


def view_from_answer(lane: LaneAnswer) -> LaneView:
    """Convert a lake's answer to a lane."""
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


def read_rules(options: ZoneOptionsAnswer) -> RelayRules:
    """Convert the options of a status to rules."""
    return RelayRules(
        ordered=options.order == "ordered",
        expiry=options.expiry,
        timeouts=options.timeouts == "on",
        cleanup=options.cleanup == "on",
        unbonding_ns=options.unbonding_ns,
        delay_ns=options.delay_ns,
    )


MOST_BLOCKS = 64
"""Maximum back-off of a refused entry in blocks."""

MOST_TOLD = 8
"""Maximum number of reported waiting entries."""

MOST_COMPARED = 1_000
"""Compared headers to remember."""

Limits = tuple[int, int]
"""Height and time (ns) of the other chain up to which a packet can be received."""


@dataclass
class DeliveryAttempt:
    """Submitted entry that is still due.

    Attributes:
        height: Height of the target at its submission.
        refused: Number of refused submissions.
        waits: True while it backs off.
        until: Height of the target at which the back-off ends.
        passes: Passes until the back-off ends if the target makes no blocks.
    """

    height: int
    refused: int = 0
    waits: bool = False
    until: int = 0
    passes: int = 0


@dataclass
class PacketRelayMemory:
    """Memory of one direction.

    Attributes:
        held: Descriptions of due entries withheld in this pass; the first ones.
        limits: Limits of the target's packets by index.
    """

    held: list[str] = field(default_factory=list)
    limits: dict[int, Limits] = field(default_factory=dict)
    _attempts: dict[str, dict[int, DeliveryAttempt]] = field(default_factory=dict)
    _compared: dict[tuple[int, bytes], None] = field(default_factory=dict)

    def due(self, kind: str, entries: Pushed, height: int, *, ordered: bool) -> Pushed:
        """Filter the due entries to those to submit now.

        An entry submitted before a block and still due after it was refused. After the n-th refusal in a row it waits
        for ``min(2**n, 64)`` blocks, or as many passes. In an ordered queue the entries behind it wait too.

        Args:
            kind: Kind of the call.
            entries: The due entries.
            height: Height of the target.
            ordered: True for an ordered queue.
        """
        attempts = self._attempts.setdefault(kind, {})
        for index in [index for index in attempts if index not in entries]:
            del attempts[index]
        waiting = {index for index, entry in attempts.items() if self._waits(kind, index, entry, height)}
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
        """Record submissions at a height of the target; in an ordered queue only the first entry."""
        attempts = self._attempts.setdefault(kind, {})
        for index in sorted(indices)[:1] if ordered else indices:
            before = attempts.get(index)
            attempts[index] = DeliveryAttempt(height, before.refused if before is not None else 0)

    def know(self, queue: QueueView, limits: Mapping[int, Limits]) -> None:
        """Record the limits of packets, and drop those of packets that left ``queue``."""
        present = queue.pushed(queue.head, queue.tail)
        for index in [index for index in self.limits if index not in present]:
            del self.limits[index]
        self.limits.update(limits)

    def is_compared(self, height: int, header_hash: bytes) -> bool:
        """Return True if a header is known to be the source's own."""
        return (height, header_hash) in self._compared

    def compared(self, height: int, header_hash: bytes) -> None:
        """Record a header as the source's own."""
        self._compared[height, header_hash] = None
        if len(self._compared) > MOST_COMPARED:
            del self._compared[next(iter(self._compared))]


@dataclass(frozen=True)
class ReadLane(loop.ChainRead):
    """Request for the ``LaneView`` of a chain for ``counterparty``.

    Attributes:
        counterparty: Name of the other chain.
        packets_from: First index of the packets to list.
        receipts_from: First index of the receipts to list.
        height: Height of the view, by default the last; the answer is None if it is not stored.
    """

    counterparty: str
    packets_from: int = 0
    receipts_from: int = 0
    height: int | None = None


@dataclass(frozen=True)
class ReadHeader(loop.ChainRead):
    """Request for the signed header of a chain at a height, as bytes."""

    height: int


@dataclass(frozen=True)
class ReadProofs(loop.ChainRead):
    """Request for (value, proof) of keys in a chain's store at a height; None if absent."""

    height: int
    keys: tuple[bytes, ...]


@dataclass(frozen=True)
class ReadPackets(loop.ChainRead):
    """Request for at most ``count`` packets of a chain for ``counterparty`` from an index on."""

    counterparty: str
    height: int
    first: int
    count: int


@dataclass(frozen=True)
class SubmitWithHeaders(loop.Submit):
    """Submission of a transaction with ``headers`` header updates."""

    headers: int


Step = ReadLane | ReadHeader | ReadProofs | ReadPackets | SubmitWithHeaders
