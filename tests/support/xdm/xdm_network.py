"""Chains on the kernel of cross-domain messaging in memory: users' calls by hand, no lake and no Spark.

    net = Network({"A": {1: "caller"}, "B": {2: "echo"}}, options={"archiving_depth": 2, "challenge_period": 3})
    net.call(1, 2, b"hello", amount=5)         # user 0 tells program 1 to call program 2, in the next block
    net.block()                                # one block of all chains
    net.settle()                               # blocks until every call has its answer
    net.refusals(), net.events(), net.roots(), net.state

Chains are given by name, the consensus chain is added where none is called ``consensus``. ``cuts``: into how many
buckets the chains are cut, none of which sees another's state. ``brought``: what carriers brought in the last block, by
bucket.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from causeway.config.faults import FaultRule, Faults
from causeway.config.topology import CHAINS_SCHEMA, PROGRAMS_SCHEMA, Topology
from causeway.config.traffic import CARRIED_SCHEMA, INGRESS_SCHEMA
from causeway.core.frame import Frame, concat, empty_frame
from causeway.core.vocabulary import EVENTS_SCHEMA, REVERTED, Event
from causeway.programs.runner import Programs
from causeway.protocols.contract import HEADERS_SCHEMA, Inputs, NearestState, Plan, RoundResult, Tick, View
from causeway.protocols.shared.messages import LANE, OUTBOUND_SCHEMA
from causeway.protocols.shared.state_tables import merge_states, restore_state, select_chains
from causeway.protocols.xdm.chains import add_consensus_chain
from causeway.protocols.xdm.kernel import XdmKernel, XdmPlan
from causeway.protocols.xdm.options import XdmOptions
from causeway.protocols.xdm.state import RequestKind, State
from causeway.protocols.xdm.validate import DeliveredEnvelopes
from tests.shown import shown_to
from tests.support.properties.caller_payloads import caller_payload

Placed = Mapping[int, str | tuple[str, Mapping[str, Any]] | None]
"""Program number -> class, or class and options, or None: known to live there, but nothing is installed."""

QUICK = {"archiving_depth": 2, "challenge_period": 3}


def topology_of(
    chains: Mapping[str, Placed], balance: int = 0, balances: Mapping[int, int] = MappingProxyType({})
) -> Topology:
    """Return the topology of chains, numbered in the order given, and the programs on them. ``balances``: of programs,
    where they are not ``balance``."""
    rows = []
    for chain, programs in enumerate(chains.values()):
        for number, placed in programs.items():
            name, options = placed if isinstance(placed, tuple) else (placed, {})
            has = Decimal(balances.get(number, balance))
            rows.append((number, f"p{number}", chain, name, json.dumps(options), has))
    records = [dict(zip(PROGRAMS_SCHEMA.names, row, strict=True)) for row in rows]
    table = pa.table({"number": pa.array(range(len(chains)), pa.uint64()), "name": list(chains)}, schema=CHAINS_SCHEMA)
    roles = {number: "consensus" for number, name in enumerate(chains) if name == "consensus"}
    return add_consensus_chain(Topology(table, pa.Table.from_pylist(records, schema=PROGRAMS_SCHEMA), roles=roles))


class Network:
    """Chains, each with its programs. ``faults``: of chains by name (``fault``); ``balance``: of every program."""

    def __init__(
        self,
        chains: Mapping[str, Placed],
        *,
        options: Mapping[str, Any] | None = None,
        balance: int = 0,
        balances: Mapping[int, int] = MappingProxyType({}),
        seed: int = 0,
        faults: Sequence[tuple[str, str | None, str | None, int, int, Mapping[str, Any]]] = (),
        cuts: int = 1,
        forgetful: bool = False,
    ) -> None:
        topology = topology_of(chains, balance, balances)
        number = dict(zip(topology.chains["name"].to_pylist(), topology.chains["number"].to_pylist(), strict=True))
        of: dict[str | None, int | None] = {None: None, **number}
        told = [
            FaultRule(kind, of[source], of[destination], first, last, args)
            for kind, source, destination, first, last, args in faults
        ]
        chosen = XdmOptions(**{**QUICK, **(options or {})})
        self.kernel = XdmKernel(topology, Programs(topology), chosen, seed, faults=Faults.of(*told))
        self.names = list(self.kernel.chains())
        self._number = number
        self._host = {number: name for name, programs in chains.items() for number in programs}
        everything = np.arange(len(self.names), dtype=np.uint32)
        self.groups = [group for group in (everything[cut::cuts] for cut in range(cuts)) if len(group)]
        self.forgetful = forgetful
        results = [self.kernel.genesis(group) for group in self.groups]
        self.results = results
        self.states: list[State] = [result.state for result in results]
        self.headers = concat([result.headers for result in results])
        self.past: list[State] = [self.state]
        self.logs: dict[str, list[tuple[int, int, Frame]]] = defaultdict(list)
        self.outbound: list[tuple[int, Frame]] = []
        self.told: dict[int, pa.Table] = {}
        self.height, self.tick = 0, -1
        self._told: list[tuple[int, int, int, str, bytes]] = []
        self.brought: list[DeliveredEnvelopes] = []
        self._keep_logs(results)

    # ---- play

    def call(
        self, caller: int, receiver: int, body: bytes = b"", *, amount: int = 0, user: int = 0, method: str = "call"
    ) -> None:
        """A user tells a program to call another, in the next block; ``method``: of that one."""
        payload = caller_payload(receiver, amount, method, body)
        self._told.append((self._number[self._host[caller]], caller, user, "call", payload))

    def block(self, count: int = 1) -> None:
        """Run ``count`` blocks of all chains, in consecutive ticks."""
        for _ in range(count):
            self._block(self.tick + 1)

    def sleep(self, tick: int) -> None:
        """Run the next block in a later tick; none is made in between."""
        self._block(tick)

    def settle(self, limit: int = 400) -> int:
        """Run blocks until every call has its answer, sleeping as long as the network says; return how many."""
        for count in range(limit):
            if count and self.idle():
                return count
            wakes = [result.wake for result in self.results if result.wake is not None]
            self._block(max(self.tick + 1, min(wakes, default=0)))
        raise AssertionError(f"calls still wait after {limit} blocks")

    def idle(self) -> bool:
        """Return whether no call waits for its answer."""
        state = self.state
        queues = state["queues"]
        waits = len(state["waiting"]) + len(state["open_calls"]) + len(state["pool"])
        # Requests to open or close a channel may never be answered (hazards 9 and 14).
        waits += int((state["outbox"]["asked"] == RequestKind.ENDPOINT).sum())
        return not waits and not bool((queues["next_index"] > queues["begin"]).any())

    def _block(self, at: int) -> None:
        self.height, self.tick = self.height + 1, at
        tick = Tick(self.height, at)
        columns = [list(column) for column in zip(*self._told, strict=True)] if self._told else [[]] * 5
        ingress, self._told = pa.table(columns, schema=INGRESS_SCHEMA), []
        self.told[self.height] = ingress
        results = []
        self.brought = []
        for group, state in zip(self.groups, self.states, strict=True):
            if self.forgetful:
                tables, frames = self.kernel.tables(), state.frames()
                state = restore_state(
                    self.kernel, {name: frames[name].to_table(table.schema) for name, table in tables.items()}
                )
            mine = np.isin(ingress["chain"].to_numpy(), self.kernel.numbers()[group])
            told, carried = ingress.filter(pa.array(mine)), CARRIED_SCHEMA.empty_table()
            plan = self.carry(self.kernel.plan(state, group, self.seen_by(group), told, carried, tick))
            self.brought.append(plan.content.load.delivered)
            reads = plan.reads
            past = {
                height: select_chains(
                    self.kernel, self.past[height], reads.past["chain"][reads.past["height"] == height], at
                )
                for height in np.unique(reads.past["height"]).tolist()
            }
            rows = {name: self._rows(name, spans) for name, spans in reads.rows.items()}
            again = self._told_again(reads.ingress)
            offered, own = self._offered(reads.offered), empty_frame(OUTBOUND_SCHEMA)
            nearest = {name: self._nearest(name, asked, at) for name, asked in reads.nearest.items()}
            inputs: Inputs[State] = Inputs(told, carried, offered, own, rows, past, again=again, nearest=nearest)
            results.append(self.kernel.round(state, group, plan, inputs, tick))
        self.results = results
        self.states = [result.state for result in results]
        self.headers = concat([result.headers for result in results])
        self.outbound += [(self.height, result.outbound) for result in results]
        self.past.append(self.state)
        self._keep_logs(results)

    def carry(self, plan: Plan[XdmPlan]) -> Plan[XdmPlan]:
        """Return the plan of a group's block: a subclass may change what carriers bring to its chains."""
        return plan

    def _keep_logs(self, results: Sequence[RoundResult[State]]) -> None:
        for result in results:
            for name, frame in result.logs.items():
                if len(frame):
                    self.logs[name].append((self.height, self.tick, frame))

    def _rows(self, name: str, spans: Frame) -> Frame:
        schema = self.kernel.logs[name].append(pa.field("height", pa.uint64())).append(pa.field("tick", pa.uint64()))
        found = [empty_frame(schema)]
        for chain, first, last in zip(*(spans[key].tolist() for key in ("chain", "first", "last")), strict=True):
            for height, tick, frame in self.logs[name]:
                if first <= height <= last:
                    rows = frame.filter(frame["chain"] == chain)
                    when = {
                        key: np.full(len(rows), value, dtype=np.uint64)
                        for key, value in (("height", height), ("tick", tick))
                    }
                    found.append(rows.with_columns(**when))
        return concat(found)

    def _nearest(self, name: str, asked: Frame, at: int) -> dict[int, NearestState[State]]:
        """Return what is at hand at heights: of odd ones the state, of even ones that of an earlier one and the log."""
        found = {}
        for height in np.unique(asked["height"]).tolist():
            chains = asked["chain"][asked["height"] == height]
            stand = self._standing(height)
            nearest = max(one for one in stand if one == height * (height % 2) or one % 8 == 0)
            rest = np.array([one for one in stand if one > nearest], dtype=np.uint64)
            spans = Frame({"chain": np.repeat(chains, len(rest)), "first": np.tile(rest, len(chains))})
            rows = self._rows(name, spans.with_columns(last=spans["first"]))
            state = select_chains(self.kernel, self.past[nearest], chains, at)
            found[height] = NearestState(state, rows.take(np.argsort(rows["height"], kind="stable")))
        return found

    def _standing(self, height: int) -> set[int]:
        """Return the heights up to one that no fork up to it has taken back."""
        gone: set[int] = set()
        for when, _, frame in self.logs[REVERTED]:
            if when <= height:
                gone |= set(range(int(frame["first"][0]), int(frame["last"][0]) + 1))
        return set(range(height + 1)) - gone

    def _offered(self, ranges: Frame) -> Frame:
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

    def reorganise(self, depth: int) -> None:
        """Let another fork of the consensus chain become the best in the next block: the last ``depth`` go."""
        fork = FaultRule("reorg", None, None, self.tick + 1, self.tick + 1, {"depth": depth})
        self.kernel = replace(self.kernel, faults=Faults.of(*self.kernel.faults.rows, fork))
        self.block()

    # ---- look

    def seen_by(self, group: Any) -> View:
        """Return what the chains of a group see of the height before, and nothing else."""
        headers = concat([empty_frame(HEADERS_SCHEMA), self.headers])
        headers = headers.take(np.argsort(headers["chain"], kind="stable"))
        height = np.full(len(headers), self.height - 1, dtype=np.uint64)
        return View(shown_to(self.kernel, self.states, group), headers.with_columns(height=height))

    @property
    def state(self) -> State:
        """Return the state of all chains as one."""
        return self.states[0] if len(self.states) == 1 else merge_states(self.kernel, self.states)

    def gone_back_to(self) -> int | None:
        """Return the height that the last one put the network back to, None where it did not."""
        rows = [frame for height, _, frame in self.logs[REVERTED] if height == self.height]
        return int(rows[0]["first"][0]) - 1 if rows else None

    def surviving_events(self) -> Frame:
        """Return the events that no fork has taken back (``EVENTS_SCHEMA``)."""
        gone: set[int] = set()
        for _, _, frame in self.logs[REVERTED]:
            gone |= set(range(int(frame["first"][0]), int(frame["last"][0]) + 1))
        found = [frame for height, _, frame in self.logs["events"] if height not in gone]
        return concat([empty_frame(EVENTS_SCHEMA), *found])

    def roots(self) -> dict[str, bytes]:
        """Return the root of each chain that made a block, by name."""
        rows = zip(self.headers["chain"].tolist(), self.headers["root"], strict=True)
        return {self.names[chain]: bytes(root) for chain, root in rows}

    def events(self, last: bool = False) -> Frame:
        """Return the events of all blocks, or of the last one (``EVENTS_SCHEMA``)."""
        found = [frame for height, _, frame in self.logs["events"] if not last or height == self.height]
        return concat([empty_frame(EVENTS_SCHEMA), *found])

    def refusals(self, last: bool = False) -> list[tuple[str, str]]:
        """Return (chain, reason) of every event that is a rejection, in order."""
        events = self.events(last)
        rejected = events.filter((events["events"] & np.uint16(Event.REJECTED)) > 0)
        rows = zip(rejected["chain"].tolist(), rejected["reason"].to_pylist(), strict=True)
        return [(self.names[chain], reason) for chain, reason in rows]
