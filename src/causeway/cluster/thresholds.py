"""Sizes from which work runs on Spark; an environment variable sets each.

docs/explanation/where-spark-runs.md has the measurements behind the defaults.
"""

from __future__ import annotations

import os
import re

from causeway_proofs.errors import InvalidInput

__all__ = ["THRESHOLDS", "spark_threshold"]

THRESHOLDS = {
    "CAUSEWAY_SPARK_ROWS": 50_000_000,
    "CAUSEWAY_SPARK_BYTES": 16 << 30,
    "CAUSEWAY_SESSION_ROWS": 2_000_000,
}
"""Defaults by variable.

``CAUSEWAY_SPARK_ROWS``: rows of a ledger from which the executor ``auto`` starts Spark to audit or count them.
``CAUSEWAY_SPARK_BYTES``: bytes of files from which the executor ``auto`` starts Spark to ingest them.
``CAUSEWAY_SESSION_ROWS``: rows of a ledger from which ``cw.open`` counts in a session that is open already.
"""


def spark_threshold(name: str) -> int:
    """Return the value of a threshold.

    Args:
        name: Variable, a key of ``THRESHOLDS``.

    Raises:
        InvalidInput: The variable is not a whole number.
    """
    text = os.environ.get(name)
    if text is None:
        return THRESHOLDS[name]
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise InvalidInput(f"{name}: {text}: must be a whole number from 0, such as {THRESHOLDS[name]}")
    return int(text)
