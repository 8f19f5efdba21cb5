"""A network of zones on the IBC kernel in memory: users' messages by hand, blocks by hand, no lake and no Spark.

    net = Network({"A": {0: "caller"}, "B": {10: ("echo", {"an": "option"})}}, options={"order": "unordered"})
    net.tell(0, "call", payload, user=7)       # comes in with the next block
    net.block(3)                               # three blocks of all zones; returns the last one's ``RoundResult``
    net.settle()                               # blocks until no packet waits for its receipt
    net.program_state(10), net.refusals(), net.receipts(), net.roots(), net.events()

All zones make every block in one call of the kernel, unless ``apart``: then each in a call of its own, as in the
pipeline, where one bucket never sees another's state. What zones push is kept in memory, a list of frames a lane, as
long as a state refers to it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import cbor2
import numpy as np
import pyarrow as pa

from causeway.config.faults import Faults
from causeway.config.topology import CHAINS_SCHEMA, PROGRAMS_SCHEMA, Topology
from causeway.config.traffic import CARRIED_SCHEMA, INGRESS_SCHEMA
from causeway.core.frame import Frame, concat, empty_frame
from causeway.core.vocabulary import EVENTS_SCHEMA, Event, Kind
from causeway.programs.runner import Programs
from causeway.protocols.contract import SEEN_HEADERS_SCHEMA, Inputs, RoundResult, Tick, View
from causeway.protocols.ibc.kernel import IbcKernel
from causeway.protocols.ibc.keys import KeyPart
from causeway.protocols.ibc.options import IbcOptions
from causeway.protocols.ibc.queue_entries import ENTRIES_SCHEMA
from causeway.protocols.ibc.state import RECEIPT, State
from causeway.protocols.shared.messages import LANE
from causeway.protocols.shared.state_tables import merge_states
from tests.shown import shown_to

TICK_NS = 1_000_000_000

Placed = Mapping[int, str | tuple[str, Mapping[str, Any]] | None]
"""Program number -> class, or class and options, or None: known to live there, but nothing is installed."""


def topology_of(zones: Mapping[str, Placed], balance: int = 0, external: Sequence[str] = ()) -> Topology:
    """Return the topology of zones, numbered in the order given, and the programs on them; ``external``: those that
    are run elsewhere."""
    chains = {"number": pa.array(range(len(zones)), pa.uint64()), "name": list(zones)}
    rows = []
    for chain, programs in enumerate(zones.values()):
        for number, placed in programs.items():
            name, options = placed if isinstance(placed, tuple) else (placed, {})
            rows.append((number, f"p{number}", chain, name, json.dumps(options), Decimal(balance)))
    records = [dict(zip(PROGRAMS_SCHEMA.names, row, strict=True)) for row in rows]
    programs = pa.Table.from_pylist(records, schema=PROGRAMS_SCHEMA)
    outside = tuple(number for number, name in enumerate(zones) if name in external)
    return Topology(pa.table(chains, schema=CHAINS_SCHEMA), programs, external=outside)


class Outbox:
    """What zones pushed, by lane, oldest first."""

    def __init__(self) -> None:
        self._frames: dict[tuple[int, int, int], list[Frame]] = defaultdict(list)

    def add(self, outbound: Frame) -> None:
        """Keep the outbound messages of a block."""
        lanes = np.stack([outbound[name].astype(np.uint64) for name in LANE], axis=1)
        for lane in np.unique(lanes, axis=0):
            frame = outbound.filter((lanes == lane).all(axis=1))
            self._frames[int(lane[0]), int(lane[1]), int(lane[2])].append(frame)

    def read(self, ranges: Frame) -> Frame:
        """Return the messages of ``ranges`` (``RANGES_SCHEMA``), each of them made at the height that is named."""
        found = [empty_frame(ENTRIES_SCHEMA)]
        columns = (ranges[name].tolist() for name in (*LANE, "height", "begin", "end"))
        for *lane, height, begin, end in zip(*columns, strict=True):
            rows = []
            for frame in self._frames[lane[0], lane[1], lane[2]]:
                index = frame["index"]
                if int(index[0]) < end and int(index[-1]) >= begin:
                    rows.append(frame.filter((index >= begin) & (index < end) & (frame["sent_height"] == height)))
            assert sum(map(len, rows)) == end - begin, "a range lies in the outbound entries of its height"
            found += rows
        return concat(found)

    def forget(self, runs: Frame) -> None:
        """Drop the frames before the first of ``runs`` of each lane: nobody may ask for them."""
        first: dict[tuple[int, ...], int] = {}
        for *lane, index in zip(*(runs[name].tolist() for name in (*LANE, "first")), strict=True):
            first[tuple(lane)] = min(index, first.get(tuple(lane), index))
        for key, frames in self._frames.items():
            keep = first.get(key)
            frames[:] = [] if keep is None else [frame for frame in frames if int(frame["index"][-1]) >= keep]


def known_entries(state: State) -> Frame:
    """Return the entries that relayers know of and may still bring, where headers have a delay."""
    return state.known_proofs.filter(state.known_proofs["part"] == KeyPart.INDEX)


class Network:
    """Zones, each with its programs.

    Args:
        zones: chain id -> programs on it (``Placed``); chains are numbered in this order, positions are by id.
        options: of the protocol, as in a scenario.
        balance: what every program starts with.
        apart: a kernel call a zone instead of one for all.
        external: the zones that are run elsewhere.
    """

    def __init__(
        self,
        zones: Mapping[str, Placed],
        *,
        options: Mapping[str, Any] | None = None,
        balance: int = 0,
        seed: int = 0,
        tick_ns: int = TICK_NS,
        faults: Faults | None = None,
        apart: bool = False,
        external: Sequence[str] = (),
    ) -> None:
        topology = topology_of(zones, balance, external)
        chosen = IbcOptions(**(options or {}))
        self.kernel = IbcKernel(topology, Programs(topology), chosen, seed, tick_ns, faults or Faults())
        everything = np.arange(len(zones), dtype=np.uint32)
        self.groups = [everything[place : place + 1] for place in everything] if apart else [everything]
        self._begin()
        self.height = 0
        self.results: list[RoundResult[State]] = []
        """What the last block gave, one a group."""
        self.outbox = Outbox()
        self._host = {number: chain for chain, programs in enumerate(zones.values()) for number in programs}
        self._ingress: list[pa.Table] = []
        self._told: list[tuple[int, int, int, str, bytes]] = []
        self._carried: list[tuple[int, int, bytes]] = []

    def _begin(self) -> None:
        """Make the genesis of every group."""
        results = [self.kernel.genesis(group) for group in self.groups]
        self.states: list[State] = [result.state for result in results]
        self.headers = concat([result.headers for result in results])
        self.past_headers = {0: self.headers}
        """By height."""

    # ---- play

    def tell(self, program: int, method: str, payload: bytes = b"", *, user: int = 0) -> None:
        """A user sends a message to a program; it comes in with the next block."""
        self._told.append((self._host[program], program, user, method, payload))

    def tell_all(self, rows: pa.Table) -> None:
        """Many messages at once (``INGRESS_SCHEMA``; ``chain``: numbers), after those that ``tell`` has given."""
        self._flush()
        self._ingress.append(rows)

    def carry(self, chain: int, payload: bytes, *, carrier: int = 0) -> None:
        """Somebody brings wire bytes to a chain (its number); they come in with the next block."""
        self._carried.append((chain, carrier, payload))

    def block(self, count: int = 1) -> RoundResult[State]:
        """Run ``count`` blocks of all zones; return what the last gave (the first group's, where they are apart)."""
        for _ in range(count):
            self.height += 1
            self._block(Tick(self.height, self.height - 1))
        return self.results[0]

    def settle(self, limit: int = 200) -> int:
        """Run blocks until no packet waits for its receipt; return how many. Fails after ``limit``."""
        for count in range(limit):
            self.block()
            if all(self.kernel.idle(state) for state in self.states):
                return count + 1
        raise AssertionError(f"packets still wait after {limit} blocks")

    def _flush(self) -> None:
        if self._told:
            columns = [list(column) for column in zip(*self._told, strict=True)]
            self._ingress.append(pa.table(columns, schema=INGRESS_SCHEMA))
            self._told = []

    def _block(self, tick: Tick) -> None:
        self._flush()
        ingress = pa.concat_tables([INGRESS_SCHEMA.empty_table(), *self._ingress])
        columns = [list(column) for column in zip(*self._carried, strict=True)] if self._carried else [[]] * 3
        carried = pa.table(columns, schema=CARRIED_SCHEMA)
        self._ingress, self._carried = [], []
        self.results = []
        for group, state in zip(self.groups, self.states, strict=True):
            told, brought = (self._of_group(table, group) for table in (ingress, carried))
            plan = self.kernel.plan(state, group, self.seen_by(group), told, brought, tick)
            offered, own = (self.outbox.read(ranges) for ranges in (plan.reads.offered, plan.reads.own))
            inputs: Inputs[State] = Inputs(told, brought, offered, own, headers=self._headers_at(plan.reads.headers))
            self.results.append(self.kernel.round(state, group, plan, inputs, tick))
        self.states = [result.state for result in self.results]
        self.headers = concat([result.headers for result in self.results])
        self.past_headers[tick.height] = self.headers
        for result in self.results:
            self.outbox.add(result.outbound)
        names = [*LANE, "first"]
        used = [rows.select(names) for state in self.states for rows in (state.runs, known_entries(state))]
        self.outbox.forget(concat(used))

    # ---- look

    def _headers_at(self, asked: Frame) -> Frame:
        """Return headers of chains at heights (``PAST_SCHEMA``)."""
        found = [empty_frame(SEEN_HEADERS_SCHEMA)]
        for height in np.unique(asked["height"]).tolist():
            rows = self.past_headers[height]
            rows = rows.filter(np.isin(rows["chain"], asked["chain"][asked["height"] == height]))
            found.append(Frame({"height": np.full(len(rows), height, dtype=np.uint64), **_columns(rows)}, len(rows)))
        return concat(found)

    def _of_group(self, table: pa.Table, group: Any) -> pa.Table:
        if len(self.groups) == 1:
            return table
        return table.filter(pa.array(np.isin(table["chain"].to_numpy(), self.kernel.numbers()[group])))

    def seen_by(self, group: Any) -> View:
        """Return what the zones of a group see of the height before, and nothing else."""
        height = np.full(len(self.headers), self.height - 1, dtype=np.uint64)
        return View(shown_to(self.kernel, self.states, group), Frame({"height": height, **_columns(self.headers)}))

    @property
    def state(self) -> State:
        """Return the state of all zones as one."""
        return self.states[0] if len(self.states) == 1 else merge_states(self.kernel, self.states)

    def roots(self) -> dict[str, bytes]:
        """Return the root of each zone's store, by chain id."""
        rows = zip(self.headers["chain"].tolist(), self.headers["root"], strict=True)
        return {self.kernel.chains()[chain]: bytes(root) for chain, root in rows}

    def program_state(self, number: int) -> Any:
        """Return what a scalar program keeps, or the columns of another's row."""
        for frame in self.state.programs.values():
            rows = np.flatnonzero(frame["program"] == number)
            if len(rows):
                row = {name: _value(frame[name], int(rows[0])) for name in frame.names}
                return cbor2.loads(row["state"])[0] if list(row) == ["program", "state"] else row
        raise KeyError(f"no program {number} keeps a state")

    def events(self) -> Frame:
        """Return the events of the last block (``EVENTS_SCHEMA``)."""
        return concat([empty_frame(EVENTS_SCHEMA), *(result.logs["events"] for result in self.results)])

    def refusals(self) -> list[tuple[str, str]]:
        """Return (chain id, reason) of every event of the last block that is a rejection, in order."""
        events = self.events()
        rejected = events.filter((events["events"] & np.uint16(Event.REJECTED)) > 0)
        rows = zip(rejected["chain"].tolist(), rejected["reason"].to_pylist(), strict=True)
        return [(self.kernel.chains()[chain], reason) for chain, reason in rows]

    def requests(self) -> list[bytes]:
        """Return the payloads of the requests that the last block sent to other zones."""
        sent = concat([result.outbound for result in self.results])
        apart = (sent["source"] != sent["destination"]) & (sent["kind"] == Kind.REQUEST)
        found: list[bytes] = sent.filter(apart)["payload"].to_pylist()
        return found

    def receipts(self) -> dict[tuple[int, int, int], int]:
        """Return the receipts that the last block wrote: (caller, callback, respondent) -> code."""
        found: dict[tuple[int, int, int], int] = {}
        for result in self.results:
            rows = result.outbound
            apart = (rows["source"] != rows["destination"]) & (rows["substream"] == RECEIPT)
            rows = rows.filter(apart & (rows["kind"] == Kind.RESPONSE))
            columns = (rows[name].tolist() for name in ("receiver", "callback", "sender", "code"))
            found |= {(caller, callback, other): code for caller, callback, other, code in zip(*columns, strict=True)}
        return found


def _columns(frame: Frame) -> dict[str, Any]:
    return {name: frame[name] for name in frame.names}


def _value(column: Any, row: int) -> Any:
    value = column[row]
    return value.as_py() if isinstance(value, pa.Scalar) else value.item()
