"""Subspace cross-domain messaging behind the kernel contract: one block of any set of chains as a pure function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa

from causeway.config.faults import FOR_EVER, Faults
from causeway.config.topology import Topology
from causeway.core.frame import Frame, concat, empty_frame
from causeway.core.vocabulary import REVERTED, REVERTED_SCHEMA, VALUE_SCHEMA
from causeway.protocols.contract import (
    HEADERS_SCHEMA,
    QUIET_TICKS,
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
from causeway.protocols.shared.block_numbers import LAST_TICK, check_faults, check_number
from causeway.protocols.shared.events import LEDGER_LOGS, EventLog
from causeway.protocols.shared.execution import ProgramRunner
from causeway.protocols.shared.interference import HALT
from causeway.protocols.shared.messages import OUTBOUND_SCHEMA, locate_ranges, oldest_height
from causeway.protocols.shared.secrets import NONE, Secrets
from causeway.protocols.shared.state_tables import StaticHosting, change_programs, merge_states, select_chains
from causeway.protocols.xdm.block import process_block
from causeway.protocols.xdm.calls.allowlists import is_pending
from causeway.protocols.xdm.calls.arrivals import ingress_arrivals
from causeway.protocols.xdm.calls.open_calls import awaits_abandoned_chain, depends_on_block
from causeway.protocols.xdm.chains import CONSENSUS_POSITION, DomainNetwork
from causeway.protocols.xdm.check_counters import count_notices, count_proven
from causeway.protocols.xdm.consensus.chain import TAKEN_SCHEMA, due_heights, heights_frame
from causeway.protocols.xdm.consensus.commitment import (
    NOTHING,
    CommittedBlock,
    ProvableBlocks,
    advance_tries,
    commit_block,
    find_provable_blocks,
    move_anchor,
)
from causeway.protocols.xdm.consensus.followed import follow, genesis_following
from causeway.protocols.xdm.consensus.genesis import check_issued, genesis_tables, genesis_value
from causeway.protocols.xdm.consensus.receipts import settle_receipts
from causeway.protocols.xdm.context import ComputeFees, Context
from causeway.protocols.xdm.events import log_chain_events
from causeway.protocols.xdm.faults import (
    ForkPoint,
    check_depths,
    drop_pooled,
    forge,
    fork_at,
    max_rollback,
    plan_fork_reads,
    replanned_ticks,
    reverted_rows,
    rolled_back_state,
)
from causeway.protocols.xdm.lane_tables import index_state
from causeway.protocols.xdm.operators import ChainSigners, Operators
from causeway.protocols.xdm.options import XdmOptions
from causeway.protocols.xdm.planned_calls import PlannedCalls
from causeway.protocols.xdm.relay.carriers import CarrierInterference, CarrierLoad, deliver
from causeway.protocols.xdm.relay.proofs import ProvenMessages, next_provable_tick, prove
from causeway.protocols.xdm.relay.remote_chains import (
    ExternalInput,
    awaits_remote,
    check_remote_chains,
    local_only,
    merge_delivered,
    read_carried,
)
from causeway.protocols.xdm.state import State, state_of_frames, state_tables
from causeway.protocols.xdm.storage import STORAGE_SCHEMA, ChainTries, storage_changes
from causeway.protocols.xdm.tables import NEVER_FOUND, RECALLED_SCHEMA
from causeway.protocols.xdm.value.balances import ChainSums
from causeway.protocols.xdm.value.books import CoveredValue

BETWEEN = 8
"""Blocks that a message waits for besides, at most: for its receipt, its leaf, and to be seen."""


@dataclass(frozen=True)
class XdmPlan:
    """What a round of the chains begins with: what is brought to those that make a block (``running``), and the blocks
    that they prove under now. ``outside``: what was carried here from other lakes; ``due``: up to which block receipts
    are confirmed. ``fork``: the block that the network goes back to instead of all that."""

    running: Chains
    load: CarrierLoad
    outside: ExternalInput
    view: View
    provable: ProvableBlocks
    due: int | None
    fork: ForkPoint | None = None


@dataclass(frozen=True)
class XdmKernel(StaticHosting):
    """The state machine of a consensus chain and its domains.

    ``programs``: what runs on the chains; ``faults``: what goes wrong on purpose; ``secrets``: keys of chains that are
    not drawn from the seed. Some chains may be run by other lakes; without the consensus chain, a lake follows it.
    """

    topology: Topology
    programs: ProgramRunner
    options: XdmOptions = field(default_factory=XdmOptions)
    seed: int = 0
    tick_ns: int = 1_000_000_000
    faults: Faults = field(default_factory=Faults)
    secrets: Secrets = NONE

    name: ClassVar[str] = "xdm"
    outbound: ClassVar[pa.Schema] = OUTBOUND_SCHEMA
    logs: ClassVar[Mapping[str, pa.Schema]] = {
        **LEDGER_LOGS,
        "storage": STORAGE_SCHEMA,
        "receipts": TAKEN_SCHEMA,
        "value": VALUE_SCHEMA,
        REVERTED: REVERTED_SCHEMA,
    }
    header_heights: ClassVar[int] = 1
    last_tick: ClassVar[int] = LAST_TICK

    def __post_init__(self) -> None:
        """Check what the options plan against the chains and programs, what is issued, and the frauds of the scenario.
        Raises ``InvalidInput``."""
        check_issued(self.context(self._everywhere, Tick(0, 0)))
        self.interference.check(self.options.challenge_period)
        check_faults(self.faults.rows)
        check_depths(self.faults.rows, self.options)
        check_remote_chains(self.network, self.options, self.planned, self.faults)
        for chain in self.network.own(self._everywhere).tolist():
            self.signers.require(self.network.names[chain])

    @property
    def _everywhere(self) -> Chains:
        return np.arange(len(self.network.names), dtype=np.uint32)

    @cached_property
    def signers(self) -> ChainSigners:
        """Return the keys that chains sign with, for lakes that follow them."""
        needed = bool(len(self.network.external)) or bool(self.options.validator_keys)
        return ChainSigners(self.seed, self.options.validator_keys, self.secrets, needed)

    @cached_property
    def network(self) -> DomainNetwork:
        """Return the fixed parts of the network."""
        return DomainNetwork(self.topology)

    @cached_property
    def interference(self) -> CarrierInterference:
        """Return the scenario's faults."""
        return CarrierInterference(self.faults, self.network.numbers, self.seed)

    @cached_property
    def planned(self) -> PlannedCalls:
        """Return the calls about channels and allow lists that the options plan."""
        return PlannedCalls(self.options, self.network)

    @property
    def past_heights(self) -> int:
        """Return how old the state is that operators prove under, at most: of a chain that is halted, as old as it was
        and as long as it was halted; of one with false receipts, until those of honest operators are confirmed; with
        forks, also of one that has gone back."""
        # What follows the consensus chain waits for relay processes, too, as long as its blocks are remembered there.
        carried = self.options.mmr_roots if self.network.follows else 0
        waits = self.options.archiving_depth + self.options.challenge_period + self.interference.longest_fraud
        return waits + BETWEEN + carried + self._halted + self.held_heights

    @property
    def held_heights(self) -> int:
        """Return over how many heights the network may go back."""
        return max_rollback(self.options) + self._halted if self.interference.has_forks else 0

    @property
    def _halted(self) -> int:
        """Return for how many ticks chains are halted together."""
        halted = sum(
            fault.last - fault.first + 1 for fault in self.faults.rows if fault.kind == HALT and fault.last < FOR_EVER
        )
        return halted

    def context(self, chains: Chains, tick: Tick) -> Context:
        """Return what a block of ``chains`` at ``tick`` may know."""
        fixed = (self.network, self.options, self.programs, self.planned, self.fees, self.operators, self.signers)
        return Context(tick.height, tick.tick, self.seed, chains, *fixed)

    @cached_property
    def fees(self) -> ComputeFees:
        """Return what requests cost."""
        return ComputeFees.of(self.options, self.network.names)

    @cached_property
    def operators(self) -> Operators:
        """Return the operators of chains, and when they are absent."""
        return Operators.of(self.options.operators, self.faults.rows, self.network, self.seed)

    @property
    def hosting(self) -> DomainNetwork:
        """Return the chains, and where programs live."""
        return self.network

    def tables(self) -> Mapping[str, StateTable]:
        """Return every table that a state has, those of the programs in use included, by name."""
        return state_tables(self.programs.schemas())

    def state(self, frames: Mapping[str, Frame]) -> State:
        """Return the state that has these tables; one that is absent is empty."""
        return state_of_frames(frames, self.programs.schemas())

    def genesis(self, chains: Chains, coming: int | None = None) -> RoundResult[State]:
        """Return the state of ``chains`` at height 0, in which the channels between all that host programs are open."""
        follows = self.network.follows and CONSENSUS_POSITION in chains
        chains = self.network.own(chains)
        own = self.network.programs_on(chains)
        accounts, programs = self.programs.genesis(own[self.programs.installed(own)])
        context = replace(self.context(chains, Tick(0, -1)), height=0)
        if len(chains) == 0:
            nothing = self.state({})
            made = CommittedBlock(nothing, empty_frame(HEADERS_SCHEMA), empty_frame(STORAGE_SCHEMA))
            made = replace(made, state=genesis_following(nothing) if follows else nothing)
            return self._result(made, empty_frame(OUTBOUND_SCHEMA), {}, None, None)
        state = replace(self.state(genesis_tables(chains, accounts, context)), programs=programs)
        made = commit_block(None, state, ChainTries.of(chains), {}, None, context)
        issued = {"value": genesis_value(state, context)}
        if follows:
            made = replace(made, state=genesis_following(made.state))
        return self._result(made, empty_frame(OUTBOUND_SCHEMA), issued, self.planned.next_tick(0), None)

    def committed(self, state: State) -> Frame:
        """Return no entries: all that is committed to is in tables."""
        return empty_frame(RANGES_SCHEMA)

    def roots(self, state: State, chains: Chains, tick: Tick, committed: Frame) -> Frame:
        """Return the root of each chain's storage (``chain``, ``root``)."""
        if len(self.network.external):
            chains = self.network.own(chains)
            state = select_chains(self, state, chains, tick.tick)
        if len(chains) == 0:
            return empty_frame(HEADERS_SCHEMA).select(["chain", "root"])
        tries = ChainTries.of(chains)
        tries.change(storage_changes(None, state, self.context(chains, tick)))
        return Frame({"chain": chains, "root": tries.roots(chains)}, len(chains))

    def plan(
        self, state: State, chains: Chains, view: View, ingress: pa.Table, carried: pa.Table, tick: Tick
    ) -> Plan[XdmPlan]:
        """Let operators look at what is proved to their chains, and say under which blocks they prove now."""
        every, chains = chains, self.interference.running(self.network.own(chains), tick.tick)
        context = self.context(chains, tick)
        check_number(context.number)
        outside = read_carried(carried, every, chains, context)
        load = deliver(state, view, self.interference, context)
        fork = fork_at(view, self.interference, context, self.held_heights)
        if fork is not None:
            content = XdmPlan(chains, load, outside, view, NOTHING, None, fork)
            return Plan(plan_fork_reads(fork, every, context), content, EventLog().logs()["events"])
        provable = find_provable_blocks(state, chains, view, context, forks=self.interference.has_forks)
        due, rows = None, provable.rows()
        if context.has_consensus:
            due, taken = due_heights(state, context)
            rows["receipts"] = heights_frame([(CONSENSUS_POSITION, first, last) for first, last in taken])
        load = replace(load, brought=merge_delivered(load.brought, outside.brought))
        queues = state["queues"]
        local = queues.filter((queues["next_index"] > queues["begin"]) & np.isin(queues["source"], chains))
        ranges = local.with_columns(end=local["next_index"])
        reads = Reads(offered=locate_ranges(ranges, state["runs"]), rows=rows, nearest={"storage": provable.wanted()})
        return Plan(reads, XdmPlan(chains, load, outside, view, provable, due), EventLog().logs()["events"])

    def round(
        self, state: State, chains: Chains, plan: Plan[XdmPlan], inputs: Inputs[State], tick: Tick
    ) -> RoundResult[State]:
        """Run one block of ``chains`` and commit their storage; a halted chain makes none and keeps its state, and of
        those that other lakes run there is what was carried here."""
        running, everything = plan.content.running, state
        inputs = replace(inputs, ingress=local_only(inputs.ingress, self.network))
        if plan.content.fork is not None:
            return self._go_back(state, chains, plan.content, plan.content.fork, inputs, tick)
        if len(running) == len(chains):
            return self._block(state, chains, plan.content, inputs, tick)
        resting = np.setdiff1d(chains, running)
        if len(running):
            state = replace(select_chains(self, state, running, tick.tick), kept=state.kept)
        result = self._block(state, running, plan.content, inputs, tick)
        others = select_chains(self, everything, resting, tick.tick) if len(running) else result.state
        if self.network.follows and CONSENSUS_POSITION in resting:
            result, others = self._follow(result, others, plan.content, tick)
        state = replace(merge_states(self, [result.state, others]), kept=result.state.kept) if len(running) else others
        halted = self.network.own(resting)
        wake = earliest(result.wake, self.interference.next_resume_tick(halted, tick.tick))
        return replace(result, state=state, wake=wake, needs=oldest_height(state["runs"]))

    def _follow(
        self, result: RoundResult[State], state: State, content: XdmPlan, tick: Tick
    ) -> tuple[RoundResult[State], State]:
        """Return the result of a round with what is now known of the consensus chain, and that chain's rows."""
        log = EventLog()
        context = self.context(content.running, tick)
        found = follow(state, content.outside.followed, content.view, context)
        log_chain_events(found.notices, len(self.network.names), log)
        logs = {**result.logs, "receipts": found.receipts}
        for name, frame in log.logs().items():
            logs[name] = concat([logs[name], frame])
        wake = earliest(result.wake, tick.tick + 1 if found.moved else None)
        return replace(result, logs=logs, wake=wake), found.state

    def _go_back(
        self, state: State, chains: Chains, content: XdmPlan, fork: ForkPoint, inputs: Inputs[State], tick: Tick
    ) -> RoundResult[State]:
        """Put chains back to what they were at an earlier height; none makes a block."""
        log, context = EventLog(), self.context(content.running, tick)
        to_running = np.isin(self.network.positions_of(inputs.ingress["chain"].to_numpy()), content.running)
        ingress_arrivals(inputs.ingress.filter(pa.array(~to_running)), state, context, log)
        again = pa.concat_tables([inputs.again, inputs.ingress.filter(pa.array(to_running))])
        then = inputs.past[fork.height]
        state = rolled_back_state(state, then, again, content.load, fork, self.interference, chains, context)
        logs = {**log.logs(), REVERTED: reverted_rows(fork, chains, context)}
        made = CommittedBlock(state, empty_frame(HEADERS_SCHEMA), empty_frame(STORAGE_SCHEMA))
        return self._result(made, empty_frame(OUTBOUND_SCHEMA), logs, tick.tick + 1, self._gives_up(tick))

    def _block(
        self, state: State, chains: Chains, content: XdmPlan, inputs: Inputs[State], tick: Tick
    ) -> RoundResult[State]:
        """Run one block of chains none of which is halted."""
        log, context = EventLog(), self.context(chains, tick)
        log_chain_events(content.outside.notices, len(self.network.names), log)
        if len(chains) == 0:
            ingress_arrivals(inputs.ingress, state, context, log)
            made = CommittedBlock(state, empty_frame(HEADERS_SCHEMA), empty_frame(STORAGE_SCHEMA))
            return self._result(made, empty_frame(OUTBOUND_SCHEMA), log.logs(), None, self._gives_up(tick))
        context = replace(context, again=replanned_ticks(content.view))
        before = index_state(state)
        state = change_programs(before, self.network, self.programs, chains)
        cover = CoveredValue(content.view.tables["declared"], state["drawn"], set(self.network.external.tolist()))
        tables, money = dict[str, Frame](), ChainSums(state, cover)
        state, ingress = drop_pooled(state.with_tables(**content.load.late), inputs.ingress, context)
        if len(state["recalled"]):
            state = state.with_tables(recalled=empty_frame(RECALLED_SCHEMA))
        inputs = replace(inputs, ingress=ingress)
        if context.has_consensus:
            assert content.due is not None
            taken_in = inputs.rows["receipts"], content.due, money.books, content.outside.receipts
            settled = settle_receipts(state, content.view, *taken_in, context)
            state, tables["receipts"], notices = settled
            state = count_notices(state, notices)
            log_chain_events(notices, len(self.network.names), log)
        nearest = content.provable.at_hand(self, inputs)
        tries = advance_tries(before, content.provable, nearest, inputs.rows, context)
        state, outbound = process_block(state, content.load.brought, content.view, inputs, money, context, log)
        tables["value"] = money.log()
        proved = prove(state, tries, content.view, context)
        log_chain_events(proved.abandoned, len(self.network.names), log)
        state = count_proven(state, state["relaying"], proved.tables["envelopes"]).with_tables(**proved.tables)
        move_anchor(tries, content.provable, inputs.rows)
        made = commit_block(before, state, tries, tables, content.view, context)
        made = replace(made, state=forge(made.state, tries, content.view, self.interference, context))
        wake = self._wake(made.state, content.view, context, tick, proved)
        return self._result(made, outbound, {**log.logs(), **tables}, wake, self._gives_up(tick))

    def _result(
        self, made: CommittedBlock, outbound: Frame, logs: Mapping[str, Frame], wake: int | None, end: int | None
    ) -> RoundResult[State]:
        empty = {name: empty_frame(schema) for name, schema in self.logs.items()}
        every = {**empty, **logs, "storage": made.storage}
        needs = oldest_height(made.state["runs"])
        return RoundResult(made.state, outbound, every, made.headers, wake, needs, end, upkeep=("storage", "receipts"))

    def _gives_up(self, tick: Tick) -> int:
        """Return the tick from which on a round in which nothing moves is the last."""
        waits = 2 * (self.options.archiving_depth + self.options.challenge_period) + self.options.resubmit_after
        limit = QUIET_TICKS + waits + self.interference.longest_delay
        settled = max(self.interference.last_change, self.planned.last_tick)
        return idle_limit_tick(tick, settled=settled, idle_limit=limit)

    def next_planned(self, tick: int) -> int | None:
        """Return the first tick at or after ``tick`` at which the scenario has planned something, None if none is."""
        return earliest(self.interference.next_planned(tick), self.planned.next_tick(tick))

    def _wake(self, state: State, view: View, context: Context, tick: Tick, proved: ProvenMessages) -> int | None:
        """Return the next tick at which something happens of itself."""
        planned = self.next_planned(tick.tick + 1)
        queues = state["queues"]
        if (
            proved.more
            or bool((queues["next_index"] > queues["begin"]).any())
            or len(state["envelopes"])
            or awaits_abandoned_chain(state, proved.abandoned, context)
            or depends_on_block(state, context)
            or is_pending(state["allow_updates"])
            or bool((state["claims"]["origin"] == np.uint64(context.number)).any())
            or awaits_remote(state, self.network)
        ):
            return tick.tick + 1
        again = None if proved.again is None else max(proved.again - 1, tick.tick + 1)
        late = int(state["late"]["due"].min()) - 1 if len(state["late"]) else None
        frauds = state["frauds"]["found"][state["frauds"]["found"] < np.uint64(NEVER_FOUND)]
        found = int(frauds.min()) - 1 if len(frauds) else None
        return earliest(planned, next_provable_tick(state, view, context), again, late, found)
