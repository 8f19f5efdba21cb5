"""The state of any set of zones as columns (IBC reference 2.5), and its tables in the lake.

A lane is a queue: ``chain`` keeps it for ``remote``. Substream 0 is a connection's receipt queue, 1 its send queue: the
order of their keys in a store. Where ``remote`` is ``chain`` itself the lane is local: answers (0) and calls (1)
between programs of one zone, which no store holds and nobody proves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.frame import Frame, empty_frame, from_table
from causeway.model.order import U64, Rows, lane_codes, positions_in
from causeway.protocols.contract import ACCOUNTS_SCHEMA, PROGRAM_TABLE, StateTable, program_tables

RECEIPT = 0
SEND = 1

FROZEN = 1
DISCONNECTING = 2


def _field(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


LANE_FIELDS = [_field("chain", pa.uint32()), _field("remote", pa.uint32()), _field("substream", pa.uint64())]

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

LEAVES_SCHEMA = pa.schema([*LANE_FIELDS, _field("index", pa.uint64()), _field("digest", pa.binary(32))])
"""One row an entry of a queue of a connection: the hash of its leaf in the zone's store. The entry itself is the row of
``transfers`` with the same lane and index."""

RUNS_SCHEMA = pa.schema(
    [
        *LANE_FIELDS,
        _field("height", pa.uint64()),
        _field("tick", pa.uint64()),
        _field("first", pa.uint64()),
        _field("count", pa.uint64()),
    ]
)
"""One row a run of entries that were pushed at one height: entries ``first`` to ``first + count`` - 1 of the lane lie
in the transfers of ``height``. Runs that the remote chain is known to be done with are forgotten."""

PROOFS_SCHEMA = pa.schema(
    [
        *LANE_FIELDS,
        _field("part", pa.uint8()),
        _field("pushed", pa.uint64()),
        _field("first", pa.uint64()),
        _field("count", pa.uint64()),
        _field("place", pa.uint64()),
        _field("size", pa.uint64()),
        _field("sides", pa.binary()),
    ]
)
"""What the zone proves to others under the root of this height: entries ``first`` to ``first + count`` - 1 of a lane
(``part`` INDEX), pushed at height ``pushed``, are the leaves from ``place`` on of its store's tree of ``size`` leaves;
``sides``: the digests beside them. ``part`` HEAD or TAIL: the one leaf that says that the queue's head or tail is
``first``."""


CONNECTIONS_SCHEMA = pa.schema(
    [
        _field("chain", pa.uint32()),
        _field("remote", pa.uint32()),
        _field("latest", pa.uint64()),
        _field("frozen", pa.uint8()),
        _field("peer_received", pa.uint64()),
        _field("peer_done", pa.uint64()),
    ]
)
"""One row a connection: the highest trusted height of ``remote``; whether it is frozen (1: two headers of one height,
2: disconnecting). ``peer_received``, ``peer_done``: how far, as relayers saw, the remote chain
had received our packets and processed our receipts; nothing but what is offered to relayers depends on it."""

TRUST_SCHEMA = pa.schema(
    [
        _field("chain", pa.uint32()),
        _field("remote", pa.uint32()),
        _field("height", pa.uint64()),
        _field("time", pa.uint64()),
        _field("added", pa.uint64()),
        _field("root", pa.binary(32)),
        _field("validators_hash", pa.binary(32)),
        _field("next_validators_hash", pa.binary(32)),
        _field("header_hash", pa.binary(32)),
    ]
)
"""One row a trusted header of ``remote`` on ``chain``: its height, time (ns), root and validators, and our height when
it was added. Height 0 is the root of trust: what was registered at genesis."""

SLOTS_SCHEMA = pa.schema(
    [
        _field("chain", pa.uint32()),
        _field("remote", pa.uint32()),
        _field("index", pa.uint64()),
        _field("sender", pa.uint64()),
        _field("receiver", pa.uint64()),
        _field("callback", pa.uint64()),
    ]
)
"""One row a packet that was received and whose program has not answered yet: its receipt has a place, and no value."""

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

OF_ZONES = ("chain", "remote")
STATE_TABLES: dict[str, StateTable] = {
    "queues": StateTable(QUEUES_SCHEMA, "chain", OF_ZONES),
    "leaves": StateTable(LEAVES_SCHEMA, "chain", OF_ZONES),
    "runs": StateTable(RUNS_SCHEMA, "chain", OF_ZONES),
    "proofs": StateTable(PROOFS_SCHEMA, "chain", OF_ZONES),
    "connections": StateTable(CONNECTIONS_SCHEMA, "chain", OF_ZONES),
    "trust": StateTable(TRUST_SCHEMA, "chain", OF_ZONES),
    "slots": StateTable(SLOTS_SCHEMA, "chain", OF_ZONES, ("sender", "receiver")),
    "relayers": StateTable(RELAYERS_SCHEMA, "chain", ("chain",)),
    "accounts": StateTable(ACCOUNTS_SCHEMA, "program", (), ("program",)),
}
"""Tables of a state by name; every program class adds one named ``program_<class>`` with a schema of its own."""


@dataclass(frozen=True)
class State:
    """The states of a set of zones at one height: a frame for each of ``STATE_TABLES``, ascending by leading columns.

    ``programs`` maps the name of a program class to the frame of its instances' state (first column ``program``).
    """

    queues: Frame
    leaves: Frame
    runs: Frame
    proofs: Frame
    connections: Frame
    trust: Frame
    slots: Frame
    relayers: Frame
    accounts: Frame
    programs: Mapping[str, Frame]

    def with_programs(self, accounts: Frame, programs: Mapping[str, Frame]) -> State:
        """Return the state with what execution left."""
        return replace(self, accounts=accounts, programs=programs)


def state_tables(program_schemas: Mapping[str, pa.Schema]) -> dict[str, StateTable]:
    """Return all tables of a state, with whose their rows are, given the schemas of the program classes in use."""
    return STATE_TABLES | program_tables(program_schemas)


def parts(state: State) -> dict[str, Frame]:
    """Return the state's parts by table name. A round that does not change a part keeps the object."""
    own: dict[str, Frame] = {name: getattr(state, name) for name in STATE_TABLES}
    return own | {PROGRAM_TABLE + name: frame for name, frame in state.programs.items()}


def from_tables(tables: Mapping[str, pa.Table], program_schemas: Mapping[str, pa.Schema]) -> State:
    """Return the state whose tables these are; absent tables are empty."""

    def frame(name: str, schema: pa.Schema) -> Frame:
        return from_table(tables[name]) if name in tables else empty_frame(schema)

    own: dict[str, Any] = {name: frame(name, table.schema) for name, table in STATE_TABLES.items()}
    programs = {name: frame(PROGRAM_TABLE + name, schema) for name, schema in program_schemas.items()}
    return State(**own, programs=programs)


def lane_keys(chain: npt.NDArray[Any], remote: npt.NDArray[Any], substream: Any) -> U64:
    """Return one number a lane that orders like (chain, remote, substream)."""
    return (lane_codes(chain, remote) << np.uint64(1)) | np.asarray(substream, dtype=np.uint64)


def keys_of(rows: Frame) -> U64:
    """Return ``lane_keys`` of the rows of a frame."""
    return lane_keys(rows["chain"], rows["remote"], rows["substream"])


def lane_positions(rows: Frame, chain: npt.NDArray[Any], remote: npt.NDArray[Any], substream: Any) -> Rows:
    """Return the row of each lane asked for in a frame with one row a lane (ascending), -1 where there is none."""
    return positions_in(keys_of(rows), lane_keys(chain, remote, substream))


def connection_positions(rows: Frame, chain: npt.NDArray[Any], remote: npt.NDArray[Any]) -> Rows:
    """Return the row of each connection asked for in ``connections``, -1 where there is none."""
    return positions_in(lane_codes(rows["chain"], rows["remote"]), lane_codes(chain, remote))
