"""One gossip node as a process: ``python -m causeway.gossip.processes.node_process FD``.

The parent (``network.py``) holds the other end of the socket pair ``FD``. It sends the settings,
the addresses of peers and the relay chain client's updates. The process ends when that end closes.
The module also exports the node's Prometheus metrics and detects stalls of the process (stopped by
a signal, or starved of processor time) during which its peers went on.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from causeway_proofs.errors import InvalidInput
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from causeway.gossip.options import GossipOptions
from causeway.gossip.processes.connection import Bounds, PeerConnection, message_limit
from causeway.gossip.processes.control import Control, decode_leaves
from causeway.gossip.processes.links import PeerLink, PeerLinks
from causeway.gossip.processes.node import GossipNode
from causeway.gossip.processes.trace import ProcessRun, TraceWriter
from causeway.protocols.relay_chain.errors import PeerVerdict
from causeway.service.http.metrics_port import serve_metrics

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
    """Prometheus metrics of a node.

    Args:
        standing: Source of the figures by name, verdicts among them.
        refused: Source of the counts of refused or ended connections, by reason.
    """

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
        for verdict in PeerVerdict:
            verdicts.add_metric([verdict.name], standing.get(verdict.name, 0))
        yield verdicts
        ended = CounterMetricFamily(PREFIX + "connections_ended", "Connections refused or ended.", labels=["why"])
        for why, count in sorted(self._refused().items()):
            ended.add_metric([why], count)
        yield ended


LATE = 5.0
"""Seconds of a stall after which pending packets are dropped unjudged."""


class StallClock:
    """Detector of stalls: wall time minus processor time.

    Processor time does not count, so a peer that keeps a node busy cannot make it drop connections.

    Args:
        most: Longest gap in seconds that is no stall.
        clock: Source of wall time in seconds.
        worked: Source of processor time in seconds.
    """

    def __init__(
        self,
        most: float = LATE,
        clock: Callable[[], float] = time.monotonic,
        worked: Callable[[], float] = time.process_time,
    ) -> None:
        self._most, self._clock, self._worked = most, clock, worked
        self._idle = clock() - worked()

    def detect_stall(self) -> bool:
        """Return True if the process stalled for more than ``most`` seconds since the last call.

        An idle process must call it at least as often.
        """
        before, self._idle = self._idle, self._clock() - self._worked()
        return self._idle - before > self._most


TOGETHER = 0.004
"""Seconds after the first arrival in which further arrivals join the same step."""

BEAT = LATE / 10
"""Interval in seconds at which an idle node checks for a stall."""

REFUSED = (PeerVerdict.TooManyPeers.name, PeerVerdict.Banned.name)
"""Verdicts that disconnect a peer without its fault."""

STATUS = 0.1
"""Seconds between two reports."""


class NodeProcess:
    """Node with its sockets.

    Args:
        control: Channel to the parent.
        settings: First message of the parent.
        standstill: Detector of stalls; None for the default.
    """

    def __init__(self, control: Control, settings: Mapping[str, Any], standstill: StallClock | None = None) -> None:
        self._control, self._standstill = control, standstill or StallClock()
        self._stops = 0
        self._epoch: float = settings["epoch"]
        self._metrics_port: int | None = settings["metrics"]
        options = GossipOptions.model_validate(settings["options"])
        now = self._now()
        life = ProcessRun(settings["node"], settings["life"], now)
        self._trace = None if settings["trace"] is None else TraceWriter(Path(settings["trace"]), life)
        record = self._trace.step if self._trace is not None else lambda inputs, got, bodies: None
        self._node = GossipNode(life.node, options, now, record)
        self._work = asyncio.Event()
        self._links = PeerLinks(
            life.node,
            settings["network"],
            {peer: PeerLink(secret, dials) for peer, secret, dials in settings["links"]},
            message_limit(options),
            options.ban_time / 1_000,
            Bounds.for_pool(options.max_pool_bytes),
            self._work.set,
            self._joined,
            self._left,
        )
        self._standing: dict[str, int] = {}
        self._steps = 0

    def _now(self) -> int:
        return max(0, int((time.monotonic() - self._epoch) * 1_000))

    def _joined(self, connection: PeerConnection) -> None:
        self._node.joined(connection.peer, connection.session)
        self._work.set()

    def _left(self, connection: PeerConnection) -> None:
        self._node.left(connection.peer)
        self._work.set()

    async def run(self) -> None:
        """Run until the parent ends or asks to stop."""
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def fail(_loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
            # OS errors, e.g. a refused connection, are transient and retried; any other error is a bug.
            if not failed.done() and not isinstance(context.get("exception"), OSError):
                failed.set_exception(context.get("exception") or RuntimeError(context["message"]))

        asyncio.get_running_loop().set_exception_handler(fail)
        collector = NodeCollector(lambda: self._standing, lambda: dict(self._links.refused))
        with serve_metrics(collector, self._metrics_port) as metrics:
            port = await self._links.listen()
            await self._control.say({"ready": port, "metrics": metrics})
            work = [asyncio.create_task(one) for one in (self._hear(), self._run_steps(), self._report())]
            try:
                done, _ = await asyncio.wait([*work, failed], return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    with contextlib.suppress(EOFError, OSError, TimeoutError):  # whoever started this is gone
                        await one
            finally:
                for one in work:
                    one.cancel()
                await self._links.close()
                if self._trace is not None:
                    self._trace.close()

    async def _hear(self) -> None:
        while True:
            message = await self._control.heard()
            if "told" in message:
                self._node.record_leaves(decode_leaves(message["told"]))
                self._work.set()
            if "peer" in message:
                self._links.found(*message["peer"])
            if message.get("now") == self._stops:
                self._links.resume()
            if "stop" in message:
                return

    async def _run_steps(self) -> None:
        while True:
            wait = max(0, self._node.purge_due - self._now()) / 1_000
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(wait, BEAT)):
                    await self._work.wait()
            await asyncio.sleep(TOGETHER)
            if self._standstill.detect_stall():
                await self._recover_from_stall()
            if self._work.is_set() or self._node.purge_due <= self._now():
                self._work.clear()
                self._step()

    async def _recover_from_stall(self) -> None:
        """Drop packets that arrived during a stall and disconnect all peers.

        Verified under stale leaves, those packets would count against their senders. Peers reconnect and
        resend the listed queues once this node knows the current leaves.
        """
        self._stops += 1
        self._links.pause("late")
        await self._control.say({"late": self._stops})

    def _step(self) -> None:
        """Run a step with the admitted messages; the rest waits for the next step."""
        connections = self._links.connections
        waiting = sorted((order, peer, len(body)) for peer, one in connections.items() for order, body in one.inbox)
        admitted = [
            row for row, good in zip(waiting, self._node.admits([row[1:] for row in waiting]), strict=True) if good
        ]
        counts: dict[int, int] = {}
        for _, peer, _ in admitted:
            counts[peer] = counts.get(peer, 0) + 1
        if len(admitted) < len(waiting):
            self._work.set()
        heard = sorted(
            (order, peer, body) for peer, count in counts.items() for order, body in connections[peer].pop_bodies(count)
        )
        frames = self._node.step(self._now(), [(peer, body) for _, peer, body in heard])
        self._steps += 1
        for peer, body in frames.sends:
            if peer in connections:
                connections[peer].send(body)
        for peer, why in frames.disconnected:
            (self._links.end if why in REFUSED else self._links.exclude_peer)(peer, why)

    async def _report(self) -> None:
        reported_steps = -1
        while True:
            if reported_steps == self._steps:
                await asyncio.sleep(STATUS)
                continue
            reported_steps = self._steps
            self._standing = {
                **self._node.counts,
                **self._node.standing(),
                "waiting": sum(len(one.inbox) for one in self._links.connections.values()),
                "steps": self._steps,
            }
            status = {
                "standing": self._standing,
                "leaves": self._node.leaves(),
                "prefixes": self._node.prefixes(),
                "refused": dict(self._links.refused),
                "put_out": [[peer, why, count] for (peer, why), count in sorted(self._links.put_out.items())],
            }
            await self._control.say({"status": status})
            await asyncio.sleep(STATUS)


async def _main(descriptor: int) -> None:
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=descriptor))
    control = Control(reader, writer)
    try:
        settings = await control.heard()
        await NodeProcess(control, settings).run()
    except InvalidInput as error:
        await control.say({"failed": str(error)})
    except (EOFError, OSError):
        return  # whoever started this is gone
    finally:
        control.close()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1])))
