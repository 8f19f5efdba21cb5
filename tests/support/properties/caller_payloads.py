"""What users tell programs of the class ``caller``."""

from __future__ import annotations

import pyarrow as pa

from causeway.core.ingress_call import encode_calls


def caller_payload(receiver: int, amount: int, method: str, body: bytes) -> bytes:
    """The payload of ingress method ``call``."""
    column = pa.array([receiver], pa.uint64()).to_numpy()
    high, low = pa.array([amount >> 64], pa.uint64()).to_numpy(), pa.array([amount % 2**64], pa.uint64()).to_numpy()
    encoded: bytes = encode_calls(column, high, low, method, pa.array([body], pa.binary()))[0].as_py()
    return encoded
