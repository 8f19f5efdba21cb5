"""IBC's semantics: promises and guarantees of queues, numbers and codes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from causeway.core.vocabulary import RejectCode
from causeway.protocols.ibc.errors import Refusal
from causeway.protocols.ibc.options import IbcOptions
from causeway.protocols.ibc.program_inputs import CHAIN_HALTED, TOO_LONG, ReceiptCode
from causeway.protocols.ibc.state import RECEIPT, SEND
from causeway.protocols.shared.semantics import (
    QUEUE,
    Guarantee,
    Lanes,
    Promise,
    Semantics,
    StateWatermark,
    may_drop,
    promise_lanes,
)


def promises(lanes: Lanes[IbcOptions]) -> Iterator[Promise]:
    """Yield the promises of queues.

    Packets are numbered and sent in order. Ordered queues are received and acknowledged in that order (G1), and keep
    the causal order of the zones (C1 to C5); their receipts acknowledge the packets. A receipt has the index of its
    packet and is written when the answer is ready. So its queue is numbered by the packets; receipts of an ordered
    queue are processed in order unless a packet times out, which leaves its receipt unprocessed (X-1). Every packet
    gets a receipt or times out eventually (L1). With a delay (X-11) only older headers serve proofs. Lanes of a zone to
    itself are queues without relayers. A receipt for a missing program, as that of a forged packet, is accepted and
    delivered to nobody.
    """
    options = lanes.options
    ordered = options.order == "ordered"
    for substream in lanes.used(own=True):
        names = [*QUEUE, *(("answered",) if substream == SEND else ())]
        yield from promise_lanes(names, Promise("", substream, own=True))
    for substream in lanes.used(own=False):
        like = Promise("", substream)
        if substream == SEND:
            yield from promise_lanes(("numbered", "ordered_sends", "conserved", "answered"), like)
            if ordered:
                yield from promise_lanes(("ordered_receives", "ordered_acknowledgements", "causal"), like)
        elif substream == RECEIPT:
            yield from promise_lanes(("conserved",), like)
            if ordered and not options.limited:
                yield from promise_lanes(("ordered_receives",), like)
        if options.delay_ns:
            yield Promise("final_after", substream, number=options.delay_ns // 1_000)
    yield from may_drop((ReceiptCode.NO_PROGRAM.name,))


def guarantees(options: IbcOptions) -> Iterator[Guarantee]:
    """Yield one statement a topic."""
    ordered = options.order == "ordered"
    if ordered:
        yield Guarantee("order", "yes", "all packets and receipts of a connection", "1.2 C4, C5, G1")
        yield Guarantee("causal", "yes", "between each two zones; over a third one it may be overtaken", "1.2 C1 to C5")
    else:
        yield Guarantee("order", "no", 'packets come in any order (order = "unordered")', "5 X-6")
        yield Guarantee(
            "causal", "partly", "no effect before its cause, but packets overtake (not C4, C5)", "1.2, 5 X-6"
        )
    yield Guarantee("exactly_once", "yes", "one receipt an index", "1.2 G1, G4")
    yield Guarantee("authentic", "yes", "proved under a header that two thirds signed", "1.2 G2, 2.6")
    if ordered and not options.limited:
        yield Guarantee("no_gaps", "yes", "indices 0, 1, 2, ...", "1.2 G1")
    else:
        yield Guarantee(
            "no_gaps", "partly", "but for packets that timed out" if ordered else "in the end", "5 X-1, X-6"
        )
    relays = "if a relayer with funds runs and headers are followed"
    yield Guarantee("answered", "yes", f"by a receipt or a time-out, {relays}", "1.3 L1")
    yield Guarantee("one_answer", "yes", "commit or rollback, one of both", "1.2 G4")
    if options.limited:
        yield Guarantee("called_off", "yes", "proved by the other side's queue; it must be alive", "5 X-1")
    else:
        yield Guarantee("called_off", "no", "packets have no limit", "5 X-1")
    yield Guarantee("final_first", "yes", "blocks are final once signed", "1.4")
    yield Guarantee("value", "yes", "a failed packet is rolled back", "1.2 G4")
    yield Guarantee("held_back", "no", "a queue has no limit", "2.2")
    yield Guarantee("any_carrier", "yes", "relayers change fees and delay, nothing else", "1.2 G9")
    yield Guarantee("no_third_chain", "yes", "each is the other's light client", "1.4, 5 X-4")


WATERMARKS = (
    StateWatermark("begin", "queues", "begin"),
    StateWatermark("next_index", "queues", "next_index"),
    StateWatermark("latest", "connections", "latest", "chain", "counterparty", "chain", None),
)


_CODES: Mapping[int, RejectCode] = {
    ReceiptCode.UNKNOWN_TYPE: RejectCode.INVALID,
    ReceiptCode.TIMEOUT: RejectCode.TIMED_OUT,
    ReceiptCode.HANDLER_FAILED: RejectCode.FAILED,
    ReceiptCode.PERMISSION: RejectCode.INVALID,
    ReceiptCode.NO_PROGRAM: RejectCode.NOT_FOUND,
    ReceiptCode.MALFORMED: RejectCode.INVALID,
}

_REFUSALS = {
    CHAIN_HALTED.encode(): RejectCode.BUSY,
    Refusal.UnregisteredDestination.name.encode(): RejectCode.NOT_FOUND,
    Refusal.ConnectionFrozen.name.encode(): RejectCode.UNREACHABLE,
    Refusal.ClientExpired.name.encode(): RejectCode.UNREACHABLE,
    Refusal.UnsupportedType.name.encode(): RejectCode.INVALID,
    Refusal.PermissionDenied.name.encode(): RejectCode.INVALID,
    Refusal.InvalidPacket.name.encode(): RejectCode.TOO_LARGE,
}
"""Portable codes of unsent calls, by the text of the reject.

The reject's code is that of a refusing program.
"""


def portable(code: int, text: bytes) -> RejectCode:
    """Return the portable meaning of a non-zero code.

    Unnamed codes from ``REJECTED`` on are programs' own.
    """
    if code == ReceiptCode.HANDLER_FAILED and text == TOO_LONG:
        return RejectCode.TOO_LARGE
    if code == ReceiptCode.REJECTED and text in _REFUSALS:
        return _REFUSALS[text]
    return _CODES.get(code, RejectCode.REFUSED)


SEMANTICS = Semantics(
    promises=promises,
    guarantees=guarantees,
    watermarks=WATERMARKS,
    reject_code=portable,
    expired=(2,),
    collects_answered=True,
)
