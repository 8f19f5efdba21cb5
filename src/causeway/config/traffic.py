"""Contract between traffic (recorded, generated, carried) and the engine."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

INGRESS_SCHEMA = pa.schema(
    [
        pa.field("chain", pa.uint64(), nullable=False),
        pa.field("receiver", pa.uint64(), nullable=False),
        pa.field("sender", pa.uint64(), nullable=False),
        pa.field("method", pa.string(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)
"""One row a user message, in order of the ingress payload.

``chain``: where it enters; ``receiver``: number of the program; ``sender``: number of the user.
"""


CARRIED_SCHEMA = pa.schema(
    [
        pa.field("chain", pa.uint64(), nullable=False),
        pa.field("carrier", pa.uint64(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)
"""One row a delivery from outside the network, in order of arrival.

``chain``: number of the chain; ``carrier``: number of the carrier; ``payload``: wire bytes that the protocol verifies.
"""


class Traffic(Protocol):
    """A source of ingress messages; picklable.

    Rows are generated or read where they are needed, not in the driver.
    """

    def rows(self, tick: int, chains: npt.NDArray[np.uint64]) -> pa.Table:
        """Return the rows (``INGRESS_SCHEMA``) of a tick for chains, a function of tick and chain."""

    def next_tick(self, tick: int) -> int | None:
        """Return the first tick at or after ``tick`` with any row, or None."""
