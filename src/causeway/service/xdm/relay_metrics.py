"""What Prometheus is told by a relay process between lakes of domains."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from causeway.service.xdm.relaying import Relaying

GAUGES = {
    "left": "Messages, blocks or receipts that are to be brought, by both chains.",
    "moved_at": "Height of the last block of the target that has what this process submitted.",
}
COUNTERS = {
    "passes": "Looks at both chains.",
    "transactions": "Transactions handed over.",
    "messages": "Messages, blocks or receipts handed over.",
}


class RelayCollector(Collector):
    """The metrics of a relay process."""

    def __init__(self, relaying: Relaying) -> None:
        self._relaying = relaying

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics."""
        everything = [(str(item.direction), item) for item in self._relaying.progress]
        for name, text in GAUGES.items():
            gauge = GaugeMetricFamily(f"causeway_relay_{name}", text, labels=["direction"])
            for way, item in everything:
                gauge.add_metric([way], getattr(item, name))
            yield gauge
        for name, text in COUNTERS.items():
            counter = CounterMetricFamily(f"causeway_relay_{name}", text, labels=["direction"])
            for way, item in everything:
                counter.add_metric([way], getattr(item, name))
            yield counter
        errors = CounterMetricFamily("causeway_relay_errors", "Errors of requests.", labels=["direction", "error"])
        for way, item in everything:
            for error, count in item.errors.items():
                errors.add_metric([way, error], count)
        yield errors
