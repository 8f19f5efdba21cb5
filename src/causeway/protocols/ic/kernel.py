"""The kernel of the Internet Computer: one round of any set of subnets as a pure function.

``plan`` builds the XNet payloads. ``round`` runs the phases of the reference: decode the batch, process it and certify
the resulting state (IC reference 3.1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.errors import IndexOverflow, InvalidInput, InvariantViolation
from causeway_proofs.order import U64

from causeway.config.faults import Faults
from causeway.config.section import LAST_TICK
from causeway.config.topology import Topology
from causeway.core.frame import Frame, concat, empty_frame, repeat_bytes
from causeway.core.vocabulary import EVENTS_SCHEMA
from causeway.protocols.contract import (
    QUIET_TICKS,
    RANGES_SCHEMA,
    Chains,
    Hosts,
    Inputs,
    Plan,
    RoundResult,
    StateTable,
    Tick,
    View,
    earliest,
    idle_limit_tick,
    next_wake_tick,
)
from causeway.protocols.ic.agreement import Agreement, agree, plan_certified
from causeway.protocols.ic.batch import DecodedBatch, XNetPlan, decode_batch, make_plan, stream_ranges
from causeway.protocols.ic.certified_heights import commit_and_certify, first_heads
from causeway.protocols.ic.commitment import build_trees, certified_roots, uncertified_roots
from causeway.protocols.ic.execution import execute
from causeway.protocols.ic.faults import Carriers, check_faults, find_share_faults, ignored_batches
from causeway.protocols.ic.induction import pre_process
from causeway.protocols.ic.options import IcOptions
from causeway.protocols.ic.registry import (
    NO_CHAINS,
    Context,
    Registry,
    change_ticks,
    check_registry,
    lifetime_ticks,
    registry_at,
    splitting_subnets,
    subnet_positions,
)
from causeway.protocols.ic.registry_changes import (
    add_subnets,
    admit_canisters,
    change_canister_programs,
    exclude_chains,
    halt,
    mark_stopped,
    newly_stopped,
    remove_ended,
    select_step,
)
from causeway.protocols.ic.routing import in_lane_order, post_process
from causeway.protocols.ic.state import RoundStep, State, state_from_tables, state_tables
from causeway.protocols.ic.streams.check_slice import find_unknown_roots, read_carried_rejects, refusal_events
from causeway.protocols.ic.streams.endpoint import cut_slices, expected_indexes, filter_new, get_streams
from causeway.protocols.ic.streams.payload_builder import get_xnet_payload
from causeway.protocols.ic.streams.remote_slices import RemoteSubnets
from causeway.protocols.ic.subnet_keys import Certifier, ShareFaults, listed_keys
from causeway.protocols.shared.events import LEDGER_LOGS, EventLog, merge_logs
from causeway.protocols.shared.execution import PROGRAM_TABLE, ProgramRunner
from causeway.protocols.shared.messages import OUTBOUND_SCHEMA, oldest_height
from causeway.protocols.shared.option_values import check_tick
from causeway.protocols.shared.secrets import NONE, Secrets
from causeway.protocols.shared.state_tables import merge_states, select_chains

MAX_CHAINS = 2**16
"""Maximum number of subnets: a pair of positions fits one 32-bit word."""


@dataclass(frozen=True)
class IcKernel:
    """The state machine of a network of subnets.

    Attributes:
        topology: The network.
        programs: The canisters' programs.
        options: The protocol options.
        seed: The seed of all random draws.
        tick_ns: The batch time of a tick, in nanoseconds.
        faults: The injected faults.
        secrets: The secret keys that are not derived from the seed.
    """

    topology: Topology
    programs: ProgramRunner
    options: IcOptions = field(default_factory=IcOptions)
    seed: int = 0
    tick_ns: int = 1_000_000_000
    faults: Faults = field(default_factory=Faults)
    secrets: Secrets = NONE

    name: ClassVar[str] = "ic"
    outbound: ClassVar[pa.Schema] = OUTBOUND_SCHEMA
    logs: ClassVar[Mapping[str, pa.Schema]] = LEDGER_LOGS
    past_heights: ClassVar[int] = 0
    retained_heights: ClassVar[int] = 0
    last_tick: ClassVar[int] = LAST_TICK

    def __post_init__(self) -> None:
        check_tick(self.tick_ns)
        if self.topology.chains.num_rows > MAX_CHAINS:
            raise InvalidInput(f"chains: {self.topology.chains.num_rows}; at most {MAX_CHAINS} are allowed")
        self.remotes.require_keys(self.options, self.secrets, self.chains())  # also checks the remote subnets
        check_registry(self.topology, self.options)
        check_faults(self.faults, self.topology, self.options)

    @cached_property
    def _change_ticks(self) -> list[int]:
        return sorted({*change_ticks(self.topology), *self.remotes.change_ticks})

    @cached_property
    def _registries(self) -> dict[int, Registry]:
        return {}

    def registry(self, tick: int) -> Registry:
        """Return the registry version in force in the round of ``tick``."""
        applied = sum(1 for change_tick in self._change_ticks if change_tick <= tick)
        if applied not in self._registries:
            registry = registry_at(self.topology, tick, self.options.nodes)
            endpoints = self.remotes.endpoints(tick, registry.members)
            self._registries[applied] = replace(registry, version=1 + applied, endpoints=endpoints)
        return self._registries[applied]

    @cached_property
    def _subnets(self) -> U64:
        return subnet_positions(self.topology)

    @cached_property
    def remotes(self) -> RemoteSubnets:
        """Return the subnets of other lakes."""
        return RemoteSubnets(self.topology, self.options, self._subnets, self.chains())

    @cached_property
    def carriers(self) -> Carriers:
        """Return the carriers of slices between subnets, with the scenario's faults."""
        return Carriers(self.faults, self._subnets, self.seed)

    def certifier(self, tick: Tick) -> Certifier:
        """Return the certifier of the subnets' states at ``tick``."""
        nodes = self.registry(tick.tick).nodes
        faults = find_share_faults(self.faults, tick.tick) if self.faults.rows else ShareFaults()
        listed = listed_keys(self.options, self.chains()) if self.options.chain_keys else {}
        fixed = (nodes, self.remotes.keys, faults, listed, self.secrets, tick.height)
        return Certifier(self._subnets, self.seed, self.options, *fixed)

    @property
    def header_heights(self) -> int:
        """Return the number of visible heights of headers.

        Carriers may offer older slices where slices are not certified, hence more than one height there.
        """
        return 1 if self.options.certified else 1 + self.carriers.oldest(0)

    def context(self, chains: Chains, tick: Tick) -> Context:
        """Return the metadata of the round of ``chains`` at ``tick``."""
        registry = self.registry(tick.tick)
        before = self.registry(max(tick.tick, 1) - 1)
        clock = (tick.height, tick.tick, self.tick_ns)
        splits = self.topology.membership.splits
        splitting = splitting_subnets(self.topology, self._subnets, tick.tick) if splits else NO_CHAINS
        return Context(*clock, self.seed, chains, registry, self.options, self.programs, before, splitting)

    # ---- network

    def chains(self) -> Sequence[str]:
        """Return the subnets' names by position (the order of their id bytes)."""
        numbers = self.topology.chains["number"].to_pylist()
        names = dict(zip(numbers, self.topology.chains["name"].to_pylist(), strict=True))
        return [names[number] for number in self._subnets.tolist()]

    def numbers(self) -> U64:
        """Return the subnets' numbers by position."""
        return self._subnets

    def weights(self) -> npt.NDArray[np.float64]:
        """Return one plus the number of canisters of each subnet at genesis."""
        hosts = self.registry(0).hosts
        return (np.bincount(hosts[hosts >= 0], minlength=len(self._subnets)) + 1).astype(np.float64)

    def tables(self) -> Mapping[str, StateTable]:
        """Return every state table by name, those of the program classes in use included."""
        return state_tables(self.programs.schemas())

    def registry_version(self, tick: int) -> int:
        """Return the number of the registry version in force in the round of ``tick``."""
        return self.registry(tick).version

    def hosts(self, programs: U64, tick: int) -> Hosts:
        """Return the current or last hosting subnet of each canister in the round of ``tick``."""
        return self.registry(tick).last_hosts(programs)

    def state(self, frames: Mapping[str, Frame]) -> State:
        """Return the state with these tables; absent tables are empty."""
        return state_from_tables(frames, self.programs.schemas(), self.options.index_base)

    def genesis(self, chains: Chains, coming: int | None = None) -> RoundResult[State]:
        """Return the state of ``chains`` at height 0: empty queues and streams, new programs."""
        registry, chains = self.registry(0), self.remotes.here(chains)
        state = self._installed(registry.canisters[np.isin(registry.hosts, chains.astype(np.int32))])
        nothing = empty_frame(self.outbound)
        if self.options.certified:
            state = replace(state, heads=first_heads(chains))
            state = build_trees(state, nothing, self.context(chains, Tick(0, 0)))
        members, first = chains[registry.has(chains)], Tick(0, 0)
        if self.options.certified:
            context, certifier = self.context(chains, first), self.certifier(first)
            oldest_offer = self.carriers.oldest(1)
            state, headers, log = commit_and_certify(state, None, members, nothing, oldest_offer, context, certifier)
        else:
            headers, log = self.headers(state, chains, first), EventLog()
        logs = merge_logs([log], empty_frame(EVENTS_SCHEMA))
        return RoundResult(state, nothing, logs, headers, self.next_planned(0))

    def _installed(self, canisters: U64) -> State:
        """Return a state with only the initial program states of ``canisters`` (ascending)."""
        accounts, programs = self.programs.genesis(canisters[self.programs.installed(canisters)])
        return self.state({"accounts": accounts, **{PROGRAM_TABLE + name: rows for name, rows in programs.items()}})

    def headers(self, state: State, chains: Chains, tick: Tick) -> Frame:
        """Return the uncertified headers of ``chains`` (``HEADERS_SCHEMA``): their state roots."""
        nothing = repeat_bytes(b"", len(chains))
        return Frame(
            {
                "chain": chains,
                "number": np.full(len(chains), tick.height, dtype=np.uint64),
                "hash": nothing,
                "parent": nothing,
                "root": uncertified_roots(state, self.context(chains, tick)),
                "certification": nothing,
            }
        )

    def committed(self, state: State) -> Frame:
        """Return the ranges of all messages in streams if subnets certify them, else none."""
        return stream_ranges(state) if self.options.certified else empty_frame(RANGES_SCHEMA)

    def roots(self, state: State, chains: Chains, tick: Tick, committed: Frame) -> Frame:
        """Return the root of each subnet's state (``chain``, ``root``)."""
        chains = self.remotes.here(chains)
        if not self.options.certified:
            return self.headers(state, chains, tick).select(["chain", "root"])
        context = self.context(chains, tick)
        roots = certified_roots(build_trees(state, committed, context), chains, context)
        return Frame({"chain": chains, "root": roots}, len(chains))

    # ---- schedule

    def idle(self, state: State) -> bool:
        """Return True if no queue or stream holds a message and no agreed batch is pending."""
        streams = state.streams.counters
        queues = (state.ingress_queues, state.input_queues, state.output_queues)
        in_streams = streams["next_index"] > streams["begin"]
        if len(self.remotes.external):
            # The progress of a subnet of another lake is unknown here.
            in_streams &= ~np.isin(streams["destination"], self.remotes.external)
        if self.options.loopback == "seed_literal":
            in_streams &= streams["source"] != streams["destination"]
        at_rest = not in_streams.any() and all(len(queue.elements) == 0 for queue in queues)
        return at_rest and not len(state.agreed)

    def next_planned(self, tick: int) -> int | None:
        """Return the first tick from ``tick`` on with a registry change or a carrier fault, or None."""
        changes = (change_tick for change_tick in self._change_ticks if change_tick >= tick)
        return earliest(next(changes, None), self.carriers.next_planned(tick))

    @cached_property
    def _idle_limits(self) -> tuple[int, int]:
        """Return the tick from which on nothing is planned to change, and the ticks without movement that end a run."""
        longest_wait = lifetime_ticks(self.options, self.tick_ns) + 1 if self.options.timeouts == "on" else 0
        longest_wait += self.options.certification_delay + self.options.blocks_ahead
        settled = max([0, *self._change_ticks, self.carriers.last_change]) + longest_wait
        return settled, QUIET_TICKS + longest_wait

    # ---- round

    def plan(
        self, state: State, chains: Chains, view: View, ingress: pa.Table, carried: pa.Table, tick: Tick
    ) -> Plan[XNetPlan]:
        """Build the payloads of ``chains`` from the valid slices, with events for the refused ones.

        See ``contract.Kernel.plan``.
        """
        chains = self.remotes.here(chains)
        _, context = self._running(state, chains, tick)
        halted = len(context.chains) < len(chains)
        local = select_chains(self, state, context.chains, tick.tick) if halted else state
        if self.options.certified:
            wired = self.remotes.read(carried, context) if carried.num_rows else None
            return plan_certified(state, local, view, self.carriers, context, wired)
        expected = expected_indexes(state, (), self.options.index_base)
        available = get_streams(expected, view, context)
        older = cut_slices(state.kept_slices, expected, context)
        slices = self.carriers.carry(filter_new(expected, available, context), available, older, context)
        rejects = read_carried_rejects(slices, view, context)
        unknown = find_unknown_roots(slices, view)
        accepted, errors = get_xnet_payload(state, slices, rejects, unknown, context, expected=expected)
        kept_slices = self.carriers.update_headers(state.kept_slices, view, chains, tick)
        rejects = read_carried_rejects(accepted, view, context)
        refusals = refusal_events(slices, errors, self.options) if errors.any() else empty_frame(EVENTS_SCHEMA)
        return make_plan(local, accepted, rejects, view, kept_slices, refusals, context)

    def round(
        self, state: State, chains: Chains, plan: Plan[XNetPlan], inputs: Inputs[State], tick: Tick
    ) -> RoundResult[State]:
        """Run one round of ``chains``: decode the batch, process it, commit to the result (3.1).

        A halted chain keeps its state. A chain that violates a hard invariant is stopped from this round on, and the
        round runs again without it (X-17).
        """
        chains = self.remotes.here(chains)
        if self.options.certified and not state.has_current_trees:
            # Before any chain stops: the inputs of a stopped chain lack its messages.
            state = build_trees(state, inputs.own, self.context(chains, tick))
        while True:
            try:
                return self._round(state, chains, plan, inputs, tick)
            except (IndexOverflow, InvariantViolation) as error:
                state = mark_stopped(state, error, self.context(chains, tick))

    def _round(
        self, state: State, chains: Chains, plan: Plan[XNetPlan], inputs: Inputs[State], tick: Tick
    ) -> RoundResult[State]:
        logs: list[EventLog] = []
        if len(state.stopped):
            stopping, stops = newly_stopped(state, tick.height)
            plan, inputs = exclude_chains(plan, inputs, stopping) if stopping.size else (plan, inputs)
            logs.append(stops)
        before = replace(state, kept_slices=plan.content.kept)
        removal, batched, context = self._apply_registry(before, chains, tick)  # 2.7
        halted = np.setdiff1d(chains, context.chains) if len(context.chains) < len(chains) else NO_CHAINS
        if halted.size:
            halted_state, halted_outbound, removals = halt(self, removal, self.context(halted, tick))
            removal = select_step(self, removal, context)
            logs.append(removals)
        certifier = self.certifier(tick)
        agreed = self._agreed(plan, inputs, removal.state, certifier, context)  # 3.7 to 3.9
        batch = decode_batch(agreed.content, agreed.offered, agreed.own, inputs.ingress, self._subnets)  # 3.2
        removal = replace(removal, state=agreed.state)
        state, processing, outbound = self.process_batch(removal, chains, batch, context)  # 3.1 (4)
        logs += processing
        if halted.size:
            state = merge_states(self, [state, halted_state])
            outbound = in_lane_order(concat([outbound, halted_outbound]))
        if self.faults.rows:
            logs.append(ignored_batches(self.faults, before, context))
        state = replace(state, trees=before.trees)
        if self.options.certified:
            oldest_offer, everything = self.carriers.oldest(tick.tick + 1), self.context(chains, tick)
            state, headers, signing = commit_and_certify(
                state, before, batched, outbound, oldest_offer, everything, certifier
            )  # 3.1 (5)
            logs.append(signing)
        else:
            headers = self.headers(state, chains, tick)
        settled, idle_limit = self._idle_limits
        return RoundResult(
            state,
            outbound,
            merge_logs(logs, concat([plan.events, agreed.refused])),
            headers,
            next_wake_tick(tick, idle=self.idle(state), planned=self.next_planned(tick.tick + 1)),
            oldest_height(concat([state.trimmed_runs, state.runs])),
            idle_limit_tick(tick, settled=settled, idle_limit=idle_limit),
        )

    def _agreed(
        self, plan: Plan[XNetPlan], inputs: Inputs[State], state: State, certifier: Certifier, context: Context
    ) -> Agreement:
        """Return the agreed slices with their messages, and the refusals of the others."""
        if not self.options.certified:
            return Agreement(plan.content, inputs.offered, inputs.own, state, empty_frame(EVENTS_SCHEMA))
        return agree(plan, inputs, state, self.carriers, certifier, context)

    def _apply_registry(self, state: State, chains: Chains, tick: Tick) -> tuple[RoundStep, Chains, Context]:
        """Remove and admit canisters, change programs and add subnets.

        Return the step, the chains with a batch, and the metadata of those that run a round (see ``_running``).
        """
        context = self.context(chains, tick)
        removal = remove_ended(state, context) if context.registry.has_ended else RoundStep(state)
        state = removal.state
        if len(context.registry.newcomers):
            state = admit_canisters(self, state, context, self._installed)
        if len(self.programs.changed):
            state = change_canister_programs(state, context)
        batched, running = self._running(state, chains, tick)
        if self.options.certified and context.registry is not context.before:
            state = add_subnets(self, state, replace(context, chains=batched))
        return replace(removal, state=state), batched, running

    def _running(self, state: State, chains: Chains, tick: Tick) -> tuple[Chains, Context]:
        """Return the chains with a batch, and the metadata of those that run a round.

        A chain with a batch is registered, and neither halted by a fault nor stopped. It runs no round if its batch is
        a splitting one.
        """
        members = self.registry(tick.tick).has(chains)
        batched = self.carriers.running(chains if members.all() else chains[members], tick.tick)
        if len(state.stopped):
            batched = batched[~np.isin(batched, state.stopped["chain"])]
        context = self.context(batched, tick)
        if context.splitting.size:
            context = replace(context, chains=batched[~np.isin(batched, context.splitting)])
        return batched, context

    def process_batch(
        self, removal: RoundStep, chains: Chains, batch: DecodedBatch, context: Context
    ) -> tuple[State, list[EventLog], Frame]:
        """Process a decoded batch (3.1 (4)).

        The three phases share one view of the registry (D-17). Forged messages of byzantine subnets enter at routing.

        Args:
            removal: The preceding step, the removal of canisters.
            chains: All chains of the call, also those that do not run.
            batch: The decoded batch.
            context: The metadata of the round.

        Returns:
            The state after the batch, its events, and the messages appended to streams.
        """
        faults = EventLog()
        if context.chains is not chains:
            batch = self.carriers.reached(batch, context, faults)
        state, induction = pre_process(removal.state, batch, context)  # 3.4
        induction = [removal, *induction]
        execution = execute(state, induction, context)  # 3.5
        onward = [step.onward for step in induction]
        if self.faults.rows:
            onward.append(self.carriers.forged_messages(chains, context, faults))
        routing, outbound = post_process(execution.state, concat(onward), context)  # 3.6
        logs = [*(step.log for step in induction), execution.log, faults, routing.log]
        return routing.state, logs, outbound
