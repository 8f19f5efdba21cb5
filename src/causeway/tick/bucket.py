"""One bucket of chains through its ticks: read from the lake, run the kernel, write.

This is the body of a Spark task and of the in-process executor. It depends on committed files alone, so it can be
retried: its files count only once a manifest names them.

One of several buckets runs a single tick, since the next one needs the offers of the others. A single bucket runs a
whole group of ticks; it writes their logs, and the state after the last.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from cachetools import LRUCache, cached
from causeway_proofs.errors import CausewayError
from causeway_proofs.work import merge_counts

from causeway.core.frame import Frame, FrameChanges, concat, empty_frame
from causeway.protocols.contract import HEADERS_SCHEMA, RoundResult, StateTable, Tick, Visibility
from causeway.storage.external_input import NO_INPUT
from causeway.storage.files import WHOLE_BYTES
from causeway.storage.lake import KEPT_LAKES, Lake, Manifest
from causeway.storage.layout import HEIGHTS, STATE_VACUUMED, height_folder
from causeway.storage.manifests import StateParts
from causeway.storage.seals import Seal
from causeway.storage.table_schemas import stamped_schema
from causeway.tick.deployment import GENESIS, Deployment, HeightReport, TickGroup, find_next_tick, next_height_tick
from causeway.tick.exchange import (
    ALL_BUCKETS,
    ENTRIES,
    HEADERS,
    BucketOffers,
    OfferWriter,
    group_by_consumer,
    offer_limit,
    row_group_parts,
)
from causeway.tick.reading import BucketReader, CommittedHeight, state_files
from causeway.tick.rounds import RoundChain, execute_round, genesis_round, height_report, migrate_state

ROW_GROUP = 1 << 16
"""Rows in a row group of a log file.

Rows ascend by height, so a read of one height needs few groups.
"""

MIN_ROWS_IN_PARTS = 4096
"""State tables with fewer rows are written whole."""

MAX_CACHED_BYTES = 3
"""Maximum ratio of rows in a state table's files to its rows; above it it is rewritten."""
MAX_FILES = 64
"""Maximum number of files of a state table; above it the table is rewritten."""


@dataclass(frozen=True)
class BucketCommit:
    """The files and reports of a bucket in a commit.

    Attributes:
        bucket: The bucket.
        state: Files of state tables.
        log: Files of log tables.
        reports: Report of each height, with its tick.
        files: Seals of all files.
        offers: Offers to other buckets at the last height.
        warm: True if the previous state was in memory.
        work: Work counters of the rounds (``causeway_proofs.work``).
    """

    bucket: int
    state: Mapping[str, StateParts]
    log: Mapping[str, str]
    reports: Sequence[tuple[Tick, HeightReport]]
    files: Mapping[str, Seal]
    offers: BucketOffers
    warm: bool = True
    work: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _CachedBucket:
    """The cached state of a bucket that this process ran.

    Attributes:
        height: Height of the state.
        files: Files that hold it.
        state: The state.
        rounds: The rounds in memory, for a single bucket.
    """

    height: int
    files: Mapping[str, StateParts]
    state: Any
    rounds: RoundChain | None = None


_STATES: LRUCache[tuple[str, str], dict[int, _CachedBucket]] = LRUCache(KEPT_LAKES)
"""Cached buckets by URI and identity of a lake; valid if the manifest names their files."""


def write_genesis(deployment: Deployment, lake: Lake, bucket: int) -> BucketCommit:
    """Write a bucket's state at height 0."""
    return _write_tick(deployment, lake, bucket, GENESIS, genesis_round(deployment, bucket), _NOTHING_BEFORE, {})


def run_bucket(deployment: Deployment, lake: Lake, bucket: int, before: Manifest, group: TickGroup) -> BucketCommit:
    """Run ticks of a bucket's chains on top of a committed height and write the results.

    Args:
        deployment: The network.
        lake: The lake.
        bucket: The bucket.
        before: Manifest of the committed height.
        group: The ticks; only a single bucket runs more than the first.

    Raises:
        LakeDamaged: A file of the lake is damaged.
    """
    reader = BucketReader(deployment, lake, bucket, before)
    if len(deployment.buckets) == 1:
        return _run_group(reader, group)
    tick, outside = group.first, group.outside
    state, files, warm = _state(reader, tick)
    result = execute_round(reader, state, tick, outside)
    stored = _StoredState(files, state.frames())
    written = _write_tick(deployment, lake, bucket, tick, result, stored, before.files)
    return replace(written, warm=warm, work=result.work)


def _run_group(reader: BucketReader, group: TickGroup) -> BucketCommit:
    """Run the ticks of a group for the only bucket."""
    deployment, lake, before = reader.deployment, reader.lake, reader.before
    entry, files = _cached_bucket(reader, remove=True), state_files(before, reader.bucket)
    rounds = entry.rounds if entry is not None and entry.rounds is not None else None
    if rounds is None:
        state = reader.state(reader.bucket, verified=True) if entry is None else entry.state
        rounds = RoundChain(deployment, lake, before, {reader.bucket: state})
    rounds.acknowledge_height(before)
    initial, held, started = rounds.states[reader.bucket], rounds.held, time.monotonic()
    reports: list[tuple[Tick, HeightReport]] = []
    work: list[Mapping[str, int]] = []
    tick, outside = group.first, group.outside
    while True:
        try:
            work += [result.work for result in rounds.run(tick, outside)]
        except CausewayError:
            if not reports:
                raise
            break  # commit the complete heights; the next group begins with this tick and raises again
        reports.append((tick, rounds.reports[reader.bucket]))
        next_tick = find_next_tick(rounds.line, deployment.traffic)
        if next_tick is None or (group.until is not None and next_tick >= group.until):
            break
        if group.every.full(len(reports), rounds.held - held, time.monotonic() - started):
            break
        tick, outside = next_height_tick(rounds.line, next_tick, deployment.traffic), NO_INPUT
    outputs = [rounds.made[tick.height] for tick, _ in reports]
    stored = _StoredState(files, initial.frames())
    written = _Writer(deployment, lake, reader.bucket, outputs).write(
        rounds.states[reader.bucket], reports, stored, before.files, None
    )
    rounds.forget(rounds.line.height)
    _cache_bucket(
        lake, reader.bucket, _CachedBucket(rounds.line.height, written.state, rounds.states[reader.bucket], rounds)
    )
    return replace(written, warm=entry is not None, work=merge_counts(work))


def write_heights(
    deployment: Deployment,
    lake: Lake,
    made: Sequence[CommittedHeight],
    reports: Sequence[tuple[Tick, HeightReport]],
    state: Any,
) -> BucketCommit:
    """Write complete heights of the only bucket.

    Args:
        deployment: The network.
        lake: The lake.
        made: Outputs of consecutive heights.
        reports: Report of each height, with its tick.
        state: State after the last height.
    """
    return _Writer(deployment, lake, 0, made).write(state, reports, _NOTHING_BEFORE, {}, None)


@dataclass(frozen=True)
class _StoredState:
    """The state that files hold, and those files."""

    files: Mapping[str, StateParts]
    frames: Mapping[str, Frame]

    def changes(self, name: str, frame: Frame) -> FrameChanges | None:
        """Return the changes of a table to append, or None if the table is to be rewritten."""
        if name not in self.files or name not in self.frames or len(frame) < MIN_ROWS_IN_PARTS:
            return None
        changes = frame.changed_since(self.frames[name])
        if changes is None or self.stored_rows(name) + len(changes.added) > MAX_CACHED_BYTES * len(frame):
            return None
        return changes if len(self.files[name].files) < MAX_FILES else None

    def stored_rows(self, name: str) -> int:
        """Return the number of rows in the files of a table."""
        return len(self.frames[name]) if self.files[name].whole else self.files[name].held


_NOTHING_BEFORE = _StoredState({}, {})


def _cached_bucket(reader: BucketReader, *, remove: bool = False) -> _CachedBucket | None:
    """Return the cached state of a reader's bucket, or None if it is not what the lake has.

    ``remove``: remove it from the cache, since the caller changes it in place.
    """
    states, before = _states(reader.lake), reader.before
    entry = states.pop(reader.bucket, None) if remove else states.get(reader.bucket)
    current = before.height, state_files(before, reader.bucket)
    return entry if entry is not None and (entry.height, entry.files) == current else None


def _cache_bucket(lake: Lake, bucket: int, entry: _CachedBucket) -> None:
    states = _states(lake)
    stale = entry.height - 1  # older ones were moved on by another process
    for other in [other for other, state in states.items() if state.height < stale]:
        del states[other]
    states[bucket] = entry


@cached(_STATES, key=lambda lake: (lake.storage.uri, lake.identity), lock=threading.Lock())
def _states(lake: Lake) -> dict[int, _CachedBucket]:
    return {}


def _state(reader: BucketReader, tick: Tick) -> tuple[Any, Mapping[str, StateParts], bool]:
    """Return the state of a reader's bucket for a tick, its unchanged files, and True if cached."""
    migrated = migrate_state(reader, tick)
    if migrated is not None:
        return migrated, {}, True
    files, entry = state_files(reader.before, reader.bucket), _cached_bucket(reader)
    if entry is not None:
        return entry.state, files, True
    return reader.state(reader.bucket, verified=True), files, False


def forget_states() -> None:
    """Clear the state cache, so that the next tick reads from the lake."""
    _STATES.clear()


def _write_tick(
    deployment: Deployment,
    lake: Lake,
    bucket: int,
    tick: Tick,
    result: RoundResult[Any],
    before: _StoredState,
    known: Mapping[str, Seal],
) -> BucketCommit:
    """Write the results of one tick of a bucket."""
    writer = _Writer(deployment, lake, bucket, [CommittedHeight.of(tick, [result])])
    offering = build_offers(deployment, bucket, result)
    written = writer.write(result.state, [(tick, height_report(result))], before, known, offering)
    _cache_bucket(lake, bucket, _CachedBucket(tick.height, written.state, result.state))
    return written


class _Writer:
    """Writes the output of a bucket at consecutive heights."""

    def __init__(self, deployment: Deployment, lake: Lake, bucket: int, made: Sequence[CommittedHeight]) -> None:
        self._deployment, self._storage, self._bucket, self._made = deployment, lake.storage, bucket, made
        self._folder = height_folder(made[0].tick.height)
        self._attempt = uuid.uuid4().hex[:8]  # distinguishes the files of retried tasks; no result depends on it
        self._seals: dict[str, Seal] = {}

    def write(
        self,
        state: Any,
        reports: Sequence[tuple[Tick, HeightReport]],
        before: _StoredState,
        known: Mapping[str, Seal],
        offering: OfferWriter | None,
    ) -> BucketCommit:
        """Write the state after the last height, and the logs.

        Args:
            state: The state.
            reports: Report of each height, with its tick.
            before: The stored state; unchanged tables keep its files.
            known: Seals of its files.
            offering: Offers to other buckets; None: there are none.
        """
        self._storage.make_folder(self._folder)
        files: dict[str, StateParts] = {}
        frames = state.frames()
        for name, table in self._deployment.kernel.tables().items():
            if name in before.files and before.frames.get(name) is frames[name]:
                files[name] = before.files[name]
            elif len(frames[name]):
                files[name] = self._write_state(name, table, frames[name], before)
        log = self._write_logs(offering)
        written = [*self._seals]
        if offering is not None and (seal := offering.spill(self._storage, self._path("offers", ""))) is not None:
            self._seals[self._path("offers", "")] = seal
            written.append(self._path("offers", ""))
        self._storage.sync([*written, self._folder, HEIGHTS])
        paths = {path for parts in files.values() for path in parts.files}
        seals = {**{path: known[path] for path in paths if path in known}, **self._seals}
        offers = BucketOffers() if offering is None else offering.offers()
        return BucketCommit(self._bucket, files, log, reports, seals, offers)

    def _write_state(self, name: str, table: StateTable, frame: Frame, before: _StoredState) -> StateParts:
        """Write the changes of a state table, or the whole table; return its files."""
        changes = before.changes(name, frame)
        if changes is None:
            return StateParts((self._write_frame(name, frame, table.schema),))
        (rows, removed, _), stored = before.files[name], before.stored_rows(name)
        if len(changes.added):
            rows = (*rows, self._write_frame(name, changes.added, table.schema))
        if len(changes.gone):
            keys = pa.schema([table.schema.field(key) for key in table.order])
            removed = (*removed, self._write_frame(name + STATE_VACUUMED, changes.gone, keys))
        return StateParts(rows, removed, stored + len(changes.added))

    def _write_frame(self, name: str, frame: Frame, schema: pa.Schema) -> str:
        path = self._path(name)
        self._seals[path] = self._storage.write_table(path, frame.to_table(schema), sync=False)
        return path

    def _write_logs(self, offering: OfferWriter | None) -> dict[str, str]:
        kernel = self._deployment.kernel
        schemas = {**kernel.logs, "headers": HEADERS_SCHEMA}
        log: dict[str, str] = {}
        for name, schema in schemas.items():
            none = empty_frame(schema)
            frames = [made.headers if name == "headers" else made.logs.get(name, none) for made in self._made]
            if any(map(len, frames)):
                log[name] = path = self._path(name)
                rows = self._with_height_columns(frames, schema)
                self._seals[path] = self._write_rows(path, rows, ["height"])
        entries = [made.outbound for made in self._made]
        if any(map(len, entries)):
            log["outbound"] = path = self._path("outbound")
            if offering is None:
                rows = self._with_height_columns(entries, kernel.outbound)
                self._seals[path] = self._write_rows(path, rows, ["height", "destination"])
            else:
                self._seals[path] = self._write_outbound(path, entries[0], offering)
        return log

    def _write_rows(self, path: str, rows: pa.Table, statistics: Sequence[str]) -> Seal:
        size = ROW_GROUP if len(self._made) > 1 else None
        return self._storage.write_table(path, rows, sync=False, statistics=statistics, row_group_size=size)

    def _path(self, table: str, ending: str = ".parquet") -> str:
        # User programs are named module:Class, but Spark takes a prefix before a colon for a URI scheme.
        return f"{self._folder}/{table.replace(':', '.')}-{self._bucket:04d}-{self._attempt}{ending}"

    def _with_height_columns(self, frames: Sequence[Frame], schema: pa.Schema) -> pa.Table:
        """Return the rows of each height with columns ``height`` and ``tick``."""
        counts = [len(frame) for frame in frames]
        stamps = [
            np.repeat(np.array([getattr(made.tick, name) for made in self._made], dtype=np.int64), counts)
            for name in ("height", "tick")
        ]
        rows = concat(frames).to_table(schema)
        return pa.Table.from_arrays([*map(pa.array, stamps), *rows.columns], schema=stamped_schema(schema))

    def _write_outbound(self, path: str, outbound: Frame, offering: OfferWriter) -> Seal:
        """Write outbound entries (ascending by destination) and offer them; return the file's seal.

        Few entries pass through the driver. With many, the file has a row group for each consumer.
        """
        deployment = self._deployment
        entries = outbound.to_table(deployment.kernel.outbound)
        table = self._with_height_columns([outbound], deployment.kernel.outbound)
        consumers = deployment.buckets_of(outbound["destination"])
        spilled = entries.nbytes > offering.left()
        at_once = table.nbytes <= WHOLE_BYTES and not spilled
        statistics = ["height", "destination"]
        with self._storage.parquet_writer(
            path, table.schema, sync=False, at_once=at_once, statistics=statistics
        ) as writer:
            if not spilled:
                writer.write_table(table, row_group_size=table.num_rows)
            for _, rows in group_by_consumer(table, consumers) if spilled else ():
                writer.write_part(rows)
        if spilled:
            offering.refer(row_group_parts(path, np.unique(consumers).tolist(), writer.cuts))
        else:
            offering.add(ENTRIES, group_by_consumer(entries, consumers))
        return writer.seal


def build_offers(deployment: Deployment, bucket: int, result: RoundResult[Any]) -> OfferWriter | None:
    """Collect a bucket's offers after a round, except outbound entries; None without others."""
    count = len(deployment.buckets)
    if count == 1:
        return None
    offering = OfferWriter(offer_limit(count))
    offering.add(HEADERS, [(ALL_BUCKETS, result.headers.to_table(HEADERS_SCHEMA))])
    frames = result.state.frames()
    for name, table in deployment.kernel.tables().items():
        if table.shown == Visibility.NOBODY or not len(frames[name]):
            continue
        rows = frames[name].to_table(table.schema)
        if table.shown == Visibility.EVERYONE:
            offering.add(name, [(ALL_BUCKETS, rows)])
        else:
            offering.add(name, group_by_consumer(rows, deployment.buckets_of(frames[name][table.shown_to]), bucket))
    return offering
