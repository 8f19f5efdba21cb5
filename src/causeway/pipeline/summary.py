"""The counts of a lake without Spark: by the query that Spark gets, in this process.

What became of a call is known only where all its rows come together, and they lie in the segments of many heights: no
sums over segments add up to the counts. So they are counted at the end, from the few columns that say it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import psutil
import pyarrow as pa

from causeway.model.ledger import REVERTED
from causeway.pipeline import calls
from causeway.pipeline.lake import Lake, Manifest
from causeway.pipeline.places import workers
from causeway.pipeline.reverted import COUNTS, Reverted, owner_of, reverted
from causeway.pipeline.schemas import TableSchemas
from causeway.pipeline.sealed import Seal

_READ = {"outbound": calls.OUTBOUND_READ, "events": calls.EVENTS_READ}

ROW_BYTES = 180
"""Memory for a row of the logs while they are counted, measured: 1.25 GiB for 8 million rows, 3.6 for 25 million."""

MOST_BYTES = 4 * 2**30
"""The most memory for counting where there is Spark: about ten million messages between chains, which are 25 million
rows. A quarter of what is free on this machine is the other bound."""


def removed_programs(lake: Lake, manifest: Manifest) -> dict[int, int]:
    """Return the programs that are on no chain any more at a height, with the tick since when."""
    moves = lake.topology("registry").to_pylist()
    gone = [move for move in moves if move["chain"] is None and move["tick"] <= manifest.tick]
    return {move["program"]: move["tick"] for move in sorted(gone, key=lambda move: -move["tick"])}


def fits_in_process(manifest: Manifest) -> bool:
    """Return whether the log rows up to a height are few enough to be counted in this process."""
    rows = sum(manifest.totals.get(table, 0) for table in _READ)
    return rows * ROW_BYTES <= min(MOST_BYTES, psutil.virtual_memory().available // 4)


def summary_in_process(lake: Lake, manifest: Manifest) -> dict[str, Any]:
    """Return what ``LakeTables.summary`` returns, counted in this process: by the same query, in a third of the
    processor time, in memory (``ROW_BYTES``).

    Raises ``LakeDamaged``.
    """
    schemas = TableSchemas.decoded(lake.about()["tables"]).logs
    undone = reverted(lake, manifest)

    def log(table: str) -> tuple[pa.Table, int]:
        """Return the rows of a log that count, and how many there are besides."""
        also = () if undone is None or "height" in _READ[table] else ("height",)
        schema = pa.schema([schemas[table].field(name) for name in (*_READ[table], *also)])

        def read(file: tuple[str, Seal]) -> pa.Table:
            return lake.sealed_table(*file, columns=schema.names).cast(schema)

        rows = pa.concat_tables([schema.empty_table(), *workers(os.getpid()).map(read, lake.log_files(table).items())])
        if undone is None:
            return rows, 0
        hit = undone.hits(rows, owner_of(table))
        return rows.filter(pa.array(~hit)), int(hit.sum())

    (outbound, gone), (events, _) = log("outbound"), log("events")
    found = calls.query_arrow(calls.summary_query(removed_programs(lake, manifest)), outbound, events)
    return {**calls.summary_of(found.to_pylist()), **of_forks(schemas, undone, gone)}


def of_forks(logs: Mapping[str, pa.Schema], undone: Reverted | None, messages: int) -> dict[str, int]:
    """Return what is counted of forks (``reverted.COUNTS``); nothing where the chains of a lake with such ``logs`` have
    none. ``messages``: how many between chains were taken back."""
    if REVERTED not in logs:
        return {}
    heights = 0 if undone is None else undone.heights()
    return dict(zip(COUNTS, (heights, messages), strict=True))
