"""What buckets of a growing ledger showed, kept while their rows stay the same."""

from __future__ import annotations

import xxhash

from causeway.figures.shown import Asked, Shown
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
        """Return a digest of all that what a bucket shows depends on: its files, the rows of it that lie in files of
        all buckets, promises, and what is asked."""
        found = xxhash.xxh3_128(repr((ledger.storage.uri, ledger.digest, asked)).encode())
        found.update(repr([file.path for file in ledger.files("promises")]).encode())
        for table in LOOSE_TABLES:
            own = [file.path for file in ledger.files(table, bucket) if file.bucket is not None]
            found.update(repr((table, own)).encode())
            if (loose := ledger.loose(bucket, table)) is not None:
                # A row is its statement: who says it, in which file and row.
                for name in ("stated_by", "source_file", "source_row", "chain", "height", "message_id"):
                    found.update(repr(loose[name].to_pylist()).encode())
        return found.digest()


__all__ = ["KeptShown"]
