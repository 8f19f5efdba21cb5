"""Read untrusted CBOR item by item, without recursion or skipped items.

Accepts definite lengths and shortest forms only.

Supports the types in certificates: arrays, maps, byte and text strings, unsigned numbers, null, one tag (RFC 8949).
"""

from __future__ import annotations

from causeway_proofs.errors import MalformedProof

UNSIGNED, BYTES, TEXT, ARRAY, MAP, TAG, SIMPLE = 0, 2, 3, 4, 5, 6, 7
_NAMES = {
    UNSIGNED: "an unsigned number",
    BYTES: "a byte string",
    TEXT: "a text",
    ARRAY: "an array",
    MAP: "a map",
    TAG: "a tag",
    SIMPLE: "a simple value",
}

NULL = 22
SELF_DESCRIBED = bytes.fromhex("d9d9f7")
"""The tag 55799 that marks a document as CBOR."""

_IMMEDIATE = 24
_LENGTHS = {24: 1, 25: 2, 26: 4, 27: 8}


class CborReader:
    """A position in ``data``; ``noun`` names it in messages, ``error`` is raised for any fault."""

    def __init__(self, data: bytes, noun: str, error: type[MalformedProof]) -> None:
        self._data = data
        self._at = 0
        self._noun = noun
        self._error = error

    def skip_self_description(self) -> None:
        """Skip the self-describing tag, if present."""
        if self._data.startswith(SELF_DESCRIBED, self._at):
            self._at += len(SELF_DESCRIBED)

    def head(self, major: int) -> int:
        """Read the head of an item of type ``major``; return its argument (value, length or count).

        Raises:
            MalformedProof: (as ``error``) another type, an indefinite length, not the shortest form, or the end of
                data.
        """
        start = self._at
        if start >= len(self._data):
            raise self.wrong(f"ends where {_NAMES[major]} is due")
        first = self._data[start]
        if first >> 5 != major:
            raise self.wrong(f"has {_NAMES.get(first >> 5, 'a negative number')} where {_NAMES[major]} is due")
        argument = first & 0x1F
        self._at += 1
        if argument < _IMMEDIATE:
            return argument
        width = _LENGTHS.get(argument)
        if width is None:
            raise self.wrong(f"has an indefinite length or a reserved head {first:#04x}")
        field = self._data[self._at : self._at + width]
        if len(field) < width:
            raise self.wrong("ends within a head")
        self._at += width
        value = int.from_bytes(field, "big")
        if value < (_IMMEDIATE if width == 1 else 1 << (4 * width)):
            raise self.wrong(f"writes {value} in {width} bytes: only the shortest form is read")
        return value

    def unsigned(self) -> int:
        """Read an unsigned number."""
        return self.head(UNSIGNED)

    def byte_string(self) -> bytes:
        """Read a byte string."""
        return self._string(BYTES)

    def text(self) -> str:
        """Read a text."""
        raw = self._string(TEXT)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise self.wrong("has a text that is not UTF-8") from None

    def null(self) -> bool:
        """Read null, if present; return True if it was."""
        if self._data[self._at : self._at + 1] != bytes([SIMPLE << 5 | NULL]):
            return False
        self._at += 1
        return True

    def end(self) -> None:
        """Reject trailing bytes."""
        left = len(self._data) - self._at
        if left:
            raise self.wrong(f"has {left} bytes after its end")

    def wrong(self, reason: str) -> MalformedProof:
        """Build the error for ``reason`` at this position."""
        return self._error(f"{self._noun} {reason} (at byte {self._at})")

    def _string(self, major: int) -> bytes:
        length = self.head(major)
        if length > len(self._data) - self._at:
            raise self.wrong(f"ends within {_NAMES[major]} of {length} bytes")
        start = self._at
        self._at += length
        return self._data[start : self._at]


def cbor_head(major: int, argument: int) -> bytes:
    """Return the shortest head of an item."""
    if argument < _IMMEDIATE:
        return bytes([major << 5 | argument])
    for code, width in _LENGTHS.items():
        if argument < 1 << (8 * width):
            return bytes([major << 5 | code]) + argument.to_bytes(width, "big")
    raise OverflowError(f"{argument} does not fit into a CBOR head")


def cbor_bytes(value: bytes) -> bytes:
    """Encode a byte string."""
    return cbor_head(BYTES, len(value)) + value


def cbor_text(value: str) -> bytes:
    """Encode a text."""
    raw = value.encode("utf-8")
    return cbor_head(TEXT, len(raw)) + raw
