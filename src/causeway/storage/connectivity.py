"""Connectivity checks of a lake's storage: from the engine, and from Spark through Hadoop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from causeway_proofs.errors import InvalidInput

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

    uri = storage.absolute("")
    jvm = session.sparkContext._jvm
    java = session.sparkContext._jsc
    assert jvm is not None
    try:
        path = jvm.org.apache.hadoop.fs.Path(uri)
        path.getFileSystem(java.hadoopConfiguration()).exists(path)
    except Py4JJavaError as error:
        scheme = uri.split("://")[0]
        hadoop = jvm.org.apache.hadoop.util.VersionInfo.getVersion()
        package = _PACKAGES.get(scheme, "").format(hadoop=hadoop)
        cause = first_line(Exception(str(error.java_exception.toString())))
        advice = f"; give Spark the package {package} (spark.jars.packages)" if package else ""
        raise InvalidInput(f"lake: {storage.uri}: Spark cannot open {uri}{advice}: {cause}") from None
