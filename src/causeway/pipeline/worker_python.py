"""Which Python the workers of anyone's Spark session run on: what they import must be there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import lru_cache
from typing import TYPE_CHECKING

from causeway.model.errors import InvalidInput

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS = 60.0
"""So long a Python may take to import what workers need."""


def require_workers(session: SparkSession) -> None:
    """Raise ``InvalidInput`` where the workers of a session on this machine run on a Python without Causeway: Spark
    takes ``python3`` of the PATH unless ``PYSPARK_PYTHON`` names another before the session begins."""
    context = session.sparkContext
    if not (context.master or "").startswith("local"):
        return
    python = context.pythonExec
    found = shutil.which(python)
    if found is not None and os.path.dirname(found) == os.path.dirname(sys.executable):
        return
    if found is None or not _imports(found):
        text = f"its workers run on {python}, which does not import causeway; set PYSPARK_PYTHON={sys.executable}"
        raise InvalidInput(f"Spark session: {text} before it begins")


@lru_cache(maxsize=8)
def _imports(python: str) -> bool:
    command = [python, "-c", "import causeway, numpy, pyarrow"]
    try:
        return subprocess.run(command, capture_output=True, timeout=SECONDS).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


__all__ = ["require_workers"]
