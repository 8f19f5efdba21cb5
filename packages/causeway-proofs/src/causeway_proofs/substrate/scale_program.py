"""Compile SCALE types to programs over columns: a list of steps and a schema.

The compiled loops execute a program row by row: read bytes into a column, read a tag and jump to its variant, read as
many elements as a count says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway_proofs.errors import InvalidInput
from causeway_proofs.substrate.scale import ScaleTypes
from causeway_proofs.substrate.scale_shapes import (
    COMPACT,
    END,
    ENUM,
    FIXED,
    JUMP,
    KEY,
    LIST,
    NEXT,
    NO_OPTION,
    NO_VARIANT,
    NULL,
    OPTION,
    STEP_FIELDS,
    STRING,
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
    parse_shape,
)

_NATIVE_WIDTH = 8
"""Most bytes of a number with an Arrow integer type."""

_NUMBER_KEYS, _STRING_KEYS, _BYTES_KEYS = range(3)
"""Kinds of sort keys of ascending elements."""

_TAG = pa.uint8()


@dataclass(frozen=True, slots=True)
class Slot:
    """A column: of the rows (level 0), or of the elements of a list (higher levels).

    ``width`` is the bytes of a value, 0 for byte strings and lists; ``child`` is the level of a list's elements.
    """

    name: str
    level: int
    type: pa.DataType
    width: int = 0
    child: int = -1


@dataclass(frozen=True, slots=True)
class ScaleProgram:
    """A program that reads and writes one type.

    Attributes:
        type_name: the type.
        steps: shape (n, 5): a step kind of ``scale_shapes`` and its arguments.
        jumps: start steps of the variants of all enums.
        paths: path of each step, for messages.
        slots: all columns, ascending by level.
        bare: for each level, True if its elements are plain values rather than structs.
    """

    type_name: str
    steps: npt.NDArray[np.int64]
    jumps: npt.NDArray[np.int64]
    paths: tuple[str, ...]
    slots: tuple[Slot, ...]
    bare: tuple[bool, ...]

    @property
    def variable(self) -> list[int]:
        """Return the columns of byte strings and lists."""
        return [number for number, slot in enumerate(self.slots) if not slot.width]

    @property
    def schema(self) -> pa.Schema:
        """Return the schema of the rows."""
        return pa.schema([pa.field(slot.name, slot.type) for slot in self.slots if slot.level == 0])


Choices = tuple[tuple[int, int], ...]
"""Variants that lead to a step: the enum (by its step), and the index of the variant."""


@dataclass(frozen=True, slots=True)
class _Location:
    """Location of a type: its level, its path, and the parts of its column name."""

    level: int = 0
    path: str = ""
    names: tuple[str, ...] = ()
    choices: Choices = ()


def compile_type(
    types: ScaleTypes, type_name: str, names: Mapping[str, str] | None = None, tags: Mapping[str, str] | None = None
) -> ScaleProgram:
    """Compile ``type_name`` to a program.

    A column's name joins the fields and variants that lead to it by ``_``, in lower case.

    Args:
        types: the definitions.
        type_name: one of them.
        names: replacement names of fields and variants, "" to omit one. A key is the name, or ``Type.name`` for one
            struct or enum. Columns of mutually exclusive variants may be merged this way.
        tags: names of the tag columns of enums, by type.

    Returns:
        The program.

    Raises:
        InvalidInput: a type is unknown or has no columns, or two columns that can both be present share a name.
    """
    compiler = _Compiler(type_name, names or {}, tags or {})
    compiler.add(parse_shape(types.definitions, type_name), _Location())
    compiler.step(END, "the end")
    return compiler.program()


@dataclass
class _Compiler:
    type_name: str
    names: Mapping[str, str]
    tags: Mapping[str, str]
    steps: list[list[int]] = field(default_factory=list)
    jumps: list[int] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)
    used: list[list[Choices]] = field(default_factory=list)
    bare: list[bool] = field(default_factory=lambda: [False])

    def program(self) -> ScaleProgram:
        if not self.slots:
            raise InvalidInput(f"the SCALE type {self.type_name} has one value: there is no column of it")
        order = sorted(range(len(self.slots)), key=lambda slot: self.slots[slot].level)
        renumbered = {old: new for new, old in enumerate(order)} | {-1: -1}
        for step in self.steps:
            step[1] = renumbered[step[1]]
        return ScaleProgram(
            self.type_name,
            np.array(self.steps, dtype=np.int64),
            np.array([*self.jumps, 0], dtype=np.int64),
            tuple(self.paths),
            tuple(self.slots[slot] for slot in order),
            tuple(self.bare),
        )

    def step(self, kind: int, path: str, slot: int = -1, *arguments: int) -> int:
        """Append a step and return its number."""
        self.steps.append([kind, slot, *arguments, *[0] * (STEP_FIELDS - 2 - len(arguments))])
        self.paths.append(path)
        return len(self.steps) - 1

    def label(self, location: _Location) -> str:
        return location.path or self.type_name

    def slot(self, location: _Location, kind: pa.DataType, width: int = 0, tag_of: str = "", most: bool = False) -> int:
        """Return a value's column, created on first use of its name; with ``most``, a list's."""
        name = self.tags.get(tag_of) or "_".join(part for part in location.names if part).lower()
        name = name or ("element" if location.level else "value")
        for number, slot in enumerate(self.slots):
            if (slot.level, slot.name) == (location.level, name):
                alike = slot.width == width and (slot.child >= 0) == most and (most or slot.type == kind)
                if not alike or not all(_exclusive(location.choices, other) for other in self.used[number]):
                    raise InvalidInput(
                        f"two values would share the column {name}: {self.label(location)} is the second"
                    )
                self.used[number].append(location.choices)
                return number
        child = -1
        if most:
            child = len(self.bare)
            self.bare.append(False)
        self.slots.append(Slot(name, location.level, kind, width, child))
        self.used.append([location.choices])
        return len(self.slots) - 1

    def add(self, shape: Shape, location: _Location) -> None:
        """Append the steps of a type."""
        match shape:
            case Number() | FixedBytes():
                kind = column_type(shape)
                self.step(FIXED, self.label(location), self.slot(location, kind, shape.width), shape.width)
            case Compact():
                self.step(
                    COMPACT, self.label(location), self.slot(location, column_type(shape), shape.width), shape.width
                )
            case ByteString(text=False):
                self.step(STRING, self.label(location), self.slot(location, pa.large_binary()))
            case Bool():
                self._enum(Enum("bool", (("false", NULL), ("true", NULL))), location)
            case Optional(inner):
                self._option(inner, location, NO_OPTION)
            case Sequence():
                self._list(shape, location)
            case Struct(name, fields):
                for field_name, part in fields:
                    self.add(part, self._below(location, name, field_name))
            case Enum():
                self._enum(shape, location)
            case _:
                raise InvalidInput(f"{self.label(location)}: no column holds a SCALE type like this")

    def _enum(self, shape: Enum, location: _Location) -> None:
        parts = shape.variants
        if (content := _alone_with_null(shape)) is not None:
            path = self._below(location, shape.name, parts[1][0]).path
            self._option(content, location, NO_VARIANT, path)
            return
        alone = len(parts) == 1
        slot = -1 if alone else self.slot(location, _TAG, 1, tag_of=shape.name)
        first_step = self.step(ENUM, self.label(location), slot, len(parts), len(self.jumps))
        first = len(self.jumps)
        self.jumps.extend([0] * len(parts))
        ends = []
        for number, (name, part) in enumerate(parts):
            self.jumps[first + number] = len(self.steps)
            if part != NULL:
                below = self._below(location, shape.name, name)
                names = location.names if alone else below.names
                self.add(part, _Location(location.level, below.path, names, (*location.choices, (first_step, number))))
            ends.append(self.step(JUMP, ""))
        for end in ends:
            self.steps[end][2] = len(self.steps)

    def _option(self, inner: Shape, location: _Location, otherwise: int, path: str = "") -> None:
        """Append the steps of an option: a byte and, after 1, the value in a nullable column."""
        if not isinstance(inner, Number | Compact | FixedBytes | ByteString):
            raise InvalidInput(f"{self.label(location)}: no column holds an option of this: only of plain values")
        first_step = self.step(OPTION, self.label(location))
        self.add(inner, replace(location, path=path or location.path))
        self.steps[first_step][1:4] = [self.steps[-1][1], len(self.steps), otherwise]

    def _list(self, shape: Sequence, location: _Location) -> None:
        path, inner = self.label(location), shape.inner
        slot = self.slot(location, pa.null(), most=True)
        level = self.slots[slot].child
        first_step = self.step(LIST, path, slot, shape.most, level)
        below = _Location(level, path + "[]", (), location.choices)
        if isinstance(inner, Struct):
            for number, (name, part) in enumerate(inner.fields):
                self.add(part, self._below(below, inner.name, name))
                if shape.ascending and number == 0:
                    self._key(part, path)
        else:
            self.bare[level] = True
            self.add(inner, below)
            if shape.ascending:
                self._key(inner, path)
        self.step(NEXT, path, slot, level)
        self.steps[first_step][4] = len(self.steps)
        elements = [own for own in self.slots if own.level == level]
        if not elements or (self.bare[level] and len(elements) != 1):
            raise InvalidInput(f"{path}: no column holds a list of this: only of plain values and structs")
        kind = elements[0].type if self.bare[level] else pa.struct([(own.name, own.type) for own in elements])
        known = self.slots[slot]
        self.slots[slot] = Slot(known.name, known.level, pa.large_list(kind), 0, level)

    def _key(self, shape: Shape, path: str) -> None:
        """Append the comparison with the previous element."""
        content = shape.inner if isinstance(shape, Optional) else None
        if isinstance(shape, Enum):
            content = _alone_with_null(shape)
        match content or shape:
            case Number(signed=False):
                self.step(KEY, path, -1, _NUMBER_KEYS, int(content is not None))
            case FixedBytes() if content is None:
                self.step(KEY, path, -1, _BYTES_KEYS)
            case ByteString() if content is None:
                self.step(KEY, path, -1, _STRING_KEYS)
            case _:
                raise InvalidInput(f"{path}: only byte strings and unsigned numbers ascend in columns")

    def _below(self, location: _Location, type_name: str, name: str) -> _Location:
        display_name = self.names.get(f"{type_name}.{name}", self.names.get(name, name))
        path = f"{location.path}.{name}" if location.path else name
        return _Location(location.level, path, (*location.names, display_name), location.choices)


def column_type(shape: Number | Compact | FixedBytes) -> pa.DataType:
    """Return the column type of a fixed-width value. Raises ``InvalidInput`` for zero width."""
    if not shape.width:
        raise InvalidInput("no column holds values without bytes")
    if isinstance(shape, FixedBytes) or shape.width > _NATIVE_WIDTH:
        return pa.binary(shape.width)
    signed = isinstance(shape, Number) and shape.signed
    return pa.from_numpy_dtype(np.dtype(f"{'i' if signed else 'u'}{shape.width}"))


def _alone_with_null(shape: Enum) -> Shape | None:
    """Return the content of an enum of a bare variant and a plain one, a nullable column."""
    contents = [part for _, part in shape.variants]
    if len(contents) == 2 and contents[0] == NULL and isinstance(contents[1], Number | FixedBytes):
        return contents[1]
    return None


def _exclusive(one: Choices, other: Choices) -> bool:
    chosen = dict(one)
    return any(chosen.get(enum, variant) != variant for enum, variant in other)
