"""A network of node processes on this machine: it starts them, plays the relay chain to them, kills some and starts
them again, and says at the end whether every queue reached every node that needs it.

A block routes what a collator of its parachain, by turns, says that it has found of the ingress at the block's parent
(3.4, 3.9): whatever no gossip brings to it stays unrouted, and is waited for.

A node process as the process that started it has it: its lives, what it is told, what it says.
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
"""Seconds that a process has to say that it is ready."""

END = 5.0
"""Seconds that it has to end when it is told to."""

_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

_MODULE = "causeway.gossip.processes.node_process"


class NodeDied(Exception):
    """A node process ended though nobody killed it; the message says which, and what it said last."""


class NodeHandle:
    """Node ``number``, collator of ``paras``. ``changed`` is called where it says something."""

    def __init__(
        self, number: int, paras: tuple[int, ...], client: RelayChainClient, changed: Callable[[], None]
    ) -> None:
        self.number, self.paras, self.client = number, paras, client
        self.life = 0
        self.port: int | None = None
        """Where it listens; None while it is not ready."""
        self.metrics: int | None = None
        self.status: Mapping[str, Any] = {}
        self.pid: int | None = None
        self._changed = changed
        self._process: asyncio.subprocess.Process | None = None
        self._control: Control | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._outbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._told: set[bytes] = set()
        self._given: set[bytes] = set()
        self._last_words: deque[str] = deque(maxlen=20)
        self.died: str | None = None
        """What there is to say of a life that ended though nobody ended it."""
        self.failed: str | None = None
        """Why it ended, where that is not its own fault: it cannot have what it was told to take."""

    @property
    def alive(self) -> bool:
        """Return whether the process is ready, and was not ended."""
        return self.port is not None

    @property
    def standing(self) -> Mapping[str, int]:
        """Return what it last said of itself, by name."""
        found: Mapping[str, int] = self.status.get("standing", {})
        return found

    async def start(self, settings: Mapping[str, Any]) -> None:
        """Start the process, and return when it is ready. Raises ``NodeDied``: it is not, in time;
        ``InvalidInput``: it cannot have what it was told to take."""
        self.life += 1
        self.status, self._told, self._given, self._outbox = {}, set(), set(), asyncio.Queue()
        ours, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as stack:
            stack.enter_context(ours)  # where this is cut short the process sees that nobody is there
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                _MODULE,
                str(theirs.fileno()),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for this process alone, which ends them
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
                if "late" in message:  # it has heard all that it was told when it hears this
                    self.tell({"now": message["late"]})
                self._changed()
        if self.alive:
            self.port = None
            self.died = await self._obituary("ended")
            self._changed()

    async def _speak(self) -> None:
        assert self._control is not None
        with contextlib.suppress(OSError):  # it has ended, which ``_hear`` says; who does not read is stopped
            while True:
                await self._control.say(await self._outbox.get())

    async def _listen_to_errors(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while line := await process.stderr.read(4_096):
            self._last_words.extend(line.decode(errors="replace").splitlines())

    async def _obituary(self, what: str) -> str:
        assert self._process is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END):
                await self._process.wait()
        await asyncio.sleep(0)
        last = self._last_words[-1] if self._last_words else "it said nothing"
        return f"node {self.number}, life {self.life}, {what} of itself (code {self._process.returncode}): {last}"

    def tell(self, message: dict[str, Any]) -> None:
        """Tell it something, after what it was told before."""
        if self.alive:
            self._outbox.put_nowait(message)

    def send_leaves(self, chain: GeneratedRelayChain, ancestors: int) -> None:
        """Tell it the leaves of its relay chain client, and what it does not know of them yet."""
        if not self.alive:
            return
        leaves = self.client.leaves()
        new = [block for block in leaves if block.hash not in self._told]
        kept = {
            entry.root: block.posted[entry.source, entry.destination]
            for block in self.client.blocks()
            if block.hash not in self._given
            for entry in block.own
            if entry.source in self.paras
        }
        self._told = {block.hash for block in leaves}
        self._given = {block.hash for block in self.client.blocks()}
        told = LeavesUpdate(
            tuple(block.hash for block in leaves),
            tuple(chain.block(block, ancestors) for block in new),
            kept,
            {block.hash: chain.wanted(block, self.paras) for block in new},
        )
        self.tell({"told": encode_leaves(told)})

    def kill(self) -> None:
        """Kill the process, as nobody can prepare for."""
        self.port = None
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def end(self) -> None:
        """Let the process end, kill it if it does not, and wait until it is gone."""
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
"""Seconds within which all that is unrouted must be where it is needed, once no further block comes."""

LAST_BLOCKS = 16
"""Blocks without queues at the end, in which parachains consume what is left."""

MAX_PORT = 2**16 - 1

STARTING_TOGETHER = 4
"""Processes that start at a time."""


@dataclass
class NetworkOutcome:
    """What came of it. ``short``: queues that nodes lack of those that their leaves list, when nothing more comes;
    ``left``: queues that are unrouted after the last blocks; ``died``: what processes said that ended of themselves.
    ``listed``: queues that the leaves list in the end, before the last blocks."""

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
        """Return whether every queue reached every node that needs it."""
        return not (self.short or self.left or self.died or self.stopped)


class ProcessNetwork:
    """The network of a scenario. ``trace``: a folder for traces; ``metrics``: the port of the first node's metrics, 0
    for any that are free, None for none; ``settling``: seconds."""

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
        # Who is killed when, and which node has which block how late: of seeds of their own.
        self._kills, self._delays = Random(f"causeway/kills/{seed}"), Random(f"causeway/delays/{seed}")
        self._due = [0.0] * nodes.count
        self._under_way = 0
        self._failure: BaseException | None = None
        self._epoch = time.monotonic()
        self._tasks: set[asyncio.Task[None]] = set()
        self.outcome = NetworkOutcome(self.nodes)

    async def run(self, stop: asyncio.Event) -> NetworkOutcome:
        """Run the scenario, or until ``stop`` is set; all processes have ended when this returns.

        Raises:
            InvalidInput: the trace's folder is not empty, or it or a port cannot be had, or no more can be written.
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
        plan = self._plan()
        for height in range(1, relay.blocks + 1):
            for node in plan.get(height, ()):
                self._later(self._kill(node))
            self._make(posting=True)
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
            self._make(posting=False)
            await asyncio.sleep(relay.interval / 1_000)
            while self._tasks:
                await asyncio.wait(self._tasks)
            outcome.short = await self._settle()
        outcome.left = len(self.chain.best.unrouted)

    # processes

    async def _start(self, node: NodeHandle, gate: asyncio.Semaphore | None = None) -> None:
        """Start a node, and let it and its peers know of each other."""
        pairs = {pair: secret for pair, secret in self._secrets.items() if node.number in pair}
        metrics = self._metrics + node.number if self._metrics else self._metrics
        settings: dict[str, Any] = {
            "network": self.chain.genesis.hash,
            "options": self._scenario.gossip.model_dump(),
            "epoch": self._epoch,
            # Of a link the end with the lower number dials.
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

    def _plan(self) -> dict[int, list[NodeHandle]]:
        """Return who is killed at which height: each once, in the middle of the run."""
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

    def _later(self, work: Any) -> None:
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

    # the relay chain

    def _prefix(self, leaf: bytes, para: int) -> int | None:
        """Return what this block's collator of a parachain found: they take turns, and one that is dead makes none."""
        able = [node for node in self.nodes if para in node.paras]
        node = able[self.chain.best.number % len(able)]
        if not node.alive:
            return None
        found: int | None = node.status.get("prefixes", {}).get(leaf, {}).get(para)
        return found

    def _make(self, posting: bool) -> None:
        blocks = self.chain.made(posting)
        self.outcome.blocks += len(blocks)
        self.outcome.forks += len(blocks) - 1
        self.outcome.posted = self.chain.posted
        for block in blocks:
            for node in self.nodes:
                now = time.monotonic()
                late = self._delays.random() * self._scenario.relay.propagation / 1_000
                due = self._due[node.number] = max(self._due[node.number], now + late)
                self._later(self._import(node, block, due - now))

    async def _import(self, node: NodeHandle, block: RelayBlock, late: float) -> None:
        await asyncio.sleep(late)
        node.client.imports(block)
        node.send_leaves(self.chain, self._scenario.gossip.ancestors)

    def _leaves(self) -> list[RelayBlock]:
        return self.nodes[0].client.leaves()[:MAX_CHAIN_HEADS]

    async def _settle(self) -> int:
        """Wait until every node has all leaves and all queues that these list; return how many they lack in the end."""
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
    """Return how many queues a node lacks of those that its leaves list; one that has other leaves lacks one more."""
    standing = node.standing
    behind = [*node.status.get("leaves", ())] != [*leaves]
    return standing.get("expected", 0) - standing.get("there", 0) + behind


def draw_links(count: int, degree: int, random: Random) -> list[tuple[int, int]]:
    """Return who is connected with whom, the lower number first: the union of random cycles through all nodes, so that
    the network is connected."""
    found: set[tuple[int, int]] = set()
    for _ in range(degree // 2):
        order = random.sample(range(count), count)
        found |= {(min(a, b), max(a, b)) for a, b in zip(order, [*order[1:], order[0]], strict=True) if a != b}
    return sorted(found)
