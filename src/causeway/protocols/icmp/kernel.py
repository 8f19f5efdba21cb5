"""Polkadot's egress queues behind the kernel contract: one block of any set of chains as a pure function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa
from causeway_proofs.order import stable_order

from causeway.core.frame import Frame, concat, empty_frame
from causeway.core.joins import lookup_rows
from causeway.core.vocabulary import REVERTED, REVERTED_SCHEMA
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
    earliest,
    idle_limit_tick,
)
from causeway.protocols.icmp.bodies import body_arrivals, body_ranges, drop_bodies, find_finished_bodies
from causeway.protocols.icmp.faults import (
    add_forged_receipts,
    available_receipts,
    judge_consumption,
    judge_posted_roots,
    log_refused,
)
from causeway.protocols.icmp.forks import (
    ChainPositions,
    RelayInterference,
    apply_returns,
    chain_positions,
    leaves_to_build_on,
    partition_users,
    recalled_heights,
    reverted_rows,
)
from causeway.protocols.relay_chain.block import (
    chains_to_change,
    complete_prefix,
    list_ingress,
    locate_bodies,
    pool_messages,
    process_block,
    refuse_stranded,
    verify_bodies,
)
from causeway.protocols.relay_chain.commitment import (
    LeafTries,
    commit_parachains,
    commit_relay,
    genesis_hash,
    para_roots,
)
from causeway.protocols.relay_chain.errors import Inclusion
from causeway.protocols.relay_chain.network import RELAY_POSITION
from causeway.protocols.relay_chain.options import NEVER
from causeway.protocols.relay_chain.parachains import Context, ParachainKernel, PlannedParachainCalls, table_owners
from causeway.protocols.relay_chain.runtime import include
from causeway.protocols.relay_chain.state import (
    BLOCKS_SCHEMA,
    PARAS_SCHEMA,
    STATE_TABLES,
    TIPS_SCHEMA,
    State,
    blank_rows,
    read_leaves,
    store_leaves,
)
from causeway.protocols.shared.block_numbers import check_faults
from causeway.protocols.shared.digests import digests
from causeway.protocols.shared.events import LEDGER_LOGS, EventLog
from causeway.protocols.shared.messages import LANE, OUTBOUND_SCHEMA, locate_ranges, oldest_height
from causeway.protocols.shared.state_tables import TrieCache, change_programs, merge_states, select_chains


@dataclass(frozen=True)
class IcmpPlan:
    """What chains will do: those that are not halted; where they stand; the parachains that may make a block, what each
    is offered (``ingress``), and what it may consume of it, as far as it is there (``ingress.with_bodies``); the
    parachains that are registered at each leaf, and which queues senders give up: those that were consumed, and those
    that nobody ever will (``finished.bodies_to_give_up``); the last tick in which a body comes that has not come yet
    (0: none)."""

    running: Chains
    view: View
    standing: ChainPositions
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
        return self.interference.reach if self.interference.has_forks or self.planned.changes_parachains else 0

    @cached_property
    def planned(self) -> PlannedParachainCalls:
        """Return the calls that the options plan."""
        return PlannedParachainCalls(self.options, self.network)

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
        found = Frame({"chain": paras, "root": para_roots(state, paras, table_owners(self, state, tick))}, len(paras))
        if len(paras) == len(chains):
            return found
        roots = LeafTries.of(read_leaves(state.tables)).roots()
        relay = Frame({"chain": np.full(len(roots), RELAY_POSITION, dtype=np.uint32), "root": roots}, len(roots))
        return concat([relay, found])

    def plan(
        self, state: State, chains: Chains, view: View, ingress: pa.Table, carried: pa.Table, tick: Tick
    ) -> Plan[IcmpPlan]:
        """Let collators look what their chains may consume, and of which queues the bodies are there."""
        running = self.interference.running(chains, tick.tick)
        stand = chain_positions(state["tips"], state["returns"], view, self.interference, tick.tick)
        paras = view.tables["paras"]
        active = paras.filter(paras["active"] == 1).select(("leaf", "para"))
        goes = np.isin(stand.rows["chain"], stand.back["chain"])
        runs = np.isin(stand.rows["chain"], running)
        consumed, gone = find_finished_bodies(state, view, stand)
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
        own = locate_ranges(local.with_columns(end=local["next_index"]), state["runs"])
        reads = Reads(
            offered=concat([bodies.select(RANGES_SCHEMA.names), own]),
            own=body_ranges(gone),
            past=stand.back,
            ingress=recalled_heights(stand.back, tick.height),
        )
        content = IcmpPlan(running, view, stand, bases, listed, entries, active, consumed, gone, coming)
        return Plan(reads, content, EventLog().logs()["events"])

    def _offered(self, bases: Frame, view: View, tick: Tick) -> tuple[Frame, Frame, int]:
        """Return ``ingress(B, p)`` of parachains that may make a block, what they may consume of it, and the last tick
        in which a body comes that has not come yet (0: none)."""
        unrouted, blocks = view.tables["unrouted"], view.tables["blocks"]
        row = lookup_rows(bases, Frame({"chain": unrouted["to"]}, len(unrouted)), ("chain",))
        mine = row >= 0
        mine[mine] = bases["leaf"][row[mine]] == unrouted["leaf"][mine]
        leaves = zip(blocks["leaf"], blocks["number"].tolist(), strict=True)
        lists = [
            list_ingress(unrouted.filter(mine & (unrouted["leaf"] == leaf)), now, self.options) for leaf, now in leaves
        ]
        listed = lists[0] if len(lists) == 1 else concat(lists)
        listed = listed if len(lists) == 1 else listed.take(stable_order(listed["to"]))
        came = body_arrivals(listed, self.seed, self.tick_ns, self.options)
        held = came < tick.tick
        segments = view.tables["runs"]
        segments = segments.filter(segments["source"] != segments["destination"])
        entries = locate_bodies(listed, segments)
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
        again, ingress = partition_users(inputs.ingress, self.network.numbers[back["chain"]])
        state = pool_messages(ingress, state, everywhere, log)
        state = refuse_stranded(state, self.interference.permanently_halted(tick.tick), log)
        headers, relay_moved = [empty_frame(HEADERS_SCHEMA)], False
        before = state
        state = drop_bodies(state, content.consumed, content.gone, inputs.own, log)
        if RELAY_POSITION in content.running:
            state, made = self._relay_block(state, content, tick, log)
            headers.append(made)
            relay_moved = state["paras"] is not before["paras"]
        inside = inputs.offered["source"] == inputs.offered["destination"]
        bases, bodies = content.bases, inputs.offered.filter(~inside)
        listed, faults = content.listed, self.interference
        entries, bodies = verify_bodies(content.entries, bodies, log)
        judge_consumption(bases, listed, entries, faults, tick.tick, self.options, log)
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
        wake, end = self._wake(state, content, moved, tick), idle_limit_tick(tick, settled=settled)
        return RoundResult(state, outbound, logs, made, wake, oldest_height(state["runs"]), end)

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
            receipts = add_forged_receipts(available_receipts(content.view, leaf), leaf, self.interference, tick.tick)
            included = include(leaf, receipts, calls, tick.tick, self.options, alone=len(leaves) == 1)
            log_refused(receipts.rows, included.codes, log)
            heads = [head.tobytes() for head in receipts.rows["head"][included.codes == Inclusion.OK]]
            leaf, header = commit_relay(leaf, included.leaf, place, tries, heads, tick.tick)
            made.append(leaf)
            headers.append(header)
        state = store_leaves(state, made)
        return State(state.tables, state.programs, TrieCache(tries)), concat(headers)

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
        state = change_programs(state, context.network, context.programs, context.chains)
        state, outbound = process_block(state, entries, bodies, local, bases, context, log)
        state, headers = commit_parachains(state, bases, entries, table_owners(self, state, tick), tick.height)
        judge_posted_roots(bases["chain"], state["egress"], self.interference, tick.tick, log)
        return State(state.tables, state.programs, kept), outbound, headers

    def _gone_back(
        self, state: State, back: Frame, inputs: Inputs[State], now: pa.Table, context: Context, log: EventLog
    ) -> State:
        """Return the state in which parachains are again what they were; ``now``: what users send them in this tick."""
        others = np.setdiff1d(context.chains, back["chain"])
        states = [select_chains(self, state, others, context.tick)]
        for height in np.unique(back["height"]).tolist():
            mine = back["chain"][back["height"] == height]
            states.append(select_chains(self, inputs.past[height], mine, context.tick))
        joined = merge_states(self, states)
        reach = self.interference.reach
        joined = joined.with_tables(returns=apply_returns(joined["returns"], back, context.height, reach))
        again = pa.concat_tables([inputs.again, now])
        joined = pool_messages(again, joined, context, log)
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
