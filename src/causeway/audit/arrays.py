"""Columns of Arrow as arrays of numbers: as they lie in memory where that can be, names as codes.

Times between events, exactly: of clocks that may say anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.errors import InvalidInput

from causeway.ledger.encodings import NameCodes
from causeway.ledger.parts import MessageRun
from causeway.ledger.schema import LANE
from causeway.ledger.windows import Lane

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
Array = npt.NDArray[Any]

_NO_BITS: Bytes = np.zeros(0, dtype=np.uint8)
"""The validity of a column in which nothing is null."""

_SMALL_DICTIONARY = 32


def order_preserving_times(times: Array) -> Words:
    """Return times (int64) as unsigned numbers of the same order."""
    found: Words = times.astype(np.int64, copy=False).view(np.uint64) ^ np.uint64(1 << 63)
    return found


def to_single_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def valid_rows(column: pa.Array) -> Bytes:
    """Return which rows are not null."""
    if not column.null_count:
        return np.ones(len(column), dtype=np.uint8)
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False).view(np.uint8))


def all_valid_rows(columns: list[pa.Array]) -> Bytes:
    """Return in which rows no column is null; mostly they are null in the same ones."""
    first, found = columns[0], valid_rows(columns[0])
    bits = first.buffers()[0]
    for column in columns[1:]:
        alike = column.null_count == first.null_count and column.offset == first.offset
        if alike and (not first.null_count or column.buffers()[0].equals(bits)):
            continue
        found = np.minimum(found, valid_rows(column))
    return found


def to_numbers(column: pa.Array, missing: Any) -> Array:
    """Return a column of numbers, ``missing`` where it is null."""
    return np.ascontiguousarray((column.fill_null(missing) if column.null_count else column).to_numpy())


def raw_words(column: pa.Array) -> Words:
    """Return the words of a column, whatever they are where it is null."""
    data = column.buffers()[1]
    if data is None or not len(column):
        return np.zeros(len(column), dtype=np.uint64)
    return np.frombuffer(data, dtype=np.uint64)[column.offset : column.offset + len(column)]


def content_words(column: pa.Array) -> Words:
    """Return 32 bytes a row as four words, whatever they are where the column is null."""
    data = column.buffers()[1]
    if data is None or not len(column):
        return np.zeros((len(column), 4), dtype=np.uint64)
    octets = np.frombuffer(data, dtype=np.uint8)[column.offset * 32 : (column.offset + len(column)) * 32]
    return octets.view(np.uint64).reshape(-1, 4)


def encode_names(column: pa.ChunkedArray, names: NameCodes) -> Codes:
    """Return the code of each row's name, -1 where it is null."""
    from causeway.audit.column_loops import code_rows

    codes = np.empty(len(column), dtype=np.int32)
    row = 0
    for chunk in column.chunks:
        out = codes[row : row + len(chunk)]
        row += len(chunk)
        kind = chunk.type
        if not pa.types.is_dictionary(kind) or kind.index_type != pa.int32() or chunk.dictionary.null_count:
            out[:] = names.codes(chunk)
            continue
        indices = chunk.indices
        valid, data = indices.buffers()
        bits = np.frombuffer(valid, np.uint8) if indices.null_count else _NO_BITS
        places = np.frombuffer(data, np.int32)[indices.offset : indices.offset + len(indices)]
        table = _table(places, bits, np.array([indices.offset]), chunk.dictionary, names)
        if len(chunk.dictionary) == 1 and not indices.null_count:
            out[:] = table[0]
        else:
            code_rows(places, bits, np.array([indices.offset]), table, out)
    return codes


def _table(places: Codes, bits: Bytes, offset: Ints, dictionary: pa.Array, names: NameCodes) -> Codes:
    """Return the code of each entry of a dictionary; of a large one, only of what is used does a name get one."""
    from causeway.audit.column_loops import mark_used

    if len(dictionary) <= _SMALL_DICTIONARY:
        return np.array([names.code(name) for name in dictionary.to_pylist()], dtype=np.int32)
    used = np.zeros(len(dictionary), dtype=np.uint8)
    mark_used(places, bits, offset, used)
    entries = np.flatnonzero(used)
    table = np.full(len(dictionary), -1, dtype=np.int32)
    table[entries] = [names.code(name) for name in dictionary.take(pa.array(entries)).to_pylist()]
    return table


def encode_allowed_names(column: pa.ChunkedArray, allowed: list[str], field: str) -> Codes:
    """Return where each row's name stands among those that are allowed. Raises ``InvalidInput`` for any other."""
    names = NameCodes(allowed)
    codes = encode_names(column, names)
    if len(names) > len(allowed) or (column.null_count and len(codes)):
        bad = names.known()[len(allowed)] if len(names) > len(allowed) else None
        raise InvalidInput(f"{field} {bad!r}: must be one of {', '.join(allowed)}")
    return codes


def number_lane_rows(table: pa.Table) -> tuple[list[Lane], Codes]:
    """Return the lanes of rows, in their order, and the number of each row's. Raises ``InvalidInput``."""
    from causeway.audit.column_loops import lane_runs

    names = [NameCodes() for _ in LANE]
    codes = [encode_names(table[name], own) for name, own in zip(LANE, names, strict=True)]
    one, two, three, four = codes
    lane = np.empty(table.num_rows, dtype=np.int32)
    firsts = np.empty(1 << 10, dtype=np.int64)
    count = lane_runs(one, two, three, four, lane, firsts)
    if count > len(firsts):
        firsts = np.empty(count, dtype=np.int64)
        lane_runs(one, two, three, four, lane, firsts)
    columns = []
    for own, known in zip(codes, names, strict=True):
        texts = [*known.known(), None]
        columns.append([texts[code] for code in own[firsts[:count]].tolist()])
    lanes: list[Lane] = [(a, b, c, d) for a, b, c, d in zip(*columns, strict=True)]
    keys = [tuple(b"" if name is None else b"\1" + name.encode() for name in each) for each in lanes]
    for before, after, each in zip(keys, keys[1:], lanes[1:], strict=False):
        if before >= after:
            raise InvalidInput(f"lane: not in the order of the ledger at lane {describe_lane(each)}")
    return lanes, lane


def describe_lane(lane: Lane) -> str:
    """Return a lane as messages name it."""
    return "/".join("null" if name is None else name for name in lane)


def encode_message_ids(rows: MessageRun, indexed: Bytes) -> Codes:
    """Return a number for the ``message_id`` of each row without index, -1 in others; none if there is no such row."""
    if indexed.all():
        return np.zeros(0, dtype=np.int32)
    idents = np.full(len(indexed), -1, dtype=np.int32)
    unnumbered = np.flatnonzero(indexed == 0)
    column = rows.read(("message_id",))["message_id"]
    taken = pc.dictionary_encode(column.take(pa.array(unnumbered))).combine_chunks()
    idents[unnumbered] = taken.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return idents


def is_one_of_codes(codes: Array, wanted: Iterable[int]) -> npt.NDArray[np.bool_]:
    """Return a mask of the codes that are one of a few."""
    found = np.zeros(len(codes), bool)
    for code in wanted:
        found |= codes == code
    return found


def select_top_findings(lanes: Array, magnitude: Array | None, limit: int) -> tuple[Array, Array]:
    """Return which findings, in the order of their lanes, are among the first and among the worst of each lane."""
    count = len(lanes)
    new = np.ones(count, dtype=bool)
    new[1:] = lanes[1:] != lanes[:-1]
    group = np.cumsum(new) - 1
    firsts = np.flatnonzero(new)
    first = np.arange(count) - firsts[group] < limit
    worst = np.zeros(count, dtype=bool)
    if magnitude is not None:
        magnitude = magnitude.astype(np.float64)
        order = np.lexsort((np.arange(count), -np.nan_to_num(magnitude, nan=-1.0), group))
        worst[order[np.arange(count) - firsts[group] < limit]] = True
        worst &= ~np.isnan(magnitude)
    return first, worst


Bools = npt.NDArray[np.bool_]

MICROSECONDS = "microseconds"

NO_TIME = np.int64(2**63 - 1)
"""A time that was not seen: in columns it comes after every other."""

MIN_DELAY = np.int64(-0x8000000000000000)
"""The time before every time."""


MAX_DELAY = np.int64(2**63 - 1)
"""The greatest number that is told apart from others: of microseconds, of messages."""


def time_differences(one: Ints, other: Ints) -> tuple[Ints, Bools]:
    """Return the microseconds from times to others, exactly (at most ``MOST``, at least ``NEVER``), and of which both
    were seen."""
    between = other - one
    wrong = ((other ^ one) & (other ^ between)) < 0
    if wrong.any():
        between[wrong] = np.where(other[wrong] < 0, MIN_DELAY, MAX_DELAY)
    return between, np.asarray((one != NO_TIME) & (other != NO_TIME))
