"""The numbers and the verdict that the report and the explorer open with, computed once for both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from causeway.audit.plain import input_figures, plain_row
from causeway.figures.codes import calls_by_outcome
from causeway.ledger.typed import plain_rows
from causeway.report.checked import checks_data, incomplete_lanes

if TYPE_CHECKING:
    from causeway.audit.auditing import Audit
    from causeway.figures.figures import Figures


def summary_data(audit: Audit, figures: Figures, quarantined: Mapping[str, int]) -> dict[str, Any]:
    """Return the verdict, the checks and the key figures of a ledger as plain data.

    Args:
        audit: of the ledger.
        figures: of the ledger.
        quarantined: records in quarantine by reason (``Ledger.quarantined``).
    """
    worst = figures.worst
    oldest = worst.filter(pc.and_(pc.equal(worst["why"], "oldest_pending"), pc.equal(worst["rank"], 1)))
    return {
        "verdict": audit.verdict.value,
        "sentence": audit.sentence(),
        "holds": audit.holds,
        "remarks": [*audit.remarks],
        "checks": checks_data(audit),
        "incomplete": incomplete_lanes(audit),
        "quarantined": dict(sorted(quarantined.items(), key=lambda item: (-item[1], item[0]))),
        **figures_data(figures),
        "oldest_pending": next(iter(rows_of(oldest)), None),
        "completeness": input_figures(audit),
    }


def figures_data(figures: Figures) -> dict[str, Any]:
    """Return the totals of a ledger, its calls by outcome and the delays of all lanes."""
    return {
        "totals": plain_row(figures.totals),
        "calls": calls_by_outcome(figures.codes),
        "latency": rows_of(figures.latency.filter(pc.equal(figures.latency["scope"], "all"))),
    }


def over_time_data(figures: Figures) -> dict[str, Any]:
    """Return the backlog and the delays over time by columns."""
    return {
        "backlog": _columns(figures.backlog),
        "latency_over_time": _columns(figures.latency_over_time),
    }


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a table as JSON."""
    return [plain_row(row) or {} for row in plain_rows(table)]


def _columns(table: pa.Table) -> dict[str, list[Any]]:
    """Return a table over time by columns. ``begin``: the start of each bin, in ticks or seconds since 1970; ``time``
    is None where no calendar has it."""
    rows = rows_of(table)
    found = {name: [row[name] for row in rows] for name in table.column_names}
    micros = table["time"].cast(pa.int64()).to_pylist()
    begins = zip(table["tick"].to_pylist(), micros, strict=True)
    found["begin"] = [time / 1_000_000 if tick is None else tick for tick, time in begins]
    return found


__all__ = ["figures_data", "over_time_data", "rows_of", "summary_data"]
