"""What Prometheus is told by a node process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from causeway.protocols.icmp.errors import Verdict

PREFIX = "causeway_gossip_"

GAUGES = {
    "leaves": "Leaves of the relay chain that the node has.",
    "peers": "Peers that are connected.",
    "expected": "Queues that the node's leaves list as unrouted.",
    "there": "Of these, how many are in the pool.",
    "pool": "Queues in the pool.",
    "pool_bytes": "Bytes of their messages.",
    "waiting": "Messages of peers that wait for a step.",
}
COUNTERS = {
    "got": "Queues that were new in the pool.",
    "sent": "Queues that went to peers.",
    "purged": "Queues that the pool gave up.",
    "passed": "Queues that were routed before the node had them.",
    "bytes_in": "Bytes of messages in queues from peers.",
    "bytes_out": "Bytes of packets with queues that went to peers.",
    "steps": "Steps.",
}


class NodeCollector(Collector):
    """The metrics of a node. ``standing``: gives what it last said of itself, by name; verdicts stand under their
    names, and under ``refused`` how often connections were refused or ended, by why."""

    def __init__(self, standing: Callable[[], Mapping[str, int]], refused: Callable[[], Mapping[str, int]]) -> None:
        self._standing, self._refused = standing, refused

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics."""
        standing = self._standing()
        for name, text in GAUGES.items():
            yield GaugeMetricFamily(PREFIX + name, text, standing.get(name, 0))
        for name, text in COUNTERS.items():
            yield CounterMetricFamily(PREFIX + name, text, standing.get(name, 0))
        verdicts = CounterMetricFamily(PREFIX + "verdicts", "Verdicts on what peers sent.", labels=["verdict"])
        for verdict in Verdict:
            verdicts.add_metric([verdict.name], standing.get(verdict.name, 0))
        yield verdicts
        ended = CounterMetricFamily(PREFIX + "connections_ended", "Connections refused or ended.", labels=["why"])
        for why, count in sorted(self._refused().items()):
            ended.add_metric([why], count)
        yield ended
