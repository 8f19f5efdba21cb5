"""Ledgers derived from lakes: each message is one for any ranges, and runs keep the guarantees."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from causeway.audit.engine import AuditResult, audit_ledger_rows
from causeway.cli.app import build_app
from causeway.cli.shell import BAD_INPUT, OK, execute
from causeway.ledger.lake.derivation import LedgerDerivation
from causeway.ledger.lake.ingest import ingest_lake, open_or_derive_ledger
from causeway.ledger.store import Ledger, open_ledger
from causeway.network.network import LakeNetwork
from causeway.storage.lake import Lake
from tests.chance_lakes import chance_lake
from tests.support.common.small_lakes import lake_of, user_calls
from tests.support.ic import ic_lake

SLOW = pytest.mark.slow
EXAMPLES = Path(__file__).parents[2] / "examples"
CHANCES = [
    *(("ic", 4), ("ibc", 1), ("ibc", 10), ("xdm", 11), ("icmp", 5)),
    *(pytest.param(*each, marks=SLOW) for each in (("ic", 12), ("ibc", 52), ("xdm", 12), ("icmp", 8))),
]

STREAM_OF_ONE = 'limits = "deployed"\ntimeouts = "on"\nrequest_lifetime_seconds = 8\nlimit = { stream_messages = 1 }\n'
"""Options under which messages wait in output queues, and some time out there."""


def ledger_texts(lake: str, range_rows: int, held: int) -> tuple[list[str], list[str]]:
    """Return the rows of a lake's ledger and its movements of value, sorted, as text."""
    ledger = LedgerDerivation(Lake.at(lake), range_rows=range_rows, max_retained=held)
    parts = list(ledger.rows(0, ledger.lake.last_height() + 1))
    rows = pa.concat_tables([*(part.rows for part in parts), ledger.drafts_to_rows(ledger.waiting())])
    value = pa.concat_tables([part.value for part in parts])
    one, other = (sorted(map(repr, table.to_pylist())) for table in (rows, value))
    return one, other


def audited(ledger: Ledger) -> AuditResult:
    readers = [partial(ledger.rows, bucket) for bucket in range(ledger.buckets)]
    return audit_ledger_rows(readers, ledger.table("observed"), ledger.table("promises"))


def stored(ledger: Ledger) -> list[dict[str, Any]]:
    found = pa.concat_tables([ledger.rows(bucket) for bucket in range(ledger.buckets)]).to_pylist()
    return sorted(found, key=repr)


@pytest.mark.parametrize(("protocol", "seed"), CHANCES)
def test_run_with_faults_keeps_its_guarantees_for_any_ranges(protocol: str, seed: int, tmp_path: Path) -> None:
    lake = chance_lake(tmp_path, protocol, seed)
    assert ledger_texts(lake, 1 << 20, 1 << 20) == ledger_texts(lake, 40, 3)
    with open_or_derive_ledger(lake) as ledger:
        found = audited(ledger)
    # Messages that a fault keeps from their destination for ever are lost; no other guarantee is violated.
    violated = {(check.name, *key) for check in found.checks.values() for key in check.reasons if key[0] == "violated"}
    assert violated <= {("delivery", "violated", "lost")}
    for name in ("exactly_once", "authenticity", "order", "causality", "conservation"):
        assert found.checks[name].examined, name


LATE = """
[network]
protocol = "ibc"
executor = "in_process"
[[chains]]
name = "left"
[[chains]]
name = "right"
[[programs]]
name = "caller"
chain = "left"
program = "caller"
[[programs]]
name = "echo"
chain = "right"
program = "echo"
[options]
timeouts = "on"
timeout_blocks = 2
[[faults]]
kind = "drop"
from = 2
until = 4
[traffic]
source = "script"
"""


def test_answer_to_a_timed_out_packet_is_pending_and_not_lost(tmp_path: Path) -> None:
    """The destination refuses a late packet, and the source times it out by itself."""
    lake = lake_of(tmp_path, LATE + user_calls([2], [("caller", "echo", "echo", 2, 0)]))
    with open_or_derive_ledger(lake) as ledger:
        found, rows = audited(ledger), stored(ledger)
    (refused,) = {row["detail"] for row in rows if row["event"] == "sent" and row["kind"] == "reject" and row["lane"]}
    ends = {(row["event"], row["detail"]) for row in rows if row["kind"] == "request" and row["lane"]}
    assert refused == "expired" and {("rejected", "TIMEOUT"), ("timed_out", None)} <= ends
    assert found.sentence() == "PASSED, 2 messages pending"


def test_growing_lake_is_ingested_further_and_a_pending_message_stays_one(tmp_path: Path) -> None:
    lake = ic_lake.make_lake(tmp_path, options=STREAM_OF_ONE, certification="off", until=4)
    target, whole = str(tmp_path / "ledger"), str(tmp_path / "whole")
    first = ingest_lake(lake, target)
    waited = open_ledger(target).table("waiting").to_pylist()
    assert first.waiting == len(waited) > 0
    assert all(row["event"] == "sent" and row["source"] is None for row in waited)
    with LakeNetwork.from_scenario(tmp_path / "scenario.toml", lake=lake, resume=True) as network:
        network.run()
    second = ingest_lake(lake, target)
    assert (second.first, second.waiting) == (first.heights, 0)
    assert ingest_lake(lake, target).commit is None
    assert ingest_lake(lake, whole, buckets=3).heights == first.heights + second.heights
    assert stored(open_ledger(target)) == stored(open_ledger(whole))
    rows = stored(open_ledger(target))
    # Some pending messages entered a lane, where they were sent before they were committed, and some timed out.
    sent = {row["message_id"]: row for row in rows if row["event"] == "sent"}
    late = [row for row in rows if row["event"] == "committed" and row["tick"] > sent[row["message_id"]]["tick"]]
    timed_out = [row for row in rows if row["event"] == "timed_out"]
    assert late and timed_out
    assert {row["message_id"] for row in waited} <= {row["message_id"] for row in (*late, *timed_out)}
    assert len(sent) == sum(row["event"] == "sent" for row in rows)
    found = audited(open_ledger(target))
    assert found.holds and found.checks["answers"].verdict == "PASSED"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    return ic_lake.make_lake(tmp_path_factory.mktemp("lake"), certification="off")


def test_ledger_belongs_to_one_lake(lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = ic_lake.make_lake(tmp_path, ticks=3, certification="off")
    target = str(tmp_path / "ledger")
    assert execute(["ingest", "lake", lake, "--lake", target, "--json"], build_app, "causeway") == OK
    done = json.loads(capsys.readouterr().out)
    assert (done["commit"], done["first"], done["waiting"]) == (0, 0, 0) and done["rows"] > 100
    before = stored(open_ledger(target))
    assert execute(["ingest", "lake", other, "--lake", target], build_app, "causeway") == BAD_INPUT
    assert "is another one" in capsys.readouterr().err
    assert execute(["ingest", "lake", str(tmp_path / "none"), "--lake", target], build_app, "causeway") == BAD_INPUT
    assert "no lake is there" in capsys.readouterr().err
    assert stored(open_ledger(target)) == before


def test_corrupted_log_is_named_and_not_ingested(lake: str, tmp_path: Path) -> None:
    copy = str(shutil.copytree(lake, tmp_path / "copy"))
    (log,) = sorted(Path(copy).glob("heights/*/events-*.parquet"))[:1]
    log.write_bytes(log.read_bytes()[:-1] + b"?")
    target = str(tmp_path / "ledger")
    with pytest.raises(Exception, match=rf"is damaged: {log.relative_to(copy)}"):
        ingest_lake(copy, target)
    ledger = open_ledger(target)
    assert not ledger.live and not list(Path(target).rglob("*.parquet"))


def test_row_has_its_position_in_the_lake(lake: str) -> None:
    about = json.loads((Path(lake) / "lake.json").read_text())
    names = [item["name"] for item in about["chains"]]
    found = Lake.at(lake)
    logs, heights = LedgerDerivation(found).logs, range(found.last_height() + 1)
    rows = {table: logs.read(table, heights).to_pylist() for table in ("outbound", "events", "collected")}
    with open_or_derive_ledger(lake) as ledger:
        for row in stored(ledger):
            owner = "source" if row["source_file"] == "outbound" else "chain"
            chain = names.index(row["chain"])
            own = [each for each in rows[row["source_file"]] if (each[owner], each["height"]) == (chain, row["height"])]
            log = own[row["source_row"] - 1]
            if row["source_file"] == "outbound":
                assert (log["index"], log["callback"]) == (row["index"], int(row["message_id"].rpartition("#")[2]))
            elif row["source_file"] == "collected":
                assert log["begin"] <= row["index"] < log["end"]
            elif row["event"] == "received":
                assert log["callback"] == int(row["message_id"].rpartition("#")[2]) and log["events"] & 8


def test_temporary_ledger_leaves_no_files(lake: str) -> None:
    before = sorted(str(path) for path in Path(lake).rglob("*"))
    with open_or_derive_ledger(lake) as ledger:
        place = Path(ledger.storage.uri.removeprefix("file://"))
        assert pq.read_table(ledger.uris("ledger")[0]).num_rows and place.exists()
    assert not place.exists()
    assert sorted(str(path) for path in Path(lake).rglob("*")) == before


def limbs(row: dict[str, Any]) -> int:
    return int(row["amount_0"]) + (int(row["amount_1"]) << 64)


def balances(lake: str) -> dict[str, int]:
    """Return the final balance of each program of a lake."""
    found, names = Lake.at(lake), {}
    for row in found.topology("programs").to_pylist():
        names[row["number"]] = row["name"]
    accounts = pa.concat_tables(found.state(found.last_manifest(), "accounts")).to_pylist()
    return {names[row["program"]]: (row["balance_high"] << 64) + row["balance_low"] for row in accounts}


@pytest.mark.parametrize(
    ("protocol", "seed"),
    [
        *(("ic", 12), ("ibc", 9), ("icmp", 5)),
        *(pytest.param(*each, marks=SLOW) for each in (("ibc", 10), ("icmp", 13))),
    ],
)
def test_program_balances_match_the_sent_and_received_value(protocol: str, seed: int, tmp_path: Path) -> None:
    """Value leaves its program with a call or an answer, and arrives with the received one: there is no other way."""
    lake = chance_lake(tmp_path, protocol, seed)
    has = {row["name"]: int(row["balance"]) for row in Lake.at(lake).topology("programs").to_pylist()}
    with open_or_derive_ledger(lake) as ledger:
        rows = stored(ledger)
    taken_back = [
        (row["message_id"], row["lane"], row["index"], row["detail"], row["chain"], row["position"])
        for row in rows
        if row["event"] == "reverted"
    ]
    ids: dict[str, set[str]] = {}
    for row in rows:
        ids.setdefault(row["event"], set()).add(row["message_id"])
    # Requests that no program accepted are answered by a chain, which returns the attached value.
    refused = (ids.get("rejected", set()) | ids.get("timed_out", set())) - ids["executed"]
    for row in rows:
        place = (row["message_id"], row["lane"], row["index"], row["event"], row["chain"], row["height"])
        if row["event"] not in ("sent", "received") or place in taken_back:
            continue
        if row["event"] == "sent" and row["sender"] in has and row["answers"] not in refused:
            has[row["sender"]] -= limbs(row)
        elif row["event"] == "received" and row["receiver"] in has and row["message_id"] not in refused:
            has[row["receiver"]] += limbs(row)
    end = balances(lake)
    assert {name: has[name] for name in end} == end and len(set(end.values())) > 1


@pytest.mark.parametrize("seed", [pytest.param(10, marks=SLOW), 11])
def test_movements_of_value_lead_to_all_balances(seed: int, tmp_path: Path) -> None:
    """Under xdm fees, deposits and operators take part, and forks move value back."""
    lake = chance_lake(tmp_path, "xdm", seed)
    with open_or_derive_ledger(lake) as ledger:
        value = ledger.table("value").to_pylist()
    has: dict[str, int] = {}
    for row in value:
        if row["asset"] == "units":
            has[row["from"]] = has.get(row["from"], 0) - limbs(row)
            has[row["to"]] = has.get(row["to"], 0) + limbs(row)
    end = balances(lake)
    assert {name: has[f"account:{name}"] for name in end if end[name]} == {name: end[name] for name in end if end[name]}
    assert any(row["why"].startswith("fee_") for row in value)
    assert any(row["why"] == "reverted" for row in value) == (seed == 11)


FORGED_CALL = """
[network]
protocol = "{protocol}"
executor = "in_process"
ticks = 20
[[chains]]
name = "left"
[[chains]]
name = "right"
[[programs]]
name = "asker"
chain = "left"
program = "caller"
balance = 100
[[programs]]
name = "echo"
chain = "right"
program = "echo"
[[faults]]
kind = "forge"
chain = "left"
tick = {tick}
sender = "asker"
receiver = "echo"
text = "forged"
[traffic]
source = "script"
"""


@pytest.mark.parametrize(("protocol", "tick"), [("ibc", 1), ("ibc", 2), ("ic", 1), ("ic", 2)])
def test_forged_request_takes_no_answer_from_the_repeated_call(protocol: str, tick: int, tmp_path: Path) -> None:
    text = FORGED_CALL.format(protocol=protocol, tick=tick)
    lake = lake_of(tmp_path, text + user_calls(range(4), [("asker", "echo", "m", 1, 1)]))
    assert ledger_texts(lake, 1 << 20, 1 << 20) == ledger_texts(lake, 10, 3)
    with open_or_derive_ledger(lake) as ledger:
        rows, found = stored(ledger), audited(ledger)
    forged = {row["index"] for row in rows if row["detail"] == "forged"}
    assert len(forged) == 1
    heard = sorted(row["index"] for row in rows if row["event"] == "acknowledged" and row["index"] not in forged)
    sent = sorted(
        row["index"]
        for row in rows
        if row["event"] == "sent" and row["kind"] == "request" and row["index"] not in forged
    )
    assert heard == sent
    assert len(sent) == 4
    for name in ("delivery", "order", "causality", "answers", *(["causal_order"] if protocol == "ibc" else [])):
        assert not [key for key in found.checks[name].reasons if key[0] == "violated"], name


FRAUD = """
[[faults]]
kind = "fraud"
tick = 5
chain = "domain-1"
what = "message"
destination = "domain-0"
found = false
"""


def test_forged_replacement_of_a_sent_message_has_another_content(tmp_path: Path) -> None:
    """Its receiver logs a protocol message instead of a program's: the content is not the program's."""
    text = (EXAMPLES / "faulty_domains.toml").read_text(encoding="utf-8").partition("# ---- what goes wrong")[0] + FRAUD
    (tmp_path / "fraud.toml").write_text(text, encoding="utf-8")
    here = {"network.executor": "in_process"}
    with LakeNetwork.from_scenario(tmp_path / "fraud.toml", here, lake=str(tmp_path / "lake")) as network:
        network.run(40)
    with open_or_derive_ledger(str(tmp_path / "lake")) as ledger:
        rows = [row for row in audited(ledger).violations.to_pylist() if row["check"] == "authenticity"]
    assert [(row["reason"], row["source"], row["lane"], row["index"]) for row in rows] == [
        ("content_differs", "domain-1", "0", 0)
    ]
