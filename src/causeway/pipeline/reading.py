"""What a bucket reads of committed heights: what its chains see, the entries that they take, their own past."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.frame import Frame, concat, empty_frame, from_table
from causeway.model.joins import codes, over
from causeway.model.order import groups_of, stable_order
from causeway.pipeline.deployment import Deployment
from causeway.pipeline.lake import Lake, Manifest
from causeway.pipeline.layout import manifest_path
from causeway.pipeline.schemas import stamped_schema
from causeway.protocols.contract import (
    HEADERS_SCHEMA,
    PAST_SCHEMA,
    SEEN_HEADERS_SCHEMA,
    Reads,
    Shown,
    StateTable,
    Tick,
    View,
)
from causeway.protocols.messages import LANE
from causeway.protocols.partition import in_order, part, state_of


@dataclass(frozen=True)
class Reader:
    """Reads for one bucket at the tick after the committed height ``before``; all that it reads is verified.

    ``states``: the states of all buckets at that height, where they are in memory; else they are read.
    """

    deployment: Deployment
    lake: Lake
    bucket: int
    before: Manifest
    states: Mapping[int, Any] | None = None

    def state(self, bucket: int, *, verified: bool) -> Any:
        """Return a bucket's state at the height before. ``verified``: its roots are computed again, and compared with
        the headers of its chains.

        Raises ``LakeDamaged``.
        """
        if self.states is not None:
            return self.states[bucket]
        state = self._state_at(bucket, self.before)
        if verified:
            self.check_roots(bucket, state)
        return state

    def _state_at(self, bucket: int, manifest: Manifest) -> Any:
        files = files_of(manifest, bucket)
        tables = {name: self.lake.table(manifest, path) for name, path in files.items()}
        return state_of(self.deployment.kernel, tables)

    def check_roots(self, bucket: int, state: Any) -> None:
        """Compare the roots of a bucket's state with the headers of the height before. Raises ``LakeDamaged``."""
        chains, manifest = self.deployment.chains(bucket), self.before
        frames = [empty_frame(HEADERS_SCHEMA)]
        frames += [from_table(rows.select(HEADERS_SCHEMA.names)) for rows in self.lake.log_rows("headers", manifest)]
        headers = concat(frames)
        headers = headers.filter(np.isin(headers["chain"], chains))
        found = self.deployment.kernel.roots(state, chains, Tick(manifest.height, manifest.tick))
        wrong = different_chains(headers, found)
        if len(wrong):
            name = self.deployment.kernel.chains()[int(wrong[0])]
            what = f"gives the state of {name} at height {manifest.height} another root than its header has"
            raise self.lake.damaged(manifest_path(manifest.height), what, manifest.height - 1)

    def view(self, own: Mapping[str, Frame]) -> View:
        """Return what the bucket's chains see of the height before; ``own``: the frames of their state."""
        shown = {name: table for name, table in self.deployment.kernel.tables().items() if table.shown != Shown.NOBODY}
        return View({name: self._shown(name, table, own[name]) for name, table in shown.items()}, self._headers())

    def _shown(self, name: str, table: StateTable, own: Frame) -> Frame:
        others = sorted(int(key) for key in self.before.state.get(name, {}) if int(key) != self.bucket)
        frames = [own, *(self._rows_of(name, bucket) for bucket in others)]
        rows = concat(frames)
        if table.shown == Shown.DESTINATION and len(rows):
            first, end = self.deployment.buckets[self.bucket]
            rows = rows.filter((rows[table.shown_to] >= first) & (rows[table.shown_to] < end))
        return in_order(table, rows) if len(frames) > 1 else rows

    def _rows_of(self, name: str, bucket: int) -> Frame:
        if self.states is not None:
            frame: Frame = self.states[bucket].frames()[name]
            return frame
        return from_table(self.lake.table(self.before, self.before.state[name][str(bucket)]))

    def _headers(self) -> Frame:
        heights = self.deployment.kernel.header_heights
        return self._headers_at(range(max(0, self.before.height - heights + 1), self.before.height + 1))

    def headers(self, asked: Frame) -> Frame:
        """Return the headers of chains at heights (``PAST_SCHEMA``)."""
        if not len(asked):
            return empty_frame(SEEN_HEADERS_SCHEMA)
        rows = self._headers_at(np.unique(asked["height"]).tolist())
        own, wanted = codes(PAST_SCHEMA.names, rows, asked)
        return rows.filter(np.isin(own, wanted))

    def _headers_at(self, heights: Iterable[int]) -> Frame:
        frames = [empty_frame(SEEN_HEADERS_SCHEMA)]
        for height in heights:
            manifest = self.before if height == self.before.height else self.lake.manifest(height)
            logged = self.lake.log_rows("headers", manifest)
            frames += [_as_seen(rows.select(SEEN_HEADERS_SCHEMA.names)) for rows in logged]
        rows = concat(frames)
        return rows.take(stable_order(rows["chain"], rows["height"], rows["number"]))

    def entries(self, reads: Reads) -> tuple[Frame, Frame]:
        """Return the outbound entries offered to the bucket's chains, and their own, that a plan asks for."""
        own = np.unique(self.deployment.buckets_of(reads.own["destination"])).tolist()
        return self._ranges(reads.offered, [self.bucket]), self._ranges(reads.own, own)

    def _ranges(self, ranges: Frame, destinations: Sequence[int]) -> Frame:
        """Return the entries of ``ranges`` (``RANGES_SCHEMA``), whose destinations are of those buckets.

        Of each file only the row groups of these buckets are read.
        """
        found = [empty_frame(self.deployment.kernel.outbound)]
        order = np.argsort(ranges["height"], kind="stable")
        ranges = ranges.take(order)
        heights = groups_of(ranges["height"])
        for start, count in zip(heights.starts.tolist(), heights.counts.tolist(), strict=True):
            parts = ranges.slice(start, start + count)
            manifest = self.lake.manifest(int(parts["height"][0]))
            bucket_of = self.deployment.buckets_of(parts["source"])
            for source in np.unique(bucket_of).tolist():
                found.append(self._of_file(manifest, source, destinations, parts.filter(bucket_of == source)))
        return concat(found)

    def _of_file(self, manifest: Manifest, source: int, destinations: Sequence[int], parts: Frame) -> Frame:
        """Return the rows of ``parts`` from the outbound entries that one bucket wrote at a height."""
        path = manifest.log["outbound"][str(source)]
        columns = self.deployment.kernel.outbound.names
        if self.lake.replaced(manifest, [path]):
            found = self.lake.log_rows("outbound", manifest)
            rows = concat([from_table(table.select(columns)) for table in found])
        else:
            groups = manifest.row_groups[path]
            with self.lake.open_parquet(path, manifest.files[path]) as file:
                mine = [groups[str(bucket)] for bucket in destinations if str(bucket) in groups]
                rows = from_table(file.read_row_groups(mine, columns, use_threads=False))
            if len(rows) == int((parts["end"] - parts["begin"]).sum()):
                return rows
        starts = parts.select(LANE).with_columns(index=parts["begin"])
        first, asked = codes((*LANE, "index"), starts, rows)
        lane, own_lane = codes(LANE, parts, rows)
        order = np.argsort(first, kind="stable")
        row = order[np.maximum(np.searchsorted(first[order], asked, side="right") - 1, 0)]
        inside = (lane[row] == own_lane) & (rows["index"] >= parts["begin"][row]) & (rows["index"] < parts["end"][row])
        return rows.filter(inside)

    def rows(self, asked: Mapping[str, Frame]) -> dict[str, Frame]:
        """Return rows of the chains' own log tables: by table the heights that are asked for (``HEIGHTS_SCHEMA``)."""
        return {table: self._log_rows(table, heights) for table, heights in asked.items()}

    def _log_rows(self, table: str, heights: Frame) -> Frame:
        schema = self.deployment.kernel.logs[table]
        chain, height = over(heights["first"], heights["last"] + np.uint64(1))
        wanted = Frame({"chain": heights["chain"][chain], "height": height}, len(height))
        found = [_as_seen(stamped_schema(schema).empty_table())]
        found += [self._log_at(table, one) for one in np.unique(height).tolist()]
        rows = concat(found)
        own, asked = codes(("chain", "height"), rows, wanted)
        rows = rows.filter(np.isin(own, asked))
        return rows.take(stable_order(rows["height"]))

    def _log_at(self, table: str, height: int) -> Frame:
        """Return what this bucket, or with it others, logged at a height."""
        schema = stamped_schema(self.deployment.kernel.logs[table])
        tables = self.lake.log_rows(table, self.lake.manifest(height), self.bucket)
        return _as_seen(pa.concat_tables([schema.empty_table(), *(rows.select(schema.names) for rows in tables)]))

    def past(self, asked: Frame) -> dict[int, Any]:
        """Return, by height, the states of the chains for which it is asked (``PAST_SCHEMA``)."""
        found = {}
        for height in np.unique(asked["height"]).tolist():
            manifest = self.lake.manifest(height)
            chains = np.unique(asked["chain"][asked["height"] == height])
            state = self._state_at(self.bucket, manifest)
            found[height] = part(self.deployment.kernel, state, chains, manifest.tick)
        return found


def different_chains(headers: Frame, found: Frame) -> npt.NDArray[np.uint32]:
    """Return the chains whose roots in ``headers`` are not those ``found`` (``chain``, ``root``), ascending.

    A chain may have several headers of a height, all with the root of its state; one that has none has made no block.
    """
    if not len(found):
        return np.unique(headers["chain"])
    order = np.argsort(found["chain"], kind="stable")
    row = order[np.minimum(np.searchsorted(found["chain"][order], headers["chain"]), len(order) - 1)]
    same = (found["chain"][row] == headers["chain"]) & (found["root"][row] == headers["root"]).all(axis=1)
    return np.unique(headers["chain"][~same])


def _as_seen(rows: pa.Table) -> Frame:
    """Return log rows as kernels see them: with unsigned heights and ticks, as everywhere in a round."""
    frame = from_table(rows)
    stamps = {name: frame[name].astype(np.uint64) for name in ("height", "tick") if name in frame}
    return frame.with_columns(**stamps)


def files_of(manifest: Manifest, bucket: int) -> dict[str, str]:
    """Return the files that hold a bucket's state at a height, by table."""
    key = str(bucket)
    return {name: files[key] for name, files in manifest.state.items() if key in files}
