"""What all comparators share: the tables of a round, the Merkle roots of its streams, and its commit.

A round reads ``TABLES`` of one folder and writes the same tables of the next height, and ``events`` and ``roots``
besides, to another: Parquet files, then a manifest that is created if absent, all of it synced. Columns that are
constant in the workload (cycles, codes, deadlines, substreams, ticks) are left out, which spares the comparators work.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from causeway.commitments.hashing import Digests
from causeway.commitments.merkle import merkle_roots
from causeway.model.frame import Frame, repeated
from causeway.model.ledger import Kind
from causeway.model.order import U64, Groups, Rows
from causeway.protocols.ic.commitment import message_leaves

COMPRESSION = "lz4"
BASE = 1
"""The index of the first element of a queue."""

REQUEST, RESPONSE = int(Kind.REQUEST), int(Kind.RESPONSE)
METHODS = ["", "ping"]
"""The method of a response and of a request."""


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns.items()])


NUMBER, CHAIN, SMALL, BYTES, ROOT = pa.uint64(), pa.uint32(), pa.uint8(), pa.binary(), pa.binary(32)

SCHEMAS: Mapping[str, pa.Schema] = {
    "transfers": _schema(
        chain=CHAIN, remote=CHAIN, index=NUMBER, kind=SMALL, sender=NUMBER, receiver=NUMBER, callback=NUMBER,
        queue_index=NUMBER, payload=BYTES,
    ),
    "input_counters": _schema(first=NUMBER, second=NUMBER, next_index=NUMBER),
    "output_counters": _schema(first=NUMBER, second=NUMBER, next_index=NUMBER),
    "lanes": _schema(
        chain=CHAIN, remote=CHAIN, begin=NUMBER, next_index=NUMBER, signals_begin=NUMBER, expected=NUMBER
    ),
    "canisters": _schema(canister=NUMBER, next_callback=NUMBER),
    "events": _schema(
        chain=CHAIN, remote=CHAIN, index=NUMBER, kind=SMALL, sender=NUMBER, receiver=NUMBER, callback=NUMBER,
        queue_index=NUMBER,
    ),
    "roots": _schema(chain=CHAIN, remote=CHAIN, first=NUMBER, count=NUMBER, root=ROOT),
}  # fmt: skip
"""Tables and their columns. Counters: queues by (receiver, sender) for input, (sender, receiver) for output."""

TABLES = ("transfers", "input_counters", "output_counters", "lanes", "canisters")
"""What a round reads, besides ``hosts``."""

HOSTS_SCHEMA = _schema(canister=NUMBER, chain=CHAIN)
"""Where each canister lives; it does not change."""

MANIFEST = "manifest.json"


class Comparator(Protocol):
    """Another way to do the round."""

    name: str

    def __init__(self, hosts: pa.Table, threads: int) -> None: ...

    def round(self, before: str, after: str) -> None:
        """Read the committed folder ``before`` and commit the next height to the folder ``after``."""
        ...


def path(folder: str, table: str) -> str:
    """Return the file of a table in a folder."""
    return os.path.join(folder, f"{table}.parquet")


def write(folder: str, table: str, content: pa.Table) -> None:
    """Write a table, in one row group, as Causeway's lake is written."""
    payload = {name: "snappy" if name == "payload" else COMPRESSION for name in content.schema.names}
    pq.write_table(
        content,
        path(folder, table),
        compression=payload,
        use_dictionary=False,
        write_statistics=False,
        row_group_size=max(1, content.num_rows),
    )


def commit(folder: str) -> None:
    """Sync all files of a folder, then create its manifest."""
    names = sorted(os.listdir(folder))
    for name in names:
        _sync(os.path.join(folder, name))
    temporary = os.path.join(folder, f"{MANIFEST}.tmp")
    with open(temporary, "x", encoding="utf-8") as file:
        json.dump({"files": names}, file)
        file.flush()
        os.fsync(file.fileno())
    os.link(temporary, os.path.join(folder, MANIFEST))
    os.unlink(temporary)
    _sync(folder)


def _sync(place: str) -> None:
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def leaves_of(messages: pa.Table, threads: int) -> Digests:
    """Return the leaf hash of each message, by Causeway's own vectorised helper, in ``threads`` threads."""
    cuts = np.linspace(0, messages.num_rows, threads + 1).astype(int)
    with ThreadPoolExecutor(threads) as pool:
        parts = pool.map(
            lambda cut: message_leaves(_frame(messages.slice(cut[0], cut[1] - cut[0]))),
            zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True),
        )
        return np.concatenate(list(parts))


def _frame(messages: pa.Table) -> Frame:
    columns: dict[str, Any] = {
        name: messages[name].combine_chunks().to_numpy(zero_copy_only=False)
        for name in ("kind", "sender", "receiver", "callback")
    }
    length = messages.num_rows
    zero = repeated(np.uint64(0), length)
    is_request = pa.array((columns["kind"] == REQUEST).astype(np.int32))
    payload = messages["payload"].cast(BYTES)
    return Frame(
        {
            **columns,
            "cycles_high": zero,
            "cycles_low": zero,
            "code": repeated(np.uint8(0), length),
            "deadline": repeated(np.uint32(0), length),
            "method": pa.DictionaryArray.from_arrays(is_request, pa.array(METHODS, pa.string())),
            "payload": payload.combine_chunks() if payload.num_chunks != 1 else payload.chunk(0),
        },
        length,
    )


def roots_of(leaves: Digests, counts: Rows, threads: int) -> Digests:
    """Return the Merkle root of each run of ``counts`` neighbouring leaves, runs dealt out to threads."""
    ends = np.cumsum(counts)
    shares = np.linspace(0, int(ends[-1]) if len(ends) else 0, threads + 1)
    cuts = np.searchsorted(ends, shares, side="left")
    cuts[-1] = len(counts)
    with ThreadPoolExecutor(threads) as pool:
        jobs = zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)
        return np.concatenate(list(pool.map(partial(_roots, leaves, counts, ends), jobs)))


def _roots(leaves: Digests, counts: Rows, ends: Rows, part: tuple[int, int]) -> Digests:
    first, last = part
    if first >= last:
        return np.empty((0, leaves.shape[1]), dtype=np.uint8)
    begin, end = int(ends[first] - counts[first]), int(ends[last - 1])
    starts = ends[first:last] - counts[first:last] - begin
    return merkle_roots(leaves[begin:end], Groups(starts, counts[first:last], end - begin))


def roots_table(runs: Mapping[str, Any], digests: Digests) -> pa.Table:
    """Return the table ``roots``: ``runs`` holds its other columns."""
    root = pa.FixedSizeBinaryArray.from_buffers(ROOT, len(digests), [None, pa.py_buffer(np.ascontiguousarray(digests))])
    return pa.table({**runs, "root": root}).select(SCHEMAS["roots"].names).cast(SCHEMAS["roots"])


__all__ = ["BASE", "HOSTS_SCHEMA", "SCHEMAS", "TABLES", "U64", "Comparator", "commit", "leaves_of", "roots_of", "write"]
