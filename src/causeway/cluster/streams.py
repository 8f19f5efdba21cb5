"""Limits of streams of Python data sources, which PySpark has from 4.2 on.

Before, Spark asks a stream for all that is available, without an offset to start from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["LIMITED_STREAMS", "AvailableNow", "read_limit"]

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as AvailableNow

    LIMITED_STREAMS = True
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as AvailableNow

        LIMITED_STREAMS = True
    except ModuleNotFoundError:
        AvailableNow, LIMITED_STREAMS = object, False


def read_limit(most: int | None = None) -> Any:
    """Return the limit of a stream's batches.

    Args:
        most: Maximum number of files, or heights; None: no limit.
    """
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

    return ReadAllAvailable() if most is None else ReadMaxFiles(most)
