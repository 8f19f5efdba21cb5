"""The valid set rule (VSR), ACCEPT or REJECT for every message; pushes to input queues.

A message is enqueued (ACCEPT), dropped and lost (ACCEPT with a cause), or rejected (a reason). For a rejected request
the sender's subnet makes a reject response; it sends a rejected response on to its receiver's host (IC reference 3.3,
X-2).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.ic.stream_header import RejectReason
from causeway_proofs.order import find_positions, group_rows

from causeway.core.frame import Frame, empty_frame
from causeway.core.joins import encode_keys
from causeway.core.queues import Queues
from causeway.core.vocabulary import NO_CHAIN, Event, Kind, Via
from causeway.protocols.contract import NO_HOST
from causeway.protocols.ic.registry import Context
from causeway.protocols.ic.state import ARRIVALS_SCHEMA, PROGRAMS, State
from causeway.protocols.shared.events import EventLog, event_rows, names_column
from causeway.protocols.shared.execution import credit_accounts
from causeway.protocols.shared.messages import MESSAGE_COLUMNS

Mask = npt.NDArray[np.bool_]


class LostCause(IntEnum):
    """Cause of dropping a message for good (IC reference X-11).

    The cycles of a ``late_response`` are not lost: its originator, which had another answer, gets them.
    """

    NOTHING = 0
    sender_mismatch = 1
    receiver_mismatch = 2
    response_induction_failed = 3
    NonMatchingResponse = 4
    late_response = 5


def lost_causes(causes: npt.NDArray[np.uint8]) -> pa.DictionaryArray:
    """Return the name of each ``LostCause``."""
    return names_column([cause.name for cause in LostCause], causes)


@dataclass(frozen=True)
class Verdicts:
    """One verdict a message: ``reason`` 0 is ACCEPT.

    An accepted message with a non-zero ``cause`` is dropped.
    """

    reason: npt.NDArray[np.uint8]
    cause: npt.NDArray[np.uint8]


def vsr_check_xnet(state: State, messages: Frame, context: Context) -> Verdicts:
    """Return the destinations' verdicts on ``messages``.

    They have ``LANE_COLUMNS`` and the message columns.

    The messages of one input queue must be adjacent and in push order. The rules follow IC reference 3.3, "Judging one
    message".
    """
    options, registry = context.options, context.registry
    length = len(messages)
    reason = np.zeros(length, dtype=np.uint8)
    cause = np.zeros(length, dtype=np.uint8)
    request = messages["kind"] == Kind.REQUEST

    def reject(mask: Mask, why: RejectReason) -> None:
        reason[mask & (reason == 0) & (cause == 0)] = why

    def drop(mask: Mask, why: LostCause) -> None:
        cause[mask & (reason == 0) & (cause == 0)] = why

    if options.reject_every:
        offset = messages["index"] + np.uint64(1 - options.index_base)
        reject(request & (offset % np.uint64(options.reject_every) == 0), RejectReason.Unknown)

    mismatch = registry.host_of(messages["sender"]) != messages["source"].view(np.int32)
    if mismatch.any():
        on_path = np.zeros(length, dtype=bool)
        remote_senders = messages.take(np.flatnonzero(mismatch))
        if options.migrations == "on":
            on_path[mismatch] = _on_path(remote_senders, context)
        if registry.has_ended:
            # Responses of canisters without a host, from a previous host.
            senders = remote_senders["sender"]
            ended = (remote_senders["kind"] == Kind.RESPONSE) & (registry.host_of(senders) == NO_HOST)
            on_path[mismatch] |= ended & (registry.position_on_trace(senders, remote_senders["source"]) >= 0)
        reject(request & on_path, RejectReason.CanisterMigrating)
        mismatch &= ~on_path
        if options.sender_mismatch == "deployed":
            reject(request & mismatch, RejectReason.CanisterMigrating)
        drop(mismatch, LostCause.sender_mismatch)

    if "routed" in messages:
        # Messages routed before the last move of their sender, and receiver.
        sender_moved, receiver_moved = (messages["routed"] < registry.hosted_since(messages[end]) for end in PROGRAMS)
        if options.vsr == "deployed":
            reject(request & (sender_moved | receiver_moved), RejectReason.CanisterMigrating)
        else:
            drop(request & sender_moved, LostCause.sender_mismatch)
            if options.receiver_check == "on":
                drop(request & receiver_moved, LostCause.receiver_mismatch)

    is_misrouted = registry.host_of(messages["receiver"]) != messages["destination"].view(np.int32)
    if options.vsr == "accept_all":
        if options.receiver_check == "on" and is_misrouted.any():
            drop(is_misrouted, LostCause.receiver_mismatch)
        return Verdicts(reason, cause)
    reject(is_misrouted, RejectReason.CanisterMigrating)
    absent = ~state.installed(messages["receiver"])
    reject(absent & request, RejectReason.CanisterNotFound)
    drop(absent, LostCause.response_induction_failed)
    if options.limits == "deployed":
        candidates = np.flatnonzero(request & (reason == 0) & (cause == 0))
        full = _exceeds_capacity(state.input_queues, messages.take(candidates), options.limit.queue_capacity)
        reason[candidates[full]] = RejectReason.QueueFull
    return Verdicts(reason, cause)


def _exceeds_capacity(input_queues: Queues, requests: Frame, capacity: int) -> Mask:
    """Return a mask of the requests whose input queue already holds ``capacity`` requests."""
    if len(requests) == 0:
        return np.zeros(0, dtype=bool)
    groups = group_rows(requests["receiver"], requests["sender"])
    queued = input_queues.elements.select([*input_queues.keys, "kind"])
    queued = queued.filter(queued["kind"] == Kind.REQUEST)
    own, keys = encode_keys(input_queues.keys, queued, requests.select(input_queues.keys).take(groups.starts))
    queues, counts = np.unique(own, return_counts=True)
    rows = find_positions(queues, keys)
    occupied = np.where(rows >= 0, counts[rows] if len(counts) else 0, 0).astype(np.int64)
    full: Mask = groups.ranks() + groups.spread(occupied) >= capacity
    return full


def _on_path(messages: Frame, context: Context) -> Mask:
    """Return a mask of remote senders' messages from a subnet on a migration path.

    This is OnPath (X-2).
    """
    registry = context.registry
    sender_left = registry.position_on_trace(messages["sender"], messages["source"]) >= 0
    sender_host = registry.position_on_trace(messages["sender"], registry.host_of(messages["sender"])) >= 0
    receiver_from = registry.position_on_trace(messages["receiver"], messages["source"])
    receiver_at = registry.position_on_trace(messages["receiver"], messages["destination"], last=True)
    reject_response = (messages["kind"] == Kind.RESPONSE) & (messages["code"] > 0)
    receiver_moved = (receiver_from >= 0) & (receiver_at >= 0) & (receiver_from < receiver_at)
    on_path: Mask = (sender_left & sender_host) | (reject_response & receiver_moved)
    return on_path


U8 = npt.NDArray[np.uint8]

_NO_LANE = {
    "source": np.uint32(NO_CHAIN),
    "destination": np.uint32(NO_CHAIN),
    "substream": np.uint64(0),
    "index": np.uint64(0),
}


def match_responses(state: State, responses: Frame) -> tuple[State, U8]:
    """Close the calls that ``responses`` answer (X-2 push_input).

    The refund of a late best-effort response goes to the originator.

    Returns:
        The state, and the ``LostCause`` of each response without an open call; 0 for the others.
    """
    matching, calls = state.open_calls.close_answered(responses)
    cause = np.zeros(len(responses), dtype=np.uint8)
    state = replace(state, open_calls=calls) if len(responses) else state
    if matching.all():
        return state, cause
    cause[~matching] = LostCause.NonMatchingResponse
    late = np.flatnonzero(~matching & (responses["deadline"] > 0))
    rows = find_positions(state.accounts["program"], responses["receiver"][late])
    late, rows = late[rows >= 0], rows[rows >= 0]
    is_past = responses["callback"][late] < state.accounts["next_callback"][rows]
    late, rows = late[is_past], rows[is_past]
    if len(late):
        cause[late] = LostCause.late_response
        refunds = responses.select(["amount_high", "amount_low"]).take(late)
        state = replace(
            state, accounts=credit_accounts(state.accounts, rows, refunds["amount_high"], refunds["amount_low"])
        )
    return state, cause


def push_messages(state: State, messages: Frame) -> tuple[State, Frame]:
    """Push messages to their input queues (m.src, m.dst) in row order.

    Also return ``queue_index``.
    """
    index, queues = state.input_queues.number(messages)
    queues = queues.merge(messages.select(MESSAGE_COLUMNS).with_columns(index=index))
    return replace(state, input_queues=queues), messages.with_columns(queue_index=index)


def push_responses(state: State, responses: Frame, chains: np.ndarray, via: Via, log: EventLog) -> tuple[State, Frame]:
    """Push the responses of routing on ``chains``.

    Also return them as arrivals (``ARRIVALS_SCHEMA``).

    A response without an open call is dropped.
    """
    if len(responses) == 0:
        return state, empty_frame(ARRIVALS_SCHEMA)
    state, cause = match_responses(state, responses)
    if cause.any():
        dropped = np.flatnonzero(cause)
        at = {"chain": chains[dropped], "via": via, "reason": lost_causes(cause[dropped])}
        log.add(event_rows(responses.take(dropped), Event.DROPPED, **at))
        responses, chains = responses.filter(cause == 0), chains[cause == 0]
    state, pushed = push_messages(state, responses)
    arrivals = pushed.with_columns(chain=chains, via=np.uint8(via), **_NO_LANE)
    return state, arrivals.select(ARRIVALS_SCHEMA.names)
