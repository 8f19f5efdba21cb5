"""SCALE types as programs over columns: the shapes of ``scale_shapes`` made into a flat list of steps and a schema.

A program is what the compiled loops follow, row by row: read so many bytes into this column, read a tag and go on at
its variant, read as many elements as a count says.
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
"""Most bytes of a number that Arrow has integers for."""

_NUMBER_KEYS, _STRING_KEYS, _BYTES_KEYS = range(3)
"""By what elements ascend."""

_TAG = pa.uint8()


@dataclass(frozen=True, slots=True)
class Slot:
    """A column: of the rows (level 0), or of the elements of a list (the levels above).

    ``width`` is the bytes of a value, 0 for byte strings and lists; ``child`` the level of a list's elements.
    """

    name: str
    level: int
    type: pa.DataType
    width: int = 0
    child: int = -1


@dataclass(frozen=True, slots=True)
class ScaleProgram:
    """What the loops follow to read or write one type.

    Attributes:
        type_name: the type.
        steps: shape (n, 5): a kind of ``scale_steps_loops`` and its arguments.
        jumps: where the variants of all enums start.
        paths: what each step reads, for messages.
        slots: all columns, ascending by level.
        bare: by level, whether its elements are plain values rather than structs.
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
        """Return the columns of the rows."""
        return pa.schema([pa.field(slot.name, slot.type) for slot in self.slots if slot.level == 0])


Choices = tuple[tuple[int, int], ...]
"""The variants that lead to a step: of which enum (by its step), and which of its variants."""


@dataclass(frozen=True, slots=True)
class _Where:
    """Where a type stands: in which level, under which path, and what the name of its column is made of."""

    level: int = 0
    path: str = ""
    names: tuple[str, ...] = ()
    choices: Choices = ()


def compile_type(
    types: ScaleTypes, type_name: str, names: Mapping[str, str] | None = None, tags: Mapping[str, str] | None = None
) -> ScaleProgram:
    """Return the program of ``type_name``.

    A column is named by the fields and variants that lead to it, in lower case and joined by ``_``.

    Args:
        types: the definitions.
        type_name: one of them.
        names: other names for fields and variants, "" to leave one out; a key is the name, or ``Type.name`` to say of
            which struct or enum. Columns of variants that exclude each other may so become one.
        tags: names of the tag columns of enums, by the type.

    Raises:
        InvalidInput: a type is not known or no column holds it, or two columns that can both be there have one name.
    """
    compiler = _Compiler(type_name, names or {}, tags or {})
    compiler.add(parse_shape(types.definitions, type_name), _Where())
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

    def shown(self, where: _Where) -> str:
        return where.path or self.type_name

    def slot(self, where: _Where, kind: pa.DataType, width: int = 0, tag_of: str = "", most: bool = False) -> int:
        """Return the column of a value, made if it is the first one of its name; with ``most``, a list's."""
        name = self.tags.get(tag_of) or "_".join(part for part in where.names if part).lower()
        name = name or ("element" if where.level else "value")
        for number, slot in enumerate(self.slots):
            if (slot.level, slot.name) == (where.level, name):
                alike = slot.width == width and (slot.child >= 0) == most and (most or slot.type == kind)
                if not alike or not all(_exclusive(where.choices, other) for other in self.used[number]):
                    raise InvalidInput(f"two values would share the column {name}: {self.shown(where)} is the second")
                self.used[number].append(where.choices)
                return number
        child = -1
        if most:
            child = len(self.bare)
            self.bare.append(False)
        self.slots.append(Slot(name, where.level, kind, width, child))
        self.used.append([where.choices])
        return len(self.slots) - 1

    def add(self, shape: Shape, where: _Where) -> None:
        """Append the steps of a type."""
        match shape:
            case Number() | FixedBytes():
                kind = column_type(shape)
                self.step(FIXED, self.shown(where), self.slot(where, kind, shape.width), shape.width)
            case Compact():
                self.step(COMPACT, self.shown(where), self.slot(where, column_type(shape), shape.width), shape.width)
            case ByteString(text=False):
                self.step(STRING, self.shown(where), self.slot(where, pa.large_binary()))
            case Bool():
                self._enum(Enum("bool", (("false", NULL), ("true", NULL))), where)
            case Optional(inner):
                self._option(inner, where, NO_OPTION)
            case Sequence():
                self._list(shape, where)
            case Struct(name, fields):
                for field_name, part in fields:
                    self.add(part, self._below(where, name, field_name))
            case Enum():
                self._enum(shape, where)
            case _:
                raise InvalidInput(f"{self.shown(where)}: no column holds a SCALE type like this")

    def _enum(self, shape: Enum, where: _Where) -> None:
        parts = shape.variants
        if (content := _alone_with_null(shape)) is not None:
            path = self._below(where, shape.name, parts[1][0]).path
            self._option(content, where, NO_VARIANT, path)
            return
        alone = len(parts) == 1
        slot = -1 if alone else self.slot(where, _TAG, 1, tag_of=shape.name)
        begun = self.step(ENUM, self.shown(where), slot, len(parts), len(self.jumps))
        first = len(self.jumps)
        self.jumps.extend([0] * len(parts))
        ends = []
        for number, (name, part) in enumerate(parts):
            self.jumps[first + number] = len(self.steps)
            if part != NULL:
                below = self._below(where, shape.name, name)
                names = where.names if alone else below.names
                self.add(part, _Where(where.level, below.path, names, (*where.choices, (begun, number))))
            ends.append(self.step(JUMP, ""))
        for end in ends:
            self.steps[end][2] = len(self.steps)

    def _option(self, inner: Shape, where: _Where, otherwise: int, path: str = "") -> None:
        """Append what reads one byte and, if it is 1, the value under ``path``: a column with nulls."""
        if not isinstance(inner, Number | Compact | FixedBytes | ByteString):
            raise InvalidInput(f"{self.shown(where)}: no column holds an option of this: only of plain values")
        begun = self.step(OPTION, self.shown(where))
        self.add(inner, replace(where, path=path or where.path))
        self.steps[begun][1:4] = [self.steps[-1][1], len(self.steps), otherwise]

    def _list(self, shape: Sequence, where: _Where) -> None:
        path, inner = self.shown(where), shape.inner
        slot = self.slot(where, pa.null(), most=True)
        level = self.slots[slot].child
        begun = self.step(LIST, path, slot, shape.most, level)
        below = _Where(level, path + "[]", (), where.choices)
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
        self.steps[begun][4] = len(self.steps)
        elements = [own for own in self.slots if own.level == level]
        if not elements or (self.bare[level] and len(elements) != 1):
            raise InvalidInput(f"{path}: no column holds a list of this: only of plain values and structs")
        kind = elements[0].type if self.bare[level] else pa.struct([(own.name, own.type) for own in elements])
        known = self.slots[slot]
        self.slots[slot] = Slot(known.name, known.level, pa.large_list(kind), 0, level)

    def _key(self, shape: Shape, path: str) -> None:
        """Append the comparison with the element before."""
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

    def _below(self, where: _Where, type_name: str, name: str) -> _Where:
        shown = self.names.get(f"{type_name}.{name}", self.names.get(name, name))
        path = f"{where.path}.{name}" if where.path else name
        return _Where(where.level, path, (*where.names, shown), where.choices)


def column_type(shape: Number | Compact | FixedBytes) -> pa.DataType:
    """Return the column type of a value of fixed width. Raises ``InvalidInput`` for one without bytes."""
    if not shape.width:
        raise InvalidInput("no column holds values without bytes")
    if isinstance(shape, FixedBytes) or shape.width > _NATIVE_WIDTH:
        return pa.binary(shape.width)
    signed = isinstance(shape, Number) and shape.signed
    return pa.from_numpy_dtype(np.dtype(f"{'i' if signed else 'u'}{shape.width}"))


def _alone_with_null(shape: Enum) -> Shape | None:
    """Return the content of an enum of a bare variant and one with a plain value: a column of that, with nulls."""
    contents = [part for _, part in shape.variants]
    if len(contents) == 2 and contents[0] == NULL and isinstance(contents[1], Number | FixedBytes):
        return contents[1]
    return None


def _exclusive(one: Choices, other: Choices) -> bool:
    chosen = dict(one)
    return any(chosen.get(enum, variant) != variant for enum, variant in other)
