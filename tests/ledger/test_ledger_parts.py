"""Parts of a bucket contain its rows, for any number of files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from causeway.ledger import store, stored_parts
from causeway.ledger.parts import TablePart, split_runs
from causeway.ledger.row_order import deduplicate_statements, drop_repeats, sort_rows
from causeway.ledger.schema import LEDGER_SCHEMA
from causeway.ledger.store import Ledger, LedgerDamaged, LedgerWriter, create_ledger, group_by_bucket
from causeway.ledger.stored_parts import bucket_parts, merge_sorted
from tests.support.properties.audit_ledgers import by_chance, table

BUCKETS = 2


def rows_of(random: Random, count: int) -> pa.Table:
    rows = [row for _ in range(count) for row in by_chance(random).rows]
    return table(rows, LEDGER_SCHEMA)


def store_ledger(folder: Path, random: Random, files: int, loose: int) -> Ledger:
    """Return a ledger with so many commits of a file per bucket, and some of a file for all; many rows are repeated."""
    ledger = create_ledger(str(folder / "ledger"), BUCKETS)
    rows = rows_of(random, 6)
    for number in range(files + loose):
        writer = LedgerWriter(ledger)
        some = rows.take(pa.array(random.sample(range(rows.num_rows), rows.num_rows // 2)))
        if number < files:
            for bucket, own in group_by_bucket(some, BUCKETS).items():
                writer.write("ledger", drop_repeats(own), bucket)
        else:
            writer.write("ledger", some)
        ledger = ledger.after(writer.commit([], {}))
    return ledger


@pytest.mark.parametrize(("files", "loose"), [(1, 0), (3, 0), (1, 1), (2, 2), (0, 2), (0, 0)])
def test_parts_are_the_rows_of_the_bucket(
    files: int, loose: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "ROW_GROUP", 7)
    monkeypatch.setattr(stored_parts, "PART_ROWS", 7)
    ledger = store_ledger(tmp_path, Random(files + 10 * loose), files, loose)
    for bucket in range(BUCKETS):
        rows = ledger.rows(bucket)
        parts = list(bucket_parts(ledger, bucket))
        read = [part.read(LEDGER_SCHEMA.names) for part in bucket_parts(ledger, bucket)]
        together = pa.concat_tables([LEDGER_SCHEMA.empty_table(), *read])
        assert together.to_pylist() == rows.to_pylist()
        assert len(parts) > 1 or not files
        largest = max((part.num_rows for part in parts), default=0)
        assert largest < rows.num_rows or not files


def test_rows_of_a_part_come_from_its_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "ROW_GROUP", 5)
    monkeypatch.setattr(stored_parts, "GROUPS_AT_ONCE", 4)
    ledger = store_ledger(tmp_path, Random(3), 1, 0)
    begin, rows = 0, ledger.rows(0)
    groups: list[list[int]] = []
    read = stored_parts._read

    def watched(file: pq.ParquetFile, names: Sequence[str], wanted: Sequence[int]) -> pa.Table:
        groups.append(list(wanted))
        return read(file, names, wanted)

    monkeypatch.setattr(stored_parts, "_read", watched)
    for number, part in enumerate(bucket_parts(ledger, 0)):
        chosen = np.array([part.num_rows - 1, 0, 0])
        found = part.take(("source_row", "lane"), chosen)
        assert found.to_pylist() == rows.select(["source_row", "lane"]).take(pa.array(begin + chosen)).to_pylist()
        first, last = 4 * number, 4 * number + (part.num_rows - 1) // 5
        assert groups[-1] == sorted({first, last})  # and not those between
        begin += part.num_rows
    assert begin == rows.num_rows


def test_message_larger_than_a_read_stays_in_one_part() -> None:
    row = {"protocol": "p", "source": "a", "destination": "b", "lane": "1", "kind": "request", "event": "received"}
    many = [{**row, "index": 2, "chain": "b", "height": height} for height in range(9)]
    rows = sort_rows(table([{**row, "index": 1}, *many, {**row, "index": 3}], LEDGER_SCHEMA))
    other = sort_rows(table([{**row, "index": 2, "chain": "b", "height": 100}], LEDGER_SCHEMA))
    parts = list(merge_sorted([iter([rows.slice(at, 2) for at in range(0, 11, 2)]), iter([other])]))
    assert [part["index"].to_pylist() for part in parts if part.num_rows] == [[1], [2] * 10, [3]]


def test_missing_file_is_corruption(tmp_path: Path) -> None:
    ledger = store_ledger(tmp_path, Random(1), 1, 0)
    (file,) = ledger.files("ledger", 1)
    (tmp_path / "ledger" / file.path).unlink()
    with pytest.raises(LedgerDamaged, match=f"{file.path} is missing"):
        list(bucket_parts(ledger, 1))


def test_runs_release_the_rows_of_their_parts() -> None:
    """A bucket of several files is read as tables, of which only messages at their ends stay in memory."""
    rows = table(
        (
            {"protocol": "p", "source": "a", "lane": "1", "index": index // 2, "kind": "request", "chain": "a",
             "event": ("sent", "received")[index % 2], "stated_by": "t"}
            for index in range(1, 40)
        ),
        LEDGER_SCHEMA,
    )  # fmt: skip
    runs = [*split_runs(TablePart(rows.slice(first, 10)) for first in range(0, 40, 10))]
    last = runs[-1]
    assert last.scattered and sum(run.num_rows for run in runs) == rows.num_rows
    assert sum(part.num_rows for part, _, _ in last.of) == last.num_rows == 6
    assert last.read(["index"])["index"].to_pylist() == last.table["index"].to_pylist() == [5, 5, 10, 10, 15, 15]


@pytest.mark.parametrize("seed", range(4))
def test_rows_without_a_source_have_one_order(seed: int) -> None:
    """As those of a DataFrame, which come in any order, also where only the recorded content tells them apart."""
    random = Random(seed)
    case = by_chance(random)
    nowhere = dict.fromkeys(("chain", "revision", "height", "position", "source_row"))
    rows = table([{**row, **nowhere} for row in case.rows], LEDGER_SCHEMA)
    shuffled = rows.take(random.sample(range(rows.num_rows), rows.num_rows))
    assert deduplicate_statements(shuffled).equals(deduplicate_statements(rows))
    assert drop_repeats(shuffled).equals(drop_repeats(rows))
