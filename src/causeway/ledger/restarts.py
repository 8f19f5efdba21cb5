"""Chains whose heights began anew with no revision that tells, as after an upgrade or a relaunch.

Two blocks of a chain show it: at the latest time a lower height than at the earliest time. They are the same in
whatever order rows are added, and merge over parts of the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.ledger.codes import Names
from causeway.ledger.limbs import valid_rows
from causeway.ledger.schema import PROMISES_SCHEMA, RESTARTED, Event
from causeway.ledger.typed import table_of

Block = tuple[int, int]
"""A block: its time in microseconds since 1970, and its height."""

_NOT_OF_A_BLOCK = (Event.OBSERVED.value, Event.REVERTED.value)
"""Events whose time is not that of the block at their height."""


class HeightBounds:
    """The earliest and the latest block of each chain.

    Args:
        first: The earliest block by chain; of several at one time the lowest.
        last: The latest block by chain; of several at one time the highest.
    """

    def __init__(self, first: Mapping[str, Block] | None = None, last: Mapping[str, Block] | None = None) -> None:
        self.first, self.last = dict(first or {}), dict(last or {})

    def add(self, rows: pa.Table) -> None:
        """Add rows of the ledger; those without chain, time or height, or with a revision, show nothing.

        Args:
            rows: Columns ``chain``, ``event``, ``revision``, ``height`` and ``time``.
        """
        names = Names()
        codes = names.codes(rows["chain"])
        shown = (codes >= 0) & (Names(_NOT_OF_A_BLOCK).codes(rows["event"]) >= len(_NOT_OF_A_BLOCK))
        height, time = rows["height"].combine_chunks(), rows["time"].combine_chunks()
        shown &= valid_rows(height) & valid_rows(time) & np.asarray(rows["revision"].is_null())
        times = time.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)[shown]
        heights = height.fill_null(0).to_numpy(zero_copy_only=False)[shown]
        codes = codes[shown]
        if not len(codes):
            return
        earliest = _extremes(np.minimum, codes, times, heights, len(names))
        latest = _extremes(np.maximum, codes, times, heights, len(names))
        seen = np.unique(codes).tolist()
        known = names.known()
        self.merge(HeightBounds({known[at]: earliest[at] for at in seen}, {known[at]: latest[at] for at in seen}))

    def merge(self, other: HeightBounds) -> None:
        """Add the blocks of other rows."""
        for chain, block in other.first.items():
            self.first[chain] = min(block, self.first.get(chain, block))
        for chain, block in other.last.items():
            self.last[chain] = max(block, self.last.get(chain, block))

    def restarted(self) -> list[str]:
        """Return the chains whose heights began anew, ascending."""
        return sorted(chain for chain, block in self.first.items() if self.last[chain][1] < block[1])


def with_restarts(promises: pa.Table, chains: Iterable[str], stated_by: str) -> pa.Table:
    """Return what lanes promise, and that the heights of some chains began anew.

    Args:
        promises: ``PROMISES_SCHEMA``.
        chains: As of ``HeightBounds.restarted``.
        stated_by: Whose statement that is.
    """
    rows = [{"source": chain, "promise": RESTARTED, "stated_by": stated_by} for chain in chains]
    if not rows:
        return promises
    return pa.concat_tables([promises, table_of(pa.Table.from_pylist(rows), PROMISES_SCHEMA, "promises")])


def restarted_chains(rows: pa.Table) -> list[str]:
    """Return the chains whose heights began anew with no revision that tells.

    Args:
        rows: Rows of the ledger: columns ``chain``, ``event``, ``revision``, ``height`` and ``time``.

    Returns:
        Their names, ascending.
    """
    bounds = HeightBounds()
    bounds.add(rows)
    return bounds.restarted()


def _extremes(
    choose: np.ufunc,
    codes: npt.NDArray[np.int32],
    times: npt.NDArray[np.int64],
    heights: npt.NDArray[np.uint64],
    count: int,
) -> list[Block]:
    """Return by code the least or greatest time, and of the rows at that time the least or greatest height."""
    time, height = np.zeros(count, np.int64), np.zeros(count, np.uint64)
    time[codes] = times  # any row of each
    choose.at(time, codes, times)
    at = times == time[codes]
    height[codes[at]] = heights[at]
    choose.at(height, codes[at], heights[at])
    return list(zip(time.tolist(), height.tolist(), strict=True))


__all__ = ["HeightBounds", "restarted_chains", "with_restarts"]
