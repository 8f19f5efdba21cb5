"""A batch: what a round takes in, once it is agreed, and its decoding (IC reference 2.7, 3.2).

What an agreed payload means for a round: which messages must be read for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.errors import InvariantViolation
from causeway_proofs.order import U64, group_rows, stable_order

from causeway.config.section import U64_MAX
from causeway.core.frame import Frame, concat, empty_frame, from_table
from causeway.core.joins import encode_keys, lookup_rows
from causeway.core.vocabulary import Event, Kind, Via
from causeway.protocols.contract import Chains, Plan, Reads, View
from causeway.protocols.ic.messages import MESSAGE_OVERHEAD
from causeway.protocols.ic.registry import Context
from causeway.protocols.ic.state import REJECTS_SCHEMA, RUNS_SCHEMA, State, reverse_lanes
from causeway.protocols.ic.streams.endpoint import SLICE_COLUMNS, expected_indexes
from causeway.protocols.ic.streams.remote_slices import WireInput
from causeway.protocols.shared.events import EventLog, event_rows
from causeway.protocols.shared.messages import LANE, LANE_COLUMNS, blank_messages, locate_ranges, payload_lengths


@dataclass(frozen=True)
class UnverifiedSlices:
    """Certified slices that were brought, not verified yet, of which a payload is built (``certified_slices``).

    ``candidates``: what carriers offer, one row a lane. ``everything``, ``older``: what endpoints serve, now and of the
    height before, to the subnets with block makers that propose something else; none to all others.
    """

    candidates: Frame
    everything: Frame
    older: Frame

    def without(self, chains: Chains) -> UnverifiedSlices:
        """Return what was not brought to ``chains``."""
        frames = (self.candidates, self.everything, self.older)
        return UnverifiedSlices(*(frame.filter(~np.isin(frame["destination"], chains)) for frame in frames))


@dataclass(frozen=True)
class XNetPlan:
    """What an agreed payload means for a round.

    ``slices``: the accepted slices, one row a lane (``SLICE_COLUMNS``); where they are certified those that may be
    taken, until the round has agreed on ``brought`` (``agreement``).
    ``loopback``: the loopback streams that are inducted, one row a lane (``message_begin``, ``message_end``).
    ``signals``: the REJECT signals in the slices that are about messages still in our streams (``REJECTS_SCHEMA``).
    ``segments``: where canisters have moved, in which round the messages of both were routed (lane, ``first``,
    ``tick``). ``kept``: what carriers keep from now on (``KEPT_SLICES_SCHEMA``). ``wired``: what other lakes' subnets
    brought, None without any.
    """

    slices: Frame
    loopback: Frame
    signals: Frame
    segments: Frame
    kept: Frame
    wired: WireInput | None = None
    brought: UnverifiedSlices | None = None

    def without(self, chains: Chains) -> XNetPlan:
        """Return the plan without what ``chains`` would take."""
        slices, loopback, signals = self.slices, self.loopback, self.signals
        return replace(
            self,
            slices=slices.filter(~np.isin(slices["destination"], chains)),
            loopback=loopback.filter(~np.isin(loopback["source"], chains)),
            signals=signals.filter(~np.isin(signals["source"], chains)),
            brought=None if self.brought is None else self.brought.without(chains),
        )


@dataclass(frozen=True)
class DecodedBatch:
    """The input of a round, chains as positions.

    ``slices``, ``messages``: the accepted slices and their messages; ``loopback``, ``loopback_messages``: the loopback
    streams and theirs; both as they were sent, and where canisters have moved with the tick in which they were
    ``routed``. ``signals``: the REJECT signals in the slices about messages still in our streams; ``signalled``: our
    own messages that headers reject, or whose sizes the streams need, with ``reason`` (0: not rejected) and ``size``.
    ``ingress``: messages from users, with their ``chain``.
    """

    slices: Frame
    messages: Frame
    loopback: Frame
    loopback_messages: Frame
    signals: Frame
    signalled: Frame
    ingress: Frame


def decode_batch(plan: XNetPlan, offered: Frame, own: Frame, ingress: pa.Table, subnets: U64) -> DecodedBatch:
    """Return what a round takes in; ``subnets`` gives the numbers of the chains by position.

    ``offered``: the messages of the plan's slices and loopback streams, ``own``: of those that are signalled. Raises
    ``InvariantViolation`` unless the messages are the runs without gaps that the slices announce: they were checked
    before agreement.
    """
    looped = offered["source"] == offered["destination"]
    messages, loopback_messages = offered.filter(~looped), offered.take(np.flatnonzero(looped))
    _ensure_complete(plan.slices, messages)
    _ensure_complete(plan.loopback, loopback_messages)
    if len(plan.segments):
        messages, loopback_messages = (
            rows.with_columns(routed=_routed(rows, plan.segments)) for rows in (messages, loopback_messages)
        )
    # Our own messages with the `reason` of their REJECT signal (0 without one) and their `size`.
    reason = np.zeros(len(own), dtype=np.uint8)
    if len(plan.signals) and len(own):
        rows = lookup_rows(plan.signals, own, LANE_COLUMNS, ordered=False)
        reason[rows >= 0] = plan.signals["reason"][rows[rows >= 0]]
    # The ingress rows as messages (`MESSAGE_COLUMNS`) with the position of their `chain`.
    entered = from_table(ingress)
    order = np.argsort(subnets)
    positions = order[np.searchsorted(subnets[order], entered["chain"])]
    ingress_messages = blank_messages(
        len(entered),
        kind=int(Kind.INGRESS),
        sender=entered["sender"],
        receiver=entered["receiver"],
        method=entered["method"].dictionary_encode(),
        payload=entered["payload"],
        chain=positions.astype(np.uint32),
    )
    return DecodedBatch(
        plan.slices,
        messages,
        plan.loopback,
        loopback_messages,
        plan.signals,
        own.with_columns(reason=reason, size=payload_lengths(own) + np.uint64(MESSAGE_OVERHEAD)),
        ingress_messages,
    )


def refuse_ingress(ingress: Frame, refused: npt.NDArray[np.bool_], code: int, reason: str, log: EventLog) -> Frame:
    """Return the ingress messages without those ``refused``, each of which leaves an event.

    It never gets an index in a queue, so its identity is its position in the payload of its chain, from 1.
    """
    if not refused.any():
        return ingress
    order = stable_order(ingress["chain"])
    positions = np.empty(len(ingress), dtype=np.uint64)
    positions[order] = group_rows(ingress["chain"][order]).ranks() + 1
    rows = ingress.filter(refused).with_columns(callback=positions[refused])
    at = {"chain": rows["chain"], "index": positions[refused], "via": Via.INGRESS}
    log.add(event_rows(rows, Event.REJECTED, code=code, reason=reason, **at))
    return ingress.filter(~refused)


def _routed(messages: Frame, segments: Frame) -> U64:
    """Return the tick in which each message was put into its lane, the last there is where no segment is known: what
    came from another lake, whose programs do not come back to where they were."""
    if len(segments) == 0:
        return np.full(len(messages), U64_MAX, dtype=np.uint64)
    first, asked = encode_keys((*LANE, "first"), segments, messages.select(LANE).with_columns(first=messages["index"]))
    order = np.argsort(first, kind="stable")
    found = segments.take(order[np.searchsorted(first[order], asked, side="right") - 1])
    known = np.logical_and.reduce([found[name] == messages[name] for name in LANE])
    ticks: U64 = np.where(known, found["tick"], np.uint64(U64_MAX))
    return ticks


def _ensure_complete(slices: Frame, messages: Frame) -> None:
    """Raise ``InvariantViolation`` unless the messages are exactly the ranges of the slices, each index once."""
    if _is_complete(slices, messages):
        return
    chains = np.union1d(slices["destination"], messages["destination"])
    parts = ([rows.filter(rows["destination"] == chain) for rows in (slices, messages)] for chain in chains)
    wrong = np.array([not _is_complete(*part) for part in parts])
    raise InvariantViolation("a slice's messages are not a run without gaps", chains[wrong])


def _is_complete(slices: Frame, messages: Frame) -> bool:
    """Return whether the messages are exactly the ranges of the slices, each index once."""
    counts = (slices["message_end"] - slices["message_begin"]).astype(np.int64)
    total = int(counts.sum())
    if total != len(messages):
        return False
    if total == 0:
        return True
    # What was read mostly lies lane by lane: one look-up a run of rows of one lane.
    runs = group_rows(*(messages[name] for name in LANE))
    found = lookup_rows(slices, messages.select(LANE).take(runs.starts), LANE, ordered=False)
    if bool((found >= 0).all()):
        rows = runs.spread(found)
        begin = slices["message_begin"][rows]
        inside = (messages["index"] >= begin) & (messages["index"] < slices["message_end"][rows])
        if bool(inside.all()):
            position = (np.cumsum(counts) - counts)[rows] + (messages["index"] - begin).astype(np.int64)
            seen = np.zeros(total, dtype=bool)
            seen[position] = True
            return bool(seen.all())
    return False


_SEGMENTS = empty_frame(RUNS_SCHEMA).select([*LANE, "first", "tick"])


def make_plan(
    state: State,
    slices: Frame,
    rejects: Frame,
    view: View,
    kept: Frame,
    events: Frame,
    context: Context,
    wanted: Frame | None = None,
) -> Plan[XNetPlan]:
    """Return what slices and loopback streams bring, and which of our messages must be seen again.

    ``slices``: those that are accepted, or that may be. ``rejects``: the REJECT signals in them. ``kept``: what
    carriers keep. ``wanted``: the messages of others that are read (lane, ``begin``, ``end``; none twice), if not those
    that the slices bring.
    """
    if not context.options.certified:
        slices = accepted_columns(state, slices, context)
    # The loopback streams of the state that hold messages, all of which are inducted (D-7).
    lanes = state.streams.counters
    streams_own = (lanes["source"] == lanes["destination"]) & (lanes["next_index"] > lanes["begin"])
    if context.options.loopback != "stream":
        streams_own &= False
    lanes = lanes.take(np.flatnonzero(streams_own))
    loopback = lanes.select(LANE).with_columns(message_begin=lanes["begin"], message_end=lanes["next_index"])
    runs = view.tables["runs"]
    trimmed = view.tables["trimmed_runs"]
    if len(trimmed):
        runs = concat([trimmed, runs])
    segments = _SEGMENTS
    if len(context.registry.moved):
        segments = concat([_segments(slices, runs), _segments(loopback, state.runs)])
    signals = filter_own_signals(state, rejects)
    # One about a message that we never sent is kept, for the round to see.
    sent = signals.filter(signals["index"] < state.streams.read_counters("next_index", signals))
    own = sent.select(LANE).with_columns(begin=sent["index"], end=sent["index"] + np.uint64(1))
    if context.options.limits == "deployed":
        cut = _cut_segments(state, slices)
        own = concat([cut, _outside(own, cut)])
    reads = Reads(
        offered=concat(
            [
                locate_ranges(_brought(slices) if wanted is None else wanted, runs),
                locate_ranges(_brought(loopback), state.runs),
            ]
        ),
        own=locate_ranges(own, state.runs),
    )
    return Plan(reads, XNetPlan(slices, loopback, signals, segments, kept), events)


def accepted_columns(state: State, slices: Frame, context: Context) -> Frame:
    """Return accepted slices as a round takes them (``SLICE_COLUMNS``): one without messages moves nothing, wherever it
    says it would begin."""
    slices = slices.select(SLICE_COLUMNS)
    empty = slices["message_end"] <= slices["message_begin"]
    if not empty.any():
        return slices
    here, _ = expected_indexes(state, (), context.options.index_base).of(slices)
    return slices.with_columns(
        message_begin=np.where(empty, here, slices["message_begin"]),
        message_end=np.where(empty, here, slices["message_end"]),
    )


def revisited_messages(state: State, own: Frame, slices: Frame, signals: Frame, context: Context) -> Frame:
    """Return those of our messages (``own``, in streams) that accepted ``slices`` make a round look at, and no others:
    what was read for another reason leaves no trace in a state."""
    wanted = lookup_rows(signals, own, LANE_COLUMNS, ordered=False) >= 0
    if context.options.limits == "deployed":
        cut = _cut_segments(state, slices)
        row = lookup_rows(cut, own, LANE, ordered=False)
        if len(cut):
            wanted |= (row >= 0) & (own["index"] >= cut["begin"][row]) & (own["index"] < cut["end"][row])
    return own if wanted.all() else own.filter(wanted)


def stream_ranges(state: State) -> Frame:
    """Return all messages in the streams of the state's subnets (``RANGES_SCHEMA``)."""
    lanes = state.streams.counters
    return locate_ranges(lanes.select(LANE).with_columns(begin=lanes["begin"], end=lanes["next_index"]), state.runs)


def _segments(lanes: Frame, runs: Frame) -> Frame:
    """Return the rounds in which what is in some lanes was put there."""
    return runs.select(_SEGMENTS.names).filter(lookup_rows(lanes, runs, LANE, ordered=False) >= 0)


def _brought(slices: Frame) -> Frame:
    return slices.select(LANE).with_columns(begin=slices["message_begin"], end=slices["message_end"])


def filter_own_signals(state: State, signals: Frame) -> Frame:
    """Return the REJECT signals in slices that are about messages that are still in our streams."""
    if len(signals) == 0:
        return empty_frame(REJECTS_SCHEMA)
    row = state.streams.positions(signals)
    signals, row = signals.filter(row >= 0), row[row >= 0]
    return signals.filter(signals["index"] >= state.streams.counters["begin"][row])


def _cut_segments(state: State, slices: Frame) -> Frame:
    """Return the collected parts of segments that are not collected whole: their sizes are needed."""
    runs = state.runs
    row = lookup_rows(reverse_lanes(slices), runs, LANE, ordered=False)
    runs, end = runs.filter(row >= 0), slices["signals_end"][row[row >= 0]]
    begin = np.maximum(runs["first"], state.streams.read_counters("begin", runs))
    cut = (end > begin) & (end < runs["first"] + runs["count"])
    return runs.select(LANE).with_columns(begin=begin, end=end).filter(cut)


def _outside(ranges: Frame, cut: Frame) -> Frame:
    """Return the one-message ``ranges`` that no range of ``cut`` (at most one a lane) covers."""
    row = lookup_rows(cut, ranges, LANE, ordered=False)
    if len(cut) == 0:
        return ranges
    inside = (row >= 0) & (ranges["begin"] >= cut["begin"][row]) & (ranges["begin"] < cut["end"][row])
    return ranges.filter(~inside)
