"""The Internet Computer behind the kernel contract: one round of any set of subnets as a pure function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.errors import InvalidInput
from causeway.model.faults import Faults
from causeway.model.frame import Frame, concat, empty_frame, repeated_bytes, repeated_text
from causeway.model.ledger import Event
from causeway.model.order import U64
from causeway.model.topology import Topology
from causeway.protocols.contract import Offers, Plan, ProgramRunner, RoundResult, StateTable, Tick
from causeway.protocols.events import EventLog, event_rows
from causeway.protocols.ic.arrivals import OUTGOING_SCHEMA
from causeway.protocols.ic.batch import DecodedBatch, decode
from causeway.protocols.ic.carriers import Carriers
from causeway.protocols.ic.commitment import commit_runs, state_roots
from causeway.protocols.ic.context import Context, lifetime_ticks
from causeway.protocols.ic.execute import execute
from causeway.protocols.ic.expected_indexes import expected_indexes
from causeway.protocols.ic.messages import CHAIN_HALTED, FORGED_FOR_NOBODY
from causeway.protocols.ic.options import IcOptions
from causeway.protocols.ic.partition import abandoned, part, union
from causeway.protocols.ic.payload import get_streams, make_plan, refusals, with_news
from causeway.protocols.ic.payload_builder import get_xnet_payload
from causeway.protocols.ic.post_process import post_process
from causeway.protocols.ic.pre_process import pre_process
from causeway.protocols.ic.registry import Registry, registry_at, subnet_positions
from causeway.protocols.ic.state import State, from_tables, parts, state_tables, to_table
from causeway.protocols.messages import STREAMED_SCHEMA
from causeway.protocols.option_values import check_tick

MAX_CHAINS = 2**16
"""A pair of positions fits one word of 32 bits."""


@dataclass(frozen=True)
class IcKernel:
    """The state machine of a network of subnets.

    ``programs``: what runs on the canisters; ``tick_ns``: nanoseconds of batch time a tick; ``faults``: what goes
    wrong on purpose.
    """

    topology: Topology
    programs: ProgramRunner
    options: IcOptions = field(default_factory=IcOptions)
    seed: int = 0
    tick_ns: int = 1_000_000_000
    faults: Faults = field(default_factory=Faults)

    name: ClassVar[str] = "ic"
    outbound_schema: ClassVar[pa.Schema] = STREAMED_SCHEMA
    offer_tables: ClassVar[tuple[str, str, str]] = ("lanes", "rejects", "runs")

    def __post_init__(self) -> None:
        others = [kind for kind in self.faults.carriers["kind"].to_pylist() if kind in ("stale", "foreign")]
        if others or self.faults.forks.num_rows:
            raise InvalidInput(
                f"faults: kind = {(others or ['fork'])[0]!r} is a fault of relayers and headers under ibc"
            )
        if self.faults.disconnects.num_rows:
            raise InvalidInput("faults: kind = 'disconnect': there are connections to end under ibc only")
        if self.faults.carriers["relayer"].null_count < self.faults.carriers.num_rows:
            raise InvalidInput("faults: relayer: there are relayers under ibc only")
        check_tick(self.tick_ns)
        if self.topology.chains.num_rows > MAX_CHAINS:
            raise InvalidInput(f"chains: {self.topology.chains.num_rows}; at most {MAX_CHAINS} are allowed")

    @cached_property
    def _move_ticks(self) -> list[int]:
        return sorted(set(self.topology.moves["tick"].to_pylist()))

    @cached_property
    def _registries(self) -> dict[int, Registry]:
        return {}

    def registry(self, tick: int) -> Registry:
        """Return the registry version in force in the round of ``tick``."""
        applied = sum(1 for moved in self._move_ticks if moved <= tick)
        if applied not in self._registries:
            self._registries[applied] = registry_at(self.topology, tick)
        return self._registries[applied]

    @cached_property
    def _subnets(self) -> U64:
        return subnet_positions(self.topology)

    @cached_property
    def carriers(self) -> Carriers:
        """Return who carries slices between subnets, with the scenario's faults."""
        return Carriers(self.faults, self._subnets, self.seed)

    def context(self, chains: npt.NDArray[np.uint32], tick: Tick) -> Context:
        """Return the metadata of the round of ``chains`` at ``tick``."""
        registry = self.registry(tick.tick)
        return Context(tick.height, tick.tick, self.tick_ns, self.seed, chains, registry, self.options, self.programs)

    def chains(self) -> Sequence[str]:
        """Return the subnets' names by position (the order of their id bytes)."""
        numbers = self.topology.chains["number"].to_pylist()
        names = dict(zip(numbers, self.topology.chains["name"].to_pylist(), strict=True))
        return [names[number] for number in self._subnets.tolist()]

    def numbers(self) -> U64:
        """Return the subnets' numbers by position."""
        return self._subnets

    def state_tables(self) -> Mapping[str, StateTable]:
        """Return every table that a state has, those of the programs in use included, by name."""
        return state_tables(self.programs.schemas())

    def genesis(self, chains: npt.NDArray[np.uint32]) -> State:
        """Return the state of ``chains`` at height 0: empty queues and streams, and the programs' first states."""
        registry = self.registry(0)
        return self._installed(registry.canisters[np.isin(registry.hosts, chains.astype(np.int32))])

    def _installed(self, canisters: U64) -> State:
        """Return the first state of the programs of ``canisters`` (ascending), and nothing else."""
        accounts, programs = self.programs.genesis(canisters[self.programs.installed(canisters)])
        return replace(State.empty(self.options.index_base), accounts=accounts, programs=programs)

    def _with_newcomers(self, state: State, chains: npt.NDArray[np.uint32], registry: Registry) -> State:
        """Return the state with the canisters that the registry maps to ``chains`` for the first time."""
        new = registry.newcomers
        if len(new) == 0:
            return state
        new = new[np.isin(registry.host_of(new), chains.astype(np.int32)) & ~state.installed(new)]
        new = new[self.programs.installed(new)]
        return union([state, self._installed(new)]) if len(new) else state

    def parts(self, state: State) -> Mapping[str, Any]:
        """Return the state's parts by table name (``STATE_SCHEMAS`` and one a program class)."""
        return parts(state)

    def table(self, name: str, part: Any) -> pa.Table:
        """Return a part of a state as an Arrow table."""
        return to_table(name, part, self.programs.schemas())

    def state(self, tables: Mapping[str, pa.Table]) -> State:
        """Return the state that ``tables`` gave."""
        state = from_tables(tables, self.options.index_base)
        empty = {name: empty_frame(schema) for name, schema in self.programs.schemas().items()}
        return replace(state, programs={**empty, **state.programs})

    def rehomed(self, before: int, tick: int) -> bool:
        """Return whether canisters change subnets between the round of ``before`` and that of ``tick``."""
        return any(before < moved <= tick for moved in self._move_ticks)

    def part(self, state: State, chains: npt.NDArray[np.uint32], tick: int) -> State:
        """Return the part of a state that belongs to ``chains`` under the registry of ``tick``."""
        return part(state, chains, self.registry(tick))

    def abandoned(self, state: State, tick: int) -> Frame:
        """Return the events of what ``part`` leaves out at ``tick``: the end of canisters that are on no subnet now."""
        return abandoned(state, self.registry(tick))

    def union(self, states: Sequence[State]) -> State:
        """Return the states of disjoint sets of chains as one."""
        return union(states)

    def idle(self, state: State) -> bool:
        """Return whether no queue or stream of ``state`` holds a message."""
        rows = state.lanes.rows
        queues = (state.ingress_queues, state.input_queues, state.output_queues)
        in_streams = rows["next_index"] > rows["begin"]
        if self.options.loopback == "seed_literal":
            in_streams &= rows["chain"] != rows["remote"]
        return not in_streams.any() and all(len(queue.elements) == 0 for queue in queues)

    def headers(self, state: State, chains: npt.NDArray[np.uint32], tick: Tick) -> Frame:
        """Return the headers of ``chains``: the roots of their states."""
        roots = state_roots(state, self.context(chains, tick))
        return Frame({"chain": chains, "root": roots, "certification": repeated_bytes(b"", len(chains))})

    def next_planned(self, tick: int) -> int | None:
        """Return the first tick at or after ``tick`` with a move, a forgery or a false slice; None if none is left."""
        moves = [moved for moved in self._move_ticks if moved >= tick]
        planned = [*moves[:1], *self.carriers.planned(tick)]
        return min(planned, default=None)

    def settled(self, tick: int) -> bool:
        """Return whether nothing that is planned (moves, faults' ends, time-outs) can still come after ``tick``."""
        waits = lifetime_ticks(self.options, self.tick_ns) + 1 if self.options.timeouts == "on" else 0
        return tick >= max([0, *self._move_ticks, self.carriers.last_change]) + waits

    def longest_pause(self) -> int | None:
        """Return None: any number of ticks may be skipped."""
        return None

    def patience(self) -> int:
        """Return for how many ticks nothing may move before a message times out."""
        return lifetime_ticks(self.options, self.tick_ns) + 1 if self.options.timeouts == "on" else 0

    def plan(self, state: State, chains: npt.NDArray[np.uint32], offers: Offers, ingress: pa.Table, tick: Tick) -> Plan:
        """Build the payloads of ``chains``: the slices that pass the checks, and the refusals of those that do not."""
        running = self.carriers.running(chains, tick.tick)
        context = self.context(running, tick)
        expected = expected_indexes(state, (), self.options.index_base)
        everything = get_streams(expected, offers, context)
        slices = self.carriers.carry(with_news(expected, everything), everything, context)
        accepted, errors = get_xnet_payload(state, slices, offers, context)
        local = part(state, running, context.registry) if len(running) < len(chains) else state
        return make_plan(local, accepted, offers, refusals(slices, errors), context)

    def round(
        self,
        state: State,
        chains: npt.NDArray[np.uint32],
        plan: Plan,
        messages: Frame,
        recalled: Frame,
        ingress: pa.Table,
        tick: Tick,
    ) -> RoundResult:
        """Run one round of ``chains``: decode the batch, process it, commit to the result (3.1).

        A halted chain keeps its state. Raises ``InvariantViolation`` when slices contradict the streams, and
        ``IndexOverflow``.
        """
        state = self._with_newcomers(state, chains, self.registry(tick.tick))
        running = self.carriers.running(chains, tick.tick)
        context = self.context(running, tick)
        halted = None
        if len(running) < len(chains):
            registry = context.registry
            halted = part(state, np.setdiff1d(chains, running), registry)
            state = part(state, running, registry)
        log = EventLog()
        log.add(plan.events)
        batch = decode(plan, messages, recalled, ingress, self._subnets)
        after, outbound = self.process_batch(state, chains, batch, context, log)
        if halted is not None:
            after = union([after, halted])
        headers = self.headers(after, chains, tick)
        return RoundResult(after, outbound, log.events(), log.collected_ranges(), headers)

    def process_batch(
        self, state: State, chains: npt.NDArray[np.uint32], batch: DecodedBatch, context: Context, log: EventLog
    ) -> tuple[State, Frame]:
        """Return the state after a decoded batch, and what was appended to the streams (3.1, steps 4 and 5).

        ``pre_process``, ``execute``, ``post_process``, with one view of the registry (D-17).
        """
        induction = pre_process(state, batch, context, log)
        executed, produced = execute(induction, context, log)
        outgoing = concat([induction.outgoing, self._forged(chains, context, log)])
        after, outbound = post_process(executed, produced, outgoing, context, log)
        return replace(after, runs=commit_runs(after, outbound, context)), outbound

    def _forged(self, chains: npt.NDArray[np.uint32], context: Context, log: EventLog) -> Frame:
        """Return what byzantine subnets among ``chains`` append to their streams in this round.

        A halted one appends nothing, and nothing is appended for a canister on no subnet: both leave an event.
        """
        rows = self.carriers.forged(chains, context.tick)
        length = len(rows)
        zero = np.zeros(length, dtype=np.uint64)
        columns: dict[str, Any] = {
            "chain": rows["chain"],
            "kind": np.ones(length, dtype=np.uint8),
            "sender": rows["sender"],
            "receiver": rows["receiver"],
            "callback": zero,
            "amount_high": zero,
            "amount_low": zero,
            "code": zero.astype(np.uint8),
            "deadline": zero.astype(np.uint32),
            "method": repeated_text("forged", length),
            "payload": rows["payload"] if length else repeated_bytes(b"", 0),
            "sent_tick": np.full(length, context.tick, dtype=np.uint64),
        }
        forged = Frame(columns, length).select(OUTGOING_SCHEMA.names)
        halted = ~np.isin(forged["chain"], context.chains)
        nobody = ~halted & (context.host_of(forged["receiver"]) < 0)
        for mask, reason in ((halted, CHAIN_HALTED), (nobody, FORGED_FOR_NOBODY)):
            rows = forged.filter(mask)
            log.add(event_rows(rows, Event.DROPPED, chain=rows["chain"], reason=reason))
        return forged.filter(~halted & ~nobody)
