"""The canonical state (2.5, 2.6), the registry (2.7, X-12), and what a move of a canister does to the states."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tests.spec.ic.errors import InvariantViolation
from tests.spec.ic.ids import CanisterId, SubnetId, subnet_bytes
from tests.spec.ic.messages import CanisterMessage, Ingress, Reason, Verdict
from tests.spec.ic.queues import Queue, QueueIndex, StreamIndex

SubstreamId = tuple[()] | CanisterId
QueueName = tuple[CanisterId, CanisterId]
"""(sender, receiver)."""
InHand = tuple[CanisterId, int, int, int]
"""(sender, callback, cycles, deadline): what an answer needs to know of its request."""
CallId = tuple[CanisterId, int]
"""(originator, callback): names one call for ever (1.1)."""


@dataclass(frozen=True)
class Registry:
    """One version. `migration_traces` has an entry for a canister that ever moved: its hosts from first to present.
    `hosted_since` has the first round of the present host of a canister that ever lived elsewhere, or nowhere."""

    subnets: frozenset[SubnetId]
    subnet_assignment: Mapping[CanisterId, SubnetId]
    migration_traces: Mapping[CanisterId, tuple[SubnetId, ...]] = field(default_factory=dict)
    hosted_since: Mapping[CanisterId, int] = field(default_factory=dict)
    version: int = 1
    system: frozenset[SubnetId] = frozenset()
    """System subnets, the NNS among them."""
    nns: SubnetId | None = None

    def host(self, canister: CanisterId) -> SubnetId | None:
        """The subnet that this version maps the canister to, or nothing."""
        return self.subnet_assignment.get(canister)

    def trace(self, canister: CanisterId) -> tuple[SubnetId, ...]:
        """The canister's hosts from first to present. One that never moved has its host alone."""
        host = self.host(canister)
        return self.migration_traces.get(canister, () if host is None else (host,))

    def moved(self, canister: CanisterId) -> int:
        """The first round of the present host, 0 for a canister that never moved."""
        return self.hosted_since.get(canister, 0)

    def with_moved(self, canister: CanisterId, subnet: SubnetId, since: int) -> "Registry":
        """The next version, in which the canister lives on `subnet`; in force from round `since` on."""
        return replace(
            self,
            subnet_assignment={**self.subnet_assignment, canister: subnet},
            migration_traces={**self.migration_traces, canister: (*self.trace(canister), subnet)},
            hosted_since={**self.hosted_since, canister: since},
            version=self.version + 1,
        )

    def without(self, canister: CanisterId) -> "Registry":
        """The next version, in which no subnet hosts the canister. Where it has been is not forgotten."""
        assignment = {name: host for name, host in self.subnet_assignment.items() if name != canister}
        traces = {**self.migration_traces, canister: self.trace(canister)}
        return replace(self, subnet_assignment=assignment, migration_traces=traces, version=self.version + 1)


@dataclass(frozen=True)
class Stream:
    """Signals are verdicts on what we received from the remote subnet; msgs go to it, `heights` has the round that put
    each there."""

    signals: Mapping[StreamIndex, Verdict] = field(default_factory=dict)
    msgs: Mapping[SubstreamId, Queue[CanisterMessage]] = field(default_factory=dict)
    heights: Mapping[StreamIndex, int] = field(default_factory=dict)


@dataclass(frozen=True)
class CanonicalState:
    """State of one subnet at one height. Everything below the blank line is execution's business.

    A queue is there from its first push on and stays when it is empty. A stream is there from the first message routed
    into it or the first verdict on a message from its subnet on. An installed canister has an entry in `programs`.
    `open_calls`: (respondent, deadline) of every call that its originator made and that no response was enqueued for.
    `in_hand`: the requests that a canister has executed and not answered, with the cycles that are still attached, and
    how often (a forged one may come twice). `accepted`: what a canister accepted of requests in hand, by the request as
    it came, where that is not 0; of several with one name it is that of the one answered next.
    `turns`, `next_source`: where the round robin over inputs stands (X-4), with `messages_per_canister` only: the turn
    of every input queue that is not empty, among those of its receiver, and the source that comes next.
    `stopped`: the height at which a hard invariant was violated and its name; the subnet runs no round from then on.
    `number`: the subnet's own height, which a subnet that runs no round keeps; `height` is the network's. `agreed`: the
    payloads of the blocks that are agreed and not yet executed, the oldest first; they are consensus' business and in
    no tree. `certified_data`: what canisters have set.
    `stray_queues` are input queues of canisters that were hosted elsewhere when the message came, which only
    `receiver_check = off` fills (D-5): nobody executes them, and they move with nobody.
    """

    own: SubnetId
    height: int = 0
    number: int = 0
    time_ns: int = 0
    agreed: tuple[Any, ...] = ()
    ingress_queues: Mapping[CanisterId, Queue[Ingress]] = field(default_factory=dict)
    input_queues: Mapping[QueueName, Queue[CanisterMessage]] = field(default_factory=dict)
    output_queues: Mapping[QueueName, Queue[CanisterMessage]] = field(default_factory=dict)
    streams: Mapping[SubnetId, Stream] = field(default_factory=dict)
    expected_xnet_indices: frozenset[tuple[SubnetId, StreamIndex]] = frozenset()
    stray_queues: Mapping[QueueName, Queue[CanisterMessage]] = field(default_factory=dict)
    stopped: tuple[int, str] | None = None

    balances: Mapping[CanisterId, int] = field(default_factory=dict)
    next_callbacks: Mapping[CanisterId, int] = field(default_factory=dict)
    programs: Mapping[CanisterId, Any] = field(default_factory=dict)
    open_calls: Mapping[CallId, tuple[CanisterId, int]] = field(default_factory=dict)
    in_hand: Mapping[CanisterId, Mapping[InHand, int]] = field(default_factory=dict)
    accepted: Mapping[CanisterId, Mapping[InHand, int]] = field(default_factory=dict)
    sent_times: Mapping[QueueIndex, int] = field(default_factory=dict)
    turns: Mapping[QueueName, int] = field(default_factory=dict)
    next_source: Mapping[CanisterId, int] = field(default_factory=dict)
    certified_data: Mapping[CanisterId, bytes] = field(default_factory=dict)

    def stream(self, remote: SubnetId) -> Stream:
        """The stream to `remote`; an empty one where there is none yet."""
        return self.streams.get(remote, Stream())

    def with_stream(self, remote: SubnetId, stream: Stream) -> "CanonicalState":
        return replace(self, streams={**self.streams, remote: stream})


def genesis(own: SubnetId, programs: Mapping[CanisterId, Any], balances: Mapping[CanisterId, int]) -> CanonicalState:
    """The state at height 0: canisters installed, each with a balance and a next callback id, nothing sent."""
    return CanonicalState(
        own=own,
        programs=dict(programs),
        balances={canister: balances.get(canister, 0) for canister in programs},
        next_callbacks=dict.fromkeys(programs, 0),
    )


def ascending_subnets(subnets: Iterable[SubnetId]) -> list[SubnetId]:
    """By id bytes, as all iteration over subnets."""
    return sorted(subnets, key=subnet_bytes)


def expected_index(
    expected: Iterable[tuple[SubnetId, StreamIndex]], remote: SubnetId, substream: SubstreamId, index_base: int
) -> int:
    """The postfix of the element with prefix (remote, substream); ONE only if there is none (D-11)."""
    for subnet, (name, index) in expected:
        if (subnet, name) == (remote, substream):
            return index
    return index_base


def stream_begin(stream: Stream, substream: SubstreamId, index_base: int) -> int:
    """begin(stream): the smallest index still in msgs, or next_index if that is empty (2.6)."""
    queue = stream.msgs.get(substream)
    if queue is None:
        return index_base
    return min(queue.elements, default=queue.next_index)


def stream_end(stream: Stream, substream: SubstreamId, index_base: int) -> int:
    """end(stream): next_index (2.6)."""
    queue = stream.msgs.get(substream)
    return index_base if queue is None else queue.next_index


def rejects_of(stream: Stream, substream: SubstreamId) -> tuple[tuple[int, Reason], ...]:
    """explicit -> compact: the REJECT keys, ascending (2.6)."""
    return tuple(
        (i, verdict.reason)
        for (name, i), verdict in sorted(stream.signals.items())
        if name == substream and verdict.reason is not None
    )


BELONGS: dict[str, Callable[[CanisterId, Any], bool]] = {
    "ingress_queues": lambda canister, name: bool(name == canister),
    "input_queues": lambda canister, name: bool(name[1] == canister),
    "output_queues": lambda canister, name: bool(name[0] == canister),
    "balances": lambda canister, name: bool(name == canister),
    "next_callbacks": lambda canister, name: bool(name == canister),
    "programs": lambda canister, name: bool(name == canister),
    "open_calls": lambda canister, name: bool(name[0] == canister),
    "in_hand": lambda canister, name: bool(name == canister),
    "accepted": lambda canister, name: bool(name == canister),
    "sent_times": lambda canister, name: bool(name[0] == canister),
    "turns": lambda canister, name: bool(name[1] == canister),
    "next_source": lambda canister, name: bool(name == canister),
    "certified_data": lambda canister, name: bool(name == canister),
}
"""Whose an entry of a state is."""


def move_canisters(
    states: Mapping[SubnetId, CanonicalState], old: Registry, new: Registry
) -> dict[SubnetId, CanonicalState]:
    """Apply the moves between two registry versions: all that belongs to a canister goes from its old host to its new
    one, queues keep their indices, streams stay ("Moving a canister"). One that was mapped nowhere is where it was
    last, if that subnet has stopped; else it has ended there, and there is nothing of it."""
    moved = dict(states)
    for canister in sorted(new.subnet_assignment):
        source, target = next(iter(old.trace(canister)[-1:]), None), new.host(canister)
        if source is not None and target is not None and source != target:
            moved[source], moved[target] = _move(canister, moved[source], moved[target])
    return moved


def install(state: CanonicalState, canister: CanisterId, program: Any, balance: int) -> CanonicalState:
    """A canister that a registry version maps for the first time starts as one of genesis does."""
    return replace(
        state,
        programs={**state.programs, canister: program},
        balances={**state.balances, canister: balance},
        next_callbacks={**state.next_callbacks, canister: 0},
    )


def remove(state: CanonicalState, canister: CanisterId) -> tuple[CanonicalState, CanonicalState]:
    """The state without a canister, and a state of what was the canister's alone."""
    return _move(canister, state, CanonicalState(own=state.own))


def _move(
    canister: CanisterId, source: CanonicalState, target: CanonicalState
) -> tuple[CanonicalState, CanonicalState]:
    """One canister from `source` to `target`."""
    left: dict[str, Any] = {}
    arrived: dict[str, Any] = {}
    for column, belongs in BELONGS.items():
        is_theirs = partial(belongs, canister)
        at_source, at_target = getattr(source, column), getattr(target, column)
        if any(is_theirs(name) for name in at_target):
            raise InvariantViolation(f"subnet {target.own} already has {column} of canister {canister}")
        left[column] = {name: value for name, value in at_source.items() if not is_theirs(name)}
        arrived[column] = {**at_target, **{name: value for name, value in at_source.items() if is_theirs(name)}}
    return replace(source, **left), replace(target, **arrived)
