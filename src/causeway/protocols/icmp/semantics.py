"""The semantics of egress queues: promises, guarantees, watermarks and reject codes.

Reference: ICMP, sections 1.2, 1.3, 4 and 5.
"""

from __future__ import annotations

from collections.abc import Iterator

from causeway.core.vocabulary import RejectCode
from causeway.protocols.relay_chain.errors import (
    CHAIN_HALTED,
    CHANNEL_CLOSED,
    NO_DESTINATION,
    NO_HANDLER,
    REJECTED,
    TOO_LARGE,
    DropReason,
)
from causeway.protocols.relay_chain.fault_kinds import CANDIDATE, DUPLICATE
from causeway.protocols.relay_chain.options import IcmpOptions
from causeway.protocols.shared.execution import NO_PROGRAM, program_reject_code
from causeway.protocols.shared.semantics import (
    ALTERED,
    DUPLICATED,
    FORGED,
    OUT_OF_TURN,
    QUEUE,
    FaultWindow,
    Guarantee,
    Keys,
    Lanes,
    Promise,
    Semantics,
    StateWatermark,
    default_fault,
    may_drop,
    promise_lanes,
)


def promises(lanes: Lanes[IcmpOptions]) -> Iterator[Promise]:
    """Yield the promises of lanes: order without gaps (G1, G2).

    No promise covers an answer, since it is an ordinary message. The relay chain drops messages to parachains that
    leave or censor the sender, and those that a moving watermark skips (D-3, 5.1 (2), D-12). A closed channel drops its
    contents (X-6). A queue that overflows loses messages; no promise excludes that.

    Args:
        lanes: Substreams of the network and its options.
    """
    for substream, own in lanes.substreams:
        yield from promise_lanes(QUEUE, Promise("", substream, own=own))
    yield from may_drop(
        (NO_DESTINATION, CHANNEL_CLOSED) if lanes.options.channels == "hrmp" else (reason.name for reason in DropReason)
    )


def guarantees(options: IcmpOptions) -> Iterator[Guarantee]:
    """Yield one statement a topic.

    Args:
        options: Options of the protocol.
    """
    hrmp = options.channels == "hrmp"
    yield Guarantee("order", "yes", "relay block by relay block, within one by sender and index", "1.2 G1")
    yield Guarantee(
        "causal", "yes", "relay blocks are consumed in their order, along one relay chain", "1.2 G1, G3, G9"
    )
    yield Guarantee("exactly_once", "yes", "along one relay chain", "1.2 G3, G9")
    if hrmp:
        yield Guarantee("authentic", "yes", "a hash chain that the relay chain has", "5.2 X-6")
    else:
        yield Guarantee("authentic", "yes", "a list has the root that its sender posted", "1.2 G4")
    if options.watermark_mode == "now_minus_1":
        yield Guarantee("no_gaps", "no", "messages that a block does not consume are skipped", "4 D-12")
    else:
        yield Guarantee("no_gaps", "yes", "whole relay blocks up to the watermark", "1.2 G2, G3")
    yield Guarantee("answered", "no", "an answer is a message as any other", "1.3")
    yield Guarantee("one_answer", "no", "it is the program's affair", "1.2")
    yield Guarantee("called_off", "no", "nothing times out", "1.3 L3")
    yield Guarantee("final_first", "partly", "along one relay chain; a fork takes all of it back", "1.2 G9")
    yield Guarantee("value", "partly", "for consumed messages; a message may be dropped", "1.2 G3")
    if hrmp:
        yield Guarantee("held_back", "yes", "channels have a capacity", "5.2 X-6")
    else:
        yield Guarantee("held_back", "no", "messages pile up while a chain makes no blocks", "1.3 L3")
    reason = "bodies arrive by gossip; bodies with another root are rejected"
    yield Guarantee("any_carrier", "yes", reason, "1.2 G4, 1.3 L1")
    yield Guarantee("no_third_chain", "no", "the relay chain has every root and watermark", "2.2")


WATERMARKS = (
    StateWatermark("begin", "queues", "begin"),
    StateWatermark("next_index", "queues", "next_index"),
    StateWatermark("consumed", "cursors", "index", "destination"),
)


_CANDIDATE_FAULTS = {DUPLICATED: DUPLICATE, OUT_OF_TURN: "skipped", ALTERED: "body", FORGED: "sender"}


def trial(name: str, between: FaultWindow) -> Keys | None:
    """Return the fault that provokes a violation, or None.

    Relay chains identify bodies by root. A forged body is therefore a fault of the receiving parachain's candidate,
    beside the honest one.

    Args:
        name: Name in ``TRIES``.
        between: Lane and ticks of the fault.
    """
    if name in _CANDIDATE_FAULTS:
        return {"kind": CANDIDATE, "chain": between.destination, "what": _CANDIDATE_FAULTS[name], **between.ticks}
    return default_fault(name, between)


_CODES_BY_NAME = {
    NO_DESTINATION.encode(): RejectCode.NOT_FOUND,
    NO_HANDLER.encode(): RejectCode.NOT_FOUND,
    NO_PROGRAM.encode(): RejectCode.NOT_FOUND,
    TOO_LARGE.encode(): RejectCode.TOO_LARGE,
    CHAIN_HALTED.encode(): RejectCode.BUSY,
}
"""Reject codes by the name of a chain's reason."""


def portable(code: int, text: bytes) -> RejectCode:
    """Return the portable meaning of a reject code.

    Overlong answers have the chain's code and their own text.

    Args:
        code: Reject code, or 0 for a rejected message from a user.
        text: Text of the reject, or the reason for code 0.
    """
    if code == 0:
        return _CODES_BY_NAME.get(text, RejectCode.OTHER)
    return program_reject_code(code, text) if code != REJECTED else _CODES_BY_NAME.get(text, RejectCode.TOO_LARGE)


SEMANTICS = Semantics(
    promises=promises, guarantees=guarantees, watermarks=WATERMARKS, reject_code=portable, trial=trial
)
