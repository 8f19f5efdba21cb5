"""Polkadot's egress queues behind the kernel contract: one block of any set of chains as a pure function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa

from causeway.model.faults import Faults
from causeway.model.frame import Frame, concat, empty_frame
from causeway.model.joins import lookup
from causeway.model.ledger import COLLECTED_MESSAGES, Event, Kind
from causeway.model.section import LAST_TICK
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
from causeway.protocols.digests import digests, same
from causeway.protocols.events import LEDGER_LOGS, EventLog, event_rows, names_column
from causeway.protocols.execution import ProgramRunner
from causeway.protocols.hosting import HostedForGood
from causeway.protocols.icmp.block import process_block, validated
from causeway.protocols.icmp.chains import RELAY_POSITION, Network
from causeway.protocols.icmp.committing import commit_paras, commit_relay, genesis_hash, relay_trie
from causeway.protocols.icmp.context import Context
from causeway.protocols.icmp.errors import Inclusion
from causeway.protocols.icmp.ingress import complete_prefix, pending, with_bodies
from causeway.protocols.icmp.options import IcmpOptions
from causeway.protocols.icmp.runtime import include
from causeway.protocols.icmp.state import State, state_of_frames, state_tables
from causeway.protocols.icmp.storage import para_roots
from causeway.protocols.icmp.tables import BLOCKS_SCHEMA, PARAS_SCHEMA, TIPS_SCHEMA
from causeway.protocols.icmp.users import pooled
from causeway.protocols.interference import Interference
from causeway.protocols.messages import LANE, OUTBOUND_SCHEMA, blank_messages
from causeway.protocols.partition import owners
from causeway.protocols.segments import located, oldest
from causeway.protocols.waking import earliest, gives_up


@dataclass(frozen=True)
class IcmpPlan:
    """What chains will do: those that are not halted; the relay block that they build on; of the parachains whose last
    block is included, what they may consume (``ingress.with_bodies``), as far as it is there."""

    running: Chains
    view: View
    ready: Chains
    entries: Frame


@dataclass(frozen=True)
class IcmpKernel(HostedForGood):
    """The state machine of a relay chain and its parachains. ``faults``: what goes wrong on purpose."""

    topology: Topology
    programs: ProgramRunner
    options: IcmpOptions = field(default_factory=IcmpOptions)
    seed: int = 0
    tick_ns: int = 1_000_000_000
    faults: Faults = field(default_factory=Faults)

    name: ClassVar[str] = "icmp"
    outbound: ClassVar[pa.Schema] = OUTBOUND_SCHEMA
    logs: ClassVar[Mapping[str, pa.Schema]] = LEDGER_LOGS
    header_heights: ClassVar[int] = 1
    past_heights: ClassVar[int] = 0
    held_heights: ClassVar[int] = 0
    last_tick: ClassVar[int] = LAST_TICK

    @cached_property
    def network(self) -> Network:
        """Return the fixed parts of the network."""
        return Network(self.topology)

    @property
    def hosting(self) -> Network:
        """Return the chains, and where programs live."""
        return self.network

    @cached_property
    def interference(self) -> Interference:
        """Return the scenario's faults."""
        return Interference(self.faults, self.network.numbers, self.seed)

    def context(self, chains: Chains, tick: Tick) -> Context:
        """Return what a block of ``chains`` at ``tick`` may know."""
        return Context(tick.height, tick.tick, chains, self.network, self.options, self.programs)

    def tables(self) -> Mapping[str, StateTable]:
        """Return every table that a state has, those of the programs in use included, by name."""
        return state_tables(self.programs.schemas())

    def state(self, frames: Mapping[str, Frame]) -> State:
        """Return the state that has these tables; one that is absent is empty."""
        return state_of_frames(frames, self.programs.schemas())

    def genesis(self, chains: Chains, coming: int | None = None) -> RoundResult[State]:
        """Return the state of ``chains`` at height 0: all parachains registered, their watermarks at genesis (D-3)."""
        own = self.network.programs_on(chains)
        accounts, programs = self.programs.genesis(own[self.programs.installed(own)])
        tables, names = {"accounts": accounts}, self.network.names
        relay = genesis_hash(names[RELAY_POSITION])
        paras = np.arange(1, len(names), dtype=np.uint32)
        if RELAY_POSITION in chains:
            tables["blocks"] = self._rows(BLOCKS_SCHEMA, 1, hash=digests([relay]))
            heads = digests([genesis_hash(names[para]) for para in paras.tolist()])
            marked = digests([relay] * len(paras))
            tables["paras"] = self._rows(PARAS_SCHEMA, len(paras), para=paras, head=heads, watermark_hash=marked)
        mine = chains[chains != RELAY_POSITION]
        heads = digests([genesis_hash(names[para]) for para in mine.tolist()])
        marked = digests([relay] * len(mine))
        tables["tips"] = self._rows(TIPS_SCHEMA, len(mine), chain=mine, head=heads, watermark_hash=marked)
        state = self.state({**tables, **{"program_" + name: frame for name, frame in programs.items()}})
        roots = self.roots(state, chains, Tick(0, 0), empty_frame(RANGES_SCHEMA))
        hashes = [genesis_hash(names[chain]) for chain in chains.tolist()]
        headers = Frame(
            {
                "chain": chains,
                "number": np.zeros(len(chains), dtype=np.uint64),
                "hash": pa.array(hashes, pa.binary()),
                "parent": pa.array([b""] * len(chains), pa.binary()),
                "root": roots["root"],
                "certification": pa.array([b""] * len(chains), pa.binary()),
            },
            len(chains),
        )
        return self._result(state, empty_frame(OUTBOUND_SCHEMA), EventLog(), headers, self.next_planned(0), None)

    @staticmethod
    def _rows(schema: pa.Schema, count: int, **given: np.ndarray) -> Frame:
        columns = {}
        for column in schema:
            shape = (count, 32) if pa.types.is_fixed_size_binary(column.type) else count
            kind = np.uint8 if pa.types.is_fixed_size_binary(column.type) else column.type.to_pandas_dtype()
            columns[column.name] = given.get(column.name, np.zeros(shape, dtype=kind))
        return Frame(columns, count)

    def committed(self, state: State) -> Frame:
        """Return no entries: the roots of queues are in the table ``runs``."""
        return empty_frame(RANGES_SCHEMA)

    def roots(self, state: State, chains: Chains, tick: Tick, committed: Frame) -> Frame:
        """Return the root of each chain's storage (``chain``, ``root``)."""
        rows = np.zeros((len(chains), 32), dtype=np.uint8)
        paras = chains != RELAY_POSITION
        rows[paras] = para_roots(state, chains[paras], self._owners(state, tick))
        if not paras.all():
            rows[~paras] = relay_trie(None, state).roots(np.zeros(1, dtype=np.int64))
        return Frame({"chain": chains, "root": rows}, len(chains))

    def _owners(self, state: State, tick: Tick) -> dict[str, np.ndarray]:
        tables = self.tables()
        return {name: owners(self, tables[name], frame, tick.tick) for name, frame in state.frames().items()}

    def plan(
        self, state: State, chains: Chains, view: View, ingress: pa.Table, carried: pa.Table, tick: Tick
    ) -> Plan[IcmpPlan]:
        """Let collators look what their chains may consume, and of which queues the bodies are there."""
        running = self.interference.running(chains, tick.tick)
        tips = state["tips"].filter(np.isin(state["tips"]["chain"], running))
        paras = view.tables["paras"]
        at = lookup(paras, Frame({"para": tips["chain"]}, len(tips)), ("para",))
        tips = tips.filter(same(tips["head"], paras["head"][at]))
        now = int(view.tables["blocks"]["number"][-1])
        entries = pending(view.tables["unrouted"], tips, now, self.options)
        segments = view.tables["runs"]
        segments = segments.filter(segments["source"] != segments["destination"])
        entries = with_bodies(entries, segments, state)
        entries = complete_prefix(entries, entries["count"] == 0)
        bodies = entries.select([*LANE, "height"]).with_columns(
            begin=entries["first"], end=entries["first"] + entries["count"]
        )
        queues = state["queues"]
        local = queues.filter(
            (queues["source"] == queues["destination"])
            & (queues["next_index"] > queues["begin"])
            & np.isin(queues["source"], tips["chain"])
        )
        own = located(local.with_columns(end=local["next_index"]), state["runs"])
        reads = Reads(offered=concat([bodies.select(RANGES_SCHEMA.names), own]))
        return Plan(reads, IcmpPlan(running, view, tips["chain"], entries), EventLog().logs()["events"])

    def round(
        self, state: State, chains: Chains, plan: Plan[IcmpPlan], inputs: Inputs[State], tick: Tick
    ) -> RoundResult[State]:
        """Make a relay block, and a block of each parachain that has something to do and whose last one is included."""
        log, content = EventLog(), plan.content
        state = pooled(inputs.ingress, state, self.context(chains, tick), log)
        headers, relay_moved = [empty_frame(HEADERS_SCHEMA)], False
        before = state
        state = self._routed(state, content.view, log)
        if RELAY_POSITION in content.running:
            state, made = self._relay_block(before, state, content, tick, log)
            headers.append(made)
            relay_moved = state["paras"] is not before["paras"]
        inside = inputs.offered["source"] == inputs.offered["destination"]
        entries, bodies = validated(content.entries, inputs.offered.filter(~inside), log)
        local = inputs.offered.filter(inside)
        building = np.intersect1d(
            content.ready, np.concatenate([entries["destination"], local["destination"], state["pool"]["chain"]])
        )
        outbound = empty_frame(OUTBOUND_SCHEMA)
        if len(building):
            state, outbound, made = self._para_blocks(state, building, entries, bodies, local, tick, log)
            headers.append(made)
        made = concat(headers)
        made = made.take(np.argsort(made["chain"], kind="stable"))
        wake = self._wake(state, content, bool(len(building)) or relay_moved, tick)
        return self._result(state, outbound, log, made, wake, gives_up(tick, settled=self.interference.last_change))

    def _relay_block(
        self, before: State, state: State, content: IcmpPlan, tick: Tick, log: EventLog
    ) -> tuple[State, Frame]:
        relay = np.array([RELAY_POSITION], dtype=np.uint32)
        context = self.context(relay, tick)
        number = int(before["blocks"]["number"][-1]) + 1
        included = include(state, content.view, number, context)
        if len(included.refused):
            count = len(included.refused)
            control = blank_messages(count, kind=np.full(count, Kind.CONTROL, dtype=np.uint8))
            names = names_column([code.name for code in Inclusion], included.codes)
            ends = {"source": included.refused, "destination": np.full(count, RELAY_POSITION, dtype=np.uint32)}
            zero = np.zeros(count, dtype=np.uint64)
            control = control.with_columns(**ends, substream=zero, index=zero)
            log.add(event_rows(control, Event.REJECTED, chain=RELAY_POSITION, on_lane=True, reason=names))
        after = included.state["paras"]
        receipts = after.filter(after["included"] == np.uint64(number))
        return commit_relay(before, included.state, number, receipts, context)

    def _para_blocks(
        self, state: State, building: Chains, entries: Frame, bodies: Frame, local: Frame, tick: Tick, log: EventLog
    ) -> tuple[State, Frame, Frame]:
        context = self.context(building, tick)
        mine = state["tips"].filter(np.isin(state["tips"]["chain"], building))
        numbers = mine.select(["chain"]).with_columns(number=mine["number"] + np.uint64(1))
        kept = state.kept
        state, outbound = process_block(state, entries, bodies, local, numbers, context, log)
        state, headers = commit_paras(state, building, entries, self._owners(state, tick))
        return State(state.tables, state.programs, kept), outbound, headers

    def _routed(self, state: State, view: View, log: EventLog) -> State:
        """Return the state of chains without the queues that those they are for have consumed."""
        runs = state["runs"]
        cursors = view.tables.get("cursors")
        if cursors is None or len(runs) == 0 or len(cursors) == 0:
            return state
        at = lookup(cursors, state["queues"].select(LANE), ("destination", "source", "substream"))
        queues = state["queues"]
        to = np.where(at >= 0, cursors["index"][np.maximum(at, 0)], 0).astype(np.uint64)
        gone = (queues["source"] != queues["destination"]) & (to > queues["begin"])
        if not gone.any():
            return state
        lanes = queues.filter(gone).select(LANE)
        log.collected(lanes, COLLECTED_MESSAGES, queues["begin"][gone], to[gone])
        return state.with_lanes(state.lanes().advance(lanes, to[gone]))

    def _result(
        self, state: State, outbound: Frame, log: EventLog, headers: Frame, wake: int | None, end: int | None
    ) -> RoundResult[State]:
        return RoundResult(state, outbound, log.logs(), headers, wake, oldest(state["runs"]), end)

    def next_planned(self, tick: int) -> int | None:
        """Return the first tick at or after ``tick`` at which the scenario has planned something, None if none is."""
        return self.interference.next_planned(tick)

    def _wake(self, state: State, content: IcmpPlan, moved: bool, tick: Tick) -> int | None:
        """Return the next tick at which something happens of itself."""
        queues = state["queues"]
        waits = len(state["pool"]) or len(state["unrouted"]) or bool((queues["next_index"] > queues["begin"]).any())
        planned = self.next_planned(tick.tick + 1)
        return tick.tick + 1 if waits or moved or len(content.entries) else earliest(planned)
