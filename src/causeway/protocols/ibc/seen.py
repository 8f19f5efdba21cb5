"""What relayers see, and the form of what they submit (IBC reference 3.5)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa

from causeway.model.frame import Frame
from causeway.model.order import stable_order
from causeway.protocols.contract import Offers
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.state import LANE_FIELDS, keys_of, lane_positions


class Call(IntEnum):
    """What a submission asks of the zone, in the order in which a relayer's submissions about one chain are judged."""

    RECEIVE = 0
    RECEIPT = 1
    TIMEOUT = 2
    CLEANUP = 3
    UPDATE = 4
    """Nothing but the header, which everything else brings, too: it is always the first."""


NO_PROOF = -1
"""The ``proof`` of a submission that has none."""


class Alteration(IntEnum):
    """What a malicious relayer did to a submission."""

    NONE = 0
    TAMPERED = 1
    STALE_HEADER = 2
    FOREIGN = 3


SUBMISSIONS_SCHEMA = pa.schema(
    [
        *LANE_FIELDS,
        pa.field("relayer", pa.uint32(), nullable=False),
        pa.field("call", pa.uint8(), nullable=False),
        pa.field("begin", pa.uint64(), nullable=False),
        pa.field("end", pa.uint64(), nullable=False),
        pa.field("alteration", pa.uint8(), nullable=False),
        pa.field("proof", pa.int64(), nullable=False),
    ]
)
"""One row a run that a relayer submits to ``chain``: entries ``begin`` to ``end`` - 1 of the queue ``substream`` that
``remote`` keeps for ``chain``. ``proof``: the row of the plan's proofs that covers it."""


@dataclass(frozen=True)
class Seen:
    """What relayers see for the zones that make a block: the rows offered to them, named from the taking zone's side.

    ``lanes``: the remote chains' queues (``chain`` takes, ``remote`` keeps it). ``proofs``: what they prove.
    ``headers``: one row a remote chain: its position, root and certification.
    """

    lanes: Frame
    proofs: Frame
    headers: Frame

    @classmethod
    def of(cls, offers: Offers, context: Context) -> Seen:
        """Return what is offered to ``context.chains``."""
        return cls(_turned(offers.lanes, context), _turned(offers.details, context), offers.headers)

    def positions(self, chain: Any, remote: Any, substream: int) -> tuple[Any, Any]:
        """Return head and tail of the queues that ``remote`` keeps for ``chain``; 0 where none is offered."""
        return self._column("begin", chain, remote, substream), self._column("next_index", chain, remote, substream)

    def ready(self, chain: Any, remote: Any, substream: int) -> Any:
        """Return where the written entries of those queues end (``QUEUES_SCHEMA``); 0 where none is offered."""
        return self._column("ready", chain, remote, substream)

    def _column(self, name: str, chain: Any, remote: Any, substream: int) -> Any:
        rows = lane_positions(self.lanes, chain, remote, substream)
        found = np.zeros(len(rows), dtype=np.uint64)
        found[rows >= 0] = self.lanes[name][rows[rows >= 0]]
        return found


def _turned(rows: Frame, context: Context) -> Frame:
    apart = (rows["chain"] != rows["remote"]) & np.isin(rows["remote"], context.chains)
    rows = rows.filter(apart)
    rows = rows.with_columns(chain=rows["remote"], remote=rows["chain"])
    order = stable_order(keys_of(rows), *(rows[name] for name in ("part", "first") if name in rows))
    return rows.take(order)
