"""Parse records of CSV and JSON lines to columns of texts.

Values keep their exact text: numbers stay digits until a field reads them. Invalid records get a reason. Column names
are matched to those of a mapping, exactly or loosely.
"""

from __future__ import annotations

import codecs
import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pa_csv

from causeway.core.text import format_value
from causeway.ledger.ingest.chunks import MAX_EXCERPT, BadFile, RecordPiece, find_record_ends
from causeway.ledger.ingest.mapping import MappingDocument

__all__ = [
    "NAMED",
    "BrokenRecord",
    "RecordColumns",
    "decode_text",
    "fold_name",
    "match_names",
    "parse_csv",
    "parse_json_lines",
    "read_csv_header",
]

_IGNORED = str.maketrans("", "", " _-")


def fold_name(name: str) -> str:
    """Return a name for loose comparison: lower case, without spaces, ``-`` and ``_``.

    Args:
        name: Name of a column.

    Returns:
        The folded name.
    """
    return name.translate(_IGNORED).lower()


def match_names(names: Sequence[str], mapping: MappingDocument, where: str) -> list[str]:
    """Map the column names of a file to the names of a mapping; unknown names stay.

    In a loose comparison an exact match wins; otherwise only one column may match a name.

    Args:
        names: Column names of the file.
        mapping: The mapping.
        where: Name of the file.

    Returns:
        The matched names.

    Raises:
        BadFile: Two columns match one name.
    """
    if mapping.names == "exact":
        return list(names)
    wanted = mapping.columns()
    missing = {fold_name(name): name for name in sorted(wanted - {*names}, reverse=True)}
    found: dict[str, str] = {}
    known = [*names]
    for place, name in enumerate(names):
        meant = missing.get(fold_name(name))
        if meant is None or name in wanted:
            continue
        if meant in found:
            both = f"{format_value(found[meant])} and {format_value(name)}"
            text = f"{where}: columns {both} are both {meant}; one may be there"
            raise BadFile(text, "column_twice")
        found[meant], known[place] = name, meant
    return known


MAX_COLUMNS = 4096
NAMED = pa.dictionary(pa.int32(), pa.string())
"""Type of columns with few distinct values."""


@dataclass(frozen=True)
class BrokenRecord:
    """A rejected record: its number from 1, the reason, and its truncated text."""

    row: int
    reason: str
    text: str
    field: str | None = None
    value: str | None = None


@dataclass
class RecordColumns:
    """Records as columns.

    Attributes:
        rows: Number of each record in its file or piece, from 1, uint64.
        values: Columns by name: texts, or types of Parquet.
        records: Number of records, including broken ones and blank lines.
        broken: Rejected records.
        blank: Number of blank lines.
    """

    rows: npt.NDArray[np.uint64]
    values: dict[str, pa.Array]
    records: int
    broken: list[BrokenRecord] = field(default_factory=list)
    blank: int = 0

    def moved(self, first: int) -> RecordColumns:
        """Return the records with their numbers shifted by ``first``."""
        if not first:
            return self
        broken = [replace(each, row=each.row + first) for each in self.broken]
        return replace(self, rows=self.rows + np.uint64(first), broken=broken)


def read_csv_header(line: bytes, delimiter: str, where: str) -> list[str]:
    """Return the column names of CSV.

    Args:
        line: Header line without its line end, UTF-8.
        delimiter: Field separator.
        where: Name of the file, for messages.

    Returns:
        Names in file order, without surrounding spaces; at most ``MAX_COLUMNS``.

    Raises:
        BadFile: The header is invalid.
    """
    import csv

    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadFile(f"{where}: not UTF-8 text (byte {error.start} of its header)", "not_utf8") from None
    try:
        names = [name.strip() for name in next(csv.reader([text], delimiter=delimiter), [])]
    except csv.Error as error:
        raise BadFile(f"{where}: its first line has no names of columns: {error}", "no_columns") from None
    if not any(names):
        raise BadFile(f"{where}: its first line has no names of columns", "no_columns")
    if len(names) > MAX_COLUMNS:
        raise BadFile(f"{where}: {len(names):,} columns; a file has {MAX_COLUMNS:,} at most", "too_large")
    duplicate = next((name for name, count in Counter(names).items() if count > 1), None)
    if duplicate is not None:
        raise BadFile(
            f"{where}: column {format_value(duplicate)} is there twice; each needs a name of its own", "column_twice"
        )
    return names


def parse_csv(
    piece: RecordPiece, names: Sequence[str], wanted: Collection[str], delimiter: str, named: Collection[str] = ()
) -> RecordColumns:
    """Parse a piece of CSV. ``named``: columns with few distinct values, read as dictionaries.

    Args:
        piece: Whole records of a CSV file.
        names: Names of all columns, in file order.
        wanted: Names of the columns to read.
        delimiter: Field separator.
        named: Columns with few distinct values.

    Returns:
        The records, numbered from 1 in the piece.
    """
    if piece.broken is not None:
        return _reject_piece(piece)
    content = piece.content
    ends = find_record_ends(content, delimiter.encode()) if piece.ends is None else piece.ends
    if not len(ends) or ends[-1] < len(content):
        ends = np.append(ends, len(content))
    return _csv_records(content, ends, names, wanted, delimiter, named)


def _csv_records(
    content: bytes,
    ends: npt.NDArray[np.int64],
    names: Sequence[str],
    wanted: Collection[str],
    delimiter: str,
    named: Collection[str],
) -> RecordColumns:
    """Parse records that end at ``ends``.

    If Arrow finds other records, each half is parsed separately, so that few records are rejected.
    """
    try:
        found = _csv_table(content, ends, names, wanted, delimiter, named)
    except pa.ArrowInvalid as error:
        found, reason_text = None, str(error)
    else:
        reason_text = "not one record"
    if found is not None and found.records == len(ends):
        return found
    if len(ends) == 1:
        if not content.strip():
            return RecordColumns(np.zeros(0, dtype=np.uint64), _empty(names, wanted), 1, [], 1)
        reason = "columns" if "Expected" in reason_text else "not_csv"
        broken = BrokenRecord(1, reason, _text_of(content, ends, 1))
        return RecordColumns(np.zeros(0, dtype=np.uint64), _empty(names, wanted), 1, [broken])
    half = len(ends) // 2
    cut = int(ends[half - 1])
    parts = ((content[:cut], ends[:half]), (content[cut:], ends[half:] - cut))
    return merge_columns(_csv_records(part, own, names, wanted, delimiter, ()) for part, own in parts)


def _csv_table(
    content: bytes,
    ends: npt.NDArray[np.int64],
    names: Sequence[str],
    wanted: Collection[str],
    delimiter: str,
    named: Collection[str],
) -> RecordColumns:
    wrong: list[int] = []
    blank: list[int] = []

    def reject(row: Any) -> str:
        # An empty line is a record of one empty field.
        (blank if not row.text.strip() else wrong).append(row.number)
        return "skip"

    chosen = [name for name in names if name in wanted]
    # Arrow passes records as text to the handler, and prints a trace for invalid UTF-8.
    utf8 = _is_utf8(content)
    handler = reject if utf8 else None

    def read(kinds: dict[str, pa.DataType]) -> pa.Table:
        wrong.clear()
        blank.clear()
        return pa_csv.read_csv(
            # Arrow drops a leading byte order mark; that of the file went with its header, so this one is content.
            pa.BufferReader(codecs.BOM_UTF8 + content if content.startswith(codecs.BOM_UTF8) else content),
            read_options=pa_csv.ReadOptions(use_threads=False, block_size=len(content) + 1, column_names=list(names)),
            parse_options=pa_csv.ParseOptions(
                delimiter=delimiter,
                newlines_in_values=b'"' in content,
                ignore_empty_lines=False,
                invalid_row_handler=handler,
            ),
            convert_options=pa_csv.ConvertOptions(
                column_types=kinds,
                include_columns=chosen,
                check_utf8=not utf8,
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
                null_values=[""],
            ),
        )

    try:
        table = read({name: NAMED if name in named else pa.string() for name in chosen})
    except pa.ArrowInvalid:  # perhaps some text is invalid UTF-8
        table = read(dict.fromkeys(chosen, pa.binary()))
    skipped = sorted(wrong + blank)
    records = table.num_rows + len(skipped)
    if records != len(ends):
        return RecordColumns(np.zeros(0, dtype=np.uint64), {}, records)
    rows = np.delete(np.arange(1, records + 1, dtype=np.uint64), np.array(skipped, dtype=np.int64) - 1)
    if len(names) > 1 and (empty := _empty_lines(content, ends)).size:
        # Arrow reads an empty line as a record of empty fields.
        nonempty = ~np.isin(rows, empty)
        blank += rows[~nonempty].tolist()
        rows, table = rows[nonempty], table.filter(pa.array(nonempty))
    broken = [BrokenRecord(row, "columns", _text_of(content, ends, row)) for row in wrong]
    values = {name: table[name].combine_chunks() for name in chosen}
    found = RecordColumns(rows, values, records, broken, len(blank))
    return found if all(not pa.types.is_binary(value.type) for value in values.values()) else decode_text(found, values)


def _text_of(content: bytes, ends: npt.NDArray[np.int64], row: int) -> str:
    """Return the truncated text of a record."""
    begin = int(ends[row - 2]) if row > 1 else 0
    return content[begin : min(int(ends[row - 1]), begin + MAX_EXCERPT)].rstrip(b"\r\n").decode(errors="replace")


def _is_utf8(content: bytes) -> bool:
    if content.isascii():
        return True
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _empty_lines(content: bytes, ends: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Return the numbers of empty lines, from 1."""
    lengths = np.diff(ends, prepend=0)
    short = np.flatnonzero(lengths <= 2)
    if not len(short):
        return np.zeros(0, dtype=np.uint64)
    data = np.frombuffer(content, dtype=np.uint8)
    of_short, lengths, last = ends[short], lengths[short], data[ends[short] - 1]
    empty = (lengths == 1) & ((last == 10) | (last == 13))
    empty |= (lengths == 2) & (last == 10) & (data[np.maximum(of_short - 2, 0)] == 13)
    found: npt.NDArray[np.uint64] = short[empty].astype(np.uint64) + np.uint64(1)
    return found


def _empty(names: Sequence[str], wanted: Collection[str]) -> dict[str, pa.Array]:
    return {name: pa.array([], pa.string()) for name in names if name in wanted}


def merge_columns(parts: Iterator[RecordColumns]) -> RecordColumns:
    """Concatenate consecutive pieces."""
    every = list(parts)
    before = np.cumsum([0, *(part.records for part in every)])
    every = [part.moved(first) for part, first in zip(every, before.tolist(), strict=False)]
    rows = np.concatenate([part.rows for part in every])
    values = {name: pa.concat_arrays([part.values[name] for part in every]) for name in every[0].values}
    broken = [found for part in every for found in part.broken]
    return RecordColumns(rows, values, int(before[-1]), broken, sum(part.blank for part in every))


def parse_json_lines(piece: RecordPiece, wanted: Collection[str], *, loose: bool = False) -> RecordColumns:
    """Parse a piece of JSON lines, one object a line.

    A column is a path of keys, ``origin.chainId``; missing values are null.

    Args:
        piece: The piece.
        wanted: Names of columns.
        loose: Compare keys without case, spaces, ``-`` and ``_``.

    Returns:
        The records.
    """
    from causeway.ledger.ingest.text_loops import ABSENT, ESCAPED, FINE, NULL, read_lines

    if piece.broken is not None:
        return _reject_piece(piece)
    ends = find_record_ends(piece.content, None) if piece.ends is None else piece.ends
    if not len(ends) or ends[-1] < len(piece.content):
        ends = np.append(ends, len(piece.content))
    begins = np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1]])
    data = np.frombuffer(piece.content, dtype=np.uint8)
    paths = sorted(wanted)
    tree, keys = build_path_tree([fold_name(path) for path in paths] if loose else paths)
    shape = (len(ends), max(len(paths), 1))
    starts, stops = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    kinds, faults = np.full(shape, ABSENT, dtype=np.uint8), np.empty(len(ends), dtype=np.uint8)
    read_lines(data, begins, ends, tree, keys, int(loose), starts, stops, kinds, faults)
    broken, blank = [], 0
    for row in np.flatnonzero(faults != FINE).tolist():
        text = piece.content[begins[row] : ends[row]]
        if text.strip():
            reason = ("", "not_json", "too_deep", "key_twice")[faults[row]]
            broken.append(BrokenRecord(row + 1, reason, text[:MAX_EXCERPT].decode(errors="replace")))
        else:
            blank += 1
    good = np.flatnonzero(faults == FINE)
    found = RecordColumns((good + 1).astype(np.uint64), {}, len(ends), broken, blank)
    binary = {}
    for slot, path in enumerate(paths):
        kind = kinds[good, slot]
        missing = (kind == ABSENT) | (kind == NULL)
        column = _gather_slices(data, starts[good, slot], stops[good, slot], missing)
        escaped = np.flatnonzero(kind == ESCAPED)
        if len(escaped):
            texts = [_unescape(value) for value in column.take(pa.array(escaped)).to_pylist()]
            mask = np.zeros(len(good), dtype=bool)
            mask[escaped] = True
            column = pa.compute.replace_with_mask(column, pa.array(mask), pa.array(texts, pa.binary()))
        binary[path] = column
    return decode_text(found, binary)


def _unescape(value: bytes) -> bytes:
    """Unescape a JSON text to bytes; an unpaired surrogate becomes invalid UTF-8."""
    try:
        text: str = json.loads(value)
    except ValueError:  # invalid UTF-8
        return value
    return text.encode("utf-8", "surrogatepass")


def build_path_tree(paths: Sequence[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Build the tree of path steps that ``read_lines`` needs."""
    below: list[dict[str, int]] = [{}]
    slots = [-1]
    names = [""]
    for slot, path in enumerate(paths):
        node = 0
        for step in path.split("."):
            if step not in below[node]:
                below[node][step] = len(below)
                below.append({})
                slots.append(-1)
                names.append(step)
            node = below[node][step]
        slots[node] = slot
    # Breadth first, so that the children of a node are adjacent.
    order, places = [0], {0: 0}
    for node in order:
        for child in below[node].values():
            places[child] = len(order)
            order.append(child)
    tree = np.zeros((len(order), 5), dtype=np.int64)
    keys = b""
    for place, node in enumerate(order):
        children = [places[child] for child in below[node].values()]
        name = names[node].encode()
        first = min(children, default=0)
        tree[place] = (first, first + len(children), len(keys), len(name), slots[node])
        keys += name
    return tree, np.frombuffer(keys or b"\0", dtype=np.uint8)


def _gather_slices(data: Any, starts: Any, stops: Any, missing: Any) -> pa.Array:
    """Gather slices of bytes to a column."""
    lengths = np.where(missing, 0, stops - starts)
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
    total = int(offsets[-1])
    places = np.arange(total) - np.repeat(offsets[:-1] - np.where(missing, 0, starts), lengths)
    mask = None if not missing.any() else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    buffers = [mask, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data[places])]
    return pa.Array.from_buffers(pa.binary(), len(starts), buffers)


def decode_text(found: RecordColumns, binary: dict[str, pa.Array]) -> RecordColumns:
    """Decode columns of bytes to texts; reject records with invalid UTF-8.

    Args:
        found: The records; it is modified.
        binary: Columns of bytes by name, one value a record.

    Returns:
        ``found`` with the texts; records with invalid UTF-8 move to ``broken``.
    """
    bad = np.zeros(len(found.rows), dtype=bool)
    reasons: dict[int, str] = {}
    for name, column in binary.items():
        try:
            found.values[name] = column.cast(pa.string())
        except pa.ArrowInvalid:
            for row, value in enumerate(column.to_pylist()):
                try:
                    (value or b"").decode()
                except UnicodeDecodeError:
                    bad[row] = True
                    reasons.setdefault(row, name)
    if bad.any():
        for row, name in sorted(reasons.items()):
            value = binary[name][row].as_py()[:MAX_EXCERPT].decode(errors="replace")
            found.broken.append(BrokenRecord(int(found.rows[row]), "not_utf8", value, name, value))
        good = pa.array(np.flatnonzero(~bad))
        found.rows = found.rows[~bad]
        found.values = {name: column.take(good).cast(pa.string()) for name, column in binary.items()}
    return found


def _reject_piece(piece: RecordPiece) -> RecordColumns:
    text = piece.content.decode(errors="replace")
    return RecordColumns(np.zeros(0, dtype=np.uint64), {}, 1, [BrokenRecord(1, str(piece.broken), text)])
