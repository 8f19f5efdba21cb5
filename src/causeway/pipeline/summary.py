"""The counts of a lake without Spark: by the query that Spark gets, in this process.

What became of a call is known only where all its rows come together, and they lie in the segments of many heights: no
sums over segments add up to the counts. So they are counted at the end, from the few columns that say it.
"""

from __future__ import annotations

import os
from typing import Any

import psutil
import pyarrow as pa

from causeway.pipeline import calls
from causeway.pipeline.lake import Lake, Manifest
from causeway.pipeline.places import workers
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

    def log(table: str) -> pa.Table:
        schema = pa.schema([schemas[table].field(name) for name in _READ[table]])

        def read(file: tuple[str, Seal]) -> pa.Table:
            return lake.sealed_table(*file, columns=schema.names).cast(schema)

        return pa.concat_tables([schema.empty_table(), *workers(os.getpid()).map(read, lake.log_files(table).items())])

    found = calls.query_arrow(calls.summary_query(removed_programs(lake, manifest)), log("outbound"), log("events"))
    return calls.summary_of(found.to_pylist())
