"""Relay chain of a recorded run as a table, for replay in a simulation.

``causeway gossip relay-chain LAKE`` writes it: one row a relay block, in order of creation.
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
"""Maximum size of a file in bytes."""

MOST_BLOCKS, MOST_ENTRIES, MOST_LISTED = 1 << 14, 1 << 18, 1 << 23
"""Maximum numbers of relay blocks, posted queues, and listed queues of all blocks together."""

MOST_TIME = 1 << 40
MOST_SIZE = 1 << 30

PARACHAINS, INTERVAL = b"parachains", b"interval"
"""Schema metadata, decimal: number of parachains, and interval between two blocks in ms."""

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
"""Schema of the table.

``parent``: row of the parent, -1 for genesis, the first row. ``time``: ms. ``posted``: queues that
the block posted between parachains (numbered from 0), with the size of their messages in bytes.
``unrouted``: unrouted queues at the block, as positions among the posted queues of all rows, in the
runtime's order (ICMP reference 3.2).
"""


@dataclass(frozen=True)
class RelayTable:
    """Recorded relay chain; its columns are those of ``SimulatedRelayChain``.

    Attributes:
        interval: Interval between two blocks in ms.
        parachains: Number of parachains.
    """

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
    """Read a relay table from a Parquet file (``RELAY_TABLE_SCHEMA``).

    Args:
        path: Path of the file; None and tables are returned as they are.

    Raises:
        PydanticCustomError: The file holds no valid relay chain.
    """
    if path is None or isinstance(path, RelayTable):
        return path
    if not isinstance(path, str):
        raise _invalid_table("the path of a Parquet file")
    try:
        if os.path.getsize(path) > MOST_BYTES:
            raise _invalid_table(f"a file of at most {MOST_BYTES:,} bytes")
        if not os.path.isfile(path):  # opening a pipe would block
            raise _invalid_table("a Parquet file that can be read")
        with pq.ParquetFile(path) as file:
            schema, count = file.schema_arrow, file.metadata.num_rows
            if not schema.equals(RELAY_TABLE_SCHEMA) or not 1 < count <= MOST_BLOCKS:
                columns = ", ".join(RELAY_TABLE_SCHEMA.names)
                raise _invalid_table(f"what gossip relay-chain writes: {columns}, and 2 to {MOST_BLOCKS:,} blocks")
            # The number of values in the longest flattened column, checked before reading.
            groups = [file.metadata.row_group(group) for group in range(file.metadata.num_row_groups)]
            most: int = max(
                sum(group.column(place).num_values for group in groups) for place in range(file.metadata.num_columns)
            )
            if most > MOST_LISTED + MOST_BLOCKS:
                raise _invalid_table(f"a relay chain that lists at most {MOST_LISTED:,} queues")
            about = {key: (schema.metadata or {}).get(key, b"") for key in (PARACHAINS, INTERVAL)}
            table = file.read()
    except (OSError, pa.ArrowException) as error:
        raise _invalid_table(f"a Parquet file that can be read ({type(error).__name__})") from error
    if not all(text.isdigit() and len(text) <= 9 and int(text) for text in about.values()):
        raise _invalid_table("a table with parachains and interval in its metadata")
    found = _parse_table(int(about[INTERVAL]), int(about[PARACHAINS]), table)
    if found is None:
        raise _invalid_table("a relay chain: blocks after their parents, and queues that an ancestor posted")
    return found


def _parse_table(interval: int, parachains: int, table: pa.Table) -> RelayTable | None:
    """Convert a Parquet table, or return None if it is no valid relay chain."""
    columns = {name: table[name].combine_chunks() for name in table.column_names}
    posted, listed = columns["posted"], columns["unrouted"]
    posts, entries = posted.flatten(), listed.flatten()
    parts = {name: posts.field(place) for place, name in enumerate(_POST.names)} if len(posts) else {}
    if len(posts) == 0 or len(posts) > MOST_ENTRIES or len(entries) > MOST_LISTED:
        return None
    if any(column.null_count for column in (*columns.values(), posts, entries, *parts.values())):
        return None
    block_columns = {name: columns[name].to_numpy() for name in ("number", "parent", "time")}
    parts = {name: parts[name].to_numpy() if name != "root" else parts[name] for name in parts}
    ends = [np.cumsum(column.value_lengths().to_numpy()) for column in (posted, listed)]
    issued = np.searchsorted(ends[0], np.arange(len(posts)), side="right")
    of_block = np.searchsorted(ends[1], np.arange(len(entries)), side="right")
    entry = entries.to_numpy().astype(np.int64)
    hashes = digests(columns["hash"].to_pylist())
    valid_chain = _is_chain(hashes, block_columns["number"], block_columns["parent"], block_columns["time"], interval)
    if not valid_chain or int(entry.max(initial=0)) >= len(posts):
        return None
    sides = [parts[name].astype(np.int64) for name in ("source", "destination")]
    valid_ends = max(int(side.max()) for side in sides) < parachains and not (sides[0] == sides[1]).any()
    valid_sizes = (parts["size"] >= 1) & (parts["size"] <= MOST_SIZE) & (parts["messages"] >= 1)
    valid_sizes &= parts["messages"] <= parts["size"]
    # Each listed queue must be issued by an ancestor of the listing block.
    issued_by_ancestor = np.zeros(len(of_block), dtype=bool)
    ancestors: set[int] = set()
    at = -2
    for row in np.argsort(of_block, kind="stable").tolist():
        if of_block[row] != at:
            at, ancestors, older = int(of_block[row]), set(), int(block_columns["parent"][of_block[row]])
            while older != NO_BLOCK:
                ancestors.add(older)
                older = int(block_columns["parent"][older])
        issued_by_ancestor[row] = int(issued[entry][row]) in ancestors
    distinct_rows = np.unique(np.stack([of_block, entry]), axis=1).shape[1] == len(entry)
    if not (valid_ends and valid_sizes.all() and issued_by_ancestor.all() and distinct_rows):
        return None
    root_digests = digests([root.as_py() for root in parts["root"]])
    _, first, root_index = np.unique(root_digests.view("V32").reshape(-1), return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.arange(len(order))
    first = first[order]
    return RelayTable(
        interval,
        parachains,
        hashes,
        block_columns["number"].astype(np.uint64),
        block_columns["parent"].astype(np.int64),
        block_columns["time"].astype(np.int64),
        issued.astype(np.int64),
        sides[0],
        sides[1],
        number[root_index.reshape(-1)],
        root_digests[first],
        parts["size"][first].astype(np.uint64),
        parts["messages"][first].astype(np.uint64),
        tuple(np.split(entry, ends[1][:-1])),
    )


def _is_chain(hashes: Digests, number: U64, parent: Rows, time: U64, interval: int) -> bool:
    """Return True if the rows are blocks on their parents, in time order, with distinct hashes."""
    rows = np.arange(len(number))
    if len(np.unique(hashes[:, :8].copy().view("<u8"))) != len(rows):
        return False
    if parent[0] != NO_BLOCK or number[0] != 0 or not ((parent[1:] >= 0) & (parent[1:] < rows[1:])).all():
        return False
    if not (number[1:] == number[parent[1:]] + np.uint64(1)).all() or int(time.max()) > MOST_TIME:
        return False
    aligned = not (time % np.uint64(interval)).any()
    return bool(aligned and (time[1:] >= time[:-1]).all() and (time[1:] > time[parent[1:]]).all())


def _invalid_table(allowed: str) -> PydanticCustomError:
    return PydanticCustomError("relay_table", "{text}", {"text": f"must be {allowed}"})
