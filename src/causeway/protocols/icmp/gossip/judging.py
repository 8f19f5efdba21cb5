"""What is said of what peers send, whatever it is: what its form costs (X-1), and the rows of verdicts."""

from __future__ import annotations

import numpy as np

from causeway.model.frame import Frame
from causeway.protocols.icmp.errors import Verdict
from causeway.protocols.icmp.gossip.peers import BAD_PACKET, MALFORMED, Codes

_COSTS = {Verdict.Malformed: MALFORMED, Verdict.BadNeighborPacket: BAD_PACKET}


def costs(codes: Codes) -> Codes:
    """Return what verdicts cost that are about the form alone, 0 for others."""
    change = np.zeros(len(codes), dtype=np.int64)
    for verdict, cost in _COSTS.items():
        change[codes == verdict] = cost
    return change


def verdict_rows(rows: Frame, kind: np.uint8, codes: Codes, change: Codes) -> Frame:
    """Return the verdicts on rows of an input (``VERDICTS_SCHEMA``)."""
    told = rows.select(("node", "peer"))
    numbers = np.arange(len(rows), dtype=np.int64)
    return told.with_columns(kind=kind, row=numbers, code=codes.astype(np.uint8), change=change)
