"""Thresholds of Spark are settings, with one error for bad values; the page states the defaults."""

from __future__ import annotations

from pathlib import Path

import pytest
from causeway_proofs.errors import InvalidInput

from causeway.cluster.thresholds import THRESHOLDS, spark_threshold
from causeway.ledger.bucket_scan import should_use_spark
from causeway.ledger.ingest.ingest import ingest_files
from causeway.ledger.ingest.mapping import load_mapping
from tests.recordings import Recordings

PAGE = Path(__file__).resolve().parents[2] / "docs/explanation/where-spark-runs.md"


@pytest.mark.parametrize("text", ["", "5e7", "-1", "16 GiB", "1.0", "\N{ARABIC-INDIC DIGIT FIVE}"])
def test_bad_threshold_is_one_error(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAUSEWAY_SPARK_ROWS", text)
    with pytest.raises(InvalidInput) as raised:
        should_use_spark("auto", None, [1])
    assert str(raised.value) == f"CAUSEWAY_SPARK_ROWS: {text}: must be a whole number from 0, such as 50000000"
    assert should_use_spark("spark", None, [1]) and not should_use_spark("in_process", None, [1])


def test_threshold_is_the_first_size_on_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAUSEWAY_SPARK_ROWS", "3")
    assert [should_use_spark("auto", None, [1, last]) for last in (1, 2)] == [False, True]


def test_page_states_the_defaults() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in THRESHOLDS:
        assert f"`{name}` | {spark_threshold(name):,} |" in text


def test_bad_threshold_leaves_no_ledger(
    recordings: Recordings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAUSEWAY_SPARK_BYTES", "many")
    with pytest.raises(InvalidInput, match=r"^CAUSEWAY_SPARK_BYTES: many: "):
        ingest_files(str(recordings.bridge_events), str(tmp_path / "ledger"), load_mapping("bridge-events"))
    assert not list(tmp_path.iterdir())
