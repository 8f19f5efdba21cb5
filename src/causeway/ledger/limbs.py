"""Amounts on columns: exact whole numbers of up to 256 bits as four words, and as digits.

Nothing here rounds: a text is a whole number that fits, or it is said what it is instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.ledger.schema import LIMBS
from causeway.model.order import U64

Words = npt.NDArray[np.uint64]
"""Numbers, four words a row, the least significant first: shape (n, 4)."""


class Digits(IntEnum):
    """What a text is as a whole number of up to 256 bits; texts of only spaces count as not there."""

    GOOD = 0
    EMPTY = 1
    NEGATIVE = 2
    NO_NUMBER = 3
    TOO_LARGE = 4


class Numbers(NamedTuple):
    """Numbers read from texts. ``words``: 0 where ``found`` (``Digits``, one a row) is not ``GOOD``."""

    words: Words
    found: npt.NDArray[np.uint8]

    def u64(self) -> tuple[U64, npt.NDArray[np.uint8]]:
        """Return the numbers as words of 64 bits, and what each is; what does not fit is ``TOO_LARGE``."""
        from causeway.ledger.number_loops import narrowed

        numbers, found = np.empty(len(self.found), dtype=np.uint64), np.empty(len(self.found), dtype=np.uint8)
        narrowed(np.ascontiguousarray(self.words), self.found, numbers, found)
        return numbers, found


def slices_of(texts: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
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


def valid_rows(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Return which rows of a column are not null."""
    if column.null_count == 0:
        return np.ones(len(column), dtype=bool)
    return np.asarray(column.is_valid())


def read_numbers(texts: pa.Array) -> Numbers:
    """Read a column of texts as whole numbers: decimal digits, or ``0x`` and hexadecimal ones, of any length.

    A ``+`` and spaces around are taken, a ``-`` makes it ``NEGATIVE`` (also of 0). Null: ``EMPTY``.
    """
    from causeway.ledger.number_loops import read_numbers as read

    data, offsets = slices_of(texts)
    words = np.empty((len(texts), 4), dtype=np.uint64)
    found = np.empty(len(texts), dtype=np.uint8)
    read(data, offsets[:-1], offsets[1:], words, found)
    if texts.null_count:
        missing = ~valid_rows(texts)
        words[missing] = 0
        found[missing] = Digits.EMPTY
    return Numbers(words, found)


def limb_columns(numbers: Numbers) -> list[pa.Array]:
    """Return the four columns (``schema.LIMBS``) of numbers, null where they are not ``GOOD``."""
    missing = numbers.found != Digits.GOOD
    mask = missing if missing.any() else None
    return [pa.array(np.ascontiguousarray(numbers.words[:, word]), mask=mask) for word in range(4)]


def words_of(limbs: Sequence[pa.Array | pa.ChunkedArray]) -> tuple[Words, npt.NDArray[np.bool_]]:
    """Return the numbers of the four columns ``schema.LIMBS``, and which rows are not null.

    Raises ``ValueError`` when they are not four, or null in some of the four only.
    """
    if len(limbs) != len(LIMBS):
        raise ValueError(f"{len(limbs)} columns of limbs: must be {len(LIMBS)}")
    columns = [column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column for column in limbs]
    valid = valid_rows(columns[0])
    if any((valid_rows(column) != valid).any() for column in columns[1:]):
        raise ValueError("limbs of one amount are all null, or none is")
    words = np.empty((len(valid), len(LIMBS)), dtype=np.uint64)
    for number, column in enumerate(columns):
        words[:, number] = column.fill_null(0).to_numpy(zero_copy_only=False)
    return words, valid


def amount_texts(limbs: Sequence[pa.Array | pa.ChunkedArray]) -> pa.Array:
    """Return the numbers of the four columns ``schema.LIMBS`` as decimal digits, null where they are.

    Raises ``ValueError`` as ``words_of``.
    """
    from causeway.ledger.number_loops import MOST_DIGITS, write_numbers

    words, valid = words_of(limbs)
    text = np.empty(len(words) * MOST_DIGITS, dtype=np.uint8)
    offsets = np.empty(len(words) + 1, dtype=np.int64)
    size = write_numbers(words, valid.view(np.uint8), text, offsets)
    mask = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    kind = pa.large_string()
    found = pa.Array.from_buffers(kind, len(words), [mask, pa.py_buffer(offsets), pa.py_buffer(text[:size].copy())])
    return found.cast(pa.string())


def amount_limbs(numbers: Sequence[int | None]) -> list[pa.Array]:
    """Return the four columns of Python's numbers. Raises ``ValueError`` for one below 0 or above 2**256 - 1."""
    for number in numbers:
        if number is not None and not 0 <= number < 1 << 256:
            raise ValueError(f"{number}: an amount is from 0 to 2**256 - 1")
    return limb_columns(read_numbers(pa.array([None if each is None else str(each) for each in numbers], pa.string())))


__all__ = [
    "Digits", "Numbers", "amount_limbs", "amount_texts", "limb_columns", "read_numbers", "slices_of", "valid_rows",
    "words_of",
]  # fmt: skip
