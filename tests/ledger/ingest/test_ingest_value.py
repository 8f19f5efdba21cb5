"""Movements of value ingested from the records a mapping selects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput

from causeway.ledger.ingest.ingest import IngestResult, ingest_files
from causeway.ledger.ingest.mapping import load_mapping
from causeway.ledger.store import open_ledger

MAPPING = """
format = "csv"
stated_by = "us"
[fields]
protocol = { text = "b" }
source = "src"
destination = "dst"
index = "n"
height = "h"
asset = { text = "gold" }
[[events]]
where = { what = "lock" }
event = { text = "sent" }
chain = "src"
amount = "amount"
[[events]]
where = { what = "mint" }
event = { text = "received" }
chain = "dst"
amount = "amount"
[[value]]
where = { what = "mint" }
present = ["fee"]
chain = "dst"
amount = "fee"
why = { text = "fee" }
from = { text = "message" }
to = "relayer"
[[value]]
where = { what = "transfer" }
chain = "src"
amount = "amount"
why = "what"
to = "relayer"
[windows]
by = "height"
"""
HEAD = "what,src,dst,n,h,amount,fee,relayer\n"
ROWS = """\
lock,A,B,1,10,100,,
lock,A,B,2,11,50,,
mint,A,B,1,20,97,3,bob
mint,A,B,2,21,50,,bob
transfer,A,B,,30,5,,carol
mint,A,B,3,22,5,x,bob
"""


def take(folder: Path, text: str, name: str = "a.csv", mapping: str = MAPPING) -> IngestResult:
    (folder / "m.toml").write_text(mapping)
    (folder / name).write_text(text)
    return ingest_files(str(folder / name), str(folder / "ledger"), load_mapping("own", folder / "m.toml"), buckets=4)


def movements(folder: Path) -> list[dict[str, Any]]:
    ledger = open_ledger(str(folder / "ledger"))
    rows = pa.concat_tables([ledger.rows(bucket, table="value") for bucket in range(ledger.buckets)]).to_pylist()
    return sorted(rows, key=lambda row: (row["height"], row["source_file"], row["source_row"]))


def test_record_may_be_an_event_and_a_movement_of_value(tmp_path: Path) -> None:
    done = take(tmp_path, HEAD + ROWS)
    assert (done.rows, done.movements, done.quarantined) == (4, 2, {"not_a_number": 1})
    fee, transfer = movements(tmp_path)
    names = ("index", "chain", "amount_0", "why", "from", "to", "source_row")
    assert [fee[name] for name in names] == [1, "B", 3, "fee", "message", "bob", 3]
    assert [transfer[name] for name in names] == [None, "A", 5, "transfer", None, "carol", 5]
    observed = open_ledger(str(tmp_path / "ledger")).table("observed").to_pylist()
    windows = {(row["chain"], *row["events"]): (row["first_height"], row["last_height"]) for row in observed}
    assert windows == {
        ("A", "sent"): (10, 11), ("A", "value"): (30, 30), ("B", "received"): (20, 21), ("B", "value"): (20, 20),
    }  # fmt: skip


def test_repeated_movements_are_kept_within_a_file_and_merged_across_exports(tmp_path: Path) -> None:
    take(tmp_path, HEAD + ROWS)
    again = "mint,A,B,1,20,97,3,bob\n"
    done = take(tmp_path, HEAD + ROWS + again, "b.csv")
    assert (done.rows, done.movements, done.repeated) == (4, 3, 1)
    found = [(row["height"], row["source_file"], row["source_row"]) for row in movements(tmp_path)]
    assert found == [(20, "b.csv", 3), (20, "b.csv", 7), (30, "a.csv", 5)]


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ('why = "what"', "", "value[1].why: missing"),
        ('why = "what"', 'why = "what"\nevent = { text = "sent" }', "value[1].event: a movement of value has none"),
        ("[[value]]\nwhere", "[[values]]\nwhere", "values: unknown key; did you mean value?"),
    ],
)
def test_value_mappings_are_validated(tmp_path: Path, old: str, new: str, text: str) -> None:
    with pytest.raises(InvalidInput) as error:
        take(tmp_path, HEAD, mapping=MAPPING.replace(old, new))
    assert text in str(error.value) and "\n" not in str(error.value)
