"""The handlers of a block: each program runs over what it is given, in the block's order (IBC reference 3.3, 3.4)."""

from __future__ import annotations

import numpy as np

from causeway.model.frame import Frame
from causeway.model.ledger import NO_CHAIN, Event, Kind
from causeway.model.order import stable_order
from causeway.protocols.events import EventLog, event_rows
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.inputs import Code
from causeway.protocols.ibc.state import State
from causeway.protocols.messages import MESSAGE_COLUMNS


def execute(state: State, arrivals: Frame, context: Context, log: EventLog) -> tuple[State, Frame]:
    """Return the state after the handlers, and what they produced, in the order of the arrivals that it came of.

    ``arrivals``: message columns with their lane and ``via``; a handler that raises changes nothing, and answers a
    request with a failure (G10).
    """
    if len(arrivals) == 0:
        return state, arrivals.select(MESSAGE_COLUMNS)
    order = stable_order(arrivals["receiver"])
    inputs = arrivals.take(order)
    outcome = context.programs.run(inputs.select(MESSAGE_COLUMNS), state.canisters, state.programs)
    _log(arrivals, inputs.take(outcome.failures["row"]), outcome.failures, log)
    produced = outcome.produced.take(stable_order(order[outcome.origins].astype(np.uint64)))
    return state.with_programs(outcome.accounts, outcome.programs), produced


def _log(arrivals: Frame, failed: Frame, failures: Frame, log: EventLog) -> None:
    bits = np.full(len(arrivals), int(Event.RECEIVED | Event.EXECUTED), dtype=np.uint16)
    bits[arrivals["kind"] == Kind.RESPONSE] |= int(Event.ANSWERED)
    place = np.where(arrivals["remote"] == NO_CHAIN, arrivals["callback"], arrivals["index"])
    where = {"chain": arrivals["chain"], "via": arrivals["via"], "code": arrivals["code"]}
    log.add(event_rows(arrivals, bits, on_lane=True, queue_index=place, **where))
    if len(failed):
        reason = failures["text"].dictionary_encode()
        where = {"chain": failed["chain"], "code": Code.HANDLER_FAILED, "reason": reason}
        log.add(event_rows(failed, Event.REJECTED, queue_index=failed["index"], **where))
