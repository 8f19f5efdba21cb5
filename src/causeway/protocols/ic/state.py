"""The canonical state of any set of subnets as columns (IC reference 2.5, 2.6), and its tables in the lake.

What canisters let their subnets certify: the state table ``certified_data`` (``ic0.certified_data_set``).

In the state tree it is the leaf ``canister / <canister id> / certified_data`` (IC reference 2.9). A canister that never
set any has no row and no leaf. The row moves with the canister, and goes with it when it is removed.

What a step of a round gives: the state after it, and what it leaves to the steps that follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.ic.stream_tree import StreamForest
from causeway_proofs.order import U64, find_positions, group_rows, stable_order

from causeway.core.frame import Frame, concat, empty_frame
from causeway.core.queues import Queues
from causeway.protocols.contract import StateTable, Visibility
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


def update_certified_data(data: Frame, given: Frame) -> Frame:
    """Return the certified data of canisters (``CERTIFIED_DATA_SCHEMA``, ascending) after some was set.

    ``given``: what was set in a round, in that order (``Execution.certified``); the table itself comes back when
    nothing was.
    """
    if len(given) == 0:
        return data
    rows = concat([data, given])
    rows = rows.take(stable_order(rows["program"]))
    groups = group_rows(rows["program"])
    return rows.take(groups.starts + groups.counts - 1)


def _numbers(*names: str) -> list[pa.Field]:
    return [pa.field(name, pa.uint64(), nullable=False) for name in names]


INPUT_SCHEMA = pa.schema([*MESSAGE_FIELDS, *_numbers("index")])
"""An element of an input queue (sender, receiver) or, with ``sender`` the user, of the receiver's ingress queue."""

LANES_SCHEMA = pa.schema([*LANE_FIELDS, *_numbers("begin", "next_index", "stream_bytes", "signals_begin", "expected")])
"""One row a substream of the stream from ``source`` to ``destination``. Messages ``begin`` to ``next_index`` - 1 are in
it, of ``stream_bytes`` bytes together (exact where ``limits = deployed``, an upper bound elsewhere). It carries signals
about the messages ``signals_begin`` to ``expected`` - 1 that came the other way; ``expected`` is both ``signals_end``
and the entry of expected_xnet_indices (the invariant of 2.6)."""

REJECTS_SCHEMA = pa.schema(
    [
        pa.field("destination", pa.uint32(), nullable=False),
        pa.field("source", pa.uint32(), nullable=False),
        *_numbers("substream", "index"),
        pa.field("reason", pa.uint8(), nullable=False),
    ]
)
"""A REJECT signal about the message ``index`` from ``source`` to ``destination``. It is in the stream of the
destination to the source; indices that are signalled and not listed are ACCEPT."""

RUNS_SCHEMA = pa.schema(
    [
        *LANE_FIELDS,
        *_numbers("height", "tick", "first", "count", "bytes"),
        pa.field("root", pa.binary(32), nullable=False),
    ]
)
"""The messages that one round appended to one substream, as far as any is still in it: their indices, the bytes of
those that are left, and the Merkle root over all of them. A stream is thus hashed once, when it grows, and never
again."""

MISROUTED_SCHEMA = pa.schema([pa.field("chain", pa.uint32(), nullable=False), *INPUT_SCHEMA])
"""A message that ``receiver_check = off`` enqueued on ``chain`` although its receiver is hosted elsewhere (D-5): it
stays there for ever. ``index`` counts in (chain, receiver, sender)."""

STOPPED_SCHEMA = pa.schema(
    [
        pa.field("chain", pa.uint32(), nullable=False),
        *_numbers("height"),
        pa.field("cause", pa.string(), nullable=False),
    ]
)
"""A chain that violated a hard invariant in the round of ``height``, and has run none since; ``cause``: the error."""

KEPT_SLICES_SCHEMA = pa.schema(
    [
        *LANE_FIELDS,
        *_numbers("source_height", "begin", "end", "signals_end", "oldest_reject"),
        pa.field("root", pa.binary(32), nullable=False),
    ]
)
"""The header of the stream from ``source`` to ``destination`` as it was certified at ``source_height``, with the
source's root, and the oldest message that it rejected (``signals_end``: none). A carrier keeps it to offer it later (a
fault): it is no part of a subnet's state, and enters no root."""

HEADS_SCHEMA = pa.schema(
    [
        pa.field("chain", pa.uint32(), nullable=False),
        *_numbers("number", "time"),
        pa.field("previous", pa.binary(), nullable=False),
        pa.field("root", pa.binary(32), nullable=False),
        *_numbers("certified"),
        pa.field("certification", pa.binary(), nullable=False),
    ]
)
"""How far a subnet is: its own height ``number``, its batch time in nanoseconds, the root of its state and that of the
height before (empty at height 0); the last height that is ``certified``, and its ``certification`` (protobuf; empty as
long as there is none)."""

UNCERTIFIED_SCHEMA = pa.schema(
    [
        pa.field("chain", pa.uint32(), nullable=False),
        *_numbers("number"),
        pa.field("root", pa.binary(32), nullable=False),
        pa.field("height_witness", pa.binary(), nullable=False),
    ]
)
"""A height of a subnet that is not certified yet: its root, and the encoded witness of ``metadata / height``."""

OFFERS_SCHEMA = pa.schema(
    [
        *LANE_FIELDS,
        *_numbers("number", "begin", "anchor"),
        pa.field("header", pa.binary(), nullable=False),
        pa.field("siblings", pa.binary(), nullable=False),
        pa.field("messages", pa.binary(32), nullable=False),
        pa.field("path", pa.binary(), nullable=False),
        pa.field("certification", pa.binary(), nullable=False),
    ]
)
"""What an endpoint needs to serve the stream from ``source`` to ``destination`` as it was at the source's own height
``number``: the encoded header, which says where the stream began (``begin``); the digests beside the run of messages
from ``anchor`` to the end, joined; the digest of all ``messages``; the digests from the stream's up to the state's
root; and the certification, empty until there is one."""

AGREED_SCHEMA = pa.schema(
    [
        *LANE_FIELDS,
        *_numbers("executed", "begin", "end", "signals_end", "message_begin", "message_end", "number", "anchor"),
        pa.field("header", pa.binary(), nullable=False),
        pa.field("siblings", pa.binary(), nullable=False),
        pa.field("messages", pa.binary(32), nullable=False),
        pa.field("path", pa.binary(), nullable=False),
        pa.field("certification", pa.binary(), nullable=False),
        pa.field("beside", pa.binary(), nullable=False),
    ]
)
"""A slice in a payload that is agreed and not yet executed: what ``destination`` does at its own height ``executed``.
It is all that is needed to verify the slice again then: the columns of ``offers`` and of slices, and the digests of the
messages ``beside`` those of the slice that were read to check it, joined."""

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
    """Return the table of the rolling indices of queues, which belong to the program of the first key."""
    return StateTable(pa.schema(_numbers(*keys, "next_index")), keys[0], keys, programs=keys)


STATE_TABLES: Mapping[str, StateTable] = {
    "ingress_counters": _counters(INGRESS_KEYS),
    "input_counters": _counters(INPUT_KEYS),
    "output_counters": _counters(OUTPUT_KEYS),
    # Who sends is a user.
    "ingress_queues": StateTable(INPUT_SCHEMA, "receiver", (*INGRESS_KEYS, "index"), programs=("receiver",)),
    "input_queues": StateTable(INPUT_SCHEMA, "receiver", (*INPUT_KEYS, "index"), programs=PROGRAMS),
    "output_queues": StateTable(QUEUED_SCHEMA, "sender", (*OUTPUT_KEYS, "index"), programs=PROGRAMS),
    "open_calls": StateTable(OPEN_CALLS_SCHEMA, "originator", OPEN_CALLS_KEYS, programs=("originator", "respondent")),
    "in_hand": StateTable(IN_HAND_SCHEMA, "respondent", IN_HAND_KEYS, programs=("respondent", "originator")),
    "turns": StateTable(TURNS_SCHEMA, "receiver", QUEUE, programs=QUEUE),
    "next_sources": StateTable(NEXT_SOURCES_SCHEMA, "receiver", ("receiver",), programs=("receiver",)),
    "lanes": StateTable(LANES_SCHEMA, "source", LANE, chains=ENDS, shown=Visibility.DESTINATION),
    "rejects": StateTable(
        REJECTS_SCHEMA,
        "destination",
        REJECTS_ORDER,
        chains=ENDS,
        shown=Visibility.DESTINATION,
        shown_to="source",
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
"""Tables of a state by name; every program class adds one named ``program_<class>`` with a schema of its own."""

NOT_COMMITTED = ("kept_slices", "heads", "uncertified", "offers", "trimmed_runs", "agreed")
"""Tables that are no sections of a root. The root commits to the number, the time and the root before of ``heads``
all the same where it is certified (``certified_state``)."""

DENSE_CANISTERS = 1 << 24
"""Canister numbers below this are looked up in an array, larger ones by bisection."""


@dataclass(frozen=True)
class StreamTrees:
    """The trees of the messages in streams, as they were at ``version``. They are changed in place: whoever holds an
    older state must not use them."""

    forest: StreamForest
    version: int


@dataclass(frozen=True)
class State:
    """The canonical states of a set of subnets at one height, and what execution keeps beside them.

    ``ingress_queues`` by receiver; ``input_queues`` by (receiver, sender); ``output_queues`` by (sender, receiver).
    ``streams`` by lane: the counters are the table ``lanes``, the segments the table ``runs``; the messages themselves
    lie in the lake. ``open_calls``: what canisters asked and has no answer yet; ``in_hand``: what they were asked, took
    and have not answered. ``turns``, ``next_sources``: whose turn it is, where what a canister takes in a round is
    limited. ``rejects``: the REJECT signals in streams. ``misrouted`` by (chain, receiver, sender).
    ``stopped``: the subnets that violated an invariant. ``kept_slices``: what carriers keep to offer later.
    ``heads``: how far each subnet is; ``uncertified``: its heights that are not certified yet; ``offers``: what its
    endpoints serve; ``trimmed_runs``: segments that are collected, and that offers reach into.
    ``agreed``: slices of payloads that are agreed and not yet executed.
    ``certified_data``: what canisters let their subnets certify.
    ``programs`` maps the name of a program class to the frame of its canisters' state (first column ``program``).
    Two are no tables. ``hashed``: what the last roots were made of, of this state or of one that it was made from.
    ``trees``: the trees of the messages in streams, where streams are certified; None where they are to be built.
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
        """Return the rows of every table by its name. A round that does not change a table keeps the object."""
        return {
            "ingress_counters": self.ingress_queues.counters,
            "input_counters": self.input_queues.counters,
            "output_counters": self.output_queues.counters,
            "ingress_queues": self.ingress_queues.elements,
            "input_queues": self.input_queues.elements,
            "output_queues": self.output_queues.elements,
            "open_calls": self.open_calls.rows,
            "in_hand": self.in_hand,
            "turns": self.turns,
            "next_sources": self.next_sources,
            "lanes": self.streams.counters,
            "rejects": self.rejects,
            "runs": self.runs,
            "misrouted": self.misrouted.elements,
            "stopped": self.stopped,
            "kept_slices": self.kept_slices,
            "heads": self.heads,
            "uncertified": self.uncertified,
            "offers": self.offers,
            "trimmed_runs": self.trimmed_runs,
            "agreed": self.agreed,
            "accounts": self.accounts,
            "certified_data": self.certified_data,
            **{PROGRAM_TABLE + name: frame for name, frame in self.programs.items()},
        }

    @property
    def runs(self) -> Frame:
        """Return the segments of the streams (``RUNS_SCHEMA``)."""
        assert self.streams.segments is not None
        return self.streams.segments

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
        return find_positions(known, canisters) >= 0


def state_tables(program_schemas: Mapping[str, pa.Schema]) -> dict[str, StateTable]:
    """Return all tables of a state, given the schemas of the program classes in use."""
    return {**STATE_TABLES, **program_tables(program_schemas)}


def state_from_tables(frames: Mapping[str, Frame], program_schemas: Mapping[str, pa.Schema], base: int) -> State:
    """Return the state that has these tables; one that is absent is empty. ``base`` is ``index_base``."""
    found = {
        name: frames[name] if name in frames else empty_frame(table.schema)
        for name, table in state_tables(program_schemas).items()
    }
    # The counters of queues that lose nothing: what they hold tells all.
    groups = group_rows(*(found["misrouted"][key] for key in MISROUTED_KEYS))
    next_index = found["misrouted"]["index"][groups.starts + groups.counts - 1] + np.uint64(1)
    return State(
        ingress_queues=Queues(INGRESS_KEYS, found["ingress_counters"], found["ingress_queues"], base=base),
        input_queues=Queues(INPUT_KEYS, found["input_counters"], found["input_queues"], base=base),
        output_queues=Queues(OUTPUT_KEYS, found["output_counters"], found["output_queues"], base=base),
        open_calls=OpenCalls(found["open_calls"]),
        in_hand=found["in_hand"],
        turns=found["turns"],
        next_sources=found["next_sources"],
        streams=Queues(LANE, found["lanes"], _NOT_HELD, found["runs"], base, STREAM_INDICES),
        rejects=found["rejects"],
        misrouted=Queues(
            MISROUTED_KEYS,
            found["misrouted"].select(MISROUTED_KEYS).take(groups.starts).with_columns(next_index=next_index),
            found["misrouted"],
            base=base,
        ),
        stopped=found["stopped"],
        kept_slices=found["kept_slices"],
        heads=found["heads"],
        uncertified=found["uncertified"],
        offers=found["offers"],
        trimmed_runs=found["trimmed_runs"],
        agreed=found["agreed"],
        accounts=found["accounts"],
        certified_data=found["certified_data"],
        programs=program_frames(found),
    )


_NOT_HELD = empty_frame(pa.schema([*LANE_FIELDS, *_numbers("index")]))
"""The elements of streams, none of which a state holds."""


def reverse_lanes(rows: Frame) -> Frame:
    """Return the lanes the other way of ``rows``: where signals about their messages are, and what is expected."""
    return Frame({"source": rows["destination"], "destination": rows["source"], "substream": rows["substream"]})


ARRIVALS_SCHEMA = pa.schema(
    [
        pa.field("chain", pa.uint32(), nullable=False),
        *(OUTBOUND_SCHEMA.field(name) for name in [*LANE_COLUMNS, *MESSAGE_COLUMNS]),
        pa.field("via", pa.uint8(), nullable=False),
        pa.field("queue_index", pa.uint64(), nullable=False),
    ]
)
"""A push to an input queue on ``chain``: the message and its place there, by which way it came, and where it was in a
lane (``source`` and ``destination`` are ``NO_CHAIN`` when in none)."""

INGRESS_ARRIVALS_SCHEMA = pa.schema(
    [ARRIVALS_SCHEMA.field(name) for name in ["chain", *MESSAGE_COLUMNS, "queue_index"]]
)
"""A push to an ingress queue."""

ONWARD_SCHEMA = pa.schema(
    [OUTBOUND_SCHEMA.field(name) for name in ["source", *MESSAGE_COLUMNS, "queue_index", "sent_tick"]]
)
"""A message that routing appends to a stream of ``source`` whatever the limits say; ``queue_index``: where it was in an
output queue, ``NO_QUEUE`` or ``FORGED`` if in none."""


@dataclass(frozen=True)
class RoundStep:
    """``arrivals``: what was pushed to input queues (``ARRIVALS_SCHEMA``), ``ingress``: to ingress queues
    (``INGRESS_ARRIVALS_SCHEMA``); their events are written after execution, which knows what was consumed.
    ``onward``: what routing is to append to streams (``ONWARD_SCHEMA``). ``log``: the events of the step.
    """

    state: State
    log: EventLog = field(default_factory=EventLog)
    arrivals: Frame = field(default_factory=lambda: empty_frame(ARRIVALS_SCHEMA))
    ingress: Frame = field(default_factory=lambda: empty_frame(INGRESS_ARRIVALS_SCHEMA))
    onward: Frame = field(default_factory=lambda: empty_frame(ONWARD_SCHEMA))


@dataclass(frozen=True)
class HaltedStep:
    """What a round leaves of chains that do not run it."""

    state: State
    outbound: Frame
    log: EventLog
