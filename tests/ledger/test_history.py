"""Rows that commits added to a table: before and after merges, and after their files were removed."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from causeway_proofs.errors import InvalidInput

from causeway.ledger import maintenance
from causeway.ledger.history import (
    CommitPosition,
    HistoryLost,
    LedgerReplaced,
    added_files,
    position_after,
    require_position,
)
from causeway.ledger.store import Ledger, open_ledger
from tests.ledger.ingest.test_ledger_ingest import HEAD, Folder, lines

BEGIN = CommitPosition()


def grow(folder: Folder, first: int, end: int) -> Ledger:
    """Ingest a file of two rows in each of several commits."""
    for number in range(first, end):
        folder.write(f"{number:03}.csv", HEAD + lines(2 * number, 2 * number + 2))
        folder.ingest(buckets=2)
    return open_ledger(folder.lake)


def added(ledger: Ledger, start: CommitPosition, end: CommitPosition) -> list[list[int]]:
    """Return the indices that each commit added."""
    commits = added_files(ledger, "ledger", start, end)
    return [
        sorted(index for file in files for index in ledger.read(file)["index"].to_pylist() if index is not None)
        for files in commits
    ]


def test_commits_keep_their_rows_until_merged_files_are_removed(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    ledger = grow(folder, 0, 3)
    third, second = position_after(ledger, 2), position_after(ledger, 1)
    assert added(ledger, second, third) == [[4, 5]] and added(ledger, third, third) == []
    ledger = grow(folder, 3, 12)
    last = position_after(ledger, ledger.number)
    assert any("ledger" in path for path, _ in ledger.gone), "no merge"
    rows = [[2 * number, 2 * number + 1] for number in range(12)]
    assert added(ledger, BEGIN, last) == [[*range(24)]]
    assert added(ledger, BEGIN, third) == [[*range(6)]]
    assert added(ledger, second, third) == [rows[2]]
    assert added(ledger, third, last) == rows[3:]
    maintenance.remove_garbage(ledger, kept=0.0)
    assert added(ledger, BEGIN, last) == [[*range(24)]]
    with pytest.raises(HistoryLost, match=r"commit 2: their rows are only in merged files; read it from the"):
        added(ledger, second, third)
    with pytest.raises(HistoryLost, match=r"commits 0 to 2: their rows are only in merged files"):
        added(ledger, BEGIN, third)


def test_removed_manifests_are_replaced_by_a_checkpoint_from_the_beginning_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "CHECKPOINT_EVERY", 4)
    folder = Folder(tmp_path)
    first = position_after(grow(folder, 0, 1), 0)
    ledger = grow(folder, 1, 12)
    for _ in range(2):
        ledger = maintenance.maintain_ledger(replace(ledger, checkpoint=-9), kept=0.0)
    assert not (Path(folder.lake) / "manifests" / "0000000001.json").exists()
    last = position_after(ledger, ledger.number)
    assert added(ledger, BEGIN, last) == [[*range(24)]]
    with pytest.raises(HistoryLost, match=rf"commits 1 to {ledger.number}: "):
        added(ledger, first, last)
    with pytest.raises(HistoryLost, match=r"commit 1: "):
        position_after(ledger, 1)


@pytest.mark.parametrize(("retention", "stay"), [(None, False), ("90min", False), ("3h", True), ("2d", True)])
def test_setting_keeps_merged_files_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retention: str | None, stay: bool
) -> None:
    folder = Folder(tmp_path)
    second = position_after(grow(folder, 0, 2), 1)
    ledger = grow(folder, 2, 12)
    then = time.time() - 2 * 3600
    for path in Path(folder.lake).rglob("*.*"):
        os.utime(path, (then, then))
    if retention is not None:
        monkeypatch.setenv("CAUSEWAY_RETENTION", retention)
    ledger = grow(folder, 12, 13)
    last = position_after(ledger, ledger.number)
    if stay:
        assert added(ledger, second, last) == [[2 * number, 2 * number + 1] for number in range(2, 13)]
    else:
        with pytest.raises(HistoryLost):
            added(ledger, second, last)


@pytest.mark.parametrize("value", ["", "5", "-1h", "2 weeks", "1e3s", "infs"])
def test_wrong_retention_is_refused_before_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    folder = Folder(tmp_path)
    number = grow(folder, 0, 1).number
    monkeypatch.setenv("CAUSEWAY_RETENTION", value)
    error = rf"^CAUSEWAY_RETENTION: '{value}': must be a time such as 90s, 30min, 2h or 2d$"
    with pytest.raises(InvalidInput, match=error):
        grow(folder, 1, 2)
    assert open_ledger(folder.lake).number == number


@pytest.mark.parametrize("change", [lambda position: position, lambda position: replace(position, digest="0" * 64)])
def test_another_ledger_is_refused(tmp_path: Path, change: Callable[[CommitPosition], CommitPosition]) -> None:
    folder = Folder(tmp_path)
    ledger = grow(folder, 0, 3)
    first, third = position_after(ledger, 0), position_after(ledger, 2)
    shutil.rmtree(folder.lake)
    folder.write("000.csv", HEAD + lines(50, 60))
    for number in (1, 3, 5):  # it ends before that commit, with another one, and after it
        ledger = grow(folder, number, number + 2)
        with pytest.raises(LedgerReplaced, match="commit 2 is not the one that was read before; read it from the"):
            added(ledger, BEGIN, change(third))
    with pytest.raises(LedgerReplaced):
        added(ledger, change(first), position_after(ledger, 2))
    with pytest.raises(LedgerReplaced):
        require_position(ledger, replace(third, number=ledger.number))
