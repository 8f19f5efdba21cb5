"""What buckets of a ledger show, kept for as long as it holds: which of them are looked at again, and when.

A bucket is looked at again when its files are others, or when it is behind: it was judged with earlier windows that
have a part in what it shows. Of those some are looked at at a time, until none is. One that cannot be read is tried
again later and later, and counts as it was last read until then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from causeway.model.errors import CausewayError

ROWS_AGAIN = 2_000_000
SHARE_AGAIN = 16
"""Because of windows alone so many rows are judged again at a time, or this part of all if that is more."""

LONGEST_PAUSE = 64
"""A bucket that cannot be read is tried again at every look, every second one, ... every so many."""

Shown = TypeVar("Shown")


@dataclass
class Held(Generic[Shown]):
    """What a bucket of some files showed with the windows of a serial number. ``open``: whether other windows could
    change it."""

    key: tuple[str, ...]
    serial: int
    shown: Shown
    open: bool


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


@dataclass
class Kept(Generic[Shown]):
    """What buckets show, as long as it holds. ``is_open``: whether other windows could change what one shows."""

    is_open: Callable[[Shown], bool]
    held: dict[int, Held[Shown]] = field(default_factory=dict)
    failed: dict[int, Failed] = field(default_factory=dict)
    chosen: list[int] = field(default_factory=list)
    keys: list[tuple[str, ...]] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    serial: int = 0

    def forget(self, which: Callable[[Shown], bool]) -> None:
        """Do not keep what some buckets show."""
        self.held = {bucket: held for bucket, held in self.held.items() if not which(held.shown)}

    def begin(self, keys: list[tuple[str, ...]], rows: list[int], serial: int) -> None:
        """Choose which buckets are looked at: those whose files are others, and of those that are behind some that have
        not been looked at for the longest time. ``keys``, ``rows``: of each; ``serial``: of the windows."""
        self.keys, self.rows, self.serial = keys, rows, serial
        self.held = {bucket: held for bucket, held in self.held.items() if bucket < len(keys) and keys[bucket]}
        self.failed = {
            bucket: failed
            for bucket, failed in self.failed.items()
            if bucket < len(keys) and failed.key == keys[bucket]
        }
        due = []
        for bucket, key in enumerate(keys):
            held, failed = self.held.get(bucket), self.failed.get(bucket)
            other = held is None or held.key != key or failed is not None
            if key and other and (failed is None or failed.left <= 0):
                due.append(bucket)
        most, chosen = max(ROWS_AGAIN, sum(rows) // SHARE_AGAIN), {*due}
        for bucket in sorted(self.behind() - chosen, key=lambda bucket: (self.held[bucket].serial, bucket)):
            if most <= 0:
                break
            due.append(bucket)
            most -= rows[bucket]
        self.chosen = sorted(due, key=lambda bucket: (-rows[bucket], bucket))

    def run(
        self,
        parallel: Callable[[Callable[[int], Shown], Iterable[int]], list[tuple[int, Shown | CausewayError]]],
        judge: Callable[[int], Shown],
    ) -> dict[int, Shown]:
        """Look at the chosen buckets, and return what all of them show."""
        for bucket, found in parallel(judge, self.chosen):
            if isinstance(found, CausewayError):
                self.fail(bucket, found)
                continue
            self.failed.pop(bucket, None)
            self.held[bucket] = Held(self.keys[bucket], self.serial, found, self.is_open(found))
        return {bucket: held.shown for bucket, held in self.held.items()}

    def fail(self, bucket: int, error: CausewayError) -> None:
        """Take notice that a bucket cannot be read."""
        self.failed[bucket] = later(self.failed.get(bucket), self.keys[bucket], str(error))

    def behind(self) -> set[int]:
        """Return the buckets that other windows could change since they were looked at."""
        held = self.held.items()
        return {bucket for bucket, each in held if each.open and each.serial < self.serial} - self.failed.keys()

    def unread(self) -> dict[int, str]:
        """Return the buckets that cannot be read, and why."""
        return {bucket: failed.text for bucket, failed in sorted(self.failed.items())}

    def waits(self) -> bool:
        """Begin a look, and return whether there is something to look at though nothing is new."""
        for failed in self.failed.values():
            failed.left -= 1
        return any(failed.left <= 0 for failed in self.failed.values()) or bool(self.behind())


__all__ = ["ROWS_AGAIN", "SHARE_AGAIN", "Failed", "Held", "Kept", "Shown", "later"]
