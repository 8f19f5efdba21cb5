"""``IBCreceipt``: the receipt of a packet comes back to the zone that sent it (IBC reference 3.4)."""

from __future__ import annotations

from typing import Any

from causeway.model.ledger import Kind
from causeway.protocols.ibc.envelope import decode_answer, without_result
from causeway.protocols.ibc.errors import Refusal
from causeway.protocols.ibc.keys import Part, Purpose
from causeway.protocols.ibc.messages import call
from causeway.protocols.ibc.messages.call import Block, Call, Check, Run
from causeway.protocols.ibc.state import SEND
from causeway.protocols.ibc.values import Receipt

LARGEST_CODE = 255
"""A receipt's code above this, or below 0, reaches a program as this."""


def _is_receipt(run: Run, block: Block) -> bool:
    return run.has_receipt()


CHECKS = (
    *call.opening("3.4", Purpose.RECEIPT, Refusal.MustBeReceipt),
    *call.proof("3.4, 4", "3.4, 5"),
    call.of_part("3.4, 6", Part.INDEX, Refusal.OnlyMessageProofs),
    *call.order("3.4, 7", SEND),
    Check(Refusal.InvalidPacket, "3.4, 8", _is_receipt, call.About.FORM),
    call.handled("3.4, 9"),
)

ACKNOWLEDGE = Call(call.named, CHECKS, call.take(SEND))


def row_of(receipt: Receipt) -> dict[str, Any]:
    """Return the message columns of a receipt that came as bytes (step 8).

    Raises:
        IbcError: InvalidPacket, where its result is none of this network's programs.
    """
    code = receipt.code if 0 <= receipt.code <= LARGEST_CODE else LARGEST_CODE
    # The receipt of a final packet is empty, too, and nothing comes back with it.
    empty = without_result(code) or not receipt.result
    high, low, payload = (0, 0, b"") if empty else decode_answer(receipt.result)
    return {"kind": Kind.RESPONSE, "code": code, "amount_high": high, "amount_low": low, "payload": payload}
