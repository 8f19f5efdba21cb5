"""SCALE types as programs over columns: the notation of ``scale`` made into a flat list of steps and a schema.

A program is what the compiled loops follow, row by row: read so many bytes into this column, read a tag and go on at
its variant, read as many elements as a count says. The same definitions that scalecodec reads are its only source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.proofs.hashing import DIGEST_BYTES
from causeway.proofs.substrate.scale import MAX_ELEMENTS, MAX_STRINGS, ScaleTypes
from causeway.proofs.substrate.scale_steps_loops import (
    COMPACT,
    END,
    ENUM,
    FIXED,
    JUMP,
    KEY,
    LIST,
    NEXT,
    OPTION,
    STEP_FIELDS,
    STRING,
)

_NUMBERS = {
    "u8": pa.uint8(),
    "u16": pa.uint16(),
    "u32": pa.uint32(),
    "u64": pa.uint64(),
    "u128": pa.binary(16),
    "u256": pa.binary(32),
}
_DIGEST = pa.binary(DIGEST_BYTES)
_TAG = pa.uint8()
_STRINGS_OF = {"HexBytes": False, "StrictBytes": True}
_LISTS = {
    "Hashes": ("H256", MAX_STRINGS, False),
    "ByteStrings": ("StrictBytes", MAX_STRINGS, False),
    "SortedStrings": ("StrictBytes", MAX_STRINGS, True),
}
_COMPOSED = re.compile(r"(Option|Compact|LimitedVec|SortedVec)<(.+)>")
_ARRAY = re.compile(r"\[u8; ?(\d+)\]")


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
class Program:
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
    path: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    choices: Choices = ()


def compile_type(
    types: ScaleTypes, type_name: str, names: Mapping[str, str] | None = None, tags: Mapping[str, str] | None = None
) -> Program:
    """Return the program of ``type_name``.

    A column is named by the fields and variants that lead to it, in lower case and joined by ``_``.

    Args:
        types: the definitions.
        type_name: one of them.
        names: other names for fields and variants, "" to leave one out; a key is the name, or ``Type.name`` to say of
            which struct or enum. Columns of variants that exclude each other may so become one.
        tags: names of the tag columns of enums, by the type.

    Raises:
        ValueError: a type is not known, or two columns that can both be there have one name.
    """
    compiler = _Compiler(types, names or {}, tags or {})
    compiler.add(type_name, _Where())
    compiler.step(END, "the end")
    return compiler.program(type_name)


@dataclass
class _Compiler:
    types: ScaleTypes
    names: Mapping[str, str]
    tags: Mapping[str, str]
    steps: list[list[int]] = field(default_factory=list)
    jumps: list[int] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)
    used: list[list[Choices]] = field(default_factory=list)
    bare: list[bool] = field(default_factory=lambda: [False])

    def program(self, type_name: str) -> Program:
        order = sorted(range(len(self.slots)), key=lambda slot: self.slots[slot].level)
        renumbered = {old: new for new, old in enumerate(order)} | {-1: -1}
        for step in self.steps:
            step[1] = renumbered[step[1]]
        return Program(
            type_name,
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

    def slot(self, where: _Where, kind: pa.DataType, width: int = 0, tag_of: str = "", most: bool = False) -> int:
        """Return the column of a value, made if it is the first one of its name; with ``most``, a list's."""
        name = self.tags.get(tag_of) or "_".join(part for part in where.names if part).lower()
        name = name or ("element" if where.level else "value")
        for number, slot in enumerate(self.slots):
            if (slot.level, slot.name) == (where.level, name):
                alike = slot.width == width and (slot.child >= 0) == most and (most or slot.type == kind)
                if not alike or not all(_exclusive(where.choices, other) for other in self.used[number]):
                    raise ValueError(f"two values would share the column {name}: {'.'.join(where.path)} is the second")
                self.used[number].append(where.choices)
                return number
        child = -1
        if most:
            child = len(self.bare)
            self.bare.append(False)
        self.slots.append(Slot(name, where.level, kind, width, child))
        self.used.append([where.choices])
        return len(self.slots) - 1

    def add(self, type_name: str, where: _Where) -> None:
        """Append the steps of a type."""
        path = ".".join(where.path) or type_name
        if type_name in _LISTS:
            return self._list(*_LISTS[type_name], where)
        if type_name in _STRINGS_OF:
            slot = self.slot(where, pa.large_binary())
            self.step(STRING, path, slot, int(_STRINGS_OF[type_name]))
            return None
        if (plain := _plain(type_name)) is not None:
            self.step(FIXED, path, self.slot(where, plain, _width(plain)), _width(plain))
            return None
        composed = _COMPOSED.fullmatch(type_name)
        if composed is None:
            return self._defined(type_name, where)
        outer, inner = composed.groups()
        if outer == "Compact":
            plain = _NUMBERS[inner]
            self.step(COMPACT, path, self.slot(where, plain, _width(plain)), _width(plain))
            return None
        if outer == "Option":
            return self._option(inner, where, strict=False)
        return self._list(inner, MAX_ELEMENTS, outer == "SortedVec", where)

    def _defined(self, type_name: str, where: _Where) -> None:
        definition = self.types.definitions.get(type_name)
        if definition is None:
            raise ValueError(f"no columns are known for the type {type_name}")
        parts = definition["type_mapping"]
        if definition["type"] == "struct":
            for name, part in parts:
                self.add(part, self._below(where, type_name, name))
            return
        if _is_optional(parts):
            self._option(parts[1][1], where, strict=True)
            return
        alone = len(parts) == 1
        slot = -1 if alone else self.slot(where, _TAG, 1, tag_of=type_name)
        begun = self.step(ENUM, ".".join(where.path) or type_name, slot, len(parts), len(self.jumps))
        first = len(self.jumps)
        self.jumps.extend([0] * len(parts))
        ends = []
        for number, (name, part) in enumerate(parts):
            self.jumps[first + number] = len(self.steps)
            if part != "Null":
                below = self._below(where, type_name, name)
                names = where.names if alone else below.names
                self.add(part, _Where(where.level, below.path, names, (*where.choices, (begun, number))))
            ends.append(self.step(JUMP, ""))
        for end in ends:
            self.steps[end][2] = len(self.steps)

    def _option(self, inner: str, where: _Where, strict: bool) -> None:
        """Append what reads one byte and, if it is 1, the value: a column with nulls."""
        begun = self.step(OPTION, ".".join(where.path) or inner)
        self.add(inner, where)
        if len(self.steps) != begun + 2 or self.steps[-1][0] not in (FIXED, STRING, COMPACT):
            raise ValueError(f"no column holds an option of {inner}: only of plain values")
        self.steps[begun][1:4] = [self.steps[-1][1], len(self.steps), int(strict)]

    def _list(self, inner: str, most: int, ascending: bool, where: _Where) -> None:
        path = ".".join(where.path) or inner
        slot = self.slot(where, pa.null(), most=True)
        level = self.slots[slot].child
        begun = self.step(LIST, path, slot, most, level)
        definition = self.types.definitions.get(inner)
        fields = definition["type_mapping"] if definition is not None and definition["type"] == "struct" else []
        below = _Where(level, (*where.path[:-1], (where.path or (inner,))[-1] + "[]"), (), where.choices)
        if fields:
            for number, (name, part) in enumerate(fields):
                self.add(part, self._below(below, inner, name))
                if ascending and number == 0:
                    self._key(path)
        else:
            self.bare[level] = True
            self.add(inner, below)
            if ascending:
                self._key(path)
        self.step(NEXT, path, slot, level)
        self.steps[begun][4] = len(self.steps)
        elements = [own for own in self.slots if own.level == level]
        if self.bare[level] and len(elements) != 1:
            raise ValueError(f"no column holds a list of {inner}: only of plain values and structs")
        kind = elements[0].type if self.bare[level] else pa.struct([(own.name, own.type) for own in elements])
        known = self.slots[slot]
        self.slots[slot] = Slot(known.name, known.level, pa.large_list(kind), 0, level)

    def _key(self, path: str) -> None:
        """Append the comparison with the element before: of byte strings, or of a number behind a tag or none."""
        last = self.steps[-1][0]
        if last not in (FIXED, STRING):
            raise ValueError(f"{path}: only byte strings and numbers ascend")
        tagged = self.steps[-2][0] == OPTION and self.steps[-2][2] == len(self.steps)
        self.step(KEY, path, -1, int(last == STRING), int(tagged))

    def _below(self, where: _Where, type_name: str, name: str) -> _Where:
        shown = self.names.get(f"{type_name}.{name}", self.names.get(name, name))
        return _Where(where.level, (*where.path, name), (*where.names, shown), where.choices)


def _plain(type_name: str) -> pa.DataType | None:
    """Return the column type of a value of fixed width, None for any other type."""
    if type_name == "H256":
        return _DIGEST
    array = _ARRAY.fullmatch(type_name)
    return _NUMBERS.get(type_name) if array is None else pa.binary(int(array[1]))


def _width(kind: pa.DataType) -> int:
    return int(kind.bit_width) // 8


def _is_optional(parts: list[Any]) -> bool:
    """Return whether an enum is a bare variant and one with a plain value: a column of that, with nulls."""
    return len(parts) == 2 and parts[0][1] == "Null" and _plain(parts[1][1]) is not None


def _exclusive(one: Choices, other: Choices) -> bool:
    chosen = dict(one)
    return any(chosen.get(enum, variant) != variant for enum, variant in other)
