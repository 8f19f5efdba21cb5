"""Messages from users: those for programs that are not on their chain are refused with an event, and so are those for a
chain that makes no block any more; the others wait for the chain's next block."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from causeway.model.frame import concat
from causeway.model.order import U64, positions_in, stable_order
from causeway.protocols.arrivals import NO_PROGRAM, from_users, refuse_users
from causeway.protocols.contract import Chains
from causeway.protocols.events import EventLog
from causeway.protocols.execution import outdated_on
from causeway.protocols.icmp.context import Context
from causeway.protocols.icmp.errors import CHAIN_HALTED
from causeway.protocols.icmp.state import State
from causeway.protocols.icmp.tables import POOL_SCHEMA, STATE_TABLES


def to_change(state: State, context: Context) -> U64:
    """Return the programs that changes installed on ``context.chains``, or gave another class, and whose chain has not
    made a block since: it makes one for them."""
    hosts = context.network.host_of(context.programs.changed)
    return outdated_on(context.programs, hosts, context.chains, state["accounts"], state.programs)


def chains_to_change(state: State, context: Context) -> Chains:
    """Return the chains of these programs."""
    return context.network.host_of(to_change(state, context)).view(np.uint32)


def pooled(ingress: pa.Table, state: State, context: Context, log: EventLog) -> State:
    """Return the state with messages from users in the pool, in the order of their numbers (``callback``)."""
    if ingress.num_rows == 0:
        return state
    chain = context.network.positions_of(ingress["chain"].to_numpy())
    messages = from_users(ingress, chain, context.height)
    here = context.network.host_of(messages["receiver"]) == chain.view(np.int32)
    installed = positions_in(state["accounts"]["program"], messages["receiver"]) >= 0
    here &= installed | np.isin(messages["receiver"], to_change(state, context))
    refuse_users(messages.filter(~here), NO_PROGRAM, log)
    messages = messages.with_columns(chain=chain, place=messages["callback"])
    taken = messages.filter(here).select(POOL_SCHEMA.names)
    if len(taken) == 0:
        return state
    joined = concat([state["pool"], taken])
    order = stable_order(*(joined[name] for name in STATE_TABLES["pool"].order))
    return state.with_tables(pool=joined.take(order))


def refuse_stranded(state: State, halted: Sequence[int], log: EventLog) -> State:
    """Refuse messages that wait for parachains which make no block any more, and return the state without them.

    Args:
        state: The state, with what users sent in this tick in the pool.
        halted: Parachains that are halted for ever.
        log: Gets an event a message, as of one that another protocol refuses because its chain is halted.
    """
    pool = state["pool"]
    stranded = np.isin(pool["chain"], halted) if halted else np.zeros(len(pool), dtype=bool)
    if not stranded.any():
        return state
    rows = pool.filter(stranded)
    refuse_users(rows.with_columns(destination=rows["chain"], index=rows["place"]), CHAIN_HALTED, log)
    return state.with_tables(pool=pool.filter(~stranded))
