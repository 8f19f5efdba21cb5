"""Ledgers survive the way to tables and back; tables that do not fit are refused in one line."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput
from deltalake import write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from causeway.audit.stored import audit_ledger
from causeway.ledger.schema import LEDGER_SCHEMA
from causeway.ledger.store import open_ledger
from causeway.ledger.table_formats import ingest
from causeway.ledger.table_formats.export import _TableExport, export_ledger
from causeway.ledger.table_formats.format_table import plain_schema
from causeway.ledger.table_formats.formats import FORMATS
from causeway.ledger.table_formats.iceberg import CATALOG_FILE, NAMESPACE, open_iceberg
from causeway.ledger.table_formats.ingest import import_tables
from tests.cli.test_cli import Run, cli
from tests.ledger.table_formats.ledgers import NAMES, ledger_rows, write_ledger
from tests.ledger.test_ledger_audit import same
from tests.recordings import Recordings

__all__ = ["cli"]

ROW = {
    "protocol": "bridge",
    "source": "A",
    "destination": "B",
    "lane": "x",
    "index": 1,
    "kind": "request",
    "event": "sent",
    "chain": "A",
    "height": 10,
    "payload_hash": b"h" * 32,
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a ledger of three commits."""
    return write_ledger(tmp_path_factory.mktemp("import"))


@pytest.mark.parametrize("kind", FORMATS)
def test_ledger_and_its_audit_survive_export_and_import(place: str, tmp_path: Path, kind: str) -> None:
    export_ledger(place, str(tmp_path / "out"), kind)
    done = import_tables(str(tmp_path / "out"), kind, str(tmp_path / "ledger"), buckets=4)
    before, after = open_ledger(place), open_ledger(str(tmp_path / "ledger"))
    for table in NAMES:
        rows = ledger_rows(after, table)
        assert rows == ledger_rows(before, table), table
        if table not in ("state", "value"):
            assert done.rows[table] == len(rows), table
    assert done.commit == 0 and after.counts["rows"] == done.rows["ledger"]
    same(audit_ledger(before), audit_ledger(after))
    with pytest.raises(InvalidInput, match="has commits; tables are imported into a new ledger only"):
        import_tables(str(tmp_path / "out"), kind, str(tmp_path / "ledger"))


@pytest.mark.parametrize("kind", FORMATS)
def test_commands_export_and_ingest(place: str, tmp_path: Path, kind: str, cli: Run) -> None:
    out, ledger = str(tmp_path / "out"), str(tmp_path / "ledger")
    assert cli("export", place, "--format", kind, "--out", out)[:2] == (
        0,
        f"{out}: commits 0 to 2: 27 snapshots, 61 rows\n",
    )
    assert json.loads(cli("export", place, "--format", kind, "--out", out, "--json")[1])["snapshots"] == 0
    code, text, _ = cli("ingest", kind, out, "--lake", ledger, "--buckets", "4")
    assert code == 0 and text.startswith(f"{ledger}: 5 rows of {out}/ledger\n")
    one, other = (json.loads(cli("audit", each, "--json")[1]) for each in (place, ledger))
    assert one["checks"] == other["checks"]


def test_foreign_table_needs_only_the_required_columns(tmp_path: Path) -> None:
    rows = [{**ROW, "time": 5_000_000, "height": 100}, {**ROW, "index": 2, "time": 6_000_000, "height": 7}]
    table = pa.Table.from_pylist(rows)
    table = table.set_column(table.schema.get_field_index("time"), "time", table["time"].cast(pa.timestamp("us")))
    write_deltalake(str(tmp_path / "ledger"), table.append_column("note", pa.array(["a", "b"])))
    import_tables(str(tmp_path), "delta", str(tmp_path / "own"))
    ledger = open_ledger(str(tmp_path / "own"))
    found = pa.concat_tables([ledger.rows(bucket) for bucket in range(ledger.buckets)])
    assert found.schema.equals(LEDGER_SCHEMA) and found["height"].to_pylist() == [100, 7]
    assert found["stated_by"].to_pylist() == ["", ""]
    assert [(row["source"], row["promise"]) for row in ledger.table("promises").to_pylist()] == [("A", "restarted")]


def without(name: str) -> dict[str, Any]:
    return {column: value for column, value in ROW.items() if column != name}


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (without("event"), "ledger: there is no column event; needed are protocol, kind, event"),
        ({**ROW, "lane": 5}, "ledger: lane: is of type int64: must be string"),
        ({**ROW, "index": "1"}, "ledger: index: is of type string: must be decimal128(20, 0)"),
        ({**ROW, "height": 1.5}, "ledger: height: is of type double: must be decimal128(20, 0)"),
        ({**ROW, "payload_hash": "h" * 32}, "ledger: payload_hash: is of type string: must be binary"),
        ({**ROW, "payload_hash": b"h"}, "ledger: payload_hash: a value of 1 bytes: must be 32"),
        ({**ROW, "height": -1}, "ledger: height: -1: must be a whole number from 0 to 18446744073709551615"),
        ({**ROW, "kind": "call"}, "ledger: kind: call: must be one of request, response, reject, refund, control"),
        ({**ROW, "event": "reverted", "detail": "x"}, "ledger: detail of a reverted row: x: must be one of sent, "),
        ({**ROW, "revision": 2**26, "height": 1}, "ledger: revision: 67108864: must be from 0 to 67108862"),
        ({**ROW, "amount_0": 1}, "ledger: there is no column amount_1, amount_2, amount_3; an amount needs amount_0, "),
        ({**ROW, "kind": [None, "request"]}, "ledger: kind: is null in a row: must not be"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("kind", FORMATS)
def test_tables_that_do_not_fit_are_refused(tmp_path: Path, kind: str, row: dict[str, Any], text: str) -> None:
    nulls = isinstance(row.get("kind"), list)
    rows = pa.Table.from_pylist([{**row, "kind": value} for value in row["kind"]] if nulls else [row])
    if kind == "delta":
        write_deltalake(str(tmp_path / "ledger"), rows)
    else:
        foreign_iceberg(tmp_path, rows)
    with pytest.raises(InvalidInput) as error:
        import_tables(str(tmp_path), kind, str(tmp_path / "own"))
    assert str(error.value).replace("large_string", "string").startswith(f"{tmp_path}/{text}")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "own").exists()


def foreign_iceberg(folder: Path, rows: pa.Table) -> None:
    """Replace the table ``ledger`` of a new catalog by one with other columns."""
    from pyiceberg.catalog.sql import SqlCatalog

    open_iceberg(folder, ["ledger"], create=True)
    catalog = SqlCatalog("causeway", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.drop_table("causeway.ledger")
    catalog.create_table("causeway.ledger", rows.schema, location=f"file://{folder}/other").append(rows)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    "spoil", [lambda folder: None, lambda folder: folder.mkdir(), lambda folder: (folder / "x").mkdir(parents=True)]
)
def test_folder_without_tables_is_refused(tmp_path: Path, kind: str, spoil: Callable[[Path], None]) -> None:
    spoil(tmp_path / "out")
    with pytest.raises(InvalidInput, match=f"out: no {kind} table ledger is there; causeway export writes one"):
        import_tables(str(tmp_path / "out"), kind, str(tmp_path / "own"))


def test_damaged_tables_are_refused_in_one_line(place: str, tmp_path: Path) -> None:
    for kind in FORMATS:
        out = tmp_path / kind
        export_ledger(place, str(out), kind)
        for path in (out / "ledger").rglob("*.parquet"):
            path.write_bytes(b"PAR1")
        with pytest.raises(InvalidInput) as error:
            import_tables(str(out), kind, str(tmp_path / f"{kind}-own"))
        assert f"{out}/ledger: " in str(error.value) and "\n" not in str(error.value)
        assert not (tmp_path / f"{kind}-own").exists()
    (tmp_path / "iceberg" / "catalog.db").write_bytes(b"no database")
    with pytest.raises(InvalidInput, match=r"catalog\.db: "):
        import_tables(str(tmp_path / "iceberg"), "iceberg", str(tmp_path / "own"))


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("written", [1, 8, 12, 26])
def test_interrupted_export_is_no_ledger(
    place: str, tmp_path: Path, kind: str, written: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, lake, write, done = str(tmp_path / "out"), tmp_path / "copy", _TableExport._write, 0

    def interrupt(self: _TableExport, *arguments: Any) -> None:
        nonlocal done
        if done == written:
            raise KeyboardInterrupt
        done += 1
        write(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(_TableExport, "_write", interrupt)
        with pytest.raises(KeyboardInterrupt):
            export_ledger(place, out, kind)
    commit, table = divmod(written, len(NAMES))
    if commit:
        text = f"{out}/{NAMES[table]}: has causeway-commit {commit - 1}; "
    elif kind == "delta":
        text = f"{out}/{NAMES[table]}: is missing; "
    else:
        text = f"{out}/{NAMES[table]}: has no causeway-commit; "
    with pytest.raises(InvalidInput) as error:
        import_tables(out, kind, str(lake))
    assert str(error.value) == f"{text}causeway-commit {commit} is needed, as ledger has; run the export again"
    assert not lake.exists()
    export_ledger(place, out, kind)
    import_tables(out, kind, str(lake))


def test_tables_of_two_ledgers_are_no_ledger(place: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export_ledger(place, str(out), "delta")
    export_ledger(write_ledger(tmp_path / "other"), str(tmp_path / "tables"), "delta")
    shutil.rmtree(out / "promises")
    shutil.copytree(tmp_path / "tables" / "promises", out / "promises")
    text = (
        "out/promises: has another causeway-digest than ledger, so it is of another ledger; export to an empty folder"
    )
    with pytest.raises(InvalidInput, match=text):
        import_tables(str(out), "delta", str(tmp_path / "copy"))


def test_failed_import_removes_only_what_it_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, tables = tmp_path / "lake", str(tmp_path / "tables")
    write_deltalake(f"{tables}/ledger", pa.Table.from_pylist([ROW]))
    other: list[str] = []

    def fail(*_: Any) -> None:
        for name in other:
            (lake / name).write_text("of another process")
        raise KeyboardInterrupt

    def files() -> list[str]:
        with pytest.raises(KeyboardInterrupt):
            import_tables(tables, "delta", str(lake))
        return sorted(path.name for path in lake.rglob("*") if path.is_file())

    monkeypatch.setattr(ingest, "_import", fail)
    assert files() == [] and not lake.exists()
    lake.mkdir()
    (lake / "README").write_text("mine")
    assert files() == ["README"]
    other.append("staged")
    assert files() == ["README", "ledger.head", "ledger.json", "staged"]
    assert files() == ["README", "ledger.head", "ledger.json", "staged"], "an older ledger"


def test_garbage_log_is_one_line_without_frames(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "ledger"), pa.Table.from_pylist([ROW]))
    [log] = (tmp_path / "ledger" / "_delta_log").glob("*.json")
    log.write_text("{\x00\x1b[31m\nnope")
    with pytest.raises(InvalidInput) as error:
        import_tables(str(tmp_path), "delta", str(tmp_path / "own"))
    assert re.fullmatch(r"[^\n]*/ledger: Kernel error: Json error: [^\n]* whilst parsing object", str(error.value))


def test_ledger_is_not_written_into_its_tables(place: str, tmp_path: Path) -> None:
    export_ledger(place, str(tmp_path / "out"), "delta")
    for lake, text in (
        ("out", "out: must be outside of the ledger"),
        ("out/ledger", "out/ledger: must be outside of the tables in"),
    ):
        with pytest.raises(InvalidInput, match=text):
            import_tables(str(tmp_path / "out"), "delta", str(tmp_path / lake))
    assert not list(tmp_path.rglob("out/**/ledger.json"))


@pytest.mark.parametrize(
    ("table", "row", "text"),
    [
        ("state", {"what": "junk", "key": "a"}, "state: KeyError 'junk': must be as an export wrote it"),
        ("state", {"what": "counterparty", "key": "["}, "state: JSONDecodeError .*: must be as an export wrote it"),
        (
            "promises",
            {"promise": "setled", "stated_by": "me"},
            ".*/promises: promise: setled: must be one of .*",
        ),
        (
            "observed",
            {"chain": "a", "events": ["sunt"], "how": "declared", "stated_by": "me"},
            ".*/observed: events: sunt: must be one of .*",
        ),
        (
            "observed",
            {"chain": "a", "revision": 2**40, "how": "declared", "stated_by": "me"},
            ".*/observed: revision: 1099511627776: must be from 0 to 67108862",
        ),
    ],
)
def test_tables_with_other_values_are_refused(tmp_path: Path, table: str, row: dict[str, Any], text: str) -> None:
    write_deltalake(str(tmp_path / "ledger"), pa.Table.from_pylist([ROW]))
    write_deltalake(str(tmp_path / table), pa.Table.from_pylist([row], plain_schema(table)))
    with pytest.raises(InvalidInput, match=f"^{text}$"):
        import_tables(str(tmp_path), "delta", str(tmp_path / "own"))


def test_delta_reads_no_files_outside_its_folder(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "ledger"), pa.Table.from_pylist([ROW]))
    [file] = (tmp_path / "ledger").glob("*.parquet")
    file.rename(tmp_path / "elsewhere.parquet")
    file.symlink_to(tmp_path / "elsewhere.parquet")
    with pytest.raises(InvalidInput, match=r"/ledger: .*parquet: must be a file of the folder$"):
        import_tables(str(tmp_path), "delta", str(tmp_path / "own"))


def test_circle_of_iceberg_snapshots_is_no_export(place: str, tmp_path: Path) -> None:
    export_ledger(place, str(tmp_path), "iceberg")
    for file in (tmp_path / "ledger" / "metadata").glob("*.metadata.json"):
        found = json.loads(file.read_text())
        for snapshot in found.get("snapshots", ()):
            snapshot["parent-snapshot-id"] = snapshot["snapshot-id"]
            snapshot["summary"].pop("causeway-commit", None)
        file.write_text(json.dumps(found))
    with pytest.raises(InvalidInput, match="a table without causeway-commit in its snapshots"):
        export_ledger(place, str(tmp_path), "iceberg")


PAGE = (Path(__file__).resolve().parents[3] / "docs" / "how-to" / "table-formats.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("delta", "--follow"), "--follow: has no effect on delta; must not be given"),
        (("iceberg", "--executor", "spark"), "--executor: has no effect on iceberg; must not be given"),
        (("lake", "--set-aside"), "--set-aside: has no effect on lake; must not be given"),
        (("delat",), '"delat": no such kind of traffic; did you mean delta?; your own: --mapping FILE'),
    ],
)
def test_options_without_effect_and_unknown_kinds_are_refused(
    arguments: tuple[str, ...], error: str, tmp_path: Path, cli: Run
) -> None:
    kind, *options = arguments
    code, out, said = cli("ingest", kind, str(tmp_path), "--lake", str(tmp_path / "own"), *options)
    assert (code, out, said) == (2, "", f"causeway: {error}\n")


def test_page_shows_a_run(recordings: Recordings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Run) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nomad.csv").write_bytes(recordings.bridge_events.read_bytes())
    (tmp_path / "xcm_journeys.jsonl").write_bytes(recordings.xcm_journeys.read_bytes())
    assert cli("ingest", "bridge-events", "nomad.csv", "--lake", "my-ledger")[0] == 0
    steps = re.findall(r"^\$ causeway (.*)\n((?:(?!\$|```).*\n)+)", PAGE, re.M)
    assert len(steps) == 5
    for arguments, output in steps:
        assert cli(*arguments.split())[:2] == (0, output), arguments
    one, two = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(one, {})
        exec(two, {})
    assert re.search(r"received +│ +11432 ", printed.getvalue()) and printed.getvalue().endswith("\n22827\n")


def test_iceberg_metadata_reaches_no_files_and_classes_outside_its_folder(place: str, tmp_path: Path) -> None:
    """A stranger's catalog may name any file of this machine, and Python classes."""
    out, away = tmp_path / "out", tmp_path / "away"
    export_ledger(place, str(out), "iceberg")
    away.mkdir()
    plain = SqlCatalog(NAMESPACE, uri=f"sqlite:///{out}/{CATALOG_FILE}", warehouse=f"file://{out}")
    plain.drop_table(f"{NAMESPACE}.value")
    plain.create_table(f"{NAMESPACE}.value", plain_schema("value"), location=f"file://{away}/value")
    error = f"{away}/value/metadata/.*json.*: must be a file of {out}"
    for call in (
        lambda: import_tables(str(out), "iceberg", str(tmp_path / "ledger")),
        lambda: export_ledger(place, str(out), "iceberg"),
    ):
        with pytest.raises(InvalidInput, match=error):
            call()
    plain.drop_table(f"{NAMESPACE}.value")
    with plain.load_table(f"{NAMESPACE}.ledger").transaction() as transaction:
        transaction.set_properties({"py-harmless": "module.Class"})
    with pytest.raises(InvalidInput, match="out/ledger: properties must name no Python classes"):
        import_tables(str(out), "iceberg", str(tmp_path / "ledger"))
