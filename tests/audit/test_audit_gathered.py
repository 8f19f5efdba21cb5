"""Findings of many runs: a bounded number is retained, and the named ones do not change."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest

from causeway.audit.engine import AuditResult
from causeway.audit.findings import to_findings_table
from causeway.audit.lane_context import UNDECIDED, LaneContext
from causeway.audit.passes import finding_candidates, results
from causeway.audit.passes.bucket_pass import empty_result
from causeway.audit.passes.results import PartialResults
from causeway.ledger.schema import OBSERVED_SCHEMA, PROMISES_SCHEMA
from causeway.ledger.windows import LanePromises, ObservedWindowTable
from tests.support.properties.audit_ledgers import by_chance

TABLES = ("violations", "completeness", "lanes", "sums", "abroad")


def findings(count: int, begin: int, reason: str) -> pa.Table:
    texts = {"check": "order", "verdict": "violated", "reason": reason, "source": "a", "unit": None}
    content = {name: pa.array([texts.get(name)] * count, pa.string()) for name in to_findings_table(None).column_names}
    content["index"] = pa.array(range(begin, begin + count), pa.uint64())
    for name in ("height", "source_row", "time"):
        content[name] = pa.nulls(count, pa.int64())
    content["magnitude"] = pa.array([float((7 * index) % 1000) for index in range(begin, begin + count)])
    return to_findings_table(content)


def test_lane_in_many_runs_keeps_a_bounded_number_of_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "MIN_GATHERED", 50)
    nothing = empty_result(
        LaneContext(ObservedWindowTable(OBSERVED_SCHEMA.empty_table()), LanePromises(PROMISES_SCHEMA.empty_table()))
    )
    found = PartialResults(10)
    most = 0
    for run in range(100):
        own = findings(20, 20 * (99 - run), "late" if run != 40 else UNDECIDED)
        found.add((0, run), replace(nothing, findings=own))
        most = max(most, sum(each.findings.num_rows for each in found.runs.values()))
    assert most <= 50 + 20 + 20
    kept = pa.concat_tables([each.findings for each in found.runs.values()])
    # Undecided findings are all retained, and of the others the first and the worst.
    assert kept["reason"].to_pylist().count(UNDECIDED) == 20
    late = [row for row in kept.to_pylist() if row["reason"] == "late"]
    assert {*range(10)} <= {row["index"] for row in late}
    worst = sorted((float((7 * index) % 1000) for index in range(2000) if not 1180 <= index < 1200), reverse=True)
    assert sorted((row["magnitude"] for row in late), reverse=True)[:10] == worst[:10]


@pytest.mark.parametrize("seed", range(6))
def test_discarded_candidates_do_not_change_the_named_findings(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    case = by_chance(Random(seed))
    found: list[AuditResult] = []
    for most in (1 << 18, 1):
        monkeypatch.setattr(results, "MIN_GATHERED", most)
        monkeypatch.setattr(finding_candidates, "MAX_CANDIDATES", most)
        found.append(case.audit(3, limit=2))
    one, other = found
    assert one.checks == other.checks
    for name in TABLES:
        assert getattr(one, name).to_pylist() == getattr(other, name).to_pylist(), name
