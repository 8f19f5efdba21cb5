"""Paths in files of an untrusted lake or ledger stay in its folder and name regular files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from causeway.cli.app import build_app
from causeway.cli.shell import BAD_INPUT, execute
from causeway.ledger.commits import LedgerDamaged
from causeway.ledger.schema import LEDGER_SCHEMA
from causeway.ledger.store import LedgerWriter, create_ledger, open_ledger
from causeway.storage.commit_log import decoded, encoded, head_content
from causeway.storage.files import Storage
from causeway.storage.lake import Lake
from causeway.storage.layout import LakeDamaged
from causeway.storage.object_store import LocalPlace, ObjectPlace
from causeway.storage.seals import MAX_PATH, FileDamaged, FileTooLong, OutsideRoot, confine_path, seal_content
from causeway.storage.vacuum import vacuum_lake
from tests.support.ic import ic_lake
from tests.support.properties.audit_ledgers import table

OUTSIDE = [
    *("../victim.txt", "/etc/passwd", "heights/../../victim.txt", "heights/./x", "heights//x", "heights/", "", ".."),
    *("heights\\..\\x", "heights/a\nb", "heights/\u202ex", "x" * (MAX_PATH + 1), None, 5, ["x"]),
]


@pytest.mark.parametrize("path", OUTSIDE)
def test_path_from_a_file_stays_in_its_folder(path: Any) -> None:
    with pytest.raises(ValueError, match="is no path within its folder"):
        confine_path(path)


@pytest.mark.parametrize(
    "path", ["heights/0000000035/blocks-0000-30a05d69.parquet", "ledger/bucket=00/a.parquet", "head"]
)
def test_written_paths_are_allowed(path: str) -> None:
    assert confine_path(path) == path


@pytest.mark.parametrize("place", [LocalPlace, lambda root: ObjectPlace("memory:///")], ids=["folder", "store"])
def test_storage_reads_writes_and_removes_only_within_its_root(
    place: Callable[[str], LocalPlace | ObjectPlace], tmp_path: Path
) -> None:
    victim = tmp_path / "victim.txt"
    victim.write_text("precious")
    (tmp_path / "root").mkdir()
    at = place(str(tmp_path / "root"))
    calls: list[Callable[[str], Any]] = [
        *(at.read, at.size, at.modified, at.remove, at.remove_folder),
        *(lambda path: at.read_range(path, 0, 1), lambda path: at.read_ranges(path, [(0, 1)])),
        *(lambda path: at.create(path, b""), lambda path: at.put(path, b""), lambda path: at.writer(path).__enter__()),
    ]
    for call in calls:
        with pytest.raises(OutsideRoot, match="is no path within its folder"):
            call("../victim.txt")
    assert victim.read_text() == "precious"


def test_symbolic_links_that_lead_outside_are_neither_written_nor_removed(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "victim").write_text("precious")
    root = tmp_path / "root"
    (root / "inside").mkdir(parents=True)
    (root / "inside" / "x").write_text("fine")
    (root / "out").symlink_to(tmp_path / "other")
    (root / "in").symlink_to(root / "inside")
    place = LocalPlace(str(root))
    calls: list[Callable[[], object]] = [
        *(lambda: place.remove("out/victim"), lambda: place.remove_folder("out"), lambda: place.put("out/victim", b"")),
        *(lambda: place.create("out/new", b""), lambda: place.writer("out/victim").__enter__()),
    ]
    for call in calls:
        with pytest.raises(OutsideRoot, match="a symbolic link leads out of its folder"):
            call()
    assert (tmp_path / "other" / "victim").read_text() == "precious"
    assert place.read("in/x") == b"fine"
    assert LocalPlace(str(root / "out")).read("victim") == b"precious", "what the user names may be a link"


def test_removed_folder_is_not_made_again(tmp_path: Path) -> None:
    """By a process whose paths are below it."""
    within = LocalPlace(str(tmp_path / "parent" / "folder"))
    with pytest.raises(FileNotFoundError):
        within.make_subfolder("a/b")
    within.make_folder("")
    for path in ("a", "a/b/c", "a/b"):
        within.make_subfolder(path)
    within.put("a/b/c/file", b"")
    LocalPlace(str(tmp_path / "parent")).remove_folder("folder")
    with pytest.raises(FileNotFoundError):
        within.make_subfolder("a/b")
    assert [*(tmp_path / "parent").iterdir()] == []


def test_only_regular_files_of_bounded_length_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "long").write_bytes(b"12345")
    place = LocalPlace(str(tmp_path))
    with pytest.raises(OSError, match="is no regular file"):
        place.read("pipe")
    with pytest.raises(OSError, match="is no regular file"):
        place.read_range("pipe", 0, 1)
    with pytest.raises(OSError, match="No such device"):
        place.put("pipe", b"x")
    with pytest.raises(OSError, match="has more than 4 bytes"):
        place.read("long", 4)


@pytest.mark.parametrize("place", [LocalPlace, lambda root: ObjectPlace("memory:///")], ids=["folder", "store"])
def test_file_longer_than_its_written_length_is_not_read(
    place: Callable[[str], LocalPlace | ObjectPlace], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = place(str(tmp_path))
    monkeypatch.setattr(Storage, "place", at)
    at.create("table", b"x" * 100)
    with pytest.raises(FileTooLong) as found:
        at.read("table", 99)
    assert found.value.length == 100
    with pytest.raises(FileDamaged, match="has 100 bytes where 10 were written"):
        Storage(str(tmp_path)).open_parquet("table", seal_content(b"x" * 10))


# ---- lakes


def _renamed(folder: Path, name: str) -> None:
    """Make the first manifest of a lake name another file of a state table, with valid digests."""
    manifests = sorted((folder / "manifests").iterdir())
    parent = None
    for number, path in enumerate(manifests):
        content = decoded(path.read_bytes())
        content.pop("digest")
        if number == 0:
            [table, *_] = content["state"]
            [bucket, *_] = content["state"][table]
            named = content["state"][table][bucket]
            (named if isinstance(named, list) else named["rows"][0])[0] = name
        if parent is not None:
            content["parent"] = parent
        path.write_bytes(encoded(content))
        parent = decoded(path.read_bytes())["digest"]
    head = decoded((folder / "head").read_bytes().rstrip())
    head.pop("digest")
    (folder / "head").write_bytes(head_content({**head, "manifest": parent}))


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("../../victim.txt", "is no path within its folder"),
        ("lake.json", "is in none of the folders heights, compacted, record"),
        ("manifests/0000000001.json", "is in none of the folders"),
    ],
)
def test_vacuum_removes_only_data_of_the_lake(path: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    lake = ic_lake.make_lake(tmp_path / "in", ticks=3)
    victim = tmp_path / "victim.txt"
    victim.write_text("precious")
    _renamed(Path(lake), path)
    with pytest.raises(LakeDamaged, match=rf"manifests/0000000000.json.*{why}"):
        vacuum_lake(Lake.at(str(lake)), 0, 1)
    assert victim.read_text() == "precious"


# ---- ledgers


@pytest.mark.parametrize("key", ["files", "gone"])
def test_ledger_references_no_outside_file(key: str, tmp_path: Path) -> None:
    ledger = create_ledger(str(tmp_path / "ledger"), 1)
    writer = LedgerWriter(ledger)
    writer.write("ledger", table([], LEDGER_SCHEMA), 0)
    writer.commit([], {})
    path = tmp_path / "ledger" / "manifests" / "0000000000.json"
    content = decoded(path.read_bytes())
    content.pop("digest")
    content[key] = ["../x"] if key == "gone" else [{**each, "path": "../x"} for each in content["files"]]
    path.write_bytes(encoded(content))
    with pytest.raises(LedgerDamaged, match=r"'\.\./x' is no path within its folder"):
        open_ledger(str(tmp_path / "ledger"))


@pytest.mark.parametrize("name", ["ledger.json", "ledger.head", "manifests/0000000000.json", "lake.json"])
def test_pipe_instead_of_a_file_is_an_immediate_error(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "ledger"
    LedgerWriter(create_ledger(str(folder), 1)).commit([], {})
    if name == "lake.json":
        (folder / "ledger.json").unlink()
    else:
        (folder / name).unlink()
    os.mkfifo(folder / name)
    assert execute(["audit", str(folder)], build_app, "causeway") == BAD_INPUT
    assert "is no regular file" in capsys.readouterr().err
