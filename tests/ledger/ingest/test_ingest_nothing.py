"""Input without usable records is an error with a reason and a hint; no commit is written."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from causeway.ledger.ingest.commit import NothingIngested, suggest_fix
from causeway.ledger.ingest.ingest import ingest_files
from causeway.ledger.ingest.mapping import MappingDocument
from causeway.ledger.store import open_ledger
from tests.ledger.ingest.test_ledger_ingest import FIELDS, HEAD, Folder, lines, mapping
from tests.support.common.command_line import Run, command_line

RECORD = {"n": 1, "what": "s", "who": "w", "at": 5}
OF = mapping(format=["jsonl", "csv"])


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_fully_refused_input_is_an_error_with_the_commonest_reason(folder: Folder) -> None:
    folder.write("a.csv", HEAD + "x,s,w,1\n,s,w,1\n" + "y,s,w,1\n")
    folder.write("b.csv", HEAD + ",s,w,1\n,s,w,1\n")
    with pytest.raises(NothingIngested) as raised:
        folder.ingest()
    assert str(raised.value) == ("a.csv: record 2: index: missing; 0 of 5 records taken (missing 3, not_a_number 2)")
    assert raised.value.reasons == {"missing": 3, "not_a_number": 2} and raised.value.hint is None
    ledger = open_ledger(folder.lake)
    assert ledger.number == -1 and not list(Path(folder.lake).rglob("*.parquet"))
    # One usable record is enough, and so are ignored ones, or --set-aside.
    folder.write("c.csv", HEAD + lines(7, 8))
    assert folder.ingest().quarantined == {"missing": 3, "not_a_number": 2}


def test_ignored_or_deliberately_quarantined_records_are_no_error(folder: Folder) -> None:
    folder.write("a.csv", HEAD + "1,i,w,1\n\n")
    events = [{"where": {"what": "s"}, "event": {"text": "sent"}}]
    assert folder.ingest(mapping(events=events, ignore=[{"what": "i"}])).ignored == 1
    folder.write("b.csv", HEAD + "x,s,w,1\n")
    assert folder.ingest(set_aside=True).quarantined == {"not_a_number": 1, "not_allowed": 1}


def hint(text: str | bytes, of: MappingDocument = OF, file: str = "f.json") -> str | None:
    content = text.encode() if isinstance(text, str) else text
    return suggest_fix(io.BytesIO(content), file, len(content), of)


@pytest.mark.parametrize("indent", [None, 1])
def test_single_json_document_is_reported_with_its_arrays(indent: int | None) -> None:
    def of(document: Any) -> str:
        found = hint(json.dumps(document, indent=indent))
        assert found is not None
        return found.removeprefix("f.json is one JSON document; JSON lines have one object a line")

    answer = {"data": {"some": [RECORD], "more of it": [RECORD] * 3, "texts": ["x"]}, "next": None}
    assert of(answer) == (
        """; its arrays: .data["more of it"] (3 objects), .data.some (1 objects); """
        """for example: jq -c '.data["more of it"][]' f.json > records.jsonl"""
    )
    assert of([RECORD] * 2) == "; its arrays: . (2 objects); for example: jq -c '.[]' f.json > records.jsonl"
    assert of({"odd key": [RECORD]}).endswith("""jq -c '.["odd key"][]' f.json > records.jsonl""")
    assert of([1, 2]) == ""


def test_name_absent_from_all_records_is_reported_with_the_nearest_one() -> None:
    of = mapping(format="jsonl", fields={**FIELDS, "index": "packet.sequence"})
    record = {**RECORD, "packet": {"Sequence": 5, "x": [RECORD]}}
    assert hint(json.dumps(record), of) == (
        "no record of f.json has packet.sequence (index); did you mean packet.Sequence?"
    )
    assert hint(json.dumps({"seq": 1, "what": "s", "who": "w", "at": 5})) == (
        "no record of f.json has n (index); it has at, seq, what, who"
    )
    loose = mapping(format="jsonl", names="loose", fields={**FIELDS, "index": "packet.sequence"})
    assert hint(json.dumps({**record, "what": "z"}), loose) is None


def test_values_matched_by_no_event_are_reported() -> None:
    events = [{"where": {"what": ["s", "t"]}, "event": {"text": "sent"}}]
    text = "\n".join(json.dumps({**RECORD, "what": value}) for value in ("a", "b", "a"))
    assert hint(text, mapping(format="jsonl", events=events)) == (
        'events of the mapping want what = s, t; f.json has "a", "b"'
    )


def test_non_json_input_is_reported() -> None:
    assert hint('12:00 INFO done {"n": 1}\n') == "f.json has text before the JSON object of each line; cut it off"
    for text in ("", "x\n", "{\n", b"\xff\n", "[" * 2000):
        assert hint(text) == "f.json is read as JSON lines: one object a line"
    assert hint("n\n1\n", file="f.csv") is None


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    yield from command_line(capsys, tmp_path, monkeypatch, "ingest")


def test_command_exits_with_2_and_prints_the_hint_on_its_own_line(cli: Run, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"data": [{"type": "xcm.sent"}]}))
    code, out, err = cli("xcm-journeys", tmp_path / "a.json", "--lake", tmp_path / "ledger")
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        "causeway: a.json: record 1: no_event; 0 of 1 records taken (no_event 1)",
        "hint: a.json is one JSON document; JSON lines have one object a line; its arrays: .data (1 objects); "
        "for example: jq -c '.data[]' a.json > records.jsonl",
    ]
    assert open_ledger(str(tmp_path / "ledger")).number == -1


def test_compressed_files_are_inspected_decompressed(tmp_path: Path) -> None:
    import gzip

    (tmp_path / "a.json.gz").write_bytes(gzip.compress(json.dumps([RECORD]).encode()))
    with pytest.raises(NothingIngested) as raised:
        ingest_files(str(tmp_path / "a.json.gz"), str(tmp_path / "ledger"), OF)
    assert raised.value.hint is not None and "jq -c '.[]' a.json.gz" in raised.value.hint
