"""Errors of failed Spark tasks: user errors are unchanged, Java details are omitted."""

from __future__ import annotations

import errno
from typing import Any

import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput
from pyspark.errors import PySparkException

from causeway.cluster.tasks import TaskFailed, convert_spark_errors, convert_storage_errors, extract_python_error
from causeway.ledger.bucket_scan import run_results, task_rows
from causeway.storage.layout import LakeError

IN_PYTHON = """An exception was thrown from the Python worker.
Traceback (most recent call last):
  File "x.py", line 1, in f
ValueError: no such number
	at org.apache.spark.api.python.BasePythonRunner"""
IN_A_FILE = """An error occurred while calling o52.collectToPython.
: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///l/a.parquet.  SQLSTATE: KD001
	at org.apache.spark.sql.errors.QueryExecutionErrors$.cannotReadFilesError
Caused by: java.io.IOException: can not read class PageHeader
	... 1 more
Caused by: shaded.parquet.org.apache.thrift.protocol.TProtocolException: don't know what type: 15
	... 50 more
"""  # noqa: E501 - as Spark writes it


def test_python_errors_and_causes_of_java_errors_are_found() -> None:
    assert extract_python_error(IN_PYTHON) == "ValueError: no such number"
    assert extract_python_error("one line") == "one line" and extract_python_error("") == "unknown"
    with pytest.raises(TaskFailed, match=r"^a task failed: ValueError: no such number$"), convert_spark_errors():
        raise PySparkException(IN_PYTHON)


def test_file_unreadable_for_spark_is_named_without_java() -> None:
    with pytest.raises(LakeError) as caught, convert_spark_errors():
        raise PySparkException(IN_A_FILE)
    text = "lake: Encountered error while reading file file:///l/a.parquet.: don't know what type: 15"
    assert str(caught.value) == text


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EMFILE])
def test_user_error_is_returned_from_a_task(number: int) -> None:
    def work(bucket: int) -> Any:
        raise OSError(number, "no", "heights/x")

    with pytest.raises(InvalidInput, match=r"^(heights/x: no|no: the system gives no more)"):
        list(run_results(pa.Table.from_batches(task_rows(0, work)), dict))
    with pytest.raises(OSError, match="no"), convert_storage_errors():
        raise OSError(errno.EIO + 1_000, "no", "heights/x")
