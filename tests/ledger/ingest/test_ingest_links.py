"""Links between rows: the other end of a lane, redundant relays, errors, order, continuations."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from causeway.audit.stored import audit_ledger
from causeway.ledger.ingest.commit import NothingIngested
from causeway.ledger.ingest.ingest import ingest_files
from causeway.ledger.ingest.links import LaneLinks, index_links, resolve_links
from causeway.ledger.ingest.mapping import Link, load_mapping
from causeway.ledger.schema import LEDGER_SCHEMA
from causeway.ledger.store import open_ledger
from tests.ledger.ingest.test_ingest import ingest_content, rows_of
from tests.support.properties.audit_ledgers import table

Row = dict[str, Any]
ALL: tuple[Link, ...] = ("counterparty", "redundant", "errors", "order", "continues")


def row(event: str, chain: str, index: int | None, **given: Any) -> Row:
    common = {"protocol": "p", "lane": "0/0", "kind": "request", "stated_by": "t"}
    return {**common, "event": event, "chain": chain, "index": index, **given}


def sent_row(chain: str, index: int, content: str = "", **given: Any) -> Row:
    return row("sent", chain, index, source=chain, payload_hash=hashed(content) if content else None, **given)


def received(chain: str, index: int, content: str = "", **given: Any) -> Row:
    return row("received", chain, index, destination=chain, payload_hash=hashed(content) if content else None, **given)


def hashed(content: str) -> bytes:
    return content.encode().ljust(32, b".")


def linked(rows: list[Row], links: Iterable[Link] = ALL, before: Any = None) -> tuple[list[Row], LaneLinks]:
    """Complete rows, in several parts and orders with the same result."""
    random, found = Random(len(rows)), None
    for _ in range(4):
        mixed = random.sample(rows, len(rows))
        size = random.randrange(1, len(rows) + 1)
        parts = [table(mixed[at : at + size], LEDGER_SCHEMA) for at in range(0, len(rows), size)]
        links_of = resolve_links(tuple(links), [index_links(part, tuple(links)) for part in parts], before)
        whole = pa.concat_tables([links_of.apply(part) for part in parts])
        assert whole.schema.equals(LEDGER_SCHEMA)
        made = sorted(whole.to_pylist(), key=lambda each: json.dumps(each, default=str))
        assert found is None or found == (made, dict(links_of.counterparties))
        found = made, dict(links_of.counterparties)
    assert found is not None
    return found[0], links_of


def ends(rows: list[Row]) -> set[tuple[str, str, str | None, str | None]]:
    return {(each["chain"], each["event"], each["source"], each["destination"]) for each in rows}


# ---- the other end of a lane


def test_other_end_is_the_chain_with_the_same_messages() -> None:
    # Three chains with equal channel names at both ends, and equal indices in each direction.
    rows = []
    for one, other in (("a", "b"), ("b", "a"), ("c", "d"), ("d", "c")):
        rows += [sent_row(one, n, f"{one}{n}") for n in range(5)] + [
            received(other, n, f"{one}{n}") for n in range(1, 4)
        ]
        rows += [row("acknowledged", one, n, source=one) for n in range(3)]
    rows += [row("timed_out", "a", 9, source="a"), row("executed", "b", 1, destination="b")]
    found, links = linked(rows)
    assert ends(found) >= {("a", "sent", "a", "b"), ("d", "received", "c", "d"), ("c", "acknowledged", "c", "d"),
                           ("a", "timed_out", "a", "b"), ("b", "executed", "a", "b")}  # fmt: skip
    assert all(each["source"] and each["destination"] for each in found)
    assert links.counterparties["p", "source", "a", "0/0"] == "b"


def test_end_with_no_or_several_candidates_stays_unknown() -> None:
    rows = [sent_row("a", 1), sent_row("b", 1), received("c", 1), sent_row("d", 7, "x"), received("e", 7, "y")]
    found, links = linked(rows)
    assert all(each["source"] is None or each["destination"] is None for each in found)
    assert set(links.counterparties.values()) == {None}
    # Columns that name the other chain count; a chain is not its own counterparty.
    rows = [sent_row("a", 1, "x", destination="z"), received("b", 1, "x"), sent_row("c", 2, "y"), received("c", 2, "y")]
    assert ends(linked(rows)[0]) == {("a", "sent", "a", "z"), ("b", "received", None, "b"),
                                     ("c", "sent", "c", None), ("c", "received", None, "c")}  # fmt: skip


def test_timeouts_distinguish_messages_without_content() -> None:
    rows = []
    for number, (one, other) in enumerate((("a", "b"), ("c", "d"), ("b", "a"))):
        rows += [sent_row(one, 1, timeout_time=number), received(other, 1, timeout_time=number)]
    assert {(each["source"], each["destination"]) for each in linked(rows)[0]} == {("a", "b"), ("c", "d"), ("b", "a")}


def test_links_of_an_earlier_commit_remain() -> None:
    rows = [sent_row("a", 1, "x"), received("b", 1, "x")]
    unknown = {("p", "source", "a", "0/0"): None}
    assert ends(linked(rows, before=unknown)[0]) == {("a", "sent", "a", None), ("b", "received", None, "b")}
    known = {("p", "source", "a", "0/0"): "b"}
    assert ends(linked(rows, before=known)[0]) == {("a", "sent", "a", "b"), ("b", "received", "a", "b")}
    other = {("p", "source", "a", "0/0"): "z"}
    assert ends(linked(rows, before=other)[0]) == {("a", "sent", "a", "z"), ("b", "received", None, "b")}


# ---- redundant relays, errors


def relayed(event: str, height: int | None, transaction: str | None, index: int = 1, **given: Any) -> Row:
    chain = "a" if event in ("sent", "acknowledged", "timed_out") else "b"
    return row(
        event, chain, index, source="a", destination="b", height=height, transaction=transaction, **given
    )  # fmt: skip


def redundant(rows: list[Row]) -> list[tuple[str, str | None]]:
    """Return the transactions of redundant rows, and the event repeated by each."""
    found, _ = linked(rows)
    return sorted((each["transaction"], each["detail"]) for each in found if each["event"] == "redundant")


def test_repeated_receipt_without_effect_is_redundant() -> None:
    effect = [relayed("executed", 5, "T2"), relayed("executed", 9, "T9", 2)]
    rows = [relayed("received", 5, "T1"), relayed("received", 5, "T2"), relayed("received", 7, "T3")]
    assert redundant([*rows, *effect]) == [("T1", "received"), ("T3", "received")]
    # Both had an effect: it was received twice, and the audit has to report it.
    assert redundant([*rows, *effect, relayed("failed", 5, "T1")]) == [("T3", "received")]
    # Without any effect in the input the first counts, and so does one recorded twice.
    assert redundant([rows[1], rows[2]]) == [("T3", "received")]
    assert redundant([relayed("received", 5, "T1"), relayed("received", 5, "T1", stated_by="u")]) == []
    assert redundant([relayed("received", 5, None), relayed("received", 7, None)]) == []


def test_only_the_first_acknowledgement_and_timeout_count() -> None:
    rows = [relayed("acknowledged", 5, "T1"), relayed("acknowledged", 6, "T2"), relayed("timed_out", 7, "T3"),
            relayed("timed_out", 4, "U1", 2), relayed("acknowledged", 9, "U2", 2),
            relayed("timed_out", 9, "U3", 2)]  # fmt: skip
    # Both endings of a message remain in any order: the audit has to report the contradiction.
    assert redundant(rows) == [("T2", "acknowledged"), ("U3", "timed_out")]
    assert redundant([relayed("sent", 5, "T1"), relayed("sent", 6, "T2")]) == []


@pytest.mark.parametrize("first", ["executed", "answered"])
def test_message_with_two_results_keeps_both_without_a_refund(first: str) -> None:
    rows = [relayed(first, 5, "T1"), relayed("failed", 6, "T2"), relayed("acknowledged", 8, "A1")]
    found, _ = linked(rows)
    assert sorted((each["event"], each["code"]) for each in found) == sorted(
        [(first, None), ("failed", None), ("acknowledged", None)], key=lambda each: each[0]
    )


def test_acknowledgement_of_a_failed_message_has_a_code_and_a_refund() -> None:
    rows = [relayed("failed", 5, "T1"), relayed("acknowledged", 8, "A1", source_row=7), relayed("executed", 5, "T2", 2),
            relayed("acknowledged", 8, "A2", 2), relayed("failed", 5, "T3", 3),
            relayed("acknowledged", 8, "A3", 3, code=9)]  # fmt: skip
    found, _ = linked(rows)
    assert [(each["index"], each["event"], each["code"], each["transaction"], each["source_row"]) for each in found
            if each["chain"] == "a"] == [
        (1, "acknowledged", 1, "A1", 7), (1, "refunded", None, "A1", 7), (2, "acknowledged", None, "A2", None),
        (3, "acknowledged", 9, "A3", None),
    ]  # fmt: skip
    assert {each["event"] for each in linked(rows, ["redundant"])[0]} == {"failed", "executed", "acknowledged"}


# ---- messages without an id


def named_row(event: str, name: str, time: int, content: str = "c", **given: Any) -> Row:
    common = {"source": "a", "destination": "b", "lane": None, "message_id": name, "time": time}
    chain = "a" if event == "sent" else "b"
    return {**row(event, chain, None), **common, "payload_hash": hashed(content), **given}


def pairs(rows: list[Row], event: str = "received") -> list[tuple[str, int]]:
    found, _ = linked(rows, ["order"])
    return sorted((each["message_id"], each["time"].second) for each in found if each["event"] == event)


def second(time: int) -> int:
    return time * 1_000_000


def test_receipts_are_matched_to_sends_of_equal_content_in_order() -> None:
    sendings = [named_row("sent", f"s{at}", second(at)) for at in (1, 3, 5)]
    receipts = [named_row("received", f"r{at}", second(at)) for at in (2, 6, 4)]
    assert pairs(sendings + receipts) == [("s1", 2), ("s3", 4), ("s5", 6)]
    # One before every remaining send stays unmatched, and so does a surplus one.
    assert pairs([*sendings[1:], *receipts]) == [("r2", 2), ("s3", 4), ("s5", 6)]
    assert pairs([*sendings[:1], *receipts]) == [("r4", 4), ("r6", 6), ("s1", 2)]
    # A receipt with the id of its send is unchanged, as are those of journeys, of other content, and of other lanes.
    assert pairs([*sendings, named_row("received", "s3", second(9)), *receipts[:2]]) == [
        ("s1", 2),
        ("s3", 9),
        ("s5", 6),
    ]
    others: list[Row] = [{"journey": "j"}, {"content": "d"}, {"destination": "z"}, {"payload_hash": None}]
    for other in others:
        assert pairs([*sendings, named_row("received", "r9", second(9), **other)]) == [("r9", 9)]


def test_failures_are_matched_with_receipts_and_relays_separately() -> None:
    rows = [
        named_row("sent", "s1", second(1)),
        named_row("sent", "s2", second(2)),
        named_row("relayed", "x4", second(4)),
        named_row("relayed", "x3", second(3)),
        named_row("received", "r5", second(5)),
        named_row("failed", "r5", second(5)),
    ]
    found, _ = linked(rows, ["order"])
    names = Counter((each["event"], each["message_id"]) for each in found)
    assert names == Counter({("sent", "s1"): 1, ("sent", "s2"): 1, ("relayed", "s1"): 1, ("relayed", "s2"): 1,
                             ("received", "s1"): 1, ("failed", "s1"): 1})  # fmt: skip


def test_message_continues_the_one_relayed_in_its_block() -> None:
    place: Row = {"chain": "m", "height": 7}
    hop = named_row("relayed", "t", second(2), journey="t", **place)
    onward = named_row("sent", "f", second(2), source="m", journey="f", **place)
    rows = [named_row("sent", "t", second(1), "other", journey="t", height=1), hop, onward,
            named_row("received", "f", second(3), "other", source="m", journey="f")]  # fmt: skip
    found, _ = linked(rows, ["continues"])
    assert {(each["message_id"], each["continues"]) for each in found} == {("t", None), ("f", "t")}
    # The same message continues, or either of two might, or the block differs.
    for changed in ([{**hop, "message_id": "f"}], [hop, {**hop, "message_id": "u"}], [{**hop, "height": 8}]):
        assert {each["continues"] for each in linked([*changed, onward], ["continues"])[0]} == {None}


# ---- kinds


def two_chains(folder: Path, count: int = 20) -> None:
    """Write the packet events of two chains, whose channel has the same name at both ends: every tenth packet times
    out, every thirteenth fails, every seventh is relayed twice."""
    lines: dict[str, list[Row]] = {"a": [], "b": []}

    def add(chain: str, event: str, sequence: int, height: int, transaction: str, timeout: int, **given: Any) -> None:
        common = {"event": event, "source_channel": "channel-0", "destination_channel": "channel-0"}
        lines[chain].append({**common, "sequence": sequence, "height": height, "time": 1_700_000_000 + 6 * height,
                             "transaction": transaction, "timeout": str(timeout), **given})  # fmt: skip

    for one, other, more in (("a", "b", 0), ("b", "a", 1)):
        for n in range(1, count + 1):
            data = {"data_hex": json.dumps({"amount": 2 * n + more}).encode().hex()}
            timeout = (1_700_000_500 if n % 10 == 0 else 1_800_000_000) * 10**9 + 2 * n + more
            add(one, "send_packet", n, n, f"S{one}{n}", timeout, **data)
            if n % 10 == 0:
                add(one, "timeout_packet", n, n + 200, f"O{one}", timeout)
                continue
            add(other, "recv_packet", n, n + 50, f"R{one}{n}", timeout, **data)
            ack = {"error": "ABCI code: 5: see events"} if n % 13 == 0 else {"result": "AQ=="}
            text = json.dumps(ack, separators=(",", ":"))
            add(other, "write_acknowledgement", n, n + 50, f"R{one}{n}", timeout, ack_hex=text.encode().hex(), **data)
            add(one, "acknowledge_packet", n, n + 100, f"A{one}{n}", timeout)
            if n % 7 == 0:
                add(other, "recv_packet", n, n + 50, f"X{one}{n}", timeout, **data)
                add(one, "acknowledge_packet", n, n + 101, f"Y{one}{n}", timeout)
    for chain, rows in lines.items():
        (folder / f"{chain}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))


def contents(lake: Path) -> list[Row]:
    ledger = open_ledger(str(lake))
    rows: list[Row] = pa.concat_tables([ledger.rows(bucket) for bucket in range(ledger.buckets)]).to_pylist()
    return rows


def test_events_of_two_chains_form_one_ledger_without_violations(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    two_chains(tmp_path / "in")
    done = ingest_files(str(tmp_path / "in"), str(tmp_path / "ledger"), load_mapping("ibc-events"))
    assert (done.quarantined, done.rows) == ({}, done.records + 2)
    rows = contents(tmp_path / "ledger")
    assert {(each["source"], each["destination"], each["lane"]) for each in rows} == {
        ("a", "b", "channel-0/channel-0"), ("b", "a", "channel-0/channel-0"),
    }  # fmt: skip
    assert Counter(each["event"] for each in rows) == {
        "sent": 40, "received": 36, "executed": 34, "failed": 2, "acknowledged": 36, "refunded": 2, "timed_out": 4,
        "redundant": 8,
    }  # fmt: skip
    assert {each["index"] for each in rows if each["code"] == 1} == {13}
    assert audit_ledger(open_ledger(str(tmp_path / "ledger"))).holds
    # No row is ingested twice, and known ends remain.
    assert ingest_files(str(tmp_path / "in"), str(tmp_path / "ledger"), load_mapping("ibc-events")).commit is None
    state = open_ledger(str(tmp_path / "ledger")).table("state").to_pylist()
    assert {each["value"] for each in state if each["what"] == "counterparty"} == {"a", "b"}


def test_files_of_several_parts_are_linked_across_all_records(tmp_path: Path) -> None:
    # The header of CSV is read with the first 64 KiB: the rest is a separate part.
    note, names = "x" * 300, "event,chain,src_channel,dst_channel,sequence,height,tx,note"
    for chain, event, height in (("a", "send_packet", 1), ("b", "recv_packet", 9)):
        lines = [f"{event},{chain},channel-0,channel-1,{n},{height},{event}{n},{note}" for n in range(1, 301)]
        (tmp_path / f"{chain}.csv").write_text("\n".join([names, *lines]))
    done = ingest_files(str(tmp_path), str(tmp_path / "ledger"), load_mapping("ibc-events"))
    assert (done.rows, done.quarantined) == (600, {})
    rows = contents(tmp_path / "ledger")
    assert {(each["source"], each["destination"]) for each in rows} == {("a", "b")}
    assert sorted(each["source_row"] for each in rows if each["chain"] == "b") == [*range(1, 301)]


@pytest.mark.parametrize("kind", ["ibc-events", "xcm-journeys"])
def test_multi_line_json_document_is_reported_with_a_hint(tmp_path: Path, kind: str) -> None:
    (tmp_path / "a.json").write_text('[\n {"n": 1}\n]\n')
    with pytest.raises(NothingIngested, match="0 of 3 records taken") as raised:
        ingest_files(str(tmp_path), str(tmp_path / "ledger"), load_mapping(kind))
    assert raised.value.hint is not None and raised.value.hint.startswith("a.json is one JSON document")


def test_events_may_come_from_one_chain_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    two_chains(tmp_path / "in")
    for chain in "ab":
        ingest_files(str(tmp_path / "in" / f"{chain}.jsonl"), str(tmp_path / "ledger"), load_mapping("ibc-events"))
    assert {(each["source"], each["destination"]) for each in contents(tmp_path / "ledger")} == {
        ("a", None), (None, "a"), ("b", None), (None, "b"),
    }  # fmt: skip
    assert audit_ledger(open_ledger(str(tmp_path / "ledger"))).holds


@pytest.mark.parametrize("written", ["text", "columns", "no data", "text on one chain", "both forms", "empty text"])
def test_event_names_of_any_export_are_accepted(tmp_path: Path, written: str) -> None:
    (tmp_path / "in").mkdir()
    two_chains(tmp_path / "in", 14)
    for chain, other in ("ab", "ba"):
        path = tmp_path / "in" / f"{chain}.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        for each in rows:
            if written == "text" and "ack_hex" in each:
                each["packet_ack"] = bytes.fromhex(each.pop("ack_hex")).decode()
            if written == "text on one chain" and chain == "a":
                each |= _as_text(each)
            if written == "both forms" and chain == "a":
                each |= {name: text for name, text in _as_text(each).items() if text is not None}
            if written == "empty text":
                each |= {"packet_data": "", "packet_ack": ""}
            if written == "columns":
                each |= {"chain_id": chain, "src_port": "transfer", "packet_dst_port": "transfer"}
                each["dst_chain" if each["event"][0] in "sat" and each["event"] != "write" else "src_chain"] = other
                each["packet_timeout_height"] = "0-0"
            if written == "no data":
                each.pop("data_hex", None)
        path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    ingest_files(str(tmp_path / "in"), str(tmp_path / "ledger"), load_mapping("ibc-events"))
    found = contents(tmp_path / "ledger")
    lane = "transfer/channel-0/transfer/channel-0" if written == "columns" else "channel-0/channel-0"
    assert {(each["source"], each["destination"], each["lane"]) for each in found} == {
        ("a", "b", lane), ("b", "a", lane)
    }  # fmt: skip
    assert Counter(each["event"] for each in found)["failed"] == 2
    assert audit_ledger(open_ledger(str(tmp_path / "ledger"))).holds


def _as_text(event: Row) -> Row:
    """Return the data and the acknowledgement of an event as ibc-go up to 8 writes them beside the digits."""
    data, ack = event.get("data_hex"), event.get("ack_hex")
    return {
        **({} if data is None else {"packet_data": bytes.fromhex(data).decode(), "data_hex": None}),
        **({} if ack is None else {"packet_ack": bytes.fromhex(ack).decode(), "ack_hex": None}),
    }


ERROR = b'{"error":"ABCI code: 5: see events"}'
RESULT = b'{"result":"AQ=="}'


@pytest.mark.parametrize(
    ("ack", "event"),
    [
        ({"packet_ack_hex": ERROR.hex()}, "failed"),
        ({"packet_ack_hex": ERROR.hex().upper()}, "failed"),
        ({"packet_ack_hex": f"0x{ERROR.hex()}"}, "failed"),
        ({"packet_ack": ERROR.decode()}, "failed"),
        ({"packet_ack": "", "packet_ack_hex": ERROR.hex()}, "failed"),
        ({"packet_ack": ERROR.decode(), "packet_ack_hex": ""}, "failed"),
        ({"packet_ack": None, "packet_ack_hex": ERROR.hex()}, "failed"),
        ({"packet_ack_hex": RESULT.hex()}, "executed"),
        ({"packet_ack": RESULT.decode()}, "executed"),
        ({"packet_ack": RESULT.decode(), "packet_ack_hex": RESULT.hex()}, "executed"),
    ],
)
@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_error_acknowledgement_is_recognized_in_every_form(ack: Row, event: str, kind: str) -> None:
    record = {"event": "write_acknowledgement", "chain": "b", "channel": "channel-0", "sequence": 1, "height": 5, **ack}
    if kind == "csv":
        out = io.StringIO()
        csv.writer(out).writerows([record.keys(), record.values()])
        content = out.getvalue()
    else:
        content = json.dumps(record)
    assert [each["event"] for each in rows_of(ingest_content(content, "ibc-events", f"f.{kind}"))] == [event]


def test_packet_data_has_one_content_in_every_form() -> None:
    data = b'{"denom":"uatom","amount":"1","sender":"a","receiver":"\xc3\xa9"}'
    forms = [
        {"packet_data_hex": data.hex()}, {"data_hex": f"0x{data.hex().upper()}"}, {"packet_data": data.decode()},
        {"packet_data_hex": "", "packet_data": data.decode()}, {"packet_data": "", "packet_data_hex": data.hex()},
        {"packet_data_hex": data.hex(), "packet_data": data.decode()},
    ]  # fmt: skip
    common = {"event": "send_packet", "chain": "a", "channel": "channel-0", "sequence": 1, "height": 5}
    lines = "\n".join(json.dumps({**common, **form}) for form in [*forms, {"packet_data": "other"}])
    *same, other = [row["payload_hash"] for row in rows_of(ingest_content(lines, "ibc-events", "f.jsonl"))]
    assert len(same) == len(forms) and {*same} == {same[0]} != {other} and same[0] is not None


def journey(kind: str, topic: str | None, chain: str, block: int, content: str, **given: Any) -> Row:
    waypoint = {"chainId": chain, "blockNumber": str(block), "timestamp": 1_744_800_000_000 + 6000 * given.pop("at"),
                "messageHash": content, "outcome": given.pop("outcome", "Success")}  # fmt: skip
    ends = {"origin": {"chainId": given.pop("source", "2004"), **given.pop("origin", {})},
            "destination": {"chainId": given.pop("destination", "2034")}}  # fmt: skip
    return {"type": f"xcm.{kind}", "messageId": topic, **ends, "waypoint": waypoint}


JOURNEYS = [
    journey("sent", "t2", "2004", 101, "h2", at=1), journey("hop", "t2", "1000", 905, "h2b", at=2),
    journey("sent", "f2", "1000", 905, "h2b", at=2, source="1000"),
    journey("received", "f2", "2034", 305, "h2b", at=3, source="1000"),
    journey("sent", None, "2004", 110, "same", at=4), journey("relayed", None, "0", 50, "same", at=5),
    journey("received", None, "2034", 320, "same", at=6), journey("sent", None, "2004", 111, "same", at=7),
    journey("received", None, "2034", 325, "same", at=9), journey("sent", "t4", "2004", 130, "h4", at=10),
    journey("received", "t4", "2034", 330, "h4", at=11, outcome="Fail"),
    journey("sent", None, "2004", 140, "same", at=12), journey("timeout", None, "2004", 140, "same", at=30),
    # This receipt names the block of its origin.
    journey("received", None, "2034", 340, "same", at=14, origin={"blockNumber": "140"}),
]  # fmt: skip


def test_messages_without_a_topic_are_distinct_and_failures_are_no_receipts(tmp_path: Path) -> None:
    random = Random(4)
    found = []
    for number in range(3):
        (tmp_path / f"{number}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in JOURNEYS))
        random.shuffle(JOURNEYS)
        ingest_files(str(tmp_path / f"{number}.jsonl"), str(tmp_path / f"l{number}"), load_mapping("xcm-journeys"))
        rows = contents(tmp_path / f"l{number}")
        found.append(sorted((each["message_id"], each["event"], each["chain"], each["height"]) for each in rows))
        assert {each["message_id"]: each["continues"] for each in rows if each["continues"]} == {"f2": "t2"}
        assert [each["detail"] for each in rows if each["event"] == "failed"] == ["Fail"]
        assert audit_ledger(open_ledger(str(tmp_path / f"l{number}"))).holds
    assert found[0] == found[1] == found[2]
    assert [each for each in found[0] if each[0].startswith("same")] == [
        ("same/2004/110", "received", "2034", 320), ("same/2004/110", "relayed", "0", 50),
        ("same/2004/110", "sent", "2004", 110), ("same/2004/111", "received", "2034", 325),
        ("same/2004/111", "sent", "2004", 111), ("same/2004/140", "observed", "2004", 140),
        ("same/2004/140", "received", "2034", 340), ("same/2004/140", "sent", "2004", 140),
    ]  # fmt: skip
    assert [each[:2] for each in found[0] if each[0] == "t4"] == [("t4", "failed"), ("t4", "received"), ("t4", "sent")]


def test_parts_without_rows_are_accepted() -> None:
    none = LEDGER_SCHEMA.empty_table()
    links = resolve_links(
        ALL, [index_links(none, ALL), index_links(table([sent_row("a", 1, "x")], LEDGER_SCHEMA), ALL)]
    )
    assert links.apply(none).num_rows == 0 and resolve_links(ALL, []).apply(none).num_rows == 0
    rows = [relayed("failed", 5, "T1"), relayed("received", 5, "T1"), relayed("received", 6, "T2")]
    links = resolve_links(ALL, [index_links(table(rows, LEDGER_SCHEMA), ALL)])
    assert len(links.redundant) == 1 and links.apply(none).equals(none)
