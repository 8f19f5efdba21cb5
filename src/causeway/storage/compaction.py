"""Compaction of the log files of many small commits, and removal of replaced files.

Each log table gets one file for a run of commits. Both steps continue where they stopped: the last manifest records the
progress of compaction, ``head`` that of removal. So the cost does not grow with the length of the history.
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
"""Row count of a log table at which its files are large enough and are not merged."""

BYTES = 64 << 20
"""Maximum bytes of files merged at once, in memory."""

ROW_GROUP = 1 << 16
"""Rows in a row group of a compacted file.

Rows ascend by height, so a read of one height needs few groups.
"""

RETAINED_COMMITS = RUN
"""Number of last commits whose small files are kept.

In-flight messages are found in them without reading others, and recently planned queries still find their files.
"""


def latest_compaction(lake: Lake, last: Manifest) -> CompactedLogs:
    """Return the progress of compaction: that of the last manifest, or further runs.

    Args:
        lake: The lake.
        last: Its last manifest.
    """
    done = last.compacted
    while (record := lake.compaction(done.last + 1)) is not None:
        if record.before != done.digest:
            raise lake.damaged(compaction_path(record.first), "does not follow on the record before it")
        done = CompactedLogs(record.last, record.digest)
    return done


def compact_logs(lake: Lake, last: Manifest) -> CompactedLogs:
    """Compact the next runs of commits, if any.

    Merged files are written before the record that names them, so a reader finds every row once at any time. Small
    files stay for earlier queries until ``remove_compacted``. In-flight entries are compacted as well; their consumers
    read the compacted file.

    Args:
        lake: The lake.
        last: Its last manifest.

    Returns:
        The new progress.
    """
    done = last.compacted
    if last.number % RUN:
        return done
    done = latest_compaction(lake, last)
    while done.last + RUN < last.number:
        _write_volume(lake, replace(last, compacted=done))
        first = done.last + 1
        manifests = list(lake.chain(first, first + RUN - 1))
        record = _compact_run(lake, manifests, done.digest)
        # It exists if the store lost its answer, or if a run that lost its claim was faster; its rows are equal.
        with contextlib.suppress(AlreadyExists):
            lake.storage.create(compaction_path(first), record.content())
        made = lake.compaction(first)
        assert made is not None
        done = CompactedLogs(made.last, made.digest)
    _write_volume(lake, replace(last, compacted=done))
    return done


def _write_volume(lake: Lake, last: Manifest) -> None:
    """Merge compaction records into a volume once there are enough, so that readers open few.

    It includes the previous volume, which is removed.
    """
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
    """Merge consecutive compaction records into a volume."""
    log: dict[str, list[str]] = {}
    files: dict[str, Seal] = {}
    for run in runs:
        files |= run.files
        for table, paths in run.log.items():
            log.setdefault(table, []).extend(paths)
    return CompactionRun(runs[0].first, runs[-1].last, runs[0].height, log, files, runs[-1].digest)


def _compact_run(lake: Lake, manifests: list[Manifest], before: str) -> CompactionRun:
    """Merge the log files of a run of commits, table by table."""
    first, last = manifests[0], manifests[-1]
    seals = {path: seal for manifest in manifests for path, seal in manifest.files.items()}
    log: dict[str, list[str]] = {}
    files: dict[str, Seal] = {}
    for table in sorted({table for manifest in manifests for table in manifest.log}):
        paths = [(manifest, path) for manifest in manifests for path in manifest.log.get(table, {}).values()]
        row_count = sum(line.rows.get(table, 0) for manifest in manifests for line in manifest.lines)
        if row_count > ROWS or sum(seals[path][0] for _, path in paths) > BYTES or len(paths) < 2:
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
    """Remove small files replaced by compactions, except those of the last commits.

    Only for the holder of the claim. Earlier queries of other processes may miss the files.

    Args:
        lake: The lake.
        last: Its last manifest.
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
    """Remove uncommitted files. Only for the holder of the claim.

    Args:
        lake: The lake.
        last: Last committed height.
    """
    if lake.storage.list(height_folder(last + 1)):
        lake.storage.remove_folder(height_folder(last + 1))
