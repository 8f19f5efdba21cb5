"""Parachains on the kernel of egress queues in memory: users' calls by hand, no lake and no Spark.

    net = Network({"A": {1: "caller"}, "B": {2: "echo"}})
    net.call(1, 2, b"hello")                   # user 0 tells program 1 to call program 2, in the next tick
    net.step()                                 # one tick of all chains
    net.refusals(), net.surviving(), net.state

Chains are given by name, the relay chain is added where none is called ``relay``. ``cuts``: into how many buckets the
chains are cut, none of which sees another's state.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from causeway.config.faults import FaultRule, Faults
from causeway.config.topology import CHAINS_SCHEMA, PROGRAMS_SCHEMA, Topology
from causeway.config.traffic import CARRIED_SCHEMA, INGRESS_SCHEMA
from causeway.core.frame import Frame, concat, empty_frame
from causeway.core.vocabulary import EVENTS_SCHEMA, REVERTED, Event
from causeway.programs.runner import Programs
from causeway.protocols.contract import HEADERS_SCHEMA, Inputs, Plan, RoundResult, Tick, View
from causeway.protocols.icmp.kernel import IcmpKernel, IcmpPlan
from causeway.protocols.relay_chain.options import IcmpOptions, add_relay_chain
from causeway.protocols.relay_chain.state import State
from causeway.protocols.shared.messages import LANE, OUTBOUND_SCHEMA
from causeway.protocols.shared.state_tables import merge_states, restore_state, select_chains
from tests.shown import shown_to
from tests.support.properties.caller_payloads import caller_payload

Placed = Mapping[int, str]
"""Program number -> class."""


def topology_of(chains: Mapping[str, Placed]) -> Topology:
    """Return the topology of chains, numbered in the order given, and the programs on them."""
    rows = [
        (number, f"p{number}", chain, name, json.dumps({}), Decimal(0))
        for chain, programs in enumerate(chains.values())
        for number, name in programs.items()
    ]
    records = [dict(zip(PROGRAMS_SCHEMA.names, row, strict=True)) for row in rows]
    table = pa.table({"number": pa.array(range(len(chains)), pa.uint64()), "name": list(chains)}, schema=CHAINS_SCHEMA)
    return add_relay_chain(Topology(table, pa.Table.from_pylist(records, schema=PROGRAMS_SCHEMA)))


class Network:
    """Chains, each with its programs. ``faults``: with the names of chains; ``forgetful``: no trie is kept."""

    def __init__(
        self,
        chains: Mapping[str, Placed],
        *,
        options: Mapping[str, Any] | None = None,
        faults: Sequence[FaultRule] = (),
        seed: int = 0,
        cuts: int = 1,
        forgetful: bool = False,
    ) -> None:
        topology = topology_of(chains)
        chosen = IcmpOptions(**(options or {}))
        self.kernel = IcmpKernel(topology, Programs(topology), chosen, seed, faults=Faults.of(*faults))
        self.names = list(self.kernel.chains())
        self.number = dict(zip(topology.chains["name"].to_pylist(), topology.chains["number"].to_pylist(), strict=True))
        self._host = {number: name for name, programs in chains.items() for number in programs}
        everything = np.arange(len(self.names), dtype=np.uint32)
        self.groups = [group for group in (everything[cut::cuts] for cut in range(cuts)) if len(group)]
        self.forgetful = forgetful
        self.results: list[RoundResult[State]] = [self.kernel.genesis(group) for group in self.groups]
        self.states = [result.state for result in self.results]
        self.past: list[State] = [self.state]
        self.rejected: list[tuple[int, Frame]] = []
        self.reverted: list[tuple[int, int, int]] = []
        """Chains with the first and the last height that they gave up."""
        self.events: list[tuple[int, Frame]] = []
        self.outbound: list[tuple[int, Frame]] = []
        self.told: dict[int, pa.Table] = {}
        self.height, self.tick = 0, -1
        self._told: list[tuple[int, int, int, str, bytes]] = []

    def call(self, caller: int, receiver: int, body: bytes = b"") -> None:
        """A user tells a program to call another, in the next tick."""
        payload = caller_payload(receiver, 0, "call", body)
        self._told.append((self.number[self._host[caller]], caller, 0, "call", payload))

    def step(self, count: int = 1) -> None:
        """Run ``count`` ticks of all chains."""
        for _ in range(count):
            self._step()

    def _step(self) -> None:
        self.height, self.tick = self.height + 1, self.tick + 1
        tick = Tick(self.height, self.tick)
        columns = [list(column) for column in zip(*self._told, strict=True)] if self._told else [[]] * 5
        self.told[self.height], self._told = pa.table(columns, schema=INGRESS_SCHEMA), []
        self.results = [self._round(group, state, tick) for group, state in zip(self.groups, self.states, strict=True)]
        self.states = [result.state for result in self.results]
        self.past.append(self.state)
        for result in self.results:
            self.outbound.append((self.height, result.outbound))
            self.events.append((self.height, result.logs["events"]))
            gone = result.logs[REVERTED]
            self.reverted += zip(*(gone[name].tolist() for name in ("chain", "first", "last")), strict=True)

    def _round(self, group: Any, state: State, tick: Tick) -> RoundResult[State]:
        if self.forgetful:
            tables, frames = self.kernel.tables(), state.frames()
            state = restore_state(
                self.kernel, {name: frames[name].to_table(table.schema) for name, table in tables.items()}
            )
        ingress = self.told[tick.height]
        mine = np.isin(ingress["chain"].to_numpy(), self.kernel.numbers()[group])
        told, carried = ingress.filter(pa.array(mine)), CARRIED_SCHEMA.empty_table()
        plan = self.kernel.plan(state, group, self.seen_by(group), told, carried, tick)
        reads = plan.reads
        past = {
            height: select_chains(
                self.kernel, self.past[height], reads.past["chain"][reads.past["height"] == height], tick.tick
            )
            for height in np.unique(reads.past["height"]).tolist()
        }
        offered, own = self._entries(reads.offered), self._entries(reads.own)
        again = self._told_again(reads.ingress)
        inputs: Inputs[State] = Inputs(told, carried, offered, own, {}, past, again=again)
        self.watch(plan, inputs)
        return self.kernel.round(state, group, plan, inputs, tick)

    def watch(self, plan: Plan[IcmpPlan], inputs: Inputs[State]) -> None:
        """See what a group of chains is given: for those who compare."""

    def _entries(self, ranges: Frame) -> Frame:
        found = [empty_frame(OUTBOUND_SCHEMA)]
        columns = (ranges[key].tolist() for key in (*LANE, "height", "begin", "end"))
        for *lane, height, begin, end in zip(*columns, strict=True):
            for frame in (made for at, made in self.outbound if at == height):
                mine = (frame["index"] >= begin) & (frame["index"] < end)
                for key, value in zip(LANE, lane, strict=True):
                    mine &= frame[key] == value
                found.append(frame.filter(mine))
        return concat(found)

    def _told_again(self, spans: Frame) -> pa.Table:
        found = [INGRESS_SCHEMA.empty_table()]
        rows = list(zip(*(spans[key].tolist() for key in ("chain", "first", "last")), strict=True))
        for height, told in self.told.items():
            asked = [self.kernel.numbers()[chain] for chain, first, last in rows if first <= height <= last]
            found.append(told.filter(pa.array(np.isin(told["chain"].to_numpy(), asked))))
        return pa.concat_tables(found)

    # ---- look

    def seen_by(self, group: Any) -> View:
        """Return what the chains of a group see of the height before, and nothing else."""
        return View(shown_to(self.kernel, self.states, group), empty_frame(HEADERS_SCHEMA))

    @property
    def state(self) -> State:
        """Return the state of all chains as one."""
        return self.states[0] if len(self.states) == 1 else merge_states(self.kernel, self.states)

    def surviving(self, which: Event) -> Frame:
        """Return the events of a kind that no fork has taken back (``EVENTS_SCHEMA``)."""
        found = [empty_frame(EVENTS_SCHEMA)]
        for height, frame in self.events:
            gone = [chain for chain, first, last in self.reverted if first <= height <= last]
            mine = ((frame["events"] & np.uint16(which)) > 0) & ~np.isin(frame["chain"], gone)
            found.append(frame.filter(mine))
        return concat(found)

    def refusals(self) -> list[tuple[str, str]]:
        """Return (chain whose it is, reason) of every receipt that the relay chain refused in the last tick."""
        found: list[tuple[int, str]] = []
        for height, frame in self.events:
            if height == self.height:
                rows = frame.filter((frame["chain"] == 0) & ((frame["events"] & np.uint16(Event.REJECTED)) > 0))
                found += zip(rows["source"].tolist(), rows["reason"].to_pylist(), strict=True)
        return [(self.names[chain], reason) for chain, reason in found]
