"""Kinds of what compiled loops take and return, named without the compiler."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

_NUMBERS = (int, np.integer, np.bool_)


class Kind(Protocol):
    """What an argument must be."""

    def fits(self, value: Any) -> bool:
        """Return whether a value is of this kind."""
        ...


@dataclass(frozen=True)
class Scalar:
    """A number, a truth value, or nothing (``void``)."""

    name: str

    def fits(self, value: Any) -> bool:
        """Return whether a value is of this kind."""
        return isinstance(value, _NUMBERS)


@dataclass(frozen=True)
class Arrays:
    """Arrays of some type and so many dimensions: ``written``, or only read."""

    dtype: str
    dimensions: int
    written: bool = False
    contiguous: bool = True

    @cached_property
    def _of(self) -> np.dtype[Any]:
        return np.dtype(self.dtype)

    def fits(self, value: Any) -> bool:
        """Return whether a value is of this kind."""
        if not isinstance(value, np.ndarray) or value.ndim != self.dimensions or value.dtype != self._of:
            return False
        flags = value.flags
        return (flags.c_contiguous or not self.contiguous) and (flags.writeable or not self.written)


@dataclass(frozen=True)
class Named:
    """Named tuples of a class."""

    of: type
    fields: tuple[Kind, ...]

    def fits(self, value: Any) -> bool:
        """Return whether a value is of this kind."""
        return isinstance(value, self.of) and all(
            kind.fits(field)
            for kind, field in zip(self.fields, value, strict=True)  # type: ignore[call-overload]
        )


__all__ = ["Arrays", "Kind", "Named", "Scalar"]
