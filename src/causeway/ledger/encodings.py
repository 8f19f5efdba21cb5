"""Names as codes: what a pass over columns compares, and what it turns back into names at its end.

Amounts on columns: exact whole numbers of up to 256 bits as four words, and as digits.

Nothing here rounds: a text is a whole number that fits, or it is said what it is instead.
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
"""The code of null."""


class NameCodes:
    """The names of one pass, numbered in the order in which they were first seen. ``names``: those known before."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._code_of: dict[str, int] = {}
        for name in names:
            self.code(name)

    def __len__(self) -> int:
        return len(self._code_of)

    def code(self, name: str | None) -> int:
        """Return the code of a name, a new one if need be; ``NOT_SEEN`` of None."""
        return UNSEEN_NAME if name is None else self._code_of.setdefault(name, len(self._code_of))

    def known(self) -> list[str]:
        """Return the names by their codes."""
        return [*self._code_of]

    def codes(self, column: pa.Array | pa.ChunkedArray) -> Codes:
        """Return the code of each row of a column of texts or dictionaries, ``NOT_SEEN`` where it is null.

        Only what stands in a dictionary is looked at name by name; entries that no row uses get no code.
        """
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        found = [self._of_chunk(chunk) for chunk in chunks]
        return found[0] if len(found) == 1 else np.concatenate([np.zeros(0, dtype=np.int32), *found])

    def column(self, codes: Codes) -> pa.DictionaryArray:
        """Return codes as a column of names."""
        missing = codes < 0
        indices = pa.array(codes, mask=missing if missing.any() else None)
        return pa.DictionaryArray.from_arrays(indices, pa.array(self.known(), pa.string()))

    def _of_chunk(self, chunk: pa.Array) -> Codes:
        if not pa.types.is_dictionary(chunk.type):
            chunk = chunk.dictionary_encode()
        if not len(chunk):
            return np.zeros(0, dtype=np.int32)
        places, entries = _places(chunk)
        table = np.full(len(chunk.dictionary) + 1, UNSEEN_NAME, dtype=np.int32)
        table[entries] = self._all(chunk.dictionary.take(pa.array(entries)).to_pylist())
        found: Codes = table[places]
        return found

    def _all(self, names: Sequence[str | None]) -> list[int]:
        return [self.code(name) for name in names]


def drop_unused_names(column: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return a dictionary column without the entries of its dictionary that no row uses."""
    places, entries = _places(column)
    if len(entries) == len(column.dictionary):
        return column
    renumbered = np.full(len(column.dictionary) + 1, UNSEEN_NAME, dtype=np.int32)
    renumbered[entries] = np.arange(len(entries), dtype=np.int32)
    rows = renumbered[places]
    names = column.dictionary.take(pa.array(entries))
    return pa.DictionaryArray.from_arrays(pa.array(rows, mask=rows < 0), names)


def _places(column: pa.DictionaryArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the entry of its dictionary that each row uses, -1 for null, and which entries are used, ascending."""
    indices = column.indices.fill_null(UNSEEN_NAME) if column.indices.null_count else column.indices
    places = indices.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    used = np.zeros(len(column.dictionary) + 1, dtype=bool)
    used[places] = True
    return places, np.flatnonzero(used[:-1])


def rank_names(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.uint32]:
    """Return where each row's name stands among all of the column by its UTF-8 bytes, from 1; 0: null."""
    if pa.types.is_dictionary(column.type):  # it may hold a name twice, or one that no row has
        names = NameCodes()
        codes, known = names.codes(column), pa.array(names.known(), pa.string())
    else:
        rows = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column], column.type)
        encoded = rows.dictionary_encode().unify_dictionaries().combine_chunks()
        codes, known = encoded.indices.fill_null(UNSEEN_NAME).to_numpy(zero_copy_only=False), encoded.dictionary
    ranks = np.zeros(len(known) + 1, dtype=np.uint32)
    ranks[pc.sort_indices(known).to_numpy()] = np.arange(1, len(known) + 1)
    found: npt.NDArray[np.uint32] = ranks[codes]  # the last one, 0, is that of NOT_SEEN
    return found


Words = npt.NDArray[np.uint64]
"""Numbers, four words a row, the least significant first: shape (n, 4)."""


class DigitsStatus(IntEnum):
    """What a text is as a whole number of up to 256 bits; texts of only spaces count as not there."""

    GOOD = 0
    EMPTY = 1
    NEGATIVE = 2
    NO_NUMBER = 3
    TOO_LARGE = 4


class ParsedNumbers(NamedTuple):
    """Numbers read from texts. ``words``: 0 where ``found`` (``Digits``, one a row) is not ``GOOD``."""

    words: Words
    found: npt.NDArray[np.uint8]

    def u64(self) -> tuple[U64, npt.NDArray[np.uint8]]:
        """Return the numbers as words of 64 bits, and what each is; what does not fit is ``TOO_LARGE``."""
        from causeway.ledger.number_loops import narrow_words

        numbers, found = np.empty(len(self.found), dtype=np.uint64), np.empty(len(self.found), dtype=np.uint8)
        narrow_words(np.ascontiguousarray(self.words), self.found, numbers, found)
        return numbers, found


def text_slices(texts: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the bytes of a column of texts or bytes, and where each value begins, and at the end where the last ends.

    A null is an empty slice or not, as its writer left it.
    """
    wide = pa.types.is_large_string(texts.type) or pa.types.is_large_binary(texts.type)
    _, offsets, data = texts.buffers()
    if offsets is None or len(texts) == 0:
        return np.zeros(0, dtype=np.uint8), np.zeros(len(texts) + 1, dtype=np.int64)
    kind = np.int64 if wide else np.int32
    found = np.frombuffer(offsets, dtype=kind)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    return np.zeros(0, dtype=np.uint8) if data is None else np.frombuffer(data, dtype=np.uint8), found


def valid_mask(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Return which rows of a column are not null."""
    if column.null_count == 0:
        return np.ones(len(column), dtype=bool)
    return np.asarray(column.is_valid())


def parse_numbers(texts: pa.Array) -> ParsedNumbers:
    """Read a column of texts as whole numbers: decimal digits, or ``0x`` and hexadecimal ones, of any length.

    A ``+`` and spaces around are taken, a ``-`` makes it ``NEGATIVE`` (also of 0). Null: ``EMPTY``.
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
    """Return the four columns (``schema.LIMBS``) of numbers, null where they are not ``GOOD``."""
    missing = numbers.found != DigitsStatus.GOOD
    mask = missing if missing.any() else None
    return [pa.array(np.ascontiguousarray(numbers.words[:, word]), mask=mask) for word in range(4)]


def amount_words(limbs: Sequence[pa.Array | pa.ChunkedArray]) -> tuple[Words, npt.NDArray[np.bool_]]:
    """Return the numbers of the four columns ``schema.LIMBS``, and which rows are not null.

    Raises ``ValueError`` when they are not four, or null in some of the four only.
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
    """Return the numbers of the four columns ``schema.LIMBS`` as decimal digits, null where they are.

    Raises ``ValueError`` as ``words_of``.
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
    """Return the four columns of Python's numbers. Raises ``ValueError`` for one below 0 or above 2**256 - 1."""
    for number in numbers:
        if number is not None and not 0 <= number < 1 << 256:
            raise ValueError(f"{number}: an amount is from 0 to 2**256 - 1")
    return limb_columns(parse_numbers(pa.array([None if each is None else str(each) for each in numbers], pa.string())))
