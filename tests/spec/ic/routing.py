"""XNet routing phase: 3.6, with the limits and the routing order of X-6 and X-7."""

from collections.abc import Mapping
from dataclasses import replace

from tests.spec.ic.events import Event, canister_event
from tests.spec.ic.ids import CanisterId, SubnetId, draw
from tests.spec.ic.induction import answer_call, append_to_stream, without_output
from tests.spec.ic.messages import (
    NON_EXISTENT_CANISTER,
    CanisterMessage,
    RejectCode,
    Request,
    Response,
    message_size,
    payload_size,
    reject_response,
)
from tests.spec.ic.options import Options
from tests.spec.ic.queues import Queue, QueueIndex, delete_map, flat_elements
from tests.spec.ic.state import CanonicalState, QueueName, Registry, Stream

OutputQueues = Mapping[QueueName, Queue[CanisterMessage]]
SubnetAssignment = Mapping[CanisterId, SubnetId]


def post_process(
    state: CanonicalState, registry: Registry, options: Options, seed: int
) -> tuple[CanonicalState, list[Event]]:
    """The XNet routing phase."""
    log: list[Event] = []
    a = registry.subnet_assignment
    replies = non_existent_canister_replies(state.output_queues, a, options)
    unroutable = _unroutable(state.output_queues, a)
    for (_, _, k), m in unroutable.items():
        log.append(_no_route(state, m, k))
    filtered = replace(without_output(state, unroutable), output_queues=filter(state.output_queues, a))
    for reply in replies.values():
        filtered = answer_call(filtered, reply, options, log, via="synthetic", cause="no_route")
    filtered = reject_oversized(filtered, a, options, log)

    after = filtered
    for sender, receiver, k in routing_order(filtered, options, seed):
        m = filtered.output_queues[sender, receiver].elements[k]
        destination = a[m.dst]
        if at_limit(after, destination, registry, options):
            continue  # it stays in its queue, and so do all later ones for this stream: a full one stays full
        after = without_output(after, {(sender, receiver, k): m})
        after, place = append_to_stream(after, destination, m, options)
        log.append(canister_event("committed", state.own, state.height, m, remote=destination, at=place, queue_index=k))

    return after, log


def reject_oversized(state: CanonicalState, a: SubnetAssignment, options: Options, log: list[Event]) -> CanonicalState:
    """X-7: a request to another subnet whose payload is too large is answered here; data of such a response gives way
    to a reject. Before any limit is looked at."""
    for (sender, receiver, k), m in flat_elements(state.output_queues).items():
        if isinstance(m, Request):
            if not too_large(m, options) or a[receiver] == state.own:
                continue
            code, text, cause = int(RejectCode.CanisterError), _too_large(m, options), "too_large"
            columns = {"queue_index": k, "cause": cause, "code": code, "text": text}
            log.append(canister_event("rejected", state.own, state.height, m, **columns))
            state = without_output(state, {(sender, receiver, k): m})
            state = answer_call(state, reject_response(m, code, text), options, log, via="synthetic", cause=cause)
        else:
            smaller = made_smaller(state, m, k, options, log)
            queue = state.output_queues[sender, receiver]
            queue = replace(queue, elements={**queue.elements, k: smaller})
            state = replace(state, output_queues={**state.output_queues, (sender, receiver): queue})
    return state


def too_large(m: CanisterMessage, options: Options) -> bool:
    """Whether its payload is beyond the limit (X-7). Texts of rejects were cut when they were made."""
    size, is_reject = payload_size(m), isinstance(m, Response) and m.reject is not None
    return options.limits == "deployed" and not is_reject and size > options.limit.message_bytes


def _too_large(m: CanisterMessage, options: Options) -> str:
    return f"{type(m).__name__} payload of {payload_size(m)} bytes exceeds the limit of {options.limit.message_bytes}"


def made_smaller(state: CanonicalState, m: Response, k: int, options: Options, log: list[Event]) -> Response:
    """What is sent of a response at index k of its output queue."""
    if not too_large(m, options):
        return m
    smaller = replace(m, data=None, reject=(int(RejectCode.CanisterError), _too_large(m, options)))
    log.append(canister_event("rejected", state.own, state.height, smaller, queue_index=k, cause="too_large"))
    return smaller


def _unroutable(queues: OutputQueues, a: SubnetAssignment) -> dict[QueueIndex, CanisterMessage]:
    """{ (q ↦ m) | q = (·, dst, ·), dst not in dom(a) }, in order of (sender, receiver, queue index)."""
    return {(src, dst, k): m for (src, dst, k), m in flat_elements(queues).items() if dst not in a}


def filter(queues: OutputQueues, a: SubnetAssignment) -> dict[QueueName, Queue[CanisterMessage]]:
    """The queues without the messages for canisters in no subnet (3.6)."""
    return delete_map(queues, dict(_unroutable(queues, a)))


def non_existent_canister_replies(
    queues: OutputQueues, a: SubnetAssignment, options: Options
) -> dict[QueueIndex, Response]:
    """{ ((dst, src, i) ↦ NON_EXISTENT_CANISTER(m)) | ((src, dst, i) ↦ m), dst not in dom(a), m is a Request } (3.6);
    with `dead_destination = seed_literal` of responses too (D-8)."""
    return {
        (dst, src, i): NON_EXISTENT_CANISTER(m)
        for (src, dst, i), m in _unroutable(queues, a).items()
        if isinstance(m, Request) or options.dead_destination == "seed_literal"
    }


def _no_route(state: CanonicalState, m: CanisterMessage, queue_index: int) -> Event:
    """A request is rejected, a response is Lost."""
    if isinstance(m, Request):
        reply = NON_EXISTENT_CANISTER(m)
        assert reply.reject is not None
        code, text = reply.reject
        return canister_event(
            "rejected",
            state.own,
            state.height,
            m,
            queue_index=queue_index,
            cause="no_route",
            code=code,
            text=text,
        )
    return canister_event("dropped", state.own, state.height, m, queue_index=queue_index, cause="unroutable_response")


def routing_order(state: CanonicalState, options: Options, seed: int) -> list[QueueIndex]:
    """The order in which output messages are offered to the streams. It is fixed before any limit is looked at."""
    everything: list[QueueIndex] = [(s, r, k) for s, r, k in flat_elements(state.output_queues)]
    if options.limits == "none":
        return everything
    merged: dict[CanisterId, list[tuple[int, CanisterId, int]]] = {}
    for (sender, receiver), queue in state.output_queues.items():
        for position, k in enumerate(sorted(queue.elements)):
            merged.setdefault(sender, []).append((position, receiver, k))
    canisters = sorted(merged)
    if not canisters:
        return []
    by = draw(seed, state.own, state.height) % len(canisters)
    rotated = canisters[by:] + canisters[:by]
    order: list[QueueIndex] = []
    for one_pass in range(max(map(len, merged.values()))):
        for sender in rotated:
            if one_pass < len(merged[sender]):
                _, receiver, k = sorted(merged[sender])[one_pass]
                order.append((sender, receiver, k))
    return order


def at_limit(state: CanonicalState, destination: SubnetId, registry: Registry, options: Options) -> bool:
    """Whether the stream takes no message before the next push (X-6). The loopback stream is never full."""
    if options.limits == "none" or destination == state.own:
        return False
    stream = state.stream(destination)
    messages = sum(len(queue.elements) for queue in stream.msgs.values())
    if destination in registry.system and messages >= options.limit.system_stream_messages:
        return True
    return messages >= options.limit.stream_messages or stream_bytes(stream) >= options.limit.stream_bytes


def stream_bytes(stream: Stream) -> int:
    """Sum over the messages of MESSAGE_OVERHEAD + length of payload, plus the number of reject signals."""
    messages = sum(message_size(m) for queue in stream.msgs.values() for m in queue.elements.values())
    return messages + sum(verdict.reason is not None for verdict in stream.signals.values())
