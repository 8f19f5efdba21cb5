"""Events of light clients and accounts: freezes, recoveries, and relayers' funds.

Reference:
    IBC reference 1.1, 3.5, X-3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from causeway.core.frame import Frame, repeat_value
from causeway.core.vocabulary import Event, Kind, Via
from causeway.protocols.ibc.state import RECEIPT, lanes_of
from causeway.protocols.shared.events import event_rows, names_column

FROZE = "Frozen"
RECOVERED = "Recovered"
OUT_OF_FUNDS = "OutOfFunds"
FUNDED = "Funded"


class ZoneEvent(NamedTuple):
    """An event of a zone's client of a counterparty, or of an account on the zone.

    Attributes:
        chain: The zone.
        counterparty: The counterparty; for an account the zone itself.
        height: The remote height; for an account the zone's own.
        reason: The reason.
        relayer: The relayer, 0 for a decision of the zone itself; with ``via`` INGRESS the user from outside.
        event: The event; ``REJECTED`` if it had no effect.
        via: The path.
    """

    chain: int
    counterparty: int
    height: int
    reason: str
    relayer: int = 0
    event: Event = Event.ACKNOWLEDGED
    via: Via = Via.NONE


def zone_event_rows(notices: Sequence[ZoneEvent]) -> Frame:
    """Return an event row a notice, in the lane of the counterparty's receipts."""
    chain, counterparty, height, reason, relayer, event, via = zip(*notices, strict=True)
    reasons = sorted(set(reason))
    zero = repeat_value(np.uint64(0), len(notices))
    rows = lanes_of(np.array(counterparty), np.array(chain), RECEIPT).with_columns(
        kind=repeat_value(np.uint8(Kind.CONTROL), len(notices)),
        index=np.array(height, dtype=np.uint64),
        sender=np.array(relayer, dtype=np.uint64),
        receiver=zero,
        callback=zero,
    )
    events = np.array([int(bit) for bit in event], dtype=np.uint16)
    why = names_column(reasons, np.array([reasons.index(text) for text in reason]))
    ways = np.array([int(way) for way in via], dtype=np.uint8)
    return event_rows(rows, events, chain=rows["destination"], on_lane=True, reason=why, via=ways)
