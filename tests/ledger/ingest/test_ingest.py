"""From files of recorded traffic to ledger rows: exact, and no record is dropped silently."""

from __future__ import annotations

import csv
import gzip
import io
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from causeway_proofs.errors import InvalidInput
from hypothesis import given, settings
from hypothesis import strategies as st

from causeway.ledger.encodings import amount_texts, text_slices
from causeway.ledger.ingest import chunks, mapping_names, parquet
from causeway.ledger.ingest.chunks import read_pieces
from causeway.ledger.ingest.columns import parse_json_lines
from causeway.ledger.ingest.mapping import MappingDocument, load_mapping
from causeway.ledger.ingest.reader import ingest_file
from causeway.ledger.ingest.records import IngestedRecords
from causeway.ledger.ingest.text_loops import parse_time_slices
from causeway.ledger.ingest.windows import infer_windows, merge_windows
from causeway.ledger.schema import LIMBS
from tests.recordings import Recordings
from tests.tiers import sized

HEAD = "direction,side,chain,timestamp,tx_hash,nonce,token_dst,beneficiary,amount"
ROW = "eth->moonbeam,send,ethereum,1641902381,0xaa,7,0xAb,0xCd,13"


def ingest_content(
    content: bytes | str, kind: str = "bridge-events", file: str = "f.csv", mapping: Path | None = None, chunk: int = 64
) -> IngestedRecords:
    """Return the result of a whole file."""
    data = content.encode() if isinstance(content, str) else content
    parts = list(ingest_file(io.BytesIO(data), file, len(data), load_mapping(kind, mapping), chunk=chunk))
    whole = [pa.concat_tables([getattr(part, name) for part in parts]) for name in ("ledger", "quarantine")]
    counts = [sum(getattr(part, name) for part in parts) for name in ("records", "taken", "ignored", "blank")]
    return IngestedRecords(*whole, *counts)


def rows_of(found: IngestedRecords) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = found.ledger.to_pylist()
    return rows


def why(found: IngestedRecords) -> list[tuple[int, str, str | None]]:
    return [(row["source_row"], row["reason"], row["field"]) for row in found.quarantine.to_pylist()]


def test_row_equals_the_record_of_the_file() -> None:
    found = ingest_content(f"{HEAD}\n{ROW}\n")
    (row,) = rows_of(found)
    assert (row["source"], row["destination"], row["event"], row["index"]) == ("ethereum", "moonbeam", "sent", 7)
    assert row["time"] == datetime(2022, 1, 11, 11, 59, 41, tzinfo=UTC)
    assert (row["source_file"], row["source_row"], row["stated_by"]) == ("f.csv", 1, "bridge-events")
    # The content is independent of the notation of hexadecimal digits and numbers, but not of their values.
    same = [
        ROW.replace("0xAb", "0xaB"),
        ROW.replace(",13", ", +0013 "),
        ROW.replace(",send,ethereum", ",recv,moonbeam"),
    ]
    other = [ROW.replace(",13", ",130"), ROW.replace("0xCd", "0xCe")]
    hashes = [each["payload_hash"] for each in rows_of(ingest_content("\n".join([HEAD, ROW, *same, *other])))]
    assert len({*hashes[:4]}) == 1 and len({*hashes}) == 3


def test_unreadable_records_are_quarantined_with_a_reason() -> None:
    lines = [
        ROW,
        ROW.replace(",7,", ",-7,"),
        ROW.replace(",7,", ",18446744073709551616,"),
        "",
        ROW + ",more",
        ROW.replace("send", "neither"),
        ROW.replace("1641902381", "yesterday"),
        ROW.replace(",13", f",{2**256}"),
        ROW.replace(",7,", ",,"),
        ROW.replace("->", " into "),
        ROW.replace(",13", f",{2**256 - 1}"),
        ROW.replace("0xaa", "x" * 5000),
    ]
    text = "\n".join([HEAD, *lines]).encode() + b"\n" + ROW.replace("0xaa", "\udcff").encode(errors="surrogateescape")
    found = ingest_content(text)
    assert why(found) == [
        (2, "negative", "index"),
        (3, "too_large", "index"),
        (5, "columns", None),
        (6, "not_allowed", "event"),
        (7, "not_a_time", "time"),
        (8, "too_large", "amount"),
        (9, "missing", "index"),
        (10, "not_allowed", "destination"),
        (12, "too_long", "transaction"),
        (13, "not_utf8", "tx_hash"),
    ]
    assert found.records == 13 and found.blank == 1
    assert [row["source_row"] for row in rows_of(found)] == [1, 11]
    assert amount_texts([found.ledger[name] for name in LIMBS]).to_pylist() == ["13", str(2**256 - 1)]
    assert all(len(row) <= 1000 for row in found.quarantine["row"].to_pylist())


@settings(max_examples=sized(18, 200))
@given(
    st.lists(st.text(alphabet='ab",\n\r 0é', max_size=6), min_size=1, max_size=8).map(lambda texts: ["x", *texts]),
    st.integers(1, 40),
)
def test_quoted_fields_match_the_csv_module(texts: list[str], chunk: int) -> None:
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(
        [str(n), text] for n, text in enumerate(texts)
    )
    data = b"index,text\n" + out.getvalue().encode()
    mapping = load_mapping("", OWN).model_copy(update={"format": ["csv"]})
    parts = [part.ledger for part in ingest_file(io.BytesIO(data), "f.csv", len(data), mapping, chunk=chunk)]
    rows = pa.concat_tables(parts)
    assert rows["index"].to_pylist() == list(range(len(texts)))
    assert rows["sender"].to_pylist() == [text or None for text in texts]
    assert rows["source_row"].to_pylist() == list(range(1, len(texts) + 1))


OWN = Path(__file__).with_name("ingest_mapping.toml")

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**300)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from('abé"\\'), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=sized(27, 300))
@given(st.lists(st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3), max_size=6), st.booleans())
def test_json_lines_match_the_json_module(lines: list[dict[str, Any]], plain: bool) -> None:
    content = "".join(json.dumps(line, ensure_ascii=plain, indent=None) + "\n" for line in lines).encode()
    found = parse_json_lines(chunks.RecordPiece(content), {"a", "a.b", "c"})
    assert not found.broken and len(found.rows) == len(lines)
    for row, line in enumerate(lines):
        inner = line["a"].get("b") if isinstance(line.get("a"), dict) else None
        for path, value in (("a", line.get("a")), ("a.b", inner), ("c", line.get("c"))):
            read = found.values[path][row].as_py()
            if isinstance(value, str):
                assert read == value
            else:
                assert (None if read is None else json.loads(read)) == value
                if type(value) is int:
                    assert read == str(value)


@settings(max_examples=sized(68, 750))
@given(st.binary(max_size=12) | st.text(alphabet='{}[]",:ab\\u0019.-+eE tfnrulase', max_size=24).map(str.encode))
def test_invalid_json_is_refused(line: bytes) -> None:
    line = line.replace(b"\n", b" ")
    try:
        value = json.loads(line, parse_constant=lambda name: (_ for _ in ()).throw(ValueError(name)))
        text = line.decode()
        good = isinstance(value, dict) and text.strip(" \t\r\n").startswith("{")
    except (ValueError, RecursionError):
        good = False
    found = parse_json_lines(chunks.RecordPiece(line + b"\n"), {"q"})
    if good or line.strip():
        accepted = len(found.rows) == 1
        # A text of invalid UTF-8 is refused where it is used.
        assert accepted == good or (accepted and not _is_text(line))


def _is_text(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_hostile_lines_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "MAX_RECORD", 200)
    deep = b'{"a":' + b"[" * 70 + b"]" * 70 + b"}"
    good = b'{"a":"fine"}'
    lines = [good, deep, b'{"a":1,"a":2}', b'{"a":"' + b"x" * 500 + b'"}', b"", good, b'{"a":"\\ud800"}', b"[1]"]
    found = list(read_pieces(io.BytesIO(b"\n".join(lines)), None, 64))
    columns = [parse_json_lines(piece, {"a"}) for piece in found]
    reasons = [broken.reason for part in columns for broken in part.broken]
    assert reasons == ["too_deep", "key_twice", "too_long", "not_utf8", "not_json"]
    assert sum(part.records for part in columns) == len(lines) and sum(part.blank for part in columns) == 1
    # An unclosed quote affects only its own line.
    text = b'1,"open\n' + b"2,x\n" * 100 + b'3,"y"\n'
    parts = list(read_pieces(io.BytesIO(text), b",", 64))
    assert b"".join(part.content for part in parts if not part.broken) == text.partition(b"\n")[2]
    assert [part.content[:7] for part in parts if part.broken] == [b'1,"open']


def test_compressed_file_is_read_and_a_decompression_bomb_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = gzip.compress(f"{HEAD}\n{ROW}\n".encode())
    assert ingest_content(packed, file="f.csv.gz").ledger.num_rows == 1
    monkeypatch.setattr(chunks, "FREE_BYTES", 0)
    bomb = gzip.compress(f"{HEAD}\n".encode() + f"{ROW}\n".encode() * 100_000)
    with pytest.raises(InvalidInput, match=r"f\.csv\.gz: becomes more than 300 times its size"):
        ingest_content(bomb, file="f.csv.gz", chunk=1 << 20)
    with pytest.raises(InvalidInput, match="cannot be unpacked"):
        ingest_content(b"no gzip", file="f.csv.gz")


def test_columns_may_be_extra_or_reordered_but_not_missing_or_repeated() -> None:
    names = HEAD.split(",")
    values = dict(zip(names, ROW.split(","), strict=True)) | {"new": "1"}
    turned = [*reversed(names), "new"]
    (row,) = rows_of(ingest_content(",".join(turned) + "\n" + ",".join(values[name] for name in turned)))
    assert {**row, "source_row": 1} == rows_of(ingest_content(f"{HEAD}\n{ROW}"))[0]
    with pytest.raises(InvalidInput, match=r'f\.csv: column for index: "nonce": no such column; did you mean nonces'):
        ingest_content(f"{HEAD.replace('nonce', 'nonces')}\n{ROW}")
    with pytest.raises(InvalidInput, match='column "side" is there twice'):
        ingest_content(f"{HEAD},side\n{ROW},x")
    with pytest.raises(InvalidInput, match="names of its columns"):
        ingest_content("")


TIMES = {
    "2022-01-11T12:30:05.1234567Z": "2022-01-11T12:30:05.123456+00:00",
    "2022-01-11 12:30:05,5+01:30": "2022-01-11T11:00:05.500000+00:00",
    "2024-02-29": "2024-02-29T00:00:00+00:00",
    "2022-07-01T12:00": "2022-07-01T12:00:00+00:00",
    "0001-01-01T00:00:00 UTC": "0001-01-01T00:00:00+00:00",
    "2022-01-11T12:30:05-0330": "2022-01-11T16:00:05+00:00",
}


def test_times_are_parsed_as_iso_8601() -> None:
    bad = [
        "2022-02-29",
        "2022-13-01",
        "2022-1-1",
        "12:00",
        "2022-01-11T24:00:00",
        "2022-01-11T12:00:00+24:00",
        "x" * 30,
    ]
    bad += ["2022-01-11T12:00:00.", "2022-01-11T12:00:00Zx", "2022/01/11", "2022-01-11T12:00:00+1"]
    column = pa.array([*TIMES, *bad, " "])
    data, offsets = text_slices(column)
    micros, found = np.empty(len(column), dtype=np.int64), np.empty(len(column), dtype=np.uint8)
    parse_time_slices(data, offsets[:-1], offsets[1:], micros, found)
    assert found.tolist() == [2, 2, 1, 1, 2, 2, *([0] * len(bad)), 3]
    read = pa.array(micros[: len(TIMES)], pa.timestamp("us", "UTC")).to_pylist()
    assert read == [datetime.fromisoformat(text) for text in TIMES.values()]


def test_local_time_uses_the_zone_of_the_mapping_unless_ambiguous(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(
        OWN.read_text().replace('time = { column = "time", ', 'time = { column = "time", timezone = "Europe/Berlin", ')
    )
    times = ["2022-07-01T12:00:00", "2022-01-01T12:00:00", "2022-10-30T02:30:00", "2022-03-27T02:30:00", "2022-07-01Z"]
    lines = [json.dumps({"index": place, "time": text}) for place, text in enumerate(times)]
    found = ingest_content("\n".join(lines), "", "f.jsonl", own)
    assert [row["time"].hour for row in rows_of(found)] == [10, 11]
    assert [reason for _, reason, _ in why(found)] == ["ambiguous_time", "ambiguous_time", "not_a_time"]


def test_parquet_keeps_its_types_and_accepts_exact_floats() -> None:
    def stored(**columns: pa.Array) -> bytes:
        out = io.BytesIO()
        pq.write_table(pa.table(columns), out)
        return out.getvalue()

    names = pa.array(["channel-1", "channel-1"])
    times = pa.array([datetime(2024, 1, 1, tzinfo=UTC), None], pa.timestamp("ns", "UTC"))
    given: dict[str, pa.Array] = {
        "source_chain": names.dictionary_encode(),
        "channel_id": names,
        "sequence": pa.array([1, -2]),
        "send_height": pa.array([5, 6], pa.uint32()),
        "send_time": times,
        "ack_height": pa.array([9, None], pa.int64()),
        "ack_time": times,
    }
    found = ingest_content(stored(**given), "ibc-packets", "f.parquet")
    assert [(row["event"], row["height"], row["index"]) for row in rows_of(found)] == [
        ("sent", 5, 1),
        ("acknowledged", 9, 1),
    ]
    assert why(found) == [(2, "negative", "index")]
    # Readers of integers with nulls convert them to floats: those are exact below 2**53.
    for values, good in (((1.5, 2.0**53 - 1), 2**53 - 1), ((2.0**53 + 2, 5.0), 5)):
        given["sequence"] = pa.array(values)
        found = ingest_content(stored(**given), "ibc-packets", "f.parquet")
        assert [row["index"] for row in rows_of(found)] == [good] and why(found) == [(1, "not_a_number", "index")]
        assert float(found.quarantine["value"][0].as_py()) == values[0]
    given["sequence"] = pa.array([[1], [2]])
    with pytest.raises(InvalidInput, match="column sequence is list<element: int64>; a mapping reads text"):
        ingest_content(stored(**given), "ibc-packets", "f.parquet")
    with pytest.raises(InvalidInput, match="cannot be read as Parquet"):
        ingest_content(b"PAR1 nothing PAR1", "ibc-packets", "f.parquet")


def test_windows_are_cut_at_long_gaps() -> None:
    heights = np.array([5, 1, 3, 700, 100, 1301], dtype=np.int64)
    assert infer_windows(heights, 600)[:, :2].tolist() == [[1, 700], [1301, 1301]]
    assert infer_windows(heights, None)[:, :2].tolist() == [[1, 1301]]
    # Beside heights the first and the last time are recorded.
    assert merge_windows(
        np.array([[900, 950, 9, 12], [1, 2, 1, 2], [500, 890, 5, 13], [2000, 2001, 20, 20]]), 100
    ).tolist() == [[1, 2, 1, 2], [500, 950, 5, 13], [2000, 2001, 20, 20]]


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ('"csv"', '"xml"', "format[0]: \"xml\": must be 'csv', 'jsonl' or 'parquet'"),
        ("[windows]", "[window]", "window: unknown key; did you mean windows?"),
        ('unit = "any"', 'unit = "h"', 'fields.time.unit: "h": must be'),
        ('send = "sent"', 'send = "send"', 'events[0].event: "send": no such event; did you mean sent?'),
        ('index = "nonce"', "", "neither index nor message_id"),
        ("seconds = 1800", "seconds = 9223372036854775807", "promises[2].seconds: 9223372036854775807: must be"),
        (
            "[windows]",
            '[[observed]]\nchain = "c"\nfirst_time = "x"\nlast_time = "y"\n[windows]',
            "observed[0].first_time",
        ),
        (
            "[windows]",
            '[[observed]]\nchain = "c"\nfirst_time = 2022-01-02T00:00:00Z\nlast_time = "2022-01-01"\n[windows]',
            "observed[0]: last_time: 2022-01-01 00:00:00+00:00: lies before first_time",
        ),
        ("part = 0", "part = -1", "fields.source.part: -1: must be greater than or equal to 0"),
        ('promise = "numbered"', 'promise = "fast"', 'promises[0].promise: "fast": must be'),
    ],
)
def test_wrong_mapping_names_key_value_and_allowed_values(tmp_path: Path, old: str, new: str, text: str) -> None:
    import causeway.ledger.ingest

    built_in = Path(causeway.ledger.ingest.__file__).parent / "mappings" / "bridge-events.toml"
    own = tmp_path / "own.toml"
    assert old in built_in.read_text()
    own.write_text(built_in.read_text().replace(old, new, 1))
    with pytest.raises(InvalidInput) as raised:
        load_mapping("x", own)
    assert str(raised.value).startswith(f"{own}: ") and text in str(raised.value) and "\n" not in str(raised.value)


def test_built_in_mappings_are_valid_and_unknown_names_are_refused() -> None:
    assert mapping_names() == ["bridge-events", "ibc-events", "ibc-packets", "two-tables", "xcm-journeys"]
    assert all(load_mapping(kind).about for kind in mapping_names())
    with pytest.raises(InvalidInput, match="did you mean ibc-packets"):
        load_mapping("ibc-packet")


def test_two_tables_are_distinguished_by_their_names() -> None:
    sends = ingest_content(
        "source,destination,index,time,content\na,b,1,2024-01-01T00:00:00Z,x\n", "two-tables", "sends.csv"
    )
    receives = ingest_content("source,destination,index,content\na,b,1,x\n", "two-tables", "all_receives.csv")
    (sent,), (received,) = rows_of(sends), rows_of(receives)
    assert (sent["event"], sent["chain"], received["event"], received["chain"]) == ("sent", "a", "received", "b")
    assert sent["payload_hash"] == received["payload_hash"] is not None and received["time"] is None
    with pytest.raises(InvalidInput, match=r"no event for a file of this name; it has for: \*send\*, \*receive\*"):
        ingest_content("source\n", "two-tables", "other.csv")


def test_journeys_have_their_timeouts(recordings: Recordings) -> None:
    found = ingest_content(recordings.xcm_journeys.read_bytes(), "xcm-journeys", "xcm.jsonl")
    events = [(row["event"], row["detail"]) for row in rows_of(found)]
    counts = {event: events.count(event) for event in dict.fromkeys(events)}
    assert counts == {
        ("observed", "timeout"): 6, ("relayed", "Success"): 13, ("sent", "Success"): 16, ("received", "Success"): 15,
    }  # fmt: skip
    assert len({row["message_id"] for row in rows_of(found)}) == 18
    assert rows_of(found)[0]["height"] and rows_of(found)[0]["message_id"].startswith("0x")


TIMES_OF_ANY_UNIT = {
    "1641902381": "2022-01-11T11:59:41+00:00",
    "1641902381500": "2022-01-11T11:59:41.500000+00:00",
    "1641902381500001": "2022-01-11T11:59:41.500001+00:00",
    "1641902381500001999": "2022-01-11T11:59:41.500001+00:00",
    "2022-01-11T12:59:41+01:00": "2022-01-11T11:59:41+00:00",
    "1641902381.0": "2022-01-11T11:59:41+00:00",
    "5": "1970-01-01T00:00:05+00:00",
    "1641902381.25": "2022-01-11T11:59:41.250000+00:00",
    "1641902381500.5": "2022-01-11T11:59:41.500500+00:00",
}


def test_time_unit_is_detected_by_magnitude() -> None:
    lines = [
        json.dumps({"n": place, "at": text})
        for place, text in enumerate([*TIMES_OF_ANY_UNIT, "", "-5", "1" * 30, "20220111115941"])
    ]
    fields = {"protocol": {"text": "p"}, "index": "n", "time": {"column": "at", "unit": "any"}}
    event = {"event": {"text": "sent"}}
    given = {"format": "jsonl", "stated_by": "t", "fields": fields, "events": [event]}
    own = MappingDocument.model_validate(given)
    data = "\n".join(lines).encode()
    parts = list(ingest_file(io.BytesIO(data), "f.jsonl", len(data), own))
    ledger, quarantine = (
        pa.concat_tables([getattr(each, name) for each in parts]) for name in ("ledger", "quarantine")
    )
    found = replace(parts[0], ledger=ledger, quarantine=quarantine)
    expected = [*map(datetime.fromisoformat, TIMES_OF_ANY_UNIT.values()), None]
    assert [row["time"] for row in rows_of(found)] == expected
    assert why(found) == [
        (11, "not_a_time", "time"), (12, "not_a_time", "time"), (13, "ambiguous_time", "time"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "zone"),
    [
        ("0001-01-01T00:00:00", "Europe/Berlin"),
        ("9999-12-31T23:59:59", "America/New_York"),
        ("9999-12-31T23:59:59-10:00", "UTC"),
        ("0001-01-01T00:00:00+01:00", "UTC"),
    ],
)
def test_time_shifted_out_of_the_calendar_by_its_zone_is_null(text: str, zone: str) -> None:
    fields = {"protocol": {"text": "p"}, "index": "n", "time": {"column": "at", "timezone": zone}}
    given = {"format": "csv", "stated_by": "t", "fields": fields, "events": [{"event": {"text": "sent"}}]}
    data = f"n,at\n1,{text}\n2,{text[:4]}-06-01T00:00:00\n".encode()
    (found,) = ingest_file(io.BytesIO(data), "f.csv", len(data), MappingDocument.model_validate(given))
    assert why(found) == [(1, "not_a_time", "time")] and len(rows_of(found)) == 1


def test_parquet_of_hostile_or_unusual_types(monkeypatch: pytest.MonkeyPatch) -> None:
    def stored(table: pa.Table, **options: Any) -> bytes:
        out = io.BytesIO()
        pq.write_table(table, out, **options)
        return out.getvalue()

    fields = {
        "protocol": {"text": "p"}, "source": "from.chain", "index": "n", "amount": {"column": "v", "optional": True},
        "time": {"column": "t", "optional": True}, "sender": {"column": "who", "optional": True},
    }  # fmt: skip
    given = {"format": "parquet", "stated_by": "t", "fields": fields, "events": [{"event": {"text": "sent"}}]}
    own = MappingDocument.model_validate(given)

    def read(table: pa.Table, **options: Any) -> IngestedRecords:
        data = stored(table, **options)
        parts = list(ingest_file(io.BytesIO(data), "f.parquet", len(data), own))
        whole = [pa.concat_tables([getattr(part, name) for part in parts]) for name in ("ledger", "quarantine")]
        return replace(parts[0], ledger=whole[0], quarantine=whole[1])

    struct = pa.array([{"chain": "a", "id": 1}, None, {"chain": "c", "id": 3}])
    years = pa.array([datetime(3000, 1, 1), None, datetime(1, 1, 1)], pa.timestamp("us"))
    table = pa.table({"from": struct, "n": pa.array([1, 2, 3], pa.decimal128(38, 0)), "t": years})
    found = read(
        table.append_column("v", pa.array([-1, 0, 5], pa.decimal128(38, 18))), use_deprecated_int96_timestamps=True
    )
    assert [(row["source"], row["index"], row["amount_0"]) for row in rows_of(found)] == [(None, 2, 0), ("c", 3, 5)]
    assert [row["time"] for row in rows_of(found)] == [None, datetime(1, 1, 1, tzinfo=UTC)]
    assert why(found) == [(1, "negative", "amount")]
    # A time that would overflow, and one of a coarser unit.
    far = pa.array([2**62, 1000, None], pa.timestamp("ms"))
    found = read(pa.table({"from": struct, "n": pa.array(["1", " 2", "x"]), "t": far}))
    assert why(found) == [(1, "not_a_time", "time"), (3, "not_a_number", "index")]
    assert rows_of(found)[0]["time"] == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    # A text stored once in a dictionary, and a thousand rows: only some are materialized at once.
    long = pa.array(["y" * 30_000] * 1_000 + ["z"])
    rows = pa.table({"from": pa.array([{"chain": "a"}] * 1_001), "n": list(range(1_001)), "who": long})
    monkeypatch.setattr(parquet, "MAX_AT_ONCE", 3 << 20)
    data = stored(rows)
    source = parquet.ParquetSource(io.BytesIO(data), "f", len(data))
    assert max(part.records for part in source.columns({"who", "n"}, 0, 1)) == (3 << 20) // 30_000
    found = read(rows)
    assert found.ledger.num_rows == 1 and found.quarantine.num_rows == 1_000
    assert {row["reason"] for row in found.quarantine.to_pylist()} == {"too_long"}
    for wrong, text in (
        # With or without a dictionary, the texts of a small file would fill the memory.
        (rows.set_column(2, "who", pa.array(["y" * 100_000] * 1_001)), "its texts become more than 300 times its size"),
        (rows.set_column(2, "who", pa.array(["y" * 100_000] * 1_001).dictionary_encode()), "more than 300 times"),
        (
            pa.table({"n": [1], "from": struct[:1], "t": pa.array([1], pa.timestamp("us", "Mars/X"))}),
            "Mars/X not found",
        ),
        (pa.table([pa.array([1]), pa.array([2]), struct[:1]], ["n", "n", "from"]), 'column "n" is there twice'),
        (pa.table({"n": pa.array([[1]]), "from": struct[:1]}), "column n is list"),
    ):
        with pytest.raises(InvalidInput, match=text):
            read(wrong)


def test_corrupted_parquet_is_refused_for_any_wrong_byte(recordings: Recordings) -> None:
    rows = pq.read_table(recordings.hub_packets).slice(0, 200)
    out = io.BytesIO()
    pq.write_table(rows, out, compression="none", use_dictionary=False)
    data, mapping, random = out.getvalue(), load_mapping("ibc-packets"), Random(4)
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    # At the position of the schema in the footer, some values make columns inconsistent.
    wrongs = [{place: 17} for place in range(footer, footer + 500)]
    for count in (1, 1, 3) * 50:
        wrongs.append({random.randrange(len(data)): random.randrange(256) for _ in range(count)})
    said: list[str] = []
    for wrong in wrongs:
        changed = bytearray(data)
        for place, value in wrong.items():
            changed[place] = value
        try:
            parts = list(ingest_file(io.BytesIO(bytes(changed)), "f.parquet", len(changed), mapping, threads=1))
        except InvalidInput as error:
            said.append(str(error))
        else:
            assert sum(part.taken + part.quarantine.num_rows for part in parts) == 200
    assert len(said) > 100 and all(text.startswith("f.parquet: ") and "\n" not in text for text in said)


def test_kind_missing_from_a_record_is_null_unless_the_mapping_sets_it() -> None:
    field = {"column": "kind", "optional": True}
    given = {"format": "jsonl", "stated_by": "t", "events": [{}], "windows": {"by": "time"}}
    fields: dict[str, Any] = {"protocol": {"text": "p"}, "event": {"text": "sent"}, "index": "n", "kind": field}
    data = b'{"n": 1, "kind": "control"}\n{"n": 2}\n'
    found = []
    for kind in (field, {**field, "otherwise": "request"}):
        own = MappingDocument.model_validate({**given, "fields": {**fields, "kind": kind}})
        (taken_of,) = ingest_file(io.BytesIO(data), "f.jsonl", len(data), own)
        found.append((taken_of.ledger["kind"].to_pylist(), why(taken_of)))
    assert found == [(["control"], [(2, "missing", "kind")]), (["control", "request"], [])]
