"""Jobs of any session: only Spark's public API is used, and unshared folders are found before the first job."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from causeway_proofs.errors import InvalidInput
from pyspark import TaskContext
from pyspark.sql import SparkSession

from causeway.cluster import connectivity, jobs
from causeway.cluster.masters import is_local
from causeway.cluster.tasks import TaskFailed
from causeway.storage.files import Storage

SOURCES = Path(__file__).resolve().parents[2] / "src" / "causeway"
PRIVATE = re.compile(r"\._(?:jvm|jsc|sc|gateway|jdf|jrdd|jsession|jsparkSession|jseq|jmap|temp_dir|instantiated\w*)\b")


def test_sources_use_no_private_name_of_spark() -> None:
    found = {str(path): PRIVATE.findall(path.read_text(encoding="utf-8")) for path in SOURCES.rglob("*.py")}
    assert not {path: names for path, names in found.items() if names}
    assert PRIVATE.search("session.sparkContext._jvm.java")


def test_jobs_have_descriptions_and_restore_those_of_the_caller(spark: SparkSession) -> None:
    context, seen = spark.sparkContext, list[str | None]()
    context.setJobDescription("mine")
    with jobs.spark_jobs(spark, "audit, first pass, 4 buckets"):
        seen.append(context.getLocalProperty("spark.job.description"))
    seen.append(context.getLocalProperty("spark.job.description"))
    context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
    assert seen == ["causeway: audit, first pass, 4 buckets", "mine"]


def test_jobs_log_their_counts_and_failed_ones_nothing(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "causeway.spark")
    with jobs.spark_jobs(spark, "audit, first pass, 64 buckets") as counts:
        counts["rows"] += 1_234_567
    with pytest.raises(TaskFailed), jobs.spark_jobs(spark, "a table"):
        spark.table("none_such").collect()
    (record,) = caplog.records
    assert re.fullmatch(r"audit, first pass, 64 buckets: 1,234,567 rows, \d+\.\d s", record.getMessage())
    assert (record.__dict__["job"], record.__dict__["counts"]) == ("audit, first pass, 64 buckets", {"rows": 1_234_567})


def test_tasks_over_inputs_have_a_description(spark: SparkSession) -> None:
    def description(item: int) -> str | None:
        context = TaskContext.get()
        return None if context is None else context.getLocalProperty("spark.job.description")

    assert jobs.run_tasks(description, [1, 2], lambda: spark, "scan") == ["causeway: scan, 2 tasks"] * 2
    assert jobs.run_tasks(description, [1, 2], None, "scan") == [None, None]


def test_errors_of_jobs_have_no_trace_of_java(spark: SparkSession) -> None:
    with pytest.raises(TaskFailed, match=r"^a task failed: .*none_such"), jobs.spark_jobs(spark, "a table"):
        spark.table("none_such").collect()


def test_parallelism_is_that_of_a_table_of_numbers(spark: SparkSession) -> None:
    assert jobs.default_parallelism(spark) == spark.range(1_000).rdd.getNumPartitions()


@pytest.mark.parametrize(
    ("master", "local"),
    [("local", True), ("local[*]", True), ("local[2,4]", True), ("local-cluster[2,1,1024]", False), ("yarn", False)],
)
def test_local_cluster_is_not_one_process(master: str, local: bool) -> None:
    assert is_local(master) is local


def test_folder_that_workers_do_not_see_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of the workers is another one, as on another machine."""
    monkeypatch.setattr(connectivity, "is_one_process", lambda session: False)
    connectivity.require_shared(spark, Storage(str(tmp_path)), "lake")
    assert not [*tmp_path.iterdir()]

    class Elsewhere(Storage):
        def __reduce__(self) -> tuple[type[Storage], tuple[str]]:
            return Storage, (f"{self.uri}/elsewhere",)

    with pytest.raises(InvalidInput, match=rf"^lake: {tmp_path}: the worker \S+ does not see it; give a folder that"):
        connectivity.require_shared(spark, Elsewhere(str(tmp_path)), "lake")
    assert not [*tmp_path.iterdir()]
