"""Whatever a file holds, each of its records is taken, set aside with a reason, ignored or blank, in whatever parts it
is read."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from causeway.ledger.ingest import chunks
from causeway.ledger.ingest.chunks import BadFile, count_records, read_pieces
from causeway.ledger.ingest.mapping import MappingDocument
from causeway.ledger.ingest.reader import WHOLE_FILE, FilePart, ingest_file, split_file
from causeway.ledger.ingest.records import IngestedRecords
from tests.tiers import sized

FIELDS = {
    "protocol": {"text": "p"},
    "source": {"column": "from", "values": {"a": "chain-a"}},
    "index": "n",
    "sender": {"column": "who", "optional": True},
    "time": {"column": "at", "unit": "s", "optional": True},
    "content": ["who", "n"],
}
EVENTS = [{"where": {"what": "s"}, "event": {"text": "sent"}}, {"where": {"what": "r"}, "event": {"text": "received"}}]


def mapping(format_name: str) -> MappingDocument:
    return MappingDocument.model_validate(
        {"format": format_name, "stated_by": "t", "fields": FIELDS, "events": EVENTS, "ignore": [{"what": "i"}]}
    )


def ingest_part(
    data: bytes, file: str, of: MappingDocument, chunk: int, part: FilePart = WHOLE_FILE
) -> list[IngestedRecords]:
    return list(ingest_file(io.BytesIO(data), file, len(data), of, chunk, part, threads=1))


def summarize_parts(found: list[IngestedRecords]) -> dict[str, Any]:
    """Return the results of records for parts of any size."""
    counts = {name: sum(getattr(each, name) for each in found) for name in ("records", "taken", "ignored", "blank")}
    assert counts["records"] == (
        counts["taken"] + counts["ignored"] + counts["blank"] + sum(each.quarantine.num_rows for each in found)
    )
    quarantine = [row for each in found for row in each.quarantine.to_pylist()]
    rows = [row for each in found for row in each.ledger.to_pylist()]
    quarantine.sort(key=lambda row: int(row["source_row"]))
    return {**counts, "rows": sorted(rows, key=str), "quarantine": quarantine}


def compare(data: bytes, file: str, of: MappingDocument, chunk: int, most: int) -> None:
    try:
        whole = summarize_parts(ingest_part(data, file, of, 1 << 20))
    except BadFile:
        with pytest.raises(BadFile):
            ingest_part(data, file, of, chunk)
        return
    assert summarize_parts(ingest_part(data, file, of, chunk)) == whole
    parts = split_file(io.BytesIO(data), file, len(data), of, most)
    for part in parts if len(parts) > 1 else []:
        count = sum(each.records for each in ingest_part(data, file, of, chunk, part))
        assert part.records == count
    assert (
        summarize_parts([each for part in reversed(parts) for each in ingest_part(data, file, of, chunk, part)])
        == whole
    )


ROWS = st.lists(
    st.sampled_from(
        [
            b"a,1,s,x,5",
            b"b,2,r,",
            b"a,3,i,",
            b"",
            b" ",
            b"a,-1,s,",
            b"a,4,s",
            b'a,5,s,"q""d",9',
            b'"',
            b"a,6,r,\xff,1",
            b'a,7,s,"two\nlines",1',
            b"a,8,s,\x00,1",
            b"a,9,s,\r,1",
            b"\r",
            b"x" * 70,
            b'a,10,"',
            b'"a\n"x',
            b"a,11,s,\r",
            b"\xef\xbb\xbfa,12,s,x,1",
        ]
    ),
    max_size=12,
)


@settings(max_examples=sized(27, 300))
@given(ROWS, st.sampled_from([b"\n", b"\r\n", b"\r"]), st.booleans(), st.integers(1, 90), st.integers(1, 200))
@example([b"a,9,s,\r,1"], b"\n", True, 3, 10)
@example([b'"a\n"x', b"x" * 70, b'"'], b"\n", True, 7, 20)
@example([b"a,1,s,x,5", b"\xef\xbb\xbfa,12,s,x,1"], b"\n", True, 5, 20)
def test_csv_is_independent_of_part_boundaries(
    rows: list[bytes], end: bytes, last: bool, chunk: int, most: int
) -> None:
    data = b"\xef\xbb\xbffrom,n,what,who,at\n" + end.join(rows) + (end if last else b"")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "MAX_RECORD", 60)
        patch.setattr(chunks, "MAX_EXCERPT", 40)
        compare(data, "f.csv", mapping("csv"), chunk, most)


@settings(max_examples=sized(27, 300))
@given(st.binary(max_size=60) | st.text(alphabet='",\r\n1sa', max_size=60).map(str.encode), st.integers(1, 90))
def test_any_bytes_are_independent_of_part_boundaries(content: bytes, chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "MAX_RECORD", 20)
        patch.setattr(chunks, "MAX_EXCERPT", 10)
        compare(b"from,n,what,who,at\n" + content, "f.csv", mapping("csv"), chunk, 25)
        compare(content, "f.jsonl", mapping("jsonl"), chunk, 25)


LINES = st.lists(
    st.sampled_from(
        [
            b'{"from":"a","n":1,"what":"s"}',
            b'{"from":null,"n":"2","what":"r","at":7}',
            b'{"what":"i"}',
            b"",
            b" \r",
            b'{"n":1,"n":2,"what":"s"}',
            b'{"n":1e3,"what":"s"}',
            b'{"n":3,"what":"s","who":"\\ud800"}',
            b"[1]",
            b"{",
            b'{"n":[1],"what":"s"}',
            b'{"n":4,"what":"s","who":"' + b"y" * 70 + b'"}',
            b'{"n":5,"what":"s","who":"\xff"}',
        ]
    ),
    max_size=12,
)


@settings(max_examples=sized(18, 200))
@given(LINES, st.booleans(), st.booleans(), st.integers(1, 90), st.integers(1, 200))
def test_json_is_independent_of_part_boundaries(
    lines: list[bytes], mark: bool, last: bool, chunk: int, most: int
) -> None:
    data = (b"\xef\xbb\xbf" if mark else b"") + b"\n".join(lines) + (b"\n" if last else b"")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "MAX_RECORD", 60)
        patch.setattr(chunks, "MAX_EXCERPT", 40)
        compare(data, "f.jsonl", mapping("jsonl"), chunk, most)
        found = ingest_part(data, "f.jsonl", mapping("jsonl"), chunk)
    assert sum(each.records for each in found) == len(data.removeprefix(b"\xef\xbb\xbf").splitlines()) or b"\r" in data


def test_growing_file_is_ingested_up_to_its_last_complete_record(tmp_path: Path) -> None:
    lines = [b'a,1,s,"two\nlines",1\n', b"a,2,s,x,2\r\n", b"a,3,r,\n"]
    data = b"from,n,what,who,at\n" + b"".join(lines)
    ends = [data.index(lines[0]) + sum(map(len, lines[:count])) for count in range(4)]
    for size in range(ends[0], len(data) + 1):
        begin = FilePart(end=size, final=False)
        found = ingest_part(data, "f.csv", mapping("csv"), 5, begin)
        cut = found[-1].end if found else ends[0]
        assert cut == max(end for end in ends if end <= size)
        rest = ingest_part(data, "f.csv", mapping("csv"), 5, FilePart(cut, None, sum(each.records for each in found)))
        assert (
            summarize_parts([*found, *rest])["rows"]
            == summarize_parts(ingest_part(data, "f.csv", mapping("csv"), 99))["rows"]
        )


@pytest.mark.parametrize("line", [b"\n", b"x\n", b'"a\nb"\n'])
def test_part_has_no_more_records_than_fit_in_memory(line: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "MAX_RECORDS", 10)
    found = list(read_pieces(io.BytesIO(line * 35), b","))
    assert [count_records(piece, b",") for piece in found] == [10, 10, 10, 5]
    assert [piece.end for piece in found] == [10 * len(line), 20 * len(line), 30 * len(line), 35 * len(line)]


@pytest.mark.parametrize("separator", [b",", None])
@pytest.mark.parametrize("over", [0, 1])
def test_record_at_the_limit_is_too_long_at_any_part_boundary(
    separator: bytes | None, over: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "MAX_RECORD", 60)
    record = b"y" * (59 + over) + b"\n"
    for before in range(0, 200, 4):
        data = b"a,b\n" * (before // 4) + record + b"c,d\n"
        found = list(read_pieces(io.BytesIO(data), separator, 100))
        assert [piece.broken for piece in found if piece.broken] == ["too_long"] * over
        kept = b"".join(piece.content for piece in found if not piece.broken)
        assert kept == (data.replace(record, b"") if over else data)
