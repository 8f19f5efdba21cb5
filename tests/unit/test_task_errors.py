"""What is said of a Spark task that failed: what a user can mend comes back as it is, Java stays where it was."""

from __future__ import annotations

import errno
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from causeway.model.errors import InvalidInput
from causeway.pipeline.layout import LakeError
from causeway.pipeline.ledger_tasks import rows_of, shown_in
from causeway.pipeline.task_errors import TaskFailed, python_error, spark_tasks, told_places

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


def test_a_python_error_and_the_cause_of_a_java_one_are_found() -> None:
    assert python_error(IN_PYTHON) == "ValueError: no such number"
    assert python_error("one line") == "one line" and python_error("") == "unknown"
    with pytest.raises(TaskFailed, match=r"^a task failed: ValueError: no such number$"), spark_tasks():
        raise PySparkException(IN_PYTHON)


def test_a_file_that_spark_cannot_read_is_named_without_java() -> None:
    with pytest.raises(LakeError) as caught, spark_tasks():
        raise PySparkException(IN_A_FILE)
    text = "lake: Encountered error while reading file file:///l/a.parquet.: don't know what type: 15"
    assert str(caught.value) == text


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EMFILE])
def test_what_a_user_can_mend_comes_back_from_a_task(number: int) -> None:
    def work(bucket: int) -> Any:
        raise OSError(number, "no", "heights/x")

    with pytest.raises(InvalidInput, match=r"^(heights/x: no|no: the system gives no more)"):
        list(shown_in(pa.Table.from_batches(rows_of(0, work)), dict))
    with pytest.raises(OSError, match="no"), told_places():
        raise OSError(errno.EIO + 1_000, "no", "heights/x")
