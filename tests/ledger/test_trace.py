"""``causeway trace``: message lifecycles are found without a full read, with their problems."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput

import causeway as cw
from causeway.analysis.tracing import (
    AGAIN,
    OTHER_CHAIN,
    OTHER_CONTENT,
    TAKEN_BACK,
    SeveralMessages,
    message_histories,
    trace_message,
)
from causeway.cli.app import build_app
from causeway.cli.shell import BAD_INPUT, OK, execute
from causeway.core.text import to_one_line
from causeway.explorer.view import height_headers
from causeway.ledger import store
from causeway.ledger.row_order import sort_rows
from causeway.ledger.schema import LEDGER_SCHEMA
from causeway.ledger.search import MessageKey, find_messages, find_related, read_message_rows
from causeway.ledger.store import Ledger, LedgerWriter, create_ledger, group_by_bucket, open_ledger
from causeway.network.opened_lake import open_lake
from causeway.proving.ic.state import CertifiedStates
from causeway.storage.parquet_files import StoredParquet
from tests.recordings import Recordings
from tests.support.ic.ic_lake import make_lake
from tests.support.properties.audit_ledgers import table

LANE = {"protocol": "p", "source": "a", "destination": "b", "lane": "l"}
BACK = {"protocol": "p", "source": "b", "destination": "a", "lane": "l"}
Row = dict[str, Any]


def row(event: str, chain: str, seconds: int | None, **more: Any) -> Row:
    time = None if seconds is None else seconds * 1_000_000
    return {**LANE, "kind": "request", "event": event, "chain": chain, "time": time, "stated_by": "t", **more}


def store_ledger(place: Path, commits: list[list[Row]], buckets: int = 4) -> Ledger:
    ledger = create_ledger(str(place), buckets)
    for rows in commits:
        writer = LedgerWriter(ledger)
        for bucket, own in group_by_bucket(table(rows, LEDGER_SCHEMA), buckets).items():
            writer.write("ledger", sort_rows(own), bucket)
        ledger = ledger.after(writer.commit([], {}))
    return open_ledger(str(place))


def steps(rows: list[Row]) -> list[tuple[str, tuple[str, ...]]]:
    (life,) = message_histories(sort_rows(table(rows, LEDGER_SCHEMA)))
    return [(step.event, step.notes) for step in life.steps]


def test_lifecycle_is_ordered_by_time_and_marks_ignored_events() -> None:
    one, other = b"1" * 32, b"2" * 32
    sent = row("sent", "a", 10, index=5, payload_hash=one)
    forged = row("received", "b", 20, index=5, payload_hash=other)
    first = row("received", "b", 30, index=5, payload_hash=one)
    second = row("received", "b", 40, index=5, payload_hash=one)
    assert steps([second, forged, first, sent]) == [
        ("sent", ()),
        ("received", (OTHER_CONTENT,)),
        ("received", ()),
        ("received", (AGAIN,)),
    ]
    early = row("received", "b", 5, index=5, payload_hash=one)
    assert steps([sent, early, first]) == [("received", (AGAIN,)), ("sent", ()), ("received", ())]
    back = row("reverted", "b", 35, index=5, detail="received")
    assert steps([sent, first, back]) == [("sent", ()), ("received", (TAKEN_BACK,)), ("reverted", ())]
    (life,) = message_histories(sort_rows(table([sent, first, back], LEDGER_SCHEMA)))
    assert (life.outcome, life.is_open, life.took) == ("pending", True, None)


def test_delivery_time_ends_at_the_first_genuine_receipt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other, day = b"1" * 32, b"2" * 32, 86_400
    rows = [
        row("received", "c", 40, index=5, payload_hash=one),
        row("received", "b", 50, index=5, payload_hash=other),
        row("sent", "a", 100, index=5, payload_hash=one),
        row("received", "c", 150, index=5, payload_hash=one),
        row("received", "b", 2_350, index=5, payload_hash=one),
        row("received", "b", 90 * day, index=5, payload_hash=one),
        row("received", "b", 92 * day, index=5, payload_hash=other),
    ]
    assert steps(rows) == [
        ("received", (AGAIN, OTHER_CHAIN)),
        ("received", (OTHER_CONTENT,)),
        ("sent", ()),
        ("received", (AGAIN, OTHER_CHAIN)),
        ("received", ()),
        ("received", (AGAIN,)),
        ("received", (AGAIN, OTHER_CONTENT)),
    ]
    store_ledger(tmp_path / "l", [rows])
    assert execute(["trace", str(tmp_path / "l"), "l/5"], build_app, "causeway") == OK
    head, _, first, *_ = capsys.readouterr().out.splitlines()
    assert head == "request p a -> b l 5: received after 37.5 min; 4 foreign receipts, 1 repeated receipt"
    assert " -60 s " in first and first.rstrip().endswith("received again on another chain  c")
    assert execute(["trace", str(tmp_path / "l"), "l/5", "--json"], build_app, "causeway") == OK
    (message,) = json.loads(capsys.readouterr().out)["messages"]
    assert {name: message[name] for name in ("outcome", "seconds", "foreign_receipts", "repeated_receipts")} == {
        "outcome": "received", "seconds": 2_250, "foreign_receipts": 4, "repeated_receipts": 1,
    }  # fmt: skip


def test_message_received_only_by_another_chain_has_no_delivery_time() -> None:
    rows = [row("sent", "a", 1, index=1), row("received", "c", 9, index=1)]
    (life,) = message_histories(sort_rows(table(rows, LEDGER_SCHEMA)))
    assert (life.outcome, life.took, dict(life.remarks)) == ("received", None, {"foreign receipt": 1})


def test_duration_of_an_answered_call_ends_at_its_answer() -> None:
    events = (("sent", "a", 1), ("received", "b", 3), ("answered", "b", 4), ("acknowledged", "a", 9))
    rows = [row(event, chain, at, index=1, tick=at) for event, chain, at in events]
    (life,) = message_histories(sort_rows(table(rows, LEDGER_SCHEMA)))
    assert (life.outcome, life.took, life.duration_ticks) == ("answered", dt.timedelta(seconds=3), 3)


def test_lifecycle_without_times_is_ordered_causally() -> None:
    rows = [
        row(event, chain, None, index=1) for event, chain in (("acknowledged", "a"), ("sent", "a"), ("received", "b"))
    ]
    assert [event for event, _ in steps(rows)] == ["sent", "received", "acknowledged"]


def test_unsent_message_is_marked() -> None:
    (life,) = message_histories(sort_rows(table([row("received", "b", 1, index=1)], LEDGER_SCHEMA)))
    assert life.outcome == "received; never sent in this input"


def test_messages_are_found_by_any_name_over_files_and_row_groups(tmp_path: Path) -> None:
    draw, rows = Random(3), []
    lanes: list[Row] = [LANE, BACK, {**LANE, "lane": None}]
    for number in range(3_000):
        lane = draw.choice(lanes)
        named: Row = {"message_id": f"m{number}"} if draw.random() < 0.3 else {"index": draw.randrange(2**20)}
        for event, chain in (("sent", "a"), ("received", "b")):
            more = {"transaction": f"{event}-{number % 700}", "sender": f"s{number % 9}"}
            rows.append({**row(event, chain, number), **lane, **named, **more})
    draw.shuffle(rows)
    ledger = store_ledger(tmp_path / "l", [rows[:4_000], rows[4_000:]])

    def naive(wanted: dict[str, Any]) -> set[MessageKey]:
        found = set()
        for each in rows:
            if all(each.get(name) == value for name, value in wanted.items()):
                lane = tuple(each[name] for name in LANE)
                found.add(MessageKey(lane, each.get("index"), each.get("message_id")))
        return found

    conditions: list[Row] = [
        {"transaction": "sent-17"},
        {"message_id": "m5"},
        {"index": rows[0].get("index", 7), "lane": None},
        {"sender": "s3", "source": "b"},
        {"transaction": "nothing"},
    ]
    for sought in conditions:
        found = find_messages(ledger, [{name: (value,) for name, value in sought.items()}])
        assert set(found) == naive(sought) and len(found) == len(set(found))
        for key in found[:20]:
            own = read_message_rows(ledger, [key])
            same = [r for r in rows if tuple(r[name] for name in LANE) == key.lane and r.get("index") == key.index]
            same = same if key.index is not None else [r for r in same if r.get("message_id") == key.message_id]
            assert own.num_rows == len(same) >= 1


def test_answer_and_further_hop_belong_to_their_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hop = {"protocol": "p", "source": "b", "destination": "c", "lane": "l"}
    rows = [
        row("sent", "a", 1, index=1, message_id="q", journey="j"),
        row("received", "b", 2, index=1, message_id="q", journey="j"),
        {**row("sent", "b", 3, index=9, message_id="h", journey="j"), **hop},
        {**row("sent", "b", 4, index=3, message_id="r", answers="q"), **BACK, "kind": "response"},
        row("sent", "a", 1, index=2, message_id="other"),
    ]
    ledger = store_ledger(tmp_path / "l", [rows])
    assert {
        key.index
        for key in find_related(ledger, read_message_rows(ledger, find_messages(ledger, [{"message_id": ("q",)}])))
    } == {1, 9, 3}
    assert execute(["trace", str(tmp_path / "l"), "q", "--json"], build_app, "causeway") == OK
    said = json.loads(capsys.readouterr().out)
    assert [(m["message_id"], m["outcome"]) for m in said["messages"]] == [
        ("q", "received"),
        ("h", "pending"),
        ("r", "pending"),
    ]
    assert execute(["trace", str(tmp_path / "l"), "j"], build_app, "causeway") == OK


def test_rerouted_answer_is_one_message_of_two_lanes(tmp_path: Path) -> None:
    asked = row("sent", "a", 1, index=1, message_id="q")
    answer = {"kind": "response", "message_id": "r", "answers": "q"}
    first = {**row("sent", "b", 2, index=3), **BACK, **answer}
    refused = {**row("rejected", "a", 3, index=3), **BACK, **answer, "kind": "reject"}
    anew = {**row("sent", "b", 4, index=1), **BACK, **answer, "destination": "c"}
    ledger = store_ledger(tmp_path / "l", [[asked, first, refused, anew]])
    for narrowed in ({}, {"destination": "a"}, {"destination": "c"}):
        lives = trace_message(ledger, "r", **narrowed).lives
        assert [(life.lane[2], life.index, life.outcome) for life in lives] == [
            ("b", 1, "pending"), ("a", 3, "rejected"), ("c", 1, "pending"),
        ]  # fmt: skip
    other = {**row("sent", "b", 4, index=9), **BACK, **answer, "answers": "p", "destination": "d"}
    with pytest.raises(SeveralMessages):
        trace_message(store_ledger(tmp_path / "other", [[asked, first, other]]), "r")


def test_message_is_followed_under_its_continuation_ids(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ids = ("one", "two", "three")
    sent = [
        row("sent", "a", n, message_id=ids[n], continues=ids[n - 1] if n else None, lane=f"hop {n}") for n in (0, 1, 2)
    ]
    ledger = store_ledger(
        tmp_path / "ledger", [[each] for each in sent] + [[row("received", "b", 9, message_id="three", lane="hop 2")]]
    )
    for name in ids:
        found = trace_message(ledger, name)
        assert [(life.message_id, life.outcome, life.is_open) for life in found.lives] == [
            ("one", "carried on by two", False), ("two", "carried on by three", False), ("three", "received", False),
        ]  # fmt: skip
    assert execute(["trace", str(tmp_path / "ledger"), "one"], build_app, "causeway") == OK
    assert "one: carried on by two" in capsys.readouterr().out
    other = store_ledger(tmp_path / "other", [[row("sent", "a", 1, message_id="one"), {**sent[1], "protocol": "q"}]])
    assert trace_message(other, "one").lives[0].outcome == "pending"


def test_name_matches_by_prefix_or_as_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ids = [f"0x{number:02x}{'7' * 56}{number:06x}" for number in range(20)]
    rows = [
        row("sent", "a", 1, index=number, message_id=ident, transaction=f"0xff{ident[4:]}")
        for number, ident in enumerate(ids)
    ]
    rows.append(row("sent", "a", 1, index=99, transaction=ids[3]))
    place = str(tmp_path / "l")
    ledger = store_ledger(tmp_path / "l", [rows[:10], rows[10:]])

    def traced(message: str) -> list[int | None]:
        return [life.index for life in trace_message(ledger, message).lives]

    assert traced(ids[4]) == traced(ids[4][:8]) == traced(to_one_line(ids[4])) == [4]
    assert traced(to_one_line(rows[5]["transaction"])) == [5]  # of many with this prefix, the one with this suffix
    for bad in (
        {"message": 5},
        {"message": "m", "lane": 7},
        {"index": "4", "lane": "l"},
        {"index": 1.5},
        {"index": -1},
    ):
        with pytest.raises(InvalidInput, match=f"{[*bad][-1]}|index: .*: must be"):
            trace_message(ledger, **bad)
    for wrong in (ids[4][:5], f"{ids[4][:8]}8", f"{ids[4][:8]}…9999", f"x{ids[4]}", "l/4…"):
        with pytest.raises(InvalidInput, match="no such message"):
            trace_message(ledger, wrong)
    with pytest.raises(SeveralMessages) as several:
        trace_message(ledger, ids[3][:8])
    assert {key.index for key in several.value.keys} == {3, 99}
    with pytest.raises(SeveralMessages) as several:
        trace_message(ledger, "0xff7777")
    assert len(several.value.keys) == 20
    assert execute(["trace", place, to_one_line(ids[4])], build_app, "causeway") == OK
    assert f"id {to_one_line(ids[4])}" in capsys.readouterr().out


def test_only_candidate_row_groups_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "ROW_GROUP", 10)
    rows = [
        row("sent", "a", number, index=index, lane=f"lane {lane}", message_id=f"{lane}/{index}")
        for lane in range(4)
        for number, index in enumerate(range(100))
    ]
    ledger, read = store_ledger(tmp_path / "l", [rows], buckets=1), []
    whole = StoredParquet.read_row_group

    def counted(file: StoredParquet, group: int, **options: Any) -> pa.Table:
        read.append(group)
        return whole(file, group, **options)

    monkeypatch.setattr(StoredParquet, "read_row_group", counted)
    assert [life.index for life in trace_message(ledger, "lane 2/57").lives] == [57]
    assert set(read) == {25}


def test_several_messages_are_listed_with_escaped_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b[31m[bold]:smile:"
    rows = [
        row("sent", "a", 1, index=number, transaction=evil, sender=1_500 * "\xe9", message_id=f"{evil}{number}")
        for number in range(30)
    ]
    store_ledger(tmp_path / "l", [rows])
    place = str(tmp_path / "l")
    assert execute(["trace", place, evil], build_app, "causeway") == BAD_INPUT
    err = capsys.readouterr().err
    assert "30 messages are meant" in err and "and 10 more" in err and "\x1b" not in err
    assert execute(["trace", place, f"{evil}7"], build_app, "causeway") == OK
    out = capsys.readouterr().out
    assert "\x1b" not in out and "[bold]:smile:7" in out and 100 * "\xe9" not in out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "message: missing"),
        (["nothing"], "nothing: no such message"),
        (["n" * 500], f"{'n' * 99}…{'n' * 20}: no such message"),
        (["l/99999999999999999999999999"], "no such message"),
        (["--index", "-1"], "--index"),
        (["--index", str(2**64)], "--index"),
    ],
)
def test_missing_message_ends_with_one_line(
    tmp_path: Path, arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store_ledger(tmp_path / "l", [[row("sent", "a", 1, index=2**64 - 1)]])
    assert execute(["trace", str(tmp_path / "l"), *arguments], build_app, "causeway") == BAD_INPUT
    err = capsys.readouterr().err
    assert text in err and err.count("\n") == 1


def test_largest_index_is_found(tmp_path: Path) -> None:
    ledger = store_ledger(tmp_path / "l", [[row("sent", "a", 1, index=2**64 - 1), row("sent", "a", 1, index=1)]], 1)
    assert [key.index for key in find_messages(ledger, [{"lane": ("l",), "index": (2**64 - 1,)}])] == [2**64 - 1]


def test_recorded_packets_and_journeys(
    recordings: Recordings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(tmp_path / "l")
    source = str(recordings.xcm_journeys)
    assert execute(["ingest", "xcm-journeys", source, "--lake", place], build_app, "causeway") == OK
    with open(source, encoding="utf-8") as file:
        ids = {record["messageId"] for record in map(json.loads, file)}
    capsys.readouterr()
    found = {}
    for each in sorted(ids):
        assert execute(["trace", place, each, "--json"], build_app, "causeway") == OK
        (message,) = json.loads(capsys.readouterr().out)["messages"]
        found[each] = message["outcome"]
    assert sorted(found.values()).count("received") == 15 and sorted(found.values()).count("pending") == 1
    assert sorted(found.values()).count("the recorder stopped waiting for it") == 2


SPLIT_AND_HALT = """
[[chains]]
name = "new"
from = 3
[[splits]]
tick = 3
chain = "right"
into = "new"
programs = ["bob"]
[[faults]]
kind = "halt"
chain = "left"
from = 4
until = 5
"""


def test_event_has_the_root_of_its_chain_at_the_network_height(tmp_path: Path) -> None:
    """A subnet created by a split and a halted one have fewer blocks than the network has heights."""
    options = "".join(f'{name} = "deployed"\n' for name in ("vsr", "sender_mismatch"))
    options += 'splitting = "on"\nmigrations = "on"\nsubstreams = "per_source"\n'
    lake = make_lake(tmp_path, options=options, more=SPLIT_AND_HALT)
    with cw.open(lake) as ledger:
        states = CertifiedStates(open_lake(lake))
        at: dict[int, set[int]] = {}
        found = find_messages(ledger.stored, [{"protocol": ("ic",)}])
        traced = ledger.lives(found)
        steps = [step for life in traced.lives for step in life.steps]
        assert {"new", "left"} <= {step.chain for step in steps if (step.height or 0) > 6}
        for step in steps:
            assert step.chain is not None and step.height is not None
            root = states.get_state_at(step.chain, step.height).root.hex()
            assert traced.roots(step) == [root], step
            at.setdefault(step.height, set()).add(step.row["tick"])
        for height, ticks in at.items():
            chains = ["left", "middle", *(["new"] if height > 3 else []), "right"]
            roots = [states.get_state_at(chain, height).root.hex() for chain in chains]
            for known in (ticks, ()):
                rows = height_headers(ledger.stored, height, known, None, 100)
                assert [(row["chain"], row["root"]) for row in rows] == list(zip(chains, roots, strict=True))
