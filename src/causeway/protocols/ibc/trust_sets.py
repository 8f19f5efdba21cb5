"""Trust sets of connections as rows of one trust table (IBC reference X-4)."""

from __future__ import annotations

from typing import Any

import numpy as np

from causeway.model.frame import Frame
from causeway.model.order import U64
from causeway.proofs.tendermint.light_client import TrustSet
from causeway.proofs.tendermint.trust import TrustedHeader

_HASHES = ("next_validators_hash", "validators_hash", "header_hash")
"""In the order of ``TrustedHeader``."""


class TrustTable:
    """The headers of a trust table. What many connections trust of one chain is one object, so that it is known at
    once for the same."""

    def __init__(self, trust: Frame) -> None:
        self.heights: U64 = trust["height"]
        self._columns = [trust[name] for name in ("time", "root", *_HASHES, "added_time", "added")]
        self._of_row: dict[int, TrustedHeader] = {}
        self._same: dict[tuple[Any, ...], TrustedHeader] = {}

    def header(self, row: int) -> TrustedHeader:
        """Return the header of a row."""
        found = self._of_row.get(row)
        if found is None:
            time, root, following, own, header, added_time, added = self._columns
            hashes = following[row].tobytes(), own[row].tobytes(), header[row].tobytes()
            times = added_time.item(row), added.item(row)
            values = self.heights.item(row), time.item(row), root[row].tobytes(), *hashes, *times
            found = self._same.get(values)
            if found is None:
                found = self._same[values] = TrustedHeader(*values)
            self._of_row[row] = found
        return found


class TrustRows(TrustSet):
    """The trusted headers of one connection: rows ``start`` to ``stop`` - 1 of a trust table, and those added since."""

    __slots__ = ("_last", "_start", "_stop", "_table")

    def __init__(self, table: TrustTable, start: int, stop: int) -> None:
        super().__init__()
        self._table, self._start, self._stop = table, start, stop
        self._last: int = table.heights.item(stop - 1)

    def __bool__(self) -> bool:
        return self._stop > self._start or super().__bool__()

    @property
    def added(self) -> list[TrustedHeader]:
        """Return the headers that were added, by height."""
        return self._headers

    @property
    def heights(self) -> tuple[int, ...]:
        """Return the heights, ascending."""
        return tuple(sorted({*super().heights, *self._table.heights[self._start : self._stop].tolist()}))

    def get(self, height: int) -> TrustedHeader | None:
        """Return the header of a height, None where there is none."""
        if self._headers and self._headers[-1].height == height:  # mostly
            return self._headers[-1]
        found = super().get(height)
        if found is not None or height > self._last:
            return found
        own = self._table.header(self._row(height))
        return own if own.height == height else None

    def below(self, height: int) -> TrustedHeader | None:
        """Return the header of the greatest height below ``height``, None where there is none."""
        row = self._row(height)
        own = self._table.header(row - 1) if row > self._start else None
        found = super().below(height) if self._headers else None
        return own if found is None or (own is not None and own.height > found.height) else found

    def above(self, height: int) -> TrustedHeader | None:
        """Return the header of the least height above ``height``, None where there is none."""
        row = self._row(height + 1)
        own = self._table.header(row) if row < self._stop else None
        found = super().above(height) if self._headers else None
        return own if found is None or (own is not None and own.height < found.height) else found

    def _row(self, height: int) -> int:
        """Return the first row whose height is not below ``height``."""
        if self._last <= height:  # mostly
            return self._stop - (self._last == height)
        heights = self._table.heights[self._start : self._stop]
        return self._start + int(np.searchsorted(heights, np.uint64(height)))
