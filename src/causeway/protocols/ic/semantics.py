"""The Internet Computer's semantics: promises and guarantees of streams, numbers and codes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from causeway_proofs.ic.messages import StreamRejectCode

from causeway.core.vocabulary import RejectCode as Portable
from causeway.protocols.ic.input_queues import LostCause
from causeway.protocols.ic.messages import TIMED_OUT, UNROUTABLE
from causeway.protocols.ic.options import IcOptions, remark
from causeway.protocols.ic.registry_changes import REMOVED
from causeway.protocols.ic.routing import SAYS_OVERSIZED
from causeway.protocols.shared.semantics import (
    Guarantee,
    Lanes,
    Promise,
    Semantics,
    StateWatermark,
    may_drop,
    promise_lanes,
)

GONE = (
    LostCause.response_induction_failed.name,
    LostCause.NonMatchingResponse.name,
    LostCause.late_response.name,
    UNROUTABLE,
    REMOVED,
)
"""Causes of dropping a message whose canister is removed, or does not expect it."""

MISMATCHED = (LostCause.sender_mismatch.name, LostCause.receiver_mismatch.name)
"""Causes of dropping a message of a canister not hosted at its end of the stream."""


def promises(lanes: Lanes[IcOptions]) -> Iterator[Promise]:
    """Yield the promises of streams, loopback streams included.

    A lane is a substream, and promises the same in every mode (``options.substreams``): the order of all messages of
    two subnets, of a subnet and a receiver, or of a sender and a subnet. While two canisters stay on their subnets, all
    messages from one to the other are in one lane.

    Indices are assigned and validated in sequence (G6). An enqueued message has the value that it was sent with (G2,
    G9), and every call is answered eventually (L2: all are guaranteed). Messages are sent in index order only if none
    waits in an output queue for room in a stream (X-6). Answers come in any order.

    Streams lose no request. A response is dropped if its canister is removed or does not expect it (X-2, X-3, X-11,
    D-8); so are the messages of a removed canister. A subnet that checks signals (``vsr``) drops messages of canisters
    that their sender does not host, which are forged. One that accepts all loses messages of moving canisters (D-5),
    and does not promise otherwise.
    """
    names = ["numbered", "ordered_receives", "answered", "conserved"]
    if lanes.options.limits == "none":
        names.append("ordered_sends")
    for chain in lanes.chains:
        yield from promise_lanes(names, Promise("", source=chain))
    yield from may_drop(GONE)
    if lanes.options.vsr == "deployed":
        yield from may_drop(MISMATCHED)


_LANES = {
    "flat": "",
    "per_destination": "; lanes are of a subnet and a receiver",
    "per_source": "; lanes are of a sender and a subnet",
}
"""The scope of one sequence of indices, other than two subnets."""


def guarantees(options: IcOptions) -> Iterator[Guarantee]:
    """Yield one statement a topic."""
    mechanism = f"requests of a pair; answers come in any order{_LANES[options.substreams]}"
    yield Guarantee("order", "yes", mechanism, "1.2 G3")
    yield Guarantee("causal", "partly", "requests of a pair; not answers, nor what other pairs send", "1.2 G2, G3")
    yield Guarantee("exactly_once", "yes", "one verdict an index of a stream", "1.2 G1, G7")
    if options.certified:
        yield Guarantee("authentic", "yes", "streams are certified by their subnet", "1.2 G2, 1.4")
    else:
        yield Guarantee("authentic", "partly", 'believed unproved (certification = "off")', "1.2 G2")
    yield Guarantee("no_gaps", "yes", "streams are judged index by index", "1.2 G6")
    yield Guarantee("answered", "yes", "by data, or by a reject that the subnets make", "1.2 G5, 1.3 L2")
    yield Guarantee("one_answer", "yes", "one a call and caller", "1.2 G4")
    if options.timeouts == "on":
        mechanism = f"a request that has waited {options.request_lifetime_seconds} s to leave its subnet, not later"
        yield Guarantee("called_off", "partly", mechanism, "5 X-3")
    else:
        yield Guarantee("called_off", "no", "an answer is waited for as long as it takes", "1.3 L2")
    yield Guarantee("final_first", "yes", "every height is final", "1.4")
    yield Guarantee("value", "yes", "cycles are in balances, queues and streams", "1.2 G9")
    if options.limits == "deployed":
        mechanism = f"streams of {options.limit.stream_messages:,} messages, queues of {options.limit.queue_capacity:,}"
        yield Guarantee("held_back", "yes", mechanism, "5 X-4, X-6")
    else:
        yield Guarantee("held_back", "no", 'streams and queues have no limit (limits = "none")', "5 X-4, X-6")
    yield Guarantee("any_carrier", "yes", "payload builders pull; uncertified messages are refused", "3.9, 1.3 L1")
    yield Guarantee("no_third_chain", "partly", "subnets share a registry and a root key", "1.4")


_BACK = {"source": "destination", "destination": "source"}
"""A subnet stores its counters of the incoming stream with its outgoing one."""

WATERMARKS = (
    StateWatermark("begin", "lanes", "begin"),
    StateWatermark("next_index", "lanes", "next_index"),
    StateWatermark("signals_begin", "lanes", "signals_begin", **_BACK),
    StateWatermark("expected", "lanes", "expected", **_BACK),
)


_CODES: Mapping[int, Portable] = {
    StreamRejectCode.SysFatal: Portable.OTHER,
    StreamRejectCode.SysTransient: Portable.BUSY,
    StreamRejectCode.DestinationInvalid: Portable.NOT_FOUND,
    StreamRejectCode.CanisterReject: Portable.REFUSED,
    StreamRejectCode.CanisterError: Portable.FAILED,
    StreamRejectCode.SysUnknown: Portable.OTHER,
}


def portable(code: int, text: bytes) -> Portable:
    """Return the portable meaning of a non-zero reject code.

    A timeout is a transient error, and an oversized message a canister error, both recognised by ``text``.
    """
    if code == StreamRejectCode.SysTransient and text == TIMED_OUT.encode():
        return Portable.TIMED_OUT
    if code == StreamRejectCode.CanisterError and SAYS_OVERSIZED.fullmatch(text):
        return Portable.TOO_LARGE
    return _CODES.get(code, Portable.OTHER)


SEMANTICS = Semantics(
    promises=promises, guarantees=guarantees, watermarks=WATERMARKS, reject_code=portable, remark=remark
)
