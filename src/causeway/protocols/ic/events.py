"""The names and codes that the Internet Computer's event rows carry."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from causeway.proofs.ic.stream_header import RejectReason
from causeway.protocols.events import names_column
from causeway.protocols.ic.messages import REASON_CODES


def reason_names(reasons: np.ndarray) -> pa.DictionaryArray:
    """Return the name of each verdict: ``ACCEPT`` or a ``RejectReason``."""
    return names_column(["ACCEPT", *(reason.name for reason in RejectReason)], reasons)


def reject_codes(reasons: np.ndarray) -> np.ndarray:
    """Return the code that goes with each verdict; 0 with ``ACCEPT``."""
    codes: np.ndarray = np.zeros(1 + max(RejectReason), dtype=np.uint8)
    codes[list(REASON_CODES)] = list(REASON_CODES.values())
    found: np.ndarray = codes[reasons]
    return found
