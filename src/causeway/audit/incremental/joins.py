"""Cross-bucket joins of a growing ledger (``passes.cross_bucket_join``).

The request and response records of a bucket are cached in a temporary file until its rows change.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from causeway_proofs.errors import CausewayError

from causeway.audit.arrays import Ints
from causeway.audit.bucket import BucketMessages
from causeway.audit.checks.replies import (
    NO_FINDING,
    REQUESTS_SCHEMA,
    RESPONSES_SCHEMA,
    ReplyContext,
    ResponseCaller,
    reply_records,
    update_reply_windows,
)
from causeway.audit.incremental.buckets import IncrementalBuckets
from causeway.audit.passes.bucket_pass import RunResult
from causeway.audit.passes.cross_bucket_join import JoinPiece, JoinPlan, PendingPieces, read_named_rows
from causeway.audit.passes.finding_candidates import JoinResult
from causeway.ledger.schema import LedgerEvent
from causeway.ledger.store import Ledger
from causeway.ledger.stored_parts import bucket_parts
from causeway.ledger.windows import Lane

Parallel = Callable[[Callable[[int], Any], Iterable[int]], list[tuple[int, Any]]]
"""Runs a function for some numbers in parallel; returns each result, or the error of a bucket."""

SCHEMAS = {"requests": REQUESTS_SCHEMA, "responses": RESPONSES_SCHEMA}


class BucketLost(CausewayError):
    """A bucket read before is now unreadable."""


class _Records(NamedTuple):
    """Records of a bucket.

    Attributes:
        stamp: Stamp of its scan.
        serial: Serial number of the windows.
        is_plain: The records can be updated to other windows without the bucket's rows.
        tables: Records by kind.
    """

    stamp: int
    serial: int
    is_plain: bool
    tables: dict[str, pa.Table]


@dataclass
class _Named:
    """Cached named rows of a bucket, and their positions, ascending."""

    stamp: int
    places: Ints
    rows: pa.Table


class IncrementalJoins:
    """Joins rows of different buckets of a growing ledger.

    Args:
        buckets: Results of the buckets.
        parallel: Runs a function for buckets or parts in parallel.

    Attributes:
        asking: Lanes of requests.
    """

    def __init__(self, buckets: IncrementalBuckets[list[RunResult]], parallel: Parallel) -> None:
        self.asking: frozenset[Lane] = frozenset()
        self._buckets, self._parallel = buckets, parallel
        self._callers: dict[ResponseCaller, int] = {}
        self._lanes: dict[Lane, int] = {}
        self._records: dict[int, _Records] = {}
        self._named: dict[int, _Named] = {}
        self._ledger: Ledger | None = None
        self._serial = 0
        self._folder = tempfile.TemporaryDirectory(prefix="causeway-audit-")

    def begin(self, ledger: Ledger, serial: int) -> None:
        """Set the ledger and the serial number of its windows."""
        self._ledger, self._serial = ledger, serial

    def close(self) -> None:
        """Remove the temporary files."""
        self._records.clear()
        self._folder.cleanup()

    def met(self, meeting: JoinPlan) -> list[JoinResult]:
        """Return the results of all parts. Raises ``BucketLost``."""
        runs = {bucket: each for bucket, each in meeting.runs.items() if self._buckets.is_readable(bucket)}
        meeting, flights = replace(meeting, runs=runs), replace(meeting, runs=runs, answering=None)
        answering = meeting.answering
        if answering is not None:
            if self._callers != answering.callers:
                self._callers, self._records = dict(answering.callers), {}
            for lane in meeting.lanes:
                self._lanes.setdefault(lane, len(self._lanes))
            self.asking = answering.asking
        self._records = {bucket: each for bucket, each in self._records.items() if bucket in runs}
        # Lane numbers must follow the order of names: of records at one position the first one counts.
        numbers = {lane: number for number, lane in enumerate(meeting.lanes)}
        places = np.array([*(numbers.get(lane, -1) for lane in self._lanes), -1], np.int32)
        with PendingPieces() as pending:

            def add_pieces(bucket: int) -> None:
                pieces: list[Iterable[JoinPiece]] = []
                if answering is not None:
                    for kind, records in self._records_in(bucket, meeting, answering).items():
                        at = records.schema.get_field_index("lane")
                        lanes = pa.array(places[records["lane"].to_numpy()])
                        pieces.append(meeting.by_name(kind, records.set_column(at, records.schema.field(at), lanes)))
                if meeting.pressure is not None:
                    pieces.append(flights.pieces(bucket, bucket_parts(self._opened(), bucket)))
                for each in pieces:
                    for piece in each:
                        pending.add(piece)

            self._all(add_pieces, runs)
            return [met for _, met in self._parallel(lambda part: meeting.met(pending.of(part)), range(meeting.parts))]

    def rows(self, wanted: Mapping[int, Ints]) -> Mapping[int, pa.Table]:
        """Return rows of buckets (``NAMED``) at ascending positions. Raises ``BucketLost``."""

        def read(bucket: int) -> pa.Table:
            stamp, places = self._buckets.scanned[bucket].stamp, wanted[bucket]
            known = self._named.get(bucket)
            if known is None or known.stamp != stamp or not np.isin(places, known.places).all():
                rows = read_named_rows(bucket_parts(self._opened(), bucket), places)
                known = self._named[bucket] = _Named(stamp, places, rows)
            return known.rows.take(pa.array(np.searchsorted(known.places, places)))

        return dict(self._all(read, [*wanted]))

    def _records_in(self, bucket: int, meeting: JoinPlan, answering: ReplyContext) -> dict[str, pa.Table]:
        """Return the records of a bucket, updated to the current windows."""
        stamp, known = self._buckets.scanned[bucket].stamp, self._records.get(bucket)
        if known is None or known.stamp != stamp or (known.serial != self._serial and not known.is_plain):
            state = replace(answering, lanes=self._lanes)
            found = {kind: [schema.empty_table()] for kind, schema in SCHEMAS.items()}
            is_plain = True
            for own, rows in meeting.chosen(bucket, bucket_parts(self._opened(), bucket)):
                is_plain = is_plain and _is_plain(own)
                for kind, table in reply_records(own, rows, bucket, state):
                    found[kind].append(_needed(table) if kind == "requests" else table)
            tables = {
                kind: self._memory_map(f"{bucket}-{kind}", pa.concat_tables(each)) for kind, each in found.items()
            }
            known = self._records[bucket] = _Records(stamp, self._serial, is_plain, tables)
        if known.serial == self._serial:
            return known.tables
        requests, responses = (known.tables[kind] for kind in SCHEMAS)
        records = update_reply_windows(requests, responses, [*self._lanes], self._callers, meeting.known.windows)
        return dict(zip(SCHEMAS, records, strict=True))

    def _memory_map(self, name: str, table: pa.Table) -> pa.Table:
        """Store a table in a temporary file and memory-map it."""
        path = f"{self._folder.name}/{name}.arrow"
        with open(f"{path}.new", "wb") as file, pa.ipc.new_file(file, table.schema) as sink:
            sink.write_table(table.combine_chunks())
        os.replace(f"{path}.new", path)  # the previous file is still mapped
        return pa.ipc.open_file(pa.memory_map(path)).read_all()

    def _opened(self) -> Ledger:
        assert self._ledger is not None, "begin was called"
        return self._ledger

    def _all(self, work: Callable[[int], Any], buckets: Iterable[int]) -> list[tuple[int, Any]]:
        found = self._parallel(work, buckets)
        for bucket, each in found:
            if isinstance(each, CausewayError):
                self._buckets.fail(bucket, each)
                raise BucketLost(str(each))
        return found


def _needed(requests: pa.Table) -> pa.Table:
    """Drop requests without a caller and without a finding."""
    idle = (requests["caller"].to_numpy() < 0) & ((requests["outcome"].to_numpy() & 15) == NO_FINDING)
    return requests.filter(pa.array(~idle))


def _is_plain(own: BucketMessages) -> bool:
    """Return True if all requests were sent by the source of their lane."""
    columns = own.columns
    rows = own.first(LedgerEvent.SENT)
    rows = rows[rows >= 0]
    codes = {name: code for code, name in enumerate(columns.chains)}
    source = np.array([codes.get(lane[1] or "", -2) for lane in columns.lanes], np.int64)
    return bool((columns.chain[rows] == source[columns.lane[rows]]).all())


__all__ = ["BucketLost", "IncrementalJoins"]
