"""Ledgers as tables of Delta Lake in an object store, and of Iceberg in a catalog that the user configured."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import boto3
import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from causeway.ledger.store import open_ledger
from causeway.ledger.table_formats import iceberg
from causeway.ledger.table_formats.delta import open_delta
from causeway.ledger.table_formats.export import export_ledger
from causeway.ledger.table_formats.format_table import COMMIT, DIGEST, plain_schema
from causeway.ledger.table_formats.ingest import import_tables
from causeway.storage.files import Storage
from tests.cli.test_cli import Run, cli
from tests.ledger.table_formats.ledgers import NAMES, ledger_rows, write_ledger

__all__ = ["cli"]

BUCKET = "tables"
CATALOG = "catalog:mine/traffic.bridge"


def answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module", autouse=True)
def store() -> Iterator[str]:
    """Run an S3 store in a process of its own: ``deltalake`` lists without releasing Python's lock."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = [sys.executable, "-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p", str(port)]
    url = f"http://127.0.0.1:{port}"
    server = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {
                "AWS_ACCESS_KEY_ID": "key",
                "AWS_SECRET_ACCESS_KEY": "secret",
                "AWS_REGION": "us-east-1",
                "AWS_ENDPOINT_URL": url,
                "AWS_ALLOW_HTTP": "true",
            }.items():
                patch.setenv(name, value)
            deadline = time.monotonic() + 60
            while not answers(port):
                assert server.poll() is None and time.monotonic() < deadline
                time.sleep(0.1)
            boto3.client("s3", endpoint_url=url, region_name="us-east-1").create_bucket(Bucket=BUCKET)
            yield url
    finally:
        server.kill()
        server.wait()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a ledger of three commits."""
    return write_ledger(tmp_path_factory.mktemp("export"))


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Configure a catalog in SQLite, with its files in the object store."""
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/mine.db", "warehouse": f"s3://{BUCKET}/{tmp_path.name}"}
    for name, value in properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__MINE__{name.upper()}", value)
    return properties


def own_catalog(properties: dict[str, str]) -> SqlCatalog:
    """Open the catalog as another program does."""
    store = {"s3.region": "us-east-1", "s3.endpoint": os.environ["AWS_ENDPOINT_URL"]}
    return SqlCatalog("mine", **properties, **store)


def same_ledgers(one: str, other: str) -> None:
    for table in NAMES:
        assert ledger_rows(open_ledger(one), table) == ledger_rows(open_ledger(other), table), table


def test_delta_tables_in_a_store_equal_the_ledger(place: str, tmp_path: Path, cli: Run) -> None:
    out, copy = f"s3://{BUCKET}/tables", str(tmp_path / "copy")
    assert cli("export", place, "--format", "delta", "--out", out)[:2] == (
        0,
        f"{out}: commits 0 to 2: 27 snapshots, 61 rows\n",
    )
    again = json.loads(cli("export", place, "--format", "delta", "--out", f"{out}/", "--json")[1])
    assert again["first"] is None and again["snapshots"] == 0
    table = DeltaTable(f"{out}/ledger")
    assert [int(version[COMMIT]) for version in table.history()] == [2, 1, 0]
    code, text, _ = cli("ingest", "delta", out, "--lake", copy, "--buckets", "4")
    assert code == 0 and text.startswith(f"{copy}: 5 rows of {out}/ledger\n")
    same_ledgers(place, copy)


@pytest.mark.parametrize("uri", [f"s3a://{BUCKET}/my tables", "file://{folder}/my tables", f"s3://{BUCKET}"])
def test_other_uris_are_places_of_delta_tables(place: str, tmp_path: Path, uri: str) -> None:
    out = uri.format(folder=tmp_path)
    export_ledger(place, out, "delta")
    import_tables(out, "delta", str(tmp_path / "copy"))
    same_ledgers(place, str(tmp_path / "copy"))


def test_files_of_another_prefix_are_refused(place: str, tmp_path: Path) -> None:
    out = f"s3://{BUCKET}/inside"
    export_ledger(place, out, "delta")
    log, file = f"{out}/ledger/_delta_log", "00000000000000000000.json"
    text = Storage(log).read_bytes(file).decode()
    for other in (f"s3://{BUCKET}/elsewhere/part-", "../value/part-", "%2e%2e/value/part-"):
        Storage(log).put(file, text.replace('"path":"part-', f'"path":"{other}').encode())
        with pytest.raises(InvalidInput, match=rf"^{out}/ledger: .*part-"):
            import_tables(out, "delta", str(tmp_path / "copy"))


def test_tables_of_a_users_catalog_equal_the_ledger(
    place: str, tmp_path: Path, catalog: dict[str, str], cli: Run
) -> None:
    copy = str(tmp_path / "copy")
    assert cli("export", place, "--format", "iceberg", "--out", CATALOG)[:2] == (
        0,
        f"{CATALOG}: commits 0 to 2: 27 snapshots, 61 rows\n",
    )
    assert export_ledger(place, CATALOG, "iceberg").first is None
    table = own_catalog(catalog).load_table("traffic.bridge.ledger")
    assert table.location().startswith(f"s3://{BUCKET}/")
    assert [int(each.summary[COMMIT] or -1) for each in table.snapshots() if each.summary is not None] == [0, 1, 2]
    assert cli("ingest", "iceberg", CATALOG, "--lake", copy, "--buckets", "4")[0] == 0
    same_ledgers(place, copy)


def test_one_of_two_concurrent_exports_to_a_store_fails() -> None:
    schema = plain_schema("ledger")
    one, other = (open_delta(f"s3://{BUCKET}/race", ["ledger"], create=True)["ledger"] for _ in range(2))
    for number, error in enumerate((None, "another process wrote this table meanwhile; run again", None)):
        commit = {COMMIT: str(number), DIGEST: "0" * 64}
        one.write(schema.empty_table().to_reader(), commit, replace=False)
        if error is None:
            other = open_delta(f"s3://{BUCKET}/race", ["ledger"], create=True)["ledger"]
        else:
            with pytest.raises(InvalidInput, match=error):
                other.write(schema.empty_table().to_reader(), commit, replace=False)


def test_tables_and_ledger_in_a_store_are_apart(place: str, tmp_path: Path) -> None:
    ledger = f"s3://{BUCKET}/own/ledger"
    for path in Storage(place).walk():
        Storage(ledger).put(path, Storage(place).read_bytes(path))
    assert export_ledger(ledger, f"s3://{BUCKET}/own/tables", "delta").last == 2
    with pytest.raises(InvalidInput, match="own/ledger/x: must be outside of the ledger s3a://tables/own/ledger"):
        export_ledger(f"s3a://{BUCKET}/own/ledger", f"{ledger}/x", "delta")
    with pytest.raises(InvalidInput, match="own/tables/value: must be outside of the tables in s3://tables/own/tables"):
        import_tables(f"s3://{BUCKET}/own/tables", "delta", f"s3://{BUCKET}/own/tables/value")
    with pytest.raises(InvalidInput, match=r"has ledger\.json: must be an empty folder"):
        export_ledger(place, ledger, "delta")
    with pytest.raises(InvalidInput, match="no delta table ledger is there"):
        import_tables(f"s3://{BUCKET}/nothing", "delta", str(tmp_path / "own"))


def test_tables_of_other_origin_in_a_catalog_are_refused(place: str, catalog: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="catalog:mine/other: no iceberg table ledger is there"):
        import_tables("catalog:mine/other", "iceberg", str(tmp_path / "own"))
    own = own_catalog(catalog)
    own.create_namespace("other")
    rows = pa.table({"event": ["sent"]})
    table = own.create_table("other.ledger", rows.schema)
    with pytest.raises(InvalidInput, match=r"other/ledger: has other columns than an export; must be a new table$"):
        export_ledger(place, "catalog:mine/other", "iceberg")
    table.append(rows)
    with pytest.raises(InvalidInput, match=r"other/ledger: a table without causeway-commit in its snapshots"):
        export_ledger(place, "catalog:mine/other", "iceberg")


@pytest.mark.parametrize(
    ("out", "kind", "error"),
    [
        (
            "catalog:mien/a",
            "iceberg",
            r'catalog "mien": no such catalog; did you mean mine\? \(.pyiceberg.yaml or PY',
        ),
        ("catalog:mine", "iceberg", "catalog:mine: must be catalog:NAME/NAMESPACE, such as catalog:prod/analytics"),
        ("catalog:mine/a..b", "iceberg", "must be catalog:NAME/NAMESPACE"),
        ("catalog:mine/a", "delta", "catalog:mine/a: must be a folder or a URI for delta; a catalog has tables of ice"),
    ],
)
@pytest.mark.usefixtures("catalog")
def test_wrong_places_are_refused(place: str, out: str, kind: str, error: str) -> None:
    with pytest.raises(InvalidInput, match=error):
        export_ledger(place, out, kind)
    with pytest.raises(InvalidInput, match=error):
        import_tables(out, kind, "own")


def test_error_of_a_catalogs_package_is_one_line(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYICEBERG_CATALOG__GLUED__TYPE", "glue")
    with pytest.raises(InvalidInput, match=r"^catalog glued: .*[Yy]ou must specify a region\.?$"):
        export_ledger(place, "catalog:glued/a", "iceberg")


@pytest.mark.usefixtures("catalog")
def test_stores_and_catalogs_that_do_not_answer_are_reported(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No wait is longer than the limits of the two packages."""
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as closed:
        silent_port, closed_port = silent.getsockname()[1], closed.getsockname()[1]
        closed.close()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{closed_port}")
        with pytest.raises(
            InvalidInput, match=r"s3://tables/x: the store does not answer as it should: .*after 6 retries"
        ):
            export_ledger(place, f"s3://{BUCKET}/x", "delta")
        with pytest.raises(InvalidInput, match=rf"^catalog mine: .* Failed to connect to 127\.0\.0\.1:{closed_port} "):
            export_ledger(place, CATALOG, "iceberg")
        monkeypatch.setenv("PYICEBERG_CATALOG__MINE__TYPE", "rest")
        monkeypatch.setenv("PYICEBERG_CATALOG__MINE__URI", f"http://127.0.0.1:{closed_port}")
        with pytest.raises(InvalidInput, match=r"^catalog mine: .* Connection refused"):
            export_ledger(place, CATALOG, "iceberg")
        monkeypatch.setattr(iceberg, "CATALOG_SECONDS", 0.2)
        monkeypatch.setenv("PYICEBERG_CATALOG__MINE__URI", f"http://127.0.0.1:{silent_port}")
        with pytest.raises(InvalidInput, match=r"^catalog mine: does not answer within 0\.2 s$"):
            export_ledger(place, CATALOG, "iceberg")


class ConfigurationOnly(BaseHTTPRequestHandler):
    """A REST catalog that stops answering after its first request."""

    end = threading.Event()

    def do_GET(self) -> None:
        text = b'{"defaults": {}, "overrides": {}}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_POST(self) -> None:
        self.end.wait(60)

    def log_message(self, *args: object) -> None:
        """Log nothing."""


def test_catalog_that_stops_answering_is_reported(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), ConfigurationOnly)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(iceberg, "CATALOG_SECONDS", 1.0)
    monkeypatch.setenv("PYICEBERG_CATALOG__MINE__URI", f"http://127.0.0.1:{server.server_port}")
    try:
        with pytest.raises(InvalidInput, match=r"^catalog mine: .*Read timed out"):
            export_ledger(place, CATALOG, "iceberg")
    finally:
        ConfigurationOnly.end.set()
        server.shutdown()
        server.server_close()


def test_missing_credentials_and_wrong_configuration_are_reported(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with pytest.raises(InvalidInput, match=f"^s3://{BUCKET}/x: no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET"):
        export_ledger(place, f"s3://{BUCKET}/x", "delta")
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    for text in ("catalog: [a", "a: b: c", ""):
        (tmp_path / ".pyiceberg.yaml").write_text(text)
        with pytest.raises(InvalidInput, match=r"^\.pyiceberg\.yaml: [^\n]+$"):
            export_ledger(place, CATALOG, "iceberg")
    (tmp_path / ".pyiceberg.yaml").write_text(f"catalog:\n  mine:\n    uri: sqlite:///{tmp_path}/no/such.db\n")
    with pytest.raises(InvalidInput, match=r"^catalog mine: .*unable to open database file"):
        export_ledger(place, CATALOG, "iceberg")
    (tmp_path / ".pyiceberg.yaml").write_text("catalog: mine\n")
    with pytest.raises(InvalidInput, match=r"^catalog mine: Catalog configurations needs to be an object"):
        export_ledger(place, CATALOG, "iceberg")
