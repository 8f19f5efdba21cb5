"""A ledger as it grows: of a stored one its next commits, of a lake that Causeway runs the heights that are new."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from typing import Protocol

from causeway.pipeline.lake import Lake
from causeway.pipeline.lake_ledger import Progress
from causeway.pipeline.lake_taking import is_lake, take_lake
from causeway.pipeline.ledger_commits import LedgerDamaged, commits_of, read_commit
from causeway.pipeline.ledger_store import Ledger, open_ledger
from causeway.pipeline.ledger_upkeep import keep_up

_COMMITS = 1_000
"""After so many commits the ledger is read from its last checkpoint anew."""


class Following(Protocol):
    """A ledger of which more is read each time that it is asked. ``height``: the last one of a lake that it has; None:
    it is none of a lake, or has none yet."""

    height: int | None

    def newest(self, progress: Progress | None = None) -> Ledger:
        """Return the ledger as it is now; the same object where nothing is new, which one listing tells.

        ``progress``: is told of heights of a lake that are derived. Raises ``CausewayError``, ``OSError``; what was
        read before stays, and it may be asked again.
        """
        ...

    def close(self) -> None:
        """Remove what was made for it."""
        ...


def follow(uri: str) -> Following:
    """Return what follows the ledger, or the lake, at a path or URI. Raises ``InvalidInput`` where there is none,
    ``LedgerDamaged``, ``LakeError``."""
    return _Heights(uri) if is_lake(uri) else _Commits(uri)


class _Commits:
    """A stored ledger."""

    height: int | None

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._ledger = open_ledger(uri)
        self.height = None

    def newest(self, progress: Progress | None = None) -> Ledger:
        """Return the ledger with the commits that are there now."""
        last = max(commits_of(self._ledger.storage).numbers(), default=-1)
        if last == self._ledger.number and (last < 0 or self._is_last(last)):
            return self._ledger
        self._ledger = self._later(last) or open_ledger(self._uri)
        return self._ledger

    def _is_last(self, number: int) -> bool:
        """Return whether the last commit is still the same one; else another ledger is there now."""
        try:
            return read_commit(self._ledger.storage, number).digest == self._ledger.last
        except FileNotFoundError:
            return False

    def _later(self, last: int) -> Ledger | None:
        """Return the ledger as of a later commit; None where it is to be opened anew: its manifests were removed
        since, another ledger is there now, or there are many commits since the last checkpoint that is known."""
        ledger = self._ledger
        if last <= ledger.number or last - ledger.checkpoint > _COMMITS:
            return None
        try:
            while ledger.number < last:
                ledger = ledger.after(read_commit(ledger.storage, ledger.number + 1))
        except (LedgerDamaged, FileNotFoundError):
            return None
        return ledger

    def close(self) -> None:
        """Nothing was made."""


class _Heights:
    """A lake that Causeway runs, or ran, whose ledger is derived into a temporary folder."""

    def __init__(self, uri: str) -> None:
        self._lake = Lake.at(uri)
        self._stack = ExitStack()
        self._begin()

    def _begin(self) -> None:
        self._stack.close()
        self._folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="causeway-ledger-"))
        self._ledger: Ledger | None = None
        self.height: int | None = None
        self._identity = Lake.at(self._lake.storage.uri).identified().identity

    def newest(self, progress: Progress | None = None) -> Ledger:
        """Return the ledger with the heights that are committed now."""
        lake = Lake.at(self._lake.storage.uri)
        height, known = lake.last_height(), -1 if self.height is None else self.height
        other = height < known or lake.identified().identity != self._identity
        if self._ledger is not None and height == known and not other:
            return self._ledger
        if other:
            self._begin()
        taken = take_lake(lake.storage.uri, self._folder, progress=progress)
        if self._ledger is None or taken.commit is not None:
            # Nobody else reads it, so what was merged goes at once.
            self._ledger = keep_up(open_ledger(self._folder), kept=0.0)
        end = taken.first + taken.heights
        self.height = end - 1 if end else None
        return self._ledger

    def close(self) -> None:
        """Remove the folder."""
        self._stack.close()


__all__ = ["Following", "follow"]
