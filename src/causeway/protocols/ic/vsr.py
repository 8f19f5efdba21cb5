"""The VSR, valid set rule: ACCEPT or REJECT for every message of a batch (IC reference 3.3, X-2).

Outcomes of one message: enqueued (ACCEPT), dropped and lost (ACCEPT with a cause), rejected (a reason; the sender's
subnet will make a reject response of a request and send a response to where its receiver now lives).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.frame import Frame
from causeway.model.joins import codes
from causeway.model.ledger import Kind
from causeway.model.order import groups_of, positions_in
from causeway.proofs.ic.stream_header import RejectReason
from causeway.protocols.contract import NO_HOST
from causeway.protocols.events import names_column
from causeway.protocols.ic.context import Context
from causeway.protocols.ic.state import PROGRAMS, State

Mask = npt.NDArray[np.bool_]


class LostCause(IntEnum):
    """Why a message was dropped for good (IC reference X-11). Of a ``late_response`` the cycles are not lost: its
    originator, who had another answer, has them."""

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
    """One verdict a message: ``reason`` 0 = ACCEPT; ``cause`` other than 0: accepted, but dropped."""

    reason: npt.NDArray[np.uint8]
    cause: npt.NDArray[np.uint8]

    @property
    def enqueued(self) -> Mask:
        """Return which messages go to their input queue."""
        enqueued: Mask = (self.reason == 0) & (self.cause == 0)
        return enqueued


def vsr_check_xnet(state: State, messages: Frame, context: Context) -> Verdicts:
    """Return the verdicts of their destinations on ``messages`` (``LANE_COLUMNS`` and the message columns).

    Messages of one input queue must be neighbours, in the order they would be pushed. The rules and their order are
    those of IC reference 3.3, "Judging one message".
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
        strangers = messages.take(np.flatnonzero(mismatch))
        if options.migrations == "on":
            on_path[mismatch] = _on_path(strangers, context)
        if registry.has_ended:
            on_path[mismatch] |= _of_ended(strangers, context)
        reject(request & on_path, RejectReason.CanisterMigrating)
        mismatch &= ~on_path
        if options.sender_mismatch == "deployed":
            reject(request & mismatch, RejectReason.CanisterMigrating)
        drop(mismatch, LostCause.sender_mismatch)

    stale = _stale(messages, context) if "routed" in messages else None
    if stale is not None and options.vsr == "accept_all":
        sender_moved, receiver_moved = stale
        drop(request & sender_moved, LostCause.sender_mismatch)
        if options.receiver_check == "on":
            drop(request & receiver_moved, LostCause.receiver_mismatch)
    elif stale is not None:
        reject(request & (stale[0] | stale[1]), RejectReason.CanisterMigrating)

    elsewhere = registry.host_of(messages["receiver"]) != messages["destination"].view(np.int32)
    if options.vsr == "accept_all":
        if options.receiver_check == "on":
            drop(elsewhere, LostCause.receiver_mismatch)
        return Verdicts(reason, cause)
    reject(elsewhere, RejectReason.CanisterMigrating)
    absent = ~state.installed(messages["receiver"])
    reject(absent & request, RejectReason.CanisterNotFound)
    drop(absent, LostCause.response_induction_failed)
    if options.limits == "deployed":
        candidates = np.flatnonzero(request & (reason == 0) & (cause == 0))
        # Which requests find their input queue already holding `capacity` requests.
        requests = messages.take(candidates)
        if len(requests) == 0:
            full: Mask = np.zeros(0, dtype=bool)
        else:
            groups = groups_of(requests["receiver"], requests["sender"])
            held = state.input_queues.elements.select([*state.input_queues.keys, "kind"])
            held = held.filter(held["kind"] == Kind.REQUEST)
            own, asked = codes(
                state.input_queues.keys, held, requests.select(state.input_queues.keys).take(groups.starts)
            )
            queues, counts = np.unique(own, return_counts=True)
            rows = positions_in(queues, asked)
            occupied = np.where(rows >= 0, counts[rows] if len(counts) else 0, 0).astype(np.int64)
            full = groups.ranks() + groups.spread(occupied) >= options.limit.queue_capacity
        reason[candidates[full]] = RejectReason.QueueFull
    return Verdicts(reason, cause)


def _stale(messages: Frame, context: Context) -> tuple[Mask, Mask]:
    """Return which messages were routed before their sender and before their receiver came to where they live."""
    sender, receiver = (messages["routed"] < context.registry.hosted_since(messages[end]) for end in PROGRAMS)
    return sender, receiver


def _on_path(messages: Frame, context: Context) -> Mask:
    """Return which messages, whose sender is hosted elsewhere, come over a subnet of a migration (X-2 OnPath)."""
    registry = context.registry
    sender_left = registry.position_on_trace(messages["sender"], messages["source"]) >= 0
    sender_host = registry.position_on_trace(messages["sender"], registry.host_of(messages["sender"])) >= 0
    receiver_from = registry.position_on_trace(messages["receiver"], messages["source"])
    receiver_at = registry.position_on_trace(messages["receiver"], messages["destination"], last=True)
    reject_response = (messages["kind"] == Kind.RESPONSE) & (messages["code"] > 0)
    receiver_moved = (receiver_from >= 0) & (receiver_at >= 0) & (receiver_from < receiver_at)
    on_path: Mask = (sender_left & sender_host) | (reject_response & receiver_moved)
    return on_path


def _of_ended(messages: Frame, context: Context) -> Mask:
    """Return which messages are responses of canisters on no subnet, from a subnet that hosted them: on their path."""
    registry = context.registry
    found: Mask = (messages["kind"] == Kind.RESPONSE) & (registry.host_of(messages["sender"]) == NO_HOST)
    return found & (registry.position_on_trace(messages["sender"], messages["source"]) >= 0)
