"""What an agreed payload means for a round: which messages must be read for it."""

from __future__ import annotations

import numpy as np

from causeway.model.frame import Frame, concat, empty_frame
from causeway.model.joins import lookup
from causeway.protocols.contract import Plan, Reads, View
from causeway.protocols.ic.batch import XNetPlan
from causeway.protocols.ic.check_slice import carries
from causeway.protocols.ic.context import Context
from causeway.protocols.ic.endpoint import SLICE_COLUMNS
from causeway.protocols.ic.expected_indexes import expected_indexes
from causeway.protocols.ic.state import REJECTS_SCHEMA, RUNS_SCHEMA, State, opposite
from causeway.protocols.messages import LANE
from causeway.protocols.segments import located

_SEGMENTS = empty_frame(RUNS_SCHEMA).select([*LANE, "first", "tick"])


def make_plan(
    state: State, accepted: Frame, kept: Frame, view: View, events: Frame, context: Context
) -> Plan[XNetPlan]:
    """Return what accepted slices and loopback streams bring, and which of our messages must be seen again.

    ``kept``: what carriers keep.
    """
    slices = accepted.select(SLICE_COLUMNS)
    empty = slices["message_end"] <= slices["message_begin"]
    if empty.any():
        # A slice without messages moves nothing, wherever it says it would begin.
        here, _ = expected_indexes(state, (), context.options.index_base).of(slices)
        slices = slices.with_columns(
            message_begin=np.where(empty, here, slices["message_begin"]),
            message_end=np.where(empty, here, slices["message_end"]),
        )
    loopback = loopback_streams(state, context)
    segments = _SEGMENTS
    if len(context.registry.moved):
        segments = concat([_segments(slices, view.tables["runs"]), _segments(loopback, state.runs)])
    signals = _signals_about_ours(state, accepted, view, context)
    # One about a message that we never sent is kept, for the round to see.
    sent = signals.filter(signals["index"] < state.streams.count_of("next_index", signals))
    own = sent.select(LANE).with_columns(begin=sent["index"], end=sent["index"] + np.uint64(1))
    if context.options.limits == "deployed":
        cut = _cut_segments(state, slices)
        own = concat([cut, _outside(own, cut)])
    reads = Reads(
        offered=concat([located(_brought(slices), view.tables["runs"]), located(_brought(loopback), state.runs)]),
        own=located(own, state.runs),
    )
    return Plan(reads, XNetPlan(slices, loopback, signals, segments, kept), events)


def loopback_streams(state: State, context: Context) -> Frame:
    """Return the loopback streams of the state that hold messages, all of which are inducted (D-7)."""
    lanes = state.streams.counters
    own = (lanes["source"] == lanes["destination"]) & (lanes["next_index"] > lanes["begin"])
    if context.options.loopback != "stream":
        own &= False
    lanes = lanes.take(np.flatnonzero(own))
    return lanes.select(LANE).with_columns(message_begin=lanes["begin"], message_end=lanes["next_index"])


def _segments(lanes: Frame, runs: Frame) -> Frame:
    """Return the rounds in which what is in some lanes was put there."""
    return runs.select(_SEGMENTS.names).filter(lookup(lanes, runs, LANE, ordered=False) >= 0)


def _brought(slices: Frame) -> Frame:
    return slices.select(LANE).with_columns(begin=slices["message_begin"], end=slices["message_end"])


def _signals_about_ours(state: State, slices: Frame, view: View, context: Context) -> Frame:
    """Return the REJECT signals in the slices about messages that are still in our streams."""
    given = view.tables["rejects"]
    if len(given) == 0 or len(slices) == 0:
        return empty_frame(REJECTS_SCHEMA)
    signals = given.filter(carries(slices, given, lookup(slices, opposite(given), LANE, ordered=False), context))
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
