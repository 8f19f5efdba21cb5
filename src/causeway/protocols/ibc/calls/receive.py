"""``IBCreceive``: deliver a packet to its destination zone (IBC reference 3.3).

Steps 1 to 8 are ``CHECKS``, 9 and 10 ``result_codes``. Steps 11 and 12, the handler and its receipt, belong to the
block (``run_handlers``, ``answers_by_slot``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from causeway.core.frame import Frame
from causeway.core.vocabulary import Kind
from causeway.protocols.ibc.calls import call
from causeway.protocols.ibc.calls.call import CallCheck, CallContext, CallRun, CallType
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.disconnection import is_error_answered, is_final
from causeway.protocols.ibc.errors import IbcError, Refusal
from causeway.protocols.ibc.expiry import has_expired, is_expired
from causeway.protocols.ibc.keys import KeyPart, QueuePurpose
from causeway.protocols.ibc.options import DISCONNECT_TYPE
from causeway.protocols.ibc.packets import Packet, decode_call
from causeway.protocols.ibc.program_inputs import ReceiptCode, is_installed_locally
from causeway.protocols.ibc.queue_entries import type_codes
from causeway.protocols.ibc.state import RECEIPT, State


def _is_packet(run: CallRun, block: CallContext) -> bool:
    return run.has_packet(limited=block.context.options.timeouts == "on")


def _is_in_time(run: CallRun, block: CallContext) -> bool:
    # In ordered queues a late packet gets a receipt with the code of a timeout.
    return block.context.options.order == "ordered" or not run.is_late(block)


CHECKS = (
    *call.opening_checks("3.3", QueuePurpose.SEND, Refusal.MustBeSend),
    call.check_key_part("3.3, 4", KeyPart.INDEX, Refusal.OnlyMessageProofs),
    *call.order_checks("3.3, 5", RECEIPT),
    *call.proof_checks("3.3, 6", "3.3, 7"),
    CallCheck(Refusal.InvalidPacket, "3.3, 8", _is_packet, call.CheckedEntry.FORM),
    CallCheck(Refusal.TimeoutElapsed, "3.3, 9, X-6", _is_in_time),
)

RECEIVE = CallType(call.named_indices, CHECKS, call.take_entries(RECEIPT))


def packet_row(packet: Packet, context: Context) -> dict[str, Any]:
    """Return the message columns of a packet from bytes, and ``forced``.

    ``forced`` is the receipt code of a packet that is no call of a program (steps 9 and 10).
    """
    types, final = context.zones.types, packet.type == DISCONNECT_TYPE
    forced, message = ReceiptCode.SUCCESS, dict[str, Any]()
    try:
        message = {} if final else decode_call(packet.data)
    except IbcError:
        forced = ReceiptCode.MALFORMED
    if packet.type not in types and not final:
        forced = ReceiptCode.UNKNOWN_TYPE
    elif not final and packet.type != (message["method"] if message.get("method") in types[1:] else types[0]):
        forced = ReceiptCode.MALFORMED
    limits = packet.max_height, packet.max_time
    if packet.limited and is_expired(*limits, context.height, context.time, context.options.expiry):
        forced = ReceiptCode.TIMEOUT
    return {**message, "kind": Kind.CONTROL if final else Kind.REQUEST, "forced": forced}


def result_codes(packets: Frame, state: State, context: Context) -> np.ndarray:
    """Return the ``ReceiptCode`` of each packet's immediate receipt (steps 9 and 10).

    It is 0 for final and handled packets.

    Args:
        packets: Messages with their lane, ``forced`` (see ``packet_row``) and ``sequence``, the order of processing.
        state: The state.
        context: The metadata of the block.
    """
    length = len(packets)
    code = np.zeros(length, dtype=np.uint8)
    if length == 0:
        return code
    zones = context.zones
    code[~is_installed_locally(packets, state, context)] = ReceiptCode.NO_PROGRAM
    # Assign in reverse order of the reference, so that its first failing step wins.
    code[zones.host_of(packets["sender"]) != packets["source"].view(np.int32)] = ReceiptCode.PERMISSION
    types = type_codes(packets, zones)
    code[~zones.handled[types, packets["destination"]]] = ReceiptCode.UNKNOWN_TYPE
    forced = packets["forced"]
    code = np.where(forced > 0, forced, code).astype(np.uint8)
    late = forced == ReceiptCode.TIMEOUT
    if context.options.limited:
        height, time = np.uint64(context.height), np.uint64(context.time)
        late |= has_expired(packets["max_height"], packets["sent_tick"], height, time, context)
    final = is_final(packets) & ~late
    code[is_error_answered(packets, final, state)] = ReceiptCode.UNKNOWN_TYPE
    code[final] = ReceiptCode.SUCCESS
    code[late] = ReceiptCode.TIMEOUT
    return code
