"""Spark for benchmarks: its workers must be able to import the workloads, which no installed package holds."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from pyspark.sql import SparkSession

from causeway.cluster.session import open_session
from causeway.programs.user_modules import archive_modules

ROOT = Path(__file__).resolve().parents[1]


def open_bench_session(master: str, extra: Mapping[str, str] = MappingProxyType({})) -> SparkSession:
    """Open the Spark session of this process and give the package ``benchmarks`` to its workers.

    Args:
        master: as of ``open_session``.
        extra: as of ``open_session``.

    Raises:
        InvalidInput: as ``causeway.cluster.session.open_session``.
    """
    session = open_session(master, extra=extra)
    session.sparkContext.addPyFile(str(_archive()))
    return session


@functools.cache
def _archive() -> Path:
    """Return the archive of this package's modules; it goes when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="causeway-benchmarks-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return archive_modules(ROOT, sorted(Path(__file__).parent.rglob("*.py")), folder)
