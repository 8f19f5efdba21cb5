"""The state machine of a consensus chain and its domains (cross-domain messaging).

``XdmKernel`` implements the kernel contract for Subspace: one call makes one block of any set of chains. ``plan``
delivers pending envelopes to the operators and selects the blocks that they prove under. ``round`` executes the block,
proves new messages and commits the storage of every chain.

Reference: XDM, sections 2 to 4.
"""

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
from causeway.protocols.shared.events import LEDGER_LOGS, EventLog
from causeway.protocols.shared.execution import ProgramRunner
from causeway.protocols.shared.interference import HALT
from causeway.protocols.shared.limits import LAST_TICK, check_faults, check_number
from causeway.protocols.shared.messages import OUTBOUND_SCHEMA, locate_ranges, oldest_height
from causeway.protocols.shared.secrets import NONE, Secrets
from causeway.protocols.shared.state_tables import StaticHosting, change_programs, merge_states, select_chains
from causeway.protocols.xdm.block import process_block
from causeway.protocols.xdm.calls.allowlists import is_pending
from causeway.protocols.xdm.calls.arrivals import ingress_arrivals
from causeway.protocols.xdm.calls.open_calls import awaits_abandoned_chain, depends_on_block
from causeway.protocols.xdm.chains import CONSENSUS_POSITION, DomainNetwork
from causeway.protocols.xdm.check_counters import count_notices, count_proven
from causeway.protocols.xdm.consensus.chain import TAKEN_SCHEMA, due_heights
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
from causeway.protocols.xdm.lane_tables import MESSAGES, LaneTable
from causeway.protocols.xdm.operators import ChainSigners, Operators
from causeway.protocols.xdm.options import XdmOptions
from causeway.protocols.xdm.planned_calls import NO_REPEATS, PlannedCalls
from causeway.protocols.xdm.relay.carriers import CarrierInterference, CarrierLoad, deliver
from causeway.protocols.xdm.relay.proofs import ProvenMessages, next_provable_tick, prove
from causeway.protocols.xdm.relay.remote_chains import (
    NOTHING_CARRIED,
    ExternalInput,
    check_remote_chains,
    merge_delivered,
    read_carried,
)
from causeway.protocols.xdm.state import State, state_of_frames, state_tables
from causeway.protocols.xdm.storage import STORAGE_SCHEMA, ChainTries, storage_changes
from causeway.protocols.xdm.tables import NEVER_FOUND, RECALLED_SCHEMA
from causeway.protocols.xdm.value.balances import ChainSums
from causeway.protocols.xdm.value.books import CoveredValue

EXTRA_BLOCKS = 8
"""Additional blocks of latency per message: for receipt, leaf and the view of others."""


@dataclass(frozen=True)
class XdmPlan:
    """The input of a block: running chains, delivered envelopes, provable blocks.

    Attributes:
        running: Positions of the chains that make a block, ascending.
        load: Envelopes that carriers deliver in this block.
        external: Envelopes, receipts and blocks delivered from other lakes.
        view: Tables that chains published at the previous height.
        provable: Consensus blocks that operators prove under.
        due: Number of the last block with confirmed receipts; None without the consensus chain.
        fork: Block to return to; a plan with a fork makes no block.
    """

    running: Chains
    load: CarrierLoad
    external: ExternalInput
    view: View
    provable: ProvableBlocks
    due: int | None
    fork: ForkPoint | None = None


@dataclass(frozen=True)
class XdmKernel(StaticHosting):
    """The state machine of a consensus chain and its domains.

    Other lakes may run some of the chains. A lake without the consensus chain follows it.

    Attributes:
        topology: Chains, their roles and the programs on them.
        programs: Executor of the programs.
        options: Options of the protocol.
        seed: Seed of all random numbers.
        tick_ns: Duration of a tick (ns).
        faults: Planned faults.
        secrets: Signing keys that do not derive from the seed.

    Raises:
        InvalidInput: An option, planned call, issued amount or fault does not fit the network.
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
        """Validate options, planned calls, issued amounts and faults.

        Raises:
            InvalidInput: One of them does not fit the network.
        """
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
        """Return the signing keys of chains, for lakes that follow them."""
        needed = bool(len(self.network.external)) or bool(self.options.validator_keys)
        return ChainSigners(self.seed, self.options.validator_keys, self.secrets, needed)

    @cached_property
    def network(self) -> DomainNetwork:
        """Return the fixed properties of the network."""
        return DomainNetwork(self.topology)

    @cached_property
    def interference(self) -> CarrierInterference:
        """Return the scenario's faults."""
        return CarrierInterference(self.faults, self.network.numbers, self.seed)

    @cached_property
    def planned(self) -> PlannedCalls:
        """Return the planned calls on channels and allow lists."""
        return PlannedCalls(self.options, self.network)

    @property
    def past_heights(self) -> int:
        """Return the maximum age (heights) of state that operators prove under.

        Halts, disputed receipts and rollbacks extend the age by their duration.
        """
        # A following lake also waits for relay processes, as long as the consensus chain remembers its blocks.
        carried = self.options.mmr_roots if self.network.follows else 0
        waits = self.options.archiving_depth + self.options.challenge_period + self.interference.longest_fraud
        return waits + EXTRA_BLOCKS + carried + self._halted + self.retained_heights

    @cached_property
    def retained_heights(self) -> int:
        """Return the maximum depth (heights) of a rollback, 0 without forks."""
        return max_rollback(self.options) + self._halted if self.interference.has_forks else 0

    @property
    def _halted(self) -> int:
        """Return the total duration of temporary halts, in ticks."""
        halts = (fault for fault in self.faults.rows if fault.kind == HALT and fault.last < FOR_EVER)
        return sum(fault.last - fault.first + 1 for fault in halts)

    def context(self, chains: Chains, tick: Tick) -> Context:
        """Create the context of a block.

        Args:
            chains: Positions of the chains that make the block, ascending.
            tick: Height and tick of the block.
        """
        fixed = (self.network, self.options, self.programs, self.planned, self.fees, self.operators, self.signers)
        return Context(tick.height, tick.tick, self.seed, chains, *fixed, NO_REPEATS)

    @cached_property
    def fees(self) -> ComputeFees:
        """Return the compute fees of requests."""
        return ComputeFees.of(self.options, self.network.names)

    @cached_property
    def operators(self) -> Operators:
        """Return the operators of chains with their absences."""
        return Operators.of(self.options.operators, self.faults.rows, self.network, self.seed)

    @property
    def hosting(self) -> DomainNetwork:
        """Return the hosting chain of each program."""
        return self.network

    def tables(self) -> Mapping[str, StateTable]:
        """Return all state tables by name, including those of programs."""
        return state_tables(self.programs.schemas())

    def state(self, frames: Mapping[str, Frame]) -> State:
        """Create a state from frames.

        Args:
            frames: Tables by name; missing tables are empty.
        """
        return state_of_frames(frames, self.programs.schemas())

    def genesis(self, chains: Chains, coming: int | None = None) -> RoundResult[State]:
        """Return the state at height 0, with open channels between all hosting chains.

        Args:
            chains: Positions of the chains, ascending.
            coming: Ignored; part of the kernel contract.
        """
        follows = self.network.follows and CONSENSUS_POSITION in chains
        chains = self.network.own(chains)
        own = self.network.programs_on(chains)
        accounts, programs = self.programs.genesis(own[self.programs.installed(own)])
        context = replace(self.context(chains, Tick(0, -1)), height=0)
        if len(chains) == 0:
            empty = self.state({})
            block = _no_block(genesis_following(empty) if follows else empty)
            return self._result(block, empty_frame(OUTBOUND_SCHEMA), {}, None, None)
        state = replace(self.state(genesis_tables(chains, accounts, context)), programs=programs)
        block = commit_block(None, state, ChainTries.of(chains), {}, None, context)
        issued = {"value": genesis_value(state, context)}
        if follows:
            block = replace(block, state=genesis_following(block.state))
        return self._result(block, empty_frame(OUTBOUND_SCHEMA), issued, self.planned.next_tick(0), None)

    def committed(self, state: State) -> Frame:
        """Return no ranges: tables hold all committed data.

        Args:
            state: Ignored; part of the kernel contract.
        """
        return empty_frame(RANGES_SCHEMA)

    def roots(self, state: State, chains: Chains, tick: Tick, committed: Frame) -> Frame:
        """Compute the storage root of each chain.

        Args:
            state: State of ``chains``.
            chains: Positions of the chains, ascending.
            tick: Height and tick of the state.
            committed: Ignored; part of the kernel contract.

        Returns:
            One row a local chain: ``chain``, ``root``.
        """
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
        """Deliver envelopes and select the reads of the next block.

        Args:
            state: State of ``chains`` before the block.
            chains: Positions of the chains, ascending.
            view: Tables that chains published at the previous height.
            ingress: Messages from users.
            carried: Rows delivered from other lakes.
            tick: Height and tick of the block.

        Returns:
            The ranges and rows to read, and the input of ``round``.
        """
        no_events = EventLog().logs()["events"]
        running = self.interference.running(self.network.own(chains), tick.tick)
        context = self.context(running, tick)
        check_number(context.number)
        # Deliver the envelopes of operators and of other lakes, or return to an earlier block.
        external = read_carried(carried, chains, running, context) if carried.num_rows else NOTHING_CARRIED
        load = deliver(state, view, self.interference, context)
        has_forks = self.interference.has_forks
        fork = fork_at(view, self.interference, context, self.retained_heights) if has_forks else None
        if fork is not None:
            content = XdmPlan(running, load, external, view, NOTHING, None, fork)
            return Plan(plan_fork_reads(fork, chains, context), content, no_events)
        if external.delivered is not None:
            load = replace(load, delivered=merge_delivered(load.delivered, external.delivered))
        # Read the log up to the blocks to prove under (2.4), logged receipts, and local messages.
        provable, rows = find_provable_blocks(state, running, view, context, forks=has_forks)
        due = None
        if context.has_consensus:
            due, rows["receipts"] = due_heights(state, context)
        queues = state["queues"]
        pending = queues.filter((queues["next_index"] > queues["begin"]) & np.isin(queues["source"], running))
        offered = locate_ranges(pending.with_columns(end=pending["next_index"]), state["runs"])
        rebuilt = np.array(list(provable.rebuilt.items()), dtype=np.int64).reshape(-1, 2)
        nearest = {"chain": rebuilt[:, 0].astype(np.uint32), "height": rebuilt[:, 1].astype(np.uint64)}
        reads = Reads(offered=offered, rows=rows, nearest={"storage": Frame(nearest, len(rebuilt))})
        return Plan(reads, XdmPlan(running, load, external, view, provable, due), no_events)

    def round(
        self, state: State, chains: Chains, plan: Plan[XdmPlan], inputs: Inputs[State], tick: Tick
    ) -> RoundResult[State]:
        """Make one block of ``chains`` and commit their storage.

        Halted chains make no block and keep their state. Chains of other lakes contribute their delivered rows.

        Args:
            state: State of ``chains`` before the block.
            chains: Positions of the chains, ascending.
            plan: Result of ``plan``.
            inputs: Messages, rows and snapshots that the plan requested.
            tick: Height and tick of the block.

        Returns:
            The new state, outbound messages, logs and headers.
        """
        content = plan.content
        if len(self.network.external) and inputs.ingress.num_rows:
            is_external = pa.compute.is_in(inputs.ingress["chain"], pa.array(self.topology.external, pa.uint64()))
            inputs = replace(inputs, ingress=inputs.ingress.filter(pa.compute.invert(is_external)))
        if content.fork is not None:
            return self._roll_back(state, chains, content, content.fork, inputs, tick)
        if len(content.running) == len(chains):
            return self._block(state, chains, content, inputs, tick)
        return self._partial_block(state, chains, content, inputs, tick)

    def _partial_block(
        self, state: State, chains: Chains, content: XdmPlan, inputs: Inputs[State], tick: Tick
    ) -> RoundResult[State]:
        """Make one block of the running chains; halted and followed chains keep their state."""
        running, before = content.running, state
        resting = np.setdiff1d(chains, running)
        if len(running):
            state = replace(select_chains(self, state, running, tick.tick), kept=state.kept)
        result = self._block(state, running, content, inputs, tick)
        others = select_chains(self, before, resting, tick.tick) if len(running) else result.state
        if self.network.follows and CONSENSUS_POSITION in resting:
            result, others = self._follow(result, others, content, tick)
        state = replace(merge_states(self, [result.state, others]), kept=result.state.kept) if len(running) else others
        halted = self.network.own(resting)
        wake = earliest(result.wake, self.interference.next_resume_tick(halted, tick.tick))
        return replace(result, state=state, wake=wake, needs=oldest_height(state["runs"]))

    def _follow(
        self, result: RoundResult[State], state: State, content: XdmPlan, tick: Tick
    ) -> tuple[RoundResult[State], State]:
        """Advance the local copy of the consensus chain by its delivered blocks."""
        log = EventLog()
        context = self.context(content.running, tick)
        followed = follow(state, content.external.followed, content.view, context)
        log_chain_events(followed.notices, len(self.network.names), log)
        logs = {**result.logs, "receipts": followed.receipts}
        for name, frame in log.logs().items():
            logs[name] = concat([logs[name], frame])
        wake = earliest(result.wake, tick.tick + 1 if followed.moved else None)
        return replace(result, logs=logs, wake=wake), followed.state

    def _roll_back(
        self, state: State, chains: Chains, content: XdmPlan, fork: ForkPoint, inputs: Inputs[State], tick: Tick
    ) -> RoundResult[State]:
        """Restore the state of chains at an earlier height; no chain makes a block."""
        log, context = EventLog(), self.context(content.running, tick)
        to_running = np.isin(self.network.positions_of(inputs.ingress["chain"].to_numpy()), content.running)
        ingress_arrivals(inputs.ingress.filter(pa.array(~to_running)), state, context, log)
        pending = pa.concat_tables([inputs.again, inputs.ingress.filter(pa.array(to_running))])
        past = inputs.past[fork.height]
        state = rolled_back_state(state, past, pending, content.load, fork, self.interference, chains, context)
        logs = {**log.logs(), REVERTED: reverted_rows(fork, chains, context)}
        block = _no_block(state)
        return self._result(block, empty_frame(OUTBOUND_SCHEMA), logs, tick.tick + 1, tick)

    def _block(
        self, state: State, chains: Chains, content: XdmPlan, inputs: Inputs[State], tick: Tick
    ) -> RoundResult[State]:
        """Make one block of chains that are not halted."""
        log, context = EventLog(), self.context(chains, tick)
        count = len(self.network.names)
        log_chain_events(content.external.notices, count, log)
        if len(chains) == 0:
            ingress_arrivals(inputs.ingress, state, context, log)
            return self._result(_no_block(state), empty_frame(OUTBOUND_SCHEMA), log.logs(), None, tick)
        view, provable = content.view, content.provable
        if len(view.tables["recalled"]):
            context = replace(context, again=replanned_ticks(view))
        before = state.with_tables(**{name: LaneTable.of(state[name]) for name in MESSAGES})
        state, inputs, money = self._begin_block(before, content, inputs, context)
        tables = dict[str, Frame]()
        if context.has_consensus:
            # Accept and confirm the receipts of domains (2.4).
            assert content.due is not None
            submitted = inputs.rows["receipts"], content.due, money.books, content.external.receipts
            state, tables["receipts"], notices = settle_receipts(state, view, *submitted, context)
            log_chain_events(notices, count, log)
            state = count_notices(state, notices)
        tries = advance_tries(self, before, provable, inputs, context)
        state, outbound = process_block(state, content.load.delivered, view, inputs, money, context, log)
        state, tables["value"] = money.close(state)
        # Prove messages for the next block of their destinations (3.10), then commit the storage.
        proved = prove(state, tries, view, context)
        log_chain_events(proved.abandoned, count, log)
        state = count_proven(state, proved.tables["envelopes"]).with_tables(**proved.tables)
        move_anchor(tries, provable, inputs.rows)
        block = commit_block(before, state, tries, tables, view, context)
        block = replace(block, state=forge(block.state, tries, view, self.interference, context))
        wake = self._wake(block.state, view, context, tick, proved)
        return self._result(block, outbound, {**log.logs(), **tables}, wake, tick)

    def _begin_block(
        self, before: State, content: XdmPlan, inputs: Inputs[State], context: Context
    ) -> tuple[State, Inputs[State], ChainSums]:
        """Apply program changes; messages that a fork returned to the pool precede those of this tick."""
        declared, external = content.view.tables["declared"], self.network.external
        state = change_programs(before, self.network, self.programs, context.chains)
        cover = CoveredValue(declared, state["drawn"], set(external.tolist())) if len(external) else None
        money, state = ChainSums(state, cover), state.with_tables(**content.load.late)
        if len(state["pool"]):
            state, ingress = drop_pooled(state, inputs.ingress, context)
            inputs = replace(inputs, ingress=ingress)
        if len(state["recalled"]):
            state = state.with_tables(recalled=empty_frame(RECALLED_SCHEMA))
        return state, inputs, money

    def _result(
        self, block: CommittedBlock, outbound: Frame, logs: Mapping[str, Frame], wake: int | None, tick: Tick | None
    ) -> RoundResult[State]:
        """Complete a round's result: missing logs, storage changes, oldest height in use, idle limit."""
        empty = {name: empty_frame(schema) for name, schema in self.logs.items()}
        logs = {**empty, **logs, "storage": block.storage}
        needs, end = oldest_height(block.state["runs"]), None
        if tick is not None:
            waits = 2 * (self.options.archiving_depth + self.options.challenge_period) + self.options.resubmit_after
            limit = QUIET_TICKS + waits + self.interference.longest_delay
            settled = max(self.interference.last_change, self.planned.last_tick)
            end = idle_limit_tick(tick, settled=settled, idle_limit=limit)
        upkeep = ("storage", "receipts")
        return RoundResult(block.state, outbound, logs, block.headers, wake, needs, end, upkeep=upkeep)

    def next_planned(self, tick: int) -> int | None:
        """Return the first tick with a planned event, or None.

        Args:
            tick: First tick to consider.
        """
        return earliest(self.interference.next_planned(tick), self.planned.next_tick(tick))

    def _wake(self, state: State, view: View, context: Context, tick: Tick, proved: ProvenMessages) -> int | None:
        """Return the next tick with pending work, or None."""
        planned = self.next_planned(tick.tick + 1)
        queues, channels, external = state["queues"], state["channels"], self.network.external
        if (
            proved.more
            or bool((queues["next_index"] > queues["begin"]).any())
            or len(state["envelopes"])
            or (proved.abandoned and awaits_abandoned_chain(state, proved.abandoned, context))
            or ((len(state["waiting"]) or len(state["open_calls"])) and depends_on_block(state, context))
            or is_pending(state["allow_updates"])
            or bool((state["claims"]["origin"] == np.uint64(context.number)).any())
            # Chains of other lakes owe responses.
            or (len(external) and (np.isin(channels["foreign"], external) & (channels["count"] > 0)).any())
        ):
            return tick.tick + 1
        resubmission = None if proved.again is None else max(proved.again - 1, tick.tick + 1)
        late = int(state["late"]["due"].min()) - 1 if len(state["late"]) else None
        frauds = state["frauds"]["found"][state["frauds"]["found"] < np.uint64(NEVER_FOUND)]
        fraud_proof = int(frauds.min()) - 1 if len(frauds) else None
        return earliest(planned, next_provable_tick(state, view, context), resubmission, late, fraud_proof)


def _no_block(state: State) -> CommittedBlock:
    """Return a state without a block: no headers, no storage changes."""
    return CommittedBlock(state, empty_frame(HEADERS_SCHEMA), empty_frame(STORAGE_SCHEMA))
