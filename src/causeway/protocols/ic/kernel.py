"""The Internet Computer behind the kernel contract: one round of any set of subnets as a pure function."""

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
"""A pair of positions fits one word of 32 bits."""


@dataclass(frozen=True)
class IcKernel:
    """The state machine of a network of subnets.

    ``programs``: what runs on the canisters; ``tick_ns``: nanoseconds of batch time a tick; ``faults``: what goes
    wrong on purpose; ``secrets``: the keys of subnets that are not drawn from the seed.
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
        assert self.remotes is not None  # what cannot be is told before anything runs
        self.remotes.require_keys(self.options, self.secrets, self.chains())
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
        applied = sum(1 for changed in self._change_ticks if changed <= tick)
        if applied not in self._registries:
            found = registry_at(self.topology, tick, self.options.nodes)
            endpoints = self.remotes.endpoints(tick, found.members)
            self._registries[applied] = replace(found, version=1 + applied, endpoints=endpoints)
        return self._registries[applied]

    @cached_property
    def _subnets(self) -> U64:
        return subnet_positions(self.topology)

    @cached_property
    def remotes(self) -> RemoteSubnets:
        """Return the subnets that other lakes run."""
        return RemoteSubnets(self.topology, self.options, self._subnets, self.chains())

    @cached_property
    def carriers(self) -> Carriers:
        """Return who carries slices between subnets, with the scenario's faults."""
        return Carriers(self.faults, self._subnets, self.seed)

    def certifier(self, tick: Tick) -> Certifier:
        """Return who certifies the subnets' states at ``tick``."""
        nodes, faults = self.registry(tick.tick).nodes, find_share_faults(self.faults, tick.tick)
        listed = listed_keys(self.options, self.chains()) if self.options.chain_keys else {}
        known = (nodes, self.remotes.keys, faults, listed, self.secrets, tick.height)
        return Certifier(self._subnets, self.seed, self.options, *known)

    @property
    def header_heights(self) -> int:
        """Return of how many heights headers are known: the newest, and older ones that carriers offer where slices are
        not certified."""
        return 1 if self.options.certified else 1 + self.carriers.oldest(0)

    def context(self, chains: Chains, tick: Tick) -> Context:
        """Return the metadata of the round of ``chains`` at ``tick``."""
        registry = self.registry(tick.tick)
        before = self.registry(max(tick.tick, 1) - 1)
        clock = (tick.height, tick.tick, self.tick_ns)
        splitting = self._splitting(tick.tick)
        return Context(*clock, self.seed, chains, registry, self.options, self.programs, before, splitting)

    def _splitting(self, tick: int) -> Chains:
        """Return the positions of the subnets that have a splitting batch at ``tick``."""
        return splitting_subnets(self.topology, self._subnets, tick)

    # ---- what the network is

    def chains(self) -> Sequence[str]:
        """Return the subnets' names by position (the order of their id bytes)."""
        numbers = self.topology.chains["number"].to_pylist()
        names = dict(zip(numbers, self.topology.chains["name"].to_pylist(), strict=True))
        return [names[number] for number in self._subnets.tolist()]

    def numbers(self) -> U64:
        """Return the subnets' numbers by position."""
        return self._subnets

    def weights(self) -> npt.NDArray[np.float64]:
        """Return how many canisters each subnet hosts at genesis, and one more."""
        hosts = self.registry(0).hosts
        return (np.bincount(hosts[hosts >= 0], minlength=len(self._subnets)) + 1).astype(np.float64)

    def tables(self) -> Mapping[str, StateTable]:
        """Return every table that a state has, those of the programs in use included, by name."""
        return state_tables(self.programs.schemas())

    def registry_version(self, tick: int) -> int:
        """Return the number of the registry version in force in the round of ``tick``."""
        return self.registry(tick).version

    def hosts(self, programs: U64, tick: int) -> Hosts:
        """Return the subnet that hosts each canister in the round of ``tick``, or was the last to."""
        return self.registry(tick).last_hosts(programs)

    def state(self, frames: Mapping[str, Frame]) -> State:
        """Return the state that has these tables; one that is absent is empty."""
        return state_from_tables(frames, self.programs.schemas(), self.options.index_base)

    def genesis(self, chains: Chains, coming: int | None = None) -> RoundResult[State]:
        """Return the state of ``chains`` at height 0: empty queues and streams, and the programs' first states."""
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
        """Return the first state of the programs of ``canisters`` (ascending), and nothing else."""
        accounts, programs = self.programs.genesis(canisters[self.programs.installed(canisters)])
        return self.state({"accounts": accounts, **{PROGRAM_TABLE + name: rows for name, rows in programs.items()}})

    def headers(self, state: State, chains: Chains, tick: Tick) -> Frame:
        """Return the headers of ``chains`` (``HEADERS_SCHEMA``): the roots of their states."""
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
        """Return all messages in streams, where subnets certify them."""
        return stream_ranges(state) if self.options.certified else empty_frame(RANGES_SCHEMA)

    def roots(self, state: State, chains: Chains, tick: Tick, committed: Frame) -> Frame:
        """Return the root of each subnet's state (``chain``, ``root``)."""
        chains = self.remotes.here(chains)
        if not self.options.certified:
            return self.headers(state, chains, tick).select(["chain", "root"])
        context = self.context(chains, tick)
        roots = certified_roots(build_trees(state, committed, context), chains, context)
        return Frame({"chain": chains, "root": roots}, len(chains))

    # ---- when something happens of itself

    def idle(self, state: State) -> bool:
        """Return whether no queue or stream of ``state`` holds a message, and nothing agreed waits to be executed."""
        lanes = state.streams.counters
        queues = (state.ingress_queues, state.input_queues, state.output_queues)
        in_streams = lanes["next_index"] > lanes["begin"]
        if len(self.remotes.external):
            # What another lake's subnet takes, and when, nobody here can know.
            in_streams &= ~np.isin(lanes["destination"], self.remotes.external)
        if self.options.loopback == "seed_literal":
            in_streams &= lanes["source"] != lanes["destination"]
        at_rest = not in_streams.any() and all(len(queue.elements) == 0 for queue in queues)
        return at_rest and not len(state.agreed)

    def next_planned(self, tick: int) -> int | None:
        """Return the first tick at or after ``tick`` with another version of the registry, a forgery or a false slice;
        None if none is left."""
        changes = (changed for changed in self._change_ticks if changed >= tick)
        return earliest(next(changes, None), self.carriers.next_planned(tick))

    def _gives_up(self, tick: Tick) -> int:
        waits = lifetime_ticks(self.options, self.tick_ns) + 1 if self.options.timeouts == "on" else 0
        waits += self.options.certification_delay + self.options.blocks_ahead
        settled = max([0, *self._change_ticks, self.carriers.last_change]) + waits
        return idle_limit_tick(tick, settled=settled, idle_limit=QUIET_TICKS + waits)

    # ---- a round

    def plan(
        self, state: State, chains: Chains, view: View, ingress: pa.Table, carried: pa.Table, tick: Tick
    ) -> Plan[XNetPlan]:
        """Build the payloads of ``chains``: the slices that pass the checks, and the refusals of those that do not."""
        chains = self.remotes.here(chains)
        running = self._running(self._batched(state, chains, tick), tick)
        context = self.context(running, tick)
        local = select_chains(self, state, running, tick.tick) if len(running) < len(chains) else state
        if self.options.certified:
            return plan_certified(state, local, view, self.carriers, context, self.remotes.read(carried, context))
        expected = expected_indexes(state, (), self.options.index_base)
        everything = get_streams(expected, view, context)
        older_ones = cut_slices(state.kept_slices, expected, context)
        slices = self.carriers.carry(filter_new(expected, everything, context), everything, older_ones, context)
        rejects = read_carried_rejects(slices, view, context)
        unknown = find_unknown_roots(slices, view)
        accepted, errors = get_xnet_payload(state, slices, rejects, unknown, context, expected=expected)
        kept = self.carriers.kept(state.kept_slices, view, chains, tick)
        rejects = read_carried_rejects(accepted, view, context)
        return make_plan(local, accepted, rejects, view, kept, refusal_events(slices, errors, self.options), context)

    def round(
        self, state: State, chains: Chains, plan: Plan[XNetPlan], inputs: Inputs[State], tick: Tick
    ) -> RoundResult[State]:
        """Run one round of ``chains``: decode the batch, process it, commit to the result (3.1).

        A halted chain keeps its state; so does one that violates a hard invariant, from this round on: the others' is
        run again without it (X-17).
        """
        chains = self.remotes.here(chains)
        if self.options.certified and not (
            state.trees is not None and (state.trees.forest.version == state.trees.version)
        ):
            # Before any chain stops: of one that does, the messages are not among the inputs any more.
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
        before = state = replace(state, kept_slices=plan.content.kept)
        trees = state.trees
        removal = remove_ended(state, self.context(chains, tick))
        state = admit_canisters(self, removal.state, self.context(chains, tick), self._installed)
        state = change_canister_programs(state, self.context(chains, tick))
        batched = self._batched(state, chains, tick)
        state = add_subnets(self, state, self.context(batched, tick))
        running = self._running(batched, tick)
        context = self.context(running, tick)
        removal = replace(removal, state=state)
        halted: HaltedStep | None = None
        if len(running) < len(chains):
            others = self.context(np.setdiff1d(chains, running), tick)
            halted = halt(self, removal, others)
            removal = select_step(self, removal, context)
        certifier = self.certifier(tick)
        agreed = self._agreed(plan, inputs, removal.state, certifier, context)
        batch = decode_batch(agreed.content, agreed.offered, agreed.own, inputs.ingress, self._subnets)
        state, logs, outbound = self.process_batch(replace(removal, state=agreed.state), chains, batch, context)
        if halted is not None:
            state = merge_states(self, [state, halted.state])
            outbound = in_lane_order(concat([outbound, halted.outbound]))
            logs = [halted.log, *logs]
        # The `number` of the batch of each subnet (`chain`) that runs this round.
        if not self.options.certified:
            batches = Frame({"chain": running}, len(running)).with_columns(number=np.uint64(tick.height))
        else:
            heads = before.heads.filter(np.isin(before.heads["chain"], running))
            batches = heads.select(["chain"]).with_columns(number=heads["number"] + np.uint64(1))
        logs.append(ignored_batches(self.faults, batches, context))
        state = replace(state, trees=trees)
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

    def _agreed(
        self, plan: Plan[XNetPlan], inputs: Inputs[State], state: State, certifier: Certifier, context: Context
    ) -> Agreement:
        """Return what the round takes of what was brought, its messages, and the refusals of the rest."""
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
        """Return the state committed to, the headers of ``chains``, and the events of their nodes (3.1 (5)).

        ``batched``: the chains that are at a new height; ``before``: the state that the round began with.
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
        """Return the chains that run a round: those with a batch that is no splitting batch."""
        splitting = self._splitting(tick.tick)
        return batched[~np.isin(batched, splitting)] if splitting.size else batched

    def _batched(self, state: State, chains: Chains, tick: Tick) -> Chains:
        """Return the chains that have a batch: in the registry, and neither halted by a fault nor stopped."""
        members = self.registry(tick.tick).has(chains)
        running = self.carriers.running(chains if members.all() else chains[members], tick.tick)
        return running[~np.isin(running, state.stopped["chain"])] if len(state.stopped) else running

    def process_batch(
        self, removal: RoundStep, chains: Chains, batch: DecodedBatch, context: Context
    ) -> tuple[State, list[EventLog], Frame]:
        """Return the state after a decoded batch, its events, and what was appended to the streams (3.1 (4)).

        ``removal``: what happened before, the end of canisters. The three phases have one view of the registry (D-17).
        What byzantine subnets among ``chains`` forge is appended when routing begins.
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
