"""What buckets of a growing ledger showed, kept while their rows stay the same."""

from __future__ import annotations

from causeway.figures.shown import Asked, Shown
from causeway.pipeline.incremental_buckets import rows_digest
from causeway.pipeline.ledger_store import LOOSE_TABLES, Ledger


class KeptShown:
    """What buckets showed last, for a ledger that is counted again and again: only those with other rows are passed
    over again. For one thread at a time."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[bytes, Shown]] = {}

    def known(self, ledger: Ledger, asked: Asked) -> dict[int, Shown]:
        """Return what buckets show whose rows are those that they had."""
        return {
            bucket: shown
            for bucket, (state, shown) in self._found.items()
            if bucket < ledger.buckets and state == self._state(ledger, asked, bucket)
        }

    def keep(self, ledger: Ledger, asked: Asked, bucket: int, shown: Shown) -> None:
        """Keep what a bucket shows."""
        self._found[bucket] = self._state(ledger, asked, bucket), shown

    def _state(self, ledger: Ledger, asked: Asked, bucket: int) -> bytes:
        """Return a digest of all that the result of a bucket depends on: its rows, promises, and what is asked."""
        promises = [file.path for file in ledger.files("promises")]
        found = repr((ledger.storage.uri, ledger.digest, asked, promises))
        return found.encode() + rows_digest(ledger, bucket, LOOSE_TABLES)


__all__ = ["KeptShown"]
