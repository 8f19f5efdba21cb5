"""``causeway ledger``: filtered rows equal a full scan, and SQL reaches only the tables."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from causeway_proofs.errors import InvalidInput

from causeway.analysis import sql
from causeway.analysis.sql import SCHEMAS, ledger_views, run_query
from causeway.cli.commands.ledger import command
from causeway.ledger import search
from causeway.ledger.commits import LedgerDamaged
from causeway.ledger.row_order import sort_rows
from causeway.ledger.schema import LEDGER_SCHEMA, VALUE_SCHEMA
from causeway.ledger.search import ValueRange
from causeway.ledger.store import Ledger, LedgerWriter, create_ledger, group_by_bucket, open_ledger
from tests.support.common.command_line import Run, command_line
from tests.support.properties.audit_ledgers import table

HOSTILE = "chain\x1b[31m\n,\"'; --"
NOW = 1_700_000_000
Row = dict[str, Any]


def message_rows() -> list[Row]:
    """Return events of messages over a few lanes; some have no index, some no height."""
    draw, rows = Random(5), []
    for number in range(300):
        source, destination = draw.choice([("a", "b"), ("b", "a"), (HOSTILE, "a"), ("a", None)])
        named: Row = (
            {"message_id": f"m{number}"} if draw.random() < 0.3 else {"index": draw.choice([number, 2**63 + 7])}
        )
        for event, chain in (("sent", source), ("received", destination or "?")):
            when = None if draw.random() < 0.1 else (NOW + draw.randrange(10_000)) * 1_000_000
            rows.append(
                {
                    "protocol": "p", "source": source, "destination": destination, "lane": draw.choice(["x", None]),
                    "kind": draw.choice(["request", "response"]), "event": event, "chain": chain, "time": when,
                    "height": None if when is None else number // 10, "sender": f"s{number % 5}", "stated_by": "t",
                    "source_row": number, **named,
                    "amount_0": number, "amount_1": 0, "amount_2": 0, "amount_3": number % 2,
                }
            )  # fmt: skip
    return rows


def store_ledger(place: Path, commits: list[list[Row]], buckets: int) -> Ledger:
    """Return a ledger; the first commit is in files of buckets, later ones in files of all."""
    ledger = create_ledger(str(place), buckets)
    for number, rows in enumerate(commits):
        writer, whole = LedgerWriter(ledger), table(rows, LEDGER_SCHEMA)
        if number < 2:
            for bucket, own in group_by_bucket(whole, buckets).items():
                writer.write("ledger", sort_rows(own), bucket)
        else:
            writer.write("ledger", sort_rows(whole))
        ledger = ledger.after(writer.commit([], {}))
    return open_ledger(str(place))


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return message_rows()


@pytest.fixture(scope="module")
def ledger(rows: list[Row], tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """Return a ledger of four buckets: three commits, two of them with some equal rows."""
    return store_ledger(tmp_path_factory.mktemp("rows") / "ledger", [rows[:400], rows[300:500], rows[500:]], 4)


@pytest.fixture(scope="module")
def order(ledger: Ledger) -> dict[str, int]:
    """Return the positions of all rows in the order of the ledger."""
    whole = pa.concat_tables([ledger.rows(bucket) for bucket in range(4)]).to_pylist()
    return {repr(row): place for place, row in enumerate(whole)}


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    yield from command_line(capsys, tmp_path, monkeypatch, "ledger")


def placed(row: Row) -> bool:
    return row["height"] is not None


def key(row: Row) -> tuple[Any, ...]:
    return tuple(str(row[name]) for name in ("source", "destination", "lane", "event", "chain", "height", "source_row"))


@pytest.mark.parametrize(
    "condition",
    [
        {},
        {"chain": ["a"]},
        {"source": [HOSTILE], "event": ["sent"]},
        {"destination": [None]},
        {"index": ValueRange(50, 200)},
        {"index": ValueRange(2**63)},
        {"height": ValueRange(None, 30), "kind": ["response"]},
        {"time": ValueRange(dt.datetime.fromtimestamp(NOW + 5_000, dt.UTC))},
        {"sender": ["s1", "s2"], "lane": ["x"]},
        {"message_id": ["m17", "m18"]},
        {"source_row": ValueRange(5, 300)},
        {"chain": ["nowhere"]},
    ],
    ids=str,
)
def test_filtered_rows_equal_a_full_scan(
    ledger: Ledger, rows: list[Row], order: dict[str, int], condition: Any
) -> None:
    def fulfils(row: Row) -> bool:
        for name, wanted in condition.items():
            value: Any = row.get(name)
            if isinstance(wanted, ValueRange):
                value = (
                    dt.datetime.fromtimestamp(value / 1e6, dt.UTC) if name == "time" and value is not None else value
                )
                first: Any = wanted.first
                last: Any = wanted.last
                if value is None or (first is not None and value < first) or (last is not None and value > last):
                    return False
            elif value not in wanted:
                return False
        return True

    given = [*rows[:400], *rows[300:500], *rows[500:]]
    wanted = [row for row in {id(row): row for row in given}.values() if fulfils(row)]
    # Rows without a position all stay: those of two commits are duplicated.
    wanted += [row for row in rows[300:400] if fulfils(row) and not placed(row)]
    found = [row for part in search.select_rows(ledger, "ledger", condition) for row in part.to_pylist()]
    assert sorted(map(key, found)) == sorted(map(key, wanted))
    assert [*sorted(found, key=lambda row: order[repr(row)])] == found, "in the order of the ledger"
    some = [row for part in search.select_rows(ledger, "ledger", condition, 7) for row in part.to_pylist()]
    assert some == found[:7]


def test_json_csv_and_parquet_have_the_same_rows(cli: Run, ledger: Ledger, rows: list[Row], tmp_path: Path) -> None:
    place = ledger.storage.uri
    code, out, err = cli(place, "--source", HOSTILE, "--json")
    assert (code, err) == (0, "")
    found = [json.loads(line) for line in out.splitlines()]
    assert "\x1b" not in out and {row["source"] for row in found} == {HOSTILE}
    big = [
        row["amount"] for row in found if row["source_row"] == next(r["source_row"] for r in found if r["amount"] > 1e9)
    ]
    assert all(amount == row + (1 << 192) for amount in big for row in [amount & (2**64 - 1)])
    code, out, _ = cli(place, "--source", HOSTILE, "--csv")
    told = [*csv.DictReader(io.StringIO(out, newline=""))]
    assert code == 0 and len(told) == len(found)
    for one, other in zip(told, found, strict=True):
        assert {name: value or None for name, value in one.items() if name not in ("time",)} == {
            name: None if value is None else str(value).replace("\x1b", "\\x1b").replace("\n", "\\n")
            for name, value in other.items()
            if name != "time"
        }
        if other["time"]:
            assert dt.datetime.fromisoformat(one["time"]) == dt.datetime.fromisoformat(other["time"])
    code, _, err = cli(place, "--source", HOSTILE, "--parquet", tmp_path / "rows.parquet")
    assert (code, err) == (0, f"causeway: {len(found)} rows written to {tmp_path / 'rows.parquet'}\n")
    stored_again = pq.read_table(tmp_path / "rows.parquet")
    assert stored_again.schema.equals(LEDGER_SCHEMA)
    assert stored_again["source_row"].to_pylist() == [row["source_row"] for row in found]
    assert cli(place, "--parquet", tmp_path / "rows.parquet")[0] == 2
    assert cli(place, "--parquet", tmp_path / "rows.parquet", "--overwrite", "--limit", 3)[0] == 0
    assert pq.read_metadata(tmp_path / "rows.parquet").num_rows == 3
    assert os.listdir(tmp_path) == ["rows.parquet"], "nothing half is left"


def test_readable_output_has_fitting_columns_and_no_control_characters(
    cli: Run, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = cli(ledger.storage.uri, "--source", HOSTILE, "--limit", 3)
    assert (code, err) == (0, "") and "\x1b" not in out
    assert out.splitlines()[0].split()[:3] == ["time", "chain", "height"]
    assert out.splitlines()[-1].startswith("... and more: --limit N shows more than 3")
    assert cli(ledger.storage.uri, "--chain", "nowhere")[1] == "no rows\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--table", "ledgr"], '--table: "ledgr": no such table; did you mean ledger?'),
        (["--event", "snt"], '--event: "snt": no such event; did you mean sent?'),
        (["--table", "headers", "--event", "sent"], "--event: the table headers has no column event"),
        (["--from-time", "noon"], "--from-time noon: is no time"),
        (["--from", "-1"], "--from -1: must be from 0 to 18446744073709551615"),
        (["--from", "10", "--to", "5"], "--from 10: is after --to 5: the range is empty"),
        (["--from-height", "2", "--to-height", "1"], "--from-height 2: is after --to-height 1"),
        (["--from-time", "2024-01-02", "--to-time", "2024-01-01"], "--from-time 2024-01-02: is after --to-time 2024"),
        (["--json", "--csv"], "--json, --csv: give one of them"),
        (["--overwrite"], "--overwrite: only with --parquet"),
        (["--timeout", "1"], "--timeout: only with --sql"),
        (["--limit", 2**63], '--limit: "9223372036854775808": must be less than or equal to 2147483646'),
        (["--sql", "from ledger", "--chain", "a"], "--chain: not with --sql: write it into the query"),
        (["--parquet", "nowhere/x"], "--parquet nowhere/x: nowhere is no folder"),
    ],
    ids=lambda given: given[0] if isinstance(given, list) else "",
)
def test_invalid_request_is_one_line(cli: Run, ledger: Ledger, options: list[str], said: str) -> None:
    code, out, err = cli(ledger.storage.uri, *options)
    assert (code, out, err.count("\n")) == (2, "", 1) and said in err


def test_parquet_file_is_not_written_into_the_ledger(cli: Run, ledger: Ledger) -> None:
    code, _, err = cli(ledger.storage.uri, "--parquet", Path(ledger.storage.uri) / "x.parquet")
    assert code == 2 and "is inside the lake" in err


# ---- SQL -----------------------------------------------------------------------------------------


def asked(ledger: Ledger, sql: str) -> list[Row]:
    with run_query(ledger_views(ledger), sql) as found:
        return [*found.read_all().to_pylist()]


def test_sql_sees_each_event_once_and_amounts_as_numbers(ledger: Ledger) -> None:
    whole = pa.concat_tables([ledger.rows(bucket) for bucket in range(4)])
    found = asked(ledger, "select count(*) as rows, sum(index) as indices, count(amount) as small from LEDGER")
    indices = sum(index for index in whole["index"].to_pylist() if index is not None)
    small = sum(1 for limb in whole["amount_3"].to_pylist() if limb == 0)
    assert found == [{"rows": whole.num_rows, "indices": indices, "small": small}]
    assert indices > 2**64 and 0 < small < whole.num_rows
    assert asked(ledger, "select count(*) as n from ledger a join ledger b on a.source_row = b.source_row")[0]["n"] > 0
    columns = {row["column_name"]: row["column_type"] for row in asked(ledger, "describe ledger")}
    assert columns["amount"] == "DECIMAL(38,0)" and columns["index"] == "UBIGINT"
    assert {"ledger", "value", "headers"} <= {row["name"] for row in asked(ledger, "show tables")}


def test_files_of_exactly_the_selected_rows_are_read_in_place(
    ledger: Ledger, rows: list[Row], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = store_ledger(tmp_path / "once", [rows], 2)
    monkeypatch.setattr(sql, "_written", lambda *_: pytest.fail("a table is written"))
    assert asked(once, "select count(*) as n from ledger") == [{"n": len(rows)}]
    with pytest.raises(pytest.fail.Exception):
        asked(ledger, "select count(*) from ledger")


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("select * from read_text('/etc/hostname')", "disabled by configuration"),
        ("select * from '/etc/hostname'", "does not exist"),
        ("copy ledger to '{tmp}/stolen'", "COPY"),
        ("attach '{tmp}/stolen'", "ATTACH"),
        ("install httpfs", "allowed: one query"),
        ("set threads = 1", "SET; allowed: one query"),
        ("create table stolen as select 1", "CREATE; allowed: one query"),
        ("select 1; select 2", "several statements; allowed: one query"),
        ("explain analyze select 1", "EXPLAIN; allowed: one query"),
        ("pivot ledger on event", "name the values"),
        ("", "nothing; allowed: one query"),
        ("update extensions", "another kind of statement; allowed: one query"),
        ("select '\udcff'", "is no text in UTF-8"),
        ("select bogus from ledger", '"bogus" not found'),
        ("from query_table('led' || 'ger')", "the query must name it"),
        ("select error('boom\x1b[31m')", "boom"),
    ],
)
def test_sql_beyond_queries_is_refused(cli: Run, ledger: Ledger, tmp_path: Path, sql: str, said: str) -> None:
    code, out, err = cli(ledger.storage.uri, "--sql", sql.format(tmp=tmp_path))
    assert (code, out) == (2, "") and said in err and err.startswith("causeway: --sql: ")
    assert err.count("\n") == 1 and "\x1b" not in err
    assert not (tmp_path / "stolen").exists()


def test_long_query_leaves_no_files_and_spills(ledger: Ledger, tmp_path: Path, cli: Run) -> None:
    with (
        pytest.raises(InvalidInput, match=r"[Mm]emory"),
        run_query(ledger_views(ledger), "select list(range) from range(100_000_000)", memory=1) as found,
    ):
        found.read_all()
    code, out, _ = cli(ledger.storage.uri, "--sql", "select 1 as a, 2 as a, 1.5 as b, [1, 2] as c", "--json")
    assert (code, json.loads(out)) == (0, {"a": 1, "a_1": 2, "b": 1.5, "c": [1, 2]})
    code, out, _ = cli(ledger.storage.uri, "--sql", "select range from range(50)")
    assert code == 0 and out.splitlines()[-1].startswith("... and more")


def test_corruption_is_found_by_filters_and_by_sql(rows: list[Row], tmp_path: Path, cli: Run) -> None:
    ledger = store_ledger(tmp_path / "ledger", [rows], 1)
    (file,) = ledger.files("ledger")
    path = tmp_path / "ledger" / file.path
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(LedgerDamaged, match="has other bytes than were written"):
        asked(ledger, "select count(*) from ledger")
    for options in (["--chain", "a"], ["--sql", "select count(*) from ledger"], []):
        code, out, err = cli(tmp_path / "ledger", *options)
        assert (code, out) == (2, "") and "has other bytes than were written" in err


def test_missing_duckdb_is_one_line_with_the_package_to_install(
    cli: Run, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    code, out, err = cli(ledger.storage.uri, "--sql", "select 1")
    assert (code, out) == (2, "")
    assert err == "causeway: --sql: needs DuckDB, which is not installed: pip install 'causeway[sql]'\n"


def test_movements_of_value_match_the_counts_of_the_ledger(tmp_path: Path) -> None:
    movement = {
        "protocol": "p", "source": "a", "destination": "b", "index": 1, "chain": "a", "height": 3, "asset": "gold",
        "amount_0": 5, "amount_1": 1, "amount_2": 0, "amount_3": 0, "why": "fee", "stated_by": "t",
    }  # fmt: skip
    ledger = create_ledger(str(tmp_path / "ledger"), 2)
    for name in ("one", "other"):
        writer = LedgerWriter(ledger)
        for bucket, own in group_by_bucket(
            table([{**movement, "source_file": name}] * 2, VALUE_SCHEMA), 2, "value"
        ).items():
            writer.write("value", own, bucket)
        ledger = ledger.after(writer.commit([], {}))
    assert asked(ledger, "select count(*) as n, sum(amount) as paid from value") == [{"n": 2, "paid": 2 * (2**64 + 5)}]


ENDLESS = "select count(*) from range(1000000000) a, range(100000) b where (a.range * b.range) % 7 = 3"


LONG_TO_PLAN = "select list_sum(list_transform(range(10000000), lambda x: length(md5(repeat('ab', 5000 + x % 7)))))"
"""A query without a table, which DuckDB computes as a constant, ignoring interrupts for many seconds."""


@pytest.mark.parametrize(
    "sql", [ENDLESS, LONG_TO_PLAN, "with recursive t(x) as (select 1 union all select x + 1 from t) from t"]
)
def test_query_over_its_time_limit_ends(cli: Run, ledger: Ledger, sql: str) -> None:
    code, _, err = cli(ledger.storage.uri, "--sql", sql, "--timeout", 0.3, "--csv")
    assert (code, err) == (2, "causeway: --timeout 0.3: the query takes longer\n")


def test_help_names_all_tables() -> None:
    text = " ".join((command.__doc__ or "").split())
    told = text.partition("Tables, for --table and --sql: ")[2].partition(". With --sql")[0]
    assert {*re.findall(r"\w+", told)} - {"and", "a", "row", "each", "the", "figures"} == {*SCHEMAS}


def test_long_query_is_interrupted_with_one_line(cli: Run, ledger: Ledger) -> None:
    endless = ENDLESS
    ctrl_c = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    ctrl_c.start()
    assert cli(ledger.storage.uri, "--sql", endless) == (130, "", "causeway: interrupted\n")
    ctrl_c.join()
