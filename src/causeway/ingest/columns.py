"""Records of a file as columns of texts: CSV, lines of JSON, Parquet.

What a record says is kept to the letter: numbers stay digits until somebody reads them exactly. What is no record as
its format has it is set aside with a reason.
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

from causeway.ingest.chunks import SHOWN, BadFile, Piece, record_ends
from causeway.ingest.naming import folded
from causeway.model.text import shown

MOST_COLUMNS = 4096
NAMED = pa.dictionary(pa.int32(), pa.string())
"""The type of columns of few different values."""


@dataclass(frozen=True)
class Broken:
    """A record that is set aside: its number from 1, why, and its text, cut off."""

    row: int
    reason: str
    text: str
    field: str | None = None
    value: str | None = None


@dataclass
class Columns:
    """Records as columns. ``rows``: the number of each in its file (or piece), from 1; ``records``: how many were
    looked at, also broken ones and ``blank`` lines, which count in the numbers; ``values``: by name, texts or what
    Parquet has."""

    rows: npt.NDArray[np.uint64]
    values: dict[str, pa.Array]
    records: int
    broken: list[Broken] = field(default_factory=list)
    blank: int = 0

    def moved(self, first: int) -> Columns:
        """Return the same of records before which ``first`` others stand."""
        if not first:
            return self
        broken = [replace(each, row=each.row + first) for each in self.broken]
        return replace(self, rows=self.rows + np.uint64(first), broken=broken)


def header_of(line: bytes, delimiter: str, where: str) -> list[str]:
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
    if len(names) > MOST_COLUMNS:
        raise BadFile(f"{where}: {len(names):,} columns; a file has {MOST_COLUMNS:,} at most", "too_large")
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise BadFile(f"{where}: column {shown(twice)} is there twice; each needs a name of its own", "column_twice")
    return names


def csv_columns(
    piece: Piece, names: Sequence[str], wanted: Collection[str], delimiter: str, named: Collection[str] = ()
) -> Columns:
    """Return the records of a piece of CSV. ``named``: columns of few different values, which become dictionaries."""
    if piece.broken is not None:
        return _set_aside(piece)
    content = piece.content
    ends = record_ends(content, delimiter.encode()) if piece.ends is None else piece.ends
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
) -> Columns:
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
            return Columns(np.zeros(0, dtype=np.uint64), _empty(names, wanted), 1, [], 1)
        reason = "columns" if "Expected" in why else "not_csv"
        broken = Broken(1, reason, _text_of(content, ends, 1))
        return Columns(np.zeros(0, dtype=np.uint64), _empty(names, wanted), 1, [broken])
    half = len(ends) // 2
    cut = int(ends[half - 1])
    parts = ((content[:cut], ends[:half]), (content[cut:], ends[half:] - cut))
    return joined(_csv_records(part, own, names, wanted, delimiter, ()) for part, own in parts)


def _csv_table(
    content: bytes,
    ends: npt.NDArray[np.int64],
    names: Sequence[str],
    wanted: Collection[str],
    delimiter: str,
    named: Collection[str],
) -> Columns:
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
        return Columns(np.zeros(0, dtype=np.uint64), {}, records)
    rows = np.delete(np.arange(1, records + 1, dtype=np.uint64), np.array(away, dtype=np.int64) - 1)
    if len(names) > 1 and (empty := _empty_lines(content, ends)).size:
        # Arrow takes a line without anything for a record of empty fields.
        kept = ~np.isin(rows, empty)
        blank += rows[~kept].tolist()
        rows, table = rows[kept], table.filter(pa.array(kept))
    broken = [Broken(row, "columns", _text_of(content, ends, row)) for row in wrong]
    values = {name: table[name].combine_chunks() for name in chosen}
    found = Columns(rows, values, records, broken, len(blank))
    return found if all(not pa.types.is_binary(value.type) for value in values.values()) else decoded(found, values)


def _text_of(content: bytes, ends: npt.NDArray[np.int64], row: int) -> str:
    """Return a record, cut off."""
    begin = int(ends[row - 2]) if row > 1 else 0
    return content[begin : min(int(ends[row - 1]), begin + SHOWN)].rstrip(b"\r\n").decode(errors="replace")


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


def joined(parts: Iterator[Columns]) -> Columns:
    """Return pieces one after the other as one."""
    every = list(parts)
    before = np.cumsum([0, *(part.records for part in every)])
    every = [part.moved(first) for part, first in zip(every, before.tolist(), strict=False)]
    rows = np.concatenate([part.rows for part in every])
    values = {name: pa.concat_arrays([part.values[name] for part in every]) for name in every[0].values}
    broken = [found for part in every for found in part.broken]
    return Columns(rows, values, int(before[-1]), broken, sum(part.blank for part in every))


def json_columns(piece: Piece, wanted: Collection[str], *, loose: bool = False) -> Columns:
    """Return the lines of a piece, a JSON object each. A column is a path of keys, ``origin.chainId``; what is not
    there, or null, is null. ``loose``: keys are compared without case, spaces, ``-`` and ``_``."""
    from causeway.ingest.text_loops import ABSENT, ESCAPED, FINE, NULL, read_lines

    if piece.broken is not None:
        return _set_aside(piece)
    ends = record_ends(piece.content, None) if piece.ends is None else piece.ends
    if not len(ends) or ends[-1] < len(piece.content):
        ends = np.append(ends, len(piece.content))
    begins = np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1]])
    data = np.frombuffer(piece.content, dtype=np.uint8)
    paths = sorted(wanted)
    tree, keys = tree_of([folded(path) for path in paths] if loose else paths)
    shape = (len(ends), max(len(paths), 1))
    starts, stops = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    kinds, faults = np.full(shape, ABSENT, dtype=np.uint8), np.empty(len(ends), dtype=np.uint8)
    read_lines(data, begins, ends, tree, keys, int(loose), starts, stops, kinds, faults)
    broken, blank = [], 0
    for row in np.flatnonzero(faults != FINE).tolist():
        text = piece.content[begins[row] : ends[row]]
        if text.strip():
            reason = ("", "not_json", "too_deep", "key_twice")[faults[row]]
            broken.append(Broken(row + 1, reason, text[:SHOWN].decode(errors="replace")))
        else:
            blank += 1
    good = np.flatnonzero(faults == FINE)
    found = Columns((good + 1).astype(np.uint64), {}, len(ends), broken, blank)
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
    return decoded(found, binary)


def _unescaped(value: bytes) -> bytes:
    """Return a text of JSON as bytes; half of a pair that stands for one letter is left as something that is no
    UTF-8."""
    try:
        text: str = json.loads(value)
    except ValueError:  # no UTF-8
        return value
    return text.encode("utf-8", "surrogatepass")


def tree_of(paths: Sequence[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
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


def decoded(found: Columns, binary: dict[str, pa.Array]) -> Columns:
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
            value = binary[name][row].as_py()[:SHOWN].decode(errors="replace")
            found.broken.append(Broken(int(found.rows[row]), "not_utf8", value, name, value))
        good = pa.array(np.flatnonzero(~bad))
        found.rows = found.rows[~bad]
        found.values = {name: column.take(good).cast(pa.string()) for name, column in binary.items()}
    return found


def _set_aside(piece: Piece) -> Columns:
    text = piece.content.decode(errors="replace")
    return Columns(np.zeros(0, dtype=np.uint64), {}, 1, [Broken(1, str(piece.broken), text)])


__all__ = ["NAMED", "Broken", "Columns", "csv_columns", "decoded", "header_of", "json_columns"]
