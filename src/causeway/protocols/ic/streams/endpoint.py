"""XNetEndpoint: the slices that a subnet serves, ``get_stream``, and expected indexes.

See IC reference 3.10.

A slice is one row a substream of the stream from ``source`` to ``destination``: the header (``begin``, ``end``,
``signals_end``), the messages ``message_begin`` to ``message_end`` - 1, and the source's height and state root.

A subnet's expected indexes follow from its state and its pending payloads (IC reference 3.7). Slices of past payloads
need the lane, ``message_begin``, ``message_end`` and ``signals_end``.

``msg_limit`` is the maximum number of messages of a slice (IC reference 3.9 (9), X-5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from causeway_proofs.errors import CausewayError
from causeway_proofs.order import U64, Groups, group_rows, stable_order

from causeway.core.frame import Frame, concat
from causeway.core.joins import lookup_rows
from causeway.core.queues import MAX_INDEX
from causeway.protocols.contract import Chains, View
from causeway.protocols.ic.options import IcOptions
from causeway.protocols.ic.registry import Context, Registry
from causeway.protocols.ic.state import State, reverse_lanes
from causeway.protocols.shared.messages import LANE


class ContradictoryIndices(CausewayError):
    """Payloads and state expect different indices: a payload is outdated, or missing.

    ``chains`` holds the positions of the affected subnets.
    """

    def __init__(self, text: str, chains: Chains) -> None:
        super().__init__(text)
        self.chains = chains


@dataclass(frozen=True)
class ExpectedIndexes:
    """The expected message index (``index``) and the expected signal (``signal``) of lanes.

    Other lanes expect the base.

    Attributes:
        lanes: Rows ascending by the lane of the expected messages.
        base: The first index of streams.
        own: The own streams at the reference height, as in the table ``lanes``.
    """

    lanes: Frame
    base: int
    own: Frame

    def message_counts(self, slices: Frame) -> U64:
        """Return the number of messages, over all substreams, in our stream to each slice's source."""
        streams = group_rows(self.own["source"], self.own["destination"])
        ends = self.own.select(["source", "destination"]).take(streams.starts)
        back = Frame({"source": slices["destination"], "destination": slices["source"]}, len(slices))
        rows = lookup_rows(ends, back, ("source", "destination"))
        counts = self.own["next_index"] - self.own["begin"]
        total = np.add.reduceat(counts, streams.starts) if len(streams) else counts
        return np.where(rows >= 0, np.append(total, np.uint64(0))[rows], np.uint64(0))

    def of(self, slices: Frame) -> tuple[U64, U64]:
        """Return the expected message index (``m0``) and signal (``s0``) of each slice's lane."""
        lanes = self.lanes
        if len(lanes) == 0:
            start: U64 = np.full(len(slices), self.base, dtype=np.uint64)
            return start, start
        rows = lookup_rows(lanes, slices, LANE)
        index = np.where(rows >= 0, lanes["index"][rows], np.uint64(self.base))
        return index, np.where(rows >= 0, lanes["signal"][rows], np.uint64(self.base))


def slice_indexes(slices: Frame) -> Frame:
    """Return ``{ i + 1 | i in max(indices of the messages in slices) }``, by lane.

    Each lane with messages has one ``index``.
    """
    some = slices.filter(slices["message_end"] > slices["message_begin"])
    some = some.take(stable_order(*(some[name] for name in LANE)))
    groups = group_rows(*(some[name] for name in LANE))
    index = np.maximum.reduceat(some["message_end"], groups.starts) if len(some) else np.empty(0, dtype=np.uint64)
    return some.select(LANE).take(groups.starts).with_columns(index=index)


def state_and_payload_indexes(expected: Frame, slices: Frame, base: int) -> Frame:
    """Merge the expected indices of the state with those of payloads, by lane.

    The result is ``(expected minus the indices of messages in slices) or slice_indexes(slices)``.

    Args:
        expected: One ``index`` a lane; the base stands for none.
        slices: Slices, possibly several of one lane (D-9).
        base: The first index of streams.

    Raises:
        ContradictoryIndices: Two indices remain for one lane.
    """
    of_state = expected.filter(expected["index"] > np.uint64(base))
    of_slices = slice_indexes(slices)
    rows = lookup_rows(of_slices, of_state, LANE)
    matched = np.flatnonzero(rows >= 0)
    differ = matched[of_slices["index"][rows[matched]] != of_state["index"][matched]]
    wrong = differ[~_covered(of_state.take(differ), slices)]
    if len(wrong):
        row = int(wrong[0])
        names = ", ".join(f"{name} {of_state[name][row]}" for name in LANE)
        one, other = of_state["index"][row], of_slices["index"][rows[row]]
        chains = np.unique(of_state["destination"][wrong])
        raise ContradictoryIndices(f"{names}: the state expects {one}, after the payloads it is {other}", chains)
    is_unmatched = np.ones(len(of_state), dtype=bool)
    is_unmatched[matched] = False
    joined = concat([of_state.filter(is_unmatched).select([*LANE, "index"]), of_slices])
    return joined.take(stable_order(*(joined[name] for name in LANE)))


def expected_indexes(state: State, past_payloads: Sequence[Frame], base: int) -> ExpectedIndexes:
    """Return the expected indexes of subnets after past payloads, ascending by height.

    The expected signal is that of the lane's newest past slice, else the begin of our stream.

    Raises:
        ContradictoryIndices: State and payloads contradict each other.
    """
    lanes = state.streams.counters
    own = reverse_lanes(lanes).with_columns(index=lanes["expected"], signal=lanes["begin"])
    own = own.take(stable_order(*(own[name] for name in LANE)))
    past = [payload for payload in past_payloads if len(payload)]
    if not past:
        return ExpectedIndexes(own, base, lanes)
    columns = [*LANE, "message_begin", "message_end", "signals_end"]
    slices = concat([payload.select(columns) for payload in past])
    indexes = state_and_payload_indexes(own.select([*LANE, "index"]), slices, base)
    known = concat([own.select(LANE), slices.select(LANE)])
    known = known.take(stable_order(*(known[name] for name in LANE)))
    known = known.take(group_rows(*(known[name] for name in LANE)).starts)
    index, _ = ExpectedIndexes(indexes.with_columns(signal=indexes["index"]), base, lanes).of(known)
    _, signal = ExpectedIndexes(own, base, lanes).of(known)
    signal = signal.copy()
    for payload in past:
        signal[lookup_rows(known, payload, LANE)] = payload["signals_end"]
    return ExpectedIndexes(known.with_columns(index=index, signal=signal), base, lanes)


def _covered(lanes: Frame, slices: Frame) -> np.ndarray:
    """Return a mask of the lanes (few) whose ``index`` is that of a message in ``slices``."""
    found = np.zeros(len(lanes), dtype=bool)
    for row in range(len(lanes)):
        is_inside = slices["message_begin"] <= lanes["index"][row]
        is_inside &= lanes["index"][row] < slices["message_end"]
        for name in LANE:
            is_inside &= slices[name] == lanes[name][row]
        found[row] = is_inside.any()
    return found


def message_limits(slices: Frame, expected_of: ExpectedIndexes, context: Context) -> U64:
    """Return the maximum number of messages of each slice (see ``most_messages``)."""
    pending = (
        expected_of.message_counts(slices) if context.registry.system.any() else np.zeros(len(slices), dtype=np.uint64)
    )
    return most_messages(slices["destination"], slices["source"], pending, context.options, context.registry)


def most_messages(own: Chains, peer: Chains, pending: U64, options: IcOptions, registry: Registry) -> U64:
    """Return the maximum number of messages that subnets accept at a time.

    It is ``MAX_INDEX`` if there is no limit.

    System subnets accept few: the NNS from all subnets, others from subnets that are none. The limit falls with the
    number of their own pending messages to the peer.

    Args:
        own: Positions of the accepting subnets.
        peer: Positions of the sending subnets.
        pending: The number of messages in the stream from ``own`` to ``peer``.
        options: The protocol options.
        registry: The registry.
    """
    limit, none = options.limit, np.uint64(MAX_INDEX)
    if options.limits != "deployed":
        return np.full(len(own), none, dtype=np.uint64)
    found = np.full(len(own), limit.slice_messages or none, dtype=np.uint64)
    if not registry.system.any():
        return found
    known = peer < len(registry.system)
    system_peer = known & registry.system[np.where(known, peer, 0)]
    few = registry.nns[own] | (registry.system[own] & ~system_peer)
    most = np.uint64(limit.system_slice_messages)
    return np.where(few, np.minimum(found, most - np.minimum(pending, most)), found)


SLICE_COLUMNS = [*LANE, "begin", "end", "signals_end", "message_begin", "message_end"]


def get_streams(expected_of: ExpectedIndexes, view: View, context: Context) -> Frame:
    """Return the slices that all endpoints serve to ``context.chains`` (``get_stream``).

    One row a substream: from the expected index on, within the limits.
    """
    return cut_slices(certified_streams(view, context.chains, context.height - 1), expected_of, context)


def certified_streams(view: View, chains: Chains, height: int) -> Frame:
    """Return the headers of all streams to ``chains`` visible at the certifying ``height``."""
    lanes = view.tables["lanes"]
    lanes = lanes.filter(np.isin(lanes["destination"], chains) & (lanes["source"] != lanes["destination"]))
    at = Frame({"chain": lanes["source"]}).with_columns(height=np.uint64(height))
    certified = lookup_rows(view.headers, at, ("chain", "height"))
    lanes, certified = lanes.filter(certified >= 0), certified[certified >= 0]
    return lanes.select(LANE).with_columns(
        begin=lanes["begin"],
        end=lanes["next_index"],
        signals_end=lanes["expected"],
        source_height=at["height"][: len(lanes)],
        root=view.headers["root"][certified],
    )


def cut_slices(streams: Frame, expected_of: ExpectedIndexes, context: Context) -> Frame:
    """Return the slices of ``streams`` from the expected index on, within limits.

    The streams are those of ``certified_streams``.
    """
    begin, end = streams["begin"], streams["end"]
    expected, _ = expected_of.of(streams)
    stop = np.maximum(end, expected)
    if context.options.limits == "deployed":
        # Subtract instead of adding: near 2**64 a sum would wrap.
        limit = context.options.limit
        stop = np.minimum(stop, begin + np.minimum(end - begin, np.uint64(limit.max_signals)))
        stop = np.maximum(stop, expected)
        stop = expected + np.minimum(stop - expected, message_limits(streams, expected_of, context))
    return streams.with_columns(message_begin=expected, message_end=stop)


def slice_groups(slices: Frame, options: IcOptions) -> Groups:
    """Return the rows of each slice.

    A certified slice shows one substream, with its own witness. Without certification a slice has all substreams of its
    stream.
    """
    ends = slices["destination"], slices["source"]
    return group_rows(*ends, slices["substream"]) if options.certified else group_rows(*ends)


def filter_new(expected_of: ExpectedIndexes, slices: Frame, context: Context) -> Frame:
    """Select the slices with messages or signals new to their destination.

    They ascend by (destination, source, substream).

    Sources are the subnets of the previous registry version (3.8 (3)), so slices may be in flight when a subnet is
    removed.
    """
    was_member = context.before.has(slices["source"])
    slices = slices if was_member.all() else slices.filter(was_member)
    if len(slices) == 0:
        return slices
    slices = sort_by_stream(slices)
    _, signal = expected_of.of(slices)
    news = (slices["message_end"] > slices["message_begin"]) | (slices["signals_end"] != signal)
    groups = slice_groups(slices, context.options)
    return slices.filter(groups.spread(np.maximum.reduceat(news, groups.starts)))


def sort_by_stream(slices: Frame) -> Frame:
    """Sort slices in payload order: by (destination, source, substream)."""
    return slices.take(stable_order(slices["destination"], slices["source"], slices["substream"]))
