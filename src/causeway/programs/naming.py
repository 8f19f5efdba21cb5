"""Program names: in calls, and in options of other programs.

Programs are numbered in the order of the scenario; messages and states hold numbers only. A name in an option is a
table with one key, ``{ program = "counter" }`` (``ref("counter")``), and is replaced by the number before programs see
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, Protocol

import pyarrow as pa

REF = "program"
"""Key of a table that stands for a program in options."""


class UnknownProgram(LookupError):
    """No program of the network has the name."""


class ProgramDirectory(Protocol):
    """The programs of a network by name."""

    def number_of(self, name: str) -> int:
        """Return the number of the program ``name``. Raises ``UnknownProgram``."""
        ...

    def name_of(self, program: int) -> str | None:
        """Return the name of a program by number, or None."""
        ...


class ProgramNames:
    """Program names of a table; picklable, indexed on first use."""

    def __init__(self, numbers: pa.Array | pa.ChunkedArray, names: pa.Array | pa.ChunkedArray) -> None:
        self._numbers, self._names = numbers, names

    def __getstate__(self) -> dict[str, Any]:
        return {"_numbers": self._numbers, "_names": self._names}

    @cached_property
    def _by_name(self) -> dict[str, int]:
        return dict(zip(self._names.to_pylist(), self._numbers.to_pylist(), strict=True))

    @cached_property
    def _by_number(self) -> dict[int, str]:
        return {number: name for name, number in self._by_name.items()}

    def number_of(self, name: str) -> int:
        """Return the number of the program ``name``. Raises ``UnknownProgram``."""
        if name not in self._by_name:
            raise UnknownProgram(f"no program is called {name!r}")
        return self._by_name[name]

    def name_of(self, program: int) -> str | None:
        """Return the name of a program by number, or None."""
        return self._by_number.get(program)


NO_NAMES = ProgramNames(pa.array([], pa.uint64()), pa.array([], pa.string()))
"""A directory without programs."""


def ref(name: str) -> dict[str, str]:
    """Return a reference to a program for options; it is replaced by the program's number.

    Args:
        name: Name of the program.
    """
    if not name:
        raise ValueError("ref(''): must be the name of a program")
    return {REF: name}


def find_refs(options: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield the program names in options, each with its key (``a.b[2]``).

    Args:
        options: The options.
        key: Key of the options.
    """
    if (name := _referenced_name(options)) is not None:
        yield key, name
    elif isinstance(options, Mapping):
        for part, under in options.items():
            yield from find_refs(under, f"{key}.{part}" if key else str(part))
    elif isinstance(options, list | tuple):
        for place, under in enumerate(options):
            yield from find_refs(under, f"{key}[{place}]")


def resolve_refs(options: Any, number_of: Callable[[str], int]) -> Any:
    """Replace references to programs in options by numbers.

    Args:
        options: The options.
        number_of: Returns the number of a program.
    """
    if (name := _referenced_name(options)) is not None:
        return number_of(name)
    if isinstance(options, Mapping):
        return {part: resolve_refs(under, number_of) for part, under in options.items()}
    if isinstance(options, list | tuple):
        return [resolve_refs(under, number_of) for under in options]
    return options


def _referenced_name(value: Any) -> str | None:
    """Return the program name of a reference, or None."""
    if isinstance(value, Mapping) and len(value) == 1 and isinstance(name := value.get(REF), str):
        return name
    return None
