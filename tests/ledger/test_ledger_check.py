"""``causeway check LEDGER``: every change of a referenced file is found."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from causeway.audit.stored import audit_ledger
from causeway.cli import main
from causeway.ledger.ingest.ingest import ingest_files
from causeway.ledger.ingest.mapping import load_mapping
from causeway.ledger.integrity import _wrong, check_ledger
from causeway.ledger.maintenance import CHECKPOINT_EVERY, maintain_ledger
from causeway.ledger.schema import LEDGER_SCHEMA
from causeway.ledger.store import InputFile, LedgerWriter, create_ledger, open_ledger
from causeway.storage.parquet_files import MAX_EXPANSION

COMMITS = CHECKPOINT_EVERY + 5


@pytest.fixture(scope="module")
def merged_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a ledger of more commits than one checkpoint covers, with merged files."""
    place = tmp_path_factory.mktemp("made") / "ledger"
    ledger = create_ledger(str(place), 2)
    for number in range(COMMITS):
        row = {"protocol": "p", "source": "a", "destination": "b", "index": number, "kind": "request", "event": "sent"}
        plain = pa.schema([(f.name, getattr(f.type, "value_type", f.type)) for f in LEDGER_SCHEMA])
        row |= {"source_file": "f", "source_row": number, "stated_by": "test"}
        rows = pa.Table.from_pylist([row], plain).cast(LEDGER_SCHEMA)
        writer = LedgerWriter(ledger)
        writer.write("ledger", rows)
        taken = InputFile("f", number + 1, "0" * 64, 1, "m")
        ledger = maintain_ledger(ledger.after(writer.commit([taken], {"rows": 1})))
    return place


@pytest.fixture
def ledger(merged_ledger: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(merged_ledger, tmp_path / "ledger"))


def test_verified_ledger_has_no_corruption(ledger: Path) -> None:
    told: list[tuple[int, int]] = []
    found = check_ledger(str(ledger), lambda done, of: told.append((done, of)))
    live = open_ledger(str(ledger)).live
    assert (found.damaged, found.strays, found.rows, found.files) == ((), (), COMMITS, len(live))
    assert found.commits == open_ledger(str(ledger)).number + 1 > COMMITS
    assert told[-1] == (len(live), len(live)) and found.bytes == sum(file.seal[0] for file in live)


def test_each_referenced_file_is_compared_with_its_digest(ledger: Path) -> None:
    for file in open_ledger(str(ledger)).live:
        path = ledger / file.path
        content = path.read_bytes()
        for other in (content[:-1], content + b"\0", content[:9] + bytes([content[9] ^ 1]) + content[10:], b""):
            path.write_bytes(other)
            (told,) = check_ledger(str(ledger)).damaged
            assert told.startswith(file.path)
        path.unlink()
        assert check_ledger(str(ledger)).damaged == (f"{file.path} is missing",)
        path.write_bytes(content)


def test_each_small_file_is_read(ledger: Path) -> None:
    small = [*(ledger / "manifests").iterdir(), *(ledger / "checkpoints").iterdir()]
    assert len(small) > 2
    for path in [*small, ledger / "ledger.head"]:
        content = path.read_bytes()
        path.write_bytes(content.replace(b'"', b"'", 1))
        assert [str(path.relative_to(ledger)) in told for told in check_ledger(str(ledger)).damaged] == [True], path
        path.write_bytes(content)
    max((ledger / "manifests").iterdir()).unlink()
    (told,) = check_ledger(str(ledger)).damaged
    assert "is missing" in told


def test_file_with_another_row_count_than_its_commit_is_detected(ledger: Path) -> None:
    opened = open_ledger(str(ledger))
    file = next(file for file in opened.live if file.table == "ledger")
    assert _wrong(opened, file) is None
    told = _wrong(opened, replace(file, rows=file.rows + 1))
    assert told == f"{file.path} has {file.rows} rows, and {file.rows + 1} were written"


def test_stray_files_are_named(ledger: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("notes.txt", "ledger/extra.parquet", "manifests/0000000001.json.tmp"):
        (ledger / name).write_bytes(b"")
    assert check_ledger(str(ledger)).strays == (
        "ledger/extra.parquet", "manifests/0000000001.json.tmp", "notes.txt",
    )  # fmt: skip
    with pytest.raises(SystemExit) as ended:
        main(["check", str(ledger)])
    told = capfd.readouterr().out
    assert ended.value.code == 0 and "1 file in . that nothing names" in told
    assert "PASSED: all files verified." in told


def test_command_reports_the_corrupted_files(ledger: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = ledger / open_ledger(str(ledger)).live[0].path
    path.write_bytes(path.read_bytes()[:-1])
    for given, told in (((), "damaged"), (("--json",), '"damaged": ["')):
        with pytest.raises(SystemExit) as ended:
            main(["check", str(ledger), *given])
        assert ended.value.code == 1
        out = capfd.readouterr().out
        assert told in out
        assert not given or json.loads(out)["files"]
    (ledger / "ledger.head").unlink()
    with pytest.raises(SystemExit) as ended:
        main(["check", str(ledger)])
    told = capfd.readouterr().out
    assert ended.value.code == 1 and "cannot be opened" in told and "ledger.head is missing" in told
    with pytest.raises(SystemExit) as ended:
        main(["check", str(ledger), "--execute"])
    assert ended.value.code == 2 and "only of a lake" in capfd.readouterr().err


def test_regular_rows_of_many_messages_are_read_again(tmp_path: Path) -> None:
    """Names are constant and times regular: the file has a thousandth of the size of its rows in memory."""
    count = 900_000
    index = np.arange(count)
    same = {name: pa.repeat(name[0], count) for name in ("source", "destination", "lane", "content")}
    for name, delay in (("send", 0), ("receive", 5)):
        times = pa.array(1_700_000_000 + delay + index)
        pq.write_table(pa.table({**same, "index": index, "time": times}), tmp_path / f"{name}.parquet")
    place = str(tmp_path / "ledger")
    ingest_files(str(tmp_path), place, load_mapping("two-tables"), buckets=1, executor="in_process")
    ledger = open_ledger(place)
    assert all(MAX_EXPANSION * file.seal[0] < 300 * file.rows for file in ledger.files("ledger"))
    assert not check_ledger(place).damaged
    assert audit_ledger(ledger, executor="in_process").holds
    assert ledger.rows(0).num_rows == 2 * count
