"""A table of when bodies came to those who need them: what a simulation of the gossip network wrote.

``causeway gossip simulate --out LAKE`` leaves it as ``results/bodies.parquet`` in the lake.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic_core import PydanticCustomError

from causeway.model.frame import Frame, from_table
from causeway.model.joins import lookup
from causeway.model.order import U64, Rows, stable_order

BODY_TABLE_SCHEMA = pa.schema(
    [
        pa.field("number", pa.uint64(), nullable=False),
        pa.field("source", pa.uint32(), nullable=False),
        pa.field("destination", pa.uint32(), nullable=False),
        pa.field("delay", pa.uint64()),
    ]
)
"""One row a queue: the number of the relay block that posted it, its ends (parachains, counted from 0), and how many
milliseconds after that block was made its recipient had the body; null: never."""

MOST_ROWS = 10_000_000
MOST_BYTES = 1 << 30

NEVER = 2**62
"""So many milliseconds, or ticks, later comes what does not come."""

_KEYS = ("number", "destination", "source")


@dataclass(frozen=True, eq=False)
class BodyTable:
    """The rows of a table (``number``, ``destination``, ``source``, ``delay``), by its keys."""

    rows: Frame

    def delays(self, listed: Frame, drawn: U64) -> Rows:
        """Return the delay (ms) of each queue of ``listed`` (``number``, ``to``, ``source``; parachains count from 1).
        One that the table does not have gets that of the row ``drawn`` for it (modulo the rows)."""
        one = np.uint32(1)
        asked = Frame(
            {"number": listed["number"], "destination": listed["to"] - one, "source": listed["source"] - one},
            len(listed),
        )
        found = lookup(self.rows, asked, _KEYS)
        other = (drawn % np.uint64(len(self.rows))).astype(np.int64)
        delay: Rows = self.rows["delay"][np.where(found >= 0, found, other)]
        return delay


def read_body_table(path: object) -> BodyTable | None:
    """Return the table in a Parquet file (``BODY_TABLE_SCHEMA``). Raises ``PydanticCustomError`` where it is none."""
    if path is None or isinstance(path, BodyTable):
        return path
    if not isinstance(path, str):
        raise _wrong("the path of a Parquet file")
    try:
        if os.path.getsize(path) > MOST_BYTES:
            raise _wrong(f"a file of at most {MOST_BYTES:,} bytes")
        if not os.path.isfile(path):  # who opens a pipe waits
            raise _wrong("a Parquet file that can be read")
        with pq.ParquetFile(path) as file:
            names, count = file.schema_arrow.names, file.metadata.num_rows
            if sorted(names) != sorted(BODY_TABLE_SCHEMA.names) or not 0 < count <= MOST_ROWS:
                columns = ", ".join(BODY_TABLE_SCHEMA.names)
                raise _wrong(f"a table with the columns {columns}, and 1 to {MOST_ROWS:,} rows")
            table = file.read().select(BODY_TABLE_SCHEMA.names)
            if any(table[name].null_count for name in _KEYS):
                raise _wrong(f"a table in which no {', '.join(_KEYS[:-1])} or {_KEYS[-1]} is null")
            table = table.cast(BODY_TABLE_SCHEMA)
        delay = table["delay"].cast(pa.int64()).fill_null(NEVER)
    except (OSError, pa.ArrowException) as error:
        raise _wrong(f"a Parquet file that can be read ({type(error).__name__})") from error
    rows = from_table(table.set_column(3, "delay", delay.combine_chunks()))
    rows = rows.take(stable_order(*(rows[name] for name in _KEYS)))
    keys = np.stack([rows[name].astype(np.uint64) for name in _KEYS])
    if len(rows) > 1 and bool((keys[:, 1:] == keys[:, :-1]).all(axis=0).any()):
        raise _wrong("one row a queue (number, source, destination)")
    return BodyTable(rows)


def _wrong(allowed: str) -> PydanticCustomError:
    return PydanticCustomError("body_table", "{text}", {"text": f"must be {allowed}"})
