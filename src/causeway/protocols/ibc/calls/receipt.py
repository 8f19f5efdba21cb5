"""``IBCreceipt``: return the receipt of a packet to its sender's zone (IBC reference 3.4)."""

from __future__ import annotations

from typing import Any

from causeway.core.vocabulary import Kind
from causeway.protocols.ibc.calls import call
from causeway.protocols.ibc.calls.call import CallCheck, CallContext, CallRun, CallType
from causeway.protocols.ibc.errors import Refusal
from causeway.protocols.ibc.keys import KeyPart, QueuePurpose
from causeway.protocols.ibc.packets import Receipt, decode_answer, is_empty_result
from causeway.protocols.ibc.state import SEND

LARGEST_CODE = 255
"""The code that a program gets for a receipt code above this, or below 0."""


def _is_receipt(run: CallRun, block: CallContext) -> bool:
    return run.has_receipt()


CHECKS = (
    *call.opening_checks("3.4", QueuePurpose.RECEIPT, Refusal.MustBeReceipt),
    *call.proof_checks("3.4, 4", "3.4, 5"),
    call.check_key_part("3.4, 6", KeyPart.INDEX, Refusal.OnlyMessageProofs),
    *call.order_checks("3.4, 7", SEND),
    CallCheck(Refusal.InvalidPacket, "3.4, 8", _is_receipt, call.CheckedEntry.FORM),
    call.check_handled("3.4, 9"),
)

ACKNOWLEDGE = CallType(call.named_indices, CHECKS, call.take_entries(SEND))


def receipt_row(receipt: Receipt) -> dict[str, Any]:
    """Return the message columns of a receipt from bytes (step 8).

    Raises:
        IbcError: InvalidPacket, if its result is not of this network's programs.
    """
    code = receipt.code if 0 <= receipt.code <= LARGEST_CODE else LARGEST_CODE
    # The receipt of a final packet is empty too, without a refund.
    empty = is_empty_result(code) or not receipt.result
    high, low, payload = (0, 0, b"") if empty else decode_answer(receipt.result)
    return {"kind": Kind.RESPONSE, "code": code, "amount_high": high, "amount_low": low, "payload": payload}
