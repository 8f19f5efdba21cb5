"""Execution phase: 3.5, with the turns of X-4."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tests.spec.ic.errors import InvariantViolation
from tests.spec.ic.events import Event, canister_event, ingress_event
from tests.spec.ic.ids import CanisterId, canister_text
from tests.spec.ic.messages import (
    MAX_TEXT,
    CanisterMessage,
    Ingress,
    Message,
    RejectCode,
    Request,
    Response,
    cut,
    reject_response,
)
from tests.spec.ic.options import Options
from tests.spec.ic.queues import QueueIndex, delete_map, new_queue, push_map
from tests.spec.ic.state import CallId, CanonicalState, InHand, QueueName, Registry

MAX_CYCLES = 2**128 - 1
"""What a message carries, and what an answer may bring a balance up to. A refund may bring it beyond."""


LOCAL_SUBNET, INGRESS = 0, 1
"""Two of the three sources of inputs; the third is RemoteSubnet."""


class RequestKey(NamedTuple):
    """What an answer needs to know of its request."""

    sender: CanisterId
    callback: int
    cycles: int
    deadline: int

    @classmethod
    def of(cls, request: Request) -> "RequestKey":
        return cls(request.sender, request.callback, request.cycles, request.deadline)


@dataclass(frozen=True)
class Reply:
    """Answer the request at hand or an earlier one, with `data` or with `reject` = (code, text)."""

    to: RequestKey | tuple[CanisterId, int, int, int]
    data: bytes | None = None
    reject: tuple[int, str] | None = None
    accepted: int = 0


@dataclass(frozen=True)
class Accept:
    """Take `cycles` of what is still attached to the request at hand or an earlier one that is open."""

    of: RequestKey | tuple[CanisterId, int, int, int]
    cycles: int


@dataclass(frozen=True)
class Call:
    receiver: CanisterId
    method: str = ""
    payload: bytes = b""
    cycles: int = 0


@dataclass(frozen=True)
class CertifiedData:
    """Set what the subnet certifies as this canister's, in place of what it certified before."""

    data: bytes


MAX_CERTIFIED_DATA = 32

Effect = Reply | Accept | Call | CertifiedData
Behaviour = Callable[[CanisterId, Any, Message], tuple[Any, Sequence[Effect]]]
"""(canister, program state, message) -> (new program state, effects in the order made; the answer that a handler
returns is made last). It must not change the state it is given."""


def execute(
    state: CanonicalState, registry: Registry, behaviour: Behaviour, options: Options
) -> tuple[CanonicalState, list[Event]]:
    """The execution phase: delete what was consumed, push what was produced. schedule_and_execute runs once (D-13)."""
    base = options.index_base
    run = schedule_and_execute(state, registry, behaviour, options)
    sent_times = dict(state.sent_times)
    for sender, receiver, j in run.produced_messages:
        first = state.output_queues.get((sender, receiver), new_queue(base)).next_index
        sent_times[sender, receiver, first - 1 + j] = state.time_ns
    after = replace(
        state,
        ingress_queues=delete_map(state.ingress_queues, dict(run.consumed_ingress_messages)),
        input_queues=delete_map(state.input_queues, dict(run.consumed_xnet_messages)),
        output_queues=push_map(state.output_queues, dict(run.produced_messages), base),
        balances=run.balances,
        next_callbacks=run.next_callbacks,
        programs=run.programs,
        open_calls=run.open_calls,
        in_hand={canister: keys for canister, keys in run.in_hand.items() if keys},
        accepted={canister: keys for canister, keys in run.accepted.items() if keys},
        turns=run.turns,
        next_source={canister: source for canister, source in run.next_source.items() if source},
        sent_times=sent_times,
        certified_data=run.certified_data,
    )
    return after, run.events


class Run:
    """What schedule_and_execute gives back, while it is being made."""

    def __init__(self, state: CanonicalState, options: Options) -> None:
        self.state = state
        self.options = options
        self.consumed_ingress_messages: dict[tuple[CanisterId, int], Ingress] = {}
        self.consumed_xnet_messages: dict[QueueIndex, CanisterMessage] = {}
        self.produced_messages: dict[QueueIndex, CanisterMessage] = {}
        self.balances = dict(state.balances)
        self.next_callbacks = dict(state.next_callbacks)
        self.programs = dict(state.programs)
        self.open_calls: dict[CallId, tuple[CanisterId, int]] = dict(state.open_calls)
        self.in_hand: dict[CanisterId, dict[InHand, int]] = {name: dict(keys) for name, keys in state.in_hand.items()}
        self.accepted = {name: dict(keys) for name, keys in state.accepted.items()}
        self.turns = dict(state.turns)
        self.next_source = dict(state.next_source)
        self.certified_data = dict(state.certified_data)
        self.events: list[Event] = []
        self._lengths: dict[QueueName, int] = {}

    def produce(self, message: CanisterMessage) -> None:
        """Append to output queue (m.src, m.dst): keys 1, 2, ... are the order of appending. A request opens a call."""
        if isinstance(message, Request):
            self.open_calls[message.sender, message.callback] = (message.receiver, message.deadline)
        name = (message.src, message.dst)
        self._lengths[name] = self._lengths.get(name, 0) + 1
        self.produced_messages[(*name, self._lengths[name])] = message
        queue = self.state.output_queues.get(name, new_queue(self.options.index_base))
        index = queue.next_index - 1 + self._lengths[name]
        self.log_canister("sent", message, queue_index=index)

    def log_canister(self, event: str, message: CanisterMessage, **columns: Any) -> None:
        self.events.append(canister_event(event, self.state.own, self.state.height, message, **columns))

    def log_consumed(self, event: str, message: Message, index: int, **columns: Any) -> None:
        """An event of a message that just left its input or ingress queue."""
        if isinstance(message, Ingress):
            self.events.append(ingress_event(event, self.state.own, self.state.height, message, index, **columns))
        else:
            self.log_canister(event, message, queue_index=index, **columns)


def schedule_and_execute(state: CanonicalState, registry: Registry, behaviour: Behaviour, options: Options) -> Run:
    """Every hosted canister consumes its inputs in order; canisters do not see each other inside a round."""
    run = Run(state, options)
    for canister in sorted(registry.subnet_assignment):
        if registry.host(canister) != state.own:
            continue
        for index, message in schedule(run, registry, canister, options):
            if isinstance(message, Ingress):
                run.consumed_ingress_messages[canister, index] = message
            else:
                run.consumed_xnet_messages[message.src, canister, index] = message
            if canister in run.programs:
                consume(run, canister, index, message, behaviour)
            else:
                consume_for_missing(run, canister, index, message)
    return run


def schedule(run: Run, registry: Registry, canister: CanisterId, options: Options) -> list[tuple[int, Message]]:
    """What a canister consumes in this round, in order: everything, or so many as it may in round robin."""
    state = run.state
    ingress: list[tuple[int, Message]] = []
    if canister in state.ingress_queues:
        ingress += sorted(state.ingress_queues[canister].elements.items())
    queues: dict[CanisterId, list[tuple[int, Message]]] = {
        sender: sorted(queue.elements.items())
        for (sender, receiver), queue in sorted(state.input_queues.items())
        if receiver == canister and queue.elements
    }
    if options.messages_per_canister > 0:
        return in_round_robin(run, registry, canister, ingress, queues, options.messages_per_canister)
    return ingress + in_passes(list(queues.values()))


def in_passes(queues: list[list[tuple[int, Message]]]) -> list[tuple[int, Message]]:
    """The oldest of every queue by ascending sender, the second oldest, and so on."""
    inputs: list[tuple[int, Message]] = []
    for one_pass in range(max(map(len, queues), default=0)):
        inputs += [queue[one_pass] for queue in queues if one_pass < len(queue)]
    return inputs


def in_round_robin(
    run: Run,
    registry: Registry,
    canister: CanisterId,
    ingress: list[tuple[int, Message]],
    queues: dict[CanisterId, list[tuple[int, Message]]],
    most: int,
) -> list[tuple[int, Message]]:
    """Round robin over LocalSubnet, Ingress and RemoteSubnet, FIFO of senders inside each (X-4): who was served and
    has more goes behind all others. Where it stands after the last message is remembered."""
    turns = {sender: run.state.turns[sender, canister] for sender in queues}
    waiting = sorted(queues, key=lambda sender: turns[sender])
    local = [sender for sender in waiting if registry.host(sender) == run.state.own]
    remote = [sender for sender in waiting if sender not in local]
    left, users = {sender: list(queue) for sender, queue in queues.items()}, list(ingress)
    taken = dict.fromkeys(queues, 0)
    following = run.state.next_source.get(canister, 0)
    inputs: list[tuple[int, Message]] = []
    while len(inputs) < most and (local or users or remote):
        source = next(s % 3 for s in range(following, following + 3) if (local, users, remote)[s % 3])
        if source == INGRESS:
            inputs.append(users.pop(0))
        else:
            senders = local if source == LOCAL_SUBNET else remote
            sender = senders.pop(0)
            inputs.append(left[sender].pop(0))
            taken[sender] += 1
            if left[sender]:
                senders.append(sender)
        following = (source + 1) % 3
    if canister in run.programs:
        run.next_source[canister] = following
    still = sorted((sender for sender in left if left[sender]), key=lambda sender: (taken[sender], turns[sender]))
    run.turns = {name: turn for name, turn in run.turns.items() if name[1] != canister}
    run.turns |= {(sender, canister): turn for turn, sender in enumerate(still)}
    return inputs


def consume(run: Run, canister: CanisterId, index: int, message: Message, behaviour: Behaviour) -> None:
    """Run the handler of an installed canister alone."""
    if isinstance(message, Response):
        run.balances[canister] = run.balances.get(canister, 0) + message.refund
    outcome = run_handler(
        canister,
        run.programs[canister],
        run.balances.get(canister, 0),
        run.next_callbacks.get(canister, 0),
        run.in_hand.get(canister, {}),
        run.accepted.get(canister, {}),
        message,
        behaviour,
    )
    run.log_consumed("executed", message, index, error=outcome.error)
    if isinstance(message, Response):
        run.events.append(_answered(run, message, index))
    if outcome.error is None:
        run.programs[canister] = outcome.program
        run.balances[canister] = outcome.balance
        run.in_hand[canister] = dict(outcome.in_hand)
        run.accepted[canister] = dict(outcome.accepted)
        run.next_callbacks[canister] = outcome.next_callback
        run.certified_data |= {} if outcome.certified is None else {canister: outcome.certified}
        for produced in outcome.produced:
            run.produce(produced)
    elif isinstance(message, Request):
        run.produce(reject_response(message, RejectCode.CanisterError, outcome.error, MAX_TEXT))


def consume_for_missing(run: Run, canister: CanisterId, index: int, message: Message) -> None:
    """A canister that is mapped here but not installed: a request is answered. It has no open calls, so no response
    is ever enqueued for it."""
    assert not isinstance(message, Response)
    code, text = RejectCode.DestinationInvalid, f"Canister {canister_text(canister)} not found"
    run.log_consumed("rejected", message, index, cause="not_installed", code=int(code), text=text)
    if isinstance(message, Request):
        run.produce(reject_response(message, code, text))


@dataclass(frozen=True)
class Outcome:
    """What one handler run would change. With an error, nothing of it is applied."""

    program: Any
    balance: int
    next_callback: int
    in_hand: Mapping[InHand, int]
    accepted: Mapping[InHand, int]
    produced: Sequence[CanisterMessage]
    error: str | None = None
    certified: bytes | None = None


def run_handler(
    canister: CanisterId,
    program: Any,
    balance: int,
    next_callback: int,
    in_hand: Mapping[InHand, int],
    accepted_before: Mapping[InHand, int],
    message: Message,
    behaviour: Behaviour,
) -> Outcome:
    """One handler run. Cycles move in the order of its effects; a call beyond the balance at that point makes the run
    count as raised. In the output the answer to the message at hand stands first, the rest in the order made. A request
    is in hand until it is answered."""

    def failed(text: str) -> Outcome:
        return Outcome(program, balance_before, callback_before, in_hand, accepted_before, (), error=text)

    balance_before, callback_before = balance, next_callback
    try:
        new_program, effects = behaviour(canister, program, message)
    except Exception as error:  # whatever a program raises is its own failure, not the round's
        return failed(f"{type(error).__name__}: {error}")
    held, accepted = dict(in_hand), dict(accepted_before)
    if isinstance(message, Request):
        key = RequestKey.of(message)
        held[key] = held.get(key, 0) + 1
    answers: list[CanisterMessage] = []
    others: list[CanisterMessage] = []
    certified: bytes | None = None
    for effect in effects:
        if isinstance(effect, CertifiedData):
            if len(effect.data) > MAX_CERTIFIED_DATA:
                return failed(f"CertifiedDataTooLong: {len(effect.data)} bytes, at most {MAX_CERTIFIED_DATA}")
            certified = effect.data
        elif isinstance(effect, Reply | Accept):
            to = RequestKey(*(effect.to if isinstance(effect, Reply) else effect.of))
            taken = effect.accepted if isinstance(effect, Reply) else effect.cycles
            there = to._replace(cycles=to.cycles - accepted.get(to, 0))
            if not 0 <= taken <= there.cycles:
                raise InvariantViolation(f"canister {canister} accepts {taken} of {there.cycles} cycles")
            if taken and balance + taken > MAX_CYCLES:
                return failed(f"BalanceOverflow: balance {balance}, accepted {taken}, at most 2**128 - 1")
            if there not in held:
                raise InvariantViolation(f"canister {canister} answers {there}, which it has not in hand")
            held = {name: times - (name == there) for name, times in held.items() if times > (name == there)}
            balance += taken
            left = there._replace(cycles=there.cycles - taken)
            if isinstance(effect, Accept):
                held[left] = held.get(left, 0) + 1
                if taken:
                    accepted[to] = accepted.get(to, 0) + taken
                continue
            accepted.pop(to, None)
            (answers if _answers(effect, message) else others).append(
                Response(
                    originator=to.sender,
                    respondent=canister,
                    callback=to.callback,
                    refund=left.cycles,
                    data=effect.data,
                    reject=None if effect.reject is None else (effect.reject[0], cut(effect.reject[1], MAX_TEXT)),
                    deadline=to.deadline,
                )
            )
        elif effect.cycles > balance:
            return failed(f"InsufficientFunds: balance {balance}, attached {effect.cycles}")
        elif effect.cycles > MAX_CYCLES:
            return failed(f"BalanceOverflow: attached {effect.cycles}, at most 2**128 - 1")
        else:
            balance -= effect.cycles
            others.append(
                Request(
                    receiver=effect.receiver,
                    sender=canister,
                    callback=next_callback,
                    cycles=effect.cycles,
                    method=effect.method,
                    payload=effect.payload,
                )
            )
            next_callback += 1
    return Outcome(new_program, balance, next_callback, held, accepted, [*answers, *others], certified=certified)


def _answers(reply: Reply, message: Message) -> bool:
    """Whether `reply` answers the message at hand."""
    return isinstance(message, Request) and tuple(reply.to[:2]) == (message.sender, message.callback)


def _answered(run: Run, response: Response, index: int) -> Event:
    """The request that `response` answers has its answer."""
    return Event(
        event="answered",
        chain=run.state.own,
        height=run.state.height,
        kind="request",
        message=("q", response.originator, response.callback),
        sender=response.originator,
        receiver=response.respondent,
        queue_index=index,
        code=None if response.reject is None else response.reject[0],
        text=None if response.reject is None else response.reject[1],
    )
