"""Semantics of cross-domain messaging: promises, guarantees, watermarks, reject codes.

Reference: XDM, sections 1.2 to 1.4 and 2.4.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from causeway_proofs.order import U64

from causeway.core.vocabulary import RejectCode
from causeway.protocols.shared.contents import oversize_text
from causeway.protocols.shared.execution import NO_PROGRAM, program_reject_code
from causeway.protocols.shared.interference import REPLAY, TAMPER
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
    promise_lanes,
)
from causeway.protocols.xdm.calls.arrivals import CHAIN_HALTED, REJECTED
from causeway.protocols.xdm.calls.request import (
    FEES_OVERFLOW,
    NO_DESTINATION,
    NO_FUNDS,
    NO_HANDLER,
    NO_OPEN_CHANNEL,
    NOT_ALLOWED,
    TOO_LARGE,
)
from causeway.protocols.xdm.errors import MessengerError, TransporterError
from causeway.protocols.xdm.fault_kinds import FRAUD, REORDER
from causeway.protocols.xdm.options import XdmOptions
from causeway.protocols.xdm.state import RESPONSE, is_response


def paired(substreams: U64) -> tuple[U64, npt.NDArray[np.bool_]]:
    """Return the substream of the opposite direction, and a mask of response substreams.

    Args:
        substreams: Substreams of channel lanes, uint64.
    """
    return substreams ^ np.uint64(RESPONSE), is_response(substreams)


def promises(lanes: Lanes[XdmOptions]) -> Iterator[Promise]:
    """Yield the promises of channels.

    Requests and responses have consecutive nonces (G1). Every request is answered eventually (L1), and a channel limits
    the requests without a response (G6). An answer may follow its response, hence in another order. A message of the
    consensus chain is proved once its block is K deep. A message of a domain waits another D blocks, the challenge
    period of its receipt. Lanes of a chain to itself are queues without proofs.

    Args:
        lanes: Lanes of the network and its options.
    """
    options = lanes.options
    calls = [call.max_outgoing for call in options.channel_calls if call.max_outgoing is not None]
    capacity = max([options.max_outgoing_messages, *calls])
    consensus = {chain for chain, role in lanes.roles.items() if role == "consensus"}
    for substream in lanes.used(own=True):
        names = [*QUEUE, *(("answered",) if substream != RESPONSE else ())]
        yield from promise_lanes(names, Promise("", substream, own=True))
    for substream in lanes.used(own=False):
        like = Promise("", substream)
        yield from promise_lanes(QUEUE, like)
        if not substream & RESPONSE:
            yield from promise_lanes(("answered",), like)
            yield Promise("capacity", substream, number=capacity)
        for chain in lanes.chains:
            blocks = options.archiving_depth + (0 if chain in consensus else options.challenge_period)
            yield Promise("final_after", substream, source=chain, number=blocks * lanes.tick_micros)


def guarantees(options: XdmOptions) -> Iterator[Guarantee]:
    """Yield one statement a topic.

    Args:
        options: Options of the protocol.
    """
    yield Guarantee("order", "yes", "requests and responses of a channel, by nonce", "1.2 G1")
    yield Guarantee("causal", "partly", "within a channel; channels overtake each other", "1.2 G1, G2")
    yield Guarantee("exactly_once", "yes", "a nonce is processed once", "1.2 G1")
    yield Guarantee("authentic", "yes", "storage proof under a mountain range of final blocks", "1.2 G2, 2.4")
    yield Guarantee("no_gaps", "yes", "nonces 0, 1, 2, ...", "1.2 G1")
    yield Guarantee("answered", "yes", "if operators of both chains relay and include", "1.3 L1")
    yield Guarantee("one_answer", "yes", "one response a nonce", "1.2 G3")
    yield Guarantee("called_off", "no", "a lost message blocks its channel until it is proved again", "1.3 L2")
    depth, period = options.archiving_depth, options.challenge_period
    reason = f"{depth:,} blocks deep on the consensus chain, of a domain after {period:,} more"
    yield Guarantee("final_first", "yes", reason, "1.2 G4")
    yield Guarantee("value", "yes", "fees and transfers are in books that add up", "1.2 G7, G8")
    yield Guarantee("held_back", "yes", f"{options.max_outgoing_messages:,} unanswered a channel", "1.2 G6")
    yield Guarantee("any_carrier", "yes", "the proof alone is enough", "1.2 G2")
    yield Guarantee("no_third_chain", "no", "the consensus chain orders, confirms and archives", "1.4")


WATERMARKS = (
    StateWatermark("next_inbox", "channels", "next_inbox", "chain", "foreign", "chain", "channel"),
    StateWatermark("next_outbox", "channels", "next_outbox", "chain", "chain", "foreign", "channel"),
    StateWatermark("next_response", "channels", "next_response", "chain", "chain", "foreign", "channel"),
)


def trial(name: str, between: FaultWindow) -> Keys | None:
    """Return the fault that provokes a violation, or None; a false receipt forges messages.

    Args:
        name: Name in ``TRIES``.
        between: Lane and ticks of the fault.
    """
    if name == DUPLICATED:
        return {"kind": REPLAY, **between.ends, **between.span}
    if name == OUT_OF_TURN:
        return {"kind": REORDER, **between.ends, **between.span, "of": 2}
    if name == ALTERED:
        return {"kind": TAMPER, **between.ends, **between.span}
    if name == FORGED:
        return {"kind": FRAUD, "chain": between.source, "destination": between.destination, "tick": between.sent}
    return default_fault(name, between)


_CODES_BY_NAME = {
    NO_OPEN_CHANNEL: RejectCode.UNREACHABLE,
    MessengerError.InvalidChannelState.name: RejectCode.UNREACHABLE,
    MessengerError.MissingChannel.name: RejectCode.UNREACHABLE,
    NOT_ALLOWED: RejectCode.UNREACHABLE,
    NO_FUNDS: RejectCode.NO_FUNDS,
    MessengerError.InsufficientBalance.name: RejectCode.NO_FUNDS,
    MessengerError.BalanceUnderflow.name: RejectCode.NO_FUNDS,
    TransporterError.LowBalance.name: RejectCode.NO_FUNDS,
    TransporterError.LowBalanceOnDomain.name: RejectCode.NO_FUNDS,
    TransporterError.MinimumTransferAmount.name: RejectCode.INVALID,
    TransporterError.InvalidAccountId.name: RejectCode.NOT_FOUND,
    NO_DESTINATION: RejectCode.NOT_FOUND,
    NO_HANDLER: RejectCode.NOT_FOUND,
    NO_PROGRAM: RejectCode.NOT_FOUND,
    CHAIN_HALTED: RejectCode.BUSY,
    TOO_LARGE: RejectCode.TOO_LARGE,
    oversize_text(): RejectCode.TOO_LARGE,
    FEES_OVERFLOW: RejectCode.OTHER,
}
"""Reject codes by the error name of a chain's reject."""


def portable(code: int, text: bytes) -> RejectCode:
    """Return the portable meaning of a reject code.

    Args:
        code: Reject code, or 0 for a refused message from a user.
        text: Error name of the reject, or the reason for code 0.
    """
    if code not in (0, REJECTED):
        return program_reject_code(code, text)
    return _CODES_BY_NAME.get(text.decode(errors="replace"), RejectCode.OTHER)


SEMANTICS = Semantics(
    promises=promises,
    guarantees=guarantees,
    watermarks=WATERMARKS,
    reject_code=portable,
    trial=trial,
    pairing=paired,
)
