"""Messages for programs: the value of calls and answers, and messages from users.

A message from a user to a program of another chain, or to a halted chain, is refused.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from causeway_proofs.order import find_positions

from causeway.core.frame import Frame
from causeway.core.vocabulary import Kind, ValueHolder, ValueReason
from causeway.protocols.shared.events import EventLog
from causeway.protocols.shared.execution import ARRIVALS, NO_PROGRAM, refuse_users, user_arrivals
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.state import State
from causeway.protocols.xdm.value.balances import MESSAGES, ChainSums, Purse

REJECTED = 16
"""Code of an answer that the protocol made for a refused request."""


def issue_arriving_value(arrivals: Frame, money: ChainSums, *, local: bool = False) -> None:
    """Issue the value of arrivals: on hold for a call, on the program's account for an answer.

    Args:
        arrivals: Messages for programs, with ``LANE_COLUMNS``.
        money: Sums of the chains, changed in place.
        local: The messages come from their own chain, which holds their value.
    """
    for kind, holder in ((Kind.REQUEST, ValueHolder.REQUESTS), (Kind.RESPONSE, ValueHolder.ACCOUNT)):
        rows = arrivals.filter(arrivals["kind"] == kind)
        giver = MESSAGES if local else Purse(ValueHolder.ABROAD, rows["source"])
        amounts = rows["amount_low"], rows["amount_high"]
        money.move(ValueReason.RECEIVED, rows["destination"], giver, Purse(holder, rows["receiver"]), *amounts, rows)


CHAIN_HALTED = "ChainHalted"


def ingress_arrivals(ingress: pa.Table, state: State, context: Context, log: EventLog) -> Frame:
    """Return messages from users as arrivals (``ARRIVALS``); log refused ones."""
    chain = context.network.positions_of(ingress["chain"].to_numpy())
    messages = user_arrivals(ingress, chain, context.height)
    running = np.isin(chain, context.chains)
    is_local = context.network.host_of(messages["receiver"]) == chain.view(np.int32)
    is_local &= find_positions(state["accounts"]["program"], messages["receiver"]) >= 0
    refuse_users(messages.filter(running & ~is_local), NO_PROGRAM, log)
    refuse_users(messages.filter(~running), CHAIN_HALTED, log)
    return messages.filter(running & is_local).select(ARRIVALS)
