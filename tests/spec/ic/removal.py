"""End of canisters: step 0 of a round (3.1, 2.7)."""

from dataclasses import replace
from typing import Any

from tests.spec.ic.events import Event, canister_event, ingress_event
from tests.spec.ic.ids import CanisterId, canister_text
from tests.spec.ic.induction import answer_call, append_to_stream
from tests.spec.ic.messages import RejectCode, Request, Response, reject_response
from tests.spec.ic.options import Options
from tests.spec.ic.queues import flat_elements
from tests.spec.ic.routing import made_smaller
from tests.spec.ic.state import CanonicalState, Registry, remove

CAUSE = "canister_removed"


def end_canisters(
    state: CanonicalState, old: Registry, new: Registry, options: Options
) -> tuple[CanonicalState, dict[CanisterId, list[Event]]]:
    """Canisters that the new version maps to no subnet end on their last host, whether it runs the round or not, but
    not on one that has stopped. The events are those of each canister."""
    logs: dict[CanisterId, list[Event]] = {}
    if state.stopped is not None:
        return state, logs
    for canister in sorted(old.subnet_assignment):
        if old.host(canister) != state.own or new.host(canister) is not None:
            continue
        log = logs[canister] = []
        state = replace(state, height=state.height + 1)
        state = answer_what_waits(state, new, canister, options, log)
        state = send_its_answers(state, new, canister, options, log)
        state = lose_the_rest(state, canister, log)
        state = replace(state, height=state.height - 1)
    return state, logs


def answer_what_waits(
    state: CanonicalState, registry: Registry, canister: CanisterId, options: Options, log: list[Event]
) -> CanonicalState:
    """Requests in its input queues and those it has in hand get a reject with all their cycles."""
    code, text = RejectCode.DestinationInvalid, f"Canister {canister_text(canister)} not found"
    waiting: list[tuple[Request, int | None]] = [
        (m, k) for (_, r, k), m in flat_elements(state.input_queues).items() if r == canister and isinstance(m, Request)
    ]
    for (sender, callback, cycles, deadline), times in sorted(state.in_hand.get(canister, {}).items()):
        waiting += [(Request(canister, sender, callback, cycles, deadline=deadline), None)] * times
    for request, k in waiting:
        columns: dict[str, Any] = {"cause": CAUSE, "code": int(code), "text": text, "queue_index": k}
        log.append(canister_event("rejected", state.own, state.height, request, **columns))
        response = reject_response(request, code, text)
        host = registry.host(response.originator)
        if host is None:
            log.append(canister_event("dropped", state.own, state.height, response, cause="unroutable_response"))
        elif host == state.own:
            state = answer_call(state, response, options, log, via="synthetic", cause=CAUSE)
        else:
            state, place = append_to_stream(state, host, response, options)
            log.append(
                canister_event("committed", state.own, state.height, response, remote=host, at=place, cause=CAUSE)
            )
    return state


def send_its_answers(
    state: CanonicalState, registry: Registry, canister: CanisterId, options: Options, log: list[Event]
) -> CanonicalState:
    """Responses in its output queues are put into streams, whatever their limits."""
    for (sender, _, k), m in flat_elements(state.output_queues).items():
        if sender != canister or not isinstance(m, Response):
            continue
        host = registry.host(m.dst)
        if host is None:
            cause = "unroutable_response"
            log.append(canister_event("dropped", state.own, state.height, m, queue_index=k, cause=cause))
            continue
        sent = made_smaller(state, m, k, options, log)
        state, place = append_to_stream(state, host, sent, options)
        log.append(canister_event("committed", state.own, state.height, sent, remote=host, at=place, queue_index=k))
    return state


def lose_the_rest(state: CanonicalState, canister: CanisterId, log: list[Event]) -> CanonicalState:
    """Its own requests, answers that it has not taken yet, users' messages and its balance are Lost."""
    after, ended = remove(state, canister)
    own, height = state.own, state.height
    for (_, _, k), m in flat_elements(ended.output_queues).items():
        if isinstance(m, Request):
            log.append(canister_event("dropped", own, height, m, queue_index=k, cause=CAUSE))
    for (_, _, k), m in flat_elements(ended.input_queues).items():
        if isinstance(m, Response):
            log.append(canister_event("dropped", own, height, m, queue_index=k, cause=CAUSE))
    for (_, k), ingress in flat_elements(ended.ingress_queues).items():
        log.append(ingress_event("dropped", own, height, ingress, k, cause=CAUSE))
    if canister in ended.programs:
        columns: dict[str, Any] = {"receiver": canister, "cycles": ended.balances[canister], "cause": CAUSE}
        log.append(Event("dropped", own, height, "control", **columns))
    return after
