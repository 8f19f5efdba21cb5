"""What all comparators share: the tables of a round, the Merkle roots of its streams, and its commit.

A round reads ``TABLES`` of one folder and writes the same tables of the next height, and ``events`` and ``roots``
besides, to another: Parquet files, then a manifest that is created if absent, all of it synced.
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
from causeway_proofs.hashing import Digests
from causeway_proofs.merkle import merkle_roots
from causeway_proofs.order import U64, Groups, Rows

from causeway.core.frame import Frame
from causeway.core.vocabulary import Event, Kind, Via
from causeway.protocols.ic.commitment import message_leaves

COMPRESSION = "lz4"
BASE = 1
"""The index of the first element of a queue."""

REQUEST, RESPONSE = int(Kind.REQUEST), int(Kind.RESPONSE)
METHOD = "ping"
"""The method of a request; a response has none."""

RECEIVED = int(Event.RECEIVED | Event.EXECUTED)
ANSWERED = int(Event.RECEIVED | Event.EXECUTED | Event.ANSWERED)
"""What happens to a request and to a response in one round."""

ON_LANE, LOOPBACK = int(Via.LANE), int(Via.LOOPBACK)


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns.items()])


NUMBER, CHAIN, SMALL = pa.uint64(), pa.uint32(), pa.uint8()
TEXT, BYTES, ROOT = pa.string(), pa.binary(), pa.binary(32)

MESSAGE = {
    "kind": SMALL,
    "sender": NUMBER,
    "receiver": NUMBER,
    "callback": NUMBER,
    "amount_high": NUMBER,
    "amount_low": NUMBER,
    "code": SMALL,
    "deadline": CHAIN,
    "method": TEXT,
    "payload": BYTES,
}
LANE = {"source": CHAIN, "destination": CHAIN, "substream": NUMBER, "index": NUMBER}

KEYS = {"input_counters": ("receiver", "sender"), "output_counters": ("sender", "receiver")}
"""What names a queue in each table of counters."""

SCHEMAS: Mapping[str, pa.Schema] = {
    "outbound": _schema(**LANE, **MESSAGE, queue_index=NUMBER, sent_tick=NUMBER),
    **{name: _schema(**dict.fromkeys((*keys, "next_index"), NUMBER)) for name, keys in KEYS.items()},
    "lanes": _schema(
        source=CHAIN, destination=CHAIN, begin=NUMBER, next_index=NUMBER, signals_begin=NUMBER, expected=NUMBER
    ),
    "accounts": _schema(program=NUMBER, next_callback=NUMBER),
    "events": _schema(
        chain=CHAIN,
        events=pa.uint16(),
        kind=SMALL,
        via=SMALL,
        source=CHAIN,
        destination=CHAIN,
        substream=NUMBER,
        index=NUMBER,
        sender=NUMBER,
        receiver=NUMBER,
        callback=NUMBER,
        queue_index=NUMBER,
        code=SMALL,
        reason=TEXT,
    ),
    "roots": _schema(source=CHAIN, destination=CHAIN, first=NUMBER, count=NUMBER, root=ROOT),
}
"""Tables and their columns, as in the lake."""

TABLES = ("outbound", "input_counters", "output_counters", "lanes", "accounts")
"""What a round reads, besides ``hosts``."""

HOSTS_SCHEMA = _schema(program=NUMBER, chain=CHAIN)
"""Where each canister lives; it does not change."""

MANIFEST = "manifest.json"


class Comparator(Protocol):
    """Another way to do the round."""

    name: str

    def __init__(self, hosts: pa.Table, threads: int) -> None: ...

    def round(self, before: str, after: str, tick: int) -> None:
        """Read the committed folder ``before`` and commit the next height, of ``tick``, to the folder ``after``."""
        ...


def path(folder: str, table: str) -> str:
    """Return the file of a table in a folder."""
    return os.path.join(folder, f"{table}.parquet")


def write(folder: str, table: str, content: pa.Table) -> None:
    """Write a table, in one row group, as Causeway's lake is written."""
    names = content.schema.names
    pq.write_table(
        content,
        path(folder, table),
        compression={name: "snappy" if name == "payload" else COMPRESSION for name in names},
        use_dictionary=[name for name in ("method", "reason") if name in names] or False,
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


def _sync(name: str) -> None:
    descriptor = os.open(name, os.O_RDONLY)
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
    """Return messages as the helper wants them; in this workload methods are two, and amounts are nothing."""
    columns: dict[str, Any] = {
        name: messages[name].combine_chunks().to_numpy(zero_copy_only=False)
        for name in MESSAGE
        if name not in ("method", "payload")
    }
    length = messages.num_rows
    is_request = pa.array((columns["kind"] == REQUEST).astype(np.int32))
    payload = messages["payload"].cast(BYTES)
    return Frame(
        {
            **columns,
            "method": pa.DictionaryArray.from_arrays(is_request, pa.array(["", METHOD], pa.string())),
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
