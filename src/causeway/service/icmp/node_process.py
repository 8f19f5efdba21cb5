"""One node as a process: ``python -m causeway.service.icmp.node_process FD``.

It is started by a network of them (``network.py``), which holds the other end of the socket pair ``FD``: from there
come what it is, its peers' addresses and its relay chain client's news. When that end closes, the process ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from causeway.model.errors import InvalidInput
from causeway.protocols.icmp.errors import Verdict
from causeway.protocols.icmp.gossip.options import GossipOptions
from causeway.service.icmp.connection import Bounds, Connection
from causeway.service.icmp.control import Control, told_of_plain
from causeway.service.icmp.links import Link, Links
from causeway.service.icmp.node import GossipNode
from causeway.service.icmp.node_metrics import NodeCollector
from causeway.service.icmp.standstill import LATE, Standstill
from causeway.service.icmp.trace import TraceWriter
from causeway.service.icmp.trace_records import Life
from causeway.service.icmp.wire import message_limit
from causeway.service.metrics_port import serving

TOGETHER = 0.004
"""Seconds after the first thing that came in which more is waited for, to be taken in the same step."""

BEAT = LATE / 10
"""Seconds after which a node that waits looks whether it stood still."""

REFUSED = (Verdict.TooManyPeers.name, Verdict.Banned.name)
"""Why a peer is disconnected that has done nothing since it came."""

STATUS = 0.1
"""Seconds between two reports."""


class NodeProcess:
    """A node with its sockets. ``settings``: the first message of the process that started it; ``standstill``: says
    whether this process stood still."""

    def __init__(self, control: Control, settings: Mapping[str, Any], standstill: Standstill | None = None) -> None:
        self._control, self._standstill = control, standstill or Standstill()
        self._stops = 0
        self._epoch: float = settings["epoch"]
        self._metrics_port: int | None = settings["metrics"]
        options = GossipOptions.model_validate(settings["options"])
        now = self._now()
        life = Life(settings["node"], settings["life"], now)
        self._trace = None if settings["trace"] is None else TraceWriter(Path(settings["trace"]), life)
        record = self._trace.step if self._trace is not None else lambda taken, got, bodies: None
        self._node = GossipNode(life.node, options, now, record)
        self._work = asyncio.Event()
        self._links = Links(
            life.node,
            settings["network"],
            {peer: Link(secret, dials) for peer, secret, dials in settings["links"]},
            message_limit(options),
            options.ban_time / 1_000,
            Bounds.of_pool(options.max_pool_bytes),
            self._work.set,
            self._joined,
            self._left,
        )
        self._standing: dict[str, int] = {}
        self._steps = 0

    def _now(self) -> int:
        return max(0, int((time.monotonic() - self._epoch) * 1_000))

    def _joined(self, connection: Connection) -> None:
        self._node.joined(connection.peer, connection.session)
        self._work.set()

    def _left(self, connection: Connection) -> None:
        self._node.left(connection.peer)
        self._work.set()

    async def run(self) -> None:
        """Run until the process that started this one is gone, or says that it is enough."""
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def fail(_loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
            # What the system refuses for a while, as one more connection, is tried again; all else is a mistake here.
            if not failed.done() and not isinstance(context.get("exception"), OSError):
                failed.set_exception(context.get("exception") or RuntimeError(context["message"]))

        asyncio.get_running_loop().set_exception_handler(fail)
        collector = NodeCollector(lambda: self._standing, lambda: dict(self._links.refused))
        with serving(collector, self._metrics_port) as metrics:
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
                self._node.told(told_of_plain(message["told"]))
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
            if self._standstill.noticed():
                await self._begin_anew()
            if self._work.is_set() or self._node.purge_due <= self._now():
                self._work.clear()
                self._step()

    async def _begin_anew(self) -> None:
        """Drop what peers sent while this process stood still, under leaves that are long gone: it would count against
        them. They are taken again, and send what is listed now, as soon as this node knows the leaves of today."""
        self._stops += 1
        self._links.pause("late")
        await self._control.say({"late": self._stops})

    def _step(self) -> None:
        """Take what came, as much of it as a step takes; what is left is taken in the next one."""
        connections = self._links.connections
        waiting = sorted((order, peer, len(body)) for peer, one in connections.items() for order, body in one.inbox)
        taken = [
            row for row, good in zip(waiting, self._node.admits([row[1:] for row in waiting]), strict=True) if good
        ]
        counts: dict[int, int] = {}
        for _, peer, _ in taken:
            counts[peer] = counts.get(peer, 0) + 1
        if len(taken) < len(waiting):
            self._work.set()
        heard = sorted(
            (order, peer, body) for peer, count in counts.items() for order, body in connections[peer].taken(count)
        )
        made = self._node.step(self._now(), [(peer, body) for _, peer, body in heard])
        self._steps += 1
        for peer, body in made.sends:
            if peer in connections:
                connections[peer].send(body)
        for peer, why in made.disconnected:
            (self._links.end if why in REFUSED else self._links.keep_out)(peer, why)

    async def _report(self) -> None:
        said = -1
        while True:
            if said == self._steps:
                await asyncio.sleep(STATUS)
                continue
            said = self._steps
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
