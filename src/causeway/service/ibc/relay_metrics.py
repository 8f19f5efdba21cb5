"""What Prometheus is told by a relay process (IBC reference X-14).

The backlog is computed from both chains, and what became of what was submitted is read from the fee account on the
chain: neither is lost with the process. What only the process itself did is counted from its start.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from causeway.service.ibc.relaying import Relaying
from causeway.service.relay_metrics import ProgressCollector

GAUGES = {
    "backlog": "Packets and receipts that are to be brought, by both chains.",
    "oldest_age": "Age of the oldest of them in blocks of the chain it is from.",
    "moved_at": "Height of the last block of the target that has what this process submitted.",
    "expires_in": "Block time until the target's client expires, in seconds.",
}
COUNTERS = {
    "passes": "Looks at both chains.",
    "transactions": "Transactions handed over.",
    "messages": "Messages with proofs handed over.",
    "headers": "Header updates handed over.",
    "without_header": "Passes that needed no header update of their own.",
}
BY_NAME = {"errors": "Errors of requests.", "refused": "Calls that the target refused."}


class RelayCollector(ProgressCollector):
    """The metrics of a relay process."""

    def __init__(self, relaying: Relaying) -> None:
        super().__init__(relaying.progress, GAUGES, COUNTERS, BY_NAME)
        self._relaying = relaying

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics."""
        yield from super().collect()
        everything = [(str(item.direction), item) for item in self._relaying.progress]
        oldest = GaugeMetricFamily("causeway_relay_oldest_index", "Index of the oldest of them.", labels=["direction"])
        for way, item in everything:
            if item.oldest_index is not None:
                oldest.add_metric([way], item.oldest_index)
        yield oldest
        account = CounterMetricFamily(
            "causeway_relay_account", "The fee account on the target.", labels=["direction", "relayer", "what"]
        )
        for way, item in everything:
            for what, count in item.account.items():
                account.add_metric([way, self._relaying.account(item.direction), what], count)
        yield account
