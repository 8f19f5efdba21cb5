"""Ledgers with sealed files of invalid content: each command reports them in one line."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings, strategies

from causeway.cli.app import build_app
from causeway.cli.shell import BAD_INPUT, FAILED, execute
from causeway.ledger.commits import LEDGER_HEAD, LedgerHead, read_ledger_head
from causeway.storage.commit_log import decoded, encoded, head_content, numbered_path
from causeway.storage.files import Storage
from causeway.storage.seals import seal_content
from tests.cli.test_lake_shapes import OTHERS, places, replace_value
from tests.cli.test_stored_parquet import SCENARIO
from tests.support.common.small_lakes import lake_of
from tests.tiers import sized

COMMANDS = ("audit", "check", "backlog", "calls", "ledger")


@pytest.fixture(scope="module")
def pristine_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shapes")
    assert (
        execute(["ingest", "lake", lake_of(folder, SCENARIO), "--lake", str(folder / "l")], build_app, "causeway") == 0
    )
    return folder / "l"


@pytest.fixture
def ledger(pristine_ledger: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine_ledger, tmp_path / "l"))


def last_commit(ledger: Path) -> str:
    head = read_ledger_head(Storage(str(ledger)))
    assert head is not None
    return numbered_path("manifests", head.number)


def rewrite_commit(ledger: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the last commit, and seal it."""
    path = ledger / last_commit(ledger)
    content = decoded(path.read_bytes())
    del content["digest"]
    change(content)
    path.write_bytes(encoded(content))
    digest = decoded(path.read_bytes())["digest"]
    (ledger / LEDGER_HEAD).write_bytes(LedgerHead(int(path.stem), digest).content())


def run_on_ledger(ledger: Path, command: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Run a command, and require one line if it fails; an empty audit is a verdict."""
    capsys.readouterr()
    code = execute([command, str(ledger)], build_app, "causeway")
    found = capsys.readouterr()
    assert code in (0, FAILED, BAD_INPUT), found.err
    assert code != BAD_INPUT or len(found.err.splitlines()) == 1 or "NOT APPLICABLE" in found.out, found
    return code, " ".join((found.out + found.err).split())


@settings(max_examples=sized(25, 2_000), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=strategies.data())
def test_commit_of_another_shape_is_corrupted(
    ledger: Path, capsys: pytest.CaptureFixture[str], data: strategies.DataObject
) -> None:
    kept = {path: (ledger / path).read_bytes() for path in (last_commit(ledger), LEDGER_HEAD)}
    place = data.draw(strategies.sampled_from([*places(decoded(kept[last_commit(ledger)]))]))
    other = data.draw(strategies.sampled_from([places, 7, [], {}, *OTHERS]))
    try:
        if place != ("digest",):
            rewrite_commit(ledger, lambda found: replace_value(found, place, other))
        for command in COMMANDS[:2]:
            run_on_ledger(ledger, command, capsys)
    finally:
        for path, content in kept.items():
            (ledger / path).write_bytes(content)


@pytest.mark.parametrize("buckets", [0, -1, 2**70, None, "2", 1.5, True])
def test_invalid_number_of_buckets_is_corrupted(ledger: Path, buckets: Any, capsys: pytest.CaptureFixture[str]) -> None:
    content = decoded((ledger / "ledger.json").read_bytes())
    del content["digest"]
    (ledger / "ledger.json").write_bytes(encoded({**content, "buckets": buckets}))
    for command in COMMANDS:
        code, output = run_on_ledger(ledger, command, capsys)
        assert code and f"ledger.json: buckets: {buckets!r:.80}: must be from 1 to " in output


@pytest.mark.parametrize(("name", "other"), [("number", "1"), ("number", None), ("commit", 7), ("commit", None)])
def test_head_of_another_shape_is_corrupted(
    ledger: Path, name: str, other: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    content = decoded((ledger / LEDGER_HEAD).read_bytes().rstrip())
    del content["digest"]
    (ledger / LEDGER_HEAD).write_bytes(head_content({**content, name: other}))
    for command in COMMANDS:
        code, output = run_on_ledger(ledger, command, capsys)
        assert code and f"ledger.head has invalid content: {name}: {other!r} is no " in output


@pytest.mark.parametrize(
    ("name", "other", "text"),
    [
        ("rows", 10**6, "rows, and 1,000,000 were written"),
        ("bucket", 10**6, "names a file of bucket 1000000, and there are "),
    ],
)
def test_file_that_differs_from_its_commit_is_corrupted(
    ledger: Path, name: str, other: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def change(found: dict[str, Any]) -> None:
        for file in found["files"]:
            file.update({name: other} if file["table"] == "ledger" else {})

    rewrite_commit(ledger, change)
    for command in COMMANDS:
        code, output = run_on_ledger(ledger, command, capsys)
        assert code and text in output, output


def of(rows: pa.Table, name: str, column: Any) -> pa.Table:
    return rows.set_column(rows.column_names.index(name), name, column)


def no_text(rows: pa.Table, name: str) -> pa.Table:
    bad = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff\xfe"], pa.binary()).buffers())
    return of(rows, name, pa.chunked_array([bad.take(pa.array([0] * len(rows)))]))


WRONG: dict[str, tuple[Callable[[pa.Table], pa.Table], str]] = {
    "a column is missing": (lambda rows: rows.drop_columns("event"), "has no column event"),
    "numbers are texts": (lambda rows: of(rows, "index", pa.array(["x"] * len(rows))), "has string in column index"),
    "times are numbers": (lambda rows: of(rows, "time", pa.array([7] * len(rows))), "has int64 in column time"),
    "events are missing": (
        lambda rows: of(rows, "event", pa.nulls(len(rows), pa.string())),
        "has another content than it can have: event is null in a row",
    ),
    "texts are none": (lambda rows: no_text(rows, "message_id"), "has another content than it can have: "),
}


@pytest.mark.parametrize(("wrong", "text"), WRONG.values(), ids=WRONG)
def test_file_with_other_columns_is_corrupted(
    ledger: Path, wrong: Callable[[pa.Table], pa.Table], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files = decoded((ledger / last_commit(ledger)).read_bytes())["files"]
    number = next(number for number, file in enumerate(files) if file["table"] == "ledger")
    path, sink = files[number]["path"], io.BytesIO()
    pq.write_table(wrong(pq.read_table(ledger / path)), sink)
    (ledger / path).write_bytes(sink.getvalue())
    rewrite_commit(ledger, lambda found: found["files"][number].update(seal=seal_content(sink.getvalue())))
    for command in COMMANDS:
        code, output = run_on_ledger(ledger, command, capsys)
        # Readers that do not use the column need not know.
        assert (code and f"{path} {text}" in output) or (code == 0 and command in ("backlog", "calls")), output
