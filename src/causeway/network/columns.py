"""Columns of foreign files as exact values: whole numbers, texts, times, bytes; errors name column, row and value."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from causeway.model.errors import InvalidInput
from causeway.model.text import shown

U64Array = npt.NDArray[np.uint64]

_TIMESTAMP = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}:?[0-9]{2})?)?$"
)
_LARGEST = str(2**64 - 1)


class Column:
    """One column of one batch, with what an error line says about it."""

    def __init__(self, values: pa.Array, name: str, rows: npt.NDArray[np.int64], file: str) -> None:
        """``rows``: the number of each value's row in the file, from 1."""
        self.values = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
        self.name = name
        self._rows = rows
        self._file = file

    def texts(self) -> pa.Array:
        """Return the values as non-empty strings; whole numbers become their digits."""
        kind = self.values.type
        if not (_is_text(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
            raise self._wrong_type("text")
        values = self.values.cast(pa.string())
        self._refuse(pc.equal(pc.fill_null(values, ""), ""), "is empty")
        return values

    def optional_texts(self) -> pa.Array:
        """Return the values as strings, null where empty."""
        values = self.values.cast(pa.string())
        return pc.if_else(pc.equal(values, ""), pa.scalar(None, pa.string()), values)

    def contents(self) -> pa.Array:
        """Return the values as bytes: text in UTF-8; null is empty."""
        kind = self.values.type
        if not (_is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
            raise self._wrong_type("text or bytes")
        return pc.fill_null(self.values.cast(pa.binary()), b"")

    def whole_numbers(self) -> U64Array:
        """Return the values as exact numbers from 0 to 2**64 - 1."""
        kind = self.values.type
        if _is_text(kind):
            return self._parsed(self.values.cast(pa.string()))
        if pa.types.is_null(kind):
            self._refuse(self.values.is_null(), "is empty")
        if not (pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
            raise self._wrong_type("whole numbers")
        self._refuse(self.values.is_null(), "is empty")
        if not pa.types.is_unsigned_integer(kind):
            self._refuse(pc.less(self.values, pa.scalar(0).cast(kind)), "must not be negative")
        try:
            return np.asarray(self.values.cast(pa.uint64()).to_numpy(zero_copy_only=False), dtype=np.uint64)
        except pa.ArrowInvalid as error:
            raise InvalidInput(
                f"{self._file}: column {self.name}: not whole numbers up to 2**64 - 1: {error}"
            ) from None

    def microseconds(self) -> U64Array:
        """Return timestamps (or ISO 8601 texts) as microseconds since 1970; a timestamp without zone counts as UTC."""
        values = self.values
        kind = values.type
        if pa.types.is_integer(kind) or (_is_text(kind) and self._all_digits()):
            raise InvalidInput(
                f"{self._file}: column {self.name} holds whole numbers, not timestamps; "
                "use traffic.blocks_per_tick instead of traffic.seconds_per_tick"
            )
        if _is_text(kind):
            values = self._timestamps()
        elif not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
            raise self._wrong_type("timestamps")
        self._refuse(values.is_null(), "is empty")
        numbers = values.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
        self._refuse(pc.less(numbers, 0), "must not be before 1970")
        return np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.uint64)

    def _parsed(self, texts: pa.Array) -> U64Array:
        filled = pc.utf8_trim_whitespace(pc.fill_null(texts, ""))
        self._refuse(pc.equal(filled, ""), "is empty")
        self._refuse(pc.match_substring_regex(filled, r"^-[0-9]"), "must not be negative")
        digits = pc.utf8_ltrim(filled, characters="0")
        short = pc.less_equal(pc.utf8_length(digits), len(_LARGEST) - 1)
        fits = pc.or_(short, pc.and_(pc.equal(pc.utf8_length(digits), len(_LARGEST)), pc.less_equal(digits, _LARGEST)))
        good = pc.and_(pc.match_substring_regex(filled, r"^[0-9]+$"), fits)
        self._refuse(pc.invert(good), "must be a whole number from 0 to 2**64 - 1")
        return np.asarray(filled.cast(pa.uint64()).to_numpy(zero_copy_only=False), dtype=np.uint64)

    def _all_digits(self) -> bool:
        texts = pc.drop_null(self.values.cast(pa.string()))
        return len(texts) > 0 and bool(pc.all(pc.match_substring_regex(texts, r"^[0-9]+$")).as_py())

    def _timestamps(self) -> pa.Array:
        texts = pc.utf8_trim_whitespace(self.values.cast(pa.string()))
        self._refuse(pc.equal(pc.fill_null(texts, ""), ""), "is empty")
        zoned = pc.match_substring_regex(texts, r"(Z|[+-][0-9]{2}:?[0-9]{2})$")
        good = pc.match_substring_regex(texts, _TIMESTAMP)
        self._refuse(pc.invert(good), "must be a timestamp such as 2024-10-06T12:31:37Z, at most microseconds")
        full = pc.if_else(zoned, texts, pc.binary_join_element_wise(texts, pa.scalar("Z"), ""))
        try:
            return full.cast(pa.timestamp("us", "UTC"))
        except pa.ArrowInvalid as error:
            raise InvalidInput(f"{self._file}: column {self.name}: {error}") from None

    def _refuse(self, bad: pa.Array, text: str) -> None:
        """Raise the error about the first value where ``bad`` is true."""
        place = pc.index(bad, pa.scalar(True)).as_py()
        if place >= 0:
            value = self.values[place].as_py()
            said = "" if value in (None, "") else f"{shown(value)} "
            raise InvalidInput(f"{self._file}: row {int(self._rows[place])}: {self.name}: {said}{text}")

    def _wrong_type(self, wanted: str) -> InvalidInput:
        return InvalidInput(f"{self._file}: column {self.name} has type {self.values.type}, but {wanted} are needed")


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))
