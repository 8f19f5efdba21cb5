"""The statements of 1.2 and 1.3 that need states beside the log: what leaves streams and queues, open calls; that
cycles are where the log says.

States are those of all subnets at one height; events are those of the round between two heights, or of all rounds.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.spec.ic.events import Event
from tests.spec.ic.guarantees import received, strays
from tests.spec.ic.ids import CanisterId, SubnetId
from tests.spec.ic.messages import ACCEPT, CanisterMessage, Request, cycles_of, message_id
from tests.spec.ic.options import Options
from tests.spec.ic.state import CallId, CanonicalState, Registry, expected_index
from tests.spec.ic.value import Value

States = Mapping[SubnetId, CanonicalState]


# ---- G8, G11


def g8_nothing_else_removes(before: States, after: States, events: Sequence[Event]) -> list[str]:
    """Between two heights, exactly what `collected` says has left the streams."""
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


def g11_queues_change_as_logged(
    before: States, after: States, events: Sequence[Event], registries: Mapping[int, Registry]
) -> list[str]:
    """Between two heights, input queues gain what was Enqueued and lose what was Consumed, output queues gain what was
    Produced and lose what was Routed, answered at once or Lost. (Canisters take their queues along when they move.)"""
    gained: set[tuple[Any, ...]] = set()
    lost: set[tuple[Any, ...]] = set()
    for e in events:
        if e.kind not in ("request", "response") or e.queue_index is None:
            continue
        ins, out = ("in", e.sender, e.receiver, e.queue_index), ("out", e.sender, e.receiver, e.queue_index)
        if e.event == "received" and not strays(e, registries):
            gained.add(ins)
        elif e.event == "sent":
            gained.add(out)
        elif e.event == "executed" or (e.event == "rejected" and e.cause == "not_installed"):
            lost.add(ins)
        elif (
            e.event in ("committed", "timed_out")
            or e.cause in ("no_route", "unroutable_response")
            or (e.cause == "too_large" and e.kind == "request")
        ):
            lost.add(out)
        elif e.cause == "canister_removed" and e.event != "received":
            lost.add(out if (e.event, e.kind) == ("dropped", "request") else ins)
    expected = ({key for key, _ in _queued(before)} | gained) - lost
    found = {key for key, _ in _queued(after)}
    return [f"G11: {key} is in its queue unlogged" for key in sorted(found - expected, key=repr)] + [
        f"G11: {key} left its queue unlogged" for key in sorted(expected - found, key=repr)
    ]


def _queued(states: States) -> Iterator[tuple[tuple[Any, ...], CanisterMessage]]:
    for state in states.values():
        for which, queues in (("in", state.input_queues), ("out", state.output_queues)):
            for name, queue in queues.items():
                for i, m in queue.elements.items():
                    yield (which, *name, i), m


# ---- G9


def under_way(states: States, options: Options) -> Iterator[CanisterMessage]:
    """Messages in streams that their destination has not accepted. One that it has is still in the stream until the
    signal is seen; it counts where it went."""
    for own, state in states.items():
        for remote, stream in state.streams.items():
            there = states.get(remote)
            for substream, queue in stream.msgs.items():
                for i, m in queue.elements.items():
                    if there is None or not _taken_over(there, own, substream, i, options):
                        yield m


def _taken_over(there: CanonicalState, source: SubnetId, substream: Any, i: int, options: Options) -> bool:
    """Whether subnet `there` accepted message i of the stream from `source`."""
    if i >= expected_index(there.expected_xnet_indices, source, substream, options.index_base):
        return False
    return there.stream(source).signals.get((substream, i), ACCEPT) == ACCEPT


def queued(states: States) -> Iterator[CanisterMessage]:
    """Messages in input and output queues, and where nobody executes them."""
    for state in states.values():
        for queues in (state.input_queues, state.output_queues, state.stray_queues):
            for queue in queues.values():
                yield from queue.elements.values()


def cycles_held(states: States) -> Counter[CanisterId]:
    """Cycles of each canister: its balance, and of the requests that it has executed and not answered yet."""
    held: Counter[CanisterId] = Counter()
    for state in states.values():
        held.update(state.balances)
        for canister, requests in state.in_hand.items():
            held[canister] += sum(cycles * times for (_, _, cycles, _), times in requests.items())
    return held


def g9_is_that_of_the_log(states: States, value: Value, options: Options) -> list[str]:
    """Every cycle is where the log says: canisters hold what it says, and so much is in queues and streams."""
    held = cycles_held(states)
    wrong = [c for c in sorted({*held, *value.holders()}) if held[c] != value.held(c)]
    found = [f"G9: {c} holds {held[c]} cycles, by the log {value.held(c)}" for c in wrong]
    carried = sum(map(cycles_of, [*queued(states), *under_way(states, options)]))
    logged = value.cycles_under_way()
    return found + ([] if carried == logged else [f"G9: {carried} cycles under way, by the log {logged}"])


# ---- L2


def calls_are_somewhere(states: States, events: Sequence[Event], options: Options) -> list[str]:
    """Every call without an answer is on its way: its request or its response is in a queue, in a stream or in hand,
    or was Lost and said so. `events` are those of all rounds."""
    requests: set[CallId] = set()
    answers: set[CallId] = set()
    for m in [*queued(states), *under_way(states, options)]:
        (requests if isinstance(m, Request) else answers).add(message_id(m)[1:])  # type: ignore[arg-type]
    in_hand = {
        (sender, callback)
        for state in states.values()
        for held in state.in_hand.values()
        for sender, callback, _, _ in held
    }
    lost = {e.message[1:] for e in events if e.event == "dropped" and e.message is not None}
    somewhere = requests | answers | in_hand | lost
    return [
        f"L2: call {call} has no answer, and nothing of it is anywhere"
        for state in states.values()
        for call in state.open_calls
        if call not in somewhere
    ]


def open_calls_are_those_of_the_log(
    states: States, events: Sequence[Event], registries: Mapping[int, Registry]
) -> list[str]:
    """The table of open calls has what was Produced and has no response Enqueued. `events` are those of all rounds."""
    made = {e.message[1:] for e in events if e.event == "sent" and e.kind == "request" and not e.via and e.message}
    answered = {
        e.message[1:] for e in received(events) if e.kind == "response" and not strays(e, registries) and e.message
    }
    ended = {e.receiver for e in events if e.event == "dropped" and e.kind == "control"}
    expected = {call for call in made - answered if call[0] not in ended}
    found = {call for state in states.values() for call in state.open_calls}
    return [f"L2: the table of open calls is wrong about {call}" for call in sorted(found ^ expected, key=repr)]


def l2_nobody_starves(events: Sequence[Event], options: Options) -> list[str]:
    """With `messages_per_canister` a message waits in its queue for a bounded number of others (X-4): between two takes
    from a queue, each other sender of its source is served at most once, and each other source as often as its own."""
    if options.messages_per_canister == 0:
        return []
    waiting: dict[tuple[Any, ...], int] = {}
    ahead: dict[tuple[Any, ...], int] = {}
    since: dict[tuple[Any, ...], int] = {}
    senders: dict[Any, set[Any]] = defaultdict(set)
    taken: Counter[Any] = Counter()
    violations: list[str] = []

    def judge(key: tuple[Any, ...]) -> None:
        *_, receiver, _ = key
        others = taken[receiver] - since[key]
        bound = 3 * len(senders[receiver]) * (ahead[key] + 2) + options.messages_per_canister
        if others > bound:
            violations.append(f"L2: {others} others were served while {key} waited, {ahead[key]} ahead of it")

    for e in events:
        if e.kind == "control" or e.queue_index is None:
            continue
        lane = ("ingress" if e.kind == "ingress" else e.sender, e.receiver)
        key = (*lane, e.queue_index)
        if e.event == "received":
            senders[e.receiver].add(lane[0])
            ahead[key], since[key] = waiting.get(lane, 0), taken[e.receiver]
            waiting[lane] = waiting.get(lane, 0) + 1
        elif key in since and (e.event in ("executed", "dropped") or e.cause in ("not_installed", "canister_removed")):
            if e.event == "executed" or e.cause == "not_installed":
                judge(key)
                taken[e.receiver] += 1
            waiting[lane] -= 1
            del since[key]
    for key in since:
        judge(key)
    return violations


def l2_all_calls_are_settled(states: States, events: Sequence[Event], options: Options) -> list[str]:
    """In a network at rest every call has its answer, but for those that a program has in hand or that were Lost."""
    in_hand = {
        (sender, callback)
        for state in states.values()
        for held in state.in_hand.values()
        for sender, callback, _, _ in held
    }
    lost = {e.message[1:] for e in events if e.event == "dropped" and e.message is not None}
    strays = {
        message_id(m)[1:]
        for state in states.values()
        for queue in state.stray_queues.values()
        for m in queue.elements.values()
    }
    forever = {
        message_id(m)[1:]
        for state in states.values()
        for queue in state.stream(state.own).msgs.values()
        for m in queue.elements.values()
        if options.loopback == "seed_literal"
    }
    return [
        f"L2: call {call} has no answer in a network at rest"
        for state in states.values()
        for call in state.open_calls
        if call not in in_hand | lost | strays | forever
    ]


def check_round(
    before: States, after: States, events: Sequence[Event], registries: Mapping[int, Registry]
) -> list[str]:
    """What holds between two heights. `events` are those of the round."""
    return [
        *g8_nothing_else_removes(before, after, events),
        *g11_queues_change_as_logged(before, after, events, registries),
    ]


def check_accounts(
    states: States, events: Sequence[Event], registries: Mapping[int, Registry], value: Value, options: Options
) -> list[str]:
    """What holds at every height. `events` are those of all rounds, `value` what they say of cycles."""
    return [
        *value.violations(),
        *g9_is_that_of_the_log(states, value, options),
        *calls_are_somewhere(states, events, options),
        *open_calls_are_those_of_the_log(states, events, registries),
    ]
