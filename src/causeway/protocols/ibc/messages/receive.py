"""``IBCreceive``: a packet comes to the zone that it is for (IBC reference 3.3).

Steps 1 to 8 are ``CHECKS``, 9 and 10 ``result_codes``; steps 11 and 12, the handler and its receipt, are those of the
block (``execute``, ``answers``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from causeway.model.frame import Frame
from causeway.model.ledger import Kind
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.disconnecting import answered_with_error, is_final
from causeway.protocols.ibc.entries import type_codes
from causeway.protocols.ibc.envelope import decode_call
from causeway.protocols.ibc.errors import IbcError, Refusal
from causeway.protocols.ibc.expiry import has_expired, is_expired
from causeway.protocols.ibc.inputs import Code, at_home
from causeway.protocols.ibc.keys import Part, Purpose
from causeway.protocols.ibc.messages import call
from causeway.protocols.ibc.messages.call import Block, Call, Check, Run
from causeway.protocols.ibc.options import DISCONNECT_TYPE
from causeway.protocols.ibc.state import RECEIPT, State
from causeway.protocols.ibc.values import Packet


def _is_packet(run: Run, block: Block) -> bool:
    return run.has_packet(limited=block.context.options.timeouts == "on")


def _is_in_time(run: Run, block: Block) -> bool:
    # In ordered queues its receipt says that it was not.
    return block.context.options.order == "ordered" or not run.is_late(block)


CHECKS = (
    *call.opening("3.3", Purpose.SEND, Refusal.MustBeSend),
    call.of_part("3.3, 4", Part.INDEX, Refusal.OnlyMessageProofs),
    *call.order("3.3, 5", RECEIPT),
    *call.proof("3.3, 6", "3.3, 7"),
    Check(Refusal.InvalidPacket, "3.3, 8", _is_packet, call.About.FORM),
    Check(Refusal.TimeoutElapsed, "3.3, 9, X-6", _is_in_time),
)

RECEIVE = Call(call.named, CHECKS, call.take(RECEIPT))


def row_of(packet: Packet, context: Context) -> dict[str, Any]:
    """Return the message columns of a packet that came as bytes, and ``forced``: the code of the receipt of one that is
    no call of a program (steps 9 and 10)."""
    types, final = context.zones.types, packet.type == DISCONNECT_TYPE
    forced, message = Code.SUCCESS, dict[str, Any]()
    try:
        message = {} if final else decode_call(packet.data)
    except IbcError:
        forced = Code.MALFORMED
    if packet.type not in types and not final:
        forced = Code.UNKNOWN_TYPE
    elif not final and packet.type != (message["method"] if message.get("method") in types[1:] else types[0]):
        forced = Code.MALFORMED
    limits = packet.max_height, packet.max_time
    if packet.limited and is_expired(*limits, context.height, context.time, context.options.expiry):
        forced = Code.TIMEOUT
    return {**message, "kind": Kind.CONTROL if final else Kind.REQUEST, "forced": forced}


def result_codes(packets: Frame, state: State, context: Context) -> np.ndarray:
    """Return the ``Code`` of the receipt that each packet has at once, 0 for final ones and those for a program: steps
    9 and 10.

    ``packets``: messages with their lane; ``forced``: see ``row_of``; ``sequence``: the order of processing.
    """
    length = len(packets)
    code = np.zeros(length, dtype=np.uint8)
    if length == 0:
        return code
    zones = context.zones
    code[~at_home(packets, state, context)] = Code.NO_PROGRAM
    # The last of these that holds is the first that the reference asks for.
    code[zones.host_of(packets["sender"]) != packets["source"].view(np.int32)] = Code.PERMISSION
    types = type_codes(packets, zones)
    code[~zones.handled[types, packets["destination"]]] = Code.UNKNOWN_TYPE
    forced = packets["forced"]
    code = np.where(forced > 0, forced, code).astype(np.uint8)
    late = forced == Code.TIMEOUT
    if context.options.limited:
        height, time = np.uint64(context.height), np.uint64(context.time)
        late |= has_expired(packets["max_height"], packets["sent_tick"], height, time, context)
    final = is_final(packets) & ~late
    code[answered_with_error(packets, final, state)] = Code.UNKNOWN_TYPE
    code[final] = Code.SUCCESS
    code[late] = Code.TIMEOUT
    return code
