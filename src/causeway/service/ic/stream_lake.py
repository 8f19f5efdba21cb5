"""The certified streams of a subnet as the lake has them, for its endpoint: without a session of anything, and while
the lake goes on.

What is served follows the newest certified state: when a request comes and the lake has gone on, the table ``offers``
of the last height says header, way to the root and certification of each stream, and the messages that came since are
read from the heights that the segments of the streams name.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway.model.frame import Frame, concat, empty_frame, from_table
from causeway.model.order import groups_of, stable_order
from causeway.network.opened import Mask, OpenedLake
from causeway.pipeline.lake import Freed, Manifest
from causeway.proofs.ic.columns import encode_stream_messages
from causeway.proofs.ic.offered_streams import OfferedStreams
from causeway.proofs.ic.slice_certification import decode_certification
from causeway.proofs.ic.stream_header import decode_stream_header
from causeway.proofs.ic.versions import CertificationVersion
from causeway.protocols.ic.ids import subnet_id
from causeway.protocols.ic.wire_slices import MESSAGES_SCHEMA
from causeway.protocols.messages import MESSAGE_COLUMNS

READ = MESSAGES_SCHEMA.names


class LakeStreams:
    """The certified streams of the subnet at a position of a lake.

    Args:
        opened: the lake.
        position: the subnet's.
        version: of the encodings.
        lag: heights of the lake that are left out: of a node that is behind.
    """

    def __init__(self, opened: OpenedLake, position: int, version: CertificationVersion, lag: int = 0) -> None:
        self._opened, self._position, self._version, self._lag = opened, position, version, lag
        numbers = [int(item["number"]) for item in opened.about["chains"]]
        self._ids = [subnet_id(number) for number in numbers]
        self._height = -1
        self._streams = OfferedStreams(version)
        self._lock = threading.Lock()

    def newest(self) -> OfferedStreams:
        """Return the streams as they were certified last.

        Where a vacuum has freed the state of the height, they are those that were returned before, at first none: a
        node without the state serves what it has.

        Raises:
            LakeError: the lake cannot be read (``ReplayDiffers``, ``ReplayBusy``: as of ``OpenedLake.state_rows``).
        """
        height = self._opened.last_height() - self._lag
        with self._lock:
            if height > self._height:
                with suppress(Freed):
                    self._move_to(self._opened.manifest(height))
                    self._height = height
        return self._streams

    def _move_to(self, manifest: Manifest) -> None:
        offers = self._rows(manifest, "offers")
        certified = pc.binary_length(offers["certification"]).to_numpy(zero_copy_only=False) > 0
        offers = offers.filter(certified & (offers["source"] != offers["destination"]))
        lanes = groups_of(offers["destination"])
        newest = offers.take(lanes.starts + lanes.counts - 1)
        wanted: dict[int, tuple[int, int]] = {}
        for row, destination in enumerate(newest["destination"].tolist()):
            header = decode_stream_header(newest["header"][row].as_py(), self._version)
            end = self._streams.end(self._ids[destination])
            wanted[destination] = (header.begin if end is None else max(header.begin, end), header.end)
        messages = self._messages(manifest, wanted)
        for row, destination in enumerate(newest["destination"].tolist()):
            self._streams.update(
                self._ids[destination],
                newest["header"][row].as_py(),
                messages[destination],
                newest["path"][row].as_py(),
                decode_certification(newest["certification"][row].as_py()),
            )
        for subnet in self._streams.subnets_with_certified_streams():
            if self._ids.index(subnet) not in wanted:
                self._streams.drop(subnet)

    def _messages(self, manifest: Manifest, wanted: dict[int, tuple[int, int]]) -> dict[int, pa.BinaryArray]:
        """Return the encoded messages [begin, end) that are wanted of each destination."""
        runs = concat([self._rows(manifest, table) for table in ("trimmed_runs", "runs")])
        begin = np.array([wanted.get(chain, (0, 0))[0] for chain in runs["destination"].tolist()], dtype=np.uint64)
        end = np.array([wanted.get(chain, (0, 0))[1] for chain in runs["destination"].tolist()], dtype=np.uint64)
        runs = runs.filter((runs["first"] < end) & (runs["first"] + runs["count"] > begin))
        rows = concat([empty_frame(MESSAGES_SCHEMA), *self._outbound(sorted(set(runs["height"].tolist())))])
        found = {}
        for destination, (first, stop) in wanted.items():
            mine = (rows["destination"] == destination) & (rows["index"] >= first) & (rows["index"] < stop)
            of_lane = rows.filter(mine)
            of_lane = of_lane.take(stable_order(of_lane["index"]))
            columns = {name: of_lane[name] for name in MESSAGE_COLUMNS}
            found[destination] = encode_stream_messages(columns, self._version)
        return found

    def _outbound(self, heights: Iterable[int]) -> Iterable[Frame]:
        """Yield what the subnet appended to its streams at some heights."""

        def mine(batch: pa.RecordBatch) -> Mask:
            mask: Mask = batch["source"].to_numpy() == self._position
            return mask

        for height in heights:
            rows = self._opened.log_rows("outbound", height, self._position, READ, mine)
            if rows is not None and rows.num_rows:
                yield from_table(rows)

    def _rows(self, manifest: Manifest, table: str) -> Frame:
        """Return the subnet's rows of a state table."""
        return self._opened.state_rows(manifest, table, self._position, lambda owners: owners)
