"""Messages from users: those for programs that are not on their chain are refused with an event."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from causeway.model.frame import Frame, from_table, repeated
from causeway.model.ledger import NO_CHAIN, Event, Kind, Via
from causeway.model.order import U64, groups_of, positions_in, stable_order
from causeway.protocols.events import EventLog, event_rows
from causeway.protocols.messages import blank_messages
from causeway.protocols.xdm.arrivals import ARRIVALS
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.state import State

NO_PROGRAM = "NO_PROGRAM"
CHAIN_HALTED = "ChainHalted"


def ingress_arrivals(ingress: pa.Table, state: State, context: Context, log: EventLog) -> Frame:
    """Return messages from users as arrivals. A message's number (``callback``) is made of the height and its position
    in what came to the chain in this block."""
    chain = context.network.positions_of(ingress["chain"].to_numpy())
    rows = from_table(ingress.select(["receiver", "sender", "method", "payload"]))
    index = _ranks(chain)
    messages = blank_messages(
        len(chain),
        kind=Kind.INGRESS,
        source=repeated(np.uint32(NO_CHAIN), len(chain)),
        destination=chain,
        substream=repeated(np.uint64(0), len(chain)),
        index=index,
        via=repeated(np.uint8(Via.INGRESS), len(chain)),
        callback=(np.uint64(context.height) << np.uint64(32)) + index,
        sender=rows["sender"],
        receiver=rows["receiver"],
        method=rows["method"].dictionary_encode(),
        payload=rows["payload"],
    )
    running = np.isin(chain, context.chains)
    here = context.network.host_of(messages["receiver"]) == chain.view(np.int32)
    here &= positions_in(state["accounts"]["program"], messages["receiver"]) >= 0
    _refuse(messages.filter(running & ~here), NO_PROGRAM, log)
    _refuse(messages.filter(~running), CHAIN_HALTED, log)
    return messages.filter(running & here).select(ARRIVALS)


def _refuse(messages: Frame, reason: str, log: EventLog) -> None:
    refused = messages.with_columns(callback=messages["index"])
    where = {"chain": refused["destination"], "index": refused["index"], "via": Via.INGRESS}
    log.add(event_rows(refused, Event.REJECTED, reason=reason, **where))


def _ranks(chain: np.ndarray) -> U64:
    """Return the position of each row among those of its chain, from 1, in row order."""
    order = stable_order(chain)
    ranks: U64 = np.empty(len(chain), dtype=np.uint64)
    ranks[order] = groups_of(chain[order]).ranks().astype(np.uint64) + np.uint64(1)
    return ranks
