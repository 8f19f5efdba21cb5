"""Where headers, watermarks and movements of value lie: in which bucket, and at which place in it.

As with the rows of the ledger, whole segments are in one bucket: 2**18 neighbouring heights of one chain, or of one
lane. So a check reads a bucket once, and joins what lies over the ends of segments. What moves with a message lies
where the rows of the message do.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.ledger.codes import Names, name_ranks
from causeway.ledger.limbs import valid_rows
from causeway.ledger.order import SEGMENT_BITS, buckets_of, lane_numbers, lane_word
from causeway.ledger.schema import STATEMENT
from causeway.model.order import U64, groups_of, numbered, stable_order

Keys = list[npt.NDArray[np.unsignedinteger]]


@dataclass(frozen=True)
class Layout:
    """How a table lies in buckets. ``buckets_of``: the bucket of each row, of so many; ``in_order``: rows of a bucket
    in the order in which they are read; ``once``: those in order that say something else than others do (None: all)."""

    buckets_of: Callable[[pa.Table, int], npt.NDArray[np.uint16]]
    in_order: Callable[[pa.Table], pa.Table]
    once: Callable[[pa.Table], pa.Table] | None = None

    def read(self, rows: pa.Table) -> pa.Table:
        """Return rows of a bucket, of several files perhaps, in order, each that says something else than others."""
        ordered = self.in_order(rows.unify_dictionaries().combine_chunks())
        return self.each_once(ordered)

    def each_once(self, rows: pa.Table) -> pa.Table:
        """Return rows in order that say something else than others."""
        return rows if self.once is None else self.once(rows)


def header_buckets(rows: pa.Table, buckets: int) -> npt.NDArray[np.uint16]:
    """Return the bucket of each header: the digest of its chain (``lane_word``, as the source of a lane without other
    names), xor that of its segment (``height >> 18``, as of an index of the ledger), modulo ``buckets``."""
    names = Names()
    codes = names.codes(rows["chain"])
    words = [lane_word((None, chain, None, None)) for chain in (*names.known(), None)]
    return _buckets(np.array(words, dtype=np.uint64)[codes], rows["height"], buckets)


def watermark_buckets(rows: pa.Table, buckets: int) -> npt.NDArray[np.uint16]:
    """Return the bucket of each watermark: as that of a header, with the digest of its lane."""
    lanes, codes = lane_numbers(rows)
    words = np.array([lane_word(lane) for lane in lanes], dtype=np.uint64)
    return _buckets(words[codes], rows["height"], buckets)


def sorted_headers(rows: pa.Table) -> pa.Table:
    """Return headers by chain (the bytes of its name), then height (null first), then by who states them and where."""
    keys: Keys = [name_ranks(rows["chain"])]
    return _taken(rows, keys + _nulls_first(rows["height"]) + _statement(rows))


def sorted_watermarks(rows: pa.Table) -> pa.Table:
    """Return watermarks by lane, chain, name, then height and position (null first), then by who states them and
    where."""
    keys: Keys = [lane_numbers(rows)[1].astype(np.uint64), name_ranks(rows["chain"]), name_ranks(rows["name"])]
    return _taken(rows, keys + _nulls_first(rows["height"]) + _nulls_first(rows["position"]) + _statement(rows))


def value_buckets(rows: pa.Table, buckets: int) -> npt.NDArray[np.uint16]:
    """Return the bucket of each movement of value: that of its message (``order.buckets_of``); of one that is of no
    message, as that of a header of its chain."""
    found = buckets_of(rows, buckets)
    nameless = ~(np.asarray(rows["index"].is_valid()) | np.asarray(rows["message_id"].is_valid()))
    if nameless.any():
        found = np.where(nameless, header_buckets(rows, buckets), found)
    return found


def sorted_value(rows: pa.Table) -> pa.Table:
    """Return movements of value by lane, index (null first), of those without index ``message_id``, chain, height and
    position, then by who states them and where."""
    unnumbered = np.flatnonzero(~np.asarray(rows["index"].is_valid()))
    named = np.zeros(rows.num_rows, dtype=np.uint32)
    named[unnumbered] = name_ranks(rows["message_id"].take(pa.array(unnumbered)))
    keys: Keys = [lane_numbers(rows)[1].astype(np.uint64), *_nulls_first(rows["index"]), named]
    keys.append(name_ranks(rows["chain"]))
    return _taken(rows, keys + _nulls_first(rows["height"]) + _nulls_first(rows["position"]) + _statement(rows))


def value_once(rows: pa.Table) -> pa.Table:
    """Return movements of value (``sorted_value``), each once.

    Those of one file are movements of their own. Where several files have some that say the same of one chain and
    height, those of the file count that has most of them, of several such files those of the first by its names.
    """
    same = [name for name in rows.schema.names if name not in STATEMENT]
    placed = np.asarray(rows["chain"].is_valid()) & np.asarray(rows["height"].is_valid())
    file = np.column_stack([name_ranks(rows[name]) for name in ("stated_by", "source_file")]).astype(np.int64)
    if not placed.any() or (file == file[0]).all():
        return rows
    chosen = np.flatnonzero(placed)
    keys = [number for name in same for number in _numbers(rows[name].take(pa.array(chosen)))]
    file = file[chosen]
    order = stable_order(*keys, *(np.ascontiguousarray(part.astype(np.uint64)) for part in file.T))
    movements = groups_of(*(key[order] for key in keys))
    if len(movements) == len(order):
        return rows
    number = movements.spread(np.arange(len(movements), dtype=np.int64))
    statements = groups_of(number, file[order, 0], file[order, 1])
    of = number[statements.starts]
    best = np.lexsort((np.arange(len(statements)), -statements.counts, of))
    kept = np.zeros(len(statements), dtype=bool)
    kept[best[np.flatnonzero(np.diff(of[best], prepend=-1))]] = True
    counts = np.ones(rows.num_rows, dtype=bool)
    counts[chosen[order]] = statements.spread(kept)
    return rows if counts.all() else rows.filter(pa.array(counts))


def _numbers(column: pa.ChunkedArray) -> Keys:
    kind = column.type
    if pa.types.is_timestamp(kind):
        seen = np.asarray(column.is_valid()).astype(np.uint8)
        return [seen, column.cast(pa.int64()).fill_null(0).to_numpy().view(np.uint64)]
    return _nulls_first(column) if pa.types.is_integer(kind) else [name_ranks(column)]


LAYOUTS: Mapping[str, Layout] = {
    "headers": Layout(header_buckets, sorted_headers),
    "watermarks": Layout(watermark_buckets, sorted_watermarks),
    "value": Layout(value_buckets, sorted_value, value_once),
}
"""The tables beside ``ledger`` that lie in buckets."""


def segments_of(heights: pa.ChunkedArray) -> U64:
    """Return the segment of each height, 0 where none was seen; a segment is 2**``SEGMENT_BITS`` heights."""
    values: U64 = heights.fill_null(0).to_numpy()
    return values >> np.uint64(SEGMENT_BITS)


def _buckets(word: U64, heights: pa.ChunkedArray, buckets: int) -> npt.NDArray[np.uint16]:
    distinct, places = numbered(segments_of(heights))
    if len(distinct):
        contents = [struct.pack("<Q", segment) for segment in distinct.tolist()]
        digests = [hashlib.sha256(content).digest() for content in contents]
        of_segment = np.array([int.from_bytes(digest[:8], "little") for digest in digests], dtype=np.uint64)
        seen = valid_rows(heights.combine_chunks())
        word = word ^ np.where(seen, of_segment[places], np.uint64(0))
    return (word % np.uint64(buckets)).astype(np.uint16)


def _taken(rows: pa.Table, keys: Keys) -> pa.Table:
    order = stable_order(*(np.ascontiguousarray(key) for key in keys))
    return rows if bool((order[1:] > order[:-1]).all()) else rows.take(pa.array(order))


def _statement(rows: pa.Table) -> Keys:
    return [name_ranks(rows["stated_by"]), name_ranks(rows["source_file"]), *_nulls_first(rows["source_row"])]


def _nulls_first(column: pa.ChunkedArray) -> Keys:
    values = column.fill_null(0).to_numpy()
    return [np.asarray(column.is_valid()).astype(np.uint8), values] if column.null_count else [values]


__all__ = [
    "LAYOUTS",
    "Layout",
    "header_buckets",
    "segments_of",
    "sorted_headers",
    "sorted_value",
    "sorted_watermarks",
    "value_buckets",
    "value_once",
    "watermark_buckets",
]
