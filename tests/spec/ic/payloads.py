"""Payloads: built (3.8), validated by every notary (3.9), and what a malicious block maker proposes instead."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar, cast

from tests.spec.ic.certified import CertifiedStreamSlice, altered, exchanged, read_payload, take_prefix
from tests.spec.ic.encoding import version_number
from tests.spec.ic.errors import ContradictoryIndices, PayloadTooLarge, SliceError
from tests.spec.ic.ids import SubnetId
from tests.spec.ic.options import Options
from tests.spec.ic.queues import postfix
from tests.spec.ic.sizes import count_bytes
from tests.spec.ic.slices import (
    AnySlice,
    Expected,
    SliceName,
    StreamSlice,
    XNetPayload,
    ascending_names,
    check_slice,
    decode_valid_certified_stream,
    decoded_payload,
    expected_indexes,
    is_empty,
    subnet_of,
)
from tests.spec.ic.state import CanonicalState, Registry, ascending_subnets

LEAST_BYTES = 1024
"""With less room than this no messages are added to a payload (X-5), unless it is empty."""

S = TypeVar("S", bound=AnySlice)
SizeOf = Callable[[AnySlice], int]


def size_at(options: Options) -> SizeOf:
    """count_bytes of slices in the encoding that the options say."""
    return partial(count_bytes, version=version_number(options.certification_version))


def payload_bytes(payload: XNetPayload, size_of: SizeOf) -> int:
    return sum(map(size_of, payload.values()))


def longest_prefix(css: S, room: int, size_of: SizeOf) -> S | None:
    """The slice with as many of its messages, the first substreams' first, as `room` takes; nothing if not even the
    header fits."""
    for count in range(len(indices_of(css)), -1, -1):
        cut = prefix_of(css, count)
        if size_of(cut) <= room:
            return cut
    return None


def prefix_of(css: S, count: int) -> S:
    """The slice with the first `count` of its messages."""
    if isinstance(css, StreamSlice):
        return cast(S, replace(css, messages=dict(sorted(css.messages.items())[:count])))
    return cast(S, take_prefix(css, count))


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
    get: Callable[[SliceName], Callable[[SubnetId, Expected], S | None]],
    options: Options,
    size_of: SizeOf | None = None,
    order: Sequence[SliceName] | None = None,
) -> dict[SliceName, S]:
    """3.8. `state` is the one at the reference height. `order`: what is asked for, and what first; every order is
    allowed. Without it each subnet is asked once, for all its substreams. `size_limit`: None for no limit."""
    version, size_of = version_number(options.certification_version), size_of or size_at(options)
    past = [decoded_payload(own, payload, version) for payload in past_payloads]
    expected = expected_indexes(own, state, past)
    whole: dict[SliceName, S] = {}
    for name in ascending_subnets(registry.subnets - {own}) if order is None else order:
        css = get(name)(own, expected)
        if css is None:
            continue
        try:
            the_slice = check_slice(state, registry, subnet_of(name), css, options, past)
        except SliceError:
            continue
        if not is_empty(state, the_slice, options, past):
            whole[name] = css
    if size_limit is None:
        return {name: whole[name] for name in ascending_names(whole)}
    payload: dict[SliceName, S] = {}
    for name, css in whole.items():  # first the headers with new signals
        bare = prefix_of(css, 0)
        news = not is_empty(state, decode_valid_certified_stream(own, subnet_of(name), bare, version), options, past)
        if news and size_of(bare) <= size_limit - payload_bytes(payload, size_of):
            payload[name] = bare
    for name, css in whole.items():  # then each with as many messages as fit
        left = size_limit - payload_bytes(payload, size_of)
        if left < min(LEAST_BYTES, size_limit):
            continue
        cut = longest_prefix(css, left + (size_of(payload[name]) if name in payload else 0), size_of)
        if cut is not None and indices_of(cut):
            payload[name] = cut
    return {name: payload[name] for name in ascending_names(payload)}


def check_payload(
    registry: Registry,
    state: CanonicalState,
    past_payloads: Sequence[XNetPayload],
    payload: XNetPayload,
    size_limit: int | None,
    options: Options,
    size_of: SizeOf | None = None,
) -> None:
    """3.9: nothing, or the first error."""
    if size_limit is not None and (size := payload_bytes(payload, size_of or size_at(options))) > size_limit:
        raise PayloadTooLarge(f"{size} > {size_limit}")
    for name in ascending_names(payload):
        check_slice(state, registry, subnet_of(name), payload[name], options, past_payloads)


def validate_xnet_payload(
    registry: Registry,
    state: CanonicalState,
    past_payloads: Sequence[XNetPayload],
    payload: XNetPayload,
    size_limit: int | None,
    options: Options,
    size_of: SizeOf | None = None,
) -> bool:
    """3.9: any error makes the result false."""
    try:
        check_payload(registry, state, past_payloads, payload, size_limit, options, size_of)
    except (SliceError, ContradictoryIndices):
        return False
    return True


def first_message_is_expected(expected: Expected, payload: Mapping[SliceName, StreamSlice]) -> bool:
    """G13, alignment: every slice starts at the index that is expected of its subnet; an unseen one is free to."""
    seen = {(subnet, substream): i for subnet, (substream, i) in expected}
    for name, css in payload.items():
        for substream in css.substreams:
            indices, sn = css.messages_of(substream), subnet_of(name)
            if indices and postfix((substream, min(indices))) != seen.get((sn, substream), min(indices)):
                return False
    return True


# ---- block makers


@dataclass(frozen=True)
class Proposal:
    """One row of the payload log: what a block maker proposed for the batch of round `height` of `chain`, on the state
    of `reference_height` and `past` payloads above it, and what the notaries said of it (None: agreed). `honest`: it
    is what get_xnet_payload gave. `slices`: of each slice what the control event `received` says when the batch is
    executed."""

    chain: SubnetId
    height: int
    reference_height: int
    past: int
    honest: bool
    size: int
    size_limit: int | None
    slices: Mapping[SliceName, Any]
    error: str | None = None


MAKERS = ("gap", "replay", "reorder", "foreign", "oversized", "stale", "altered")


def propose(
    does: str,
    honest: Mapping[SliceName, AnySlice],
    serve: Callable[[SliceName, int | None, bool], CertifiedStreamSlice | None],
    other: SubnetId,
) -> dict[SliceName, AnySlice]:
    """What a malicious block maker makes of the honest payload. `serve(name, begin, older)`: all that is certified from
    index `begin` on (None: from the first that is still there), now or at an older height; certificates it cannot make.

    Gap: slices from one index too high on. Replay: from the streams' first messages on. Reorder: the first two messages
    of a slice exchanged. Foreign: slices for another subnet. Oversized: all that there is, whatever the limits. Stale:
    slices of an older height from their first messages on. Altered: a bit of the first message."""
    made: dict[SliceName, AnySlice] = dict(honest)
    for name, css in honest.items():
        first = min(indices_of(css), default=None)
        whole = None if first is None else serve(name, first, False)
        if does == "gap" and first is not None:
            false = serve(name, first + 1, False)
        elif does == "replay":
            false = serve(name, None, False)
        elif does == "stale":
            false = serve(name, None, True)
        elif whole is None:
            continue
        else:
            cut = take_prefix(whole, len(indices_of(css)))
            false = {
                "reorder": lambda cut=cut: exchanged(cut),
                "foreign": lambda cut=cut: altered(cut, "destination", other),
                "oversized": lambda whole=whole: whole,
                "altered": lambda cut=cut: altered(cut, "payload", other),
            }[does]()
        made |= {} if false is None else {name: false}
    return made
