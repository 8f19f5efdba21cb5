"""The state of any set of zones as columns (IBC reference 2.5), and its tables in the lake.

A lane is a queue: ``source`` keeps it for ``destination``. Substream 0 is a connection's receipt queue, 1 its send
queue: the order of their keys in a store. Where ``destination`` is ``source`` itself the lane is local: answers (0) and
calls (1) between programs of one zone, which no store holds and nobody proves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.order import U64, Rows, group_rows

from causeway.core.frame import Frame, empty_frame
from causeway.core.joins import lookup_rows
from causeway.core.queues import Queues
from causeway.protocols.contract import StateTable, Visibility
from causeway.protocols.ibc.keys import MAX_INDEX
from causeway.protocols.ibc.leaves import LEAVES_SCHEMA, Leaves
from causeway.protocols.shared.execution import ACCOUNTS, PROGRAM_TABLE, program_frames, program_tables
from causeway.protocols.shared.messages import LANE, LANE_FIELDS

RECEIPT = 0
SEND = 1

FROZEN = 1
DISCONNECTING = 2
"""Bits of what a connection is besides open."""


def _field(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


QUEUES_SCHEMA = pa.schema(
    [
        *LANE_FIELDS,
        _field("begin", pa.uint64()),
        _field("next_index", pa.uint64()),
        _field("ready", pa.uint64()),
    ]
)
"""One row a queue: its head (``begin``) and tail (``next_index``). Entries below ``ready`` are written; in a receipt
queue slots from there on may still wait for an answer that comes later."""

RUNS_SCHEMA = pa.schema(
    [
        *LANE_FIELDS,
        _field("height", pa.uint64()),
        _field("tick", pa.uint64()),
        _field("first", pa.uint64()),
        _field("count", pa.uint64()),
        _field("max_height", pa.uint64()),
    ]
)
"""One row a run of entries that were pushed at one height: entries ``first`` to ``first + count`` - 1 of the lane lie
in the outbound entries of ``height``. ``max_height``: the limit of all of them, if they are packets. Runs that the
destination is known to be done with are forgotten."""

PROOFS_SCHEMA = pa.schema(
    [
        *LANE_FIELDS,
        _field("part", pa.uint8()),
        _field("pushed", pa.uint64()),
        _field("tick", pa.uint64()),
        _field("max_height", pa.uint64()),
        _field("first", pa.uint64()),
        _field("count", pa.uint64()),
        _field("position", pa.uint64()),
        _field("size", pa.uint64()),
        _field("sides", pa.binary()),
    ]
)
"""What ``source`` proves to ``destination`` under the root of this height: entries ``first`` to ``first + count``
- 1 of a lane (``part`` INDEX) are the leaves from ``position`` on of its store's tree of ``size`` leaves; ``sides``:
the digests beside them. They were pushed at height ``pushed`` in ``tick``, and have the limit ``max_height``, if they
are packets. ``part`` HEAD or TAIL: the one leaf that says that the queue's head or tail is ``first``. ``part`` ABSENT:
there are no entries ``first`` to ``first + count`` - 1: two neighbouring leaves from ``position`` on, of the entry
before, or of the head where ``first`` is 0, and of the entry behind, or of the tail where they end at ``MAX_INDEX``.
The hashes of the values of both come before ``sides``."""


_HEIGHT = [*LANE_FIELDS, _field("height", pa.uint64())]
KNOWN_QUEUES_SCHEMA = pa.schema([*_HEIGHT, *list(QUEUES_SCHEMA)[len(LANE_FIELDS) :]])
KNOWN_PROOFS_SCHEMA = pa.schema([*_HEIGHT, *list(PROOFS_SCHEMA)[len(LANE_FIELDS) :]])
"""What relayers know of other zones' queues for ``destination`` and of what ``source`` proves of them, at the height of
a header that ``destination`` trusts and that waits for its delay, or can be used since (``delays``)."""

CONNECTIONS_SCHEMA = pa.schema(
    [
        _field("chain", pa.uint32()),
        _field("counterparty", pa.uint32()),
        _field("latest", pa.uint64()),
        _field("frozen", pa.uint8()),
        _field("peer_received", pa.uint64()),
        _field("peer_done", pa.uint64()),
    ]
)
"""One row a connection: the highest trusted height of ``counterparty``; whether it is frozen (bit 1: its headers
contradict each other), or disconnecting (bit 2). ``peer_received``, ``peer_done``: how far, as relayers saw, the
counterparty had received our packets and processed our receipts; nothing but what is offered to relayers depends on
it."""

TRUST_SCHEMA = pa.schema(
    [
        _field("chain", pa.uint32()),
        _field("counterparty", pa.uint32()),
        _field("height", pa.uint64()),
        _field("time", pa.uint64()),
        _field("added", pa.uint64()),
        _field("added_time", pa.uint64()),
        _field("root", pa.binary(32)),
        _field("validators_hash", pa.binary(32)),
        _field("next_validators_hash", pa.binary(32)),
        _field("header_hash", pa.binary(32)),
    ]
)
"""One row a trusted header of ``counterparty`` on ``chain``: its height, time (ns), root and validators, and our
height and time (ns) when it was added. Height 0 is the root of trust: what was registered at genesis. The time of
adding is committed only where something depends on it: where there is a delay (``IbcOptions.delay_ns``)."""

RECEIPTS_SCHEMA = pa.schema([*LANE_FIELDS, _field("index", pa.uint64()), _field("value", pa.binary(32))])
"""One row a receipt in a queue of a connection: the hash of its value, with which absences beside it are proved. Kept
only where packets time out so (``IbcOptions.absence``)."""

SLOTS_SCHEMA = pa.schema(
    [
        _field("destination", pa.uint32()),
        _field("source", pa.uint32()),
        _field("index", pa.uint64()),
        _field("sender", pa.uint64()),
        _field("receiver", pa.uint64()),
        _field("callback", pa.uint64()),
    ]
)
"""One row a packet from ``source`` that was received and whose program has not answered yet: its receipt has an index,
and no value. ``destination``, whose row it is, comes first."""

RELAYERS_SCHEMA = pa.schema(
    [
        _field("chain", pa.uint32()),
        _field("relayer", pa.uint32()),
        _field("headers", pa.uint64()),
        _field("submitted", pa.uint64()),
        _field("accepted", pa.uint64()),
        _field("redundant", pa.uint64()),
        _field("refused", pa.uint64()),
        _field("fees", pa.uint64()),
        _field("wasted", pa.uint64()),
    ]
)
"""One row a relayer and zone: header updates and messages it submitted there, what became of those, and the fees it
paid, in all and for what had no effect."""

BACKOFFS_SCHEMA = pa.schema(
    [
        _field("chain", pa.uint32()),
        _field("source", pa.uint32()),
        _field("relayer", pa.uint32()),
        _field("call", pa.uint8()),
        _field("first", pa.uint64()),
        _field("stop", pa.uint64()),
        _field("refusals", pa.uint64()),
        _field("until", pa.uint64()),
    ]
)
"""One row a stretch of entries ``first`` to ``stop`` - 1, of a kind of call about ``source``, that a relayer does not
submit to ``chain`` before the height ``until``: it was refused so often in a row (``backing_off``). No store commits to
that, it is what relayers remember."""

FUNDS_SCHEMA = pa.schema(
    [
        _field("chain", pa.uint32()),
        _field("relayer", pa.uint32()),
        _field("balance", pa.uint64()),
        _field("deposited", pa.uint64()),
        _field("earned", pa.uint64()),
        _field("owed", pa.uint64()),
        _field("stopped", pa.uint64()),
        _field("stops", pa.uint64()),
    ]
)
"""One row an account of a relayer of the scenario on a zone, and behind these one of the zone itself (``relayer`` is
the number of relayers) that holds the fees which it has collected. ``deposited``: what came from outside, the balance
at genesis included; ``earned``, ``owed``: rewards that were paid out, and that are still to be. ``stopped``: the height
at which the relayer could not pay for a call first, 0 while it can; ``stops``: how often that happened. Only where
relayers have accounts (``AccountOptions``)."""

ENDS = ("source", "destination")
CONNECTION = ("chain", "counterparty")

STRETCH = ("chain", "source", "relayer", "call")

STATE_TABLES: dict[str, StateTable] = {
    "queues": StateTable(QUEUES_SCHEMA, "source", LANE, ENDS, shown=Visibility.DESTINATION),
    "leaves": StateTable(LEAVES_SCHEMA, "source", (*LANE, "index"), ENDS),
    "runs": StateTable(RUNS_SCHEMA, "source", (*LANE, "first"), ENDS),
    "proofs": StateTable(PROOFS_SCHEMA, "source", (*LANE, "part", "first"), ENDS, shown=Visibility.DESTINATION),
    "connections": StateTable(CONNECTIONS_SCHEMA, "chain", CONNECTION, CONNECTION),
    "trust": StateTable(TRUST_SCHEMA, "chain", (*CONNECTION, "height"), CONNECTION),
    "receipts": StateTable(RECEIPTS_SCHEMA, "source", (*LANE, "index"), ENDS),
    "known_queues": StateTable(
        KNOWN_QUEUES_SCHEMA, "destination", ("destination", "source", "height", "substream"), ENDS
    ),
    "known_proofs": StateTable(
        KNOWN_PROOFS_SCHEMA, "destination", ("destination", "source", "height", "substream", "part", "first"), ENDS
    ),
    "slots": StateTable(SLOTS_SCHEMA, "destination", ("destination", "source", "index"), ENDS, ("sender", "receiver")),
    "relayers": StateTable(RELAYERS_SCHEMA, "chain", ("chain", "relayer"), ("chain",)),
    "backoffs": StateTable(BACKOFFS_SCHEMA, "chain", (*STRETCH, "first"), ("chain", "source")),
    "funds": StateTable(FUNDS_SCHEMA, "chain", ("chain", "relayer"), ("chain",)),
    "accounts": ACCOUNTS,
}
"""Tables of a state by name; every program class adds one named ``program_<class>`` with a schema of its own."""

_OF_QUEUES = ("queues", "leaves", "runs")


@dataclass
class StoreCache:
    """The zones' stores as they were committed last, None where they are to be built: an index that a state carries
    along, without which every root is the same."""

    store: object = None


@dataclass(frozen=True)
class State:
    """The states of a set of zones at one height.

    ``queues``: all lanes, with the runs in which entries lie as their segments; ``leaves``: the leaves of entries,
    which are their elements. The other frames are those of ``STATE_TABLES``, in the order of each. ``programs`` maps
    the name of a program class to the frame of its instances' state (first column ``program``). ``kept``: a derived
    index.
    """

    queues: Queues
    leaves: Leaves
    proofs: Frame
    connections: Frame
    trust: Frame
    receipts: Frame
    known_queues: Frame
    known_proofs: Frame
    slots: Frame
    relayers: Frame
    backoffs: Frame
    funds: Frame
    accounts: Frame
    programs: Mapping[str, Frame]
    kept: StoreCache = field(default_factory=StoreCache, compare=False)

    @property
    def runs(self) -> Frame:
        """Return where in the lake the entries of queues lie (``RUNS_SCHEMA``)."""
        assert self.queues.segments is not None
        return self.queues.segments

    def frames(self) -> dict[str, Frame]:
        """Return the rows of every table by its name. A round that does not change a table keeps the object."""
        own = {name: getattr(self, name) for name in STATE_TABLES if name not in _OF_QUEUES}
        of_queues = {"queues": self.queues.counters, "leaves": self.leaves.frame(), "runs": self.runs}
        return of_queues | own | {PROGRAM_TABLE + name: frame for name, frame in self.programs.items()}

    def trimmed(self, lanes: Frame) -> State:
        """Move the head of each queue asked for (any number of times) to its first entry, to its tail without any."""
        if len(lanes) == 0:
            return self
        lanes = lanes.select(LANE).take(group_rows(*(lanes[name] for name in LANE)).starts)
        rows, heads = self.queues.positions(lanes), self.queues.counters["begin"].copy()
        heads[rows] = self.leaves.first(lanes, self.queues.counters["next_index"][rows])
        return replace(self, queues=self.queues.with_counters(begin=heads))

    def with_programs(self, accounts: Frame, programs: Mapping[str, Frame]) -> State:
        """Return the state with what execution left."""
        return replace(self, accounts=accounts, programs=programs)


def state_tables(program_schemas: Mapping[str, pa.Schema]) -> dict[str, StateTable]:
    """Return all tables of a state, with whose their rows are, given the schemas of the program classes in use."""
    return STATE_TABLES | program_tables(program_schemas)


def state_of_frames(frames: Mapping[str, Frame], program_schemas: Mapping[str, pa.Schema]) -> State:
    """Return the state that has these tables; absent ones are empty."""
    own = {name: frames.get(name, empty_frame(table.schema)) for name, table in STATE_TABLES.items()}
    counters, leaves, runs = (own.pop(name) for name in _OF_QUEUES)
    # An index stays below ``MAX_INDEX``, so that the key of the tail comes after it in a store.
    queues = Queues(LANE, counters, empty_frame(LEAVES_SCHEMA), runs, base=0, limit=MAX_INDEX - 1)
    programs = {name: empty_frame(schema) for name, schema in program_schemas.items()}
    return State(queues, Leaves.of(leaves), **own, programs=programs | program_frames(frames), kept=StoreCache())


def is_frozen(connections: Frame) -> npt.NDArray[np.bool_]:
    """Return which connections are frozen: nothing is accepted of them (X-3)."""
    found: npt.NDArray[np.bool_] = (connections["frozen"] & FROZEN) > 0
    return found


def lanes_of(source: Any, destination: Any, substream: Any) -> Frame:
    """Return lanes: columns ``LANE``, of chains given as columns, of one substream or a column of such."""
    columns = {"source": source, "destination": destination}
    chains = Frame({name: column.astype(np.uint32, copy=False) for name, column in columns.items()})
    return chains.with_columns(substream=np.asarray(substream, dtype=np.uint64)[()])


def reverse_lanes(rows: Frame, substream: Any) -> Frame:
    """Return the lanes in the other direction: of packets those of their receipts, of receipts those of packets."""
    return lanes_of(rows["destination"], rows["source"], substream)


def slot_entries(state: State) -> Frame:
    """Return the entries of receipt queues that are still to be written (``LANE_COLUMNS``), in the order of slots."""
    slots = state.slots
    return reverse_lanes(slots, RECEIPT).with_columns(index=slots["index"])


def connection_key(chain: int, counterparty: int) -> int:
    """Return a number for a connection: they order like the rows of ``connections``."""
    return chain << 16 | counterparty


def connection_keys(rows: Frame) -> U64:
    """Return the number of each row's connection."""
    chain, counterparty = (rows[name].astype(np.uint64) for name in CONNECTION)
    found: U64 = chain << np.uint64(16) | counterparty
    return found


def connection_rows(table: Frame, chain: npt.NDArray[Any], counterparty: npt.NDArray[Any]) -> Rows:
    """Return the row of each connection asked for in a frame with one row a connection, -1 where there is none."""
    return lookup_rows(table, Frame({"chain": chain, "counterparty": counterparty}), CONNECTION)
