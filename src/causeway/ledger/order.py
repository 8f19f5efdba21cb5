"""Where a row of the ledger lies: in which bucket, and at which place in it.

A bucket has whole segments of lanes: 2**18 neighbouring indices of one lane are in one bucket, so a check of a message
never looks into two. In its bucket a row stands by its message, then by what happened to it, then by where.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from causeway.ledger.codes import Names, name_ranks
from causeway.ledger.limbs import slices_of, valid_rows
from causeway.ledger.schema import LANE, STATEMENT, Event
from causeway.model.errors import InvalidInput
from causeway.model.order import U64, Rows, groups_of, numbered, stable_order
from causeway.proofs.distinct.slices import distinct_slices
from causeway.proofs.hashing import HashFunction, digest_slices

SEGMENT_BITS = 18
"""A segment of a lane is 2**18 neighbouring indices."""

MOST_BUCKETS = 1 << 12
"""A ledger has so many buckets at most."""

EVENTS = [event.value for event in Event]
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


def bucket_of(lane: Sequence[str | None], index: int | None, message_id: str | None, buckets: int) -> int:
    """Return the bucket of a message: the digest of its lane, xor the digest of its segment (``index >> 18`` as eight
    bytes, little-endian) or, without index, of its ``message_id``, if there is one, modulo the number of buckets."""
    word = lane_word(lane)
    if index is not None:
        word ^= _word(struct.pack("<Q", index >> SEGMENT_BITS))
    elif message_id is not None:
        word ^= _word(message_id.encode())
    return word % buckets


def buckets_of(rows: pa.Table, buckets: int) -> npt.NDArray[np.uint16]:
    """Return the bucket of each row of a ledger's table (``LANE``, ``index``, ``message_id``), as ``bucket_of``."""
    lanes, numbers = lane_numbers(rows)
    words = np.array([lane_word(lane) for lane in lanes], dtype=np.uint64)
    word = words[numbers] if len(lanes) else np.zeros(0, dtype=np.uint64)
    index = _whole(rows["index"])
    indexed = valid_rows(index)
    segments = index.fill_null(0).to_numpy(zero_copy_only=False) >> np.uint64(SEGMENT_BITS)
    if indexed.all() and len(segments) and not segments.any():
        word = word ^ np.uint64(_word(bytes(_WORD)))
    else:
        distinct, places = numbered(segments)
        of_segment = np.array([_word(struct.pack("<Q", segment)) for segment in distinct.tolist()], dtype=np.uint64)
        word = word ^ np.where(indexed, of_segment[places] if len(distinct) else word, np.uint64(0))
    if not indexed.all():
        named = np.flatnonzero(~indexed & valid_rows(_whole(rows["message_id"])))
        word[named] ^= _id_words(_whole(rows["message_id"]).take(pa.array(named)))
    return (word % np.uint64(buckets)).astype(np.uint16)


def lane_numbers(rows: pa.Table) -> tuple[list[tuple[str | None, ...]], npt.NDArray[np.int64]]:
    """Return the lanes of rows, in the order of their names (null before every name), and the number of each row's."""
    ranks = [name_ranks(rows[name]) for name in LANE]
    joined: npt.NDArray[np.int64] = np.zeros(rows.num_rows, dtype=np.int64)
    for rank in ranks:
        if rows.num_rows and bool((rank != rank[0]).any()):
            # Numbered anew after each name, so that many names cannot overflow.
            joined = _numbered(joined * (int(rank.max()) + 1) + rank)
    firsts = np.empty(int(joined.max(initial=-1)) + 1, dtype=np.int64)
    firsts[joined] = np.arange(rows.num_rows)  # any row of a lane has its names
    columns = [rows[name].take(pa.array(firsts)).to_pylist() for name in LANE]
    return list(zip(*columns, strict=True)), joined


def sorted_order(rows: pa.Table) -> Rows:
    """Return the order of rows in a bucket of the ledger, as row numbers.

    By lane (its four names by their bytes, null first), index (null last), of rows without index ``message_id`` (null
    first), event (in the order of ``Event``), chain, revision, height, position (null first), and then as the rows
    stand.
    Raises ``InvalidInput`` for an event that is none.
    """
    return stable_order(*_keys(rows))


def sorted_rows(rows: pa.Table) -> pa.Table:
    """Return rows in the order of ``sorted_order``."""
    return gathered(rows, sorted_order(rows))


def stated_rows(rows: pa.Table) -> pa.Table:
    """Return rows in the order of ``sorted_order``, those that do not differ in it by their statements (null first):
    how they are given makes no difference."""
    rows = whole(rows)
    keys = _keys(rows)
    return gathered(rows, _by_statement(rows, keys, stable_order(*keys))[0])


def _by_statement(rows: pa.Table, keys: Sequence[npt.NDArray[np.unsignedinteger]], order: Rows) -> tuple[Rows, Rows]:
    """Return the order in which rows that ``keys`` do not tell apart are by their statements, and which places have
    such rows."""
    groups = groups_of(*[key[order] for key in keys])
    if len(groups) == rows.num_rows:
        return order, order[:0]
    alike = np.flatnonzero(groups.spread(groups.counts) > 1)
    numbers = groups.spread(np.arange(len(groups), dtype=np.uint64))[alike]
    own = rows.select([name for name in STATEMENT if name in rows.schema.names]).take(pa.array(order[alike]))
    order[alike] = order[alike][stable_order(numbers, *_statement_keys(own))]
    return order, alike


def without_repeats(rows: pa.Table) -> pa.Table:
    """Return rows in the order of ``sorted_order``, of those that say the same of the same event only one.

    The place of an event is named by its transaction, or by chain and height. Rows that name one and agree in all
    columns but ``STATEMENT`` are one event, recorded more than once; rows that name none all stay. An event that a fork
    took back may have happened again at the same place: so many rows more stay as rows of the message take such an
    event back. Of one event the row stays whose statement comes first by its names and row (null first), and rows that
    do not differ in what they are sorted by are in the order of their statements: which files they came from, in how
    many parts, makes no difference.
    """
    rows = whole(rows)
    keys = _keys(rows)
    order, alike = _by_statement(rows, keys, stable_order(*keys))
    ordered = gathered(rows, order)
    if not len(alike):
        return ordered
    some = ordered.take(pa.array(alike))
    placed = valid_rows(_whole(some["transaction"]))
    placed |= valid_rows(_whole(some["height"])) & valid_rows(_whole(some["chain"]))
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
    reverted = np.asarray(pc.fill_null(pc.equal(rows["event"].cast(pa.string()), Event.REVERTED.value), False)).copy()
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


def whole(rows: pa.Table) -> pa.Table:
    """Return rows with one dictionary a column of names, and one piece a column: a row is then found at once."""
    if all(column.num_chunks == 1 for column in rows.columns):
        return rows
    return rows.unify_dictionaries().combine_chunks()


def gathered(rows: pa.Table, order: Rows) -> pa.Table:
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
        found += _nulls_first(rows[name]) if name == "source_row" else [name_ranks(rows[name])]
    return [np.ascontiguousarray(key) for key in found]


def _keys(rows: pa.Table) -> list[npt.NDArray[np.unsignedinteger]]:
    """Return what rows are sorted by, as numbers."""
    events = Names(EVENTS)
    event = events.codes(rows["event"])
    if len(events) > len(EVENTS) or (event < 0).any():
        bad = events.known()[len(EVENTS)] if len(events) > len(EVENTS) else None
        raise InvalidInput(f"event {bad!r}: must be one of {', '.join(EVENTS)}")
    lane = lane_numbers(rows)[1].astype(np.uint64)
    index = _whole(rows["index"])
    indexed = valid_rows(index)
    keys: list[npt.NDArray[np.unsignedinteger]] = [lane]
    if not indexed.all():
        keys.append((~indexed).astype(np.uint8))
    keys.append(index.fill_null(0).to_numpy(zero_copy_only=False))
    if not indexed.all():
        keys.append(_id_ranks(_whole(rows["message_id"]), ~indexed))
    keys += [event.astype(np.uint32), name_ranks(rows["chain"])]
    for name in ("revision", "height", "position"):
        if name in rows.schema.names:
            keys += _nulls_first(rows[name])
    return [np.ascontiguousarray(key) for key in keys]


def _value_numbers(column: pa.Array) -> list[npt.NDArray[np.int64]]:
    """Return numbers for each row that are equal where the values are, or both null."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return [Names().codes(column).astype(np.int64)]
    seen = [valid_rows(column).astype(np.int64)] if column.null_count else []
    if pa.types.is_fixed_size_binary(kind):
        column, kind = column.cast(pa.binary()), pa.binary()
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        data, offsets = slices_of(column)
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
    data, offsets = slices_of(ids)
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


__all__ = [
    "EVENTS", "MOST_BUCKETS", "SEGMENT_BITS", "bucket_of", "buckets_of", "gathered", "lane_numbers", "lane_word",
    "sorted_order", "sorted_rows", "stated_rows", "whole", "without_repeats",
]  # fmt: skip
