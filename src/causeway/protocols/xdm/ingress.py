"""Messages from users: those for programs that are not on their chain, or for a halted chain, are refused."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from causeway.model.frame import Frame
from causeway.model.order import positions_in
from causeway.protocols.arrivals import ARRIVALS, NO_PROGRAM, from_users, refuse_users
from causeway.protocols.events import EventLog
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.state import State

CHAIN_HALTED = "ChainHalted"


def ingress_arrivals(ingress: pa.Table, state: State, context: Context, log: EventLog) -> Frame:
    """Return messages from users as arrivals (``ARRIVALS``); one that is refused leaves an event."""
    chain = context.network.positions_of(ingress["chain"].to_numpy())
    messages = from_users(ingress, chain, context.height)
    running = np.isin(chain, context.chains)
    here = context.network.host_of(messages["receiver"]) == chain.view(np.int32)
    here &= positions_in(state["accounts"]["program"], messages["receiver"]) >= 0
    refuse_users(messages.filter(running & ~here), NO_PROGRAM, log)
    refuse_users(messages.filter(~running), CHAIN_HALTED, log)
    return messages.filter(running & here).select(ARRIVALS)
