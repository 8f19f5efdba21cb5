"""A small network for hand-made cases, on the IC kernel or on its oracle: calls and rounds by hand, events by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from causeway_proofs.ic.stream_header import RejectReason

from causeway.config.traffic import CARRIED_SCHEMA, INGRESS_SCHEMA
from causeway.core.frame import Frame, concat
from causeway.protocols.contract import Inputs, Plan, Tick, View
from causeway.protocols.ic.batch import XNetPlan
from causeway.protocols.ic.state import State
from causeway.protocols.ic.streams.check_slice import SliceError, check_slices, find_unknown_roots, read_carried_rejects
from causeway.protocols.ic.streams.endpoint import expected_indexes, get_streams
from tests.spec import ic
from tests.spec.ic import accounts, guarantees
from tests.spec.ic.value import Value
from tests.support.ic.ic_harness import Call, KernelRun, OracleRun, Scenario
from tests.support.ic.ic_programs import ACTOR, ops
from tests.support.ic.ic_views import (
    Happened,
    kernel_happened,
    kernel_view,
    oracle_happened,
    oracle_view,
    with_failures,
)

Placed = Mapping[int, tuple[int | None, str | None]]


class Played:
    """Canisters (number -> host, program), subnets 0 to 3 as needed, and a user who makes actors call.

    What happens and what is seen is the same, in the same words, whichever engine plays it.
    """

    def __init__(self, canisters: Placed, *, balance: int = 1_000, **scenario: Any) -> None:
        hosts = {host for host, _ in canisters.values() if host is not None}
        options = scenario.pop("options", {})
        self.ingress: dict[int, list[Call]] = {}
        self.scenario = Scenario(
            subnets=scenario.pop("subnets", tuple(sorted(hosts))),
            canisters={number: (host, program, balance) for number, (host, program) in canisters.items()},
            options=options,
            ingress=self.ingress,
            **scenario,
        )
        self.height = 0
        self.happened: Counter[tuple[Any, ...]] = Counter()
        self.hosts = {number: host for number, (host, _) in canisters.items()}

    def play(self) -> Happened:
        """Run the round of the present height; what happened in it."""
        raise NotImplementedError

    def views(self) -> dict[int, dict[str, Any]]:
        """Whole states, by chain."""
        raise NotImplementedError

    def check(self) -> None:
        """What holds of every network, whatever happened in it."""

    def lie(self, chain: int, source: int, index: int, reason: str = "QueueFull") -> None:
        """From now on the stream of ``chain`` says that it rejected message ``index`` of ``source``."""
        raise NotImplementedError

    def judged(self, source: int, destination: int, rejects: Sequence[int] | None = None, /, **altered: int) -> str:
        """What ``destination`` says of the slice that ``source`` serves it now, altered: ``begin``, ``end``,
        ``message_begin``, ``message_end``, ``signals_end``, the indices it rejects, the subnet it is said to be of."""
        raise NotImplementedError

    # ---- play

    def tell(self, canister: int, *told: tuple[Any, ...]) -> None:
        """A user tells an actor what to do in the next round: ("call", receiver, method, payload, cycles, note), ..."""
        host = self.hosts[canister]
        assert host is not None
        self.ingress.setdefault(self.height + 1, []).append(Call(host, canister, 9, "do", ops(*told)))

    def call(self, canister: int, receiver: int, method: str = "echo", payload: bytes = b"x", cycles: int = 0) -> None:
        self.tell(canister, ("call", receiver, method, payload, cycles, None))

    def rounds(self, count: int = 1) -> Counter[tuple[Any, ...]]:
        """Run rounds; what happened in them, each as (chain, event, ...)."""
        happened: Counter[tuple[Any, ...]] = Counter()
        for _ in range(count):
            self.height += 1
            for chain, events in self.play().items():
                happened.update({(chain, *without_cycles(event)): times for event, times in events.items()})
        self.happened += happened
        return happened

    # ---- look

    def view(self, chain: int) -> dict[str, Any]:
        return self.views()[chain]

    def listed(self, source: int, destination: int) -> dict[int, int]:
        """The REJECT signals (index -> reason) in the stream of ``destination`` about messages of ``source``."""
        signals = self.view(destination)["lanes"].get((source, 0), (0, {}, 0, {}))[3]
        return {index: reason for index, reason in signals.items() if reason}

    def seen(self, canister: int) -> list[list[int]]:
        """What an actor saw: requests [sender, callback, cycles], answers [respondent, callback, code, refund]."""
        (program,) = [view["programs"][canister] for view in self.views().values() if canister in view["programs"]]
        seen: list[list[int]] = program["state"]["seen"]
        return seen

    def answers(self, canister: int) -> list[tuple[int, int]]:
        """(callback, code) of the answers an actor got, in order."""
        return [(row[1], row[2]) for row in self.seen(canister) if len(row) == 4]

    def balances(self) -> dict[int, int]:
        return {
            canister: balance for view in self.views().values() for canister, (balance, _) in view["accounts"].items()
        }


class OracleNetwork(Played):
    """The same on the oracle; the guarantees are checked on the way."""

    honest = True

    def __init__(self, canisters: Placed, *, balance: int = 1_000, **scenario: Any) -> None:
        super().__init__(canisters, balance=balance, **scenario)
        self.run = OracleRun(self.scenario)
        self.events: list[ic.Event] = []
        self.registries: dict[int, ic.Registry] = {}

    def play(self) -> Happened:
        before = self.run.states
        self.run.round(self.height)
        self.registries[self.height] = self.run.registry
        self.events += self.run.events
        if self.honest:
            assert accounts.check_round(before, self.run.states, self.run.events, self.registries) == []
        return with_failures(self.run, oracle_happened(self.run))

    def views(self) -> dict[int, dict[str, Any]]:
        return oracle_view(self.run)

    def judged(self, source: int, destination: int, rejects: Sequence[int] | None = None, /, **altered: int) -> str:
        run = self.run
        state = run.states[destination]
        honest = ic.slice_for(run.states[source], destination, state.expected_xnet_indices, run.options)
        assert honest is not None
        of = altered.pop("source", source)
        indices = [index for _, index in honest.messages] or [0]
        first = altered.pop("message_begin", min(indices))
        end = altered.pop("message_end", max(indices) + 1 if honest.messages else first)
        some = next(iter(honest.messages.values()), ic.Request(0, 0, 0))
        messages = {((), index): honest.messages.get(((), index), some) for index in range(first, end)}
        found: dict[str, Any] = {name: frozenset({((), index)}) for name, index in altered.items()}
        if rejects is not None:
            found["rejects"] = {(): tuple((index, ic.Reason.QueueFull) for index in rejects)}
        altered_slice = replace(honest, source=of, messages=messages, **found)
        valid = ic.validate_xnet_payload(run.registry, state, [], {of: altered_slice}, 10**6, run.options)
        try:
            ic.check_slice(state, run.registry, of, altered_slice, run.options)
        except ic.SliceError as error:
            assert not valid
            return type(error).__name__
        assert valid
        return "ACCEPTED"

    def lie(self, chain: int, source: int, index: int, reason: str = "QueueFull") -> None:
        state, self.honest = self.run.states[chain], False
        stream = state.streams[source]
        signals = {**stream.signals, ((), index): ic.REJECT(ic.Reason[reason])}
        self.run.states = {**self.run.states, chain: state.with_stream(source, replace(stream, signals=signals))}

    def check(self) -> None:
        if not self.honest:
            return  # the guarantees are given by those who keep to the protocol
        assert guarantees.check_events(self.events, self.registries, self.run.options) == []
        states, value, options = self.run.states, Value(self.run.installed), self.run.options
        value.add(self.events)
        assert accounts.check_accounts(states, self.events, self.registries, value, options) == []
        assert accounts.l2_nobody_starves(self.events, options) == []


class Network(Played):
    """The same on the kernel, all subnets in one call, with a look at its plans and checks."""

    def __init__(self, canisters: Placed, *, balance: int = 1_000, **scenario: Any) -> None:
        super().__init__(canisters, balance=balance, **scenario)
        self.run = KernelRun(self.scenario, apart=False)

    def play(self) -> Happened:
        self.run.round(Tick(self.height, self.height))
        return kernel_happened(self.run)

    def views(self) -> dict[int, dict[str, Any]]:
        return kernel_view(self.run)

    @property
    def state(self) -> State:
        return self.run.states[0]

    @state.setter
    def state(self, state: State) -> None:
        self.run.states = [state]

    def lie(self, chain: int, source: int, index: int, reason: str = "QueueFull") -> None:
        self.state = replace(self.state, rejects=rejects_of(source, chain, index, reason=RejectReason[reason]))

    # ---- slices by hand

    def shown(self, **tables: Frame) -> View:
        """What the chains see now, with some tables replaced."""
        view = self.run.view(self.run.groups[0])
        return View({**view.tables, **tables}, view.headers)

    def plan(self, view: View | None = None) -> Plan[XNetPlan]:
        nothing = INGRESS_SCHEMA.empty_table(), CARRIED_SCHEMA.empty_table()
        return self.run.kernel.plan(self.state, self.run.groups[0], view or self.shown(), *nothing, self._next())

    def slices(self) -> Frame:
        """The slices that honest endpoints serve now."""
        context = self._context()
        return get_streams(expected_indexes(self.state, (), context.options.index_base), self.shown(), context)

    def judged(self, source: int, destination: int, rejects: Sequence[int] | None = None, /, **altered: int) -> str:
        slices = self.slices()
        mine = slices.filter((slices["source"] == source) & (slices["destination"] == destination))
        columns = {name: np.array([value], dtype=mine[name].dtype) for name, value in altered.items()}
        view = self.shown() if rejects is None else self.shown(rejects=rejects_of(destination, source, *rejects))
        (error,) = self.errors(mine.with_columns(**columns), view)
        return error

    def errors(self, slices: Frame, view: View | None = None) -> list[str]:
        """The outcome of the checks on each slice (a row a substream)."""
        seen, context = view or self.shown(), self._context()
        rejects = read_carried_rejects(slices, seen, context)
        expected = expected_indexes(self.state, (), context.options.index_base)
        found = check_slices(self.state, slices, rejects, find_unknown_roots(slices, seen), context, expected)
        return [SliceError(int(error)).name for error in found]

    def _next(self) -> Tick:
        return Tick(self.height + 1, self.height + 1)

    def _context(self) -> Any:
        return self.run.kernel.context(self.run.groups[0], self._next())

    def apply(self, plan: Plan[XNetPlan], messages: Frame | None = None) -> Any:
        """A round with a plan made by hand; nothing of it is kept."""
        tick, group = self._next(), self.run.groups[0]
        offered = self.offered(plan) if messages is None else messages
        inputs = Inputs[State](
            self.run._ingress(tick.tick, group), CARRIED_SCHEMA.empty_table(), offered, self.run.read(plan.reads.own)
        )
        return self.run.kernel.round(self.state, group, plan, inputs, tick)

    def offered(self, plan: Plan[XNetPlan]) -> Frame:
        """The messages that the plan takes."""
        return self.run.read(plan.reads.offered)

    def with_lane(self, source: int, destination: int, **columns: int) -> None:
        """Set counters of one lane (positions; flat)."""
        rows = self.state.streams.counters
        here = (rows["source"] == source) & (rows["destination"] == destination)
        assert here.sum() == 1
        changed = {name: np.where(here, np.uint64(value), rows[name]) for name, value in columns.items()}
        self.state = replace(self.state, streams=self.state.streams.with_counters(**changed))


def rejects_of(source: int, destination: int, *indices: int, reason: int = 5) -> Frame:
    """REJECT signals about messages of ``source``, in the stream back from ``destination``."""
    count = len(indices)
    return Frame(
        {
            "destination": np.full(count, destination, dtype=np.uint32),
            "source": np.full(count, source, dtype=np.uint32),
            "substream": np.zeros(count, dtype=np.uint64),
            "index": np.array(indices, dtype=np.uint64),
            "reason": np.full(count, reason, dtype=np.uint8),
        },
        count,
    )


def without_cycles(event: tuple[Any, ...]) -> tuple[Any, ...]:
    """What happened, told by names alone: the hazards look into balances for cycles."""
    if event[0] == "ended":
        return event[:2]
    of_message = len(event) > 6 and event[1] in ("INGRESS", "REQUEST", "RESPONSE")
    return (*event[:5], *event[6:]) if of_message and event[0] not in ("answered", "ingress refused") else event


def of(happened: Counter[tuple[Any, ...]], *beginning: Any) -> list[tuple[Any, ...]]:
    """The events that begin so, each as often as it happened; ``...`` stands for anything."""
    return [
        event
        for event, times in sorted(happened.items(), key=repr)
        if all(wanted in (..., found) for wanted, found in zip(beginning, event, strict=False))
        for _ in range(times)
    ]


__all__ = ["ACTOR", "Network", "OracleNetwork", "concat", "of", "rejects_of"]
