"""What the files of a ledger state of it without being read."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa

from causeway.ledger.typed import plain_rows
from causeway.pipeline.ledger_commits import LedgerDamaged
from causeway.pipeline.ledger_store import Ledger
from causeway.pipeline.sealed import FileDamaged

Times = tuple[datetime | None, datetime | None]

_MOST_FILES = 64
"""So many files are opened; of more these will do for the names of protocols, and times are not told."""


def extents_of(ledger: Ledger) -> tuple[list[str], Times]:
    """Return the protocols that row groups name as the least or the largest, and the first and last time of events,
    None where files do not state it. Raises ``LedgerDamaged``."""
    protocols: set[str] = set()
    times: list[int] = []
    files = ledger.files("ledger")
    for file in files[:_MOST_FILES]:
        try:
            with ledger.storage.parquet_file(file.path, file.seal) as opened:
                names = opened.schema_arrow.names
                for group in range(opened.num_row_groups):
                    of_group = opened.metadata.row_group(group)
                    protocol, time = (of_group.column(names.index(name)).statistics for name in ("protocol", "time"))
                    if protocol is not None and protocol.has_min_max:
                        protocols |= {str(protocol.min), str(protocol.max)}
                    if time is not None and time.has_min_max:
                        times += [int(time.min_raw), int(time.max_raw)]
        except (FileDamaged, FileNotFoundError) as error:
            raise LedgerDamaged(str(error)) from None
    if not times or len(files) > _MOST_FILES:
        return sorted(protocols), (None, None)
    ends = pa.table(
        {
            name: pa.array([time]).cast(pa.timestamp("us", "UTC"))
            for name, time in zip("ab", (min(times), max(times)), strict=True)
        }
    )
    [found] = plain_rows(ends)
    return sorted(protocols), (found["a"], found["b"])


__all__ = ["extents_of"]
