"""Which headers of a lake its chains still have: those that the last ones descend from.

A chain that can have forks may make several headers at a height, go back, and go on from an elder one. What it has can
only be told from the end: from the last header to its parent, and so on. So this goes from the last height to the
first, a range of heights at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from causeway.model.order import groups_of, stable_order
from causeway.pipeline.reverted import Reverted

Bools = npt.NDArray[np.bool_]

COLUMNS = ("height", "tick", "chain", "number", "hash", "parent", "root")
"""What is read of the log of headers."""


def by_chain(headers: pa.Table) -> pa.Table:
    """Return rows of the log of headers by chain and height, else as they stand, in one piece a column."""
    headers = headers.combine_chunks()
    order = stable_order(headers["chain"].to_numpy(), headers["height"].to_numpy().astype(np.uint64))
    return headers if bool((order[1:] > order[:-1]).all()) else headers.take(pa.array(order)).combine_chunks()


@dataclass
class Descent:
    """What was found by now.

    ``since``: by chain the height of its last header that may count; other chains are left alone. ``back``: what forks
    took back by then. ``wanted``: by chain, the hashes of the headers that its lowest ones name as their parents: one,
    or several as long as a fork is not settled. ``top``: by chain, the number of the highest header that it has.
    ``lowest``: the height of the lowest. ``skipped``: chains of which there are lower ones that it does not have.
    ``nameless``: chains whose headers have no hashes, so that there are no forks.
    """

    since: Mapping[int, int]
    back: Reverted | None = None
    wanted: dict[int, set[bytes]] = field(default_factory=dict)
    top: dict[int, int] = field(default_factory=dict)
    lowest: dict[int, int] = field(default_factory=dict)
    skipped: set[int] = field(default_factory=set)
    nameless: set[int] = field(default_factory=set)

    def take(self, headers: pa.Table) -> Bools:
        """Return which headers their chains have. ``headers``: ``by_chain``, all of them below those before."""
        found = np.zeros(headers.num_rows, dtype=bool)
        chain = headers["chain"].to_numpy()
        groups = groups_of(chain)
        rows = _Rows(headers)
        gone = np.zeros(0, dtype=bool) if self.back is None else self.back.hits(headers, "chain")
        for start, count in zip(groups.starts.tolist(), groups.counts.tolist(), strict=True):
            own = int(chain[start])
            if own in self.since:
                self._take_chain(own, rows, range(start, start + count), gone, found)
        return found

    def agrees(self, other: Descent) -> bool:
        """Return whether from here on both find the same."""
        return self.wanted == other.wanted and self.nameless == other.nameless

    def broken(self) -> dict[int, int]:
        """Return, when all headers were taken, the chains whose lowest header names a parent that there is not, and the
        height below which others of theirs are."""
        return {chain: self.lowest.get(chain, self.since[chain]) - 1 for chain in sorted(self.skipped)}

    def _take_chain(self, chain: int, rows: _Rows, places: range, gone: Bools, found: Bools) -> None:
        at = places.stop - 1
        if chain in self.nameless:
            at = self._all(chain, rows, places, at, found)
        elif chain not in self.wanted:
            while at >= places.start and (rows.height[at] > self.since[chain] or (len(gone) and gone[at])):
                at -= 1
            if at >= places.start:
                at = self._tips(chain, rows, places, at, found)
        while at >= places.start and chain in self.wanted:
            if len(self.wanted[chain]) == 1:
                at = self._follow(chain, rows, places, at, found)
            else:
                self._step(chain, rows, at)
                at -= 1

    def _tips(self, chain: int, rows: _Rows, places: range, at: int, found: Bools) -> int:
        """Begin with the headers at the height of the one at ``at``; return where to go on."""
        if not rows.hash(at):
            self.nameless.add(chain)
            return self._all(chain, rows, places, at, found)
        first = at
        while first > places.start and rows.height[first - 1] == rows.height[at]:
            first -= 1
        parents = {rows.parent(row) for row in range(first, at + 1)}
        self.wanted[chain] = {rows.hash(row) for row in range(first, at + 1)} - parents
        return at

    def _step(self, chain: int, rows: _Rows, at: int) -> None:
        """Look at one header while several are wanted: what descends from them is not settled."""
        own = rows.hash(at)
        if own not in self.wanted[chain]:
            self.skipped.add(chain)
            return
        self.wanted[chain] = (self.wanted[chain] - {own}) | {rows.parent(at)}
        self.lowest[chain] = int(rows.height[at])

    def _all(self, chain: int, rows: _Rows, places: range, at: int, found: Bools) -> int:
        found[places.start : at + 1] = True
        self.top.setdefault(chain, int(rows.number[at]))
        return places.start - 1

    def _follow(self, chain: int, rows: _Rows, places: range, at: int, found: Bools) -> int:
        """Find the one header that is wanted, and those below it that follow each other; return where to go on."""
        (wanted,) = self.wanted[chain]
        row = at if rows.hash(at) == wanted else rows.last(wanted, places, at)
        if row < at:
            self.skipped.add(chain)
        if row < places.start:
            return row
        first = max(rows.run(row), places.start)
        found[first : row + 1] = True
        self.top.setdefault(chain, int(rows.number[row]))
        self.lowest[chain] = int(rows.height[first])
        self.skipped.discard(chain)
        self.wanted[chain] = {rows.parent(first)}
        return first - 1


class _Rows:
    """Columns of headers ``by_chain``, asked by row."""

    def __init__(self, headers: pa.Table) -> None:
        self.height, self.number = (headers[name].to_numpy() for name in ("height", "number"))
        self._hash, self._parent = (_whole(headers[name]) for name in ("hash", "parent"))
        chain = headers["chain"].to_numpy()
        linked = np.zeros(headers.num_rows, dtype=bool)
        if headers.num_rows > 1:
            linked[1:] = np.asarray(pc.equal(self._parent[1:], self._hash[:-1])) & (chain[1:] == chain[:-1])
        self._begins = np.flatnonzero(~linked)
        self._known: dict[int, dict[bytes, int]] = {}

    def hash(self, row: int) -> bytes:
        found: bytes = self._hash[row].as_py()
        return found

    def parent(self, row: int) -> bytes:
        found: bytes = self._parent[row].as_py()
        return found

    def run(self, row: int) -> int:
        """Return the first of the rows up to this one each of which is the parent of the next."""
        return int(self._begins[np.searchsorted(self._begins, row, side="right") - 1])

    def last(self, wanted: bytes, places: range, at: int) -> int:
        """Return the last row up to ``at`` that has a hash, the one before ``places`` if none has."""
        if places.start not in self._known:
            hashes = self._hash[places.start : places.stop].to_pylist()
            self._known[places.start] = {own: place for place, own in enumerate(hashes, start=places.start)}
        row = self._known[places.start].get(wanted, places.start - 1)
        return row if row <= at else places.start - 1


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)


__all__ = ["COLUMNS", "Descent", "by_chain"]
