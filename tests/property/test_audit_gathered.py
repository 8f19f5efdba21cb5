"""However many findings runs have, those that may be named are kept of them, and no more; and they are the same."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest

from causeway.audit import candidates, gathered
from causeway.audit.auditing import Audit
from causeway.audit.findings import as_findings
from causeway.audit.gathered import Gathered
from causeway.audit.known import UNDECIDED, Known
from causeway.audit.passing import pass_nothing
from causeway.audit.windows import Promises, Windows
from causeway.ledger.schema import OBSERVED_SCHEMA, PROMISES_SCHEMA
from tests.property.audit_ledgers import by_chance

TABLES = ("violations", "completeness", "lanes", "sums", "abroad")


def findings(count: int, begin: int, reason: str) -> pa.Table:
    texts = {"check": "order", "verdict": "violated", "reason": reason, "source": "a", "unit": None}
    content = {name: pa.array([texts.get(name)] * count, pa.string()) for name in as_findings(None).column_names}
    content["index"] = pa.array(range(begin, begin + count), pa.uint64())
    for name in ("height", "source_row", "time"):
        content[name] = pa.nulls(count, pa.int64())
    content["magnitude"] = pa.array([float((7 * index) % 1000) for index in range(begin, begin + count)])
    return as_findings(content)


def test_a_lane_that_is_in_many_runs_keeps_as_many_findings_as_one_in_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathered, "LEAST_GATHERED", 50)
    nothing = pass_nothing(Known(Windows(OBSERVED_SCHEMA.empty_table()), Promises(PROMISES_SCHEMA.empty_table())))
    found = Gathered(10)
    most = 0
    for run in range(100):
        own = findings(20, 20 * (99 - run), "late" if run != 40 else UNDECIDED)
        found.add((0, run), replace(nothing, findings=own))
        most = max(most, sum(each.findings.num_rows for each in found.runs.values()))
    assert most <= 50 + 20 + 20
    kept = pa.concat_tables([each.findings for each in found.runs.values()])
    # Those that are waited for are all there, and of the others the first, and the worst.
    assert kept["reason"].to_pylist().count(UNDECIDED) == 20
    late = [row for row in kept.to_pylist() if row["reason"] == "late"]
    assert {*range(10)} <= {row["index"] for row in late}
    worst = sorted((float((7 * index) % 1000) for index in range(2000) if not 1180 <= index < 1200), reverse=True)
    assert sorted((row["magnitude"] for row in late), reverse=True)[:10] == worst[:10]


@pytest.mark.parametrize("seed", range(6))
def test_what_is_left_out_on_the_way_would_not_have_been_named(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    case = by_chance(Random(seed))
    found: list[Audit] = []
    for most in (1 << 18, 1):
        monkeypatch.setattr(gathered, "LEAST_GATHERED", most)
        monkeypatch.setattr(candidates, "MOST_CANDIDATES", most)
        found.append(case.audit(3, limit=2))
    one, other = found
    assert one.checks == other.checks
    for name in TABLES:
        assert getattr(one, name).to_pylist() == getattr(other, name).to_pylist(), name
