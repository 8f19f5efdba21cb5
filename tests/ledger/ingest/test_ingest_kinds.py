"""Built-in kinds read other exports of the same traffic, and report their limits."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from causeway_proofs.errors import InvalidInput
from pydantic import ValidationError

from causeway.audit.stored import audit_ledger
from causeway.ledger.ingest.ingest import ingest_files
from causeway.ledger.ingest.mapping import MappingDocument, load_mapping
from causeway.ledger.ingest.reader import FilePart, ingest_file
from causeway.ledger.ingest.windows import ObservedWindows
from causeway.ledger.outcomes import STATES_BY_EVENT_BITS, MessageState, event_bit
from causeway.ledger.schema import OBSERVED_SCHEMA
from causeway.ledger.store import open_ledger
from tests.ledger.ingest.test_ingest import HEAD, ROW, ingest_content, rows_of, why


def test_packets_of_other_chains_have_other_columns() -> None:
    """Without the chain, acknowledgements or times; times as numbers; channels of one name on several chains."""
    out = io.BytesIO()
    columns = {"channel_id": ["channel-0", "channel-0"], "sequence": [7.0, None], "send_height": ["5", "6"]}
    pq.write_table(pa.table({**columns, "send_time": pa.array([1728217897, None])}), out)
    found = ingest_content(out.getvalue(), "ibc-packets", "osmosis-1.parquet")
    (row,) = rows_of(found)
    assert (row["source"], row["chain"], row["event"], row["index"]) == ("osmosis-1", "osmosis-1", "sent", 7)
    assert row["time"] == datetime(2024, 10, 6, 12, 31, 37, tzinfo=UTC) and why(found) == [(2, "missing", "index")]
    text = "\n".join(
        [
            "source_chain,dst_chain,channel_id,sequence,send_height,send_time,ack_height,recv_height,packet_data",
            "a-1,b-1,channel-0,1,5.0,2024-10-06T12:31:37Z,9.0,,x",
            "b-1,a-1,channel-0,1,6.0,1728217897000,,8,x",
            ",a-1,channel-0,1,6.5,,,,x",
        ]
    )
    found = ingest_content(text, "ibc-packets", "several.csv")
    assert sorted((row["source"], row["event"], row["chain"], row["height"]) for row in rows_of(found)) == [
        ("a-1", "acknowledged", "a-1", 9), ("a-1", "sent", "a-1", 5),
        ("b-1", "received", "a-1", 8), ("b-1", "sent", "b-1", 6),
    ]  # fmt: skip
    assert why(found) == [(3, "not_a_number", "height")]
    with pytest.raises(InvalidInput, match=r"column \(or sent_height\) for height"):
        ingest_content("channel_id,sequence\n", "ibc-packets", "none.csv")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_endings_of_any_system_are_accepted(end: str) -> None:
    found = ingest_content(end.join([HEAD, ROW, ROW]))
    assert len(rows_of(found)) == 2 and not why(found)
    with pytest.raises(InvalidInput, match="no names of columns: field larger"):
        ingest_content(f'"{"x" * 200_000}",b{end}')


def test_numbers_with_a_fraction_are_accepted_if_exact() -> None:
    texts = ("7.0", "9007199254740994.0", "7.5", "12345678901234567890123.000")
    found = ingest_content("\n".join([HEAD, *(ROW.replace(",13", f",{text}") for text in texts)]))
    assert [row["amount_0"] for row in rows_of(found)] == [7, 12345678901234567890123 % 2**64]
    assert why(found) == [(2, "not_a_number", "amount"), (3, "not_a_number", "amount")]


def test_other_direction_of_a_bridge_is_a_separate_lane() -> None:
    back = [
        "moonbeam->eth,send,moonbeam,5,0xaa,7,0xAb,0xCd,13",
        "moonbeam_to_Ethereum,recv,eth,6000,0xab,7,0xAb,0xCd,13",
    ]
    rows = rows_of(ingest_content("\n".join([HEAD, ROW, *back])))
    assert {(row["source"], row["destination"]) for row in rows[1:]} == {("moonbeam", "ethereum")}
    assert [(row["event"], row["chain"]) for row in rows] == [
        ("sent", "ethereum"), ("sent", "moonbeam"), ("received", "ethereum"),
    ]  # fmt: skip


SPELT: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "other cases": lambda text: text.replace("tx_hash", "txHash").replace("side", "SIDE").replace("token_d", "Token-D"),
    "other words": lambda text: text.replace(",send,ethereum", ",SENT,ETH").replace("eth->", "Ethereum → "),
    "milliseconds": lambda text: text.replace("1641902381", "1641902381000"),
    "hexadecimal digits": lambda text: text.replace("0x" + "aB" * 20, "Ab" * 20),
    "numbers": lambda text: text.replace(",13", ",013.0").replace(",7,", ",7.0,"),
    "more columns, in another order": lambda text: "\n".join(
        f"x,{','.join(reversed(line.split(',')))}" for line in text.split("\n")
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", SPELT)
def test_differently_formatted_file_yields_equal_rows(how: str) -> None:
    text = "\n".join([HEAD, ROW.replace("0xCd", "0x" + "aB" * 20), ROW.replace("send,ethereum", "recv,moonbeam")])
    changed = SPELT[how](text)
    as_json = "\n".join(
        json.dumps(dict(zip(changed.split("\n")[0].split(","), line.split(","), strict=True)))
        for line in changed.split("\n")[1:]
    )
    expected = rows_of(ingest_content(text))
    for found in (ingest_content(changed), ingest_content(as_json, file="f.jsonl")):
        assert not why(found)
        for row, other in zip(rows_of(found), expected, strict=True):
            varying = {"lane", "receiver", "source_file"} | ({"transaction"} if how == "hexadecimal digits" else set())
            assert {name: row[name] for name in row if name not in varying} == {
                name: other[name] for name in other if name not in varying
            }


def test_ambiguous_columns_are_refused_and_a_missing_one_is_named() -> None:
    with pytest.raises(InvalidInput, match='columns "txHash" and "TX-Hash" are both tx_hash; one may be there'):
        ingest_content(HEAD.replace("tx_hash", "txHash,TX-Hash") + "\n")
    for name in ("nonce", "amount", "side", "chain", "timestamp"):
        with pytest.raises(InvalidInput, match=f'column.*"{name}": no such column'):
            ingest_content(HEAD.replace(name, "other") + "\n")
    with pytest.raises(InvalidInput, match=r"for height: .send_height.: no such column; did you mean ack_height"):
        ingest_content("source_chain,channel_id,sequence,ack_height\n", "ibc-packets", "f.csv")


def test_file_names_match_in_any_case() -> None:
    text = "source,destination,index,content\nA,B,1,x\n"
    for file, event in (("Sends.CSV", "sent"), ("RECEIVES-2024.csv", "received")):
        assert [row["event"] for row in rows_of(ingest_content(text, "two-tables", file))] == [event]


def test_null_words_are_null_in_number_columns() -> None:
    head = "source_chain,channel_id,sequence,send_height,send_time,ack_height,ack_time\n"
    rows = ["a,c,1,5,NaT,nan,NaN", "a,null,2,5,,NULL,", "a,c,NaN,5,,,"]
    found = ingest_content(head + "\n".join(rows), "ibc-packets", "f.csv")
    assert [(row["event"], row["lane"], row["time"]) for row in rows_of(found)] == [
        ("sent", "c", None), ("sent", "null", None),
    ]  # fmt: skip
    assert why(found) == [(3, "missing", "index")]


def test_chains_with_mutual_messages_have_one_window() -> None:
    """Messages received on one side after the other one's last send are reported as not sent."""
    mapping = load_mapping("bridge-events")

    def rows(direction: str, times: dict[str, int]) -> str:
        sides = zip(("send", "recv"), times.items(), strict=True)
        lines = [f"{direction},{side},{chain},{at},0x{at},{at},t,b,1" for side, (chain, at) in sides]
        return "\n".join([HEAD, *lines])

    seen = ObservedWindows(mapping)
    for text in (rows("a->b", {"a": 100, "b": 900}), rows("c->b", {"c": 50, "b": 60}), rows("x->y", {"x": 5, "y": 6})):
        other = ObservedWindows(mapping)
        other.add(ingest_content(text).ledger)
        seen.merge_observed(other)
    found = seen.observed(OBSERVED_SCHEMA.empty_table()).to_pylist()
    spans = {row["chain"]: (row["first_time"].timestamp(), row["last_time"].timestamp()) for row in found}
    assert spans == {**dict.fromkeys("abc", (50, 900)), **dict.fromkeys("xy", (5, 6))}


@pytest.mark.parametrize("column", ["channel_id", "source_chain", "sequence"])
def test_invalid_utf8_in_parquet_is_quarantined_by_row(column: str) -> None:
    count = 70_000  # more than one read, in two row groups
    bad = {5, 66_000, 69_999}
    octets = pa.array([b"\xff7" if row in bad else b"7" for row in range(count)], pa.binary())
    texts = pa.Array.from_buffers(pa.string(), count, octets.buffers())
    columns = {
        "source_chain": ["a"] * count, "channel_id": ["c"] * count,
        "sequence": [str(row) for row in range(count)], "send_height": list(range(count)),
    }  # fmt: skip
    out = io.BytesIO()
    pq.write_table(pa.table({**columns, column: texts}), out, row_group_size=68_000)
    found = ingest_content(out.getvalue(), "ibc-packets", "f.parquet")
    assert why(found) == [(row + 1, "not_utf8", column) for row in sorted(bad)]
    assert found.ledger["source_row"].to_pylist() == [row + 1 for row in range(count) if row not in bad]
    data, mapping = out.getvalue(), load_mapping("ibc-packets")
    last = ingest_file(io.BytesIO(data), "f.parquet", len(data), mapping, part=FilePart(1, 2, 68_000, 2_000))
    assert [each for part in last for each in why(part)] == [(70_000, "not_utf8", column)]


def test_time_beyond_the_calendar_is_shown_in_quarantine() -> None:
    out = io.BytesIO()
    times = pa.array([2**62, 0], pa.timestamp("us"))
    columns = {"source_chain": ["a", "a"], "channel_id": ["c", "c"], "sequence": [1, 2], "send_height": [1, 1]}
    pq.write_table(pa.table({**columns, "send_time": times}), out)
    found = ingest_content(out.getvalue(), "ibc-packets", "f.parquet")
    assert why(found) == [(1, "not_a_time", "time")] and str(2**62) in found.quarantine["value"][0].as_py()
    assert len(rows_of(found)) == 1


PACKETS = """
source_chain,destination_chain,channel_id,sequence,send_height,send_time,recv_height,recv_time,ack_height,ack_success,ack_error,timed_out_height,timeout_height,timeout_timestamp,amount,denom,sender
a-1,b-1,channel-0,1,10,100,20,110,30,true,,,1-500,0,7,uatom,x
a-1,b-1,channel-0,2,11,101,21,111,31,False,,,0-0,1641902381000000000,8,uatom,y
a-1,b-1,channel-0,3,12,102,22,112,32,,ABCI code: 5,,0-0,0,9,uatom,z
a-1,b-1,channel-0,4,13,103,,,,,,33,0-0,1641902381000000000,10,uatom,x
a-1,b-1,channel-0,5,14,104,24,114,34,,,,,,11,uatom,x
""".strip()


def test_packets_have_both_sides_timeouts_and_errors() -> None:
    rows = rows_of(ingest_content(PACKETS, "ibc-packets", "packets.csv"))
    events = {
        index: [(row["event"], row["chain"], row["height"], row["code"], row["detail"]) for row in rows
                if row["index"] == index] for index in range(1, 6)
    }  # fmt: skip
    failed = "ABCI code: 5"
    assert events == {
        1: [("sent", "a-1", 10, None, None), ("acknowledged", "a-1", 30, 0, None), ("received", "b-1", 20, None, None)],
        2: [("sent", "a-1", 11, None, None), ("acknowledged", "a-1", 31, 1, None), ("refunded", "a-1", 31, None, None),
            ("received", "b-1", 21, None, None), ("failed", "b-1", 21, None, None)],
        3: [("sent", "a-1", 12, None, None), ("acknowledged", "a-1", 32, 1, failed),
            ("refunded", "a-1", 32, None, None), ("received", "b-1", 22, None, None),
            ("failed", "b-1", 22, None, failed)],
        4: [("sent", "a-1", 13, None, None), ("timed_out", "a-1", 33, None, None)],
        5: [("sent", "a-1", 14, None, None), ("acknowledged", "a-1", 34, None, None),
            ("received", "b-1", 24, None, None)],
    }  # fmt: skip
    sent = {row["index"]: row for row in rows if row["event"] == "sent"}
    assert [(sent[n]["timeout_revision"], sent[n]["timeout_height"]) for n in (1, 2, 5)] == [
        (1, 500), (None, None), (None, None),
    ]  # fmt: skip
    assert sent[1]["timeout_time"] is None and sent[2]["timeout_time"] == datetime(2022, 1, 11, 11, 59, 41, tzinfo=UTC)
    assert (sent[3]["amount_0"], sent[3]["asset"], sent[3]["sender"]) == (9, "uatom", "z")
    # A written acknowledgement implies that the packet was executed.
    written = PACKETS.replace("recv_height", "write_ack_height").splitlines()
    found = rows_of(ingest_content("\n".join(written), "ibc-packets", "packets.csv"))
    assert [(row["event"], row["height"]) for row in found if row["chain"] == "b-1"] == [
        ("executed", 20), ("failed", 21), ("failed", 22),
    ]  # fmt: skip


def test_packet_outcomes_match_the_file(tmp_path: Path) -> None:
    (tmp_path / "packets.csv").write_text(PACKETS)
    ingest_files(str(tmp_path / "packets.csv"), str(tmp_path / "ledger"), load_mapping("ibc-packets"))
    ledger = open_ledger(str(tmp_path / "ledger"))
    rows = pa.concat_tables([ledger.rows(bucket) for bucket in range(ledger.buckets)]).to_pylist()
    inputs: dict[int, int] = {}
    for row in rows:
        inputs[row["index"]] = inputs.get(row["index"], 0) | event_bit(row["event"], row["code"], row["kind"])
    states = {index: MessageState(int(STATES_BY_EVENT_BITS[bits])) for index, bits in inputs.items()}
    assert states == {
        1: MessageState.ANSWERED,
        2: MessageState.REFUNDED,
        3: MessageState.REFUNDED,
        4: MessageState.TIMED_OUT,
        5: MessageState.ANSWERED,
    }
    assert audit_ledger(ledger).holds


def audited_packets(folder: Path, rows: list[str]) -> dict[tuple[str, str, str], int]:
    """Ingest packets of one channel, and count the findings by check, verdict and reason."""
    sides = ",".join(f"{side}_height,{side}_time" for side in ("send", "recv", "ack"))
    head = f"source_chain,destination_chain,channel_id,sequence,{sides}"
    (folder / "packets.csv").write_text("\n".join([head, *(f"a,b,channel-0,{row}" for row in rows)]) + "\n")
    ingest_files(str(folder / "packets.csv"), str(folder / "ledger"), load_mapping("ibc-packets"))
    found = audit_ledger(open_ledger(str(folder / "ledger")))
    return {
        (check.name, *reason): count
        for check in found.checks.values()
        for reason, count in check.reasons.items()
        if check.name in ("agreement", "delivery")
    }


def test_packet_without_receipt_among_two_sided_packets_is_found(tmp_path: Path) -> None:
    rows = []
    for n in range(1, 9):
        at = 1_700_000_000 + 3000 * n
        receipt = "," if n == 5 else f"{6000 + 500 * n},{at + 10}"
        rows.append(f"{n},{1000 + 500 * n},{at},{receipt},{1004 + 500 * n},{at + 20}")
    assert audited_packets(tmp_path, rows) == {("agreement", "violated", "acknowledged_not_received"): 1}


def test_receipts_delimit_the_recorded_span_of_packets(tmp_path: Path) -> None:
    sent, day = 1_700_000_000, 86_400
    rows = [f"{n},{100 + n},{sent + n},{80_000 + n},{sent + 3 * day + n},," for n in (1, 3)]
    assert audited_packets(tmp_path, [*rows, f"2,102,{sent + 2},,,,"]) == {
        ("delivery", "violated", "overdue"): 1, ("delivery", "noted", "late"): 2,
    }  # fmt: skip


def test_packets_without_any_receipt_are_one_sided(tmp_path: Path) -> None:
    rows = [f"{n},{100 + n},{1_700_000_000 + n},,,{110 + n},{1_700_000_010 + n}" for n in range(1, 9)]
    assert audited_packets(tmp_path, rows) == {}
    assert {row["chain"] for row in open_ledger(str(tmp_path / "ledger")).table("observed").to_pylist()} == {"a"}


def test_parts_are_joined_to_one_name() -> None:
    lane = {"join": [{"column": "port", "optional": True}, "channel", {"text": "x", "optional": False}], "by": "|"}
    names = {"column": "id", "join": ["hash", {"column": "chain", "split": "-", "part": 0}], "optional": True}
    given = {
        "format": "csv", "stated_by": "t", "events": [{"event": {"text": "sent"}}],
        "fields": {"protocol": {"text": "p"}, "index": "n", "lane": lane, "message_id": names},
    }  # fmt: skip
    of = MappingDocument.model_validate(given)

    def read(text: str) -> list[tuple[str | None, str | None]]:
        data = text.encode()
        parts = list(ingest_file(io.BytesIO(data), "f.csv", len(data), of))
        return [(row["lane"], row["message_id"]) for part in parts for row in part.ledger.to_pylist()]

    assert read("n,port,channel,id,hash,chain\n1,p,c,,h,a-1\n2,,c,i,h,a-1\n3,p,,,,a-1\n") == [
        ("p|c|x", "h/a"), ("c|x", "i"), (None, None),
    ]  # fmt: skip
    assert read("n,channel,hash,chain\n1,c,h,a\n") == [("c|x", "h/a")]
    assert read("n,port,channel,hash,chain\n1,,c,,\n2,,d,,\n") == [("c|x", None), ("d|x", None)]
    with pytest.raises(InvalidInput, match="for lane"):
        read("n,hash,chain\n1,h,a\n")
    for wrong, text in (
        ({"column": "a", "by": "-"}, "by: has no effect without join"),
        ({"text": "a", "join": ["b"]}, "give either column or text, or join"),
        ({"join": [{"column": "a", "otherwise": "{file}"}]}, "a part cannot have otherwise"),
    ):
        with pytest.raises(ValidationError, match=text):
            MappingDocument.model_validate({**given, "fields": {**FIELDS, "lane": wrong}})
    with pytest.raises(ValidationError, match="join: joins texts, not numbers"):
        MappingDocument.model_validate({**given, "fields": {**FIELDS, "height": {"join": ["a"]}}})


FIELDS = {"protocol": {"text": "p"}, "index": "n"}


def test_events_may_require_empty_or_missing_columns() -> None:
    events = [{"event": {"text": "sent"}, "absent": ["a", ["b", "c"]]}, {"event": {"text": "failed"}, "present": ["a"]}]
    given = {"format": "csv", "stated_by": "t", "fields": FIELDS, "events": events, "nulls": ["nan"]}
    of = MappingDocument.model_validate(given)
    data = b"n,a,c\n1,,\n2,x,\n3,nan,nan\n4,,y\n"
    parts = list(ingest_file(io.BytesIO(data), "f.csv", len(data), of))
    assert [(row["index"], row["event"]) for part in parts for row in part.ledger.to_pylist()] == [
        (1, "sent"), (3, "sent"), (2, "failed"),
    ]  # fmt: skip
    assert [reason for part in parts for reason in part.reasons()] == ["no_event"]


def test_optional_event_may_lack_its_columns() -> None:
    events = [{"event": {"text": "sent"}}, {"event": {"text": "failed"}, "where": {"ok": "0"}, "optional": True}]
    given = {"format": "csv", "stated_by": "t", "fields": FIELDS, "events": events}
    of = MappingDocument.model_validate(given)
    for data, expected in ((b"n\n1\n", ["sent"]), (b"n,ok\n1,0\n", ["sent", "failed"])):
        (found,) = ingest_file(io.BytesIO(data), "f.csv", len(data), of)
        assert found.ledger["event"].to_pylist() == expected
