"""A small protocol that uses all of the kernel contract: a beacon chain that every member chain depends on.

Every height the beacon makes a block with a value, and each member adds up the values of the chain of blocks that it
follows. A fork (fault kind ``fork``) makes the beacon build a second branch, which members follow, and which is
reverted after 20 blocks: they go back to their state of before. Members take sealed wire bytes from outside: orders to
send an amount to another member, and claims that come due 10,000 ticks later.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.order import U64, stable_order
from pydantic import BaseModel, Field

from causeway.config.faults import FaultRule, Faults
from causeway.config.section import LAST_TICK, TickNumber
from causeway.config.topology import Topology
from causeway.core.frame import Frame, concat, empty_frame
from causeway.core.queues import Queues
from causeway.core.vocabulary import Event, Kind
from causeway.protocols.contract import (
    HEADERS_SCHEMA,
    HEIGHTS_SCHEMA,
    PAST_SCHEMA,
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
    Visibility,
)
from causeway.protocols.registry import ProtocolInfo
from causeway.protocols.shared.digests import section_digests
from causeway.protocols.shared.events import LEDGER_LOGS, EventLog, event_rows
from causeway.protocols.shared.execution import ProgramRunner
from causeway.protocols.shared.faults import FAULT_KINDS, FaultSection, NetworkNames
from causeway.protocols.shared.messages import LANE, LANE_FIELDS, blank_messages, locate_ranges, oldest_height

BEACON = "beacon"
FORK_BLOCKS = 20
CHALLENGE_TICKS = 10_000
KEPT_BLOCKS = 64
SEND, CLAIM = 0, 1


def _schema(*fields: tuple[str, pa.DataType] | pa.Field) -> pa.Schema:
    return pa.schema([item if isinstance(item, pa.Field) else pa.field(*item, nullable=False) for item in fields])


U, C = pa.uint64(), pa.uint32()
BLOCKS = _schema(("chain", C), ("number", U), ("branch", pa.uint8()), ("value", U), ("hash", pa.binary()))
MEMBERS = _schema(("chain", C), ("total", U), ("balance", U), ("branch", pa.uint8()), ("number", U), ("safe_height", U))
CLAIMS = _schema(("chain", C), ("due", U), ("id", U), ("amount", U))
LANES = _schema(*LANE_FIELDS, ("begin", U), ("next_index", U))
RUNS = _schema(*LANE_FIELDS, ("height", U), ("first", U), ("count", U))
CURSORS = _schema(("destination", C), ("source", C), ("substream", U), ("index", U))
APPLIED = _schema(("chain", C), ("branch", pa.uint8()), ("value", U))

ENDS = ("source", "destination")
TABLES = {
    "blocks": StateTable(BLOCKS, "chain", ("chain", "number", "branch"), ("chain",), shown=Visibility.EVERYONE),
    "members": StateTable(MEMBERS, "chain", ("chain",), ("chain",)),
    "claims": StateTable(CLAIMS, "chain", ("chain", "due", "id"), ("chain",)),
    "lanes": StateTable(LANES, "source", LANE, ENDS, shown=Visibility.DESTINATION),
    "runs": StateTable(RUNS, "source", (*LANE, "height"), ENDS, shown=Visibility.DESTINATION),
    "cursors": StateTable(CURSORS, "destination", ("destination", "source", "substream"), ENDS,
                          shown=Visibility.DESTINATION, shown_to="source"),
}  # fmt: skip


def wire(kind: int, destination: int, amount: int, number: int) -> bytes:
    """Return an order as a carrier brings it: a seal and what is sealed."""
    body = struct.pack(">BQQQ", kind, destination, amount, number)
    return hashlib.sha256(body).digest()[:8] + body


class ForkSection(FaultSection):
    """``kind = "fork"``: the beacon builds a second branch."""

    kind: Literal["fork"] = Field(..., description="This fault.")
    tick: TickNumber = Field(..., description="When it begins.")

    def fault(self, names: NetworkNames, key: str) -> FaultRule:
        """Return the fault."""
        return FaultRule("fork", None, None, self.tick, self.tick)


KINDS = (*FAULT_KINDS, ForkSection)


class Options(BaseModel):
    """No options."""


def complete(topology: Topology) -> Topology:
    """Add the beacon when no chain has its role."""
    if BEACON in topology.roles.values():
        return topology
    number = max(topology.chains["number"].to_pylist()) + 1
    beacon = pa.Table.from_pylist([{"number": number, "name": BEACON}], schema=topology.chains.schema)
    chains = pa.concat_tables([topology.chains, beacon])
    return replace(topology, chains=chains, roles={**topology.roles, number: BEACON})


INFO = ProtocolInfo(
    name=BEACON,
    title="the beacon of the contract's tests",
    kernel="tests.support.common.beacon:BeaconKernel",
    options="tests.support.common.beacon:Options",
    asset="units",
    kinds="tests.support.common.beacon:KINDS",
    roles=(BEACON,),
    completion="tests.support.common.beacon:complete",
)


@dataclass(frozen=True)
class State:
    """The tables; ``heads``: derived from ``blocks``, the newest block of each branch, kept for speed alone."""

    rows: Mapping[str, Frame]
    heads: Mapping[int, int] | None = None

    def frames(self) -> Mapping[str, Frame]:
        """Return the tables."""
        return self.rows

    @property
    def lanes(self) -> Queues:
        """Return the lanes to other members."""
        empty = empty_frame(_schema(*LANE_FIELDS, ("index", U)))
        return Queues(LANE, self.rows["lanes"], empty, self.rows["runs"])


@dataclass(frozen=True)
class Content:
    """What a plan keeps: the blocks that are known, which members go back, and how far lanes to them go."""

    blocks: Frame
    reverting: npt.NDArray[np.uint32]
    tails: Frame
    passed: Frame


@dataclass(frozen=True)
class BeaconKernel:
    """The protocol over one network."""

    topology: Topology
    programs: ProgramRunner
    options: Options = field(default_factory=Options)
    seed: int = 0
    tick_ns: int = 1
    faults: Faults = field(default_factory=Faults)

    name: ClassVar[str] = BEACON
    outbound: ClassVar[pa.Schema] = _schema(*LANE_FIELDS, ("index", U), ("amount", U))
    logs: ClassVar[Mapping[str, pa.Schema]] = {**LEDGER_LOGS, "applied": APPLIED}
    header_heights: ClassVar[int] = 3
    past_heights: ClassVar[int] = KEPT_BLOCKS
    retained_heights: ClassVar[int] = KEPT_BLOCKS
    last_tick: ClassVar[int] = LAST_TICK

    def chains(self) -> Sequence[str]:
        """Return the names."""
        names: list[str] = self.topology.chains["name"].to_pylist()
        return names

    def numbers(self) -> U64:
        """Return the numbers."""
        numbers: U64 = self.topology.chains["number"].to_numpy().astype(np.uint64)
        return numbers

    @cached_property
    def beacon(self) -> int:
        """Return the position of the beacon."""
        return [self.topology.roles.get(int(number)) == BEACON for number in self.numbers()].index(True)

    @cached_property
    def forks(self) -> list[int]:
        """Return the ticks at which a second branch begins."""
        return [fault.first for fault in self.faults.rows if fault.kind == "fork"]

    def weights(self) -> npt.NDArray[np.float64]:
        """Return the work of each chain: all depend on the beacon."""
        weights = np.ones(len(self.numbers()))
        weights[self.beacon] = len(weights)
        return weights

    def tables(self) -> Mapping[str, StateTable]:
        """Return the tables."""
        return TABLES

    def registry_version(self, tick: int) -> int:
        """Return a constant."""
        return 0

    def hosts(self, programs: U64, tick: int) -> Hosts:
        """Return no hosts: there are no programs."""
        return np.full(len(programs), -1, dtype=np.int32)

    def state(self, frames: Mapping[str, Frame]) -> State:
        """Return the state with these tables."""
        return State({name: frames.get(name, empty_frame(table.schema)) for name, table in TABLES.items()})

    def genesis(self, chains: Chains, coming: int | None = None) -> RoundResult[State]:
        """Return members with nothing; the first fork wakes the network."""
        members = chains[chains != self.beacon]
        zero = np.zeros(len(members), dtype=np.uint64)
        rows = Frame({**dict.fromkeys(MEMBERS.names, zero), "chain": members, "branch": zero.astype(np.uint8)})
        state = self.state({"members": rows})
        return RoundResult(state, empty_frame(self.outbound), {}, self._headers(state, chains, 0), self._wake(state, 0))

    def committed(self, state: State) -> Frame:
        """Return no entries: the state holds all that its root is made of."""
        return empty_frame(RANGES_SCHEMA)

    def roots(self, state: State, chains: Chains, tick: Tick, committed: Frame) -> Frame:
        """Return the root of each chain's state."""
        return self._headers(state, chains, tick.height).select(["chain", "root"])

    def plan(
        self, state: State, chains: Chains, view: View, ingress: pa.Table, carried: pa.Table, tick: Tick
    ) -> Plan[Content]:
        """Take all that lanes hold; go back where the branch that is followed is gone."""
        blocks, members, lanes = view.tables["blocks"], state.rows["members"], view.tables["lanes"]
        # Whatever a header says of the beacon's block was shown to everyone as a row, too.
        own = view.headers.filter(view.headers["chain"] == self.beacon)
        assert not len(blocks) or int(own["number"].max()) == int(blocks["number"].max())
        cursors = state.rows["cursors"]
        expected = Queues(("destination", "source", "substream"), cursors, cursors, indices=("index",))
        begin = expected.read_counters("index", lanes)
        ranges = lanes.select(LANE).with_columns(begin=begin, end=lanes["next_index"])
        gone = (members["branch"] == 1) & ~bool((blocks["branch"] == 1).any())
        back = members.filter(gone)
        past = Frame({"chain": back["chain"], "height": back["safe_height"]}, len(back))
        since = back["safe_height"] + np.uint64(1)
        last = np.full(len(back), tick.height - 1, dtype=np.uint64)
        applied = Frame({"chain": back["chain"], "first": since, "last": last}, len(back))
        assert applied.names == HEIGHTS_SCHEMA.names and past.names == PAST_SCHEMA.names
        reads = Reads(locate_ranges(ranges, view.tables["runs"]), rows={"applied": applied}, past=past)
        content = Content(blocks, back["chain"], ranges, view.tables["cursors"])
        return Plan(reads, content, EventLog().logs()["events"])

    def round(
        self, state: State, chains: Chains, plan: Plan[Content], inputs: Inputs[State], tick: Tick
    ) -> RoundResult[State]:
        """Follow the beacon, deliver, take orders, pay claims, make the next block."""
        log, rows = EventLog(), dict(state.rows)
        rows["members"] = self._reverted(rows["members"], plan.content, inputs, log)
        rows["members"], applied = self._followed(rows["members"], plan.content.blocks, tick)
        rows["members"] = _paid(rows["members"], inputs.offered["destination"], inputs.offered["amount"])
        tails = plan.content.tails
        cursors = tails.select(["destination", "source", "substream"]).with_columns(index=tails["end"])
        rows["cursors"] = cursors.take(stable_order(cursors["destination"], cursors["source"]))
        rows["lanes"], rows["runs"], rows["claims"], outbound = self._taken(state, plan, inputs, tick, log)
        due = rows["claims"]["due"] <= np.uint64(tick.tick)
        ripe = rows["claims"].filter(due)
        rows["members"] = _paid(rows["members"], ripe["chain"], ripe["amount"])
        rows["claims"] = rows["claims"].filter(~due)
        rows["blocks"] = self._made(rows["blocks"], chains, tick)
        after = State(rows, heads={int(branch): tick.height for branch in np.unique(rows["blocks"]["branch"])})
        logs = {**log.logs(), "applied": applied}
        needs = oldest_height(rows["runs"])
        return RoundResult(
            after, outbound, logs, self._headers(after, chains, tick.height), self._wake(after, tick.tick), needs
        )

    def _reverted(self, members: Frame, content: Content, inputs: Inputs[State], log: EventLog) -> Frame:
        """Return the members as they were before they followed a branch that is gone; what came by lanes stays."""
        total, number, branch = members["total"].copy(), members["number"].copy(), members["branch"].copy()
        for chain in content.reverting.tolist():
            row = int(np.flatnonzero(members["chain"] == chain)[0])
            before = inputs.past[int(members["safe_height"][row])].rows["members"]
            was = before.filter(before["chain"] == chain)
            undone = inputs.rows["applied"].filter(inputs.rows["applied"]["chain"] == chain)
            assert int(total[row]) == int(was["total"][0]) + int(undone["value"].sum())
            total[row], number[row], branch[row] = was["total"][0], was["number"][0], 0
            control = blank_messages(1, kind=np.uint8(Kind.CONTROL))
            log.add(event_rows(control, Event.REJECTED, chain=chain, reason="Reverted"))
        return members.with_columns(total=total, number=number, branch=branch)

    def _followed(self, members: Frame, blocks: Frame, tick: Tick) -> tuple[Frame, Frame]:
        """Return the members with the values of new blocks added, and what was added."""
        branch = np.uint8((blocks["branch"] == 1).any())
        safe = np.where(members["branch"] == branch, members["safe_height"], np.uint64(tick.height - 1))
        chosen = blocks.filter((blocks["branch"] == branch) | (blocks["number"] < self._forked_at(blocks)))
        total = members["total"].copy()
        applied = []
        for row, (chain, seen) in enumerate(zip(members["chain"].tolist(), members["number"].tolist(), strict=True)):
            new = chosen.filter(chosen["number"] > np.uint64(seen))
            total[row] += new["value"].sum(dtype=np.uint64)
            applied.append(new.select(["branch", "value"]).with_columns(chain=np.uint32(chain)).select(APPLIED.names))
        newest = chosen["number"].max() if len(chosen) else np.uint64(0)
        number = np.maximum(members["number"], newest)
        rows = members.with_columns(total=total, number=number, safe_height=safe, branch=np.full(len(safe), branch))
        return rows, concat([empty_frame(APPLIED), *applied])

    def _forked_at(self, blocks: Frame) -> int:
        """Return the number of the first block of the second branch."""
        second = blocks["number"][blocks["branch"] == 1]
        return int(second.min()) if len(second) else 0

    def _taken(
        self, state: State, plan: Plan[Content], inputs: Inputs[State], tick: Tick, log: EventLog
    ) -> tuple[Frame, Frame, Frame, Frame]:
        """Return lanes, segments and claims after the orders that carriers brought, and what is sent."""
        position = {int(number): place for place, number in enumerate(self.numbers())}
        claims, sent = [], []
        columns = (inputs.carried[name].to_pylist() for name in ("chain", "payload"))
        for number, payload in zip(*columns, strict=True):
            seal, body = payload[:8], payload[8:]
            if len(body) != 25 or hashlib.sha256(body).digest()[:8] != seal:
                control = blank_messages(1, kind=np.uint8(Kind.CONTROL))
                log.add(event_rows(control, Event.REJECTED, chain=position[number], reason="BadSeal"))
                continue
            kind, destination, amount, order = struct.unpack(">BQQQ", body)
            if kind == CLAIM:
                claims.append((position[number], tick.tick + CHALLENGE_TICKS, order, amount))
            elif destination in position and position[destination] != self.beacon:
                sent.append((position[number], position[destination], 0, amount))
        passed = plan.content.passed
        lanes = state.lanes.advance(passed.select(LANE), passed["index"])
        new = np.array(sorted(sent), dtype=np.uint64).reshape(-1, 4)
        ends = {name: new[:, place].astype(np.uint32) for place, name in enumerate(ENDS)}
        entries = Frame({**ends, "substream": new[:, 2], "amount": new[:, 3]}, len(new))
        index, lanes = lanes.number(entries)
        outbound = entries.with_columns(index=index).select(self.outbound.names)
        one = outbound.select(LANE).with_columns(height=np.uint64(tick.height), first=index, count=np.uint64(1))
        lanes = lanes.add_segments(one)
        added = np.array(claims, dtype=np.uint64).reshape(-1, 4)
        columns_of = {name: added[:, place] for place, name in enumerate(CLAIMS.names)}
        new_claims = Frame({**columns_of, "chain": added[:, 0].astype(np.uint32)}, len(added))
        joined = concat([state.rows["claims"], new_claims])
        joined = joined.take(stable_order(joined["chain"], joined["due"], joined["id"]))
        assert lanes.segments is not None
        by_destination = stable_order(outbound["destination"], outbound["source"], outbound["index"])
        return lanes.counters, lanes.segments, joined, outbound.take(by_destination)

    def _made(self, blocks: Frame, chains: Chains, tick: Tick) -> Frame:
        """Return the beacon's blocks with those of this height; a reverted branch goes."""
        if self.beacon not in chains:
            return blocks
        forked = [begun for begun in self.forks if begun <= tick.tick]
        second = forked and tick.tick < forked[-1] + FORK_BLOCKS
        kept = blocks if second else blocks.filter(blocks["branch"] == 0)
        kept = kept.filter(kept["number"] + np.uint64(KEPT_BLOCKS) > np.uint64(tick.height))
        made = []
        for branch in (0, 1) if second else (0,):
            parents = kept.filter((kept["branch"] == branch) | (kept["number"] < max(1, self._forked_at(kept))))
            parent = parents["hash"][-1].as_py() if len(parents) else b""
            digest = hashlib.sha256(parent + struct.pack(">QB", tick.height, branch)).digest()
            made.append((self.beacon, tick.height, branch, tick.height * (1 + 10 * branch), digest))
        table = pa.Table.from_pylist([dict(zip(BLOCKS.names, block, strict=True)) for block in made], schema=BLOCKS)
        joined = concat([kept, Frame({name: _column(table, name) for name in BLOCKS.names})])
        return joined.take(stable_order(joined["number"], joined["branch"]))

    def _headers(self, state: State, chains: Chains, height: int) -> Frame:
        """Return a header of each member, and one of each block of the beacon at a height."""
        roots = np.zeros((len(chains), 32), dtype=np.uint8)
        for name, table in TABLES.items():
            digests = section_digests(state.rows[name], state.rows[name][table.owner], chains)
            both = [
                hashlib.sha256(root.tobytes() + digest).digest() for root, digest in zip(roots, digests, strict=True)
            ]
            roots = np.frombuffer(b"".join(both), dtype=np.uint8).reshape(-1, 32)
        found = []
        for row, chain in enumerate(chains.tolist()):
            blocks = state.rows["blocks"] if chain == self.beacon else state.rows["blocks"].slice(0, 0)
            hashes = blocks.filter(blocks["number"] == np.uint64(height))["hash"].to_pylist() or [b""]
            root = roots[row].tobytes()
            found += [(chain, height, one, b"", root, b"") for one in hashes]
        table = pa.Table.from_pylist(
            [dict(zip(HEADERS_SCHEMA.names, row, strict=True)) for row in found], schema=HEADERS_SCHEMA
        )
        return Frame({name: _column(table, name) for name in HEADERS_SCHEMA.names}, table.num_rows)

    def _wake(self, state: State, tick: int) -> int | None:
        """Return the next tick with a fork's block, an entry on its way, or a claim that comes due."""
        forked = [max(begun, tick + 1) for begun in self.forks if tick < begun + FORK_BLOCKS + 2]
        lanes, claims = state.rows["lanes"], state.rows["claims"]
        moving = [tick + 1] if bool((lanes["next_index"] > lanes["begin"]).any()) else []
        return min([*forked, *moving, *claims["due"].tolist()], default=None)


def _column(table: pa.Table, name: str) -> Any:
    column = table[name].combine_chunks()
    if pa.types.is_fixed_size_binary(column.type):
        return np.frombuffer(b"".join(column.to_pylist()), dtype=np.uint8).reshape(-1, column.type.byte_width)
    return column if pa.types.is_binary(column.type) else column.to_numpy()


def _paid(members: Frame, chains: npt.NDArray[np.uint32], amounts: U64) -> Frame:
    """Return the members with amounts added to their balances."""
    balance = members["balance"].copy()
    rows = np.searchsorted(members["chain"], chains)
    np.add.at(balance, rows, amounts)
    return members.with_columns(balance=balance)
