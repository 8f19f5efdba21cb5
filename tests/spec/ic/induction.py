# ruff: noqa: RUF001, RUF002 -- formulas keep the letters of the text they restate
"""Induction phase: 3.3, 3.4, and steps 1 to 4 of a round (3.1)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from tests.spec.ic.errors import InvariantViolation
from tests.spec.ic.events import Event, canister_event, ingress_event
from tests.spec.ic.ids import SubnetId
from tests.spec.ic.judge import LATE_RESPONSE, Judgement, judge, unwanted
from tests.spec.ic.messages import (
    ACCEPT,
    CanisterMessage,
    Ingress,
    RejectCode,
    Request,
    Response,
    Verdict,
    reject_of,
    reject_response,
)
from tests.spec.ic.options import Options
from tests.spec.ic.queues import (
    Index,
    Queue,
    QueueIndex,
    StreamIndex,
    concatenate,
    delete_map,
    flat_elements,
    maximum,
    new_queue,
    push_map,
    rank,
    successor,
)
from tests.spec.ic.slices import SliceName, StreamSlice, ascending_names, at, explicit_signals, included, subnet_of
from tests.spec.ic.state import (
    CanonicalState,
    QueueName,
    Registry,
    SubstreamId,
    ascending_subnets,
    expected_index,
    stream_begin,
    stream_end,
)

XNetMessages = Mapping[tuple[SubnetId, StreamIndex], CanisterMessage]
"""`(SubnetId × StreamIndex) ↦ Message`."""


@dataclass(frozen=True)
class DecodedBatch:
    """2.7, with the batch time."""

    ingress_payload: Mapping[int, Ingress] = field(default_factory=dict)
    xnet_payload: Mapping[SliceName, StreamSlice] = field(default_factory=dict)
    time_ns: int = 0


def pre_process(
    state: CanonicalState, registry: Registry, batch: DecodedBatch, options: Options
) -> tuple[CanonicalState, list[Event]]:
    """The induction phase. It starts the round: height moves on by one, and the time is max(old, batch time)."""
    state = replace(state, height=state.height + 1, number=state.number + 1, time_ns=max(state.time_ns, batch.time_ns))
    log: list[Event] = []
    state = time_out_requests(state, options, log)
    state = induct_loopback(state, registry, options, log)
    slices = [(subnet_of(name), batch.xnet_payload[name]) for name in ascending_names(batch.xnet_payload)]
    for sn, the_slice in slices:
        assert_slice(state, sn, the_slice, options)
    for sn, the_slice in slices:
        state = collect_from_header(state, registry, sn, the_slice, options, log)
    messages = {(sn, i): m for sn, the_slice in slices for i, m in the_slice.messages.items()}
    heights = {(sn, i): h for sn, the_slice in slices for i, h in the_slice.heights.items()}
    state = induct(state, registry, messages, heights, options, log, via="xnet")
    state = induct_ingress(state, registry, batch, options, log)
    return state, log


# ---- pushing one message


def substream_id(pair: QueueName, options: Options) -> SubstreamId:
    """() for flat streams, dst for per-destination ones, src for per-source ones (3.6)."""
    src, dst = pair
    named: dict[str, SubstreamId] = {"flat": (), "per_destination": dst, "per_source": src}
    return named[options.substreams]


def push_input(state: CanonicalState, message: CanisterMessage, options: Options) -> tuple[CanonicalState, int]:
    """Append to input queue (m.src, m.dst); also the queue index it got."""
    name = (message.src, message.dst)
    index = state.input_queues.get(name, new_queue(options.index_base)).next_index
    queues = push_map(state.input_queues, {(*name, 1): message}, options.index_base)
    return behind_others(replace(state, input_queues=queues), name, options), index


def behind_others(state: CanonicalState, name: QueueName, options: Options) -> CanonicalState:
    """An input queue that became non-empty has its turn after all others of its receiver (X-4)."""
    if options.messages_per_canister == 0 or name in state.turns:
        return state
    last = max((turn for (_, receiver), turn in state.turns.items() if receiver == name[1]), default=-1)
    return replace(state, turns={**state.turns, name: last + 1})


def answer_call(
    state: CanonicalState, response: Response, options: Options, log: list[Event], via: str, cause: str | None = None
) -> CanonicalState:
    """Enqueue a response that is made on its originator's own subnet, if its call is open still."""
    dropped = unwanted(response, state.open_calls, state)
    if dropped is not None:
        log.append(canister_event("dropped", state.own, state.height, response, via=via, cause=dropped))
        return credit(state, response) if dropped == LATE_RESPONSE else state
    state, index = push_input(close_call(state, response), response, options)
    log.append(canister_event("received", state.own, state.height, response, queue_index=index, via=via, cause=cause))
    return state


def close_call(state: CanonicalState, response: Response) -> CanonicalState:
    """A response was enqueued: its call is open no more."""
    left = {call: to for call, to in state.open_calls.items() if call != (response.originator, response.callback)}
    return replace(state, open_calls=left)


def credit(state: CanonicalState, response: Response) -> CanonicalState:
    """The refund of a response that is dropped goes to its originator at once."""
    balance = state.balances[response.originator] + response.refund
    return replace(state, balances={**state.balances, response.originator: balance})


def append_to_stream(
    state: CanonicalState, remote: SubnetId, message: CanisterMessage, options: Options
) -> tuple[CanonicalState, StreamIndex]:
    """Append at next_index of the stream to `remote` (D-14); also the stream index it got."""
    stream = state.stream(remote)
    substream = substream_id((message.src, message.dst), options)
    index = stream_end(stream, substream, options.index_base)
    msgs = push_map(stream.msgs, {(substream, 1): message}, options.index_base)
    heights = {**stream.heights, (substream, index): state.height}
    return state.with_stream(remote, replace(stream, msgs=msgs, heights=heights)), (substream, index)


# ---- step 1, time-outs


def time_out_requests(state: CanonicalState, options: Options, log: list[Event]) -> CanonicalState:
    """Guaranteed requests that were in an output queue for their lifetime become rejects to their senders (X-3)."""
    if options.timeouts == "off":
        return state
    lifetime_ns = options.request_lifetime_seconds * 10**9
    code, text = RejectCode.SysTransient, "Request timed out."
    for index, message in flat_elements(state.output_queues).items():
        sender, receiver, k = index
        if not isinstance(message, Request) or message.deadline != 0:
            continue
        if state.sent_times[sender, receiver, k] + lifetime_ns > state.time_ns:
            continue
        state = without_output(state, {(sender, receiver, k): message})
        log.append(
            canister_event("timed_out", state.own, state.height, message, queue_index=k, code=int(code), text=text)
        )
        state = answer_call(state, reject_response(message, code, text), options, log, via="timeout")
    return state


def without_output(state: CanonicalState, leaving: Mapping[QueueIndex, CanisterMessage]) -> CanonicalState:
    """delete(output_queues, leaving), and nothing is remembered of when they were sent."""
    return replace(
        state,
        output_queues=delete_map(state.output_queues, dict(leaving)),
        sent_times={index: time for index, time in state.sent_times.items() if index not in leaving},
    )


# ---- step 2, loopback (D-7)


def induct_loopback(state: CanonicalState, registry: Registry, options: Options, log: list[Event]) -> CanonicalState:
    """Induct all of streams[own] as if a slice of our own had come; delete them, then their signals; then rejects."""
    own = state.own
    if options.loopback == "seed_literal" or own not in state.streams:
        return state
    messages = {(own, (name, i)): m for (name, i), m in flat_elements(state.streams[own].msgs).items()}
    heights = {(own, i): h for i, h in state.streams[own].heights.items()}
    state = induct(state, registry, messages, heights, options, log, via="loopback")
    signals = state.streams[own].signals
    state = state.with_stream(own, replace(state.streams[own], signals={}))
    return collect_messages(state, registry, own, signals, options, log)


# ---- step 3, collection from slice headers (D-6, X-13)


def assert_slice(state: CanonicalState, sn: SubnetId, the_slice: StreamSlice, options: Options) -> None:
    """The hard asserts of X-13, which a slice that passed check_slice keeps."""
    base = options.index_base
    for substream in the_slice.substreams:
        signals_end = at(the_slice.signals_end, substream)
        begin = stream_begin(state.stream(sn), substream, base)
        end = stream_end(state.stream(sn), substream, base)
        if not begin <= signals_end <= end:
            raise InvariantViolation(f"signals_end {signals_end} from {sn} outside [{begin}, {end}]")
        rejects = [i for i, _ in the_slice.rejects.get(substream, ())]
        if any(i >= j for i, j in pairwise([*rejects, signals_end])):
            raise InvariantViolation(f"reject signals from {sn} are not ascending below signals_end")
        indices = the_slice.messages_of(substream)
        expected = expected_index(state.expected_xnet_indices, sn, substream, base)
        if indices and min(indices) != expected and options.first_index_rule == "unseen_only":
            raise InvariantViolation(f"messages from {sn} start at {min(indices)}, not at {expected}")


def collect_from_header(
    state: CanonicalState,
    registry: Registry,
    sn: SubnetId,
    the_slice: StreamSlice,
    options: Options,
    log: list[Event],
) -> CanonicalState:
    """Remove our messages that have a signal, handle the rejected ones, then remove our signals below slice.begin."""
    log.append(Event("received", state.own, state.height, "control", remote=sn, via="xnet", detail=included(the_slice)))
    for substream in the_slice.substreams:
        own_begin = stream_begin(state.stream(sn), substream, options.index_base)
        signals = explicit_signals(the_slice, substream, own_begin)
        state = collect_messages(state, registry, sn, signals, options, log)
    return collect_signals(state, sn, the_slice.begin, log)


def collect_messages(
    state: CanonicalState,
    registry: Registry,
    remote: SubnetId,
    signals: Mapping[StreamIndex, Verdict],
    options: Options,
    log: list[Event],
) -> CanonicalState:
    """streams.msgs <- delete(streams.msgs, those with a signal), index by index; a rejected one is handled at once."""
    for substream, i in sorted(signals):
        stream = state.stream(remote)
        if substream not in stream.msgs or i not in stream.msgs[substream].elements:
            continue  # handled before: the remote has not seen our new begin yet (D-6)
        message = stream.msgs[substream].elements[i]
        verdict = signals[substream, i]
        msgs = delete_map(stream.msgs, {(substream, i): message})
        heights = {place: h for place, h in stream.heights.items() if place != (substream, i)}
        state = state.with_stream(remote, replace(stream, msgs=msgs, heights=heights))
        reason = None if verdict.reason is None else verdict.reason.name
        for event in ("acknowledged", "collected"):
            log.append(
                canister_event(event, state.own, state.height, message, remote=remote, at=(substream, i), reason=reason)
            )
        state = handle_reject(state, registry, message, verdict, options, log)
    return state


def handle_reject(
    state: CanonicalState,
    registry: Registry,
    message: CanisterMessage,
    verdict: Verdict,
    options: Options,
    log: list[Event],
) -> CanonicalState:
    """A rejected request gives its sender a synthetic reject; a rejected response goes on its way again (X-13)."""
    if verdict.reason is None:
        return state
    own, height, cause = state.own, state.height, verdict.reason.name
    if isinstance(message, Request):
        response = reject_response(message, *reject_of(verdict.reason, message))
    else:
        response = message
    host = registry.host(response.originator)
    if host is None:
        log.append(canister_event("dropped", own, height, response, cause="unroutable_response"))
    elif host == own and isinstance(message, Request):
        state = answer_call(state, response, options, log, via="synthetic", cause=cause)
    else:
        state, place = append_to_stream(state, host, response, options)
        log.append(canister_event("committed", own, height, response, remote=host, at=place, cause=cause))
    return state


def collect_signals(
    state: CanonicalState, sn: SubnetId, begin: frozenset[StreamIndex], log: list[Event]
) -> CanonicalState:
    """streams.signals <- without { (sn, i) | j in slice.begin, i < j }."""
    if sn not in state.streams:
        return state
    stream = state.streams[sn]
    leaving = sorted((name, i) for name, i in stream.signals for other, j in begin if name == other and i < j)
    for name, i in leaving:
        reason = stream.signals[name, i].reason
        log.append(
            Event(
                "collected",
                state.own,
                state.height,
                "control",
                remote=sn,
                substream=name,
                index=i,
                reason=None if reason is None else reason.name,
            )
        )
    signals = {i: verdict for i, verdict in stream.signals.items() if i not in leaving}
    return state.with_stream(sn, replace(stream, signals=signals))


# ---- step 4, induction (3.3, 3.4)


def in_order(messages: XNetMessages) -> list[tuple[SubnetId, StreamIndex]]:
    """Subnets ascending, substreams ascending, index ascending."""
    return [
        (sn, i)
        for sn in ascending_subnets({sn for sn, _ in messages})
        for i in sorted(i for other, i in messages if other == sn)
    ]


def judge_xnet(
    state: CanonicalState,
    registry: Registry,
    messages: XNetMessages,
    heights: Mapping[tuple[SubnetId, StreamIndex], int],
    options: Options,
) -> dict[tuple[SubnetId, StreamIndex], Judgement]:
    """Judge all messages in order. A request accepted earlier in the round counts for the capacity of its queue, a
    response enqueued earlier has closed its call."""
    requests: dict[QueueName, int] = {
        name: sum(isinstance(m, Request) for m in queue.elements.values()) for name, queue in state.input_queues.items()
    }
    open_calls = dict(state.open_calls)
    judgements: dict[tuple[SubnetId, StreamIndex], Judgement] = {}
    for sn, i in in_order(messages):
        m = messages[sn, i]
        held = requests.get((m.src, m.dst), 0)
        judgements[sn, i] = judge(state, registry, sn, i, m, heights[sn, i], held, open_calls, options)
        if judgements[sn, i].enqueued and isinstance(m, Request):
            requests[m.src, m.dst] = held + 1
        elif judgements[sn, i].enqueued and registry.host(m.dst) == state.own:
            del open_calls[m.dst, m.callback]
    return judgements


def vsr_check_xnet(
    judgements: Mapping[tuple[SubnetId, StreamIndex], Judgement],
) -> set[tuple[SubnetId, StreamIndex]]:
    """The places whose message the VSR accepts (3.3)."""
    return {place for place, judgement in judgements.items() if judgement.verdict == ACCEPT}


def queue_order(messages: XNetMessages) -> Iterator[tuple[tuple[SubnetId, StreamIndex], QueueIndex]]:
    """For sn, substream, i ascending: append to list (m.src, m.dst); k = position in that list."""
    lengths: dict[QueueName, int] = {}
    for sn, i in in_order(messages):
        name = (messages[sn, i].src, messages[sn, i].dst)
        lengths[name] = lengths.get(name, 0) + 1
        yield (sn, i), (*name, lengths[name])


def queue_index(messages: XNetMessages) -> dict[QueueIndex, CanisterMessage]:
    """`queue_index(T)` of 3.4. Its REQUIRE (no message at two keys) is not asserted: a byzantine subnet may well put
    one message into its stream twice."""
    return {index: messages[place] for place, index in queue_order(messages)}


def map_valid_xnet_messages(
    x: XNetMessages, judgements: Mapping[tuple[SubnetId, StreamIndex], Judgement]
) -> dict[QueueIndex, CanisterMessage]:
    """3.4, where steps 4 to 6 of the judgement stand for `valid_sender and subnet_assignment[m.dst] = own_subnet`."""
    return queue_index({place: m for place, m in x.items() if judgements[place].enqueued})


def induct(
    state: CanonicalState,
    registry: Registry,
    messages: XNetMessages,
    heights: Mapping[tuple[SubnetId, StreamIndex], int],
    options: Options,
    log: list[Event],
    via: str,
) -> CanonicalState:
    """Steps 2, 4 and 5 of 3.4: input queues, signals and expected indices."""
    base = options.index_base
    judgements = judge_xnet(state, registry, messages, heights, options)
    accepted = vsr_check_xnet(judgements)
    vsr_xnet = {place: m for place, m in messages.items() if place in accepted}
    vsr_signals = {place: judgement.verdict for place, judgement in judgements.items()}
    pushed = map_valid_xnet_messages(vsr_xnet, judgements)

    enqueued = {place: m for place, m in messages.items() if judgements[place].enqueued}
    here = {dst for m in enqueued.values() if registry.host(dst := m.dst) == state.own}
    queue_indices = {
        place: (state.input_queues if dst in here else state.stray_queues).get((src, dst), new_queue(base)).next_index
        - 1
        + k
        for place, (src, dst, k) in queue_order(enqueued)
    }
    for place in in_order(messages):
        log.append(_judged(state, messages[place], place, judgements[place], queue_indices.get(place), via))

    to_input: dict[Index, CanisterMessage] = {(s, r, k): m for (s, r, k), m in pushed.items() if r in here}
    stray: dict[Index, CanisterMessage] = {(s, r, k): m for (s, r, k), m in pushed.items() if r not in here}
    state = replace(
        state,
        input_queues=push_map(state.input_queues, to_input, base),
        stray_queues=push_map(state.stray_queues, stray, base),
    )
    for _, (src, dst, _) in queue_order(enqueued):
        if dst in here:
            state = behind_others(state, (src, dst), options)
    for place, m in messages.items():
        if isinstance(m, Response) and judgements[place].dropped == LATE_RESPONSE:
            state = credit(state, m)
        elif isinstance(m, Response) and judgements[place].enqueued and m.dst in here:
            state = close_call(state, m)
    for (sn, i), verdict in vsr_signals.items():
        stream = state.stream(sn)
        state = state.with_stream(sn, replace(stream, signals={**stream.signals, i: verdict}))
    return replace(state, expected_xnet_indices=_expected_after(state, messages))


def _expected_after(state: CanonicalState, messages: XNetMessages) -> frozenset[tuple[SubnetId, StreamIndex]]:
    """{ e in S.expected | no message has its prefix } ∪ { i + 1 | i in max over all message indices }."""
    indices: set[Index] = {concatenate(sn, i) for sn, i in messages}
    touched = {(sn, substream) for sn, (substream, _) in messages}
    kept = {
        (sn, (substream, i)) for sn, (substream, i) in state.expected_xnet_indices if (sn, substream) not in touched
    }
    moved = {(sn, (substream, i)) for sn, substream, i in map(successor, maximum(indices))}
    return frozenset(kept | moved)


def _judged(
    state: CanonicalState,
    message: CanisterMessage,
    place: tuple[SubnetId, StreamIndex],
    judgement: Judgement,
    queue_index_: int | None,
    via: str,
) -> Event:
    """received, rejected or dropped."""
    sn, i = place
    own, height, reason = state.own, state.height, judgement.verdict.reason
    if judgement.enqueued:
        return canister_event("received", own, height, message, remote=sn, at=i, queue_index=queue_index_, via=via)
    if reason is None:
        return canister_event("dropped", own, height, message, remote=sn, at=i, via=via, cause=judgement.dropped)
    if isinstance(message, Response):
        return canister_event("rejected", own, height, message, remote=sn, at=i, via=via, reason=reason.name)
    code, text = reject_of(reason, message)
    return canister_event(
        "rejected", own, height, message, remote=sn, at=i, via=via, reason=reason.name, code=int(code), text=text
    )


# ---- step 4, ingress


def vsr_check_ingress(state: CanonicalState, registry: Registry, batch: DecodedBatch) -> set[int]:
    """Accepted: ingress for a canister that is hosted here and installed."""
    return {
        i
        for i, m in batch.ingress_payload.items()
        if registry.host(m.canister) == state.own and m.canister in state.programs
    }


def refused_ingress(state: CanonicalState, m: Ingress, place: int, code: int, cause: str) -> Event:
    """It never had a place in a queue; `index` is that in the ingress payload."""
    event = ingress_event("rejected", state.own, state.height, m, None, via="ingress", code=code, cause=cause)
    return replace(event, index=place)


def induct_ingress(
    state: CanonicalState, registry: Registry, batch: DecodedBatch, options: Options, log: list[Event]
) -> CanonicalState:
    """ingress_queues <- push(S.ingress_queues, VSR(S, d).ingress), in payload order; the others are refused."""
    accepted = vsr_check_ingress(state, registry, batch)
    vsr_ingress = {(m.canister, rank(i, accepted)): m for i, m in batch.ingress_payload.items() if i in accepted}
    lengths: dict[int, int] = {}
    for i, m in sorted(batch.ingress_payload.items()):
        if i in accepted:
            empty: Queue[Ingress] = new_queue(options.index_base)
            lengths[m.canister] = lengths.get(m.canister, 0) + 1
            index = state.ingress_queues.get(m.canister, empty).next_index - 1 + lengths[m.canister]
            log.append(ingress_event("received", state.own, state.height, m, index, via="ingress"))
        else:
            cause = "not_installed" if registry.host(m.canister) == state.own else "not_hosted"
            code = int(RejectCode.DestinationInvalid)
            log.append(refused_ingress(state, m, i, code, cause))
    return replace(state, ingress_queues=push_map(state.ingress_queues, dict(vsr_ingress), options.index_base))
