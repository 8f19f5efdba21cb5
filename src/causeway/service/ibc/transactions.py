"""Validation of relayers' transactions and users' messages on submission.

A lake's time is a block a tick. A header with a later time moves the clock forward, so that an effect is never
earlier than its cause: the next block has the first tick whose time is not below the header's. The client must
verify the header first, and the clock's movement is bounded (``service.node.node``). Transactions without
remaining effect are recognized before they cost fees (IBC reference X-10).

A user's message that no block could execute is refused at once, with the field: by the fixed facts of a lake
such as hosts, connections, packet types, and maximum sizes. State-dependent refusals are left to the block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from causeway_proofs.errors import InvalidInput, ProofError
from causeway_proofs.protobuf import parse_canonical
from causeway_proofs.tendermint.light_client import LightClient
from causeway_proofs.tendermint.trust import HeaderUpdate, TrustOptions, decode_header_update
from causeway_proofs.wire import ibc_queue_pb2 as wire

from causeway.core.frame import Frame, repeat_text
from causeway.core.ingress_call import CALL_METHOD, decode_calls
from causeway.core.vocabulary import Kind
from causeway.protocols.contract import NO_HOST, Tick
from causeway.protocols.ibc.calls.send import CHECKS, SendRequests
from causeway.protocols.ibc.errors import IbcError, Refusal
from causeway.protocols.ibc.kernel import IbcKernel
from causeway.protocols.ibc.keys import KeyPart, QueuePurpose, parse_key
from causeway.protocols.ibc.packets import CALL_BYTES, decode_position
from causeway.protocols.ibc.relay.accounts import OTHERS, OUTSIDER
from causeway.protocols.shared.limits import MAX_CALLS, MAX_TRANSACTION_BYTES
from causeway.protocols.shared.messages import blank_messages
from causeway.service.ibc.relay_state import LaneView, lane_view
from causeway.service.ibc.routes import ZoneViews
from causeway.service.node.endpoint import require_installed
from causeway.service.node.mempool import PendingMessage


def is_redundant(transaction: wire.Transaction, chain: str, views: ZoneViews) -> bool:
    """Return True if the last height already has all effects of a transaction.

    An unreadable or foreign call does not count as redundant: a block refuses it by name.

    Args:
        transaction: The transaction.
        chain: Name of the chain.
        views: Views of the lake.
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
        return False  # evidence is never dropped
    if kind == "update":
        # A different header of a trusted height is evidence.
        offered = decode_header_update(submit.header).signed_header.header
        return any((header.height, header.header_hash) == (offered.height, offered.hash) for header in lane.trusted)
    key = parse_key(submit.key)
    if kind == "receive":
        return (key.purpose, key.part) == (QueuePurpose.SEND, KeyPart.INDEX) and not lane.receipt.lacks(key.index)
    if kind == "receipt":
        return (key.purpose, key.part) == (QueuePurpose.RECEIPT, KeyPart.INDEX) and key.index < lane.send.head
    return kind == "cleanup" and decode_position(submit.value) <= lane.receipt.head


@dataclass(frozen=True)
class RelayTransaction:
    """Transaction of relayer ``user`` for ``chain`` (``service.node.endpoint.Submission``)."""

    views: ZoneViews
    chain: str
    user: int
    encoded: bytes
    content: wire.Transaction

    @classmethod
    def read(cls, views: ZoneViews, chain: str, user: int, encoded: bytes) -> RelayTransaction:
        """Decode a transaction (protobuf ``causeway.ibc.Transaction``).

        Args:
            views: Views of the lake.
            chain: Name of the chain.
            user: Number of the relayer.
            encoded: The transaction.

        Raises:
            InvalidInput: The relayer's number or the transaction is invalid.
        """
        if not 0 <= user < OTHERS - OUTSIDER:
            raise InvalidInput(f"relayer: {user}: allowed are numbers below {OTHERS - OUTSIDER}")
        if len(encoded) > MAX_TRANSACTION_BYTES:
            raise InvalidInput(f"transaction: {len(encoded)} bytes; at most {MAX_TRANSACTION_BYTES} are allowed")
        try:
            content = parse_canonical(wire.Transaction, encoded, "transaction")
        except ProofError as error:
            raise InvalidInput(f"transaction: {error}") from None
        if not 0 < len(content.calls) <= MAX_CALLS:
            raise InvalidInput(f"transaction: {len(content.calls)} calls; allowed: 1 to {MAX_CALLS}")
        return cls(views, chain, user, encoded, content)

    def nothing_left(self) -> bool:
        """Return True if the last height already has all effects."""
        return is_redundant(self.content, self.chain, self.views)

    def message(self, chain: int) -> PendingMessage:
        """Convert the transaction to a pending message for a chain."""
        calls = len(self.content.calls)
        return PendingMessage(chain, self.user, self.encoded, calls=calls, not_before=self._first_tick())

    def _first_tick(self) -> int:
        """Return the first tick at which none of its headers is in the future."""
        clients: dict[str, LightClient | None] = {}
        first = 0
        for call in self.content.calls:
            if call.WhichOneof("call") == "update" and call.update.remote in self.views.external:
                remote = call.update.remote
                if remote not in clients:
                    clients[remote] = self._client(remote)
                first = max(
                    first, -(-self._verified_time(clients[remote], call.update) // self.views.opened.tick_ns) - 1
                )
        return first

    def _client(self, remote: str) -> LightClient | None:
        """Return the chain's client of a remote zone at the last height, or None."""
        try:
            lane = lane_view(self.views.lane(self.chain, remote, None))
        except InvalidInput:
            return None
        return LightClient(TrustOptions(remote, self.views.options.trusting_ns), lane.trusted, lane.state == "frozen")

    def _verified_time(self, client: LightClient | None, update: wire.UpdateHeader) -> int:
        """Return the time (ns) of a header that the client accepts at that time, 0 for others.

        The client then trusts it, so that the transaction's next header can build on it.
        """
        if client is None:
            return 0
        try:
            offered = decode_header_update(update.header)
            header = offered.signed_header.header
            base = client.trusted_below(header.height)
            built = HeaderUpdate.on(base.height, offered.trusted_validators, offered.signed_header, offered.validators)
            client.update(built, max(self.views.time(self.views.height()), header.time))
        except ProofError:
            return 0
        return header.time


LASTING = (
    Refusal.UnregisteredDestination,
    Refusal.UnsupportedType,
    Refusal.PermissionDenied,
    Refusal.InvalidPacket,
)
"""Refusals of ``IBCsend`` that do not depend on the block."""


def validate_message(row: Mapping[str, Any], kernel: IbcKernel, connections: Frame) -> None:
    """Reject a message that no block could execute.

    Args:
        row: The message, a row of ``INGRESS_SCHEMA``.
        kernel: Kernel of the network.
        connections: Connections of its zone, from the zone's state.

    Raises:
        InvalidInput: The program is not on the chain or not installed, or the message makes a call that is always
            refused (IBC reference 3.2).
    """
    require_installed(row, kernel.zones, kernel.programs)
    if row["method"] != CALL_METHOD:
        return
    calls = decode_calls(pa.array([row["payload"]], pa.binary()))
    if calls.valid[0]:
        program = np.array([row["receiver"]], dtype=np.uint64)
        _require_possible_call(program, calls.receivers, calls.methods[0].as_py(), calls.bodies, kernel, connections)


def _require_possible_call(
    sender: Any, receiver: Any, method: str, body: pa.BinaryArray, kernel: IbcKernel, connections: Frame
) -> None:
    zones = kernel.zones
    chain, destination = (int(zones.host_of(end)[0]) for end in (sender, receiver))
    if destination == NO_HOST:
        raise InvalidInput(f"content: call.receiver: no program {receiver[0]} is on any chain")
    if destination in zones.own and not kernel.programs.installed(receiver)[0]:
        raise InvalidInput(f"content: call.receiver: no program is installed as number {receiver[0]}")
    if chain == destination:
        return
    columns = {"sender": sender, "receiver": receiver, "method": repeat_text(method, 1), "payload": body}
    rows = blank_messages(1, kind=np.full(1, Kind.REQUEST, dtype=np.uint8), **columns)
    context = kernel.context(np.array([chain], dtype=np.uint32), Tick(0, 0))
    requests = SendRequests(rows, kernel.state({"connections": connections}), context)
    failed = [check.refusal for check in CHECKS if check.refusal in LASTING and not check.holds(requests)[0]]
    if not failed:
        return
    if failed[0] == Refusal.InvalidPacket:
        envelope, most = CALL_BYTES + len(method.encode()), kernel.options.max_data_bytes
        text = f"{len(body[0].as_py())} bytes; to another chain at most {max(most - envelope, 0)} are allowed"
        hint = f"options.max_data_bytes is {most}, of which a call with this method takes {envelope} itself"
        raise InvalidInput(f"content: call.text, call.hex: {text}: {hint}")
    ends, packet_type = f"{zones.names[chain]} and {zones.names[destination]}", zones.types[int(requests.types[0])]
    raise InvalidInput(
        {
            Refusal.UnregisteredDestination: f"content: call.receiver: {ends} are not connected",
            Refusal.UnsupportedType: f"content: call.method: {zones.names[chain]} has no packets of type {packet_type}",
            Refusal.PermissionDenied: (
                f"content: call.method: program {sender[0]} may not send packets of type {packet_type}"
            ),
        }[failed[0]]
    )
