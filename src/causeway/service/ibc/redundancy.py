"""Transactions of relayers in which nothing is left to do, told before anybody pays for them (IBC reference X-10)."""

from __future__ import annotations

from typing import Any

from causeway.model.errors import InvalidInput
from causeway.proofs.errors import ProofError
from causeway.proofs.tendermint.update import decode_header_update
from causeway.proofs.wire import ibc_queue_pb2 as wire
from causeway.protocols.ibc.errors import IbcError
from causeway.protocols.ibc.keys import Part, Purpose, parse_key
from causeway.protocols.ibc.values import decode_position
from causeway.service.ibc.lanes import LaneView, lane_view
from causeway.service.ibc.views import Views


def nothing_left(transaction: wire.Transaction, chain: str, views: Views) -> bool:
    """Return whether all that a transaction asks of a chain has happened by its last height.

    Of what cannot be read, or is no business of the chain, this is not said: a block refuses it by its name.
    """
    lanes: dict[str, LaneView] = {}
    for call in transaction.calls:
        kind = call.WhichOneof("call")
        if kind is None:
            continue
        submit = getattr(call, kind)
        try:
            if submit.remote not in lanes:
                lanes[submit.remote] = lane_view(views.lane(chain, submit.remote, None))
            if not _has_happened(kind, submit, lanes[submit.remote]):
                return False
        except (InvalidInput, IbcError, ProofError):
            return False
    return True


def _has_happened(kind: str, submit: Any, lane: LaneView) -> bool:
    if kind == "misbehaviour":
        return False  # a block says whether it is: evidence is never dropped
    if kind == "update":
        # Another header of a height that is trusted is evidence that the chain contradicts itself.
        offered = decode_header_update(submit.header).signed_header.header
        return any((header.height, header.header_hash) == (offered.height, offered.hash) for header in lane.trusted)
    key = parse_key(submit.key)
    if kind == "receive":
        return (key.purpose, key.part) == (Purpose.SEND, Part.INDEX) and not lane.receipt.lacks(key.index)
    if kind == "receipt":
        return (key.purpose, key.part) == (Purpose.RECEIPT, Part.INDEX) and key.index < lane.send.head
    return kind == "cleanup" and decode_position(submit.value) <= lane.receipt.head
