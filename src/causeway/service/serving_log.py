"""What a server says of itself in its log: blocks, refusals and faults, in few lines whatever strangers send."""

from __future__ import annotations

import threading
import time
import traceback
from collections import Counter
from collections.abc import Mapping

from causeway.pipeline.lake import Manifest
from causeway.service.journal import SILENT, Journal

EVERY = 10.0
"""Seconds between two lines about blocks, and between two about refusals."""

MOST_NAMES = 20
"""Names of refusals that one line counts, besides the others."""

FRAMES = 3
"""Innermost calls that a fault is told with."""


class ServingLog:
    """Tells a journal what a server does. Threads may share one."""

    def __init__(self, journal: Journal = SILENT) -> None:
        self._journal = journal
        self._lock = threading.Lock()
        self._refused: Counter[str] = Counter()
        self._blocks = 0
        self._told = {"blocks": -EVERY, "refused": -EVERY}

    def started(self, url: str, lake: str, height: int) -> None:
        """Tell that it serves."""
        self._journal.info("serving", url=url, lake=lake, height=height)

    def stopped(self, height: int) -> None:
        """Tell that it does not any more, and what has not been told."""
        with self._lock:
            self._tell_refused()
        self._journal.info("stopped", height=height)

    def committed(self, manifest: Manifest, waiting: int) -> None:
        """Take notice of a block; ``waiting``: messages that wait for the next."""
        rows = dict(manifest.rows)
        self._journal.debug("block", height=manifest.height, tick=manifest.tick, **rows)
        with self._lock:
            self._blocks += 1
            if self._is_due("blocks"):
                members = {"height": manifest.height, "tick": manifest.tick, "blocks": self._blocks, "waiting": waiting}
                self._journal.info("committed", **members)
                self._blocks = 0

    def refused(self, status: int, name: str) -> None:
        """Take notice of a request that was refused."""
        with self._lock:
            known = f"{status}:{name}" in self._refused or len(self._refused) < MOST_NAMES
            self._refused[f"{status}:{name}" if known else "others"] += 1
            if self._is_due("refused"):
                self._tell_refused()

    def failed(self, path: str, error: BaseException) -> None:
        """Tell of a fault of the server itself."""
        frames = traceback.extract_tb(error.__traceback__)[-FRAMES:]
        where = " < ".join(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in reversed(frames))
        self._journal.error("fault", path=path, error=f"{type(error).__name__}: {error}", where=where)

    def stands_still(self, exchange: str, seconds: float, again: float, failures: Mapping[str, int], look: str) -> None:
        """Tell that an exchange with another lake has stood still for so long, that it is tried again in so many
        seconds, what failed, and what to look at."""
        members = {"exchange": exchange, "seconds": round(seconds), "again": round(again)}
        self._journal.warning("stands-still", **members, failures=_counts(Counter(failures)), look=look)

    def goes_on(self, exchange: str, seconds: float) -> None:
        """Tell that an exchange goes on that stood still for so long."""
        self._journal.info("goes-on", exchange=exchange, seconds=round(seconds))

    def _is_due(self, what: str) -> bool:
        now = time.monotonic()
        if now - self._told[what] < EVERY:
            return False
        self._told[what] = now
        return True

    def _tell_refused(self) -> None:
        if self._refused:
            self._journal.warning("refused", requests=_counts(self._refused))
            self._refused.clear()


def _counts(named: Counter[str]) -> str:
    """Return names with their counts, the most frequent first."""
    return ",".join(f"{name}*{count}" for name, count in named.most_common(MOST_NAMES + 1))
