"""What the relay loop asks for and hands over, as data: whoever runs it answers (XDM reference 3.10, X-5).

What a relay process remembers of a direction from one pass to the next (XDM reference 3.10, X-5).

What there is to bring follows from both chains alone. This is about what was brought and is not taken yet: each message
comes again only after so many blocks of the target since it was brought, and in which its lane has not gone on. A
process that is started again has lost nothing but its patience.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from causeway.service.relay import steps
from causeway.service.relay.steps import Submit, advance_watermarks


@dataclass(frozen=True)
class ChainPair(steps.Direction):
    """From chain ``source`` to chain ``target``.

    ``what``: "messages" of one to the other; "blocks" of the consensus chain ``source`` to the lake that follows it;
    "receipts" of the domain ``source`` to the consensus chain ``target``.
    """

    what: str = "messages"

    def __str__(self) -> str:
        return super().__str__() if self.what == "messages" else f"{self.what} of {self.source}"


@dataclass(frozen=True)
class ReadFollowed:
    """Asks what is known of the consensus chain at the lake that follows it."""

    end: str
    chain: str


@dataclass(frozen=True)
class ReadBlocks:
    """Asks for headers of the consensus chain after a block, with its author's signature on the last."""

    end: str
    chain: str
    after: int | None


@dataclass(frozen=True)
class ReadAnchor:
    """Asks for the leaf of the block before ``under`` in the mountain range of that one, and with a ``domain`` for its
    confirmed receipt."""

    end: str
    chain: str
    under: int
    domain: str | None


@dataclass(frozen=True)
class ReadReceipted:
    """Asks for the last receipt of a domain that the consensus chain has taken in."""

    end: str
    chain: str
    domain: str


@dataclass(frozen=True)
class ReadReceipts:
    """Asks for a domain's receipts after that of a block."""

    end: str
    chain: str
    after: int | None


@dataclass(frozen=True)
class ReadChannels:
    """Asks for the channels of a chain with another, and what it knows of the consensus chain."""

    end: str
    chain: str
    counterparty: str


@dataclass(frozen=True)
class LaneRequest:
    """Messages of one direction of a channel from a nonce on."""

    channel: int
    response: bool
    first: int


@dataclass(frozen=True)
class ReadMessages:
    """Asks for messages of a chain to another in the storage of its block of a number, with their proofs; of a lane at
    most so many."""

    end: str
    chain: str
    counterparty: str
    block: int
    lanes: tuple[LaneRequest, ...]
    most: int


Step = ReadFollowed | ReadBlocks | ReadAnchor | ReadReceipted | ReadReceipts | ReadChannels | ReadMessages | Submit


Key = tuple[int, bool]
"""A channel, and whether it is about responses."""

MARGIN = 16
"""Blocks that a message may take besides: for its receipt, its leaf, the passes that carry them, and to be seen."""


@dataclass
class DeliveryRecord:
    """What was brought of a lane: ``at`` which block of the target each nonce was, the last time. The target has said
    since block ``since`` that it expects the nonce ``expected``."""

    expected: int
    since: int
    at: dict[int, int] = field(default_factory=dict)

    def goes_on(self, expected: int, height: int, resubmit_after: int) -> None:
        """Note what the target expects, and forget what it has taken; not at once, for it may take that back."""
        if expected != self.expected:
            self.expected, self.since = expected, height
        kept = {nonce: at for nonce, at in self.at.items() if nonce >= expected or at + resubmit_after > height}
        self.at = kept

    def rests(self, nonce: int, height: int, resubmit_after: int) -> bool:
        """Return whether a message was brought, and too lately to come again."""
        at = self.at.get(nonce)
        return at is not None and max(at, self.since) + resubmit_after > height


@dataclass
class AwaitedDelivery:
    """Something is to come to the target. It has taken nothing since it knew the consensus block ``since``; the newest
    one it has known since its height ``height``."""

    since: int
    height: int


@dataclass(frozen=True)
class RelayLimits:
    """The options of the network: nonces of a lane, channels in a pass, blocks until something is brought again, blocks
    until something is confirmed and final."""

    nonces: int
    channels: int
    resubmit_after: int
    confirmed_after: int

    @property
    def longest_wait(self) -> int:
        """Return after how many blocks what has not come never will: it was confirmed, brought, and brought again."""
        return self.confirmed_after + 2 * self.resubmit_after + MARGIN


@dataclass
class RelayMemory:
    """The memory of one direction.

    ``turn``: passes so far, by which channels have their turns. ``taken``: of each lane, the highest nonce up to which
    the target has said that it has taken what there was; ``moved``: how often one of them became higher. ``best``,
    ``height``: the newest consensus block that the target has said it knows, and its own.
    """

    lanes: dict[Key, DeliveryRecord] = field(default_factory=dict)
    turn: int = 0
    taken: dict[Key, int] = field(default_factory=dict)
    moved: int = 0
    best: int = -1
    height: int = -1
    awaited: AwaitedDelivery | None = None

    @property
    def mark(self) -> tuple[int, int, int]:
        """Return what changes whenever the target is further than it ever was."""
        return self.height, self.best, self.moved

    def waited(self, taken: Mapping[Key, int], best: int | None, height: int, *, due: bool) -> int:
        """Return for how many blocks nothing has come to the target of what there is: of the consensus chain, or of
        the target where that stands.

        ``taken``: of each lane that the source has, up to which nonce the target has taken what there is; ``best``: the
        newest consensus block that the target knows; ``height``: its own; ``due``: whether anything is to come.

        Nonces and blocks never become fewer. So a wait begins anew only where the target has taken more than ever
        before: what the source says there is does not matter, nor what either of them takes back.
        """
        self.taken, moved = advance_watermarks(self.taken, taken)
        self.moved += moved
        newest, known = -1 if best is None else best, self.awaited
        if newest > self.best:
            if known is not None:
                # Before anything of the consensus chain is known its numbers say nothing.
                known.since, known.height = newest if self.best < 0 else known.since, height
            self.best = newest
        self.height = max(self.height, height)
        if moved or known is None:
            self.awaited = known = AwaitedDelivery(self.best, self.height) if due else None
        return 0 if known is None else max(self.best - known.since, self.height - known.height)

    def wanted(self, due: Mapping[Key, tuple[int, int]], height: int, limits: RelayLimits) -> list[LaneRequest]:
        """Return from which nonce on lanes are to be brought now, but for what ``rests``, of as many channels as have
        their turn.

        ``due``: of each lane that has something, the nonce that the target expects and the end of what the source has;
        ``height``: the target's.
        """
        self.lanes = {key: brought for key, brought in self.lanes.items() if key in due}
        found: dict[Key, int] = {}
        for key, (expected, end) in due.items():
            if (brought := self.lanes.get(key)) is not None:
                brought.goes_on(expected, height, limits.resubmit_after)
            # What is beyond what the target may keep is for nothing.
            nonces = range(expected, min(end, expected + 2 * limits.nonces))
            first = next((nonce for nonce in nonces if not self.rests(key, nonce, height, limits)), None)
            if first is not None:
                found[key] = first
        channels = sorted({channel for channel, _ in found})
        start = self.turn * limits.channels % max(len(channels), 1)
        self.turn += 1
        chosen = {channels[(start + place) % len(channels)] for place in range(min(limits.channels, len(channels)))}
        return [LaneRequest(*key, first) for key, first in sorted(found.items()) if key[0] in chosen]

    def rests(self, key: Key, nonce: int, height: int, limits: RelayLimits) -> bool:
        """Return whether a message of a lane is not to be brought now, because it was lately; whatever comes before it
        and was lost is no reason to bring it, too (X-5)."""
        brought = self.lanes.get(key)
        return brought is not None and brought.rests(nonce, height, limits.resubmit_after)

    def handed_over(self, key: Key, nonces: Collection[int], expected: int, height: int) -> None:
        """Remember that messages of a lane were handed over."""
        self.lanes.setdefault(key, DeliveryRecord(expected, height)).at.update(dict.fromkeys(nonces, height))
