"""What a block's accepted submissions, local messages and ingress mean for the programs (IBC reference 3.3, 3.4).

A packet is for a handler, or has its receipt at once: of a type that the zone does not handle, from a sender that does
not live where the packet comes from, for a program that is not here, or expired. A receipt is the answer to the packet
at the same index of our send queue, whose identity is taken from our own packet, never from the relayer.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway.model.frame import Frame, from_table, repeated, repeated_text
from causeway.model.ledger import NO_CHAIN, Event, Kind, Via
from causeway.model.order import U64, groups_of, positions_in, stable_order
from causeway.protocols.events import EventLog, event_rows
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.disconnecting import answered_with_error, is_final
from causeway.protocols.ibc.entries import limits_of, type_codes
from causeway.protocols.ibc.envelope import without_result
from causeway.protocols.ibc.state import State
from causeway.protocols.messages import LANE_COLUMNS, MESSAGE_COLUMNS

CHAIN_HALTED = "ChainHalted"
"""Why what users send to a zone that makes no block is refused."""


class Code(IntEnum):
    """Codes of receipts: those that the protocol reserves (reference 2.4), and those of calls between programs."""

    SUCCESS = 0
    UNKNOWN_TYPE = 1
    TIMEOUT = 2
    HANDLER_FAILED = 3
    PERMISSION = 4
    REJECTED = 16
    NO_PROGRAM = 17
    MALFORMED = 18


NOT_AT_ONCE = "asynchronous receipts are off"
"""What a receipt says of a handler that did not answer at once (``acknowledgements = synchronous``)."""


def receipt_texts(packets: Frame, codes: np.ndarray) -> pa.BinaryArray:
    """Return what the receipts say that the protocol itself makes: nothing for those without a result."""
    texts = pa.array([_TEXTS.get(code, b"") for code in Code], pa.binary())
    column = texts.take(pa.array(np.searchsorted(np.array(list(Code)), codes)))
    nobody = np.flatnonzero(codes == Code.NO_PROGRAM)
    if len(nobody) == 0:
        return column
    named = pa.array([f"no program {number}".encode() for number in packets["receiver"][nobody].tolist()], pa.binary())
    return pc.replace_with_mask(column, pa.array(codes == Code.NO_PROGRAM), named)


_TEXTS = {
    Code.PERMISSION: b"PermissionDenied",
    Code.HANDLER_FAILED: NOT_AT_ONCE.encode(),
    Code.MALFORMED: b"no call between programs",
}

ARRIVAL_COLUMNS = [*LANE_COLUMNS, *MESSAGE_COLUMNS, "via"]
"""What a program is given and how it came: ``chain`` takes, ``remote`` is where it is from (``NO_CHAIN``: a user)."""


def at_home(messages: Frame, state: State, context: Context) -> np.ndarray:
    """Return which messages are for a program that is installed on the zone that takes them (``chain``)."""
    here = context.zones.host_of(messages["receiver"]) == messages["chain"].view(np.int32)
    mine: np.ndarray = here & (positions_in(state.accounts["program"], messages["receiver"]) >= 0)
    return mine & ~is_final(messages)


def judge_packets(packets: Frame, state: State, context: Context) -> np.ndarray:
    """Return the ``Code`` of the receipt that each packet has at once, 0 for final ones and those for a program.

    ``packets``: messages with their lane; ``chain`` takes; ``forced``: the code of one that is no message;
    ``sequence``: the order of processing.
    """
    length = len(packets)
    code = np.zeros(length, dtype=np.uint8)
    if length == 0:
        return code
    zones = context.zones
    code[~at_home(packets, state, context)] = Code.NO_PROGRAM
    # The last of these that holds is the first that the reference asks for.
    code[zones.host_of(packets["sender"]) != packets["remote"].view(np.int32)] = Code.PERMISSION
    types = type_codes(packets, zones)
    code[~zones.handled[types, packets["chain"]]] = Code.UNKNOWN_TYPE
    forced = packets["forced"]
    code = np.where(forced > 0, forced, code).astype(np.uint8)
    late = forced == Code.TIMEOUT
    if context.options.limited:
        height, time = np.uint64(context.height), np.uint64(context.time)
        late |= has_expired(packets["sent_height"], packets["sent_tick"], height, time, context)
    final = is_final(packets) & ~late
    code[answered_with_error(packets, final, state)] = Code.UNKNOWN_TYPE
    code[final] = Code.SUCCESS
    code[late] = Code.TIMEOUT
    return code


def has_expired(sent_height: U64, sent_tick: U64, height: Any, time: Any, context: Context) -> np.ndarray:
    """Return which packets, sent at these heights in these ticks, have expired at a chain's height and time (ns)."""
    sent_time = (sent_tick + np.uint64(1)) * np.uint64(context.tick_ns)
    return is_expired(*limits_of(sent_height, sent_time, context.options), height, time, context)


def is_expired(max_height: Any, max_time: Any, height: Any, time: Any, context: Context) -> np.ndarray:
    """Return which limits a chain's height and time (ns) are past: strictly, or already when equal (``expiry``)."""
    if context.options.expiry == "strict":
        passed: np.ndarray = (height > max_height) | (time > max_time)
    else:
        passed = (height >= max_height) | (time >= max_time)
    return passed


def with_own_identity(receipts: Frame, packets: Frame) -> Frame:
    """Return receipts as the answers that programs are given: who asked whom is taken from our own ``packets``.

    Both have the same lanes and indices, row by row. A receipt without a result gives back all that was attached.
    """
    whole = without_result(receipts["code"])
    # No more comes back than was attached, whatever the other chain says.
    more = (receipts["amount_high"] > packets["amount_high"]) | (
        (receipts["amount_high"] == packets["amount_high"]) & (receipts["amount_low"] > packets["amount_low"])
    )
    whole |= more
    return receipts.with_columns(
        amount_high=np.where(whole, packets["amount_high"], receipts["amount_high"]),
        amount_low=np.where(whole, packets["amount_low"], receipts["amount_low"]),
        kind=np.where(is_final(packets), packets["kind"], np.uint8(Kind.RESPONSE)),
        sender=packets["receiver"],
        receiver=packets["sender"],
        callback=packets["callback"],
        deadline=repeated(np.uint32(0), len(receipts)),
        method=repeated_text("", len(receipts)),
    )


def ingress_arrivals(ingress: pa.Table, chosen: Any, state: State, context: Context, log: EventLog) -> Frame:
    """Return the ``chosen`` ones of the messages from users as arrivals; the others are transactions of relayers.

    Those for programs that are not on their zone, and for zones that make no block now, are refused with an event. A
    message's number (``callback``) is made of the height and its place in what came to the zone in this block.
    """
    by_number = np.argsort(context.zones.numbers, kind="stable")
    numbers = ingress["chain"].to_numpy()
    chain = by_number[np.searchsorted(context.zones.numbers[by_number], numbers)].astype(np.uint32)
    mine = np.flatnonzero(chosen.to_numpy(zero_copy_only=False))
    place, chain = _places(chain)[mine], chain[mine]
    rows = from_table(ingress.select(["chain", "receiver", "sender", "method", "payload"]).take(pa.array(mine)))
    length = len(mine)
    zero = repeated(np.uint64(0), length)
    messages = Frame(
        {
            "chain": chain,
            "remote": repeated(np.uint32(NO_CHAIN), length),
            "substream": zero,
            "index": place,
            "kind": repeated(np.uint8(Kind.INGRESS), length),
            "sender": rows["sender"],
            "receiver": rows["receiver"],
            "callback": (np.uint64(context.height) << np.uint64(32)) + place,
            "amount_high": zero,
            "amount_low": zero,
            "code": repeated(np.uint8(0), length),
            "deadline": repeated(np.uint32(0), length),
            "method": rows["method"].dictionary_encode(),
            "payload": rows["payload"],
            "via": repeated(np.uint8(Via.INGRESS), length),
        },
        length,
    )
    running = np.isin(chain, context.chains)
    here = at_home(messages, state, context)
    for mask, code, reason in (
        (running & ~here, Code.NO_PROGRAM, Code.NO_PROGRAM.name),
        (~running, Code.REJECTED, CHAIN_HALTED),
    ):
        refused = messages.filter(mask).with_columns(callback=place[mask]) if mask.any() else messages.slice(0, 0)
        where = {"chain": refused["chain"], "index": refused["index"], "via": Via.INGRESS}
        log.add(event_rows(refused, Event.REJECTED, code=code, reason=reason, **where))
    return messages.filter(running & here)


def _places(chain: np.ndarray) -> np.ndarray:
    """Return the place of each row among those of its chain, from 1, in row order."""
    order = stable_order(chain)
    places = np.empty(len(chain), dtype=np.uint64)
    places[order] = groups_of(chain[order]).ranks().astype(np.uint64) + np.uint64(1)
    return places
