"""A network of parachains with HRMP in memory: users' messages by hand, ticks by hand, no lake and no Spark.

After every tick it is what the oracle says.

net = Hrmp({"a": {1: "caller"}, "b": {2: "echo"}}, cuts=2, session_blocks=3)
net.tell(1, 2, count=5)       # with the next tick program 1 calls program 2, five times
net.settle()                  # ticks until the kernel asks for none
net.table("channels"), net.named("rejected"), net.count("answered")
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from causeway.config.faults import FaultRule, Faults
from causeway.config.traffic import CARRIED_SCHEMA, INGRESS_SCHEMA
from causeway.core.frame import Frame, concat, empty_frame
from causeway.core.vocabulary import Event, Kind, ValueHolder
from causeway.programs.runner import Programs
from causeway.protocols.contract import RANGES_SCHEMA, SEEN_HEADERS_SCHEMA, Inputs, Tick, View
from causeway.protocols.hrmp.errors import ReceiptError, UpwardCallError
from causeway.protocols.hrmp.kernel import HrmpKernel
from causeway.protocols.hrmp.state import HRMP_TABLES
from causeway.protocols.relay_chain.options import RELAY_POSITION, IcmpOptions, add_relay_chain
from causeway.protocols.relay_chain.state import State
from causeway.protocols.shared.messages import LANE, OUTBOUND_SCHEMA
from tests.shown import shown_to
from tests.support.ibc.ibc_network import topology_of
from tests.support.icmp.icmp_hrmp_oracle import Oracle
from tests.support.properties.caller_payloads import caller_payload

MOST_TICKS = 400

_ALSO = {"MaxMessageSizeExceeded"}
"""What a parachain says of calls of its programs, too."""


class Hrmp:
    """``cuts``: into how many calls of the kernel the chains are cut; ``oracle``: whether it runs beside the kernel;
    ``malicious``: whose collators are malicious, and what is wrong with their candidates."""

    def __init__(
        self,
        chains: Mapping[str, Mapping[int, str]],
        cuts: int = 1,
        halts: list[tuple[str, int, int]] | None = None,
        oracle: bool = True,
        malicious: Iterable[tuple[str, str]] = (),
        **options: Any,
    ) -> None:
        topology = add_relay_chain(topology_of(chains))
        numbers = {name: number for number, name in enumerate(chains)} | {"relay": len(chains)}
        faults = [FaultRule("halt", numbers[name], None, first, last) for name, first, last in halts or []]
        faults += [FaultRule("candidate", numbers[name], None, 0, 400, {"what": what}) for name, what in malicious]
        self.kernel = HrmpKernel(
            topology,
            Programs(topology),
            IcmpOptions(channels="hrmp", **options),
            faults=Faults.of(*faults),
        )
        everyone = np.arange(len(self.kernel.chains()), dtype=np.uint32)
        self.groups = np.array_split(everyone, cuts)
        made = [self.kernel.genesis(group) for group in self.groups]
        self.states = [result.state for result in made]
        self.tick = 0
        self.wake: int | None = 0
        self.outbound = empty_frame(OUTBOUND_SCHEMA)
        self.events: list[dict[str, Any]] = []
        self.headers: dict[int, list[bytes]] = {}
        self.sums: Counter[tuple[ValueHolder, int]] = Counter()
        self._told: list[dict[str, Any]] = []
        self._hosts = {program: number for number, programs in enumerate(chains.values()) for program in programs}
        self._note(made)
        self._shown = {name: self._rows(name) for name in HRMP_TABLES}
        late = self.kernel.planned_paras.late
        self.oracle = Oracle(self.kernel.options, range(1, len(everyone)), late) if oracle else None

    def tell(self, program: int, receiver: int, count: int = 1, body: bytes = b"x") -> None:
        payload = caller_payload(receiver, 0, "echo", body)
        row = {"chain": self._hosts[program], "receiver": program, "sender": 7, "method": "call", "payload": payload}
        self._told += [row] * count

    def step(self) -> None:
        """One tick: every call of the kernel sees what the others showed after the tick before."""
        tick = Tick(self.tick + 1, self.tick)
        before = self._shown
        results = []
        carried = CARRIED_SCHEMA.empty_table()
        for group, state in zip(self.groups, self.states, strict=True):
            view = View(shown_to(self.kernel, self.states, group), empty_frame(SEEN_HEADERS_SCHEMA))
            own = set(self.kernel.numbers()[group].tolist())
            told = [row for row in self._told if row["chain"] in own]
            ingress = pa.Table.from_pylist(told, schema=INGRESS_SCHEMA)
            fresh = self.kernel.state(state.frames()) if self.tick % 5 == 0 else state
            plan = self.kernel.plan(fresh, group, view, ingress, carried, tick)
            inputs: Inputs[State] = Inputs(ingress, carried, self._read(plan.reads.offered), self._read(plan.reads.own))
            results.append(self.kernel.round(fresh, group, plan, inputs, tick))
        self._told = []
        self.states = [result.state for result in results]
        self._shown = {name: self._rows(name) for name in HRMP_TABLES}
        if self.oracle is not None:
            calls = self.kernel.planned_paras.between(before["blocks"][0]["next_tick"], self.tick)
            sent = concat([result.outbound for result in results]).to_table(OUTBOUND_SCHEMA)
            self.oracle.tick(before, self._shown, calls, sent)
        self.outbound = concat([self.outbound, *(result.outbound for result in results)])
        self._note(results)
        wakes = [result.wake for result in results if result.wake is not None]
        self.wake = min(wakes, default=None)
        self.tick += 1
        self._check()

    def settle(self) -> int:
        """Tick until nothing happens of itself; returns the tick after."""
        while self._told or self.wake is not None:
            assert self.tick < MOST_TICKS, "it does not come to rest"
            self.tick = max(self.tick, self.wake or 0)
            self.step()
        if self.oracle is not None and not self.kernel.interference.malicious(0):
            names = {code.name for code in (*ReceiptError, *UpwardCallError)}
            refused = Counter(self.oracle.errors)
            assert {name: count for name, count in self.reasons().items() if name in names - _ALSO} == {
                name: count for name, count in refused.items() if name not in _ALSO
            }
        return self.tick

    def _read(self, ranges: Frame) -> Frame:
        rows = self.outbound
        wanted = np.zeros(len(rows), dtype=bool)
        names = (*LANE, "begin", "end")
        for source, destination, substream, begin, end in zip(*(ranges[n].tolist() for n in names), strict=True):
            mine = (rows["source"] == source) & (rows["destination"] == destination) & (rows["substream"] == substream)
            wanted |= mine & (rows["index"] >= begin) & (rows["index"] < end)
        return rows.filter(wanted)

    def _note(self, results: list[Any]) -> None:
        for result in results:
            self.events += result.logs["events"].to_table(self.kernel.logs["events"]).to_pylist()
            for row in result.logs["value"].to_table(self.kernel.logs["value"]).to_pylist():
                self.sums[ValueHolder(row["from_holder"]), row["from_number"]] -= row["amount_low"]
                self.sums[ValueHolder(row["to_holder"]), row["to_number"]] += row["amount_low"]
            made = result.headers
            for chain, root in zip(made["chain"].tolist(), made["root"], strict=True):
                self.headers.setdefault(chain, []).append(root.tobytes())

    def _check(self) -> None:
        """After every block: accounts are what the value log says, nothing is made or lost, what is held is what
        requests and channels say; counts of channels are those of their contents."""
        accounts, held = self.table("sovereign"), Counter[int]()
        for row in [*self.table("requests"), *self.table("channels")]:
            held[row["sender"]] += row["sender_deposit"]
            held[row["recipient"]] += row["recipient_deposit"]
        for row in accounts:
            assert row["held"] == held[row["para"]]
            assert row["free"] + row["held"] == self.kernel.options.endowment
            assert self.sums[ValueHolder.SOVEREIGN, row["para"]] == row["free"]
            assert self.sums[ValueHolder.RESERVED, row["para"]] == row["held"]
        rebuilt = self.kernel.state(self.states[0].frames())
        (root,) = self.kernel.roots(rebuilt, self.groups[0][:1], Tick(0, 0), empty_frame(RANGES_SCHEMA))["root"]
        assert self.headers[RELAY_POSITION][-1] == root.tobytes()
        contents = self.table("contents")
        for channel in self.table("channels"):
            mine = [
                row
                for row in contents
                if (row["sender"], row["recipient"]) == (channel["sender"], channel["recipient"])
            ]
            assert channel["msg_count"] == len(mine) <= channel["max_capacity"]
            assert channel["total_size"] == sum(len(row["data"]) for row in mine) <= channel["max_total_size"]

    def table(self, name: str) -> list[dict[str, Any]]:
        return self._shown[name] if name in self._shown else self._rows(name)

    def _rows(self, name: str) -> list[dict[str, Any]]:
        schema = self.kernel.tables()[name].schema
        return [row for state in self.states for row in state[name].to_table(schema).to_pylist()]

    def count(self, event: Event, kind: Kind | None = None) -> int:
        return sum(bool(row["events"] & event) and kind in (None, row["kind"]) for row in self.events)

    def reasons(self) -> Counter[str]:
        return Counter(row["reason"] for row in self.events if row["reason"])

    def received(self) -> dict[tuple[int, int], list[int]]:
        """The indices of what came over each lane between chains, in the order in which it was executed."""
        found: dict[tuple[int, int], list[int]] = {}
        for row in self.events:
            if row["events"] & Event.EXECUTED and row["source"] != row["destination"] and row["via"] == 1:
                found.setdefault((row["source"], row["destination"]), []).append(row["index"])
        return found

    def roots(self) -> dict[int, bytes]:
        return {chain: roots[-1] for chain, roots in self.headers.items()}
