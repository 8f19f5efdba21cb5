"""The state of any set of zones as columns (IBC reference 2.5), and its tables in the lake.

A lane is a queue that ``source`` keeps for ``destination``. Substream 0 is a connection's receipt queue, 1 its send
queue, in the order of their keys in a store. A lane with ``destination`` equal to ``source`` is local: answers (0) and
calls (1) between programs of one zone, in no store and without proofs.
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
from causeway.protocols.contract import BYTES, DIGEST, UINT8, UINT32, UINT64, StateTable, Visibility, table_schema
from causeway.protocols.ibc.keys import MAX_INDEX
from causeway.protocols.ibc.leaves import LEAVES_SCHEMA, Leaves
from causeway.protocols.shared.execution import ACCOUNTS, PROGRAM_TABLE, program_frames, program_tables
from causeway.protocols.shared.messages import LANE, LANE_FIELDS

RECEIPT = 0
SEND = 1

FROZEN = 1
DISCONNECTING = 2
"""Bits of a connection's state."""


QUEUES_SCHEMA = table_schema(*LANE_FIELDS, begin=UINT64, next_index=UINT64, ready=UINT64)
"""One row a queue: its head (``begin``) and tail (``next_index``).

Entries below ``ready`` are written. In a receipt queue, later slots may still wait for an asynchronous answer.
"""

RUNS_SCHEMA = table_schema(*LANE_FIELDS, height=UINT64, tick=UINT64, first=UINT64, count=UINT64, max_height=UINT64)
"""One row a run of entries pushed at one height.

Entries ``first`` to ``first + count`` - 1 of the lane are outbound entries of ``height``. ``max_height`` is the common
limit of packets. Runs that the destination has finished with are forgotten.
"""

PROOFS_SCHEMA = table_schema(
    *LANE_FIELDS,
    part=UINT8,
    pushed=UINT64,
    tick=UINT64,
    max_height=UINT64,
    first=UINT64,
    count=UINT64,
    position=UINT64,
    size=UINT64,
    sides=BYTES,
)
"""A proof of ``source`` for ``destination`` under the root of this height.

``part`` INDEX: entries ``first`` to ``first + count`` - 1 of a lane are the leaves from ``position`` on of the store's
tree of ``size`` leaves, and ``sides`` holds the digests beside them. They were pushed at height ``pushed`` in ``tick``;
packets have the limit ``max_height``. ``part`` HEAD or TAIL: the one leaf with the queue's head or tail ``first``.
``part`` ABSENT: entries ``first`` to ``first + count`` - 1 are absent. The proof shows two neighbouring leaves from
``position`` on: the previous entry, or the head if ``first`` is 0, and the next entry, or the tail at ``MAX_INDEX``.
The hashes of both values precede ``sides``.
"""


_HEIGHT = table_schema(*LANE_FIELDS, height=UINT64)
KNOWN_QUEUES_SCHEMA = pa.schema([*_HEIGHT, *list(QUEUES_SCHEMA)[len(LANE_FIELDS) :]])
KNOWN_PROOFS_SCHEMA = pa.schema([*_HEIGHT, *list(PROOFS_SCHEMA)[len(LANE_FIELDS) :]])
"""The relayers' knowledge of ``source`` for ``destination`` at a header's height.

It holds queues and proofs.

``destination`` trusts the header, which is within its delay or became usable since (``delays``).
"""

CONNECTIONS_SCHEMA = table_schema(
    chain=UINT32, counterparty=UINT32, latest=UINT64, frozen=UINT8, peer_received=UINT64, peer_done=UINT64
)
"""One row a connection: its state, and the highest trusted height of ``counterparty``.

``frozen`` bit 1: conflicting headers; bit 2: disconnecting. ``peer_received``, ``peer_done``: the packets received and
the receipts processed by the counterparty, as seen by relayers. They affect only the proofs offered to relayers.
"""

TRUST_SCHEMA = table_schema(
    chain=UINT32,
    counterparty=UINT32,
    height=UINT64,
    time=UINT64,
    added=UINT64,
    added_time=UINT64,
    root=DIGEST,
    validators_hash=DIGEST,
    next_validators_hash=DIGEST,
    header_hash=DIGEST,
)
"""One row a trusted header of ``counterparty`` on ``chain``.

Columns: height, time (ns), root and validators, and the own height and time (ns) of its addition. Height 0 is the root
of trust, registered at genesis. The time of addition is committed only with a delay (``IbcOptions.delay_ns``).
"""

RECEIPTS_SCHEMA = table_schema(*LANE_FIELDS, index=UINT64, value=DIGEST)
"""One row a receipt in a queue: the hash of its value, for proofs of neighbouring absences.

Stored only where packets time out by absence (``IbcOptions.absence``).
"""

SLOTS_SCHEMA = table_schema(
    destination=UINT32, source=UINT32, index=UINT64, sender=UINT64, receiver=UINT64, callback=UINT64
)
"""One row a received packet from ``source`` without an answer.

Its receipt has an index, but no value.

``destination``, the owner, comes first.
"""

RELAYERS_SCHEMA = table_schema(
    chain=UINT32,
    relayer=UINT32,
    headers=UINT64,
    submitted=UINT64,
    accepted=UINT64,
    redundant=UINT64,
    refused=UINT64,
    fees=UINT64,
    wasted=UINT64,
)
"""One row a relayer and zone: counts of header updates and messages by outcome, and fees."""

BACKOFFS_SCHEMA = table_schema(
    chain=UINT32, source=UINT32, relayer=UINT32, call=UINT8, first=UINT64, stop=UINT64, refusals=UINT64, until=UINT64
)
"""One row a range of entries that a relayer does not submit before height ``until``.

The entries are ``first`` to ``stop`` - 1.

The range belongs to a kind of call to ``chain`` about ``source``, refused ``refusals`` times in a row
(``relay.backoff``). It is the relayers' memory and in no store.
"""

FUNDS_SCHEMA = table_schema(
    chain=UINT32,
    relayer=UINT32,
    balance=UINT64,
    deposited=UINT64,
    earned=UINT64,
    owed=UINT64,
    stopped=UINT64,
    stops=UINT64,
)
"""One row an account of a scenario's relayer on a zone, then the zone's own account.

The zone's ``relayer`` is the number of relayers.

The zone's account holds its fees. ``deposited``: deposits from outside, the genesis balance included; ``earned``,
``owed``: rewards paid and due. ``stopped``: the height at which the relayer ran out of funds, 0 while it can pay;
``stops``: the number of such times. Only with relayer accounts (``AccountOptions``).
"""

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
"""State tables by name.

Each program class adds a table ``program_<class>`` with its own schema.
"""

_OF_QUEUES = ("queues", "leaves", "runs")


@dataclass
class StoreCache:
    """The zones' stores after their last commitment, or None.

    The cache does not affect roots.
    """

    store: object = None


@dataclass(frozen=True)
class State:
    """The states of a set of zones at one height.

    Attributes:
        queues: All lanes, with the runs of their entries as segments.
        leaves: The leaves of entries, as the elements of the queues.
        programs: Program states by class (first column ``program``).
        kept: The cached stores.

    The other attributes are tables of ``STATE_TABLES``, each in its order.
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
        """Return the runs of the queues' entries (``RUNS_SCHEMA``)."""
        assert self.queues.segments is not None
        return self.queues.segments

    def frames(self) -> dict[str, Frame]:
        """Return the rows of every table by name; unchanged tables stay the same objects."""
        own = {name: getattr(self, name) for name in STATE_TABLES if name not in _OF_QUEUES}
        of_queues = {"queues": self.queues.counters, "leaves": self.leaves.frame(), "runs": self.runs}
        return of_queues | own | {PROGRAM_TABLE + name: frame for name, frame in self.programs.items()}

    def trimmed(self, lanes: Frame) -> State:
        """Move the head of each queue of ``lanes`` to its first entry, or to its tail."""
        if len(lanes) == 0:
            return self
        lanes = lanes.select(LANE).take(group_rows(*(lanes[name] for name in LANE)).starts)
        rows, heads = self.queues.positions(lanes), self.queues.counters["begin"].copy()
        heads[rows] = self.leaves.first(lanes, self.queues.counters["next_index"][rows])
        return replace(self, queues=self.queues.with_counters(begin=heads))

    def with_programs(self, accounts: Frame, programs: Mapping[str, Frame]) -> State:
        """Return the state with the results of execution."""
        return replace(self, accounts=accounts, programs=programs)


def state_tables(program_schemas: Mapping[str, pa.Schema]) -> dict[str, StateTable]:
    """Return all tables of a state, for the schemas of the program classes in use."""
    return STATE_TABLES | program_tables(program_schemas)


def state_of_frames(frames: Mapping[str, Frame], program_schemas: Mapping[str, pa.Schema]) -> State:
    """Return the state with these tables; absent tables are empty.

    Args:
        frames: The tables by name.
        program_schemas: The schemas of the program classes in use.
    """
    own = {name: frames.get(name, empty_frame(table.schema)) for name, table in STATE_TABLES.items()}
    counters, leaves, runs = (own.pop(name) for name in _OF_QUEUES)
    # An index stays below ``MAX_INDEX``, so that the key of the tail comes after it in a store.
    queues = Queues(LANE, counters, empty_frame(LEAVES_SCHEMA), runs, base=0, limit=MAX_INDEX - 1)
    programs = {name: empty_frame(schema) for name, schema in program_schemas.items()}
    return State(queues, Leaves.of(leaves), **own, programs=programs | program_frames(frames), kept=StoreCache())


def is_frozen(connections: Frame) -> npt.NDArray[np.bool_]:
    """Return a mask of frozen connections, which accept nothing (X-3)."""
    found: npt.NDArray[np.bool_] = (connections["frozen"] & FROZEN) > 0
    return found


def lanes_of(source: Any, destination: Any, substream: Any) -> Frame:
    """Return lanes (``LANE``).

    Args:
        source: Positions of zones.
        destination: Positions of zones.
        substream: One substream, or a column.
    """
    columns = {"source": source, "destination": destination}
    chains = Frame({name: column.astype(np.uint32, copy=False) for name, column in columns.items()})
    return chains.with_columns(substream=np.asarray(substream, dtype=np.uint64)[()])


def reverse_lanes(rows: Frame, substream: Any) -> Frame:
    """Return the reverse lanes: of receipts for packets, and of packets for receipts."""
    return lanes_of(rows["destination"], rows["source"], substream)


def slot_entries(state: State) -> Frame:
    """Return the unwritten entries of receipt queues (``LANE_COLUMNS``), in the order of slots."""
    slots = state.slots
    return reverse_lanes(slots, RECEIPT).with_columns(index=slots["index"])


def connection_key(chain: int, counterparty: int) -> int:
    """Return the number of a connection; numbers order like the rows of ``connections``."""
    return chain << 16 | counterparty


def connection_keys(rows: Frame) -> U64:
    """Return the number of each row's connection."""
    chain, counterparty = (rows[name].astype(np.uint64) for name in CONNECTION)
    found: U64 = chain << np.uint64(16) | counterparty
    return found


def connection_rows(table: Frame, chain: npt.NDArray[Any], counterparty: npt.NDArray[Any]) -> Rows:
    """Return the row of each connection in a table with one row a connection, or -1."""
    return lookup_rows(table, Frame({"chain": chain, "counterparty": counterparty}), CONNECTION)
