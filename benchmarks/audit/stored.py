"""The rows of a workload as files: a stored ledger, and one Parquet file of rows as they arrived."""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.audit.workload import (
    ANSWERED_WITHIN,
    BEGIN,
    BLOCK,
    CHAINS,
    END,
    FINAL_AFTER,
    GENESIS,
    PROTOCOLS,
    RECEIVED,
    SECOND,
    SENT,
    Rows,
    Workload,
)
from causeway.ledger.ingest.mapping import MappingDocument
from causeway.ledger.row_order import SEGMENT_BITS, message_bucket
from causeway.ledger.schema import LANE, LEDGER_SCHEMA, LIMBS, OBSERVED_SCHEMA, PROMISES_SCHEMA
from causeway.ledger.store import ROW_GROUP, LedgerWriter, create_ledger

EVENTS = ("sent", "committed", "received", "acknowledged")
CHAIN_NAMES = tuple(f"chain-{chain:02}" for chain in range(CHAINS))
PROMISES: tuple[dict[str, Any], ...] = (
    *({"promise": name, "number": None} for name in ("numbered", "ordered_sends", "conserved")),
    {"promise": "final_after", "number": FINAL_AFTER},
    {"promise": "answered", "number": ANSWERED_WITHIN},
    *(
        {"protocol": PROTOCOLS[1], "promise": name, "number": None}
        for name in ("ordered_receives", "ordered_acknowledgements")
    ),
)
"""What lanes promise; without ``protocol``: all of them."""

ARRIVED = (
    *("protocol", "source", "destination", "lane", "index", "message_id", "event", "chain", "height", "position"),
    *("time", "payload_hash", "asset"),
)
"""The columns of the file of rows as they arrived, beside ``amount``."""

AMOUNT = pa.field("amount", pa.decimal128(38, 0))

_PIECE = ROW_GROUP // 4
"""Messages that are made at once."""

_DIGITS = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
_ID_BYTES = 34


class Tables:
    """Rows of a workload as tables of the ledger."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload

    @cached_property
    def _names(self) -> dict[str, tuple[pa.Array, npt.NDArray[np.int32]]]:
        """Of each name of lanes all there are, and which of them each lane has."""
        columns = dict(zip(LANE, zip(*self.workload.names, strict=True), strict=True))
        known = {"protocol": PROTOCOLS, "source": CHAIN_NAMES, "destination": CHAIN_NAMES}
        found = {}
        for name, texts in columns.items():
            every = known.get(name, texts)
            place = {text: number for number, text in enumerate(every)}
            found[name] = pa.array(every), np.array([place[text] for text in texts], np.int32)
        return found

    def table(self, rows: Rows) -> pa.Table:
        """Return rows as a table of the ledger."""
        length = len(rows.lane)
        content: dict[str, pa.Array] = {}
        for name, (every, codes) in self._names.items():
            content[name] = pa.DictionaryArray.from_arrays(pa.array(codes[rows.lane]), every)
        (chains, near), (_, far) = self._names["source"], self._names["destination"]
        chain = np.where(rows.event == RECEIVED, far[rows.lane], near[rows.lane])
        content["chain"] = pa.DictionaryArray.from_arrays(pa.array(chain), chains)
        content["event"] = pa.DictionaryArray.from_arrays(pa.array(rows.event), pa.array(EVENTS))
        since = rows.time - GENESIS
        content["index"] = pa.array(rows.index)
        content["message_id"] = ids(rows.name)
        content["height"] = pa.array((since // BLOCK + 1).astype(np.uint64))
        content["position"] = pa.array((since % BLOCK // 1000).astype(np.uint64))
        content["time"] = pa.array(rows.time).cast(pa.timestamp("us", "UTC"))
        words = np.ascontiguousarray(rows.content)
        content["payload_hash"] = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(32), length, [None, pa.py_buffer(words)]
        )
        valueless = (rows.event != SENT) & (rows.event != RECEIVED)
        content["asset"] = pa.DictionaryArray.from_arrays(
            pa.array(rows.lane % 3, pa.int32(), mask=valueless), pa.array(("atom", "ether", "dollar"))
        )
        for place, name in enumerate(LIMBS):
            limb = np.ascontiguousarray(rows.amount[:, place]) if place < 2 else np.zeros(length, np.uint64)
            content[name] = pa.array(limb, mask=valueless)
        for name, text in (("kind", "request"), ("stated_by", "generator")):
            content[name] = pa.DictionaryArray.from_arrays(pa.array(np.zeros(length, np.int32)), pa.array([text]))
        columns = [
            content[field.name] if field.name in content else pa.nulls(length, field.type) for field in LEDGER_SCHEMA
        ]
        return pa.table(columns, LEDGER_SCHEMA)

    def bucket(self, segments: list[tuple[int, int]]) -> Iterator[pa.Table]:
        """Yield the rows of segments (lane, number), which are in their order."""
        lanes: list[npt.NDArray[np.int32]] = []
        indices: list[npt.NDArray[np.uint64]] = []
        waiting = 0
        for lane, segment in segments:
            first = max(segment << SEGMENT_BITS, 1)
            end = min(segment + 1 << SEGMENT_BITS, int(self.workload.last_indices[lane]) + 1)
            while first < end:
                some = min(end - first, _PIECE - waiting)
                lanes.append(np.full(some, lane, np.int32))
                indices.append(np.arange(first, first + some, dtype=np.uint64))
                first, waiting = first + some, waiting + some
                if waiting == _PIECE:
                    yield self.table(self.workload.events(np.concatenate(lanes), np.concatenate(indices)))
                    lanes, indices, waiting = [], [], 0
        if waiting:
            yield self.table(self.workload.events(np.concatenate(lanes), np.concatenate(indices)))

    def segments(self, buckets: int) -> list[list[tuple[int, int]]]:
        """Return the segments of each bucket, in their order."""
        found: list[list[tuple[int, int]]] = [[] for _ in range(buckets)]
        for lane in self.workload.in_order.tolist():
            for segment in range((int(self.workload.last_indices[lane]) >> SEGMENT_BITS) + 1):
                bucket = message_bucket(self.workload.names[lane], segment << SEGMENT_BITS, None, buckets)
                found[bucket].append((lane, segment))
        return found

    def observed(self) -> pa.Table:
        """Return the windows: of every chain, from its first block to the end."""
        content: dict[str, Any] = {"chain": list(CHAIN_NAMES), "how": "declared", "stated_by": "generator"}
        content |= {"first_height": 1, "last_height": END // BLOCK + 1}
        content |= {"first_time": GENESIS, "last_time": GENESIS + END}
        return _filled(OBSERVED_SCHEMA, content, len(CHAIN_NAMES))

    def promises(self) -> pa.Table:
        """Return what lanes promise."""
        content = {**dict.fromkeys(LANE), "stated_by": "generator"}
        rows = [{**content, **promise} for promise in PROMISES]
        return _filled(PROMISES_SCHEMA, {name: [row.get(name) for row in rows] for name in rows[0]}, len(rows))


def _filled(schema: pa.Schema, content: Mapping[str, Any], length: int) -> pa.Table:
    columns = []
    for field in schema:
        value = content.get(field.name)
        values = value if isinstance(value, list) else [value] * length
        plain = pa.string() if pa.types.is_dictionary(field.type) else field.type
        if pa.types.is_timestamp(field.type):
            plain = pa.int64()
        columns.append(pa.array(values, plain).cast(field.type))
    return pa.table(columns, schema)


def ids(words: npt.NDArray[np.uint64]) -> pa.Array:
    """Return words, two a row, as texts: ``0x`` and 32 hexadecimal digits."""
    length = len(words)
    data = np.empty((length, _ID_BYTES), dtype=np.uint8)
    data[:, 0], data[:, 1] = ord("0"), ord("x")
    octets = np.ascontiguousarray(words).view(np.uint8).reshape(length, 16)
    data[:, 2::2] = _DIGITS[octets >> 4]
    data[:, 3::2] = _DIGITS[octets & 15]
    offsets = np.arange(length + 1, dtype=np.int32) * _ID_BYTES
    return pa.StringArray.from_buffers(length, pa.py_buffer(offsets), pa.py_buffer(data))


def decimals(words: npt.NDArray[np.uint64], missing: pa.Array) -> pa.Array:
    """Return numbers of two words as decimals, null where they are ``missing``."""
    valid = np.packbits(~np.asarray(missing), bitorder="little")
    content = [pa.py_buffer(valid), pa.py_buffer(np.ascontiguousarray(words))]
    return pa.Decimal128Array.from_buffers(AMOUNT.type, len(words), content)


def write_ledger(workload: Workload, place: str, buckets: int, threads: int) -> int:
    """Write a workload as a stored ledger; return how many rows it has."""
    tables = Tables(workload)
    ledger = create_ledger(place, buckets)
    writer = LedgerWriter(ledger)
    of_buckets = tables.segments(buckets)
    with ThreadPoolExecutor(threads) as pool:
        jobs = [
            pool.submit(writer.write, "ledger", tables.bucket(own), bucket)
            for bucket, own in enumerate(of_buckets)
            if own
        ]
        rows = sum(job.result() for job in jobs)
    writer.write("observed", tables.observed())
    writer.write("promises", tables.promises())
    writer.commit([], {"rows": rows})
    return rows


def mapping() -> MappingDocument:
    """Return what the columns of the file of rows as they arrived mean."""
    names = (*ARRIVED[:-2], "asset", AMOUNT.name)
    document = {
        "format": "parquet",
        "stated_by": "generator",
        "fields": {**{name: name for name in names}, "kind": {"text": "request"}, "content": ["payload_hash"]},
        "events": [{}],
        "observed": [
            {
                **{"chain": chain, "first_height": 1, "last_height": END // BLOCK + 1},
                **{"first_time": _iso(GENESIS), "last_time": _iso(GENESIS + END)},
            }
            for chain in CHAIN_NAMES
        ],
        "promises": [_declared(promise) for promise in PROMISES],
    }
    return MappingDocument.model_validate(document)


def _declared(promise: Mapping[str, Any]) -> dict[str, Any]:
    number = promise["number"]
    found = {name: value for name, value in promise.items() if name != "number"}
    return found if number is None else {**found, "seconds": number // SECOND}


def _iso(time: int) -> str:
    return dt.datetime.fromtimestamp(time / SECOND, dt.UTC).isoformat()


def write_arrived(workload: Workload, path: str, threads: int) -> int:
    """Write a workload as one Parquet file, its rows in the order in which they arrived; return how many."""
    tables = Tables(workload)
    spans = max(1, workload.rows // (1 << 19))
    first, last = BEGIN - 200_000_000, BEGIN + workload.span + 2 * ANSWERED_WITHIN
    bounds = [0, *(int(bound) for bound in np.linspace(first, last, spans + 1)[1:])]
    schema = pa.schema([*(LEDGER_SCHEMA.field(name) for name in ARRIVED), AMOUNT])

    def made(number: int) -> pa.Table:
        rows = workload.between(bounds[number], bounds[number + 1])
        table = tables.table(rows)
        return table.select(ARRIVED).append_column(AMOUNT, decimals(rows.amount, table["asset"].is_null()))

    names = [field.name for field in schema if pa.types.is_dictionary(field.type)]
    rows, waiting = 0, deque[Future[pa.Table]]()
    with (
        pq.ParquetWriter(path, schema, compression="lz4", use_dictionary=names) as writer,
        ThreadPoolExecutor(threads) as pool,
    ):
        for number in range(spans + threads):
            if number < spans:
                waiting.append(pool.submit(made, number))
            if number >= threads:
                part = waiting.popleft().result()
                writer.write_table(part)
                rows += part.num_rows
    return rows
