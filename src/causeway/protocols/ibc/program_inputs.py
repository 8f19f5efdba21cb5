"""What a block's accepted submissions, local messages and ingress mean for the programs (IBC reference 3.3, 3.4).

A packet is for a handler, or has its receipt at once: of a type that the zone does not handle, from a sender that does
not live where the packet comes from, for a program that is not here, or expired. A receipt is the answer to the packet
at the same index of our send queue, whose identity is taken from our own packet, never from the relayer.

What the programs of a block answered: which packet each answer is the receipt of (IBC reference 3.3, 3.4).
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
from causeway.protocols.shared.execution import HANDLER_FAILED
from causeway.protocols.shared.limits import MAX_DATA_BYTES
from causeway.protocols.shared.messages import LANE, LANE_COLUMNS, MESSAGE_COLUMNS, blank_messages, payload_lengths

CHAIN_HALTED = "ChainHalted"
"""Why what users send to a zone that makes no block is refused."""


class ReceiptCode(IntEnum):
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
"""What a program is given and how it came; ``source`` is ``NO_CHAIN`` for what a user sent."""


def is_installed_locally(messages: Frame, state: State, context: Context) -> np.ndarray:
    """Return which messages are for a program that is installed on the zone that they came to."""
    here = context.zones.host_of(messages["receiver"]) == messages["destination"].view(np.int32)
    mine: np.ndarray = here & (find_positions(state.accounts["program"], messages["receiver"]) >= 0)
    return mine & ~is_final(messages)


def restore_identities(receipts: Frame, packets: Frame) -> Frame:
    """Return receipts as the answers that programs are given: who asked whom is taken from our own ``packets``.

    Row by row they have one index, in lanes of opposite directions. A receipt without a result gives back all that was
    attached.
    """
    whole = is_empty_result(receipts["code"])
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
        deadline=repeat_value(np.uint32(0), len(receipts)),
        method=repeat_text("", len(receipts)),
    )


def ingress_arrivals(ingress: pa.Table, carried: pa.Table, state: State, context: Context, log: EventLog) -> Frame:
    """Return the messages from users as arrivals.

    Those for programs that are not on their zone are refused with an event, and so is everything, transactions of
    relayers among it, for zones that make no block now. A message's number (``callback``) is made of the height and its
    position in what came to the zone in this block: what was ``carried``, then messages from users.
    """
    brought = context.zones.positions_of(carried["chain"].to_numpy())
    chain = context.zones.positions_of(ingress["chain"].to_numpy())
    before: U64 = np.bincount(brought, minlength=len(context.zones.names)).astype(np.uint64)
    rows = from_table(ingress.select(["receiver", "sender", "method", "payload"]))
    index = before[chain] + _ranks(chain)
    messages = _from_users(
        chain,
        index,
        callback=(np.uint64(context.height) << np.uint64(32)) + index,
        sender=rows["sender"],
        receiver=rows["receiver"],
        method=rows["method"].dictionary_encode(),
        payload=rows["payload"],
    )
    running, here = np.isin(chain, context.chains), is_installed_locally(messages, state, context)
    _refuse(messages.filter(running & ~here), ReceiptCode.NO_PROGRAM, ReceiptCode.NO_PROGRAM.name, log)
    unread = np.flatnonzero(~np.isin(brought, context.chains))
    transactions = _from_users(
        brought[unread],
        _ranks(brought)[unread],
        sender=carried["carrier"].to_numpy()[unread],
        receiver=repeat_value(np.uint64(NOBODY), len(unread)),
    )
    _refuse(transactions, ReceiptCode.REJECTED, CHAIN_HALTED, log)
    _refuse(messages.filter(~running), ReceiptCode.REJECTED, CHAIN_HALTED, log)
    return messages.filter(running & here)


NOBODY = 2**64 - 1
"""The receiver of a transaction, which is for no program."""


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


def _ranks(chain: Chains) -> U64:
    """Return the position of each row among those of its chain, from 1, in row order."""
    order = stable_order(chain)
    ranks: U64 = np.empty(len(chain), dtype=np.uint64)
    ranks[order] = group_rows(chain[order]).ranks().astype(np.uint64) + np.uint64(1)
    return ranks


NO_SLOT = -1
TOO_LONG = f"an answer to another lake has at most {MAX_DATA_BYTES - ANSWER_BYTES} bytes".encode()
SLOT_GONE = "SlotNotOpen"
"""Why an answer is dropped: a cleanup has passed the index of its receipt."""


def answers_by_slot(responses: Frame, waiting: Frame, context: Context, log: EventLog) -> tuple[Frame, Frame]:
    """Return responses to packets with the lane and index of their receipts, and the slots still unanswered.

    ``waiting``: slots (``SLOTS_SCHEMA``) of all packets that programs have or had before them; ``sender`` called
    ``receiver``. An answer whose slot is gone, because a cleanup passed it, is dropped with an event.
    """
    asked, given = len(waiting), len(responses)
    own = (responses["receiver"], responses["sender"], responses["callback"])
    theirs = (waiting["sender"], waiting["receiver"], waiting["callback"])
    if given == 0 or (
        asked == given and all(np.array_equal(one, other) for one, other in zip(own, theirs, strict=True))
    ):
        slot: Rows = np.arange(given)
    else:
        keys = [np.concatenate([other, one]) for one, other in zip(own, theirs, strict=True)]
        order = stable_order(*keys)
        groups = group_rows(*(key[order] for key in keys))
        is_slot = order < asked
        # In a group the slots come first: its k-th answer is to its k-th slot.
        slots_in = np.add.reduceat(is_slot.astype(np.int64), groups.starts)
        answer = np.flatnonzero(~is_slot)
        late = groups.ranks()[answer] >= 2 * groups.spread(slots_in)[answer]
        slot = np.full(given, NO_SLOT, dtype=np.int64)
        slot[order[answer] - asked] = np.where(late, NO_SLOT, order[answer - groups.spread(slots_in)[answer]])
        nowhere = slot == NO_SLOT
        if nowhere.any():
            _log_nowhere(responses.filter(nowhere), context, log)
            responses, slot = responses.filter(~nowhere), slot[~nowhere]
    taken = waiting.select(["source", "destination", "index"]).take(slot)
    open_still = np.ones(asked, dtype=bool)
    open_still[slot] = False
    lanes = reverse_lanes(taken, RECEIPT)
    receipts = responses.with_columns(**{name: lanes[name] for name in LANE}, index=taken["index"])
    return receipts, waiting.filter(open_still)


def truncate_receipts(receipts: Frame, context: Context) -> Frame:
    """Return receipts with those that are too long to be carried to another lake in a form that says so.

    Their packets have been handled: the caller is told with code 3, and what comes back to it stays as it is.
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


def _log_nowhere(responses: Frame, context: Context, log: EventLog) -> None:
    chain = context.zones.host_of(responses["sender"]).view(np.uint32)
    log.add(event_rows(responses, Event.DROPPED, chain=chain, code=responses["code"], reason=SLOT_GONE))


def receipt_codes(codes: np.ndarray) -> np.ndarray:
    """Return the codes that receipts carry for the codes with which programs answer."""
    table = np.maximum(np.arange(256), ReceiptCode.REJECTED)
    table[[0, HANDLER_FAILED]] = ReceiptCode.SUCCESS, ReceiptCode.HANDLER_FAILED
    table[4] = ReceiptCode.REJECTED
    found: np.ndarray = table.astype(np.uint8)[codes]
    return found
