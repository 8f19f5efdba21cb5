"""Encodings of columns: names as codes, and integers of up to 256 bits as words and digits.

Nothing is rounded: a text is either an integer that fits, or has a status.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.order import U64

from causeway.ledger.schema import LIMBS

__all__ = [
    "UNSEEN_NAME",
    "Codes",
    "DigitsStatus",
    "NameCodes",
    "ParsedNumbers",
    "amount_limbs",
    "amount_texts",
    "amount_words",
    "drop_unused_names",
    "limb_columns",
    "parse_numbers",
    "rank_names",
    "text_slices",
    "valid_mask",
]

Codes = npt.NDArray[np.int32]

UNSEEN_NAME = -1
"""Code of null."""


class NameCodes:
    """Names numbered in order of first appearance.

    Args:
        names: Names with the first codes.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._code_of: dict[str, int] = {}
        for name in names:
            self.code(name)

    def __len__(self) -> int:
        return len(self._code_of)

    def code(self, name: str | None) -> int:
        """Return the code of a name, assigning a new one if needed; ``UNSEEN_NAME`` for None."""
        return UNSEEN_NAME if name is None else self._code_of.setdefault(name, len(self._code_of))

    def known(self) -> list[str]:
        """Return the names by code."""
        return [*self._code_of]

    def codes(self, column: pa.Array | pa.ChunkedArray) -> Codes:
        """Return the code of each row of a column, ``UNSEEN_NAME`` for null.

        Only dictionary entries are looked up by name; unused entries get no code.

        Args:
            column: Texts, or a dictionary of texts.

        Returns:
            Codes, int32.
        """
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        found = [self._of_chunk(chunk) for chunk in chunks]
        return found[0] if len(found) == 1 else np.concatenate([np.zeros(0, dtype=np.int32), *found])

    def column(self, codes: Codes) -> pa.DictionaryArray:
        """Convert codes to a column of names."""
        missing = codes < 0
        indices = pa.array(codes, mask=missing if missing.any() else None)
        return pa.DictionaryArray.from_arrays(indices, pa.array(self.known(), pa.string()))

    def _of_chunk(self, chunk: pa.Array) -> Codes:
        if not pa.types.is_dictionary(chunk.type):
            chunk = chunk.dictionary_encode()
        if not len(chunk):
            return np.zeros(0, dtype=np.int32)
        places, entries = _used_entries(chunk)
        table = np.full(len(chunk.dictionary) + 1, UNSEEN_NAME, dtype=np.int32)
        table[entries] = self._all(chunk.dictionary.take(pa.array(entries)).to_pylist())
        found: Codes = table[places]
        return found

    def _all(self, names: Sequence[str | None]) -> list[int]:
        return [self.code(name) for name in names]


def drop_unused_names(column: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return a dictionary column without unused entries.

    Args:
        column: Dictionary column of texts.

    Returns:
        The column itself if all entries are used; else a column with the same values.
    """
    places, entries = _used_entries(column)
    if len(entries) == len(column.dictionary):
        return column
    renumbered = np.full(len(column.dictionary) + 1, UNSEEN_NAME, dtype=np.int32)
    renumbered[entries] = np.arange(len(entries), dtype=np.int32)
    rows = renumbered[places]
    names = column.dictionary.take(pa.array(entries))
    return pa.DictionaryArray.from_arrays(pa.array(rows, mask=rows < 0), names)


def _used_entries(column: pa.DictionaryArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the dictionary entry of each row, -1 for null, and the used entries, ascending."""
    indices = column.indices.fill_null(UNSEEN_NAME) if column.indices.null_count else column.indices
    places = indices.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    used = np.zeros(len(column.dictionary) + 1, dtype=bool)
    used[places] = True
    return places, np.flatnonzero(used[:-1])


def rank_names(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.uint32]:
    """Return the rank of each name in a column by its UTF-8 bytes.

    Args:
        column: Texts, or a dictionary of texts.

    Returns:
        Ranks from 1, uint32; 0: null.
    """
    if pa.types.is_dictionary(column.type):  # entries may repeat or be unused
        names = NameCodes()
        codes, known = names.codes(column), pa.array(names.known(), pa.string())
    else:
        rows = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column], column.type)
        encoded = rows.dictionary_encode().unify_dictionaries().combine_chunks()
        codes, known = encoded.indices.fill_null(UNSEEN_NAME).to_numpy(zero_copy_only=False), encoded.dictionary
    ranks = np.zeros(len(known) + 1, dtype=np.uint32)
    ranks[pc.sort_indices(known).to_numpy()] = np.arange(1, len(known) + 1)
    found: npt.NDArray[np.uint32] = ranks[codes]  # the last rank, 0, belongs to UNSEEN_NAME
    return found


Words = npt.NDArray[np.uint64]
"""Numbers of four words, least significant first, shape (n, 4)."""


class DigitsStatus(IntEnum):
    """Status of a text as an integer of up to 256 bits; blank texts are ``EMPTY``."""

    GOOD = 0
    EMPTY = 1
    NEGATIVE = 2
    NO_NUMBER = 3
    TOO_LARGE = 4


class ParsedNumbers(NamedTuple):
    """Numbers parsed from texts.

    Attributes:
        words: Words of each number; 0 where ``found`` is not ``GOOD``.
        found: ``DigitsStatus`` of each text.
    """

    words: Words
    found: npt.NDArray[np.uint8]

    def u64(self) -> tuple[U64, npt.NDArray[np.uint8]]:
        """Return the numbers as uint64, and their status; larger ones are ``TOO_LARGE``."""
        from causeway.ledger.number_loops import narrow_words

        numbers, found = np.empty(len(self.found), dtype=np.uint64), np.empty(len(self.found), dtype=np.uint8)
        narrow_words(np.ascontiguousarray(self.words), self.found, numbers, found)
        return numbers, found


def text_slices(texts: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the bytes of a column of texts or bytes, and the offsets of its values.

    Args:
        texts: An array; the slices of nulls are arbitrary.

    Returns:
        Bytes, uint8, and n + 1 offsets, int64.
    """
    wide = pa.types.is_large_string(texts.type) or pa.types.is_large_binary(texts.type)
    _, offsets, data = texts.buffers()
    if offsets is None or len(texts) == 0:
        return np.zeros(0, dtype=np.uint8), np.zeros(len(texts) + 1, dtype=np.int64)
    kind = np.int64 if wide else np.int32
    found = np.frombuffer(offsets, dtype=kind)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    return np.zeros(0, dtype=np.uint8) if data is None else np.frombuffer(data, dtype=np.uint8), found


def valid_mask(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Return a mask of non-null rows.

    Args:
        column: An array.
    """
    if column.null_count == 0:
        return np.ones(len(column), dtype=bool)
    return np.asarray(column.is_valid())


def parse_numbers(texts: pa.Array) -> ParsedNumbers:
    """Parse texts as integers: decimal digits, or ``0x`` and hexadecimal digits, of any length.

    A ``+`` and surrounding spaces are ignored; a ``-`` means ``NEGATIVE``, also for 0. Null is ``EMPTY``.

    Args:
        texts: Texts (string), n values.

    Returns:
        Words, shape (n, 4), uint64, least significant first, and a ``DigitsStatus`` for each text.
    """
    from causeway.ledger.number_loops import parse_number_slices as read

    data, offsets = text_slices(texts)
    words = np.empty((len(texts), 4), dtype=np.uint64)
    found = np.empty(len(texts), dtype=np.uint8)
    read(data, offsets[:-1], offsets[1:], words, found)
    if texts.null_count:
        missing = ~valid_mask(texts)
        words[missing] = 0
        found[missing] = DigitsStatus.EMPTY
    return ParsedNumbers(words, found)


def limb_columns(numbers: ParsedNumbers) -> list[pa.Array]:
    """Return the four columns (``LIMBS``) of numbers, null where not ``GOOD``.

    Args:
        numbers: Numbers, n values.

    Returns:
        Four uint64 columns of n values, least significant first.
    """
    missing = numbers.found != DigitsStatus.GOOD
    mask = missing if missing.any() else None
    return [pa.array(np.ascontiguousarray(numbers.words[:, word]), mask=mask) for word in range(4)]


def amount_words(limbs: Sequence[pa.Array | pa.ChunkedArray]) -> tuple[Words, npt.NDArray[np.bool_]]:
    """Return the numbers of the four columns ``LIMBS``, and a mask of non-null rows.

    Args:
        limbs: The columns ``LIMBS``, uint64, n values each.

    Returns:
        Words, shape (n, 4), uint64, least significant first, 0 for null; and the mask, shape (n,).

    Raises:
        ValueError: There are not four columns, or a row is null in some of them only.
    """
    if len(limbs) != len(LIMBS):
        raise ValueError(f"{len(limbs)} columns of limbs: must be {len(LIMBS)}")
    columns = [column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column for column in limbs]
    valid = valid_mask(columns[0])
    if any((valid_mask(column) != valid).any() for column in columns[1:]):
        raise ValueError("limbs of one amount are all null, or none is")
    words = np.empty((len(valid), len(LIMBS)), dtype=np.uint64)
    for number, column in enumerate(columns):
        words[:, number] = column.fill_null(0).to_numpy(zero_copy_only=False)
    return words, valid


def amount_texts(limbs: Sequence[pa.Array | pa.ChunkedArray]) -> pa.Array:
    """Format the numbers of the four columns ``LIMBS`` as decimal digits, null where null.

    Args:
        limbs: The four columns.

    Returns:
        Strings.

    Raises:
        ValueError: There are not four columns, or a row is null in some of them only.
    """
    from causeway.ledger.number_loops import MAX_DIGITS, format_numbers

    words, valid = amount_words(limbs)
    text = np.empty(len(words) * MAX_DIGITS, dtype=np.uint8)
    offsets = np.empty(len(words) + 1, dtype=np.int64)
    size = format_numbers(words, valid.view(np.uint8), text, offsets)
    mask = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    kind = pa.large_string()
    found = pa.Array.from_buffers(kind, len(words), [mask, pa.py_buffer(offsets), pa.py_buffer(text[:size].copy())])
    return found.cast(pa.string())


def amount_limbs(numbers: Sequence[int | None]) -> list[pa.Array]:
    """Return the four columns of Python integers.

    Args:
        numbers: Integers from 0 to 2**256 - 1, or None.

    Returns:
        Columns ``LIMBS``, uint64, null for None.

    Raises:
        ValueError: A number is negative or above 2**256 - 1.
    """
    for number in numbers:
        if number is not None and not 0 <= number < 1 << 256:
            raise ValueError(f"{number}: an amount is from 0 to 2**256 - 1")
    return limb_columns(parse_numbers(pa.array([None if each is None else str(each) for each in numbers], pa.string())))
