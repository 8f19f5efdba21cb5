"""One block of a set of chains: delivered messages, program execution, outbound messages.

The steps follow ``docs/explanation/protocols/xdm.md``, "One block of one chain".

Reference: XDM, section 3.
"""

from __future__ import annotations

import numpy as np
from causeway_proofs.order import stable_order

from causeway.core.frame import Frame, concat
from causeway.core.vocabulary import Event
from causeway.protocols.contract import Inputs, View
from causeway.protocols.shared.events import EventLog, names_column
from causeway.protocols.shared.execution import credit_accounts, handle, local_arrivals
from causeway.protocols.xdm.calls.allowlists import apply_allowlists
from causeway.protocols.xdm.calls.arrivals import ingress_arrivals, issue_arriving_value
from causeway.protocols.xdm.calls.channels import call_channels, close_exhausted_channels
from causeway.protocols.xdm.calls.prepare import AcceptedMessages, hold_early_messages, prepare
from causeway.protocols.xdm.calls.relay_message import process_messages
from causeway.protocols.xdm.calls.request import send_messages
from causeway.protocols.xdm.calls.responses import acknowledge, store_responses
from causeway.protocols.xdm.check_counters import count_delivered, count_notices
from causeway.protocols.xdm.consensus.bundles import validate_bundles
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.errors import MessageValidity
from causeway.protocols.xdm.events import log_chain_events, log_messages
from causeway.protocols.xdm.state import State
from causeway.protocols.xdm.validate import DeliveredEnvelopes, read_envelopes, validate
from causeway.protocols.xdm.value.balances import ChainSums
from causeway.protocols.xdm.value.payments import deduct_endowments, log_handled, share_rewards, update_costs

_VALIDITY = list(MessageValidity)
_VALIDITY_NAMES = [code.name for code in _VALIDITY]


def process_block(
    state: State,
    delivered: DeliveredEnvelopes,
    view: View,
    inputs: Inputs[State],
    money: ChainSums,
    context: Context,
    log: EventLog,
) -> tuple[State, Frame]:
    """Execute one block of the chains in ``context``.

    Args:
        state: State before the block.
        delivered: Envelopes to include.
        view: Tables that chains published at the previous height.
        inputs: Local messages and messages from users.
        money: Sums of the chains, changed in place.
        context: Context of the block.
        log: Event log.

    Returns:
        The state before its commit, and the outbound messages (``OUTBOUND_SCHEMA``).
    """
    tables, count = view.tables, len(context.network.names)
    # Calls of root and of programs on allow lists and channels (X-1, 3.1, 3.7).
    state = apply_allowlists(state, view, context, log)
    state, called = call_channels(state, money, context, log)
    # Validate the delivered envelopes and bundles (3.4, 1 to 9; 3.5; X-6), and take the messages in turn.
    channels = state["channels"], state["next_channels"]
    found = read_envelopes(delivered, tables["blocks"], tables["declared_under"], *channels, context)
    verdicts, bundles, invalid = validate_bundles(found, validate(found), delivered, context)
    log_chain_events(invalid, count, log)
    if len(bundles) or len(state["bundles"]):
        state = state.with_tables(bundles=bundles)
    now = prepare(state, found, verdicts, context.options.inbox == "stored")
    if context.options.inbox == "pool":
        state, now = hold_early_messages(state, now, delivered, verdicts, context)
    state = count_delivered(state, state["early"], delivered, found, now, view)
    _log_refused(now, log)
    # Execute requests (3.4, 10 to 15) and responses (3.5), then programs with all arrivals.
    state, requests, arrivals, notices = process_messages(state, now, money, context, log)
    if notices:
        state = count_notices(state, notices)
        log_chain_events(notices, count, log)
    state, produced = _run_programs(state, arrivals, inputs, money, context, log)
    # Respond and acknowledge (3.4, 15; 3.6), send (3.3), and close channels without further nonces (3.7).
    state, responses, rest = store_responses(state, requests, produced, money, context)
    state, unacknowledged = acknowledge(state, requests, money)
    log_chain_events(unacknowledged, count, log)
    state, sent = send_messages(state, rest, tables["channels"], money, context, log)
    state, closed = close_exhausted_channels(state, money, context, log)
    log_chain_events(money.refused, count, log)
    # Share the fees that became due among operators (3.8).
    state = share_rewards(state, money, context)
    if (costs := update_costs(state, money)) is not state["costs"]:
        state = state.with_tables(costs=costs)
    tick = np.full(len(responses), context.tick, dtype=np.uint64)
    outbound = concat([called, sent, closed, responses.with_columns(sent_tick=tick).select(sent.names)])
    order = stable_order(*(outbound[name] for name in ("destination", "source", "substream", "index")))
    return state, outbound.take(order)


def _log_refused(now: AcceptedMessages, log: EventLog) -> None:
    """Log the refused messages with their reasons."""
    for rows, codes in now.refused:
        log_messages(rows, Event.REJECTED, names_column(_VALIDITY_NAMES, np.searchsorted(_VALIDITY, codes)), log)


def _run_programs(
    state: State, arrived: Frame, inputs: Inputs[State], money: ChainSums, context: Context, log: EventLog
) -> tuple[State, Frame]:
    """Run programs with arrived and local messages and those of users; handlers do not see endowments.

    Returns the state, and the messages of programs in order of production.
    """
    arrivals = [arrived]
    if len(inputs.offered):
        local, queues = local_arrivals(inputs.offered, state.local())
        state = state.replace_local(queues)
        issue_arriving_value(local, money, local=True)
        arrivals.append(local)
    arrivals.append(ingress_arrivals(inputs.ingress, state, context, log))
    accounts, endowed, left = deduct_endowments(state, money, context)
    handled, executed, produced = handle(concat(arrivals), context.programs, accounts, state.programs, log)
    log_handled(handled, executed, money, context)
    accounts = executed.accounts
    if len(endowed):
        accounts = credit_accounts(accounts, endowed, np.zeros(len(endowed), dtype=np.uint64), left)
    return state.with_programs(accounts, executed.programs), produced
