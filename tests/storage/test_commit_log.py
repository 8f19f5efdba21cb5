"""The commit log: records with a fixed file format, and numbered files created once."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import pytest
from causeway_proofs.errors import InvalidInput

from causeway.cluster.tasks import TaskFailed, result_of, run_pickled
from causeway.ledger.ingest.chunks import BadFile
from causeway.storage.commit_log import CommitLog, Count, HeadRecord, Record, create_once, decoded, encoded
from causeway.storage.files import Storage
from causeway.storage.layout import LakeDamaged, LakeHead
from causeway.storage.object_store import AlreadyExists
from causeway.storage.seals import FileDamaged, confine_path


@dataclass(frozen=True)
class File:
    path: Annotated[str, confine_path]
    rows: Count
    bucket: int | None = None


@dataclass(frozen=True)
class Commit(Record):
    number: int
    before: str
    files: tuple[File, ...] = ()
    spans: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    digest: str = ""


COMMIT = Commit(7, "x", (File("a/b", 3), File("c", 0, 1)), {"t": (1, 2)})


def test_record_round_trips() -> None:
    found = Commit.of(COMMIT.content())
    assert found.digest == decoded(COMMIT.content())["digest"]
    assert (found.number, found.before, found.files, found.spans) == (7, "x", COMMIT.files, COMMIT.spans)
    assert Commit.of(found.content()) == found
    assert Commit.of(encoded({"number": 1, "before": "", "of a later format": 1})).files == ()


@pytest.mark.parametrize(
    ("key", "other", "text"),
    [
        ("number", True, "number: True is no int"),
        ("before", None, "before: None is no str"),
        ("files", {}, "files: {} is no list"),
        ("files", [{"path": "../a", "rows": 1}], "files: path: '../a' is no path within its folder"),
        ("files", [{"path": "a", "rows": -1}], "files: rows: -1 is no count"),
        ("files", [{"path": "a", "rows": 1, "bucket": "0"}], "files: bucket: '0' is no int"),
        ("spans", {"t": [1]}, "spans: zip()"),
    ],
)
def test_value_of_another_type_is_named(key: str, other: Any, text: str) -> None:
    content = decoded(COMMIT.content())
    del content["digest"]
    with pytest.raises(ValueError, match="^" + text.replace("(", r"\(").replace(")", r"\)").replace(".", r"\.")):
        Commit.of(encoded({**content, key: other}))


def test_record_with_a_missing_key_or_an_altered_byte_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^before: None is no str$"):
        Commit.of(encoded({"number": 1}))
    with pytest.raises(ValueError, match="does not fit its digest"):
        Commit.of(COMMIT.content().replace(b"x", b"y"))


def test_head_has_one_length_and_round_trips() -> None:
    head = LakeHead(3, 2, "m", settled=True)
    assert len(head.content()) == 512 and LakeHead.of(head.content()) == head and issubclass(LakeHead, HeadRecord)
    with pytest.raises(ValueError, match=r"^511 bytes, not 512$"):
        LakeHead.of(head.content()[:-1])


def test_record_is_created_once_and_read_by_its_number(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    storage.make_folder("log")
    log = CommitLog(storage, "log", "commit", Commit.of)
    log.create(7, COMMIT.content())
    log.create(7, COMMIT.content())  # a store whose answer was lost is asked again
    with pytest.raises(AlreadyExists):
        log.create(7, Commit(7, "y").content())
    create_once(storage, log.path(8), COMMIT.content())
    (tmp_path / "log" / "notes.json").write_text("")
    assert log.numbers() == [7, 8] and log.read(7).files == COMMIT.files
    with pytest.raises(FileDamaged, match=r"^log/0000000008\.json is the commit number 7$"):
        log.read(8)
    with pytest.raises(FileNotFoundError):
        log.read(9)


def test_errors_from_tasks_are_unchanged() -> None:
    for error in (LakeDamaged("uri", "path", "is missing", 4), BadFile("text", "changed"), InvalidInput("text")):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and str(again) == str(error) and vars(again) == vars(error)

        def fails(error: Exception = error) -> None:
            raise error

        with pytest.raises(type(error), match=str(error).partition(":")[0]):
            result_of(run_pickled(fails))

    def fails_otherwise() -> None:
        raise TaskFailed("text")

    with pytest.raises(TaskFailed, match=r"^TaskFailed: text$"):
        result_of(run_pickled(fails_otherwise))
    assert result_of(run_pickled(lambda: 5)) == 5
