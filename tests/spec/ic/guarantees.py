"""The safety statements of 1.2 as functions over the events of a run. Each gives its violations as sentences."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from .events import Event
from .ids import SubnetId
from .messages import ACCEPT, MessageId, Request, Response, cycles_of
from .options import Options
from .state import CanonicalState, Registry, expected_index

Place = tuple[SubnetId, SubnetId, Any, int]
"""(source, destination, substream, index) of a message in a stream."""

BETWEEN_STREAMS = ("xnet", "loopback")


def judged(events: Sequence[Event]) -> list[tuple[Place, Event]]:
    """The `Judged` relation: received, rejected or dropped with a place in a stream, in order."""
    return [
        ((e.remote, e.chain, e.substream, e.index), e)
        for e in events
        if e.via in BETWEEN_STREAMS and e.kind != "control" and e.remote is not None and e.index is not None
    ]


def committed(events: Sequence[Event]) -> list[tuple[Place, Event]]:
    """The `Routed` relation, in order."""
    return [
        ((e.chain, e.remote, e.substream, e.index), e)
        for e in events
        if e.event == "committed" and e.remote is not None and e.index is not None
    ]


def received(events: Sequence[Event]) -> list[Event]:
    """The `Enqueued` relation, in order."""
    return [e for e in events if e.event == "received" and e.kind != "control"]


def g1_exactly_once(events: Sequence[Event], registries: Mapping[int, Registry]) -> list[str]:
    """At most one Enqueued a message that crossed a stream, on the subnet that the registry maps the receiver to."""
    crossed = [e for e in received(events) if e.via in BETWEEN_STREAMS]
    counts = Counter(e.message for e in crossed)
    twice = [f"G1: {message} was enqueued {count} times" for message, count in counts.items() if count > 1]
    astray = [
        f"G1: {e.message} was enqueued on {e.chain}, its receiver lives elsewhere"
        for e in crossed
        if isinstance(e.receiver, int) and registries[e.height].host(e.receiver) != e.chain
    ]
    return twice + astray


def g2_no_invention(events: Sequence[Event], registries: Mapping[int, Registry], options: Options) -> list[str]:
    """Every Enqueued(xnet) was routed before with equal content, out of something that execution or routing made."""
    violations: list[str] = []
    produced = {(e.message, e.content) for e in events if e.event == "sent" and e.via != "forged"}
    requests = {message for message, content in produced if isinstance(content, Request)}
    shortened = {e.message for e in events if e.event == "rejected" and e.kind == "response" and e.cause == "too_large"}
    routed = dict(committed(events))
    for e in received(events):
        if e.via not in BETWEEN_STREAMS or not isinstance(e.content, Request | Response):
            continue
        m = e.content
        origin = routed.get((e.remote, e.chain, e.substream, e.index))  # type: ignore[arg-type]
        if origin is None or origin.content != m or not origin.height < e.height:
            violations.append(f"G2: {e.message} was enqueued on {e.chain} and never routed so by {e.remote}")
            continue
        is_reject = isinstance(m, Response) and m.reject is not None
        made_by_routing = is_reject and origin.queue_index is None and ("q", m.dst, m.callback) in requests
        made_smaller = is_reject and e.message in shortened
        if (e.message, m) not in produced and not made_by_routing and not made_smaller:
            violations.append(f"G2: nobody made {e.message}")
        registry = registries[e.height]
        hosts = {registry.host(m.src)}
        if options.migrations == "on" and isinstance(m, Response):
            hosts |= {*registry.trace(m.src), *(registry.trace(m.dst) if is_reject else ())}
        if e.remote not in hosts:
            violations.append(f"G2: {e.message} came from {e.remote}, where its sender never lived")
    return violations


def g3_pair_order(events: Sequence[Event]) -> list[str]:
    """Requests of one (sender, receiver) enter the input queue in the order they entered the output queue."""
    places = {e.message: e.queue_index for e in events if e.event == "sent" and e.kind == "request"}
    lanes: dict[tuple[Any, Any], list[tuple[int, int]]] = defaultdict(list)
    for e in received(events):
        if e.kind == "request" and e.queue_index is not None:
            produced = places.get(e.message)
            if produced is not None:
                lanes[e.sender, e.receiver].append((e.queue_index, produced))
    return [
        f"G3: requests {sender} -> {receiver} were enqueued in the order {[p for _, p in sorted(pairs)]}"
        for (sender, receiver), pairs in lanes.items()
        if [p for _, p in sorted(pairs)] != sorted(p for _, p in pairs)
    ]


def g4_one_reply_per_call(events: Sequence[Event]) -> list[str]:
    """At most one response Enqueued an (originator, callback)."""
    counts = Counter(e.message for e in received(events) if e.kind == "response")
    return [f"G4: {message} was enqueued {count} times" for message, count in counts.items() if count > 1]


def g5_undeliverable_gets_synthetic_reject(events: Sequence[Event]) -> list[str]:
    """A rejected request has exactly one reject made for it, in the round in which its source learns of it.
    (Lost counts as made when the sender lives in no subnet any more.)"""
    violations: list[str] = []
    made: Counter[tuple[SubnetId, int, MessageId | None]] = Counter()
    for e in events:
        local = e.event == "received" and e.via in ("synthetic", "timeout")
        on_its_way = e.event in ("committed", "dropped") and e.queue_index is None and e.via is None
        if e.kind == "response" and (local or on_its_way):
            made[e.chain, e.height, e.message] += 1
    for e in events:
        signalled = e.event == "acknowledged" and e.reason is not None
        unroutable = e.event == "rejected" and e.cause == "no_route"
        if e.kind == "request" and (signalled or unroutable or e.event == "timed_out"):
            reply = ("r", *(e.message or ())[1:])
            if made[e.chain, e.height, reply] != 1:
                violations.append(f"G5: {e.message} got {made[e.chain, e.height, reply]} synthetic rejects")
    return violations


def g6_gap_free_streams(events: Sequence[Event], options: Options) -> list[str]:
    """Routed and Judged are contiguous from the index base; Judged is at every instant a prefix of Routed."""
    violations: list[str] = []
    for name, relation in (("Routed", committed(events)), ("Judged", judged(events))):
        following: dict[tuple[Any, ...], int] = {}
        for place, _ in relation:
            expected = following.get(place[:3], options.index_base)
            if place[3] != expected:
                violations.append(f"G6: {name} {place} where index {expected} is next")
            following[place[:3]] = place[3] + 1
    routed = {place: e.height for place, e in committed(events)}
    return violations + [
        f"G6: {place} was judged before it was routed"
        for place, e in judged(events)
        if not routed.get(place, e.height) < e.height
    ]


def g7_signals_tell_the_truth(events: Sequence[Event]) -> list[str]:
    """Exactly one verdict a (stream, index), and SignalSeen equals it."""
    verdicts: dict[Place, str | None] = {}
    violations: list[str] = []
    for place, e in judged(events):
        if place in verdicts:
            violations.append(f"G7: {place} was judged twice")
        verdicts[place] = e.reason
    for e in events:
        if e.event == "acknowledged" and e.remote is not None and e.index is not None:
            seen: Place = (e.chain, e.remote, e.substream, e.index)
            if seen not in verdicts or verdicts[seen] != e.reason:
                violations.append(f"G7: signal {e.reason} for {seen}, judged {verdicts.get(seen, 'never')}")
    return violations


def g8_collection_is_safe(events: Sequence[Event]) -> list[str]:
    """Messages leave a stream only after their signal; signals only below the begin of an included slice."""
    acknowledged = {(e.chain, e.remote, e.substream, e.index) for e in events if e.event == "acknowledged"}
    begins: dict[tuple[Any, ...], int] = {
        (e.chain, e.remote, e.height, substream): begin
        for e in events
        if e.event == "received" and e.kind == "control"
        for substream, begin, *_ in e.detail
    }
    violations: list[str] = []
    for e in events:
        if e.event != "collected" or e.index is None:
            continue
        if e.kind == "control":
            if not e.index < begins.get((e.chain, e.remote, e.height, e.substream), 0):
                violations.append(f"G8: signal {e.index} about {e.remote} was collected too early")
        elif (e.chain, e.remote, e.substream, e.index) not in acknowledged:
            violations.append(f"G8: message {e.message} was collected without a signal")
    return violations


def g8_nothing_else_removes(
    before: Mapping[SubnetId, CanonicalState], after: Mapping[SubnetId, CanonicalState], events: Sequence[Event]
) -> list[str]:
    """Between two heights, exactly what `collected` says has left the streams. `events` are those of the round."""
    gone = {
        ("message" if e.kind != "control" else "signal", e.chain, e.remote, e.substream, e.index)
        for e in events
        if e.event == "collected"
    }

    def content(state: CanonicalState) -> set[tuple[Any, ...]]:
        messages = {
            ("message", state.own, remote, substream, i)
            for remote, stream in state.streams.items()
            for substream, queue in stream.msgs.items()
            for i in queue.elements
        }
        signals = {
            ("signal", state.own, remote, substream, i)
            for remote, stream in state.streams.items()
            for substream, i in stream.signals
        }
        return messages | signals

    left = {row for own in before for row in content(before[own]) - content(after[own])}
    return [f"G8: {row} left its stream unrecorded" for row in sorted(left - gone, key=repr)]


def cycles_total(states: Mapping[SubnetId, CanonicalState], events: Sequence[Event], options: Options) -> int:
    """Everything that holds cycles, once: balances, queues, streams, requests in hands of programs, Lost.

    A message that its destination accepted is still in the stream until the signal is seen; it counts where it went.
    """
    total = 0
    for own, state in states.items():
        total += sum(state.balances.values())
        for queues in (state.input_queues, state.output_queues, state.stray_queues):
            total += sum(cycles_of(m) for queue in queues.values() for m in queue.elements.values())
        for remote, stream in state.streams.items():
            there = states.get(remote)
            for substream, queue in stream.msgs.items():
                for i, m in queue.elements.items():
                    if there is None or not _taken_over(there, own, substream, i, options):
                        total += cycles_of(m)
    total += sum(e.cycles or 0 for e in events if e.event == "dropped")
    return total + cycles_in_hands(events)


def _taken_over(there: CanonicalState, source: SubnetId, substream: Any, i: int, options: Options) -> bool:
    """Whether subnet `there` accepted message i of the stream from `source`."""
    if i >= expected_index(there.expected_xnet_indices, source, substream, options.index_base):
        return False
    return there.stream(source).signals.get((substream, i), ACCEPT) == ACCEPT


def cycles_in_hands(events: Sequence[Event]) -> int:
    """Cycles of requests that a program has executed and not answered yet."""
    held: dict[MessageId | None, int] = {}
    for e in events:
        if e.event == "executed" and e.kind == "request":
            held[e.message] = e.cycles or 0
        elif e.event == "sent" and e.kind == "response":
            held.pop(("q", *(e.message or ())[1:]), None)
    return sum(held.values())


def g9_no_loss(
    states: Mapping[SubnetId, CanonicalState], events: Sequence[Event], initial: int, options: Options
) -> list[str]:
    """The sum of cycles is what it was at genesis, and what forgers invented."""
    forged = sum(e.cycles or 0 for e in events if e.event == "sent" and e.via == "forged")
    total = cycles_total(states, events, options)
    return [] if total == initial + forged else [f"G9: {total} cycles, of {initial} and {forged} forged"]


def g10_responses_are_accepted(events: Sequence[Event]) -> list[str]:
    """No response is rejected where it comes in, but for CanisterMigrating, after which it is rerouted.

    One that is too large becomes a reject where it is sent (X-7): the call is still answered by it.
    """
    return [
        f"G10: response {e.message} was rejected with {e.reason}"
        for e in events
        if e.event == "rejected" and e.kind == "response" and e.reason != "CanisterMigrating" and e.cause != "too_large"
    ]


def check_events(events: Sequence[Event], registries: Mapping[int, Registry], options: Options) -> list[str]:
    """G1 to G8 and G10. `registries` has the version in force at every height."""
    return [
        *g1_exactly_once(events, registries),
        *g2_no_invention(events, registries, options),
        *g3_pair_order(events),
        *g4_one_reply_per_call(events),
        *g5_undeliverable_gets_synthetic_reject(events),
        *g6_gap_free_streams(events, options),
        *g7_signals_tell_the_truth(events),
        *g8_collection_is_safe(events),
        *g10_responses_are_accepted(events),
    ]


def open_calls(events: Sequence[Event]) -> set[MessageId]:
    """Requests sent that no response was enqueued for: what L2 has still to give."""
    requests = {e.message for e in events if e.event == "sent" and e.kind == "request" and e.via != "forged"}
    answered = {("q", *e.message[1:]) for e in received(events) if e.kind == "response" and e.message is not None}
    return {message for message in requests - answered if message is not None}
