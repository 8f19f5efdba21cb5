"""Entries of a zone's queues, found in the outbound entries of the heights that pushed them.

A store has only digests of entries; the entries themselves are rows of ``outbound``. The table ``runs`` says at which
height an entry was pushed as long as somebody may ask for it. For older ones (receipts stay in a store until they are
cleaned up) that follows from the tails of the queue at the heights before: it is the first height whose tail is above
the entry's index, or, for a receipt whose program answered later, the first in which the store has the entry.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pyarrow as pa

from causeway.model.frame import Frame, concat, empty_frame, from_table
from causeway.model.order import U64
from causeway.network.opened import Mask, OpenedLake
from causeway.pipeline.lake import LakeError, Manifest
from causeway.protocols.ibc.pushing import ENTRIES_SCHEMA
from causeway.protocols.messages import LANE, LANE_COLUMNS
from causeway.proving.ibc.zones import zones_of

KEPT_HEIGHTS = 1024
"""For so many heights the tails of queues are kept in memory: searches meet the same ones."""


class PushedEntries:
    """The entries of the queues that the zone at a position has at a height (``manifest``)."""

    def __init__(self, opened: OpenedLake, position: int, manifest: Manifest) -> None:
        self._opened, self._position, self._height = opened, position, manifest.height
        self._commit = manifest.number
        self._runs = self._state(manifest, "runs")
        self._tails = lru_cache(maxsize=KEPT_HEIGHTS)(self._read_tails)

    def rows(self, destination: int, substream: int, indices: U64) -> Frame:
        """Return the entries (``ENTRIES_SCHEMA``) at ``indices`` (ascending, none twice) of a queue, in that order.

        Every one of them must be in the queue at this height.

        Raises:
            LakeError: the lake does not have one of them.
        """
        found: list[Frame] = []
        left = indices
        for height, mine in self._known(destination, substream, indices):
            rows = self._read(height, destination, substream, mine)
            found.append(rows)
            left = left[~np.isin(left, rows["index"])]
        height = 0
        while len(left):
            height = self._first_with_tail(destination, substream, int(left[0]), height)
            rows = self._read(height, destination, substream, left)
            if len(rows) == 0 or rows["index"][0] != left[0]:
                later = self._first_with_entry(destination, substream, int(left[0]), height)
                rows = concat([rows, self._read(later, destination, substream, left)])
            if not bool((rows["index"] == left[0]).any()):
                raise LakeError(
                    f"lake: {self._opened.lake.storage.uri} has no outbound entry {int(left[0])} of the queue "
                    f"{substream} of {self._opened.names[self._position]} for {self._opened.names[destination]}"
                )
            found.append(rows)
            left = left[~np.isin(left, rows["index"])]
        joined = concat([empty_frame(ENTRIES_SCHEMA), *found])
        return joined.take(np.argsort(joined["index"], kind="stable"))

    def _known(self, destination: int, substream: int, indices: U64) -> list[tuple[int, U64]]:
        """Return the heights that the runs name for ``indices``, each with its indices."""
        runs = self._runs.filter((self._runs["destination"] == destination) & (self._runs["substream"] == substream))
        if len(runs) == 0:
            return []
        row = np.maximum(np.searchsorted(runs["first"], indices, side="right") - 1, 0)
        inside = (indices >= runs["first"][row]) & (indices - runs["first"][row] < runs["count"][row])
        heights, indices = runs["height"][row][inside], indices[inside]
        if len(indices) == 0:
            return []
        order = np.argsort(heights, kind="stable")
        names, starts = np.unique(heights[order], return_index=True)
        parts = np.split(indices[order], starts[1:])
        return list(zip(names.tolist(), parts, strict=True))

    def _read(self, height: int, destination: int, substream: int, indices: U64) -> Frame:
        """Return those of a queue's entries at ``indices`` (ascending) that were pushed at a height, ascending."""
        opened, own = self._opened, self._position

        def chosen(batch: pa.RecordBatch) -> Mask:
            index = batch["index"].to_numpy()
            place = np.minimum(np.searchsorted(indices, index), len(indices) - 1)
            mask: Mask = indices[place] == index
            for name, value in zip(LANE, (own, destination, substream), strict=True):
                mask &= batch[name].to_numpy() == value
            return mask

        rows = opened.log_rows(
            "outbound", height, own, ENTRIES_SCHEMA.names, chosen, destination=destination, most=len(indices)
        )
        if rows is None or rows.num_rows == 0:
            return empty_frame(ENTRIES_SCHEMA)
        frame = from_table(rows)
        return frame.take(np.argsort(frame["index"], kind="stable"))

    def _first_with_tail(self, destination: int, substream: int, index: int, since: int) -> int:
        """Return the first height from ``since`` on at which the tail of a queue is above ``index``."""

        def above(height: int) -> bool:
            return self._tails(height).get((destination, substream), 0) > index

        return self._first(above, since)

    def _first_with_entry(self, destination: int, substream: int, index: int, since: int) -> int:
        """Return the first height after ``since`` at which a store has an entry; it has it at the last."""

        def there(height: int) -> bool:
            manifest = self._opened.lake.manifest(height)
            lane = (self._position, destination, substream, index)

            def chosen(batch: pa.RecordBatch) -> Mask:
                mask: Mask = np.ones(len(batch), dtype=bool)
                for name, value in zip(LANE_COLUMNS, lane, strict=True):
                    mask &= batch[name].to_numpy() == value
                return mask

            found = self._opened.chosen_rows(manifest, "leaves", self._position, LANE_COLUMNS, chosen)
            return found is not None and found.num_rows > 0

        return self._first(there, since + 1)

    def _first(self, holds: Callable[[int], bool], since: int) -> int:
        """Return the first height from ``since`` on at which something holds that goes on to hold: it does at the last.

        Looked at are the last heights of commits, of which there is a file, and then those of one commit.
        """
        lake = self._opened.lake

        def at_end(number: int) -> bool:
            return holds(lake.numbered(number).last)

        low, step = lake.manifest(min(since, self._height)).number - 1, 1
        while low + step < self._commit and not at_end(low + step):
            low, step = low + step, 2 * step
        commit = lake.numbered(_first(at_end, low, min(low + step, self._commit)))
        return _first(holds, max(commit.first, since) - 1, min(commit.last, self._height))

    def _read_tails(self, height: int) -> dict[tuple[int, int], int]:
        """Return the tails of the zone's queues at a height, by the zone they are for and substream."""
        manifest = self._opened.lake.manifest(height)
        queues = self._state(manifest, "queues")
        keys = zip(queues["destination"].tolist(), queues["substream"].tolist(), strict=True)
        return dict(zip(keys, queues["next_index"].tolist(), strict=True))

    def _state(self, manifest: Manifest, table: str) -> Frame:
        return self._opened.state_rows(manifest, table, self._position, zones_of(self._opened).host_of)


def _first(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return the first number above ``low`` for which something holds that holds from some number up to ``high`` on."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
