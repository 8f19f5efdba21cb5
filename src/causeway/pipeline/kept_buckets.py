"""Which buckets of a ledger that is followed are looked at again, and when.

What other windows could change is looked at again a few rows at a time, until nothing is behind. A bucket that cannot
be read is tried again later and later, and counts as it was last read until then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

ROWS_AGAIN = 2_000_000
SHARE_AGAIN = 16
"""Because of windows alone so many rows are judged again at a time, or this part of all if that is more."""

LONGEST_PAUSE = 64
"""A bucket that cannot be read is tried again at every look, every second one, ... every so many."""


@dataclass
class Failed:
    """A bucket of some files that cannot be read. ``pause``: so many looks pass until it is tried again, ``left`` of
    them are still to come."""

    key: tuple[str, ...]
    text: str
    pause: int = 1
    left: int = 0


def later(before: Failed | None, key: tuple[str, ...], text: str) -> Failed:
    """Return that a bucket cannot be read, and is tried again later than the last time (``before``)."""
    pause = 1 if before is None else min(2 * before.pause, LONGEST_PAUSE)
    return Failed(key, text, pause, pause)


class Judged(Protocol):
    """What a part of a bucket showed with the windows of a serial number. ``rows``: how many it has; ``open``: whether
    other windows could change it."""

    @property
    def serial(self) -> int:
        """Return it."""
        ...

    @property
    def rows(self) -> int:
        """Return it."""
        ...

    @property
    def open(self) -> bool:
        """Return it."""
        ...


Part = TypeVar("Part", bound=Judged)


class KeptBuckets(Generic[Part]):
    """Buckets whose parts were looked at at different times. ``held``: what parts showed, by bucket and number;
    ``failed``: the buckets that cannot be read, ``_states``: those that are read."""

    held: dict[int, dict[int, Part]]
    failed: dict[int, Failed]
    _states: Mapping[int, Any]
    _serial: int

    def behind(self) -> set[int]:
        """Return the buckets of which something was judged with earlier windows that have a part in it."""
        return {bucket for _, bucket, _ in self._behind()}

    def unread(self) -> dict[int, str]:
        """Return the buckets that cannot be read, and why."""
        return {bucket: failed.text for bucket, failed in sorted(self.failed.items())}

    def waits(self) -> bool:
        """Begin a look, and return whether there is something to look at though nothing is new."""
        for failed in self.failed.values():
            failed.left -= 1
        return any(failed.left <= 0 for failed in self.failed.values()) or bool(self._behind())

    def _failed_with(self, bucket: int, files: Collection[str]) -> Failed | None:
        """Return that a bucket of these files cannot be read; what was so of other files is forgotten."""
        failed = self.failed.get(bucket)
        if failed is not None and failed.key != tuple(sorted(files)):
            del self.failed[bucket]
            return None
        return failed

    def _behind(self) -> list[tuple[int, int, int]]:
        return sorted(
            (held.serial, bucket, number)
            for bucket, parts in self.held.items()
            if bucket not in self.failed
            for number, held in parts.items()
            if held.open and held.serial < self._serial
        )

    def _some_behind(self) -> Iterator[tuple[int, int]]:
        """Yield parts that are behind, by bucket and number: as many as may be judged again at a time, those first that
        have not been looked at for the longest time."""
        behind = [(bucket, number) for _, bucket, number in self._behind() if bucket in self._states]
        sizes = [self.held[bucket][number].rows for bucket, number in behind]
        most = max(ROWS_AGAIN, sum(sizes) // SHARE_AGAIN)
        for part, size in zip(behind, sizes, strict=True):
            if most <= 0:
                return
            yield part
            most -= size


__all__ = ["ROWS_AGAIN", "SHARE_AGAIN", "Failed", "KeptBuckets", "later"]
