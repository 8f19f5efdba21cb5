"""From logs of a run to headers and watermarks of a ledger: names in place of numbers, times in place of ticks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.ingest.run_names import RunNames, lane_names, same
from causeway.ledger.limbs import slices_of
from causeway.ledger.schema import HEADERS_SCHEMA, REVERTED, STATED_BY, WATERMARKS_SCHEMA
from causeway.model.ledger import COLLECTED_MESSAGES
from causeway.model.order import U64, groups_of, stable_order

SENT, COLLECTED, FORGOTTEN = "sent", "collected", "forgotten"
"""Watermarks of every protocol: the index that the next message of a lane gets; up to which index its source has
removed messages, and its destination signals about them."""

_DIGITS = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)


def header_rows(headers: pa.Table, names: RunNames, taken_back_at: int | None = None) -> pa.Table:
    """Return rows of the log of headers, each with its number among those of its chain and height (``row``), as rows of
    a ledger (``HEADERS_SCHEMA``).

    ``taken_back_at``: the tick at which it is known that forks took these back, without time; None: they count.
    """
    count = headers.num_rows
    tick = headers["tick"].to_numpy()
    columns: dict[str, Any] = {
        "chain": names.chain_column(headers["chain"].to_numpy()),
        "height": headers["number"],
        "time": names.times(tick),
        "tick": pa.array(tick.astype(np.uint64)),
        **{name: hexadecimal(headers[name]) for name in ("hash", "parent", "root")},
        "stated_by": same(STATED_BY, count),
        "source_file": same("headers", count),
        "source_row": headers["row"],
    }
    if taken_back_at is not None:
        columns["time"] = pa.nulls(count, HEADERS_SCHEMA.field("time").type)
        columns["tick"] = pa.array(np.full(count, taken_back_at, dtype=np.uint64))
        columns["status"] = same(REVERTED, count)
    return _table(columns, count, HEADERS_SCHEMA)


def hexadecimal(column: pa.ChunkedArray) -> pa.Array:
    """Return bytes as hexadecimal digits, null where there are none."""
    whole = column.combine_chunks().cast(pa.large_binary())
    data, offsets = slices_of(whole)
    first, last = (int(offsets[0]), int(offsets[-1])) if len(whole) else (0, 0)
    digits = np.empty((last - first, 2), dtype=np.uint8)
    digits[:, 0], digits[:, 1] = _DIGITS[data[first:last] >> 4], _DIGITS[data[first:last] & 15]
    empty = offsets[1:] == offsets[:-1]
    valid = pa.py_buffer(np.packbits(~empty, bitorder="little")) if empty.any() else None
    ends = pa.py_buffer(np.ascontiguousarray((offsets - first) * 2))
    return pa.Array.from_buffers(pa.large_string(), len(whole), [valid, ends, pa.py_buffer(digits)]).cast(pa.string())


def log_watermarks(outbound: pa.Table, collected: pa.Table) -> pa.Table:
    """Return what logs tell of watermarks, with the columns of ``marks``: ``SENT`` of the messages in lanes, and
    ``COLLECTED``, ``FORGOTTEN`` before and after each collection, in the order in which they were made."""
    lane = {name: outbound[name].to_numpy() for name in ("source", "destination", "substream")}
    height, index = outbound["height"].to_numpy().astype(np.uint64), outbound["index"].to_numpy()
    order = stable_order(*(key.astype(np.uint64) for key in lane.values()), height, index)
    groups = groups_of(*(key[order] for key in lane.values()), height[order])
    last = order[groups.starts + groups.counts - 1]
    sent = marks(
        SENT,
        chain=lane["source"][last],
        **{name: key[last] for name, key in lane.items()},
        height=height[last],
        tick=outbound["tick"].to_numpy()[last],
        value=index[last] + np.uint64(1),
    )
    return pa.concat_tables([sent, *_collections(collected)])


def _collections(collected: pa.Table) -> list[pa.Table]:
    what = collected["what"].to_numpy()
    found = []
    for name, chosen in ((COLLECTED, what == COLLECTED_MESSAGES), (FORGOTTEN, what != COLLECTED_MESSAGES)):
        rows = collected.filter(pa.array(chosen))
        twice = {
            column: rows[column].to_numpy().repeat(2)
            for column in ("chain", "source", "destination", "substream", "height", "tick")
        }
        value = np.stack((rows["begin"].to_numpy(), rows["end"].to_numpy()), axis=1).reshape(-1)
        keys = [twice[column].astype(np.uint64) for column in ("source", "destination", "substream", "height")]
        order = stable_order(*keys)
        position = np.empty(len(value), dtype=np.uint64)
        position[order] = groups_of(*(key[order] for key in keys)).ranks().astype(np.uint64)
        twice["height"] = twice["height"].astype(np.uint64)
        found.append(marks(name, **twice, value=value, position=position))
    return found


def marks(name: str, **columns: npt.NDArray[Any]) -> pa.Table:
    """Return numbers of watermarks of one name: ``chain``, ``source``, ``destination``, ``substream``, ``height``,
    ``tick``, ``value`` and perhaps ``position``."""
    count = len(columns["value"])
    content: dict[str, Any] = {column: pa.array(np.ascontiguousarray(values)) for column, values in columns.items()}
    content.setdefault("position", pa.nulls(count, pa.uint64()))
    content["name"] = same(name, count)
    return pa.table([content[field.name].cast(field.type) for field in MARKS_SCHEMA], MARKS_SCHEMA)


MARKS_SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.uint32()) for name in ("chain", "source", "destination")),
        *(pa.field(name, pa.uint64()) for name in ("substream", "height", "position", "tick", "value")),
        pa.field("name", pa.dictionary(pa.int32(), pa.string())),
    ]
)
"""Watermarks with numbers in place of names."""


def watermark_rows(found: pa.Table, names: RunNames, taken_back_at: int | None = None) -> pa.Table:
    """Return watermarks (``MARKS_SCHEMA``) as rows of a ledger (``WATERMARKS_SCHEMA``); otherwise as
    ``header_rows``."""
    count = found.num_rows
    source, destination = found["source"].to_numpy(), found["destination"].to_numpy()
    substream: U64 = found["substream"].to_numpy()
    tick = found["tick"].to_numpy()
    columns: Mapping[str, Any] = {
        "protocol": same(names.protocol, count),
        "source": names.chain_column(source),
        "destination": names.chain_column(destination),
        "lane": lane_names(source, destination, substream, np.ones(count, dtype=bool)),
        "chain": names.chain_column(found["chain"].to_numpy()),
        **{name: found[name] for name in ("name", "height", "position", "value")},
        "tick": pa.array(tick if taken_back_at is None else np.full(count, taken_back_at, dtype=np.uint64)),
        "stated_by": same(STATED_BY, count),
    }
    if taken_back_at is None:
        columns = {**columns, "time": names.times(tick.astype(np.int64))}
    else:
        columns = {**columns, "status": same(REVERTED, count)}
    return _table(columns, count, WATERMARKS_SCHEMA)


def _table(columns: Mapping[str, Any], count: int, schema: pa.Schema) -> pa.Table:
    arrays = [columns[field.name] if field.name in columns else pa.nulls(count, field.type) for field in schema]
    return pa.table([array.cast(field.type) for array, field in zip(arrays, schema, strict=True)], schema)


__all__ = [
    "COLLECTED",
    "FORGOTTEN",
    "MARKS_SCHEMA",
    "SENT",
    "header_rows",
    "hexadecimal",
    "log_watermarks",
    "marks",
    "watermark_rows",
]  # fmt: skip
