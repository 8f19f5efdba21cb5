"""Compaction: the log tables of many small commits become one file a table, so that reading a long history stays
fast; and the removal of what counts no more.

Both go on where they stopped: the last manifest says how far the log tables are compacted, ``head`` how far what
compactions replaced is removed. So neither costs more after a long history than after a short one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from causeway.storage.files import AlreadyExists
from causeway.storage.lake import CompactedLogs, Lake, Manifest
from causeway.storage.layout import (
    COMPACTED,
    RUN,
    VOLUME,
    CompactionRun,
    compaction_path,
    height_folder,
    height_name,
    volume_path,
)
from causeway.storage.seals import Seal

ROWS = 1 << 20
"""A run stops growing when a log table has this many rows: files of that size are read well as they are."""

BYTES = 64 << 20
"""The same for files of so many bytes together, which are in memory while they are joined."""

ROW_GROUP = 1 << 16
"""Rows of a group of a compacted file: its rows ascend by height, so that who asks for one height reads few groups."""

RETAINED_COMMITS = RUN
"""So many of the last commits keep their small files when the lake is opened or closed, compacted or not: what is on
its way is found in them without reading others' entries, and queries that were planned lately find theirs."""


def latest_compaction(lake: Lake, last: Manifest) -> CompactedLogs:
    """Return how far the log tables are compacted: as the last manifest says, or one run farther."""
    done = last.compacted
    while (record := lake.compaction(done.last + 1)) is not None:
        if record.before != done.digest:
            raise lake.damaged(compaction_path(record.first), "does not follow on the record before it")
        done = CompactedLogs(record.last, record.digest)
    return done


def compact_logs(lake: Lake, last: Manifest) -> CompactedLogs:
    """Compact the next runs of commits, if there are any; return how far the log tables are compacted now.

    The merged files are written first, then the record that names them, so a reader finds every row once, whenever it
    looks. The small files stay for queries planned before; ``tidy`` removes them. Entries that are still on their way
    are compacted as well: whoever takes them then finds them in the compacted file.
    """
    done = last.compacted
    if last.number % RUN:
        return done
    done = latest_compaction(lake, last)
    while done.last + RUN < last.number:
        _bind(lake, replace(last, compacted=done))
        first = done.last + 1
        manifests = list(lake.chain(first, first + RUN - 1))
        record = _compacted(lake, manifests, done.digest)
        # Else the store took it and lost its answer, or a run that was taken over was quicker: its rows are the same.
        with contextlib.suppress(AlreadyExists):
            lake.storage.create(compaction_path(first), record.content())
        made = lake.compaction(first)
        assert made is not None
        done = CompactedLogs(made.last, made.digest)
    _bind(lake, replace(last, compacted=done))
    return done


def _bind(lake: Lake, last: Manifest) -> None:
    """Write the records of all compactions together once there are enough of them, so that who lists the files of a
    long history reads few; the ones of before are in it, and go."""
    many = RUN * VOLUME
    until = (last.compacted.last + 1) // many * many
    if not until or lake.storage.exists(volume_path(until - 1)):
        return
    before = lake.volume(until - many - 1)
    runs = [run for run in lake.runs_after(before, last) if run.last < until]
    with contextlib.suppress(AlreadyExists):  # as above
        lake.storage.create(
            volume_path(until - 1), bind_volume([*([before] if before is not None else []), *runs]).content()
        )
    if before is not None:
        lake.storage.remove(volume_path(before.last))


def bind_volume(runs: Sequence[CompactionRun]) -> CompactionRun:
    """Return compactions that follow each other as one: a volume."""
    log: dict[str, list[str]] = {}
    files: dict[str, Seal] = {}
    for run in runs:
        files |= run.files
        for table, paths in run.log.items():
            log.setdefault(table, []).extend(paths)
    return CompactionRun(runs[0].first, runs[-1].last, runs[0].height, log, files, runs[-1].digest)


def _compacted(lake: Lake, manifests: list[Manifest], before: str) -> CompactionRun:
    first, last = manifests[0], manifests[-1]
    seals = {path: seal for manifest in manifests for path, seal in manifest.files.items()}
    log: dict[str, list[str]] = {}
    files: dict[str, Seal] = {}
    for table in sorted({table for manifest in manifests for table in manifest.log}):
        paths = [(manifest, path) for manifest in manifests for path in manifest.log.get(table, {}).values()]
        rows_there = sum(line.rows.get(table, 0) for manifest in manifests for line in manifest.lines)
        if rows_there > ROWS or sum(seals[path][0] for _, path in paths) > BYTES or len(paths) < 2:
            log[table] = [path for _, path in paths]
            files |= {path: seals[path] for _, path in paths}
            continue
        rows = [lake.table(manifest, path) for manifest, path in paths]
        name = table.replace(":", ".")
        target = f"{COMPACTED}/{name}-{height_name(first.first)}-{height_name(last.last)}.parquet"
        joined = pa.concat_tables(rows).unify_dictionaries().combine_chunks()
        files[target] = lake.storage.write_table(target, joined, statistics=["height"], row_group_size=ROW_GROUP)
        log[table] = [target]
    lake.storage.sync([COMPACTED])
    return CompactionRun(first.number, last.number, first.first, log, files, before)


def remove_compacted(lake: Lake, last: Manifest) -> None:
    """Remove the small files that compactions have replaced, but for those of the last commits.

    For the holder of the claim. Queries of other processes that were planned before may miss the small files.
    """
    head, done = lake.head(), latest_compaction(lake, last)
    until = min(done.last + 1, (last.number - RETAINED_COMMITS + 1) // RUN * RUN)
    if until <= head.tidied:
        return
    lake.write_head(replace(head, tidying=until))
    first = head.tidied
    while first < until and (record := lake.compaction(first)) is not None:
        for number in range(record.first, record.last + 1):
            manifest = lake.numbered(number)
            small = [path for files in manifest.log.values() for path in files.values() if path not in record.files]
            for path in [*small, *manifest.exchanged()]:
                lake.storage.remove(path)
        first = record.last + 1
    lake.write_head(replace(head, tidied=first, tidying=until))


def remove_uncommitted(lake: Lake, last: int) -> None:
    """Remove what was written for the heights after ``last``, which were never committed. For the holder of the
    claim."""
    if lake.storage.list(height_folder(last + 1)):
        lake.storage.remove_folder(height_folder(last + 1))
