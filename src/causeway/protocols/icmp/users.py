"""Messages from users: those for programs that are not on their chain are refused with an event; the others wait for
the chain's next block."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from causeway.model.frame import concat, from_table
from causeway.model.ledger import Event, Kind, Via
from causeway.model.order import U64, groups_of, positions_in, stable_order
from causeway.protocols.events import EventLog, event_rows
from causeway.protocols.icmp.context import Context
from causeway.protocols.icmp.state import State
from causeway.protocols.icmp.tables import POOL_SCHEMA, STATE_TABLES
from causeway.protocols.messages import blank_messages

NO_PROGRAM = "NO_PROGRAM"


def pooled(ingress: pa.Table, state: State, context: Context, log: EventLog) -> State:
    """Return the state with messages from users in the pool. A message's number (``callback``) is made of the height
    and its position in what came to the chain in this tick."""
    if ingress.num_rows == 0:
        return state
    chain = context.network.positions_of(ingress["chain"].to_numpy())
    rows = from_table(ingress.select(["receiver", "sender", "method", "payload"]))
    index = _ranks(chain)
    place = (np.uint64(context.height) << np.uint64(32)) + index
    messages = blank_messages(
        len(chain),
        kind=Kind.INGRESS,
        chain=chain,
        index=index,
        place=place,
        callback=place,
        sender=rows["sender"],
        receiver=rows["receiver"],
        method=rows["method"].dictionary_encode(),
        payload=rows["payload"],
    )
    here = context.network.host_of(messages["receiver"]) == chain.view(np.int32)
    here &= positions_in(state["accounts"]["program"], messages["receiver"]) >= 0
    refused = messages.filter(~here)
    refused = refused.with_columns(callback=refused["index"])
    where = {"chain": refused["chain"], "index": refused["index"], "via": Via.INGRESS, "reason": NO_PROGRAM}
    log.add(event_rows(refused, Event.REJECTED, **where))
    taken = messages.filter(here).select(POOL_SCHEMA.names)
    if len(taken) == 0:
        return state
    joined = concat([state["pool"], taken])
    order = stable_order(*(joined[name] for name in STATE_TABLES["pool"].order))
    return state.with_tables(pool=joined.take(order))


def _ranks(chain: np.ndarray) -> U64:
    """Return the position of each row among those of its chain, from 1, in row order."""
    order = stable_order(chain)
    ranks: U64 = np.empty(len(chain), dtype=np.uint64)
    ranks[order] = groups_of(chain[order]).ranks().astype(np.uint64) + np.uint64(1)
    return ranks
