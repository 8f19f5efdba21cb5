"""The IC oracle on what subnets certify: encodings, hash trees, witnesses and state trees against held vectors and
against digests made step by step; slices as they travel; the slice pool. Hazards 3, 5, 8, 10 and 40 on bytes."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import cbor2
import pytest

from tests.spec import ic
from tests.spec.ic import certified, encoding, hash_tree, pool
from tests.spec.ic.certified import CertifiedState, CertifiedStreamSlice, altered, encode_certified_stream_slice
from tests.spec.ic.coordination import certified_state
from tests.spec.ic.errors import (
    InvalidAppend,
    InvalidDestination,
    InvalidSignature,
    InvalidSliceBegin,
    InvalidSliceIndices,
    NoStreamForSubnet,
    SerializationError,
    TakeBeforeSliceBegin,
)
from tests.spec.ic.messages import Reason
from tests.spec.ic.sizes import certified_bytes, count_bytes
from tests.spec.ic.slices import decode_certified_stream
from tests.spec.ic.tree import METADATA, index_label, state_tree
from tests.vectors import load_vectors

# ---- leaves

REJECTS = tuple(
    (249 + place, Reason[name])
    for place, name in enumerate(
        ("CanisterMigrating", "CanisterNotFound", "QueueFull", "OutOfMemory", "CanisterStopping", "CanisterStopped")
    )
)
MESSAGES: list[ic.Request | ic.Response] = [
    ic.Request(1, 2, 3, 4, "test", b"\x06"),
    ic.Request(2**64 - 1, 300, 2**53 + 1, 2**127 + 5, "ü" * 20, bytes(300), 2**32 - 1),
    ic.Response(5, 4, 3, 2, data=b"\x01"),
    ic.Response(5, 4, 3, 2**64, data=b"", deadline=6),
    ic.Response(6, 5, 4, 3, reject=(1, "Oops")),
]


@pytest.mark.parametrize("version", [19, 22, 23, 25])
def test_leaves_round_trip(version: int) -> None:
    for message in MESSAGES:
        assert encoding.decoded_message(encoding.encoded_message(message, version), version) == message
    for rejects in ((), REJECTS, tuple((i, Reason.QueueFull) for i in (0, 7, 255))):
        encoded = encoding.encoded_header(23, 25, 256, rejects)
        assert encoding.decoded_header(encoded, version) == encoding.Header(23, 25, 256, rejects)


def test_leaves_match_the_vectors() -> None:
    held = load_vectors("ic_encodings")
    known = {row["name"]: row["cbor"] for row in held["encodings"]}
    for name, version, message in (
        ("response_no_deadline", 25, MESSAGES[2]),
        ("response_no_deadline_v22", 22, MESSAGES[2]),
        ("response_with_u128_cycles_v22", 22, ic.Response(5, 4, 3, 123456789012345678901234567890, data=b"\x01")),
        ("reject_response_v22", 22, MESSAGES[4]),
    ):
        assert encoding.encoded_message(message, version).hex() == known[name]
    # The vectors' requests have a call tree; the surrounding bytes are ours.
    for name, version in (("minimal_request", 25), ("minimal_request_v22", 22)):
        assert encoding.encoded_message(MESSAGES[0], version).hex() == known[name].replace(
            "07a2000d011865", "07a200000100"
        )
    assert encoding.encoded_metadata(b"\x0f").hex() == known["system_metadata"]
    assert encoding.decoded_message(bytes.fromhex(known["request_v22"]), 22) == replace(MESSAGES[0], deadline=8)


def test_hazard_40_malformed_leaves_are_refused_by_name() -> None:
    for row in load_vectors("ic_encodings")["malformed"]:
        data, read = bytes.fromhex(row["cbor"]), encoding.decoded_message
        if row["kind"] == "payload":
            canister = ic.canister_bytes(1)
            data = cbor2.dumps({1: {0: canister, 1: canister, 2: 0, 4: cbor2.loads(data), 5: {0: 0}}})
        with pytest.raises(SerializationError) as refused:
            (encoding.decoded_header if row["kind"] == "stream_header" else read)(data)
        assert row["error"] in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({0: 1, 1: 2, 2: 9, 5: {0: [1], 4: [1]}}, "duplicates"),
        ({0: 1, 1: 2, 2: 9, 5: {7: [1]}}, "expected field index 0 <= i < 7"),
        ({0: 1, 1: 2, 2: 2**64}, "index is no number"),
        ({0: 1, 1: 2, 2: 9, 4: 2}, "unsupported flags"),
        ({0: 1, 1: 2, 2: 9, 5: {0: 1}}, "list of deltas"),
    ],
)
def test_hazard_8_invalid_reject_signals(fields: dict[int, Any], text: str) -> None:
    with pytest.raises(SerializationError, match=text):
        encoding.decoded_header(cbor2.dumps(fields))


# ---- hash trees


def sha(separator: str, *parts: bytes) -> bytes:
    """The digest of 2.9 in one line, restated."""
    return hashlib.sha256(bytes([len(separator)]) + separator.encode() + b"".join(parts)).digest()


def test_hash_trees_match_the_vectors() -> None:
    held = load_vectors("ic_hash_tree")

    def of(tree: Any) -> bytes:
        kind, *rest = tree
        if kind == 1:
            return hash_tree.fork(of(rest[0]), of(rest[1]))
        if kind == 2:
            return hash_tree.labeled(rest[0], of(rest[1]))
        pruned: bytes = b"" if kind == 0 else rest[0]
        return hash_tree.empty() if kind == 0 else hash_tree.leaf(pruned) if kind == 3 else pruned

    found = [of(cbor2.loads(bytes.fromhex(held[name]))) for name in ("full", "pruned")]
    assert [digest.hex() for digest in found] == [held["root"]] * 2
    assert hash_tree.empty().hex() == held["empty"]


def test_fork_has_the_largest_power_of_two_on_its_left() -> None:
    leaves = [sha("ic-hashtree-labeled", bytes([i]), sha("ic-hashtree-leaf", b"x")) for i in range(6)]

    def fork(left: bytes, right: bytes) -> bytes:
        return sha("ic-hashtree-fork", left, right)

    four = fork(fork(leaves[0], leaves[1]), fork(leaves[2], leaves[3]))
    for count, root in (
        (1, leaves[0]),
        (3, fork(fork(leaves[0], leaves[1]), leaves[2])),
        (4, four),
        (5, fork(four, leaves[4])),
        (6, fork(four, fork(leaves[4], leaves[5]))),
    ):
        assert hash_tree.root_of({bytes([i]): b"x" for i in range(count)}) == root


TREE = {b"a": {bytes([i]): bytes([i]) for i in range(7)}, b"b": b"1", b"c": {b"d": {b"e": b"2"}}}


@pytest.mark.parametrize("part", [{b"b": b"1"}, {b"a": {b"\x03": b"\x03"}, b"c": {b"d": {b"e": b"2"}}}, TREE])
def test_part_with_its_witness_has_the_root_of_the_whole(part: dict[bytes, Any]) -> None:
    witness = hash_tree.witness_of(TREE, part)
    assert hash_tree.recomputed(part, witness) == hash_tree.root_of(TREE)
    for wrong in ({**part, b"z": b""}, {**part, b"b": {b"": b""}}, {b"c": {b"d": b"2"}}, {}):
        with pytest.raises(SerializationError):
            hash_tree.recomputed(wrong, witness)


def test_malformed_witnesses_are_refused() -> None:
    gone: hash_tree.Witness = ("pruned", bytes(32))
    with pytest.raises(SerializationError, match="NonMinimalWitness"):
        hash_tree.recomputed({b"a": b""}, ("fork", ("node", b"a", ("known",)), ("fork", gone, gone)))
    with pytest.raises(SerializationError, match="InconsistentPartialTree"):
        hash_tree.recomputed({b"a": b""}, gone)
    deep: hash_tree.Witness = ("node", b"a", ("known",))
    for _ in range(130):
        deep = ("fork", deep, gone)
    with pytest.raises(SerializationError, match="TooDeepRecursion"):
        hash_tree.recomputed({b"a": b""}, deep)


# ---- the state tree

OWN, REMOTE, OTHER = 7, 1, 256
SECTIONS = {"queues": bytes(32), "loopback": b"?" * 32, "accounts": b"\x01" * 32}


def a_state(count: int = 9, first: int = 4, base: int = 1, rejects: tuple[int, ...] = ()) -> ic.CanonicalState:
    """A subnet with messages [first, first + count) to OWN, two to itself, and signals up to 20 about OWN's."""
    messages = {i: replace(MESSAGES[i % len(MESSAGES)], callback=i) for i in range(first, first + count)}
    signals = {((), i): ic.REJECT(Reason.QueueFull) if i in rejects else ic.ACCEPT for i in range(10, 20)}
    heights = {((), i): i // 2 for i in messages}
    streams = {
        OWN: ic.Stream(signals, {(): ic.Queue(first + count, messages)}, heights),
        REMOTE: ic.Stream({}, {(): ic.Queue(base + 2, {base: MESSAGES[0], base + 1: MESSAGES[2]})}),
    }
    return replace(
        ic.genesis(REMOTE, {}, {}),
        streams=streams,
        expected_xnet_indices=frozenset({(OWN, ((), 20)), (REMOTE, ((), base))}),
        number=3,
        height=5,
        time_ns=1_000,
    )


def test_state_tree_has_the_expected_labels() -> None:
    state = replace(a_state(), certified_data={2: b"digest", 1: b""})
    tree: Any = state_tree(state, b"\x05" * 32, SECTIONS, 1)
    assert list(tree) == sorted(tree) == [b"canister", b"causeway", b"metadata", b"streams", b"time"]
    assert tree[b"time"] == b"\xe8\x07"
    assert tree[b"metadata"] == {b"height": b"\x03", b"prev_state_hash": b"\x05" * 32}
    assert set(tree[b"streams"]) == {ic.subnet_bytes(OWN)}, "what we send to ourselves is not certified"
    assert tree[b"canister"] == {
        ic.canister_bytes(2): {b"certified_data": b"digest"},
        ic.canister_bytes(1): {b"certified_data": b""},
    }
    stream = tree[b"streams"][ic.subnet_bytes(OWN)]
    assert encoding.decoded_header(stream[b"header"]) == encoding.Header(4, 13, 20)
    assert list(stream[b"messages"]) == [i.to_bytes(8, "big") for i in range(4, 13)]
    loopback = {index_label(1): MESSAGES[0], index_label(2): MESSAGES[2]}
    leaves = {label: encoding.encoded_message(message) for label, message in loopback.items()}
    assert tree[b"causeway"] == {**{k.encode(): v for k, v in SECTIONS.items()}, b"loopback": hash_tree.root_of(leaves)}


def test_labels_absent_from_the_state_tree() -> None:
    nothing: Any = state_tree(ic.genesis(3, {}, {}), None, {}, 1)
    assert nothing == {b"metadata": {b"height": b"\x00"}, b"time": b"\x00"}
    metadata_only: Any = state_tree(a_state(count=0), b"\x05" * 32, SECTIONS, 1, scope=METADATA)
    assert b"causeway" not in metadata_only
    assert set(metadata_only[b"streams"][ic.subnet_bytes(OWN)]) == {b"header"}
    old: Any = state_tree(a_state(), b"\x05" * 32, SECTIONS, 1, version=19)
    assert set(old[b"streams"]) == {ic.subnet_bytes(OWN), ic.subnet_bytes(REMOTE)}
    assert old[b"metadata"] == encoding.encoded_metadata(b"\x05" * 32)


# ---- slices on the wire


def a_source(version: int = 25, **columns: Any) -> CertifiedState:
    options = ic.Options(certification_version=f"V{version}")
    return certified_state(a_state(**columns), b"\x05" * 32, SECTIONS, options)


def taker(expected: int | None = 6, ours: int = 30) -> tuple[ic.CanonicalState, ic.Registry]:
    state = ic.genesis(OWN, {}, {})
    if expected is not None:
        state = replace(state, expected_xnet_indices=frozenset({(REMOTE, ((), expected))}))
    queue: ic.Queue[ic.Request | ic.Response]
    queue = ic.Queue(1 + ours, {i: ic.Request(1, 2, i) for i in range(10, 1 + ours)})
    return state.with_stream(REMOTE, ic.Stream({}, {(): queue})), ic.Registry(frozenset({OWN, REMOTE, OTHER}), {})


@pytest.mark.parametrize("version", [19, 20, 22, 23, 24, 25])
def test_slice_reflects_its_stream(version: int) -> None:
    options = ic.Options(certification_version=f"V{version}", vsr="deployed")
    source, state = a_source(version, rejects=(11, 15)), a_state(rejects=(11, 15))
    for begin in (4, 6, 12, 13):
        css = encode_certified_stream_slice(source, OWN, msg_begin=begin)
        plain = ic.slice_for(state, OWN, frozenset({(REMOTE, ((), begin))}), options)
        assert plain is not None
        assert decode_certified_stream(OWN, REMOTE, css, version) == replace(plain, height=3, root=source.root)
        assert certified_bytes(css) == count_bytes(plain, version)
        accepting, registry = taker(begin)
        assert ic.check_slice(accepting, registry, REMOTE, css, options).source == REMOTE


def test_slices_are_cut_and_refused_by_name() -> None:
    source = a_source()
    indices = [
        sorted(certified.read_payload(encode_certified_stream_slice(source, OWN, **limits).payload).blobs)
        for limits in (
            {"msg_begin": 6, "msg_limit": 2},
            {"byte_limit": 1},
            {"msg_limit": 0},
            {"witness_begin": 4, "msg_begin": 5, "byte_limit": 1},
        )
    ]
    assert indices == [[6, 7], [4], [], []], "a limit of bytes always admits the first message, but for a suffix"
    with pytest.raises(NoStreamForSubnet):
        encode_certified_stream_slice(source, OTHER)
    for begin in (3, 14):
        with pytest.raises(InvalidSliceBegin):
            encode_certified_stream_slice(source, OWN, msg_begin=begin)
    with pytest.raises(InvalidSliceIndices):
        encode_certified_stream_slice(source, OWN, witness_begin=7, msg_begin=6)


CAUSES = {
    "payload": SerializationError,
    "sibling": SerializationError,
    "signature": InvalidSignature,
    "destination": InvalidDestination,
    "height": SerializationError,
    "header": SerializationError,
}


@pytest.mark.parametrize("begin", [6, 13])
@pytest.mark.parametrize("kind", CAUSES)
def test_hazard_5_any_altered_byte_makes_the_stream_invalid(kind: str, begin: int) -> None:
    css = encode_certified_stream_slice(a_source(), OWN, msg_begin=begin)
    wrong = altered(css, kind, OTHER)
    assert (wrong != css) or (kind, begin) == ("payload", 13), "there is no message to alter"
    if wrong == css:
        return
    with pytest.raises(CAUSES[kind]):
        certified.decode_certified_stream(OWN, REMOTE, wrong)
    state, registry = taker(begin)
    with pytest.raises(ic.InvalidStream):
        ic.check_slice(state, registry, REMOTE, wrong, ic.Options())
    assert ic.validate_xnet_payload(registry, state, [], {REMOTE: css}, 10**6, ic.Options())
    assert not ic.validate_xnet_payload(registry, state, [], {REMOTE: wrong}, 10**6, ic.Options())


def test_hazard_5_slice_of_another_subnet() -> None:
    css = encode_certified_stream_slice(a_source(), OWN, msg_begin=6)
    state, registry = taker()
    with pytest.raises(ic.InvalidStream, match="InvalidSignature"):
        ic.check_slice(state, registry, OTHER, css, ic.Options())
    with pytest.raises(ic.InvalidStream, match="InvalidDestination"):
        ic.check_slice(replace(state, own=OTHER), registry, REMOTE, css, ic.Options())


def test_height_is_trusted_only_with_its_witness() -> None:
    css = encode_certified_stream_slice(a_source(), OWN)
    for witness in (None, hash_tree.witness_of({b"metadata": {b"height": b"\x04"}}, certified.height_part(4))):
        unproven = replace(css.certification, height_witness=witness)
        with pytest.raises(SerializationError):
            certified.verify_root(replace(css, certification=unproven))
    old = encode_certified_stream_slice(a_source(23), OWN)
    certified.verify_root(altered(old, "height", OTHER), 23)


def test_old_slice_is_judged_by_its_content() -> None:
    """Earlier certifications stay valid: 3.9 decides by the indices of a slice whether it is useful."""
    old, options = encode_certified_stream_slice(a_source(), OWN, msg_begin=6), ic.Options()
    state, registry = taker(6)
    assert ic.check_slice(state, registry, REMOTE, old, options).source == REMOTE
    for expected in (7, 13, 14):
        state, registry = taker(expected)
        with pytest.raises(ic.UnexpectedMessages):
            ic.check_slice(state, registry, REMOTE, old, options)


def test_hazard_10_and_3_on_trees() -> None:
    """Padding, gaps and swapped labels, each with a matching witness (a faulty subnet may sign anything)."""
    whole: Any = a_source().tree
    subnet, stream = next(iter(whole[b"streams"].items()))
    messages = stream[b"messages"]
    label, other = index_label(6), index_label(8)

    def refused(part: Any, name: str) -> None:
        tree = {**whole, b"streams": part} if isinstance(part, dict) else part
        made = certified.certify(REMOTE, tree, 3)
        css = CertifiedStreamSlice(
            {b"streams": part}, hash_tree.witness_of(tree, {b"streams": part}), made.certification
        )
        with pytest.raises(SerializationError, match=name):
            certified.decode_certified_stream(OWN, REMOTE, css)

    header = {b"header": stream[b"header"]}
    refused({subnet: {**header, b"messages": {k: v for k, v in messages.items() if k != label}}}, "InvalidBounds")
    refused({subnet: {**header, b"messages": {b"five": b""}}}, "NotAStreamIndex")
    refused({subnet: {**header, b"messages": {}}}, "EmptyMessages")
    refused({subnet: {**header, b"padding": b""}}, "ExtraContents")
    refused({subnet: {b"messages": messages}}, "MissingHeader")
    refused({subnet: stream, ic.subnet_bytes(OTHER): stream}, "MoreThanOneStream")
    swapped = {**messages, label: messages[other], other: messages[label]}
    honest = encode_certified_stream_slice(a_source(), OWN)
    payload = {b"streams": {subnet: {**header, b"messages": swapped}}}
    with pytest.raises(SerializationError, match="RootHashMismatch"):
        certified.verify_root(replace(honest, payload=payload))


# ---- the slice pool


def test_pooled_slice_is_taken_in_parts() -> None:
    source, pooled = a_source(), dict[int, CertifiedStreamSlice]()
    pool.put(pooled, OWN, REMOTE, encode_certified_stream_slice(source, OWN), begin=6)
    for begin, msg_limit, indices in ((6, 2, [6, 7]), (8, 0, []), (9, None, [9, 10, 11, 12])):
        css = pool.take(pooled, REMOTE, begin, msg_limit)
        assert css is not None
        assert css == encode_certified_stream_slice(source, OWN, msg_begin=begin, msg_limit=msg_limit)
        assert sorted(certified.read_payload(css.payload).blobs) == indices
    assert pool.take(pooled, REMOTE) is None and pooled == {}


def test_taken_part_fits_the_byte_limit() -> None:
    source = a_source()
    for count in range(10):
        wanted = encode_certified_stream_slice(source, OWN, msg_limit=count)
        room = certified_bytes(wanted)
        pooled = {REMOTE: encode_certified_stream_slice(source, OWN)}
        assert pool.take(pooled, REMOTE, 4, byte_limit=room) == wanted
        pooled = {REMOTE: encode_certified_stream_slice(source, OWN)}
        less = pool.take(pooled, REMOTE, 4, byte_limit=room - 1)
        fewer = [] if less is None else list(certified.read_payload(less.payload).blobs)
        assert (less is None) == (count == 0) and len(fewer) == max(0, count - 1)


def test_pooled_slice_is_extended() -> None:
    older, newer = a_source(count=5), a_source(count=9)
    pooled = {REMOTE: encode_certified_stream_slice(older, OWN, msg_begin=6)}
    pool.append(pooled, OWN, REMOTE, encode_certified_stream_slice(newer, OWN, witness_begin=6, msg_begin=9))
    assert pooled[REMOTE] == encode_certified_stream_slice(newer, OWN, msg_begin=6)
    for suffix, cause in (
        (encode_certified_stream_slice(newer, OWN, witness_begin=6, msg_begin=9), "IndexMismatch"),
        (encode_certified_stream_slice(newer, OWN, witness_begin=7, msg_begin=13), "IndexMismatch"),
    ):
        with pytest.raises(InvalidAppend) as refused:
            pool.append(pooled, OWN, REMOTE, suffix)
        assert refused.value.cause == cause
    before = dict(pooled)
    wrong = altered(encode_certified_stream_slice(newer, OWN, witness_begin=6, msg_begin=13), "signature", OTHER)
    with pytest.raises(InvalidSignature):
        pool.append(pooled, OWN, REMOTE, wrong)
    assert pooled == before, "it is verified before it is pooled"


def test_slice_is_replaced_and_garbage_collected() -> None:
    source, pooled = a_source(), dict[int, CertifiedStreamSlice]()
    pool.put(pooled, OWN, REMOTE, encode_certified_stream_slice(source, OWN, msg_begin=8))
    with pytest.raises(TakeBeforeSliceBegin):
        pool.take(pooled, REMOTE, 6)
    assert pooled == {}, "what begins too late is of no use"
    pool.put(pooled, OWN, REMOTE, encode_certified_stream_slice(source, OWN))
    pool.collect(pooled, {REMOTE: (9, 20)})
    assert pooled[REMOTE] == encode_certified_stream_slice(source, OWN, msg_begin=9)
    pool.collect(pooled, {REMOTE: (13, 19)})
    assert pooled[REMOTE] == encode_certified_stream_slice(source, OWN, msg_begin=13), "its signals are news"
    pool.collect(pooled, {REMOTE: (13, 20)})
    assert pooled == {}
