"""Where a row of the ledger lies: in which bucket, and at which place in it.

A bucket has whole segments of lanes: 2**18 neighbouring indices of one lane are in one bucket, so a check of a message
never looks into two. In its bucket a row stands by its message, then by what happened to it, then by where.

Where headers, watermarks and movements of value lie: in which bucket, and at which place in it.

As with the rows of the ledger, whole segments are in one bucket: 2**18 neighbouring heights of one chain, or of one
lane. So a check reads a bucket once, and joins what lies over the ends of segments. What moves with a message lies
where the rows of the message do.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.distinct import distinct_slices
from causeway_proofs.errors import InvalidInput
from causeway_proofs.hashing import HashFunction, digest_slices
from causeway_proofs.order import U64, Rows, distinct_with_codes, group_rows, stable_order

from causeway.ledger.encodings import NameCodes, rank_names, text_slices, valid_mask
from causeway.ledger.schema import LANE, STATEMENT, LedgerEvent

__all__ = [
    "EVENTS",
    "LAYOUTS",
    "MAX_BUCKETS",
    "SEGMENT_BITS",
    "TableLayout",
    "assign_header_buckets",
    "assign_value_buckets",
    "assign_watermark_buckets",
    "deduplicate_statements",
    "deduplicate_value",
    "drop_repeats",
    "height_segments",
    "lane_word",
    "ledger_order",
    "message_bucket",
    "message_buckets",
    "number_lanes",
    "sort_headers",
    "sort_rows",
    "sort_value",
    "sort_watermarks",
    "take_rows",
    "unify_columns",
]

SEGMENT_BITS = 18
"""A segment of a lane is 2**18 neighbouring indices."""

MAX_BUCKETS = 1 << 12
"""A ledger has so many buckets at most."""

EVENTS = [event.value for event in LedgerEvent]
"""The events in the order in which those of one message are sorted."""

_WORD = 8


def lane_word(lane: Sequence[str | None]) -> int:
    """Return the digest of a lane's names (protocol, source, destination, lane), of 64 bits.

    The first eight bytes, little-endian, of the SHA-256 of: for each name a byte 1, its length as four bytes
    (little-endian) and its UTF-8 bytes; for null one byte 0.
    """
    content = b""
    for name in lane:
        encoded = b"" if name is None else name.encode()
        content += b"\0" if name is None else b"\1" + struct.pack("<I", len(encoded)) + encoded
    return _word(content)


def message_bucket(lane: Sequence[str | None], index: int | None, message_id: str | None, buckets: int) -> int:
    """Return the bucket of a message: the digest of its lane, xor the digest of its segment (``index >> 18`` as eight
    bytes, little-endian) or, without index, of its ``message_id``, if there is one, modulo the number of buckets."""
    word = lane_word(lane)
    if index is not None:
        word ^= _word(struct.pack("<Q", index >> SEGMENT_BITS))
    elif message_id is not None:
        word ^= _word(message_id.encode())
    return word % buckets


def message_buckets(rows: pa.Table, buckets: int) -> npt.NDArray[np.uint16]:
    """Return the bucket of each row of a ledger's table (``LANE``, ``index``, ``message_id``), as ``bucket_of``."""
    lanes, numbers = number_lanes(rows)
    words = np.array([lane_word(lane) for lane in lanes], dtype=np.uint64)
    word = words[numbers] if len(lanes) else np.zeros(0, dtype=np.uint64)
    index = _whole(rows["index"])
    indexed = valid_mask(index)
    segments = index.fill_null(0).to_numpy(zero_copy_only=False) >> np.uint64(SEGMENT_BITS)
    if indexed.all() and len(segments) and not segments.any():
        word = word ^ np.uint64(_word(bytes(_WORD)))
    else:
        distinct, places = distinct_with_codes(segments)
        of_segment = np.array([_word(struct.pack("<Q", segment)) for segment in distinct.tolist()], dtype=np.uint64)
        word = word ^ np.where(indexed, of_segment[places] if len(distinct) else word, np.uint64(0))
    if not indexed.all():
        named = np.flatnonzero(~indexed & valid_mask(_whole(rows["message_id"])))
        word[named] ^= _id_words(_whole(rows["message_id"]).take(pa.array(named)))
    return (word % np.uint64(buckets)).astype(np.uint16)


def number_lanes(rows: pa.Table) -> tuple[list[tuple[str | None, ...]], npt.NDArray[np.int64]]:
    """Return the lanes of rows, in the order of their names (null before every name), and the number of each row's."""
    ranks = [rank_names(rows[name]) for name in LANE]
    joined: npt.NDArray[np.int64] = np.zeros(rows.num_rows, dtype=np.int64)
    for rank in ranks:
        if rows.num_rows and bool((rank != rank[0]).any()):
            # Numbered anew after each name, so that many names cannot overflow.
            joined = _numbered(joined * (int(rank.max()) + 1) + rank)
    firsts = np.empty(int(joined.max(initial=-1)) + 1, dtype=np.int64)
    firsts[joined] = np.arange(rows.num_rows)  # any row of a lane has its names
    columns = [rows[name].take(pa.array(firsts)).to_pylist() for name in LANE]
    return list(zip(*columns, strict=True)), joined


def ledger_order(rows: pa.Table) -> Rows:
    """Return the order of rows in a bucket of the ledger, as row numbers.

    By lane (its four names by their bytes, null first), index (null last), of rows without index ``message_id`` (null
    first), event (in the order of ``Event``), chain, revision, height, position (null first), and then as the rows
    stand.
    Raises ``InvalidInput`` for an event that is none.
    """
    return stable_order(*_keys(rows))


def sort_rows(rows: pa.Table) -> pa.Table:
    """Return rows in the order of ``sorted_order``."""
    return take_rows(rows, ledger_order(rows))


def deduplicate_statements(rows: pa.Table) -> pa.Table:
    """Return rows in the order of ``sorted_order``, those that do not differ in it by their statements (null first):
    how they are given makes no difference."""
    rows = unify_columns(rows)
    keys = _keys(rows)
    return take_rows(rows, _by_statement(rows, keys, stable_order(*keys))[0])


def _by_statement(rows: pa.Table, keys: Sequence[npt.NDArray[np.unsignedinteger]], order: Rows) -> tuple[Rows, Rows]:
    """Return the order in which rows that ``keys`` do not tell apart are by their statements, and which places have
    such rows."""
    groups = group_rows(*[key[order] for key in keys])
    if len(groups) == rows.num_rows:
        return order, order[:0]
    alike = np.flatnonzero(groups.spread(groups.counts) > 1)
    numbers = groups.spread(np.arange(len(groups), dtype=np.uint64))[alike]
    own = rows.select([name for name in STATEMENT if name in rows.schema.names]).take(pa.array(order[alike]))
    order[alike] = order[alike][stable_order(numbers, *_statement_keys(own))]
    return order, alike


def drop_repeats(rows: pa.Table) -> pa.Table:
    """Return rows in the order of ``sorted_order``, of those that say the same of the same event only one.

    The place of an event is named by its transaction, or by chain and height. Rows that name one and agree in all
    columns but ``STATEMENT`` are one event, recorded more than once; rows that name none all stay. An event that a fork
    took back may have happened again at the same place: so many rows more stay as rows of the message take such an
    event back. Of one event the row stays whose statement comes first by its names and row (null first), and rows that
    do not differ in what they are sorted by are in the order of their statements: which files they came from, in how
    many parts, makes no difference.
    """
    rows = unify_columns(rows)
    keys = _keys(rows)
    order, alike = _by_statement(rows, keys, stable_order(*keys))
    ordered = take_rows(rows, order)
    if not len(alike):
        return ordered
    some = ordered.take(pa.array(alike))
    placed = valid_mask(_whole(some["transaction"]))
    placed |= valid_mask(_whole(some["height"])) & valid_mask(_whole(some["chain"]))
    alike = alike[placed]
    some = some.filter(pa.array(placed))
    columns = [_whole(some[field.name]) for field in some.schema if field.name not in STATEMENT]
    numbers_of = [number for column in columns if column.null_count < len(column) for number in _value_numbers(column)]
    matrix = np.stack(numbers_of, axis=1) if numbers_of else np.zeros((len(alike), 1), dtype=np.int64)
    starts = np.arange(len(alike), dtype=np.int64) * matrix.shape[1] * _WORD
    _, firsts = distinct_slices(matrix.view(np.uint8).reshape(-1), starts, starts + matrix.shape[1] * _WORD)
    again = np.ones(len(alike), dtype=bool)
    again[firsts] = False
    if not again.any():
        return ordered
    _keep_repeated(ordered, alike, again)
    kept = np.ones(rows.num_rows, dtype=bool)
    kept[alike[again]] = False
    return ordered.filter(pa.array(kept))


def _keep_repeated(rows: pa.Table, alike: Rows, again: npt.NDArray[np.bool_]) -> None:
    """Clear ``again`` of rows of events that forks took back, as many of each as there are such forks.

    Args:
        rows: in their order.
        alike: the numbers of rows that may be repeats, ascending.
        again: which of these repeat one before them.
    """
    reverted = np.asarray(
        pc.fill_null(pc.equal(rows["event"].cast(pa.string()), LedgerEvent.REVERTED.value), False)
    ).copy()
    reverted[alike[again]] = False
    if not reverted.any():
        return
    names = (*LANE, "index", "message_id", "chain")
    back = rows.filter(pa.array(reverted))
    forks = Counter(_tuples(back, (*names, "detail")))
    repeats = np.flatnonzero(again)
    some = rows.select([*names, "event"]).take(pa.array(alike[repeats]))
    touched = np.asarray(pc.is_in(some["index"], value_set=back["index"].combine_chunks()))
    repeats, some = repeats[touched], some.filter(pa.array(touched))
    for place, key in zip(repeats.tolist(), _tuples(some, (*names, "event")), strict=True):
        if forks[key] > 0:
            forks[key] -= 1
            again[place] = False


def _tuples(rows: pa.Table, names: Sequence[str]) -> Iterator[tuple[object, ...]]:
    return zip(*(rows[name].to_pylist() for name in names), strict=True)


def unify_columns(rows: pa.Table) -> pa.Table:
    """Return rows with one dictionary a column of names, and one piece a column: a row is then found at once."""
    if all(column.num_chunks == 1 for column in rows.columns):
        return rows
    return rows.unify_dictionaries().combine_chunks()


def take_rows(rows: pa.Table, order: Rows) -> pa.Table:
    """Return the rows of those numbers, in that order; as many as there are in ``rows``, each once."""
    if len(order) == rows.num_rows and bool((order[1:] > order[:-1]).all()):
        return rows
    places = pa.array(order)
    columns = [
        column if column.null_count == len(column) == len(order) else column.take(places) for column in rows.columns
    ]
    return pa.table(columns, schema=rows.schema)


def _statement_keys(rows: pa.Table) -> list[npt.NDArray[np.unsignedinteger]]:
    found: list[npt.NDArray[np.unsignedinteger]] = []
    for name in rows.schema.names:
        found += _nulls_first(rows[name]) if name == "source_row" else [rank_names(rows[name])]
    return [np.ascontiguousarray(key) for key in found]


def _keys(rows: pa.Table) -> list[npt.NDArray[np.unsignedinteger]]:
    """Return what rows are sorted by, as numbers."""
    events = NameCodes(EVENTS)
    event = events.codes(rows["event"])
    if len(events) > len(EVENTS) or (event < 0).any():
        bad = events.known()[len(EVENTS)] if len(events) > len(EVENTS) else None
        raise InvalidInput(f"event {bad!r}: must be one of {', '.join(EVENTS)}")
    lane = number_lanes(rows)[1].astype(np.uint64)
    index = _whole(rows["index"])
    indexed = valid_mask(index)
    keys: list[npt.NDArray[np.unsignedinteger]] = [lane]
    if not indexed.all():
        keys.append((~indexed).astype(np.uint8))
    keys.append(index.fill_null(0).to_numpy(zero_copy_only=False))
    if not indexed.all():
        keys.append(_id_ranks(_whole(rows["message_id"]), ~indexed))
    keys += [event.astype(np.uint32), rank_names(rows["chain"])]
    for name in ("revision", "height", "position"):
        if name in rows.schema.names:
            keys += _nulls_first(rows[name])
    return [np.ascontiguousarray(key) for key in keys]


def _value_numbers(column: pa.Array) -> list[npt.NDArray[np.int64]]:
    """Return numbers for each row that are equal where the values are, or both null."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return [NameCodes().codes(column).astype(np.int64)]
    seen = [valid_mask(column).astype(np.int64)] if column.null_count else []
    if pa.types.is_fixed_size_binary(kind):
        column, kind = column.cast(pa.binary()), pa.binary()
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        data, offsets = text_slices(column)
        numbers = distinct_slices(data, np.ascontiguousarray(offsets[:-1]), np.ascontiguousarray(offsets[1:]))[0]
    else:
        whole = column.cast(pa.int64()) if pa.types.is_timestamp(kind) else column
        numbers = (whole.fill_null(0) if seen else whole).to_numpy(zero_copy_only=False).view(np.int64)
    if seen:
        numbers = np.where(seen[0] == 1, numbers, 0)
    return [numbers, *seen]


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _word(content: bytes) -> int:
    return int.from_bytes(hashlib.sha256(content).digest()[:_WORD], "little")


def _id_words(ids: pa.Array) -> U64:
    data, offsets = text_slices(ids)
    digests = digest_slices(HashFunction.SHA256, data, offsets[:-1], offsets[1:])
    return np.ascontiguousarray(digests[:, :_WORD]).view("<u8").reshape(-1).astype(np.uint64, copy=False)


def _id_ranks(ids: pa.Array, where: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
    """Return the rank of each row's id among those of the rows ``where``, from 1; 0: null, and all other rows."""
    ranks = np.zeros(len(ids), dtype=np.uint64)
    chosen = np.flatnonzero(where)
    coded = ids.take(pa.array(chosen)).dictionary_encode()
    names = coded.dictionary.cast(pa.binary())
    order = pc.array_sort_indices(names).to_numpy()
    of_code = np.zeros(len(names) + 1, dtype=np.uint64)
    of_code[order] = np.arange(1, len(names) + 1, dtype=np.uint64)
    ranks[chosen] = of_code[coded.indices.fill_null(len(names)).to_numpy(zero_copy_only=False)]
    return ranks


def _nulls_first(column: pa.ChunkedArray) -> list[npt.NDArray[np.unsignedinteger]]:
    if column.null_count == len(column):
        return []
    values = column.fill_null(0).to_numpy()
    if not column.null_count:
        return [values]
    return [np.asarray(column.is_valid()).astype(np.uint8), values]


def _numbered(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return where each value stands among the distinct ones."""
    top = int(values.max(initial=0)) + 1
    if top <= max(len(values), 1 << 16):
        present = np.zeros(top, dtype=bool)
        present[values] = True
        return (np.cumsum(present) - 1)[values]
    coded = pa.array(values).dictionary_encode()
    order = np.argsort(coded.dictionary.to_numpy())
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order), dtype=np.int64)
    found: npt.NDArray[np.int64] = ranks[coded.indices.to_numpy()]
    return found


Keys = list[npt.NDArray[np.unsignedinteger]]


@dataclass(frozen=True)
class TableLayout:
    """How a table lies in buckets. ``buckets_of``: the bucket of each row, of so many; ``in_order``: rows of a bucket
    in the order in which they are read; ``once``: those in order that say something else than others do (None: all)."""

    buckets_of: Callable[[pa.Table, int], npt.NDArray[np.uint16]]
    in_order: Callable[[pa.Table], pa.Table]
    once: Callable[[pa.Table], pa.Table] | None = None

    def read(self, rows: pa.Table) -> pa.Table:
        """Return rows of a bucket, of several files perhaps, in order, each that says something else than others."""
        ordered = self.in_order(rows.unify_dictionaries().combine_chunks())
        return self.deduplicate(ordered)

    def deduplicate(self, rows: pa.Table) -> pa.Table:
        """Return rows in order that say something else than others."""
        return rows if self.once is None else self.once(rows)


def assign_header_buckets(rows: pa.Table, buckets: int) -> npt.NDArray[np.uint16]:
    """Return the bucket of each header: the digest of its chain (``lane_word``, as the source of a lane without other
    names), xor that of its segment (``height >> 18``, as of an index of the ledger), modulo ``buckets``."""
    names = NameCodes()
    codes = names.codes(rows["chain"])
    words = [lane_word((None, chain, None, None)) for chain in (*names.known(), None)]
    return _buckets(np.array(words, dtype=np.uint64)[codes], rows["height"], buckets)


def assign_watermark_buckets(rows: pa.Table, buckets: int) -> npt.NDArray[np.uint16]:
    """Return the bucket of each watermark: as that of a header, with the digest of its lane."""
    lanes, codes = number_lanes(rows)
    words = np.array([lane_word(lane) for lane in lanes], dtype=np.uint64)
    return _buckets(words[codes], rows["height"], buckets)


def sort_headers(rows: pa.Table) -> pa.Table:
    """Return headers by chain (the bytes of its name), then height (null first), then by who states them and where."""
    keys: Keys = [rank_names(rows["chain"])]
    return _taken(rows, keys + _chain_order_nulls_first(rows["height"]) + _statement(rows))


def sort_watermarks(rows: pa.Table) -> pa.Table:
    """Return watermarks by lane, chain, name, then height and position (null first), then by who states them and
    where."""
    keys: Keys = [number_lanes(rows)[1].astype(np.uint64), rank_names(rows["chain"]), rank_names(rows["name"])]
    return _taken(
        rows,
        keys + _chain_order_nulls_first(rows["height"]) + _chain_order_nulls_first(rows["position"]) + _statement(rows),
    )


def assign_value_buckets(rows: pa.Table, buckets: int) -> npt.NDArray[np.uint16]:
    """Return the bucket of each movement of value: that of its message (``order.buckets_of``); of one that is of no
    message, as that of a header of its chain."""
    found = message_buckets(rows, buckets)
    nameless = ~(np.asarray(rows["index"].is_valid()) | np.asarray(rows["message_id"].is_valid()))
    if nameless.any():
        found = np.where(nameless, assign_header_buckets(rows, buckets), found)
    return found


def sort_value(rows: pa.Table) -> pa.Table:
    """Return movements of value by lane, index (null first), of those without index ``message_id``, chain, height and
    position, then by who states them and where."""
    unnumbered = np.flatnonzero(~np.asarray(rows["index"].is_valid()))
    named = np.zeros(rows.num_rows, dtype=np.uint32)
    named[unnumbered] = rank_names(rows["message_id"].take(pa.array(unnumbered)))
    keys: Keys = [number_lanes(rows)[1].astype(np.uint64), *_chain_order_nulls_first(rows["index"]), named]
    keys.append(rank_names(rows["chain"]))
    return _taken(
        rows,
        keys + _chain_order_nulls_first(rows["height"]) + _chain_order_nulls_first(rows["position"]) + _statement(rows),
    )


def deduplicate_value(rows: pa.Table) -> pa.Table:
    """Return movements of value (``sorted_value``), each once.

    Those of one file are movements of their own. Where several files have some that say the same of one chain and
    height, those of the file count that has most of them, of several such files those of the first by its names.
    """
    same = [name for name in rows.schema.names if name not in STATEMENT]
    placed = np.asarray(rows["chain"].is_valid()) & np.asarray(rows["height"].is_valid())
    file = np.column_stack([rank_names(rows[name]) for name in ("stated_by", "source_file")]).astype(np.int64)
    if not placed.any() or (file == file[0]).all():
        return rows
    chosen = np.flatnonzero(placed)
    keys = [number for name in same for number in _numbers(rows[name].take(pa.array(chosen)))]
    file = file[chosen]
    order = stable_order(*keys, *(np.ascontiguousarray(part.astype(np.uint64)) for part in file.T))
    movements = group_rows(*(key[order] for key in keys))
    if len(movements) == len(order):
        return rows
    number = movements.spread(np.arange(len(movements), dtype=np.int64))
    statements = group_rows(number, file[order, 0], file[order, 1])
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
    return _chain_order_nulls_first(column) if pa.types.is_integer(kind) else [rank_names(column)]


LAYOUTS: Mapping[str, TableLayout] = {
    "headers": TableLayout(assign_header_buckets, sort_headers),
    "watermarks": TableLayout(assign_watermark_buckets, sort_watermarks),
    "value": TableLayout(assign_value_buckets, sort_value, deduplicate_value),
}
"""The tables beside ``ledger`` that lie in buckets."""


def height_segments(heights: pa.ChunkedArray) -> U64:
    """Return the segment of each height, 0 where none was seen; a segment is 2**``SEGMENT_BITS`` heights."""
    values: U64 = heights.fill_null(0).to_numpy()
    return values >> np.uint64(SEGMENT_BITS)


def _buckets(word: U64, heights: pa.ChunkedArray, buckets: int) -> npt.NDArray[np.uint16]:
    distinct, places = distinct_with_codes(height_segments(heights))
    if len(distinct):
        contents = [struct.pack("<Q", segment) for segment in distinct.tolist()]
        digests = [hashlib.sha256(content).digest() for content in contents]
        of_segment = np.array([int.from_bytes(digest[:8], "little") for digest in digests], dtype=np.uint64)
        seen = valid_mask(heights.combine_chunks())
        word = word ^ np.where(seen, of_segment[places], np.uint64(0))
    return (word % np.uint64(buckets)).astype(np.uint16)


def _taken(rows: pa.Table, keys: Keys) -> pa.Table:
    order = stable_order(*(np.ascontiguousarray(key) for key in keys))
    return rows if bool((order[1:] > order[:-1]).all()) else rows.take(pa.array(order))


def _statement(rows: pa.Table) -> Keys:
    return [
        rank_names(rows["stated_by"]),
        rank_names(rows["source_file"]),
        *_chain_order_nulls_first(rows["source_row"]),
    ]


def _chain_order_nulls_first(column: pa.ChunkedArray) -> Keys:
    values = column.fill_null(0).to_numpy()
    return [np.asarray(column.is_valid()).astype(np.uint8), values] if column.null_count else [values]
