"""One block of a set of chains: delivered messages, program execution, outbound messages.

The steps follow ``docs/explanation/protocols/xdm.md``, "One block of one chain".

Reference: XDM, section 3.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
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
from causeway.protocols.xdm.calls.relay_message import DueRequests, process_messages
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
    state = apply_allowlists(state, view, context, log)
    state, called = call_channels(state, money, context, log)
    channels = state["channels"], state["next_channels"]
    found = read_envelopes(delivered, view.tables["blocks"], view.tables["declared_under"], *channels, context)
    verdicts, bundles, invalid = validate_bundles(found, validate(found), delivered, context)
    log_chain_events(invalid, len(context.network.names), log)
    if len(bundles) or len(state["bundles"]):
        state = state.with_tables(bundles=bundles)
    now = prepare(state, found, verdicts, context.options.inbox == "stored")
    if context.options.inbox == "pool":
        state, now = hold_early_messages(state, now, delivered, verdicts, context)
    state = count_delivered(state, state["early"], delivered, found, now, view)
    _log_refused(now.refused, log)
    processed = process_messages(state, now, money, context)
    _log_requests(processed.requests, log)
    processed = replace(processed, state=count_notices(processed.state, processed.notices))
    log_chain_events(processed.notices, len(context.network.names), log)
    _log_settled(processed.settled, log)
    local, lanes = local_arrivals(inputs.offered, processed.state.local())
    state = processed.state.replace_local(lanes) if len(local) else processed.state
    # The value of a local call is on hold for its program; that of an answer is the program's own.
    for kind, holder in ((Kind.REQUEST, ValueHolder.REQUESTS), (Kind.RESPONSE, ValueHolder.ACCOUNT)):
        rows = local.filter(local["kind"] == kind)
        amounts = rows["amount_low"], rows["amount_high"]
        money.move(ValueReason.RECEIVED, rows["destination"], MESSAGES, Purse(holder, rows["receiver"]), *amounts, rows)
    users = ingress_arrivals(inputs.ingress, state, context, log)
    arrivals = concat([processed.arrivals, local, users])
    endowments = Endowments(state, money, context)
    accounts = endowments.deduct_endowments(state["accounts"])
    handled, executed, produced = handle(arrivals, context.programs, accounts, state.programs, log)
    log_handled(handled, executed, money, context)
    state = state.with_programs(endowments.restore_endowments(executed.accounts), executed.programs)
    state, responses, rest = store_responses(state, processed.requests, produced, money, context)
    state, left = acknowledge(state, processed.requests, money)
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


def _control_rows(rows: Frame) -> Frame:
    """Return protocol messages with the lanes and indices of ``rows``."""
    messages = blank_messages(len(rows), kind=np.full(len(rows), Kind.CONTROL, dtype=np.uint8))
    return messages.with_columns(**{name: rows[name] for name in LANE_COLUMNS})


def _log_refused(refused: Iterable[tuple[Frame, npt.NDArray[np.int64]]], log: EventLog) -> None:
    """Log each refused envelope with its error."""
    for rows, codes in refused:
        rows = _control_rows(rows)
        names = names_column(_VALIDITY_NAMES, np.searchsorted(_VALIDITY, codes))
        columns = {"chain": rows["destination"], "queue_index": rows["index"], "via": Via.LANE, "reason": names}
        log.add(event_rows(rows, Event.REJECTED, on_lane=True, **columns))


def _log_requests(requests: DueRequests, log: EventLog) -> None:
    """Log each request with an error response, and each accepted transfer."""
    transfer = (requests.endpoint == TRANSPORTER_ENDPOINT) & (requests.asked == RequestKind.ENDPOINT)
    failed = requests.error != OK
    for chosen, outcome in ((failed, Event.REJECTED), (transfer & ~failed, Event.EXECUTED)):
        if not chosen.any():
            continue
        rows = _control_rows(requests.rows.filter(chosen))
        columns = {"chain": rows["destination"], "queue_index": rows["index"], "via": Via.LANE}
        values, positions = np.unique(requests.error[chosen], return_inverse=True)
        names = names_column([error_name(int(code)) for code in values], positions)
        log.add(event_rows(rows, Event.RECEIVED | outcome, on_lane=True, reason=names, **columns))


def _log_settled(settled: Frame, log: EventLog) -> None:
    """Log the index ranges of requests with a response."""
    if len(settled):
        rows = settled.take(stable_order(*(settled[name] for name in LANE_COLUMNS)))
        at, first, end = merge_ranges(rows["index"], *(rows[name] for name in LANE))
        log.collected(rows.select(LANE).take(at), COLLECTED_MESSAGES, first, end)
