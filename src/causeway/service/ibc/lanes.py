"""What a relay process knows of both ends of a connection: one chain's queues for the other, and its client of it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from causeway.proofs.tendermint.trust import TrustedHeader
from causeway.service.ibc.answers import LaneAnswer, OptionsAnswer

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
    def first_lacking(self) -> int:
        """Return the first index for which a receipt queue has no place."""
        return self.missing[0][0] if self.missing else self.tail

    def unbroken(self, begin: int, end: int) -> Pushed:
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
class Rules:
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
    return view_of(LaneAnswer.model_validate(content))


def view_of(lane: LaneAnswer) -> LaneView:
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


def rules_of(options: OptionsAnswer) -> Rules:
    """Return the rules that the options of a status say."""
    return Rules(
        ordered=options.order == "ordered",
        expiry=options.expiry,
        timeouts=options.timeouts == "on",
        cleanup=options.cleanup == "on",
        unbonding_ns=options.unbonding_ns,
        delay_ns=options.delay_ns,
    )
