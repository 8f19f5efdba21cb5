"""The progress line of jobs: what it shows, when it is off, and that it leaves the caller's job group alone."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput
from pyspark.sql import SparkSession

from causeway.cluster import progress
from causeway.cluster.jobs import spark_jobs


class Lines(list[str]):
    """A display that keeps all texts."""

    def show(self, text: str) -> None:
        self.append(text)

    close = show


@pytest.mark.parametrize("group", [None, "mine"])
def test_line_counts_the_finished_tasks_of_its_jobs(
    group: str | None, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Pickled with its code: workers whose daemon began in another folder do not import the tests.
    def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        time.sleep(0.2)
        yield from batches

    lines, context = Lines(), spark.sparkContext
    monkeypatch.setattr(progress, "_find_display", lambda: lines)
    monkeypatch.setattr(progress, "_SECONDS", 0.02)
    context.setLocalProperty("spark.jobGroup.id", group)  # type: ignore[arg-type]
    try:
        spark.range(3).collect()  # the caller's own job of this group does not count
        with progress.show_progress("audit"), progress.show_progress("store"), spark_jobs(spark, "4 buckets"):
            spark.range(0, 4, 1, 4).mapInArrow(slow, "id long").collect()
        assert context.getLocalProperty("spark.jobGroup.id") == group
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    assert lines[0] == f"causeway: {'░' * 20}: 4 buckets" and lines[-1] == "causeway: audit: done"
    counted = [line for line in lines if " of " in line]
    assert _done(counted[-1]) >= 2  # Spark reports the end of a task a little later
    assert all(line.endswith(" of 4 tasks: 4 buckets") for line in counted) and counted == sorted(counted, key=_done)


def _done(line: str) -> int:
    return int(line.split(" of ")[0].rpartition(" ")[2])


def test_client_of_connect_is_told_of_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, handlers = Lines(), list[Any]()
    session = SimpleNamespace(registerProgressHandler=handlers.append, removeProgressHandler=handlers.remove)
    monkeypatch.setattr(progress, "_find_display", lambda: lines)
    with progress.show_progress("audit"), progress.watch_tasks(session, None, "4 buckets"):  # type: ignore[arg-type]
        stage = SimpleNamespace(num_tasks=4, num_completed_tasks=3)
        handlers[0](stages=[stage], inflight_tasks=1, operation_id="", done=False)
    assert lines[1] == f"causeway: {'█' * 15}{'░' * 5} 3 of 4 tasks: 4 buckets" and not handlers


def test_line_is_off_without_terminal_or_when_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert progress._find_display() is None
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: True))
    assert isinstance(progress._find_display(), progress.TerminalLine)
    monkeypatch.setenv("CAUSEWAY_PROGRESS", "off")
    assert progress._find_display() is None
    monkeypatch.setenv("CAUSEWAY_PROGRESS", "no")
    with pytest.raises(InvalidInput, match=r"^CAUSEWAY_PROGRESS: no: must be auto or off$"):
        progress._find_display()


def test_line_leaves_that_of_spark_alone(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    context = SimpleNamespace(getConf=lambda: {"spark.ui.showConsoleProgress": "true"})
    monkeypatch.setattr(progress, "_find_display", progress.TerminalLine)
    with progress.show_progress("audit"), progress.watch_tasks(None, context, "4 buckets"):  # type: ignore[arg-type]
        assert capsys.readouterr().err == ""


def test_line_of_a_terminal_is_erased(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "12")
    line = progress.TerminalLine()
    line.show("causeway: 3 of 4 tasks")
    line.close("causeway: audit: done")
    assert capsys.readouterr().err == "\r\x1b[Kcauseway: 3\r\x1b[K\r"
