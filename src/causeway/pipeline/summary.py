"""The counts of a lake without Spark: by the query that Spark gets, in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from causeway.pipeline import calls
from causeway.pipeline.lake import Lake, Manifest
from causeway.pipeline.schemas import TableSchemas


def removed_programs(lake: Lake, manifest: Manifest) -> dict[int, int]:
    """Return the programs that are on no chain any more at a height, with the tick since when."""
    moves = lake.topology("registry").to_pylist()
    gone = [move for move in moves if move["chain"] is None and move["tick"] <= manifest.tick]
    return {move["program"]: move["tick"] for move in sorted(gone, key=lambda move: -move["tick"])}


def summary_in_process(lake: Lake, manifest: Manifest) -> dict[str, Any]:
    """Return what ``LakeTables.summary`` returns, counted in this process: for networks of a few messages."""
    about = TableSchemas.decoded(lake.about()["tables"])

    def log(table: str, columns: Sequence[str]) -> pa.Table:
        schema = pa.schema([about.logs[table].field(name) for name in columns])
        read = [lake.sealed_table(path, seal, columns).cast(schema) for path, seal in lake.log_files(table).items()]
        return pa.concat_tables([schema.empty_table(), *read])

    query = calls.summary_query(removed_programs(lake, manifest))
    found = calls.query_arrow(query, log("outbound", calls.OUTBOUND_READ), log("events", calls.EVENTS_READ))
    return calls.summary_of(found.to_pylist())
