"""Encode and decode SCALE one value at a time, accepting only the canonical encoding.

SCALE admits several encodings of one value: padded compact integers, option bytes other than 1, sets and maps out of
order. A message with several encodings cannot be told from a tampered one, so all but the canonical encoding are
rejected.

A codec is a pair of functions, built for each shape of ``scale_shapes``. Whole columns of the same types go through
``scale_columns``, whose compiled loops follow the same rules and take tenths of a second to load. Both report the same
faults.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, NoReturn

from causeway_proofs.errors import InvalidInput, OverLimit, ProofError
from causeway_proofs.limits import MAX_PROOF_BYTES, require_length
from causeway_proofs.substrate import scale_shapes as wrong
from causeway_proofs.substrate.byte_columns import compact_length, decode_compact, encode_compact
from causeway_proofs.substrate.errors import FailedToDecode
from causeway_proofs.substrate.scale_shapes import (
    NULL,
    Array,
    Bits,
    Bool,
    ByteString,
    Compact,
    Enum,
    FixedBytes,
    Number,
    Optional,
    Sequence,
    Shape,
    Struct,
    Tuple,
    parse_shape,
    split_types,
)

Codec = tuple[Callable[[bytes, int], tuple[Any, int]], Callable[[Any], bytes]]
"""A reader and a writer.

The reader returns the value at an offset and the next offset, or raises ``ScaleFault``. The writer returns the encoding
of a value, or raises ``InvalidInput``.
"""

_Refuse = Callable[[Any, str], NoReturn]


class ScaleFault(Exception):
    """A fault in an encoding: code (see ``scale_shapes``), byte, path, and exceeded limit."""

    def __init__(self, code: int, at: int, path: str, most: int = 0) -> None:
        self.code, self.at, self.path, self.most = code, at, path, most


def create_codec(shape: Shape, name: str, path: str = "") -> Codec:
    """Build the codec of a shape at ``path``; ``name`` stands for an empty path in messages."""
    display_path = path or name

    def refuse(value: Any, expected: str) -> NoReturn:
        raise InvalidInput(f"no value of the SCALE type {name}: {display_path}: {value!r:.80} is no {expected}")

    def below(part: Shape, field: str) -> Codec:
        return create_codec(part, name, f"{path}.{field}" if path else field)

    match shape:
        case Number():
            return _number(shape, display_path, refuse)
        case Compact():
            return _compact(shape, display_path, refuse)
        case Bool():
            return _bool(display_path, refuse)
        case FixedBytes():
            return _fixed(shape.width, display_path, refuse)
        case ByteString():
            return _text(display_path, refuse) if shape.text else _string(display_path, refuse)
        case Bits():
            return _bits(display_path, refuse)
        case Optional():
            return _optional(create_codec(shape.inner, name, path), display_path)
        case Sequence():
            return _sequence(shape, name, display_path, refuse)
        case Array():
            return _array(shape.length, create_codec(shape.inner, name, display_path + "[]"), refuse)
        case Tuple():
            return _tuple([below(part, str(number)) for number, part in enumerate(shape.parts)], refuse)
        case Struct():
            return _struct({field: below(part, field) for field, part in shape.fields}, refuse)
        case Enum():
            contents = [(variant, None if part == NULL else below(part, variant)) for variant, part in shape.variants]
            return _enum(contents, display_path, refuse)


def _take(data: bytes, at: int, width: int, path: str) -> bytes:
    chunk = data[at : at + width]
    if len(chunk) < width:
        raise ScaleFault(wrong.ENDS, at, path)
    return chunk


def _compact_at(data: bytes, at: int, path: str) -> tuple[int, int]:
    try:
        return decode_compact(data, at, "")
    except FailedToDecode:
        ends = at >= len(data) or at + compact_length(data[at]) > len(data)
        raise ScaleFault(wrong.ENDS if ends else wrong.NOT_SHORTEST, at, path) from None


def _index(value: Any, expected: str, bounds: tuple[int, int], refuse: _Refuse) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        refuse(value, expected)
    return number if bounds[0] <= number <= bounds[1] else refuse(value, expected)


def _number(shape: Number, path: str, refuse: _Refuse) -> Codec:
    width, signed = shape.width, shape.signed
    bits = 8 * width
    bounds = (-1 << bits - 1, (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)

    def read(data: bytes, at: int) -> tuple[int, int]:
        return int.from_bytes(_take(data, at, width, path), "little", signed=signed), at + width

    def write(value: Any) -> bytes:
        return _index(value, shape.name, bounds, refuse).to_bytes(width, "little", signed=signed)

    return read, write


def _compact(shape: Compact, path: str, refuse: _Refuse) -> Codec:
    most = (1 << 8 * shape.width) - 1

    def read(data: bytes, at: int) -> tuple[int, int]:
        number, end = _compact_at(data, at, path)
        if number > most:
            raise ScaleFault(wrong.TOO_LARGE, at, path)
        return number, end

    return read, lambda value: encode_compact(_index(value, shape.name, (0, most), refuse))


def _bool(path: str, refuse: _Refuse) -> Codec:
    def read(data: bytes, at: int) -> tuple[bool, int]:
        flag = _take(data, at, 1, path)[0]
        if flag > 1:
            raise ScaleFault(wrong.NO_VARIANT, at, path)
        return flag == 1, at + 1

    return read, lambda value: bytes([value]) if isinstance(value, bool) else refuse(value, "bool")


def _fixed(width: int, path: str, refuse: _Refuse) -> Codec:
    def write(value: Any) -> bytes:
        if not isinstance(value, bytes) or len(value) != width:
            refuse(value, f"byte string of {width} bytes")
        return value

    return lambda data, at: (_take(data, at, width, path), at + width), write


def _string(path: str, refuse: _Refuse) -> Codec:
    def read(data: bytes, at: int) -> tuple[bytes, int]:
        length, begin = _compact_at(data, at, path)
        if length > len(data) - begin:
            raise ScaleFault(wrong.ENDS, at, path)
        return data[begin : begin + length], begin + length

    def write(value: Any) -> bytes:
        if not isinstance(value, bytes):
            refuse(value, "byte string")
        return encode_compact(len(value)) + value

    return read, write


def _text(path: str, refuse: _Refuse) -> Codec:
    read_bytes, write_bytes = _string(path, refuse)

    def read(data: bytes, at: int) -> tuple[str, int]:
        encoded, end = read_bytes(data, at)
        try:
            return encoded.decode(), end
        except UnicodeDecodeError:
            raise ScaleFault(wrong.NO_TEXT, at, path) from None

    def write(value: Any) -> bytes:
        try:
            return write_bytes(value.encode())
        except (AttributeError, UnicodeEncodeError):
            refuse(value, "text")

    return read, write


def _bits(path: str, refuse: _Refuse) -> Codec:
    def read(data: bytes, at: int) -> tuple[str, int]:
        count, begin = _compact_at(data, at, path)
        width = -(-count // 8)
        if width > len(data) - begin:
            raise ScaleFault(wrong.ENDS, at, path)
        number = int.from_bytes(data[begin : begin + width], "little")
        if number >> count:
            raise ScaleFault(wrong.SPARE_BITS, at, path)
        return "0b" + (f"{number:0{count}b}" if count else ""), begin + width

    def write(value: Any) -> bytes:
        if not isinstance(value, str) or value[:2] != "0b" or set(value[2:]) - {"0", "1"}:
            refuse(value, "bits as text, such as 0b01101")
        count = len(value) - 2
        return encode_compact(count) + int("0" + value[2:], 2).to_bytes(-(-count // 8), "little")

    return read, write


def _optional(inner: Codec, path: str) -> Codec:
    read_inner, write_inner = inner

    def read(data: bytes, at: int) -> tuple[Any, int]:
        flag = _take(data, at, 1, path)[0]
        if flag > 1:
            raise ScaleFault(wrong.NO_OPTION, at, path)
        return read_inner(data, at + 1) if flag else (None, at + 1)

    return read, lambda value: b"\0" if value is None else b"\1" + write_inner(value)


def _sequence(shape: Sequence, name: str, path: str, refuse: _Refuse) -> Codec:
    most, (field, key) = shape.most, shape.key
    read_inner, write_inner = create_codec(shape.inner, name, path + "[]")
    read_key = read_inner if field is None else create_codec(key, name, f"{path}[].{field}")[0]
    rank = _rank(key) if shape.ascending else None

    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        count, end = _compact_at(data, at, path)
        if count > most:
            raise ScaleFault(wrong.OVER_LIMIT, at, path, most)
        elements: list[Any] = []
        last: Any = None
        for number in range(count):
            if rank is not None:
                place = rank(read_key(data, end)[0])
                if number and not last < place:
                    raise ScaleFault(wrong.NOT_ASCENDING, end, path)
                last = place
            element, end = read_inner(data, end)
            elements.append(element)
        return elements, end

    def write(value: Any) -> bytes:
        if not isinstance(value, list | tuple) or len(value) > most:
            refuse(value, f"list of at most {most} elements")
        written = b"".join([write_inner(element) for element in value])
        if rank is not None:
            places = [rank(element if field is None else element[field]) for element in value]
            if any(not before < after for before, after in pairwise(places)):
                refuse(value, "list that ascends")
        return encode_compact(len(value)) + written

    return read, write


def _array(length: int, inner: Codec, refuse: _Refuse) -> Codec:
    read_tuple, write_tuple = _tuple([inner] * length, refuse)

    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        elements, end = read_tuple(data, at)
        return list(elements), end

    return read, write_tuple


def _tuple(parts: list[Codec], refuse: _Refuse) -> Codec:
    readers, writers = [part[0] for part in parts], [part[1] for part in parts]

    def read(data: bytes, at: int) -> tuple[tuple[Any, ...], int]:
        elements = []
        for read_part in readers:
            element, at = read_part(data, at)
            elements.append(element)
        return tuple(elements), at

    def write(value: Any) -> bytes:
        if not isinstance(value, list | tuple) or len(value) != len(writers):
            refuse(value, f"sequence of {len(writers)} values")
        return b"".join([write_part(element) for write_part, element in zip(writers, value, strict=True)])

    return read, write


def _struct(fields: dict[str, Codec], refuse: _Refuse) -> Codec:
    readers = [(name, field[0]) for name, field in fields.items()]
    writers = [(name, field[1]) for name, field in fields.items()]

    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        value = {}
        for name, read_field in readers:
            value[name], at = read_field(data, at)
        return value, at

    def write(value: Any) -> bytes:
        if not isinstance(value, Mapping) or value.keys() != fields.keys():
            refuse(value, f"dict of {', '.join(fields)}")
        return b"".join([write_field(value[name]) for name, write_field in writers])

    return read, write


def _enum(variants: list[tuple[str, Codec | None]], path: str, refuse: _Refuse) -> Codec:
    names = {name: (number, content) for number, (name, content) in enumerate(variants)}

    def read(data: bytes, at: int) -> tuple[Any, int]:
        number = _take(data, at, 1, path)[0]
        if number >= len(variants):
            raise ScaleFault(wrong.NO_VARIANT, at, path)
        name, content = variants[number]
        if content is None:
            return name, at + 1
        value, end = content[0](data, at + 1)
        return {name: value}, end

    def write(value: Any) -> bytes:
        name, inside = value, None
        if isinstance(value, Mapping) and len(value) == 1:
            ((name, inside),) = value.items()
        number, content = names.get(name, (0, None)) if isinstance(name, str) else (0, None)
        if name not in names or isinstance(value, str) != (content is None):
            refuse(value, f"variant of {', '.join(names)}, with its content if it has one")
        return bytes([number]) + (b"" if content is None else content[1](inside))

    return read, write


def _rank(shape: Shape) -> Callable[[Any], Any]:
    """Return the sort key function of a shape, in Rust's order."""
    match shape:
        case Number() | Compact() | Bool() | FixedBytes() | ByteString():
            return lambda value: value
        case Optional(inner):
            rank = _rank(inner)
            return lambda value: () if value is None else (rank(value),)
        case Tuple(parts):
            ranks = [_rank(part) for part in parts]
            return lambda value: [each(part) for each, part in zip(ranks, value, strict=True)]
        case Enum(variants=variants):
            places = {name: (number, _rank(part)) for number, (name, part) in enumerate(variants)}

            def place(value: Any) -> Any:
                name, content = (value, ()) if isinstance(value, str) else next(iter(value.items()))
                number, rank = places[name]
                return number, rank(content)

            return place
    raise InvalidInput(f"sets and maps do not ascend by {type(shape).__name__.lower()}")


FAULTS = {
    wrong.OVER_LIMIT: "has more elements than are read",
    wrong.ENDS: "ends early",
    wrong.NO_VARIANT: "has no such variant",
    wrong.NOT_SHORTEST: "holds a compact integer in more bytes than it takes",
    wrong.NO_OPTION: "has an option that is neither 0 nor 1",
    wrong.TOO_LARGE: "holds a number above those of its type",
    wrong.NOT_ASCENDING: "does not ascend",
    wrong.TRAILING: "has bytes behind its end",
    wrong.ABSENT: "has no value in the column",
    wrong.UNWANTED: "has a value, of a variant that is not taken, in the column",
    wrong.NO_TEXT: "has text that is no UTF-8",
    wrong.SPARE_BITS: "has bits behind its last one",
}
"""Text of each fault code, after "it"."""


def decoding_error(noun: str, code: int, position: int, length: int, path: str, most: int) -> ProofError:
    """Build the error of a faulty encoding.

    Args:
        noun: noun for the encoding in the message.
        code: one of ``FAULTS``.
        position: byte of the fault.
        length: bytes of the encoding.
        path: fields and variants that lead there.
        most: for a list above its limit, the limit.

    Returns:
        ``OverLimit`` or ``FailedToDecode``.
    """
    fault_position = f"at byte {position} of {length}, {path}"
    if code == wrong.OVER_LIMIT:
        return OverLimit(f"{noun} {FAULTS[code]}, {fault_position}: at most {most}")
    return FailedToDecode(f"{noun} is no canonical SCALE encoding, it {FAULTS[code]}: {fault_position}")


class ScaleTypes:
    """Named types in the notation of ``scale_shapes``.

    Args:
        definitions: results of ``struct`` and ``enum``, or aliases of types, by name.
    """

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self.definitions: Mapping[str, Any] = dict(definitions)
        self._codecs: dict[str, Codec] = {}

    def encode(self, type_name: str, value: Any) -> bytes:
        """Encode ``value``, a value in the form that ``decode`` returns.

        Args:
            type_name: one of the definitions, or a type in their notation.
            value: a value of the type; structs have all of its fields and no others.

        Returns:
            The encoding.

        Raises:
            InvalidInput: ``value`` is not of the type, or its encoding would be rejected: a list has too many elements,
                or a set or map does not ascend. Or the type is unknown.
        """
        return self._codec(type_name)[1](value)

    def decode(self, type_name: str, data: bytes, noun: str, limit: int = MAX_PROOF_BYTES) -> Any:
        """Decode the canonical encoding of a value.

        Args:
            type_name: one of the definitions, or a type in their notation.
            data: the encoding, to its last byte.
            noun: noun for the value in messages, such as "a cross-domain message".
            limit: most bytes.

        Returns:
            The value.

        Raises:
            OverLimit: ``data`` exceeds ``limit`` bytes, or a list has too many elements.
            FailedToDecode: ``data`` is not the canonical encoding of the type; the text names ``noun``.
            InvalidInput: the type is unknown.
        """
        require_length(data, noun, limit)
        data = bytes(data)
        try:
            value, end = self._codec(type_name)[0](data, 0)
            if end < len(data):
                raise ScaleFault(wrong.TRAILING, end, "the end")
        except ScaleFault as fault:
            raise decoding_error(noun, fault.code, fault.at, len(data), fault.path, fault.most) from None
        return value

    def _codec(self, type_name: str) -> Codec:
        if type_name not in self._codecs:
            shape = parse_shape(self.definitions, type_name)
            self._codecs[type_name] = create_codec(shape, type_name)
        return self._codecs[type_name]


def struct(*fields: tuple[str, str]) -> dict[str, Any]:
    """Return the definition of a struct.

    Args:
        fields: name and type of each field.

    Returns:
        The definition.
    """
    return {"type": "struct", "type_mapping": [list(field) for field in fields]}


def enum(*variants: tuple[str, str] | str) -> dict[str, Any]:
    """Return the definition of an enum.

    Args:
        variants: name and type of each variant, or the name of a bare one.

    Returns:
        The definition.
    """
    return {
        "type": "enum",
        "type_mapping": [[variant, "Null"] if isinstance(variant, str) else list(variant) for variant in variants],
    }


_COMMENT = re.compile(r"//.*")
_DEFINITION = re.compile(r"(struct|enum) (\w+) \{(.*?)\}", re.DOTALL)
_PARTS = {"struct": re.compile(r"(\w+): (.+)"), "enum": re.compile(r"(\w+)(?:\((.+)\))?")}


def parse_definitions(text: str) -> dict[str, Any]:
    """Read definitions of types in the form of Rust.

    Args:
        text: any number of ``struct Name { field: Type, ... }`` and ``enum Name { Bare, Variant(Type), ... }``, with
            comments ``// ...``.

    Returns:
        The definitions by name, as ``struct`` and ``enum`` build them.

    Raises:
        InvalidInput: part of ``text`` is not a definition, a field or a variant.
    """
    text = _COMMENT.sub("", text)
    if rest := _DEFINITION.sub("", text).strip():
        raise InvalidInput(f"not a definition of a SCALE type: {rest!r:.80}")
    found: dict[str, Any] = {}
    for kind, name, body in _DEFINITION.findall(text):
        parts = []
        for part in split_types(body):
            match = _PARTS[kind].fullmatch(part)
            if match is None:
                raise InvalidInput(f"{kind} {name}: {part!r:.80} does not have the form of a part")
            parts.append((match[1], match[2] or "Null"))
        found[name] = struct(*parts) if kind == "struct" else enum(*parts)
    return found
