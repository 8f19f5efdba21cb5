"""What the files of a ledger state of it without being read."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa

from causeway.ledger.typed import plain_rows
from causeway.pipeline.ledger_store import Ledger

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
        with ledger.opened(file) as opened:
            for stated in opened.statistics("protocol"):
                if stated is not None and stated.has_min_max:
                    protocols |= {str(stated.min), str(stated.max)}
            for stated in opened.statistics("time"):
                if stated is not None and stated.has_min_max:
                    times += [int(stated.min_raw), int(stated.max_raw)]
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
