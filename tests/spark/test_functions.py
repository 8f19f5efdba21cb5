"""Functions on DataFrames equal the tables, figures and audits of a ledger ingested in process."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import causeway as cw
import causeway.spark as cs
from causeway.analysis.tracing import MessageTrace
from causeway.audit.engine import CheckVerdict
from causeway.ledger.ingest.ingest import ingest_files
from causeway.ledger.ingest.mapping import load_mapping
from causeway.ledger.schema import TABLES
from tests.recordings import Recordings
from tests.support.common.command_line import Run, command_line


def _read_journeys(spark: SparkSession, path: str) -> DataFrame:
    """Read journeys, with a column that the mapping names and that no event of the recording has."""
    absent = F.lit(None).cast("string")
    return spark.read.json(path).withColumn("origin", F.col("origin").withField("blockNumber", absent))


SOURCES: dict[str, tuple[Callable[[Recordings], Path], Callable[[SparkSession, str], DataFrame]]] = {
    "bridge-events": (
        lambda recordings: recordings.bridge_events,
        lambda spark, path: spark.read.csv(path, header=True),
    ),
    "ibc-packets": (lambda recordings: recordings.hub_packets, lambda spark, path: spark.read.parquet(path)),
    "xcm-journeys": (lambda recordings: recordings.xcm_journeys, _read_journeys),
}
PLACES = ("source_file", "source_row")
"""Columns of a ledger that name the place of a record, a file or a partition."""


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    yield from command_line(capsys, tmp_path, monkeypatch)


def rows_of(table: pa.Table | DataFrame) -> list[str]:
    """Return the rows of a table as texts, in the order of the texts."""
    found = table if isinstance(table, pa.Table) else table.toArrow()
    return sorted(
        repr({name: _plain(value) for name, value in row.items() if name not in PLACES}) for row in found.to_pylist()
    )


def checks_of(checks: Mapping[str, CheckVerdict]) -> dict[str, CheckVerdict]:
    """Return verdicts without the places of their examples."""
    return {
        name: replace(each, first=_unplaced(each.first), worst=_unplaced(each.worst)) for name, each in checks.items()
    }


def _unplaced(finding: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (finding or {}).items() if name not in PLACES}


def steps_of(found: MessageTrace) -> list[list[tuple[Any, ...]]]:
    """Return the steps of each history, without their places."""
    return [[(step.event, step.chain, step.height, step.time) for step in life.steps] for life in found.lives]


def _plain(value: Any) -> Any:
    """Return the whole number that a decimal of Spark is."""
    return int(value) if type(value).__name__ == "Decimal" else value


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        ("bridge-events", 1_000),
        ("xcm-journeys", None),
        pytest.param("bridge-events", None, marks=pytest.mark.slow),
        pytest.param("ibc-packets", None, marks=pytest.mark.slow),
    ],
)
def test_recorded_traffic_of_a_frame_equals_that_of_its_file(
    kind: str, lines: int | None, recordings: Recordings, spark: SparkSession, tmp_path: Path
) -> None:
    file, read = SOURCES[kind]
    path = file(recordings)
    if lines is not None:
        text = "".join(path.read_text().splitlines(keepends=True)[:lines])
        path = tmp_path / path.name
        path.write_text(text)
    ingest_files(str(path), str(tmp_path / "ledger"), load_mapping(kind), executor="in_process")
    expected = cw.open(tmp_path / "ledger")
    with cs.ingest(read(spark, str(path)), kind, folder=tmp_path) as ledger:
        for name in TABLES:
            assert rows_of(getattr(ledger, name).arrow()) == rows_of(getattr(expected, name).arrow()), name
        audited = cs.audit(ledger)
        assert checks_of(audited.checks) == checks_of(expected.audit().checks)
        assert len(repr(audited).splitlines()) == 2 + len(audited.checks)
        for function in (cs.outcomes, cs.calls, cs.latency, cs.backlog):
            name = "messages" if function is cs.outcomes else function.__name__
            assert rows_of(function(ledger)) == rows_of(getattr(expected, name).arrow()), name
        message = next(iter(expected.messages.head(1)))
        name = message["message_id"] or f"{message['lane']}/{message['index']}"
        assert steps_of(cs.trace(ledger, name)) == steps_of(expected.trace(name))
    assert not [*tmp_path.glob("causeway-*")]


def test_trace_keeps_no_files(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.createDataFrame(
        [("p", "x", 1, "request", "sent")], "protocol string, lane string, index int, kind string, event string"
    )
    assert [life.outcome for life in cs.trace(rows, "x/1", folder=tmp_path).lives] == ["pending"]
    assert not [*tmp_path.iterdir()]
    with pytest.raises(InvalidInput, match=r"^x/2: no such message; allowed: its id, lane and index, "):
        cs.trace(rows, "x/2", folder=tmp_path)
    with pytest.raises(InvalidInput, match=r"^message: empty; allowed: its id, lane and index, "):
        cs.trace(rows, "", folder=tmp_path)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("function", [cs.audit, cs.outcomes, cs.calls, cs.latency, cs.backlog])
def test_bad_events_are_refused_before_a_job(function: Callable[[DataFrame], Any], spark: SparkSession) -> None:
    before = spark.sparkContext.statusTracker().getJobIdsForGroup(None)
    with pytest.raises(InvalidInput, match=r"^ledger: there is no column kind; needed are protocol, kind, event$"):
        function(spark.createDataFrame([("p", "sent")], "protocol string, event string"))
    assert spark.sparkContext.statusTracker().getJobIdsForGroup(None) == before


def test_stored_ledger_takes_no_further_tables_and_ends(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "causeway.spark")
    row = ("p", "a", "b", "1", 1, "request", "sent", "a")
    columns = "protocol string, source string, destination string, lane string, index int, kind string, event string"
    with cs.store(spark.createDataFrame([row], f"{columns}, chain string"), folder=tmp_path) as ledger:
        outcomes = cs.outcomes(ledger)
        assert outcomes.select("outcome").collect()[0]["outcome"] == "pending"
        cs.audit(ledger)
        rows = {record.__dict__["job"]: record.__dict__["counts"].get("rows") for record in caplog.records}
        for job in ("write ledger", "ingest, sort buckets, 1 task", "audit, first pass, 4 buckets"):
            assert rows[job] == 1
        with pytest.raises(
            InvalidInput, match=r"^observed: the ledger is stored already; give it to the function that"
        ):
            cs.audit(ledger, observed=ledger.observed.arrow())
    with pytest.raises(InvalidInput, match="was closed; store the DataFrames again"):
        cs.outcomes(ledger)
    with pytest.raises(PySparkException, match="was closed; store the DataFrames again"):
        outcomes.count()
    assert not [*tmp_path.iterdir()]


def test_failed_store_leaves_no_folder(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.createDataFrame([("p", "request", "sunt")], "protocol string, kind string, event string")
    with pytest.raises(InvalidInput, match=r"^ledger: event: sunt: must be one of sent"):
        cs.store(rows, folder=tmp_path)
    assert not [*tmp_path.iterdir()]


THROUGH_CONNECT = """
import json, sys
from causeway_proofs.errors import InvalidInput
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
import causeway as cw
import causeway.spark as cs
session = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
found = cs.audit(cs.ingest(session.read.csv(sys.argv[2], header=True), "bridge-events"))
ledger = cw.open(sys.argv[3])
events = ledger.ledger.spark(session)
stored = cs.store(events, observed=ledger.observed.arrow(), promises=ledger.promises.arrow())
outcomes = {row["outcome"]: row["count"] for row in cs.outcomes(stored).groupBy("outcome").count().collect()}
again = cs.audit(stored)
lanes = found.lanes.select("sent").toArrow().num_rows
errors = []
def note(call):
    try:
        call()
    except InvalidInput as error:
        errors.append(str(error))
note(lambda: cs.audit(events.select("none")))
note(lambda: cs.audit(events.withColumn("index", F.udf(lambda index: [][0], "int")("index"))))
cs.store(events.limit(1), folder=sys.argv[4] + "/new/folder").close()
session.stop()
note(lambda: cs.audit(events))
note(lambda: cs.outcomes(stored))
note(lambda: found.sums)
print(json.dumps([str(type(session)), found.audit.sentence(), again.audit.sentence(), outcomes, lanes, errors]))
"""

CONNECT_ERRORS = (
    r"ledger: cannot be read: \[UNRESOLVED_COLUMN.*`none` cannot be resolved",
    "ledger: cannot be read: IndexError: list index out of range$",
    *3 * ("Spark session: was stopped; open another one",),
)


@pytest.mark.slow
def test_functions_run_in_a_session_of_somebody_else_through_connect(recordings: Recordings, tmp_path: Path) -> None:
    ingest_files(str(recordings.bridge_events), str(tmp_path / "ledger"), load_mapping("bridge-events"))
    expected = cw.open(tmp_path / "ledger")
    script = tmp_path / "client.py"
    script.write_text(THROUGH_CONNECT)
    command = [sys.executable, str(script), "local[2]", str(recordings.bridge_events), str(tmp_path / "ledger")]
    command.append(str(tmp_path))
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    kind, ingested, stored, outcomes, lanes, errors = json.loads(done.stdout.splitlines()[-1])
    assert "connect" in kind and ingested == stored == expected.audit().sentence
    assert outcomes == {"delivered": 11_416, "pending": 1} and lanes == expected.lanes.arrow().num_rows
    for error, text in zip(errors, CONNECT_ERRORS, strict=True):
        assert re.match(text, error) and len(error.splitlines()) == 1


def test_tables_of_a_catalog_are_audited_by_command(
    cli: Run, spark: SparkSession, recordings: Recordings, tmp_path: Path
) -> None:
    ingest_files(str(recordings.bridge_events), str(tmp_path / "ledger"), load_mapping("bridge-events"))
    expected = cw.open(tmp_path / "ledger")
    for name in ("ledger", "observed", "promises"):
        getattr(expected, name).spark(spark).createOrReplaceTempView(f"bridge_{name}")
    tables = ["--table", "bridge_ledger", "--table", "observed=bridge_observed", "--table", "promises=bridge_promises"]
    code, out, _ = cli("audit", *tables, "--folder", tmp_path, "--json")
    assert (code, json.loads(out)["sentence"]) == (1, expected.audit().sentence)
    spark.sql(
        "select protocol, kind, event, cast(lane || 'x' as int) index from bridge_ledger"
    ).createOrReplaceTempView("bridge_wrong")
    spark.conf.set("spark.sql.catalog.lost", "org.example.NoCatalog")
    for arguments, error in {
        ("--table", "lost.events"): "--table lost.events: ",
        ("--table", "bridge_wrong"): "--table bridge_wrong: cannot be read: [CAST_INVALID_INPUT] The value ",
        ("--table", "bridge_observed"): "--table bridge_observed: there is no column kind; needed are protocol, kind,",
        ("--table", "parquet.`/none/day=5`"): "--table parquet.`/none/day=5`: [PATH_NOT_FOUND]",
        ("--table", "none"): "--table none: [TABLE_OR_VIEW_NOT_FOUND]",
        ("--table", "sums=a"): "--table sums=a: allowed: TABLE, or KIND=TABLE (kinds: ledger, observed, promises,",
        ("--table", "observed=a"): "--table: no table of events; give one as --table TABLE",
        ("--table", "a", "--table", "b"): "--table b: ledger is a already",
        ("--table", "a", "--reexecute"): "--reexecute: not with --table",
        ("x", "--table", "a"): "LAKE, --table: give one of them",
        (): "LAKE, --table: give one of them",
        ("x", "--folder", "y"): "--folder: only with --table",
    }.items():
        code, _, err = cli("audit", *arguments)
        assert code == 2 and err.startswith(f"causeway: {error}") and len(err.splitlines()) == 1
