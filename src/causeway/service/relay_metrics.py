"""What Prometheus is told by a relay process, and the port at which it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from causeway.model.errors import InvalidInput
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
                for error, count in getattr(item, name).items():
                    named.add_metric([str(item.direction), error], count)
            yield named


@contextmanager
def serving(collector: Collector, port: int | None) -> Iterator[None]:
    """Serve a relay process's metrics at a port of this machine while the body runs; nothing without a port.

    Raises:
        InvalidInput: the port cannot be had.
    """
    if port is None:
        yield
        return
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    try:
        server, thread = start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as error:
        raise InvalidInput(f"--metrics-port: {port} cannot be had: {error.strerror or error}") from None
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
