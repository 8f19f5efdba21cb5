"""What keeps a ledger that gets a commit a second for days as quick to open and to read as a young one.

Small files of a bucket are merged: a commit of its own adds the merged file and lets those it was made of no longer
count. Every ``EVERY`` commits a checkpoint says all that counts. What no longer counts, and what killed processes left,
is removed once nobody who opened the ledger before can still be reading it. Killed at any instant, the rows are the
same.
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
    STAGING,
    WHOLE_BUCKET,
    Checkpoint,
    InputFile,
    checkpoints_of,
    commits_of,
    inputs_from_table,
    inputs_table,
    table_schema,
)
from causeway.ledger.row_order import LAYOUTS, drop_repeats
from causeway.ledger.schema import TABLES
from causeway.ledger.store import LOOSE_TABLES, Ledger, LedgerWriter, StoredFile, group_by_bucket
from causeway.storage.commit_log import number_of
from causeway.storage.object_store import AlreadyExists

CHECKPOINT_EVERY = 32
"""So many commits after a checkpoint there is another."""

RETENTION_SECONDS = 3600.0
"""What no longer counts stays for so long, for those who opened the ledger before."""

FILES_PER_MERGE = 8
"""So many files of a bucket that are about as large are merged."""

MINIMUM, MAXIMUM = 1 << 12, 1 << 21
"""Files of up to ``LEAST`` rows count as small as each other; a merged file has ``MOST`` rows, and a file of half as
many stays."""

MAX_BYTES = 1 << 29
"""As many bytes of rows are merged into one file."""


@dataclass(frozen=True)
class FileMerge:
    """Files that become one; ``spread``: one a bucket."""

    table: str
    bucket: int | None
    files: tuple[StoredFile, ...]
    spread: bool = False


def maintain_ledger(ledger: Ledger, threads: int = 1, kept: float = RETENTION_SECONDS) -> Ledger:
    """Merge what is to be merged, write a checkpoint if it is time, and remove what nobody needs; return the ledger as
    it is then. For who commits to it. Raises ``CommitLost`` when another process does, too."""
    while found := plan_merges(ledger):
        ledger = _merged(ledger, found, threads)
    if ledger.number - ledger.checkpoint >= CHECKPOINT_EVERY:
        ledger = _checkpointed(ledger, kept)
        remove_garbage(ledger, kept)
    return ledger


def _merged(ledger: Ledger, found: list[FileMerge], threads: int) -> Ledger:
    writer = LedgerWriter(ledger)
    large = sum(file.rows for merge in found for file in merge.files) > MAXIMUM
    try:
        with ThreadPoolExecutor(1 if large else threads, "causeway-merge") as pool:
            for _ in pool.map(lambda merge: _merge(writer, merge), found):
                pass
    except BaseException:
        writer.abandon()
        raise
    return ledger.after(writer.commit([], {}))


def plan_merges(ledger: Ledger) -> list[FileMerge]:
    """Return what is to be merged now."""
    of: dict[tuple[str, int | None], list[StoredFile]] = {}
    for file in ledger.live:
        if file.table not in WHOLE_BUCKET:
            of.setdefault((file.table, file.bucket), []).append(file)
    found = []
    for (table, bucket), files in sorted(
        of.items(), key=lambda each: (each[0][0], each[0][1] is not None, each[0][1] or 0)
    ):
        loose = table in LOOSE_TABLES and bucket is None
        if loose and (sum(file.rows for file in files) >= MINIMUM * ledger.buckets or _bytes(files) >= MAX_BYTES):
            return [FileMerge(table, None, tuple(_fitting(files) or files[:1]), spread=True)]
        least = max(MINIMUM // 64, 1) if loose else MINIMUM
        chosen = _alike(files, least)
        if len(chosen) > 1:
            found.append(FileMerge(table, bucket, tuple(chosen)))
    return found


def _alike(files: Sequence[StoredFile], least: int) -> list[StoredFile]:
    """Return files of one bucket that are to become one: those of a size and the smaller ones, once there are
    ``TOGETHER`` of a size; none before."""
    small = sorted((file for file in files if file.rows < MAXIMUM // 2), key=lambda file: (file.rows, file.path))
    small = [file for file in small if file.bytes < MAX_BYTES // 2]
    limit = least
    while limit < MAXIMUM:
        alike = [file for file in small if file.rows < limit]
        if len(alike) >= FILES_PER_MERGE:
            return _fitting(alike)
        limit *= FILES_PER_MERGE
    return _fitting(small) if len(small) >= FILES_PER_MERGE else []


def _fitting(files: list[StoredFile]) -> list[StoredFile]:
    """Return the first files, as many as become one of up to ``MOST`` rows."""
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
        for bucket, mine in group_by_bucket(rows, ledger.buckets, merge.table).items():
            writer.write(merge.table, _in_order(mine, merge.table), bucket)
    elif merge.table in LOOSE_TABLES and merge.bucket is None:
        rows = split_by_bucket(_in_order(rows, merge.table), ledger.buckets, merge.table)
    elif merge.table == "ledger" or merge.table in LAYOUTS:
        rows = _in_order(rows, merge.table)
    else:
        rows = rows.unify_dictionaries()
    if not merge.spread:
        writer.write(merge.table, rows, merge.bucket)
    for file in merge.files:
        writer.remove(file)


def _in_order(rows: pa.Table, table: str) -> pa.Table:
    """Return rows of the ledger in order, each event once; of other tables all of them."""
    return drop_repeats(rows) if table == "ledger" else LAYOUTS[table].in_order(rows.unify_dictionaries())


def split_by_bucket(rows: pa.Table, buckets: int, table: str = "ledger") -> pa.Table:
    """Return rows of all buckets by their buckets, and within each as they stand."""
    if not rows.num_rows:
        return rows
    parts = group_by_bucket(rows.unify_dictionaries().combine_chunks(), buckets, table)
    return pa.concat_tables([parts[bucket] for bucket in sorted(parts)])


def current_inputs(inputs: Iterable[InputFile]) -> list[InputFile]:
    """Return what was taken, but for what the same file was when less of it had been written."""
    every = list(dict.fromkeys(inputs))
    gone_on = {(each.file, each.mapping, each.goes_on) for each in every if each.goes_on}
    return [each for each in every if (each.file, each.mapping, each.bytes) not in gone_on]


def _checkpointed(ledger: Ledger, kept: float) -> Ledger:
    """Return a ledger of which a checkpoint says all that counts."""
    named = [each for commit in ledger.recent for each in commit.inputs]
    if named:
        writer = LedgerWriter(ledger)
        writer.write(INPUTS_TABLE, inputs_table(current_inputs(named)))
        ledger = ledger.after(writer.commit([], {}))
    young = _young(ledger, kept)
    gone = tuple((path, since) for path, since in ledger.gone if young(since))
    storage = ledger.storage
    storage.make_folder(CHECKPOINTS)
    known = Checkpoint(ledger.number, ledger.last, ledger.live, gone, ledger.counts)
    with contextlib.suppress(AlreadyExists):  # another process was quicker
        checkpoints_of(storage).create(ledger.number, known.content())
    return replace(ledger, recent=(), checkpoint=ledger.number, gone=gone)


def remove_garbage(ledger: Ledger, kept: float = RETENTION_SECONDS) -> None:
    """Remove what does not count and nobody reads: files that were merged, and what killed processes left."""
    storage, young = ledger.storage, _young(ledger, kept)
    counting = {file.path for file in ledger.live} | {path for path, since in ledger.gone if young(since)}
    for path in _written(ledger):
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


def _written(ledger: Ledger) -> Iterable[str]:
    """Yield the paths of all files of tables, whether they count or not."""
    for table in (*TABLES, *INTERNAL):
        for name in ledger.storage.list(table):
            if name.startswith("bucket="):
                yield from (f"{table}/{name}/{each}" for each in ledger.storage.list(f"{table}/{name}"))
            else:
                yield f"{table}/{name}"


def _young(ledger: Ledger, kept: float) -> Callable[[int], bool]:
    """Return what says whether a commit was made within the last ``kept`` seconds."""
    known: dict[int, bool] = {}

    def young(number: int) -> bool:
        if number not in known:
            known[number] = _modified_within(ledger, commits_of(ledger.storage).path(number), kept)
        return known[number]

    return young


def _modified_within(ledger: Ledger, path: str, seconds: float) -> bool:
    modified = ledger.storage.modified(path)
    return modified is not None and modified > time.time() - seconds


__all__ = ["RETENTION_SECONDS", "current_inputs", "maintain_ledger", "plan_merges", "remove_garbage", "split_by_bucket"]
