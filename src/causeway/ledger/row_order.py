"""Assign rows of a ledger to buckets, and sort and deduplicate them in a bucket.

Whole segments share a bucket: 2**18 consecutive indices of a lane, or heights of a chain. A check of a message never
needs two buckets; scans of headers and watermarks join at segment ends. In a bucket rows sort by message, event and
position. Movements of value lie in the bucket of their message.
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
from causeway_proofs.hashing import HashFunction, digest_slices
from causeway_proofs.order import U64, Rows, distinct_with_codes, group_rows, stable_order

from causeway.ledger.encodings import NameCodes, rank_names, text_slices, valid_mask
from causeway.ledger.row_rules import name_error
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
"""Binary logarithm of the number of consecutive indices in a segment of a lane."""

MAX_BUCKETS = 1 << 12
"""Maximum number of buckets of a ledger."""

EVENTS = [event.value for event in LedgerEvent]
"""Events in the sort order of the rows of a message."""

_WORD = 8


def lane_word(lane: Sequence[str | None]) -> int:
    """Hash the names of a lane to 64 bits.

    The result is the first eight bytes, little-endian, of a SHA-256. It covers, for each name, a byte 1, the length as
    four bytes (little-endian) and the UTF-8 bytes; for null one byte 0.

    Args:
        lane: Protocol, source, destination and lane name.

    Returns:
        The hash, an unsigned 64-bit number.
    """
    content = b""
    for name in lane:
        encoded = b"" if name is None else name.encode()
        content += b"\0" if name is None else b"\1" + struct.pack("<I", len(encoded)) + encoded
    return _word(content)


def message_bucket(lane: Sequence[str | None], index: int | None, message_id: str | None, buckets: int) -> int:
    """Return the bucket of a message.

    It is the hash of the lane, xor the hash of the segment (``index >> 18`` as eight bytes, little-endian), modulo the
    number of buckets. Without index, the hash of the ``message_id`` replaces that of the segment, if there is one.

    Args:
        lane: Protocol, source, destination and lane name.
        index: Index of the message in its lane, or None.
        message_id: Identifier of a message without index, or None.
        buckets: Number of buckets.

    Returns:
        A bucket number below ``buckets``.
    """
    word = lane_word(lane)
    if index is not None:
        word ^= _word(struct.pack("<Q", index >> SEGMENT_BITS))
    elif message_id is not None:
        word ^= _word(message_id.encode())
    return word % buckets


def message_buckets(rows: pa.Table, buckets: int) -> npt.NDArray[np.uint16]:
    """Return the bucket of each row, as ``message_bucket`` does.

    Args:
        rows: Columns of ``LANE``, ``index`` and ``message_id``.
        buckets: Number of buckets.

    Returns:
        Bucket numbers, uint16.
    """
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
    """Assign numbers to the lanes of rows in the order of their names, null first.

    Args:
        rows: Columns of ``LANE``.

    Returns:
        The lanes, and the lane number of each row, int64.
    """
    ranks = [rank_names(rows[name]) for name in LANE]
    joined: npt.NDArray[np.int64] = np.zeros(rows.num_rows, dtype=np.int64)
    for rank in ranks:
        if rows.num_rows and bool((rank != rank[0]).any()):
            # Renumber after each name, so that the product cannot overflow.
            joined = _dense_ranks(joined * (int(rank.max()) + 1) + rank)
    firsts = np.empty(int(joined.max(initial=-1)) + 1, dtype=np.int64)
    firsts[joined] = np.arange(rows.num_rows)  # all rows of a lane have the same names
    columns = [rows[name].take(pa.array(firsts)).to_pylist() for name in LANE]
    return list(zip(*columns, strict=True)), joined


def ledger_order(rows: pa.Table) -> Rows:
    """Return the ledger order of the rows of a bucket, as row numbers.

    The keys are: lane (four names by their bytes, null first), index (null last), ``message_id`` of rows without index
    (null first), event (in the order of ``EVENTS``), chain, revision, height, position (null first). The sort is
    stable.

    Args:
        rows: Rows of a bucket (``LEDGER_SCHEMA``).

    Returns:
        Row numbers, int64.

    Raises:
        InvalidInput: An event is unknown.
    """
    return stable_order(*_keys(rows))


def sort_rows(rows: pa.Table) -> pa.Table:
    """Sort rows in ledger order.

    Args:
        rows: Rows of a bucket (``LEDGER_SCHEMA``).

    Returns:
        The sorted rows.
    """
    return take_rows(rows, ledger_order(rows))


def deduplicate_statements(rows: pa.Table) -> pa.Table:
    """Sort rows in ledger order, ties by statement (null first), or by content, independent of input order.

    Args:
        rows: Rows of a bucket (``LEDGER_SCHEMA``).

    Returns:
        All rows, sorted.
    """
    rows = unify_columns(rows)
    keys = _keys(rows)
    return take_rows(rows, _by_statement(rows, keys, stable_order(*keys))[0])


def _by_statement(rows: pa.Table, keys: Sequence[npt.NDArray[np.unsignedinteger]], order: Rows) -> tuple[Rows, Rows]:
    """Sort ties of ``keys`` by their statements, and those without a ``source_row`` by their other columns.

    Rows of a DataFrame come in any order. Rows of a file stay in its order.

    Returns:
        The order, and the positions of ties.
    """
    groups = group_rows(*[key[order] for key in keys])
    if len(groups) == rows.num_rows:
        return order, order[:0]
    alike = np.flatnonzero(groups.spread(groups.counts) > 1)
    numbers = groups.spread(np.arange(len(groups), dtype=np.uint64))[alike]
    tied = rows.take(pa.array(order[alike]))
    own = [name for name in STATEMENT if name in rows.schema.names]
    ties = [numbers, *_statement_keys(tied.select(own))]
    unnumbered = ~valid_mask(_whole(tied["source_row"])) if "source_row" in own else np.ones(len(alike), dtype=bool)
    if unnumbered.any():
        ties += [np.where(unnumbered, key, key.dtype.type(0)) for key in _content_keys(tied.drop_columns(own))]
    order[alike] = order[alike][stable_order(*ties)]
    return order, alike


def drop_repeats(rows: pa.Table) -> pa.Table:
    """Sort rows in ledger order, and keep one row of each event recorded more than once.

    Rows that agree in all columns but ``STATEMENT`` are one event if they name a transaction, or a chain and height.
    Other rows all stay. A reverted event may happen again at the same position: as many extra rows stay as rows of the
    message revert such an event. The kept row has the first statement (null first), so that the result is independent
    of files and parts.

    Args:
        rows: Rows of a bucket (``LEDGER_SCHEMA``).

    Returns:
        The sorted rows without duplicates.
    """
    rows = unify_columns(rows)
    keys = _keys(rows)
    order, alike = _by_statement(rows, keys, stable_order(*keys))
    ordered = take_rows(rows, order)
    if not len(alike):
        return ordered
    candidates = ordered.take(pa.array(alike))
    placed = valid_mask(_whole(candidates["transaction"]))
    placed |= valid_mask(_whole(candidates["height"])) & valid_mask(_whole(candidates["chain"]))
    alike = alike[placed]
    candidates = candidates.filter(pa.array(placed))
    columns = [_whole(candidates[field.name]) for field in candidates.schema if field.name not in STATEMENT]
    columns_numbers = [
        number for column in columns if column.null_count < len(column) for number in _value_numbers(column)
    ]
    matrix = np.stack(columns_numbers, axis=1) if columns_numbers else np.zeros((len(alike), 1), dtype=np.int64)
    starts = np.arange(len(alike), dtype=np.int64) * matrix.shape[1] * _WORD
    _, firsts = distinct_slices(matrix.view(np.uint8).reshape(-1), starts, starts + matrix.shape[1] * _WORD)
    again = np.ones(len(alike), dtype=bool)
    again[firsts] = False
    if not again.any():
        return ordered
    _keep_repeated(ordered, alike, again)
    mask = np.ones(rows.num_rows, dtype=bool)
    mask[alike[again]] = False
    return ordered.filter(pa.array(mask))


def _keep_repeated(rows: pa.Table, alike: Rows, again: npt.NDArray[np.bool_]) -> None:
    """Clear ``again`` for events that forks reverted, as many of each as there are such forks.

    Args:
        rows: Sorted rows.
        alike: Positions of possible duplicates, ascending.
        again: Mask of ``alike``: duplicates of an earlier row.
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
    """Return rows with one dictionary and one chunk a column, for fast random access.

    Args:
        rows: Any table.

    Returns:
        The table itself if each column has one chunk.
    """
    if all(column.num_chunks == 1 for column in rows.columns):
        return rows
    return rows.unify_dictionaries().combine_chunks()


def take_rows(rows: pa.Table, order: Rows) -> pa.Table:
    """Return rows in the order of row numbers; ``order`` has each row at most once.

    Args:
        rows: Any table.
        order: Row numbers, int64.

    Returns:
        The rows; the table itself if ``order`` is all its rows in order.
    """
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
        found += _null_first_keys(rows[name]) if name == "source_row" else [rank_names(rows[name])]
    return [np.ascontiguousarray(key) for key in found]


def _content_keys(rows: pa.Table) -> list[npt.NDArray[np.unsignedinteger]]:
    """Return the sort keys of all columns; signed numbers sort by their bits."""
    found: list[npt.NDArray[np.generic]] = []
    for column in rows.columns:
        if pa.types.is_fixed_size_binary(column.type):
            column = column.cast(pa.binary())
        found += _numbers(column)
    return [np.ascontiguousarray(key).view(f"u{key.dtype.itemsize}") for key in found]


def _keys(rows: pa.Table) -> list[npt.NDArray[np.unsignedinteger]]:
    """Return the sort keys of rows as numbers."""
    events = NameCodes(EVENTS)
    event = events.codes(rows["event"])
    if len(events) > len(EVENTS) or (event < 0).any():
        bad = events.known()[len(EVENTS)] if len(events) > len(EVENTS) else None
        raise name_error("event", bad, EVENTS)
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
            keys += _null_first_keys(rows[name])
    return [np.ascontiguousarray(key) for key in keys]


def _value_numbers(column: pa.Array) -> list[npt.NDArray[np.int64]]:
    """Return numbers that are equal where the values are equal, or both null."""
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


def _id_ranks(ids: pa.Array, mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
    """Return the rank of each id among the rows of a mask, from 1; 0: null, and all other rows."""
    ranks = np.zeros(len(ids), dtype=np.uint64)
    chosen = np.flatnonzero(mask)
    coded = ids.take(pa.array(chosen)).dictionary_encode()
    names = coded.dictionary.cast(pa.binary())
    order = pc.array_sort_indices(names).to_numpy()
    of_code = np.zeros(len(names) + 1, dtype=np.uint64)
    of_code[order] = np.arange(1, len(names) + 1, dtype=np.uint64)
    ranks[chosen] = of_code[coded.indices.fill_null(len(names)).to_numpy(zero_copy_only=False)]
    return ranks


def _null_first_keys(column: pa.ChunkedArray) -> list[npt.NDArray[np.unsignedinteger]]:
    """Return the sort keys of a nullable column, null first; none if all values are null."""
    if column.null_count == len(column):
        return []
    values = column.fill_null(0).to_numpy()
    if not column.null_count:
        return [values]
    return [np.asarray(column.is_valid()).astype(np.uint8), values]


def _dense_ranks(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the rank of each value among the distinct ones."""
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
    """Layout of a table in buckets.

    Attributes:
        buckets_of: Returns the bucket of each row, given the number of buckets.
        in_order: Sorts the rows of a bucket.
        once: Drops duplicates of sorted rows; None keeps all.
    """

    buckets_of: Callable[[pa.Table, int], npt.NDArray[np.uint16]]
    in_order: Callable[[pa.Table], pa.Table]
    once: Callable[[pa.Table], pa.Table] | None = None

    def read(self, rows: pa.Table) -> pa.Table:
        """Sort and deduplicate the rows of a bucket from one or several files."""
        ordered = self.in_order(rows.unify_dictionaries().combine_chunks())
        return self.deduplicate(ordered)

    def deduplicate(self, rows: pa.Table) -> pa.Table:
        """Drop duplicates of sorted rows."""
        return rows if self.once is None else self.once(rows)


def assign_header_buckets(rows: pa.Table, buckets: int) -> npt.NDArray[np.uint16]:
    """Return the bucket of each header.

    It is the hash of the chain (``lane_word``, as the source of a lane without other names), xor the hash of the
    segment (``height >> 18``), modulo ``buckets``.

    Args:
        rows: Rows with ``chain`` and ``height``.
        buckets: Number of buckets.

    Returns:
        Bucket numbers, uint16.
    """
    names = NameCodes()
    codes = names.codes(rows["chain"])
    words = [lane_word((None, chain, None, None)) for chain in (*names.known(), None)]
    return _buckets(np.array(words, dtype=np.uint64)[codes], rows["height"], buckets)


def assign_watermark_buckets(rows: pa.Table, buckets: int) -> npt.NDArray[np.uint16]:
    """Return the bucket of each watermark: as for a header, with the hash of its lane.

    Args:
        rows: Rows with the columns of ``LANE``, and ``height``.
        buckets: Number of buckets.

    Returns:
        Bucket numbers, uint16.
    """
    lanes, codes = number_lanes(rows)
    words = np.array([lane_word(lane) for lane in lanes], dtype=np.uint64)
    return _buckets(words[codes], rows["height"], buckets)


def sort_headers(rows: pa.Table) -> pa.Table:
    """Sort headers by chain (bytes of the name), height (null first) and statement.

    Args:
        rows: Headers (``HEADERS_SCHEMA``).

    Returns:
        The sorted rows.
    """
    keys: Keys = [rank_names(rows["chain"])]
    return _sort_by_keys(rows, keys + _null_first_keys(rows["height"]) + _statement(rows))


def sort_watermarks(rows: pa.Table) -> pa.Table:
    """Sort watermarks by lane, chain, name, height, position (null first) and statement.

    Args:
        rows: Watermarks (``WATERMARKS_SCHEMA``).

    Returns:
        The sorted rows.
    """
    keys: Keys = [number_lanes(rows)[1].astype(np.uint64), rank_names(rows["chain"]), rank_names(rows["name"])]
    return _sort_by_keys(
        rows,
        keys + _null_first_keys(rows["height"]) + _null_first_keys(rows["position"]) + _statement(rows),
    )


def assign_value_buckets(rows: pa.Table, buckets: int) -> npt.NDArray[np.uint16]:
    """Return the bucket of each movement of value.

    It is the bucket of its message; without a message, the bucket of a header of its chain.

    Args:
        rows: Movements (``VALUE_SCHEMA``).
        buckets: Number of buckets.

    Returns:
        Bucket numbers, uint16.
    """
    found = message_buckets(rows, buckets)
    nameless = ~(np.asarray(rows["index"].is_valid()) | np.asarray(rows["message_id"].is_valid()))
    if nameless.any():
        found = np.where(nameless, assign_header_buckets(rows, buckets), found)
    return found


def sort_value(rows: pa.Table) -> pa.Table:
    """Sort movements of value by message, chain, height, position and statement.

    The message is its lane, its index (null first) or, without index, its ``message_id``.

    Args:
        rows: Movements of a bucket (``VALUE_SCHEMA``).

    Returns:
        The sorted rows.
    """
    unnumbered = np.flatnonzero(~np.asarray(rows["index"].is_valid()))
    named = np.zeros(rows.num_rows, dtype=np.uint32)
    named[unnumbered] = rank_names(rows["message_id"].take(pa.array(unnumbered)))
    keys: Keys = [number_lanes(rows)[1].astype(np.uint64), *_null_first_keys(rows["index"]), named]
    keys.append(rank_names(rows["chain"]))
    return _sort_by_keys(
        rows,
        keys + _null_first_keys(rows["height"]) + _null_first_keys(rows["position"]) + _statement(rows),
    )


def deduplicate_value(rows: pa.Table) -> pa.Table:
    """Drop movements of value that several files report.

    Equal movements in one file are distinct movements. If several files report equal movements of one chain and height,
    the file with most of them counts; of several such files, the first by name.

    Args:
        rows: Movements of a bucket (``VALUE_SCHEMA``).

    Returns:
        The counted movements, in the given order.
    """
    same = [name for name in rows.schema.names if name not in STATEMENT]
    has_position = np.asarray(rows["chain"].is_valid()) & np.asarray(rows["height"].is_valid())
    file = np.column_stack([rank_names(rows[name]) for name in ("stated_by", "source_file")]).astype(np.int64)
    if not has_position.any() or (file == file[0]).all():
        return rows
    chosen = np.flatnonzero(has_position)
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
    counted = np.zeros(len(statements), dtype=bool)
    counted[best[np.flatnonzero(np.diff(of[best], prepend=-1))]] = True
    mask = np.ones(rows.num_rows, dtype=bool)
    mask[chosen[order]] = statements.spread(counted)
    return rows if mask.all() else rows.filter(pa.array(mask))


def _numbers(column: pa.ChunkedArray) -> Keys:
    kind = column.type
    if pa.types.is_timestamp(kind):
        seen = np.asarray(column.is_valid()).astype(np.uint8)
        return [seen, column.cast(pa.int64()).fill_null(0).to_numpy().view(np.uint64)]
    return _null_first_keys(column) if pa.types.is_integer(kind) else [rank_names(column)]


LAYOUTS: Mapping[str, TableLayout] = {
    "headers": TableLayout(assign_header_buckets, sort_headers),
    "watermarks": TableLayout(assign_watermark_buckets, sort_watermarks),
    "value": TableLayout(assign_value_buckets, sort_value, deduplicate_value),
}
"""Tables beside ``ledger`` that have buckets."""


def height_segments(heights: pa.ChunkedArray) -> U64:
    """Return the segment of each height, 0 for null.

    Args:
        heights: Heights, uint64.

    Returns:
        Segment numbers of 2**``SEGMENT_BITS`` heights, uint64.
    """
    values: U64 = heights.fill_null(0).to_numpy()
    return values >> np.uint64(SEGMENT_BITS)


def _buckets(word: U64, heights: pa.ChunkedArray, buckets: int) -> npt.NDArray[np.uint16]:
    distinct, places = distinct_with_codes(height_segments(heights))
    if len(distinct):
        of_segment = np.array([_word(struct.pack("<Q", segment)) for segment in distinct.tolist()], dtype=np.uint64)
        seen = valid_mask(heights.combine_chunks())
        word = word ^ np.where(seen, of_segment[places], np.uint64(0))
    return (word % np.uint64(buckets)).astype(np.uint16)


def _sort_by_keys(rows: pa.Table, keys: Keys) -> pa.Table:
    order = stable_order(*(np.ascontiguousarray(key) for key in keys))
    return rows if bool((order[1:] > order[:-1]).all()) else rows.take(pa.array(order))


def _statement(rows: pa.Table) -> Keys:
    return [
        rank_names(rows["stated_by"]),
        rank_names(rows["source_file"]),
        *_null_first_keys(rows["source_row"]),
    ]
