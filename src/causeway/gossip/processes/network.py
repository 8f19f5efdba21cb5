"""Network of node processes on one machine: start, relay chain, kills, final verdict.

The verdict is that every queue reached every node that needs it. A block routes the ingress that a
collator of the parachain (in rotation) reports as found at the block's parent (3.4, 3.9). A queue
that gossip does not deliver therefore stays unrouted, and the run waits for it.

``NodeHandle`` is the parent's view of one node: its processes, the messages to it, its reports.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from causeway_proofs.errors import InvalidInput
from causeway_proofs.substrate.egress import MAX_CHAIN_HEADS

from causeway.gossip.processes.connection import SECRET_BYTES, WireError
from causeway.gossip.processes.control import Control, encode_leaves
from causeway.gossip.processes.node import LeavesUpdate
from causeway.gossip.processes.relay_chain import GeneratedRelayChain, RelayBlock, RelayChainClient
from causeway.gossip.processes.scenario import GossipScenario
from causeway.gossip.processes.trace import close_trace, create_trace

START = 120.0
"""Seconds until a started process must report ready."""

END = 5.0
"""Seconds until a process must end after its control channel closed."""

_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

_MODULE = "causeway.gossip.processes.node_process"


class NodeDied(Exception):
    """Unexpected end of a node process; the message names the node and its last output."""


class NodeHandle:
    """Parent's handle of a node.

    Args:
        number: Number of the node.
        paras: Parachains that it collates.
        client: Its relay chain client.
        changed: Callback for each report of the node.
    """

    def __init__(
        self, number: int, paras: tuple[int, ...], client: RelayChainClient, changed: Callable[[], None]
    ) -> None:
        self.number, self.paras, self.client = number, paras, client
        self.life = 0
        self.port: int | None = None
        """Listening port; None while the process is not ready."""
        self.metrics: int | None = None
        self.status: Mapping[str, Any] = {}
        self.pid: int | None = None
        self._changed = changed
        self._process: asyncio.subprocess.Process | None = None
        self._control: Control | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._outbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._sent_leaves: set[bytes] = set()
        self._sent_blocks: set[bytes] = set()
        self._last_words: deque[str] = deque(maxlen=20)
        self.died: str | None = None
        """Message of an unexpected end."""
        self.failed: str | None = None
        """Error reported by the process for an unusable trace folder or port."""

    @property
    def alive(self) -> bool:
        """True while the process is ready and was not ended."""
        return self.port is not None

    @property
    def standing(self) -> Mapping[str, int]:
        """Figures of the last report, by name."""
        found: Mapping[str, int] = self.status.get("standing", {})
        return found

    async def start(self, settings: Mapping[str, Any]) -> None:
        """Start the process and wait until it is ready.

        Args:
            settings: First message on the control channel.

        Raises:
            NodeDied: The process did not start in time.
            InvalidInput: The process rejected its settings.
        """
        self.life += 1
        self.status, self._sent_leaves, self._sent_blocks, self._outbox = {}, set(), set(), asyncio.Queue()
        ours, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as stack:
            stack.enter_context(ours)  # on cancellation the process sees a closed channel
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                _MODULE,
                str(theirs.fileno()),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,  # Ctrl-C reaches only this process, which ends the others
                env={**os.environ, **_ONE_THREAD},
            )
            stack.pop_all()
        self.pid = self._process.pid
        self._control = Control(*await asyncio.open_connection(sock=ours))
        listening = asyncio.create_task(self._listen_to_errors(self._process))
        try:
            async with asyncio.timeout(START):
                await self._control.say({**settings, "node": self.number, "life": self.life})
                ready = await self._control.heard()
        except (EOFError, OSError, TimeoutError):
            raise NodeDied(await self._obituary("did not start")) from None
        if "failed" in ready:
            raise InvalidInput(ready["failed"])
        self.port, self.metrics = ready["ready"], ready["metrics"]
        self._tasks = [listening, *(asyncio.create_task(work) for work in (self._hear(), self._speak()))]

    async def _hear(self) -> None:
        assert self._control is not None
        with contextlib.suppress(EOFError, OSError, WireError):
            while True:
                message = await self._control.heard()
                self.failed = message.get("failed")
                self.status = message.get("status", self.status)
                if "late" in message:  # messages are ordered: the node has applied all earlier ones
                    self.tell({"now": message["late"]})
                self._changed()
        if self.alive:
            self.port = None
            self.died = await self._obituary("ended")
            self._changed()

    async def _speak(self) -> None:
        assert self._control is not None
        with contextlib.suppress(OSError):  # ``_hear`` reports the end of the process
            while True:
                await self._control.say(await self._outbox.get())

    async def _listen_to_errors(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while line := await process.stderr.read(4_096):
            self._last_words.extend(line.decode(errors="replace").splitlines())

    async def _obituary(self, event: str) -> str:
        assert self._process is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END):
                await self._process.wait()
        await asyncio.sleep(0)
        last = self._last_words[-1] if self._last_words else "it said nothing"
        return f"node {self.number}, life {self.life}, {event} of itself (code {self._process.returncode}): {last}"

    def tell(self, message: dict[str, Any]) -> None:
        """Queue a message to the process."""
        if self.alive:
            self._outbox.put_nowait(message)

    def send_leaves(self, chain: GeneratedRelayChain, ancestors: int) -> None:
        """Send the current leaves and the blocks and queues that the node does not have yet."""
        if not self.alive:
            return
        leaves = self.client.leaves()
        new = [block for block in leaves if block.hash not in self._sent_leaves]
        own_queues = {
            entry.root: block.posted[entry.source, entry.destination]
            for block in self.client.blocks()
            if block.hash not in self._sent_blocks
            for entry in block.own
            if entry.source in self.paras
        }
        self._sent_leaves = {block.hash for block in leaves}
        self._sent_blocks = {block.hash for block in self.client.blocks()}
        update = LeavesUpdate(
            tuple(block.hash for block in leaves),
            tuple(chain.block(block, ancestors) for block in new),
            own_queues,
            {block.hash: chain.wanted(block, self.paras) for block in new},
        )
        self.tell({"told": encode_leaves(update)})

    def kill(self) -> None:
        """Kill the process without warning."""
        self.port = None
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def end(self) -> None:
        """Close the channel, wait for the process, and kill it after ``END`` seconds."""
        self.port = None
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            try:
                async with asyncio.timeout(END):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


SETTLING = 60.0
"""Seconds without a new block within which all unrouted queues must arrive."""

LAST_BLOCKS = 16
"""Final blocks without queues, for parachains to consume the rest."""

MAX_PORT = 2**16 - 1

STARTING_TOGETHER = 4
"""Maximum number of processes that start concurrently."""


@dataclass
class NetworkOutcome:
    """Result of a run.

    Attributes:
        nodes: The nodes.
        blocks: Relay blocks.
        forks: Relay blocks on forks.
        posted: Posted queues.
        listed: Queues listed by the leaves before the last blocks.
        short: Queues listed by a node's leaves that the node lacks in the end, summed over nodes.
        left: Unrouted queues after the last blocks.
        killed: Killed processes.
        settled: Seconds until all queues had arrived.
        stopped: True if the run was interrupted.
        died: Messages of processes that ended unexpectedly.
    """

    nodes: Sequence[NodeHandle]
    blocks: int = 0
    forks: int = 0
    posted: int = 0
    listed: int = 0
    short: int = 0
    left: int = 0
    killed: int = 0
    settled: float = 0.0
    stopped: bool = False
    died: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """True if every queue reached every node that needs it."""
        return not (self.short or self.left or self.died or self.stopped)


class ProcessNetwork:
    """Network of a scenario.

    Args:
        scenario: The scenario.
        trace: Folder for traces, if any.
        metrics: Metrics port of the first node; 0 for any free port, None for no metrics.
        settling: Seconds to wait for missing queues.
    """

    def __init__(
        self,
        scenario: GossipScenario,
        trace: Path | None = None,
        metrics: int | None = None,
        settling: float = SETTLING,
    ) -> None:
        self._scenario, self._trace, self._metrics, self._settling = scenario, trace, metrics, settling
        seed, nodes = scenario.network.seed, scenario.nodes
        self._news = asyncio.Event()
        self.chain = GeneratedRelayChain(seed, nodes.parachains, scenario.relay, self._prefix)
        self.nodes = [
            NodeHandle(
                number,
                (1 + number % nodes.parachains,),
                RelayChainClient(self.chain, scenario.relay.finality),
                self._news.set,
            )
            for number in range(nodes.count)
        ]
        if metrics is not None and metrics + nodes.count - 1 > MAX_PORT:
            raise InvalidInput(
                f"--metrics-port: {metrics}, and a port for each of {nodes.count} nodes: above {MAX_PORT}"
            )
        self._secrets = {
            pair: os.urandom(SECRET_BYTES) for pair in draw_links(nodes.count, scenario.topology.degree, Random(seed))
        }
        # Kills and delays have their own seeds, so neither shifts the other.
        self._kills, self._delays = Random(f"causeway/kills/{seed}"), Random(f"causeway/delays/{seed}")
        self._due = [0.0] * nodes.count
        self._under_way = 0
        self._failure: BaseException | None = None
        self._epoch = time.monotonic()
        self._tasks: set[asyncio.Task[None]] = set()
        self.outcome = NetworkOutcome(self.nodes)

    async def run(self, stop: asyncio.Event) -> NetworkOutcome:
        """Run the scenario to its end, or until ``stop`` is set; end all processes.

        Raises:
            InvalidInput: The trace folder or a port is unusable, or writing the trace failed.
        """
        if self._trace is not None:
            numbers = [node.number for node in self.nodes]
            create_trace(self._trace, self._scenario.gossip, numbers)
        work = asyncio.create_task(self._run())
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([work, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                self.outcome.stopped = True
                return self.outcome
            await work
        except NodeDied as error:
            self.outcome.died.append(str(error))
        finally:
            for task in (work, stopping, *self._tasks):
                task.cancel()
            await asyncio.gather(work, stopping, *self._tasks, return_exceptions=True)
            await asyncio.gather(*(node.end() for node in self.nodes))
            if self._trace is not None:
                close_trace(self._trace)
        return self.outcome

    async def _run(self) -> None:
        gate = asyncio.Semaphore(STARTING_TOGETHER)
        started = await asyncio.gather(*(self._start(node, gate) for node in self.nodes), return_exceptions=True)
        for failure in started:
            if failure is not None:
                raise failure
        relay, outcome = self._scenario.relay, self.outcome
        plan = self._plan_kills()
        for height in range(1, relay.blocks + 1):
            for node in plan.get(height, ()):
                self._spawn(self._kill(node))
            self._make_blocks(posting=True)
            await asyncio.sleep(relay.interval / 1_000)
            self._require_alive()
        while self._tasks:
            await asyncio.wait(self._tasks)
        begun = time.monotonic()
        outcome.short = await self._settle()
        outcome.settled = time.monotonic() - begun
        outcome.listed = len({entry.root for leaf in self._leaves() for entry in leaf.listed})
        for _ in range(LAST_BLOCKS):
            if outcome.short or not self.chain.best.unrouted:
                break
            self._make_blocks(posting=False)
            await asyncio.sleep(relay.interval / 1_000)
            while self._tasks:
                await asyncio.wait(self._tasks)
            outcome.short = await self._settle()
        outcome.left = len(self.chain.best.unrouted)

    async def _start(self, node: NodeHandle, gate: asyncio.Semaphore | None = None) -> None:
        """Start a node and exchange addresses with its peers."""
        pairs = {pair: secret for pair, secret in self._secrets.items() if node.number in pair}
        metrics = self._metrics + node.number if self._metrics else self._metrics
        settings: dict[str, Any] = {
            "network": self.chain.genesis.hash,
            "options": self._scenario.gossip.model_dump(),
            "epoch": self._epoch,
            # The end with the lower number dials.
            "links": [(sum(pair) - node.number, secret, node.number == min(pair)) for pair, secret in pairs.items()],
            "trace": None if self._trace is None else str(self._trace),
            "metrics": metrics,
        }
        async with gate or asyncio.Semaphore():
            await node.start(settings)
        for other in (self.nodes[sum(pair) - node.number] for pair in pairs):
            dialler, listener = sorted((node, other), key=lambda one: one.number)
            if listener.alive:
                dialler.tell({"peer": (listener.number, listener.port)})
        node.send_leaves(self.chain, self._scenario.gossip.ancestors)

    def _plan_kills(self) -> dict[int, list[NodeHandle]]:
        """Draw the victims by height: each dies once, in the middle of the run."""
        blocks = self._scenario.relay.blocks
        first, last = 1 + blocks // 5, max(1 + blocks // 5, blocks - blocks // 5)
        plan: dict[int, list[NodeHandle]] = {}
        for node in self._kills.sample(self.nodes, self._scenario.nodes.killed):
            plan.setdefault(self._kills.randint(first, last), []).append(node)
        return plan

    async def _kill(self, node: NodeHandle) -> None:
        await asyncio.sleep(self._kills.random() * self._scenario.relay.interval / 1_000)
        node.kill()
        self.outcome.killed += 1
        await node.end()
        await asyncio.sleep(self._kills.random() * self._scenario.nodes.away / 1_000)
        await self._start(node)

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failure = self._failure or task.exception()

    def _require_alive(self) -> None:
        if self._failure is not None:
            raise self._failure
        for node in self.nodes:
            if node.failed is not None:
                raise InvalidInput(node.failed)
            if node.died is not None:
                raise NodeDied(node.died)

    def _prefix(self, leaf: bytes, para: int) -> int | None:
        """Return the prefix reported by this block's collator of a parachain; collators rotate."""
        collators = [node for node in self.nodes if para in node.paras]
        node = collators[self.chain.best.number % len(collators)]
        if not node.alive:
            return None
        found: int | None = node.status.get("prefixes", {}).get(leaf, {}).get(para)
        return found

    def _make_blocks(self, posting: bool) -> None:
        blocks = self.chain.generate_blocks(posting)
        self.outcome.blocks += len(blocks)
        self.outcome.forks += len(blocks) - 1
        self.outcome.posted = self.chain.posted
        for block in blocks:
            for node in self.nodes:
                now = time.monotonic()
                late = self._delays.random() * self._scenario.relay.propagation / 1_000
                due = self._due[node.number] = max(self._due[node.number], now + late)
                self._spawn(self._import(node, block, due - now))

    async def _import(self, node: NodeHandle, block: RelayBlock, late: float) -> None:
        await asyncio.sleep(late)
        node.client.imports(block)
        node.send_leaves(self.chain, self._scenario.gossip.ancestors)

    def _leaves(self) -> list[RelayBlock]:
        return self.nodes[0].client.leaves()[:MAX_CHAIN_HEADS]

    async def _settle(self) -> int:
        """Wait until all nodes hold all listed queues; return the number that is missing."""
        leaves = [block.hash for block in self._leaves()]
        deadline = time.monotonic() + self._settling
        while True:
            self._require_alive()
            lacking = sum(missing_queues(node, leaves) for node in self.nodes)
            if not lacking or time.monotonic() > deadline:
                return lacking
            self._news.clear()
            try:
                async with asyncio.timeout(1.0):
                    await self._news.wait()
            except TimeoutError:
                continue


def missing_queues(node: NodeHandle, leaves: Sequence[bytes]) -> int:
    """Count the queues that a node lacks of its leaves' listing, plus one if its leaves differ."""
    standing = node.standing
    behind = [*node.status.get("leaves", ())] != [*leaves]
    return standing.get("expected", 0) - standing.get("there", 0) + behind


def draw_links(count: int, degree: int, random: Random) -> list[tuple[int, int]]:
    """Draw a connected graph of links as the union of random cycles through all nodes.

    Args:
        count: Number of nodes.
        degree: Peers a node, even.
        random: Source of randomness.

    Returns:
        Pairs of nodes, the lower number first, ascending.
    """
    found: set[tuple[int, int]] = set()
    for _ in range(degree // 2):
        order = random.sample(range(count), count)
        found |= {(min(a, b), max(a, b)) for a, b in zip(order, [*order[1:], order[0]], strict=True) if a != b}
    return sorted(found)
