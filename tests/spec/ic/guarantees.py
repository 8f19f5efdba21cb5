"""The safety statements of 1.2 as functions over the events of a run. Each gives its violations as sentences."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.spec.ic.events import Event
from tests.spec.ic.ids import SubnetId
from tests.spec.ic.messages import CanisterMessage, MessageId, Request, Response
from tests.spec.ic.options import Options
from tests.spec.ic.payloads import Proposal
from tests.spec.ic.slices import subnet_of
from tests.spec.ic.state import Registry

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


def forged_places(events: Sequence[Event]) -> set[Place]:
    """Where byzantine subnets put what nobody made. They may repeat what is theirs: only what others do with it is
    checked."""
    return {place for place, e in committed(events) if e.via == "forged"}


def origin(e: Event) -> Place:
    """Where a message that crossed a stream was."""
    return (e.remote, e.chain, e.substream, e.index)  # type: ignore[return-value]


def strays(e: Event, registries: Mapping[int, Registry]) -> bool:
    """Whether a message was put where nobody executes it, as the literal text has it (D-5)."""
    return isinstance(e.receiver, int) and registries[e.height].host(e.receiver) != e.chain


def g1_exactly_once(events: Sequence[Event], registries: Mapping[int, Registry], options: Options) -> list[str]:
    """At most one Enqueued a message that crossed a stream, on the subnet that the registry maps the receiver to (with
    `receiver_check = off`: on any; there an answer to a forged call is not told from the answer to the call that the
    canister makes later under that callback, so a stray one of that name does not count)."""
    forged = forged_places(events)
    feigned = {("r", *(e.message or ())[1:]) for _, e in committed(events) if e.via == "forged" and e.kind == "request"}
    crossed = [e for e in received(events) if e.via in BETWEEN_STREAMS]
    counted = [e for e in crossed if not (e.message in feigned and strays(e, registries))]
    counts = Counter(e.message for e in counted if origin(e) not in forged)
    twice = [f"G1: {message} was enqueued {count} times" for message, count in counts.items() if count > 1]
    places = Counter(map(origin, crossed))
    twice += [f"G1: {place} was enqueued {count} times" for place, count in places.items() if count > 1]
    astray = [
        f"G1: {e.message} was enqueued on {e.chain}, its receiver lives elsewhere"
        for e in crossed
        if options.receiver_check == "on" and strays(e, registries)
    ]
    return twice + astray


def g2_no_invention(events: Sequence[Event], registries: Mapping[int, Registry], options: Options) -> list[str]:
    """Every Enqueued(xnet) was routed before with equal content, out of something that execution or routing made, or
    a byzantine subnet in the name of one of its own."""
    violations: list[str] = []
    produced = {(e.message, e.content) for e in events if e.event == "sent" and e.via != "forged"}
    forged = {(e.chain, e.message, e.content) for e in events if e.event == "sent" and e.via == "forged"}
    requests = {message for message, content in produced if isinstance(content, Request)}
    shortened = {e.message for e in events if e.event == "rejected" and e.kind == "response" and e.cause == "too_large"}
    routed = dict(committed(events))
    for e in received(events):
        if e.via not in BETWEEN_STREAMS or not isinstance(e.content, Request | Response):
            continue
        m = e.content
        source = routed.get(origin(e))
        if source is None or source.content != m or not source.height < e.height:
            violations.append(f"G2: {e.message} was enqueued on {e.chain} and never routed so by {e.remote}")
            continue
        is_reject = isinstance(m, Response) and m.reject is not None
        made_by_routing = is_reject and source.queue_index is None and ("q", m.dst, m.callback) in requests
        made_smaller = is_reject and e.message in shortened
        of_forger = (e.remote, e.message, m) in forged
        if (e.message, m) not in produced and not made_by_routing and not made_smaller and not of_forger:
            violations.append(f"G2: nobody made {e.message}")
        if e.remote not in may_speak_for(registries[e.height], m, options):
            violations.append(f"G2: {e.message} came from {e.remote}, where its sender never lived")
    return violations


def may_speak_for(registry: Registry, m: CanisterMessage, options: Options) -> set[SubnetId | None]:
    """The subnets from which a message of `m.src` may come: its host; for a response also where it was."""
    hosts: set[SubnetId | None] = {registry.host(m.src)}
    if isinstance(m, Response) and (options.migrations == "on" or hosts == {None}):
        hosts |= set(registry.trace(m.src))
        if options.migrations == "on" and m.reject is not None:
            hosts |= set(registry.trace(m.dst))
    return hosts


def g3_pair_order(events: Sequence[Event], registries: Mapping[int, Registry], options: Options) -> list[str]:
    """Requests of one (sender, receiver) enter the input queue in the order they entered the output queue.

    The literal text (`receiver_check = off`) does not promise it to a receiver that moves."""
    places = {e.message: e.queue_index for e in events if e.event == "sent" and e.kind == "request" and not e.via}
    forged = forged_places(events)
    hosts: dict[Any, set[SubnetId]] = defaultdict(set)
    for registry in registries.values():
        for canister, host in registry.subnet_assignment.items():
            hosts[canister].add(host)
    lanes: dict[tuple[Any, Any], list[tuple[int, int, int]]] = defaultdict(list)
    for e in received(events):
        literal = options.receiver_check == "off" and len(hosts[e.receiver]) > 1
        if e.kind == "request" and e.queue_index is not None and origin(e) not in forged and not literal:
            produced = places.get(e.message)
            if produced is not None:
                lanes[e.sender, e.receiver].append((e.height, e.queue_index, produced))
    return [
        f"G3: requests {sender} -> {receiver} were enqueued in the order {[p for _, _, p in sorted(lane)]}"
        for (sender, receiver), lane in lanes.items()
        if [p for _, _, p in sorted(lane)] != sorted(p for _, _, p in lane)
    ]


def g4_one_reply_per_call(events: Sequence[Event], registries: Mapping[int, Registry]) -> list[str]:
    """At most one response Enqueued an (originator, callback), whoever forges and repeats what."""
    counts = Counter(e.message for e in received(events) if e.kind == "response" and not strays(e, registries))
    return [f"G4: {message} was enqueued {count} times" for message, count in counts.items() if count > 1]


def g5_undeliverable_gets_synthetic_reject(
    events: Sequence[Event], registries: Mapping[int, Registry], options: Options
) -> list[str]:
    """A rejected request has exactly one reject made for it, in the round in which its source learns of it, and none is
    made without. (One that is Lost, or not wanted any more, was made.)"""
    made: Counter[tuple[SubnetId, int, MessageId | None]] = Counter()
    due: Counter[tuple[SubnetId, int, MessageId | None]] = Counter()
    for e in events:
        here = e.event in ("received", "dropped") and e.via in ("synthetic", "timeout")
        unroutable = e.event == "dropped" and e.via is None and e.cause == "unroutable_response"
        on_its_way = e.event == "committed" and e.via is None
        if e.kind == "response" and (here or (e.queue_index is None and (unroutable or on_its_way))):
            made[e.chain, e.height, e.message] += 1
        signalled = e.event == "acknowledged" and e.reason is not None
        refused = e.event == "rejected" and e.cause in ("no_route", "too_large", "canister_removed")
        if e.kind == "request" and (signalled or refused or e.event == "timed_out"):
            due[e.chain, e.height, ("r", *(e.message or ())[1:])] += 1
        elif e.kind == "response" and signalled:
            due[e.chain, e.height, e.message] += 1
        elif e.kind == "response" and e.event == "dropped" and e.cause == "unroutable_response":
            routed = e.queue_index is not None and registries[e.height].host(e.sender) is not None  # type: ignore[arg-type]
            if options.dead_destination == "seed_literal" and routed:  # D-8: an answer to an answer
                due[e.chain, e.height, ("r", e.sender, (e.message or ())[-1])] += 1
    return [
        f"G5: {key[2]} got {made[key]} synthetic rejects for {due[key]} on {key[0]} at {key[1]}"
        for key in {**due, **made}
        if made[key] != due[key]
    ]


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


def g6_substream_order(events: Sequence[Event], options: Options) -> list[str]:
    """What a mode of substreams promises: messages with one key are judged in the order in which they were routed. The
    key has both subnets; per destination also the receiver, per source also the sender."""
    routed: dict[Place, tuple[int, Event]] = {place: (at, e) for at, (place, e) in enumerate(committed(events))}
    newest: dict[tuple[Any, ...], int] = {}
    violations: list[str] = []
    for place, e in judged(events):
        if place not in routed:
            continue
        at, sent = routed[place]
        canister = {"flat": None, "per_destination": sent.receiver, "per_source": sent.sender}[options.substreams]
        key = (*place[:2], canister)
        if at < newest.get(key, -1):
            violations.append(f"G6: {e.message} of {key} was judged after one that was routed later")
        newest[key] = at
    return violations


def g10_responses_are_accepted(events: Sequence[Event]) -> list[str]:
    """No response is rejected where it comes in, but for CanisterMigrating, after which it is rerouted.

    One that is too large becomes a reject where it is sent (X-7): the call is still answered by it.
    """
    return [
        f"G10: response {e.message} was rejected with {e.reason}"
        for e in events
        if e.event == "rejected" and e.kind == "response" and e.reason != "CanisterMigrating" and e.cause != "too_large"
    ]


def g12_payloads(proposals: Sequence[Proposal], events: Sequence[Event], last: int | None = None) -> list[str]:
    """Of every batch one payload was agreed, honest ones always, within the limit, and what was executed is what was
    agreed. `proposals`: the payload log, one row a proposal; `events` are asked for the slices of each batch (control,
    received). Batches above `last`, if not given the last height with an event, may wait to be executed."""
    executed: dict[tuple[SubnetId, int], set[tuple[SubnetId, Any]]] = defaultdict(set)
    for e in events:
        if e.event == "received" and e.kind == "control" and e.remote is not None:
            executed[e.chain, e.height] |= {(e.remote, detail) for detail in e.detail}
    violations: list[str] = []
    agreed: dict[tuple[SubnetId, int], Proposal] = {}
    for row in proposals:
        batch = (row.chain, row.height)
        if row.honest and row.error is not None:
            violations.append(f"G12: the honest payload for {batch} was refused: {row.error}")
        if row.error is not None:
            continue
        if batch in agreed:
            violations.append(f"G12: two payloads were agreed for {batch}")
        if row.size_limit is not None and row.size > row.size_limit:
            violations.append(f"G12: the payload for {batch} has {row.size} bytes of {row.size_limit}")
        agreed[batch] = row
    last = max((e.height for e in events), default=0) if last is None else last
    for batch, row in agreed.items():
        made = {(subnet_of(name), detail) for name, details in row.slices.items() for detail in details}
        if batch[1] <= last and executed.get(batch, set()) != made:
            violations.append(f"G12: the batch {batch} is not what was agreed")
    return violations + [f"G12: nobody agreed on the slices of {batch}" for batch in executed if batch not in agreed]


def g12_agreement(roots: Iterable[tuple[SubnetId, int, bytes]]) -> list[str]:
    """One root for every height of a subnet, whoever computed it: (subnet, own height, root) of all replicas, runs and
    re-executions."""
    found: dict[tuple[SubnetId, int], set[bytes]] = defaultdict(set)
    for subnet, number, root in roots:
        found[subnet, number].add(root)
    return [f"G12: {len(them)} roots of {key}" for key, them in sorted(found.items()) if len(them) > 1]


def g13_alignment(events: Sequence[Event], options: Options) -> list[str]:
    """The first message of an included slice is the one that is expected, and exactly its messages were judged in that
    round. From the log alone: slices are the control events `received`, what is expected follows from those before."""
    violations: list[str] = []
    following: dict[tuple[Any, ...], int] = {}
    due: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for e in events:
        if e.event == "received" and e.kind == "control":
            for substream, _, _, _, first, end in e.detail:
                stream = (e.remote, e.chain, substream)
                expected = following.get(stream, options.index_base)
                if first is None:
                    continue
                if first != expected:
                    violations.append(f"G13: the slice of {stream} at {e.height} begins at {first}, not at {expected}")
                following[stream] = end
                due[(*stream, e.height)] += range(first, end)
    made: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for place, e in judged(events):
        if e.via == "xnet":
            made[(*place[:3], e.height)].append(place[3])
    return violations + [
        f"G13: {key} brought {due.get(key)}, judged were {made.get(key)}"
        for key in {**due, **made}
        if due.get(key) != sorted(made.get(key, []))
    ]


def check_events(events: Sequence[Event], registries: Mapping[int, Registry], options: Options) -> list[str]:
    """G1 to G8, G10 and G13, over the log alone. `registries` has the version in force at every height."""
    return [
        *g1_exactly_once(events, registries, options),
        *g2_no_invention(events, registries, options),
        *g3_pair_order(events, registries, options),
        *g4_one_reply_per_call(events, registries),
        *g5_undeliverable_gets_synthetic_reject(events, registries, options),
        *g6_gap_free_streams(events, options),
        *g6_substream_order(events, options),
        *g7_signals_tell_the_truth(events),
        *g8_collection_is_safe(events),
        *g10_responses_are_accepted(events),
        *g13_alignment(events, options),
    ]


def open_calls(events: Sequence[Event]) -> set[MessageId]:
    """Requests sent that no response was enqueued for: what L2 has still to give."""
    requests = {e.message for e in events if e.event == "sent" and e.kind == "request" and e.via != "forged"}
    answered = {("q", *e.message[1:]) for e in received(events) if e.kind == "response" and e.message is not None}
    return {message for message in requests - answered if message is not None}
