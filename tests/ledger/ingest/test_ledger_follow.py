"""Growing folders: each record is ingested once, for any order of writes and kills."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from causeway.ledger import maintenance
from causeway.ledger.ingest import folder_stream
from causeway.ledger.ingest.folder_stream import FolderLister
from causeway.ledger.ingest.ingest import FolderFollower, FollowBatch, ingest_files
from causeway.ledger.store import open_ledger
from causeway.storage.files import Storage
from tests.ledger.ingest.test_ledger_ingest import HEAD, Folder, lines, mapping

LONG_AGO = 1_000_000_000


class Followed:
    """A followed folder, by one process after the other."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.begin()

    def begin(self) -> None:
        """Begin like a new process."""
        storage = Storage(str(self.folder.path))
        self.lister = FolderLister(storage, ["csv"], 60)
        self.follower = FolderFollower(storage, self.folder.lake, mapping(), 4)

    def batches(self) -> Iterator[FollowBatch]:
        """Ingest new records."""
        while self.lister.more():
            yield self.follower.take(self.lister.next())

    def all(self) -> list[FollowBatch]:
        return list(self.batches())

    def settle(self) -> list[FollowBatch]:
        """Advance the time, and ingest new records."""
        for path in self.folder.path.iterdir():
            os.utime(path, (LONG_AGO, LONG_AGO))
        return self.all()


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    return Followed(Folder(tmp_path))


ROWS = [
    "{n},s,w{n},{n}\n",
    '{n},r,"two\nlines",{n}\n',
    "{n},s,,\r\n",
    '{n},s,"a ""b""",5\n',
    "bad\n",
    "\n",
    "{n},x,w,5\n",
]


@pytest.mark.parametrize("seed", range(4))
def test_files_growing_at_any_byte_yield_the_rows_of_the_final_files(
    followed: Followed, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "CHECKPOINT_EVERY", 6)
    random = Random(seed)
    texts = {}
    for number in range(3):
        rows = [random.choice(ROWS).format(n=100 * number + row) for row in range(random.randrange(2, 12))]
        texts[f"{number}.csv"] = (HEAD + "".join(rows)).encode()
    left = dict.fromkeys(texts, 0)
    while left:
        name = random.choice(sorted(left))
        end = min(left[name] + random.randrange(1, 30), len(texts[name]))
        with (followed.folder.path / name).open("ab") as file:
            file.write(texts[name][left[name] : end])
        left[name] = end
        if end == len(texts[name]):
            del left[name]
        if random.random() < 0.6:
            followed.all()
        if random.random() < 0.15:
            followed.begin()
    followed.settle()
    lake = followed.folder.lake
    mine = followed.folder.rows(), sorted(followed.folder.quarantine(), key=str)
    counts = open_ledger(lake).counts
    # Each byte of a file may have been a separate commit, and still only the last one is remembered.
    assert {each.file for each in open_ledger(lake).ingested_inputs()} == {*texts}
    followed.folder.lake = str(tmp_path / "whole")
    ingest_files(str(followed.folder.path), followed.folder.lake, mapping(), buckets=4)
    assert mine == (followed.folder.rows(), sorted(followed.folder.quarantine(), key=str))
    whole = open_ledger(followed.folder.lake).counts
    names = ("records", "taken", "quarantined", "blank", "rows")
    assert {name: counts.get(name, 0) for name in names} == {name: whole.get(name, 0) for name in names}


def test_incomplete_tail_waits_and_is_quarantined_once_writing_stops(followed: Followed) -> None:
    folder = followed.folder
    folder.write("half.csv", HEAD + lines(0, 2) + "2,s,w,5")
    folder.write("wrong.csv", "wrong\n")
    folder.write("packed.csv.gz", b"half")
    (batch,) = followed.all()
    assert batch.waiting == ["half.csv", "packed.csv.gz", "wrong.csv"] and not batch.done.failed
    assert followed.all() == [] and folder.indices() == [0, 1] and not folder.quarantine()
    (batch,) = followed.settle()
    assert not batch.waiting and {*batch.done.failed} == {"packed.csv.gz", "wrong.csv"}
    assert folder.indices() == [0, 1, 2] and {row["reason"] for row in folder.quarantine()} == {
        "column_missing", "not_packed"
    }  # fmt: skip
    # They are not tried again, nor by a new process, until they change.
    followed.begin()
    assert all(batch.done.commit is None and not batch.done.failed for batch in followed.all())
    folder.write("wrong.csv", HEAD + lines(7, 8))
    for _ in range(folder_stream.LOOK_EVERY):  # old files are inspected again occasionally
        followed.all()
    assert folder.indices() == [0, 1, 2, 7]


def test_removed_renamed_and_late_files_are_tolerated(followed: Followed) -> None:
    folder = followed.folder
    for name in ("a.csv", "b.csv", "c.csv"):
        folder.write(name, HEAD + lines(ord(name[0]), ord(name[0]) + 2))
    assert followed.lister.more()
    offers = followed.lister.next()
    (folder.path / "b.csv").unlink()
    folder.write("c.csv", HEAD + lines(1, 2))
    batch = followed.follower.take(offers)
    assert batch.vanished == ["b.csv", "c.csv"] and folder.indices() == [97, 98]
    (folder.path / "a.csv").rename(folder.path / "a.csv.old")
    (folder.path / "a.csv.old").rename(folder.path / "late.csv")
    os.utime(folder.path / "late.csv", (LONG_AGO, LONG_AGO))
    followed.all()
    assert folder.indices() == [1, 97, 98]
    # A file rewritten under its name is another one, even if it is longer.
    folder.write("c.csv", HEAD + lines(3, 30))
    followed.all()
    assert folder.indices() == [1, *range(3, 30), 97, 98]


def test_batch_continues_after_a_commit_of_another_process(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = followed.folder
    folder.write("a.csv", HEAD + lines(0, 2))
    followed.all()
    folder.write("b.csv", HEAD + lines(2, 4))
    ingest_files(str(folder.path), folder.lake, mapping())
    folder.write("c.csv", HEAD + lines(4, 6))
    (batch,) = followed.all()
    assert batch.done.commit == 2 and folder.indices() == list(range(6))


def test_each_file_state_is_offered_once_and_batches_are_bounded(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = followed.folder
    monkeypatch.setattr(folder_stream, "MAX_FILES", 4)
    monkeypatch.setattr(folder_stream, "MAX_BYTES", 300)
    for number in range(10):
        folder.write(f"{number}.csv", HEAD + lines(number, number + 1))
    folder.write("9.csv", HEAD + lines(9, 60))
    found: list[Any] = []
    while followed.lister.more():
        found.append([source.path for source, settled in followed.lister.next() if not settled])
    assert sorted(name for names in found for name in names) == [f"{number}.csv" for number in range(10)]
    assert max(map(len, found)) == 4 and found[-1] == ["9.csv"]
    assert not followed.lister.more()
    for path in folder.path.iterdir():
        os.utime(path, (LONG_AGO, LONG_AGO))
    assert [len(followed.lister.next()) for _ in range(3) if followed.lister.more()] == [4, 4, 1]
