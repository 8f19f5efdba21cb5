"""``IBCtimeout``: a packet that was not received in time leaves the queue of the zone that sent it (IBC reference X-1).

A time-out names no index: it ends the packet that is at the head.
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


def _expired(run: Run, span: Span, block: Block) -> list[Span]:
    time = block.clients.time(*run.pair, run.height)
    stop = min(span[1], block.expired(*run.pair, run.height, time))
    return [(span[0], stop)] if stop > span[0] else []


CHECKS = (
    *call.opening("X-1", Purpose.RECEIPT, Refusal.MustBeReceipt),
    *call.proof("X-1, 4", "X-1, 5"),
    call.of_part("X-1, 6", Part.TAIL, Refusal.NotATailProof),
    Check(Refusal.InvalidPacket, "2.4", _has_tail, call.About.FORM),
    Check(Refusal.ReceiptExists, "X-1, 7", None, cut=_was_not_received),
    Check(Refusal.TimeoutNotReached, "X-1, 8", None, cut=_expired),
)

TIME_OUT = Call(_at_the_head, CHECKS, call.take(SEND))
