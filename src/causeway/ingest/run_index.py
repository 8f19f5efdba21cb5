"""Messages of a run by their names: by place in a lane, and by call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from causeway.ingest.run_messages import (
    CALL,
    Form,
    RunLogs,
    SpokenOf,
    answering,
    collected_places,
    is_forged,
    of_calls,
    of_lanes,
    requests_of,
)
from causeway.model.frame import Frame, concat
from causeway.model.order import U64, Rows, stable_order
from causeway.protocols.messages import LANE_COLUMNS

Mask = npt.NDArray[np.bool_]
Names = npt.NDArray[np.uint64]


class _ByName:
    """Rows ascending by height, found by the names in some columns."""

    def __init__(self, rows: Frame, keys: Sequence[str], chosen: Mask) -> None:
        from causeway.ingest.run_loops import link

        self._keys, self._heights = keys, np.ascontiguousarray(rows["height"])
        self._names = _names(rows, keys)
        self._heads = np.full(1 << max(int(chosen.sum()), 1).bit_length(), -1, dtype=np.int64)
        self._before = np.full(len(rows), -1, dtype=np.int64)
        link(self._names, chosen.view(np.uint8), self._heads, self._before)

    def last(self, asked: Frame, heights: U64 | None = None) -> Rows:
        """Return the last row of each name up to its ``height`` (or of ``heights``), -1 where there is none."""
        from causeway.ingest.run_loops import find

        found = np.empty(len(asked), dtype=np.int64)
        until = np.ascontiguousarray(asked["height"] if heights is None else heights)
        names = _names(asked, self._keys)
        find(self._names, self._heights, self._heads, self._before, names, until, found)
        return found


@dataclass
class Messages:
    """Messages of a run (``run_messages.messages_of``), ``rows`` ascending by height."""

    rows: Frame

    @classmethod
    def of(cls, *parts: Frame) -> Messages:
        """Return messages of several parts."""
        rows = concat([part.select(parts[0].names) for part in parts])
        heights = rows["height"]
        ascending = bool((heights[1:] >= heights[:-1]).all())
        return cls(rows if ascending else rows.take(stable_order(heights)))

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def by_place(self) -> _ByName:
        """Return those in lanes by their places."""
        return _ByName(self.rows, LANE_COLUMNS, self.rows["form"] == Form.LANE)

    @cached_property
    def by_call(self) -> _ByName:
        """Index the messages that programs and chains sent by their calls."""
        return _ByName(self.rows, CALL, ~is_forged(self.rows))

    @cached_property
    def forged(self) -> _ByName:
        """Index the forged messages by their calls, which may be calls of other messages too."""
        return _ByName(self.rows, CALL, is_forged(self.rows))

    def last_call(self, asked: Frame) -> Rows:
        """Return the last message of each call up to its ``height``, -1 for none; a forged one only without another."""
        found = self.by_call.last(asked)
        missing = found < 0
        if missing.any():
            found[missing] = self.forged.last(asked.filter(missing))
        return found

    @cached_property
    def made(self) -> _ByName:
        """Return the answers that chains made themselves by their calls."""
        return _ByName(self.rows, CALL, self.rows["form"] == Form.MADE)

    def missing(self, wanted: SpokenOf) -> SpokenOf:
        """Return what of ``wanted`` is not there."""
        lanes, calls = wanted
        return SpokenOf(lanes.filter(self.by_place.last(lanes) < 0), calls.filter(self.by_call.last(calls) < 0))


def spoken_of(logs: RunLogs, own: Mask, further: Sequence[Frame] = ()) -> SpokenOf:
    """Return what rows speak of. ``own``: which chains, by position, this run has: what others send is in no log of it.
    ``further``: other places (``LANE_COLUMNS``, ``height``) that are meant."""
    events = logs.events
    by_place = events.filter(of_lanes(events)).select([*LANE_COLUMNS, "height"])
    places = [collected_places(logs.collected)[0], *further]
    lanes = concat([by_place, *(each.select(by_place.names) for each in places)])
    lanes = lanes.filter(own[np.minimum(lanes["source"], np.uint32(len(own) - 1))])
    calls = events.filter(of_calls(events)).select([*CALL, "height"])
    return SpokenOf(lanes, concat([calls, requests_of(events.filter(answering(events))).select(calls.names)]))


def among(messages: Frame, wanted: SpokenOf) -> Mask:
    """Return which messages have a name that is wanted, whenever."""
    found = np.zeros(len(messages), dtype=bool)
    for asked, keys in ((wanted.lanes, LANE_COLUMNS), (wanted.calls, CALL)):
        if len(asked):
            named = asked.with_columns(height=np.zeros(len(asked), dtype=np.uint64))
            index = _ByName(named, keys, np.ones(len(asked), dtype=bool))
            found |= index.last(messages) >= 0
    return found


def _names(rows: Frame, keys: Sequence[str]) -> Names:
    """Return names as rows of words."""
    names = np.empty((len(rows), len(keys)), dtype=np.uint64)
    for place, key in enumerate(keys):
        names[:, place] = rows[key]
    return names


__all__ = ["Messages", "among", "spoken_of"]
