"""``IBCtimeout``: remove a packet that was not received in time from its send queue.

In ordered queues a timeout has no index: it proves the tail of the receiver's queue and ends the packet at the head. In
unordered ones it names the packet and proves that it has no receipt.

Reference:
    IBC reference X-1, X-6.
"""

from __future__ import annotations

from causeway.protocols.ibc.calls import call
from causeway.protocols.ibc.calls.call import CallCheck, CallContext, CallRun, CallType
from causeway.protocols.ibc.errors import Refusal
from causeway.protocols.ibc.keys import KeyPart, QueuePurpose
from causeway.protocols.ibc.progress import Span
from causeway.protocols.ibc.state import SEND


def _at_the_head(run: CallRun, block: CallContext) -> Span:
    head = block.progress.expected(run.pair, SEND)
    return head, head + run.count()


def _has_tail(run: CallRun, block: CallContext) -> bool:
    return run.position() is not None


def _was_not_received(run: CallRun, span: Span, block: CallContext) -> list[Span]:
    tail = run.position()
    return [span] if tail is not None and tail <= span[0] else []  # D-12


def _late(run: CallRun, span: Span, block: CallContext) -> list[Span]:
    """Return the parts of a span whose packets have expired by the header."""
    time = block.clients.time(*run.pair, run.height)
    found = block.expired(*run.pair, run.height, time).cut(*span)
    return [(first, stop) for first, stop, late in found if late]


def _expired(run: CallRun, span: Span, block: CallContext) -> list[Span]:
    """Return the expired part of a span at the head of an ordered queue.

    An unexpired packet blocks the later ones.

    A packet whose rollback raises stays at the head, so all later calls are about it.
    """
    parts = [part for part in _late(run, span, block)[:1] if part[0] == span[0]]
    raising = block.raising.get(run.pair)
    if parts and raising is not None and any(raises for _, _, raises in raising.cut(*parts[0])):
        return [span]
    return parts


def _is_absent(run: CallRun, span: Span, block: CallContext) -> list[Span]:
    """Return the part of a span that is proved absent under a trusted root."""
    root = block.clients.root(run.chain, run.counterparty, run.height)
    stop = span[0] if root is None else run.absent_until(*span, root)
    return [(span[0], stop)] if stop > span[0] else []


def _is_shown(run: CallRun, span: Span, block: CallContext) -> list[Span]:
    return _is_absent(run, span, block) or call.proven_part(run, span, block)


def _is_pending_and_expired(run: CallRun, span: Span, block: CallContext) -> list[Span]:
    return [part for late in _late(run, span, block) for part in block.progress.in_turn(run.pair, SEND, late)]


OPENING = (
    call.check_offered("X-1", "timeouts"),
    *call.opening_checks("X-1", QueuePurpose.RECEIPT, Refusal.MustBeReceipt),
)

CHECKS = (
    *OPENING,
    *call.proof_checks("X-1, 4", "X-1, 5"),
    call.check_key_part("X-1, 6", KeyPart.TAIL, Refusal.NotATailProof),
    CallCheck(Refusal.InvalidPacket, "2.4", _has_tail, call.CheckedEntry.FORM),
    CallCheck(Refusal.ReceiptExists, "X-1, 7", None, cut=_was_not_received),
    CallCheck(Refusal.TimeoutNotReached, "X-1, 8", None, cut=_expired),
    call.check_handled("X-1, 9"),
)

ABSENCE_CHECKS = (
    *OPENING,
    *call.proof_checks("X-1, 4", "X-6", shown=_is_shown),
    call.check_key_part("X-6", KeyPart.INDEX, Refusal.OnlyMessageProofs),
    CallCheck(Refusal.ReceiptExists, "X-6", None, cut=_is_absent),
    CallCheck(Refusal.TimeoutNotReached, "X-1, 8", None, cut=_is_pending_and_expired),
    call.check_handled("X-1, 9"),
)

TIME_OUT = CallType(_at_the_head, CHECKS, call.take_entries(SEND))
TIME_OUT_ONE = CallType(call.named_indices, ABSENCE_CHECKS, call.take_entries(SEND))
"""The call of unordered queues."""
