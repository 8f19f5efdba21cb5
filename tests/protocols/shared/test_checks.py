"""Ordered checks: the rejection of a row that fails several."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from causeway.protocols.shared.checks import Check, first_failed, first_refusals


class Rejection(IntEnum):
    """Rejections numbered differently from their checks."""

    FINE = 9
    ODD = 4
    LARGE = 7
    NEAR = 1


CHECKS: tuple[Check[Rejection, npt.NDArray[np.int64]], ...] = (
    Check(Rejection.LARGE, "1", lambda rows: rows < 100),
    Check(Rejection.ODD, "2", lambda rows: rows % 2 == 0),
    Check(Rejection.LARGE, "3", lambda rows: rows < 50),
    Check(Rejection.NEAR, "4", lambda rows: rows >= 10),
)


def test_first_failing_check_is_the_rejection() -> None:
    rows = np.array([101, 20, 3, 61, 60, 2, 102])
    expected = [
        Rejection.LARGE,
        Rejection.FINE,
        Rejection.ODD,
        Rejection.ODD,
        Rejection.LARGE,
        Rejection.NEAR,
        Rejection.LARGE,
    ]
    assert first_refusals(CHECKS, rows, len(rows), Rejection.FINE).tolist() == expected


def test_empty_rows_or_checks_never_fail() -> None:
    assert first_refusals(CHECKS, np.empty(0, dtype=np.int64), 0, Rejection.FINE).tolist() == []
    assert first_refusals((), np.array([101]), 1, Rejection.FINE).tolist() == [Rejection.FINE]
    assert first_failed([], 2).tolist() == [0, 0]
