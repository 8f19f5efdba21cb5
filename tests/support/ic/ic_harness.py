"""Drives the IC kernel and the oracle through one scenario and compares whole states, events and roots after every
round.

A ``Scenario`` is plain values. ``run`` plays it in the oracle, in the kernel with all subnets in one call, and in the
kernel with each subnet in a call of its own whose state goes through the lake's tables after every round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.errors import InvariantViolation
from causeway_proofs.order import find_positions, stable_order

from causeway.config.faults import FaultRule, Faults
from causeway.config.topology import (
    CHAINS_SCHEMA,
    MOVES_SCHEMA,
    PROGRAMS_SCHEMA,
    ChainSplit,
    Membership,
    NodeChange,
    TickSpan,
    Topology,
)
from causeway.config.traffic import CARRIED_SCHEMA, INGRESS_SCHEMA
from causeway.core.frame import Frame, concat, empty_frame
from causeway.core.vocabulary import Kind
from causeway.programs.runner import Programs
from causeway.protocols.contract import Inputs, Plan, RoundResult, Tick, View
from causeway.protocols.ic.agreement import Agreement
from causeway.protocols.ic.batch import XNetPlan
from causeway.protocols.ic.kernel import IcKernel
from causeway.protocols.ic.options import IcOptions, StreamLimits
from causeway.protocols.ic.registry import Context
from causeway.protocols.ic.state import State
from causeway.protocols.ic.subnet_keys import Certifier
from causeway.protocols.shared.interference import DROP, FORGE, HALT
from causeway.protocols.shared.messages import LANE, LANE_COLUMNS, OUTBOUND_SCHEMA
from causeway.protocols.shared.state_tables import merge_states, restore_state, select_chains
from causeway.scenarios.directory import ProgramMove, genesis_topology, membership_moves
from tests.shown import shown_to
from tests.spec import ic
from tests.spec.ic import ids
from tests.spec.ic.certified import altered, encode_certified_stream_slice
from tests.spec.ic.coordination import certified_state
from tests.spec.ic.payloads import Proposal
from tests.spec.ic.slices import AnySlice, StreamSlice, only
from tests.spec.ic.slices import at as index_in
from tests.spec.ic.state import expected_index
from tests.spec.ic.tree import FULL, METADATA
from tests.support.ic.ic_payload_log import PayloadLog, Round, headers_of
from tests.support.ic.ic_programs import BEHAVIOURS, behaviour_of

TICK_NS = 1_000_000_000
WORD = 2**64


@dataclass(frozen=True)
class Call:
    """An ingress message."""

    chain: int
    receiver: int
    user: int
    method: str
    payload: bytes


@dataclass(frozen=True)
class Forgery:
    """A message that a chain puts into its stream without anybody having made it. A request, or, with ``answer``, a
    response: from ``sender`` to ``receiver`` in any case. ``code``: that of a reject."""

    tick: int
    chain: int
    sender: int
    receiver: int
    payload: bytes = b""
    answer: bool = False
    callback: int = 0
    cycles: int = 0
    deadline: int = 0
    code: int = 0

    def fault(self) -> FaultRule:
        """The same for the kernel."""
        args = {
            "sender": self.sender,
            "receiver": self.receiver,
            "payload": self.payload.hex(),
            "kind": int(Kind.RESPONSE if self.answer else Kind.REQUEST),
            "callback": self.callback,
            "amount": self.cycles,
            "deadline": self.deadline,
            "code": self.code,
        }
        return FaultRule(FORGE, self.chain, None, self.tick, self.tick, args)

    def message(self) -> ic.Request | ic.Response:
        """The same for the oracle."""
        if not self.answer:
            return ic.Request(
                self.receiver, self.sender, self.callback, self.cycles, "forged", self.payload, self.deadline
            )
        data, reject = (None, (self.code, self.payload.decode())) if self.code else (self.payload, None)
        return ic.Response(self.receiver, self.sender, self.callback, self.cycles, data, reject, self.deadline)


@dataclass(frozen=True)
class Scenario:
    """A network and what happens to it. Chains and canisters are numbers; ticks count from 1."""

    subnets: tuple[int, ...]
    canisters: Mapping[int, tuple[int | None, str | None, int]]
    """Number -> (host, program, balance)."""
    options: Mapping[str, Any] = field(default_factory=dict)
    rounds: int = 6
    ingress: Mapping[int, Sequence[Call]] = field(default_factory=dict)
    moves: Sequence[tuple[int, int, int | None]] = ()
    """(tick, canister, new host)."""
    spans: Mapping[int, tuple[int, int | None]] = field(default_factory=dict)
    """Subnet -> first and last tick in the registry, of those that are not always there."""
    nodes: Sequence[NodeChange] = ()
    roles: Mapping[int, str] = field(default_factory=dict)
    """Subnet -> "system" or "nns"."""
    withheld: frozenset[tuple[int, int, int]] = frozenset()
    """(tick, source, destination)."""
    carriers: Sequence[tuple[Any, ...]] = ()
    """(kind, source, destination, first tick, last tick), for ``stale`` {"age": heights}, for ``alter`` {"part": name}
    and, if one alone is altered, {"substream": canister}."""
    makers: Sequence[tuple[str, int, int, int]] = ()
    """(does, chain, first tick, last tick)."""
    halts: Sequence[tuple[int, int, int]] = ()
    splits: Sequence[tuple[int, int, int]] = ()
    """(tick, subnet, new subnet); which canisters go is part of ``moves``."""
    forged: Sequence[Forgery] = ()
    worn: Sequence[tuple[int, int, int]] = ()
    """(tick, source, destination): if that stream is at rest, its next index is the last but two from then on."""
    skip: float = 0.0
    seed: int = 0

    def programs(self) -> dict[int, str | None]:
        return {number: program for number, (_, program, _) in self.canisters.items()}

    def members(self, tick: int) -> frozenset[int]:
        """The subnets that are in the registry."""
        spans = {subnet: self.spans.get(subnet, (0, None)) for subnet in self.subnets}
        return frozenset(s for s, (first, last) in spans.items() if first <= tick and (last is None or tick <= last))

    def all_moves(self) -> list[tuple[int, int, int | None]]:
        """The moves, and those that subnets make that come, with the canisters that are to begin on them, or go, from
        whatever canisters are on them then."""
        found: list[tuple[int, int, int | None]] = []
        hosts = {c: host for c, (host, _, _) in self.canisters.items() if host in self.members(0)}
        ticks = {tick for tick, _, _ in self.moves} | {first for first, _ in self.spans.values()}
        ticks |= {last + 1 for _, last in self.spans.values() if last is not None}
        for tick in sorted(ticks - {0}):
            mine = {canister: host for at, canister, host in self.moves if at == tick}
            moved_before = {canister for at, canister, _ in self.moves if at < tick}
            for canister, (home, _, _) in self.canisters.items():
                comes = home is not None and self.spans.get(home, (0, None))[0] == tick
                if comes and canister not in moved_before:
                    mine.setdefault(canister, home)
            gone = {subnet for subnet, (_, last) in self.spans.items() if last is not None and tick == last + 1}
            mine |= {canister: None for canister, host in hosts.items() if host in gone and canister not in mine}
            hosts |= mine  # type: ignore[arg-type]
            found += [(tick, canister, host) for canister, host in mine.items()]
        return found


# ---- the kernel


def topology(scenario: Scenario) -> Topology:
    numbers = list(scenario.canisters)
    hosts, programs, balances = zip(*scenario.canisters.values(), strict=True)
    columns = {
        "number": pa.array(numbers, pa.uint64()),
        "name": [f"c{number}" for number in numbers],
        "chain": pa.array(hosts, pa.uint64()),
        "program": list(programs),
        "options": ["{}"] * len(numbers),
        "balance": pa.array([Decimal(balance) for balance in balances], pa.decimal128(38, 0)),
    }
    chains = {"number": pa.array(scenario.subnets, pa.uint64()), "name": [f"s{number}" for number in scenario.subnets]}
    whole = Topology(
        pa.table(chains, schema=CHAINS_SCHEMA),
        pa.table(columns, schema=PROGRAMS_SCHEMA),
        roles=scenario.roles,
        membership=Membership(
            {chain: TickSpan(*span) for chain, span in scenario.spans.items()},
            changes=tuple(scenario.nodes),
            splits=tuple(ChainSplit(*split) for split in scenario.splits),
        ),
    )
    moves: list[ProgramMove] = [dict(zip(MOVES_SCHEMA.names, move, strict=True)) for move in scenario.moves]
    moves = sorted([*moves, *membership_moves(whole, moves)], key=lambda move: move["tick"] or 0)
    return replace(genesis_topology(whole), moves=pa.Table.from_pylist(moves, schema=MOVES_SCHEMA))


def _rows(schema: pa.Schema, rows: Iterable[Sequence[Any]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


def faults(scenario: Scenario) -> Faults:
    carriers = [FaultRule(*row) for row in scenario.carriers]
    halts = [FaultRule(HALT, chain, None, first, last) for chain, first, last in scenario.halts]
    makers = [
        FaultRule("block_maker", None, chain, first, last, {"does": does})
        for does, chain, first, last in scenario.makers
    ]
    # Last: what is late is not offered, whatever another carrier would have made of it.
    late = [FaultRule(DROP, source, taker, tick, tick) for tick, source, taker in sorted(scenario.withheld)]
    return Faults.of(
        *(forgery.fault() for forgery in scenario.forged), *carriers, *makers, *halts, *late, skip=scenario.skip
    )


def ic_options(options: Mapping[str, Any]) -> IcOptions:
    """The options of the kernel; networks are not certified unless they say so: a signature costs 2 ms."""
    return IcOptions(**{"certification": "off", **options, "limit": StreamLimits(**options.get("limit", {}))})


@dataclass(frozen=True)
class WatchedKernel(IcKernel):
    """A kernel that notes what its rounds agree on and execute: where slices are certified, no plan tells."""

    made: list[Round] = field(default_factory=list)
    refused: list[InvariantViolation] = field(default_factory=list)

    def _agreed(
        self, plan: Plan[XNetPlan], inputs: Inputs[State], state: State, certifier: Certifier, context: Context
    ) -> Agreement:
        try:
            agreement = super()._agreed(plan, inputs, state, certifier, context)
        except InvariantViolation as error:
            self.refused.append(error)
            raise
        slices, brought = agreement.content.slices, plan.content.brought
        headers = {} if brought is None else headers_of(brought.older, brought.everything, brought.candidates)
        agreed = slices
        if self.options.blocks_ahead:
            last = agreement.state.agreed
            rows = find_positions(state.heads["chain"].astype(np.uint64), last["destination"].astype(np.uint64))
            ahead = last["executed"] == state.heads["number"][rows] + np.uint64(1 + self.options.blocks_ahead)
            agreed = last.filter(ahead & np.isin(last["destination"], context.chains))
        self.made.append(Round(context.chains.tolist(), agreed, slices, headers))
        return agreement


def kernel_of(scenario: Scenario) -> WatchedKernel:
    network, options = topology(scenario), ic_options(scenario.options)
    return WatchedKernel(network, Programs(network), options, scenario.seed, TICK_NS, faults(scenario))


LAST_BUT_TWO = WORD - 3


class KernelRun:
    """A kernel driven as the pipeline does it: ``groups`` of chains, each with its own state and its own calls.

    ``apart``: every chain is a group, or, with ``parts``, every so many-th."""

    def __init__(self, scenario: Scenario, *, apart: bool, via_tables: bool = False, parts: int | None = None) -> None:
        self.scenario = scenario
        self.kernel = kernel_of(scenario)
        self.tick = 0
        everything = np.arange(len(scenario.subnets), dtype=np.uint32)
        number = min(parts or len(everything), len(everything)) if apart else 1
        self.groups = [everything[first::number] for first in range(number)]
        self.results: list[RoundResult[State]] = [self.kernel.genesis(group) for group in self.groups]
        self.states: list[State] = [result.state for result in self.results]
        self.headers = concat([result.headers for result in self.results])
        self.known = [self.headers.with_columns(height=np.uint64(0))]
        self.via_tables = via_tables
        self.numbers = [int(name.removeprefix("s")) for name in self.kernel.chains()]
        self.outbound: list[Frame] = []
        self.accepted: list[Frame] = []
        self.events: list[Frame] = []
        self.payloads = PayloadLog(self.kernel.options)

    def view(self, group: npt.NDArray[np.uint32]) -> View:
        """What the chains of a group see of the height before."""
        known = concat(self.known[-self.kernel.header_heights :])
        return View(
            shown_to(self.kernel, self.states, group), known.take(stable_order(known["chain"], known["height"]))
        )

    def round(self, tick: Tick) -> None:
        """Run one round of every group."""
        self.events, before, self.tick = [], self.tick, tick.tick
        kernel = self.kernel
        if kernel.registry_version(before) != kernel.registry_version(tick.tick):
            whole = merge_states(kernel, self.states)
            self.states = [select_chains(kernel, whole, group, tick.tick) for group in self.groups]
        for at, source, destination in self.scenario.worn:
            if at == tick.tick:
                self._wear(self.numbers.index(source), self.numbers.index(destination))
        self.results, self.accepted, states = [], [], []
        for group, state in zip(self.groups, self.states, strict=True):
            ingress, carried = self._ingress(tick.tick, group), CARRIED_SCHEMA.empty_table()
            plan = kernel.plan(state, group, self.view(group), ingress, carried, tick)
            offered, own = self.read(plan.reads.offered), self.read(plan.reads.own)
            result = kernel.round(state, group, plan, Inputs(ingress, carried, offered, own), tick)
            self.results.append(result)
            # A round that a violated invariant ends is run again without the subnet whose it is.
            made, stopped = kernel.made[-1], result.state.frames()["stopped"]["chain"]
            self.accepted.append(made.executed.filter(~np.isin(made.executed["destination"], stopped)))
            if kernel.options.certified:
                for error in kernel.refused:
                    self.payloads.refuse(error)
                self.payloads.add(made, self.read)
            kernel.made.clear()
            kernel.refused.clear()
            self.events.append(result.logs["events"])
            states.append(self._through_tables(result.state) if self.via_tables else result.state)
        self.states = states
        self.headers = concat([result.headers for result in self.results])
        self.known.append(self.headers.with_columns(height=np.uint64(tick.height)))
        self.outbound += [result.outbound for result in self.results]
        self._forget_collected()

    def _wear(self, source: int, destination: int) -> None:
        """Bring a stream at rest near the end of its indices, at both of its ends."""

        def rows_of(state: State, own: int, remote: int) -> npt.NDArray[np.bool_]:
            lanes = state.streams.counters
            here: npt.NDArray[np.bool_] = (lanes["source"] == own) & (lanes["destination"] == remote)
            return here

        lanes = concat([state.streams.counters for state in self.states])
        ours = lanes.filter((lanes["source"] == source) & (lanes["destination"] == destination))
        theirs = lanes.filter((lanes["source"] == destination) & (lanes["destination"] == source))
        if len(ours) != 1 or len(theirs) != 1 or source == destination:
            return
        marks = {int(ours[name][0]) for name in ("begin", "next_index")}
        if len(marks | {int(theirs[name][0]) for name in ("signals_begin", "expected")}) > 1:
            return
        for place, state in enumerate(self.states):
            changes: dict[str, Any] = {}
            for names, own, remote in (
                (("begin", "next_index"), source, destination),
                (("signals_begin", "expected"), destination, source),
            ):
                here = rows_of(state, own, remote)
                changes |= {
                    name: np.where(here, np.uint64(LAST_BUT_TWO), state.streams.counters[name]) for name in names
                }
            self.states[place] = replace(state, streams=state.streams.with_counters(**changes))

    def _forget_collected(self) -> None:
        """Forget messages of runs that are in no state any more, as the lake may."""
        runs = concat([frame for state in self.states for frame in (state.runs, state.trimmed_runs)])
        names = (*LANE, "first", "count")
        kept = {
            (source, destination, substream, index)
            for source, destination, substream, first, count in zip(
                *(runs[name].tolist() for name in names), strict=True
            )
            for index in range(first, first + count)
        }
        self.outbound = [
            frame.filter(
                np.array([row in kept for row in zip(*(frame[name].tolist() for name in LANE_COLUMNS), strict=True)])
            )
            for frame in self.outbound
            if len(frame)
        ]

    def _through_tables(self, state: State) -> State:
        schemas = {name: table.schema for name, table in self.kernel.tables().items()}
        tables = {name: frame.to_table(schemas[name]) for name, frame in state.frames().items()}
        return restore_state(self.kernel, {name: table for name, table in tables.items() if table.num_rows})

    def _ingress(self, tick: int, group: npt.NDArray[np.uint32]) -> pa.Table:
        here = {self.numbers[place] for place in group}
        calls = [call for call in self.scenario.ingress.get(tick, ()) if call.chain in here]
        return _rows(
            INGRESS_SCHEMA, [(call.chain, call.receiver, call.user, call.method, call.payload) for call in calls]
        )

    def read(self, ranges: Frame) -> Frame:
        """Read ranges of outbound entries."""
        found = [empty_frame(OUTBOUND_SCHEMA)]
        for source, destination, substream, begin, end in zip(
            *(ranges[name].tolist() for name in (*LANE, "begin", "end")), strict=True
        ):
            for frame in self.outbound:
                lane = (frame["source"] == source) & (frame["destination"] == destination)
                lane &= frame["substream"] == substream
                found.append(frame.filter(lane & (frame["index"] >= begin) & (frame["index"] < end)))
        return concat(found)

    @property
    def state(self) -> State:
        return merge_states(self.kernel, self.states)

    def roots(self) -> dict[int, bytes]:
        """Root of every chain, by its number."""
        return {
            self.numbers[chain]: bytes(root)
            for chain, root in zip(self.headers["chain"].tolist(), self.headers["root"], strict=True)
        }


# ---- the oracle


class OracleRun:
    """The oracle on the same scenario; carriers' faults are what it is shown instead of an honest slice."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        options = dict(scenario.options)
        self.options = ic.Options(**{"certification": "off", **options, "limit": ic.Limit(**options.get("limit", {}))})
        self.moves = scenario.all_moves()
        members = scenario.members(0)
        hosts = {number: host for number, (host, _, _) in scenario.canisters.items() if host in members}
        nns = next((subnet for subnet, role in scenario.roles.items() if role == "nns"), None)
        self.registry = ic.Registry(members, hosts, system=frozenset(scenario.roles), nns=nns)
        self.ever = set(hosts)
        self.states = {subnet: self._genesis(subnet) for subnet in scenario.subnets}
        self.history: list[dict[int, ic.CanonicalState]] = []
        self.committed = {subnet: [(0, state)] for subnet, state in self.states.items()}
        """The states that each subnet committed, each with the tick: a round that is not made commits nothing."""
        self.roots_made: dict[int, list[bytes]] = {subnet: [] for subnet in self.states}
        self.proposals: list[Proposal] = []
        self.tick = 0
        self.behaviour = behaviour_of(scenario.programs())
        self.installed = {
            number: balance for state in self.states.values() for number, balance in state.balances.items()
        }
        """Canisters by now, with their first balances."""
        self.sent: dict[tuple[int, int, Any, int], Any] = {}
        self.events: list[ic.Event] = []

    def _genesis(self, subnet: int) -> ic.CanonicalState:
        here = {
            number: (program, balance)
            for number, (host, program, balance) in self.scenario.canisters.items()
            if host == subnet and program is not None and host in self.registry.subnets
        }
        programs = {number: BEHAVIOURS[program][0] for number, (program, _) in here.items()}
        return ic.genesis(subnet, programs, {number: balance for number, (_, balance) in here.items()})

    def round(self, tick: int) -> None:
        """Run one round of every subnet."""
        scenario, previous, self.tick = self.scenario, self.registry, tick
        self.registry = replace(previous, subnets=scenario.members(tick))
        for canister, host in {canister: host for at, canister, host in self.moves if at == tick}.items():
            if host != self.registry.host(canister):
                self.registry = (
                    self.registry.without(canister) if host is None else self.registry.with_moved(canister, host, tick)
                )
        installed: dict[int, tuple[Any, int]] = {}
        for canister in self.registry.subnet_assignment:
            _, program, balance = scenario.canisters[canister]
            if canister not in self.ever and program is not None:
                installed[canister] = (BEHAVIOURS[program][0], balance)
        self.installed |= {canister: balance for canister, (_, balance) in installed.items()}
        self.ever |= {canister for at, canister, host in self.moves if at <= tick and host is not None}
        ingress: dict[int, list[ic.Ingress]] = {}
        for call in scenario.ingress.get(tick, ()):
            ingress.setdefault(call.chain, []).append(ic.Ingress(call.user, call.receiver, call.method, call.payload))
        forged: dict[int, list[ic.Request | ic.Response]] = {}
        for forgery in scenario.forged:
            if forgery.tick == tick:
                forged.setdefault(forgery.chain, []).append(forgery.message())
        for at, source, destination in scenario.worn:
            if at == tick:
                self._wear(source, destination)
        self.history.append(self.states)
        acting = {
            chain: [m[0] for m in scenario.makers if m[1] == chain and m[2] <= tick <= m[3]] for chain in self.states
        }
        proposals: list[Proposal] | None = self.proposals if scenario.makers else None
        self.states, self.events = ic.network_round(
            self.states,
            self.registry,
            ingress,
            self.behaviour,
            self.options,
            time_ns=tick * TICK_NS,
            seed=scenario.seed,
            previous_registry=previous,
            carry=self._carried(tick),
            forged=forged,
            installed=installed,
            halted={chain for chain, begin, end in scenario.halts if begin <= tick <= end},
            splitting={chain for at, *chains in scenario.splits if at == tick for chain in chains},
            served=[self.served(tick - 1), self.served(tick - 2)] if self.options.certification != "off" else None,
            makers=acting if scenario.makers else None,
            order=self._turns if self.options.payload_bytes else None,
            proposals=proposals,
        )
        for at, _, new in scenario.splits:
            if at == tick:  # its height 0 has the canisters that came; nothing was made of it before
                begun = ic.move_canisters(self.history[-1], previous, self.registry)[new]
                self.committed[new], self.roots_made[new] = [(tick, begun)], []
        for subnet, state in self.states.items():
            if state.number > self.committed[subnet][-1][1].number:
                self.committed[subnet].append((tick, state))
        for event in self.events:
            if event.event == "committed" and event.remote is not None and event.content is not None:
                self.sent[event.chain, event.remote, event.substream, event.index or 0] = event.content
            if event.event == "executed" and event.kind == "response" and event.error is not None:
                self._forget_note(event)

    def _turns(self, own: int, height: int) -> list[int]:
        """In which order a block maker asks the other subnets, where its payload is limited."""
        order = ids_in_order(self.scenario.subnets)
        words = ids.philox_4x64((height + 1, 2, 0, 0), (self.scenario.seed, own))
        return sorted(order, key=lambda subnet: words[order.index(subnet)] >> 11)

    def served(self, tick: int, age: int = 0) -> dict[int, ic.CanonicalState]:
        """The latest states that are certified once ``tick`` is over, or those ``age`` heights before: each
        `certification_delay` of its subnet's own heights behind the newest."""
        delay = self.options.certification_delay + age
        made = {subnet: [state for at, state in states if at <= tick] for subnet, states in self.committed.items()}
        return {subnet: states[-1 - delay] for subnet, states in made.items() if len(states) > delay}

    def certify(self, sections: Mapping[int, Mapping[str, bytes]]) -> dict[int, bytes]:
        """The root of every subnet, each with the digests of our own sections as they are given; to be asked for after
        genesis and after every round."""
        for subnet, states in self.committed.items():
            while len(self.roots_made[subnet]) < len(states):
                number = len(self.roots_made[subnet])
                state = states[number][1]
                assert state.number == number
                scope = FULL if self.options.requires_full_state_hash(number) else METADATA
                previous = self.roots_made[subnet][-1] if number else None
                made = certified_state(state, previous, sections[subnet], self.options, scope)
                self.roots_made[subnet].append(made.root)
        return {subnet: roots[-1] for subnet, roots in self.roots_made.items()}

    def _wear(self, source: int, destination: int) -> None:
        """Bring a stream at rest near the end of its indices, at both of its ends."""
        ours, theirs, base = self.states[source], self.states[destination], self.options.index_base
        queue = ours.stream(destination).msgs.get((), ic.new_queue(base))
        expected = expected_index(theirs.expected_xnet_indices, source, (), base)
        at_rest = not queue.elements and not theirs.stream(source).signals and queue.next_index == expected
        both = all(_has_lane(state, remote) for state, remote in ((ours, destination), (theirs, source)))
        if source == destination or self.options.substreams != "flat" or not at_rest or not both:
            return
        stream = replace(ours.stream(destination), msgs={(): ic.Queue(LAST_BUT_TWO, {})})
        others = {entry for entry in theirs.expected_xnet_indices if entry[0] != source}
        entries = frozenset({*others, (source, ((), LAST_BUT_TWO))})
        self.states = {
            **self.states,
            source: ours.with_stream(destination, stream),
            destination: replace(theirs, expected_xnet_indices=entries),
        }

    def _forget_note(self, event: ic.Event) -> None:
        """The note of a call is gone once its answer was delivered, even to a handler that raised."""
        assert event.message is not None
        program = self.states[event.chain].programs[event.receiver]  # type: ignore[index]
        if isinstance(program, dict):
            program["notes"].pop(event.message[-1], None)

    def _carried(self, tick: int) -> Callable[[int, StreamSlice, bool], AnySlice | None]:
        """What carriers bring to a destination instead of the slice that an honest endpoint serves."""
        order = ids_in_order(self.scenario.subnets)

        def carried(destination: int, honest: StreamSlice, news: bool) -> AnySlice | None:
            source = honest.source
            if (tick, source, destination) in self.scenario.withheld:
                return None
            height = self.states[destination].height + 1
            words = ids.philox_4x64((height + 1, 1, 0, 0), (self.scenario.seed, destination))
            skipped = (words[order.index(source)] >> 11) * 2.0**-53 < self.scenario.skip
            result: AnySlice | None = honest if news and not skipped else None
            for kind, from_, to, begin, end, *args in self.scenario.carriers:
                if begin <= tick <= end and from_ in (None, source) and to in (None, destination):
                    if kind == "stale":
                        result = self._stale(tick, args[0]["age"], destination, honest)
                    elif kind == "alter":
                        if args[0].get("substream") in (None, *honest.substreams):
                            result = self._altered_part(tick, args[0]["part"], honest)
                    else:
                        result = None if kind == "drop" else self._altered(kind, destination, honest)
            return result

        return carried

    def _stale(self, tick: int, age: int, destination: int, honest: StreamSlice) -> StreamSlice | None:
        """What the source served ``age`` heights before the last one, from the index on that is expected now."""
        height, source = tick - 1 - age, honest.source
        state = self.states[destination]
        older = self.history[height] if height >= 0 else {}
        if self.options.certification != "off":
            older = self.served(tick - 1, age)
        expected = ic.expected_indexes(destination, state, state.agreed)
        found = ic.slice_for(older[source], destination, expected, self.options) if source in older else None
        return found if found is None or self.options.certification == "off" else only(found, name_of(honest))

    def _altered_part(self, tick: int, part: str, honest: StreamSlice) -> AnySlice:
        """The slice as it travels, one part of it altered."""
        source = certified_state(self.served(tick - 1)[honest.source], None, {}, self.options)
        begin = min((i for _, i in honest.messages), default=None)
        css = encode_certified_stream_slice(
            source,
            honest.destination,
            msg_begin=begin,
            msg_limit=len(honest.messages),
            substream=name_of(honest),
        )
        other = next(subnet for subnet in ids_in_order(self.scenario.subnets) if subnet != honest.destination)
        return altered(css, part, other)

    def _certified(self, kind: str, destination: int, honest: StreamSlice) -> StreamSlice:
        """What a carrier can show of a certified stream: a gap from one above the expected index on, if there is a
        message; a replay from where the stream begins."""
        name = name_of(honest)
        begin, end = index_in(honest.begin, name), index_in(honest.end, name)
        state = self.states[destination]
        behind = ic.expected_indexes(destination, state, state.agreed)
        expected = expected_index(behind, honest.source, name, self.options.index_base)
        first = expected + 1 if kind == "gap" else begin
        if first >= end and kind == "gap":
            return replace(honest, source=-1)
        source = self.served(self.tick - 1)[honest.source]
        found = ic.slice_for(source, destination, frozenset({(honest.source, (name, first))}), self.options)
        assert found is not None
        part = only(found, name)
        assert part is not None
        return part

    def _altered(self, kind: str, destination: int, honest: StreamSlice) -> StreamSlice:
        base, source = self.options.index_base, honest.source
        if kind == "tamper":
            return replace(honest, source=-1)  # to whoever checks it, it is not from where it says
        if self.options.certification != "off":
            return self._certified(kind, destination, honest)
        messages, heights = dict(honest.messages), dict(honest.heights)
        if kind == "gap":
            ends = set()
            for substream in honest.substreams:
                expected = expected_index(self.states[destination].expected_xnet_indices, source, substream, base)
                messages.pop((substream, expected), None)
                if not any(name == substream for name, _ in messages):
                    messages[substream, expected + 1] = ic.Request(0, 0, 0)
                stop = max(i + 1 for name, i in messages if name == substream)
                ends |= {(name, max(i, stop)) for name, i in honest.end if name == substream}
            return replace(honest, messages=messages, end=frozenset(ends))
        for substream in honest.substreams:
            expected = expected_index(self.states[destination].expected_xnet_indices, source, substream, base)
            end = max([expected, *(i + 1 for i in honest.messages_of(substream))])
            messages |= {(substream, i): self.sent[source, destination, substream, i] for i in range(base, end)}
            heights |= {(substream, i): heights.get((substream, i), 0) for i in range(base, end)}
        begin = frozenset((substream, base) for substream in honest.substreams)
        return replace(honest, messages=messages, heights=heights, begin=begin)


def name_of(one: StreamSlice) -> Any:
    """The substream that a slice of one is of."""
    (name,) = one.substreams
    return name


def _has_lane(state: ic.CanonicalState, remote: int) -> bool:
    """Whether anything was ever sent to a subnet or received from it."""
    received = any(subnet == remote for subnet, _ in state.expected_xnet_indices)
    return received or bool(state.stream(remote).msgs)


def ids_in_order(subnets: Iterable[int]) -> list[int]:
    """Subnets by id bytes: the place in this list is the kernel's position."""
    return sorted(subnets, key=ic.subnet_bytes)
