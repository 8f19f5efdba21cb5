"""``IBCtimeout``: a packet that was not received in time leaves the queue of the zone that sent it (IBC reference X-1,
X-6).

In ordered queues a time-out names no index: it shows the tail of the receiver's queue, and ends the packet that is at
the head. In unordered ones it names the packet, and shows that there is no receipt of it.
"""

from __future__ import annotations

from causeway.protocols.ibc.errors import Refusal
from causeway.protocols.ibc.keys import Part, Purpose
from causeway.protocols.ibc.messages import call
from causeway.protocols.ibc.messages.call import Block, Call, Check, Run
from causeway.protocols.ibc.progress import Span
from causeway.protocols.ibc.state import SEND


def _at_the_head(run: Run, block: Block) -> Span:
    head = block.progress.expected(run.pair, SEND)
    return head, head + run.count()


def _has_tail(run: Run, block: Block) -> bool:
    return run.position() is not None


def _was_not_received(run: Run, span: Span, block: Block) -> list[Span]:
    tail = run.position()
    return [span] if tail is not None and tail <= span[0] else []  # D-12


def _late(run: Run, span: Span, block: Block) -> list[Span]:
    """Return the parts of a span whose packets have expired by the header."""
    time = block.clients.time(*run.pair, run.height)
    found = block.expired(*run.pair, run.height, time).cut(*span)
    return [(first, stop) for first, stop, late in found if late]


def _expired(run: Run, span: Span, block: Block) -> list[Span]:
    """Return the same in order: behind a packet that has not expired none is at the head. One whose rollback raises
    stays there, and is what all further calls are about."""
    parts = [part for part in _late(run, span, block)[:1] if part[0] == span[0]]
    raising = block.raising.get(run.pair)
    if parts and raising is not None and any(raises for _, _, raises in raising.cut(*parts[0])):
        return [span]
    return parts


def _is_absent(run: Run, span: Span, block: Block) -> list[Span]:
    """Return what is proved to be absent under a trusted root."""
    root = block.clients.root(run.chain, run.counterparty, run.height)
    stop = span[0] if root is None else run.absent_until(*span, root)
    return [(span[0], stop)] if stop > span[0] else []


def _is_shown(run: Run, span: Span, block: Block) -> list[Span]:
    return _is_absent(run, span, block) or call.proven(run, span, block)


def _waits_and_has_expired(run: Run, span: Span, block: Block) -> list[Span]:
    return [part for late in _late(run, span, block) for part in block.progress.in_turn(run.pair, SEND, late)]


OPENING = (call.offered("X-1", "timeouts"), *call.opening("X-1", Purpose.RECEIPT, Refusal.MustBeReceipt))

CHECKS = (
    *OPENING,
    *call.proof("X-1, 4", "X-1, 5"),
    call.of_part("X-1, 6", Part.TAIL, Refusal.NotATailProof),
    Check(Refusal.InvalidPacket, "2.4", _has_tail, call.About.FORM),
    Check(Refusal.ReceiptExists, "X-1, 7", None, cut=_was_not_received),
    Check(Refusal.TimeoutNotReached, "X-1, 8", None, cut=_expired),
    call.handled("X-1, 9"),
)

ABSENCE_CHECKS = (
    *OPENING,
    *call.proof("X-1, 4", "X-6", shown=_is_shown),
    call.of_part("X-6", Part.INDEX, Refusal.OnlyMessageProofs),
    Check(Refusal.ReceiptExists, "X-6", None, cut=_is_absent),
    Check(Refusal.TimeoutNotReached, "X-1, 8", None, cut=_waits_and_has_expired),
    call.handled("X-1, 9"),
)

TIME_OUT = Call(_at_the_head, CHECKS, call.take(SEND))
TIME_OUT_ONE = Call(call.named, ABSENCE_CHECKS, call.take(SEND))
"""The call of unordered queues."""
