"""Ordered checks: a row that fails several is refused for the first."""

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
    """A step of a validation: a mask of the rows that pass, and the refusal of the others.

    ``section`` is the section of the protocol's reference.
    """

    refusal: Refusal_co
    section: str
    holds: Callable[[Judged_contra], Mask]


def first_failed(failed: Sequence[Mask], count: int) -> npt.NDArray[np.int64]:
    """Return the number of the first check that each row fails.

    It is the number of checks for a row that passes all.

    Args:
        failed: A mask of failing rows for each check, in order.
        count: The number of rows.
    """
    first = np.full(count, len(failed), dtype=np.int64)
    for number in reversed(range(len(failed))):
        first[failed[number]] = number
    return first


def first_refusals(
    checks: Sequence[Check[Refusal_co, Judged_contra]], judged: Judged_contra, count: int, passed: IntEnum
) -> npt.NDArray[np.int64]:
    """Return the refusal of the first failing check of each row, or ``passed``.

    Args:
        checks: The checks, in order.
        judged: The rows.
        count: The number of rows.
        passed: The value of rows without a failure.
    """
    return first_codes([(check.refusal, check.holds(judged)) for check in checks], count, passed)


def first_codes(checks: Sequence[tuple[IntEnum, Mask]], count: int, passed: IntEnum) -> npt.NDArray[np.int64]:
    """Return the code of the first failing check of each row, or ``passed``.

    Args:
        checks: The code of each check and a mask of the rows that pass it, in order.
        count: The number of rows.
        passed: The value of rows without a failure.
    """
    first = first_failed([~holds for _, holds in checks], count)
    return np.array([*(code for code, _ in checks), passed], dtype=np.int64)[first]
