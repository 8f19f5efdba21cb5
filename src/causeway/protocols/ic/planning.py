"""What an agreed payload means for a round: which messages must be read for it."""

from __future__ import annotations

import numpy as np

from causeway.model.frame import Frame, concat, empty_frame
from causeway.model.joins import lookup
from causeway.protocols.contract import Plan, Reads, View
from causeway.protocols.ic.batch import XNetPlan
from causeway.protocols.ic.context import Context
from causeway.protocols.ic.endpoint import SLICE_COLUMNS
from causeway.protocols.ic.expected_indexes import expected_indexes
from causeway.protocols.ic.state import REJECTS_SCHEMA, RUNS_SCHEMA, State, opposite
from causeway.protocols.messages import LANE, LANE_COLUMNS
from causeway.protocols.segments import located

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
        slices = brought(state, slices, context)
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
    signals = signals_about_ours(state, rejects)
    # One about a message that we never sent is kept, for the round to see.
    sent = signals.filter(signals["index"] < state.streams.count_of("next_index", signals))
    own = sent.select(LANE).with_columns(begin=sent["index"], end=sent["index"] + np.uint64(1))
    if context.options.limits == "deployed":
        cut = _cut_segments(state, slices)
        own = concat([cut, _outside(own, cut)])
    reads = Reads(
        offered=concat(
            [located(_brought(slices) if wanted is None else wanted, runs), located(_brought(loopback), state.runs)]
        ),
        own=located(own, state.runs),
    )
    return Plan(reads, XNetPlan(slices, loopback, signals, segments, kept), events)


def brought(state: State, slices: Frame, context: Context) -> Frame:
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


def seen_again(state: State, own: Frame, slices: Frame, signals: Frame, context: Context) -> Frame:
    """Return those of our messages (``own``, in streams) that accepted ``slices`` make a round look at, and no others:
    what was read for another reason leaves no trace in a state."""
    wanted = lookup(signals, own, LANE_COLUMNS, ordered=False) >= 0
    if context.options.limits == "deployed":
        cut = _cut_segments(state, slices)
        row = lookup(cut, own, LANE, ordered=False)
        if len(cut):
            wanted |= (row >= 0) & (own["index"] >= cut["begin"][row]) & (own["index"] < cut["end"][row])
    return own if wanted.all() else own.filter(wanted)


def held(state: State) -> Frame:
    """Return all messages in the streams of the state's subnets (``RANGES_SCHEMA``)."""
    lanes = state.streams.counters
    return located(lanes.select(LANE).with_columns(begin=lanes["begin"], end=lanes["next_index"]), state.runs)


def _segments(lanes: Frame, runs: Frame) -> Frame:
    """Return the rounds in which what is in some lanes was put there."""
    return runs.select(_SEGMENTS.names).filter(lookup(lanes, runs, LANE, ordered=False) >= 0)


def _brought(slices: Frame) -> Frame:
    return slices.select(LANE).with_columns(begin=slices["message_begin"], end=slices["message_end"])


def signals_about_ours(state: State, signals: Frame) -> Frame:
    """Return the REJECT signals in slices that are about messages that are still in our streams."""
    if len(signals) == 0:
        return empty_frame(REJECTS_SCHEMA)
    row = state.streams.positions(signals)
    signals, row = signals.filter(row >= 0), row[row >= 0]
    return signals.filter(signals["index"] >= state.streams.counters["begin"][row])


def _cut_segments(state: State, slices: Frame) -> Frame:
    """Return the collected parts of segments that are not collected whole: their sizes are needed."""
    runs = state.runs
    row = lookup(opposite(slices), runs, LANE, ordered=False)
    runs, end = runs.filter(row >= 0), slices["signals_end"][row[row >= 0]]
    begin = np.maximum(runs["first"], state.streams.count_of("begin", runs))
    cut = (end > begin) & (end < runs["first"] + runs["count"])
    return runs.select(LANE).with_columns(begin=begin, end=end).filter(cut)


def _outside(ranges: Frame, cut: Frame) -> Frame:
    """Return the one-message ``ranges`` that no range of ``cut`` (at most one a lane) covers."""
    row = lookup(cut, ranges, LANE, ordered=False)
    if len(cut) == 0:
        return ranges
    inside = (row >= 0) & (ranges["begin"] >= cut["begin"][row]) & (ranges["begin"] < cut["end"][row])
    return ranges.filter(~inside)
