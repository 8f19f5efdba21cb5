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
from causeway.protocols.ic.certified_heights import apply_splits, commit_and_certify, first_heads, next_heads, trim_runs
from causeway.protocols.ic.certified_heights import headers as certified_headers
from causeway.protocols.ic.commitment import build_trees, certified_roots, uncertified_roots, update_trees
from causeway.protocols.ic.execution import execute
from causeway.protocols.ic.faults import Carriers, check_faults, find_share_faults, ignored_batches
from causeway.protocols.ic.induction import pre_process
from causeway.protocols.ic.options import IcOptions
from causeway.protocols.ic.registry import (
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
from causeway.protocols.ic.state import HaltedStep, RoundStep, State, state_from_tables, state_tables
from causeway.protocols.ic.streams.check_slice import find_unknown_roots, read_carried_rejects, refusal_events
from causeway.protocols.ic.streams.endpoint import cut_slices, expected_indexes, filter_new, get_streams
from causeway.protocols.ic.streams.payload_builder import get_xnet_payload
from causeway.protocols.ic.streams.remote_slices import RemoteSubnets
from causeway.protocols.ic.subnet_keys import Certifier, listed_keys
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
    held_heights: ClassVar[int] = 0
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
        nodes, faults = self.registry(tick.tick).nodes, find_share_faults(self.faults, tick.tick)
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
        splitting = self._splitting(tick.tick)
        return Context(*clock, self.seed, chains, registry, self.options, self.programs, before, splitting)

    def _splitting(self, tick: int) -> Chains:
        """Return the positions of the subnets with a splitting batch at ``tick``."""
        return splitting_subnets(self.topology, self._subnets, tick)

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
        state, headers, log = self._commit_and_certify(state, chains, members, nothing, first, self.certifier(first))
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

    def _gives_up(self, tick: Tick) -> int:
        """Return the tick from which on a round without movement ends the run."""
        longest_wait = lifetime_ticks(self.options, self.tick_ns) + 1 if self.options.timeouts == "on" else 0
        longest_wait += self.options.certification_delay + self.options.blocks_ahead
        settled = max([0, *self._change_ticks, self.carriers.last_change]) + longest_wait
        return idle_limit_tick(tick, settled=settled, idle_limit=QUIET_TICKS + longest_wait)

    # ---- round

    def plan(
        self, state: State, chains: Chains, view: View, ingress: pa.Table, carried: pa.Table, tick: Tick
    ) -> Plan[XNetPlan]:
        """Build the payloads of ``chains`` from the valid slices, with events for the refused ones.

        See ``contract.Kernel.plan``.
        """
        chains = self.remotes.here(chains)
        running = self._running(self._batched(state, chains, tick), tick)
        context = self.context(running, tick)
        local = select_chains(self, state, running, tick.tick) if len(running) < len(chains) else state
        if self.options.certified:
            return plan_certified(state, local, view, self.carriers, context, self.remotes.read(carried, context))
        expected = expected_indexes(state, (), self.options.index_base)
        available = get_streams(expected, view, context)
        older = cut_slices(state.kept_slices, expected, context)
        slices = self.carriers.carry(filter_new(expected, available, context), available, older, context)
        rejects = read_carried_rejects(slices, view, context)
        unknown = find_unknown_roots(slices, view)
        accepted, errors = get_xnet_payload(state, slices, rejects, unknown, context, expected=expected)
        kept_slices = self.carriers.kept(state.kept_slices, view, chains, tick)
        rejects = read_carried_rejects(accepted, view, context)
        refusals = refusal_events(slices, errors, self.options)
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
        stops = newly_stopped(state, tick.height)
        if stops.chains.size:
            plan, inputs = exclude_chains(plan, inputs, stops.chains)
        before = replace(state, kept_slices=plan.content.kept)
        removal, batched = self._apply_registry(before, chains, tick)
        running = self._running(batched, tick)
        context = self.context(running, tick)
        removal, halted = self._halt(removal, chains, context, tick)
        certifier = self.certifier(tick)
        agreed = self._agreed(plan, inputs, removal.state, certifier, context)
        batch = decode_batch(agreed.content, agreed.offered, agreed.own, inputs.ingress, self._subnets)
        state, logs, outbound = self.process_batch(replace(removal, state=agreed.state), chains, batch, context)
        if halted is not None:
            state = merge_states(self, [state, halted.state])
            outbound = in_lane_order(concat([outbound, halted.outbound]))
            logs = [halted.log, *logs]
        logs.append(ignored_batches(self.faults, self._batch_numbers(before, context), context))
        state = replace(state, trees=before.trees)
        state, headers, signing = self._commit_and_certify(state, chains, batched, outbound, tick, certifier, before)
        return RoundResult(
            state,
            outbound,
            merge_logs([stops.log, *logs, signing], concat([plan.events, agreed.refused])),
            headers,
            next_wake_tick(tick, idle=self.idle(state), planned=self.next_planned(tick.tick + 1)),
            oldest_height(concat([state.trimmed_runs, state.runs])),
            self._gives_up(tick),
        )

    def _apply_registry(self, state: State, chains: Chains, tick: Tick) -> tuple[RoundStep, Chains]:
        """Remove and admit canisters, change programs and add subnets.

        Return the step and the chains with a batch.
        """
        context = self.context(chains, tick)
        removal = remove_ended(state, context)
        state = admit_canisters(self, removal.state, context, self._installed)
        state = change_canister_programs(state, context)
        batched = self._batched(state, chains, tick)
        state = add_subnets(self, state, self.context(batched, tick))
        return replace(removal, state=state), batched

    def _halt(
        self, removal: RoundStep, chains: Chains, context: Context, tick: Tick
    ) -> tuple[RoundStep, HaltedStep | None]:
        """Separate the running chains of a step (``context.chains``) from the halted ones."""
        if len(context.chains) == len(chains):
            return removal, None
        others = self.context(np.setdiff1d(chains, context.chains), tick)
        return select_step(self, removal, context), halt(self, removal, others)

    def _batch_numbers(self, before: State, context: Context) -> Frame:
        """Return the batch ``number`` of each running subnet (``chain``)."""
        running = context.chains
        if not self.options.certified:
            return Frame({"chain": running}, len(running)).with_columns(number=np.uint64(context.height))
        heads = before.heads.filter(np.isin(before.heads["chain"], running))
        return heads.select(["chain"]).with_columns(number=heads["number"] + np.uint64(1))

    def _agreed(
        self, plan: Plan[XNetPlan], inputs: Inputs[State], state: State, certifier: Certifier, context: Context
    ) -> Agreement:
        """Return the agreed slices with their messages, and the refusals of the others."""
        if not self.options.certified:
            return Agreement(plan.content, inputs.offered, inputs.own, state, empty_frame(EVENTS_SCHEMA))
        return agree(plan, inputs, state, self.carriers, certifier, context)

    def _commit_and_certify(
        self,
        state: State,
        chains: Chains,
        batched: Chains,
        outbound: Frame,
        tick: Tick,
        certifier: Certifier,
        before: State | None = None,
    ) -> tuple[State, Frame, EventLog]:
        """Commit to the state and certify it (3.1 (5)).

        Args:
            state: The state after the round.
            chains: All chains of the call.
            batched: The chains at a new height.
            outbound: The entries appended to streams.
            tick: The tick of the round.
            certifier: The certifier of the tick.
            before: The state at the start of the round; None at genesis.

        Returns:
            The state, the headers of ``chains`` and the events of their nodes.
        """
        if not self.options.certified:
            return state, self.headers(state, chains, tick), EventLog()
        context = self.context(chains, tick)
        state = update_trees(state, outbound, context)
        if before is not None:
            state = replace(state, heads=next_heads(state.heads, batched, context))
            state = apply_splits(state, np.intersect1d(batched, context.splitting).astype(np.uint32))
        oldest_offer = self.carriers.oldest(tick.tick + 1)
        state, log = commit_and_certify(state, batched, oldest_offer, context, certifier)
        if before is not None:
            state = replace(state, trimmed_runs=trim_runs(before, state))
        return state, certified_headers(state, chains), log

    def _running(self, batched: Chains, tick: Tick) -> Chains:
        """Return the chains that run a round: those with an ordinary batch, not a splitting batch."""
        splitting = self._splitting(tick.tick)
        return batched[~np.isin(batched, splitting)] if splitting.size else batched

    def _batched(self, state: State, chains: Chains, tick: Tick) -> Chains:
        """Return the chains with a batch: registered, and neither halted by a fault nor stopped."""
        members = self.registry(tick.tick).has(chains)
        running = self.carriers.running(chains if members.all() else chains[members], tick.tick)
        return running[~np.isin(running, state.stopped["chain"])] if len(state.stopped) else running

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
        forged = self.carriers.forged_messages(chains, context, faults)
        onward = concat([*(step.onward for step in induction), forged])
        routing, outbound = post_process(execution.state, onward, context)  # 3.6
        logs = [*(step.log for step in induction), execution.log, faults, routing.log]
        return routing.state, logs, outbound
