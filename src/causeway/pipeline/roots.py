"""One digest over the roots of all chains of a lake."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from causeway.pipeline.lake import Lake, Manifest
from causeway.pipeline.reverted import reverted
from causeway.pipeline.schemas import stamped_schema
from causeway.protocols.contract import HEADERS_SCHEMA

Root = tuple[int, bytes]
"""The position of a chain, and the root of its state."""


_NONE = stamped_schema(HEADERS_SCHEMA).empty_table().select(["chain", "height", "root"])


def root_of(lake: Lake, manifest: Manifest) -> str:
    """Return one digest over the roots of all chains at a height, in the order of their positions, as hex.

    A chain that makes no block at that height, since it is halted or a fork took its last one back, has the root of its
    last block that stands. Raises ``LakeDamaged``.
    """
    found = [row for table in lake.log_rows("headers", manifest) for row in _rows(table)]
    chains = {chain for chain, _ in found}
    missing = {chain for table in lake.log_rows("headers", lake.manifest(0)) for chain, _ in _rows(table)} - chains
    for chain, root in _last_of(lake, manifest, missing) if missing else ():
        found.append((chain, root))
    return digest_of(found)


def digest_of(roots: Iterable[Root]) -> str:
    """Return one digest over roots of chains, as hex."""
    return hashlib.sha256(b"".join(root for _, root in sorted(roots))).hexdigest()


def _last_of(lake: Lake, manifest: Manifest, missing: set[int]) -> Iterator[Root]:
    """Yield the last roots that stand of some chains before a height, back to where all are found."""
    undone, commit = reverted(lake, manifest, manifest.height), manifest
    while missing:
        tables = [_NONE, *(table.select(_NONE.column_names) for table in lake.commit_rows("headers", commit))]
        rows = pa.concat_tables(tables)
        height, chain = rows["height"].to_numpy(), rows["chain"].to_numpy()
        stands = (height < manifest.height) & np.isin(chain, np.array(sorted(missing)))
        if undone is not None:
            stands &= ~undone.hits(rows, "chain")
        order = np.flatnonzero(stands)
        order = order[np.lexsort((height[order], chain[order]))]
        last = order[np.append(chain[order][1:] != chain[order][:-1], True)] if len(order) else order
        yield from _rows(rows.take(pa.array(last)))
        missing = missing.difference(chain[last].tolist())
        if commit.number == 0:
            return
        commit = lake.numbered(commit.number - 1)


def _rows(table: pa.Table) -> Iterator[Root]:
    return zip(table["chain"].to_pylist(), table["root"].to_pylist(), strict=True)
