"""Random SCALE types, and encodings of their values that are canonical or in one of the forms that are not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from causeway_proofs.errors import InvalidInput
from causeway_proofs.substrate.byte_columns import encode_compact
from causeway_proofs.substrate.scale import ScaleTypes, enum, struct
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

BITS = (8, 16, 32, 64, 128)
SLOPPY = 0.04
"""How often a number, flag, length or text is written in a form that is not canonical."""


@dataclass(frozen=True)
class RandomType:
    """Definitions, and one type among them."""

    types: ScaleTypes
    name: str

    @property
    def shape(self) -> Shape:
        return parse_shape(self.types.definitions, self.name)


def random_types(chance: Random, count: int) -> Iterator[RandomType]:
    """Yield random types of up to three levels."""
    made = 0
    while made < count:
        drawing = _Drawing(chance)
        name = drawing.type_name(3)
        drawn = RandomType(ScaleTypes(drawing.definitions), name)
        try:
            drawn.types.encode(drawn.name, object())
        except InvalidInput as error:
            if "not known" in str(error) or "do not ascend by" in str(error):
                continue  # A set of what has no order here.
        made += 1
        yield drawn


@dataclass
class _Drawing:
    chance: Random
    definitions: dict[str, Any] = field(default_factory=dict)

    def type_name(self, depth: int) -> str:
        choose = self.chance.choice
        if depth == 0 or self.chance.random() < 0.25:
            return choose((
                f"u{choose(BITS)}", f"i{choose(BITS)}", f"Compact<u{choose(BITS)}>", "bool", "H256", "Str", "BitVec",
                f"[u8; {choose((1, 5))}]", "Vec<u8>",
            ))  # fmt: skip
        below = [self.type_name(depth - 1) for _ in range(self.chance.randint(1, 3))]
        inner = below[0] if not below[0].startswith("Option<") else "u16"
        made: Any = choose(
            ("option", "list", "set", "map", "array", "tuple", "struct", "struct", "enum", "enum", "alias")
        )
        match made:
            case "option":
                return f"Option<{inner}>"
            case "list":
                return f"Vec<{below[0]}>"
            case "set":
                return f"BTreeSet<{choose(('u8', 'u32', '[u8; 2]', 'Vec<u8>', 'i16', 'Compact<u16>', inner))}>"
            case "map":
                return f"BTreeMap<{choose(('u8', 'u64', 'H256', 'Str', 'Option<u8>', inner))}, {below[-1]}>"
            case "array":
                return f"[{below[0]}; {choose((1, 2, 3))}]"
            case "tuple":
                return f"({', '.join(below)})"
        name = f"Type{len(self.definitions)}"
        parts = [(f"Part{number}", part) for number, part in enumerate(below)]
        if made == "alias":
            self.definitions[name] = inner
        elif made == "struct":
            self.definitions[name] = struct(*parts)
        else:
            bare = ["Bare"] if self.chance.random() < 0.5 else []
            self.definitions[name] = enum(*bare, *parts)
        return name


def random_encoding(shape: Shape, chance: Random) -> bytes:
    """Return bytes that a reader of the type accepts, unless they are in a form that is not canonical."""
    sloppy = chance.random() < SLOPPY
    match shape:
        case Number(width=width):
            return chance.choice((bytes([chance.randrange(4)]) + bytes(width - 1), chance.randbytes(width)))
        case Compact(width=width):
            bits = 8 * width + 2 * sloppy
            return _compact(chance.getrandbits(chance.choice((6, bits, bits // 2))) % (1 << bits), chance)
        case Bool():
            return bytes([chance.randrange(2) + sloppy])
        case FixedBytes(width=width):
            return chance.randbytes(width)
        case ByteString(text=text):
            data = (
                "".join(chance.choices("aé€😀", k=chance.choice((0, 1, 3)))).encode() if text else chance.randbytes(3)
            )
            data = data[: len(data) - sloppy] if text else data[: chance.randrange(4)]
            return _compact(len(data), chance) + data
        case Bits():
            count = chance.randrange(18)
            bits = chance.getrandbits(count) if count else 0
            return (
                _compact(count, chance)
                + (bits | sloppy << count).to_bytes((count + 8) // 8, "little")[: -(-count // 8)]
            )
        case Optional(inner):
            flag = chance.randrange(2) + sloppy
            return bytes([flag]) + (random_encoding(inner, chance) if flag else b"")
        case Sequence(inner):
            elements = [random_encoding(inner, chance) for _ in range(chance.choice((0, 1, 2, 2, 3)))]
            if shape.ascending and not sloppy:
                elements = sorted(set(elements), key=lambda element: (len(element), element))
            return _compact(len(elements), chance) + b"".join(elements)
        case Array(inner, length):
            return b"".join(random_encoding(inner, chance) for _ in range(length))
        case Tuple(parts):
            return b"".join(random_encoding(part, chance) for part in parts)
        case Struct(fields=fields):
            return b"".join(random_encoding(part, chance) for _, part in fields)
        case Enum(variants=variants):
            number = chance.randrange(len(variants))
            return bytes([number + sloppy]) + random_encoding(variants[number][1], chance)


def _compact(number: int, chance: Random) -> bytes:
    """Return a compact integer, sometimes in a form that is longer than need be."""
    if chance.random() >= SLOPPY:
        return encode_compact(number)
    form = chance.randrange(3)
    if form == 0 and number < 1 << 14:
        return (number << 2 | 1).to_bytes(2, "little")
    if form == 1 and number < 1 << 30:
        return (number << 2 | 2).to_bytes(4, "little")
    width = max(4, (number.bit_length() + 7) // 8) + chance.randrange(2)
    return bytes([(width - 4) << 2 | 3]) + number.to_bytes(width, "little")


def leaves(shape: Shape, value: Any) -> Iterator[int | bytes]:
    """Yield the numbers and byte strings of a value as columns hold them: variants by index, wide numbers as bytes."""
    match shape:
        case Number(width=width) | Compact(width=width):
            signed = isinstance(shape, Number) and shape.signed
            yield value if width <= 8 else value.to_bytes(width, "little", signed=signed)
        case Bool():
            yield int(value)
        case FixedBytes() | ByteString():
            yield value
        case Optional(inner) if value is not None:
            yield from leaves(inner, value)
        case Sequence(inner):
            for element in value:
                yield from leaves(inner, element)
        case Struct(fields=fields):
            for name, part in fields:
                yield from leaves(part, value[name])
        case Enum(variants=variants):
            name, content = (value, ()) if isinstance(value, str) else next(iter(value.items()))
            parts = [part for _, part in variants]
            plain = len(parts) == 2 and parts[0] == NULL and isinstance(parts[1], Number | FixedBytes)
            if len(parts) > 1 and not plain:
                yield [name for name, _ in variants].index(name)
            yield from leaves(dict(variants)[name], content)


def column_leaves(value: Any) -> Iterator[int | bytes]:
    """Yield the numbers and byte strings of a row."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from column_leaves(part)
    elif value is not None:
        yield value
