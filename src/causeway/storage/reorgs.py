"""Reorganizations: log rows that forks have reverted, and the network root.

A protocol with forks has the log table ``reverted`` (``REVERTED_SCHEMA``). A lake without such rows is read as if it
had no such table. ``network_root`` is a digest of the last standing roots of all chains.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from causeway.core.joins import Intervals
from causeway.core.vocabulary import REVERTED
from causeway.protocols.contract import HEADERS_SCHEMA
from causeway.storage.lake import Lake, Manifest
from causeway.storage.table_schemas import stamped_schema

__all__ = ["COUNTS", "RevertedRanges", "count_reverted", "find_reverted", "owner_column", "rolled_back_heights"]

OWNERS = {"outbound": "source"}
"""Column with the chain of a log row, if it is not ``chain``."""

COUNTS = {
    "reverted_heights": "heights at which forks took blocks back",
    "reverted_messages": "messages between chains that went with them",
}
"""Counters of forks, for lakes whose chains can fork."""

_HEIGHT_BITS = np.int64(40)


def owner_column(table: str) -> str:
    """Return the column of a log table with the chain of each row.

    Args:
        table: Name of the table.
    """
    return OWNERS.get(table, "chain")


@dataclass(frozen=True)
class RevertedRanges:
    """Heights that chains have reverted: disjoint ranges (chain, first, last), ascending."""

    chains: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    last: npt.NDArray[np.int64]

    @classmethod
    def of(cls, rows: pa.Table) -> RevertedRanges:
        """Merge rows of the log table."""
        found: dict[int, Intervals] = {}
        columns = (rows[name].to_pylist() for name in ("chain", "first", "last"))
        for chain, first, last in zip(*columns, strict=True):
            found.setdefault(chain, Intervals()).add(first, last + 1)
        spans = [
            (chain, first, stop - 1)
            for chain, heights in sorted(found.items())
            for first, stop in zip(heights.starts, heights.stops, strict=True)
        ]
        chains, first, last = np.array(spans, dtype=np.int64).reshape(-1, 3).T
        return cls(chains, first, last)

    def __len__(self) -> int:
        return len(self.chains)

    def heights(self) -> int:
        """Return the number of heights at which any chain reverted a block."""
        every = Intervals()
        for first, last in zip(self.first.tolist(), self.last.tolist(), strict=True):
            every.add(first, last + 1)
        return sum(stop - start for start, stop in zip(every.starts, every.stops, strict=True))

    def hits(self, rows: pa.Table, owner: str) -> npt.NDArray[np.bool_]:
        """Return a mask of the log rows that were reverted.

        Args:
            rows: Rows with ``height`` and an owner column.
            owner: Column with the chain of each row.
        """
        if not len(self):
            return np.zeros(rows.num_rows, dtype=bool)
        starts = (self.chains << _HEIGHT_BITS) | self.first
        height = rows["height"].to_numpy().astype(np.int64)
        keys = (rows[owner].to_numpy().astype(np.int64) << _HEIGHT_BITS) | height
        at = np.searchsorted(starts, keys, side="right") - 1
        ends = (self.chains << _HEIGHT_BITS) | self.last
        found: npt.NDArray[np.bool_] = (at >= 0) & (keys <= ends[np.maximum(at, 0)])
        return found


def find_reverted(lake: Lake, manifest: Manifest, until: int | None = None) -> RevertedRanges | None:
    """Return the reverted ranges of a lake, or None.

    Args:
        lake: The lake.
        manifest: The last commit to consider.
        until: Ignore forks after this height; None: none.

    Raises:
        LakeDamaged: A file is damaged.
    """
    if not manifest.totals.get(REVERTED, 0):
        return None
    tables = [lake.sealed_table(path, seal) for path, seal in lake.log_files(REVERTED).items()]
    rows = pa.concat_tables(tables)
    if until is not None:
        rows = rows.filter(pc.field("height") <= until)
    found = RevertedRanges.of(rows)
    return found if len(found) else None


def count_reverted(lake: Lake, undone: RevertedRanges | None) -> dict[str, int]:
    """Count the effects of forks.

    Args:
        lake: The lake.
        undone: Reverted ranges; None: none.

    Returns:
        A count for each key of ``COUNTS``.

    Raises:
        LakeDamaged: A file is damaged.
    """
    if undone is None:
        return dict.fromkeys(COUNTS, 0)
    owner = owner_column("outbound")
    files = lake.log_files("outbound").items()
    messages = sum(int(undone.hits(lake.sealed_table(*file, ["height", owner]), owner).sum()) for file in files)
    return dict(zip(COUNTS, (undone.heights(), messages), strict=True))


def rolled_back_heights(lake: Lake, commit: Manifest) -> Iterator[int]:
    """Yield the heights that chains reverted to in a commit.

    Args:
        lake: The lake.
        commit: The commit, up to its viewed height.

    Raises:
        LakeDamaged: A file is damaged.
    """
    if any(REVERTED in line.rows for line in commit.lines):
        for rows in lake.log_rows(REVERTED, commit, heights=(commit.first, commit.height)):
            for first in pc.unique(rows["first"]).to_pylist():
                yield first - 1


Root = tuple[int, bytes]
"""Position of a chain, and the root of its state."""


_NONE = stamped_schema(HEADERS_SCHEMA).empty_table().select(["chain", "height", "root"])


def network_root(lake: Lake, manifest: Manifest) -> str:
    """Return a digest of the roots of all chains at a height, by position.

    A chain without a block at that height, halted or reverted, contributes its last standing root.

    Args:
        lake: The lake.
        manifest: Manifest viewed at the height.

    Returns:
        The digest in hexadecimal.

    Raises:
        LakeDamaged: A file is damaged.
    """
    found = [row for table in lake.log_rows("headers", manifest) for row in _chain_roots(table)]
    chains = {chain for chain, _ in found}
    missing = {
        chain for table in lake.log_rows("headers", lake.manifest(0)) for chain, _ in _chain_roots(table)
    } - chains
    for chain, root in _last_roots(lake, manifest, missing) if missing else ():
        found.append((chain, root))
    return digest_roots(found)


def digest_roots(roots: Iterable[Root]) -> str:
    """Return a digest of chain roots in hexadecimal.

    Args:
        roots: Position and root of each chain.
    """
    return hashlib.sha256(b"".join(root for _, root in sorted(roots))).hexdigest()


def _last_roots(lake: Lake, manifest: Manifest, missing: set[int]) -> Iterator[Root]:
    """Yield the last standing roots of chains before a height, searching backwards."""
    reverted, commit = find_reverted(lake, manifest, manifest.height), manifest
    while missing:
        tables = [_NONE, *(table.select(_NONE.column_names) for table in lake.commit_rows("headers", commit))]
        rows = pa.concat_tables(tables)
        height, chain = rows["height"].to_numpy(), rows["chain"].to_numpy()
        stands = (height < manifest.height) & np.isin(chain, np.array(sorted(missing)))
        if reverted is not None:
            stands &= ~reverted.hits(rows, "chain")
        order = np.flatnonzero(stands)
        order = order[np.lexsort((height[order], chain[order]))]
        last = order[np.append(chain[order][1:] != chain[order][:-1], True)] if len(order) else order
        yield from _chain_roots(rows.take(pa.array(last)))
        missing = missing.difference(chain[last].tolist())
        if commit.number == 0:
            return
        commit = lake.numbered(commit.number - 1)


def _chain_roots(table: pa.Table) -> Iterator[Root]:
    return zip(table["chain"].to_pylist(), table["root"].to_pylist(), strict=True)
