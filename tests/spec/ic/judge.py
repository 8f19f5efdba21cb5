"""Judging one message (docs/protocols/ic.md; 3.3, D-5, X-2)."""

from dataclasses import dataclass
from typing import Literal

from .ids import SubnetId
from .messages import ACCEPT, REJECT, CanisterMessage, Reason, Request, Response, Verdict
from .options import Options
from .queues import StreamIndex
from .state import CanonicalState, Registry

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
    requests_in_queue: int,
    options: Options,
) -> Judgement:
    """The six steps of "Judging one message". `requests_in_queue`: requests in input queue (m.src, m.dst) now, those
    pushed earlier in this round included."""
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
    if options.vsr == "accept_all":
        if options.receiver_check == "on" and registry.host(m.dst) != own:
            return Judgement(ACCEPT, dropped="receiver_mismatch")
        return Judgement(ACCEPT)
    # 6
    if registry.host(m.dst) != own:
        return Judgement(REJECT(Reason.CanisterMigrating))
    if m.dst not in state.programs:
        if is_request:
            return Judgement(REJECT(Reason.CanisterNotFound))
        return Judgement(ACCEPT, dropped="response_induction_failed")
    if options.limits == "deployed" and is_request and requests_in_queue >= options.limit.queue_capacity:
        return Judgement(REJECT(Reason.QueueFull))
    return Judgement(ACCEPT)
