"""Judging one message (3.3, D-5, X-2)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tests.spec.ic.ids import CanisterId, SubnetId
from tests.spec.ic.messages import ACCEPT, REJECT, CanisterMessage, Reason, Request, Response, Verdict
from tests.spec.ic.options import Options
from tests.spec.ic.queues import StreamIndex
from tests.spec.ic.state import CallId, CanonicalState, Registry

LATE_RESPONSE = "late_response"

SenderClass = Literal["Match", "OnPath", "Mismatch"]


@dataclass(frozen=True)
class Judgement:
    """The signal for a message, and what becomes of an accepted one: enqueued, or dropped with a cause."""

    verdict: Verdict
    dropped: str | None = None

    @property
    def enqueued(self) -> bool:
        return self.verdict == ACCEPT and self.dropped is None


def valid_sender(registry: Registry, sn: SubnetId, m: CanisterMessage) -> bool:
    """subnet_assignment[m.src] = sn; undefined counts as false (3.4)."""
    return registry.host(m.src) == sn


def sender_class(own: SubnetId, registry: Registry, sn: SubnetId, m: CanisterMessage, options: Options) -> SenderClass:
    """Match, OnPath or Mismatch (X-2)."""
    if valid_sender(registry, sn, m):
        return "Match"
    if isinstance(m, Response) and registry.host(m.src) is None and sn in registry.trace(m.src):
        return "OnPath"  # what a canister that has ended answered is wanted still
    if options.migrations == "on":
        trace = registry.trace(m.src)
        if sn in trace and registry.host(m.src) in trace:
            return "OnPath"
        is_reject = isinstance(m, Response) and m.reject is not None
        if is_reject and lists_before(registry.trace(m.dst), sn, own):
            return "OnPath"
    return "Mismatch"


def lists_before(trace: tuple[SubnetId, ...], earlier: SubnetId, later: SubnetId) -> bool:
    """`trace` lists `earlier` at some place before some place of `later`."""
    return any(subnet == earlier and later in trace[place + 1 :] for place, subnet in enumerate(trace))


def judge(
    state: CanonicalState,
    registry: Registry,
    sn: SubnetId,
    at: StreamIndex,
    m: CanisterMessage,
    routed_at: int,
    requests_in_queue: int,
    open_calls: Mapping[CallId, tuple[CanisterId, int]],
    options: Options,
) -> Judgement:
    """The eight steps of "Judging one message". `routed_at`: the round that put it into the stream.
    `requests_in_queue`: requests in input queue (m.src, m.dst) now, those pushed earlier in this round included.
    `open_calls`: those that no response was enqueued for, in this round too."""
    own = state.own
    is_request = isinstance(m, Request)
    the_class = sender_class(own, registry, sn, m, options)
    # 1
    if options.reject_every > 0 and is_request and (at[1] - options.index_base + 1) % options.reject_every == 0:
        return Judgement(REJECT(Reason.Unknown))
    # 2
    if is_request and the_class == "OnPath":
        return Judgement(REJECT(Reason.CanisterMigrating))
    # 3
    if is_request and the_class == "Mismatch" and options.sender_mismatch == "deployed":
        return Judgement(REJECT(Reason.CanisterMigrating))
    # 4
    if the_class == "Mismatch":
        return Judgement(ACCEPT, dropped="sender_mismatch")
    # 5
    if is_request and is_stale(registry, m, routed_at):
        if options.vsr == "deployed":
            return Judgement(REJECT(Reason.CanisterMigrating))
        if routed_at < registry.moved(m.src):
            return Judgement(ACCEPT, dropped="sender_mismatch")
        if options.receiver_check == "on":
            return Judgement(ACCEPT, dropped="receiver_mismatch")
    # 6
    if options.vsr == "accept_all":
        if options.receiver_check == "on" and registry.host(m.dst) != own:
            return Judgement(ACCEPT, dropped="receiver_mismatch")
        if registry.host(m.dst) != own:
            return Judgement(ACCEPT)
    # 7
    if options.vsr == "deployed":
        if registry.host(m.dst) != own:
            return Judgement(REJECT(Reason.CanisterMigrating))
        if m.dst not in state.programs:
            if is_request:
                return Judgement(REJECT(Reason.CanisterNotFound))
            return Judgement(ACCEPT, dropped="response_induction_failed")
        if options.limits == "deployed" and is_request and requests_in_queue >= options.limit.queue_capacity:
            return Judgement(REJECT(Reason.QueueFull))
    # 8
    if isinstance(m, Response):
        return Judgement(ACCEPT, dropped=unwanted(m, open_calls, state))
    return Judgement(ACCEPT)


def is_stale(registry: Registry, m: CanisterMessage, routed_at: int) -> bool:
    """Routed before the last move of either end came into force: later ones may have overtaken it (G3, X-12)."""
    return routed_at < max(registry.moved(m.src), registry.moved(m.dst))


def unwanted(m: Response, open_calls: Mapping[CallId, tuple[CanisterId, int]], state: CanonicalState) -> str | None:
    """Why a response for a canister that is hosted here is not enqueued; None if it answers an open call (X-2).

    `late_response`: a best-effort one for a call that was answered before; its refund is credited."""
    if open_calls.get((m.originator, m.callback)) == (m.respondent, m.deadline):
        return None
    ever_made = m.callback < state.next_callbacks.get(m.originator, 0)
    return LATE_RESPONSE if m.deadline > 0 and ever_made else "NonMatchingResponse"
