"""Ledger events of channels and allow lists.

Reference: XDM, section 1.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from causeway.core.frame import Frame
from causeway.core.vocabulary import NO_CHAIN, Event, Kind, Via
from causeway.protocols.shared.events import EventLog, event_rows, names_column
from causeway.protocols.shared.messages import LANE_COLUMNS, blank_messages
from causeway.protocols.xdm.state import NOBODY

_MOST = 2**64 - 1

OPERATOR_SLASHED = "OperatorSlashed"
"""Event name of an operator that loses its stake; the reference names no amount."""


@dataclass(frozen=True)
class ChainEvent:
    """An event on ``chain`` about ``foreign``.

    Attributes:
        chain: Position of the chain.
        foreign: Position of the other chain.
        what: Name of the event or, with ``refused``, of the error.
        channel: Number of the channel.
        index: Nonce, or block number.
        by: Calling program, or None.
        amount: Value held, released or lost, in units.
        refused: The event is an error.
    """

    chain: int
    foreign: int
    what: str
    channel: int = 0
    index: int = 0
    by: int | None = None
    amount: int = 0
    refused: bool = False


def message_events(
    messages: Frame,
    what: str | Sequence[str],
    *,
    at: str = "source",
    by: Sequence[int] | None = None,
    amounts: Sequence[int] | None = None,
    refused: bool | Sequence[bool] = False,
) -> list[ChainEvent]:
    """Create an event of each message (``LANE_COLUMNS``).

    Args:
        messages: Messages with their lanes.
        what: Event name, or one a message.
        at: Column with the chain of the events: ``source`` or ``destination``.
        by: Calling program of each.
        amounts: Amount of each, limited to 64 bits.
        refused: Events are errors, or a flag a message.
    """
    count, other = len(messages), "destination" if at == "source" else "source"
    columns = (messages[name].tolist() for name in (at, other, "substream", "index"))
    names = [what] * count if isinstance(what, str) else what
    programs: Sequence[int | None] = [None] * count if by is None else by
    errors = [refused] * count if isinstance(refused, bool) else refused
    rows = zip(*columns, names, programs, [0] * count if amounts is None else amounts, errors, strict=True)
    return [
        ChainEvent(chain, foreign, name, substream >> 1, index, program, min(amount, _MOST), error)
        for chain, foreign, substream, index, name, program, amount, error in rows
    ]


def log_chain_events(notices: Sequence[ChainEvent], chains: int, log: EventLog) -> None:
    """Log a control row of each event, in the request lane of its channel.

    Args:
        notices: Events.
        chains: Number of chains in the network.
        log: Event log.
    """
    if not notices:
        return
    names = sorted({notice.what for notice in notices})
    chain = np.array([notice.chain for notice in notices], dtype=np.uint32)
    foreign = [notice.foreign if notice.foreign < chains else NO_CHAIN for notice in notices]
    rows = blank_messages(
        len(notices),
        kind=int(Kind.CONTROL),
        source=chain,
        destination=np.array(foreign, dtype=np.uint32),
        substream=np.array([2 * notice.channel for notice in notices], dtype=np.uint64),
        index=np.array([notice.index for notice in notices], dtype=np.uint64),
        sender=np.array([NOBODY if notice.by is None else notice.by for notice in notices], dtype=np.uint64),
        receiver=NOBODY,
        amount_low=np.array([notice.amount for notice in notices], dtype=np.uint64),
    )
    bits = [Event.REJECTED if notice.refused else Event.ACKNOWLEDGED for notice in notices]
    why = names_column(names, np.array([names.index(notice.what) for notice in notices]))
    events = np.array([int(bit) for bit in bits], dtype=np.uint16)
    log.add(event_rows(rows, events, chain=chain, on_lane=True, reason=why))


def log_messages(rows: Frame, events: Event, names: pa.DictionaryArray, log: EventLog) -> None:
    """Log events of delivered messages on their destinations.

    Args:
        rows: Lane and ``index`` of the messages.
        events: The events.
        names: The reason of each message.
        log: The log.
    """
    control = blank_messages(len(rows), kind=int(Kind.CONTROL), **{name: rows[name] for name in LANE_COLUMNS})
    columns = {"chain": rows["destination"], "queue_index": rows["index"], "via": Via.LANE, "reason": names}
    log.add(event_rows(control, events, on_lane=True, **columns))
