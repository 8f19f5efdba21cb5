"""One block of a set of chains (XDM reference 3): what was brought, what programs make of it, and what goes out.

The steps and their order are those of ``docs/protocols/xdm.md``, "One block of one chain".
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from causeway.model.frame import Frame, concat
from causeway.model.joins import stretches
from causeway.model.ledger import COLLECTED_MESSAGES, Event, Kind, Via
from causeway.model.order import stable_order
from causeway.model.value import Holder, Why
from causeway.protocols.arrivals import from_local, handle
from causeway.protocols.contract import Inputs, View
from causeway.protocols.events import EventLog, event_rows, names_column
from causeway.protocols.messages import LANE, LANE_COLUMNS, blank_messages
from causeway.protocols.xdm.allowlists import apply_allowlists
from causeway.protocols.xdm.bundles import judge
from causeway.protocols.xdm.channels import call_channels, close_exhausted_channels
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.counted import count_brought, count_notices
from causeway.protocols.xdm.endowments import Endowments, costs_after
from causeway.protocols.xdm.endpoints import TRANSPORTER_ENDPOINT
from causeway.protocols.xdm.errors import OK, Validity, name_of
from causeway.protocols.xdm.inbox import take
from causeway.protocols.xdm.ingress import ingress_arrivals
from causeway.protocols.xdm.money import MESSAGES, Money, Purse
from causeway.protocols.xdm.notices import log_notices
from causeway.protocols.xdm.outgoing import send
from causeway.protocols.xdm.pool import waiting
from causeway.protocols.xdm.prepare import prepare
from causeway.protocols.xdm.program_value import log_handled
from causeway.protocols.xdm.responses import acknowledge, store_responses
from causeway.protocols.xdm.rewards import share_rewards
from causeway.protocols.xdm.state import Asked, State
from causeway.protocols.xdm.validate import Brought, read_envelopes, validate

_VALIDITY = list(Validity)
_VALIDITY_NAMES = [code.name for code in _VALIDITY]


def process_block(
    state: State, brought: Brought, view: View, inputs: Inputs[State], money: Money, context: Context, log: EventLog
) -> tuple[State, Frame]:
    """Return the state after a block, not yet committed, and what is outbound.

    ``view``: what the chains see of the height before.
    """
    state = apply_allowlists(state, view, context, log)
    state, called = call_channels(state, money, context, log)
    channels = state["channels"], state["next_channels"]
    found = read_envelopes(brought, view.tables["blocks"], view.tables["declared_under"], *channels, context)
    verdicts, bundles, invalid = judge(found, validate(found), brought, context)
    log_notices(invalid, len(context.network.names), log)
    if len(bundles) or len(state["bundles"]):
        state = state.with_tables(bundles=bundles)
    now = prepare(state, found, verdicts, context.options.inbox == "stored")
    if context.options.inbox == "pool":
        state, now = waiting(state, now, brought, verdicts, context)
    state = count_brought(state, state["early"], brought, found, now, view)
    # Leave an event for each envelope that was refused, with the name of why.
    for rows, codes in now.refused:
        messages = blank_messages(len(rows), kind=np.full(len(rows), Kind.CONTROL, dtype=np.uint8))
        names = names_column(_VALIDITY_NAMES, np.searchsorted(_VALIDITY, codes))
        rows = messages.with_columns(**{name: rows[name] for name in LANE_COLUMNS})
        where = {"chain": rows["destination"], "queue_index": rows["index"], "via": Via.LANE, "reason": names}
        log.add(event_rows(rows, Event.REJECTED, on_lane=True, **where))
    taken = take(state, now, money, context)
    # Leave an event for each request that its response refuses, and for each transfer that is taken.
    requests = taken.requests
    moved = (requests.endpoint == TRANSPORTER_ENDPOINT) & (requests.asked == Asked.ENDPOINT)
    for chosen, outcome in ((requests.error != OK, Event.REJECTED), (moved & (requests.error == OK), Event.EXECUTED)):
        if not chosen.any():
            continue
        rows = requests.rows.filter(chosen)
        messages = blank_messages(len(rows), kind=np.full(len(rows), Kind.CONTROL, dtype=np.uint8))
        rows = messages.with_columns(**{name: rows[name] for name in LANE_COLUMNS})
        where = {"chain": rows["destination"], "queue_index": rows["index"], "via": Via.LANE}
        # The names of responses' errors, empty for none.
        values = np.unique(requests.error[chosen])
        names = names_column([name_of(int(code)) for code in values], np.searchsorted(values, requests.error[chosen]))
        log.add(event_rows(rows, Event.RECEIVED | outcome, on_lane=True, reason=names, **where))
    taken = replace(taken, state=count_notices(taken.state, taken.notices))
    log_notices(taken.notices, len(context.network.names), log)
    # Leave the ranges of requests that have their responses.
    if len(taken.settled):
        rows = taken.settled.take(stable_order(*(taken.settled[name] for name in LANE_COLUMNS)))
        at, first, end = stretches(rows["index"], *(rows[name] for name in LANE))
        log.collected(rows.select(LANE).take(at), COLLECTED_MESSAGES, first, end)
    local, lanes = from_local(inputs.offered, taken.state.local())
    state = taken.state.with_local(lanes) if len(local) else taken.state
    # Log what messages of local lanes bring: with a call it is in the program's hand, with an answer its own.
    for kind, holder in ((Kind.REQUEST, Holder.REQUESTS), (Kind.RESPONSE, Holder.ACCOUNT)):
        rows = local.filter(local["kind"] == kind)
        amounts = rows["amount_low"], rows["amount_high"]
        money.move(Why.RECEIVED, rows["destination"], MESSAGES, Purse(holder, rows["receiver"]), *amounts, rows)
    users = ingress_arrivals(inputs.ingress, state, context, log)
    # The state after programs handled what arrived, in its order, and what they made.
    arrivals = concat([taken.arrivals, local, users])
    endowments = Endowments(state, money, context)
    own = endowments.taken_off(state["accounts"])
    handled, executed, produced = handle(arrivals, context.programs, own, state.programs, log)
    log_handled(handled, executed, money, context)
    state = state.with_programs(endowments.put_back(executed.accounts), executed.programs)
    state, responses, rest = store_responses(state, taken.requests, produced, money, context)
    state, left = acknowledge(state, taken.requests, money)
    log_notices(left, len(context.network.names), log)
    state, sent = send(state, rest, view.tables["channels"], money, context, log)
    state, closed = close_exhausted_channels(state, money, context, log)
    tick = np.full(len(responses), context.tick, dtype=np.uint64)
    outbound = concat([called, sent, closed, responses.with_columns(sent_tick=tick).select(sent.names)])
    order = stable_order(*(outbound[name] for name in ("destination", "source", "substream", "index")))
    log_notices(money.refused, len(context.network.names), log)
    state = money.into(share_rewards(state, money, context))
    if (costs := costs_after(state, money)) is not state["costs"]:
        state = state.with_tables(costs=costs)
    return state, outbound.take(order)
