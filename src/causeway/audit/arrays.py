"""Arrow columns as numpy arrays, names as codes, and exact time differences."""

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
from causeway.ledger.row_rules import name_error
from causeway.ledger.schema import LANE
from causeway.ledger.windows import Lane

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
Array = npt.NDArray[Any]

_NO_BITS: Bytes = np.zeros(0, dtype=np.uint8)
"""Validity bits of a column without nulls."""

_SMALL_DICTIONARY = 32


def order_preserving_times(times: Array) -> Words:
    """Map times to unsigned numbers in the same order.

    Args:
        times: Times, int64.

    Returns:
        Numbers, uint64.
    """
    found: Words = times.astype(np.int64, copy=False).view(np.uint64) ^ np.uint64(1 << 63)
    return found


def to_single_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array.

    Args:
        column: A chunked array.
    """
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def valid_rows(column: pa.Array) -> Bytes:
    """Return 1 for each non-null row."""
    if not column.null_count:
        return np.ones(len(column), dtype=np.uint8)
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False).view(np.uint8))


def all_valid_rows(columns: list[pa.Array]) -> Bytes:
    """Return 1 for each row without a null in any column.

    Args:
        columns: Arrays of one length; usually their nulls agree.

    Returns:
        Flags, uint8.
    """
    first, found = columns[0], valid_rows(columns[0])
    bits = first.buffers()[0]
    for column in columns[1:]:
        alike = column.null_count == first.null_count and column.offset == first.offset
        if alike and (not first.null_count or column.buffers()[0].equals(bits)):
            continue
        found = np.minimum(found, valid_rows(column))
    return found


def to_numbers(column: pa.Array, missing: Any) -> Array:
    """Return a column of numbers with ``missing`` in place of nulls.

    Args:
        column: An array of numbers.
        missing: Replacement of nulls.
    """
    return np.ascontiguousarray((column.fill_null(missing) if column.null_count else column).to_numpy())


def raw_words(column: pa.Array) -> Words:
    """Return the 64-bit words of a column; nulls have arbitrary words.

    Args:
        column: An array of 64-bit numbers.

    Returns:
        Words, uint64.
    """
    data = column.buffers()[1]
    if data is None or not len(column):
        return np.zeros(len(column), dtype=np.uint64)
    return np.frombuffer(data, dtype=np.uint64)[column.offset : column.offset + len(column)]


def content_words(column: pa.Array) -> Words:
    """Return 32 bytes a row as four words; nulls have arbitrary words."""
    data = column.buffers()[1]
    if data is None or not len(column):
        return np.zeros((len(column), 4), dtype=np.uint64)
    octets = np.frombuffer(data, dtype=np.uint8)[column.offset * 32 : (column.offset + len(column)) * 32]
    return octets.view(np.uint64).reshape(-1, 4)


def encode_names(column: pa.ChunkedArray, names: NameCodes) -> Codes:
    """Return the code of each row's name, -1 for null.

    Args:
        column: Texts, or a dictionary of texts.
        names: Codes of names; it gets new names.

    Returns:
        Codes, int32.
    """
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
        table = _entry_codes(places, bits, np.array([indices.offset]), chunk.dictionary, names)
        if len(chunk.dictionary) == 1 and not indices.null_count:
            out[:] = table[0]
        else:
            code_rows(places, bits, np.array([indices.offset]), table, out)
    return codes


def _entry_codes(places: Codes, bits: Bytes, offset: Ints, dictionary: pa.Array, names: NameCodes) -> Codes:
    """Return the code of each dictionary entry; in a large dictionary only used entries get one."""
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
    """Return the position of each name among the allowed ones.

    Raises:
        InvalidInput: A name is not allowed or null.
    """
    names = NameCodes(allowed)
    codes = encode_names(column, names)
    if len(names) > len(allowed) or (column.null_count and len(codes)):
        bad = names.known()[len(allowed)] if len(names) > len(allowed) else None
        raise name_error(field, bad, allowed)
    return codes


def number_lane_rows(table: pa.Table) -> tuple[list[Lane], Codes]:
    """Return the lanes of rows in order, and the lane number of each row.

    Raises:
        InvalidInput: The lanes are out of ledger order.
    """
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
    """Format a lane for messages."""
    return "/".join("null" if name is None else name for name in lane)


def encode_message_ids(rows: MessageRun, indexed: Bytes) -> Codes:
    """Encode the ``message_id`` of rows without index, -1 in others; empty without such rows."""
    if indexed.all():
        return np.zeros(0, dtype=np.int32)
    idents = np.full(len(indexed), -1, dtype=np.int32)
    unnumbered = np.flatnonzero(indexed == 0)
    column = rows.read(("message_id",))["message_id"]
    encoded = pc.dictionary_encode(column.take(pa.array(unnumbered))).combine_chunks()
    idents[unnumbered] = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return idents


def is_one_of_codes(codes: Array, wanted: Iterable[int]) -> npt.NDArray[np.bool_]:
    """Return a mask of codes that are one of a few."""
    found = np.zeros(len(codes), bool)
    for code in wanted:
        found |= codes == code
    return found


def select_top_findings(lanes: Array, magnitude: Array | None, limit: int) -> tuple[Array, Array]:
    """Return masks of the first and the worst findings of each lane; findings are in lane order."""
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
"""Unknown time; it sorts last."""

MIN_DELAY = np.int64(-0x8000000000000000)
"""Minimum time difference, and the time before every time."""


MAX_DELAY = np.int64(2**63 - 1)
"""Maximum exact number, of microseconds or messages."""


def time_differences(one: Ints, other: Ints) -> tuple[Ints, Bools]:
    """Return saturated time differences, and a mask of known ones.

    Args:
        one: First times, int64 microseconds.
        other: Second times, int64 microseconds.

    Returns:
        ``other - one`` in microseconds, from ``MIN_DELAY`` to ``MAX_DELAY``, and a mask of pairs with known times.
    """
    between = other - one
    overflowed = ((other ^ one) & (other ^ between)) < 0
    if overflowed.any():
        between[overflowed] = np.where(other[overflowed] < 0, MIN_DELAY, MAX_DELAY)
    return between, np.asarray((one != NO_TIME) & (other != NO_TIME))
