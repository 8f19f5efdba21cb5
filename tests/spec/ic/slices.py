# ruff: noqa: RUF002 -- formulas keep the letters of the text they restate
"""Stream slices: cut at the source (3.10), expected indices (3.7), payload building and validation (3.8, 3.9).

A slice is in one of two forms. A `StreamSlice` says what is in it, and its source, height and root as plain fields:
"signed by that subnet over that root". A `CertifiedStreamSlice` is what travels (see `certified`). Everything here
takes either; the first is what the second decodes to.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from tests.spec.ic import certified
from tests.spec.ic.certified import CertifiedStreamSlice
from tests.spec.ic.encoding import CURRENT, version_number
from tests.spec.ic.errors import (
    ContradictoryIndices,
    DecodeError,
    EmptySlice,
    InvalidSliceBounds,
    InvalidStream,
    InvalidStreamBounds,
    LoopbackSlice,
    SliceAboveMessageLimit,
    TooManySignals,
    UnexpectedMessages,
    UnexpectedSignals,
    UnknownSubnet,
)
from tests.spec.ic.ids import SubnetId, subnet_bytes
from tests.spec.ic.messages import ACCEPT, REJECT, CanisterMessage, Reason, Verdict
from tests.spec.ic.options import Options
from tests.spec.ic.queues import StreamIndex, concatenate, maximum, successor
from tests.spec.ic.state import (
    CanonicalState,
    Registry,
    SubstreamId,
    expected_index,
    rejects_of,
    stream_begin,
    stream_end,
)

Expected = frozenset[tuple[SubnetId, StreamIndex]]


@dataclass(frozen=True)
class StreamSlice:
    """`begin`, `end` and `signals_end` have one StreamIndex a substream and are those of the original stream (2.7).
    Signals are always in the compact form (2.6): below `signals_end` and not in `rejects` is ACCEPT. `heights`: the
    round of the source that put each message into the stream."""

    source: SubnetId
    destination: SubnetId
    height: int
    begin: frozenset[StreamIndex]
    end: frozenset[StreamIndex]
    signals_end: frozenset[StreamIndex]
    rejects: Mapping[SubstreamId, tuple[tuple[int, Reason], ...]] = field(default_factory=dict)
    messages: Mapping[StreamIndex, CanisterMessage] = field(default_factory=dict)
    heights: Mapping[StreamIndex, int] = field(default_factory=dict)
    root: bytes = b""

    @property
    def substreams(self) -> list[SubstreamId]:
        return sorted({substream for substream, _ in self.begin | self.end | self.signals_end})

    def messages_of(self, substream: SubstreamId) -> dict[int, CanisterMessage]:
        return {i: message for (name, i), message in sorted(self.messages.items()) if name == substream}


def at(indices: Iterable[StreamIndex], substream: SubstreamId) -> int:
    """The one index of `substream` in a set such as `slice.begin`."""
    (index,) = [i for name, i in indices if name == substream]
    return index


def included(the_slice: StreamSlice) -> tuple[tuple[Any, ...], ...]:
    """The `detail` of a slice that is part of the batch (see `events`)."""
    return tuple(
        (
            substream,
            at(the_slice.begin, substream),
            at(the_slice.end, substream),
            at(the_slice.signals_end, substream),
            min(the_slice.messages_of(substream), default=None),
            max((i + 1 for i in the_slice.messages_of(substream)), default=None),
        )
        for substream in the_slice.substreams
    )


def explicit_signals(the_slice: StreamSlice, substream: SubstreamId, own_begin: int) -> dict[StreamIndex, Verdict]:
    """compact -> explicit at the reader: i in [own begin, signals_end) is REJECT if listed, else ACCEPT (2.6)."""
    listed = dict(the_slice.rejects.get(substream, ()))
    return {
        (substream, i): REJECT(listed[i]) if i in listed else ACCEPT
        for i in range(own_begin, at(the_slice.signals_end, substream))
    }


def slice_for(
    source: CanonicalState, destination: SubnetId, expected: Expected, options: Options, root: bytes = b""
) -> StreamSlice | None:
    """What `source` offers `destination`: the header and the messages from the expected index on, cut by the limits.
    Nothing where there is no such stream. `limit.slice_messages` counts each substream apart, as check_slice does."""
    if destination not in source.streams:
        return None
    stream = source.streams[destination]
    base = options.index_base
    signalled = {substream for subnet, (substream, _) in source.expected_xnet_indices if subnet == destination}
    substreams = set(stream.msgs) | signalled
    messages: dict[StreamIndex, CanisterMessage] = {}
    for substream, queue in stream.msgs.items():
        first = expected_index(expected, source.own, substream, base)
        taken = [i for i in sorted(queue.elements) if i >= first]
        if options.limits == "deployed":
            past = stream_begin(stream, substream, base) + options.limit.max_signals
            taken = [i for i in taken if i < past]
            if options.limit.slice_messages > 0:
                taken = taken[: options.limit.slice_messages]
        messages |= {(substream, i): queue.elements[i] for i in taken}
    return StreamSlice(
        source=source.own,
        destination=destination,
        height=source.height,
        root=root,
        begin=frozenset((name, stream_begin(stream, name, base)) for name in substreams),
        end=frozenset((name, stream_end(stream, name, base)) for name in substreams),
        signals_end=frozenset(
            (name, expected_index(source.expected_xnet_indices, destination, name, base)) for name in substreams
        ),
        rejects={name: rejects for name in substreams if (rejects := rejects_of(stream, name))},
        messages=messages,
        heights={i: stream.heights[i] for i in messages},
    )


def message_limit(state: CanonicalState, registry: Registry, sn: SubnetId, options: Options) -> int | None:
    """`msg_limit(sn)` (X-5): how many messages of one substream `state.own` takes of `sn`; None for any number."""
    if options.limits != "deployed":
        return None
    most = options.limit.slice_messages or None
    if state.own == registry.nns or (state.own in registry.system and sn not in registry.system):
        held = sum(len(queue.elements) for queue in state.stream(sn).msgs.values())
        room = max(0, options.limit.system_slice_messages - held)
        most = room if most is None else min(most, room)
    return most


def first_of_each(the_slice: StreamSlice, most: int | None) -> StreamSlice:
    """The slice with no more than its first `most` messages of each substream."""
    kept = {
        (name, i): message
        for name in the_slice.substreams
        for i, message in list(the_slice.messages_of(name).items())[:most]
    }
    return replace(the_slice, messages=kept, heights={i: the_slice.heights[i] for i in kept})


AnySlice = StreamSlice | CertifiedStreamSlice
SliceName = Any
"""What a slice of a payload is of: all substreams from a subnet (SubnetId), or one of them (SubnetId, SubstreamId)."""

XNetPayload = Mapping[SliceName, AnySlice]


def subnet_of(name: SliceName) -> SubnetId:
    """The subnet that a slice is from."""
    subnet: SubnetId = name[0] if isinstance(name, tuple) else name
    return subnet


def substream_of(name: SliceName) -> SubstreamId:
    """The one substream that a slice is of."""
    substream: SubstreamId = name[1] if isinstance(name, tuple) else ()
    return substream


def ascending_names(names: Iterable[SliceName]) -> list[SliceName]:
    """By id bytes of the subnet, then by substream."""
    return sorted(names, key=lambda name: (subnet_bytes(subnet_of(name)), name if isinstance(name, tuple) else ()))


def only(the_slice: StreamSlice, substream: SubstreamId) -> StreamSlice | None:
    """One substream of a slice; nothing if it has no such one."""
    if substream not in the_slice.substreams:
        return None

    def here(indices: frozenset[StreamIndex]) -> frozenset[StreamIndex]:
        return frozenset((name, i) for name, i in indices if name == substream)

    return replace(
        the_slice,
        begin=here(the_slice.begin),
        end=here(the_slice.end),
        signals_end=here(the_slice.signals_end),
        rejects={name: rejects for name, rejects in the_slice.rejects.items() if name == substream},
        messages={(name, i): m for (name, i), m in the_slice.messages.items() if name == substream},
        heights={(name, i): h for (name, i), h in the_slice.heights.items() if name == substream},
    )


def parts_of(the_slice: StreamSlice, options: Options) -> dict[SliceName, StreamSlice]:
    """What is served of a stream: one slice a substream where each has a certificate of its own; otherwise one slice
    with all of them."""
    if options.certification == "off" or options.substreams == "flat":
        return {the_slice.source: the_slice}
    parts = {(the_slice.source, name): only(the_slice, name) for name in the_slice.substreams}
    return {name: part for name, part in parts.items() if part is not None}


def decode_certified_stream(own: SubnetId, remote: SubnetId, css: AnySlice, version: int = CURRENT) -> StreamSlice:
    """A slice that comes from `remote`, is meant for `own`, and has a whole header and no gap in its messages (2.7)."""
    if isinstance(css, StreamSlice):
        if css.source != remote:
            raise InvalidStream(f"InvalidSignature({remote})")
        return decode_valid_certified_stream(own, remote, css)
    try:
        return _plain(own, remote, css, certified.decode_certified_stream(own, remote, css, version))
    except DecodeError as error:
        raise InvalidStream(f"{error.name}: {error}") from error


def decode_valid_certified_stream(
    own: SubnetId, remote: SubnetId, css: AnySlice, version: int = CURRENT
) -> StreamSlice:
    """As above without the signature check. `remote`: under whose name it stands in the payload."""
    if isinstance(css, CertifiedStreamSlice):
        try:
            return _plain(own, remote, css, certified.decode_valid_certified_stream(own, css, version))
        except DecodeError as error:
            raise InvalidStream(f"{error.name}: {error}") from error
    if css.destination != own:
        raise InvalidStream(f"InvalidDestination(sender {css.source}, receiver {css.destination})")
    for indices in (css.begin, css.end, css.signals_end):
        if sorted(substream for substream, _ in indices) != css.substreams:
            raise InvalidStream("MissingHeader")
    if not {substream for substream, _ in css.messages} | set(css.rejects) <= set(css.substreams):
        raise InvalidStream("MissingHeader")
    for substream in css.substreams:
        indices_here = list(css.messages_of(substream))
        if indices_here and indices_here != list(range(indices_here[0], indices_here[-1] + 1)):
            raise InvalidStream("InvalidBounds: messages have a gap")
    return css


def _plain(own: SubnetId, remote: SubnetId, css: CertifiedStreamSlice, found: certified.Decoded) -> StreamSlice:
    """What the bytes say: one substream."""
    header, name = found.header, found.substream
    return StreamSlice(
        source=remote,
        destination=own,
        height=css.certification.height,
        root=css.certification.root,
        begin=frozenset({(name, header.begin)}),
        end=frozenset({(name, header.end)}),
        signals_end=frozenset({(name, header.signals_end)}),
        rejects={name: header.rejects} if header.rejects else {},
        messages={(name, i): message for i, message in found.messages.items()},
        heights={(name, i): css.heights.get(i, 0) for i in found.messages},
    )


def decoded_payload(own: SubnetId, payload: "XNetPayload", version: int = CURRENT) -> dict[SliceName, StreamSlice]:
    """3.2, of a payload that was validated."""
    return {name: decode_valid_certified_stream(own, subnet_of(name), css, version) for name, css in payload.items()}


Decoded = Mapping[SliceName, StreamSlice]
"""A payload whose slices are decoded."""


# ---- expected indices (3.7)

Slices = Mapping[SubnetId, Mapping[StreamIndex, CanisterMessage]]
"""The messages of several slices, united a source subnet (D-9)."""


def merge(slices: Iterable[tuple[SliceName, StreamSlice]]) -> Slices:
    """Union of the messages of all slices of one source (D-9)."""
    united: dict[SubnetId, dict[StreamIndex, CanisterMessage]] = {}
    for name, the_slice in slices:
        united.setdefault(subnet_of(name), {}).update(the_slice.messages)
    return united


def slice_indexes(slices: Slices) -> Expected:
    """{ i + 1 | i in max(all (subnet, index) of messages in slices) }."""
    indices = {concatenate(subnet, i) for subnet, messages in slices.items() for i in messages}
    following = {successor(i) for i in maximum(indices)}
    return frozenset((subnet, (substream, i)) for subnet, substream, i in following)


def state_and_payload_indexes(state: CanonicalState, slices: Slices) -> Expected:
    """(state.expected_xnet_indices minus the indices of messages in slices) ∪ slice_indexes(slices)."""
    in_slices = {(subnet, i) for subnet, messages in slices.items() for i in messages}
    result = (state.expected_xnet_indices - in_slices) | slice_indexes(slices)
    prefixes = [(subnet, substream) for subnet, (substream, _) in result]
    if len(prefixes) != len(set(prefixes)):
        raise ContradictoryIndices(f"{sorted(result)}")
    return result


def expected_indexes(
    own: SubnetId, state: CanonicalState, payloads: Sequence[XNetPayload], version: int = CURRENT
) -> Expected:
    """The state's own set, moved on by the payloads above the referenced state."""
    decoded = [item for payload in payloads for item in decoded_payload(own, payload, version).items()]
    return state_and_payload_indexes(state, merge(decoded))


def expected_signal(
    state: CanonicalState, remote: SubnetId, substream: SubstreamId, payloads: Sequence[Decoded], index_base: int
) -> int:
    """s0: signals_end of the newest past-payload slice from `remote`, else begin of our stream to it, else index_base.
    `payloads` are in order of height."""
    for payload in reversed(payloads):
        for name, the_slice in payload.items():
            if subnet_of(name) == remote and substream in the_slice.substreams:
                return at(the_slice.signals_end, substream)
    return stream_begin(state.stream(remote), substream, index_base)


# ---- validation (3.9)


def check_slice(
    state: CanonicalState,
    registry: Registry,
    sn: SubnetId,
    css: AnySlice,
    options: Options,
    past_payloads: Sequence[XNetPayload] = (),
) -> StreamSlice:
    """The decoded slice, or the SliceError of the first check that fails. Checks have their numbers from 3.9.

    With several substreams, each check is made of all of them before the next check; a slice is empty (6) when every
    one of them is.
    """
    own, base = state.own, options.index_base
    deployed, version = options.limits == "deployed", version_number(options.certification_version)
    past = [decoded_payload(own, payload, version) for payload in past_payloads]
    expected = expected_indexes(own, state, past)
    # 1, 2, 3
    if sn == own:
        raise LoopbackSlice
    if sn not in registry.subnets:
        raise UnknownSubnet(sn)
    the_slice = decode_certified_stream(own, sn, css, version)
    header = {
        name: (at(the_slice.begin, name), at(the_slice.end, name), expected_index(expected, sn, name, base))
        for name in the_slice.substreams
    }
    for begin, end, _ in header.values():
        if not begin <= end:  # 4
            raise InvalidStreamBounds(f"begin {begin}, end {end}")
    for begin, end, m0 in header.values():
        if not begin <= m0 <= end:  # 5
            raise UnexpectedMessages(f"expected {m0}, stream [{begin}, {end})")
    # 6
    if options.empty_slice == "reject" and is_empty(state, the_slice, options, past):
        raise EmptySlice
    with_messages = {name: list(the_slice.messages_of(name)) for name in header if the_slice.messages_of(name)}
    for name, run in with_messages.items():
        begin, end, _ = header[name]
        if not begin <= run[0] <= run[-1] < end:  # 7
            raise InvalidSliceBounds(f"messages [{run[0]}, {run[-1] + 1}), stream [{begin}, {end})")
    for name, run in with_messages.items():
        _, _, m0 = header[name]
        at_one = options.first_index_rule == "seed_literal" and run[0] == base
        if not (run[0] == m0 or at_one):  # 8
            raise UnexpectedMessages(f"expected {m0}, first message {run[0]}")
    most = message_limit(state, registry, sn, options)
    for run in with_messages.values():
        if most is not None and len(run) > most:  # 9
            raise SliceAboveMessageLimit(f"{len(run)} messages")
    for name, run in with_messages.items():
        if deployed and run[-1] + 1 > header[name][0] + options.limit.max_signals:  # 10
            raise TooManySignals(f"last message {run[-1]}, begin {header[name][0]}")
    # 11: what was decoded can be measured.
    if options.validate_signals == "on":  # 12
        for substream in the_slice.substreams:
            _check_signals(state, the_slice, substream, options, past)
    return the_slice


def is_empty(
    state: CanonicalState, the_slice: StreamSlice, options: Options, past_payloads: Sequence[Decoded] = ()
) -> bool:
    """No messages, and in every substream signals_end = s0: a header-only slice without news."""
    return not the_slice.messages and all(
        at(the_slice.signals_end, substream)
        == expected_signal(state, the_slice.source, substream, past_payloads, options.index_base)
        for substream in the_slice.substreams
    )


def _check_signals(
    state: CanonicalState,
    the_slice: StreamSlice,
    substream: SubstreamId,
    options: Options,
    past_payloads: Sequence[Decoded],
) -> None:
    """Step 12 of check_slice for one substream (D-12, D-16)."""
    s0 = expected_signal(state, the_slice.source, substream, past_payloads, options.index_base)
    signals_end = at(the_slice.signals_end, substream)
    our_end = stream_end(state.stream(the_slice.source), substream, options.index_base)
    if not s0 <= signals_end <= our_end:
        raise UnexpectedSignals(f"signals_end {signals_end} outside [{s0}, {our_end}]")
    rejects = [i for i, _ in the_slice.rejects.get(substream, ())]
    if any(i >= j for i, j in pairwise([*rejects, signals_end])):
        raise UnexpectedSignals("reject signals are not ascending below signals_end")
    if rejects and options.limits == "deployed" and signals_end - rejects[0] > 2 * options.limit.max_signals:
        raise UnexpectedSignals("first reject signal is too old")
    if rejects and not options.rejects_exist:
        raise UnexpectedSignals("no subnet rejects anything under these options")
