"""IBC part of a served lake: transactions, addresses, metrics (IBC reference X-14)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from causeway.network.opened_lake import OpenedLake
from causeway.protocols.ibc.kernel import IbcKernel
from causeway.protocols.ibc.relay.accounts import COUNTS
from causeway.service.http.requests import Address
from causeway.service.ibc.answers import ZoneStatusAnswer
from causeway.service.ibc.routes import ZoneViews, addresses
from causeway.service.ibc.transactions import RelayTransaction, validate_message
from causeway.service.node.endpoint import Endpoint

LANE = ("chain", "counterparty", "queue")


def collect_metrics(views: ZoneViews, height: int) -> Iterable[Metric]:
    """Yield the metrics of a lake of zones at a height."""
    yield from _queues(views, height)
    yield from _accounts(views, height)


def _queues(views: ZoneViews, height: int) -> Iterable[Metric]:
    length = GaugeMetricFamily("causeway_queue_length", "Indices from head to tail.", labels=LANE)
    oldest = GaugeMetricFamily("causeway_queue_oldest_index", "Index of the oldest entry.", labels=LANE)
    blocks = GaugeMetricFamily("causeway_queue_oldest_age_blocks", "Age of the oldest entry.", labels=LANE)
    seconds = GaugeMetricFamily(
        "causeway_queue_oldest_age_seconds", "Age of the oldest entry in block time.", labels=LANE
    )
    advance = GaugeMetricFamily(
        "causeway_queue_last_push_height", "Height of the newest entry that is left.", labels=LANE
    )
    expires = GaugeMetricFamily(
        "causeway_client_expires_seconds", "Block time until the client of counterparty expires.", labels=LANE[:2]
    )
    active = GaugeMetricFamily("causeway_client_active", "1: active, 0: frozen or expired.", labels=LANE[:2])
    for chain, counterparty in _connections(views):
        lane = views.lane(chain, counterparty, height)
        client = lane["client"]
        expires.add_metric([chain, counterparty], client["expires_in"] / 1e9)
        usable = client["state"] != "frozen" and client["expires_in"] > 0
        active.add_metric([chain, counterparty], float(usable))
        for name in ("send", "receipt"):
            queue, labels = lane[name], [chain, counterparty, name]
            length.add_metric(labels, queue["tail"] - queue["head"])
            if queue["entries"]:
                index, _, pushed = queue["entries"][0]
                oldest.add_metric(labels, index)
                if pushed is not None:
                    blocks.add_metric(labels, height - pushed)
                    seconds.add_metric(labels, (lane["time"] - views.time(pushed)) / 1e9)
                if queue["entries"][-1][2] is not None:
                    advance.add_metric(labels, queue["entries"][-1][2])
    yield from (length, oldest, blocks, seconds, advance, expires, active)


def _accounts(views: ZoneViews, height: int) -> Iterable[Metric]:
    families = {
        name: CounterMetricFamily(f"causeway_relayer_{name}", ACCOUNTS[name], labels=["chain", "relayer"])
        for name in COUNTS
    }
    for chain in views.own():
        for account in views.relayers(chain, height)["relayers"]:
            relayer = str(account.get("name", account.get("number")))
            for name, family in families.items():
                family.add_metric([chain, relayer], account[name])
    yield from families.values()


def _connections(views: ZoneViews) -> list[list[str]]:
    connections: Any = views.status()["connections"]
    found: list[list[str]] = connections
    return found


ACCOUNTS = {
    "headers": "Header updates that a relayer submitted.",
    "submitted": "Messages that a relayer submitted with a proof.",
    "accepted": "Messages of a relayer that had an effect.",
    "redundant": "Messages of a relayer that others had brought before, or that came before their turn.",
    "refused": "Messages of a relayer that were refused for anything else.",
    "fees": "Fees that a relayer paid.",
    "wasted": "Fees that a relayer paid for what had no effect.",
}


class IbcEndpoint(Endpoint):
    """Served lake of zones."""

    status_answer = ZoneStatusAnswer
    views: ZoneViews

    def __init__(self, opened: OpenedLake, kernel: IbcKernel) -> None:
        self.views, self._kernel = ZoneViews(opened), kernel

    def submission(self, chain: str, user: int, transaction: bytes) -> RelayTransaction:
        """Decode a relayer's transaction (protobuf ``causeway.ibc.Transaction``).

        Raises:
            InvalidInput: The transaction or the relayer's number is invalid.
        """
        return RelayTransaction.read(self.views, chain, user, transaction)

    def require_possible(self, row: Mapping[str, Any]) -> None:
        """Reject a user's message that no block could execute.

        Raises:
            InvalidInput: The message is impossible; the text names the field.
        """
        validate_message(row, self._kernel, self.views.connection_rows(row["chain"]))

    def next_planned(self, tick: int) -> int | None:
        """Return the first tick from ``tick`` on with a planned fault, or None."""
        return self._kernel.next_planned(tick)

    def addresses(self) -> list[Address]:
        """Return the addresses of headers, queues, proofs and relayers' accounts."""
        return addresses(self.views)

    def metrics(self, height: int) -> Iterable[Metric]:
        """Yield metrics of queues, clients and relayers' accounts."""
        return collect_metrics(self.views, height)
