"""Read ledger fields from columns of a source.

They are texts, numbers, heights, amounts, times and payload hashes.

Each field is read as a whole column; unreadable rows get a reason. Times are UTC: numbers since 1970 in a given unit
or one inferred from their size, ISO 8601 texts, and Parquet timestamps. Times outside the years 1 to 9999 are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.hashing import HashFunction, binary_rows, digest_slices
from causeway_proofs.hashing import columns as engines

from causeway.core.frame import repeat_text
from causeway.ledger.encodings import DigitsStatus, ParsedNumbers, limb_columns, parse_numbers, text_slices, valid_mask
from causeway.ledger.ingest.row_sections import AmountSection, FieldSection, TimeSection, has_leading_zero, rewrite_base

__all__ = ["FieldRows", "is_one_of", "parse_times"]

RowMask = npt.NDArray[np.bool_]
RefuseRows = Callable[[RowMask, str], None]
"""Callback with a mask of rows whose time is unreadable, and the reason."""

UTC_MICROS = pa.timestamp("us", "UTC")
_UNITS = {"s": 1_000_000, "ms": 1000, "us": 1, "ns": 0}
_FIRST = -62_135_596_800 * 1_000_000
"""0001-01-01."""

_LAST = 253_402_300_800 * 1_000_000 - 1
"""The last microsecond of the year 9999."""

_FRACTION = r"^[ \t]*\+?(?P<whole>[0-9]{1,20})\.(?P<part>[0-9]{1,30})[ \t]*$"

SIZES = ((0, 10**10, 1_000_000), (10**12, 10**13, 1000), (10**15, 10**16, 1), (10**18, 1 << 63, 0))
"""Unit of a number by its size: from, to (exclusive), microseconds a unit (0: a thousandth). Numbers of up to 10 digits
are seconds, 13 milliseconds, 16 microseconds, 19 nanoseconds: times after 2001, except seconds. Others are ambiguous.
"""


def parse_times(column: pa.Array, field: TimeSection, refuse: RefuseRows) -> pa.Array:
    """Parse a column as times in UTC, null where there is none.

    Args:
        column: Texts, integers or timestamps.
        field: Unit and time zone of the column.
        refuse: Called with unreadable rows.

    Returns:
        Timestamps in microseconds, UTC.
    """
    if pa.types.is_timestamp(column.type):
        times = _timestamps_to_utc(column, field, refuse)
    elif field.unit == "iso":
        times = _parse_iso_times(_texts(column), field, refuse)
    else:
        times = _parse_numeric_times(column, field, refuse)
    micros = times.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    out_of_range = (micros < _FIRST) | (micros > _LAST)
    if out_of_range.any():
        refuse(out_of_range, "not_a_time")
        times = pc.if_else(pa.array(out_of_range), pa.scalar(None, UTC_MICROS), times)
    return times


def _texts(column: pa.Array) -> pa.Array:
    return column if pa.types.is_string(column.type) else column.cast(pa.string())


def _timestamps_to_utc(column: pa.Array, field: TimeSection, refuse: RefuseRows) -> pa.Array:
    valid = valid_mask(column)
    values = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    factor = _UNITS[column.type.unit]
    if factor:
        out_of_range = (values > _LAST // factor) | (values < _FIRST // factor)
        if out_of_range.any():
            refuse(out_of_range & valid, "not_a_time")
            valid, values = valid & ~out_of_range, np.where(out_of_range, 0, values)
    micros = values * factor if factor else values // 1000
    times = pa.array(micros, pa.timestamp("us"), mask=None if valid.all() else ~valid)
    return _in_utc(times, valid, field, refuse) if column.type.tz is None else times.cast(pa.int64()).cast(UTC_MICROS)


def _parse_numeric_times(column: pa.Array, field: TimeSection, refuse: RefuseRows) -> pa.Array:
    """Parse numeric times; with unit "any", ISO texts are accepted as well."""
    whole = pa.types.is_integer(column.type)
    texts = pa.nulls(len(column), pa.string()) if whole else _texts(column)
    if whole:
        values = column.fill_null(0).to_numpy(zero_copy_only=False)
        good, below = valid_mask(column) & (values >= 0), valid_mask(column) & (values < 0)
        words, others = np.where(values < 0, 0, values).astype(np.uint64), np.zeros(len(column), dtype=bool)
        refuse(below, "not_a_time")
    else:
        words, found = parse_numbers(texts).u64()
        good = found == DigitsStatus.GOOD
        others = ~good & (found != DigitsStatus.EMPTY)
    parts = np.zeros(len(column), dtype=np.uint64)
    if others.any():
        split = pc.extract_regex(pc.if_else(pa.array(others), texts, pa.scalar(None, pa.string())), _FRACTION)
        whole_words, kind = parse_numbers(split.field(0)).u64()
        fractional = valid_mask(split) & (kind == DigitsStatus.GOOD)
        micro_digits = pc.utf8_slice_codeunits(pc.utf8_rpad(split.field(1), 6, "0"), 0, 6)
        parts[fractional] = parse_numbers(micro_digits).u64()[0][fractional]
        words, good, others = np.where(fractional, whole_words, words), good | fractional, others & ~fractional
    micros, fits = _scale_to_micros(words, parts, field.unit)
    refuse(good & ~fits, "ambiguous_time" if field.unit == "any" else "not_a_time")
    good &= fits
    times = pa.array(np.where(good, micros, 0), pa.int64(), mask=~good).cast(UTC_MICROS)
    if not others.any():
        return times
    if field.unit != "any":
        refuse(others, "not_a_time")
        return times
    rest = pc.if_else(pa.array(others), texts, pa.scalar(None, pa.string()))
    return pc.coalesce(times, _parse_iso_times(rest, field, refuse))


def _scale_to_micros(
    words: npt.NDArray[np.uint64], parts: npt.NDArray[np.uint64], unit: str
) -> tuple[npt.NDArray[np.int64], RowMask]:
    """Scale numbers and millionths to microseconds; return them with a mask of valid times."""
    micros, fits = np.zeros(len(words), dtype=np.int64), np.zeros(len(words), dtype=bool)
    sizes = (
        SIZES if unit == "any" else ((0, _LAST // (_UNITS[unit] or 1) + 1 if unit != "ns" else 1 << 63, _UNITS[unit]),)
    )
    for begin, end, factor in sizes:
        in_unit = (words >= np.uint64(begin)) & (words < np.uint64(end))
        if not in_unit.any():
            continue
        whole, part = words[in_unit].astype(np.int64), parts[in_unit].astype(np.int64)
        micros[in_unit] = whole * factor + part * factor // 1_000_000 if factor else whole // 1000
        fits |= in_unit
    return micros, fits


def _parse_iso_times(column: pa.Array, field: TimeSection, refuse: RefuseRows) -> pa.Array:
    from causeway.ledger.ingest.text_loops import parse_time_slices

    data, offsets = text_slices(column)
    micros, found = np.empty(len(column), dtype=np.int64), np.empty(len(column), dtype=np.uint8)
    parse_time_slices(data, offsets[:-1], offsets[1:], micros, found)
    found[~valid_mask(column)] = 3
    refuse(found == 0, "not_a_time")
    local = found == 1
    times = pa.array(micros, pa.timestamp("us"), mask=(found != 1) & (found != 2))
    if not local.any():
        return times.cast(UTC_MICROS)
    in_utc = _in_utc(times, local, field, refuse)
    return pc.if_else(pa.array(local), in_utc, times.cast(UTC_MICROS))


def _in_utc(times: pa.Array, local: RowMask, field: TimeSection, refuse: RefuseRows) -> pa.Array:
    """Convert local times of the mapping's zone to UTC; refuse ambiguous and nonexistent ones."""
    if field.timezone == "UTC":
        return times.cast(UTC_MICROS)
    one, other = (
        pc.assume_timezone(times, field.timezone, ambiguous=side, nonexistent=side).cast(UTC_MICROS)
        for side in ("earliest", "latest")
    )
    differ = pc.not_equal(one, other).fill_null(False).to_numpy(zero_copy_only=False)
    refuse(np.asarray(differ, dtype=bool) & local, "ambiguous_time")
    return one


MAX_TEXT = 4096
"""Maximum length of a text of the ledger, in bytes."""

_MANY = 1 << 12
"""Minimum number of rows to load the compiled hash engine."""

_AT_ONCE = 32 << 20
"""Approximate number of bytes hashed in one pass."""

_DIGITS = {
    DigitsStatus.NEGATIVE: "negative",
    DigitsStatus.NO_NUMBER: "not_a_number",
    DigitsStatus.TOO_LARGE: "too_large",
}


@dataclass
class FieldRows:
    """Columns of some records, and a reason for each unreadable row.

    Attributes:
        values: Columns by name.
        count: Number of records.
        why: Number of the reason of each row, uint16; 0: readable.
        reasons: (reason, field, column) by number, from 1.
        nulls: Texts that mean "no value" in a number or a time.
    """

    values: dict[str, pa.Array]
    count: int
    why: npt.NDArray[np.uint16]
    reasons: list[tuple[str, str, str]]
    nulls: Sequence[str] = ()

    def refuse(self, bad: RowMask, reason: str, name: str, column: str) -> None:
        """Mark rows as unreadable; the first reason of a row stays."""
        if bad.any():
            self.reasons.append((reason, name, column))
            self.why[bad & (self.why == 0)] = len(self.reasons)

    def column(self, field: FieldSection) -> tuple[str, pa.Array]:
        """Return the name and the values of a field's column.

        If several of the field's columns are present, each row has the first value. Without any, all values are null.
        """
        return self._first_of(field.column)

    def _first_of(self, names: Sequence[str]) -> tuple[str, pa.Array]:
        present = [name for name in names if name in self.values]
        if not present:
            return (names or ["text"])[0], pa.nulls(self.count, pa.string())
        columns = [self.values[name] for name in present]
        if len(present) > 1:
            columns = [_without_empty(column) if _is_text(column.type) else column for column in columns]
        if len(present) == 1 or not columns[0].null_count:
            return present[0], columns[0]
        if any(column.type != columns[0].type or pa.types.is_dictionary(column.type) for column in columns):
            columns = [format_column(column) for column in columns]
        return present[0], pc.coalesce(*columns)

    def texts(self, name: str, field: FieldSection, *, needed: bool = False) -> pa.Array:
        """Return a field as texts: dictionary-encoded if the field maps values."""
        if field.text is not None:
            return repeat_text(field.text, self.count)
        origin, column = self.column(field)
        column = _without_empty(column if _is_text(column.type) else format_column(column))
        if field.join:
            column = pc.coalesce(column.cast(pa.string()), self._joined(name, field))
        found = self._apply_rules(column, name, origin, field) if field.has_rules else column
        self._check(found, name, origin, needed)
        return found

    def _joined(self, name: str, field: FieldSection) -> pa.Array:
        """Join the parts of a field; null where a required part is missing."""
        parts = [self.texts(name, part).cast(pa.string()) for part in field.join]
        if all(part.null_count == len(part) for part in parts):  # Arrow joins such columns to no rows at all
            return pa.nulls(self.count, pa.string())
        needed = [valid_mask(column) for column, part in zip(parts, field.join, strict=True) if not part.optional]
        whole = pc.binary_join_element_wise(*parts, field.by, null_handling="skip")
        missing = ~np.logical_and.reduce(needed) if needed else _mask(pc.equal(whole, ""))
        return pc.if_else(pa.array(missing), pa.scalar(None, pa.string()), whole) if missing.any() else whole

    def _apply_rules(self, column: pa.Array, name: str, origin: str, field: FieldSection) -> pa.DictionaryArray:
        """Map texts by the rules of a field; refuse values that it does not allow."""
        coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        codes: dict[str, int] = {}
        other = -1 if field.otherwise is None else codes.setdefault(field.otherwise, 0)
        of_value, refused = [], []
        for code, value in enumerate(coded.dictionary.to_pylist()):
            text, good = _map_value(value, field)
            of_value.append(other if text is None else codes.setdefault(text, len(codes)))
            if not good:
                refused.append(code)
        if refused:
            self.refuse(np.isin(_indices(coded), refused), "not_allowed", name, origin)
        rows = np.array([*of_value, other], dtype=np.int32)[_indices(coded)]
        return pa.DictionaryArray.from_arrays(pa.array(rows, mask=rows < 0), pa.array([*codes], pa.string()))

    def _check(self, column: pa.Array, name: str, origin: str, needed: bool) -> None:
        coded = pa.types.is_dictionary(column.type)
        lengths = pc.binary_length(column.dictionary if coded else column)
        if (pc.max(lengths).as_py() or 0) > MAX_TEXT:
            long = _mask(pc.greater(lengths, MAX_TEXT))
            self.refuse(long[_indices(column)] & valid_mask(column) if coded else long, "too_long", name, origin)
        if needed and column.null_count:
            self.refuse(~valid_mask(column), "missing", name, origin)

    def _values(self, name: str, field: FieldSection) -> tuple[str, pa.Array]:
        """Return the column name and the mapped values of a number or a time."""
        if field.text is not None:
            return "text", pa.array([field.text] * self.count, pa.string())
        origin, column = self.column(field)
        if not field.has_rules:
            return origin, column
        texts = column if _is_text(column.type) else format_column(column)
        return origin, self._apply_rules(self._without_nulls(texts), name, origin, field).cast(pa.string())

    def _without_nulls(self, column: pa.Array) -> pa.Array:
        """Replace texts that mean "no value" with nulls."""
        empty = is_one_of(column, ["", *self.nulls])
        if not empty.any():
            return column
        return pc.if_else(pa.array(empty), pa.scalar(None, pa.string()), column.cast(pa.string()))

    def _parse_digits(self, origin: str, column: pa.Array, name: str) -> ParsedNumbers:
        found = _numbers_of(column)
        if self.nulls and (found.found == DigitsStatus.NO_NUMBER).any():
            found.found[(found.found == DigitsStatus.NO_NUMBER) & is_one_of(column, self.nulls)] = DigitsStatus.EMPTY
        for kind, reason in _DIGITS.items():
            self.refuse(found.found == kind, reason, name, origin)
        return found

    def u64(self, name: str, field: FieldSection) -> pa.Array:
        """Return a field as 64-bit unsigned integers."""
        return self._u64(*self._values(name, field), name)

    def _u64(self, origin: str, column: pa.Array, name: str) -> pa.Array:
        if pa.types.is_integer(column.type):
            return self._whole(column, name, origin)
        words, found = self._parse_digits(origin, column, name).u64()
        self.refuse(found == DigitsStatus.TOO_LARGE, "too_large", name, origin)
        missing = found != DigitsStatus.GOOD
        return pa.array(words, mask=missing if missing.any() else None)

    def heights(self, name: str, field: FieldSection) -> tuple[pa.Array, pa.Array | None]:
        """Read a field as block heights.

        Args:
            name: Column of the ledger.
            field: Source of the values: a number, or a revision, ``-`` and a number (``1-2241421``).

        Returns:
            Heights and revisions, uint64; the revisions are None if no height has one.
        """
        origin, column = self._values(name, field)
        if not _is_text(column.type):
            return self._u64(origin, column, name), None
        texts = column.cast(pa.string())
        odd = parse_numbers(texts).found == DigitsStatus.NO_NUMBER
        parts = pc.extract_regex(pc.if_else(pa.array(odd), texts, pa.scalar(None, pa.string())), _REVISED)
        revised = valid_mask(parts)
        if not revised.any():
            return self._u64(origin, column, name), None
        revision = pc.if_else(pa.array(revised), parts.field(0), pa.scalar(None, pa.string()))
        height = pc.if_else(pa.array(revised), parts.field(1), texts)
        self.refuse(_mask(pc.match_substring_regex(texts, _NO_BLOCK)), "ambiguous_height", name, origin)
        return self._u64(origin, height, name), self._u64(origin, revision, name.replace("height", "revision"))

    def _whole(self, column: pa.Array, name: str, origin: str) -> pa.Array:
        """Cast integers of at most 64 bits to unsigned ones; refuse negative values."""
        if pa.types.is_signed_integer(column.type) and column.null_count < len(column) and pc.min(column).as_py() < 0:
            negative = _mask(pc.less(column, 0))
            self.refuse(negative, "negative", name, origin)
            column = pc.if_else(pa.array(negative), pa.scalar(None, column.type), column)
        return column.cast(pa.uint64())

    def code(self, name: str, field: FieldSection) -> pa.Array:
        """Return a field as 63-bit integers: the code of an answer."""
        numbers = self.u64(name, field)
        large = _mask(pc.greater(numbers, pa.scalar(2**63 - 1, pa.uint64())))
        self.refuse(large, "too_large", name, (field.column or ["text"])[0])
        return pc.if_else(pa.array(large), pa.scalar(None, pa.uint64()), numbers).cast(pa.int64())

    def amount(self, field: AmountSection) -> list[pa.Array]:
        """Return a field as the four limb columns of an amount."""
        origin, column = self._values("amount", field)
        if _is_text(column.type):
            column = column.cast(pa.string())
            if field.base is None:
                self.refuse(_mask(has_leading_zero(column)), "ambiguous_number", "amount", origin)
            column = rewrite_base(column, field.base, self.nulls)
        return limb_columns(self._parse_digits(origin, column, "amount"))

    def time(self, name: str, field: TimeSection) -> pa.Array:
        """Return a field as times in UTC."""
        origin, column = self._values(name, field)
        if pa.types.is_dictionary(column.type):
            column = format_column(column)
        if self.nulls and pa.types.is_string(column.type):
            column = self._without_nulls(column)
        return parse_times(column, field, lambda bad, reason: self.refuse(bad, reason, name, origin))

    def _content(self, names: Sequence[str], hexadecimal: Collection[str]) -> pa.Array:
        """Return the first present column as texts, or as hexadecimal digits if one of them is."""
        if set(names).isdisjoint(hexadecimal):
            return self._first_of(names)[1]
        digits = {
            name: (_bare_digits if name in hexadecimal else _hex_digits)(format_column(self.values[name]))
            for name in names
            if name in self.values
        }
        return replace(self, values=digits)._first_of(names)[1]

    def payload_hash(
        self, content: Sequence[Sequence[str]], numbers: set[str], hexadecimal: Collection[str] = ()
    ) -> pa.Array:
        """Return a SHA-256 digest of columns, null where one of them is null.

        The digest covers, for each column in turn, the length as four bytes (little-endian) and the bytes. Spaces
        around a value are dropped. Hexadecimal digits after ``0x`` become lower case (40 or 64 of them also without the
        prefix). ``numbers`` lose ``+``, leading zeros and a zero fraction. If a list has hexadecimal columns, its other
        columns count as the digits of their texts.

        Args:
            content: Lists of column names; of each list the first present column counts.
            numbers: Names of numeric columns.
            hexadecimal: Names of hexadecimal columns.

        Returns:
            Digests, binary(32).
        """
        from causeway.ledger.ingest.text_loops import append_texts

        columns = [self._content(names, hexadecimal) for names in content]
        columns = [_without_empty(column if _is_text(column.type) else format_column(column)) for column in columns]
        valid = np.logical_and.reduce([valid_mask(column) for column in columns])
        parts = [_texts_of(column) for column in columns]
        sizes = np.zeros(self.count, dtype=np.int64)
        for _, begins, stops in parts:
            sizes += 6 + (stops - begins)
        if self.count >= _MANY:
            engines.load_engines(HashFunction.SHA256)
        # Splitting bounds memory: a long text of a dictionary may occur in many rows.
        cuts = np.flatnonzero(np.diff((np.cumsum(sizes) - 1) // _AT_ONCE, prepend=0)).tolist()
        found = []
        for first, end in pairwise([0, *(cut for cut in cuts if cut), self.count]):
            rows = slice(first, end)
            starts = np.cumsum(sizes[rows]) - sizes[rows]
            ends, out = starts.copy(), np.empty(int(sizes[rows].sum()), dtype=np.uint8)
            for names, (data, begins, stops) in zip(content, parts, strict=True):
                number = int(not numbers.isdisjoint(names))
                append_texts(data, begins[rows], stops[rows], valid[rows].view(np.uint8), number, ends, out)
            found.append(binary_rows(digest_slices(HashFunction.SHA256, out, starts, ends)).cast(pa.binary(32)))
        digests = pa.concat_arrays(found)
        return digests if valid.all() else pc.if_else(pa.array(valid), digests, pa.scalar(None, pa.binary(32)))


def is_one_of(column: pa.Array, texts: Sequence[str]) -> RowMask:
    """Return a mask of rows whose text is one of ``texts``.

    Args:
        column: Texts, a dictionary of texts, or a column that casts to texts.
        texts: The texts.

    Returns:
        Mask, shape (n,); null: False.
    """
    if pa.types.is_dictionary(column.type):
        is_one = _mask(pc.is_in(column.dictionary, pa.array(texts, pa.string())))
        found: RowMask = np.append(is_one, np.False_)[_indices(column)]
        return found
    texts_of = column if pa.types.is_string(column.type) else column.cast(pa.string())
    return _mask(pc.is_in(texts_of, pa.array(texts, pa.string())))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_dictionary(kind))


def _texts_of(column: pa.Array) -> tuple[Any, Any, Any]:
    """Return the bytes of a text column, and the begin and end of each row in them."""
    coded = pa.types.is_dictionary(column.type)
    data, offsets = text_slices(column.dictionary if coded else column)
    if not coded:
        return data, offsets[:-1], offsets[1:]
    rows = _indices(column)  # the last index stands for null: an empty text
    return data, np.append(offsets[:-1], 0)[rows], np.append(offsets[1:], 0)[rows]


def _without_empty(column: pa.Array) -> pa.Array:
    """Replace empty texts with nulls."""
    coded = pa.types.is_dictionary(column.type)
    texts = column.dictionary if coded else column
    if not len(texts) or pc.min(pc.binary_length(texts)).as_py() != 0:
        return column
    filled = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    return filled.take(column.indices).dictionary_encode() if coded else filled


def format_column(column: pa.Array) -> pa.Array:
    """Format a Parquet column as texts."""
    if pa.types.is_timestamp(column.type):
        return pc.strftime(column.cast(pa.timestamp("us", column.type.tz), safe=False), "%Y-%m-%dT%H:%M:%S")
    return column.cast(pa.string())


def _bare_digits(texts: pa.Array) -> pa.Array:
    """Return hexadecimal digits in lower case without ``0x``."""
    return pc.replace_substring_regex(pc.ascii_lower(texts), "^0x", "")


def _hex_digits(texts: pa.Array) -> pa.Array:
    """Return the bytes of texts as hexadecimal digits in lower case."""
    data, offsets = text_slices(texts)
    part = data[offsets[0] : offsets[-1]]
    digits = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)[np.stack([part >> 4, part & 15], axis=1)]
    ends = pa.py_buffer((2 * (offsets - offsets[0])).astype(np.int32))
    found = pa.Array.from_buffers(pa.string(), len(texts), [None, ends, pa.py_buffer(digits)])
    return pc.if_else(texts.is_valid(), found, pa.scalar(None, pa.string())) if texts.null_count else found


def _map_value(value: str | None, field: FieldSection) -> tuple[str | None, bool]:
    """Map a value by the rules of a field; return it and True if the field allows it."""
    if value is None:
        return None, True
    if field.split is not None and field.part is not None:
        by = next((each for each in field.split if each in value), field.split[0])
        parts = value.split(by)
        if field.part >= len(parts):
            return None, field.others == "null"
        value = parts[field.part]
    value = value.strip()
    value = value.lower() if field.ignore_case else value
    if value in field.values:
        return field.values[value], True
    if field.values and field.others != "keep":
        return None, field.others == "null"
    return value or None, True


def _indices(coded: pa.DictionaryArray) -> Any:
    indices = coded.indices.fill_null(-1) if coded.indices.null_count else coded.indices
    return indices.to_numpy(zero_copy_only=False)


def _mask(found: pa.Array) -> RowMask:
    return np.asarray(found.fill_null(False).to_numpy(zero_copy_only=False), dtype=bool)


_REVISED = r"^[ \t]*(?P<revision>[0-9]{1,20})-(?P<height>[0-9]{1,20})[ \t]*$"
"""A height preceded by the revision of its chain."""

_NO_BLOCK = r"^[ \t]*0*[1-9][0-9]*-0+[ \t]*$"
"""Height 0 of a revision is no block: ibc-go compares with it, @confio/relayer reads it as no time-out."""

_ZEROS = r"^([ \t]*\+?[0-9]+)\.0+([ \t]*)$"
"""An integer with a zero fraction, as writers of nullable columns produce."""


def _numbers_of(column: pa.Array) -> ParsedNumbers:
    if not pa.types.is_integer(column.type):
        texts = column if pa.types.is_string(column.type) else format_column(column)
        read = parse_numbers(texts)
        if not (read.found == DigitsStatus.NO_NUMBER).any():
            return read
        whole = parse_numbers(pc.replace_substring_regex(texts, _ZEROS, r"\1\2"))
        # Such writers round integers from 2**53 on, and use this form up to 10**16.
        words, found = whole.u64()
        rounded = (read.found == DigitsStatus.NO_NUMBER) & (found == DigitsStatus.GOOD)
        rounded &= (words >= np.uint64(1 << 53)) & (words < np.uint64(10**16))
        whole.found[rounded] = DigitsStatus.NO_NUMBER
        whole.words[rounded] = 0
        return whole
    valid = valid_mask(column)
    wide = column.fill_null(0)
    words = np.zeros((len(column), 4), dtype=np.uint64)
    found = np.where(valid, np.uint8(DigitsStatus.GOOD), np.uint8(DigitsStatus.EMPTY))
    if pa.types.is_unsigned_integer(column.type):
        words[:, 0] = wide.to_numpy()
    else:
        values = wide.to_numpy()
        found[values < 0] = DigitsStatus.NEGATIVE
        words[:, 0] = np.where(values < 0, 0, values).astype(np.uint64)
    return ParsedNumbers(words, found)
