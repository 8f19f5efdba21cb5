"""Library and oracle agree on 2.8 to 2.10 for any stream.

The comparison covers leaves, roots, witnesses, slices, sizes, truncation, merging and rejections.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cbor2
import pyarrow as pa
import pytest
from causeway_proofs.errors import CausewayError
from causeway_proofs.ic import witness as library
from causeway_proofs.ic.hash_tree import build_tree, digest
from causeway_proofs.ic.messages import decode_stream_message, encode_stream_message
from causeway_proofs.ic.primitives import CertificationVersion
from causeway_proofs.ic.slice import CertifiedStreamSlice
from causeway_proofs.ic.stream_header import decode_stream_header, encode_stream_header
from causeway_proofs.ic.stream_tree import StreamTree
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from causeway.protocols.ic.streams.slice_pool import prefix_sizes
from tests.oracles.ic.certified_streams import CertifiedStreams, StoredStream
from tests.spec import ic
from tests.spec.ic import certified, encoding, hash_tree, pool
from tests.spec.ic.coordination import certified_state
from tests.spec.ic.errors import InvalidAppend, SerializationError, SpecError
from tests.spec.ic.messages import Reason
from tests.spec.ic.sizes import certified_bytes
from tests.tiers import sized

SETTINGS = settings(max_examples=sized(14, 150), deadline=None, derandomize=True, suppress_health_check=[*HealthCheck])
OWN, REMOTE = 7, 1
NUMBERS = st.one_of(st.integers(0, 300), st.sampled_from([2**16, 2**32, 2**53 + 1, 2**63, 2**64 - 1]))
CYCLES = st.one_of(NUMBERS, st.integers(2**64, 2**128 - 1))
TEXTS = st.sampled_from(["", "m", "ü" * 12, "x" * 300])
BYTES = st.sampled_from([0, 1, 23, 24, 255, 256, 3000]).map(bytes)
DEADLINES = st.sampled_from([0, 0, 1, 2**32 - 1])
ANSWERS = st.one_of(
    st.fixed_dictionaries({"data": BYTES}),
    st.fixed_dictionaries({"reject": st.tuples(st.integers(1, 6), TEXTS)}),
)
MESSAGES: st.SearchStrategy[ic.Request | ic.Response] = st.one_of(
    st.builds(ic.Request, NUMBERS, NUMBERS, NUMBERS, CYCLES, TEXTS, BYTES, DEADLINES),
    st.builds(
        lambda o, r, c, refund, deadline, answer: ic.Response(o, r, c, refund, deadline=deadline, **answer),
        *(NUMBERS, NUMBERS, NUMBERS, CYCLES, DEADLINES, ANSWERS),
    ),
)


@st.composite
def states(draw: st.DrawFn) -> ic.CanonicalState:
    """Generate a subnet with a stream to OWN and other state tree entries."""
    count = draw(st.integers(0, 12))
    begin = draw(st.integers(0, 300) | st.sampled_from([2**32, 2**64 - 1 - count]))
    held = dict(enumerate(draw(st.lists(MESSAGES, min_size=count, max_size=count)), begin))
    expected = draw(st.integers(1, 300))
    rejected = draw(st.dictionaries(st.integers(0, expected - 1), st.sampled_from(list(Reason)), max_size=8))
    signals = {((), i): ic.REJECT(reason) for i, reason in rejected.items()}
    streams = {
        OWN: ic.Stream(signals, {(): ic.Queue(begin + count, held)}, dict.fromkeys((((), i) for i in held), 1)),
        300: ic.Stream({}, {(): ic.Queue(2, {})}),
    }
    return ic.CanonicalState(
        own=REMOTE,
        number=draw(NUMBERS),
        time_ns=draw(NUMBERS),
        streams={to: streams[to] for to in draw(st.sampled_from([(OWN,), (OWN, 300)]))},
        expected_xnet_indices=frozenset({(OWN, ((), expected))}),
        certified_data=draw(st.dictionaries(st.integers(0, 3), BYTES, max_size=2)),
    )


def create_sources(state: ic.CanonicalState, version: int) -> tuple[certified.CertifiedState, CertifiedStreams]:
    """Return one certified state in the oracle and in the library."""
    sections = {"accounts": b"a" * 32, "queues": b"q" * 32}
    ours = certified_state(state, b"p" * 32, sections, ic.Options(index_base=0, certification_version=f"V{version}"))
    streams = {}
    for subnet, stream in ours.tree[b"streams"].items():
        header = encoding.decoded_header(stream[b"header"], version)
        column = pa.array(stream.get(b"messages", {}).values(), pa.binary())
        streams[subnet] = StoredStream(StreamTree(stream[b"header"], header.begin, column), column)
    contents: Any = {label: tree for label, tree in ours.tree.items() if label != b"streams"}
    signed = certified.signed(REMOTE, ours.root)
    theirs = CertifiedStreams(streams, contents, state.number, lambda _: signed, CertificationVersion(version))
    return ours, theirs


def plain_witness(found: library.Witness) -> hash_tree.Witness:
    """Convert a witness of the library into the oracle's form."""
    if isinstance(found, library.WitnessFork):
        return ("fork", plain_witness(found.left), plain_witness(found.right))
    if isinstance(found, library.WitnessNode):
        return ("node", found.label, plain_witness(found.sub_witness))
    return ("pruned", found.digest) if isinstance(found, library.WitnessPruned) else hash_tree.KNOWN


def library_parts(found: CertifiedStreamSlice) -> tuple[Any, ...]:
    """Return payload, witness, root, height and signature of a slice of the library."""
    first = found.payload.messages_begin or 0
    blobs = {(first + place).to_bytes(8, "big"): blob for place, blob in enumerate(found.payload.messages)}
    stream = {b"header": found.payload.header_bytes, **({b"messages": blobs} if blobs else {})}
    certification = found.certification
    return (
        {b"streams": {found.payload.subnet_id: stream}},
        plain_witness(found.witness),
        *(certification.root_hash, certification.height, certification.signature),
    )


def oracle_parts(found: certified.CertifiedStreamSlice) -> tuple[Any, ...]:
    """Return the same of a slice of the oracle."""
    certification = found.certification
    return found.payload, found.witness, certification.root, certification.height, certification.signature


def outcome_or_error(call: Callable[[], Any]) -> Any:
    """Return the outcome, or the name of the error."""
    try:
        return call()
    except (SpecError, CausewayError) as error:
        return error.cause if isinstance(error, InvalidAppend) else type(error).__name__


@SETTINGS
@given(MESSAGES, st.sampled_from([19, 22, 23, 25]))
def test_messages(message: ic.Request | ic.Response, version: int) -> None:
    known = CertificationVersion(version)
    encoded = encoding.encoded_message(message, version)
    assert encode_stream_message(decode_stream_message(encoded, known), known) == encoded
    assert encoding.decoded_message(encoded, version) == message


FIELDS = st.dictionaries(
    st.integers(0, 7) | st.just(999),
    st.one_of(
        NUMBERS,
        st.dictionaries(st.integers(0, 8), st.lists(st.integers(0, 40) | NUMBERS, max_size=4), max_size=3),
        st.sampled_from([0, 1, 2, 3, -1, 2**64, b"", "text", None]),
    ),
    max_size=6,
)


@settings(SETTINGS, max_examples=sized(90, 1000))
@given(st.tuples(NUMBERS, NUMBERS, NUMBERS), FIELDS, st.sampled_from([0, 1, 1, 1]))
def test_headers_are_decoded_or_rejected_alike(
    bounds: tuple[int, int, int], fields: dict[int, Any], whole: int
) -> None:
    """Hazards 8 and 40."""
    content = dict(sorted({**fields, **(dict(enumerate(bounds)) if whole else {})}.items()))
    data = cbor2.dumps(content)
    ours = outcome_or_error(lambda: encoding.decoded_header(data))
    theirs = outcome_or_error(lambda: decode_stream_header(data))
    if theirs == "NotCanonical":  # the reference has no canonical form: 0 and an empty list may be encoded
        assert any(key > 2 and not value for key, value in content.items())
        return
    assert isinstance(ours, str) == isinstance(theirs, str), (ours, theirs)
    if not isinstance(ours, str):
        assert (theirs.begin, theirs.end, theirs.signals_end) == (ours.begin, ours.end, ours.signals_end)
        rejects = sorted((signal.index, signal.reason.name) for signal in theirs.reject_signals)
        assert rejects == [(index, reason.name) for index, reason in ours.rejects]


@SETTINGS
@given(states(), st.sampled_from([19, 20, 22, 23, 24, 25]))
def test_roots_and_headers(state: ic.CanonicalState, version: int) -> None:
    ours, theirs = create_sources(state, version)
    tree: Any = ours.tree
    assert digest(build_tree(tree)) == theirs.certification.root_hash == ours.root
    known = CertificationVersion(version)
    for stream in tree[b"streams"].values():
        assert encode_stream_header(decode_stream_header(stream[b"header"], known), known) == stream[b"header"]


@st.composite
def endpoint_requests(draw: st.DrawFn, state: ic.CanonicalState) -> dict[str, int]:
    """Generate client requests to an endpoint, within the stream and beside it."""
    begin = min(state.streams[OWN].msgs[()].elements, default=state.streams[OWN].msgs[()].next_index)
    near = st.integers(max(0, begin - 1), min(begin + 14, 2**64 - 1))
    found = {"msg_begin": draw(near), "witness_begin": draw(near)}
    if draw(st.booleans()):
        found["witness_begin"] = min(found.values())
    found |= {"msg_limit": draw(st.integers(0, 13)), "byte_limit": draw(st.sampled_from([0, 1, 90, 200, 1000, 10**6]))}
    if "witness_begin" in found and draw(st.booleans()):
        del found["witness_begin"]
    return {name: value for name, value in found.items() if name != "msg_limit" or draw(st.booleans())}


@settings(SETTINGS, max_examples=sized(18, 200))
@given(st.data())
def test_slices_are_truncated_and_rejected_alike(data: st.DataObject) -> None:
    state = data.draw(states())
    ours, theirs = create_sources(state, 25)
    wanted = data.draw(endpoint_requests(state))
    destination = data.draw(st.sampled_from([OWN, OWN, OWN, 300, 9]))
    one = outcome_or_error(lambda: certified.encode_certified_stream_slice(ours, destination, **wanted))
    other = outcome_or_error(lambda: theirs.encode_certified_stream_slice(ic.subnet_bytes(destination), **wanted))
    if isinstance(one, str) or isinstance(other, str):
        assert one == other
        return
    assert oracle_parts(one) == library_parts(other)
    blobs = certified.read_payload(one.payload).blobs
    if "witness_begin" not in wanted:
        certified.decode_certified_stream(destination, REMOTE, one)
        assert [certified_bytes(certified.take_prefix(one, n)) for n in range(len(blobs) + 1)] == list(
            prefix_sizes(other)
        )


def joined_slice(joined: CertifiedStreamSlice) -> CertifiedStreamSlice:
    """Return a joined slice, whose root is checked before use."""
    joined.verify_root()
    return joined


@settings(SETTINGS, max_examples=sized(18, 200))
@given(st.data())
def test_slices_are_split_and_joined_alike(data: st.DataObject) -> None:
    """X-15."""
    state = data.draw(states())
    ours, theirs = create_sources(state, 25)
    whole, other = (
        certified.encode_certified_stream_slice(ours, OWN),
        theirs.encode_certified_stream_slice(ic.subnet_bytes(OWN)),
    )
    indices = sorted(certified.read_payload(whole.payload).blobs)
    count = data.draw(st.integers(0, len(indices)))
    first, rest = other.take_prefix(count)
    assert oracle_parts(certified.take_prefix(whole, count)) == library_parts(first)
    pooled = {REMOTE: whole}
    taken = pool.take(pooled, REMOTE, msg_limit=count)
    assert taken is not None and oracle_parts(taken) == library_parts(first)
    assert ({} if rest is None else {REMOTE: library_parts(rest)}) == {
        remote: oracle_parts(css) for remote, css in pooled.items()
    }
    if indices:
        wanted = data.draw(endpoint_requests(state))
        if data.draw(st.booleans()):
            wanted |= {"witness_begin": indices[0], "msg_begin": indices[0] + count}
        suffix = outcome_or_error(lambda: certified.encode_certified_stream_slice(ours, OWN, **wanted))
        theirs_suffix = outcome_or_error(lambda: theirs.encode_certified_stream_slice(ic.subnet_bytes(OWN), **wanted))
        if isinstance(suffix, str):
            return
        pooled = {REMOTE: taken}
        joined = outcome_or_error(lambda: pool.append(pooled, OWN, REMOTE, suffix))
        theirs_joined = outcome_or_error(lambda: joined_slice(first.append(theirs_suffix)))
        if isinstance(joined, str) or isinstance(theirs_joined, str):
            assert isinstance(joined, str) and isinstance(theirs_joined, str), (joined, theirs_joined, count, wanted)
        else:
            assert oracle_parts(pooled[REMOTE]) == library_parts(theirs_joined)


def test_comparison_detects_altered_parts() -> None:
    """A slice with a flipped bit differs."""
    queue: ic.Queue[Any] = ic.Queue(5, {4: ic.Request(1, 2, 3)})
    state = ic.CanonicalState(own=REMOTE, streams={OWN: ic.Stream({}, {(): queue})})
    ours, theirs = create_sources(state, 25)
    whole = certified.encode_certified_stream_slice(ours, OWN)
    found = library_parts(theirs.encode_certified_stream_slice(ic.subnet_bytes(OWN)))
    assert oracle_parts(whole) == found
    for part in ("payload", "sibling", "signature", "destination", "height", "header"):
        wrong = certified.altered(whole, part, 9)
        assert oracle_parts(wrong) != found
    with pytest.raises(SerializationError):
        certified.verify_root(certified.altered(whole, "sibling", 9))
