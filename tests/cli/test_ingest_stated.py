"""Watermarks and headers ingested from the records a mapping selects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput

from causeway.cli.app import build_app
from causeway.cli.shell import FAILED, OK, execute
from causeway.ledger.ingest.ingest import IngestResult, ingest_files
from causeway.ledger.ingest.mapping import load_mapping
from causeway.ledger.store import open_ledger

MAPPING = """
format = "csv"
stated_by = "relay"
[fields]
protocol = { text = "b" }
source = { text = "A" }
destination = { text = "B" }
lane = { text = "1" }
index = "n"
chain = "chain"
height = "h"
time = { column = "at", unit = "s" }
sender = "n"
[[events]]
where = { what = "send" }
event = { text = "sent" }
[[watermarks]]
where = { what = ["state", "send"] }
name = { text = "sent" }
value = "n"
status = "status"
[[headers]]
where = { what = "block" }
hash = "n"
parent = "parent"
status = "status"
[[observed]]
chain = "B"
events = ["header"]
first_height = 1
last_height = 9
"""
HEAD = "what,chain,h,at,n,parent,status\n"
ROWS = """\
send,A,10,100,7,,
state,A,11,101,9,,
state,A,12,102,,,
block,B,3,90,c,b,
block,B,5,92,e,d,
block,,6,93,f,e,
"""


def take(folder: Path, text: str, name: str = "a.csv", mapping: str = MAPPING, buckets: int = 4) -> IngestResult:
    (folder / "m.toml").write_text(mapping)
    (folder / name).write_text(text)
    return ingest_files(
        str(folder / name), str(folder / "ledger"), load_mapping("own", folder / "m.toml"), buckets=buckets
    )


def ingested_rows(folder: Path, table: str) -> list[dict[str, Any]]:
    ledger = open_ledger(str(folder / "ledger"))
    assert ledger.files("ledger") or table != "ledger"
    rows = pa.concat_tables([ledger.rows(bucket, table=table) for bucket in range(ledger.buckets)]).to_pylist()
    return sorted(rows, key=lambda row: (row["height"], row["source_file"]))


def test_unknown_status_is_quarantined(tmp_path: Path) -> None:
    text = HEAD + "block,B,3,90,c,b,reverted\nblock,B,4,91,d,c,revertd\nstate,A,11,101,9,,final\nstate,A,12,102,9,,\n"
    done = take(tmp_path, text)
    assert (done.watermarks, done.headers, done.quarantined) == (1, 1, {"not_allowed": 2})
    quarantine = open_ledger(str(tmp_path / "ledger")).table("quarantine").to_pylist()
    assert [(row["field"], row["value"]) for row in quarantine] == [("status", "revertd"), ("status", "final")]


@pytest.mark.parametrize("buckets", [1, 4])
def test_record_may_be_an_event_and_a_watermark(tmp_path: Path, buckets: int) -> None:
    done = take(tmp_path, HEAD + ROWS, buckets=buckets)
    assert (done.rows, done.watermarks, done.headers, done.movements) == (1, 2, 2, 0)
    assert (done.taken, done.quarantined) == (4, {"missing": 2})
    of_lane = ("lane", "chain", "height", "name", "value", "status", "stated_by", "source_row")
    assert [tuple(row[name] for name in of_lane) for row in ingested_rows(tmp_path, "watermarks")] == [
        ("1", "A", 10, "sent", 7, None, "relay", 1),
        ("1", "A", 11, "sent", 9, None, "relay", 2),
    ]
    of_block = ("chain", "height", "hash", "parent", "root", "status")
    assert [tuple(row[name] for name in of_block) for row in ingested_rows(tmp_path, "headers")] == [
        ("B", 3, "c", "b", None, None),
        ("B", 5, "e", "d", None, None),
    ]
    observed = open_ledger(str(tmp_path / "ledger")).table("observed").to_pylist()
    assert [(row["chain"], row["events"]) for row in observed] == [("B", ["header"])]


def test_audit_checks_ingested_headers_and_watermarks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake, table = str(tmp_path / "ledger"), HEAD + ROWS
    take(tmp_path, table)
    assert execute(["audit", lake, "--check", "watermarks"], build_app, "causeway") == OK
    assert execute(["audit", lake, "--check", "headers"], build_app, "causeway") == OK
    assert "missing_inside_window 1" in capsys.readouterr().out
    take(tmp_path, HEAD + "state,A,13,103,8,,\nblock,B,4,91,d,c,\nblock,B,5,92,x,d,\n", "b.csv")
    assert execute(["audit", lake], build_app, "causeway") == FAILED
    out = capsys.readouterr().out
    assert "FAILED: 1 violation of watermarks, 1 of headers" in out
    assert "fell 1" in out and "two_headers 1" in out and "missing_inside_window" not in out
    take(tmp_path, HEAD + "state,A,13,103,8,,reverted\nblock,B,5,92,x,d,reverted\n", "c.csv")
    assert execute(["audit", lake], build_app, "causeway") == OK


ALONE = """
format = "csv"
stated_by = "relay"
fields = { protocol = { text = "b" }, chain = "chain", height = "h" }
[[watermarks]]
name = { text = "sent" }
value = "n"
"""


def test_mapping_may_have_watermarks_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.toml").write_text(ALONE)
    (tmp_path / "state.csv").write_text("chain,h,n\nA,1,5\nA,2,4\n")
    files = [str(tmp_path / name) for name in ("state.csv", "ledger", "m.toml")]
    assert execute(["ingest", "own", files[0], "--lake", files[1], "--mapping", files[2]], build_app, "causeway") == OK
    assert "0 rows from 2 records of 1 file\n  2 watermarks\n" in capsys.readouterr().out
    assert execute(["audit", files[1]], build_app, "causeway") == FAILED


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ('value = "n"', "", "watermarks[0].value: missing"),
        ('name = { text = "sent" }', "", "watermarks[0].name: missing"),
        ('name = { text = "sent" }', 'name = "h"\namount = "n"', "watermarks[0].amount: a watermark has none"),
        ('hash = "n"', 'hash = "n"\nlane = "n"', "headers[0].lane: a header has none"),
        ('height = "h"\n', "", "headers[0].height: missing, here and in fields"),
    ],
)
def test_mappings_of_headers_and_watermarks_are_validated(tmp_path: Path, old: str, new: str, text: str) -> None:
    with pytest.raises(InvalidInput) as error:
        take(tmp_path, HEAD, mapping=MAPPING.replace(old, new))
    assert text in str(error.value) and "\n" not in str(error.value)
