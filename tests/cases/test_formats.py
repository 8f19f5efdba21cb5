"""Files of indexers, nodes and archives: ingested, quarantined, or refused with a hint."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from causeway.cli.shell import BAD_INPUT, OK
from tests.cases.recorded import MAPPING, NUMBERED, TOGETHER, Case, Judge, table

ONE = [("lock", 1, 0), ("mint", 1, 20)]

# ---- one JSON document

DISPATCHES = [{"origin": "a", "destination": "b", "id": f"0x{n}", "at": 1_700_000_000 + n} for n in range(3)]
DISPATCHED = """
format = "jsonl"
stated_by = "subgraph"
[fields]
protocol = { text = "bridge" }
source = "origin"
destination = "destination"
message_id = "id"
chain = "origin"
time = { column = "at", unit = "s" }
[[events]]
event = { text = "sent" }
"""

DOCUMENTS = {
    "an answer of GraphQL": (
        json.dumps({"data": {"dispatches": DISPATCHES}}),
        "its arrays: .data.dispatches (3 objects)",
    ),
    "an array": (json.dumps(DISPATCHES), "its arrays: . (3 objects); for example: jq -c '.[]'"),
    "text before the object": (
        "".join(f"12:00 info sent {json.dumps(each)}\n" for each in DISPATCHES),
        "has text before the JSON object of each line; cut it off",
    ),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_file_of_another_format_is_refused_with_a_hint(name: str, judge: Judge) -> None:
    content, hint = DOCUMENTS[name]
    code, _, err = judge.ingest(content, "answer.json", "dispatches", DISPATCHED)
    assert code == BAD_INPUT and "hint: answer.json " in err and hint in err
    code, out, _ = judge.command("audit", judge.lake)
    assert code == BAD_INPUT and "NOT APPLICABLE: nothing was examined" in out


def test_json_lines_equal_csv_records(judge: Judge) -> None:
    lines = "".join(json.dumps(each) + "\n" for each in DISPATCHES)
    assert judge.ingest(lines, "dispatches.jsonl", "dispatches", DISPATCHED)[0] == OK


REFUSED = {
    "one attribute a row": ("height,key,value\n1,packet_sequence,7\n", "column for source"),
    "a relayer's log with tabs": ('12:00\tinfo\tsent\t{"height": 1}\n', "column for source"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_table_without_required_columns_is_refused(name: str, judge: Judge) -> None:
    content, text = REFUSED[name]
    code, _, err = judge.ingest(content, "events.csv", "bridge", MAPPING)
    assert code == BAD_INPUT and text in err and "no such column" in err


# ---- nested records, chains in two spellings

GMP = """
format = "jsonl"
stated_by = "scan"
[fields]
protocol = { text = "gmp" }
source = { column = "call.chain", ignore_case = true }
destination = { column = "call.to", ignore_case = true }
lane = { text = "gateway" }
message_id = "call.tx"
content = ["call.payload"]
[[events]]
event = { text = "sent" }
chain = { column = "call.chain", ignore_case = true }
time = { column = "call.at", unit = "s" }
[[events]]
present = ["approved.chain"]
optional = true
event = { text = "received" }
chain = { column = "approved.chain", ignore_case = true }
time = { column = "approved.at", unit = "s" }
[[events]]
present = ["error.chain"]
optional = true
event = { text = "rejected" }
detail = "error.message"
chain = { column = "error.chain", ignore_case = true }
time = { column = "error.at", unit = "s" }
"""


def called(n: int, **more: Any) -> dict[str, Any]:
    return {
        "call": {"chain": "Polygon", "to": "avalanche", "tx": f"0x{n}", "payload": n, "at": 1_700_000_000 + n},
        **more,
    }


CALLS = [
    called(1, approved={"chain": "Avalanche", "at": 1_700_000_100}),
    called(2, error={"chain": "AVALANCHE", "at": 1_700_000_100, "message": "insufficient gas"}),
    called(3),
]

CASES = {
    "nested records, chains in two spellings": Case(
        "INCONCLUSIVE (1 lane incomplete: polygon -> avalanche gateway), 1 message pending", 0,
        {"delivery": {"pending": 1}, "exactly_once": {"not_received": 1}},
        content="".join(json.dumps(each) + "\n" for each in CALLS), file="gmp.jsonl", mapping=GMP + TOGETHER,
    ),
    "names in two spellings of one table": Case(
        "PASSED", 0, {},
        [("lock", 1, 0, {"source": "Left", "chain": "LEFT"}), ("mint", 1, 20, {"source": "left", "chain": "Right"})],
        mapping=MAPPING.replace('"source"', '{ column = "source", ignore_case = true }')
        .replace('chain = "chain"', 'chain = { column = "chain", ignore_case = true }') + TOGETHER + NUMBERED,
    ),
    "memos of kilobytes": Case(
        "PASSED", 0, {}, [("lock", 1, 0, {"body": "m" * 5_000}), ("mint", 1, 20, {"body": "m" * 5_000})],
    ),
    "a sender of 5,000 bytes is set aside": Case(
        "PASSED", 0, {}, [*ONE, ("lock", 2, 30, {"tx": "s" * 5_000})], figures=(("quarantined", {"too_long": 1}),),
    ),
    "numbers of nodes in hexadecimal digits": Case(
        "PASSED", 0, {},
        [(what, "0x1a2b", at, {"block": hex(20_000 + at), "body": "x"}) for what, at in (("lock", 1), ("mint", 30))],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_formats(name: str, judge: Judge) -> None:
    judge.check(CASES[name])


def test_first_screen_names_the_quarantined_records(judge: Judge) -> None:
    judge.ingest(table([*ONE, ("lock", 2, 30, {"tx": "s" * 5_000})]), "events.csv", "bridge", MAPPING)
    assert "1 record in quarantine: too_long 1" in judge.command("audit", judge.lake)[1]


# ---- numbers as spreadsheets and archives write them

VALUED = MAPPING + TOGETHER + '[[promises]]\npromise = "conserved"\n'
FORMS = {
    "1,234": "not_a_number", "1.0E+3": "not_a_number", "-5": "negative", "1000.00": None, "0x3e8": None, "+1240": None,
    " 1000 ": None, "": None,
}  # fmt: skip


def test_numbers_formatted_by_a_spreadsheet(judge: Judge) -> None:
    rows = table([("lock", n, n, {"asset": "x", "amount": f'"{form}"'}) for n, form in enumerate(FORMS)])
    code, out, _ = judge.ingest("\ufeff" + rows, "events.csv", "bridge", VALUED)
    assert code == OK and "5 rows from 8 records" in out
    assert judge.audit()[1]["quarantined"] == {"not_a_number": 2, "negative": 1}


WEI = 10**18 + 7
AMOUNTS: dict[str, tuple[pa.Array, str | None]] = {
    "uint64": (pa.array([WEI] * 2, pa.uint64()), None),
    "decimal of 38 digits": (pa.array([Decimal(WEI)] * 2, pa.decimal128(38, 0)), None),
    "decimal of 76 digits": (pa.array([Decimal(WEI)] * 2, pa.decimal256(76, 0)), None),
    "decimal with zeros behind the point": (pa.array([Decimal(10**9)] * 2, pa.decimal128(38, 9)), None),
    "32 bytes": (pa.array([WEI.to_bytes(32)] * 2, pa.binary(32)), None),
    "text": (pa.array([str(2**256 - 1)] * 2), None),
    "hexadecimal text": (pa.array([hex(WEI)] * 2), None),
    "a fraction": (pa.array([Decimal("1.5")] * 2, pa.decimal128(38, 9)), "not_a_number"),
    "a float of 2^53 or more": (pa.array([1e18] * 2), "not_a_number"),
    "an exponent": (pa.array(["1.5e18"] * 2), "not_a_number"),
    "more than 256 bits": (pa.array([str(2**256)] * 2), "too_large"),
}


@pytest.mark.parametrize("name", AMOUNTS)
def test_amounts_in_an_archive_export(name: str, judge: Judge) -> None:
    amounts, reason = AMOUNTS[name]
    columns = {
        "what": ["lock", "mint"], "n": pa.array([1, 1], pa.uint64()), "at": pa.array([1_700_000_000_000] * 2),
        "source": ["left"] * 2, "destination": ["right"] * 2, "chain": ["left", "right"],
        "tx": pa.array([b"\1" * 32, b"\2" * 32], pa.binary(32)), "body": ["x"] * 2, "asset": ["wei"] * 2,
        "amount": amounts,
    }  # fmt: skip
    content = io.BytesIO()
    pq.write_table(pa.table(columns), content)
    code, _, err = judge.ingest(content.getvalue(), "events.parquet", "bridge", VALUED.replace('"csv"', '"parquet"'))
    if reason is not None:
        assert code == BAD_INPUT and f"amount: {reason}" in err and f"({reason} 2)" in err
        return
    assert code == OK, err
    code, found = judge.audit()
    assert (code, found["sentence"]) == (OK, "PASSED")
    assert {check["check"] for check in found["checks"] if check["examined"]} >= {"conservation", "delivery"}
