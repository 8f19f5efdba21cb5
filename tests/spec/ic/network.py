"""Rounds of a whole network, which stand for consensus and XNet transfer."""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from tests.spec.ic.certified import CertifiedStreamSlice, encode_certified_stream_slice
from tests.spec.ic.coordination import certified_state, one_round
from tests.spec.ic.encoding import version_number
from tests.spec.ic.errors import (
    ContradictoryIndices,
    IndexOverflow,
    InvalidSliceBegin,
    InvariantViolation,
    NoStreamForSubnet,
    NotInQueue,
    SliceError,
    SpecError,
)
from tests.spec.ic.events import Event, canister_event
from tests.spec.ic.execution import Behaviour
from tests.spec.ic.ids import CanisterId, SubnetId
from tests.spec.ic.induction import DecodedBatch, refused_ingress
from tests.spec.ic.messages import CanisterMessage, Ingress, RejectCode
from tests.spec.ic.options import Options
from tests.spec.ic.payloads import Proposal, check_payload, get_xnet_payload, payload_bytes, propose, size_at
from tests.spec.ic.removal import end_canisters
from tests.spec.ic.slices import (
    AnySlice,
    SliceName,
    StreamSlice,
    ascending_names,
    check_slice,
    decoded_payload,
    expected_indexes,
    first_of_each,
    included,
    is_empty,
    message_limit,
    parts_of,
    slice_for,
    subnet_of,
    substream_of,
)
from tests.spec.ic.state import CanonicalState, Registry, ascending_subnets, install, move_canisters


def never_withheld(source: SubnetId, destination: SubnetId) -> bool:
    """Every slice is offered."""
    return False


def honestly(destination: SubnetId, the_slice: StreamSlice, news: bool) -> StreamSlice | None:
    """A slice is offered as it was made; a header-only slice without news is not offered at all."""
    return the_slice if news else None


def untouched(destination: SubnetId, the_slice: AnySlice) -> AnySlice:
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
    tamper: Callable[[SubnetId, AnySlice], AnySlice] = untouched,
    carry: Callable[[SubnetId, StreamSlice, bool], AnySlice | None] = honestly,
    forged: Mapping[SubnetId, Sequence[CanisterMessage]] | None = None,
    installed: Mapping[CanisterId, tuple[Any, int]] | None = None,
    halted: Set[SubnetId] = frozenset(),
    splitting: Set[SubnetId] = frozenset(),
    served: Sequence[Mapping[SubnetId, CanonicalState]] | None = None,
    makers: Mapping[SubnetId, Sequence[str]] | None = None,
    order: Callable[[SubnetId, int], Sequence[SubnetId]] | None = None,
    proposals: list[Proposal] | None = None,
) -> tuple[dict[SubnetId, CanonicalState], list[Event]]:
    """One round of every subnet. Each takes slices of all others at height h-1 and of nobody at height h.

    `previous_registry`: canisters that it hosts elsewhere move before the round, those it alone hosts end.
    `withheld(source, destination)`: that slice is not offered this round. `tamper(destination, slice)`: what the
    destination is shown instead of the slice. `carry(destination, slice, news)`: what becomes of every slice that could
    be offered, with or without news. `forged`: what byzantine subnets append to their streams. `installed`:
    program and balance of canisters that this version maps for the first time. `halted`: subnets that run no round;
    their height moves on with the network's. `splitting`: subnets whose batch is a splitting batch (X-14): canisters
    have moved as the registry says, streams stay, and nothing is inducted, executed or routed. `served`: the latest
    certified states, where those are not the ones before this round, and older ones. `makers`: the malicious block
    makers that propose before the honest one does (see `payloads.propose`). `order(subnet, height)`: whom a block maker
    asks first, when payloads have a limit. `proposals`: where the payload log goes.
    """
    previous = previous_registry or registry
    shown = [states] if served is None else served
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
        rests = own in halted or own in splitting
        if rests or own not in registry.subnets or before[own].stopped is not None:
            member, splits = own in registry.subnets, own in splitting
            after[own], events = no_round(ended, inputs, made_up, member=member, splits=splits)
            splits = splits and own not in halted and member and before[own].stopped is None
            if splits or (ended != states[own] and own in previous.subnets):
                # A splitting batch, or the registry took canisters from it, or brought it some: that makes one height.
                after[own] = replace(after[own], number=ended.number + 1, time_ns=max(ended.time_ns, time_ns))
            log += events
            ends |= ends_here
            continue
        offered = offered_slices(shown[0], ended, registry, options, withheld, carry, previous.subnets)
        arrived = {name: tamper(own, s) for name, s in offered.items()}
        made, refused = agree(ended, registry, arrived, options, order and order(own, ended.height + 1))
        wanted = makers is not None or proposals is not None or options.payload_bytes > 0
        rows: list[Proposal] = []
        if wanted:
            made, rows = confirm(ended, registry, made, options, shown, (makers or {}).get(own, ()))
        payload, waiting = next_payload(ended, made, options)
        batch = DecodedBatch(ingress_payload=dict(enumerate(inputs, start=1)), xnet_payload=payload, time_ns=time_ns)
        try:
            done = replace(ended, agreed=waiting)
            after[own], events = one_round(done, registry, batch, behaviour, options, seed, made_up)
            log += refused
            log += [refused_proposal(row) for row in rows if row.error is not None]
            if proposals is not None:
                proposals += rows
            ends |= ends_here
        except (IndexOverflow, InvariantViolation, NotInQueue) as error:
            after[own], events = stop(before[own], error, inputs, made_up)
        log += events
    return after, [*(event for canister in sorted(ends) for event in ends[canister]), *log]


def no_round(
    state: CanonicalState,
    ingress: Sequence[Ingress],
    forged: Sequence[CanisterMessage],
    *,
    member: bool = True,
    splits: bool = False,
) -> tuple[CanonicalState, list[Event]]:
    """What a halted subnet does, one that `splits`, and one that is no `member` of the registry: its height moves on
    with the network's, users are refused."""
    state = replace(state, height=state.height + 1)
    code, cause = int(RejectCode.SysTransient), "splitting" if splits else "halted"
    if not member:
        code, cause = int(RejectCode.DestinationInvalid), "absent"
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
    served: Mapping[SubnetId, CanonicalState],
    state: CanonicalState,
    registry: Registry,
    options: Options,
    withheld: Callable[[SubnetId, SubnetId], bool] = never_withheld,
    carry: Callable[[SubnetId, StreamSlice, bool], AnySlice | None] = honestly,
    members: Set[SubnetId] | None = None,
) -> dict[SliceName, AnySlice]:
    """The slices of streams to us that are not withheld: from what is expected behind the payloads that are agreed.
    `members`: the subnets of the version before, whose endpoints were asked; of others, only faulty carriers bring
    anything."""
    members = registry.subnets if members is None else members
    own, offered = state.own, dict[SliceName, AnySlice]()
    expected = expected_indexes(own, state, state.agreed)
    for sn in ascending_subnets(set(served) - {own}):
        if withheld(sn, own):
            continue
        the_slice = slice_for(served[sn], own, expected, options)
        for name, part in ({} if the_slice is None else parts_of(the_slice, options)).items():
            part = first_of_each(part, message_limit(state, registry, sn, options))
            news = not is_empty(state, part, options, state.agreed)
            carried = carry(own, part, news and sn in members)
            if carried is not None:
                offered[name] = carried
    return offered


def agree(
    state: CanonicalState,
    registry: Registry,
    offered: Mapping[SliceName, AnySlice],
    options: Options,
    order: Sequence[SubnetId] | None = None,
) -> tuple[dict[SliceName, StreamSlice], list[Event]]:
    """The honest payload: the slices that pass check_slice, cut by `payload_bytes`; and one event for each that does
    not pass."""
    passed: dict[SliceName, StreamSlice] = {}
    refused: list[Event] = []
    for name in ascending_names(offered):
        sn, height = subnet_of(name), state.height + 1
        try:
            passed[name] = check_slice(state, registry, sn, offered[name], options, state.agreed)
        except SliceError as error:
            at = substream_of(name)
            refused.append(Event("rejected", state.own, height, "control", remote=sn, substream=at, error=error.name))
    if options.payload_bytes == 0:
        return passed, refused
    asked = list(passed)
    if order is not None:
        asked = sorted(passed, key=lambda name: order.index(subnet_of(name)))
    limit, own = options.payload_bytes, state.own
    return get_xnet_payload(
        own, registry, state, state.agreed, limit, lambda name: lambda *_: passed.get(name), options, order=asked
    ), refused


def confirm(
    state: CanonicalState,
    registry: Registry,
    honest: Mapping[SliceName, StreamSlice],
    options: Options,
    served: Sequence[Mapping[SubnetId, CanonicalState]],
    makers: Sequence[str],
) -> tuple[dict[SliceName, StreamSlice], list[Proposal]]:
    """The payload that is agreed, and every proposal for it up to then, with what each notary says of it: the first one
    that has nothing false in it, whoever made it. That the honest one, the last, is refused is an invariant violation:
    then the rules are wrong. `served`: the latest certified states, and older ones."""
    limit, version = options.payload_bytes or None, version_number(options.certification_version)

    def serve(name: SliceName, begin: int | None, older: bool) -> CertifiedStreamSlice | None:
        certified = certified_state(served[-1 if older else 0][subnet_of(name)], None, {}, options)
        try:
            return encode_certified_stream_slice(certified, state.own, msg_begin=begin, substream=substream_of(name))
        except (NoStreamForSubnet, InvalidSliceBegin):
            return None

    rows: list[Proposal] = []
    other = next((sn for sn in ascending_subnets(registry.subnets) if sn != state.own), state.own)
    for does in [*makers, None]:
        payload = honest if does is None else propose(does, honest, serve, other)
        error: str | None = None
        try:
            check_payload(registry, state, state.agreed, payload, limit, options)
        except (SliceError, ContradictoryIndices) as found:
            error = found.name
        decoded = decoded_payload(state.own, payload, version) if error is None else {}
        size, past = payload_bytes(payload, size_at(options)), len(state.agreed)
        height = state.height + 1 + options.blocks_ahead
        slices = {name: included(the_slice) for name, the_slice in decoded.items()}
        rows.append(Proposal(state.own, height, state.height, past, does is None, size, limit, slices, error))
        if error is None:
            return decoded, rows
    raise InvariantViolation(f"the honest payload is refused: {rows[-1].error}")


def refused_proposal(row: Proposal) -> Event:
    """No notary takes it."""
    return Event("rejected", row.chain, row.reference_height + 1, "control", error=row.error)


def next_payload(
    state: CanonicalState, made: Mapping[SliceName, StreamSlice], options: Options
) -> tuple[Mapping[SliceName, StreamSlice], tuple[Mapping[SliceName, StreamSlice], ...]]:
    """The payload that is executed now, and those that wait: blocks are agreed `blocks_ahead` rounds before that. Only
    slices wait; ingress and batch time are of the round that executes them."""
    waiting = (*state.agreed, made)
    if len(waiting) <= options.blocks_ahead:
        return {}, waiting
    return waiting[0], waiting[1:]
