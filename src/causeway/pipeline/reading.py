"""What a bucket reads of committed heights: what its chains see, the entries that they take, their own past."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from causeway.model.frame import Frame, concat, empty_frame, from_table
from causeway.model.joins import codes, over
from causeway.model.order import groups_of, stable_order
from causeway.pipeline.deployment import Deployment
from causeway.pipeline.lake import Lake, Manifest
from causeway.pipeline.schemas import stamped_schema
from causeway.protocols.contract import PAST_SCHEMA, SEEN_HEADERS_SCHEMA, Reads, Shown, StateTable, View
from causeway.protocols.messages import LANE
from causeway.protocols.partition import in_order, part, state_of


@dataclass(frozen=True)
class Reader:
    """Reads for one bucket at the tick after the committed height ``before``."""

    deployment: Deployment
    lake: Lake
    bucket: int
    before: Manifest

    def state(self, bucket: int, manifest: Manifest) -> Any:
        """Return a bucket's state as a height's files hold it."""
        files = files_of(manifest, bucket)
        tables = {name: self.lake.storage.read_table(path) for name, path in files.items()}
        return state_of(self.deployment.kernel, tables)

    def view(self, own: Mapping[str, Frame]) -> View:
        """Return what the bucket's chains see of the height before; ``own``: the frames of their state."""
        shown = {name: table for name, table in self.deployment.kernel.tables().items() if table.shown != Shown.NOBODY}
        return View({name: self._shown(name, table, own[name]) for name, table in shown.items()}, self._headers())

    def _shown(self, name: str, table: StateTable, own: Frame) -> Frame:
        frames = [own]
        for key, path in self.before.state.get(name, {}).items():
            if int(key) != self.bucket:
                frames.append(from_table(self.lake.storage.read_table(path)))
        rows = concat(frames)
        if table.shown == Shown.DESTINATION and len(rows):
            first, end = self.deployment.buckets[self.bucket]
            rows = rows.filter((rows[table.shown_to] >= first) & (rows[table.shown_to] < end))
        return in_order(table, rows) if len(frames) > 1 else rows

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
            frames += [from_table(rows.select(SEEN_HEADERS_SCHEMA.names)) for rows in logged]
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
        groups = manifest.row_groups[path]
        with self.lake.storage.open_parquet(path) as file:
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
        found = [empty_frame(stamped_schema(schema))]
        found += [self._log_at(table, one) for one in np.unique(height).tolist()]
        rows = concat(found)
        own, asked = codes(("chain", "height"), rows, wanted)
        rows = rows.filter(np.isin(own, asked))
        return rows.take(stable_order(rows["height"]))

    def _log_at(self, table: str, height: int) -> Frame:
        """Return what this bucket, or with it others, logged at a height."""
        schema = stamped_schema(self.deployment.kernel.logs[table])
        tables = self.lake.log_rows(table, self.lake.manifest(height), self.bucket)
        return from_table(pa.concat_tables([schema.empty_table(), *(rows.select(schema.names) for rows in tables)]))

    def past(self, asked: Frame) -> dict[int, Any]:
        """Return, by height, the states of the chains for which it is asked (``PAST_SCHEMA``)."""
        found = {}
        for height in np.unique(asked["height"]).tolist():
            manifest = self.lake.manifest(height)
            chains = np.unique(asked["chain"][asked["height"] == height])
            found[height] = part(self.deployment.kernel, self.state(self.bucket, manifest), chains, manifest.tick)
        return found


def files_of(manifest: Manifest, bucket: int) -> dict[str, str]:
    """Return the files that hold a bucket's state at a height, by table."""
    key = str(bucket)
    return {name: files[key] for name, files in manifest.state.items() if key in files}
