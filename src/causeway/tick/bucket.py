"""One bucket of chains through its ticks: read state and entries from the lake, run the kernel, write what comes of it.

This is the body of a Spark task, and of the in-process executor. It is a function of committed files alone, so it
may be run again at any time: what it writes counts only once a manifest names it.

A bucket among several runs one tick, since the next one needs what the others offer. One that is alone runs a whole
group of them, and writes what all of them logged, and the state after the last.
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
"""Rows of a group of a log file: its rows ascend by height, so that who asks for one height reads few groups."""

MIN_ROWS_IN_PARTS = 4096
"""A state table of fewer rows is written whole."""

MAX_CACHED_BYTES = 3
MAX_FILES = 64
"""A state table is written whole again before its files hold so many times its rows, or are so many."""


@dataclass(frozen=True)
class BucketCommit:
    """What one bucket wrote in a commit: what fits a manifest (which has the same names), what it ``said`` of each
    height, with its tick, and what it ``offers`` at the last.

    ``warm``: whether the state that it began with was in memory. ``work``: what was counted of the rounds' work
    (``proofs.work``).
    """

    bucket: int
    state: Mapping[str, StateParts]
    log: Mapping[str, str]
    said: Sequence[tuple[Tick, HeightReport]]
    files: Mapping[str, Seal]
    offers: BucketOffers
    warm: bool = True
    work: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Kept:
    """What this process keeps of a bucket that it ran: its state at a ``height``, the files that hold it, and, of one
    that is alone, the rounds that it made."""

    height: int
    files: Mapping[str, StateParts]
    state: Any
    rounds: RoundChain | None = None


_STATES: LRUCache[tuple[str, str], dict[int, _Kept]] = LRUCache(KEPT_LAKES)
"""By URI and identity of a lake what this process wrote last for each bucket: valid when the manifest names just those
files. Of the lakes only the last two."""


def write_genesis(deployment: Deployment, lake: Lake, bucket: int) -> BucketCommit:
    """Write a bucket's state at height 0."""
    return _written(deployment, lake, bucket, GENESIS, genesis_round(deployment, bucket), _NOTHING_BEFORE, {})


def run_bucket(deployment: Deployment, lake: Lake, bucket: int, before: Manifest, group: TickGroup) -> BucketCommit:
    """Run ticks of a bucket's chains on top of the committed height ``before``; write what comes of it.

    Raises ``LakeDamaged``.
    """
    reader = BucketReader(deployment, lake, bucket, before)
    if len(deployment.buckets) == 1:
        return _run_group(reader, group)
    tick, outside = group.first, group.outside
    state, files, warm = _state(reader, tick)
    result = execute_round(reader, state, tick, outside)
    stored = _Stored(files, state.frames())
    written = _written(deployment, lake, bucket, tick, result, stored, before.files)
    return replace(written, warm=warm, work=result.work)


def _run_group(reader: BucketReader, group: TickGroup) -> BucketCommit:
    """Run ticks of the only bucket, as many as the group has."""
    deployment, lake, before = reader.deployment, reader.lake, reader.before
    kept, files = _kept(reader, taken=True), state_files(before, reader.bucket)
    rounds = kept.rounds if kept is not None and kept.rounds is not None else None
    if rounds is None:
        state = reader.state(reader.bucket, verified=True) if kept is None else kept.state
        rounds = RoundChain(deployment, lake, before, {reader.bucket: state})
    rounds.acknowledge_height(before)
    began, held, started = rounds.states[reader.bucket], rounds.held, time.monotonic()
    said: list[tuple[Tick, HeightReport]] = []
    done: list[Mapping[str, int]] = []
    tick, outside = group.first, group.outside
    while True:
        try:
            done += [result.work for result in rounds.run(tick, outside)]
        except CausewayError:
            if not said:
                raise
            break  # what is whole is committed; the next group begins with this tick, and ends at once
        said.append((tick, rounds.said[reader.bucket]))
        following = find_next_tick(rounds.line, deployment.traffic)
        if following is None or (group.until is not None and following >= group.until):
            break
        if group.every.full(len(said), rounds.held - held, time.monotonic() - started):
            break
        tick, outside = next_height_tick(rounds.line, following, deployment.traffic), NO_INPUT
    made = [rounds.made[tick.height] for tick, _ in said]
    stored = _Stored(files, began.frames())
    written = _Writer(deployment, lake, reader.bucket, made).write(
        rounds.states[reader.bucket], said, stored, before.files, None
    )
    rounds.forget(rounds.line.height)
    _keep(lake, reader.bucket, _Kept(rounds.line.height, written.state, rounds.states[reader.bucket], rounds))
    return replace(written, warm=kept is not None, work=merge_counts(done))


def write_heights(
    deployment: Deployment,
    lake: Lake,
    made: Sequence[CommittedHeight],
    said: Sequence[tuple[Tick, HeightReport]],
    state: Any,
) -> BucketCommit:
    """Write what the only bucket made at heights that follow each other, in whole, and its ``state`` after the last.
    ``said``: of each height."""
    return _Writer(deployment, lake, 0, made).write(state, said, _NOTHING_BEFORE, {}, None)


@dataclass(frozen=True)
class _Stored:
    """What a bucket's state was, and the files that hold it."""

    files: Mapping[str, StateParts]
    frames: Mapping[str, Frame]

    def changes(self, name: str, frame: Frame) -> FrameChanges | None:
        """Return how a table changed where that is to be written, None where the whole table is."""
        if name not in self.files or name not in self.frames or len(frame) < MIN_ROWS_IN_PARTS:
            return None
        changes = frame.changed_since(self.frames[name])
        if changes is None or self.held(name) + len(changes.added) > MAX_CACHED_BYTES * len(frame):
            return None
        return changes if len(self.files[name].files) < MAX_FILES else None

    def held(self, name: str) -> int:
        """Return how many rows the files with a table's rows have."""
        return len(self.frames[name]) if self.files[name].whole else self.files[name].held


_NOTHING_BEFORE = _Stored({}, {})


def _kept(reader: BucketReader, *, taken: bool = False) -> _Kept | None:
    """Return what is in memory of a reader's bucket, None where that is not what the lake has. ``taken``: it is going
    to be changed, and is not there any more should that fail half-way."""
    states, before = _states(reader.lake), reader.before
    kept = states.pop(reader.bucket, None) if taken else states.get(reader.bucket)
    there = before.height, state_files(before, reader.bucket)
    return kept if kept is not None and (kept.height, kept.files) == there else None


def _keep(lake: Lake, bucket: int, kept: _Kept) -> None:
    states = _states(lake)
    stale = kept.height - 1  # older ones were moved on by another process
    for other in [other for other, state in states.items() if state.height < stale]:
        del states[other]
    states[bucket] = kept


@cached(_STATES, key=lambda lake: (lake.storage.uri, lake.identity), lock=threading.Lock())
def _states(lake: Lake) -> dict[int, _Kept]:
    return {}


def _state(reader: BucketReader, tick: Tick) -> tuple[Any, Mapping[str, StateParts], bool]:
    """Return the state of a reader's bucket for a tick, the files that hold it as it is, and whether it was in
    memory."""
    moved = migrate_state(reader, tick)
    if moved is not None:
        return moved, {}, True
    files, kept = state_files(reader.before, reader.bucket), _kept(reader)
    if kept is not None:
        return kept.state, files, True
    return reader.state(reader.bucket, verified=True), files, False


def forget_states() -> None:
    """Forget the states that this process keeps, so that the next tick reads them from the lake."""
    _STATES.clear()


def _written(
    deployment: Deployment,
    lake: Lake,
    bucket: int,
    tick: Tick,
    result: RoundResult[Any],
    before: _Stored,
    known: Mapping[str, Seal],
) -> BucketCommit:
    """Write what one tick gave a bucket."""
    writer = _Writer(deployment, lake, bucket, [CommittedHeight.of(tick, [result])])
    offering = build_offers(deployment, bucket, result)
    written = writer.write(result.state, [(tick, height_report(result))], before, known, offering)
    _keep(lake, bucket, _Kept(tick.height, written.state, result.state))
    return written


class _Writer:
    """Writes what a bucket made at heights that follow each other."""

    def __init__(self, deployment: Deployment, lake: Lake, bucket: int, made: Sequence[CommittedHeight]) -> None:
        self._deployment, self._storage, self._bucket, self._made = deployment, lake.storage, bucket, made
        self._folder = height_folder(made[0].tick.height)
        self._attempt = uuid.uuid4().hex[:8]  # keeps attempts of one task apart; it names files, it decides nothing
        self._seals: dict[str, Seal] = {}

    def write(
        self,
        state: Any,
        said: Sequence[tuple[Tick, HeightReport]],
        before: _Stored,
        known: Mapping[str, Seal],
        offering: OfferWriter | None,
    ) -> BucketCommit:
        """Write the state after the last height, as far as it is not what it was ``before`` (the seals of these files
        are ``known``), and the logs. ``offering``: what is offered to the others, where there are others."""
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
        named = {path for parts in files.values() for path in parts.files}
        seals = {**{path: known[path] for path in named if path in known}, **self._seals}
        offers = BucketOffers() if offering is None else offering.offers()
        return BucketCommit(self._bucket, files, log, said, seals, offers)

    def _write_state(self, name: str, table: StateTable, frame: Frame, before: _Stored) -> StateParts:
        """Write a state table: what changed in it where it knows that, else the whole; return its files."""
        changes = before.changes(name, frame)
        if changes is None:
            return StateParts((self._write_frame(name, frame, table.schema),))
        (rows, gone, _), held = before.files[name], before.held(name)
        if len(changes.added):
            rows = (*rows, self._write_frame(name, changes.added, table.schema))
        if len(changes.gone):
            keys = pa.schema([table.schema.field(key) for key in table.order])
            gone = (*gone, self._write_frame(name + STATE_VACUUMED, changes.gone, keys))
        return StateParts(rows, gone, held + len(changes.added))

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
                rows = self._stamped(frames, schema)
                self._seals[path] = self._write_rows(path, rows, ["height"])
        entries = [made.outbound for made in self._made]
        if any(map(len, entries)):
            log["outbound"] = path = self._path("outbound")
            if offering is None:
                rows = self._stamped(entries, kernel.outbound)
                self._seals[path] = self._write_rows(path, rows, ["height", "destination"])
            else:
                self._seals[path] = self._write_outbound(path, entries[0], offering)
        return log

    def _write_rows(self, path: str, rows: pa.Table, statistics: Sequence[str]) -> Seal:
        size = ROW_GROUP if len(self._made) > 1 else None
        return self._storage.write_table(path, rows, sync=False, statistics=statistics, row_group_size=size)

    def _path(self, table: str, ending: str = ".parquet") -> str:
        # A program of one's own is named module:Class, but Spark takes what stands before a colon for a protocol.
        return f"{self._folder}/{table.replace(':', '.')}-{self._bucket:04d}-{self._attempt}{ending}"

    def _stamped(self, frames: Sequence[Frame], schema: pa.Schema) -> pa.Table:
        """Return the rows that were made at each height, with height and tick."""
        counts = [len(frame) for frame in frames]
        stamps = [
            np.repeat(np.array([getattr(made.tick, name) for made in self._made], dtype=np.int64), counts)
            for name in ("height", "tick")
        ]
        rows = concat(frames).to_table(schema)
        return pa.Table.from_arrays([*map(pa.array, stamps), *rows.columns], schema=stamped_schema(schema))

    def _write_outbound(self, path: str, outbound: Frame, offering: OfferWriter) -> Seal:
        """Write outbound entries (ascending by destination) and offer them; return the file's seal.

        Few of them go through the driver. Of many the file has a row group a taker, which that one reads by itself.
        """
        deployment = self._deployment
        entries = outbound.to_table(deployment.kernel.outbound)
        table = self._stamped([outbound], deployment.kernel.outbound)
        takers = deployment.buckets_of(outbound["destination"])
        apart = entries.nbytes > offering.left()
        at_once = table.nbytes <= WHOLE_BYTES and not apart
        statistics = ["height", "destination"]
        with self._storage.parquet_writer(
            path, table.schema, sync=False, at_once=at_once, statistics=statistics
        ) as writer:
            if not apart:
                writer.write_table(table, row_group_size=table.num_rows)
            for _, rows in group_by_consumer(table, takers) if apart else ():
                writer.write_part(rows)
        if apart:
            offering.refer(row_group_parts(path, np.unique(takers).tolist(), writer.cuts))
        else:
            offering.add(ENTRIES, group_by_consumer(entries, takers))
        return writer.seal


def build_offers(deployment: Deployment, bucket: int, result: RoundResult[Any]) -> OfferWriter | None:
    """Return what a bucket offers the others after a round, but for outbound entries; None where it is alone."""
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
