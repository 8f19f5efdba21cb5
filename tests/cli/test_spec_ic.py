"""The IC oracle on hand-made cases: each rule, and the hazards of section 6 only it expresses.

``test_ic_hazards.py`` plays the hazards on the kernel and on the oracle alike. Only here are slices with holes or of
another subnet, payloads ahead of execution and batches as values, registries that subnets leave, the draw of the round
robin by its seed, texts of replies, and options that only the text has.
"""

import ast
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.spec import ic
from tests.spec.ic import accounts, guarantees
from tests.spec.ic.ids import draw, philox_4x64
from tests.spec.ic.induction import in_order, judge_xnet
from tests.spec.ic.judge import lists_before
from tests.spec.ic.messages import cycles_of, kind, reject_response
from tests.spec.ic.payloads import first_message_is_expected
from tests.spec.ic.queues import (
    MAX_NATURAL,
    by_identifier,
    comparable,
    concatenate,
    less,
    less_or_equal,
    maximum,
    minimum,
    postfix,
    prefix,
    rank,
    successor,
)
from tests.spec.ic.sizes import count_bytes
from tests.spec.ic.slices import at, decoded_payload, explicit_signals
from tests.spec.ic.value import Value, g9_no_loss
from tests.tiers import sized

# ---- a small network


@dataclass(frozen=True)
class Program:
    """State of the scripted program: pending requests, callback -> request that waits for it, received responses."""

    held: tuple[ic.RequestKey, ...] = ()
    forwarded: tuple[tuple[int, ic.RequestKey], ...] = ()
    calls: int = 0
    answers: tuple[tuple[int, int | None], ...] = ()


def calls(*described: tuple[Any, ...]) -> bytes:
    """The payload of an ingress message that makes calls (receiver, method, cycles[, payload])."""
    return repr(described).encode()


def scripted(canister: int, program: Any, message: ic.Message) -> tuple[Any, list[ic.Effect]]:
    """Ingress "call" makes calls, "flush" answers pending ones. Requests are echoed, deferred, refused, forwarded."""
    if isinstance(message, ic.Response):
        seen = (message.callback, None if message.reject is None else message.reject[0])
        waiting = dict(program.forwarded)
        program = replace(program, answers=(*program.answers, seen))
        if message.callback not in waiting:
            return program, []
        left = tuple(item for item in program.forwarded if item[0] != message.callback)
        return replace(program, forwarded=left), [ic.Reply(waiting[message.callback], data=b"late")]
    if isinstance(message, ic.Ingress):
        if message.method == "flush":
            return replace(program, held=()), [ic.Reply(to, data=b"late", accepted=to.cycles) for to in program.held]
        described = ast.literal_eval(message.payload.decode())
        made: list[ic.Effect] = [
            ic.Call(receiver, method, payload[0] if payload else b"", cycles)
            for receiver, method, cycles, *payload in described
        ]
        return replace(program, calls=program.calls + len(made)), made
    to = ic.RequestKey.of(message)
    if message.method == "hold":
        return replace(program, held=(*program.held, to)), []
    if message.method == "raise":
        raise ValueError("no")
    if message.method == "refuse":
        return program, [ic.Reply(to, reject=(4, "not today"))]
    if message.method.startswith("forward:"):
        forwarded = (*program.forwarded, (program.calls, to))
        call = ic.Call(int(message.method.removeprefix("forward:")), "echo", message.payload, 0)
        return replace(program, forwarded=forwarded, calls=program.calls + 1), [call]
    return program, [ic.Reply(to, data=message.payload, accepted=to.cycles // 2)]


@dataclass
class Network:
    """States, events and registry versions of a run. `hosts`: canister -> subnet."""

    hosts: dict[int, int]
    options: ic.Options = field(default_factory=ic.Options)
    balance: int = 1_000
    seed: int = 7
    time_ns: int = 0
    states: dict[int, ic.CanonicalState] = field(default_factory=dict)
    events: list[ic.Event] = field(default_factory=list)
    registries: dict[int, ic.Registry] = field(default_factory=dict)

    def __post_init__(self) -> None:
        subnets = frozenset(self.hosts.values())
        self.registry = ic.Registry(subnets, dict(self.hosts))
        self.used_registry = self.registry
        for subnet in subnets:
            here = [canister for canister, host in self.hosts.items() if host == subnet]
            self.states[subnet] = ic.genesis(subnet, dict.fromkeys(here, Program()), dict.fromkeys(here, self.balance))
        self.installed = dict.fromkeys(self.hosts, self.balance)

    @property
    def height(self) -> int:
        return max(state.height for state in self.states.values())

    def round(self, ingress: dict[int, list[ic.Ingress]] | None = None, **faults: Any) -> list[ic.Event]:
        """One round; the guarantees that compare heights are checked as well."""
        before = self.states
        self.time_ns += 10**9
        self.states, events = ic.network_round(
            self.states,
            self.registry,
            ingress or {},
            scripted,
            self.options,
            time_ns=faults.pop("time_ns", self.time_ns),
            seed=self.seed,
            previous_registry=self.used_registry,
            **faults,
        )
        self.used_registry = self.registry
        self.registries[self.height] = self.registry
        self.events += events
        assert accounts.check_round(before, self.states, events, self.registries) == []
        return events

    def call(self, canister: int, *described: tuple[Any, ...], **faults: Any) -> list[ic.Event]:
        """A round in which a user makes `canister` call others."""
        host = self.registry.subnet_assignment[canister]
        return self.round({host: [ic.Ingress("user", canister, "call", calls(*described))]}, **faults)

    def rounds(self, count: int, **faults: Any) -> list[ic.Event]:
        return [event for _ in range(count) for event in self.round(**faults)]

    def program(self, canister: int) -> Program:
        (found,) = [state.programs[canister] for state in self.states.values() if canister in state.programs]
        assert isinstance(found, Program)
        return found

    def move(self, canister: int, subnet: int) -> None:
        """The canister lives on `subnet` from the next round on."""
        self.registry = self.registry.with_moved(canister, subnet, self.height + 1)

    def uninstall(self, canister: int) -> None:
        """Delete the canister's code; the registry still maps it."""
        for subnet, state in self.states.items():
            programs = {name: program for name, program in state.programs.items() if name != canister}
            self.states[subnet] = replace(state, programs=programs)

    def violations(self) -> list[str]:
        return [
            *guarantees.check_events(self.events, self.registries, self.options),
            *accounts.check_accounts(self.states, self.events, self.registries, self.value(), self.options),
            *accounts.l2_nobody_starves(self.events, self.options),
        ]

    def value(self) -> Value:
        """Cycles according to the log."""
        value = Value(self.installed)
        value.add(self.events)
        return value

    def check(self) -> None:
        assert self.violations() == []


def of(events: list[ic.Event], event: str, **columns: Any) -> list[ic.Event]:
    """The events of one name with these columns."""
    return [e for e in events if e.event == event and all(getattr(e, name) == is_ for name, is_ in columns.items())]


DEPLOYED = replace(ic.deployed_profile(), timeouts="off", migrations="off", limits="none")
MIGRATIONS = replace(DEPLOYED, migrations="on")


# ---- indices and queues (2.1 to 2.3)


def test_index_functions() -> None:
    index = (3, 5, 7)
    assert prefix(index) == (3, 5)
    assert prefix((3, 7)) == 3
    assert prefix(((), 7)) == ()
    assert postfix(index) == 7
    assert successor(index) == (3, 5, 8)
    assert comparable(index, (3, 5, 1))
    assert not comparable(index, (3, 6, 1))
    assert less_or_equal((3, 5, 7), index)
    assert not less((3, 5, 7), index)
    assert concatenate(2, ((), 4)) == (2, (), 4)
    indices = {(1, 1), (1, 4), (2, 2), (2, 9), (3, 3)}
    assert minimum(indices) == {(1, 1), (2, 2), (3, 3)}
    assert maximum(indices) == {(1, 4), (2, 9), (3, 3)}
    assert minimum(set()) == set()
    assert [rank(j, {4, 9, 11}) for j in (4, 9, 11)] == [1, 2, 3]
    assert rank((1, 4), indices) == 2


def test_push_assigns_indices_in_key_order() -> None:
    queue = ic.push(ic.new_queue(), {30: "c", 10: "a", 20: "b"})
    assert queue == ic.Queue(4, {1: "a", 2: "b", 3: "c"})
    assert ic.push(queue, {0: "d"}) == ic.Queue(5, {1: "a", 2: "b", 3: "c", 4: "d"})
    assert ic.push(ic.new_queue(0), {9: "x"}) == ic.Queue(1, {0: "x"})


def test_delete_and_clear_keep_next_index() -> None:
    queue = ic.push(ic.new_queue(), {1: "a", 2: "b"})
    assert ic.delete(queue, {1: "a"}) == ic.Queue(3, {2: "b"})
    assert ic.clear(queue) == ic.Queue(3, {})
    with pytest.raises(ic.NotInQueue):
        ic.delete(queue, {1: "b"})
    with pytest.raises(ic.NotInQueue):
        ic.delete(queue, {3: "a"})


def test_map_form_creates_queues_on_push_and_never_on_delete() -> None:
    queues = ic.push_map({7: ic.Queue(2, {1: "a"})}, {(7, 1): "b", (8, 5): "c"})
    assert queues == {7: ic.Queue(3, {1: "a", 2: "b"}), 8: ic.Queue(2, {1: "c"})}
    assert ic.delete_map(queues, {(7, 1): "a"})[7] == ic.Queue(3, {2: "b"})
    assert ic.clear_map(queues) == {7: ic.Queue(3, {}), 8: ic.Queue(2, {})}
    with pytest.raises(ic.NotInQueue):
        ic.delete_map(queues, {(9, 1): "a"})
    assert by_identifier({(1, 2, 3): "x"}) == {(1, 2): {3: "x"}}


def test_hazard_39_indices_and_cycles_are_exact() -> None:
    almost: ic.Queue[str] = ic.Queue(MAX_NATURAL - 1, {})
    assert ic.push(almost, {1: "x"}).next_index == MAX_NATURAL
    with pytest.raises(ic.IndexOverflow):
        ic.push(almost, {1: "x", 2: "y"})
    net = Network({1: 1, 2: 2}, balance=2**100)
    net.call(1, (2, "echo", 2**70 + 1))
    net.rounds(3)
    assert net.states[2].balances[2] == 2**100 + 2**69
    assert net.states[1].balances[1] == 2**100 - 2**69
    net.check()


# ---- ids, texts and the draw


def test_ids_and_their_order() -> None:
    assert ic.canister_bytes(1) == bytes(7) + b"\x01\x01\x01"
    assert ic.subnet_bytes(1) == b"\x01" + bytes(7) + b"\xfc\x01"
    assert ic.canister_text(1) == "rrkah-fqaaa-aaaaa-aaaaq-cai"
    assert sorted([1, 2, 256], key=ic.subnet_bytes) == [256, 1, 2]


def test_random_sampling_is_philox() -> None:
    assert philox_4x64((0, 0, 0, 0), (0, 0))[0] == 0x16554D9ECA36314C
    for seed, own, height in [(0, 0, 1), (7, 3, 12), (2**64 - 1, 2**63, 99)]:
        generator = np.random.Philox(counter=height, key=np.array([seed, own], dtype=np.uint64))
        assert draw(seed, own, height) == int(generator.random_raw())


def test_unsupported_options_are_refused_with_a_reason() -> None:
    for name in ("best_effort", "refunds"):
        with pytest.raises(ValueError, match=name):
            ic.Options(**{name: "on"})  # type: ignore[arg-type]


# ---- a message lifecycle


def test_call_across_subnets_and_its_response() -> None:
    net = Network({1: 1, 2: 2})
    net.call(1, (2, "echo", 100, b"hi"))
    assert net.states[1].streams[2].msgs[()] == ic.Queue(2, {1: ic.Request(2, 1, 0, 100, "echo", b"hi")})
    assert net.states[1].balances[1] == 900
    net.round()
    answer = ic.Response(originator=1, respondent=2, callback=0, refund=50, data=b"hi")
    assert net.states[2].input_queues == {(1, 2): ic.Queue(2, {})}
    assert net.states[2].streams[1] == ic.Stream({((), 1): ic.ACCEPT}, {(): ic.Queue(2, {1: answer})}, {((), 1): 2})
    assert net.states[2].expected_xnet_indices == {(1, ((), 2))}
    net.round()
    assert net.states[1].streams[2] == ic.Stream({((), 1): ic.ACCEPT}, {(): ic.Queue(2, {})})
    assert net.states[1].balances[1] == 950
    assert net.states[2].balances[2] == 1050
    assert net.program(1).answers == ((0, None),)
    net.round()  # subnet 1 has a signal for the response: a header-only slice with news
    assert net.states[2].streams[1].msgs[()] == ic.Queue(2, {})
    assert net.states[2].streams[1].signals == {}
    names = [(e.event, e.chain) for e in net.events if e.message == ("q", 1, 0)]
    assert names == [
        ("sent", 1),
        ("committed", 1),
        ("received", 2),
        ("executed", 2),
        ("acknowledged", 1),
        ("collected", 1),
        ("answered", 1),
    ]
    assert net.rounds(3) == [], "a header-only slice without news is not offered"
    net.check()


def test_hazard_14_slice_of_the_own_subnet_is_refused() -> None:
    net = Network({1: 1, 2: 1})
    net.call(1, (2, "echo", 10))
    net.rounds(2)
    css = ic.slice_for(net.states[1], 1, frozenset(), net.options)
    assert css is not None
    with pytest.raises(ic.LoopbackSlice):
        ic.check_slice(net.states[1], net.registry, 1, css, net.options)


def test_loopback_seed_literal_is_never_removed() -> None:
    net = Network({1: 1, 2: 1}, ic.Options(loopback="seed_literal"))
    net.call(1, (2, "echo", 10))
    net.rounds(3)
    assert len(net.states[1].streams[1].msgs[()].elements) == 1
    assert guarantees.open_calls(net.events) == {("q", 1, 0)}
    net.check()


@pytest.mark.parametrize("options", [ic.Options(), DEPLOYED])
@pytest.mark.parametrize("deadline", [0, 9])
def test_hazard_27_forged_and_repeated_responses_are_not_enqueued(options: ic.Options, deadline: int) -> None:
    net = Network({1: 1, 2: 2, 3: 3}, options)
    net.call(1, (2, "echo", 100), (2, "hold", 10), (3, "hold", 1))
    net.rounds(2)
    repeated = ic.Response(1, 2, 0, refund=50, data=b"", deadline=deadline)  # callback 0 was answered
    of_another = ic.Response(1, 2, 2, refund=7, data=b"", deadline=deadline)  # callback 2 is a call to canister 3
    never_made = ic.Response(1, 2, 3, refund=4, data=b"", deadline=deadline)
    matching = ic.Response(1, 2, 1, refund=9, data=b"forged")
    balance = net.states[1].balances[1]
    net.round(forged={2: [repeated, of_another, never_made, matching, matching]})
    events = net.round()
    assert [e.message for e in of(events, "received", kind="response")] == [("r", 1, 1)]
    late = "late_response" if deadline else "NonMatchingResponse"
    dropped = [(e.message[-1], e.cause) for e in of(events, "dropped") if e.message is not None]
    assert dropped == [(0, late), (2, late), (3, "NonMatchingResponse"), (1, "NonMatchingResponse")]
    assert net.states[1].balances[1] == balance + 9 + (57 if deadline else 0)
    assert set(net.states[1].streams[2].signals.values()) == {ic.ACCEPT}
    assert net.states[1].open_calls == {(1, 2): (3, 0)}
    net.round({2: [ic.Ingress("u", 2, "flush")], 3: [ic.Ingress("u", 3, "flush")]})  # the true answers
    net.rounds(3)
    assert [callback for callback, _ in net.program(1).answers] == [0, 1, 2]
    net.check()


def test_forged_response_before_the_request_is_routed() -> None:
    """Responses made locally for a call that a forger has answered are not enqueued either."""
    options = replace(DEPLOYED, limits="deployed", timeouts="on", limit=ic.Limit(stream_messages=1))
    net = Network({1: 1, 2: 2}, replace(options, request_lifetime_seconds=3))
    net.call(1, (2, "echo", 5), (2, "echo", 8), withheld=lambda source, destination: source == 1)
    stuck: dict[str, Any] = {"withheld": lambda source, destination: source == 1}
    net.round(forged={2: [ic.Response(1, 2, 1, refund=0, data=b"forged")]}, **stuck)
    net.rounds(2, **stuck)
    (lost,) = of(net.events, "dropped")
    assert (lost.via, lost.cause, lost.cycles, lost.height) == ("timeout", "NonMatchingResponse", 8, 4)
    assert net.program(1).answers == ((1, None),)
    net.check()


def test_late_and_forwarded_responses() -> None:
    net = Network({1: 1, 2: 2, 3: 3})
    net.call(1, (2, "hold", 30), (2, "forward:3", 40, b"x"))
    net.rounds(6)
    assert net.program(1).answers == ((1, None),)
    assert accounts.cycles_held(net.states)[2] - net.states[2].balances[2] == 30
    net.round({2: [ic.Ingress("user", 2, "flush")]})
    net.rounds(2)
    assert net.program(1).answers == ((1, None), (0, None))
    net.check()


def test_failed_handler_is_rolled_back_and_answered() -> None:
    net = Network({1: 1, 2: 2}, balance=50)
    net.call(1, (2, "raise", 50))
    net.rounds(2)
    (answer,) = of(net.events, "received", kind="response")
    assert (answer.code, answer.text, answer.cycles) == (5, "ValueError: no", 50)
    assert net.program(1).answers == ((0, 5),)
    # The second call exceeds the balance: the whole handler run is rolled back, including the first call.
    (executed,) = of(net.call(1, (2, "echo", 30), (2, "echo", 30)), "executed")
    assert executed.error == "InsufficientFunds: balance 20, attached 30"
    assert net.states[1].balances[1] == 50
    assert net.states[1].next_callbacks[1] == 1
    assert net.program(1).calls == 1
    net.check()


def test_available_response_precedes_calls() -> None:
    def behaviour(canister: int, program: Any, message: ic.Message) -> tuple[Any, list[ic.Effect]]:
        assert isinstance(message, ic.Request)
        late = ic.Reply((1, 5, 8, 0), data=b"late", accepted=8)  # executed before
        return program, [ic.Call(1, "m", b"", 7), late, ic.Reply(ic.RequestKey.of(message), data=b"now", accepted=3)]

    options = ic.Options()
    registry = ic.Registry(frozenset({1}), {1: 1, 2: 1})
    state = replace(
        ic.genesis(1, {2: None}, {2: 0}),
        input_queues={(1, 2): ic.push(ic.new_queue(), {1: ic.Request(2, 1, 6, 3)})},
        in_hand={2: {(1, 5, 8, 0): 1}},
    )
    after, _ = ic.execute(state, registry, behaviour, options)
    elements = after.output_queues[2, 1].elements
    # Neither the 3 accepted when the handler returns nor the late 8 pay the call of 7 made before.
    assert elements == {1: ic.Response(1, 2, 6, 3, reject=(5, "InsufficientFunds: balance 0, attached 7"))}
    after, _ = ic.execute(replace(state, balances={2: 7}), registry, behaviour, options)
    elements = after.output_queues[2, 1].elements
    assert [(kind(elements[i]), cycles_of(elements[i])) for i in (1, 2, 3)] == [
        ("response", 0),
        ("request", 7),
        ("response", 0),
    ]
    assert after.balances[2] == 11


@dataclass
class Inputs:
    """Canister 9 on subnet 1 and its pending inputs: two messages of each sender, of which 3 and 5 are remote."""

    seen: list[Any] = field(default_factory=list)
    registry: ic.Registry = field(
        default_factory=lambda: ic.Registry(frozenset({1, 2}), {9: 1, 4: 1, 6: 1, 3: 2, 5: 2})
    )

    def behaviour(self, canister: int, program: Any, message: ic.Message) -> tuple[Any, list[ic.Effect]]:
        if canister == 9:
            by = message.user if isinstance(message, ic.Ingress) else (message.src, getattr(message, "callback", 0))
            self.seen.append(by)
        return program, []

    def state(self, *senders: int, turns: tuple[int, ...] = (), users: str = "ab") -> ic.CanonicalState:
        requests = {
            (sender, 9): ic.push(ic.new_queue(), {i: ic.Request(9, sender, i) for i in range(2)}) for sender in senders
        }
        ingress = ic.push(ic.new_queue(), {i: ic.Ingress(user, 9) for i, user in enumerate(users)})
        return replace(
            ic.genesis(1, {9: None}, {}),
            input_queues=requests,
            ingress_queues={9: ingress},
            turns={(sender, 9): turn for sender, turn in zip(senders, turns, strict=True)} if turns else {},
        )

    def run(self, state: ic.CanonicalState, most: int) -> tuple[ic.CanonicalState, list[Any]]:
        self.seen.clear()
        after, _ = ic.execute(state, self.registry, self.behaviour, ic.Options(messages_per_canister=most))
        return after, list(self.seen)


def test_inputs_are_consumed_ingress_first_then_queues_in_passes() -> None:
    inputs = Inputs()
    after, seen = inputs.run(inputs.state(5, 3), 0)
    assert seen == ["a", "b", (3, 0), (5, 0), (3, 1), (5, 1)]
    assert (after.turns, after.next_source) == ({}, {})


def test_bounded_inputs_are_consumed_in_round_robin() -> None:
    inputs = Inputs()
    state = inputs.state(3, 4, 5, 6, turns=(1, 3, 2, 0))
    after, seen = inputs.run(state, 5)
    assert seen == [(6, 0), "a", (3, 0), (4, 0), "b"], "local, ingress, remote, local, ..., each by its turns"
    assert after.turns == {(5, 9): 0, (6, 9): 1, (3, 9): 2, (4, 9): 3}, "who was not served is in front"
    assert after.next_source == {9: 2}
    after, seen = inputs.run(after, 4)
    assert seen == [(5, 0), (6, 1), (3, 1), (4, 1)], "a source that has nothing is passed over"
    assert (after.turns, after.next_source) == ({(5, 9): 0}, {9: 1})
    after, seen = inputs.run(after, 4)
    assert seen == [(5, 1)]
    assert (after.turns, after.next_source) == ({}, {})
    assert inputs.run(after, 4)[0].next_source == {}, "nothing taken, nothing changed"
    one_by_one, taken = state, []
    for _ in range(10):
        one_by_one, seen = inputs.run(one_by_one, 1)
        taken += seen
    assert taken == [(6, 0), "a", (3, 0), (4, 0), "b", (5, 0), (6, 1), (3, 1), (4, 1), (5, 1)], "however it is cut"


def test_flood_starves_no_canister() -> None:
    net = Network({1: 1, 2: 1, 9: 1, 3: 2}, replace(DEPLOYED, messages_per_canister=1))
    flood = [(9, "echo", 0)] * 3
    net.round({1: [ic.Ingress("u", 1, "call", calls(*flood)), ic.Ingress("u", 2, "call", calls(*flood))]})
    for _ in range(12):
        net.round(
            {
                1: [ic.Ingress("u", canister, "call", calls(*flood)) for canister in (1, 2)]
                + [ic.Ingress("u", 9, "call", calls())],
                2: [ic.Ingress("u", 3, "call", calls((9, "echo", 0)))],
            }
        )
    served = Counter(e.sender for e in net.events if e.event == "executed" and e.receiver == 9)
    assert min(served[1], served[2], served[3], served["u"]) >= 2
    net.check()


def test_guarantee_detects_starvation() -> None:
    def event(name: str, sender: int, index: int, height: int) -> ic.Event:
        return ic.Event(name, 1, height, "request", sender=sender, receiver=9, queue_index=index)

    flood = [event(name, 1, h, h) for h in range(2, 40) for name in ("received", "executed")]
    starved = [event("received", 3, 0, 1), *flood]
    options = ic.Options(messages_per_canister=1)
    assert len(accounts.l2_nobody_starves(starved, options)) == 1
    assert accounts.l2_nobody_starves(flood, options) == []
    assert accounts.l2_nobody_starves([*starved[:9], event("executed", 3, 0, 6), *starved[9:]], options) == []


def test_ingress_for_a_remote_or_missing_canister_is_refused() -> None:
    net = Network({1: 1, 2: 2})
    events = net.round({1: [ic.Ingress("u", 2, "call", calls()), ic.Ingress("u", 1, "call", calls())]})
    (refused,) = of(events, "rejected", kind="ingress")
    assert (refused.code, refused.cause, refused.message) == (3, "not_hosted", ("i", "u", 2, None))
    (taken,) = of(events, "received", kind="ingress")
    assert taken.message == ("i", "u", 1, 1)
    net.uninstall(1)
    (refused,) = of(net.round({1: [ic.Ingress("u", 1, "call", calls())]}), "rejected")
    assert refused.cause == "not_installed"


# ---- judging


def test_hazard_15_sender_hosted_elsewhere() -> None:
    forged_request = ic.Request(2, 3, 77, 5)
    forged_response = ic.Response(2, 3, 0, 9, data=b"lie")
    for options, request_outcome in [(ic.Options(), "dropped"), (DEPLOYED, "rejected")]:
        net = Network({1: 1, 2: 2, 3: 3}, options)
        net.round(forged={1: [forged_request, forged_response]})
        events = net.round()
        assert of(events, request_outcome, kind="request", remote=1)
        (lost,) = of(events, "dropped", kind="response")
        assert lost.cause == "sender_mismatch"
        assert net.states[2].input_queues == {}
        assert net.states[2].streams[1].signals[(), options.index_base + 1] == ic.ACCEPT
        net.rounds(4)
        assert not of(net.events, "received", kind="response"), "the reject of a forged request reaches nobody"
        net.check()


def test_hazard_16_receiver_deleted_between_routing_and_induction() -> None:
    net = Network({1: 1, 2: 2}, DEPLOYED)
    net.call(1, (2, "echo", 40))
    net.uninstall(2)
    (rejected,) = of(net.round(), "rejected")
    assert rejected.reason == "CanisterNotFound"
    (reply,) = of(net.round(), "received", kind="response")
    assert (reply.via, reply.cause, reply.code, reply.cycles) == ("synthetic", "CanisterNotFound", 3, 40)
    assert reply.text == f"Canister {ic.canister_text(2)} not found"
    net.rounds(3)
    assert net.program(1).answers == ((0, 3),)
    net.check()


def test_accept_all_responds_for_a_missing_canister_at_execution() -> None:
    net = Network({1: 1, 2: 2})
    net.call(1, (2, "echo", 40))
    net.uninstall(2)
    (rejected,) = of(net.round(), "rejected")
    assert (rejected.cause, rejected.code, rejected.queue_index) == ("not_installed", 3, 1)
    net.rounds(3)
    assert net.program(1).answers == ((0, 3),)
    net.check()


@pytest.mark.parametrize(("rule", "answers"), [("requests_only", 0), ("seed_literal", 1)])
def test_hazard_18_response_for_a_canister_in_no_subnet(rule: Any, answers: int) -> None:
    net = Network({1: 1, 2: 2}, ic.Options(dead_destination=rule))
    net.call(1, (2, "hold", 40))
    net.round()
    net.registry = net.registry.without(1)
    events = net.round({2: [ic.Ingress("u", 2, "flush")]})
    (ended,) = of(events, "dropped", kind="control")
    assert (ended.cause, ended.receiver, ended.cycles) == ("canister_removed", 1, 960)
    (lost,) = of(events, "dropped", kind="response", via=None)
    assert (lost.cause, lost.queue_index) == ("unroutable_response", 1)
    made = of(events, "dropped", via="synthetic")
    assert [(e.cause, e.message) for e in made] == [("NonMatchingResponse", ("r", 2, 0))] * answers, "nobody asked"
    assert g9_no_loss(net.events, net.installed) == []


def test_reject_every_nth_request_of_the_lane() -> None:
    net = Network({1: 1, 2: 2}, ic.Options(reject_every=3))
    net.call(1, *[(2, "echo", 0)] * 7)
    net.rounds(3)
    assert [e.index for e in of(net.events, "rejected")] == [3, 6]
    assert [answer for answer in sorted(net.program(1).answers) if answer[1]] == [(2, 1), (5, 1)]
    net.check()


def test_receiver_check() -> None:
    for check, dropped in [("on", 1), ("off", 0)]:
        net = Network({1: 1, 2: 2, 3: 3}, ic.Options(receiver_check=check))  # type: ignore[arg-type]
        net.call(1, (2, "echo", 5))
        net.move(2, 3)
        events = net.round()
        assert len(of(events, "dropped", cause="receiver_mismatch")) == dropped
        assert ((1, 2) in net.states[2].stray_queues) is (dropped == 0)
        assert net.states[2].input_queues == {}


def test_judgement_matches_the_formula_of_the_reference() -> None:
    """Step 4 to 6 with accept_all are `valid_sender and subnet_assignment[m.dst] = own_subnet`."""
    registry = ic.Registry(frozenset({1, 2, 3}), {1: 1, 2: 2, 3: 3})
    state = ic.genesis(2, {2: None}, {})
    messages: dict[tuple[int, tuple[Any, int]], ic.Request | ic.Response] = {
        (1, ((), 1)): ic.Request(2, 1, 0),
        (1, ((), 2)): ic.Request(2, 3, 0),
        (1, ((), 3)): ic.Request(3, 1, 1),
        (3, ((), 1)): ic.Request(2, 3, 5),
        (3, ((), 2)): ic.Response(2, 1, 5),
    }
    judgements = judge_xnet(state, registry, messages, dict.fromkeys(messages, 1), ic.Options())
    literal = {
        (sn, i): m
        for (sn, i), m in messages.items()
        if ic.valid_sender(registry, sn, m) and registry.host(m.dst) == state.own
    }
    assert ic.map_valid_xnet_messages(messages, judgements) == ic.queue_index(literal)
    assert ic.queue_index(literal) == {(1, 2, 1): ic.Request(2, 1, 0), (3, 2, 1): ic.Request(2, 3, 5)}
    assert in_order(messages)[0] == (1, ((), 1))


def test_trace_orders_rows_by_subnet() -> None:
    assert lists_before((1, 2), 1, 2)
    assert not lists_before((1, 2), 2, 1)
    assert lists_before((1, 2, 1), 2, 1)
    assert not lists_before((1,), 1, 1)


# ---- migration


def test_migrated_canister_keeps_its_queues_and_indices() -> None:
    options = replace(MIGRATIONS, limits="deployed", limit=ic.Limit(stream_messages=1), messages_per_canister=1)
    net = Network({1: 1, 2: 2, 3: 3}, options)
    net.call(1, *[(2, "echo", 1)] * 3)
    before = net.states[1]
    assert sorted(before.output_queues[1, 2].elements) == [1, 2]
    net.move(1, 3)
    moved = ic.move_canisters(net.states, net.used_registry, net.registry)
    assert moved[3].output_queues == before.output_queues
    assert moved[3].sent_times == before.sent_times
    assert moved[3].programs[1] == before.programs[1]
    assert moved[1].output_queues == {}
    assert moved[1].programs == {}
    assert moved[1].streams == before.streams, "streams stay where they are"
    assert net.registry.trace(1) == (1, 3)
    net.rounds(12)
    assert [code for _, code in sorted(net.program(1).answers)] == [2, None, None], "the one in the stream is rejected"
    net.check()


@pytest.mark.parametrize("options", [MIGRATIONS, DEPLOYED, ic.Options()])
@pytest.mark.parametrize("mover", [1, 2])
def test_messages_routed_before_a_round_trip_migration_are_not_enqueued(options: ic.Options, mover: int) -> None:
    """Canister 2 would see the second request before the first."""
    net = Network({1: 1, 2: 2, 3: 3}, options)
    late = {"withheld": lambda source, destination: (source, destination) == (1, 2)}
    net.call(1, (2, "echo", 10))
    net.move(mover, 3)
    net.call(1, (2, "echo", 20), **late)
    net.rounds(2, **late)
    net.move(mover, mover)
    net.rounds(8)
    accepted = [e.message for e in of(net.events, "received", kind="request")]
    assert accepted == [("q", 1, 1)]
    if options.vsr == "deployed":
        (rejected,) = of(net.events, "rejected", kind="request")
        assert (rejected.reason, rejected.chain, rejected.message) == ("CanisterMigrating", 2, ("q", 1, 0))
        assert [code for _, code in sorted(net.program(1).answers)] == [2, None]
    else:
        assert {e.cause for e in of(net.events, "dropped", kind="request")} == {
            "sender_mismatch" if mover == 1 else "receiver_mismatch"
        }
    net.check()


def test_messages_routed_in_the_migration_round_are_not_late() -> None:
    net = Network({1: 1, 2: 2, 3: 3}, DEPLOYED)
    net.move(2, 3)
    net.rounds(1)
    net.move(2, 2)
    net.call(1, (2, "echo", 10))
    net.rounds(3)
    assert net.program(1).answers == ((0, None),)
    net.check()


def test_loopback_stream_is_judged_alike() -> None:
    net = Network({1: 1, 2: 1, 3: 3}, DEPLOYED)
    net.call(1, (2, "echo", 10))
    net.move(2, 3)
    net.round(halted={1})
    net.move(2, 1)
    net.rounds(4)
    assert net.program(1).answers == ((0, 2),)
    net.check()


# ---- removal of canisters


@pytest.mark.parametrize("options", [MIGRATIONS, DEPLOYED, ic.Options(), ic.Options(substreams="per_destination")])
def test_caller_of_a_removed_canister_gets_a_response(options: ic.Options) -> None:
    options = replace(options, messages_per_canister=1)
    net = Network({1: 1, 2: 2, 3: 2}, options)
    net.round({1: [ic.Ingress("u", 1, "call", calls(*[(2, "hold", 10)] * 3))]})
    net.round({2: [ic.Ingress("u", 3, "call", calls(*[(2, "hold", 10)] * 2))]})
    net.rounds(2)
    assert sum(net.states[2].in_hand[2].values()) >= 2
    assert len(net.states[2].input_queues[1, 2].elements) + len(net.states[2].input_queues[3, 2].elements) >= 1
    net.registry = net.registry.without(2)
    events = net.round()
    made = [e for e in events if e.cause == "canister_removed" and e.event in ("received", "committed")]
    assert sorted(e.message[1:] for e in made if e.message) == [(1, 0), (1, 1), (1, 2), (3, 0), (3, 1)]
    assert {e.event for e in made if e.receiver == 3} == {"received"}, "pushed where it lives"
    assert {(e.code, e.cycles, e.text) for e in made} == {(3, 10, f"Canister {ic.canister_text(2)} not found")}
    net.rounds(8)
    assert sorted(net.program(1).answers) == [(0, 3), (1, 3), (2, 3)]
    assert sorted(net.program(3).answers) == [(0, 3), (1, 3)]
    assert sum(net.states[1].balances.values()) + sum(net.states[2].balances.values()) == 2_000
    net.check()


@pytest.mark.parametrize("options", [MIGRATIONS, ic.Options()])
def test_responses_of_a_removed_canister_are_delivered(options: ic.Options) -> None:
    options = replace(options, limits="deployed", limit=ic.Limit(stream_messages=1))
    net = Network({1: 1, 2: 2}, options)
    blocked: dict[str, Any] = {"withheld": lambda source, destination: source == 2}
    net.call(1, (2, "echo", 10), **blocked)
    net.call(1, (2, "echo", 30), **blocked)
    net.rounds(3, **blocked)
    assert len(net.states[2].output_queues[2, 1].elements) + len(net.states[2].streams[1].msgs[()].elements) >= 1
    net.registry = net.registry.without(2)
    net.round(**blocked)
    assert net.states[2].output_queues == {}, "its answers wait for no room in the stream"
    net.rounds(6)
    assert [code for _, code in sorted(net.program(1).answers)][:1] == [None]
    assert len(net.program(1).answers) == 2
    assert not of(net.events, "dropped", kind="response")
    net.check()


def test_queues_and_cycles_of_a_removed_canister_are_lost() -> None:
    net = Network({1: 1, 2: 2}, replace(DEPLOYED, limits="deployed", limit=ic.Limit(stream_messages=1)))
    net.call(1, (2, "hold", 10), (2, "echo", 20), (1, "hold", 5))
    net.registry = net.registry.without(1)
    events = net.round({1: [ic.Ingress("u", 1, "call", calls())]})
    lost = [(e.kind, e.cycles, e.cause) for e in of(events, "dropped")]
    assert ("control", 965, "canister_removed") in lost
    assert ("request", 20, "canister_removed") in lost
    assert net.states[1].open_calls == {}
    net.rounds(4, **{})
    net.round({2: [ic.Ingress("u", 2, "flush")]})
    net.rounds(3)
    net.check()


# ---- slices (3.7 to 3.9)


def a_slice(messages: list[int], begin: int, end: int, signals_end: int = 1, **columns: Any) -> ic.StreamSlice:
    """From subnet 1 to subnet 2, with echo requests of canister 1."""
    return ic.StreamSlice(
        source=1,
        destination=2,
        height=9,
        begin=frozenset({((), begin)}),
        end=frozenset({((), end)}),
        signals_end=frozenset({((), signals_end)}),
        messages={((), i): ic.Request(2, 1, i) for i in messages},
        heights={((), i): 1 for i in messages},
        **columns,
    )


def two_subnets(
    expected: int | None, ours: int = 0, options: ic.Options | None = None
) -> tuple[ic.CanonicalState, ic.Registry, ic.Options]:
    """Subnet 2, which expects index `expected` of subnet 1 and has `ours` messages to it."""
    state = ic.genesis(2, {2: Program()}, {})
    if expected is not None:
        state = replace(state, expected_xnet_indices=frozenset({(1, ((), expected))}))
    if ours:
        queue = ic.push(ic.new_queue(), {i: ic.Request(1, 2, i) for i in range(ours)})
        state = state.with_stream(1, ic.Stream({}, {(): queue}))
    return state, ic.Registry(frozenset({1, 2}), {1: 1, 2: 2}), options or ic.Options()


@pytest.mark.parametrize(
    ("the_slice", "expected", "error"),
    [
        pytest.param(a_slice([1, 3], 1, 6), 1, ic.InvalidStream, id="hazard 3: a hole in the messages"),
        pytest.param(replace(a_slice([1], 1, 2), destination=3), 1, ic.InvalidStream, id="hazard 5: another's slice"),
        pytest.param(replace(a_slice([1], 1, 2), source=3), 1, ic.InvalidStream, id="hazard 5: certified by another"),
    ],
)
def test_slice_is_refused(the_slice: ic.StreamSlice, expected: int | None, error: type[Exception]) -> None:
    state, registry, options = two_subnets(expected, ours=2)
    with pytest.raises(error):
        ic.check_slice(state, registry, 1, the_slice, options)
    assert not ic.validate_xnet_payload(registry, state, [], {1: the_slice}, 10**6, options)


def test_slice_is_accepted() -> None:
    state, registry, options = two_subnets(3, ours=2)
    for the_slice in (a_slice([3, 4], 2, 5), a_slice([3], 3, 9, signals_end=3), a_slice([], 1, 3, signals_end=2)):
        assert ic.check_slice(state, registry, 1, the_slice, options) == the_slice
    rejecting = a_slice([3], 3, 4, signals_end=3, rejects={(): ((1, ic.Reason.QueueFull),)})
    assert ic.check_slice(state, registry, 1, rejecting, replace(options, vsr="deployed")) == rejecting
    empty = a_slice([], 1, 3)
    assert ic.check_slice(state, registry, 1, empty, replace(options, empty_slice="allow")) == empty


def test_hazard_1_seed_literal_accepts_a_replay() -> None:
    state, registry, options = two_subnets(3, options=ic.Options(first_index_rule="seed_literal"))
    replay = a_slice([1, 2], 1, 3)
    assert ic.check_slice(state, registry, 1, replay, options) == replay


def test_hazard_7_unvalidated_signals_stop_the_round() -> None:
    state, registry, options = two_subnets(1, options=ic.Options(validate_signals="off"))
    slice_ = ic.check_slice(state, registry, 1, a_slice([1], 1, 2, signals_end=4), options)
    with pytest.raises(ic.InvariantViolation):
        ic.pre_process(state, registry, ic.DecodedBatch(xnet_payload={1: slice_}), options)


def test_hazard_9_slice_limits() -> None:
    options = replace(
        ic.deployed_profile(), index_base=1, limit=ic.Limit(max_signals=3, slice_messages=2), migrations="off"
    )
    state, registry, _ = two_subnets(1, ours=9)
    with pytest.raises(ic.SliceAboveMessageLimit):
        ic.check_slice(state, registry, 1, a_slice([1, 2, 3], 1, 5), options)
    state, registry, _ = two_subnets(3, ours=9)
    with pytest.raises(ic.TooManySignals):
        ic.check_slice(state, registry, 1, a_slice([3, 4], 1, 9), options)
    old = a_slice([3], 1, 9, signals_end=9, rejects={(): ((1, ic.Reason.Unknown),)})
    with pytest.raises(ic.UnexpectedSignals):
        ic.check_slice(state, registry, 1, old, options)
    stream = ic.push(ic.new_queue(), {i: ic.Request(2, 1, i) for i in range(9)})
    source = replace(
        ic.genesis(1, {}, {}),
        streams={2: ic.Stream({}, {(): stream}, {((), i): 1 for i in stream.elements})},
    )
    for expected, indices in [(1, [1, 2]), (3, [3])]:
        cut = ic.slice_for(source, 2, frozenset({(1, ((), expected))}), options)
        assert cut is not None
        assert sorted(i for _, i in cut.messages) == indices
        assert at(cut.end, ()) == 10


def test_hazard_12_past_payloads() -> None:
    state, registry, options = two_subnets(3)
    first, second = {1: a_slice([3, 4], 1, 9)}, {1: a_slice([5], 1, 9)}
    assert ic.expected_indexes(2, state, [first, second]) == {(1, ((), 6))}
    third = a_slice([6], 1, 9)
    assert ic.check_slice(state, registry, 1, third, options, [first, second]) == third
    with pytest.raises(ic.UnexpectedMessages):
        ic.check_slice(state, registry, 1, a_slice([3], 1, 9), options, [first])
    with pytest.raises(ic.ContradictoryIndices):
        ic.expected_indexes(2, state, [{1: a_slice([1], 1, 9)}])
    assert not ic.validate_xnet_payload(registry, state, [{1: a_slice([1], 1, 9)}], second, 10**6, options)
    assert ic.expected_indexes(2, replace(state, expected_xnet_indices=frozenset()), [first]) == {(1, ((), 5))}


def test_hazard_13_payload_of_exactly_the_limit() -> None:
    state, registry, options = two_subnets(3)
    payload = {1: a_slice([3, 4], 1, 9)}
    size = count_bytes(payload[1])
    ic.check_payload(registry, state, [], payload, size, options)
    with pytest.raises(ic.PayloadTooLarge):
        ic.check_payload(registry, state, [], payload, size - 1, options)


def test_built_payload_is_valid_and_aligned() -> None:
    net = Network({1: 1, 2: 2, 3: 3})
    net.call(1, (2, "echo", 1), (2, "echo", 1))
    state = net.states[2]
    payload = ic.get_xnet_payload(
        2,
        net.registry,
        state,
        [],
        10**6,
        lambda sn: lambda own, expected: ic.slice_for(net.states[sn], own, expected, net.options),
        net.options,
    )
    assert list(payload) == [1]
    size = count_bytes(payload[1])
    assert ic.validate_xnet_payload(net.registry, state, [], payload, size, net.options)
    assert first_message_is_expected(ic.expected_indexes(2, state, []), payload)
    first = replace(payload[1], messages={((), 1): payload[1].messages[(), 1]})
    for limit, brought in ((size - 1, 1), (count_bytes(first), 1), (count_bytes(first) - 1, 0)):
        cut = ic.get_xnet_payload(
            2,
            net.registry,
            state,
            [],
            limit,
            lambda sn: lambda own, expected: ic.slice_for(net.states[sn], own, expected, net.options),
            net.options,
        )
        assert sum(len(css.messages) for css in cut.values()) == brought
        assert len(cut) == brought, "a header without news is not worth it"


def test_refused_slice_logs_an_event_and_changes_no_state() -> None:
    net = Network({1: 1, 2: 2})
    net.call(1, (2, "echo", 1))
    before = net.states[2]
    events = net.round(tamper=lambda own, css: replace(css, source=9))
    assert [(e.kind, e.error, e.chain, e.remote) for e in of(events, "rejected")] == [
        ("control", "InvalidStream", 2, 1)
    ]
    assert net.states[2] == replace(before, height=2, number=2, time_ns=net.states[2].time_ns)


def test_hazard_22_repeated_reject_signal_is_handled_once() -> None:
    net = Network({1: 1, 2: 2}, ic.Options(reject_every=1))
    net.call(1, (2, "echo", 10))
    net.call(1, (2, "echo", 10))  # subnet 2 rejects the first
    events = net.round()  # subnet 1 receives the signal; subnet 2 rejects the second and has not seen our new begin yet
    assert len(of(events, "received", via="synthetic")) == 1
    css = ic.slice_for(net.states[2], 1, net.states[1].expected_xnet_indices, net.options)
    assert css is not None
    assert css.rejects == {(): ((1, ic.Reason.Unknown), (2, ic.Reason.Unknown))}
    assert explicit_signals(css, (), own_begin=2) == {((), 2): ic.REJECT(ic.Reason.Unknown)}
    events = net.round()
    assert [e.message for e in of(events, "received", via="synthetic")] == [("r", 1, 1)]
    # Induction itself skips handled signals: the same slice again changes no stream and answers nobody.
    batch = ic.DecodedBatch(xnet_payload={2: css})
    again, events = ic.pre_process(net.states[1], net.registry, batch, net.options)
    assert of(events, "received", kind="response") == []
    assert again.streams == net.states[1].streams
    net.rounds(3)
    assert net.program(1).answers == ((0, 1), (1, 1))
    net.check()


def test_hazard_37_subnet_removed_from_the_registry() -> None:
    net = Network({1: 1, 2: 2})
    net.call(1, (2, "echo", 10))
    css = ic.slice_for(net.states[1], 2, frozenset(), net.options)
    assert css is not None
    net.registry = replace(net.registry, subnets=frozenset({2}))
    with pytest.raises(ic.UnknownSubnet):
        ic.check_slice(net.states[2], net.registry, 1, css, net.options)
    streams = net.states[1].streams
    net.rounds(2)
    assert net.states[1].streams == streams
    net.check()


def test_hazard_38_substreams_advance_independently() -> None:
    options = ic.Options(substreams="per_destination")
    net = Network({1: 1, 2: 2, 3: 2}, options)
    net.call(1, (2, "echo", 0), (2, "echo", 0), (3, "echo", 0))
    assert {name: queue.next_index for name, queue in net.states[1].streams[2].msgs.items()} == {2: 3, 3: 2}

    def without_3(destination: int, css: ic.StreamSlice) -> ic.StreamSlice:
        if destination != 2:
            return css
        return replace(
            css,
            begin=frozenset(item for item in css.begin if item[0] != 3),
            end=frozenset(item for item in css.end if item[0] != 3),
            signals_end=frozenset(item for item in css.signals_end if item[0] != 3),
            messages={i: m for i, m in css.messages.items() if i[0] != 3},
        )

    net.round(tamper=without_3)
    assert net.states[2].expected_xnet_indices == {(1, (2, 3))}
    net.round()
    assert net.states[2].expected_xnet_indices == {(1, (2, 3)), (1, (3, 2))}
    net.rounds(4)
    assert sorted(net.program(1).answers) == [(0, None), (1, None), (2, None)]
    net.check()


# ---- routing


def test_post_process_without_limits_is_the_formula() -> None:
    options = ic.Options()
    registry = ic.Registry(frozenset({1, 2}), {1: 1, 2: 2, 3: 1})
    queues = {
        (3, 2): ic.push(ic.new_queue(), {1: ic.Request(2, 3, 0), 2: ic.Request(2, 3, 1)}),
        (1, 2): ic.push(ic.new_queue(), {1: ic.Request(2, 1, 0)}),
        (1, 9): ic.push(ic.new_queue(), {1: ic.Request(9, 1, 1, 5), 2: ic.Response(9, 1, 4, 6)}),
    }
    times = {(s, r, i): 0 for (s, r), queue in queues.items() for i in queue.elements}
    calls = {(s, m.callback): (r, 0) for (s, r), queue in queues.items() for m in queue.elements.values()}
    state = replace(ic.genesis(1, {1: None, 3: None}, {}), output_queues=queues, sent_times=times, open_calls=calls)
    after, _ = ic.post_process(state, registry, options, seed=0)
    assert after.output_queues == ic.clear_map(queues)
    assert after.sent_times == {}
    replies = ic.non_existent_canister_replies(queues, registry.subnet_assignment, options)
    assert replies == {(9, 1, 1): ic.NON_EXISTENT_CANISTER(ic.Request(9, 1, 1, 5))}
    assert after.input_queues == ic.push_map({}, dict(replies))
    assert ic.filter(queues, registry.subnet_assignment)[1, 9] == ic.Queue(3, {})
    routed = after.streams[2].msgs[()].elements
    assert [(m.src, m.callback) for _, m in sorted(routed.items())] == [(1, 0), (3, 0), (3, 1)]


def test_stream_is_full_by_bytes_before_the_push() -> None:
    options = replace(DEPLOYED, limits="deployed", limit=ic.Limit(stream_bytes=600))
    net = Network({1: 1, 2: 2}, options)
    net.call(1, *[(2, "echo", 0, bytes(100))] * 4)
    assert len(net.states[1].streams[2].msgs[()].elements) == 2, "356 < 600, 712 is not"
    net = Network({1: 1, 2: 2}, replace(options, limit=ic.Limit(stream_bytes=712)))
    net.call(1, *[(2, "echo", 0, bytes(100))] * 4)
    assert len(net.states[1].streams[2].msgs[()].elements) == 2, "712 is not below 712"


def test_loopback_stream_is_never_full() -> None:
    net = Network({1: 1, 2: 1}, replace(DEPLOYED, limits="deployed", limit=ic.Limit(stream_messages=1)))
    net.call(1, *[(2, "echo", 0)] * 4)
    assert len(net.states[1].streams[1].msgs[()].elements) == 4


def test_hazard_24_round_robin_over_canisters() -> None:
    options = replace(DEPLOYED, limits="deployed", limit=ic.Limit(stream_messages=3))
    for seed in range(6):
        net = Network({1: 1, 2: 1, 3: 1, 4: 2}, options, seed=seed)
        flood = ic.Ingress("u", 1, "call", calls(*[(4, "echo", 0)] * 9))
        others = [ic.Ingress("u", canister, "call", calls((4, "echo", 0))) for canister in (2, 3)]
        net.round({1: [flood, *others]})
        senders = [m.src for _, m in sorted(net.states[1].streams[2].msgs[()].elements.items())]
        by = draw(seed, 1, 1) % 3
        assert senders == [[1, 2, 3], [2, 3, 1], [3, 1, 2]][by]


def test_routing_takes_one_queue_position_after_the_other() -> None:
    options = ic.Options(limits="deployed")
    queues: dict[tuple[int, int], ic.Queue[Any]] = {
        (1, 5): ic.Queue(9, {7: ic.Request(5, 1, 0), 8: ic.Request(5, 1, 1)}),
        (1, 4): ic.Queue(3, {1: ic.Request(4, 1, 2), 2: ic.Request(4, 1, 3)}),
    }
    state = replace(ic.genesis(1, {}, {}), output_queues=queues)
    assert ic.routing_order(state, options, seed=0) == [(1, 4, 1), (1, 5, 7), (1, 4, 2), (1, 5, 8)]


# ---- time-outs


def test_hazard_35_halted_subnet() -> None:
    options = replace(
        DEPLOYED,
        limits="deployed",
        limit=ic.Limit(stream_messages=1),
        timeouts="on",
        request_lifetime_seconds=3,
    )
    net = Network({1: 1, 2: 2, 3: 3}, options)

    def halted(source: int, destination: int) -> bool:
        return 2 in (source, destination)

    net.call(1, (2, "echo", 7), (2, "echo", 8), (3, "echo", 9), withheld=halted)  # time 1 s
    net.rounds(2, withheld=halted)
    assert net.program(1).answers == ((2, None),), "subnet 2 blocks nobody else"
    (late,) = of(net.round(withheld=halted), "timed_out")  # time 4 s
    assert (late.message, late.queue_index) == (("q", 1, 1), 1)
    (reply,) = of(net.events, "received", via="timeout")
    assert (reply.code, reply.text, reply.cycles, reply.height) == (2, "Request timed out.", 8, 4)
    net.rounds(5, withheld=halted)
    assert guarantees.open_calls(net.events) == {("q", 1, 0)}, "what is in the stream never times out"
    net.check()


# ---- coordination (3.1)


def test_hazard_31_and_32_batches() -> None:
    options = ic.Options()
    registry = ic.Registry(frozenset({1}), {1: 1, 2: 1})
    manager = ic.StateManager({0: ic.genesis(1, dict.fromkeys((1, 2), Program()), {1: 100})})
    ingress = {1: ic.Ingress("u", 1, "call", calls((2, "echo", 10)))}
    batch = ic.Batch(1, 1, ingress_payload=ingress, time_ns=50)
    done = ic.process_batch(manager, batch, {1: registry}, scripted, options)
    assert not isinstance(done, ic.Ignored)
    manager_1, _ = done
    assert ic.process_batch(manager, batch, {1: registry}, scripted, options) == done, "applied again, identical"
    assert ic.process_batch(manager_1, batch, {1: registry}, scripted, options) == ic.Ignored(expected=2, actual=1)
    with pytest.raises(ic.InvariantViolation):
        ic.process_batch(manager_1, replace(batch, batch_number=3), {1: registry}, scripted, options)
    older = ic.process_batch(manager_1, ic.Batch(2, 1, time_ns=40), {1: registry}, scripted, options)
    assert not isinstance(older, ic.Ignored)
    assert older[0].states[2].time_ns == 50
    assert older[0].states[2].height == 2


def test_hazard_33_map_order_does_not_matter() -> None:
    net = Network({1: 1, 2: 2, 3: 3, 256: 256})
    for canister in (1, 3, 256):
        net.call(canister, (2, "echo", 1), (2, "hold", 1))
    offered = decoded_payload(2, ic.offered_slices(net.states, net.states[2], net.registry, net.options))
    forwards = ic.DecodedBatch(xnet_payload=offered)
    backwards = ic.DecodedBatch(xnet_payload=dict(reversed(offered.items())))
    results = [
        ic.one_round(net.states[2], net.registry, batch, scripted, net.options) for batch in (forwards, backwards)
    ]
    assert results[0] == results[1]
    assert [e.remote for e in of(results[0][1], "received", kind="control")] == list(offered)


# ---- a stopped subnet


def test_subnet_that_violates_an_invariant_stops_alone() -> None:
    options = replace(DEPLOYED, index_base=1, validate_signals="off")
    net = Network({1: 1, 2: 2, 3: 3, 4: 1}, options)
    net.call(1, (2, "echo", 5), (3, "echo", 6))
    net.call(4, (2, "echo", 7))
    before = net.states[1]

    def lie(own: int, css: ic.StreamSlice) -> ic.StreamSlice:
        return replace(css, signals_end=frozenset({((), 9)})) if (css.source, own) == (2, 1) else css

    forged = ic.Request(2, 1, 77)
    events = net.round({1: [ic.Ingress("u", 1, "call", calls())]}, tamper=lie, forged={1: [forged]})
    (stopped,) = of(events, "stopped")
    assert (stopped.chain, stopped.height, stopped.cause) == (1, 3, "InvariantViolation")
    assert net.states[1] == replace(before, height=3, stopped=(3, "InvariantViolation"))
    assert [(e.event, e.kind, e.cause) for e in events if e.chain == 1 and e is not stopped] == [
        ("rejected", "ingress", "halted"),
        ("dropped", "request", "halted"),
    ]
    assert of(events, "executed", chain=2), "others go on"
    net.rounds(3)
    assert net.states[1] == replace(before, height=6, stopped=(3, "InvariantViolation"))
    assert of(net.events, "stopped") == [stopped]
    net.move(4, 3)  # and canisters may leave it
    net.round()
    assert net.program(4).calls == 1
    assert 4 in net.states[3].programs
    net.check()


def test_index_overflow_stops_a_subnet() -> None:
    net = Network({1: 1, 2: 2})
    net.round()
    worn = ic.Stream({}, {(): ic.Queue(MAX_NATURAL - 1, {})})
    net.states[1] = net.states[1].with_stream(2, worn)
    net.call(1, (2, "echo", 0))
    assert net.states[1].stopped is None
    net.call(1, (2, "echo", 0))
    assert net.states[1].stopped == (3, "IndexOverflow")


def test_reject_texts_are_truncated_at_a_character() -> None:
    text = "x" + "é" * 5_000

    def behaviour(canister: int, program: Any, message: ic.Message) -> tuple[Any, list[ic.Effect]]:
        assert isinstance(message, ic.Request)
        if message.method == "raise":
            raise ValueError(text)
        return program, [ic.Reply(ic.RequestKey.of(message), reject=(4, text))]

    registry = ic.Registry(frozenset({1}), {1: 1, 2: 1})
    requests = {i: ic.Request(2, 1, i, method=method) for i, method in enumerate(["refuse", "raise"])}
    state = replace(ic.genesis(1, {2: None}, {}), input_queues={(1, 2): ic.push(ic.new_queue(), requests)})
    after, _ = ic.execute(state, registry, behaviour, ic.Options())
    answers = after.output_queues[2, 1].elements.values()
    texts = [m.reject[1] for m in answers if isinstance(m, ic.Response) and m.reject]
    assert texts == ["x" + "é" * 4_095, "ValueError: x" + "é" * 4_089]
    made = reject_response(ic.Request(2, 1, 0), 5, "é" * 200)
    assert made.reject == (5, "é" * 127)


# ---- guarantees detect violations


def test_guarantees_detect_violations() -> None:
    net = Network({1: 1, 2: 2})
    net.call(1, (2, "echo", 10), (2, "echo", 10))
    net.rounds(3)
    net.check()
    received = of(net.events, "received", kind="request")
    twice = [*net.events, replace(received[0], height=net.height)]
    assert any(text.startswith("G1") for text in guarantees.check_events(twice, net.registries, net.options))
    assert any(text.startswith("G7") for text in guarantees.check_events(twice, net.registries, net.options))
    forged = replace(received[0], content=ic.Request(2, 1, 0, 10_000))
    changed = [forged if e is received[0] else e for e in net.events]
    assert any(text.startswith("G2") for text in guarantees.check_events(changed, net.registries, net.options))
    swapped = [replace(e, queue_index=3 - (e.queue_index or 0)) if e in received else e for e in net.events]
    assert guarantees.g3_pair_order(swapped, net.registries, net.options)
    (answer, _) = of(net.events, "received", kind="response")
    assert guarantees.g4_one_reply_per_call([*net.events, answer], net.registries)
    assert guarantees.g5_undeliverable_gets_synthetic_reject(
        [replace(e, reason="QueueFull") if e.event == "acknowledged" else e for e in net.events],
        net.registries,
        net.options,
    )
    holed = [e for e in net.events if not (e.event == "committed" and e.index == 1)]
    assert guarantees.g6_gap_free_streams(holed, net.options)
    assert guarantees.g8_collection_is_safe([e for e in net.events if e.event != "acknowledged"])
    unlogged = [e for e in net.events if e.event != "executed"]
    nothing: dict[int, ic.CanonicalState] = {own: ic.genesis(own, {}, {}) for own in net.states}
    assert accounts.g11_queues_change_as_logged(nothing, net.states, net.events, net.registries) == []
    assert accounts.g11_queues_change_as_logged(nothing, net.states, unlogged, net.registries)
    forgotten = {**net.states, 1: replace(net.states[1], open_calls={(1, 0): (2, 0)})}
    assert accounts.calls_are_somewhere(forgotten, net.events, net.options)
    assert accounts.open_calls_are_those_of_the_log(forgotten, net.events, net.registries)
    assert accounts.l2_all_calls_are_settled(forgotten, net.events, net.options)
    assert g9_no_loss(net.events, net.installed) == []
    causeless = replace(answer, event="dropped", cause="a whim", cycles=0)
    assert "G9: lost for a whim" in g9_no_loss([*net.events, causeless], net.installed)
    for event in ("sent", "executed", "received"):
        (first, *_) = of(net.events, event, kind="response", cycles=answer.cycles)
        dearer = [replace(e, cycles=10**6) if e is first else e for e in net.events]
        assert g9_no_loss(dearer, net.installed), f"{event} with other cycles"
    richer = {**net.states, 1: replace(net.states[1], balances={1: 10**6})}
    assert accounts.g9_is_that_of_the_log(richer, net.value(), net.options)
    assert guarantees.g10_responses_are_accepted([replace(answer, event="rejected", reason="QueueFull")])


# ---- random networks

CANISTERS = (1, 2, 3, 4, 5)
SUBNETS = (1, 2, 256)
METHODS = ("echo", "hold", "raise", "refuse", "forward:1", "forward:4")

option_sets = st.builds(
    lambda base, substreams, vsr, sender, limits, timeouts, migrations, reject_every, per_canister, messages, cut: (
        ic.Options(
            index_base=base,
            substreams=substreams,
            vsr=vsr,
            sender_mismatch=sender,
            limits=limits,
            timeouts=timeouts,
            migrations=migrations,
            reject_every=reject_every,
            messages_per_canister=per_canister,
            request_lifetime_seconds=2,
            limit=ic.Limit(stream_messages=messages, queue_capacity=1, slice_messages=cut, max_signals=5),
        )
    ),
    st.sampled_from([0, 1]),
    st.sampled_from(["flat", "per_destination"]),
    st.sampled_from(["accept_all", "deployed"]),
    st.sampled_from(["drop_accept", "deployed"]),
    st.sampled_from(["none", "deployed"]),
    st.sampled_from(["off", "on"]),
    st.sampled_from(["off", "on"]),
    st.sampled_from([0, 0, 2, 3]),
    st.sampled_from([0, 1, 3]),
    st.integers(1, 4),
    st.sampled_from([0, 1, 2]),
)
described_calls = st.lists(
    st.tuples(st.sampled_from((*CANISTERS, 99)), st.sampled_from(METHODS), st.integers(0, 60)), max_size=4
)
steps = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from(CANISTERS), described_calls), max_size=3),
        st.sets(st.tuples(st.sampled_from(SUBNETS), st.sampled_from(SUBNETS)), max_size=3),
        st.one_of(st.none(), st.tuples(st.sampled_from(CANISTERS), st.sampled_from(SUBNETS))),
        st.booleans(),
    ),
    min_size=2,
    max_size=7,
)


@settings(max_examples=sized(54, 600), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    options=option_sets,
    hosts=st.fixed_dictionaries({canister: st.sampled_from(SUBNETS) for canister in CANISTERS}),
    script=steps,
    moves=st.booleans(),
)
def test_random_networks_satisfy_the_guarantees(
    options: ic.Options, hosts: dict[int, int], script: list[Any], moves: bool
) -> None:
    net = Network(hosts, options, balance=200)
    net.registry = replace(net.registry, subnets=frozenset(SUBNETS))
    for subnet in SUBNETS:
        net.states.setdefault(subnet, ic.genesis(subnet, {}, {}))
    for ingress, withheld, move, flush in script:
        if move is not None and moves and net.registry.host(move[0]) != move[1]:
            net.move(*move)
        payloads: dict[int, list[ic.Ingress]] = {}
        for canister, described in ingress:
            host = net.registry.subnet_assignment[canister]
            payloads.setdefault(host, []).append(ic.Ingress("u", canister, "call", calls(*described)))
        if flush:
            for canister in CANISTERS:
                host = net.registry.subnet_assignment[canister]
                payloads.setdefault(host, []).append(ic.Ingress("u", canister, "flush"))
        net.round(payloads, withheld=lambda source, destination, lost=withheld: (source, destination) in lost)
        net.check()
    if options.messages_per_canister == 0:
        drain(net)
        if not of(net.events, "dropped"):
            assert guarantees.open_calls(net.events) == set(), "L2: every request has its answer"
    net.check()


def drain(net: Network) -> None:
    """Rounds without faults until the network is idle; pending requests are answered."""
    for _ in range(60):
        payloads: dict[int, list[ic.Ingress]] = {}
        for canister in CANISTERS:
            if net.program(canister).held:
                host = net.registry.subnet_assignment[canister]
                payloads.setdefault(host, []).append(ic.Ingress("u", canister, "flush"))
        if not net.round(payloads):
            return
    raise AssertionError("the network does not come to rest")
