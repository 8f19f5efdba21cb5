"""Gossip nodes behind the kernel contract: a slice of time of any set of nodes as a pure function."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa

from causeway.model.faults import Faults
from causeway.model.frame import Frame, concat, empty_frame
from causeway.model.topology import Topology
from causeway.protocols.contract import (
    HEADERS_SCHEMA,
    RANGES_SCHEMA,
    Chains,
    Inputs,
    Plan,
    Reads,
    RoundResult,
    StateTable,
    Tick,
    View,
)
from causeway.protocols.events import EventLog
from causeway.protocols.execution import ProgramRunner
from causeway.protocols.hosting import HostedForGood, Hosting
from causeway.protocols.icmp.gossip.state import start
from causeway.protocols.icmp.simulation.node import Slice, run
from causeway.protocols.icmp.simulation.options import SimulationOptions
from causeway.protocols.icmp.simulation.state import State, Window, unpacked
from causeway.protocols.icmp.simulation.tables import COUNTERS, LOGS, OUTBOUND, state_tables, under_way
from causeway.protocols.icmp.simulation.trading import empty_purses
from causeway.protocols.icmp.simulation.world import Given, World
from causeway.protocols.sections import section_digests


class Nodes(Hosting):
    """The nodes, by their numbers; there are no programs."""

    def _rank(self, name: str, number: int) -> int:
        return number


@dataclass(frozen=True)
class GossipKernel(HostedForGood):
    """Nodes that gossip egress queues. ``given``: what a test gives instead of what is drawn (``World``)."""

    topology: Topology
    programs: ProgramRunner
    options: SimulationOptions = field(default_factory=lambda: SimulationOptions.model_validate({}))
    seed: int = 0
    tick_ns: int = 100_000_000
    faults: Faults = field(default_factory=Faults)
    given: Given = field(default_factory=Given)

    name: ClassVar[str] = "gossip"
    outbound: ClassVar[pa.Schema] = OUTBOUND
    logs: ClassVar[Mapping[str, pa.Schema]] = LOGS
    header_heights: ClassVar[int] = 1
    past_heights: ClassVar[int] = 0
    held_heights: ClassVar[int] = 0
    last_tick: ClassVar[int] = 2**24 - 1

    @cached_property
    def world(self) -> World:
        """Return the scenario made ready."""
        return World(self.options, self.seed, self.given)

    def __getstate__(self) -> dict[str, object]:
        # What follows from the rest is made again where it is needed.
        return {name: value for name, value in self.__dict__.items() if name not in ("world", "hosting")}

    @cached_property
    def hosting(self) -> Nodes:
        """Return the nodes."""
        return Nodes(self.topology)

    def tables(self) -> Mapping[str, StateTable]:
        """Return every table that a state has by name."""
        return state_tables(self.options.tickets)

    def state(self, frames: Mapping[str, Frame]) -> State:
        """Return the state that has these tables; one that is absent is empty."""
        return unpacked(self.world, frames)

    def genesis(self, chains: Chains, coming: int | None = None) -> RoundResult[State]:
        """Return nodes that know nothing and nobody; the first tick connects them."""
        window = Window.at(self.world, 0)
        counters = np.zeros((len(COUNTERS), len(chains)), dtype=np.uint64)
        rows = {name: empty_frame(table.schema) for name, table in self.tables().items()}
        rows = {name: frame for name, frame in rows.items() if name not in ("nodes", "own", "links")}
        if "purses" in rows:
            rows["purses"] = empty_purses(chains)
        hops = np.zeros((len(chains), window.roots), dtype=np.uint8)
        gossip = start(chains, self.options.gossip)
        if self.options.gossip.topology == "from_to":
            own = self.world.interests[chains.astype(np.int64)]
            gossip = replace(gossip, nodes=gossip.nodes.with_columns(interests=own))
        state = State(self.world, window, gossip, hops, counters, rows)
        headers = self._headers(state, chains, 0)
        return RoundResult(state, empty_frame(OUTBOUND), {}, headers, 0)

    def committed(self, state: State) -> Frame:
        """Return no entries: the state holds all that its root is made of."""
        return empty_frame(RANGES_SCHEMA)

    def roots(self, state: State, chains: Chains, tick: Tick, committed: Frame) -> Frame:
        """Return a digest of each node's rows of all tables (``chain``, ``root``)."""
        frames = state.frames()
        sections = [
            section_digests(frames[name], frames[name][table.owner], chains) for name, table in self.tables().items()
        ]
        roots = [hashlib.sha256(b"".join(parts)).digest() for parts in zip(*sections, strict=True)]
        found = np.frombuffer(b"".join(roots), dtype=np.uint8).reshape(len(chains), 32)
        return Frame({"chain": chains, "root": found}, len(chains))

    def plan(
        self, state: State, chains: Chains, view: View, ingress: pa.Table, carried: pa.Table, tick: Tick
    ) -> Plan[View]:
        """Take what is under way to the nodes: nothing else has to be read."""
        return Plan(Reads(), view, EventLog().logs()["events"])

    def round(
        self, state: State, chains: Chains, plan: Plan[View], inputs: Inputs[State], tick: Tick
    ) -> RoundResult[State]:
        """Run a slice of time of ``chains``."""
        tables = plan.content.tables
        came = {name: concat([state.rows["waiting_" + name], tables[name]]) for name in under_way(self.options.tickets)}
        state, logs = run(Slice(self.world, chains, tick.tick), state, came)
        last = tick.tick >= self.options.end
        headers = empty_frame(HEADERS_SCHEMA)
        if last or tick.tick * self.options.slice % self.options.relay.interval == 0:
            headers = self._headers(state, chains, tick.height)
        return RoundResult(state, empty_frame(OUTBOUND), logs, headers, None if last else tick.tick + 1)

    def _headers(self, state: State, chains: Chains, height: int) -> Frame:
        """Return a header of each node: they are made with every relay block, and at the end."""
        roots = self.roots(state, chains, Tick(height, 0), empty_frame(RANGES_SCHEMA))
        nothing = pa.array([b""] * len(chains), pa.binary())
        number = np.full(len(chains), height, dtype=np.uint64)
        columns = {"chain": chains, "number": number, "hash": nothing, "parent": nothing, "root": roots["root"]}
        return Frame({**columns, "certification": nothing}, len(chains))
