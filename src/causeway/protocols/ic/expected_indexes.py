"""What a subnet expects of every stream to it: its state, moved on by payloads that are agreed and not yet executed
(IC reference 3.7).

Slices are rows as in ``endpoint``; those of past payloads need the lane, ``message_begin``, ``message_end`` and
``signals_end``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from causeway.model.errors import CausewayError
from causeway.model.frame import Frame, concat
from causeway.model.joins import lookup
from causeway.model.order import U64, groups_of, stable_order
from causeway.protocols.contract import Chains
from causeway.protocols.ic.state import State, opposite
from causeway.protocols.messages import LANE


class ContradictoryIndices(CausewayError):
    """Payloads and state expect different indices of one substream: one is older than the state, or is missing.

    ``chains``: positions of the subnets of which this is so.
    """

    def __init__(self, text: str, chains: Chains) -> None:
        super().__init__(text)
        self.chains = chains


class Expected:
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
        streams = groups_of(self._own["source"], self._own["destination"])
        ends = self._own.select(["source", "destination"]).take(streams.starts)
        back = Frame({"source": slices["destination"], "destination": slices["source"]}, len(slices))
        rows = lookup(ends, back, ("source", "destination"))
        counts = self._own["next_index"] - self._own["begin"]
        total = np.add.reduceat(counts, streams.starts) if len(streams) else counts
        return np.where(rows >= 0, np.append(total, np.uint64(0))[rows], np.uint64(0))

    def of(self, slices: Frame) -> tuple[U64, U64]:
        """Return, for each slice, the expected message index (``m0``) and the expected signal (``s0``) of its lane."""
        lanes = self.lanes
        if len(lanes) == 0:
            start: U64 = np.full(len(slices), self._base, dtype=np.uint64)
            return start, start
        rows = lookup(lanes, slices, LANE)
        index = np.where(rows >= 0, lanes["index"][rows], self._base)
        return index, np.where(rows >= 0, lanes["signal"][rows], self._base)


def slice_indexes(slices: Frame) -> Frame:
    """Return ``{ i + 1 | i in max(indices of the messages in slices) }``: one ``index`` a lane that has messages."""
    some = slices.filter(slices["message_end"] > slices["message_begin"])
    some = some.take(stable_order(*(some[name] for name in LANE)))
    groups = groups_of(*(some[name] for name in LANE))
    index = np.maximum.reduceat(some["message_end"], groups.starts) if len(some) else np.empty(0, dtype=np.uint64)
    return some.select(LANE).take(groups.starts).with_columns(index=index)


def state_and_payload_indexes(expected: Frame, slices: Frame, base: int) -> Frame:
    """Return ``(expected minus the indices of messages in slices) or slice_indexes(slices)``, by lane.

    ``expected``: one ``index`` a lane; one at the base stands for none. ``slices`` may hold several of one lane (D-9).
    Raises ``ContradictoryIndices`` where two indices are left for one lane.
    """
    kept = expected.filter(expected["index"] > np.uint64(base))
    made = slice_indexes(slices)
    rows = lookup(made, kept, LANE)
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


def expected_indexes(state: State, past_payloads: Sequence[Frame], base: int) -> Expected:
    """Return what the subnets of ``state`` expect after ``past_payloads``, which are in order of height.

    The expected signal is that of the newest past slice of the lane, else where our stream begins. Raises
    ``ContradictoryIndices``.
    """
    lanes = state.streams.counters
    own = opposite(lanes).with_columns(index=lanes["expected"], signal=lanes["begin"])
    own = own.take(stable_order(*(own[name] for name in LANE)))
    past = [payload for payload in past_payloads if len(payload)]
    if not past:
        return Expected(own, base, lanes)
    columns = [*LANE, "message_begin", "message_end", "signals_end"]
    slices = concat([payload.select(columns) for payload in past])
    indexes = state_and_payload_indexes(own.select([*LANE, "index"]), slices, base)
    known = concat([own.select(LANE), slices.select(LANE)])
    known = known.take(stable_order(*(known[name] for name in LANE)))
    known = known.take(groups_of(*(known[name] for name in LANE)).starts)
    index, _ = Expected(indexes.with_columns(signal=indexes["index"]), base, lanes).of(known)
    _, signal = Expected(own, base, lanes).of(known)
    signal = signal.copy()
    for payload in past:
        signal[lookup(known, payload, LANE)] = payload["signals_end"]
    return Expected(known.with_columns(index=index, signal=signal), base, lanes)


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
