"""One block of a set of chains (XDM reference 3): what was brought, what programs make of it, and what goes out.

The steps and their order are those of ``docs/protocols/xdm.md``, "One block of one chain".
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from causeway_proofs.order import stable_order

from causeway.core.frame import Frame, concat
from causeway.core.joins import merge_ranges
from causeway.core.vocabulary import COLLECTED_MESSAGES, Event, Kind, ValueHolder, ValueReason, Via
from causeway.protocols.contract import Inputs, View
from causeway.protocols.shared.events import EventLog, event_rows, names_column
from causeway.protocols.shared.execution import handle, local_arrivals
from causeway.protocols.shared.messages import LANE, LANE_COLUMNS, blank_messages
from causeway.protocols.xdm.calls.allowlists import apply_allowlists
from causeway.protocols.xdm.calls.arrivals import ingress_arrivals
from causeway.protocols.xdm.calls.channels import call_channels, close_exhausted_channels
from causeway.protocols.xdm.calls.prepare import hold_early_messages, prepare
from causeway.protocols.xdm.calls.relay_message import process_messages
from causeway.protocols.xdm.calls.request import send_messages
from causeway.protocols.xdm.calls.responses import acknowledge, store_responses
from causeway.protocols.xdm.chains import TRANSPORTER_ENDPOINT
from causeway.protocols.xdm.check_counters import count_delivered, count_notices
from causeway.protocols.xdm.consensus.bundles import validate_bundles
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.errors import OK, MessageValidity, error_name
from causeway.protocols.xdm.events import log_chain_events
from causeway.protocols.xdm.state import RequestKind, State
from causeway.protocols.xdm.validate import DeliveredEnvelopes, read_envelopes, validate
from causeway.protocols.xdm.value.balances import MESSAGES, ChainSums, Purse
from causeway.protocols.xdm.value.payments import Endowments, log_handled, share_rewards, update_costs

_VALIDITY = list(MessageValidity)
_VALIDITY_NAMES = [code.name for code in _VALIDITY]


def process_block(
    state: State,
    brought: DeliveredEnvelopes,
    view: View,
    inputs: Inputs[State],
    money: ChainSums,
    context: Context,
    log: EventLog,
) -> tuple[State, Frame]:
    """Return the state after a block, not yet committed, and what is outbound.

    ``view``: what the chains see of the height before.
    """
    state = apply_allowlists(state, view, context, log)
    state, called = call_channels(state, money, context, log)
    channels = state["channels"], state["next_channels"]
    found = read_envelopes(brought, view.tables["blocks"], view.tables["declared_under"], *channels, context)
    verdicts, bundles, invalid = validate_bundles(found, validate(found), brought, context)
    log_chain_events(invalid, len(context.network.names), log)
    if len(bundles) or len(state["bundles"]):
        state = state.with_tables(bundles=bundles)
    now = prepare(state, found, verdicts, context.options.inbox == "stored")
    if context.options.inbox == "pool":
        state, now = hold_early_messages(state, now, brought, verdicts, context)
    state = count_delivered(state, state["early"], brought, found, now, view)
    # Leave an event for each envelope that was refused, with the name of why.
    for rows, codes in now.refused:
        messages = blank_messages(len(rows), kind=np.full(len(rows), Kind.CONTROL, dtype=np.uint8))
        names = names_column(_VALIDITY_NAMES, np.searchsorted(_VALIDITY, codes))
        rows = messages.with_columns(**{name: rows[name] for name in LANE_COLUMNS})
        where = {"chain": rows["destination"], "queue_index": rows["index"], "via": Via.LANE, "reason": names}
        log.add(event_rows(rows, Event.REJECTED, on_lane=True, **where))
    taken = process_messages(state, now, money, context)
    # Leave an event for each request that its response refuses, and for each transfer that is taken.
    requests = taken.requests
    moved = (requests.endpoint == TRANSPORTER_ENDPOINT) & (requests.asked == RequestKind.ENDPOINT)
    for chosen, outcome in ((requests.error != OK, Event.REJECTED), (moved & (requests.error == OK), Event.EXECUTED)):
        if not chosen.any():
            continue
        rows = requests.rows.filter(chosen)
        messages = blank_messages(len(rows), kind=np.full(len(rows), Kind.CONTROL, dtype=np.uint8))
        rows = messages.with_columns(**{name: rows[name] for name in LANE_COLUMNS})
        where = {"chain": rows["destination"], "queue_index": rows["index"], "via": Via.LANE}
        # The names of responses' errors, empty for none.
        values = np.unique(requests.error[chosen])
        names = names_column(
            [error_name(int(code)) for code in values], np.searchsorted(values, requests.error[chosen])
        )
        log.add(event_rows(rows, Event.RECEIVED | outcome, on_lane=True, reason=names, **where))
    taken = replace(taken, state=count_notices(taken.state, taken.notices))
    log_chain_events(taken.notices, len(context.network.names), log)
    # Leave the ranges of requests that have their responses.
    if len(taken.settled):
        rows = taken.settled.take(stable_order(*(taken.settled[name] for name in LANE_COLUMNS)))
        at, first, end = merge_ranges(rows["index"], *(rows[name] for name in LANE))
        log.collected(rows.select(LANE).take(at), COLLECTED_MESSAGES, first, end)
    local, lanes = local_arrivals(inputs.offered, taken.state.local())
    state = taken.state.replace_local(lanes) if len(local) else taken.state
    # Log what messages of local lanes bring: with a call it is in the program's hand, with an answer its own.
    for kind, holder in ((Kind.REQUEST, ValueHolder.REQUESTS), (Kind.RESPONSE, ValueHolder.ACCOUNT)):
        rows = local.filter(local["kind"] == kind)
        amounts = rows["amount_low"], rows["amount_high"]
        money.move(ValueReason.RECEIVED, rows["destination"], MESSAGES, Purse(holder, rows["receiver"]), *amounts, rows)
    users = ingress_arrivals(inputs.ingress, state, context, log)
    # The state after programs handled what arrived, in its order, and what they made.
    arrivals = concat([taken.arrivals, local, users])
    endowments = Endowments(state, money, context)
    own = endowments.deduct_endowments(state["accounts"])
    handled, executed, produced = handle(arrivals, context.programs, own, state.programs, log)
    log_handled(handled, executed, money, context)
    state = state.with_programs(endowments.restore_endowments(executed.accounts), executed.programs)
    state, responses, rest = store_responses(state, taken.requests, produced, money, context)
    state, left = acknowledge(state, taken.requests, money)
    log_chain_events(left, len(context.network.names), log)
    state, sent = send_messages(state, rest, view.tables["channels"], money, context, log)
    state, closed = close_exhausted_channels(state, money, context, log)
    tick = np.full(len(responses), context.tick, dtype=np.uint64)
    outbound = concat([called, sent, closed, responses.with_columns(sent_tick=tick).select(sent.names)])
    order = stable_order(*(outbound[name] for name in ("destination", "source", "substream", "index")))
    log_chain_events(money.refused, len(context.network.names), log)
    state = money.into(share_rewards(state, money, context))
    if (costs := update_costs(state, money)) is not state["costs"]:
        state = state.with_tables(costs=costs)
    return state, outbound.take(order)
