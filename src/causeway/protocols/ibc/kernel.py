"""The IBC messaging queue behind the kernel contract: one block of any set of zones as a pure function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from causeway.model.errors import InvalidInput
from causeway.model.faults import Faults
from causeway.model.frame import Frame, concat, empty_frame, repeated_bytes, repeated_text
from causeway.model.ledger import COLLECTED_SCHEMA, EVENTS_SCHEMA, Kind
from causeway.model.order import U64, lane_codes, stable_order
from causeway.model.topology import Topology
from causeway.protocols.contract import (
    HEADERS_SCHEMA,
    PROGRAM_TABLE,
    Offers,
    Plan,
    ProgramRunner,
    RoundResult,
    StateTable,
    Tick,
)
from causeway.protocols.events import EventLog
from causeway.protocols.ibc.block import process_block
from causeway.protocols.ibc.client import certify, genesis_trust
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.disconnecting import final_packets
from causeway.protocols.ibc.external import recalled_for
from causeway.protocols.ibc.options import IbcOptions
from causeway.protocols.ibc.partition import part, union
from causeway.protocols.ibc.pushing import ENTRIES_SCHEMA
from causeway.protocols.ibc.relay import merged, submissions, wanted_ranges
from causeway.protocols.ibc.seen import Seen
from causeway.protocols.ibc.state import (
    CONNECTIONS_SCHEMA,
    QUEUES_SCHEMA,
    RECEIPT,
    SEND,
    STATE_TABLES,
    State,
    from_tables,
    keys_of,
    parts,
    state_tables,
)
from causeway.protocols.ibc.store import commit, pending_runs
from causeway.protocols.ibc.submitting import RelayPlan
from causeway.protocols.ibc.upkeep import REFRESH, asked_positions
from causeway.protocols.ibc.zones import Zones
from causeway.protocols.interference import Interference
from causeway.protocols.option_values import NANOSECONDS, check_tick

ROUND_TRIP = 3
"""Blocks from what shows that a packet has expired to its time-out, at most."""


@dataclass(frozen=True)
class IbcKernel:
    """The state machine of a network of zones.

    ``programs``: the modules; ``tick_ns``: nanoseconds of block time a tick; ``faults``: what goes wrong on purpose.
    """

    topology: Topology
    programs: ProgramRunner
    options: IbcOptions = field(default_factory=IbcOptions)
    seed: int = 0
    tick_ns: int = 1_000_000_000
    faults: Faults = field(default_factory=Faults)

    name: ClassVar[str] = "ibc"
    outbound_schema: ClassVar[pa.Schema] = ENTRIES_SCHEMA
    offer_tables: ClassVar[tuple[str, str, str]] = ("queues", "proofs", "runs")

    def __post_init__(self) -> None:
        check_tick(self.tick_ns)
        if self.options.unbonding_ns <= 2 * self.tick_ns:
            # A header is a tick old when it is brought, and the one that it builds on was so the tick before.
            seconds = 2 * self.tick_ns / NANOSECONDS
            text = f"{self.options.unbonding_seconds}; allowed: more than two ticks, here {seconds} seconds"
            raise InvalidInput(f"options.unbonding_seconds: {text}")
        for name in self.faults.carriers["relayer"].to_pylist():
            if name is not None and name not in self.options.relayers:
                known = ", ".join(self.options.relayers)
                raise InvalidInput(f"faults: relayer: {name!r}: no such relayer; options.relayers are {known}")
        position = {number: place for place, number in enumerate(self.zones.numbers.tolist())}
        for row in self.faults.disconnects.to_pylist():
            chain, remote = (np.array([position[row[name]]], dtype=np.uint32) for name in ("chain", "remote"))
            if not connection_exists(chain, remote.astype(np.int32), self.zones).all():
                first, second = (self.zones.names[int(one[0])] for one in (chain, remote))
                raise InvalidInput(f"faults: kind = 'disconnect': {first} and {second} are not connected")
        # What the options name must be there before anything runs.
        _ = self.zones.connections, self.zones.handled, self.zones.permitted

    @cached_property
    def zones(self) -> Zones:
        """Return the fixed parts of the network."""
        return Zones(self.topology, self.options)

    @cached_property
    def interference(self) -> Interference:
        """Return the scenario's faults."""
        return Interference(self.faults, self.zones.numbers, self.seed)

    def context(self, chains: npt.NDArray[np.uint32], tick: Tick) -> Context:
        """Return what a block of ``chains`` at ``tick`` may know."""
        return Context(tick.height, tick.tick, self.tick_ns, self.seed, chains, self.zones, self.options, self.programs)

    def chains(self) -> Sequence[str]:
        """Return the chain ids by position."""
        return self.zones.names

    def numbers(self) -> U64:
        """Return the zones' numbers in the topology by position."""
        return self.zones.numbers

    def state_tables(self) -> Mapping[str, StateTable]:
        """Return every table that a state has, those of the programs in use included, by name."""
        return state_tables(self.programs.schemas())

    def genesis(self, chains: npt.NDArray[np.uint32]) -> State:
        """Return the state of ``chains`` at height 0: all registered, queues empty, programs as they begin."""
        chains = self._own(chains)
        own = self.zones.programs[np.isin(self.zones.host_of(self.zones.programs), chains.astype(np.int32))]
        accounts, programs = self.programs.genesis(own[self.programs.installed(own)])
        empty = {name: empty_frame(table.schema) for name, table in STATE_TABLES.items()}
        state = State(**{**empty, "accounts": accounts}, programs=programs)
        chain, remote = self.zones.connections
        mine = np.isin(chain, chains)
        zero = np.zeros(int(mine.sum()), dtype=np.uint64)
        connections = Frame(
            {
                "chain": chain[mine],
                "remote": remote[mine],
                "latest": zero,
                "frozen": zero.astype(np.uint8),
                "peer_received": zero,
                "peer_done": zero,
            },
            len(zero),
        ).select(CONNECTIONS_SCHEMA.names)
        trust = genesis_trust(chains, self.context(chains, Tick(0, 0)))
        return replace(state, connections=connections, trust=trust, queues=_queues(connections, chains))

    def parts(self, state: State) -> Mapping[str, Any]:
        """Return the state's parts by table name."""
        return parts(state)

    def table(self, name: str, part: Any) -> pa.Table:
        """Return a part of a state as an Arrow table."""
        if name.startswith(PROGRAM_TABLE):
            return part.to_table(self.programs.schemas()[name.removeprefix(PROGRAM_TABLE)])
        return part.to_table(STATE_TABLES[name].schema)

    def state(self, tables: Mapping[str, pa.Table]) -> State:
        """Return the state that ``tables`` gave."""
        return from_tables(tables, self.programs.schemas())

    def rehomed(self, before: int, tick: int) -> bool:
        """Return False: programs stay on their zones."""
        return False

    def part(self, state: State, chains: npt.NDArray[np.uint32], tick: int) -> State:
        """Return the part of a state that belongs to ``chains``."""
        return part(state, chains, self.zones)

    def abandoned(self, state: State, tick: int) -> Frame:
        """Return no events: no program leaves."""
        return empty_frame(EVENTS_SCHEMA)

    def union(self, states: Sequence[State]) -> State:
        """Return the states of disjoint sets of zones as one."""
        return union(states)

    def _own(self, chains: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        """Return which of ``chains`` are run here; of those that another lake runs there is no state and no header."""
        return chains[np.isin(chains, self.zones.own)]

    def _ingress(self, ingress: pa.Table) -> pa.Table:
        """Return the messages from users to zones that are run here; the others come in at their own lake."""
        if not self.topology.external or not ingress.num_rows:
            return ingress
        foreign = pc.is_in(ingress["chain"], pa.array(self.topology.external, pa.uint64()))
        return ingress.filter(pc.invert(foreign))

    def idle(self, state: State) -> bool:
        """Return whether no packet waits for its receipt, and no local lane holds a message.

        A packet to a zone of another lake is none of these: only a relay process, from outside, moves it.
        """
        queues = state.queues
        waiting = (queues["substream"] == SEND) | (queues["chain"] == queues["remote"])
        waiting &= np.isin(queues["remote"], self.zones.own)
        return not bool((waiting & (queues["next_index"] > queues["begin"])).any())

    def headers(self, state: State, chains: npt.NDArray[np.uint32], tick: Tick) -> Frame:
        """Return the headers of ``chains``: the roots of their stores, signed from height 1 on."""
        chains = self._own(chains)
        if len(chains) == 0:
            return empty_frame(HEADERS_SCHEMA)
        context = self.context(chains, tick)
        roots = commit(state, context).roots()
        signed = certify(roots, context) if tick.height else repeated_bytes(b"", len(chains))
        return Frame({"chain": chains, "root": roots, "certification": signed}, len(chains))

    def next_planned(self, tick: int) -> int | None:
        """Return the first tick at or after ``tick`` at which a fault acts of itself, None if none is left."""
        return min(self.interference.planned(tick), default=None)

    def settled(self, tick: int) -> bool:
        """Return whether nothing that is planned (faults' ends) can still come after ``tick``."""
        return tick >= self.interference.last_change

    def longest_pause(self) -> int | None:
        """Return the ticks of a third of the unbonding period, after which relayers refresh clients (X-4)."""
        return max(1, self.options.unbonding_ns // REFRESH // self.tick_ns)

    def patience(self) -> int:
        """Return for how many ticks nothing may move before a packet times out."""
        if not self.options.limited:
            return 0
        ticks = -(-self.options.timeout_ns // self.tick_ns)
        return min((limit for limit in (self.options.timeout_blocks, ticks) if limit), default=0) + ROUND_TRIP

    def plan(self, state: State, chains: npt.NDArray[np.uint32], offers: Offers, ingress: pa.Table, tick: Tick) -> Plan:
        """Let the relayers look at both sides of every connection, and submit what they will."""
        running = self.interference.running(self._own(chains), tick.tick)
        ingress = self._ingress(ingress)
        context = self.context(running, tick)
        seen = Seen.of(offers, context)
        rows = submissions(state, seen, self.interference, context)
        wanted, recalled = wanted_ranges(rows, state, seen, context)
        if ingress.num_rows:
            recalled = merged(concat([recalled, recalled_for(ingress, recalled, state, context)]))
        forks = tuple(self.interference.forking(tick.tick))
        return RelayPlan(rows, seen.proofs, wanted, recalled, empty_frame(EVENTS_SCHEMA), seen, forks)

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
        """Run one block of ``chains`` and commit its stores; a halted zone keeps its state."""
        if not isinstance(plan, RelayPlan):
            raise TypeError(f"plan is a {type(plan).__name__}, allowed: RelayPlan")
        chains, ingress = self._own(chains), self._ingress(ingress)
        if len(chains) == 0:
            schemas = (ENTRIES_SCHEMA, EVENTS_SCHEMA, COLLECTED_SCHEMA, HEADERS_SCHEMA)
            return RoundResult(state, *map(empty_frame, schemas))
        running = self.interference.running(chains, tick.tick)
        context = self.context(running, tick)
        halted = None
        if len(running) < len(chains):
            halted = part(state, np.setdiff1d(chains, running), self.zones)
            state = part(state, running, self.zones)
        log = EventLog()
        ends = self.interference.disconnecting(running, tick.tick)
        own = concat([self._forged(running, context), final_packets(ends["chain"], ends["remote"])])
        after, outbound = process_block(state, plan, messages, recalled, ingress, own, context, log)
        if halted is not None:
            after = union([after, halted])
        everyone = replace(context, chains=chains)
        store = commit(after, everyone)
        roots = store.roots()
        headers = Frame({"chain": chains, "root": roots, "certification": certify(roots, everyone)}, len(chains))
        # What goes to a zone of another lake is proved when a relay process asks for it.
        offered = pending_runs(after)
        proofs = store.prove_runs(offered.filter(np.isin(offered["remote"], self.zones.own)))
        for position, lanes in asked_positions(after, plan.seen, everyone):
            proofs = concat([proofs, store.prove_positions(lanes, position)])
        proofs = proofs.take(stable_order(keys_of(proofs), proofs["part"], proofs["first"]))
        return RoundResult(replace(after, proofs=proofs), outbound, log.events(), log.collected_ranges(), headers)

    def _forged(self, running: npt.NDArray[np.uint32], context: Context) -> Frame:
        """Return the packets that byzantine zones among ``running`` put into their send queues in this block."""
        rows = self.interference.forged(running, context.tick)
        rows = rows.filter(connection_exists(rows["chain"], self.zones.host_of(rows["receiver"]), self.zones))
        length = len(rows)
        zero = np.zeros(length, dtype=np.uint64)
        return Frame(
            {
                "chain": rows["chain"],
                "remote": self.zones.host_of(rows["receiver"]).astype(np.uint32),
                "substream": np.full(length, SEND, dtype=np.uint64),
                "kind": np.full(length, Kind.REQUEST, dtype=np.uint8),
                "sender": rows["sender"],
                "receiver": rows["receiver"],
                "callback": zero,
                "amount_high": zero,
                "amount_low": zero,
                "code": zero.astype(np.uint8),
                "deadline": zero.astype(np.uint32),
                "method": repeated_text("forged", length),
                "payload": rows["payload"] if length else repeated_bytes(b"", 0),
                "of_program": np.zeros(length, dtype=bool),
            },
            length,
        )


def connection_exists(chain: npt.NDArray[Any], remote: npt.NDArray[Any], zones: Zones) -> npt.NDArray[np.bool_]:
    """Return which pairs of zones are connected; ``remote`` may be ``NO_HOST``."""
    known = lane_codes(*zones.connections)
    found: npt.NDArray[np.bool_] = np.isin(lane_codes(chain, np.maximum(remote, 0)), known) & (remote >= 0)
    return found


def _queues(connections: Frame, chains: npt.NDArray[np.uint32]) -> Frame:
    """Return the queues of connections and the local lanes of ``chains``, all empty."""
    chain = np.concatenate([connections["chain"], chains]).repeat(2)
    remote = np.concatenate([connections["remote"], chains]).repeat(2)
    substream = np.tile(np.array([RECEIPT, SEND], dtype=np.uint64), len(chain) // 2)
    order = np.lexsort((substream, remote, chain))
    zero = np.zeros(len(chain), dtype=np.uint64)
    columns = {"chain": chain, "remote": remote, "substream": substream}
    rows = {name: column[order] for name, column in columns.items()}
    return Frame({**rows, "begin": zero, "next_index": zero, "ready": zero}, len(chain)).select(QUEUES_SCHEMA.names)
