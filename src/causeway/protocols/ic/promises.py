"""What streams promise (IC reference 1.2, 1.3)."""

from __future__ import annotations

from collections.abc import Iterator

from causeway.protocols.ic.messages import UNROUTABLE
from causeway.protocols.ic.options import IcOptions
from causeway.protocols.ic.removal import REMOVED
from causeway.protocols.ic.vsr import LostCause
from causeway.protocols.promised import Lanes, Promise, may_drop, of_lanes

GONE = (
    LostCause.response_induction_failed.name,
    LostCause.NonMatchingResponse.name,
    LostCause.late_response.name,
    UNROUTABLE,
    REMOVED,
)
"""Causes for which a message is dropped whose canister is gone, or does not wait for it."""

MISMATCHED = (LostCause.sender_mismatch.name, LostCause.receiver_mismatch.name)
"""Causes for which a message is dropped of a canister that its sender, or its receiver, does not host."""


def promises(lanes: Lanes[IcOptions]) -> Iterator[Promise]:
    """Yield what streams promise, those of a subnet to itself too.

    A lane is a substream, and promises the same in every mode (``options.substreams``): the order of all messages of
    two subnets, of a subnet and a receiver, or of a sender and a subnet. As long as two canisters stay where they are,
    all messages from one to the other are in one lane.

    Indices are given and judged one after the other (G6), what is enqueued has the value that it was sent with (G2,
    G9), and every call is answered at some time (L2: all are guaranteed). Messages are sent in the order of their
    indices only where none waits in an output queue for room in a stream (X-6). Answers come in any order.

    Streams lose no request. A response is dropped when its canister is gone or does not wait for it any more (X-2, X-3,
    X-11, D-8), and so is what a canister held that is removed. A subnet that checks signals (``vsr``) drops what comes
    from a canister that its sender does not host: that is forged. One that accepts all loses messages of canisters that
    move (D-5), and that is no promise.
    """
    names = ["numbered", "ordered_receives", "answered", "conserved"]
    if lanes.options.limits == "none":
        names.append("ordered_sends")
    for chain in lanes.chains:
        yield from of_lanes(names, Promise("", source=chain))
    yield from may_drop(GONE)
    if lanes.options.vsr == "deployed":
        yield from may_drop(MISMATCHED)
