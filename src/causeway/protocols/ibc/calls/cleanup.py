"""``IBCcleanup``: prune receipts that the other zone has processed (IBC reference X-2).

One proof of the head of the other zone's send queue prunes everything below.
"""

from __future__ import annotations

from causeway.protocols.ibc.calls import call
from causeway.protocols.ibc.calls.call import CallCheck, CallContext, CallRun, CallType
from causeway.protocols.ibc.errors import Refusal
from causeway.protocols.ibc.keys import MAX_INDEX, KeyPart, QueuePurpose
from causeway.protocols.ibc.progress import Span


def _at_the_head(run: CallRun, block: CallContext) -> Span:
    head = block.progress.head(run.pair)
    return head, head + 1


def _has_head(run: CallRun, block: CallContext) -> bool:
    return run.position() is not None


def _goes_forward(run: CallRun, block: CallContext) -> bool:
    return (run.position() or 0) > block.progress.head(run.pair)


def _is_in_range(run: CallRun, block: CallContext) -> bool:
    return (run.position() or 0) <= MAX_INDEX


CHECKS = (
    call.check_offered("X-2", "cleanup"),
    *call.opening_checks("X-2", QueuePurpose.SEND, Refusal.MustBeSendQueue),
    call.check_key_part("X-2, 4", KeyPart.HEAD, Refusal.NotAHeadProof),
    *call.proof_checks("X-2, 5", "X-2, 6"),
    CallCheck(Refusal.InvalidPacket, "2.4", _has_head, call.CheckedEntry.FORM),
    CallCheck(Refusal.CleanupBackwards, "X-2, 7", _goes_forward),
    CallCheck(Refusal.InvalidPacket, "2.3", _is_in_range),
)


def _clean(run: CallRun, span: Span, block: CallContext) -> Span:
    head = run.position() or 0
    block.progress.clean(run.pair, head)
    return span[0], head


CLEAN_UP = CallType(_at_the_head, CHECKS, _clean)
