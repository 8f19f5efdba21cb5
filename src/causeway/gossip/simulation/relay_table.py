"""The relay chain of a run as a table, so that a simulation carries what the run made.

``causeway gossip relay-chain LAKE`` writes it: a row a relay block, in the order in which they were made.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from causeway_proofs.hashing import Digests
from causeway_proofs.order import U64, Rows
from pydantic_core import PydanticCustomError

from causeway.protocols.shared.digests import digests

NO_BLOCK = -1

MOST_BYTES = 1 << 28
"""Of a file."""

MOST_BLOCKS, MOST_ENTRIES, MOST_LISTED = 1 << 14, 1 << 18, 1 << 23
"""Relay blocks, queues that they post, and queues that all of them list together."""

MOST_TIME = 1 << 40
MOST_SIZE = 1 << 30

PARACHAINS, INTERVAL = b"parachains", b"interval"
"""What the schema says besides, in decimal digits: how many parachains there are, and how far apart blocks are (ms)."""

_POST = pa.struct(
    [
        ("source", pa.uint32()),
        ("destination", pa.uint32()),
        ("root", pa.binary(32)),
        ("size", pa.uint64()),
        ("messages", pa.uint64()),
    ]
)

RELAY_TABLE_SCHEMA = pa.schema(
    [
        ("hash", pa.binary(32)),
        ("number", pa.uint64()),
        ("parent", pa.int64()),
        ("time", pa.uint64()),
        ("posted", pa.list_(_POST)),
        ("unrouted", pa.list_(pa.uint32())),
    ]
)
"""``parent``: a row, -1 for genesis, which is the first. ``time``: ms. ``posted``: the queues that the block posted,
between parachains that count from 0, with the bytes of their messages. ``unrouted``: queues that are unrouted at it, by
where they are among those of all rows, in the runtime's order (ICMP reference 3.2)."""


@dataclass(frozen=True)
class RelayTable:
    """A relay chain that was made, as ``RelayChain`` has it; ``interval``: between two blocks (ms), ``parachains``: how
    many there are."""

    interval: int
    parachains: int
    hashes: Digests
    heights: U64
    parents: Rows
    times: Rows
    issued: Rows
    sources: Rows
    destinations: Rows
    root: Rows
    roots: Digests
    sizes: U64
    messages: U64
    unrouted: tuple[Rows, ...]


def read_relay_table(path: object) -> RelayTable | None:
    """Return the table in a Parquet file (``RELAY_TABLE_SCHEMA``). Raises ``PydanticCustomError`` where it is none."""
    if path is None or isinstance(path, RelayTable):
        return path
    if not isinstance(path, str):
        raise _wrong("the path of a Parquet file")
    try:
        if os.path.getsize(path) > MOST_BYTES:
            raise _wrong(f"a file of at most {MOST_BYTES:,} bytes")
        if not os.path.isfile(path):  # who opens a pipe waits
            raise _wrong("a Parquet file that can be read")
        with pq.ParquetFile(path) as file:
            schema, count = file.schema_arrow, file.metadata.num_rows
            if not schema.equals(RELAY_TABLE_SCHEMA) or not 1 < count <= MOST_BLOCKS:
                columns = ", ".join(RELAY_TABLE_SCHEMA.names)
                raise _wrong(f"what gossip relay-chain writes: {columns}, and 2 to {MOST_BLOCKS:,} blocks")
            # How many values the longest column has, lists taken apart, before any of it is read.
            groups = [file.metadata.row_group(group) for group in range(file.metadata.num_row_groups)]
            most: int = max(
                sum(group.column(place).num_values for group in groups) for place in range(file.metadata.num_columns)
            )
            if most > MOST_LISTED + MOST_BLOCKS:
                raise _wrong(f"a relay chain that lists at most {MOST_LISTED:,} queues")
            about = {key: (schema.metadata or {}).get(key, b"") for key in (PARACHAINS, INTERVAL)}
            table = file.read()
    except (OSError, pa.ArrowException) as error:
        raise _wrong(f"a Parquet file that can be read ({type(error).__name__})") from error
    if not all(text.isdigit() and len(text) <= 9 and int(text) for text in about.values()):
        raise _wrong("a table with parachains and interval in its metadata")
    found = _table(int(about[INTERVAL]), int(about[PARACHAINS]), table)
    if found is None:
        raise _wrong("a relay chain: blocks after their parents, and queues that an ancestor posted")
    return found


def _table(interval: int, parachains: int, table: pa.Table) -> RelayTable | None:
    """Return the table where it is a relay chain, else None."""
    columns = {name: table[name].combine_chunks() for name in table.column_names}
    posted, listed = columns["posted"], columns["unrouted"]
    posts, entries = posted.flatten(), listed.flatten()
    parts = {name: posts.field(place) for place, name in enumerate(_POST.names)} if len(posts) else {}
    if len(posts) == 0 or len(posts) > MOST_ENTRIES or len(entries) > MOST_LISTED:
        return None
    if any(column.null_count for column in (*columns.values(), posts, entries, *parts.values())):
        return None
    whole = {name: columns[name].to_numpy() for name in ("number", "parent", "time")}
    parts = {name: parts[name].to_numpy() if name != "root" else parts[name] for name in parts}
    ends = [np.cumsum(column.value_lengths().to_numpy()) for column in (posted, listed)]
    issued = np.searchsorted(ends[0], np.arange(len(posts)), side="right")
    of_block = np.searchsorted(ends[1], np.arange(len(entries)), side="right")
    entry = entries.to_numpy().astype(np.int64)
    hashes = digests(columns["hash"].to_pylist())
    good = _is_chain(hashes, whole["number"], whole["parent"], whole["time"], interval)
    if not good or int(entry.max(initial=0)) >= len(posts):
        return None
    sides = [parts[name].astype(np.int64) for name in ("source", "destination")]
    fits = max(int(side.max()) for side in sides) < parachains and not (sides[0] == sides[1]).any()
    sized = (parts["size"] >= 1) & (parts["size"] <= MOST_SIZE) & (parts["messages"] >= 1)
    sized &= parts["messages"] <= parts["size"]
    # Of each row whether the block `issued` is an ancestor of `block`.
    before = np.zeros(len(of_block), dtype=bool)
    ancestors: set[int] = set()
    at = -2
    for row in np.argsort(of_block, kind="stable").tolist():
        if of_block[row] != at:
            at, ancestors, older = int(of_block[row]), set(), int(whole["parent"][of_block[row]])
            while older != NO_BLOCK:
                ancestors.add(older)
                older = int(whole["parent"][older])
        before[row] = int(issued[entry][row]) in ancestors
    once = np.unique(np.stack([of_block, entry]), axis=1).shape[1] == len(entry)
    if not (fits and sized.all() and before.all() and once):
        return None
    named = digests([root.as_py() for root in parts["root"]])
    _, first, which = np.unique(named.view("V32").reshape(-1), return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.arange(len(order))
    first = first[order]
    return RelayTable(
        interval,
        parachains,
        hashes,
        whole["number"].astype(np.uint64),
        whole["parent"].astype(np.int64),
        whole["time"].astype(np.int64),
        issued.astype(np.int64),
        sides[0],
        sides[1],
        number[which.reshape(-1)],
        named[first],
        parts["size"][first].astype(np.uint64),
        parts["messages"][first].astype(np.uint64),
        tuple(np.split(entry, ends[1][:-1])),
    )


def _is_chain(hashes: Digests, number: U64, parent: Rows, time: U64, interval: int) -> bool:
    """Return whether the rows are blocks on each other in the order of their times, each with a hash of its own."""
    rows = np.arange(len(number))
    if len(np.unique(hashes[:, :8].copy().view("<u8"))) != len(rows):
        return False
    if parent[0] != NO_BLOCK or number[0] != 0 or not ((parent[1:] >= 0) & (parent[1:] < rows[1:])).all():
        return False
    if not (number[1:] == number[parent[1:]] + np.uint64(1)).all() or int(time.max()) > MOST_TIME:
        return False
    whole = not (time % np.uint64(interval)).any()
    return bool(whole and (time[1:] >= time[:-1]).all() and (time[1:] > time[parent[1:]]).all())


def _wrong(allowed: str) -> PydanticCustomError:
    return PydanticCustomError("relay_table", "{text}", {"text": f"must be {allowed}"})
