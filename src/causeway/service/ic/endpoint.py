"""What a node needs to know of the Internet Computer: what the lake says of itself, and its exchange with others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from causeway.model.errors import InvalidInput
from causeway.network.opened import OpenedLake
from causeway.proofs.ic.principals import principal_to_text
from causeway.protocols.contract import Tick
from causeway.protocols.ic.ids import subnet_id
from causeway.protocols.ic.kernel import IcKernel
from causeway.protocols.limits import MAX_TRANSACTION_BYTES
from causeway.service.ic.answers import StatusAnswer
from causeway.service.ic.certificates import Certificates
from causeway.service.ic.exchange import XNetExchange
from causeway.service.lake_views import LakeViews
from causeway.service.requests import Address


class SubnetViews(LakeViews):
    """The views of a lake of subnets."""

    def __init__(self, opened: OpenedLake, kernel: IcKernel) -> None:
        super().__init__(opened)
        self._kernel = kernel

    def status(self) -> dict[str, Any]:
        """Return what the network is, and how far it has come."""
        numbers = self._kernel.numbers().tolist()
        found = super().status()
        for position, chain in enumerate(found["chains"]):
            chain["id"] = principal_to_text(subnet_id(numbers[position]))
            certified = self._kernel.options.certified
            chain["public_key"] = self._kernel.certifier(Tick(0, 0)).public_key(position).hex() if certified else None
        return found


class IcEndpoint:
    """A served lake of subnets (``service.endpoint.Endpoint``)."""

    max_transaction_bytes = MAX_TRANSACTION_BYTES
    status_answer = StatusAnswer
    followed: frozenset[str] = frozenset()

    def __init__(self, opened: OpenedLake, kernel: IcKernel) -> None:
        self.views, self._kernel = SubnetViews(opened, kernel), kernel
        self.exchange = XNetExchange(opened, kernel)

    def submission(self, chain: str, user: int, transaction: bytes) -> NoReturn:
        """Refuse a transaction: subnets pull from each other, and nobody carries to them.

        Raises:
            InvalidInput: always.
        """
        raise InvalidInput(
            f"transaction: {chain} is a subnet, which pulls what other subnets serve; nobody carries to it"
        )

    def require_possible(self, row: Mapping[str, Any]) -> None:
        """Let every message from a user pass: a canister answers what it cannot carry out with an event."""

    def next_planned(self, tick: int) -> int | None:
        """Return the first tick at or after ``tick`` at which a fault acts of itself, None when none is left."""
        return self._kernel.next_planned(tick)

    def addresses(self) -> Sequence[Address]:
        """Return that of certificates, where subnets certify; the endpoints of streams have addresses of their own."""
        return (Certificates(self.views).address,) if self._kernel.options.certified else ()

    def metrics(self, height: int) -> Iterable[Metric]:
        """Yield what Prometheus is told of pools and of the nodes that are asked."""
        names = {self.exchange.ids[position]: name for position, name in enumerate(self._kernel.chains())}
        pooled = GaugeMetricFamily("causeway_pooled_bytes", "Bytes of pooled slices.", labels=["chain"])
        for position, pool in self.exchange.pools.items():
            pooled.add_metric([names[self.exchange.ids[position]]], pool.size)
        slices = CounterMetricFamily("causeway_pulled_slices", "Slices that were pulled.", labels=["chain", "source"])
        failed = CounterMetricFamily(
            "causeway_pull_failures", "Answers of nodes that were of no use.", labels=["chain", "source", "cause"]
        )
        labels = ["chain", "source"]
        avoided = GaugeMetricFamily("causeway_avoided_nodes", "Nodes that are not asked now.", labels=labels)
        for client in self.exchange.clients():
            for remote, pulled in client.pulled.items():
                ends = [names[client.own], names[remote]]
                slices.add_metric(ends, pulled.slices)
                avoided.add_metric(ends, len(client.bad_nodes(remote)))
                for cause, count in pulled.failures.items():
                    failed.add_metric([*ends, cause], count)
        yield from (pooled, slices, failed, avoided)
