"""What all runs of a ledger show, with no more of their findings than may be named."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway.audit.arrays import Array, Ints, chosen
from causeway.audit.columns import Bools
from causeway.audit.findings import NOTED, UNKNOWN, VIOLATED, VIOLATIONS_SCHEMA
from causeway.audit.known import UNDECIDED, UNDECIDED_PAID
from causeway.audit.passing import LIMIT, Limits, Passed
from causeway.audit.stated_rows import SHOWN_BY
from causeway.ledger.codes import Names, name_ranks
from causeway.ledger.order import lane_numbers

CHECK_NAMES = (
    *("delivery", "exactly_once", "authenticity", "agreement", "order", "gaps", "causality", "causal_order"),
    *("finality", "answers", "answers_without_request", "conservation", "back_pressure", "watermarks", "headers"),
)
"""The checks, in the order in which they are shown."""

VERDICTS = (VIOLATED, UNKNOWN, NOTED)
"""The verdicts of findings, in the order in which they are shown."""

LEAST_GATHERED = 1 << 18
"""So many findings are gathered before those that cannot be named are left out."""


@dataclass
class Gathered:
    """What runs show, by bucket and run. ``limit``: how many findings of one lane, check and reason are named.

    What waits for a decision is kept: with the others it will be among those of its reason.
    """

    limit: int = LIMIT
    runs: dict[tuple[int, int], Passed] = field(default_factory=dict)
    _rows: int = 0
    _most: int = field(default_factory=lambda: LEAST_GATHERED)
    _limits: Limits = field(default_factory=Limits)

    def add(self, key: tuple[int, int], passed: Passed) -> None:
        """Add what a run shows."""
        self.runs[key] = passed
        self._rows += passed.findings.num_rows
        if self._rows > self._most:
            self._leave_out()
        self._limits.add(self.runs, key)

    def _leave_out(self) -> None:
        keys = [key for key, passed in self.runs.items() if passed.findings.num_rows]
        every = pa.concat_tables([self.runs[key].findings for key in keys])
        kept = np.asarray(pc.is_in(every["reason"], value_set=pa.array([UNDECIDED, UNDECIDED_PAID]))).copy()
        order, first, worst = _first_and_worst(every, self.limit)
        kept[order[first | worst]] = True
        ends = np.cumsum([self.runs[key].findings.num_rows for key in keys])
        for key, begin, end in zip(keys, [0, *ends[:-1].tolist()], ends.tolist(), strict=True):
            own = np.flatnonzero(kept[begin:end])
            if len(own) < end - begin:
                passed = self.runs[key]
                self.runs[key] = replace(passed, findings=passed.findings.take(pa.array(own)))
        self._rows = int(kept.sum())
        self._most = max(LEAST_GATHERED, 2 * self._rows)


def shown_findings(findings: pa.Table, limit: int) -> pa.Table:
    """Return findings in order (``VIOLATIONS_SCHEMA``), so many of each lane, check and reason, and as which they are
    there."""
    order, first, worst = _first_and_worst(findings, limit)
    names = np.array(["", "first", "worst", "both"], dtype=object)[first + 2 * worst]
    kept = np.flatnonzero(first | worst)
    found = findings.take(pa.array(order[kept]))
    example = pa.array(names[kept], pa.string())
    return found.append_column(VIOLATIONS_SCHEMA.field("example"), example).cast(VIOLATIONS_SCHEMA)


def _first_and_worst(findings: pa.Table, limit: int) -> tuple[Ints, Bools, Bools]:
    """Return the order of findings, and in it which ones are among the first of their lane, check and reason, and which
    among the worst."""
    check = Names(CHECK_NAMES).codes(findings["check"]).astype(np.int64)
    _, lanes = lane_numbers(findings)
    reason = name_ranks(findings["reason"]).astype(np.int64)
    violated = Names(VERDICTS).codes(findings["verdict"]).astype(np.int64)
    keys = pa.table(
        {
            "check": pa.array(check),
            "verdict": pa.array(violated),
            "reason": pa.array(reason),
            "of": pa.array(lanes),
            **{name: findings[name] for name in SHOWN_BY},
            "magnitude": findings["magnitude"],
        }
    )
    order = pc.sort_indices(keys, [(name, "ascending") for name in keys.column_names]).to_numpy()
    groups = np.column_stack((check, violated, reason, lanes))[order]
    group: Array = np.zeros(len(order), np.int64)
    group[1:] = np.cumsum((np.diff(groups, axis=0) != 0).any(axis=1))
    magnitude = findings["magnitude"].fill_null(np.nan).to_numpy()[order]
    first, worst = chosen(group, magnitude, limit)
    return order, first, worst


__all__ = ["CHECK_NAMES", "Gathered", "shown_findings"]
