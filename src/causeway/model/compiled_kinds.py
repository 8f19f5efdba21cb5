"""Kinds of what compiled loops take and return, named without the compiler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


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
        return isinstance(value, int | np.integer | np.bool_)


@dataclass(frozen=True)
class Arrays:
    """Arrays of some type and so many dimensions: ``written``, or only read."""

    dtype: str
    dimensions: int
    written: bool = False
    contiguous: bool = True

    def fits(self, value: Any) -> bool:
        """Return whether a value is of this kind."""
        return (
            isinstance(value, np.ndarray)
            and value.dtype == self.dtype
            and value.ndim == self.dimensions
            and (value.flags.c_contiguous or not self.contiguous)
            and (value.flags.writeable or not self.written)
        )


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
