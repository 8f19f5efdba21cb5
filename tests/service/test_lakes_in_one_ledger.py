"""Two lakes of one network in one ledger: separate events, and joint verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput

from causeway.audit.engine import AuditResult
from causeway.audit.stored import audit_ledger
from causeway.ledger.lake.ingest import ingest_lake, open_or_derive_ledger
from causeway.ledger.store import Ledger, open_ledger
from causeway.network.network import LakeNetwork
from tests.support.common.domain_lakes import both, sending

SENDS = {
    "near": sending("alice", "echo-right", 3) + sending("alice", "bob", method="transporter.transfer", amount=700),
    "far": sending("bob", "echo-left", 2) + sending("carol", "echo-right"),
}

ALONE = """
[network]
protocol = "xdm"
executor = "in_process"
[[chains]]
name = "head"
role = "consensus"
[[chains]]
name = "tail"
[[programs]]
name = "echo"
chain = "tail"
program = "echo"
[traffic]
source = "script"
[[traffic.send]]
tick = 0
to = "echo"
method = "m"
"""
"""A network of the same protocol that no other lake is part of."""


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("lakes")
    with both(folder, SENDS) as running:
        running.until_idle()
    return {name: str(folder / name) for name in ("near", "far")}


def read_tables(ledger: Ledger) -> dict[str, list[str]]:
    tables = {
        name: pa.concat_tables([ledger.rows(bucket, table=name) for bucket in range(ledger.buckets)])
        for name in ("ledger", "headers", "watermarks")
    }
    tables |= {name: ledger.table(name) for name in ("observed", "promises", "waiting")}
    return {name: sorted(map(repr, table.to_pylist())) for name, table in tables.items()}


def audit_place(place: str) -> AuditResult:
    with open_or_derive_ledger(place) as ledger:
        return audit_ledger(ledger, executor="in_process")


def verdicts(found: AuditResult) -> dict[str, str]:
    return {check.name: check.verdict for check in found.checks.values()}


def test_two_lakes_in_one_ledger_resolve_each_others_unknowns(lakes: dict[str, str], tmp_path: Path) -> None:
    one, other = str(tmp_path / "one"), str(tmp_path / "other")
    for target, order in ((one, ("near", "far")), (other, ("far", "near"))):
        counts = [ingest_lake(lakes[name], target, buckets=2).rows for name in order]
        assert ingest_lake(lakes["near"], target).commit is None and ingest_lake(lakes["far"], target).commit is None
    assert read_tables(open_ledger(one)) == read_tables(open_ledger(other))
    assert len(read_tables(open_ledger(one))["ledger"]) == sum(counts)  # no row is common to both
    alone = verdicts(audit_place(lakes["near"]))
    assert {alone[name] for name in ("exactly_once", "authenticity", "answers_without_request")} == {"INCONCLUSIVE"}
    found = audit_place(one)
    together = verdicts(found)
    assert "FAILED" not in together.values()
    checks = ("exactly_once", "order", "gaps", "causality", "finality", "answers", "answers_without_request")
    assert {name: together[name] for name in checks} == dict.fromkeys(checks, "PASSED")
    # Only the log of the sending chain has a payload.
    assert found.checks["authenticity"].reasons.keys() == {("unknown", "content_unseen")}
    assert not any(found.completeness["one_sided"].to_pylist())


@pytest.mark.slow
def test_grown_lake_is_ingested_beside_another_one(tmp_path: Path) -> None:
    target, whole = str(tmp_path / "ledger"), str(tmp_path / "whole")
    with both(tmp_path / "lakes", SENDS) as running:
        for _ in range(3):
            for _ in range(4):
                running.around()
            for name in ("near", "far"):
                ingest_lake(str(tmp_path / "lakes" / name), target, buckets=1)
        running.until_idle()
    for name in ("far", "near"):
        ingest_lake(str(tmp_path / "lakes" / name), target)
        ingest_lake(str(tmp_path / "lakes" / name), whole, buckets=1)
    assert read_tables(open_ledger(target))["ledger"] == read_tables(open_ledger(whole))["ledger"]


def test_unrelated_lakes_are_rejected_in_one_ledger(lakes: dict[str, str], tmp_path: Path) -> None:
    target = str(tmp_path / "ledger")
    ingest_lake(lakes["near"], target)
    before: Any = read_tables(open_ledger(target))
    with both(tmp_path / "again", {}) as others:
        others.until_idle()
    with pytest.raises(InvalidInput, match="is another one that runs left too; give it a ledger of its own"):
        ingest_lake(str(tmp_path / "again" / "near"), target)
    (tmp_path / "alone.toml").write_text(ALONE)
    with LakeNetwork.from_scenario(tmp_path / "alone.toml", lake=str(tmp_path / "alone")) as alone:
        alone.run()
    with pytest.raises(InvalidInput, match="is another one; give it a ledger of its own"):
        ingest_lake(str(tmp_path / "alone"), target)
    assert read_tables(open_ledger(target)) == before
