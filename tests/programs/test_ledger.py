"""Call outcomes over constructed rows, and counts and ledgers of runs with lost or open calls."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from causeway.cluster.types import spark_schema
from causeway.core.frame import Frame
from causeway.core.vocabulary import NO_CHAIN, Event, Kind, Via
from causeway.dataframes import lake_tables
from causeway.dataframes.lake_tables import join_reverted, run_spark_query
from causeway.network.network import LakeNetwork
from causeway.programs import Effects, Program, VectorProgram
from causeway.programs.scalar import Context, Ingress, Request
from causeway.protocols.shared.events import LEDGER_LOGS
from causeway.protocols.shared.messages import OUTBOUND_SCHEMA
from causeway.storage.reorgs import RevertedRanges
from causeway.storage.table_schemas import stamped_schema

HERE = "tests.programs.test_ledger"
OUTBOUND = stamped_schema(OUTBOUND_SCHEMA)
LOGS = {name: stamped_schema(schema) for name, schema in LEDGER_LOGS.items()}
NO_QUEUE = 2**64 - 1
OF_FORGER = 2**64 - 2
NO_LANE = {"source": NO_CHAIN, "destination": NO_CHAIN}

# ---- calls of constructed rows -----------------------------------------------------------------------

HUGE = 2**64 - 5
"""A number beyond Spark's signed range."""


def row(kind: Kind, events: Event, callback: int, place: int = 0, code: int = 0, via: Via = Via.NONE) -> dict[str, Any]:
    ends = (7, HUGE) if kind == Kind.REQUEST else (HUGE, 7)
    return {
        "height": 1, "tick": 1, "chain": 0, "events": int(events), "kind": int(kind), "via": int(via), "source": 1,
        "destination": 0, "substream": 0, "index": 1, "sender": ends[0], "receiver": ends[1], "callback": callback,
        "amount_high": 0, "amount_low": 0, "queue_index": place, "code": code, "reason": "",
    }  # fmt: skip


def sent_row(callback: int) -> dict[str, Any]:
    return row(Kind.REQUEST, Event.SENT, callback)


def delivered_row(callback: int, place: int) -> dict[str, Any]:
    return row(Kind.REQUEST, Event.RECEIVED | Event.EXECUTED, callback, place, via=Via.LANE)


def answered_row(callback: int, code: int = 0) -> dict[str, Any]:
    return row(Kind.RESPONSE, Event.RECEIVED, callback, code=code, via=Via.LANE)


def misdelivered_row(callback: int, place: int) -> dict[str, Any]:
    """Return the row of a request that reached a chain without its callee."""
    return row(Kind.REQUEST, Event.RECEIVED, callback, place, via=Via.LANE)


def dropped_row(callback: int, cause: str, kind: Kind = Kind.RESPONSE) -> dict[str, Any]:
    return {**row(kind, Event.DROPPED, callback), "reason": cause}


FORGED = row(Kind.REQUEST, Event.COMMITTED, 3, NO_QUEUE)
RETURNED = row(Kind.RESPONSE, Event.SENT, 1)
CASES: dict[str, tuple[list[dict[str, Any]], dict[str, int]]] = {
    "a call that is answered": ([sent_row(1), delivered_row(1, 1), answered_row(1)], {"answered": 1}),
    "a call under way": ([sent_row(1), delivered_row(1, 1)], {"pending": 1}),
    "a reject": ([sent_row(1), answered_row(1, 4)], {"rejected": 1}),
    "delivered twice": ([sent_row(1), delivered_row(1, 1), delivered_row(1, 2), answered_row(1)], {"answered": 1}),
    "answered and rejected": ([sent_row(1), delivered_row(1, 1), answered_row(1), answered_row(1, 2)], {"answered": 1}),
    "a lost answer": ([sent_row(1), delivered_row(1, 1), RETURNED, dropped_row(1, "some_cause")], {"dropped": 1}),
    "an answer under way": ([sent_row(1), delivered_row(1, 1), RETURNED], {"pending": 1}),
    "received, not yet executed": ([sent_row(1), misdelivered_row(1, 1)], {"pending": 1}),
    "a forged request": ([FORGED, dropped_row(3, "sender_mismatch", Kind.REQUEST)], {"forged": 1}),
    "a request forged and dropped at home, named like one under way": (
        [sent_row(1), row(Kind.REQUEST, Event.DROPPED, 1, NO_QUEUE)],
        {"pending": 1},
    ),
    "a forged answer, lost, named like that to a call under way": (
        [sent_row(1), row(Kind.RESPONSE, Event.COMMITTED, 1, OF_FORGER), dropped_row(1, "sender_mismatch")],
        {"pending": 1},
    ),
    "across the middle of the numbers": (
        [sent_row(2**63 - 1), sent_row(2**63), delivered_row(2**63, 2**63), answered_row(2**63)],
        {"answered": 1, "pending": 1},
    ),
}


def log_frame(spark: SparkSession, rows: list[dict[str, Any]], schema: pa.Schema) -> DataFrame:
    """Return rows as Spark reads them from a log table; omitted values are 0 or empty."""
    types = spark_schema(schema)
    empty = {"decimal(20,0)": Decimal(0), "string": "", "binary": b""}
    made = []
    for item in rows:
        values = {field.name: empty.get(field.dataType.simpleString(), 0) for field in types} | item
        made.append(tuple(Decimal(str(v)) if f.dataType.simpleString() == "decimal(20,0)" else v
                          for f, v in ((field, values[field.name]) for field in types)))  # fmt: skip
    return spark.createDataFrame(made, types)


def by_spark(spark: SparkSession, query: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = run_spark_query(query, log_frame(spark, [], OUTBOUND), log_frame(spark, rows, LOGS["events"]))
    return [row.asDict() for row in found.collect()]


def test_call_outcomes(spark: SparkSession) -> None:
    for case, (made, expected) in CASES.items():
        found = by_spark(spark, lake_tables.CALLS_QUERY, made)
        assert Counter(row["outcome"] for row in found) == expected, case


# ---- reverted rows ---------------------------------------------------------------------------------


def reverted_frame(*rows: tuple[int, int, int]) -> RevertedRanges:
    """Return abandoned heights (chain, first, last)."""
    return RevertedRanges.of(
        pa.Table.from_pylist([dict(zip(("chain", "first", "last"), row, strict=True)) for row in rows])
    )


def test_rows_reverted_by_forks(spark: SparkSession) -> None:
    forks = reverted_frame((0, 3, 5), (2, 9, 9), (0, 5, 6), (0, 8, 8))
    assert len(forks) == 3 and forks.heights() == 6
    rows = [{**sent_row(place), "chain": chain, "height": place} for chain in range(4) for place in range(1, 11)]
    taken = {(0, height) for height in (3, 4, 5, 6, 8)} | {(2, 9)}
    table = pa.Table.from_pylist(rows, schema=LOGS["events"])
    hit = table.filter(pa.array(forks.hits(table, "chain"))).to_pylist()
    assert {(row["chain"], row["height"]) for row in hit} == taken and len(hit) == len(taken)
    left = join_reverted(log_frame(spark, rows, LOGS["events"]), "events", forks, "leftanti").collect()
    assert {(row["chain"], row["height"]) for row in left} == {(r["chain"], r["height"]) for r in rows} - taken
    assert len(left) == len(rows) - len(taken)


# ---- call outcomes in networks ----------------------------------------------------------------------

NETWORK = '[network]\nprotocol = "ic"\nexecutor = "in_process"\n[options]\ncertification = "off"\n'
BASE = NETWORK + "".join(f'[[chains]]\nname = "{c}"\n' for c in "ABC")
ENDS = """
[[programs]]
name = "caller"
chain = "A"
program = "caller"
balance = 1000
[[programs]]
name = "echo"
chain = "B"
program = "echo"
"""
SCRIPT = '[traffic]\nsource = "script"\n'


class Hoard(Program):
    """Program that accepts every amount and pays it out on user request."""

    def on_request(self, request: Request, context: Context) -> tuple[bytes, int]:
        return b"", request.amount

    def on_ingress(self, message: Ingress, context: Context) -> None:
        context.call(int(message.payload), "take", amount=context.balance)


class Silent(Program):
    """Program that never answers."""

    def on_request(self, request: Request, context: Context) -> None:
        return None


class Elsewhere(VectorProgram):
    """Program with a column named like one of other tables."""

    schema: ClassVar[pa.Schema] = pa.schema(
        [
            pa.field("program", pa.uint64(), nullable=False),
            pa.field("chain", pa.uint64(), nullable=False),
        ]
    )

    def handle(self, batch: Frame, state: Frame) -> Effects:
        return Effects(state)


def program(name: str, chain: str, of: str, balance: int = 0) -> str:
    return f'[[programs]]\nname = "{name}"\nchain = "{chain}"\nprogram = "{of}"\nbalance = "{balance}"\n'


def call(to: str = "echo", *, tick: int = 0, count: int = 1) -> str:
    content = f'{{ receiver = "{to}", method = "m", text = "hi", amount = 1 }}'
    return f'[[traffic.send]]\ntick = {tick}\nto = "caller"\ncount = {count}\ncall = {content}\n'


def send(to: str, text: str = "", *, tick: int = 0, count: int = 1) -> str:
    return f'[[traffic.send]]\ntick = {tick}\nto = "{to}"\nmethod = "go"\ntext = "{text}"\ncount = {count}\n'


def move(name: str, tick: int, chain: str | None = None) -> str:
    return f'[[moves]]\ntick = {tick}\nprogram = "{name}"\n' + (f'chain = "{chain}"\n' if chain else "")


def run(folder: Path, text: str, **overrides: str) -> LakeNetwork:
    (folder / "s.toml").write_text(text)
    net = LakeNetwork.from_scenario(folder / "s.toml", overrides, lake=str(folder / "lake"))
    net.run()
    return net


def test_ledger_holds_amounts_beyond_10_to_the_38(tmp_path: Path, spark: SparkSession) -> None:
    hoards = program("a", "A", f"{HERE}:Hoard", 9 * 10**37) + program("b", "B", f"{HERE}:Hoard", 9 * 10**37)
    text = BASE + hoards + program("c", "C", f"{HERE}:Hoard") + SCRIPT + send("a", "1") + send("b", "2", tick=5)
    net = run(tmp_path, text)
    committed = net.ledger.where("event = 'committed' and kind = 'request'").collect()
    amounts = [sum(int(row[f"amount_{word}"]) << 64 * word for word in range(4)) for row in committed]
    assert max(amounts) == 18 * 10**37


def test_rejected_ingress_is_counted_and_named(tmp_path: Path, spark: SparkSession) -> None:
    net = run(tmp_path, BASE + program("empty", "B", "none") + SCRIPT + send("empty", count=3))
    assert sorted(row.message_id for row in net.ledger.collect()) == [f"ic:0>0/i!0.{place}" for place in (1, 2, 3)]
    assert net.summary()["ingress_refused"] == 3


def test_moved_caller_loses_open_calls_with_a_reported_reason(tmp_path: Path, spark: SparkSession) -> None:
    summary = run(tmp_path, BASE + ENDS + move("caller", 2, "C") + SCRIPT + call(count=3)).summary()
    assert summary["dropped"] == 3 and (summary["verdict"], summary["holds"]) == ("FAILED", False)
    assert sum(summary["dropped_because"].values()) == 3
    assert summary["dropped_because"].keys() <= {"sender_mismatch", "receiver_mismatch"}


def test_in_flight_call_to_a_removed_program_is_lost(tmp_path: Path, spark: SparkSession) -> None:
    text = BASE + ENDS + move("echo", 2) + SCRIPT + call(count=3)
    net = run(tmp_path, text, **{"options.messages_per_canister": "1"})
    summary = net.summary()
    assert summary["dropped"] == 1 and summary["dropped_because"] == {"receiver_mismatch": 1}
    assert summary["verdict"] == "FAILED", "a subnet that checks no signals loses what is under way: no promise"
    (ended,) = net.ledger.where("kind = 'control'").collect()
    assert ended["message_id"] == f"ic:B/c#{ended['height']}.{ended['source_row']}"
    shown = [ended[name] for name in ("sender", "receiver", "chain", "detail")]
    assert shown == ["echo", "echo", "B", "canister_removed"]


def test_rejected_slice_carries_no_field_of_the_message_at_its_index(tmp_path: Path, spark: SparkSession) -> None:
    replay = '[[faults]]\nkind = "replay"\nsource = "A"\ndestination = "B"\ntick = 3\n'
    net = run(tmp_path, BASE + ENDS + replay + SCRIPT + "".join(call(tick=tick) for tick in range(5)))
    (refused,) = net.ledger.where("kind = 'control'").collect()
    assert refused["message_id"] == f"ic:B/c#{refused['height']}.{refused['source_row']}"
    assert [refused[name] for name in ("sender", "receiver", "lane")] == ["A", "B", None]
    assert {refused[name] for name in ("index", "payload_hash", "amount_0")} == {None}


STRAYS = {"options.receiver_check": '"off"', "options.sender_mismatch": '"drop_accept"'}


def test_unexecuted_messages_are_not_out_of_order(tmp_path: Path, spark: SparkSession) -> None:
    text = BASE + ENDS + move("echo", 3, "C") + SCRIPT + "".join(call(tick=tick) for tick in range(8))
    summary = run(tmp_path, text, **STRAYS).summary()
    assert summary["pending"] > 0  # lie at the callee
    assert summary["out_of_order"] == 0


def test_call_without_an_answer_is_pending_at_the_callee(tmp_path: Path, spark: SparkSession) -> None:
    text = BASE + ENDS + program("silent", "C", f"{HERE}:Silent") + SCRIPT + call("silent")
    summary = run(tmp_path, text).summary()
    assert (summary["pending"], summary["in_flight"], summary["dropped"]) == (1, 0, 0)


def test_program_column_named_chain_is_not_confused_with_the_chain(tmp_path: Path, spark: SparkSession) -> None:
    net = run(tmp_path, BASE + ENDS + program("far", "C", f"{HERE}:Elsewhere") + SCRIPT + call())
    table = f"program_{HERE}:Elsewhere"
    assert [net.state(table, chain=chain).count() for chain in "ABC"] == [0, 0, 1]
    assert net.tables.state_tables()[table].owner == "program"
