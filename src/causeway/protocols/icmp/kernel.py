"""Polkadot's egress queues behind the kernel contract: one block of any set of chains as a pure function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa

from causeway.model.frame import Frame, concat, empty_frame
from causeway.model.joins import lookup
from causeway.model.ledger import REVERTED, REVERTED_SCHEMA
from causeway.model.order import stable_order
from causeway.protocols.block_numbers import check_faults
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
from causeway.protocols.digests import digests
from causeway.protocols.events import LEDGER_LOGS, EventLog
from causeway.protocols.icmp.block import authentic, process_block
from causeway.protocols.icmp.bodies import arrivals
from causeway.protocols.icmp.body_table import NEVER
from causeway.protocols.icmp.chains import RELAY_POSITION
from causeway.protocols.icmp.committing import commit_paras, commit_relay, genesis_hash
from causeway.protocols.icmp.context import Context
from causeway.protocols.icmp.errors import Inclusion
from causeway.protocols.icmp.finished import bodies_to_give_up, given_up, places_of
from causeway.protocols.icmp.forging import judge_consumed, judge_posted, with_forged
from causeway.protocols.icmp.forks import (
    RelayInterference,
    Standing,
    leaves_to_build_on,
    reverted_rows,
    standing,
    to_some,
    told_since,
    with_returns,
)
from causeway.protocols.icmp.ingress import complete_prefix, ingress, with_bodies
from causeway.protocols.icmp.leaves import leaves_of, with_leaves
from causeway.protocols.icmp.parachains import ParachainKernel, owners_of
from causeway.protocols.icmp.planned import Planned
from causeway.protocols.icmp.receipts import log_refused, receipts_of
from causeway.protocols.icmp.runtime import include
from causeway.protocols.icmp.state import State, blank_rows
from causeway.protocols.icmp.storage import LeafTries, para_roots
from causeway.protocols.icmp.tables import BLOCKS_SCHEMA, PARAS_SCHEMA, STATE_TABLES, TIPS_SCHEMA
from causeway.protocols.icmp.users import chains_to_change, pooled, refuse_stranded
from causeway.protocols.messages import LANE, OUTBOUND_SCHEMA
from causeway.protocols.partition import part, union
from causeway.protocols.segments import located, oldest
from causeway.protocols.tabled_state import KeptTries, with_changed_programs
from causeway.protocols.waking import earliest, gives_up


@dataclass(frozen=True)
class IcmpPlan:
    """What chains will do: those that are not halted; where they stand; the parachains that may make a block, what each
    is offered (``ingress``), and what it may consume of it, as far as it is there (``ingress.with_bodies``); the
    parachains that are registered at each leaf, and which queues senders give up: those that were consumed, and those
    that nobody ever will (``finished.bodies_to_give_up``); the last tick in which a body comes that has not come yet
    (0: none)."""

    running: Chains
    view: View
    standing: Standing
    bases: Frame
    listed: Frame
    entries: Frame
    active: Frame
    consumed: Frame
    gone: Frame
    coming: int


@dataclass(frozen=True)
class IcmpKernel(ParachainKernel):
    """The state machine of a relay chain and its parachains. ``faults``: what goes wrong on purpose."""

    logs: ClassVar[Mapping[str, pa.Schema]] = {**LEDGER_LOGS, REVERTED: REVERTED_SCHEMA}
    own_tables: ClassVar[Mapping[str, StateTable]] = STATE_TABLES

    def __post_init__(self) -> None:
        """Check the calls that the options plan, and the forks. Raises ``InvalidInput``."""
        check_faults(self.faults.rows)
        self.interference.check(self.options, self.network.names[RELAY_POSITION])
        assert self.planned is not None

    @property
    def past_heights(self) -> int:
        """Return how far back parachains go, at most."""
        return self.held_heights

    @cached_property
    def held_heights(self) -> int:
        """Return how far back parachains go, at most; 0 where they never do."""
        return self.interference.reach if self.interference.has_forks or self.planned.changes_paras else 0

    @cached_property
    def planned(self) -> Planned:
        """Return the calls that the options plan."""
        return Planned(self.options, self.network)

    @cached_property
    def interference(self) -> RelayInterference:
        """Return the scenario's faults."""
        return RelayInterference(self.faults, self.network.numbers, self.seed)

    def genesis(self, chains: Chains, coming: int | None = None) -> RoundResult[State]:
        """Return the state of ``chains`` at height 0: the parachains registered, their watermarks at genesis (D-3), but
        for those that are registered later."""
        tables: dict[str, Frame] = {}
        names = self.network.names
        relay = genesis_hash(names[RELAY_POSITION])
        paras = np.array([para for para in range(1, len(names)) if para not in self.planned.late], dtype=np.uint32)
        if RELAY_POSITION in chains:
            tables["blocks"] = blank_rows(BLOCKS_SCHEMA, 1, hash=digests([relay]))
            heads = digests([genesis_hash(names[para]) for para in paras.tolist()])
            marked = digests([relay] * len(paras))
            active = np.ones(len(paras), dtype=np.uint8)
            marks = {"head": heads, "watermark_hash": marked}
            tables["paras"] = blank_rows(PARAS_SCHEMA, len(paras), para=paras, active=active, **marks)
        mine = chains[chains != RELAY_POSITION]
        heads = digests([genesis_hash(names[para]) for para in mine.tolist()])
        tables["tips"] = blank_rows(TIPS_SCHEMA, len(mine), chain=mine, head=heads)
        return self.begun(chains, tables, {REVERTED: empty_frame(REVERTED_SCHEMA)})

    def roots(self, state: State, chains: Chains, tick: Tick, committed: Frame) -> Frame:
        """Return the root of each chain's storage (``chain``, ``root``); of the relay chain that of every leaf."""
        paras = chains[chains != RELAY_POSITION]
        found = Frame({"chain": paras, "root": para_roots(state, paras, owners_of(self, state, tick))}, len(paras))
        if len(paras) == len(chains):
            return found
        roots = LeafTries.of(leaves_of(state.tables)).roots()
        relay = Frame({"chain": np.full(len(roots), RELAY_POSITION, dtype=np.uint32), "root": roots}, len(roots))
        return concat([relay, found])

    def plan(
        self, state: State, chains: Chains, view: View, ingress: pa.Table, carried: pa.Table, tick: Tick
    ) -> Plan[IcmpPlan]:
        """Let collators look what their chains may consume, and of which queues the bodies are there."""
        running = self.interference.running(chains, tick.tick)
        stand = standing(state["tips"], state["returns"], view, self.interference, tick.tick)
        paras = view.tables["paras"]
        active = paras.filter(paras["active"] == 1).select(("leaf", "para"))
        goes = np.isin(stand.rows["chain"], stand.back["chain"])
        runs = np.isin(stand.rows["chain"], running)
        consumed, gone = bodies_to_give_up(state, view, stand)
        # Who goes back goes back to before its block: what it gives up for good is no part of one.
        rests = np.isin(stand.rows["chain"], gone["source"])
        bases = stand.rows.filter(stand.rows["included"] & stand.rows["registered"] & runs & ~goes & ~rests)
        listed, entries, coming = self._offered(bases, view, tick)
        bodies = entries.select([*LANE, "height"]).with_columns(
            begin=entries["first"], end=entries["first"] + entries["count"]
        )
        queues = state["queues"]
        full = queues["next_index"] > queues["begin"]
        local = queues.filter(
            full & (queues["source"] == queues["destination"]) & np.isin(queues["source"], bases["chain"])
        )
        own = located(local.with_columns(end=local["next_index"]), state["runs"])
        reads = Reads(
            offered=concat([bodies.select(RANGES_SCHEMA.names), own]),
            own=places_of(gone),
            past=stand.back,
            ingress=told_since(stand.back, tick.height),
        )
        content = IcmpPlan(running, view, stand, bases, listed, entries, active, consumed, gone, coming)
        return Plan(reads, content, EventLog().logs()["events"])

    def _offered(self, bases: Frame, view: View, tick: Tick) -> tuple[Frame, Frame, int]:
        """Return ``ingress(B, p)`` of parachains that may make a block, what they may consume of it, and the last tick
        in which a body comes that has not come yet (0: none)."""
        unrouted, blocks = view.tables["unrouted"], view.tables["blocks"]
        row = lookup(bases, Frame({"chain": unrouted["to"]}, len(unrouted)), ("chain",))
        mine = row >= 0
        mine[mine] = bases["leaf"][row[mine]] == unrouted["leaf"][mine]
        leaves = zip(blocks["leaf"], blocks["number"].tolist(), strict=True)
        lists = [ingress(unrouted.filter(mine & (unrouted["leaf"] == leaf)), now, self.options) for leaf, now in leaves]
        listed = lists[0] if len(lists) == 1 else concat(lists)
        listed = listed if len(lists) == 1 else listed.take(stable_order(listed["to"]))
        came = arrivals(listed, self.seed, self.tick_ns, self.options)
        held = came < tick.tick
        segments = view.tables["runs"]
        segments = segments.filter(segments["source"] != segments["destination"])
        entries = with_bodies(listed, segments)
        held &= entries["count"] > 0
        held &= self.interference.fetched(listed, tick.tick)
        coming = int(came[(came >= tick.tick) & (came < NEVER)].max(initial=-1)) + 1
        return listed.with_columns(held=held), complete_prefix(entries, ~held), coming

    def round(
        self, state: State, chains: Chains, plan: Plan[IcmpPlan], inputs: Inputs[State], tick: Tick
    ) -> RoundResult[State]:
        """Make a block on each leaf of the relay chain, and one of each parachain that has something to do and whose
        last one is included; those that go back make none."""
        log, content = EventLog(), plan.content
        everywhere = self.context(chains, content.active, tick)
        back = content.standing.back
        again, ingress = to_some(inputs.ingress, self.network.numbers[back["chain"]])
        state = pooled(ingress, state, everywhere, log)
        state = refuse_stranded(state, self.interference.halted_for_ever(tick.tick), log)
        headers, relay_moved = [empty_frame(HEADERS_SCHEMA)], False
        before = state
        state = given_up(state, content.consumed, content.gone, inputs.own, log)
        if RELAY_POSITION in content.running:
            state, made = self._relay_block(state, content, tick, log)
            headers.append(made)
            relay_moved = state["paras"] is not before["paras"]
        inside = inputs.offered["source"] == inputs.offered["destination"]
        bases, bodies = content.bases, inputs.offered.filter(~inside)
        listed, faults = content.listed, self.interference
        entries, bodies = authentic(content.entries, bodies, log)
        judge_consumed(bases, listed, entries, faults, tick.tick, self.options, log)
        local = inputs.offered.filter(inside)
        busy = [entries["to"], local["destination"], state["pool"]["chain"], chains_to_change(state, everywhere)]
        bases = bases.filter(np.isin(bases["chain"], np.concatenate(busy)))
        outbound = empty_frame(OUTBOUND_SCHEMA)
        if len(bases):
            state, outbound, made = self._para_blocks(state, bases, entries, bodies, local, content, tick, log)
            headers.append(made)
        if len(back):
            state = self._gone_back(state, back, inputs, again, everywhere, log)
        made = concat(headers)
        made = made.take(np.argsort(made["chain"], kind="stable"))
        moved = bool(len(bases)) or relay_moved or bool(len(back))
        logs = {**log.logs(), REVERTED: reverted_rows(back, tick.height)}
        settled = max(self.interference.last_change, self.planned.last_tick, content.coming)
        wake, end = self._wake(state, content, moved, tick), gives_up(tick, settled=settled)
        return RoundResult(state, outbound, logs, made, wake, oldest(state["runs"]), end)

    def _relay_block(self, state: State, content: IcmpPlan, tick: Tick, log: EventLog) -> tuple[State, Frame]:
        """Make the blocks of the relay chain: on its leaf, or on each of several that does not rest."""
        stage = self.interference.leaves.at(tick.tick)
        state, leaves, tries = leaves_to_build_on(state, stage, tick.tick, tick.height)
        made, headers, resting = [], [empty_frame(HEADERS_SCHEMA)], stage.rest(tick.tick)
        for place, leaf in enumerate(leaves):
            if int(leaf.blocks["leaf"][0]) in resting:
                made.append(leaf)
                continue
            calls = self.planned.between(int(leaf.blocks["next_tick"][0]), tick.tick)
            receipts = with_forged(receipts_of(content.view, leaf), leaf, self.interference, tick.tick)
            included = include(leaf, receipts, calls, tick.tick, self.options, alone=len(leaves) == 1)
            log_refused(receipts.rows, included.codes, log)
            heads = [head.tobytes() for head in receipts.rows["head"][included.codes == Inclusion.OK]]
            leaf, header = commit_relay(leaf, included.leaf, place, tries, heads, tick.tick)
            made.append(leaf)
            headers.append(header)
        state = with_leaves(state, made)
        return State(state.tables, state.programs, KeptTries(tries)), concat(headers)

    def _para_blocks(
        self,
        state: State,
        bases: Frame,
        entries: Frame,
        bodies: Frame,
        local: Frame,
        content: IcmpPlan,
        tick: Tick,
        log: EventLog,
    ) -> tuple[State, Frame, Frame]:
        context = self.context(bases["chain"], content.active, tick)
        kept = state.kept
        state = with_changed_programs(state, context.network, context.programs, context.chains)
        state, outbound = process_block(state, entries, bodies, local, bases, context, log)
        state, headers = commit_paras(state, bases, entries, owners_of(self, state, tick), tick.height)
        judge_posted(bases["chain"], state["egress"], self.interference, tick.tick, log)
        return State(state.tables, state.programs, kept), outbound, headers

    def _gone_back(
        self, state: State, back: Frame, inputs: Inputs[State], now: pa.Table, context: Context, log: EventLog
    ) -> State:
        """Return the state in which parachains are again what they were; ``now``: what users send them in this tick."""
        others = np.setdiff1d(context.chains, back["chain"])
        states = [part(self, state, others, context.tick)]
        for height in np.unique(back["height"]).tolist():
            mine = back["chain"][back["height"] == height]
            states.append(part(self, inputs.past[height], mine, context.tick))
        joined = union(self, states)
        reach = self.interference.reach
        joined = joined.with_tables(returns=with_returns(joined["returns"], back, context.height, reach))
        again = pa.concat_tables([inputs.again, now])
        joined = pooled(again, joined, context, log)
        return State(joined.tables, joined.programs, state.kept)

    def next_planned(self, tick: int) -> int | None:
        """Return the first tick at or after ``tick`` at which the scenario has planned something, None if none is."""
        return earliest(self.interference.next_planned(tick), self.planned.next_tick(tick))

    def _wake(self, state: State, content: IcmpPlan, moved: bool, tick: Tick) -> int | None:
        """Return the next tick at which something happens of itself."""
        queues = state["queues"]
        waits = bool(np.isin(state["pool"]["chain"], content.active["para"]).any()) or len(state["unrouted"])
        waits = waits or bool((queues["next_index"] > queues["begin"]).any())
        planned = self.next_planned(tick.tick + 1)
        return tick.tick + 1 if waits or moved or len(content.entries) else earliest(planned)
