"""Inputs of programs from submissions, local messages and ingress, and their answers.

See IBC reference 3.3, 3.4.

A packet goes to a handler or gets its receipt at once: for an unhandled type, a sender not on the source zone, a
missing program, or expiry. A receipt answers the packet at the same index of our send queue, whose identity comes from
our own packet, never from the relayer. An answer of a program is matched with the packet whose receipt it is.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.order import U64, Rows, find_positions, group_rows, stable_order

from causeway.core.frame import Frame, from_table, repeat_text, repeat_value
from causeway.core.vocabulary import NO_CHAIN, Event, Kind, Via
from causeway.protocols.contract import Chains
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.disconnection import is_final
from causeway.protocols.ibc.packets import ANSWER_BYTES, is_empty_result
from causeway.protocols.ibc.state import RECEIPT, State, reverse_lanes
from causeway.protocols.shared.events import EventLog, event_rows
from causeway.protocols.shared.execution import HANDLER_FAILED, ranks_by_chain
from causeway.protocols.shared.limits import MAX_DATA_BYTES
from causeway.protocols.shared.messages import LANE, LANE_COLUMNS, MESSAGE_COLUMNS, blank_messages, payload_lengths

CHAIN_HALTED = "ChainHalted"
"""Reason of refusing users' input to a zone that makes no block."""


class ReceiptCode(IntEnum):
    """Codes of receipts: reserved by the protocol (reference 2.4), and of programs' calls."""

    SUCCESS = 0
    UNKNOWN_TYPE = 1
    TIMEOUT = 2
    HANDLER_FAILED = 3
    PERMISSION = 4
    REJECTED = 16
    NO_PROGRAM = 17
    MALFORMED = 18


NOT_AT_ONCE = "asynchronous receipts are off"
"""Receipt text for a handler without the required immediate answer.

Only with ``acknowledgements = synchronous``.
"""


def receipt_texts(packets: Frame, codes: np.ndarray) -> pa.BinaryArray:
    """Return the texts of the protocol's own receipts, empty for those without a result."""
    texts = pa.array([_TEXTS.get(code, b"") for code in ReceiptCode], pa.binary())
    column = texts.take(pa.array(np.searchsorted(np.array(list(ReceiptCode)), codes)))
    nobody = np.flatnonzero(codes == ReceiptCode.NO_PROGRAM)
    if len(nobody) == 0:
        return column
    named = pa.array([f"no program {number}".encode() for number in packets["receiver"][nobody].tolist()], pa.binary())
    return pc.replace_with_mask(column, pa.array(codes == ReceiptCode.NO_PROGRAM), named)


_TEXTS = {
    ReceiptCode.PERMISSION: b"PermissionDenied",
    ReceiptCode.HANDLER_FAILED: NOT_AT_ONCE.encode(),
    ReceiptCode.MALFORMED: b"no call between programs",
}

ARRIVAL_COLUMNS = [*LANE_COLUMNS, *MESSAGE_COLUMNS, "via"]
"""The columns of an arrival; ``source`` is ``NO_CHAIN`` for users' messages."""


def is_installed_locally(messages: Frame, state: State, context: Context) -> np.ndarray:
    """Return a mask of the messages for a program installed on the zone that they came to."""
    is_local = context.zones.host_of(messages["receiver"]) == messages["destination"].view(np.int32)
    is_installed: np.ndarray = is_local & (find_positions(state.accounts["program"], messages["receiver"]) >= 0)
    return is_installed & ~is_final(messages)


def restore_identities(receipts: Frame, packets: Frame) -> Frame:
    """Convert receipts to answers for programs, with identities from our own ``packets``.

    Row by row they have one index, in opposite lanes. A receipt without a result refunds everything attached.
    """
    refunds_all = is_empty_result(receipts["code"])
    # The refund is at most the attached amount, whatever the other chain claims.
    more = (receipts["amount_high"] > packets["amount_high"]) | (
        (receipts["amount_high"] == packets["amount_high"]) & (receipts["amount_low"] > packets["amount_low"])
    )
    refunds_all |= more
    return receipts.with_columns(
        amount_high=np.where(refunds_all, packets["amount_high"], receipts["amount_high"]),
        amount_low=np.where(refunds_all, packets["amount_low"], receipts["amount_low"]),
        kind=np.where(is_final(packets), packets["kind"], np.uint8(Kind.RESPONSE)),
        sender=packets["receiver"],
        receiver=packets["sender"],
        callback=packets["callback"],
        deadline=repeat_value(np.uint32(0), len(receipts)),
        method=repeat_text("", len(receipts)),
    )


def ingress_arrivals(ingress: pa.Table, carried: pa.Table, state: State, context: Context, log: EventLog) -> Frame:
    """Return the messages from users as arrivals.

    Messages to missing programs are refused with an event; so is all input, transactions of relayers included, to zones
    that make no block. A message's number (``callback``) consists of the height and its position in the zone's input:
    first the ``carried`` transactions, then users' messages.
    """
    carried_to = context.zones.positions_of(carried["chain"].to_numpy())
    chain = context.zones.positions_of(ingress["chain"].to_numpy())
    before: U64 = np.bincount(carried_to, minlength=len(context.zones.names)).astype(np.uint64)
    rows = from_table(ingress.select(["receiver", "sender", "method", "payload"]))
    index = before[chain] + ranks_by_chain(chain)
    messages = _from_users(
        chain,
        index,
        callback=(np.uint64(context.height) << np.uint64(32)) + index,
        sender=rows["sender"],
        receiver=rows["receiver"],
        method=rows["method"].dictionary_encode(),
        payload=rows["payload"],
    )
    running, is_installed = np.isin(chain, context.chains), is_installed_locally(messages, state, context)
    _refuse(messages.filter(running & ~is_installed), ReceiptCode.NO_PROGRAM, ReceiptCode.NO_PROGRAM.name, log)
    unread = np.flatnonzero(~np.isin(carried_to, context.chains))
    transactions = _from_users(
        carried_to[unread],
        ranks_by_chain(carried_to)[unread],
        sender=carried["carrier"].to_numpy()[unread],
        receiver=repeat_value(np.uint64(NOBODY), len(unread)),
    )
    _refuse(transactions, ReceiptCode.REJECTED, CHAIN_HALTED, log)
    _refuse(messages.filter(~running), ReceiptCode.REJECTED, CHAIN_HALTED, log)
    return messages.filter(running & is_installed)


NOBODY = 2**64 - 1
"""The receiver of a transaction, which is no program's."""


def _from_users(chain: Chains, index: U64, **columns: Any) -> Frame:
    length = len(chain)
    return blank_messages(
        length,
        kind=Kind.INGRESS,
        source=repeat_value(np.uint32(NO_CHAIN), length),
        destination=chain,
        substream=repeat_value(np.uint64(0), length),
        index=index,
        via=repeat_value(np.uint8(Via.INGRESS), length),
        **columns,
    )


def _refuse(messages: Frame, code: ReceiptCode, reason: str, log: EventLog) -> None:
    refused = messages.with_columns(callback=messages["index"])
    where = {"chain": refused["destination"], "index": refused["index"], "via": Via.INGRESS}
    log.add(event_rows(refused, Event.REJECTED, code=code, reason=reason, **where))


NO_SLOT = -1
TOO_LONG = f"an answer to another lake has at most {MAX_DATA_BYTES - ANSWER_BYTES} bytes".encode()
SLOT_GONE = "SlotNotOpen"
"""Reason of dropping an answer after a cleanup of its receipt's index."""


def answers_by_slot(responses: Frame, waiting: Frame, context: Context, log: EventLog) -> tuple[Frame, Frame]:
    """Match responses with the slots of their packets.

    An answer whose slot was cleaned is dropped with an event.

    Args:
        responses: The programs' answers.
        waiting: The slots (``SLOTS_SCHEMA``) of all handled packets; ``sender`` called ``receiver``.
        context: The metadata of the block.
        log: The log of events.

    Returns:
        The responses with the lane and index of their receipts, and the slots still unanswered.
    """
    slot_count, answer_count = len(waiting), len(responses)
    own = (responses["receiver"], responses["sender"], responses["callback"])
    theirs = (waiting["sender"], waiting["receiver"], waiting["callback"])
    if answer_count == 0 or (
        slot_count == answer_count and all(np.array_equal(one, other) for one, other in zip(own, theirs, strict=True))
    ):
        slot: Rows = np.arange(answer_count)
    else:
        keys = [np.concatenate([other, one]) for one, other in zip(own, theirs, strict=True)]
        order = stable_order(*keys)
        groups = group_rows(*(key[order] for key in keys))
        is_slot = order < slot_count
        # In a group the slots come first: its k-th answer is to its k-th slot.
        slots_in = np.add.reduceat(is_slot.astype(np.int64), groups.starts)
        answer = np.flatnonzero(~is_slot)
        late = groups.ranks()[answer] >= 2 * groups.spread(slots_in)[answer]
        slot = np.full(answer_count, NO_SLOT, dtype=np.int64)
        slot[order[answer] - slot_count] = np.where(late, NO_SLOT, order[answer - groups.spread(slots_in)[answer]])
        has_no_slot = slot == NO_SLOT
        if has_no_slot.any():
            _log_dropped(responses.filter(has_no_slot), context, log)
            responses, slot = responses.filter(~has_no_slot), slot[~has_no_slot]
    answered = waiting.select(["source", "destination", "index"]).take(slot)
    open_still = np.ones(slot_count, dtype=bool)
    open_still[slot] = False
    lanes = reverse_lanes(answered, RECEIPT)
    receipts = responses.with_columns(**{name: lanes[name] for name in LANE}, index=answered["index"])
    return receipts, waiting.filter(open_still)


def truncate_receipts(receipts: Frame, context: Context) -> Frame:
    """Replace receipts that are too long for another lake.

    Their packets have been handled, so the code is 3 and the refund stays.
    """
    if not context.zones.topology.external:
        return receipts
    long = payload_lengths(receipts).astype(np.int64) + ANSWER_BYTES > MAX_DATA_BYTES
    long &= ~np.isin(receipts["destination"], context.zones.own)
    if not long.any():
        return receipts
    payload = pc.if_else(pa.array(long), pa.scalar(TOO_LONG, pa.binary()), receipts["payload"])
    code = np.where(long, np.uint8(ReceiptCode.HANDLER_FAILED), receipts["code"])
    return receipts.with_columns(payload=payload, code=code)


def _log_dropped(responses: Frame, context: Context, log: EventLog) -> None:
    chain = context.zones.host_of(responses["sender"]).view(np.uint32)
    log.add(event_rows(responses, Event.DROPPED, chain=chain, code=responses["code"], reason=SLOT_GONE))


def receipt_codes(codes: np.ndarray) -> np.ndarray:
    """Return the receipt codes of programs' answer codes."""
    table = np.maximum(np.arange(256), ReceiptCode.REJECTED)
    table[[0, HANDLER_FAILED]] = ReceiptCode.SUCCESS, ReceiptCode.HANDLER_FAILED
    table[4] = ReceiptCode.REJECTED
    found: np.ndarray = table.astype(np.uint8)[codes]
    return found
