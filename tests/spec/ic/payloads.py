"""Payloads: built (3.8), validated by every notary (3.9), and what a malicious block maker proposes instead."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from .certified import read_payload, take_prefix
from .encoding import version_number
from .errors import ContradictoryIndices, PayloadTooLarge, SliceError
from .ids import SubnetId
from .options import Options
from .queues import postfix
from .sizes import count_bytes
from .slices import (
    AnySlice,
    Expected,
    StreamSlice,
    XNetPayload,
    check_slice,
    decode_valid_certified_stream,
    decoded_payload,
    expected_indexes,
    is_empty,
)
from .state import CanonicalState, Registry, ascending_subnets

S = TypeVar("S", bound=AnySlice)
SizeOf = Callable[[AnySlice], int]


def payload_bytes(payload: XNetPayload, size_of: SizeOf = count_bytes) -> int:
    return sum(map(size_of, payload.values()))


def longest_prefix(css: S, room: int, size_of: SizeOf) -> S | None:
    """The slice with as many of its messages, the first substreams' first, as `room` takes; nothing if not even the
    header fits."""
    for count in range(len(indices_of(css)), -1, -1):
        cut: AnySlice
        if isinstance(css, StreamSlice):
            cut = replace(css, messages=dict(sorted(css.messages.items())[:count]))
        else:
            cut = take_prefix(css, count)
        if size_of(cut) <= room:
            return cast(S, cut)
    return None


def indices_of(css: AnySlice) -> list[int]:
    """The indices of the messages of a slice."""
    if isinstance(css, StreamSlice):
        return [i for _, i in sorted(css.messages)]
    return sorted(read_payload(css.payload).blobs)


def get_xnet_payload(
    own: SubnetId,
    registry: Registry,
    state: CanonicalState,
    past_payloads: Sequence[XNetPayload],
    size_limit: int | None,
    get: Callable[[SubnetId], Callable[[SubnetId, Expected], S | None]],
    options: Options,
    size_of: SizeOf = count_bytes,
    order: Sequence[SubnetId] | None = None,
) -> dict[SubnetId, S]:
    """3.8. `state` is the one at the reference height. A subnet is asked once for all its substreams. `order`: who is
    asked first; every order is allowed. `size_limit`: None for no limit."""
    version = version_number(options.certification_version)
    past = [decoded_payload(own, payload, version) for payload in past_payloads]
    expected = expected_indexes(own, state, past)
    payload: dict[SubnetId, S] = {}
    for sn in ascending_subnets(registry.subnets - {own}) if order is None else order:
        css = get(sn)(own, expected)
        if css is None:
            continue
        try:
            the_slice = check_slice(state, registry, sn, css, options, past)
        except SliceError:
            continue
        cut: S | None = css
        if size_limit is not None:
            cut = longest_prefix(css, size_limit - payload_bytes(payload, size_of), size_of)
        if cut is None or is_empty(state, the_slice, options, past):
            continue
        if not is_empty(state, decode_valid_certified_stream(own, sn, cut, version), options, past):
            payload[sn] = cut
    return {sn: payload[sn] for sn in ascending_subnets(payload)}


def check_payload(
    registry: Registry,
    state: CanonicalState,
    past_payloads: Sequence[XNetPayload],
    payload: XNetPayload,
    size_limit: int | None,
    options: Options,
    size_of: SizeOf = count_bytes,
) -> None:
    """3.9: nothing, or the first error."""
    if size_limit is not None and (size := payload_bytes(payload, size_of)) > size_limit:
        raise PayloadTooLarge(f"{size} > {size_limit}")
    for sn in ascending_subnets(payload):
        check_slice(state, registry, sn, payload[sn], options, past_payloads)


def validate_xnet_payload(
    registry: Registry,
    state: CanonicalState,
    past_payloads: Sequence[XNetPayload],
    payload: XNetPayload,
    size_limit: int | None,
    options: Options,
    size_of: SizeOf = count_bytes,
) -> bool:
    """3.9: any error makes the result false."""
    try:
        check_payload(registry, state, past_payloads, payload, size_limit, options, size_of)
    except (SliceError, ContradictoryIndices):
        return False
    return True


def first_message_is_expected(expected: Expected, payload: Mapping[SubnetId, StreamSlice]) -> bool:
    """G13, alignment: every slice starts at the index that is expected of its subnet; an unseen one is free to."""
    seen = {(subnet, substream): i for subnet, (substream, i) in expected}
    for sn, css in payload.items():
        for substream in css.substreams:
            indices = css.messages_of(substream)
            if indices and postfix((substream, min(indices))) != seen.get((sn, substream), min(indices)):
                return False
    return True


# ---- block makers


@dataclass(frozen=True)
class Proposal:
    """One row of the payload log: what a block maker proposed for the batch of round `height` of `chain`, on the state
    of `reference_height` and `past` payloads above it, and what the notaries said of it (None: agreed). `honest`: it
    is what get_xnet_payload gave. `slices`: of each remote what the control event `received` says of its slice when the
    batch is executed."""

    chain: SubnetId
    height: int
    reference_height: int
    past: int
    honest: bool
    size: int
    size_limit: int | None
    slices: Mapping[SubnetId, Any]
    error: str | None = None


def propose(
    maker: str, honest: Mapping[SubnetId, S], shown: Callable[[SubnetId, int], S | None], base: int
) -> dict[SubnetId, S]:
    """What a malicious block maker makes of the honest payload. `shown(sn, begin)`: the certified slice of `sn` from
    index `begin` on, without end; certificates it cannot make.

    gap      every slice without its first message, if a second is there to be served
    replay   every slice from the first index of its stream that is still served
    reorder  the slices of two subnets under each other's names
    foreign  a slice under the name of a subnet that is in no registry
    oversize everything that is served, whatever the limit
    """
    if maker == "gap":
        firsts = {sn: min(indices_of(css), default=None) for sn, css in honest.items()}
        later = {sn: shown(sn, first + 1) for sn, first in firsts.items() if first is not None}
        return {**honest, **{sn: css for sn, css in later.items() if css is not None}}
    if maker == "replay":
        earlier = {sn: shown(sn, base) for sn in honest}
        return {**honest, **{sn: css for sn, css in earlier.items() if css is not None}}
    if maker == "reorder":
        names = ascending_subnets(honest)
        return {sn: honest[names[at - 1]] for at, sn in enumerate(names)}
    if maker == "foreign":
        return {**honest, **({2**63: next(iter(honest.values()))} if honest else {})}
    assert maker == "oversize", maker
    firsts = {sn: min(indices_of(css), default=None) for sn, css in honest.items()}
    whole = {sn: shown(sn, first) for sn, first in firsts.items() if first is not None}
    return {**honest, **{sn: css for sn, css in whole.items() if css is not None}}
