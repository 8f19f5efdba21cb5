"""Files are ingested exactly once, and no record is dropped silently."""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput

from causeway.audit.stored import audit_ledger
from causeway.ledger.commits import CommitLost
from causeway.ledger.ingest import commit, tasks
from causeway.ledger.ingest import ingest as ledger_ingest
from causeway.ledger.ingest.ingest import IngestResult, ingest_files
from causeway.ledger.ingest.mapping import MappingDocument
from causeway.ledger.ingest.reader import ingest_file
from causeway.ledger.ingest.tasks import IngestJob, ThreadRunner
from causeway.ledger.store import LedgerWriter, open_ledger

HEAD = "n,what,who,at\n"
FIELDS = {
    "protocol": {"text": "p"}, "source": {"text": "a"}, "chain": {"text": "a"}, "lane": {"text": "1"}, "index": "n",
    "sender": "who", "time": {"column": "at", "unit": "s"},
}  # fmt: skip


def mapping(**changes: Any) -> MappingDocument:
    event = {"event": {"column": "what", "values": {"s": "sent", "r": "received"}, "others": "refuse"}}
    given = {"format": "csv", "stated_by": "t", "fields": FIELDS, "events": [event], "ignore": []}
    return MappingDocument.model_validate({**given, "windows": {"by": "time"}, **changes})


def lines(first: int, end: int, **changes: str) -> str:
    return "".join(f"{n},{changes.get('what', 's')},w{n},{1_000_000 + n}\n" for n in range(first, end))


class Folder:
    """A folder of files, and the ledger it is ingested into."""

    def __init__(self, path: Path) -> None:
        self.path, self.lake = path / "in", str(path / "ledger")
        self.path.mkdir()

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def ingest(self, of: MappingDocument | None = None, **options: Any) -> IngestResult:
        return ingest_files(str(self.path), self.lake, of or mapping(), **options)

    def rows(self) -> list[dict[str, Any]]:
        ledger = open_ledger(self.lake)
        parts = [ledger.rows(bucket) for bucket in range(ledger.buckets)]
        return sorted(pa.concat_tables(parts).to_pylist(), key=lambda row: (row["index"], str(row["event"])))

    def indices(self) -> list[int]:
        return [row["index"] for row in self.rows()]

    def quarantine(self) -> list[dict[str, Any]]:
        return list(open_ledger(self.lake).table("quarantine").to_pylist())


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_file_is_ingested_once_under_any_name_and_a_grown_one_from_its_end(folder: Folder) -> None:
    grown = folder.write("a.csv", HEAD + lines(0, 5))
    folder.write("b.csv", HEAD + lines(100, 103))
    assert (folder.ingest().records, folder.ingest().commit) == (8, None)
    grown.rename(folder.path / "c.csv")
    assert folder.ingest().skipped == 2
    (folder.path / "c.csv").rename(grown)
    with grown.open("a") as file:
        file.write(lines(5, 9))
    # These rows have no position on a chain: if the first ones were ingested again, they would be duplicated.
    done = folder.ingest()
    assert (done.records, done.rows, done.skipped) == (4, 4, 1)
    assert folder.indices() == [*range(9), 100, 101, 102]
    assert [row["source_row"] for row in folder.rows()][:9] == list(range(1, 10))
    assert [each.records for each in open_ledger(folder.lake).ingested_inputs() if each.goes_on] == [9]
    # A rewritten one is another file.
    folder.write("a.csv", HEAD + lines(0, 2) + lines(50, 60))
    assert folder.ingest().records == 12
    # A record without an end of line may still grow: it is ingested, and with later bytes ingested again.
    folder.write("d.csv", HEAD + "200,s,w,1")
    folder.ingest()
    folder.write("d.csv", HEAD + "200,s,w,10\n")
    assert folder.ingest().records == 1 and folder.indices()[-2:] == [200, 200]


@pytest.mark.parametrize("set_aside", [False, True])
def test_unknown_event_or_kind_quarantines_only_its_record(folder: Folder, set_aside: bool) -> None:
    fields = {**FIELDS, "kind": {"column": "kind", "otherwise": "request"}, "event": "what"}
    of = mapping(format="jsonl", fields=fields, events=[{"event": None}], windows=None)
    given = [{"what": "sent"}, {"what": "stopped"}, {"what": "sent", "kind": "requst"}, {"what": "received"}]
    folder.write("a.jsonl", "".join(json.dumps({"n": n, **each}) + "\n" for n, each in enumerate(given)))
    done = folder.ingest(of, set_aside=set_aside)
    assert (done.rows, done.quarantined) == (2, {"not_an_event": 1, "not_allowed": 1})
    assert [(row["field"], row["value"]) for row in folder.quarantine()] == [("event", "stopped"), ("kind", "requst")]
    assert folder.indices() == [0, 3] and audit_ledger(open_ledger(folder.lake)).holds


def test_reverted_row_names_the_reverted_event(folder: Folder) -> None:
    fields = {**FIELDS, "event": "what", "detail": "of"}
    of = mapping(format="jsonl", fields=fields, events=[{"event": None}], windows=None)
    given: list[dict[str, str | None]] = [{"what": "sent"}]
    given += [{"what": "reverted", "of": name} for name in ("sent", "snt", None)]
    folder.write("a.jsonl", "".join(json.dumps({"n": n, **each}) + "\n" for n, each in enumerate(given)))
    done = folder.ingest(of)
    assert (done.rows, done.quarantined) == (2, {"not_an_event": 2})
    assert [(row["field"], row["value"]) for row in folder.quarantine()] == [("detail", "snt"), ("detail", None)]


def test_row_ignores_the_names_of_other_events(folder: Folder) -> None:
    """A column that distinguishes events may hold words that are no events of the ledger."""
    events = [
        {"where": {"what": ["sent", "received"]}, "event": "what"},
        {"where": {"what": "mint"}, "event": {"text": "executed"}},
    ]
    folder.write("a.csv", HEAD + "1,sent,w,1\n1,received,w,2\n1,mint,w,3\n2,sent,w,4\n2,received,w,5\n")
    assert folder.ingest(mapping(events=events)).rows == 5
    assert audit_ledger(open_ledger(folder.lake)).holds


def test_windows_and_guarantees_continue_over_commits(folder: Folder) -> None:
    folder.write("a.csv", HEAD + lines(0, 5))
    promise = [{"promise": "numbered"}]
    folder.ingest(mapping(promises=promise))
    folder.write("b.csv", HEAD + lines(20, 25))
    folder.ingest(mapping(promises=promise))
    ledger = open_ledger(folder.lake)
    (window,) = ledger.table("observed").to_pylist()
    assert [window[f"{end}_time"].timestamp() for end in ("first", "last")] == [1_000_000, 1_000_024]
    assert ledger.table("promises")["promise"].to_pylist() == ["numbered", "expected"]
    assert len(ledger.files("promises")) == 1


def test_files_of_other_formats_are_skipped_and_odd_names_are_escaped(folder: Folder) -> None:
    name = os.fsdecode("é \x1b[2J\n".encode() + b"\xff.csv")
    folder.write(name, HEAD + lines(0, 2))
    folder.write(".b.csv", "half")
    folder.write("notes.txt", "")
    os.mkfifo(folder.path / "pipe.csv")
    (folder.path / "folder.csv").mkdir()
    (folder.path / "nothing.csv").symlink_to(folder.path / "gone")
    (folder.path / "loop.csv").symlink_to(folder.path / "loop.csv")
    target = folder.path.parent / "target"
    target.write_text(HEAD + lines(2, 4))
    (folder.path / "link.csv").symlink_to(target)
    done = folder.ingest()
    assert (done.files, done.others, done.records) == (2, 5, 4)
    assert {row["source_file"] for row in folder.rows()} == {"link.csv", "é \\x1b[2J\\n\\xff.csv"}
    with pytest.raises(InvalidInput, match="is no file that can be read again: a pipe"):
        ingest_files(str(folder.path / "pipe.csv"), folder.lake, mapping())


BAD = {
    "packed.csv.gz": (b"no gzip", "not_packed"),
    "half.csv.gz": (gzip.compress((HEAD + lines(0, 5000)).encode())[:-30], "not_packed"),
    "empty.csv": (b"", "empty"),
    "twice.csv": (b"n,n\n", "column_twice"),
    "missing.csv": (b"n,what\n1,s\n", "column_missing"),
    "wide.csv": ("é,what\n".encode("utf-16"), "not_utf8"),
}


def test_unreadable_file_ends_the_call_or_is_quarantined_by_name(folder: Folder) -> None:
    for name, (content, _) in BAD.items():
        folder.write(name, content)
    folder.write("good.csv", HEAD + lines(0, 3) + "x\n")
    with pytest.raises(InvalidInput, match=r"empty\.csv: empty; a CSV file begins with"):
        folder.ingest()
    assert not open_ledger(folder.lake).live
    done = folder.ingest(set_aside=True)
    assert (done.files, done.records, done.quarantined) == (1, 4, {"columns": 1})
    assert {*done.failed} == {*BAD} and all(text.startswith(name) for name, text in done.failed.items())
    rows = {row["source_file"]: row for row in folder.quarantine() if row["source_row"] is None}
    assert {name: row["reason"] for name, row in rows.items()} == {name: reason for name, (_, reason) in BAD.items()}
    # An unchanged file is not tried again.
    assert folder.ingest(set_aside=True).commit is None
    folder.write("empty.csv", HEAD + lines(7, 8))
    assert folder.ingest().records == 1 and folder.indices() == [0, 1, 2, 7]


def test_all_members_of_a_compressed_file_are_read(folder: Folder) -> None:
    import bz2

    parts = [(HEAD + lines(0, 3)).encode(), lines(3, 5).encode()]
    folder.write("a.csv.gz", b"".join(map(gzip.compress, parts)))
    folder.write("b.csv.bz2", b"".join(map(bz2.compress, [HEAD.encode(), lines(5, 7).encode()])))
    packed = pa.Codec("zstd")
    zstd = [HEAD.encode() + lines(7, 8).encode(), lines(8, 9).encode()]
    folder.write("c.csv.zst", b"".join(packed.compress(part, asbytes=True) for part in zstd))
    folder.ingest()
    assert folder.indices() == list(range(9))


def test_file_that_changes_during_reading_is_not_ingested(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder.write("a.csv", HEAD + lines(0, 3))
    folder.write("b.csv", HEAD + lines(10, 13))
    real = ingest_file

    def changed(change: Any) -> Any:
        def take(stream: Any, file: str, *arguments: Any, **named: Any) -> Any:
            yield from real(stream, file, *arguments, **named)
            if file == "a.csv":
                change()

        return take

    for change, text in (
        (lambda: folder.write("a.csv", HEAD + lines(5, 8)), "a.csv: changed while it was read"),
        (path.unlink, "a.csv: is gone"),
    ):
        monkeypatch.setattr("causeway.ledger.ingest.tasks.ingest_file", changed(change))
        with pytest.raises(InvalidInput, match=text):
            folder.ingest()
        monkeypatch.setattr("causeway.ledger.ingest.tasks.ingest_file", real)
    monkeypatch.setattr(
        "causeway.ledger.ingest.tasks.ingest_file", changed(lambda: folder.path.joinpath("a.csv").unlink())
    )
    folder.write("a.csv", HEAD + lines(0, 3))
    done = folder.ingest(set_aside=True)
    assert {*done.failed} == {"a.csv"} and folder.indices() == [10, 11, 12] and not folder.quarantine()

    def grow() -> None:
        with path.open("a") as file:
            file.write(lines(3, 4))

    monkeypatch.setattr("causeway.ledger.ingest.tasks.ingest_file", changed(grow))
    folder.write("a.csv", HEAD + lines(0, 3))
    folder.ingest()
    monkeypatch.setattr("causeway.ledger.ingest.tasks.ingest_file", real)
    assert folder.indices() == [0, 1, 2, 10, 11, 12] and folder.ingest().records == 1


@pytest.mark.parametrize("threads", [1, 3])
def test_rows_are_equal_in_memory_and_spilled(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, threads: int, tmp_path: Path
) -> None:
    for number in range(7):
        folder.write(f"{number}.csv", HEAD + lines(1000 * number, 1000 * number + 300) + "bad\n" + lines(0, 50))
    folder.ingest(buckets=4)
    whole = folder.rows()
    assert len({file.bucket for file in open_ledger(folder.lake).files("ledger")}) == 1
    monkeypatch.setattr(ledger_ingest, "ThreadRunner", lambda: ThreadRunner(threads))
    monkeypatch.setattr(commit, "LOOSE_ROWS", 0)
    monkeypatch.setattr(tasks, "QUARANTINE_BYTES", 1)
    monkeypatch.setattr(commit, "IngestJob", lambda *given: replace(IngestJob(*given), run_bytes=40_000))
    folder.lake = str(tmp_path / "other")
    folder.ingest(buckets=4)
    ledger = open_ledger(folder.lake)
    assert folder.rows() == whole and {file.bucket for file in ledger.files("ledger")} <= {0, 1, 2, 3}
    assert len(folder.quarantine()) == 7
    assert not (tmp_path / "other" / "staging").exists() or not list((tmp_path / "other" / "staging").iterdir())


def test_one_of_two_concurrent_ingests_commits_and_the_other_leaves_no_files(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write("a.csv", HEAD + lines(0, 3))
    folder.ingest()
    folder.write("b.csv", HEAD + lines(3, 5))
    real = LedgerWriter.commit

    def late(writer: LedgerWriter, *arguments: Any) -> Any:
        monkeypatch.setattr(LedgerWriter, "commit", real)
        LedgerWriter(open_ledger(folder.lake)).commit([], {})
        return real(writer, *arguments)

    monkeypatch.setattr(LedgerWriter, "commit", late)
    with pytest.raises(CommitLost):
        folder.ingest()
    assert folder.ingest().records == 2 and folder.indices() == list(range(5))
    there = [str(path) for path in Path(folder.lake).rglob("*.parquet")]
    assert len(there) == len(open_ledger(folder.lake).live) + len(open_ledger(folder.lake).gone)


def test_nested_json_may_change_between_numbers_and_texts(folder: Folder) -> None:
    own = mapping(
        format="jsonl",
        fields={**FIELDS, "index": {"column": ["id.number", "n"]}, "sender": {"column": "from.who", "optional": True}},
    )
    big = 2**64 - 1
    said: list[dict[str, Any]] = [
        {"id": {"number": 1}, "what": "s", "from": {"who": "x"}, "at": 5},
        {"id": {"number": "2"}, "what": "s", "from": {"who": {"deep": [1]}}, "at": "6"},
        {"id": {"number": big}, "what": "r", "more": {}, "at": None},
        {"id": {"number": big + 1}, "what": "r"},
        {"id": None, "n": 4, "what": "r"},
    ]
    folder.write("a.jsonl", "\n".join(map(json.dumps, said)))
    folder.ingest(own)
    assert [(row["index"], row["sender"]) for row in folder.rows()] == [
        (1, "x"), (2, '{"deep": [1]}'), (4, None), (big, None)
    ]  # fmt: skip
    assert [(row["source_row"], row["reason"]) for row in folder.quarantine()] == [(4, "too_large")]


def test_runner_raises_the_error_of_a_task_and_stops_the_others() -> None:
    left = tasks._Shared(range(1000))

    def fail() -> None:
        for number in left:
            if number == 3:
                raise InvalidInput("this one")

    with pytest.raises(InvalidInput, match="this one"), tasks._Pool(2, left.stop) as pool:
        pool.results([pool.submit(fail) for _ in range(2)])
    assert left.stopped


def test_invalid_location_is_refused_before_anything_is_created(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write("a.csv", HEAD + lines(0, 3))
    for options, text in (
        ({"buckets": 0}, "buckets: 0: must be a whole number from 1 to 4096"),
        ({"lake": ""}, "lake: empty"),
        ({"source": ""}, "source: empty"),
    ):
        given: dict[str, Any] = {"source": str(folder.path), "lake": folder.lake, "mapping": mapping(), **options}
        with pytest.raises(InvalidInput, match=text):
            ingest_files(**given)
    assert not os.path.exists(folder.lake)
    folder.ingest()
    with pytest.raises(InvalidInput, match="is a ledger"):
        ingest_files(folder.lake, str(tmp_path / "other"), mapping())
    with pytest.raises(InvalidInput, match=r"buckets: 7: the ledger at .* has 1, for good"):
        folder.ingest(buckets=7)


def test_rows_bucketed_in_parts_form_the_same_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With many rows per bucket each part is sorted separately, with few those of many parts together; the rows in
    memory at the end and those written before form one ledger."""
    own = {name: field for name, field in FIELDS.items() if name != "lane"}
    of = mapping(fields={**own, "lane": "who", "receiver": {"column": "to", "optional": True}})
    found = []
    for many, run_bytes in ((1 << 20, 1 << 20), (1, 1 << 20), (1, 3_000), (100, 9_000)):
        place = tmp_path / f"{many}-{run_bytes}"
        place.mkdir()
        folder = Folder(place)
        folder.write("a.csv", HEAD.replace(",at", ",at,to") + lines(0, 400).replace("\n", ",x\n"))
        for number in range(1, 6):
            folder.write(f"{number}.csv", HEAD + lines(400 * number - 10 * number, 400 * number + 30))
        monkeypatch.setattr(tasks, "MANY_PARTS", many)
        monkeypatch.setattr(
            commit, "IngestJob", lambda *given, most=run_bytes: replace(IngestJob(*given), run_bytes=most)
        )
        done = folder.ingest(of, buckets=4)
        ledger = open_ledger(folder.lake)
        found.append((done, [ledger.rows(bucket).to_pylist() for bucket in range(4)]))
    assert found[0] == found[1] == found[2] == found[3]
    assert found[0][0].rows > 500 and all(found[0][1])
