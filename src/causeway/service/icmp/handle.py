"""A node process as the process that started it has it: its lives, what it is told, what it says."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from causeway.model.errors import InvalidInput
from causeway.service.icmp.control import Control, told_as_plain
from causeway.service.icmp.node import Told
from causeway.service.icmp.relay_chain import Client, RelayChain
from causeway.service.icmp.wire import WireError

START = 120.0
"""Seconds that a process has to say that it is ready."""

END = 5.0
"""Seconds that it has to end when it is told to."""

_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

_MODULE = "causeway.service.icmp.node_process"


class NodeDied(Exception):
    """A node process ended though nobody killed it; the message says which, and what it said last."""


class Handle:
    """Node ``number``, collator of ``paras``. ``changed`` is called where it says something."""

    def __init__(self, number: int, paras: tuple[int, ...], client: Client, changed: Callable[[], None]) -> None:
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

    def tell_leaves(self, chain: RelayChain, ancestors: int) -> None:
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
        told = Told(
            tuple(block.hash for block in leaves),
            tuple(chain.block(block, ancestors) for block in new),
            kept,
            {block.hash: chain.wanted(block, self.paras) for block in new},
        )
        self.tell({"told": told_as_plain(told)})

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
