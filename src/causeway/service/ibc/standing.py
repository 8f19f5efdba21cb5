"""Whether a target goes on: what it has taken in a direction, held against the most that it ever had."""

from __future__ import annotations

from dataclasses import dataclass, field

from causeway.service.furthest import furthest
from causeway.service.ibc.answers import MAX_RANGES
from causeway.service.ibc.lanes import LaneView
from causeway.service.ibc.relayer import Passed, State

UNKNOWN = -1
"""Stands for a count where a lake lists more ranges than one answer holds."""

MAY_FALL = frozenset({"header", "listed"})
"""What a target that keeps the rules may say less of: its client was recovered; a range that is listed became two."""


@dataclass
class Standing:
    """What a target has taken in one direction.

    ``most``: of each number of ``taken_by`` the highest ever; ``takes_back``: whether since one of them last rose, one
    was lower; ``brought``: whether the pass before handed something over; ``time``: the latest that the target said
    when the direction waited for a delay.
    """

    most: dict[str, int] = field(default_factory=dict)
    takes_back: bool = False
    brought: bool = False
    time: int = UNKNOWN

    def stalled(self, before: int, passed: Passed) -> int:
        """Return how many passes one after the other, up to this one, found the target no further than ever before;
        ``before``: up to the pass before.

        They count where the pass before and this one handed something over, where all there is was refused, and where
        a delay is waited for while time stands still. A target that has taken something back is counted against in
        every pass, also when it has nothing left to be brought, until it has taken more than ever.
        """
        said = taken_by(passed.source, passed.target)
        fell = any(UNKNOWN < said[name] < most for name, most in self.most.items() if name not in MAY_FALL)
        self.most, moved = furthest(self.most, said)
        self.takes_back = fell or (self.takes_back and not moved)
        if passed.state is State.DELAYED:
            stands = passed.target.time <= self.time
            self.time = max(self.time, passed.target.time)
        elif passed.state is State.HELD:
            stands = True  # and what comes next is held against what was handed over last
        else:
            stands = self.brought and not moved and passed.transactions > 0
            self.brought = passed.transactions > 0
        return before + 1 if stands or self.takes_back else 0


def taken_by(source: LaneView, target: LaneView) -> dict[str, int]:
    """Return what a target has taken, in numbers that only rise: ends of its queues, packets that were received and
    that have left, and the newest header that it trusts.

    In any order packets are taken in the middle of a queue, too, which its ends do not show. Where not all ranges are
    listed, the last one that is shows it.
    """
    receipt, send = target.receipt, target.send
    gaps, entries = receipt.missing, send.entries
    received = receipt.tail - sum(count for _, count in gaps) if len(gaps) < MAX_RANGES else UNKNOWN
    left = send.tail - sum(count for _, count, _ in entries) if len(entries) < MAX_RANGES else UNKNOWN
    sent = source.send.tail
    return {
        "cleaned up": min(receipt.head, sent),
        "received": min(received, sent),
        "all received": min(receipt.first_lacking, sent),
        "last received": min(receipt.tail, sent),
        "left": left,
        "all left": send.head,
        "header": min(target.trusted[-1].height, source.height),
        "listed": (gaps[-1][0] if received == UNKNOWN else 0) + (entries[-1][0] if left == UNKNOWN else 0),
    }
