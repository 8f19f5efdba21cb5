"""``audit`` and ``nomad`` benchmarks: equal rows, and all tools find the planted faults. No times."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from causeway_proofs.errors import InvalidInput
from rich.console import Console

from benchmarks import bench_audit, render
from benchmarks.audit import polars_frames
from benchmarks.audit.bench import require_planted
from benchmarks.audit.bridge import duckdb_findings, polars_findings
from benchmarks.audit.nomad import FOUND, write_copies
from benchmarks.audit.sql import check_in_duckdb
from benchmarks.audit.stored import AMOUNT, Tables, decimals, write_arrived
from benchmarks.audit.workload import FORGED, Workload
from benchmarks.process import BenchmarkFailed, NotDone, call_within
from causeway.ledger.row_order import sort_rows
from causeway.ledger.schema import LIMBS
from tests.recordings import Recordings

WORKLOAD = Workload(20_000, 20)
SHARED = ("protocol", "source", "destination", "lane", "index", "message_id", "event", "chain", "height", "position",
          "time", "payload_hash", "asset")  # fmt: skip


@pytest.fixture(scope="module")
def arrived(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("arrived") / "rows.parquet")
    assert write_arrived(WORKLOAD, path, 2) > 19_000
    return path


def test_rows_are_equal_bucketed_and_unbucketed(arrived: str) -> None:
    tables = Tables(WORKLOAD)
    buckets = [pa.concat_tables(tables.bucket(segments)) for segments in tables.segments(3)]
    for bucket in buckets:
        assert sort_rows(bucket.unify_dictionaries()).equals(bucket.unify_dictionaries())
    rows = pa.concat_tables(buckets).select([*SHARED, *LIMBS]).to_pylist()
    for row in rows:
        words = [row.pop(name) for name in LIMBS]
        row[AMOUNT.name] = None if words[0] is None else sum(word << 64 * place for place, word in enumerate(words))
    came = pq.read_table(arrived).to_pylist()
    assert [row["time"] for row in came] == sorted(row["time"] for row in came)
    assert sorted(map(repr, came)) == sorted(repr({**row, "amount": row["amount"] and _decimal(row)}) for row in rows)


def _decimal(row: dict[str, object]) -> object:
    return pa.array([row["amount"]], AMOUNT.type)[0].as_py()


def test_faults_are_at_the_reported_positions() -> None:
    assert Workload(20_000, 20) == WORKLOAD and WORKLOAD.faults == Workload(20_000, 20).faults
    forged = [(lane, index) for (lane, index), fault in WORKLOAD.faults.items() if fault == FORGED]
    assert forged and all(index > WORKLOAD.messages[lane] for lane, index in forged)
    places = sorted(WORKLOAD.faults)
    neighbours = [(one, other) for one, other in itertools.pairwise(places) if WORKLOAD.faults[one] != FORGED]
    assert all(one[0] != other[0] or other[1] - one[1] > 1 for one, other in neighbours)
    with pytest.raises(InvalidInput, match="rows: 100 in 20 lanes"):
        Workload(100, 20)


def test_other_tools_find_the_planted_faults(arrived: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polars.thread_pool_size", lambda: 2)
    found = [check(arrived, "arrived", 2, str(tmp_path)) for check in (check_in_duckdb, polars_frames.check)]
    assert found[0] == found[1] and found[0]["lanes"] == 20
    require_planted("DuckDB", found[0]["counts"], WORKLOAD)
    rows = pq.read_table(arrived)
    pq.write_table(rows.slice(0, rows.num_rows - 1), tmp_path / "less.parquet")
    less = check_in_duckdb(str(tmp_path / "less.parquet"), "arrived", 2, str(tmp_path))
    with pytest.raises(BenchmarkFailed, match="DuckDB: answers: found"):
        require_planted("DuckDB", less["counts"], WORKLOAD)


@pytest.mark.slow
def test_benchmark_figures_are_based_on_equal_findings(tmp_path: Path) -> None:
    given = {"lanes": 20, "repeats": 1, "against": ["duckdb"], "layouts": ["bucketed"], "spark": False}
    result = bench_audit(20_000, **given, keep=str(tmp_path))  # type: ignore[arg-type]
    assert list(result["contestants"]) == ["in process", "duckdb, bucketed"]
    assert result["written"]["taken"]["rows"] == result["rows"] == result["written"]["arrived"]["rows"]
    assert sum(map(sum, result["planted"].values())) == 14
    console = Console(record=True, width=200)
    console.print(render(result))
    assert "found the 14 planted findings" in console.export_text()
    late = bench_audit(20_000, **given, keep=str(tmp_path), ingest=False, seconds=0.001)  # type: ignore[arg-type]
    assert list(late["contestants"]) == ["in process"] and late["not_done"] == {
        "duckdb, bucketed": "not done within 0 s"
    }
    console.print(render(late))
    assert "not done within 0 s" in console.export_text()
    with pytest.raises(InvalidInput, match='"excel" is unknown; allowed: duckdb, polars'):
        bench_audit(20_000, against=["excel"])


def test_copies_of_a_recording_multiply_its_findings(
    recordings: Recordings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("polars.thread_pool_size", lambda: 2)
    file = str(tmp_path / "copies.csv")
    assert write_copies(recordings.bridge_events, file, 2) == 2 * 22_827
    expected = {reason: 2 * count for reason, count in FOUND.items()}
    for find in (duckdb_findings, polars_findings):
        assert find(file, 2) == {**expected, "others": 0}


def test_task_over_its_time_or_memory_limit_is_ended() -> None:
    assert call_within(60, 1 << 34, sorted, [2, 1]) == [1, 2]
    with pytest.raises(NotDone, match="not done within 1 s"):
        call_within(1, 1 << 34, time.sleep, 60)
    with pytest.raises(NotDone, match="took more than"):
        call_within(60, 1 << 20, time.sleep, 60)
    with pytest.raises(BenchmarkFailed, match="TypeError"):
        call_within(60, 1 << 34, sorted, [2, "1"])


def test_decimals_have_two_words() -> None:
    words = np.array([[2**64 - 1, 1], [0, 2**31]], dtype=np.uint64)
    found = decimals(words, pa.array([False, True]))
    assert found.to_pylist() == [2**65 - 1, None]
