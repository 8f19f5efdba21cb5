"""Each commit of a ledger is one snapshot of each table, however exports and compaction interleave."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from causeway_proofs.errors import InvalidInput
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from causeway.ledger.commits import LedgerDamaged, commits_of
from causeway.ledger.maintenance import maintain_ledger, remove_garbage, split_by_bucket
from causeway.ledger.row_order import drop_repeats
from causeway.ledger.schema import LEDGER_SCHEMA, OBSERVED_SCHEMA, QUARANTINE_SCHEMA, VALUE_SCHEMA
from causeway.ledger.store import LedgerWriter, create_ledger, open_ledger
from causeway.ledger.table_formats.export import _TableExport, export_ledger
from causeway.ledger.table_formats.format_table import COMMIT, DIGEST, convert_errors, plain_schema
from causeway.ledger.table_formats.formats import FORMATS, open_tables
from causeway.ledger.table_formats.iceberg import open_iceberg
from causeway.ledger.table_formats.ingest import import_tables
from tests.ledger.table_formats.ledgers import NAMES, file_rows, snapshots, write_ledger
from tests.support.properties.audit_ledgers import table

both = pytest.mark.parametrize("kind", FORMATS)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a ledger of three commits."""
    return write_ledger(tmp_path_factory.mktemp("export") / "a b")


COMPARED = ("ledger", "value", "observed", "quarantine")


def commit_rows(place: str, number: int) -> None:
    """Commit two rows of ``ledger``, one for another commit too, and one of three other tables; merge due files."""
    ledger = open_ledger(place) if number else create_ledger(place, 4)
    lane = {"protocol": "b", "source": "A", "destination": "B", "lane": "x", "stated_by": "test"}
    event = {**lane, "kind": "request", "event": "sent", "chain": "A"}
    rows = table([{**event, "index": each << 18, "height": each} for each in (number, number // 2)], LEDGER_SCHEMA)
    moved = table([{**lane, "chain": "A", "height": number, "why": "fee"}], VALUE_SCHEMA)
    window = {"chain": "A", "first_height": 0, "last_height": number, "how": "declared", "stated_by": "test"}
    aside = {"source_file": "a", "source_row": number, "reason": "not_a_number", "row": "x"}
    writer = LedgerWriter(ledger)
    for name, part in (("ledger", drop_repeats(rows)), ("value", moved)):
        writer.write(name, split_by_bucket(part, ledger.buckets, name))
    writer.write("observed", table([window], OBSERVED_SCHEMA))
    writer.write("quarantine", table([aside], QUARANTINE_SCHEMA))
    maintain_ledger(ledger.after(writer.commit([], {})))


@both
def test_each_commit_is_one_snapshot_of_each_table(place: str, tmp_path: Path, kind: str) -> None:
    done = export_ledger(place, str(tmp_path / "out %" if kind == "iceberg" else tmp_path / "o u t"), kind)
    out = next(tmp_path.iterdir())
    assert (done.first, done.last, done.snapshots, done.merged) == (0, 2, 3 * len(NAMES), [])
    for name in NAMES:
        found = snapshots(out, kind, name)
        assert [*found] == [0, 1, 2], name
        assert found[2] == file_rows(open_ledger(place), name), name
    assert len(snapshots(out, kind, "ledger")[0]) == 4
    assert export_ledger(place, str(out), kind).first is None


@both
def test_interrupted_export_continues_with_the_missing_snapshots(
    place: str, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, write = 0, _TableExport._write

    def interrupt(self: _TableExport, *arguments: Any) -> None:
        nonlocal written
        written += 1
        if written % 5 == 0:
            raise KeyboardInterrupt
        write(self, *arguments)

    monkeypatch.setattr(_TableExport, "_write", interrupt)
    for _ in range(len(NAMES)):
        try:
            export_ledger(place, str(tmp_path), kind)
        except KeyboardInterrupt:
            continue
        break
    assert written > 3 * len(NAMES)
    for name in NAMES:
        found = snapshots(tmp_path, kind, name)
        assert [*found] == [0, 1, 2] and found[2] == file_rows(open_ledger(place), name), name


@both
@pytest.mark.parametrize("exported_before", [0, 3, 12])
def test_merged_files_are_exported_once(tmp_path: Path, kind: str, exported_before: int) -> None:
    states: dict[int, dict[str, list[str]]] = {}
    place, out = str(tmp_path / "ledger"), tmp_path / "out"
    for number in range(12):
        commit_rows(place, number)
        ledger = open_ledger(place)
        states[ledger.number] = {name: file_rows(ledger, name) for name in COMPARED}
        if number + 1 == exported_before:
            export_ledger(place, str(out), kind)
    assert ledger.number > 11, "nothing was merged"
    remove_garbage(ledger, kept=0)
    commit_rows(place, 20)
    done = export_ledger(place, str(out), kind)
    ledger = open_ledger(place)
    assert bool(done.merged) == (exported_before < 12)
    for name in COMPARED:
        found = snapshots(out, kind, name)
        assert max(found) == ledger.number, name
        states[ledger.number] = {name: file_rows(ledger, name) for name in COMPARED}
        for number in found.keys() & states.keys():  # a merge also drops repeated events
            assert sorted({*found[number]}) == sorted({*states[number][name]}), (name, number)
    assert export_ledger(place, str(out), kind).first is None


def test_export_begins_at_a_checkpoint_if_manifests_were_removed(tmp_path: Path) -> None:
    place, out, kind = str(tmp_path / "ledger"), tmp_path / "out", "delta"
    commit_rows(place, 0)
    early = tmp_path / "early"
    export_ledger(place, str(early), kind)
    for number in range(1, 66):
        commit_rows(place, number)
    ledger = open_ledger(place)
    remove_garbage(ledger, kept=0)
    assert 0 not in commits_of(ledger.storage).numbers()
    export_ledger(place, str(out), kind)
    for name in COMPARED:
        assert snapshots(out, kind, name)[ledger.number] == file_rows(ledger, name), name
    with pytest.raises(InvalidInput, match=r"causeway-commit 0 is no longer in the ledger; export to an empty folder"):
        export_ledger(place, str(early), kind)


@both
def test_tables_of_another_ledger_are_refused(place: str, tmp_path: Path, kind: str) -> None:
    out = tmp_path / "out"
    export_ledger(place, str(out), kind)
    other = write_ledger(tmp_path / "other")
    with pytest.raises(InvalidInput, match=r"ledger: causeway-commit 2 is of another ledger; export to an empty"):
        export_ledger(other, str(out), kind)
    other_kind = next(each for each in FORMATS if each != kind)
    with pytest.raises(InvalidInput, match=f"must be an empty folder, or an export to {other_kind}"):
        export_ledger(place, str(out), other_kind)
    with pytest.raises(InvalidInput, match=r"has ledger\.json: must be an empty folder"):
        export_ledger(place, other, kind)


@both
def test_of_two_exports_at_the_same_time_one_fails(place: str, tmp_path: Path, kind: str) -> None:
    export_ledger(place, str(tmp_path / "out"), kind)
    tables = [open_tables(str(tmp_path / "out"), kind, ["ledger"], create=True)["ledger"] for _ in range(2)]
    commit, schema = {COMMIT: "3", DIGEST: "0" * 64}, plain_schema("ledger")
    tables[0].write(schema.empty_table().to_reader(), commit, replace=False)
    with pytest.raises(InvalidInput, match="ledger: another process wrote this table meanwhile; run again"):
        tables[1].write(schema.empty_table().to_reader(), commit, replace=False)
    assert [*snapshots(tmp_path / "out", kind, "ledger")] == [0, 1, 2, 3]


@both
def test_of_two_first_exports_at_the_same_time_one_fails(
    place: str, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = str(tmp_path / "out")
    if kind == "delta":
        tables = open_tables(out, kind, ["ledger"], create=True)
        export_ledger(place, out, kind)
        rows = plain_schema("ledger").empty_table().to_reader()
        with pytest.raises(InvalidInput, match=r"out/ledger: another process wrote this table meanwhile; run again$"):
            tables["ledger"].write(rows, {COMMIT: "0", DIGEST: "0" * 64}, replace=False)
        return
    create = SqlCatalog.create_namespace_if_not_exists

    def lose(self: SqlCatalog, namespace: str) -> None:
        monkeypatch.setattr(SqlCatalog, "namespace_exists", lambda *_: False)
        create(self, namespace)
        self.create_namespace(namespace)

    monkeypatch.setattr(SqlCatalog, "create_namespace_if_not_exists", lose)
    with pytest.raises(InvalidInput, match=r"catalog\.db: another process wrote this table meanwhile; run again$"):
        export_ledger(place, out, kind)


@pytest.mark.parametrize(
    "text",
    [
        "(sqlite3.OperationalError) table iceberg_tables already exists\n[SQL: CREATE TABLE iceberg_tables ()]",
        "(sqlite3.IntegrityError) UNIQUE constraint failed: iceberg_tables.table_name",
        "(sqlite3.OperationalError) database is locked",
        "Table causeway.ledger already exists",
        "Generic error: A table already exists at: file:///out/ledger/",
    ],
)
def test_error_of_a_table_made_meanwhile_is_a_lost_race(text: str) -> None:
    with (
        pytest.raises(InvalidInput, match=r"^out: another process wrote this table meanwhile; run again$"),
        convert_errors("out", failed=(ValueError,)),
    ):
        raise ValueError(text)


def test_dropped_column_is_named(place: str, tmp_path: Path) -> None:
    rows = plain_schema("ledger").empty_table()
    write_deltalake(str(tmp_path / "ledger"), rows.drop_columns(["journey"]))
    delta = open_tables(str(tmp_path), "delta", ["ledger"], create=True)["ledger"]
    with pytest.raises(InvalidInput, match="ledger: has no column journey; export to an empty folder"):
        delta.write(rows.to_reader(), {COMMIT: "0", DIGEST: "0" * 64}, replace=False)


def delta_restore(out: Path) -> None:
    DeltaTable(str(out / "ledger")).restore(0)


def delta_delete(out: Path) -> None:
    DeltaTable(str(out / "ledger")).delete("event = 'received'")


def delta_append(out: Path) -> None:
    write_deltalake(str(out / "ledger"), DeltaTable(str(out / "ledger")).to_pyarrow_table().slice(0, 1), mode="append")


def iceberg_delete(out: Path) -> None:
    open_iceberg(out, ["ledger"], create=False)["ledger"]._table.delete("event = 'sent'")


def iceberg_append(out: Path) -> None:
    table = open_iceberg(out, ["ledger"], create=False)["ledger"]._table
    table.append(table.scan().to_arrow().slice(0, 1))


@pytest.mark.parametrize(
    ("kind", "change", "version"),
    [
        ("delta", delta_restore, r"version 3 \(RESTORE\)"),
        ("delta", delta_delete, r"version 3 \(DELETE\)"),
        ("delta", delta_append, r"version 3 \(WRITE\)"),
        ("iceberg", iceberg_delete, r"snapshot [0-9]+ \((delete|overwrite)\)"),
        ("iceberg", iceberg_append, r"snapshot [0-9]+ \(append\)"),
    ],
)
def test_tables_with_rows_changed_by_others_are_refused(
    place: str, tmp_path: Path, kind: str, change: Callable[[Path], None], version: str
) -> None:
    out = tmp_path / "out"
    export_ledger(place, str(out), kind)
    change(out)
    if kind == "delta":
        DeltaTable(str(out / "ledger")).optimize.compact()  # does not hide what was before it
    text = rf"out/ledger: {version} changed rows after causeway-commit 2, and is not of an export; export to an empty"
    for call in (
        lambda: export_ledger(place, str(out), kind),
        lambda: import_tables(str(out), kind, str(tmp_path / "copy")),
    ):
        with pytest.raises(InvalidInput, match=text):
            call()


def test_versions_with_the_same_rows_are_no_change(place: str, tmp_path: Path) -> None:
    export_ledger(place, str(tmp_path), "delta")
    delta = DeltaTable(str(tmp_path / "ledger"))
    delta.optimize.compact()
    delta.vacuum(0, dry_run=False, enforce_retention_duration=False)
    delta.alter.set_table_properties({"delta.appendOnly": "false"})
    assert DeltaTable(str(tmp_path / "ledger")).version() > 4
    assert export_ledger(place, str(tmp_path), "delta").first is None


def test_replaced_files_of_iceberg_are_no_change(place: str, tmp_path: Path) -> None:
    export_ledger(place, str(tmp_path), "iceberg")
    iceberg_append(tmp_path)
    for file in (tmp_path / "ledger" / "metadata").glob("*.metadata.json"):
        found = json.loads(file.read_text())
        for snapshot in found.get("snapshots", ()):
            if COMMIT not in snapshot["summary"]:
                snapshot["summary"]["operation"] = "replace"  # PyIceberg itself rewrites no files
        file.write_text(json.dumps(found))
    assert export_ledger(place, str(tmp_path), "iceberg").first is None


def test_delta_table_of_other_origin_is_refused(place: str, tmp_path: Path) -> None:
    rows = plain_schema("ledger").empty_table()
    write_deltalake(str(tmp_path / "ledger"), rows)
    with pytest.raises(InvalidInput, match=r"ledger: a table without causeway-commit in its snapshots"):
        export_ledger(place, str(tmp_path), "delta")


@both
def test_damaged_file_ends_the_export_with_its_name(place: str, tmp_path: Path, kind: str) -> None:
    copy = tmp_path / "ledger"
    shutil.copytree(place, copy)
    path = open_ledger(str(copy)).files("value")[0].path
    (copy / path).write_bytes(b"")
    with pytest.raises(LedgerDamaged, match=path):
        export_ledger(str(copy), str(tmp_path / "out"), kind)


def test_wrong_arguments_name_the_allowed_ones(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="format hudi: must be one of delta, iceberg"):
        export_ledger(place, str(tmp_path), "hudi")
    with pytest.raises(InvalidInput, match="s3://bucket/x: must be a local folder, or catalog:NAME/NAMESPACE, for ice"):
        export_ledger(place, "s3://bucket/x", "iceberg")
    with pytest.raises(InvalidInput, match="tables: hdfs://host/x is not a place that can be opened: allowed are"):
        export_ledger(place, "hdfs://host/x", "delta")
    with pytest.raises(InvalidInput, match="a%20b: must have no % for delta"):
        export_ledger(place, str(tmp_path / "a%20b"), "delta")
    for mark in "?#":
        with pytest.raises(InvalidInput, match=rf"a\{mark}b: must have no \{mark} for iceberg"):
            export_ledger(place, str(tmp_path / f"a{mark}b"), "iceberg")
    assert not list(tmp_path.glob("a*b"))
    with pytest.raises(InvalidInput, match=rf"/ledger/out: must be outside of the ledger {place}"):
        export_ledger(place, f"{place}/ledger/out", "delta")
    for kind, package in (("delta", "deltalake"), ("iceberg", "pyiceberg")):
        for name in [each for each in sys.modules if each.split(".")[0] == package]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.delitem(sys.modules, f"causeway.ledger.table_formats.{kind}")
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(InvalidInput, match=f"{kind}: needs the package {package}.*pip install 'causeway.tables.'"):
            export_ledger(place, str(tmp_path), kind)
