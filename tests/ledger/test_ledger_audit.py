"""Audits of a stored ledger in this process and on Spark are equal to the last row."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from causeway_proofs.errors import InvalidInput
from pyspark.sql import SparkSession

from benchmarks.audit.stored import write_ledger
from benchmarks.audit.workload import Workload
from causeway.audit import stored
from causeway.audit.engine import AuditResult
from causeway.audit.stored import audit_ledger
from causeway.ledger import bucket_scan
from causeway.ledger.row_order import sort_rows
from causeway.ledger.schema import LEDGER_SCHEMA, VALUE_SCHEMA
from causeway.ledger.store import Ledger, LedgerDamaged, LedgerWriter, create_ledger, group_by_bucket, open_ledger
from tests.support.properties.audit_ledgers import Case, by_chance, table, zones_by_chance

WORKLOAD = Workload(16_000, 40)
BUCKETS = 5
CHANCE = 65
"""Seed of headers and watermarks that break their rules, and of paid fees."""

ZONES = 1
"""Seed of messages among zones that break the causal order, in a cycle and across lanes."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a ledger with planted faults, and a lane with only its receiving end recorded."""
    place = str(tmp_path_factory.mktemp("ledger") / "ledger")
    write_ledger(WORKLOAD, place, BUCKETS, 2)
    ledger = open_ledger(place)
    lane = {"protocol": "bridge", "source": "chain-00", "destination": "chain-01", "lane": "one end"}
    told = {"kind": "request", "event": "received", "chain": "chain-01", "height": 5, "stated_by": "test"}
    rows = table([{**lane, **told, "index": index} for index in range(1, 1_502)], LEDGER_SCHEMA)
    writer = LedgerWriter(ledger)
    writer.write("ledger", sort_rows(rows), 2)
    for bucket, read in enumerate(by_chance(Random(CHANCE)).stated(BUCKETS)):
        for name, stated in zip(("headers", "watermarks"), read(), strict=True):
            if stated.num_rows:
                writer.write(name, stated, bucket)
    for bucket, mine in group_by_bucket(table(by_chance(Random(CHANCE)).value, VALUE_SCHEMA), BUCKETS, "value").items():
        writer.write("value", mine, bucket or None)
    writer.commit([], {})
    return place


def same(one: AuditResult, other: AuditResult) -> None:
    assert one.checks == other.checks
    for name in ("violations", "completeness", "lanes", "sums", "abroad"):
        assert getattr(one, name).equals(getattr(other, name)), name


def test_audit_runner_makes_no_difference(spark: SparkSession, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = open_ledger(place)
    told: list[tuple[int, int]] = []
    looks: list[list[int]] = []
    run = bucket_scan.run_buckets

    def watched(session: SparkSession, ledger: Ledger, buckets: list[int], *more: Any, **named: Any) -> Any:
        looks.append(buckets)
        return run(session, ledger, buckets, *more, **named)

    monkeypatch.setattr(bucket_scan, "run_buckets", watched)
    found = audit_ledger(ledger, session=spark, progress=lambda done, of: told.append((done, of)))
    assert len(looks[0]) > 1  # buckets that have headers or watermarks
    assert sorted(looks[1]) == list(range(BUCKETS)) and looks[2] == [2]  # too many are undecided there
    assert found.abroad.num_rows and any(int(fees) for fees in found.sums["fees"].to_pylist())
    assert found.checks["headers"].violated and found.checks["watermarks"].violated
    for cores in (1, 3):
        monkeypatch.setattr(bucket_scan, "available_cores", lambda cores=cores: cores)
        same(found, audit_ledger(ledger, executor="in_process"))
    rows = sum(file.rows for file in ledger.files("ledger"))
    assert told[-1] == (rows, rows)
    expected = WORKLOAD.expected
    assert all(found.checks[name].violated == violated for name, (violated, _) in expected.items())
    assert found.checks["authenticity"].reasons["unknown", "sends_not_covered"] == 1_501


def numbers_over_all_lanes() -> Case:
    """Messages with indices shared among all destinations of their source, some of which are missing."""
    lane = {"protocol": "p", "source": "a", "lane": "x", "kind": "request", "event": "sent", "chain": "a"}
    rows = [
        {**lane, "destination": "bcd"[index % 3], "index": index} for index in range(80) if index not in (7, 40, 41)
    ]
    return Case(rows, [], [{"promise": "numbered"}])


@pytest.mark.parametrize(
    ("case", "check", "reasons"),
    [
        (zones_by_chance(Random(ZONES)), "causal_order", {"received_in_causal_cycle", "received_out_of_causal_order"}),
        (numbers_over_all_lanes(), "gaps", {"missing_on_all_lanes"}),
    ],
    ids=["causal_order", "gaps"],
)
def test_second_pass_on_spark_finds_the_same(
    case: Case, check: str, reasons: set[str], spark: SparkSession, tmp_path: Path
) -> None:
    ledger = create_ledger(str(tmp_path / "ledger"), BUCKETS)
    writer = LedgerWriter(ledger)
    rows, observed, promises = case.tables()
    for bucket, mine in group_by_bucket(rows, BUCKETS).items():
        writer.write("ledger", sort_rows(mine), bucket)
    writer.write("observed", observed)
    writer.write("promises", promises)
    ledger = ledger.after(writer.commit([], {}))
    found = audit_ledger(ledger, session=spark)
    assert reasons <= {reason for _, reason in found.checks[check].reasons}
    same(found, audit_ledger(ledger, executor="in_process"))
    assert found.checks[check] == case.audit().checks[check]


def test_small_audit_starts_no_spark(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "open_worker_session", lambda *_: pytest.fail("Spark was started"))
    assert audit_ledger(open_ledger(place)).checks["order"].examined
    with pytest.raises(InvalidInput, match="executor: local: must be one of auto, in_process, spark"):
        audit_ledger(open_ledger(place), executor="local")


@pytest.mark.parametrize("executor", ["in_process", "spark"])
def test_corrupted_file_is_named(spark: SparkSession, place: str, tmp_path: Path, executor: str) -> None:
    copy = tmp_path / "ledger"
    write_ledger(Workload(1_600, 4), str(copy), 1, 1)
    ledger: Ledger = open_ledger(str(copy))
    (file,) = ledger.files("ledger")
    content = bytearray((copy / file.path).read_bytes())
    content[len(content) // 3] ^= 1
    (copy / file.path).write_bytes(content)
    with pytest.raises(LedgerDamaged, match=f"^{file.path} has other bytes than were written"):
        audit_ledger(ledger, executor=executor, session=spark)
