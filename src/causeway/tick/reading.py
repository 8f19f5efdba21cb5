"""Reads of one bucket from committed heights.

``BucketReader`` reads the frames that chains see of the previous height, the entries that they receive, and their own
earlier states and logs. Each is read from memory if it is there, else from the exchange of the previous height, else
from the lake, verified.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.errors import CausewayError
from causeway_proofs.order import group_rows, stable_order

from causeway.config.traffic import INGRESS_SCHEMA
from causeway.core.frame import Frame, concat, empty_frame, from_table
from causeway.core.joins import encode_keys, expand_ranges
from causeway.protocols.contract import (
    HEADERS_SCHEMA,
    PAST_SCHEMA,
    SEEN_HEADERS_SCHEMA,
    Chains,
    Reads,
    RoundResult,
    StateTable,
    Tick,
    View,
    Visibility,
)
from causeway.protocols.shared.messages import LANE
from causeway.protocols.shared.state_tables import restore_state, select_chains, sort_table
from causeway.storage.external_input import NO_INPUT, ExternalInput
from causeway.storage.files import find_row_groups
from causeway.storage.lake import Lake, LakeDamaged, Manifest
from causeway.storage.layout import manifest_path
from causeway.storage.manifests import StateParts
from causeway.storage.parquet_files import find_misfit
from causeway.storage.table_schemas import stamped_schema
from causeway.tick.deployment import Deployment
from causeway.tick.exchange import ALL_BUCKETS, HEADERS, PulledSlices

_NO_ROOTS = (CausewayError, ValueError, LookupError, ArithmeticError, AssertionError)
"""Errors of a kernel that computes the roots of an invalid state."""


@dataclass(frozen=True)
class CommittedHeight:
    """The output of all buckets at a height.

    Attributes:
        tick: Height and tick.
        headers: Headers of the chains.
        outbound: Outbound entries.
        logs: Rows of log tables.
        held: Size in bytes.
        outside: External input recorded for the tick.
    """

    tick: Tick
    headers: Frame
    outbound: Frame
    logs: Mapping[str, Frame]
    held: int
    outside: ExternalInput = field(default_factory=lambda: NO_INPUT)

    @classmethod
    def of(cls, tick: Tick, results: Sequence[RoundResult[Any]], outside: ExternalInput = NO_INPUT) -> CommittedHeight:
        """Merge the results of the buckets for a tick."""
        names = sorted({name for result in results for name in result.logs})
        logs = {name: concat([result.logs[name] for result in results if name in result.logs]) for name in names}
        headers, outbound = (concat([getattr(result, name) for result in results]) for name in ("headers", "outbound"))
        frames = (headers, outbound, *logs.values())
        held = sum(frame[name].nbytes for frame in frames if len(frame) for name in frame.names)
        return cls(tick, headers, outbound, logs, held, outside)


@dataclass(frozen=True)
class BucketReader:
    """Reads for one bucket at the tick after the height ``before``; lake reads are verified.

    Attributes:
        deployment: The network.
        lake: The lake.
        bucket: The bucket.
        before: Manifest of the previous height.
        states: States of all buckets at that height, if in memory; else they are read.
        made: Outputs of earlier heights in memory.
        earlier: Returns tick and states of an earlier height; None: they are read.
        held: Ticks and states of earlier heights in memory.
        committed: Last height known to be in the lake; None: ``before``.
    """

    deployment: Deployment
    lake: Lake
    bucket: int
    before: Manifest
    states: Mapping[int, Any] | None = None
    made: Mapping[int, CommittedHeight] = field(default_factory=dict)
    earlier: Callable[[int], tuple[int, Mapping[int, Any]]] | None = None
    held: Mapping[int, tuple[int, Mapping[int, Any]]] = field(default_factory=dict)
    committed: Manifest | None = None

    @property
    def base(self) -> Manifest:
        """The last height known to be in the lake."""
        return self.before if self.committed is None else self.committed

    @cached_property
    def pulled(self) -> PulledSlices | None:
        """The slices that buckets offer this one; None for one bucket, or with states in memory."""
        exchange = self.before.exchange
        if exchange is None or self.states is not None:
            return None
        return PulledSlices.of(self.lake, self.before, exchange, [ALL_BUCKETS, self.bucket])

    def state(self, bucket: int, *, verified: bool) -> Any:
        """Return a bucket's state at the previous height. Raises ``LakeDamaged``.

        Args:
            bucket: The bucket.
            verified: Recompute its roots and compare them with the headers of its chains.
        """
        if self.states is not None:
            return self.states[bucket]
        state = self.state_at(self.before, bucket)
        if verified:
            self.check_roots(bucket, state)
        return state

    def state_at(self, manifest: Manifest, bucket: int | None = None) -> Any:
        """Read the state at the last height of a commit; ``bucket``: None for this one.

        Raises:
            LakeDamaged: A file is damaged.
        """
        bucket = self.bucket if bucket is None else bucket
        files = state_files(manifest, bucket)
        declared = self.deployment.kernel.tables()
        tables = {name: self._table(manifest, parts, declared.get(name)) for name, parts in files.items()}
        return restore_state(self.deployment.kernel, tables)

    def _table(self, manifest: Manifest, parts: StateParts, declared: StateTable | None) -> pa.Table:
        """Read a bucket's rows of a state table.

        Raises ``LakeDamaged`` if they do not fit its schema.
        """
        rows = self.lake.part(manifest, parts)
        schema = pa.schema([]) if declared is None else declared.schema
        wrong = find_misfit(rows.schema, schema)
        if wrong is not None:
            raise self.lake.damaged(parts.rows[0], wrong)
        for each in schema:
            if rows[each.name].null_count and not each.nullable:
                raise self.lake.damaged(parts.rows[0], f"has rows without {each.name}")
        return rows

    def check_roots(self, bucket: int, state: Any) -> None:
        """Compare the roots of a state with the headers of the previous height.

        Raises ``LakeDamaged``.
        """
        wrong, manifest = self.wrong_roots(bucket, state), self.before
        if len(wrong):
            (name,) = self.deployment.names([int(wrong[0])])
            what = f"gives the state of {name} at height {manifest.height} another root than its header has, or none"
            raise self.lake.damaged(manifest_path(manifest.number), what, manifest.first - 1)

    def wrong_roots(self, bucket: int, state: Any) -> npt.NDArray[np.uint32]:
        """Return the chains whose roots differ from the previous headers, or that have no root.

        An attacker may have replaced the files by a state that no execution gives.
        """
        chains, manifest = self.deployment.chains(bucket), self.before
        logged = self.lake.log_rows("headers", manifest, bucket)
        headers = concat(
            [empty_frame(HEADERS_SCHEMA), *(from_table(rows.select(HEADERS_SCHEMA.names)) for rows in logged)]
        )
        headers = headers.filter(np.isin(headers["chain"], chains))
        found = self._roots(state, chains)
        return self._without_roots(state, chains) if found is None else find_differing_chains(headers, found)

    def _roots(self, state: Any, chains: Chains, *, cut: bool = False) -> Frame | None:
        """Compute the roots of chains at the previous height; return None for an invalid state.

        ``cut``: the state holds further chains.
        """
        kernel, manifest = self.deployment.kernel, self.before
        try:
            state = select_chains(kernel, state, chains, manifest.tick) if cut else state
            entries = self._ranges(kernel.committed(state), exchanged=False)
            return kernel.roots(state, chains, Tick(manifest.height, manifest.tick), entries)
        except LakeDamaged:
            raise
        except _NO_ROOTS:
            return None

    def _without_roots(self, state: Any, chains: Chains) -> Chains:
        """Find a chain whose part of a state has no root by bisection; all if each part has one."""
        while len(chains) > 1:
            halves = np.array_split(chains, 2)
            wrong = next((half for half in halves if self._roots(state, half, cut=True) is None), None)
            if wrong is None:
                break
            chains = wrong
        return chains

    def view(self, own: Mapping[str, Frame]) -> View:
        """Return the frames and headers of the previous height that the bucket's chains see.

        ``own``: the frames of their state.
        """
        visible = {
            name: table for name, table in self.deployment.kernel.tables().items() if table.shown != Visibility.NOBODY
        }
        return View(
            {name: self._visible_rows(name, table, own[name]) for name, table in visible.items()}, self._headers()
        )

    def _visible_rows(self, name: str, table: StateTable, own: Frame) -> Frame:
        """Return the rows of a state table visible to the bucket."""
        frames = [own]
        if self.pulled is not None:
            frames.append(self.pulled.rows(name, table.schema, self.bucket))
        elif self.states is not None:
            frames += [state.frames()[name] for bucket, state in sorted(self.states.items()) if bucket != self.bucket]
        rows = concat(frames)
        if table.shown == Visibility.DESTINATION and len(rows):
            first, end = self.deployment.buckets[self.bucket]
            rows = rows.filter((rows[table.shown_to] >= first) & (rows[table.shown_to] < end))
        return sort_table(table, rows) if len(frames) > 1 else rows

    def _headers(self) -> Frame:
        heights = self.deployment.kernel.header_heights
        return self._headers_at(range(max(0, self.before.height - heights + 1), self.before.height + 1))

    def headers(self, requests: Frame) -> Frame:
        """Return the headers of chains at heights (``PAST_SCHEMA``)."""
        if not len(requests):
            return empty_frame(SEEN_HEADERS_SCHEMA)
        rows = self._headers_at(np.unique(requests["height"]).tolist())
        own, wanted = encode_keys(PAST_SCHEMA.names, rows, requests)
        return rows.filter(np.isin(own, wanted))

    def _headers_at(self, heights: Iterable[int]) -> Frame:
        frames = [empty_frame(SEEN_HEADERS_SCHEMA)]
        for height in heights:
            if (output := self.made.get(height)) is not None:
                frames.append(output.headers.with_columns(height=np.uint64(height)).select(SEEN_HEADERS_SCHEMA.names))
                continue
            manifest = self.manifest(height)
            if (offered := self._offered_headers(manifest)) is not None:
                frames.append(offered.with_columns(height=np.uint64(height)).select(SEEN_HEADERS_SCHEMA.names))
                continue
            logged = self.lake.log_rows("headers", manifest)
            frames += [_as_seen(rows.select(SEEN_HEADERS_SCHEMA.names)) for rows in logged]
        rows = concat(frames)
        return rows.take(stable_order(rows["chain"], rows["height"], rows["number"]))

    def _offered_headers(self, manifest: Manifest) -> Frame | None:
        """Return the headers that buckets offered at a height, or None if only the logs have them."""
        slices = self.pulled
        if manifest.height != self.before.height:
            exchange = manifest.exchange
            if exchange is None or not self.lake.storage.exists(exchange.path):
                return None
            slices = PulledSlices.of(self.lake, manifest, exchange, [ALL_BUCKETS])
        return None if slices is None else slices.rows(HEADERS, HEADERS_SCHEMA)

    def manifest(self, height: int) -> Manifest:
        """Return the manifest that holds a height, viewed at that height."""
        if height not in self._manifests:
            self._manifests[height] = self.lake.manifest(height)
        return self._manifests[height]

    @cached_property
    def _manifests(self) -> dict[int, Manifest]:
        """Manifests read for this tick, by height."""
        return {self.before.height: self.before}

    def entries(self, reads: Reads) -> tuple[Frame, Frame]:
        """Return the outbound entries that a plan reads: those offered to the chains, and their own."""
        return self._ranges(reads.offered), self._ranges(reads.own)

    def _ranges(self, ranges: Frame, *, exchanged: bool = True) -> Frame:
        """Return the entries of ranges (``RANGES_SCHEMA``).

        Entries of the previous height come from its exchange, older ones from files. ``exchanged``: the lake still has
        the exchange.
        """
        found = [empty_frame(self.deployment.kernel.outbound)]
        order = np.argsort(ranges["height"], kind="stable")
        ranges = ranges.take(order)
        heights = group_rows(ranges["height"])
        for start, count in zip(heights.starts.tolist(), heights.counts.tolist(), strict=True):
            parts = ranges.slice(start, start + count)
            height = int(parts["height"][0])
            if height in self.made:
                found.append(_select_ranges(self.made[height].outbound, parts))
                continue
            manifest = self.manifest(height)
            bucket_of = self.deployment.buckets_of(parts["source"])
            for source in np.unique(bucket_of).tolist():
                found.append(self._entries_of_bucket(manifest, source, parts.filter(bucket_of == source), exchanged))
        return concat(found)

    def _entries_of_bucket(self, manifest: Manifest, source: int, parts: Frame, exchanged: bool) -> Frame:
        """Return the rows of ``parts`` among the outbound entries of one bucket at a height."""
        first, end = self.deployment.buckets[self.bucket]
        is_local = bool(((parts["destination"] >= first) & (parts["destination"] < end)).all())
        rows = None
        if exchanged and is_local and manifest.height == self.before.height and self.pulled is not None:
            rows = self.pulled.entries(source, self.deployment.kernel.outbound)
        if rows is None:
            rows = self._of_file(manifest, source, int(parts["destination"].min()), int(parts["destination"].max()) + 1)
        return _select_ranges(rows, parts)

    def _of_file(self, manifest: Manifest, source: int, first: int, end: int) -> Frame:
        """Read a bucket's entries of a height, at least those to ``first`` to ``end`` - 1."""
        path = manifest.log["outbound"][str(source)]
        columns = self.deployment.kernel.outbound.names
        if manifest.first < manifest.last or self.lake.replaced(manifest, [path]):
            found = self.lake.log_rows("outbound", manifest, source)
            return concat([from_table(table.select(columns)) for table in found])
        with self.lake.open_parquet(path, manifest.files[path]) as file:
            groups = find_row_groups(file, "destination", first, end)
            return from_table(file.read_row_groups(groups, columns, use_threads=False))

    def rows(self, requests: Mapping[str, Frame]) -> dict[str, Frame]:
        """Return rows of the chains' log tables at heights (``HEIGHTS_SCHEMA``), by table."""
        return {table: self._log_rows(table, heights) for table, heights in requests.items()}

    def _log_rows(self, table: str, heights: Frame) -> Frame:
        schema = self.deployment.kernel.logs[table]
        chain, height = expand_ranges(heights["first"], heights["last"] + np.uint64(1))
        wanted = Frame({"chain": heights["chain"][chain], "height": height}, len(height))
        found = [_as_seen(stamped_schema(schema).empty_table())]
        found += [self._log_at(table, one) for one in np.unique(height).tolist()]
        rows = concat(found)
        own, requested = encode_keys(("chain", "height"), rows, wanted)
        rows = rows.filter(np.isin(own, requested))
        return rows.take(stable_order(rows["height"]))

    def _log_at(self, table: str, height: int) -> Frame:
        """Return the log rows of a height, at least those of this bucket."""
        schema = stamped_schema(self.deployment.kernel.logs[table])
        if (output := self.made.get(height)) is not None:
            rows = output.logs.get(table, empty_frame(self.deployment.kernel.logs[table]))
            stamps = {"height": np.uint64(height), "tick": np.uint64(output.tick.tick)}
            return rows.with_columns(**stamps).select(schema.names)
        tables = self.lake.log_rows(table, self.manifest(height), self.bucket)
        return _as_seen(pa.concat_tables([schema.empty_table(), *(rows.select(schema.names) for rows in tables)]))

    def logged(self, table: str, first: int, last: int) -> Frame:
        """Return log rows of heights ``first`` to ``last`` by height.

        It may add rows of other buckets.
        """
        schema = stamped_schema(self.deployment.kernel.logs[table])
        found, height = [_as_seen(schema.empty_table())], first
        while height <= last:
            if height in self.made:
                found.append(self._log_at(table, height))
                height += 1
                continue
            manifest = self.manifest(height)
            end = min(last, manifest.last)
            rows = self.lake.log_rows(table, manifest, heights=(height, end))
            found += [_as_seen(some.select(schema.names)) for some in rows]
            height = end + 1
        joined = concat(found)
        return joined.take(stable_order(joined["height"]))

    def ingress(self, requests: Frame) -> pa.Table:
        """Return the user messages of earlier heights (``HEIGHTS_SCHEMA``), by height."""
        row, height = expand_ranges(requests["first"], requests["last"] + np.uint64(1))
        found = [INGRESS_SCHEMA.empty_table()]
        for one in np.unique(height).tolist():
            chains = np.unique(requests["chain"][row[height == one]])
            if (output := self.made.get(one)) is not None:
                tick, outside = output.tick.tick, output.outside
            else:
                manifest = self.manifest(one)
                tick, outside = manifest.tick, self.lake.outside(manifest)
            found.append(self.deployment.ingress(tick, outside, chains))
        return pa.concat_tables(found)

    def past(self, requests: Frame) -> dict[int, Any]:
        """Return the earlier states of chains (``PAST_SCHEMA``), by height."""
        found = {}
        for height in np.unique(requests["height"]).tolist():
            chains = np.unique(requests["chain"][requests["height"] == height])
            if self.earlier is not None:
                tick, states = self.earlier(height)
                state = states[self.bucket]
            else:
                tick, state = self.manifest(height).tick, self.state_at(self.manifest(height))
            found[height] = select_chains(self.deployment.kernel, state, chains, tick)
        return found


def _select_ranges(rows: Frame, parts: Frame) -> Frame:
    """Return the outbound entries of one height that lie in ranges."""
    if len(rows) == int((parts["end"] - parts["begin"]).sum()):
        return rows
    starts = parts.select(LANE).with_columns(index=parts["begin"])
    begins, wanted = encode_keys((*LANE, "index"), starts, rows)
    lane, own_lane = encode_keys(LANE, parts, rows)
    order = np.argsort(begins, kind="stable")
    row = order[np.maximum(np.searchsorted(begins[order], wanted, side="right") - 1, 0)]
    inside = (lane[row] == own_lane) & (rows["index"] >= parts["begin"][row]) & (rows["index"] < parts["end"][row])
    return rows.filter(inside)


def find_differing_chains(headers: Frame, found: Frame) -> npt.NDArray[np.uint32]:
    """Compare headers with recomputed roots.

    A chain may have several headers at a height, each with a root of its state; one without any made no block.

    Args:
        headers: Headers of a height.
        found: Recomputed roots (``chain``, ``root``).

    Returns:
        uint32 array of the chains that differ, ascending.
    """
    known = {*zip(found["chain"].tolist(), (root.tobytes() for root in found["root"]), strict=True)}
    logged = zip(headers["chain"].tolist(), (root.tobytes() for root in headers["root"]), strict=True)
    return np.array(sorted({chain for chain, root in logged if (chain, root) not in known}), dtype=np.uint32)


def _as_seen(rows: pa.Table) -> Frame:
    """Return log rows in the form of a round: with unsigned heights and ticks."""
    frame = from_table(rows)
    stamps = {name: frame[name].astype(np.uint64) for name in ("height", "tick") if name in frame}
    return frame.with_columns(**stamps)


def state_files(manifest: Manifest, bucket: int) -> dict[str, StateParts]:
    """Return the files of a bucket's state by table.

    Args:
        manifest: Manifest of the commit.
        bucket: The bucket.
    """
    key = str(bucket)
    return {name: files[key] for name, files in manifest.state.items() if key in files}
