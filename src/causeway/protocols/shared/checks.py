"""Checks in an order: what fails several of them is refused for the first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]

Judged_contra = TypeVar("Judged_contra", contravariant=True)
Refusal_co = TypeVar("Refusal_co", bound=IntEnum, covariant=True)


@dataclass(frozen=True, slots=True)
class Check(Generic[Refusal_co, Judged_contra]):
    """A step: for which rows of what is judged it holds; the others are refused for ``refusal``.

    ``section``: of the protocol's reference.
    """

    refusal: Refusal_co
    section: str
    holds: Callable[[Judged_contra], Mask]


def first_failed(failed: Sequence[Mask], count: int) -> npt.NDArray[np.int64]:
    """Return for each of ``count`` rows the number of the first check that it fails, that of checks for none.

    ``failed``: which rows fail each check, in the order of the checks.
    """
    first = np.full(count, len(failed), dtype=np.int64)
    for number in reversed(range(len(failed))):
        first[failed[number]] = number
    return first


def first_refusals(
    checks: Sequence[Check[Refusal_co, Judged_contra]], judged: Judged_contra, count: int, passed: IntEnum
) -> npt.NDArray[np.int64]:
    """Return for each of ``count`` rows the refusal of the first check that does not hold, ``passed`` where all do."""
    first = first_failed([~check.holds(judged) for check in checks], count)
    return np.array([*(check.refusal for check in checks), passed], dtype=np.int64)[first]
