"""What is at hand of a bucket's chains at a height, without executing anything: their state then, or at an earlier
height, and what a log table has of the heights since (``Reads.nearest``).

A lake has the state of the last height of every commit, and its logs have every height.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from causeway.model.frame import Frame
from causeway.model.ledger import REVERTED, REVERTED_SCHEMA
from causeway.pipeline.manifests import Manifest
from causeway.pipeline.reading import Reader
from causeway.pipeline.reverted import Reverted
from causeway.protocols.contract import Chains, Nearest
from causeway.protocols.partition import part


def nearest(reader: Reader, asked: Mapping[str, Frame]) -> dict[str, dict[int, Nearest[Any]]]:
    """Return by log table and height what is at hand for the chains for which the height is asked (``PAST_SCHEMA``).

    Raises ``LakeDamaged``, ``Freed``.
    """
    found: dict[str, dict[int, Nearest[Any]]] = {}
    for table, wanted in asked.items():
        heights = np.unique(wanted["height"]).tolist()
        chains = {height: np.unique(wanted["chain"][wanted["height"] == height]) for height in heights}
        found[table] = {height: _nearest(reader, table, height, chains[height]) for height in heights}
    return found


class _AtHand(NamedTuple):
    """A height with its tick, and the bucket's state at it."""

    height: int
    tick: int
    state: Any


def _nearest(reader: Reader, table: str, height: int, chains: Chains) -> Nearest[Any]:
    # The height that is asked stands, so what is abandoned before it was abandoned by a height before it.
    before = height
    while True:
        here = _at_hand(reader, before)
        gone = _reverted(reader, here.height + 1, height, chains)
        left = (gone.first <= here.height) & (here.height <= gone.last)
        if not left.any():
            break
        before = int(gone.first[left].min()) - 1
    rows = _of(reader.logged(table, here.height + 1, height), chains)
    abandoned = gone.hits(pa.table({name: rows[name] for name in ("height", "chain")}), "chain")
    state = part(reader.deployment.kernel, here.state, chains, here.tick)
    return Nearest(state, rows.filter(~abandoned))


def _reverted(reader: Reader, first: int, last: int, chains: Chains) -> Reverted:
    """Return what chains abandoned at heights."""
    rows = REVERTED_SCHEMA.empty_table()
    if REVERTED in reader.deployment.kernel.logs:
        rows = _of(reader.logged(REVERTED, first, last), chains).select(rows.column_names).to_table(rows.schema)
    return Reverted.of(rows)


def _of(rows: Frame, chains: Chains) -> Frame:
    return rows.filter(np.isin(rows["chain"], chains))


def _at_hand(reader: Reader, height: int) -> _AtHand:
    """Return the last height up to one whose state is in memory, or in a file."""
    held = max((other for other in reader.held if other <= height), default=-1)
    if held < min(height, reader.base.height):  # a file may have a later one
        manifest = _in_files(reader, height)
        if manifest.height > held:
            return _AtHand(manifest.height, manifest.tick, reader.state_at(manifest))
    tick, states = reader.held[held]
    return _AtHand(held, tick, states[reader.bucket])


def _in_files(reader: Reader, height: int) -> Manifest:
    """Return the last commit that ends with a height or before it."""
    manifest = reader.manifest(min(height, reader.base.height))
    return manifest if manifest.height == manifest.last else reader.lake.numbered(manifest.number - 1)
