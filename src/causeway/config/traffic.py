"""The contract between what comes from outside (recorded, generated, carried) and the pipeline that feeds it to the
chains."""

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
"""One row a message from outside. ``chain``: where it enters; ``receiver``: the program's number; ``sender``: the
user's number. Row order is the order of the ingress payload."""


CARRIED_SCHEMA = pa.schema(
    [
        pa.field("chain", pa.uint64(), nullable=False),
        pa.field("carrier", pa.uint64(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)
"""One row what somebody carried to a chain from outside the network: wire bytes that the protocol reads and verifies.
``chain``: the chain's number; ``carrier``: who brought it, by a number of their own. Rows are in order of arrival."""


class Traffic(Protocol):
    """A source of ingress messages. Picklable: the rows are made or read where they are needed, not in the driver."""

    def rows(self, tick: int, chains: npt.NDArray[np.uint64]) -> pa.Table:
        """Return the rows (``INGRESS_SCHEMA``) of ``tick`` for ``chains``, a function of tick and chain only."""
        ...

    def next_tick(self, tick: int) -> int | None:
        """Return the first tick at or after ``tick`` with any row, None when there is none."""
        ...
