"""The traffic of a network in memory: what its scenario sends, and what a test sends while it runs."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.order import stable_order
from causeway.model.traffic import INGRESS_SCHEMA
from causeway.network.sources import SourcedTraffic


class LiveTraffic:
    """What comes from outside: the rows of ``base``, and behind them, on every chain, those that were added."""

    def __init__(self, base: SourcedTraffic) -> None:
        self._base = base
        self._rows: dict[int, list[dict[str, Any]]] = {}
        self._ticks: list[int] = []
        self._counts: dict[tuple[int, int], int] = {}

    def add(self, tick: int, row: dict[str, Any]) -> int:
        """Add a row (``INGRESS_SCHEMA``) for a tick that has not run; return its position, from 1, among what comes to
        its chain in that tick."""
        if tick not in self._rows:
            self._rows[tick] = []
            insort(self._ticks, tick)
        self._rows[tick].append(row)
        place = tick, row["chain"]
        if place not in self._counts:
            self._counts[place] = len(self._base.rows(tick, np.array([row["chain"]], dtype=np.uint64)))
        self._counts[place] += 1
        return self._counts[place]

    def rows(self, tick: int, chains: npt.NDArray[np.uint64]) -> pa.Table:
        """Return the rows of ``tick`` for ``chains``, by chain."""
        rows = self._base.rows(tick, chains)
        added = [row for row in self._rows.get(tick, ()) if row["chain"] in chains]
        if not added:
            return rows
        rows = pa.concat_tables([rows, pa.Table.from_pylist(added, schema=INGRESS_SCHEMA)])
        return rows.take(pa.array(stable_order(rows["chain"].to_numpy())))

    def next_tick(self, tick: int) -> int | None:
        """Return the first tick at or after ``tick`` with any row, None when there is none."""
        place = bisect_left(self._ticks, tick)
        added = self._ticks[place] if place < len(self._ticks) else None
        known = self._base.next_tick(tick)
        return min((each for each in (added, known) if each is not None), default=None)

    def copy(self) -> LiveTraffic:
        """Return traffic of the same rows, to which others can be added."""
        other = LiveTraffic(self._base)
        other._rows = {tick: list(rows) for tick, rows in self._rows.items()}
        other._ticks, other._counts = list(self._ticks), dict(self._counts)
        return other
