"""The names and codes that the Internet Computer's event rows carry."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from causeway.protocols.events import names_column
from causeway.protocols.ic.messages import REASON_CODES, RejectReason


def reason_names(reasons: np.ndarray) -> pa.DictionaryArray:
    """Return the name of each ``RejectReason``."""
    return names_column([reason.name for reason in RejectReason], reasons)


def reject_codes(reasons: np.ndarray) -> np.ndarray:
    """Return the code that goes with each ``RejectReason``."""
    codes: np.ndarray = np.array([int(REASON_CODES.get(reason, 0)) for reason in RejectReason], dtype=np.uint8)[reasons]
    return codes
