"""What a node needs to know of IBC: its transactions, its addresses, its metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client.core import Metric

from causeway.network.opened import OpenedLake
from causeway.protocols.ibc.kernel import IbcKernel
from causeway.protocols.limits import MAX_TRANSACTION_BYTES
from causeway.service.ibc.answers import StatusAnswer
from causeway.service.ibc.messages import require_possible
from causeway.service.ibc.metrics import metrics_of
from causeway.service.ibc.routes import addresses
from causeway.service.ibc.transactions import RelayTransaction
from causeway.service.ibc.views import Views
from causeway.service.requests import Address


class IbcEndpoint:
    """A served lake of zones (``service.endpoint.Endpoint``)."""

    max_transaction_bytes = MAX_TRANSACTION_BYTES
    status_answer = StatusAnswer
    followed: frozenset[str] = frozenset()
    exchange = None
    """Relay processes carry what goes to other lakes and comes from there."""

    def __init__(self, opened: OpenedLake, kernel: IbcKernel) -> None:
        self.views, self._kernel = Views(opened), kernel

    def submission(self, chain: str, user: int, transaction: bytes) -> RelayTransaction:
        """Return a relayer's transaction (protobuf ``causeway.ibc.Transaction``).

        Raises:
            InvalidInput: a relayer's number that is none, or not a transaction.
        """
        return RelayTransaction.read(self.views, chain, user, transaction)

    def require_possible(self, row: Mapping[str, Any]) -> None:
        """Raise ``InvalidInput`` for a user's message that no block could carry out; it names the field."""
        require_possible(row, self._kernel, self.views.connection_rows(row["chain"]))

    def next_planned(self, tick: int) -> int | None:
        """Return the first tick at or after ``tick`` at which a fault acts of itself, None when none is left."""
        return self._kernel.next_planned(tick)

    def addresses(self) -> list[Address]:
        """Return headers, queues, proofs, accounts of relayers."""
        return addresses(self.views)

    def metrics(self, height: int) -> Iterable[Metric]:
        """Yield what Prometheus is told of queues, clients and the accounts of relayers."""
        return metrics_of(self.views, height)
