"""Metrics for Prometheus: all are computed from committed state, so they survive restarts."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from causeway.service.endpoint import Endpoint


class LakeCollector(Collector):
    """The metrics of a lake at its last height. ``waiting``: messages that wait for a block."""

    def __init__(self, endpoint: Endpoint, waiting: int) -> None:
        self._endpoint, self._waiting = endpoint, waiting

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics."""
        views = self._endpoint.views
        height = views.height()
        yield GaugeMetricFamily("causeway_height", "Last committed height.", height)
        yield GaugeMetricFamily(
            "causeway_block_time_seconds", "Block time of the last height.", views.time(height) / 1e9
        )
        yield GaugeMetricFamily("causeway_mempool_messages", "Messages that wait for a block.", self._waiting)
        yield from self._endpoint.metrics(height)


def lake_metrics(endpoint: Endpoint, waiting: int) -> tuple[bytes, str]:
    """Return the metrics of a lake in the text form of Prometheus, and its media type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(LakeCollector(endpoint, waiting))
    return generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4
