"""Whether a lake's place can be reached: by the engine that writes it, and by Spark, which reads it through Hadoop."""

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
"""What Spark needs on its class path, beside its own jars, for URIs that begin so."""


def check_reachable(storage: Storage) -> None:
    """Ask a lake's place for a file. Raises ``InvalidInput`` when it does not answer."""
    try:
        storage.exists(HEAD_FILE)
    except NotADirectoryError:
        raise InvalidInput(f"lake: {storage.uri} cannot be written: a part of the path is a file") from None
    except OSError as error:
        raise InvalidInput(f"lake: {storage.uri} cannot be opened: {first_line(error)}") from None


def check_readable(session: SparkSession, storage: Storage) -> None:
    """Let Spark look at a lake's place. Raises ``InvalidInput``, which names what Spark lacks."""
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
