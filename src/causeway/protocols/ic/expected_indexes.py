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

    ``lanes``: rows in ascending order of the lane by which the messages come.
    """

    def __init__(self, lanes: Frame, base: int) -> None:
        self.lanes = lanes
        self._base = np.uint64(base)

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
        return Expected(own, base)
    columns = [*LANE, "message_begin", "message_end", "signals_end"]
    slices = concat([payload.select(columns) for payload in past])
    indexes = state_and_payload_indexes(own.select([*LANE, "index"]), slices, base)
    lanes = concat([own.select(LANE), slices.select(LANE)])
    lanes = lanes.take(stable_order(*(lanes[name] for name in LANE)))
    lanes = lanes.take(groups_of(*(lanes[name] for name in LANE)).starts)
    index, _ = Expected(indexes.with_columns(signal=indexes["index"]), base).of(lanes)
    _, signal = Expected(own, base).of(lanes)
    signal = signal.copy()
    for payload in past:
        signal[lookup(lanes, payload, LANE)] = payload["signals_end"]
    return Expected(lanes.with_columns(index=index, signal=signal), base)


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
