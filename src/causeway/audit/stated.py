"""What chains state of themselves: headers that follow each other, and watermarks that never fall.

A bucket has whole segments of chains and lanes (``ledger.chain_order``). In each the neighbours in one segment are
compared; the rows at the ends of segments go on, and together those of all buckets are compared over the cuts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from causeway.audit.findings import as_findings
from causeway.audit.headers import HEADER_ENDS, as_lanes, look_at_headers
from causeway.audit.passing import LIMIT
from causeway.audit.stated_rows import COUNTS_SCHEMA, examined
from causeway.audit.watermarks import WATERMARK_ENDS, compare_ends, look_at_watermarks
from causeway.audit.windows import Windows
from causeway.ledger.chain_order import sorted_headers, sorted_watermarks


@dataclass(frozen=True)
class Stated:
    """What headers and watermarks show. ``findings``, ``counts``, ``examined``: as of ``Passed``, the source of a
    chain's headers being the chain; ``headers``, ``watermarks``: those at the ends of segments."""

    findings: pa.Table
    counts: pa.Table
    examined: pa.Table
    headers: pa.Table
    watermarks: pa.Table


NOTHING = Stated(
    as_findings(None),
    COUNTS_SCHEMA.empty_table(),
    COUNTS_SCHEMA.empty_table(),
    HEADER_ENDS.empty_table(),
    WATERMARK_ENDS.empty_table(),
)
"""Of no headers and no watermarks."""


def stated_in(headers: pa.Table, watermarks: pa.Table, windows: Windows, limit: int = LIMIT) -> Stated:
    """Check what one bucket has (``HEADERS_SCHEMA``, ``WATERMARKS_SCHEMA``).

    ``windows``: what the input covers; ``limit``: how many findings of a chain or lane and reason are named.
    """
    headers, watermarks = sorted_headers(headers), sorted_watermarks(watermarks)
    one, other = look_at_headers(headers, windows, limit), look_at_watermarks(watermarks, limit)
    return Stated(
        pa.concat_tables([one.findings, other.findings]),
        pa.concat_tables([one.counts, other.counts]),
        pa.concat_tables([examined("headers", as_lanes(headers)), examined("watermarks", watermarks)]),
        one.ends,
        other.ends,
    )


def stated_together(parts: Sequence[Stated], windows: Windows, limit: int = LIMIT) -> Stated:
    """Return what all buckets show, in whatever order they are given, and what lies over the cuts between segments."""
    every = [NOTHING, *parts]
    headers = sorted_headers(_joined([part.headers for part in every]))
    over = [look_at_headers(headers, windows, limit, over_cuts=True)]
    over.append(compare_ends(_joined([part.watermarks for part in every]), limit))
    return Stated(
        pa.concat_tables([*(part.findings for part in every), *(one.findings for one in over)]),
        pa.concat_tables([*(part.counts for part in every), *(one.counts for one in over)]),
        pa.concat_tables([part.examined for part in every]),
        NOTHING.headers,
        NOTHING.watermarks,
    )


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).unify_dictionaries()
