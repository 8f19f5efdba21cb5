"""One bucket of chains through one tick: read state and transfers from the lake, run the kernel, write the next state.

This is the body of a Spark task, and of the in-process executor. It is a function of committed files alone, so it
may be run again at any time: what it writes counts only once a manifest names it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.frame import Frame, concat, empty_frame, from_table
from causeway.model.ledger import COLLECTED_SCHEMA, EVENTS_SCHEMA, Event, Kind
from causeway.model.order import groups_of, lane_codes, pair_codes
from causeway.model.traffic import Traffic
from causeway.pipeline.lake import HEIGHTS, Lake, Manifest
from causeway.protocols.contract import HEADERS_SCHEMA, Kernel, Offers, Tick

FIRST_HEIGHT = 0
"""The height of genesis."""

LANE = ("chain", "remote", "substream")


@dataclass(frozen=True)
class Deployment:
    """All that a task needs to know of a network: how chains are cut into buckets, the kernel, and the traffic.
    Picklable."""

    kernel: Kernel
    traffic: Traffic
    buckets: tuple[tuple[int, int], ...]
    """Positions [first, end) of each bucket's chains."""
    numbers: npt.NDArray[np.uint64]
    """The chains' numbers by position, as the traffic knows them."""

    def chains(self, bucket: int) -> npt.NDArray[np.uint32]:
        """Return the positions of a bucket's chains."""
        first, end = self.buckets[bucket]
        return np.arange(first, end, dtype=np.uint32)


@dataclass(frozen=True)
class Written:
    """What one bucket wrote for a height; all of it fits a manifest."""

    bucket: int
    state: Mapping[str, str]
    log: Mapping[str, str]
    row_groups: Mapping[str, int]
    idle: bool
    oldest_run: int | None
    rows: Mapping[str, int]


_STATES: dict[tuple[str, str, int], tuple[int, Mapping[str, str], Any]] = {}
"""State that this process wrote last for (place, lake, bucket), with its height and files: valid when the manifest
names just those files. Holds one lake at a time."""


def genesis(deployment: Deployment, lake: Lake, bucket: int) -> Written:
    """Write a bucket's state at height 0."""
    chains = deployment.chains(bucket)
    state = deployment.kernel.genesis(chains)
    tick = Tick(FIRST_HEIGHT, 0)
    headers = deployment.kernel.headers(state, chains, tick)
    return _write(deployment, lake, bucket, tick, state, {}, {}, {"headers": headers})


def run_bucket(deployment: Deployment, lake: Lake, bucket: int, tick: Tick, before: Manifest) -> Written:
    """Run one tick of a bucket's chains on top of the committed height ``before``; write what comes of it."""
    kernel, chains = deployment.kernel, deployment.chains(bucket)
    state, files, abandoned = _state(deployment, lake, bucket, tick, before)
    offers, runs = _offers(deployment, lake, bucket, chains, before, state)
    ingress = deployment.traffic.rows(tick.tick, deployment.numbers[chains])
    plan = kernel.plan(state, chains, offers, ingress, tick)
    messages = _read_ranges(deployment, lake, plan.wanted, runs, bucket)
    recalled = _read_ranges(deployment, lake, plan.recalled, _runs_of(kernel, state), None)
    result = kernel.round(state, chains, plan, messages, recalled, ingress, tick)
    events = result.events if abandoned is None else concat([abandoned, result.events])
    logs = {"events": events, "collected": result.collected, "headers": result.headers}
    was, now = kernel.parts(state), kernel.parts(result.state)
    unchanged = {name: path for name, path in files.items() if was.get(name) is now.get(name)}
    return _write(deployment, lake, bucket, tick, result.state, unchanged, {"transfers": result.outbound}, logs)


def read_state(deployment: Deployment, lake: Lake, bucket: int, manifest: Manifest) -> Any:
    """Return a bucket's state as a height's files hold it."""
    files = _files(manifest, bucket)
    return deployment.kernel.state({name: lake.storage.read_table(path) for name, path in files.items()})


def _files(manifest: Manifest, bucket: int) -> dict[str, str]:
    key = str(bucket)
    return {name: files[key] for name, files in manifest.state.items() if key in files}


def _state(
    deployment: Deployment, lake: Lake, bucket: int, tick: Tick, before: Manifest
) -> tuple[Any, Mapping[str, str], Frame | None]:
    """Return a bucket's state, the files that hold it as it is, and events of programs that ended since the height
    before."""
    kernel = deployment.kernel
    files = _files(before, bucket)
    if kernel.rehomed(before.tick, tick.tick):
        # Programs change chains: whatever is ours now may lie in any bucket.
        chains = deployment.chains(bucket)
        states = [read_state(deployment, lake, other, before) for other in range(len(deployment.buckets))]
        mine = kernel.union([kernel.part(state, chains, tick.tick) for state in states])
        return mine, {}, kernel.abandoned(states[bucket], tick.tick)
    kept = _STATES.get((lake.storage.uri, lake.identity, bucket))
    if kept is not None and kept[0] == before.height and kept[1] == files:
        return kept[2], files, None
    return read_state(deployment, lake, bucket, before), files, None


def _offers(
    deployment: Deployment, lake: Lake, bucket: int, chains: npt.NDArray[np.uint32], before: Manifest, state: Any
) -> tuple[Offers, Frame]:
    """Return what all chains offer to ``chains``, and where in the lake the messages offered lie."""
    kernel = deployment.kernel
    own = kernel.parts(state)
    shown: list[Frame] = []
    for name in kernel.offer_tables:
        frames = [own[name]]
        for key, path in before.state.get(name, {}).items():
            if int(key) != bucket:
                frames.append(from_table(lake.storage.read_table(path)))
        everything = concat(frames)
        mine = (everything["remote"] >= chains[0]) & (everything["remote"] <= chains[-1])
        shown.append(everything.filter(mine) if len(everything) else everything)
    paths = before.log.get("headers", {}).values()
    headers = [from_table(lake.storage.read_table(path, HEADERS_SCHEMA.names)) for path in paths]
    joined = concat(headers) if headers else empty_frame(HEADERS_SCHEMA)
    joined = joined.take(np.argsort(joined["chain"], kind="stable"))
    return Offers(shown[0], shown[1], joined), shown[2]


def _runs_of(kernel: Kernel, state: Any) -> Frame:
    runs: Frame = kernel.parts(state)[kernel.offer_tables[2]]
    return runs


def _read_ranges(deployment: Deployment, lake: Lake, ranges: Frame, runs: Frame, bucket: int | None) -> Frame:
    """Return the messages of ``ranges`` (lane, begin, end), found by ``runs`` (lane, height, first, count).

    ``bucket``: the bucket of the taking chains, when all are of one: then only its row groups are read.
    """
    none = empty_frame(deployment.kernel.outbound_schema)
    if len(ranges) == 0:
        return none
    needed = _needed(ranges, runs)
    bucket_of = np.repeat(np.arange(len(deployment.buckets)), [end - first for first, end in deployment.buckets])
    found: list[Frame] = []
    order = np.argsort(needed["height"], kind="stable")
    needed = needed.take(order)
    heights = groups_of(needed["height"])
    for start, count in zip(heights.starts.tolist(), heights.counts.tolist(), strict=True):
        parts = needed.slice(start, start + count)
        manifest = lake.manifest(int(parts["height"][0]))
        for source in np.unique(bucket_of[parts["chain"]]).tolist():
            mine = parts.filter(bucket_of[parts["chain"]] == source)
            takers = [bucket] if bucket is not None else np.unique(bucket_of[mine["remote"]]).tolist()
            found.append(_read_transfers(deployment, lake, manifest, source, takers, mine))
    return concat([none, *found])


def _needed(ranges: Frame, runs: Frame) -> Frame:
    """Cut ``ranges`` (any number a lane) at the runs that hold them: rows (lane, height, begin, end).

    The runs of a lane follow each other without gaps, and every range lies within them.
    """
    lane, wanted_lane = _lane_numbers(runs, ranges)
    first, begin, last = pair_codes(
        (lane, runs["first"]), (wanted_lane, ranges["begin"]), (wanted_lane, ranges["end"] - np.uint64(1))
    )
    order = np.argsort(first, kind="stable")
    low = np.searchsorted(first[order], begin, side="right") - 1
    high = np.searchsorted(first[order], last, side="right") - 1
    counts = high - low + 1
    wanted = np.repeat(np.arange(len(ranges)), counts)
    offset = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    rows = order[low[wanted] + offset]
    cut = runs.select([*LANE, "height"]).take(rows)
    return cut.with_columns(
        begin=np.maximum(ranges["begin"][wanted], runs["first"][rows]),
        end=np.minimum(ranges["end"][wanted], (runs["first"] + runs["count"])[rows]),
    )


def _lane_numbers(first: Frame, second: Frame) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Return one number a lane (chain, remote, substream) for the rows of both frames, equal for equal lanes."""
    one, two = pair_codes(
        (lane_codes(first["chain"], first["remote"]), first["substream"]),
        (lane_codes(second["chain"], second["remote"]), second["substream"]),
    )
    numbers = np.unique(np.concatenate([one, two]), return_inverse=True)[1].astype(np.uint64)
    return numbers[: len(one)], numbers[len(one) :]


def _read_transfers(
    deployment: Deployment, lake: Lake, manifest: Manifest, source: int, takers: Sequence[int], parts: Frame
) -> Frame:
    """Return the rows of ``parts`` from the transfers that one bucket wrote at a height."""
    path = manifest.log["transfers"][str(source)]
    columns = deployment.kernel.outbound_schema.names
    groups = manifest.row_groups[path]
    with lake.storage.open_parquet(path) as file:
        mine = [groups[str(taker)] for taker in takers if str(taker) in groups]
        rows = from_table(file.read_row_groups(mine, columns, use_threads=False))
    if len(rows) == int((parts["end"] - parts["begin"]).sum()):
        return rows
    lane, row_lane = _lane_numbers(parts, rows)
    starts, places = pair_codes((lane, parts["begin"]), (row_lane, rows["index"]))
    order = np.argsort(starts, kind="stable")
    part = order[np.maximum(np.searchsorted(starts[order], places, side="right") - 1, 0)]
    inside = (lane[part] == row_lane) & (rows["index"] >= parts["begin"][part]) & (rows["index"] < parts["end"][part])
    return rows.filter(inside)


def _write(
    deployment: Deployment,
    lake: Lake,
    bucket: int,
    tick: Tick,
    state: Any,
    unchanged: Mapping[str, str],
    outbound: Mapping[str, Frame],
    logs: Mapping[str, Frame],
) -> Written:
    kernel, storage = deployment.kernel, lake.storage
    folder = lake.height_folder(tick.height)
    storage.make_folder(folder)
    attempt = uuid.uuid4().hex[:8]  # keeps attempts of one task apart; it names files, it decides nothing

    def place(table: str) -> str:
        # A program of one's own is named module:Class, but Spark takes what stands before a colon for a protocol.
        return f"{folder}/{table.replace(':', '.')}-{bucket:04d}-{attempt}.parquet"

    files = dict(unchanged)
    parts = kernel.parts(state)
    for name, part in parts.items():
        if name not in files and len(part):
            files[name] = place(name)
            storage.write_table(files[name], kernel.table(name, part), sync=False)
    log: dict[str, str] = {}
    rows: dict[str, int] = {}
    row_groups: dict[str, int] = {}
    for name, frame in logs.items():
        if len(frame):
            log[name] = place(name)
            storage.write_table(log[name], _stamped(frame.to_table(LOG_SCHEMAS[name]), tick), sync=False)
            rows[name] = len(frame)
            if name == "events" and (refusals := _refusals(frame)):
                rows["refusals"] = refusals
    transfers = outbound.get("transfers")
    if transfers is not None and len(transfers):
        log["transfers"] = place("transfers")
        row_groups = _write_transfers(deployment, lake, log["transfers"], transfers, tick)
        rows["transfers"] = len(transfers)
    written = [path for path in files.values() if path not in unchanged.values()]
    storage.sync([*written, *log.values(), folder, HEIGHTS])
    runs = parts[kernel.offer_tables[2]]
    oldest = int(runs["height"].min()) if len(runs) else None
    stale = tick.height - 1  # older ones were moved on by another process
    for other in [key for key in _STATES if key[:2] != (storage.uri, lake.identity) or _STATES[key][0] < stale]:
        del _STATES[other]
    _STATES[(storage.uri, lake.identity, bucket)] = (tick.height, files, state)
    return Written(bucket, files, log, row_groups, kernel.idle(state), oldest, rows)


def _refusals(events: Frame) -> int:
    """Return how many of the events are refusals of what carriers brought: nothing has changed by them."""
    control = events["kind"] == np.uint8(Kind.CONTROL)
    return int((control & ((events["events"] & np.uint16(Event.REJECTED)) > 0)).sum())


def _write_transfers(deployment: Deployment, lake: Lake, path: str, transfers: Frame, tick: Tick) -> dict[str, int]:
    """Write outbound messages (ascending by taking chain) with one row group a taking bucket; return which is whose."""
    schema = stamped_schema(deployment.kernel.outbound_schema)
    table = _stamped(transfers.to_table(deployment.kernel.outbound_schema), tick)
    groups: dict[str, int] = {}
    with lake.storage.parquet_writer(path, schema, sync=False) as writer:
        for taker, (first, end) in enumerate(deployment.buckets):
            start = int(np.searchsorted(transfers["remote"], first))
            stop = int(np.searchsorted(transfers["remote"], end))
            if stop > start:
                groups[str(taker)] = len(groups)
                writer.write_table(table.slice(start, stop - start), row_group_size=stop - start)
    return groups


STAMP = [pa.field("height", pa.uint64(), nullable=False), pa.field("tick", pa.uint64(), nullable=False)]


def stamped_schema(schema: pa.Schema) -> pa.Schema:
    """Return a log table's schema with the columns ``height`` and ``tick`` in front."""
    return pa.schema([*STAMP, *schema])


def _stamped(table: pa.Table, tick: Tick) -> pa.Table:
    constants = [np.full(table.num_rows, value, dtype=np.uint64) for value in (tick.height, tick.tick)]
    return pa.Table.from_arrays([*map(pa.array, constants), *table.columns], schema=stamped_schema(table.schema))


LOG_SCHEMAS: dict[str, pa.Schema] = {
    "events": EVENTS_SCHEMA,
    "collected": COLLECTED_SCHEMA,
    "headers": HEADERS_SCHEMA,
}
