"""In which files rows were added to a bucket of a ledger since it was read last.

A commit adds files, or puts rows of files into others: those were seen before, or are read out of the files in which
they were added, which stay for a while.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa

from causeway.pipeline.ledger_commits import LedgerCommit, LedgerDamaged, read_commit
from causeway.pipeline.ledger_store import LOOSE_TABLES, Ledger, StoredFile, by_bucket

STATED = ("headers", "watermarks")
"""Tables of what chains state of themselves."""

TABLES_IN_BUCKETS = (*LOOSE_TABLES, *STATED)
"""Tables of which files are merged: a commit that does it adds no rows."""


def files_of(ledger: Ledger, bucket: int, tables: Sequence[str] = LOOSE_TABLES) -> dict[str, StoredFile]:
    """Return the files of tables in which rows of a bucket may be, but for what waits."""
    files = (file for table in tables for file in ledger.files(table, bucket))
    return {file.path: file for file in files if file.table in tables}


def split_rows(ledger: Ledger, file: StoredFile) -> dict[int, pa.Table]:
    """Return the rows of a file by their buckets."""
    rows = ledger.read(file).unify_dictionaries().combine_chunks()
    return by_bucket(rows, ledger.buckets, "value" if file.table == "value" else "ledger")


def commits_since(before: Ledger | None, now: Ledger) -> list[LedgerCommit] | None:
    """Return the commits since a ledger; None: they are not known any more, or another ledger is there."""
    if before is None or before.number > now.number or before.digest != now.digest:
        return None
    recent = {commit.number: commit for commit in now.recent}
    try:
        numbers = range(before.number + 1, now.number + 1)
        since = [recent.get(number) or read_commit(now.storage, number) for number in numbers]
    except (FileNotFoundError, LedgerDamaged):
        return None
    last = before.last or before.digest
    for commit in since:
        if commit.before != last:
            return None
        last = commit.digest
    return since if last == (now.last or now.digest) else None


def added_files(
    ledger: Ledger,
    bucket: int,
    seen: Collection[str],
    since: Sequence[LedgerCommit] | None,
    held: Collection[str],
    tables: Sequence[str] = LOOSE_TABLES,
) -> list[StoredFile] | None:
    """Return the files in which rows of a bucket were added since those that were seen, wherever these rows are
    now; None: that is not known."""
    found: dict[str, StoredFile] = {}
    there = set(seen)
    for commit in since or ():
        gone = {path for path in commit.gone if _is_of(path, bucket, tables)}
        files = [file for file in commit.files if file.table in tables and file.bucket in (None, bucket)]
        if not gone <= there:
            return None
        there = (there - gone) | {file.path for file in files}
        if not any(path.split("/", 1)[0] in TABLES_IN_BUCKETS for path in commit.gone):
            found |= {file.path: file for file in files}
    if there != files_of(ledger, bucket, tables).keys():
        return None
    merged = found.keys() - there - set(held)
    return None if any(not ledger.storage.exists(path) for path in merged) else [*found.values()]


def _is_of(path: str, bucket: int, tables: Sequence[str]) -> bool:
    table, folder, *_ = path.split("/")
    return table in tables and folder in (f"bucket={bucket:02}", "bucket=-1")


__all__ = ["STATED", "added_files", "commits_since", "files_of", "split_rows"]
