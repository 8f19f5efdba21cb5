"""Limits of streams of Python data sources, which PySpark has from 4.2 on.

Before, Spark asks a stream for all that is available, without an offset to start from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["LIMITED_STREAMS", "AvailableNow", "read_all", "read_at_most", "stream_limit"]

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as AvailableNow

    LIMITED_STREAMS = True
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as AvailableNow

        LIMITED_STREAMS = True
    except ModuleNotFoundError:
        AvailableNow, LIMITED_STREAMS = object, False


def read_all() -> Any:
    """Return the limit of a stream without limits."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    return ReadAllAvailable()


def read_at_most(count: int) -> Any:
    """Return the limit of a stream to a number of files, or heights.

    Args:
        count: The number.
    """
    from pyspark.sql.streaming.datasource import ReadMaxFiles

    return ReadMaxFiles(count)


def stream_limit(limit: Any) -> int | None:
    """Return the number of a limit of ``read_at_most``; None for one of ``read_all``, or none.

    Args:
        limit: The limit that Spark gives.
    """
    found: int | None = getattr(limit, "max_files", None)
    return found
