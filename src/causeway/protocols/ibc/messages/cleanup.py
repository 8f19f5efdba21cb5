"""``IBCcleanup``: receipts that the other zone has processed leave the queue of the zone that gave them (IBC reference
X-2).

One proof of the head of the other zone's send queue clears everything below.
"""

from __future__ import annotations

from causeway.protocols.ibc.errors import Refusal
from causeway.protocols.ibc.keys import MAX_INDEX, Part, Purpose
from causeway.protocols.ibc.messages import call
from causeway.protocols.ibc.messages.call import Block, Call, Check, Run
from causeway.protocols.ibc.progress import Span


def _at_the_head(run: Run, block: Block) -> Span:
    head = block.progress.head(run.pair)
    return head, head + 1


def _has_head(run: Run, block: Block) -> bool:
    return run.position() is not None


def _goes_forward(run: Run, block: Block) -> bool:
    return (run.position() or 0) > block.progress.head(run.pair)


def _can_be(run: Run, block: Block) -> bool:
    return (run.position() or 0) <= MAX_INDEX


CHECKS = (
    call.offered("X-2", "cleanup"),
    *call.opening("X-2", Purpose.SEND, Refusal.MustBeSendQueue),
    call.of_part("X-2, 4", Part.HEAD, Refusal.NotAHeadProof),
    *call.proof("X-2, 5", "X-2, 6"),
    Check(Refusal.InvalidPacket, "2.4", _has_head, call.About.FORM),
    Check(Refusal.CleanupBackwards, "X-2, 7", _goes_forward),
    Check(Refusal.InvalidPacket, "2.3", _can_be),
)


def _clean(run: Run, span: Span, block: Block) -> Span:
    head = run.position() or 0
    block.progress.clean(run.pair, head)
    return span[0], head


CLEAN_UP = Call(_at_the_head, CHECKS, _clean)
