"""XDM part of a served lake: transactions, addresses, metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from causeway_proofs.errors import InvalidInput
from prometheus_client.core import GaugeMetricFamily, Metric

from causeway.network.opened_lake import OpenedLake
from causeway.protocols.xdm.kernel import XdmKernel
from causeway.protocols.xdm.transactions import (
    Blocks,
    Confirmed,
    Receipts,
    RelayedMessages,
    Transaction,
    decode_transaction,
)
from causeway.service.http.requests import Address
from causeway.service.node.endpoint import Endpoint, require_installed
from causeway.service.node.mempool import PendingMessage
from causeway.service.xdm.answers import DomainStatusAnswer
from causeway.service.xdm.routes import DomainViews, addresses


@dataclass(frozen=True)
class CarriedTransaction:
    """Transaction of a carrier (``service.node.endpoint.Submission``)."""

    carrier: int
    encoded: bytes
    content: Transaction

    def nothing_left(self) -> bool:
        """Return False: the block decides on the remaining effect."""
        return False

    def message(self, chain: int) -> PendingMessage:
        """Convert the transaction to a pending message for a chain."""
        return PendingMessage(chain, self.carrier, self.encoded, calls=self.content.calls)


_KINDS = {RelayedMessages: "Messages", Receipts: "Receipts", Blocks: "Blocks", Confirmed: "Confirmed"}
"""The names of the kinds of transactions, those of their encoding."""


class XdmEndpoint(Endpoint):
    """Served lake of domains."""

    status_answer = DomainStatusAnswer
    views: DomainViews

    def __init__(self, opened: OpenedLake, kernel: XdmKernel) -> None:
        self.views, self._kernel = DomainViews(opened, kernel), kernel
        self.followed = frozenset({self.views.consensus} if kernel.network.follows else ())

    def submission(self, chain: str, user: int, transaction: bytes) -> CarriedTransaction:
        """Decode a transaction (SCALE, ``protocols.xdm.transactions``).

        Raises:
            InvalidInput: The transaction is invalid, or of a kind that the chain does not accept.
        """
        content = decode_transaction(transaction)
        accepted: tuple[type, ...] = (RelayedMessages,)
        if chain == self.views.consensus:
            accepted = (Blocks, Confirmed) if chain in self.followed else (RelayedMessages, Receipts)
        if not isinstance(content, accepted):
            allowed = " and ".join(_KINDS[kind] for kind in accepted)
            raise InvalidInput(f"transaction: {_KINDS[type(content)]}; {chain} takes {allowed}")
        return CarriedTransaction(user, transaction, content)

    def require_possible(self, row: Mapping[str, Any]) -> None:
        """Reject a user's message that no block could execute.

        Raises:
            InvalidInput: The message is impossible; the text names the field.
        """
        require_installed(row, self._kernel.network, self._kernel.programs)

    def next_planned(self, tick: int) -> int | None:
        """Return the first tick from ``tick`` on with a planned event, or None."""
        return self._kernel.next_planned(tick)

    def addresses(self) -> list[Address]:
        """Return the addresses of channels, messages, receipts and the consensus chain."""
        return addresses(self.views)

    def metrics(self, height: int) -> Iterable[Metric]:
        """Yield metrics of channels and of the consensus chain at a height."""
        waiting = GaugeMetricFamily(
            "causeway_channel_waiting", "Requests without a response.", labels=("chain", "counterparty", "channel")
        )
        best = GaugeMetricFamily("causeway_consensus_block", "The newest consensus block known.", labels=("chain",))
        names = self.views.opened.names
        for position, foreign, channel, count in self.views.waiting(height):
            waiting.add_metric([names[position], names[foreign], str(channel)], count)
        number = self.views.best(height)
        if number is not None:
            for chain in self.views.own():
                best.add_metric([chain], number)
        yield from (waiting, best)
