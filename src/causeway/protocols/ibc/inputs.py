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
from causeway.protocols.contract import Chains
from causeway.protocols.events import EventLog, event_rows
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.disconnecting import is_final
from causeway.protocols.ibc.envelope import without_result
from causeway.protocols.ibc.state import State
from causeway.protocols.messages import LANE_COLUMNS, MESSAGE_COLUMNS, blank_messages

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
"""What a program is given and how it came; ``source`` is ``NO_CHAIN`` for what a user sent."""


def at_home(messages: Frame, state: State, context: Context) -> np.ndarray:
    """Return which messages are for a program that is installed on the zone that they came to."""
    here = context.zones.host_of(messages["receiver"]) == messages["destination"].view(np.int32)
    mine: np.ndarray = here & (positions_in(state.accounts["program"], messages["receiver"]) >= 0)
    return mine & ~is_final(messages)


def with_own_identity(receipts: Frame, packets: Frame) -> Frame:
    """Return receipts as the answers that programs are given: who asked whom is taken from our own ``packets``.

    Row by row they have one index, in lanes of opposite directions. A receipt without a result gives back all that was
    attached.
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
    running, here = np.isin(chain, context.chains), at_home(messages, state, context)
    _refuse(messages.filter(running & ~here), Code.NO_PROGRAM, Code.NO_PROGRAM.name, log)
    unread = np.flatnonzero(~np.isin(brought, context.chains))
    transactions = _from_users(
        brought[unread],
        _ranks(brought)[unread],
        sender=carried["carrier"].to_numpy()[unread],
        receiver=repeated(np.uint64(NOBODY), len(unread)),
    )
    _refuse(transactions, Code.REJECTED, CHAIN_HALTED, log)
    _refuse(messages.filter(~running), Code.REJECTED, CHAIN_HALTED, log)
    return messages.filter(running & here)


NOBODY = 2**64 - 1
"""The receiver of a transaction, which is for no program."""


def _from_users(chain: Chains, index: U64, **columns: Any) -> Frame:
    length = len(chain)
    return blank_messages(
        length,
        kind=Kind.INGRESS,
        source=repeated(np.uint32(NO_CHAIN), length),
        destination=chain,
        substream=repeated(np.uint64(0), length),
        index=index,
        via=repeated(np.uint8(Via.INGRESS), length),
        **columns,
    )


def _refuse(messages: Frame, code: Code, reason: str, log: EventLog) -> None:
    refused = messages.with_columns(callback=messages["index"])
    where = {"chain": refused["destination"], "index": refused["index"], "via": Via.INGRESS}
    log.add(event_rows(refused, Event.REJECTED, code=code, reason=reason, **where))


def _ranks(chain: Chains) -> U64:
    """Return the position of each row among those of its chain, from 1, in row order."""
    order = stable_order(chain)
    ranks: U64 = np.empty(len(chain), dtype=np.uint64)
    ranks[order] = groups_of(chain[order]).ranks().astype(np.uint64) + np.uint64(1)
    return ranks
