"""A small network on the IC kernel for hand-made cases: calls by hand, rounds by hand, events by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from causeway.model.frame import Frame, concat
from causeway.model.traffic import INGRESS_SCHEMA
from causeway.protocols.contract import Offers, Plan, Tick
from causeway.protocols.ic.expected_indexes import expected_indexes
from causeway.protocols.ic.payload import SliceError, check_slices, get_streams
from causeway.protocols.ic.state import State
from causeway.protocols.messages import STREAMED_SCHEMA
from tests.property.ic_harness import Call, KernelRun, Scenario
from tests.property.ic_programs import ACTOR, ops
from tests.property.ic_views import kernel_happened, kernel_view

Placed = Mapping[int, tuple[int | None, str | None]]


class Network:
    """Canisters (number -> host, program), subnets 0 to 3 as needed, and a user who makes actors call."""

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
        self.run = KernelRun(self.scenario, apart=False)
        self.height = 0
        self.happened: Counter[tuple[Any, ...]] = Counter()
        self.hosts = {number: host for number, (host, _) in canisters.items()}

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
            self.run.round(Tick(self.height, self.height))
            for chain, events in kernel_happened(self.run).items():
                happened.update({(chain, *event): times for event, times in events.items()})
        self.happened += happened
        return happened

    # ---- look

    @property
    def state(self) -> State:
        return self.run.states[0]

    @state.setter
    def state(self, state: State) -> None:
        self.run.states = [state]

    def view(self, chain: int) -> dict[str, Any]:
        return kernel_view(self.run)[chain]

    def seen(self, canister: int) -> list[list[int]]:
        """What an actor saw: requests [sender, callback, cycles], answers [respondent, callback, code, refund]."""
        (program,) = [
            view["programs"][canister] for view in kernel_view(self.run).values() if canister in view["programs"]
        ]
        seen: list[list[int]] = program["state"]["seen"]
        return seen

    def answers(self, canister: int) -> list[tuple[int, int]]:
        """(callback, code) of the answers an actor got, in order."""
        return [(row[1], row[2]) for row in self.seen(canister) if len(row) == 4]

    def balances(self) -> dict[int, int]:
        return {
            canister: balance
            for view in kernel_view(self.run).values()
            for canister, (balance, _) in view["accounts"].items()
        }

    # ---- slices by hand

    def offers(self) -> Offers:
        return Offers(self.state.lanes.rows, self.state.rejects, self.run.headers)

    def plan(self, offers: Offers | None = None) -> Plan:
        tick = Tick(self.height + 1, self.height + 1)
        return self.run.kernel.plan(
            self.state, self.run.groups[0], offers or self.offers(), INGRESS_SCHEMA.empty_table(), tick
        )

    def slices(self) -> Frame:
        """The slices that honest endpoints serve now."""
        context = self._context()
        return get_streams(expected_indexes(self.state, (), context.options.index_base), self.offers(), context)

    def errors(self, slices: Frame, offers: Offers | None = None) -> list[str]:
        """The outcome of the checks on each slice (a row a substream)."""
        found = check_slices(self.state, slices, offers or self.offers(), self._context())
        return [SliceError(int(error)).name for error in found]

    def _context(self) -> Any:
        return self.run.kernel.context(self.run.groups[0], Tick(self.height + 1, self.height + 1))

    def apply(self, plan: Plan, messages: Frame | None = None) -> Any:
        """A round with a plan made by hand; nothing of it is kept."""
        tick = Tick(self.height + 1, self.height + 1)
        if messages is None:
            messages = self.wanted(plan)
        recalled = self.run._read(plan.recalled)
        ingress = self.run._ingress(tick.tick, self.run.groups[0])
        return self.run.kernel.round(self.state, self.run.groups[0], plan, messages, recalled, ingress, tick)

    def wanted(self, plan: Plan) -> Frame:
        return self.run._read(plan.wanted).select(STREAMED_SCHEMA.names)

    def with_lane(self, chain: int, remote: int, **columns: int) -> None:
        """Set counters of one lane (positions; flat)."""
        rows = self.state.lanes.rows
        here = (rows["chain"] == chain) & (rows["remote"] == remote)
        assert here.sum() == 1
        changed = {name: np.where(here, np.uint64(value), rows[name]) for name, value in columns.items()}
        self.state = replace(self.state, lanes=self.state.lanes.with_columns(**changed))


def of(happened: Counter[tuple[Any, ...]], *beginning: Any) -> list[tuple[Any, ...]]:
    """The events that begin so, each as often as it happened; ``...`` stands for anything."""
    return [
        event
        for event, times in sorted(happened.items(), key=repr)
        if all(wanted in (..., found) for wanted, found in zip(beginning, event, strict=False))
        for _ in range(times)
    ]


__all__ = ["ACTOR", "Network", "concat", "of"]
