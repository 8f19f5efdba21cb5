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

THROUGH_CONNECT = """
  An exception was thrown from the Python worker. Please see the stack trace below.
[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "x.py", line 4, in <lambda>
    bad = udf(lambda x: 1 // 0, "int")
ZeroDivisionError: division by zero
 SQLSTATE: 38000"""


def test_python_errors_and_causes_of_java_errors_are_found() -> None:
    assert extract_python_error(IN_PYTHON) == "ValueError: no such number"
    assert extract_python_error(THROUGH_CONNECT) == "ZeroDivisionError: division by zero"
    assert extract_python_error("cannot be resolved. SQLSTATE: 42703;\n'Project") == "cannot be resolved."
    plan = "\n'Project ['nope]\n+- Union\n   :- Project\n   :  +- Range"
    unresolved = f"[UNRESOLVED] A column cannot be resolved. SQLSTATE: 42703;{plan}"
    assert extract_python_error(unresolved) == "[UNRESOLVED] A column cannot be resolved."
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


@pytest.mark.parametrize(
    "text", ["Lost task 0.3: ExecutorLostFailure (executor 1 exited)", "in run_pickled\nKeyError: 1"]
)
def test_errors_of_a_users_query_are_not_those_of_a_task(text: str) -> None:
    with pytest.raises(TaskFailed, match=r"^a task failed: "), convert_spark_errors("observed"):
        raise PySparkException(text)
    with pytest.raises(InvalidInput, match=r"^Spark session: was stopped; open another one"), convert_spark_errors():
        raise PySparkException("(x) [INVALID_HANDLE.SESSION_CLOSED] The handle 4f59 is invalid.")
    with pytest.raises(InvalidInput, match=r"^observed: cannot be read: overflow$"), convert_spark_errors("observed"):
        raise PySparkException("overflow SQLSTATE: 22003\nat org.apache.Spark")
