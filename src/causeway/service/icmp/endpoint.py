"""Parachain part of a served lake: addresses, metrics, validation; no transactions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from causeway_proofs.errors import InvalidInput
from prometheus_client.core import GaugeMetricFamily, Metric

from causeway.network.opened_lake import OpenedLake
from causeway.protocols.hrmp.kernel import HrmpKernel
from causeway.protocols.icmp.kernel import IcmpKernel
from causeway.service.http.requests import Address
from causeway.service.icmp.answers import ParachainStatusAnswer
from causeway.service.icmp.routes import ChannelViews, EgressViews, addresses
from causeway.service.node.endpoint import Endpoint, Submission, require_installed


class IcmpEndpoint(Endpoint):
    """Served lake of parachains."""

    max_transaction_bytes = 0
    status_answer = ParachainStatusAnswer
    views: ChannelViews | EgressViews

    def __init__(self, opened: OpenedLake, kernel: IcmpKernel | HrmpKernel) -> None:
        channels = isinstance(kernel, HrmpKernel)
        self.views = ChannelViews(opened) if channels else EgressViews(opened)
        self._kernel = kernel

    def submission(self, chain: str, user: int, transaction: bytes) -> Submission:
        """Reject all transactions.

        Raises:
            InvalidInput: Always.
        """
        raise InvalidInput("transaction: icmp has none that are carried: parachains are in their relay chain's lake")

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
        """Return the addresses of the relay chain and of proofs."""
        return addresses(self.views)

    def metrics(self, height: int) -> Iterable[Metric]:
        """Yield metrics of the relay chain at a height: its leaves, and pending queues."""
        blocks = GaugeMetricFamily("causeway_relay_block", "The number of a leaf's block.", labels=("leaf",))
        for leaf, number in self.views.numbers(height):
            blocks.add_metric([str(leaf)], number)
        help_text = "What waits for a parachain: queues, at the leaf with the lowest number, or messages in channels."
        waiting = GaugeMetricFamily("causeway_queues_waiting", help_text, labels=("chain",))
        for name, count in self.views.waiting(height):
            waiting.add_metric([name], count)
        yield from (blocks, waiting)
