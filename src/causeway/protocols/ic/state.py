"""The canonical state of any set of subnets as columns (IC reference 2.5, 2.6), and its tables in the lake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.frame import Frame, empty_frame, from_table
from causeway.model.order import U64, Rows, lane_codes, pair_codes, positions_in
from causeway.model.queues import Counters, QueueMap
from causeway.protocols.contract import ACCOUNTS_SCHEMA, PROGRAM_TABLE, StateTable, program_tables
from causeway.protocols.messages import MESSAGE_FIELDS, QUEUED_SCHEMA

Chains = npt.NDArray[np.uint32]

INPUT_SCHEMA = pa.schema([*MESSAGE_FIELDS, pa.field("index", pa.uint64(), nullable=False)])
"""An element of an input queue (sender, receiver) or, with ``sender`` the user, of the receiver's ingress queue."""

LANES_SCHEMA = pa.schema(
    [
        pa.field("chain", pa.uint32(), nullable=False),
        pa.field("remote", pa.uint32(), nullable=False),
        pa.field("substream", pa.uint64(), nullable=False),
        pa.field("begin", pa.uint64(), nullable=False),
        pa.field("next_index", pa.uint64(), nullable=False),
        pa.field("stream_bytes", pa.uint64(), nullable=False),
        pa.field("signals_begin", pa.uint64(), nullable=False),
        pa.field("expected", pa.uint64(), nullable=False),
    ]
)
"""One row a substream of the stream from ``chain`` to ``remote``. Messages ``begin`` to ``next_index`` - 1 are in it,
of ``stream_bytes`` bytes together (exact where ``limits = deployed``, an upper bound elsewhere). It carries signals
about the messages ``signals_begin`` to ``expected`` - 1 received from ``remote``; ``expected`` is both ``signals_end``
and the entry of expected_xnet_indices (the invariant of 2.6)."""

REJECTS_SCHEMA = pa.schema(
    [
        pa.field("chain", pa.uint32(), nullable=False),
        pa.field("remote", pa.uint32(), nullable=False),
        pa.field("substream", pa.uint64(), nullable=False),
        pa.field("index", pa.uint64(), nullable=False),
        pa.field("reason", pa.uint8(), nullable=False),
    ]
)
"""A REJECT signal in the stream from ``chain`` to ``remote``; indices that are signalled and not listed are ACCEPT."""

RUNS_SCHEMA = pa.schema(
    [
        pa.field("chain", pa.uint32(), nullable=False),
        pa.field("remote", pa.uint32(), nullable=False),
        pa.field("substream", pa.uint64(), nullable=False),
        pa.field("height", pa.uint64(), nullable=False),
        pa.field("first", pa.uint64(), nullable=False),
        pa.field("count", pa.uint64(), nullable=False),
        pa.field("bytes", pa.uint64(), nullable=False),
        pa.field("root", pa.binary(32), nullable=False),
    ]
)
"""The messages that one round appended to one substream, as far as any is still in it: their indices, the bytes of
those that are left, and the Merkle root over all of them. A stream is thus hashed once, when it grows, and never
again."""

STRAYS_SCHEMA = pa.schema([pa.field("chain", pa.uint32(), nullable=False), *INPUT_SCHEMA])
"""A message that ``receiver_check = off`` enqueued on ``chain`` although its receiver is hosted elsewhere (D-5): it
stays there for ever. ``index`` counts in (chain, receiver, sender)."""

COUNTERS_SCHEMA = pa.schema(
    [
        pa.field("first", pa.uint64(), nullable=False),
        pa.field("second", pa.uint64(), nullable=False),
        pa.field("next_index", pa.uint64(), nullable=False),
    ]
)
"""Rolling indices: input queues by (receiver, sender), output queues by (sender, receiver), ingress queues by
(receiver, receiver)."""

DENSE_CANISTERS = 1 << 24
"""Canister numbers below this are looked up in an array, larger ones by bisection."""

INPUT_KEYS = ("receiver", "sender")
OUTPUT_KEYS = ("sender", "receiver")
INGRESS_KEYS = ("receiver", "receiver")


@dataclass(frozen=True)
class Lanes:
    """The streams' counters: a frame of ``LANES_SCHEMA`` in ascending order of (chain, remote, substream)."""

    rows: Frame
    base: int

    def positions(self, chain: npt.NDArray[Any], remote: npt.NDArray[Any], substream: U64) -> Rows:
        """Return the row of each lane asked for, -1 where there is none."""
        rows = self.rows
        own, asked = pair_codes(
            (lane_codes(rows["chain"], rows["remote"]), rows["substream"]),
            (lane_codes(chain, remote), substream),
        )
        return positions_in(own, asked)

    def ensure(self, chain: npt.NDArray[Any], remote: npt.NDArray[Any], substream: U64) -> Lanes:
        """Return the lanes with a new one, all at the base, for each (chain, remote, substream) that is absent."""
        rows = self.rows
        own, asked = pair_codes(
            (lane_codes(rows["chain"], rows["remote"]), rows["substream"]),
            (lane_codes(chain, remote), substream),
        )
        missing = np.flatnonzero(positions_in(own, asked) < 0)
        if len(missing) == 0:
            return self
        codes, first = np.unique(asked[missing], return_index=True)
        new = missing[first]
        places = np.searchsorted(own, codes)
        start = np.full(len(new), self.base, dtype=np.uint64)
        added: dict[str, Any] = {
            "chain": chain[new].astype(np.uint32),
            "remote": remote[new].astype(np.uint32),
            "substream": substream[new],
            "stream_bytes": np.zeros(len(new), dtype=np.uint64),
        }
        columns: dict[str, Any] = {name: np.insert(rows[name], places, added.get(name, start)) for name in rows.names}
        return Lanes(Frame(columns), self.base)

    def with_columns(self, **columns: Any) -> Lanes:
        """Return the lanes with some counters replaced."""
        return replace(self, rows=self.rows.with_columns(**columns))


@dataclass(frozen=True)
class State:
    """The canonical states of a set of subnets at one height, and what execution keeps beside them.

    ``programs`` maps the name of a program class to the frame of its canisters' state (first column ``program``).
    """

    ingress_queues: QueueMap
    input_queues: QueueMap
    output_queues: QueueMap
    lanes: Lanes
    rejects: Frame
    runs: Frame
    strays: Frame
    accounts: Frame
    programs: Mapping[str, Frame]

    @classmethod
    def empty(cls, base: int) -> State:
        """Return the state of no subnet; ``base`` is ``index_base``."""
        return cls(
            ingress_queues=QueueMap(Counters.empty(base), empty_frame(INPUT_SCHEMA), INGRESS_KEYS),
            input_queues=QueueMap(Counters.empty(base), empty_frame(INPUT_SCHEMA), INPUT_KEYS),
            output_queues=QueueMap(Counters.empty(base), empty_frame(QUEUED_SCHEMA), OUTPUT_KEYS),
            lanes=Lanes(empty_frame(LANES_SCHEMA), base),
            rejects=empty_frame(REJECTS_SCHEMA),
            runs=empty_frame(RUNS_SCHEMA),
            strays=empty_frame(STRAYS_SCHEMA),
            accounts=empty_frame(ACCOUNTS_SCHEMA),
            programs={},
        )

    def installed(self, canisters: U64) -> npt.NDArray[np.bool_]:
        """Return which canisters are installed on the subnets of this state."""
        known: U64 = self.accounts["program"]
        if len(known) == 0:
            return np.zeros(len(canisters), dtype=bool)
        if int(known[-1]) < DENSE_CANISTERS:
            table = np.zeros(int(known[-1]) + 2, dtype=bool)
            table[known] = True
            dense: npt.NDArray[np.bool_] = table[np.minimum(canisters, np.uint64(len(table) - 1))]
            return dense
        return positions_in(known, canisters) >= 0


STATE_SCHEMAS: dict[str, pa.Schema] = {
    "ingress_counters": COUNTERS_SCHEMA,
    "input_counters": COUNTERS_SCHEMA,
    "output_counters": COUNTERS_SCHEMA,
    "ingress_queues": INPUT_SCHEMA,
    "input_queues": INPUT_SCHEMA,
    "output_queues": QUEUED_SCHEMA,
    "lanes": LANES_SCHEMA,
    "rejects": REJECTS_SCHEMA,
    "runs": RUNS_SCHEMA,
    "strays": STRAYS_SCHEMA,
    "accounts": ACCOUNTS_SCHEMA,
}
"""Tables of a state by name; every program class adds one named ``program_<class>`` with a schema of its own."""

OF_SUBNETS = ("chain", "remote")
_COLUMNS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "ingress_counters": ("first", (), ("first", "second")),
    "input_counters": ("first", (), ("first", "second")),
    "output_counters": ("first", (), ("first", "second")),
    "ingress_queues": ("receiver", (), ("receiver",)),  # who sends is a user
    "input_queues": ("receiver", (), ("sender", "receiver")),
    "output_queues": ("sender", (), ("sender", "receiver")),
    "lanes": ("chain", OF_SUBNETS, ()),
    "rejects": ("chain", OF_SUBNETS, ()),
    "runs": ("chain", OF_SUBNETS, ()),
    "strays": ("chain", ("chain",), ("sender", "receiver")),
    "accounts": ("program", (), ("program",)),
}
"""For each table of ``STATE_SCHEMAS`` whose a row is, and the columns with subnets and with canisters."""


def state_tables(program_schemas: Mapping[str, pa.Schema]) -> dict[str, StateTable]:
    """Return all tables of a state, with whose their rows are, given the schemas of the program classes in use."""
    own = {name: StateTable(schema, *_COLUMNS[name]) for name, schema in STATE_SCHEMAS.items()}
    return own | program_tables(program_schemas)


def parts(state: State) -> dict[str, Frame | Counters]:
    """Return the state's parts by table name. A round that does not change a part keeps the object."""
    return {
        "ingress_counters": state.ingress_queues.counters,
        "input_counters": state.input_queues.counters,
        "output_counters": state.output_queues.counters,
        "ingress_queues": state.ingress_queues.elements,
        "input_queues": state.input_queues.elements,
        "output_queues": state.output_queues.elements,
        "lanes": state.lanes.rows,
        "rejects": state.rejects,
        "runs": state.runs,
        "strays": state.strays,
        "accounts": state.accounts,
        **{PROGRAM_TABLE + name: frame for name, frame in state.programs.items()},
    }


def to_table(name: str, part: Frame | Counters, program_schemas: Mapping[str, pa.Schema]) -> pa.Table:
    """Return a part of a state as the Arrow table of that name."""
    if isinstance(part, Counters):
        part = Frame({"first": part.first, "second": part.second, "next_index": part.next_index})
    if name.startswith(PROGRAM_TABLE):
        return part.to_table(program_schemas[name.removeprefix(PROGRAM_TABLE)])
    return part.to_table(STATE_SCHEMAS[name])


def from_tables(tables: Mapping[str, pa.Table], base: int) -> State:
    """Return the state whose parts ``to_table`` gave; absent tables are empty."""
    frames = {
        name: from_table(tables[name]) if name in tables else empty_frame(schema)
        for name, schema in STATE_SCHEMAS.items()
    }

    def counters(name: str) -> Counters:
        frame = frames[name]
        return Counters(frame["first"], frame["second"], frame["next_index"], base)

    return State(
        ingress_queues=QueueMap(counters("ingress_counters"), frames["ingress_queues"], INGRESS_KEYS),
        input_queues=QueueMap(counters("input_counters"), frames["input_queues"], INPUT_KEYS),
        output_queues=QueueMap(counters("output_counters"), frames["output_queues"], OUTPUT_KEYS),
        lanes=Lanes(frames["lanes"], base),
        rejects=frames["rejects"],
        runs=frames["runs"],
        strays=frames["strays"],
        accounts=frames["accounts"],
        programs={
            name.removeprefix(PROGRAM_TABLE): from_table(table)
            for name, table in tables.items()
            if name.startswith(PROGRAM_TABLE)
        },
    )
