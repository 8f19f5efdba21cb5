"""What the footer of a Parquet file says of its row groups, read here: the library ends the process where what a column
says of itself does not fit together.

Source: the Parquet format's ``parquet.thrift``, in Thrift's compact protocol.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from causeway.ingest.chunks import Stream

MAGIC = b"PAR1"
MOST_FOOTER = 64 << 20
"""Bytes of a footer."""

_MOST_DEPTH = 32
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _TEXT, _LIST, _SET, _MAP, _STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 11, 12
_WHOLE = (4, 5, 6)
_BYTE_ARRAY, _DELTA_BYTE_ARRAY = 6, 7


@dataclass
class Chunk:
    """A column of a row group. ``path``: its name, those within structs with points; ``packed``, ``unpacked``: its
    bytes; ``is_text``: whether its values are bytes of any length, ``shares``: each written as what differs from the
    one before, ``has_dictionary``: or each once."""

    path: str = ""
    packed: int = 0
    unpacked: int = 0
    is_text: bool = False
    shares: bool = False
    has_dictionary: bool = False


@dataclass
class Group:
    """A row group."""

    rows: int = 0
    chunks: list[Chunk] = field(default_factory=list)


def groups_of(stream: Stream, size: int) -> list[Group]:
    """Return the row groups of a file of ``size`` bytes, which can be moved in. Raises ``ValueError`` with the reason
    for a footer that is none."""
    stream.seek(max(size - 8, 0))
    end = stream.read(8)
    if len(end) < 8 or end[4:] != MAGIC:
        raise ValueError("it does not end as a Parquet file does")
    length = int.from_bytes(end[:4], "little")
    if length > min(size - 12, MOST_FOOTER):
        raise ValueError(f"a footer of {length:,} bytes; the file has {size:,}, and a footer {MOST_FOOTER:,} at most")
    stream.seek(size - 8 - length)
    reader = _Reader(stream.read(length))
    found: list[Group] = []
    for number, kind in reader.fields():
        if (number, kind) == (4, _LIST):
            found = [_group(reader, size) for _ in reader.elements(_STRUCT)]
        else:
            reader.skip(kind)
    return found


def _group(reader: _Reader, size: int) -> Group:
    found = Group()
    for number, kind in reader.fields():
        if (number, kind) == (1, _LIST):
            found.chunks = [_chunk(reader, size) for _ in reader.elements(_STRUCT)]
        elif number == 3 and kind in _WHOLE:
            found.rows = reader.whole()
        else:
            reader.skip(kind)
    if found.rows < 0:
        raise ValueError(f"a row group of {found.rows:,} rows")
    return found


def _chunk(reader: _Reader, size: int) -> Chunk:
    found = Chunk()
    for number, kind in reader.fields():
        if (number, kind) == (3, _STRUCT):
            found = _said(reader, size)
        elif (number, kind) == (1, _TEXT) and reader.text():
            raise ValueError("a column that is in another file")
        elif (number, kind) != (1, _TEXT):
            reader.skip(kind)
    return found


def _said(reader: _Reader, size: int) -> Chunk:
    found = Chunk()
    for number, kind in reader.fields():
        if number == 1 and kind in _WHOLE:
            found.is_text = reader.whole() == _BYTE_ARRAY
        elif (number, kind) == (2, _LIST):
            found.shares = _DELTA_BYTE_ARRAY in [reader.whole() for _ in reader.elements(*_WHOLE)]
        elif (number, kind) == (3, _LIST):
            found.path = ".".join(reader.text().decode(errors="replace") for _ in reader.elements(_TEXT))
        elif number == 6 and kind in _WHOLE:
            found.unpacked = reader.whole()
        elif number == 7 and kind in _WHOLE:
            found.packed = reader.whole()
        else:
            found.has_dictionary |= number == 11
            reader.skip(kind)
    if not 0 <= found.packed <= size or found.unpacked < 0:
        raise ValueError(f"a column of {found.packed:,} bytes, {found.unpacked:,} unpacked, in a file of {size:,}")
    return found


class _Reader:
    """Bytes of the compact protocol. Whatever they are, reading ends: each step takes at least one of them."""

    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    def byte(self) -> int:
        if self._at >= len(self._content):
            raise ValueError("its footer is cut off")
        self._at += 1
        return self._content[self._at - 1]

    def number(self) -> int:
        """Return a number without a sign, of up to 64 bits."""
        found = shift = 0
        while True:
            byte = self.byte()
            found |= (byte & 127) << shift
            if byte < 128:
                return found & (1 << 64) - 1
            shift += 7
            if shift > 63:
                raise ValueError("its footer has a number of more than 64 bits")

    def whole(self) -> int:
        """Return a number with a sign."""
        found = self.number()
        return (found >> 1) ^ -(found & 1)

    def text(self) -> bytes:
        length = self.number()
        self._forward(length)
        return self._content[self._at - length : self._at]

    def fields(self) -> Any:
        """Yield number and type of each field of a struct, whose value is read or skipped before the next."""
        number = 0
        while (head := self.byte()) & 15 != _STOP:
            number = number + (head >> 4) if head >> 4 else self.whole()
            yield number, head & 15

    def elements(self, *kinds: int) -> range:
        """Return the places of a list, whose elements are of one of some types."""
        count, kind = self._list()
        if count and kind not in kinds:
            raise ValueError("its footer has a list of another type")
        return range(count)

    def skip(self, kind: int, depth: int = 0) -> None:
        """Go behind a value."""
        if depth > _MOST_DEPTH:
            raise ValueError(f"its footer is nested more than {_MOST_DEPTH} deep")
        if kind in (_TRUE, _FALSE):
            return
        if kind == _BYTE:
            self.byte()
        elif kind in _WHOLE:
            self.number()
        elif kind == _DOUBLE:
            self._forward(8)
        elif kind == _TEXT:
            self._forward(self.number())
        elif kind in (_LIST, _SET):
            count, of = self._list()
            for _ in range(count):
                self.skip(_BYTE if of in (_TRUE, _FALSE) else of, depth + 1)
        elif kind == _MAP:
            count = self._counted(self.number())
            kinds = self.byte() if count else 0
            for _ in range(count):
                self.skip(kinds >> 4, depth + 1)
                self.skip(kinds & 15, depth + 1)
        elif kind == _STRUCT:
            for _, of in self.fields():
                self.skip(of, depth + 1)
        else:
            raise ValueError(f"its footer has a value of type {kind}")

    def _list(self) -> tuple[int, int]:
        head = self.byte()
        return self._counted(self.number() if head >> 4 == 15 else head >> 4), head & 15

    def _counted(self, count: int) -> int:
        if count > len(self._content) - self._at:
            raise ValueError("its footer has a list that is longer than itself")
        return count

    def _forward(self, length: int) -> None:
        if length > len(self._content) - self._at:
            raise ValueError("its footer is cut off")
        self._at += length


__all__ = ["MOST_FOOTER", "Chunk", "Group", "groups_of"]
