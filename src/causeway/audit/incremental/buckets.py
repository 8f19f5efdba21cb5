"""Results of the buckets of a growing ledger. Only buckets whose rows changed are scanned again.

Other windows can change what some buckets show: these are scanned again a few rows at a time, until none is behind. A
bucket that cannot be read counts as it was last read, and is tried again at longer and longer intervals.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import xxhash
from causeway_proofs.errors import CausewayError

from causeway.ledger.store import Ledger

MAX_RECHECK_ROWS = 2_000_000
MAX_RECHECK_SHARE = 16
"""Because of windows alone so many rows are scanned again at a time, or this part of all if that is more."""

LONGEST_PAUSE = 64
"""A bucket that cannot be read is tried again at every look, every second one, ... every so many."""

Result = TypeVar("Result")

Parallel = Callable[[Callable[[int], Result], Iterable[int]], list[tuple[int, Result | CausewayError]]]
"""Does something for some buckets at once; returns of each the result, or the error with which it cannot be read."""


def rows_digest(ledger: Ledger, bucket: int, tables: Iterable[str]) -> bytes:
    """Return a digest of what the rows of a bucket depend on: its files, and its rows in files of all buckets; empty
    if it has none. Raises ``LedgerDamaged``."""
    found = xxhash.xxh3_128()
    some = False
    for table in tables:
        own = [file.path for file in ledger.files(table, bucket) if file.bucket is not None]
        loose = ledger.loose(bucket, table)
        some = some or bool(own) or loose is not None
        found.update(repr((table, own)).encode())
        if loose is not None:
            # A row is its statement: who says it, in which file and row.
            for name in ("stated_by", "source_file", "source_row", "chain", "height", "message_id"):
                found.update(repr(loose[name].to_pylist()).encode())
    return found.digest() if some else b""


@dataclass
class FailedBucket:
    """A bucket that cannot be read, with the digest of its rows. It is tried again when ``left`` of ``pause`` looks
    have passed."""

    digest: bytes
    text: str
    pause: int = 1
    left: int = 0


@dataclass(frozen=True)
class Scanned(Generic[Result]):
    """The result of a bucket. ``stamp``: of the scan; ``serial``: of the windows; ``is_open``: whether other windows
    could change it."""

    digest: bytes
    stamp: int
    serial: int
    rows: int
    is_open: bool
    result: Result


@dataclass
class IncrementalBuckets(Generic[Result]):
    """Results of the buckets of a growing ledger.

    Args:
        tables: of which rows are scanned.
        is_open: returns whether other windows could change a result.
    """

    tables: tuple[str, ...]
    is_open: Callable[[Result], bool]
    scanned: dict[int, Scanned[Result]] = field(default_factory=dict)
    rows: dict[int, int] = field(default_factory=dict)
    """How many rows the buckets have that are to be scanned."""
    _failed: dict[int, FailedBucket] = field(default_factory=dict)
    _digests: dict[int, bytes] = field(default_factory=dict)
    _serial: int = 0
    _stamps: Iterator[int] = field(default_factory=itertools.count)

    def begin(self, ledger: Ledger, serial: int, changed: Callable[[Result], bool] = lambda _: False) -> None:
        """Choose the buckets to scan: those with other rows, and some that other windows could change.

        Args:
            ledger: as of a commit.
            serial: of its windows.
            changed: returns whether a result is outdated for another reason.

        Raises:
            LedgerDamaged: a file with rows of all buckets cannot be read.
        """
        self._serial, self.rows = serial, {}
        self._digests = {bucket: rows_digest(ledger, bucket, self.tables) for bucket in range(ledger.buckets)}
        for bucket, digest in self._digests.items():
            known, failed = self.scanned.get(bucket), self._failed.get(bucket)
            if failed is not None and failed.digest != digest:
                del self._failed[bucket]
                failed = None
            if not digest:
                self.scanned.pop(bucket, None)
            elif failed is not None:
                if failed.left <= 0:
                    self.rows[bucket] = 0
            elif known is None or known.digest != digest or changed(known.result):
                self.rows[bucket] = 0
        self.rows |= dict.fromkeys(self._some_behind(), 0)
        for bucket in self.rows:
            self.rows[bucket] = sum(file.rows for table in self.tables for file in ledger.files(table, bucket))

    def run(self, parallel: Parallel[Result], scan: Callable[[int], Result]) -> None:
        """Scan the chosen buckets, those with most rows first."""
        for bucket, result in parallel(scan, sorted(self.rows, key=lambda bucket: (-self.rows[bucket], bucket))):
            if isinstance(result, CausewayError):
                self.fail(bucket, result)
                continue
            self._failed.pop(bucket, None)
            digest, stamp, rows = self._digests[bucket], next(self._stamps), self.rows[bucket]
            self.scanned[bucket] = Scanned(digest, stamp, self._serial, rows, self.is_open(result), result)

    def fail(self, bucket: int, error: CausewayError) -> None:
        """Record that a bucket cannot be read."""
        before = self._failed.get(bucket)
        pause = 1 if before is None else min(2 * before.pause, LONGEST_PAUSE)
        self._failed[bucket] = FailedBucket(self._digests.get(bucket, b""), str(error), pause, pause)

    def reopen(self) -> None:
        """Determine of all buckets again whether other windows could change what they show."""
        self.scanned = {
            bucket: replace(known, is_open=self.is_open(known.result)) for bucket, known in self.scanned.items()
        }

    def is_readable(self, bucket: int) -> bool:
        """Return whether a bucket was read, and can still be."""
        return bucket in self.scanned and bucket not in self._failed

    def behind(self) -> list[int]:
        """Return the buckets that other windows could change, those with the oldest windows first."""
        found = [
            (known.serial, bucket)
            for bucket, known in self.scanned.items()
            if known.is_open and known.serial < self._serial and bucket not in self._failed
        ]
        return [bucket for _, bucket in sorted(found)]

    def unread(self) -> dict[int, str]:
        """Return the buckets that cannot be read, and why."""
        return {bucket: failed.text for bucket, failed in sorted(self._failed.items())}

    def is_due(self) -> bool:
        """Count a look; return whether there is something to scan though nothing is new."""
        for failed in self._failed.values():
            failed.left -= 1
        return any(failed.left <= 0 for failed in self._failed.values()) or bool(self.behind())

    def _some_behind(self) -> Iterator[int]:
        behind = [bucket for bucket in self.behind() if bucket not in self.rows]
        most = max(MAX_RECHECK_ROWS, sum(self.scanned[bucket].rows for bucket in behind) // MAX_RECHECK_SHARE)
        for bucket in behind:
            if most <= 0:
                return
            yield bucket
            most -= self.scanned[bucket].rows


__all__ = ["FailedBucket", "IncrementalBuckets", "Parallel", "Scanned", "rows_digest"]
