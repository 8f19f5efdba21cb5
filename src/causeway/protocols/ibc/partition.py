"""States of zones cut apart and put together: what belongs to which zone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from causeway.model.frame import Frame, concat
from causeway.model.order import stable_order
from causeway.protocols.ibc.state import STATE_TABLES, State
from causeway.protocols.ibc.zones import Zones

_ORDER = {
    "queues": ("chain", "remote", "substream"),
    "leaves": ("chain", "remote", "substream", "index"),
    "runs": ("chain", "remote", "substream", "first"),
    "proofs": ("chain", "remote", "substream", "part", "first"),
    "connections": ("chain", "remote"),
    "trust": ("chain", "remote", "height"),
    "slots": ("chain", "remote", "index"),
    "relayers": ("chain", "relayer"),
    "accounts": ("program",),
}
"""The columns by which each table is in order."""


def part(state: State, chains: npt.NDArray[np.uint32], zones: Zones) -> State:
    """Return the part of a state that belongs to ``chains``."""

    def mine(frame: Frame) -> Frame:
        if "chain" in frame:
            return frame.filter(np.isin(frame["chain"], chains))
        return frame.filter(np.isin(zones.host_of(frame["program"]), chains.astype(np.int32)))

    own = {name: mine(getattr(state, name)) for name in STATE_TABLES}
    return State(**own, programs={name: mine(frame) for name, frame in state.programs.items()})


def union(states: Sequence[State]) -> State:
    """Return the states of disjoint sets of zones as one."""

    def joined(frames: list[Frame], order: tuple[str, ...]) -> Frame:
        frame = concat(frames)
        return frame.take(stable_order(*(frame[name] for name in order)))

    own = {name: joined([getattr(state, name) for state in states], order) for name, order in _ORDER.items()}
    programs = {name: joined([state.programs[name] for state in states], ("program",)) for name in states[0].programs}
    return State(**own, programs=programs)
