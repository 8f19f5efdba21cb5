"""Records of a file as columns of texts: CSV, lines of JSON, Parquet.

What a record says is kept to the letter: numbers stay digits until somebody reads them exactly. What is no record as
its format has it is set aside with a reason.

Names of columns as a mapping knows them, however a file spells them.
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
    """Return a name without what does not count where names are compared loosely: case, spaces, ``-`` and ``_``."""
    return name.translate(_IGNORED).lower()


def match_names(names: Sequence[str], mapping: MappingDocument, where: str) -> list[str]:
    """Return the names of a file's columns as the mapping has them; those that it does not know are as they were.

    Of names that are compared loosely one that is spelt the same is that column; of others at most one may be. Raises
    ``BadFile``.
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
"""The type of columns of few different values."""


@dataclass(frozen=True)
class BrokenRecord:
    """A record that is set aside: its number from 1, why, and its text, cut off."""

    row: int
    reason: str
    text: str
    field: str | None = None
    value: str | None = None


@dataclass
class RecordColumns:
    """Records as columns. ``rows``: the number of each in its file (or piece), from 1; ``records``: how many were
    looked at, also broken ones and ``blank`` lines, which count in the numbers; ``values``: by name, texts or what
    Parquet has."""

    rows: npt.NDArray[np.uint64]
    values: dict[str, pa.Array]
    records: int
    broken: list[BrokenRecord] = field(default_factory=list)
    blank: int = 0

    def moved(self, first: int) -> RecordColumns:
        """Return the same of records before which ``first`` others stand."""
        if not first:
            return self
        broken = [replace(each, row=each.row + first) for each in self.broken]
        return replace(self, rows=self.rows + np.uint64(first), broken=broken)


def read_csv_header(line: bytes, delimiter: str, where: str) -> list[str]:
    """Return the names of the columns of CSV. Raises ``BadFile``."""
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
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise BadFile(
            f"{where}: column {format_value(twice)} is there twice; each needs a name of its own", "column_twice"
        )
    return names


def parse_csv(
    piece: RecordPiece, names: Sequence[str], wanted: Collection[str], delimiter: str, named: Collection[str] = ()
) -> RecordColumns:
    """Return the records of a piece of CSV. ``named``: columns of few different values, which become dictionaries."""
    if piece.broken is not None:
        return _set_aside(piece)
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
    """Return records that end at ``ends``. Where Arrow does not find just these, each half is read by itself, so that
    only some are set aside."""
    try:
        found = _csv_table(content, ends, names, wanted, delimiter, named)
    except pa.ArrowInvalid as error:
        found, why = None, str(error)
    else:
        why = "not one record"
    if found is not None and found.records == len(ends):
        return found
    if len(ends) == 1:
        if not content.strip():
            return RecordColumns(np.zeros(0, dtype=np.uint64), _empty(names, wanted), 1, [], 1)
        reason = "columns" if "Expected" in why else "not_csv"
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

    def refuse(row: Any) -> str:
        # A line without anything is a record of one empty field.
        (blank if not row.text.strip() else wrong).append(row.number)
        return "skip"

    chosen = [name for name in names if name in wanted]
    # Arrow hands the handler texts, and prints a trace where it cannot make one of a record's bytes.
    utf8 = _is_utf8(content)
    handler = refuse if utf8 else None

    def read(kinds: dict[str, pa.DataType]) -> pa.Table:
        wrong.clear()
        blank.clear()
        return pa_csv.read_csv(
            # Arrow leaves out a mark where what it is given begins; the one of the file went with its header.
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
    except pa.ArrowInvalid:  # perhaps only some text that is no UTF-8
        table = read(dict.fromkeys(chosen, pa.binary()))
    away = sorted(wrong + blank)
    records = table.num_rows + len(away)
    if records != len(ends):
        return RecordColumns(np.zeros(0, dtype=np.uint64), {}, records)
    rows = np.delete(np.arange(1, records + 1, dtype=np.uint64), np.array(away, dtype=np.int64) - 1)
    if len(names) > 1 and (empty := _empty_lines(content, ends)).size:
        # Arrow takes a line without anything for a record of empty fields.
        kept = ~np.isin(rows, empty)
        blank += rows[~kept].tolist()
        rows, table = rows[kept], table.filter(pa.array(kept))
    broken = [BrokenRecord(row, "columns", _text_of(content, ends, row)) for row in wrong]
    values = {name: table[name].combine_chunks() for name in chosen}
    found = RecordColumns(rows, values, records, broken, len(blank))
    return found if all(not pa.types.is_binary(value.type) for value in values.values()) else decode_text(found, values)


def _text_of(content: bytes, ends: npt.NDArray[np.int64], row: int) -> str:
    """Return a record, cut off."""
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
    """Return the numbers of records, from 1, that are empty lines."""
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
    """Return pieces one after the other as one."""
    every = list(parts)
    before = np.cumsum([0, *(part.records for part in every)])
    every = [part.moved(first) for part, first in zip(every, before.tolist(), strict=False)]
    rows = np.concatenate([part.rows for part in every])
    values = {name: pa.concat_arrays([part.values[name] for part in every]) for name in every[0].values}
    broken = [found for part in every for found in part.broken]
    return RecordColumns(rows, values, int(before[-1]), broken, sum(part.blank for part in every))


def parse_json_lines(piece: RecordPiece, wanted: Collection[str], *, loose: bool = False) -> RecordColumns:
    """Return the lines of a piece, a JSON object each. A column is a path of keys, ``origin.chainId``; what is not
    there, or null, is null. ``loose``: keys are compared without case, spaces, ``-`` and ``_``."""
    from causeway.ledger.ingest.text_loops import ABSENT, ESCAPED, FINE, NULL, read_lines

    if piece.broken is not None:
        return _set_aside(piece)
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
        column = _gathered(data, starts[good, slot], stops[good, slot], missing)
        escaped = np.flatnonzero(kind == ESCAPED)
        if len(escaped):
            texts = [_unescaped(value) for value in column.take(pa.array(escaped)).to_pylist()]
            mask = np.zeros(len(good), dtype=bool)
            mask[escaped] = True
            column = pa.compute.replace_with_mask(column, pa.array(mask), pa.array(texts, pa.binary()))
        binary[path] = column
    return decode_text(found, binary)


def _unescaped(value: bytes) -> bytes:
    """Return a text of JSON as bytes; half of a pair that stands for one letter is left as something that is no
    UTF-8."""
    try:
        text: str = json.loads(value)
    except ValueError:  # no UTF-8
        return value
    return text.encode("utf-8", "surrogatepass")


def build_path_tree(paths: Sequence[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Return the steps of paths as ``read_lines`` takes them."""
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
    # Children of a node are neighbours: breadth first.
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


def _gathered(data: Any, starts: Any, stops: Any, missing: Any) -> pa.Array:
    """Return slices of bytes as a column."""
    lengths = np.where(missing, 0, stops - starts)
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
    total = int(offsets[-1])
    places = np.arange(total) - np.repeat(offsets[:-1] - np.where(missing, 0, starts), lengths)
    mask = None if not missing.any() else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    buffers = [mask, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data[places])]
    return pa.Array.from_buffers(pa.binary(), len(starts), buffers)


def decode_text(found: RecordColumns, binary: dict[str, pa.Array]) -> RecordColumns:
    """Return records with texts for bytes; those that are no UTF-8 are set aside."""
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


def _set_aside(piece: RecordPiece) -> RecordColumns:
    text = piece.content.decode(errors="replace")
    return RecordColumns(np.zeros(0, dtype=np.uint64), {}, 1, [BrokenRecord(1, str(piece.broken), text)])
