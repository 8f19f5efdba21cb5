"""Messages of users, before they wait for a block: what no block could carry out is refused at once, by its field.

That is what follows from what never changes in a lake: where programs are, which zones are connected, what types they
handle, how long a packet may be. What depends on the state of a block, as an expired client does, the block decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from causeway.model.errors import InvalidInput
from causeway.model.frame import Frame, repeated_text
from causeway.model.ingress_call import CALL_METHOD, decode_calls
from causeway.model.ledger import Kind
from causeway.protocols.contract import NO_HOST, Tick
from causeway.protocols.ibc.envelope import CALL_BYTES
from causeway.protocols.ibc.errors import Refusal
from causeway.protocols.ibc.kernel import IbcKernel
from causeway.protocols.ibc.messages.send import CHECKS, Requests
from causeway.protocols.messages import blank_messages

LASTING = (
    Refusal.UnregisteredDestination,
    Refusal.UnsupportedType,
    Refusal.PermissionDenied,
    Refusal.InvalidPacket,
)
"""The refusals of ``IBCsend`` that a call gets in every block, if it gets them in one."""


def require_possible(row: Mapping[str, Any], kernel: IbcKernel, connections: Frame) -> None:
    """Refuse a message that no block could carry out.

    ``row``: of ``INGRESS_SCHEMA``; ``connections``: those of its zone, as its state has them.

    Raises:
        InvalidInput: its program is not on its chain, or none is installed there; or it asks for a call that always is
            refused (IBC reference 3.2).
    """
    zones = kernel.zones
    program = np.array([row["receiver"]], dtype=np.uint64)
    chain = int(zones.positions_of(np.array([row["chain"]], dtype=np.uint64))[0])
    if int(zones.host_of(program)[0]) != chain:
        raise InvalidInput(f"content: to: no program {row['receiver']} is on {zones.names[chain]}")
    if not kernel.programs.installed(program)[0]:
        raise InvalidInput(f"content: to: nothing is installed as program {row['receiver']}: nobody takes the message")
    if row["method"] != CALL_METHOD:
        return
    calls = decode_calls(pa.array([row["payload"]], pa.binary()))
    if calls.valid[0]:
        _require_call(program, calls.receivers, calls.methods[0].as_py(), calls.bodies, kernel, connections)


def _require_call(
    sender: Any, receiver: Any, method: str, body: pa.BinaryArray, kernel: IbcKernel, connections: Frame
) -> None:
    zones = kernel.zones
    chain, destination = (int(zones.host_of(end)[0]) for end in (sender, receiver))
    if destination == NO_HOST:
        raise InvalidInput(f"content: call.receiver: no program {receiver[0]} is on any chain")
    if destination in zones.own and not kernel.programs.installed(receiver)[0]:
        raise InvalidInput(f"content: call.receiver: nothing is installed as program {receiver[0]}")
    if chain == destination:
        return
    columns = {"sender": sender, "receiver": receiver, "method": repeated_text(method, 1), "payload": body}
    rows = blank_messages(1, kind=np.full(1, Kind.REQUEST, dtype=np.uint8), **columns)
    context = kernel.context(np.array([chain], dtype=np.uint32), Tick(0, 0))
    requests = Requests(rows, kernel.state({"connections": connections}), context)
    failed = [check.refusal for check in CHECKS if check.refusal in LASTING and not check.holds(requests)[0]]
    if not failed:
        return
    if failed[0] == Refusal.InvalidPacket:
        envelope, most = CALL_BYTES + len(method.encode()), kernel.options.max_data_bytes
        text = f"{len(body[0].as_py())} bytes; to another chain at most {max(most - envelope, 0)} are allowed"
        why = f"options.max_data_bytes is {most}, of which a call with this method takes {envelope} itself"
        raise InvalidInput(f"content: call.text, call.hex: {text}: {why}")
    ends, kind = f"{zones.names[chain]} and {zones.names[destination]}", zones.types[int(requests.types[0])]
    raise InvalidInput(
        {
            Refusal.UnregisteredDestination: f"content: call.receiver: {ends} are not connected",
            Refusal.UnsupportedType: f"content: call.method: {zones.names[chain]} has no packets of type {kind}",
            Refusal.PermissionDenied: f"content: call.method: program {sender[0]} may not send packets of type {kind}",
        }[failed[0]]
    )
