"""Ticks and commits: the driver's side of a run. Bulk data never passes here, only names of files and row counts."""

from __future__ import annotations

from collections.abc import Sequence

from causeway.pipeline.bucket import FIRST_HEIGHT, Written
from causeway.pipeline.executors import Executor
from causeway.pipeline.lake import Lake, Manifest
from causeway.protocols.contract import Tick


def commit_genesis(executor: Executor, lake: Lake) -> Manifest:
    """Write and commit height 0."""
    manifest = assembled(Tick(FIRST_HEIGHT, 0), executor.genesis())
    lake.commit(manifest)
    return manifest


def run_tick(executor: Executor, lake: Lake, before: Manifest, tick: int) -> Manifest:
    """Run one tick of the whole network on top of ``before`` and commit it as the next height."""
    now = Tick(before.height + 1, tick)
    manifest = assembled(now, executor.run(now, before))
    lake.commit(manifest)
    return manifest


def assembled(tick: Tick, written: Sequence[Written]) -> Manifest:
    """Return the manifest of what all buckets wrote."""
    state: dict[str, dict[str, str]] = {}
    log: dict[str, dict[str, str]] = {}
    row_groups: dict[str, dict[str, int]] = {}
    rows: dict[str, int] = {}
    for part in written:
        for table, path in part.state.items():
            state.setdefault(table, {})[str(part.bucket)] = path
        for table, path in part.log.items():
            log.setdefault(table, {})[str(part.bucket)] = path
        if "transfers" in part.log:
            row_groups[part.log["transfers"]] = dict(part.row_groups)
        for table, count in part.rows.items():
            rows[table] = rows.get(table, 0) + count
    oldest = [part.oldest_run for part in written if part.oldest_run is not None]
    return Manifest(
        height=tick.height,
        tick=tick.tick,
        state=state,
        log=log,
        row_groups=row_groups,
        idle=all(part.idle for part in written),
        oldest_run=min(oldest, default=None),
        rows=rows,
    )
