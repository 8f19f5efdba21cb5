"""Times between events, exactly: of clocks that may say anything."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from causeway.audit.arrays import Ints

Bools = npt.NDArray[np.bool_]

MICROSECONDS = "microseconds"

NO_TIME = np.int64(2**63 - 1)
"""A time that was not seen: in columns it comes after every other."""

NEVER = np.int64(-0x8000000000000000)
"""The time before every time."""


MOST = np.int64(2**63 - 1)
"""The greatest number that is told apart from others: of microseconds, of messages."""


def microseconds(one: Ints, other: Ints) -> tuple[Ints, Bools]:
    """Return the microseconds from times to others, exactly (at most ``MOST``, at least ``NEVER``), and of which both
    were seen."""
    between = other - one
    wrong = ((other ^ one) & (other ^ between)) < 0
    if wrong.any():
        between[wrong] = np.where(other[wrong] < 0, NEVER, MOST)
    return between, np.asarray((one != NO_TIME) & (other != NO_TIME))
