"""A lake that makes blocks: at a pace, on demand, or both; the memory between blocks is the lake's alone.

Time on its chains is the lake's own: a block a tick. What is brought may say that it belongs into no block before some
tick (``Message.not_before``): the clock then moves on, within the bounds of ``service.clock``.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

from causeway.model.errors import InvalidInput
from causeway.model.traffic import INGRESS_SCHEMA
from causeway.network.directory import Directory, unknown
from causeway.network.document import validated
from causeway.network.network import Network
from causeway.network.opened import OpenedLake, open_lake
from causeway.network.scenario import Scenario
from causeway.network.script import scripted_traffic
from causeway.network.traffic_settings import ScriptSection
from causeway.pipeline.lake import LAKE_FILE, Lake, Manifest
from causeway.pipeline.run import moved
from causeway.protocols import registry
from causeway.service.clock import Clock, ClockBounds
from causeway.service.endpoint import Endpoint
from causeway.service.mempool import MOST_WAITING, Mempool, Message, rows_of

QUIET = 1_000
"""After so many blocks on demand in which nothing happened no more are made until something comes: what is left, no
block moves."""

REMEMBERED = 10_000
"""Messages of which it is remembered in which block they were."""


@dataclass(frozen=True)
class Pace:
    """When blocks are made.

    Attributes:
        block_seconds: from one block to the next; 0 = none of themselves.
        on_demand: at once, when there is something to do.
    """

    block_seconds: float = 1.0
    on_demand: bool = False


NOTHING_LEFT = 0
"""The ticket of a transaction that was not taken because all in it has happened."""


class Node:
    """The network of a scenario on a lake, which takes transactions and messages and makes blocks.

    Reading the lake needs nothing of this: readers see committed heights, whatever is being made.
    """

    def __init__(
        self,
        scenario: Scenario,
        lake: str,
        pace: Pace | None = None,
        *,
        drop_redundant: bool = False,
        clock: ClockBounds | None = None,
    ) -> None:
        """Open the lake, or create it, and claim it.

        ``drop_redundant``: transactions in which nothing is left to do are not taken, and cost nothing. ``clock``: how
        far headers from elsewhere move the lake's clock.

        Raises:
            InvalidInput: lakes of the scenario's protocol are not served; it, or the lake, cannot be used
                (``LakeError``).
        """
        name = scenario.network.protocol
        served = registry.names("endpoint")
        if name not in served:
            known = f"{' and '.join(served)} {'is' if len(served) == 1 else 'are'}"
            raise InvalidInput(f"{scenario.path}: network.protocol: {name}: only {known} served")
        self.scenario, self.pace, self._drop_redundant = scenario, pace or Pace(), drop_redundant
        resume = Lake.at(lake).exists()
        self.network = Network(scenario, lake, resume=resume, recorded=True)
        self.opened: OpenedLake = open_lake(lake)
        self.endpoint: Endpoint = registry.protocol(name).part("endpoint")(self.opened, self.network.deployment.kernel)
        self.views = self.endpoint.views
        made = self.network.lake.storage.modified(LAKE_FILE)
        self.clock = Clock(self.opened.tick_ns, time.time() if made is None else made, clock)
        self.external = frozenset(self.network.topology.external)
        self._directory = Directory(self.network.topology, "message")
        numbers, names = (self.network.topology.chains[name].to_pylist() for name in ("number", "name"))
        self.chains: dict[str, int] = dict(zip(names, numbers, strict=True))
        self.pool = Mempool()
        self._tickets = itertools.count(1)
        self._done: OrderedDict[int, int] = OrderedDict()
        self._changed = threading.Condition()
        self._stopping = False
        self._quiet = 0
        self.failure: BaseException | None = None

    # ---- what users bring

    def submit(self, chain: str, user: int, transaction: bytes) -> int:
        """Let a transaction of somebody who carries messages wait for a block; return its ticket, ``NOTHING_LEFT`` for
        one that is not taken. ``user``: the number that it is accounted to.

        Raises:
            InvalidInput: no such chain, a user's number that is none, or not a transaction.
            HeaderTooFarAhead: a header in it is from beyond what the lake's clock may be moved to.
            MempoolFull: too many wait already.
        """
        number = self.number_of(chain)
        submission = self.endpoint.submission(chain, user, transaction)
        if self._drop_redundant and submission.nothing_left():
            return NOTHING_LEFT
        message = submission.message(number)
        self.clock.require(message.not_before, self.network.height)
        return self._let_wait(message)

    def send(self, send: dict[str, Any]) -> int:
        """Let a user's message to a program wait for a block; return its ticket.

        ``send``: the keys of ``[[traffic.send]]`` in a scenario, but for ``tick``.

        Raises:
            InvalidInput: a key, name or value is not what it must be.
            MempoolFull: too many messages wait already.
        """
        if "tick" in send:
            raise InvalidInput("tick: a message comes in with the next block; leave it out")
        section = validated(ScriptSection, {"source": "script", "send": [{"tick": 0, **send}]}, "message")
        if section.send[0].count > MOST_WAITING:
            raise InvalidInput(f"count: {section.send[0].count}; at most {MOST_WAITING} are allowed")
        topology = self.network.topology
        script = scripted_traffic(section, topology, topology.moves, self._directory)
        row = script.sends.to_pylist()[0]
        if row["chain"] in self.external:
            raise InvalidInput(f"to: {send.get('to')} lives on a chain that another lake runs; send it there")
        message = Message(**{name: row[name] for name in INGRESS_SCHEMA.names})
        for _ in range(row["count"]):
            ticket = self._let_wait(message)
        return ticket

    def number_of(self, chain: str) -> int:
        """Return the number of a chain that this lake runs.

        Raises:
            InvalidInput: there is none of this name, or another lake runs it.
        """
        if chain not in self.chains:
            raise InvalidInput(f"chain: {unknown('chain', chain, list(self.chains))}")
        if self.chains[chain] in self.external:
            raise InvalidInput(f"chain: another lake runs {chain}")
        return self.chains[chain]

    def _let_wait(self, message: Message) -> int:
        ticket = next(self._tickets)
        self.pool.add(replace(message, ticket=ticket))
        with self._changed:
            self._changed.notify_all()
        return ticket

    # ---- blocks

    def _next_tick(self) -> int:
        """Return the tick of the next block: the next one, or as late as a header wants it, but no longer a step than
        the clock takes, and past nothing that the scenario brings or has planned."""
        before = self.network.manifest
        following = before.tick + 1 if before.height else before.tick
        coming = (self.network.deployment.traffic.next_tick(following), self.endpoint.next_planned(following))
        bounds = [before.tick + self.clock.longest_step(), *(tick for tick in coming if tick is not None)]
        return min([max(following, self.pool.not_before()), *bounds])

    def produce(self) -> Manifest:
        """Make one block of all chains and commit it."""
        tick = self._next_tick()
        messages = self.pool.take(tick)
        ingress, carried = rows_of(messages) if messages else (None, None)
        manifest = self.network.step(tick, ingress=ingress, carried=carried)
        self._quiet = 0 if messages or moved(manifest.rows) else self._quiet + 1
        with self._changed:
            for message in messages:
                self._done[message.ticket] = manifest.height
            while len(self._done) > REMEMBERED:
                self._done.popitem(last=False)
            self._changed.notify_all()
        return manifest

    @property
    def has_work(self) -> bool:
        """Return whether a block would do something: messages wait, or the scenario is not at its end."""
        return bool(self.pool) or (self.network.next_tick() is not None and self._quiet < QUIET)

    def run(self, committed: Callable[[Manifest], None] | None = None) -> None:
        """Make blocks at the node's pace until ``stop``; a block that is being made is finished."""
        due = time.monotonic()
        try:
            while self._wait_for(due):
                due = time.monotonic() + self.pace.block_seconds
                manifest = self.produce()
                if committed is not None:
                    committed(manifest)
        except BaseException as failure:
            self.failure = failure
            with self._changed:
                self._changed.notify_all()
            raise

    def _wait_for(self, due: float) -> bool:
        """Wait until a block is to be made; return whether one is, not so when the node stops."""
        with self._changed:
            while not self._stopping:
                left = due - time.monotonic() if self.pace.block_seconds else None
                if (left is not None and left <= 0) or (self.pace.on_demand and self.has_work):
                    return True
                self._changed.wait(left)
        return False

    def stop(self) -> None:
        """Let ``run`` end after the block that is being made."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def height_of(self, ticket: int) -> int | None:
        """Return the height of the block that has a message, None as long as none has; the last one for
        ``NOTHING_LEFT``."""
        with self._changed:
            return self.network.height if ticket == NOTHING_LEFT else self._done.get(ticket)

    @property
    def ending(self) -> bool:
        """Return whether no more blocks come."""
        return self._stopping or self.failure is not None

    def close(self) -> None:
        """Let go of the lake."""
        self.network.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()
