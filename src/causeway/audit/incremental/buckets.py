"""Cached results of the buckets of a growing ledger.

Only buckets with changed rows are re-scanned. Other windows may change some results: these buckets are re-scanned a few
at a time until none is behind. An unreadable bucket keeps its last result, and is retried at growing intervals.
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
"""Rows re-scanned at a time due to windows alone: a maximum number, or this part of all if larger."""

LONGEST_PAUSE = 64
"""Maximum number of audits between two retries of an unreadable bucket; the pause doubles."""

Result = TypeVar("Result")

Parallel = Callable[[Callable[[int], Result], Iterable[int]], list[tuple[int, Result | CausewayError]]]
"""Runs a function for some buckets in parallel; returns each result, or the read error."""


def rows_digest(ledger: Ledger, bucket: int, tables: Iterable[str]) -> bytes:
    """Return a digest of a bucket's input: its files, and its rows in files of all buckets.

    Args:
        ledger: The ledger.
        bucket: Bucket number.
        tables: Names of tables.

    Returns:
        The digest; empty if the bucket has no rows.

    Raises:
        LedgerDamaged: A file is damaged.
    """
    found = xxhash.xxh3_128()
    is_nonempty = False
    for table in tables:
        own = [file.path for file in ledger.files(table, bucket) if file.bucket is not None]
        loose = ledger.loose(bucket, table)
        is_nonempty = is_nonempty or bool(own) or loose is not None
        found.update(repr((table, own)).encode())
        if loose is not None:
            # The statement of a row (reporter, file and row) identifies it.
            for name in ("stated_by", "source_file", "source_row", "chain", "height", "message_id"):
                found.update(repr(loose[name].to_pylist()).encode())
    return found.digest() if is_nonempty else b""


@dataclass
class FailedBucket:
    """An unreadable bucket.

    Attributes:
        digest: Digest of its rows.
        text: The error.
        pause: Number of audits between retries.
        left: Number of audits until the next retry.
    """

    digest: bytes
    text: str
    pause: int = 1
    left: int = 0


@dataclass(frozen=True)
class Scanned(Generic[Result]):
    """Cached result of a bucket.

    Attributes:
        digest: Digest of its rows.
        stamp: Stamp of the scan.
        serial: Serial number of the windows.
        rows: Number of rows.
        is_open: Other windows may change the result.
        result: The result.
    """

    digest: bytes
    stamp: int
    serial: int
    rows: int
    is_open: bool
    result: Result


@dataclass
class IncrementalBuckets(Generic[Result]):
    """Cached results of the buckets of a growing ledger.

    Args:
        tables: Names of the scanned tables.
        is_open: Returns True if other windows may change a result.
    """

    tables: tuple[str, ...]
    is_open: Callable[[Result], bool]
    scanned: dict[int, Scanned[Result]] = field(default_factory=dict)
    rows: dict[int, int] = field(default_factory=dict)
    """Number of rows of the buckets to scan."""
    _failed: dict[int, FailedBucket] = field(default_factory=dict)
    _digests: dict[int, bytes] = field(default_factory=dict)
    _serial: int = 0
    _stamps: Iterator[int] = field(default_factory=itertools.count)

    def begin(self, ledger: Ledger, serial: int, changed: Callable[[Result], bool] = lambda _: False) -> None:
        """Choose the buckets to scan: those with other rows, and some that other windows may change.

        Args:
            ledger: The ledger as of a commit.
            serial: Serial number of its windows.
            changed: Returns True if a result is outdated for another reason.

        Raises:
            LedgerDamaged: A file with rows of all buckets is damaged.
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
        """Scan the chosen buckets, the largest first."""
        for bucket, result in parallel(scan, sorted(self.rows, key=lambda bucket: (-self.rows[bucket], bucket))):
            if isinstance(result, CausewayError):
                self.fail(bucket, result)
                continue
            self._failed.pop(bucket, None)
            digest, stamp, rows = self._digests[bucket], next(self._stamps), self.rows[bucket]
            self.scanned[bucket] = Scanned(digest, stamp, self._serial, rows, self.is_open(result), result)

    def fail(self, bucket: int, error: CausewayError) -> None:
        """Record an unreadable bucket."""
        before = self._failed.get(bucket)
        pause = 1 if before is None else min(2 * before.pause, LONGEST_PAUSE)
        self._failed[bucket] = FailedBucket(self._digests.get(bucket, b""), str(error), pause, pause)

    def reopen(self) -> None:
        """Re-evaluate for all results if other windows may change them."""
        self.scanned = {
            bucket: replace(known, is_open=self.is_open(known.result)) for bucket, known in self.scanned.items()
        }

    def is_readable(self, bucket: int) -> bool:
        """Return True if a bucket was read and is still readable."""
        return bucket in self.scanned and bucket not in self._failed

    def behind(self) -> list[int]:
        """Return the buckets that other windows may change, oldest windows first."""
        found = [
            (known.serial, bucket)
            for bucket, known in self.scanned.items()
            if known.is_open and known.serial < self._serial and bucket not in self._failed
        ]
        return [bucket for _, bucket in sorted(found)]

    def unread(self) -> dict[int, str]:
        """Return the error of each unreadable bucket."""
        return {bucket: failed.text for bucket, failed in sorted(self._failed.items())}

    def is_due(self) -> bool:
        """Count an audit; return True if a scan is due without new commits."""
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
