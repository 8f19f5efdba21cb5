"""The commits of a ledger in order, and the rows that each of them added to a table.

A merge writes rows again in other files, and maintenance removes the merged files and old manifests after a while. So
the rows of a commit are known while its manifest and its files exist, at least for ``CAUSEWAY_RETENTION``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from causeway_proofs.errors import InvalidInput

from causeway.ledger.commits import StoredFile, checkpoints_of, commits_of, read_checkpoint, read_commit
from causeway.ledger.store import Ledger

__all__ = [
    "CommitPosition",
    "CommitStep",
    "HistoryLost",
    "LedgerReplaced",
    "added_files",
    "position_after",
    "read_steps",
    "require_position",
]


class HistoryLost(InvalidInput):
    """The rows of a commit are only in merged files."""


class LedgerReplaced(InvalidInput):
    """A ledger lacks a commit that was read from it before."""


@dataclass(frozen=True)
class CommitPosition:
    """A position in the history of a ledger: after a commit.

    Attributes:
        number: Number of the commit, -1: none.
        digest: Digest of the commit; empty: none.
    """

    number: int = -1
    digest: str = ""


@dataclass(frozen=True)
class CommitStep:
    """A commit or, in place of the first ones, a checkpoint.

    Attributes:
        number: Number of the commit.
        digest: Digest of the commit.
        files: Added files; of a checkpoint, all live files.
        gone: Paths of removed files.
        before: Digest of the previous commit; None: a checkpoint.
    """

    number: int
    digest: str
    files: Sequence[StoredFile]
    gone: Sequence[str] = ()
    before: str | None = None


def read_steps(ledger: Ledger, after: int = -1) -> list[CommitStep]:
    """Return the commits of a ledger after a number; those whose manifests were removed are one step, a checkpoint.

    Args:
        ledger: The ledger.
        after: Number of a commit, -1: from the first one on.

    Raises:
        LedgerDamaged: A manifest or checkpoint is damaged.
    """
    storage = ledger.storage
    numbers = {*commits_of(storage).numbers()}
    steps = []
    if after < ledger.number and after + 1 not in numbers:
        later = ((each, {*range(each + 1, ledger.number + 1)}) for each in checkpoints_of(storage).numbers())
        base = next((each for each, needed in later if needed <= numbers), ledger.checkpoint)
        checkpoint = read_checkpoint(storage, base)
        steps.append(CommitStep(base, checkpoint.commit, checkpoint.files))
    for number in range((steps[0].number if steps else after) + 1, ledger.number + 1):
        commit = read_commit(storage, number)
        steps.append(CommitStep(number, commit.digest, commit.files, commit.gone, commit.before))
    return steps


def added_files(ledger: Ledger, table: str, start: CommitPosition, end: CommitPosition) -> list[list[StoredFile]]:
    """Return the files with the rows that commits added to a table that grows.

    Args:
        ledger: The ledger as of ``end`` or later.
        table: Name of the table, none of ``REWRITTEN_TABLES``.
        start: The position before the first commit. From the beginning, all commits count as one: the files are those
            that were live at ``end``.
        end: The position after the last commit.

    Returns:
        The files of each commit that added some.

    Raises:
        HistoryLost: Files or manifests of these commits were removed.
        LedgerReplaced: The ledger does not have these commits.
        LedgerDamaged: A manifest or checkpoint is damaged.
    """
    if start == end:
        return []
    require_position(ledger, end)
    whole = start.number < 0
    steps = [step for step in read_steps(ledger, start.number) if step.number <= end.number]
    if not steps or (not whole and steps[0].before is None):
        raise HistoryLost(_lost_text(ledger, start.number + 1, end.number))
    if steps[-1].digest != end.digest or (not whole and steps[0].before != start.digest):
        raise LedgerReplaced(_replaced_text(ledger, end.number))
    added: list[list[StoredFile]] = []
    live: dict[str, StoredFile] = {}
    for step in steps:
        own = [file for file in step.files if file.table == table]
        merged = [path for path in step.gone if path.startswith(f"{table}/")]
        if own and not merged:
            added.append(own)
        for path in merged:
            live.pop(path, None)
        live |= {file.path: file for file in own}
    found = [[*live.values()]] if whole else added
    present = {file.path for file in ledger.live}
    if not all(file.path in present or ledger.storage.exists(file.path) for files in found for file in files):
        raise HistoryLost(_lost_text(ledger, start.number + 1, end.number))
    return found


def require_position(ledger: Ledger, position: CommitPosition) -> None:
    """Check a position against the last commit of a ledger.

    Args:
        ledger: The ledger.
        position: A position that was read from it before.

    Raises:
        LedgerReplaced: The ledger ends before it, or with another commit of this number.
    """
    if position.number > ledger.number or (position.number == ledger.number and position.digest != ledger.last):
        raise LedgerReplaced(_replaced_text(ledger, position.number))


def position_after(ledger: Ledger, number: int) -> CommitPosition:
    """Return the position after a commit.

    Args:
        ledger: The ledger as of this commit or later.
        number: Number of the commit.

    Raises:
        HistoryLost: The manifest was removed.
        LedgerDamaged: The manifest is damaged.
    """
    if number == ledger.number:
        return CommitPosition(number, ledger.last)
    try:
        return CommitPosition(number, read_commit(ledger.storage, number).digest)
    except FileNotFoundError:
        raise HistoryLost(_lost_text(ledger, number, number)) from None


_AGAIN = "read it from the beginning, with a new checkpoint"


def _lost_text(ledger: Ledger, first: int, last: int) -> str:
    commits = f"commit {first}" if first == last else f"commits {first} to {last}"
    return f"{ledger.storage.uri}: {commits}: their rows are only in merged files; {_AGAIN}"


def _replaced_text(ledger: Ledger, number: int) -> str:
    return f"{ledger.storage.uri}: commit {number} is not the one that was read before; {_AGAIN}"
