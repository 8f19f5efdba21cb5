"""One bucket of chains through one tick: read state and entries from the lake, run the kernel, write what comes of it.

This is the body of a Spark task, and of the in-process executor. It is a function of committed files alone, so it
may be run again at any time: what it writes counts only once a manifest names it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from causeway.model.frame import Frame
from causeway.model.ledger import Event, Kind
from causeway.pipeline.deployment import Deployment
from causeway.pipeline.lake import Lake, Manifest
from causeway.pipeline.layout import HEIGHTS
from causeway.pipeline.offers import (
    ENTRIES,
    EVERYONE,
    HEADERS,
    Offering,
    Offers,
    by_taker,
    room_of,
    row_groups_at,
)
from causeway.pipeline.reading import Reader, files_of
from causeway.pipeline.record import Outside
from causeway.pipeline.schemas import stamped_schema
from causeway.pipeline.sealed import Seal
from causeway.pipeline.storage import WHOLE_BYTES
from causeway.protocols.contract import HEADERS_SCHEMA, Inputs, RoundResult, Shown, Tick
from causeway.protocols.partition import part, union

FIRST_HEIGHT = 0
"""The height of genesis."""


@dataclass(frozen=True)
class Written:
    """What one bucket wrote for a height: what fits a manifest (which has the same names), and what it ``offers``.

    ``warm``: whether the state that it began with was in memory.
    """

    bucket: int
    state: Mapping[str, str]
    log: Mapping[str, str]
    wake: int | None
    needs: int | None
    gives_up: int | None
    rows: Mapping[str, int]
    files: Mapping[str, Seal]
    offers: Offers
    warm: bool = True


_STATES: dict[tuple[str, str, int], tuple[int, Mapping[str, str], Any]] = {}
"""State that this process wrote last for (URI, lake, bucket), with its height and files: valid when the manifest
names just those files. Holds one lake at a time."""


def genesis(deployment: Deployment, lake: Lake, bucket: int) -> Written:
    """Write a bucket's state at height 0."""
    result = begun(deployment, bucket)
    return _write(deployment, lake, bucket, Tick(FIRST_HEIGHT, 0), result, {}, {})


def begun(deployment: Deployment, bucket: int) -> RoundResult[Any]:
    """Return what a bucket's chains are at height 0."""
    return deployment.kernel.genesis(deployment.chains(bucket), deployment.traffic.next_tick(0))


def run_bucket(
    deployment: Deployment, lake: Lake, bucket: int, tick: Tick, before: Manifest, outside: Outside
) -> Written:
    """Run one tick of a bucket's chains on top of the committed height ``before``; write what comes of it.

    ``outside``: what was recorded for the tick. Raises ``LakeDamaged``.
    """
    reader = Reader(deployment, lake, bucket, before)
    state, files, warm = _state(reader, tick)
    own = state.frames()
    result = executed(reader, state, tick, outside)
    now = result.state.frames()
    unchanged = {name: path for name, path in files.items() if own.get(name) is now.get(name)}
    return replace(_write(deployment, lake, bucket, tick, result, unchanged, before.files), warm=warm)


def executed(reader: Reader, state: Any, tick: Tick, outside: Outside) -> RoundResult[Any]:
    """Return what one tick makes of the state of a reader's bucket; nothing is written."""
    deployment = reader.deployment
    kernel, chains = deployment.kernel, deployment.chains(reader.bucket)
    ingress, carried = deployment.ingress(tick.tick, outside, chains), deployment.carried(outside, chains)
    plan = kernel.plan(state, chains, reader.view(state.frames()), ingress, carried, tick)
    offered, again = reader.entries(plan.reads)
    rows, past = reader.rows(plan.reads.rows), reader.past(plan.reads.past)
    headers = reader.headers(plan.reads.headers)
    return kernel.round(state, chains, plan, Inputs(ingress, carried, offered, again, rows, past, headers), tick)


def moved_state(reader: Reader, tick: Tick) -> Any:
    """Return a bucket's state for a tick, None where it is what it was: programs that change chains may bring what is
    its own now out of any bucket."""
    kernel, bucket = reader.deployment.kernel, reader.bucket
    if kernel.registry_version(reader.before.tick) == kernel.registry_version(tick.tick):
        return None
    chains = reader.deployment.chains(bucket)
    states = [reader.state(other, verified=other == bucket) for other in range(len(reader.deployment.buckets))]
    return union(kernel, [part(kernel, state, chains, tick.tick) for state in states])


def _state(reader: Reader, tick: Tick) -> tuple[Any, Mapping[str, str], bool]:
    """Return the state of a reader's bucket for a tick, the files that hold it as it is, and whether it was in
    memory."""
    lake, bucket, before = reader.lake, reader.bucket, reader.before
    moved = moved_state(reader, tick)
    if moved is not None:
        return moved, {}, True
    files = files_of(before, bucket)
    kept = _STATES.get((lake.storage.uri, lake.identity, bucket))
    if kept is not None and kept[0] == before.height and kept[1] == files:
        return kept[2], files, True
    return reader.state(bucket, verified=True), files, False


def forget_states() -> None:
    """Forget the states that this process keeps, so that the next tick reads them from the lake."""
    _STATES.clear()


def _write(
    deployment: Deployment,
    lake: Lake,
    bucket: int,
    tick: Tick,
    result: RoundResult[Any],
    unchanged: Mapping[str, str],
    known: Mapping[str, Seal],
) -> Written:
    kernel, storage = deployment.kernel, lake.storage
    folder = lake.height_folder(tick.height)
    storage.make_folder(folder)
    attempt = uuid.uuid4().hex[:8]  # keeps attempts of one task apart; it names files, it decides nothing

    def path_of(table: str, ending: str = ".parquet") -> str:
        # A program of one's own is named module:Class, but Spark takes what stands before a colon for a protocol.
        return f"{folder}/{table.replace(':', '.')}-{bucket:04d}-{attempt}{ending}"

    tables = kernel.tables()
    files = dict(unchanged)
    seals = {path: known[path] for path in unchanged.values()}
    for name, frame in result.state.frames().items():
        if name not in files and len(frame):
            files[name] = path_of(name)
            seals[files[name]] = storage.write_table(files[name], frame.to_table(tables[name].schema), sync=False)
    log: dict[str, str] = {}
    rows: dict[str, int] = {}
    schemas = {**kernel.logs, "headers": HEADERS_SCHEMA}
    for name, frame in {**result.logs, "headers": result.headers}.items():
        if len(frame):
            log[name] = path_of(name)
            stamped = _stamped(frame.to_table(schemas[name]), tick)
            seals[log[name]] = storage.write_table(log[name], stamped, sync=False)
            rows[name] = len(frame)
            if name == "events" and (of_carriers := _of_carriers(frame)):
                rows["of_carriers"] = of_carriers
    offering = offered(deployment, bucket, result)
    if len(result.outbound):
        log["outbound"] = path_of("outbound")
        seals[log["outbound"]] = _write_outbound(deployment, lake, log["outbound"], result.outbound, tick, offering)
        rows["outbound"] = len(result.outbound)
    written = [path for path in files.values() if path not in unchanged.values()]
    if (seal := offering.spill(storage, path_of("offers", ""))) is not None:
        seals[path_of("offers", "")] = seal
        written.append(path_of("offers", ""))
    storage.sync([*written, *log.values(), folder, HEIGHTS])
    stale = tick.height - 1  # older ones were moved on by another process
    for other in [key for key in _STATES if key[:2] != (storage.uri, lake.identity) or _STATES[key][0] < stale]:
        del _STATES[other]
    _STATES[(storage.uri, lake.identity, bucket)] = (tick.height, files, result.state)
    wishes = result.wake, result.needs, result.gives_up
    return Written(bucket, files, log, *wishes, rows, seals, offering.offers())


def _of_carriers(events: Frame) -> int:
    """Return how many of the events are about what carriers brought, refused or taken: no message moves by them."""
    control = events["kind"] == np.uint8(Kind.CONTROL)
    return int((control & ((events["events"] & np.uint16(Event.REJECTED | Event.RELAYED)) > 0)).sum())


def offered(deployment: Deployment, bucket: int, result: RoundResult[Any]) -> Offering:
    """Return what a bucket offers the others after a round, but for outbound entries."""
    count = len(deployment.buckets)
    offering = Offering(room_of(count))
    if count == 1:
        return offering
    offering.add(HEADERS, [(EVERYONE, result.headers.to_table(HEADERS_SCHEMA))])
    frames = result.state.frames()
    for name, table in deployment.kernel.tables().items():
        if table.shown == Shown.NOBODY or not len(frames[name]):
            continue
        rows = frames[name].to_table(table.schema)
        if table.shown == Shown.EVERYONE:
            offering.add(name, [(EVERYONE, rows)])
        else:
            offering.add(name, by_taker(rows, deployment.buckets_of(frames[name][table.shown_to]), bucket))
    return offering


def _write_outbound(
    deployment: Deployment, lake: Lake, path: str, outbound: Frame, tick: Tick, offering: Offering
) -> Seal:
    """Write outbound entries (ascending by destination) and offer them; return the file's seal.

    Few of them go through the driver. Of many the file has a row group a taker, which that one reads by itself.
    """
    schema = stamped_schema(deployment.kernel.outbound)
    entries = outbound.to_table(deployment.kernel.outbound)
    table, takers = _stamped(entries, tick), deployment.buckets_of(outbound["destination"])
    apart = len(deployment.buckets) > 1 and entries.nbytes > offering.left()
    at_once = table.nbytes <= WHOLE_BYTES and not apart
    statistics = ["destination"]
    with lake.storage.parquet_writer(path, schema, sync=False, at_once=at_once, statistics=statistics) as writer:
        if not apart:
            writer.write_table(table, row_group_size=table.num_rows)
        for _, rows in by_taker(table, takers) if apart else ():
            writer.write_part(rows)
    if apart:
        offering.refer(row_groups_at(path, np.unique(takers).tolist(), writer.cuts))
    elif len(deployment.buckets) > 1:
        offering.add(ENTRIES, by_taker(entries, takers))
    return writer.seal


def _stamped(table: pa.Table, tick: Tick) -> pa.Table:
    constants = [np.full(table.num_rows, value, dtype=np.int64) for value in (tick.height, tick.tick)]
    return pa.Table.from_arrays([*map(pa.array, constants), *table.columns], schema=stamped_schema(table.schema))
