"""Checks of a lake's storage: from this process, from Spark through Hadoop, and from the workers of a cluster."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from causeway_proofs.errors import InvalidInput

from causeway.cluster.java import SPARK_FOLDER
from causeway.cluster.jobs import default_parallelism, is_one_process, spark_jobs
from causeway.cluster.tasks import extract_python_error
from causeway.storage.files import Storage, first_line
from causeway.storage.layout import HEAD_FILE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PACKAGES = {
    "s3a": "org.apache.hadoop:hadoop-aws:{hadoop}",
    "gs": "com.google.cloud.bigdataoss:gcs-connector:hadoop3-2.2.26",
    "abfs": "org.apache.hadoop:hadoop-azure:{hadoop}",
    "abfss": "org.apache.hadoop:hadoop-azure:{hadoop}",
}
"""Packages that Spark needs on its class path, by URI scheme."""


def check_reachable(storage: Storage) -> None:
    """Check that the storage answers.

    Args:
        storage: The storage.

    Raises:
        InvalidInput: It does not answer.
    """
    try:
        storage.exists(HEAD_FILE)
    except NotADirectoryError:
        raise InvalidInput(f"lake: {storage.uri} cannot be written: a part of the path is a file") from None
    except OSError as error:
        raise InvalidInput(f"lake: {storage.uri} cannot be opened: {first_line(error)}") from None


def check_readable(session: SparkSession, storage: Storage) -> None:
    """Check that Spark can read the storage.

    Args:
        session: The session.
        storage: The storage.

    Raises:
        InvalidInput: It cannot; the text names a missing package.
    """
    if storage.is_local:
        return
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    uri = storage.absolute(HEAD_FILE)
    try:
        session.read.text(uri)  # Spark looks for the file at once, and reads it later
    except (PySparkException, Py4JJavaError) as error:
        if isinstance(error, PySparkException) and error.getCondition() == "PATH_NOT_FOUND":
            return  # the place answers; the lake has no commit yet
        package = _PACKAGES.get(uri.split("://")[0], "").format(hadoop=_hadoop_version())
        cause = extract_python_error(str(error))
        advice = f"; give Spark the package {package} (spark.jars.packages)" if package else ""
        raise InvalidInput(f"lake: {storage.uri}: Spark cannot open {uri}{advice}: {cause}") from None


def _hadoop_version() -> str:
    """Return the Hadoop version of this PySpark, by its jar."""
    jars = [jar.stem for jar in (SPARK_FOLDER / "jars").glob("hadoop-client-api-*.jar")]
    return jars[0].removeprefix("hadoop-client-api-") if jars else "VERSION"


def require_shared(session: SparkSession, storage: Storage, what: str) -> None:
    """Check that this process can write to a place, and that tasks see it.

    Args:
        session: The session.
        storage: The place.
        what: The place in errors, such as ``folder``.

    Raises:
        InvalidInput: It cannot be written, or a worker does not see it.
    """
    token = f"causeway-shared-{uuid.uuid4().hex}"
    try:
        storage.make_folder("")
        storage.create(token, b"")
    except OSError as error:
        is_file = isinstance(error, FileExistsError | NotADirectoryError)
        why = "a part of the path is a file" if is_file else error.strerror or first_line(error)
        raise InvalidInput(f"{what}: {storage.uri}: cannot be written: {why}") from None

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            missing = [] if storage.exists(token) else [socket.gethostname()] * batch.num_rows
            yield pa.RecordBatch.from_pydict({"host": pa.array(missing, pa.string())})

    try:
        if is_one_process(session):
            return
        tasks = default_parallelism(session)
        with spark_jobs(session, f"look for {storage.uri}"):
            rows = session.range(0, tasks, 1, tasks).mapInArrow(look, "host string").collect()
    finally:
        storage.remove(token)
    if rows:
        raise InvalidInput(
            f"{what}: {storage.uri}: the worker {rows[0]['host']} does not see it; "
            "give a folder that driver and workers share, or the URI of an object store"
        )
