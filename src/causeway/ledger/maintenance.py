"""Compaction and checkpoints for ledgers with many commits.

Small files of a bucket are merged by a commit that replaces them. Every ``CHECKPOINT_EVERY`` commits a checkpoint lists
all live files. Files that no longer count, and remains of killed processes, are removed after a retention time, as
earlier readers may still use them. A crash at any point leaves the rows unchanged.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import pyarrow as pa

from causeway.ledger.commits import (
    CHECKPOINTS,
    INPUTS_TABLE,
    INTERNAL,
    REWRITTEN_TABLES,
    STAGING,
    Checkpoint,
    InputFile,
    checkpoints_of,
    commits_of,
    inputs_from_table,
    inputs_table,
    make_table_folder,
    table_schema,
)
from causeway.ledger.retention import retention_seconds
from causeway.ledger.row_order import LAYOUTS, drop_repeats
from causeway.ledger.schema import TABLES
from causeway.ledger.store import LOOSE_TABLES, Ledger, LedgerWriter, StoredFile, group_by_bucket
from causeway.storage.commit_log import number_of
from causeway.storage.object_store import AlreadyExists

CHECKPOINT_EVERY = 32
"""Number of commits between two checkpoints."""

FILES_PER_MERGE = 8
"""Number of files of similar size in a bucket that are merged."""

MINIMUM, MAXIMUM = 1 << 12, 1 << 21
"""Row counts: files up to ``MINIMUM`` rows count as equally small; merged files have up to ``MAXIMUM`` rows, and files
from half of it are final."""

MAX_BYTES = 1 << 29
"""Maximum size of the rows of a merged file, in bytes."""


@dataclass(frozen=True)
class FileMerge:
    """Files to merge into one or, with ``spread``, into one a bucket."""

    table: str
    bucket: int | None
    files: tuple[StoredFile, ...]
    spread: bool = False


def maintain_ledger(ledger: Ledger, threads: int = 1, kept: float | None = None) -> Ledger:
    """Merge files, write a due checkpoint, and remove garbage.

    Args:
        ledger: The ledger as of its last commit.
        threads: Number of threads.
        kept: Retention of removed files, in seconds; None: that of ``CAUSEWAY_RETENTION``.

    Returns:
        The ledger afterwards.

    Raises:
        CommitLost: Another process committed.
        InvalidInput: The variable is no duration.
    """
    kept = retention_seconds() if kept is None else kept
    while found := plan_merges(ledger):
        ledger = _commit_merges(ledger, found, threads)
    if ledger.number - ledger.checkpoint >= CHECKPOINT_EVERY:
        ledger = _write_checkpoint(ledger, kept)
        remove_garbage(ledger, kept)
    return ledger


def _commit_merges(ledger: Ledger, found: list[FileMerge], threads: int) -> Ledger:
    large = sum(file.rows for merge in found for file in merge.files) > MAXIMUM
    with LedgerWriter(ledger) as writer:
        with ThreadPoolExecutor(1 if large else threads, "causeway-merge") as pool:
            for _ in pool.map(lambda merge: _merge(writer, merge), found):
                pass
        return ledger.after(writer.commit([], {}))


def plan_merges(ledger: Ledger) -> list[FileMerge]:
    """Return the due merges.

    Args:
        ledger: The ledger as of its last commit.

    Returns:
        Merges of files of one table and bucket, or a single merge that spreads rows over buckets; empty: none due.
    """
    of: dict[tuple[str, int | None], list[StoredFile]] = {}
    for file in ledger.live:
        if file.table not in REWRITTEN_TABLES:
            of.setdefault((file.table, file.bucket), []).append(file)
    found = []
    for (table, bucket), files in sorted(
        of.items(), key=lambda each: (each[0][0], each[0][1] is not None, each[0][1] or 0)
    ):
        loose = table in LOOSE_TABLES and bucket is None
        if loose and (sum(file.rows for file in files) >= MINIMUM * ledger.buckets or _bytes(files) >= MAX_BYTES):
            return [FileMerge(table, None, tuple(_files_that_fit(files) or files[:1]), spread=True)]
        least = max(MINIMUM // 64, 1) if loose else MINIMUM
        chosen = _choose_files(files, least)
        if len(chosen) > 1:
            found.append(FileMerge(table, bucket, tuple(chosen)))
    return found


def _choose_files(files: Sequence[StoredFile], least: int) -> list[StoredFile]:
    """Return files of similar size and smaller ones, once there are enough; else none."""
    small = sorted((file for file in files if file.rows < MAXIMUM // 2), key=lambda file: (file.rows, file.path))
    small = [file for file in small if file.bytes < MAX_BYTES // 2]
    limit = least
    while limit < MAXIMUM:
        alike = [file for file in small if file.rows < limit]
        if len(alike) >= FILES_PER_MERGE:
            return _files_that_fit(alike)
        limit *= FILES_PER_MERGE
    return _files_that_fit(small) if len(small) >= FILES_PER_MERGE else []


def _files_that_fit(files: list[StoredFile]) -> list[StoredFile]:
    """Return the first files that fit into one of ``MAXIMUM`` rows."""
    rows = size = 0
    for place, file in enumerate(files):
        rows, size = rows + file.rows, size + file.bytes
        if rows > MAXIMUM or size > MAX_BYTES:
            return files[:place]
    return files


def _bytes(files: Iterable[StoredFile]) -> int:
    return sum(file.bytes for file in files)


def _merge(writer: LedgerWriter, merge: FileMerge) -> None:
    ledger = writer.ledger
    rows = pa.concat_tables([table_schema(merge.table).empty_table(), *(ledger.read(file) for file in merge.files)])
    if merge.table == INPUTS_TABLE:
        rows = inputs_table(current_inputs(inputs_from_table(rows)))
    elif merge.spread:
        rows = rows.unify_dictionaries().combine_chunks()
        for bucket, bucket_rows in group_by_bucket(rows, ledger.buckets, merge.table).items():
            writer.write(merge.table, _sort_table(bucket_rows, merge.table), bucket)
    elif merge.table in LOOSE_TABLES and merge.bucket is None:
        rows = split_by_bucket(_sort_table(rows, merge.table), ledger.buckets, merge.table)
    elif merge.table == "ledger" or merge.table in LAYOUTS:
        rows = _sort_table(rows, merge.table)
    else:
        rows = rows.unify_dictionaries()
    if not merge.spread:
        writer.write(merge.table, rows, merge.bucket)
    for file in merge.files:
        writer.remove(file)


def _sort_table(rows: pa.Table, table: str) -> pa.Table:
    """Sort rows; rows of ``ledger`` are also deduplicated."""
    return drop_repeats(rows) if table == "ledger" else LAYOUTS[table].in_order(rows.unify_dictionaries())


def split_by_bucket(rows: pa.Table, buckets: int, table: str = "ledger") -> pa.Table:
    """Sort rows of all buckets by bucket, stably.

    Args:
        rows: Rows of a table.
        buckets: Number of buckets.
        table: Name of the table.

    Returns:
        The rows.
    """
    if not rows.num_rows:
        return rows
    parts = group_by_bucket(rows.unify_dictionaries().combine_chunks(), buckets, table)
    return pa.concat_tables([parts[bucket] for bucket in sorted(parts)])


def current_inputs(inputs: Iterable[InputFile]) -> list[InputFile]:
    """Return inputs without those replaced by a longer input of the same file.

    Args:
        inputs: Inputs of a ledger.

    Returns:
        The inputs without duplicates, in order.
    """
    every = list(dict.fromkeys(inputs))
    gone_on = {(each.file, each.mapping, each.goes_on) for each in every if each.goes_on}
    return [each for each in every if (each.file, each.mapping, each.bytes) not in gone_on]


def _write_checkpoint(ledger: Ledger, kept: float) -> Ledger:
    """Write a checkpoint of a ledger."""
    named = [each for commit in ledger.recent for each in commit.inputs]
    if named:
        writer = LedgerWriter(ledger)
        writer.write(INPUTS_TABLE, inputs_table(current_inputs(named)))
        ledger = ledger.after(writer.commit([], {}))
    is_young = _young_commits(ledger, kept)
    gone = tuple((path, since) for path, since in ledger.gone if is_young(since))
    storage = ledger.storage
    make_table_folder(storage, CHECKPOINTS)
    known = Checkpoint(ledger.number, ledger.last, ledger.live, gone, ledger.counts)
    with contextlib.suppress(AlreadyExists):  # another process wrote it first
        checkpoints_of(storage).create(ledger.number, known.content())
    return replace(ledger, recent=(), checkpoint=ledger.number, gone=gone)


def remove_garbage(ledger: Ledger, kept: float | None = None) -> None:
    """Remove merged files after their retention, and remains of killed processes.

    Args:
        ledger: The ledger.
        kept: Retention of removed files, in seconds; None: that of ``CAUSEWAY_RETENTION``.

    Raises:
        InvalidInput: The variable is no duration.
    """
    kept = retention_seconds() if kept is None else kept
    storage, is_young = ledger.storage, _young_commits(ledger, kept)
    counting = {file.path for file in ledger.live} | {path for path, since in ledger.gone if is_young(since)}
    for path in _table_files(ledger):
        number = number_of(path.rsplit("/", 1)[-1])
        if number is not None and number <= ledger.number and path not in counting:
            storage.remove(path)
    for name in storage.list(STAGING):
        number = number_of(name)
        if number is not None and number <= ledger.number:
            storage.remove_folder(f"{STAGING}/{name}")
    checkpoints = checkpoints_of(storage)
    before = [-1, *checkpoints.numbers()[:-1]][-1]
    for folder in (commits_of(storage).folder, checkpoints.folder):
        for name in storage.list(folder):
            number = number_of(name)
            whole = name.endswith(".json")
            if number is None or number > ledger.number or (whole and number >= before):
                continue
            if whole and _modified_within(ledger, f"{folder}/{name}", kept):
                break
            storage.remove(f"{folder}/{name}")


def _table_files(ledger: Ledger) -> Iterable[str]:
    """Yield the paths of all table files, live or not."""
    for table in (*TABLES, *INTERNAL):
        for name in ledger.storage.list(table):
            if name.startswith("bucket="):
                yield from (f"{table}/{name}/{each}" for each in ledger.storage.list(f"{table}/{name}"))
            else:
                yield f"{table}/{name}"


def _young_commits(ledger: Ledger, kept: float) -> Callable[[int], bool]:
    """Return a predicate of commits younger than ``kept`` seconds."""
    known: dict[int, bool] = {}

    def young(number: int) -> bool:
        if number not in known:
            known[number] = _modified_within(ledger, commits_of(ledger.storage).path(number), kept)
        return known[number]

    return young


def _modified_within(ledger: Ledger, path: str, seconds: float) -> bool:
    modified = ledger.storage.modified(path)
    return modified is not None and modified > time.time() - seconds


__all__ = ["current_inputs", "maintain_ledger", "plan_merges", "remove_garbage", "split_by_bucket"]
