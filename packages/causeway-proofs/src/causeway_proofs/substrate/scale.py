"""SCALE one value at a time: only the one encoding that a value is written with is read.

SCALE leaves room for several encodings of one value (padded compact integers, option bytes other than 1, sets and
maps out of order). A message that may be rewritten without becoming another one cannot be told from a tampered one.
Whole columns of the same types go through ``scale_columns``; compiled loops follow the same rules there, which take
tenths of a second to load.

What reads and writes one SCALE value, a pair of functions for each shape of ``scale_shapes``.

What may be wrong with a SCALE encoding, and how both forms say so.
"""

from __future__ import annotations

import operator
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
)

Codec = tuple[Callable[[bytes, int], tuple[Any, int]], Callable[[Any], bytes]]
"""What returns the value at an offset and the offset behind it, or raises ``Fault``; what returns the encoding of a
value, or raises InvalidInput."""

_Refuse = Callable[[Any, str], NoReturn]


class ScaleFault(Exception):
    """An encoding is not one: what is wrong (``scale_steps_loops``), at which byte, under which path; for a list above
    its limit, the limit."""

    def __init__(self, code: int, at: int, path: str, most: int = 0) -> None:
        self.code, self.at, self.path, self.most = code, at, path, most


def create_codec(shape: Shape, name: str, path: str = "") -> Codec:
    """Return what reads and writes a type that stands under ``path``, and is shown as ``name`` without one."""
    shown = path or name

    def refuse(value: Any, wanted: str) -> NoReturn:
        raise InvalidInput(f"no value of the SCALE type {name}: {shown}: {value!r:.80} is no {wanted}")

    def below(part: Shape, field: str) -> Codec:
        return create_codec(part, name, f"{path}.{field}" if path else field)

    match shape:
        case Number():
            return _number(shape, shown, refuse)
        case Compact():
            return _compact(shape, shown, refuse)
        case Bool():
            return _bool(shown, refuse)
        case FixedBytes():
            return _fixed(shape.width, shown, refuse)
        case ByteString():
            return _text(shown, refuse) if shape.text else _string(shown, refuse)
        case Bits():
            return _bits(shown, refuse)
        case Optional():
            return _optional(create_codec(shape.inner, name, path), shown)
        case Sequence():
            return _sequence(shape, name, shown, refuse)
        case Array():
            return _array(shape.length, create_codec(shape.inner, name, shown + "[]"), refuse)
        case Tuple():
            return _tuple([below(part, str(number)) for number, part in enumerate(shape.parts)], refuse)
        case Struct():
            return _struct({field: below(part, field) for field, part in shape.fields}, refuse)
        case Enum():
            contents = [(variant, None if part == NULL else below(part, variant)) for variant, part in shape.variants]
            return _enum(contents, shown, refuse)


def _take(data: bytes, at: int, width: int, path: str) -> bytes:
    taken = data[at : at + width]
    if len(taken) < width:
        raise ScaleFault(wrong.ENDS, at, path)
    return taken


def _compact_at(data: bytes, at: int, path: str) -> tuple[int, int]:
    try:
        return decode_compact(data, at, "")
    except FailedToDecode:
        ends = at >= len(data) or at + compact_length(data[at]) > len(data)
        raise ScaleFault(wrong.ENDS if ends else wrong.NOT_SHORTEST, at, path) from None


def _index(value: Any, wanted: str, bounds: tuple[int, int], refuse: _Refuse) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        refuse(value, wanted)
    return number if bounds[0] <= number <= bounds[1] else refuse(value, wanted)


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
    """Return what gives a value its place in Rust's order."""
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
"""What is wrong, by its code, after "it"."""


def decoding_error(what: str, code: int, position: int, length: int, path: str, most: int) -> ProofError:
    """Return what is wrong with an encoding.

    Args:
        what: what the encoding is of, for the message.
        code: one of ``FAULTS``.
        position, length: the byte at which, and the bytes of the encoding.
        path: the fields and variants that lead there.
        most: for a list above its limit, the limit.
    """
    where = f"at byte {position} of {length}, {path}"
    if code == wrong.OVER_LIMIT:
        return OverLimit(f"{what} {FAULTS[code]}, {where}: at most {most}")
    return FailedToDecode(f"{what} is no canonical SCALE encoding, it {FAULTS[code]}: {where}")


class ScaleTypes:
    """Named types, in the notation of ``scale_shapes``.

    Args:
        definitions: what ``struct`` and ``enum`` return, or another name of a type, by the name.
    """

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self.definitions: Mapping[str, Any] = dict(definitions)
        self._codecs: dict[str, Codec] = {}

    def encode(self, type_name: str, value: Any) -> bytes:
        """Return the encoding of ``value``: what ``decode`` returns for it.

        Args:
            type_name: one of the definitions, or a type in their notation.
            value: a value of the type; structs have all of its fields and no others.

        Raises:
            InvalidInput: ``value`` is not of the type, or its encoding could not be read again: a list has too many
                elements, or a set or map does not ascend. Or the type is not known.
        """
        return self._codec(type_name)[1](value)

    def decode(self, type_name: str, data: bytes, what: str, limit: int = MAX_PROOF_BYTES) -> Any:
        """Return the value that ``data`` is the canonical encoding of.

        Args:
            type_name: one of the definitions, or a type in their notation.
            data: the encoding, to its last byte.
            what: what it is, for messages, such as "a cross-domain message".
            limit: most bytes that are read.

        Raises:
            OverLimit: ``data`` is longer than ``limit`` bytes, or a list has too many elements.
            FailedToDecode: it is no encoding of the type, or not the canonical one; the text says so of ``what``.
            InvalidInput: the type is not known.
        """
        require_length(data, what, limit)
        data = bytes(data)
        try:
            value, end = self._codec(type_name)[0](data, 0)
            if end < len(data):
                raise ScaleFault(wrong.TRAILING, end, "the end")
        except ScaleFault as fault:
            raise decoding_error(what, fault.code, fault.at, len(data), fault.path, fault.most) from None
        return value

    def _codec(self, type_name: str) -> Codec:
        if type_name not in self._codecs:
            shape = parse_shape(self.definitions, type_name)
            self._codecs[type_name] = create_codec(shape, type_name)
        return self._codecs[type_name]


def struct(*fields: tuple[str, str]) -> dict[str, Any]:
    """Return the definition of a struct from the names and types of its fields."""
    return {"type": "struct", "type_mapping": [list(field) for field in fields]}


def enum(*variants: tuple[str, str] | str) -> dict[str, Any]:
    """Return the definition of an enum: a variant is a name with a type, or a name alone."""
    return {
        "type": "enum",
        "type_mapping": [[variant, "Null"] if isinstance(variant, str) else list(variant) for variant in variants],
    }
