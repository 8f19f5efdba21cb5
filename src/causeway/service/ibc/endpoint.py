"""What a node needs to know of IBC: its transactions, its addresses, its metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client.core import Metric
from starlette.routing import BaseRoute

from causeway.model.errors import InvalidInput
from causeway.network.opened import OpenedLake
from causeway.protocols.ibc.external import RELAY_PORT
from causeway.service.ibc.metrics import metrics_of
from causeway.service.ibc.routes import Routes
from causeway.service.ibc.transactions import MAX_TRANSACTION_BYTES, RelayTransaction
from causeway.service.ibc.views import Views


class IbcEndpoint:
    """A served lake of zones (``service.endpoint.Endpoint``)."""

    max_transaction_bytes = MAX_TRANSACTION_BYTES

    def __init__(self, opened: OpenedLake) -> None:
        self.views = Views(opened)

    def submission(self, chain: str, user: int, transaction: bytes) -> RelayTransaction:
        """Return a relayer's transaction (protobuf ``causeway.ibc.Transaction``).

        Raises:
            InvalidInput: a relayer's number that is none, or not a transaction.
        """
        return RelayTransaction.read(self.views, chain, user, transaction)

    def check_message(self, row: Mapping[str, Any]) -> None:
        """Refuse what is for the port of relayers: it takes transactions, and no messages."""
        if row["receiver"] == RELAY_PORT:
            raise InvalidInput(f"to: {RELAY_PORT} takes transactions of relayers; submit them as such")

    def routes(self) -> list[BaseRoute]:
        """Return headers, queues, proofs, accounts of relayers."""
        return Routes(self.views).all()

    def metrics(self, height: int) -> Iterable[Metric]:
        """Yield what Prometheus is told of queues, clients and the accounts of relayers."""
        return metrics_of(self.views, height)
