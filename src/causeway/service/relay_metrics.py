"""What Prometheus is told by a relay process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from causeway.service.passes import Progress


class ProgressCollector(Collector):
    """The metrics of what a relay process did in each direction.

    Args:
        progress: the directions.
        gauges: numbers of ``progress``, with what they are.
        counters: those that only grow.
        by_name: such counts by name, which is the label ``error``.
    """

    def __init__(
        self,
        progress: Sequence[Progress],
        gauges: Mapping[str, str],
        counters: Mapping[str, str],
        by_name: Mapping[str, str],
    ) -> None:
        self._progress = progress
        self._numbers = ((GaugeMetricFamily, gauges), (CounterMetricFamily, counters))
        self._by_name = by_name

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics."""
        for family, metrics in self._numbers:
            for name, text in metrics.items():
                metric = family(f"causeway_relay_{name}", text, labels=["direction"])
                for item in self._progress:
                    metric.add_metric([str(item.direction)], getattr(item, name))
                yield metric
        for name, text in self._by_name.items():
            named = CounterMetricFamily(f"causeway_relay_{name}", text, labels=["direction", "error"])
            for item in self._progress:
                for error, count in dict(getattr(item, name)).items():  # another thread counts on
                    named.add_metric([str(item.direction), error], count)
            yield named
