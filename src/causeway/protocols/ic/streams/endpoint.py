"""XNetEndpoint: what a subnet serves of its streams, ``get_stream`` (IC reference 3.10).

A slice is one row a substream of the stream from ``source`` to ``destination``: the header (``begin``, ``end``,
``signals_end``), the messages ``message_begin`` to ``message_end`` - 1, and the source's height and state root.

What a subnet expects of every stream to it: its state, moved on by payloads that are agreed and not yet executed
(IC reference 3.7).

Slices are rows as in ``endpoint``; those of past payloads need the lane, ``message_begin``, ``message_end`` and
``signals_end``.

``msg_limit``: how many messages a slice may bring (IC reference 3.9 (9), X-5).
"""

from __future__ import annotations

from collections.abc import Sequence

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
    """Payloads and state expect different indices of one substream: one is older than the state, or is missing.

    ``chains``: positions of the subnets of which this is so.
    """

    def __init__(self, text: str, chains: Chains) -> None:
        super().__init__(text)
        self.chains = chains


class ExpectedIndexes:
    """The expected message index (``index``) and the expected signal (``signal``) of lanes; the base for all others.

    ``lanes``: rows in ascending order of the lane by which the messages come. ``own``: our own streams at the
    reference height, as in the table ``lanes``.
    """

    def __init__(self, lanes: Frame, base: int, own: Frame) -> None:
        self.lanes = lanes
        self._base = np.uint64(base)
        self._own = own

    def held(self, slices: Frame) -> U64:
        """Return, for each slice, how many messages our stream to its source holds, all substreams together."""
        streams = group_rows(self._own["source"], self._own["destination"])
        ends = self._own.select(["source", "destination"]).take(streams.starts)
        back = Frame({"source": slices["destination"], "destination": slices["source"]}, len(slices))
        rows = lookup_rows(ends, back, ("source", "destination"))
        counts = self._own["next_index"] - self._own["begin"]
        total = np.add.reduceat(counts, streams.starts) if len(streams) else counts
        return np.where(rows >= 0, np.append(total, np.uint64(0))[rows], np.uint64(0))

    def of(self, slices: Frame) -> tuple[U64, U64]:
        """Return, for each slice, the expected message index (``m0``) and the expected signal (``s0``) of its lane."""
        lanes = self.lanes
        if len(lanes) == 0:
            start: U64 = np.full(len(slices), self._base, dtype=np.uint64)
            return start, start
        rows = lookup_rows(lanes, slices, LANE)
        index = np.where(rows >= 0, lanes["index"][rows], self._base)
        return index, np.where(rows >= 0, lanes["signal"][rows], self._base)


def slice_indexes(slices: Frame) -> Frame:
    """Return ``{ i + 1 | i in max(indices of the messages in slices) }``: one ``index`` a lane that has messages."""
    some = slices.filter(slices["message_end"] > slices["message_begin"])
    some = some.take(stable_order(*(some[name] for name in LANE)))
    groups = group_rows(*(some[name] for name in LANE))
    index = np.maximum.reduceat(some["message_end"], groups.starts) if len(some) else np.empty(0, dtype=np.uint64)
    return some.select(LANE).take(groups.starts).with_columns(index=index)


def state_and_payload_indexes(expected: Frame, slices: Frame, base: int) -> Frame:
    """Return ``(expected minus the indices of messages in slices) or slice_indexes(slices)``, by lane.

    ``expected``: one ``index`` a lane; one at the base stands for none. ``slices`` may hold several of one lane (D-9).
    Raises ``ContradictoryIndices`` where two indices are left for one lane.
    """
    kept = expected.filter(expected["index"] > np.uint64(base))
    made = slice_indexes(slices)
    rows = lookup_rows(made, kept, LANE)
    met = np.flatnonzero(rows >= 0)
    differ = met[made["index"][rows[met]] != kept["index"][met]]
    wrong = differ[~_covered(kept.take(differ), slices)]
    if len(wrong):
        row = int(wrong[0])
        names = ", ".join(f"{name} {kept[name][row]}" for name in LANE)
        one, other = kept["index"][row], made["index"][rows[row]]
        chains = np.unique(kept["destination"][wrong])
        raise ContradictoryIndices(f"{names}: the state expects {one}, after the payloads it is {other}", chains)
    alone = np.ones(len(kept), dtype=bool)
    alone[met] = False
    joined = concat([kept.filter(alone).select([*LANE, "index"]), made])
    return joined.take(stable_order(*(joined[name] for name in LANE)))


def expected_indexes(state: State, past_payloads: Sequence[Frame], base: int) -> ExpectedIndexes:
    """Return what the subnets of ``state`` expect after ``past_payloads``, which are in order of height.

    The expected signal is that of the newest past slice of the lane, else where our stream begins. Raises
    ``ContradictoryIndices``.
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
    """Return whether the ``index`` of each lane is that of a message in ``slices``; meant for few lanes."""
    found = np.zeros(len(lanes), dtype=bool)
    for row in range(len(lanes)):
        here = slices["message_begin"] <= lanes["index"][row]
        here &= lanes["index"][row] < slices["message_end"]
        for name in LANE:
            here &= slices[name] == lanes[name][row]
        found[row] = here.any()
    return found


def message_limits(slices: Frame, expected_of: ExpectedIndexes, context: Context) -> U64:
    """Return the most messages that each slice may bring (``most_messages``)."""
    held = expected_of.held(slices) if context.registry.system.any() else np.zeros(len(slices), dtype=np.uint64)
    return most_messages(slices["destination"], slices["source"], held, context.options, context.registry)


def most_messages(own: Chains, peer: Chains, held: U64, options: IcOptions, registry: Registry) -> U64:
    """Return the most messages that subnets may take at a time; ``MAX_INDEX`` where there is no limit.

    ``own``: their positions, ``peer``: of the subnets that the messages are from, ``held``: how many messages the
    stream of the former to the latter has. System subnets take few: the NNS from everybody, others from who is none,
    and the fewer the more of their own messages wait for the other side.
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
    return np.where(few, np.minimum(found, most - np.minimum(held, most)), found)


SLICE_COLUMNS = [*LANE, "begin", "end", "signals_end", "message_begin", "message_end"]


def get_streams(expected_of: ExpectedIndexes, view: View, context: Context) -> Frame:
    """Return what ``get_stream`` of all endpoints serves to ``context.chains``.

    One row a substream: from the expected index on, within the limits.
    """
    return cut_slices(certified_streams(view, context.chains, context.height - 1), expected_of, context)


def certified_streams(view: View, chains: Chains, height: int) -> Frame:
    """Return the headers of all streams to ``chains`` as others show them at ``height``, which certifies them."""
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
    """Return the slices of ``streams`` (``certified_streams``) from the expected index on, within the limits."""
    begin, end = streams["begin"], streams["end"]
    expected, _ = expected_of.of(streams)
    stop = np.maximum(end, expected)
    if context.options.limits == "deployed":
        # Differences, not sums: an index may be so near 2**64 that a sum would wrap.
        limit = context.options.limit
        stop = np.minimum(stop, begin + np.minimum(end - begin, np.uint64(limit.max_signals)))
        stop = np.maximum(stop, expected)
        stop = expected + np.minimum(stop - expected, message_limits(streams, expected_of, context))
    return streams.with_columns(message_begin=expected, message_end=stop)


def slice_groups(slices: Frame, options: IcOptions) -> Groups:
    """Return the rows that make up each slice.

    A certified slice shows one substream, under a witness of its own. Where nothing is certified, a slice has all
    substreams of its stream.
    """
    ends = slices["destination"], slices["source"]
    return group_rows(*ends, slices["substream"]) if options.certified else group_rows(*ends)


def filter_new(expected_of: ExpectedIndexes, slices: Frame, context: Context) -> Frame:
    """Return the slices with messages or signals that their destination has not seen.

    They are in order of (destination, source, substream). Asked were the subnets of the registry version before (3.8
    (3)): so slices may be under way when a subnet goes.
    """
    asked = context.before.has(slices["source"])
    slices = slices if asked.all() else slices.filter(asked)
    if len(slices) == 0:
        return slices
    slices = sort_by_stream(slices)
    _, signal = expected_of.of(slices)
    news = (slices["message_end"] > slices["message_begin"]) | (slices["signals_end"] != signal)
    groups = slice_groups(slices, context.options)
    return slices.filter(groups.spread(np.maximum.reduceat(news, groups.starts)))


def sort_by_stream(slices: Frame) -> Frame:
    """Return slices in the order in which a payload has them: by (destination, source, substream)."""
    return slices.take(stable_order(slices["destination"], slices["source"], slices["substream"]))
