"""The kernel of the IBC messaging queue: one block of any set of zones as a pure function.

``plan`` lets the relayers inspect both ends of every connection and choose submissions. ``round`` processes the block
and commits the stores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.errors import InvalidInput
from causeway_proofs.order import U64, stable_order

from causeway.config.faults import Faults
from causeway.config.section import LAST_TICK
from causeway.config.topology import Topology
from causeway.core.frame import Frame, concat, empty_frame, repeat_bytes, repeat_value
from causeway.core.text import suggest_known
from causeway.core.vocabulary import Kind
from causeway.protocols.contract import (
    HEADERS_SCHEMA,
    QUIET_TICKS,
    RANGES_SCHEMA,
    Chains,
    Hosts,
    Inputs,
    Plan,
    Reads,
    RoundResult,
    StateTable,
    Tick,
    View,
    earliest,
    idle_limit_tick,
    next_wake_tick,
)
from causeway.protocols.ibc.block import process_block
from causeway.protocols.ibc.calls.recovery import Decisions
from causeway.protocols.ibc.calls.submission import RelayPlan, accused_zones, wanted_headers
from causeway.protocols.ibc.calls.transactions import own_packets_for, transactions
from causeway.protocols.ibc.client import certify, genesis_trust, require_keys
from causeway.protocols.ibc.context import Context, ZoneNetwork
from causeway.protocols.ibc.disconnection import final_packets
from causeway.protocols.ibc.fault_kinds import DEPOSIT, DISCONNECT, FORK, RECOVER
from causeway.protocols.ibc.leaves import Leaves
from causeway.protocols.ibc.options import IbcOptions
from causeway.protocols.ibc.queue_entries import ENTRIES_SCHEMA
from causeway.protocols.ibc.relay.accounts import Deposit, genesis_funds
from causeway.protocols.ibc.relay.delays import next_usable_tick, oldest_known_height, usable_headers
from causeway.protocols.ibc.relay.maintenance import REFRESH, requested_absences, requested_positions
from causeway.protocols.ibc.relay.submissions import RELAYER, merge_ranges, plan_reads, plan_submissions
from causeway.protocols.ibc.relayer_view import RelayerView
from causeway.protocols.ibc.state import (
    CONNECTION,
    CONNECTIONS_SCHEMA,
    QUEUES_SCHEMA,
    RECEIPT,
    SEND,
    STATE_TABLES,
    State,
    StoreCache,
    connection_rows,
    state_of_frames,
    state_tables,
)
from causeway.protocols.ibc.store import Store, commit_stores, pending_runs
from causeway.protocols.shared.events import LEDGER_LOGS, EventLog
from causeway.protocols.shared.execution import ProgramRunner, find_outdated_programs
from causeway.protocols.shared.interference import Interference
from causeway.protocols.shared.limits import MAX_DATA_BYTES
from causeway.protocols.shared.messages import LANE, blank_messages, locate_ranges, oldest_height
from causeway.protocols.shared.option_values import NANOSECONDS, check_tick
from causeway.protocols.shared.secrets import NONE, Secrets
from causeway.protocols.shared.state_tables import StaticHosting, merge_states, select_chains

ROUND_TRIP = 3
"""Maximum number of blocks between the proof of an expiry and the timeout of the packet."""


@dataclass(frozen=True)
class IbcKernel(StaticHosting):
    """The state machine of a network of zones.

    Attributes:
        topology: The network.
        programs: The zones' modules.
        options: The protocol options.
        seed: The seed of all random draws.
        tick_ns: The block time of a tick, in nanoseconds.
        faults: The injected faults.
        secrets: The validators' secret keys that are not derived from the seed.
    """

    topology: Topology
    programs: ProgramRunner
    options: IbcOptions = field(default_factory=IbcOptions)
    seed: int = 0
    tick_ns: int = 1_000_000_000
    faults: Faults = field(default_factory=Faults)
    secrets: Secrets = NONE

    name: ClassVar[str] = "ibc"
    outbound: ClassVar[pa.Schema] = ENTRIES_SCHEMA
    logs: ClassVar[Mapping[str, pa.Schema]] = LEDGER_LOGS
    header_heights: ClassVar[int] = 1
    past_heights: ClassVar[int] = 0
    retained_heights: ClassVar[int] = 0
    last_tick: ClassVar[int] = LAST_TICK

    def __post_init__(self) -> None:
        check_tick(self.tick_ns)
        shortest = (2 + self._delay_ticks) * self.tick_ns
        if self.options.unbonding_ns <= shortest:
            # A header is delivered a tick after its block, and its trusted header a tick before that.
            minimum = "two ticks and delay_seconds" if self.options.delay_ns else "two ticks"
            text = f"allowed: more than {minimum}, here {shortest / NANOSECONDS} seconds"
            raise InvalidInput(f"options.unbonding_seconds: {self.options.unbonding_seconds}; {text}")
        if self.topology.external and self.options.max_data_bytes > MAX_DATA_BYTES:
            text = f"{self.options.max_data_bytes}; at most {MAX_DATA_BYTES} can be carried to another lake"
            raise InvalidInput(f"options.max_data_bytes: {text}")
        self._check_faults()
        for chain in self.options.validator_keys:
            if chain not in self.zones.names:
                raise InvalidInput(f"options.validator_keys: {chain}: no such chain: {', '.join(self.zones.names[:8])}")
        for position in self.zones.own.tolist():
            require_keys(self.zones.names[position], self.options, self.secrets)
        # Evaluate the cached parts of the network, which check the options.
        _ = self.zones.connections, self.zones.handled, self.zones.permitted, self.zones.users

    def _check_faults(self) -> None:
        """Check that the relayers, accounts and connections of the faults exist."""
        for row, fault in enumerate(self.faults.rows):
            key = f"faults[{row}]"
            if fault.kind == DEPOSIT and self.options.relay.accounts is None:
                raise InvalidInput(f"{key}: deposit: relayers have no accounts; set options.relay.accounts")
            name = fault.args.get(RELAYER)
            if name is not None and name not in self.options.relayers:
                raise InvalidInput(f"{key}.relayer: {suggest_known('relayer', name, self.options.relayers)}")
            if fault.kind in (DISCONNECT, RECOVER):
                ends = self.zones.positions_of(np.array([fault.source, fault.destination], dtype=np.uint64))
                first, second = (self.zones.names[end] for end in ends.tolist())
                if not connection_exists(ends[:1], ends[1:].astype(np.int32), self.zones).all():
                    raise InvalidInput(f"{key}: {fault.kind}: {first} and {second} are not connected")
                if fault.kind == RECOVER and fault.destination in self.topology.external:
                    raise InvalidInput(f"{key}: recover: {second} is external, its headers are not seen here")

    @cached_property
    def zones(self) -> ZoneNetwork:
        """Return the constant parts of the network."""
        return ZoneNetwork(self.topology, self.options)

    @cached_property
    def interference(self) -> Interference:
        """Return the scenario's faults."""
        return Interference(self.faults, self.zones.numbers, self.seed)

    def context(self, chains: Chains, tick: Tick) -> Context:
        """Return the metadata of a block of ``chains`` at ``tick``."""
        fixed = (self.zones, self.options, self.programs, self.secrets)
        return Context(tick.height, tick.tick, self.tick_ns, self.seed, chains, *fixed)

    @property
    def hosting(self) -> ZoneNetwork:
        """Return the zones, which also locate the programs."""
        return self.zones

    def tables(self) -> Mapping[str, StateTable]:
        """Return every state table by name, those of the program classes in use included."""
        return state_tables(self.programs.schemas())

    def state(self, frames: Mapping[str, Frame]) -> State:
        """Return the state with these tables; absent tables are empty."""
        return state_of_frames(frames, self.programs.schemas())

    def genesis(self, chains: Chains, coming: int | None = None) -> RoundResult[State]:
        """Return the state of ``chains`` at height 0: registered zones, empty queues, new programs."""
        chains, start = self._own(chains), Tick(0, 0)
        own = self.zones.programs_on(chains)
        accounts, programs = self.programs.genesis(own[self.programs.installed(own)])
        context, connections = self.context(chains, start), self._genesis_connections(chains)
        tables = {
            "queues": _genesis_queues(connections, chains),
            "connections": connections,
            "funds": genesis_funds(chains, self.options),
            "trust": genesis_trust(chains, context),
            "accounts": accounts,
        }
        state = replace(self.state(tables), programs=programs)
        headers = empty_frame(HEADERS_SCHEMA)
        if len(chains):
            store = commit_stores(state, context)
            state, roots = replace(state, kept=StoreCache(store)), store.roots
            headers = _headers(chains, 0, roots, repeat_bytes(b"", len(chains)))
        first = self.next_planned(0)
        if first is not None or coming is not None:
            # Genesis precedes the first tick, so the longest pause is one tick shorter.
            pause = self.longest_pause() - 1
            first = pause if first is None else min(first, pause)
        return RoundResult(state, empty_frame(ENTRIES_SCHEMA), EventLog().logs(), headers, wake=first)

    def _genesis_connections(self, chains: Chains) -> Frame:
        """Return the connections of ``chains`` at genesis (``CONNECTIONS_SCHEMA``)."""
        chain, counterparty = self.zones.connections
        mine = np.isin(chain, chains)
        zero = np.zeros(int(mine.sum()), dtype=np.uint64)
        columns = dict.fromkeys(CONNECTIONS_SCHEMA.names, zero)
        ends = {"chain": chain[mine], "counterparty": counterparty[mine]}
        return Frame({**columns, **ends, "frozen": zero.astype(np.uint8)}, len(zero))

    def committed(self, state: State) -> Frame:
        """Return no entries: the table ``leaves`` holds the digests of all."""
        return empty_frame(RANGES_SCHEMA)

    def roots(self, state: State, chains: Chains, tick: Tick, committed: Frame) -> Frame:
        """Return the root of each zone's store (``chain``, ``root``)."""
        chains = self._own(chains)
        if len(chains) == 0:
            return empty_frame(HEADERS_SCHEMA).select(["chain", "root"])
        state.kept.store = store = commit_stores(state, self.context(chains, tick))
        return Frame({"chain": chains, "root": store.roots}, len(chains))

    def _own(self, chains: Chains) -> Chains:
        """Select the local chains; chains of other lakes have no state and no header here."""
        return chains[np.isin(chains, self.zones.own)]

    def _to_own(self, rows: pa.Table) -> pa.Table:
        """Select the rows addressed to local zones."""
        if not self.topology.external or not rows.num_rows:
            return rows
        foreign = pc.is_in(rows["chain"], pa.array(self.topology.external, pa.uint64()))
        return rows.filter(pc.invert(foreign))

    def idle(self, state: State) -> bool:
        """Return True if no packet awaits its receipt and no local lane holds a message.

        Packets to zones of another lake do not count: only an external relay process moves them.
        """
        queues = state.queues.counters
        waiting = (queues["substream"] == SEND) | (queues["source"] == queues["destination"])
        waiting &= np.isin(queues["destination"], self.zones.own)
        return not bool((waiting & (queues["next_index"] > queues["begin"])).any())

    def next_planned(self, tick: int) -> int | None:
        """Return the first tick from ``tick`` on at which a fault acts, or None."""
        return self.interference.next_planned(tick)

    def longest_pause(self) -> int:
        """Return a third of the unbonding period in ticks, the refresh interval of clients (X-4)."""
        return max(1, self.options.unbonding_ns // REFRESH // self.tick_ns)

    def idle_limit(self) -> int:
        """Return the idle ticks that a small batch, a pending header or a packet timeout may need."""
        relay, rest = self.options.relay, self._delay_ticks + self.options.relay.patience
        if relay.min_batch > 1:
            rest += relay.max_wait
        if not self.options.limited:
            return rest
        ticks = -(-self.options.timeout_ns // self.tick_ns)
        return min((limit for limit in (self.options.timeout_blocks, ticks) if limit), default=0) + ROUND_TRIP + rest

    @property
    def _delay_ticks(self) -> int:
        """Return the ticks between the delivery of a header and its first use."""
        return -(-self.options.delay_ns // self.tick_ns)

    def plan(
        self, state: State, chains: Chains, view: View, ingress: pa.Table, carried: pa.Table, tick: Tick
    ) -> Plan[RelayPlan]:
        """Choose the relayers' submissions from the state of both ends of every connection.

        See ``contract.Kernel.plan``.
        """
        running = self.interference.running(self._own(chains), tick.tick)
        context = self.context(running, tick)
        seen = RelayerView.of(view, context)
        provable = usable_headers(state, seen, context)
        rows = plan_submissions(state, seen, provable, self.interference, context)
        relayed = transactions(self._to_own(carried), context)
        accused = accused_zones(self.interference.sources(FORK, tick.tick), state, seen, context)
        decisions, deposits = self._recoveries(seen, context), self._deposits(context)
        content = RelayPlan(rows, seen, provable, accused, decisions, relayed, deposits)
        return Plan(self._reads(content, state, context), content, EventLog().logs()["events"])

    def _reads(self, plan: RelayPlan, state: State, context: Context) -> Reads:
        """Return the entries and headers that the submissions of a plan need."""
        offered, own = plan_reads(plan.submissions, state, plan.provable, context)
        if plan.transactions:
            own = merge_ranges(concat([own, own_packets_for(plan.transactions, own, state, context)]))
        headers = wanted_headers(plan.submissions, plan.accused, state, context)
        return Reads(offered=offered, own=locate_ranges(own, state.runs), headers=headers)

    def round(
        self, state: State, chains: Chains, plan: Plan[RelayPlan], inputs: Inputs[State], tick: Tick
    ) -> RoundResult[State]:
        """Run one block of ``chains`` and commit its stores; a halted zone keeps its state."""
        chains = self._own(chains)
        inputs = replace(inputs, ingress=self._to_own(inputs.ingress), carried=self._to_own(inputs.carried))
        log = EventLog()
        if len(chains) == 0:
            return RoundResult(state, empty_frame(ENTRIES_SCHEMA), log.logs(), empty_frame(HEADERS_SCHEMA))
        running = self.interference.running(chains, tick.tick)
        context = self.context(running, tick)
        active, halted = state, None
        if len(running) < len(chains):
            active = self._part(state, running, tick)
            halted = self._part(state, np.setdiff1d(chains, running), tick)
        active = change_zone_programs(active, context)
        forced = concat([self._forged(context), final_packets(*self._decided(DISCONNECT, context))])
        after, outbound = process_block(active, plan.content, inputs, forced, context, log)
        if halted is not None:
            after = replace(self._merge(after, halted), kept=state.kept)
        everyone = replace(context, chains=chains)
        store = commit_stores(after, everyone)
        headers = _headers(chains, tick.height, store.roots, certify(store.roots, everyone))
        proofs = self._prove(after, store, plan.content.seen, context)
        after = replace(after, proofs=proofs, kept=StoreCache(store))
        needs = earliest(oldest_height(after.runs), oldest_known_height(after))
        wake, gives_up = self._next_wake(after, tick), self._gives_up(tick)
        return RoundResult(after, outbound, log.logs(), headers, wake, needs, gives_up)

    def _prove(self, state: State, store: Store, seen: RelayerView, context: Context) -> Frame:
        """Return the proofs for relayers: of pending entries, positions and absences.

        Entries for zones of another lake are proved when a relay process requests them.
        """
        pending = pending_runs(state)
        proofs = store.prove_runs(pending.filter(np.isin(pending["destination"], self.zones.own)))
        for position, lanes in requested_positions(state, seen, context):
            proofs = concat([proofs, store.prove_positions(lanes, position)])
        if self.options.absence:
            absent = requested_absences(state, seen, context)
            proofs = concat([proofs, store.prove_absences(absent, state.receipts)])
        return proofs.take(stable_order(*(proofs[name] for name in STATE_TABLES["proofs"].order)))

    def _next_wake(self, state: State, tick: Tick) -> int | None:
        """Return the next tick with internal activity, or None if there is none."""
        elapsed = next_usable_tick(state, tick.tick, self.tick_ns, self.zones.own, self.options)
        planned = earliest(self.next_planned(tick.tick + 1), elapsed)
        return next_wake_tick(tick, idle=self.idle(state), planned=planned, pause=self.longest_pause())

    def _gives_up(self, tick: Tick) -> int:
        """Return the tick from which on a round without movement ends the run."""
        idle_limit = QUIET_TICKS + self.idle_limit()
        return idle_limit_tick(tick, settled=self.interference.last_change, idle_limit=idle_limit)

    def _merge(self, active: State, halted: State) -> State:
        """Merge the states of running and halted zones."""
        leaves = active.leaves.beside(halted.leaves)
        rest = merge_states(self, [replace(state, leaves=Leaves({})) for state in (active, halted)])
        return replace(rest, leaves=leaves)

    def _part(self, state: State, zones: Chains, tick: Tick) -> State:
        """Select the state of some zones; unchanged queues stay the same objects."""
        rest = select_chains(self, replace(state, leaves=Leaves({})), zones, tick.tick)
        return replace(rest, leaves=state.leaves.own_entries(zones))

    def _deposits(self, context: Context) -> tuple[Deposit, ...]:
        """Return the deposits into relayers' accounts on running zones in this block."""
        positions, names = self.interference.positions, self.options.relayers
        faults = self.interference.acting(context.tick, DEPOSIT)
        due = [(positions[fault.source], fault.args) for fault in faults if fault.source is not None]
        running = [(chain, args) for chain, args in due if chain in context.chains]
        return tuple(Deposit(chain, names.index(args[RELAYER]), args["amount"]) for chain, args in running)

    def _recoveries(self, seen: RelayerView, context: Context) -> Decisions:
        """Return the client recoveries that running zones decide in this block."""
        source, destination = self._decided(RECOVER, context)
        if not len(source):
            return ()
        pairs = zip(source.tolist(), destination.tolist(), strict=True)
        return tuple((chain, counterparty, seen.signed_headers.get(counterparty, b"")) for chain, counterparty in pairs)

    def _decided(self, kind: str, context: Context) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
        """Return the connections that running zones decide about in this block.

        Args:
            kind: The kind of decision, a fault kind.
            context: The metadata of the block.

        Returns:
            The positions of the deciding zones and of their counterparties.
        """
        due = self.interference.acting(context.tick, kind)
        pairs = dict.fromkeys((fault.source, fault.destination) for fault in due)  # without duplicates
        numbers = np.array(list(pairs), dtype=np.uint64).reshape(-1, 2)
        source, destination = (self.zones.positions_of(numbers[:, column]) for column in range(2))
        is_running = np.isin(source, context.chains)
        return source[is_running], destination[is_running]

    def _forged(self, context: Context) -> Frame:
        """Return the packets that byzantine zones append to their send queues in this block."""
        rows = self.interference.forged(context.chains, context.tick)
        if len(rows) == 0:
            return _NOTHING_FORGED
        hosts = self.zones.host_of(rows["receiver"])
        is_connected = connection_exists(rows["source"], hosts, self.zones)
        ends = {"source": rows["source"], "destination": np.maximum(hosts, 0).astype(np.uint32)}
        return _forged(**ends, **{name: rows[name] for name in ("sender", "receiver", "payload")}).filter(is_connected)


def _genesis_queues(connections: Frame, chains: Chains) -> Frame:
    """Return the empty queues of connections and local lanes of ``chains`` (``QUEUES_SCHEMA``)."""
    source = np.concatenate([connections["chain"], chains]).repeat(2)
    destination = np.concatenate([connections["counterparty"], chains]).repeat(2)
    substream = np.tile(np.array([RECEIPT, SEND], dtype=np.uint64), len(source) // 2)
    lanes = dict(zip(LANE, (source, destination, substream), strict=True))
    rows = Frame(lanes).take(stable_order(source, destination, substream))
    zero = np.zeros(len(source), dtype=np.uint64)
    return rows.with_columns(begin=zero, next_index=zero, ready=zero).select(QUEUES_SCHEMA.names)


def _forged(source: Chains, destination: Chains, sender: U64, receiver: U64, payload: pa.BinaryArray) -> Frame:
    """Build packets of byzantine zones."""
    return blank_messages(
        len(source),
        kind=Kind.REQUEST,
        source=source,
        destination=destination,
        substream=repeat_value(np.uint64(SEND), len(source)),
        sender=sender,
        receiver=receiver,
        method="forged",
        payload=payload,
        of_program=np.bool_(False),
    )


_NO_CHAINS, _NO_PROGRAMS = np.empty(0, dtype=np.uint32), np.empty(0, dtype=np.uint64)
_NOTHING_FORGED = _forged(_NO_CHAINS, _NO_CHAINS, _NO_PROGRAMS, _NO_PROGRAMS, pa.array([], pa.binary()))


def connection_exists(chain: npt.NDArray[Any], counterparty: Hosts, zones: ZoneNetwork) -> npt.NDArray[np.bool_]:
    """Return a mask of connected pairs of zones.

    Args:
        chain: Positions of zones.
        counterparty: Positions of zones; may contain ``NO_HOST``.
        zones: The network.
    """
    known = Frame(dict(zip(CONNECTION, zones.connections, strict=True)))
    found = connection_rows(known, chain, np.maximum(counterparty, 0).astype(np.uint32))
    return (found >= 0) & (counterparty >= 0)


def _headers(chains: Chains, height: int, roots: npt.NDArray[np.uint8], signed: pa.BinaryArray) -> Frame:
    none = repeat_bytes(b"", len(chains))
    number = repeat_value(np.uint64(height), len(chains))
    columns = {"chain": chains, "number": number, "hash": none, "parent": none, "root": roots, "certification": signed}
    return Frame(columns, len(chains))


def change_zone_programs(state: State, context: Context) -> State:
    """Install new and changed programs on ``context.chains``."""
    runner, hosts = context.programs, context.zones.host_of(context.programs.changed)
    due = find_outdated_programs(runner, hosts, context.chains, state.accounts, state.programs)
    return state.with_programs(*runner.install(due, state.accounts, state.programs)) if len(due) else state
