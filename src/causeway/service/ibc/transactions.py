"""Transactions of relayers, before they wait for a block: their bounds, and when a block may have them.

Time on a lake's chains is the lake's own: a block a tick. A header of another lake's zone that was signed later than
that by its zone's clock moves the clock on, so that whatever has an effect here has its time after its cause: the next
block's tick is the first whose time is not below the header's. It must be verified first by the client that it is for;
how far the clock moves is bounded (``service.clock``).
"""

from __future__ import annotations

from dataclasses import dataclass

from causeway.model.errors import InvalidInput
from causeway.proofs.errors import ProofError
from causeway.proofs.protobuf import parse_canonical
from causeway.proofs.tendermint.light_client import LightClient
from causeway.proofs.tendermint.trust import TrustOptions
from causeway.proofs.tendermint.update import HeaderUpdate, decode_header_update
from causeway.proofs.wire import ibc_queue_pb2 as wire
from causeway.protocols.ibc.fees import OTHERS, OUTSIDER
from causeway.protocols.limits import MAX_CALLS, MAX_TRANSACTION_BYTES
from causeway.service.ibc.lanes import lane_view
from causeway.service.ibc.redundancy import nothing_left
from causeway.service.ibc.views import Views
from causeway.service.mempool import Message


@dataclass(frozen=True)
class RelayTransaction:
    """A transaction for ``chain`` by the relayer with the number ``user`` (``service.endpoint.Submission``)."""

    views: Views
    chain: str
    user: int
    encoded: bytes
    content: wire.Transaction

    @classmethod
    def read(cls, views: Views, chain: str, user: int, encoded: bytes) -> RelayTransaction:
        """Return a transaction (protobuf ``causeway.ibc.Transaction``).

        Raises:
            InvalidInput: the relayer's number is none, or it is not a transaction.
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
        """Return whether all that the transaction asks of its chain has happened by its last height."""
        return nothing_left(self.content, self.chain, self.views)

    def message(self, chain: int) -> Message:
        """Return the transaction as what waits for a block of the chain with a number."""
        calls = len(self.content.calls)
        return Message(chain, self.user, self.encoded, calls=calls, not_before=self._first_tick())

    def _first_tick(self) -> int:
        """Return the first tick in whose block the headers in the transaction are none of the future."""
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
        """Return the chain's client of a remote zone as it is at the last height, None where there is none."""
        try:
            lane = lane_view(self.views.lane(self.chain, remote, None))
        except InvalidInput:
            return None
        return LightClient(TrustOptions(remote, self.views.options.trusting_ns), lane.trusted, lane.state == "frozen")

    def _verified_time(self, client: LightClient | None, update: wire.UpdateHeader) -> int:
        """Return the time (ns) of a header that the client takes, once it is time, 0 for any other.

        The client trusts it then, so that the next header of the transaction can build on it.
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
