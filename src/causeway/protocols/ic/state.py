"""The canonical state of any set of subnets as columns, and its tables in the lake.

See IC reference 2.5, 2.6.

The table ``certified_data`` holds the data that canisters have their subnets certify (``ic0.certified_data_set``). In
the state tree it is the leaf ``canister / <canister id> / certified_data`` (IC reference 2.9). A canister that never
set any has neither row nor leaf. The row moves, and is removed, with the canister.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.ic.stream_tree import StreamForest
from causeway_proofs.order import U64, find_positions, group_rows, stable_order

from causeway.core.frame import Frame, concat, empty_frame
from causeway.core.queues import Queues
from causeway.protocols.contract import BYTES, DIGEST, TEXT, UINT8, UINT32, UINT64, StateTable, Visibility, table_schema
from causeway.protocols.ic.open_calls import IN_HAND_KEYS, IN_HAND_SCHEMA, OPEN_CALLS_KEYS, OPEN_CALLS_SCHEMA, OpenCalls
from causeway.protocols.ic.scheduler import NEXT_SOURCES_SCHEMA, QUEUE, TURNS_SCHEMA
from causeway.protocols.shared.digests import DigestCache
from causeway.protocols.shared.events import EventLog
from causeway.protocols.shared.execution import (
    ACCOUNTS,
    CERTIFIED_DATA_SCHEMA,
    PROGRAM_TABLE,
    program_frames,
    program_tables,
)
from causeway.protocols.shared.messages import (
    LANE,
    LANE_COLUMNS,
    LANE_FIELDS,
    MESSAGE_COLUMNS,
    MESSAGE_FIELDS,
    OUTBOUND_SCHEMA,
    QUEUED_SCHEMA,
)

CERTIFIED_DATA = StateTable(CERTIFIED_DATA_SCHEMA, "program", ("program",), programs=("program",))


def update_certified_data(data: Frame, updates: Frame) -> Frame:
    """Update the certified data of canisters (``CERTIFIED_DATA_SCHEMA``, ascending).

    Args:
        data: The table.
        updates: The values set in a round, in order (``Execution.certified``).

    Returns:
        The updated table; the same object if no value was set.
    """
    if len(updates) == 0:
        return data
    rows = concat([data, updates])
    rows = rows.take(stable_order(rows["program"]))
    groups = group_rows(rows["program"])
    return rows.take(groups.starts + groups.counts - 1)


INPUT_SCHEMA = table_schema(*MESSAGE_FIELDS, index=UINT64)
"""An element of an input queue (sender, receiver), or of a user's ingress queue.

For ingress, ``sender`` is the user.
"""

LANES_SCHEMA = table_schema(
    *LANE_FIELDS, begin=UINT64, next_index=UINT64, stream_bytes=UINT64, signals_begin=UINT64, expected=UINT64
)
"""One row a substream of the stream from ``source`` to ``destination``.

The stream holds the messages ``begin`` to ``next_index`` - 1, of ``stream_bytes`` bytes in total (exact for ``limits =
deployed``, else an upper bound). It carries signals about the reverse messages ``signals_begin`` to ``expected`` - 1.
``expected`` is both ``signals_end`` and the entry of expected_xnet_indices (the invariant of 2.6).
"""

REJECTS_SCHEMA = table_schema(destination=UINT32, source=UINT32, substream=UINT64, index=UINT64, reason=UINT8)
"""A REJECT signal about the message ``index`` from ``source`` to ``destination``.

It lies in the stream of the destination to the source. All other signalled indices are ACCEPT.
"""

RUNS_SCHEMA = table_schema(
    *LANE_FIELDS, height=UINT64, tick=UINT64, first=UINT64, count=UINT64, bytes=UINT64, root=DIGEST
)
"""A segment: the messages that one round appended to one substream, until all are gone.

Its row holds the indices, the bytes of the remaining messages and the Merkle root over all. So each message of a stream
is hashed once.
"""

MISROUTED_SCHEMA = pa.schema([*table_schema(chain=UINT32), *INPUT_SCHEMA])
"""A message enqueued on ``chain`` although its receiver is hosted elsewhere (D-5).

Only with ``receiver_check = off``.

It stays there forever. ``index`` counts in (chain, receiver, sender).
"""

STOPPED_SCHEMA = table_schema(chain=UINT32, height=UINT64, cause=TEXT)
"""A chain stopped after violating a hard invariant in the round of ``height``.

``cause``: the error.
"""

KEPT_SLICES_SCHEMA = table_schema(
    *LANE_FIELDS, source_height=UINT64, begin=UINT64, end=UINT64, signals_end=UINT64, oldest_reject=UINT64, root=DIGEST
)
"""A stream header that a faulty carrier keeps to offer later.

It is the header of the stream from ``source`` to ``destination``, certified at ``source_height``, with the source's
root and the oldest rejected message (``signals_end`` for none). It is not part of a subnet's state or root.
"""

HEADS_SCHEMA = table_schema(
    chain=UINT32, number=UINT64, time=UINT64, previous=BYTES, root=DIGEST, certified=UINT64, certification=BYTES
)
"""The head of a subnet: its own height ``number``, batch time (ns), and state roots.

``root`` is that of the height, ``previous`` that of the one before (empty at height 0).

``certified`` is the last certified height, and ``certification`` its certification (protobuf; empty before the first).
"""

UNCERTIFIED_SCHEMA = table_schema(chain=UINT32, number=UINT64, root=DIGEST, height_witness=BYTES)
"""An uncertified height: its root, and the encoded witness of ``metadata / height``."""

_PROOF = {"header": BYTES, "siblings": BYTES, "messages": DIGEST, "path": BYTES, "certification": BYTES}
"""The columns that certify a slice."""

OFFERS_SCHEMA = table_schema(*LANE_FIELDS, number=UINT64, begin=UINT64, anchor=UINT64, **_PROOF)
"""The data to serve the stream from ``source`` to ``destination`` at height ``number``.

The height is the source's own.

Columns: the encoded header, which also holds ``begin``; the digests beside the messages from ``anchor`` to the end,
joined; the digest of all ``messages``; the digests from the stream to the state root; and the certification (empty
before there is one).
"""

_NUMBERS = ("executed", "begin", "end", "signals_end", "message_begin", "message_end", "number", "anchor")

AGREED_SCHEMA = table_schema(*LANE_FIELDS, **dict.fromkeys(_NUMBERS, UINT64), **_PROOF, beside=BYTES)
"""A slice of an agreed payload that ``destination`` executes at its own height ``executed``.

The row suffices to verify the slice again then: the columns of ``offers`` and of slices, and the joined digests of the
messages ``beside`` the slice that its check needs.
"""

INGRESS_KEYS = ("receiver",)
INPUT_KEYS = ("receiver", "sender")
OUTPUT_KEYS = ("sender", "receiver")
MISROUTED_KEYS = ("chain", "receiver", "sender")
STREAM_INDICES = ("begin", "next_index", "signals_begin", "expected")

AGREED_ORDER = ("destination", "source", "substream", "executed")
REJECTS_ORDER = ("destination", "source", "substream", "index")

ENDS = ("source", "destination")
PROGRAMS = ("sender", "receiver")


def _counters(keys: tuple[str, ...]) -> StateTable:
    """Return the table of the counters of queues, which belong to the program of the first key."""
    return StateTable(table_schema(**dict.fromkeys((*keys, "next_index"), UINT64)), keys[0], keys, programs=keys)


STATE_TABLES: Mapping[str, StateTable] = {
    "ingress_counters": _counters(INGRESS_KEYS),
    "input_counters": _counters(INPUT_KEYS),
    "output_counters": _counters(OUTPUT_KEYS),
    # The senders are users.
    "ingress_queues": StateTable(INPUT_SCHEMA, "receiver", (*INGRESS_KEYS, "index"), programs=("receiver",)),
    "input_queues": StateTable(INPUT_SCHEMA, "receiver", (*INPUT_KEYS, "index"), programs=PROGRAMS),
    "output_queues": StateTable(QUEUED_SCHEMA, "sender", (*OUTPUT_KEYS, "index"), programs=PROGRAMS),
    "open_calls": StateTable(OPEN_CALLS_SCHEMA, "originator", OPEN_CALLS_KEYS, programs=("originator", "respondent")),
    "in_hand": StateTable(IN_HAND_SCHEMA, "respondent", IN_HAND_KEYS, programs=("respondent", "originator")),
    "turns": StateTable(TURNS_SCHEMA, "receiver", QUEUE, programs=QUEUE),
    "next_sources": StateTable(NEXT_SOURCES_SCHEMA, "receiver", ("receiver",), programs=("receiver",)),
    "lanes": StateTable(LANES_SCHEMA, "source", LANE, chains=ENDS, shown=Visibility.DESTINATION),
    "rejects": StateTable(
        REJECTS_SCHEMA, "destination", REJECTS_ORDER, chains=ENDS, shown=Visibility.DESTINATION, shown_to="source"
    ),
    "runs": StateTable(RUNS_SCHEMA, "source", (*LANE, "first"), chains=ENDS, shown=Visibility.DESTINATION),
    "misrouted": StateTable(
        MISROUTED_SCHEMA, "chain", (*MISROUTED_KEYS, "index"), chains=("chain",), programs=PROGRAMS
    ),
    "stopped": StateTable(STOPPED_SCHEMA, "chain", ("chain",), chains=("chain",)),
    "kept_slices": StateTable(
        KEPT_SLICES_SCHEMA, "destination", ("destination", "source", "substream", "source_height"), chains=ENDS
    ),
    "heads": StateTable(HEADS_SCHEMA, "chain", ("chain",), chains=("chain",)),
    "uncertified": StateTable(UNCERTIFIED_SCHEMA, "chain", ("chain", "number"), chains=("chain",)),
    "offers": StateTable(OFFERS_SCHEMA, "source", (*LANE, "number"), chains=ENDS, shown=Visibility.DESTINATION),
    "trimmed_runs": StateTable(RUNS_SCHEMA, "source", (*LANE, "first"), chains=ENDS, shown=Visibility.DESTINATION),
    "agreed": StateTable(AGREED_SCHEMA, "destination", AGREED_ORDER, chains=ENDS),
    "accounts": ACCOUNTS,
    "certified_data": CERTIFIED_DATA,
}
"""State tables by name.

Each program class adds a table ``program_<class>`` with its own schema.
"""

NOT_COMMITTED = ("kept_slices", "heads", "uncertified", "offers", "trimmed_runs", "agreed")
"""Tables without a section in the root.

A certified root still commits to number, time and previous root of ``heads`` (``canonical_states``).
"""

DENSE_CANISTERS = 1 << 24
"""Canister numbers below this are looked up in an array, larger ones by bisection."""


_QUEUES = {"ingress": INGRESS_KEYS, "input": INPUT_KEYS, "output": OUTPUT_KEYS}
"""The keys of the queues of canisters; each has a table of counters and one of elements."""

_FRAMES = (
    *("in_hand", "turns", "next_sources", "rejects", "stopped", "kept_slices"),
    *("heads", "uncertified", "offers", "trimmed_runs", "agreed", "accounts", "certified_data"),
)
"""The tables that a state holds as they are."""


@dataclass(frozen=True)
class StreamTrees:
    """Trees of the messages in streams at ``version``.

    They change in place, so older states must not use them.
    """

    forest: StreamForest
    version: int


@dataclass(frozen=True)
class State:
    """The canonical states of a set of subnets at one height, and the state of execution.

    Attributes:
        ingress_queues: Ingress queues by receiver.
        input_queues: Input queues by (receiver, sender).
        output_queues: Output queues by (sender, receiver).
        open_calls: Requests without an answer, at their senders.
        in_hand: Requests popped by canisters and not answered yet.
        turns: The round-robin turns of input queues, where a limit applies.
        next_sources: The next kind of input of each canister, where a limit applies.
        streams: Streams by lane: counters (table ``lanes``) and segments (table ``runs``). The lake holds the messages.
        rejects: REJECT signals in streams.
        misrouted: Misrouted messages by (chain, receiver, sender).
        stopped: Subnets that violated an invariant.
        kept_slices: Stream headers that carriers keep.
        heads: The head of each subnet.
        uncertified: Heights that are not certified yet.
        offers: The data that endpoints serve.
        trimmed_runs: Collected segments that offers still refer to.
        agreed: Slices of agreed payloads that are not executed yet.
        accounts: The accounts of canisters.
        certified_data: The certified data of canisters.
        programs: Canister states by program class (first column ``program``).
        trees: The trees of the messages in certified streams; None before they are built. In no table.
        hashed: A cache of the last root computation, of this state or an ancestor. In no table.
    """

    ingress_queues: Queues
    input_queues: Queues
    output_queues: Queues
    open_calls: OpenCalls
    in_hand: Frame
    turns: Frame
    next_sources: Frame
    streams: Queues
    rejects: Frame
    misrouted: Queues
    stopped: Frame
    kept_slices: Frame
    heads: Frame
    uncertified: Frame
    offers: Frame
    trimmed_runs: Frame
    agreed: Frame
    accounts: Frame
    certified_data: Frame
    programs: Mapping[str, Frame]
    trees: StreamTrees | None = field(default=None, compare=False, repr=False)
    hashed: DigestCache = field(default_factory=DigestCache, compare=False, repr=False)

    def frames(self) -> dict[str, Frame]:
        """Return the rows of every table by name; unchanged tables stay the same objects."""
        queues: dict[str, Queues] = {name: getattr(self, f"{name}_queues") for name in _QUEUES}
        return {
            **{f"{name}_counters": queue.counters for name, queue in queues.items()},
            **{f"{name}_queues": queue.elements for name, queue in queues.items()},
            **{name: getattr(self, name) for name in _FRAMES},
            "open_calls": self.open_calls.rows,
            "lanes": self.streams.counters,
            "runs": self.runs,
            "misrouted": self.misrouted.elements,
            **{PROGRAM_TABLE + name: frame for name, frame in self.programs.items()},
        }

    @property
    def runs(self) -> Frame:
        """Return the segments of the streams (``RUNS_SCHEMA``)."""
        assert self.streams.segments is not None
        return self.streams.segments

    @property
    def has_current_trees(self) -> bool:
        """Return True if the trees of streams are those of this state, not of a later one."""
        return self.trees is not None and self.trees.forest.version == self.trees.version

    def installed(self, canisters: U64) -> npt.NDArray[np.bool_]:
        """Return a mask of the canisters installed on the subnets of this state."""
        known: U64 = self.accounts["program"]
        if len(known) == 0:
            return np.zeros(len(canisters), dtype=bool)
        if int(known[-1]) < DENSE_CANISTERS:
            table = np.zeros(int(known[-1]) + 2, dtype=bool)
            table[known] = True
            dense: npt.NDArray[np.bool_] = table[np.minimum(canisters, np.uint64(len(table) - 1))]
            return dense
        return find_positions(known, canisters) >= 0


def state_tables(program_schemas: Mapping[str, pa.Schema]) -> dict[str, StateTable]:
    """Return all tables of a state, for the schemas of the program classes in use."""
    return {**STATE_TABLES, **program_tables(program_schemas)}


def state_from_tables(frames: Mapping[str, Frame], program_schemas: Mapping[str, pa.Schema], base: int) -> State:
    """Return the state with these tables; absent tables are empty.

    Args:
        frames: The tables by name.
        program_schemas: The schemas of the program classes in use.
        base: The first index of queues (``index_base``).
    """
    found = {
        name: frames[name] if name in frames else empty_frame(table.schema)
        for name, table in state_tables(program_schemas).items()
    }
    # These queues never shrink, so their elements determine the counters.
    misrouted = found["misrouted"]
    groups = group_rows(*(misrouted[key] for key in MISROUTED_KEYS))
    next_index = misrouted["index"][groups.starts + groups.counts - 1] + np.uint64(1)
    counters = misrouted.select(MISROUTED_KEYS).take(groups.starts).with_columns(next_index=next_index)
    parts: dict[str, Any] = {name: found[name] for name in _FRAMES}
    for name, keys in _QUEUES.items():
        parts[f"{name}_queues"] = Queues(keys, found[f"{name}_counters"], found[f"{name}_queues"], base=base)
    return State(
        **parts,
        open_calls=OpenCalls(found["open_calls"]),
        streams=Queues(LANE, found["lanes"], _NOT_HELD, found["runs"], base, STREAM_INDICES),
        misrouted=Queues(MISROUTED_KEYS, counters, misrouted, base=base),
        programs=program_frames(found),
    )


_NOT_HELD = empty_frame(table_schema(*LANE_FIELDS, index=UINT64))
"""The elements of streams: a state holds none."""


def reverse_lanes(rows: Frame) -> Frame:
    """Return the reverse lanes of ``rows``, with their signals and expected indices."""
    return Frame({"source": rows["destination"], "destination": rows["source"], "substream": rows["substream"]})


ARRIVALS_SCHEMA = table_schema(
    *table_schema(chain=UINT32),
    *(OUTBOUND_SCHEMA.field(name) for name in [*LANE_COLUMNS, *MESSAGE_COLUMNS]),
    via=UINT8,
    queue_index=UINT64,
)
"""A push to an input queue on ``chain``: message, queue index, path and lane position.

``source`` and ``destination`` are ``NO_CHAIN`` for a message from no lane.
"""

INGRESS_ARRIVALS_SCHEMA = pa.schema(
    [ARRIVALS_SCHEMA.field(name) for name in ["chain", *MESSAGE_COLUMNS, "queue_index"]]
)
"""A push to an ingress queue."""

ONWARD_SCHEMA = pa.schema(
    [OUTBOUND_SCHEMA.field(name) for name in ["source", *MESSAGE_COLUMNS, "queue_index", "sent_tick"]]
)
"""A message that routing appends to a stream of ``source`` regardless of limits.

``queue_index``: its index in an output queue, else ``NO_QUEUE`` or ``FORGED``.
"""


@dataclass(frozen=True)
class RoundStep:
    """The result of a step of a round.

    Attributes:
        state: The state after the step.
        log: The events of the step.
        arrivals: Pushes to input queues (``ARRIVALS_SCHEMA``). Their events follow execution, which knows the consumed
            ones.
        ingress: Pushes to ingress queues (``INGRESS_ARRIVALS_SCHEMA``).
        onward: Messages for routing to append to streams (``ONWARD_SCHEMA``).
    """

    state: State
    log: EventLog = field(default_factory=EventLog)
    arrivals: Frame = field(default_factory=partial(empty_frame, ARRIVALS_SCHEMA))
    ingress: Frame = field(default_factory=partial(empty_frame, INGRESS_ARRIVALS_SCHEMA))
    onward: Frame = field(default_factory=partial(empty_frame, ONWARD_SCHEMA))
