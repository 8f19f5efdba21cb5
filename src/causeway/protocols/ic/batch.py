"""Batches: the decoded input of a round, and the messages to read for an agreed payload.

Reference:
    IC reference 2.7, 3.2.
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
from causeway.protocols.ic.state import RUNS_SCHEMA, State, reverse_lanes
from causeway.protocols.ic.streams.endpoint import SLICE_COLUMNS, expected_indexes
from causeway.protocols.ic.streams.remote_slices import WireInput
from causeway.protocols.shared.events import EventLog, event_rows
from causeway.protocols.shared.messages import LANE, LANE_COLUMNS, blank_messages, locate_ranges, payload_lengths


@dataclass(frozen=True)
class UnverifiedSlices:
    """Certified slices before verification, candidates for a payload (``certified_slices``).

    Attributes:
        candidates: The slices that carriers offer, one a lane.
        everything: The slices that endpoints serve to subnets with malicious block makers.
        older: The same at the previous height.
    """

    candidates: Frame
    everything: Frame
    older: Frame

    def without(self, chains: Chains) -> UnverifiedSlices:
        """Remove the slices to ``chains``."""
        frames = (self.candidates, self.everything, self.older)
        return UnverifiedSlices(*(frame.filter(~np.isin(frame["destination"], chains)) for frame in frames))


@dataclass(frozen=True)
class XNetPlan:
    """The meaning of a payload for a round.

    Attributes:
        slices: The accepted slices, one a lane (``SLICE_COLUMNS``). With certification, the possible ones until the
            round agrees on ``brought`` (``agreement``).
        loopback: The inducted loopback streams, one row a lane (``message_begin``, ``message_end``).
        signals: REJECT signals in the slices about messages still in our streams (``REJECTS_SCHEMA``).
        segments: After moves of canisters, the round that routed the messages (lane, ``first``, ``tick``).
        kept: The stream headers that carriers keep from now on (``KEPT_SLICES_SCHEMA``).
        wired: Slices from subnets of other lakes; None if there are none.
        brought: The unverified slices; None without certification.
    """

    slices: Frame
    loopback: Frame
    signals: Frame
    segments: Frame
    kept: Frame
    wired: WireInput | None = None
    brought: UnverifiedSlices | None = None

    def without(self, chains: Chains) -> XNetPlan:
        """Remove the inputs of ``chains``."""
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
    """The input of a round, with chains as positions.

    Attributes:
        slices: The accepted slices.
        messages: Their messages; after moves of canisters with the tick of routing (``routed``).
        loopback: The loopback streams.
        loopback_messages: Their messages, likewise.
        signals: REJECT signals in the slices about messages still in our streams.
        signalled: Own messages that headers reject, or whose size is needed, with ``reason`` (0: not rejected) and
            ``size``.
        ingress: Messages from users, with their ``chain``.
    """

    slices: Frame
    messages: Frame
    loopback: Frame
    loopback_messages: Frame
    signals: Frame
    signalled: Frame
    ingress: Frame


def decode_batch(plan: XNetPlan, offered: Frame, own: Frame, ingress: pa.Table, subnets: U64) -> DecodedBatch:
    """Decode the input of a round.

    Args:
        plan: The plan.
        offered: The messages of its slices and loopback streams.
        own: The signalled own messages.
        ingress: Messages from users.
        subnets: The numbers of the chains by position.

    Raises:
        InvariantViolation: The messages are not the gapless runs that the slices announce, although the slices were
            checked before agreement.
    """
    looped = offered["source"] == offered["destination"]
    messages, loopback_messages = offered.filter(~looped), offered.take(np.flatnonzero(looped))
    for slices, found in ((plan.slices, messages), (plan.loopback, loopback_messages)):
        if not _is_complete(slices, found):
            chains = np.union1d(slices["destination"], found["destination"])
            parts = ([rows.filter(rows["destination"] == chain) for rows in (slices, found)] for chain in chains)
            wrong = np.array([not _is_complete(*part) for part in parts])
            raise InvariantViolation("a slice's messages are not a run without gaps", chains[wrong])
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
    users = from_table(ingress)
    order = np.argsort(subnets)
    positions = order[np.searchsorted(subnets[order], users["chain"])]
    ingress_messages = blank_messages(
        len(users),
        kind=int(Kind.INGRESS),
        sender=users["sender"],
        receiver=users["receiver"],
        method=users["method"].dictionary_encode(),
        payload=users["payload"],
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
    """Remove the ingress messages ``refused``, with an event each.

    A refused message never gets a queue index; its position in its chain's payload, from 1, identifies it.
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
    """Return the tick of routing of each message; the greatest tick without a segment.

    Such messages come from other lakes, whose programs never return to a previous host.
    """
    if len(segments) == 0:
        return np.full(len(messages), U64_MAX, dtype=np.uint64)
    first, keys = encode_keys((*LANE, "first"), segments, messages.select(LANE).with_columns(first=messages["index"]))
    order = np.argsort(first, kind="stable")
    found = segments.take(order[np.searchsorted(first[order], keys, side="right") - 1])
    known = np.logical_and.reduce([found[name] == messages[name] for name in LANE])
    ticks: U64 = np.where(known, found["tick"], np.uint64(U64_MAX))
    return ticks


def _is_complete(slices: Frame, messages: Frame) -> bool:
    """Return True if the messages are exactly the ranges of the slices, each index once."""
    counts = (slices["message_end"] - slices["message_begin"]).astype(np.int64)
    total = int(counts.sum())
    if total != len(messages):
        return False
    if total == 0:
        return True
    # Rows mostly lie lane by lane: one look-up a run.
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
    kept_slices: Frame,
    events: Frame,
    context: Context,
    wanted: Frame | None = None,
) -> Plan[XNetPlan]:
    """Plan a round: the inducted messages, and the own messages to read again.

    Args:
        state: The state.
        slices: The accepted, or with certification the possible, slices.
        rejects: The REJECT signals in them.
        view: The visible state of other chains.
        kept_slices: The stream headers that carriers keep.
        events: The events of refusal.
        context: The metadata of the round.
        wanted: Disjoint ranges (lane, ``begin``, ``end``) of messages to read; None for those of the slices.
    """
    if not context.options.certified:
        slices = accepted_columns(state, slices, context)
    # The loopback streams of the state that hold messages, all of which are inducted (D-7).
    lanes = state.streams.counters
    is_loopback = (lanes["source"] == lanes["destination"]) & (lanes["next_index"] > lanes["begin"])
    if context.options.loopback != "stream":
        is_loopback &= False
    lanes = lanes.take(np.flatnonzero(is_loopback))
    loopback = lanes.select(LANE).with_columns(message_begin=lanes["begin"], message_end=lanes["next_index"])
    looped = lanes.select(LANE).with_columns(begin=lanes["begin"], end=lanes["next_index"])
    if wanted is None:
        wanted = slices.select(LANE).with_columns(begin=slices["message_begin"], end=slices["message_end"])
    runs = view.tables["runs"]
    trimmed = view.tables["trimmed_runs"]
    if len(trimmed):
        runs = concat([trimmed, runs])
    segments = _SEGMENTS
    if len(context.registry.moved):
        # The segments of the slices and of the loopback streams.
        segments = concat(
            [
                rows.select(_SEGMENTS.names).filter(lookup_rows(lanes, rows, LANE, ordered=False) >= 0)
                for lanes, rows in ((slices, runs), (loopback, state.runs))
            ]
        )
    signals = filter_own_signals(state, rejects) if len(rejects) else rejects
    # Signals about messages never sent stay in the plan; the round detects them.
    sent = signals.filter(signals["index"] < state.streams.read_counters("next_index", signals))
    own = sent.select(LANE).with_columns(begin=sent["index"], end=sent["index"] + np.uint64(1))
    if context.options.limits == "deployed":
        cut = _cut_segments(state, slices)
        # The cut ranges, at most one a lane, and the signalled messages outside them.
        row = lookup_rows(cut, own, LANE, ordered=False)
        if len(cut):
            own = own.filter((row < 0) | (own["begin"] < cut["begin"][row]) | (own["begin"] >= cut["end"][row]))
        own = concat([cut, own])
    reads = Reads(
        offered=concat([locate_ranges(wanted, runs), locate_ranges(looped, state.runs)]),
        own=locate_ranges(own, state.runs),
    )
    return Plan(reads, XNetPlan(slices, loopback, signals, segments, kept_slices), events)


def accepted_columns(state: State, slices: Frame, context: Context) -> Frame:
    """Return accepted slices with ``SLICE_COLUMNS`` only.

    A slice without messages is placed at the expected index, so that it moves nothing.
    """
    slices = slices.select(SLICE_COLUMNS)
    empty = slices["message_end"] <= slices["message_begin"]
    if not empty.any():
        return slices
    expected, _ = expected_indexes(state, (), context.options.index_base).of(slices)
    return slices.with_columns(
        message_begin=np.where(empty, expected, slices["message_begin"]),
        message_end=np.where(empty, expected, slices["message_end"]),
    )


def revisited_messages(state: State, own: Frame, slices: Frame, signals: Frame, context: Context) -> Frame:
    """Select the own messages (``own``) that accepted ``slices`` refer to.

    Messages read for another reason must not affect the state.
    """
    wanted = lookup_rows(signals, own, LANE_COLUMNS, ordered=False) >= 0
    if context.options.limits == "deployed":
        cut = _cut_segments(state, slices)
        row = lookup_rows(cut, own, LANE, ordered=False)
        if len(cut):
            wanted |= (row >= 0) & (own["index"] >= cut["begin"][row]) & (own["index"] < cut["end"][row])
    return own if wanted.all() else own.filter(wanted)


def stream_ranges(state: State) -> Frame:
    """Return the ranges of all messages in the state's streams (``RANGES_SCHEMA``)."""
    lanes = state.streams.counters
    return locate_ranges(lanes.select(LANE).with_columns(begin=lanes["begin"], end=lanes["next_index"]), state.runs)


def filter_own_signals(state: State, signals: Frame) -> Frame:
    """Select the REJECT signals about messages still in our streams."""
    row = state.streams.positions(signals)
    signals, row = signals.filter(row >= 0), row[row >= 0]
    return signals.filter(signals["index"] >= state.streams.counters["begin"][row])


def _cut_segments(state: State, slices: Frame) -> Frame:
    """Return the collected parts of partly collected segments, whose sizes are needed."""
    runs = state.runs
    row = lookup_rows(reverse_lanes(slices), runs, LANE, ordered=False)
    runs, end = runs.filter(row >= 0), slices["signals_end"][row[row >= 0]]
    begin = np.maximum(runs["first"], state.streams.read_counters("begin", runs))
    cut = (end > begin) & (end < runs["first"] + runs["count"])
    return runs.select(LANE).with_columns(begin=begin, end=end).filter(cut)
