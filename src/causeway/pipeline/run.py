"""Ticks and commits: the driver's side of a run. Bulk data never passes here: names of files, row counts,
and what buckets offer each other as far as it is small."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from causeway.pipeline.bucket import FIRST_HEIGHT, Written
from causeway.pipeline.claim import WriterClaim
from causeway.pipeline.executors import Executor
from causeway.pipeline.lake import Compacted, Lake, Manifest
from causeway.pipeline.offers import write_exchange
from causeway.pipeline.record import Outside
from causeway.protocols.contract import Tick


def commit_genesis(executor: Executor, lake: Lake, claim: WriterClaim | None = None) -> Manifest:
    """Write and commit height 0. ``claim``: on the lake, None for one that no other process knows."""
    tick = Tick(FIRST_HEIGHT, 0)
    return _committed(lake, claim, _exchanged(lake, executor.genesis(), tick, {}))


def run_tick(
    executor: Executor,
    lake: Lake,
    before: Manifest,
    tick: int,
    coming: int | None = None,
    *,
    claim: WriterClaim | None = None,
    compacted: Compacted | None = None,
    came: bool = False,
    outside: Outside = MappingProxyType({}),
    check: Callable[[Manifest], None] | None = None,
) -> Manifest:
    """Run one tick of the whole network on top of ``before`` and commit it as the next height.

    ``coming``: the next tick after it that brings something from outside, as far as is known. ``came``: whether it
    brings something itself. ``claim``: as of ``commit_genesis``. ``compacted``: how far the log tables are, where that
    is farther than ``before`` says. ``outside``: what was recorded for it. ``check``: is given what is to be committed,
    and raises if it must not be.
    """
    now = tick_after(before, tick, coming, came=came)
    manifest = _exchanged(lake, executor.run(now, before, outside), now, outside)
    totals = {**before.totals, **{name: before.totals.get(name, 0) + count for name, count in manifest.rows.items()}}
    manifest = replace(manifest, parent=before.digest, totals=totals, compacted=compacted or before.compacted)
    if check is not None:
        check(manifest)
    return _committed(lake, claim, manifest)


def _exchanged(lake: Lake, written: Sequence[Written], tick: Tick, outside: Outside) -> Manifest:
    """Write what the buckets offer each other; return the manifest of what all of them wrote."""
    manifest = assembled(tick, written, outside)
    offers = {part.bucket: part.offers for part in written}
    made = write_exchange(lake, lake.height_folder(tick.height), uuid.uuid4().hex[:8], offers)
    if made is None:
        return manifest
    exchange, seal = made
    return replace(manifest, exchange=exchange, files={**manifest.files, exchange.path: seal})


def _committed(lake: Lake, claim: WriterClaim | None, manifest: Manifest) -> Manifest:
    if claim is not None:
        claim.confirm()
        manifest = replace(manifest, epoch=claim.epoch)
    return lake.commit(manifest)


def tick_after(before: Manifest, tick: int, coming: int | None, *, came: bool) -> Tick:
    """Return a tick as the height after ``before``."""
    quiet_since = max(before.quiet_since, tick) if came else before.quiet_since
    return Tick(before.height + 1, tick, coming, quiet_since)


def assembled(tick: Tick, written: Sequence[Written], outside: Outside = MappingProxyType({})) -> Manifest:
    """Return the manifest of what all buckets wrote, and of what was recorded for the tick.

    A bucket that gives up does not wake any more: whether anything moved is known here, of all of them.
    """
    state: dict[str, dict[str, str]] = {}
    log: dict[str, dict[str, str]] = {}
    spilled: dict[str, str] = {}
    rows: dict[str, int] = {}
    for part in written:
        for table, path in part.state.items():
            state.setdefault(table, {})[str(part.bucket)] = path
        for table, path in part.log.items():
            log.setdefault(table, {})[str(part.bucket)] = path
        spilled |= {str(part.bucket): path for path in part.offers.files()}
        for table, count in part.rows.items():
            rows[table] = rows.get(table, 0) + count
    files = {path: seal for part in written for path, seal in part.files.items()}
    quiet = not moved(rows)
    ends = tick.tick if quiet and tick.coming is None else -1
    going_on = [part for part in written if part.gives_up is None or part.gives_up > ends]
    wakes = [part.wake for part in going_on if part.wake is not None]
    needs = [part.needs for part in written if part.needs is not None]
    return Manifest(
        height=tick.height,
        tick=tick.tick,
        state=state,
        log=log,
        wake=min(wakes, default=None),
        quiet_since=tick.quiet_since if quiet else tick.tick + 1,
        needs=min(needs, default=None),
        rows=rows,
        totals=rows,
        outside={kind: path for kind, (path, _) in outside.items()},
        offers=spilled,
        files=files | dict(outside.values()),
    )


def moved(rows: Mapping[str, int]) -> bool:
    """Return whether anything happened at a height, by its numbers of rows.

    Headers do not count, nor what carriers brought, refused or taken, nor handlers that failed, which may be tried for
    ever: where that moved a message, it has events of its own.
    """
    still = ("headers", "events", "of_carriers", "failures")
    others = sum(count for table, count in rows.items() if table not in still)
    return others > 0 or rows.get("events", 0) > rows.get("of_carriers", 0)
