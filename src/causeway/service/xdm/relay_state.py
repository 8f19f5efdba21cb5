"""State of the relay loop between domains: requests, memory (XDM reference 3.10, X-5).

The work follows from both chains alone. The memory holds submissions that are not received yet: a message is
resubmitted only after a number of the target's blocks since its submission without progress of its lane. A
restarted process loses nothing but its back-off.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from causeway.service.relay import loop
from causeway.service.relay.loop import Submit, advance_watermarks


@dataclass(frozen=True)
class ChainPair(loop.Direction):
    """Direction from chain ``source`` to chain ``target``.

    ``what`` is "messages" between the two, "blocks" of the consensus chain ``source`` for the lake that follows it, or
    "receipts" of the domain ``source`` for the consensus chain ``target``.
    """

    what: str = "messages"

    def __str__(self) -> str:
        return super().__str__() if self.what == "messages" else f"{self.what} of {self.source}"


@dataclass(frozen=True)
class ReadFollowed(loop.ChainRead):
    """Request for the known state of the consensus chain at the lake that follows it."""


@dataclass(frozen=True)
class ReadBlocks(loop.ChainRead):
    """Request for consensus headers after a block, with the author's signature on the last."""

    after: int | None


@dataclass(frozen=True)
class ReadAnchor(loop.ChainRead):
    """Request for the MMR leaf of the block before ``under``, and a domain's confirmed receipt."""

    under: int
    domain: str | None


@dataclass(frozen=True)
class ReadReceipted(loop.ChainRead):
    """Request for the last receipt of a domain that the consensus chain received."""

    domain: str


@dataclass(frozen=True)
class ReadReceipts(loop.ChainRead):
    """Request for a domain's receipts after a block."""

    after: int | None


@dataclass(frozen=True)
class ReadChannels(loop.ChainRead):
    """Request for a chain's channels with another, and its known consensus blocks."""

    counterparty: str


@dataclass(frozen=True)
class LaneRequest:
    """Messages of one direction of a channel from a nonce on."""

    channel: int
    response: bool
    first: int


@dataclass(frozen=True)
class ReadMessages(loop.ChainRead):
    """Request for messages in the storage of a block, with proofs; at most ``most`` a lane."""

    counterparty: str
    block: int
    lanes: tuple[LaneRequest, ...]
    most: int


Step = ReadFollowed | ReadBlocks | ReadAnchor | ReadReceipted | ReadReceipts | ReadChannels | ReadMessages | Submit


Key = tuple[int, bool]
"""Channel, and True for responses."""

MARGIN = 16
"""Additional blocks for a message: its receipt, its leaf, the relay passes, and its observation."""


@dataclass
class DeliveryRecord:
    """Submissions of a lane.

    Attributes:
        expected: Nonce that the target expects.
        since: Block of the target since it expects that nonce.
        at: Block of the target at the last submission of each nonce.
    """

    expected: int
    since: int
    at: dict[int, int] = field(default_factory=dict)

    def goes_on(self, expected: int, height: int, resubmit_after: int) -> None:
        """Record the expected nonce, and drop received nonces after a while (reverts)."""
        if expected != self.expected:
            self.expected, self.since = expected, height
        remembered = {nonce: at for nonce, at in self.at.items() if nonce >= expected or at + resubmit_after > height}
        self.at = remembered

    def rests(self, nonce: int, height: int, resubmit_after: int) -> bool:
        """Return True if a message was submitted too recently to be resubmitted."""
        at = self.at.get(nonce)
        return at is not None and max(at, self.since) + resubmit_after > height


@dataclass
class AwaitedDelivery:
    """Wait for progress of the target.

    Attributes:
        since: Consensus block at its start.
        height: Height of the target at its newest known consensus block.
    """

    since: int
    height: int


@dataclass(frozen=True)
class RelayLimits:
    """Options of the network.

    Attributes:
        nonces: Nonces of a lane.
        channels: Channels in a pass.
        resubmit_after: Blocks until a resubmission.
        confirmed_after: Blocks until something is confirmed and final.
    """

    nonces: int
    channels: int
    resubmit_after: int
    confirmed_after: int

    @property
    def longest_wait(self) -> int:
        """Blocks after which a message is overdue: confirmation, submission, resubmission."""
        return self.confirmed_after + 2 * self.resubmit_after + MARGIN


@dataclass
class LaneRelayMemory:
    """Memory of one direction.

    Attributes:
        lanes: Submissions by lane.
        turn: Number of passes, which rotates the channels.
        taken: Highest nonce up to which the target has received everything, by lane.
        moved: Number of rises of such a nonce.
        best: Newest consensus block known to the target.
        height: Height of the target.
        awaited: Current wait, if any.
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
        """Value that changes with every progress of the target."""
        return self.height, self.best, self.moved

    def waited(self, taken: Mapping[Key, int], best: int | None, height: int, *, due: bool) -> int:
        """Return the number of blocks without progress of the target although work is due.

        The blocks are those of the consensus chain, or of the target if that stands still. Nonces and blocks
        never fall, so a wait restarts only if the target exceeds its maximum; the source's claims and reversions
        do not matter.

        Args:
            taken: Nonce up to which the target has received everything, by lane of the source.
            best: Newest consensus block known to the target.
            height: Height of the target.
            due: True if work is due.
        """
        self.taken, moved = advance_watermarks(self.taken, taken)
        self.moved += moved
        newest, known = -1 if best is None else best, self.awaited
        if newest > self.best:
            if known is not None:
                # Block numbers are meaningless before the first known block.
                known.since, known.height = newest if self.best < 0 else known.since, height
            self.best = newest
        self.height = max(self.height, height)
        if moved or known is None:
            self.awaited = known = AwaitedDelivery(self.best, self.height) if due else None
        return 0 if known is None else max(self.best - known.since, self.height - known.height)

    def wanted(self, due: Mapping[Key, tuple[int, int]], height: int, limits: RelayLimits) -> list[LaneRequest]:
        """Return the lanes to read now with their first nonce, for the channels in rotation.

        Args:
            due: Expected nonce and end of the source's messages, by lane with work.
            height: Height of the target.
            limits: Options of the network.
        """
        self.lanes = {key: record for key, record in self.lanes.items() if key in due}
        found: dict[Key, int] = {}
        for key, (expected, end) in due.items():
            if (record := self.lanes.get(key)) is not None:
                record.goes_on(expected, height, limits.resubmit_after)
            # The target does not buffer nonces beyond its limit.
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
        """Return True if a message was submitted too recently, even if earlier ones were lost (X-5)."""
        record = self.lanes.get(key)
        return record is not None and record.rests(nonce, height, limits.resubmit_after)

    def handed_over(self, key: Key, nonces: Collection[int], expected: int, height: int) -> None:
        """Record submissions of a lane."""
        self.lanes.setdefault(key, DeliveryRecord(expected, height)).at.update(dict.fromkeys(nonces, height))
