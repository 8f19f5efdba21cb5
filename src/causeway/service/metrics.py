"""Metrics for Prometheus: all are computed from committed state, so they survive restarts."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from causeway.service.endpoint import Endpoint
from causeway.service.mempool import Mempool


class LakeCollector(Collector):
    """The metrics of a lake at its last height. ``pool``: the messages that wait for a block."""

    def __init__(self, endpoint: Endpoint, pool: Mempool) -> None:
        self._endpoint, self._pool = endpoint, pool

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics."""
        views = self._endpoint.views
        height = views.height()
        yield GaugeMetricFamily("causeway_height", "Last committed height.", height)
        yield GaugeMetricFamily(
            "causeway_block_time_seconds", "Block time of the last height.", views.time(height) / 1e9
        )
        yield GaugeMetricFamily("causeway_mempool_messages", "Messages that wait for a block.", len(self._pool))
        yield GaugeMetricFamily("causeway_mempool_bytes", "Bytes that wait for a block.", self._pool.size)
        yield from self._endpoint.metrics(height)


def lake_metrics(endpoint: Endpoint, pool: Mempool) -> tuple[bytes, str]:
    """Return the metrics of a lake in the text form of Prometheus, and its media type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(LakeCollector(endpoint, pool))
    return generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4
