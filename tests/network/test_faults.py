"""Faults in a network: outcomes of the reference, and their rows in the ledger."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from causeway.core.queues import Queues
from causeway.network.network import LakeNetwork
from causeway.network.run_records import StoppedChain, stopped_chains
from causeway.programs import Program
from causeway.programs.scalar import Context, Ingress

BASE = """
[network]
protocol = "ic"
executor = "in_process"

[[chains]]
name = "A"
[[chains]]
name = "B"
[[chains]]
name = "C"

[[programs]]
name = "caller"
chain = "A"
program = "caller"
balance = 1000
[[programs]]
name = "echo"
chain = "B"
program = "echo"
[[programs]]
name = "nowhere"
program = "none"
[[programs]]
name = "empty"
chain = "B"
program = "none"

[traffic]
source = "script"
"""

CALL = """
[[traffic.send]]
tick = {tick}
to = "{caller}"
call = {{ receiver = "{to}", method = "hello", text = "hi", amount = {amount} }}
count = {count}
"""


def call(to: str, *, tick: int = 0, count: int = 1, amount: int = 0, caller: str = "caller") -> str:
    return CALL.format(to=to, tick=tick, count=count, amount=amount, caller=caller)


def run(folder: Path, text: str, **overrides: str) -> LakeNetwork:
    scenario = folder / "scenario.toml"
    scenario.write_text(text)
    net = LakeNetwork.from_scenario(scenario, overrides, lake=str(folder / "lake"))
    net.run(ticks=60)
    return net


def ledger(net: LakeNetwork) -> list[dict[str, Any]]:
    """Return the ledger's rows in time order, without ingress, in one query per test."""
    rows = [row.asDict() for row in net.ledger.where("message_id not like '%/i%'").collect()]
    return sorted(rows, key=lambda row: (row["height"], row["kind"], row["event"], row["message_id"]))


def history(rows: list[dict[str, Any]], **wanted: str) -> list[tuple[Any, ...]]:
    """Return (kind, event, chain, code, detail) of matching rows."""
    return [
        tuple(row[name] for name in ("kind", "event", "chain", "code", "detail"))
        for row in rows
        if all(row[name] == value for name, value in wanted.items())
    ]


def count_outcomes(rows: list[dict[str, Any]]) -> Counter[str]:
    """Return the numbers of calls answered with data, rejected, and unanswered."""
    calls = {row["message_id"] for row in rows if row["kind"] == "request" and row["event"] == "sent"}
    kinds = {"response": "answered", "reject": "rejected"}
    ends = {row["answers"]: kinds[row["kind"]] for row in rows if row["answers"] and row["event"] == "received"}
    return Counter(ends.get(call, "pending") for call in calls)


def balance(net: LakeNetwork, program: int) -> int:
    row = net.state("accounts").where(f"program = {program}").first()
    assert row is not None
    return int(row.balance_high) * 2**64 + int(row.balance_low)


def test_call_to_an_unhosted_canister_is_rejected_by_the_senders_subnet(tmp_path: Path, spark: SparkSession) -> None:
    net = run(tmp_path, BASE + call("nowhere", amount=7))
    rows = ledger(net)
    assert history(rows, kind="request") == [
        ("request", "rejected", "A", 3, "NON_EXISTENT_CANISTER"),
        ("request", "sent", "A", 3, None),
        ("request", "acknowledged", "A", 3, None),
    ]
    assert [(row[2], row[3]) for row in history(rows, kind="reject", event="received")] == [("A", 3)]
    assert balance(net, 0) == 1000


def test_uninstalled_canister_rejects_calls(tmp_path: Path, spark: SparkSession) -> None:
    net = run(tmp_path, BASE + call("empty", amount=7), **{"options.vsr": '"deployed"'})
    assert ("request", "rejected", "B", 3, "CanisterNotFound") in history(ledger(net), kind="request")
    assert balance(net, 0) == 1000


def test_message_from_a_subnet_not_hosting_its_sender_is_dropped(tmp_path: Path, spark: SparkSession) -> None:
    forged = """
[[faults]]
kind = "forge"
tick = 1
chain = "C"
sender = "caller"
receiver = "echo"
text = "not from there"
"""
    rows = ledger(run(tmp_path, BASE + call("echo") + forged))
    assert ("request", "dropped", "B", 0, "sender_mismatch") in history(rows, kind="request")
    assert not history(rows, kind="request", event="received", source="C")


def test_every_third_policy_rejected_request_is_returned(tmp_path: Path, spark: SparkSession) -> None:
    net = run(tmp_path, BASE + call("echo", count=9, amount=1), **{"options.reject_every": "3"})
    rows = ledger(net)
    rejected = [(row["index"], row["chain"], row["code"], row["detail"]) for row in rows if row["event"] == "rejected"]
    assert rejected == [(3, "B", 1, "Unknown"), (6, "B", 1, "Unknown"), (9, "B", 1, "Unknown")]
    summary = net.summary()
    assert (summary["answered"], summary["rejected"], summary["received"]) == (6, 3, 6)
    assert count_outcomes(rows) == {"answered": 6, "rejected": 3}
    assert balance(net, 0) == 1000


def test_full_stream_delays_messages_and_loses_none(tmp_path: Path, spark: SparkSession) -> None:
    limits = {"options.limits": '"deployed"', "options.limit.stream_messages": "2"}
    rows = ledger(run(tmp_path, BASE + call("echo", count=7), **limits))
    requests = [row for row in rows if row["kind"] == "request"]
    assert len({row["height"] for row in requests if row["event"] == "sent"}) == 1
    committed = Counter(row["height"] for row in requests if row["event"] == "committed")
    assert sum(committed.values()) == 7 and max(committed.values()) == 2
    assert count_outcomes(rows) == {"answered": 7}


def test_request_delayed_too_long_times_out(tmp_path: Path, spark: SparkSession) -> None:
    options = {
        "options.limits": '"deployed"', "options.limit.stream_messages": "1", "options.timeouts": '"on"',
        "options.request_lifetime_seconds": "2",
    }  # fmt: skip
    dropped = '\n[[faults]]\nkind = "drop"\nsource = "A"\ndestination = "B"\nfrom = 0\nuntil = 20\n'
    net = run(tmp_path, BASE + call("echo", count=3, amount=1) + dropped, **options)
    rows = ledger(net)
    assert len(history(rows, event="timed_out")) == 2
    assert count_outcomes(rows) == {"answered": 1, "rejected": 2}
    assert balance(net, 0) == 1000


MOVED = (
    BASE
    + '\n[[moves]]\ntick = 4\nprogram = "echo"\nchain = "C"\n'
    + "".join(call("echo", tick=tick) for tick in range(8))
)
MIGRATING = {"options.vsr": '"deployed"', "options.migrations": '"on"', "options.sender_mismatch": '"deployed"'}


def test_calls_to_a_moving_canister_are_answered_or_rejected(tmp_path: Path, spark: SparkSession) -> None:
    net = run(tmp_path, MOVED, **MIGRATING)
    summary = net.summary()
    assert summary["sent"] == 8 and summary["pending"] == 0 and summary["dropped"] == 0
    assert summary["rejected"] >= 1 and summary["answered"] == 8 - summary["rejected"]
    assert summary["duplicates"] == 0 and summary["out_of_order"] == 0
    rows = ledger(net)
    moving = history(rows, event="rejected", kind="request")
    assert {(row[2], row[4]) for row in moving} == {("B", "CanisterMigrating")}
    places = [row for row in rows if row["event"] == "executed" and row["receiver"] == "echo"]
    assert all((row["chain"] == "B") == (row["tick"] < 4) for row in places)


def test_replayed_gapped_and_tampered_slices_are_rejected_by_name(tmp_path: Path, spark: SparkSession) -> None:
    faults = "".join(
        f'\n[[faults]]\nkind = "{kind}"\nsource = "A"\ndestination = "B"\ntick = {tick}\n'
        for kind, tick in (("replay", 3), ("gap", 5), ("tamper", 7))
    )
    net = run(tmp_path, BASE + "".join(call("echo", tick=tick, count=2) for tick in range(10)) + faults)
    refused = [(row["tick"], row["chain"], row["detail"]) for row in ledger(net) if row["kind"] == "control"]
    assert refused == [
        (3, "B", "UnexpectedMessages"),
        (5, "B", "UnexpectedMessages"),
        (7, "B", "InvalidStream(RootHashMismatch)"),
    ]
    summary = net.summary()
    assert (summary["answered"], summary["duplicates"], summary["out_of_order"]) == (20, 0, 0)


def test_halted_chain_resumes_from_its_state(tmp_path: Path, spark: SparkSession) -> None:
    halt = '\n[[faults]]\nkind = "halt"\nchain = "B"\nfrom = 1\nuntil = 9\n'
    rows = ledger(run(tmp_path, BASE + call("echo", count=5) + halt))
    assert [row["tick"] for row in rows if row["event"] == "executed" and row["receiver"] == "echo"] == [10] * 5
    assert count_outcomes(rows) == {"answered": 5}


def test_move_in_an_idle_period_is_applied(tmp_path: Path, spark: SparkSession) -> None:
    moved = '\n[[moves]]\ntick = 20\nprogram = "echo"\nchain = "C"\n'
    rows = ledger(run(tmp_path, BASE + call("echo") + call("echo", tick=40) + moved))
    executed = [(row["tick"], row["chain"]) for row in rows if row["event"] == "executed" and row["receiver"] == "echo"]
    assert executed == [(1, "B"), (41, "C")]
    assert count_outcomes(rows) == {"answered": 2}


def test_pending_messages_of_a_removed_canister_are_accounted_for(tmp_path: Path, spark: SparkSession) -> None:
    removed = '\n[[moves]]\ntick = 3\nprogram = "echo"\n'
    one_a_round = {"options.messages_per_canister": "1", "options.vsr": "deployed"}
    calls = call("echo", count=4, amount=1) + call("echo", count=4, amount=1, caller="other")
    other = '\n[[programs]]\nname = "other"\nchain = "C"\nprogram = "caller"\nbalance = 10\n'
    net = run(tmp_path, BASE + other + calls + removed, **one_a_round)
    rows = ledger(net)
    assert history(rows, event="rejected", detail="canister_removed")
    assert set(count_outcomes(rows)) == {"answered", "rejected"}, "everybody has an answer"


def test_chain_violating_an_invariant_stops_alone(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("causeway.protocols.ic.kernel.QUIET_TICKS", 20)
    # With indices ending at 3, the third call from A does not fit the stream.
    monkeypatch.setattr("causeway.protocols.ic.state.Queues", partial(Queues, limit=3))
    other = '\n[[programs]]\nname = "other"\nchain = "C"\nprogram = "caller"\n'
    net = run(tmp_path, BASE + other + call("echo", count=3) + call("echo", tick=5, caller="other"))
    assert stopped_chains(net.lake, net.manifest) == (StoppedChain("A", 1, "IndexOverflow"),)
    rows = ledger(net)
    (stop,) = (row for row in rows if row["event"] == "observed")
    named = (stop["kind"], stop["chain"], stop["height"], stop["detail"], stop["sender"], stop["receiver"])
    assert named == ("control", "A", 1, "stopped IndexOverflow", None, None)
    assert count_outcomes(rows) == {"answered": 1}, "the others go on"


def test_network_that_can_never_progress_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("causeway.protocols.ic.kernel.QUIET_TICKS", 20)
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(BASE + call("echo") + '\n[[faults]]\nkind = "halt"\nchain = "B"\nfrom = 0\n')
    net = LakeNetwork.from_scenario(scenario, lake=str(tmp_path / "lake"))
    assert net.run() == 21
    assert net.next_tick() is None


def test_changes_planned_in_an_idle_period_happen(tmp_path: Path, spark: SparkSession) -> None:
    forged = '\n[[faults]]\nkind = "forge"\ntick = 30\nchain = "C"\nsender = "caller"\nreceiver = "echo"\ntext = "x"\n'
    gone_and_back = '\n[[moves]]\ntick = 20\nprogram = "echo"\n[[moves]]\ntick = 25\nprogram = "echo"\nchain = "B"\n'
    rows = ledger(run(tmp_path, BASE + call("echo") + call("echo", tick=40) + forged + gone_and_back))
    assert [row["tick"] for row in rows if row["event"] == "dropped" and row["kind"] == "request"] == [31]
    assert {row["tick"] for row in rows if row["detail"] == "canister_removed"} == {20}


class LongName(Program):
    """Caller of a method with a name longer than 65,535 bytes."""

    def on_ingress(self, message: Ingress, context: Context) -> None:
        context.call(1, "m" * 70_000)


def test_long_method_name_does_not_end_the_network(tmp_path: Path, spark: SparkSession) -> None:
    long = '[[programs]]\nname = "long"\nchain = "A"\nprogram = "tests.network.test_faults:LongName"\n\n[traffic]'
    start = '\n[[traffic.send]]\ntick = 0\nto = "long"\nmethod = "go"\ntext = ""\n'
    assert count_outcomes(ledger(run(tmp_path, BASE.replace("[traffic]", long) + start))) == {"answered": 1}
