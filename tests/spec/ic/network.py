"""Coordination of one subnet (3.1), and rounds of a whole network, which stand for consensus and XNet transfer."""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from .errors import (
    IndexOverflow,
    InvariantViolation,
    NotInQueue,
    SliceError,
    SpecError,
    StateNotCommittedYet,
    StateRemoved,
)
from .events import Event, canister_event
from .execution import Behaviour, execute
from .ids import CanisterId, SubnetId
from .induction import DecodedBatch, append_to_stream, pre_process, refused_ingress
from .messages import CanisterMessage, Ingress, RejectCode
from .options import Options
from .removal import end_canisters
from .routing import post_process
from .slices import StreamSlice, check_slice, decode_valid_certified_stream, is_empty, slice_for
from .state import CanonicalState, Registry, ascending_subnets, install, move_canisters


def one_round(
    state: CanonicalState,
    registry: Registry,
    batch: DecodedBatch,
    behaviour: Behaviour,
    options: Options,
    seed: int = 0,
    forged: Sequence[CanisterMessage] = (),
) -> tuple[CanonicalState, list[Event]]:
    """Step 4 of process_batch: the three phases, with one view of the registry (D-17).

    `forged`: what a byzantine subnet appends to its streams when routing begins."""
    inducted, induction_events = pre_process(state, registry, batch, options)
    executed, execution_events = execute(inducted, registry, behaviour, options)
    executed, forgery = forge(executed, registry, forged, options)
    routed, routing_events = post_process(executed, registry, options, seed)
    return routed, [*induction_events, *execution_events, *forgery, *routing_events]


# ---- 3.1


@dataclass(frozen=True)
class Batch:
    """2.7, with the batch time."""

    batch_number: int
    registry_version: int
    ingress_payload: Mapping[int, Ingress] = field(default_factory=dict)
    xnet_payload: Mapping[SubnetId, StreamSlice] = field(default_factory=dict)
    requires_full_state_hash: bool = False
    time_ns: int = 0


@dataclass(frozen=True)
class Ignored:
    """The state of that height exists already."""

    expected: int
    actual: int


@dataclass(frozen=True)
class StateManager:
    """The committed states of one subnet by height."""

    states: Mapping[int, CanonicalState]

    def take_tip_at(self, height: int) -> CanonicalState:
        tip = max(self.states)
        if height < tip:
            raise StateRemoved(f"height {height}, tip {tip}")
        if height > tip:
            raise StateNotCommittedYet(f"height {height}, tip {tip}")
        return self.states[tip]

    def commit_and_certify(self, state: CanonicalState, height: int) -> "StateManager":
        return StateManager({**self.states, height: state})


def decode(own: SubnetId, b: Batch) -> DecodedBatch:
    """3.2. The payload was validated before agreement, so a failure is an invariant violation."""
    try:
        payload = {src: decode_valid_certified_stream(own, css) for src, css in b.xnet_payload.items()}
    except SliceError as error:
        raise InvariantViolation(f"agreed payload does not decode: {error.name}") from error
    return DecodedBatch(ingress_payload=b.ingress_payload, xnet_payload=payload, time_ns=b.time_ns)


def process_batch(
    manager: StateManager,
    b: Batch,
    registry_versions: Mapping[int, Registry],
    behaviour: Behaviour,
    options: Options,
    seed: int = 0,
) -> tuple[StateManager, list[Event]] | Ignored:
    """3.1."""
    try:
        s = manager.take_tip_at(b.batch_number - 1)
    except StateRemoved:
        return Ignored(expected=max(manager.states) + 1, actual=b.batch_number)
    except StateNotCommittedYet as error:
        raise InvariantViolation(f"batch {b.batch_number} before its state") from error
    registry = registry_versions[b.registry_version]
    s3, events = one_round(s, registry, decode(s.own, b), behaviour, options, seed)
    return manager.commit_and_certify(s3, b.batch_number), events


# ---- the whole network


def never_withheld(source: SubnetId, destination: SubnetId) -> bool:
    """Every slice is offered."""
    return False


def honestly(destination: SubnetId, the_slice: StreamSlice, news: bool) -> StreamSlice | None:
    """A slice is offered as it was made; a header-only slice without news is not offered at all."""
    return the_slice if news else None


def untouched(destination: SubnetId, the_slice: StreamSlice) -> StreamSlice:
    """Every slice arrives as it was made."""
    return the_slice


def network_round(
    states: Mapping[SubnetId, CanonicalState],
    registry: Registry,
    ingress: Mapping[SubnetId, Sequence[Ingress]],
    behaviour: Behaviour,
    options: Options,
    *,
    time_ns: int = 0,
    seed: int = 0,
    previous_registry: Registry | None = None,
    withheld: Callable[[SubnetId, SubnetId], bool] = never_withheld,
    tamper: Callable[[SubnetId, StreamSlice], StreamSlice] = untouched,
    carry: Callable[[SubnetId, StreamSlice, bool], StreamSlice | None] = honestly,
    forged: Mapping[SubnetId, Sequence[CanisterMessage]] | None = None,
    installed: Mapping[CanisterId, tuple[Any, int]] | None = None,
    halted: Set[SubnetId] = frozenset(),
) -> tuple[dict[SubnetId, CanonicalState], list[Event]]:
    """One round of every subnet. Each takes slices of all others at height h-1 and of nobody at height h.

    `previous_registry`: canisters that it hosts elsewhere move before the round, those it alone hosts end.
    `withheld(source, destination)`: that slice is not offered this round. `tamper(destination, slice)`: what the
    destination is shown instead of the slice. `carry(destination, slice, news)`: what becomes of every slice that could
    be offered, with or without news. `forged`: what byzantine subnets append to their streams. `installed`:
    program and balance of canisters that this version maps for the first time. `halted`: subnets that run no round;
    their height moves on with the network's.
    """
    previous = previous_registry or registry
    before = dict(move_canisters(states, previous, registry))
    for canister, (program, balance) in (installed or {}).items():
        host = registry.subnet_assignment[canister]
        before[host] = install(before[host], canister, program, balance)
    after: dict[SubnetId, CanonicalState] = {}
    ends: dict[CanisterId, list[Event]] = {}
    log: list[Event] = []
    for own in ascending_subnets(before):
        inputs, made_up = ingress.get(own, ()), (forged or {}).get(own, ())
        try:
            ended, ends_here = end_canisters(before[own], previous, registry, options)
        except IndexOverflow as error:
            after[own], events = stop(before[own], error, inputs, made_up)
            log += events
            continue
        if own in halted or before[own].stopped is not None:
            after[own], events = no_round(ended, inputs, made_up)
            log += events
            ends |= ends_here
            continue
        offered = offered_slices(states, own, registry, options, withheld, carry)
        payload, refused = agree(ended, registry, {sn: tamper(own, s) for sn, s in offered.items()}, options)
        batch = DecodedBatch(ingress_payload=dict(enumerate(inputs, start=1)), xnet_payload=payload, time_ns=time_ns)
        try:
            after[own], events = one_round(ended, registry, batch, behaviour, options, seed, made_up)
            log += refused
            ends |= ends_here
        except (IndexOverflow, InvariantViolation, NotInQueue) as error:
            after[own], events = stop(before[own], error, inputs, made_up)
        log += events
    return after, [*(event for canister in sorted(ends) for event in ends[canister]), *log]


def no_round(
    state: CanonicalState, ingress: Sequence[Ingress], forged: Sequence[CanisterMessage]
) -> tuple[CanonicalState, list[Event]]:
    """What a halted subnet does: its height moves on with the network's, users are refused."""
    state = replace(state, height=state.height + 1)
    code, cause = int(RejectCode.SysTransient), "halted"
    refused = [refused_ingress(state, m, place, code, cause) for place, m in enumerate(ingress, start=1)]
    dropped = [canister_event("dropped", state.own, state.height, forgery, cause=cause) for forgery in forged]
    return state, [*refused, *dropped]


def stop(
    state: CanonicalState, error: SpecError, ingress: Sequence[Ingress], forged: Sequence[CanisterMessage]
) -> tuple[CanonicalState, list[Event]]:
    """A round that violates a hard invariant is not made, nor is any after it (X-17); other subnets go on."""
    after, events = no_round(state, ingress, forged)
    stopped = Event("stopped", after.own, after.height, "control", cause=error.name)
    return replace(after, stopped=(after.height, error.name)), [stopped, *events]


def offered_slices(
    states: Mapping[SubnetId, CanonicalState],
    own: SubnetId,
    registry: Registry,
    options: Options,
    withheld: Callable[[SubnetId, SubnetId], bool] = never_withheld,
    carry: Callable[[SubnetId, StreamSlice, bool], StreamSlice | None] = honestly,
) -> dict[SubnetId, StreamSlice]:
    """One slice a remote subnet of the registry that has a stream to us and is not withheld."""
    offered: dict[SubnetId, StreamSlice] = {}
    for sn in ascending_subnets(set(states) & registry.subnets - {own}):
        if withheld(sn, own):
            continue
        the_slice = slice_for(states[sn], own, states[own].expected_xnet_indices, options)
        if the_slice is not None:
            carried = carry(own, the_slice, not is_empty(states[own], the_slice, options))
            if carried is not None:
                offered[sn] = carried
    return offered


def agree(
    state: CanonicalState, registry: Registry, offered: Mapping[SubnetId, StreamSlice], options: Options
) -> tuple[dict[SubnetId, StreamSlice], list[Event]]:
    """The slices that pass check_slice, and one event for each that does not."""
    payload: dict[SubnetId, StreamSlice] = {}
    refused: list[Event] = []
    for sn in ascending_subnets(offered):
        try:
            payload[sn] = check_slice(state, registry, sn, offered[sn], options)
        except SliceError as error:
            height = state.height + 1
            refused.append(Event("rejected", state.own, height, "control", remote=sn, error=error.name))
    return payload, refused


def forge(
    state: CanonicalState, registry: Registry, messages: Sequence[CanisterMessage], options: Options
) -> tuple[CanonicalState, list[Event]]:
    """Append messages to streams that no execution has produced. One for a canister in no subnet is dropped."""
    log: list[Event] = []
    for message in messages:
        host = registry.host(message.dst)
        if host is None:
            log.append(canister_event("dropped", state.own, state.height, message, cause="forged_for_nobody"))
            continue
        log.append(canister_event("sent", state.own, state.height, message, via="forged"))
        state, place = append_to_stream(state, host, message, options)
        log.append(canister_event("committed", state.own, state.height, message, remote=host, at=place, via="forged"))
    return state, log
