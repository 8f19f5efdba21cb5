"""Small Spark job whose classes Java archives: ``python -m causeway.spark.archive_job``."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa

from causeway.spark.session import spark_session


def _echo(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def run(master: str, option: str) -> None:
    """Run a job whose classes Java writes to an archive at exit."""
    os.nice(19)
    if sys.platform == "linux":
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # run only when the machine is idle
    extra = {"spark.driver.extraJavaOptions": f'"{option}"'}
    with tempfile.TemporaryDirectory() as folder, spark_session(master, extra=extra) as session:
        rows = session.range(0, 100, 1, 2).mapInArrow(_echo, "id long")
        rows.write.parquet(f"{folder}/rows")
        session.read.parquet(f"{folder}/rows").groupBy("id").count().orderBy("id").collect()


if __name__ == "__main__":
    run(*sys.argv[1:])
