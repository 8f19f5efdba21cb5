"""Labeled trees, witnesses and slices of the Internet Computer: refusals by name, slice processing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from causeway_proofs.errors import MalformedProof, OverLimit, ProofError
from causeway_proofs.ic import errors, hash_tree
from causeway_proofs.ic.bls import SecretKey
from causeway_proofs.ic.errors import DecodeError, EncodeError, InvalidSignature
from causeway_proofs.ic.hash_tree import build_tree, digest
from causeway_proofs.ic.messages import RequestMetadata, StreamRequest, encode_stream_message
from causeway_proofs.ic.primitives import CURRENT, CertificationVersion, encode_leb128
from causeway_proofs.ic.slice import (
    Certification,
    CertifiedStreamSlice,
    decode_certified_stream,
    decode_certified_stream_slice,
    decode_valid_certified_stream,
    encode_certified_stream_slice,
    height_tree,
)
from causeway_proofs.ic.slice_payload import index_label, payload_tree, read_payload
from causeway_proofs.ic.stream_header import RejectReason, RejectSignal, StreamHeader, encode_stream_header
from causeway_proofs.ic.stream_tree import StreamTree
from causeway_proofs.ic.witness import (
    KNOWN,
    LabeledTree,
    SubTree,
    TreeLeaf,
    Witness,
    WitnessFork,
    WitnessNode,
    WitnessPruned,
    decode_labeled_tree,
    decode_witness,
    encode_labeled_tree,
    encode_witness,
    prune_witness,
    recompute_digest,
)
from causeway_proofs.wire import xnet_pb2

from tests.oracles.ic.mixed_tree import split_hash_tree
from tests.oracles.ic.slices import build_certified_stream_slice
from tests.oracles.ic.streams import streams_tree, streams_witness
from tests.oracles.ic.witness_builder import build_witness, digest_tree

CANISTER = bytes.fromhex("00000000000000010101")
REQUEST = StreamRequest(
    CANISTER, bytes.fromhex("00000000000000020101"), 3, 4, "test", b"\x06", RequestMetadata(13, 101)
)

# Trees and witnesses.


def subtree(**children: LabeledTree) -> SubTree:
    return SubTree({label.encode(): child for label, child in children.items()})


FULL = subtree(
    a=subtree(x=TreeLeaf(b"1"), y=TreeLeaf(b"2"), z=TreeLeaf(b"3")),
    b=subtree(),
    c=TreeLeaf(b"4"),
    d=subtree(e=subtree(f=TreeLeaf(b"5"))),
)


def test_witness_of_a_part_has_the_root_of_the_whole() -> None:
    digested = digest_tree(FULL)
    assert digested.digest == digest(
        build_tree({b"a": {b"x": b"1", b"y": b"2", b"z": b"3"}, b"b": {}, b"c": b"4", b"d": {b"e": {b"f": b"5"}}})
    )
    for part in (
        FULL,
        subtree(c=TreeLeaf(b"4")),
        subtree(b=subtree()),
        subtree(a=subtree(y=TreeLeaf(b"2")), c=TreeLeaf(b"4")),
    ):
        witness = build_witness(digested, part)
        assert recompute_digest(part, witness) == digested.digest
        assert decode_witness(encode_witness(witness)) == witness
        assert decode_labeled_tree(encode_labeled_tree(part)) == part


@pytest.mark.parametrize(
    "part",
    [
        subtree(z=TreeLeaf(b"")),
        subtree(a=TreeLeaf(b"")),
        subtree(a=subtree()),
        subtree(b=subtree(x=TreeLeaf(b""))),
        subtree(c=subtree()),
        TreeLeaf(b""),
    ],
)
def test_non_part_has_no_witness(part: LabeledTree) -> None:
    with pytest.raises(errors.InconsistentPartialTree):
        build_witness(digest_tree(FULL), part)


def test_witness_and_tree_must_match_everywhere() -> None:
    part = subtree(a=subtree(x=TreeLeaf(b"1")), c=TreeLeaf(b"4"))
    witness = build_witness(digest_tree(FULL), part)
    cases: list[tuple[LabeledTree, Witness, tuple[bytes, ...]]] = [
        (subtree(c=TreeLeaf(b"4")), witness, (b"a", b"x")),
        (subtree(a=subtree(x=TreeLeaf(b"1"), y=TreeLeaf(b"2")), c=TreeLeaf(b"4")), witness, (b"a", b"y")),
        (subtree(a=subtree(x=subtree()), c=subtree(d=TreeLeaf(b""))), witness, (b"c",)),
        (subtree(a=subtree(), c=TreeLeaf(b"4")), witness, (b"a",)),
        (subtree(a=TreeLeaf(b"1"), c=TreeLeaf(b"4")), witness, (b"a",)),
        (TreeLeaf(b""), WitnessPruned(bytes(32)), ()),
        (part, KNOWN, ()),
        (part, WitnessPruned(bytes(32)), ()),
        (part, WitnessFork(KNOWN, WitnessPruned(bytes(32))), ()),
        (
            subtree(c=TreeLeaf(b"4")),
            WitnessFork(WitnessNode(b"a", WitnessPruned(bytes(32))), WitnessNode(b"c", KNOWN)),
            (),
        ),
    ]
    for tree, given, path in cases:
        with pytest.raises(errors.InconsistentPartialTree) as refused:
            recompute_digest(tree, given)
        assert refused.value.offending_path == path
    with pytest.raises(errors.NonMinimalWitness):
        recompute_digest(
            subtree(c=TreeLeaf(b"4")),
            WitnessFork(WitnessFork(WitnessPruned(bytes(32)), WitnessPruned(bytes(32))), WitnessNode(b"c", KNOWN)),
        )


def deep(levels: int) -> Witness:
    witness: Witness = WitnessNode(b"a", KNOWN)
    for _ in range(levels):
        witness = WitnessFork(witness, WitnessPruned(bytes(32)))
    return witness


def test_nesting_is_bounded() -> None:
    part = subtree(a=TreeLeaf(b""))
    recompute_digest(part, deep(126))
    for levels in (127, 100_000):
        with pytest.raises(errors.TooDeepRecursion):
            recompute_digest(part, deep(levels))
    assert decode_witness(encode_witness(deep(48))) == deep(48)
    with pytest.raises(EncodeError, match="more than 49 levels"):
        encode_witness(deep(49))
    chain: LabeledTree = TreeLeaf(b"")
    for _ in range(33):
        chain = subtree(a=chain)
    assert decode_labeled_tree(encode_labeled_tree(chain)) == chain
    with pytest.raises(EncodeError, match="more than 33 levels"):
        encode_labeled_tree(subtree(a=chain))


def test_nodes_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    tree, witness = encode_labeled_tree(FULL), encode_witness(deep(3))
    for limit, encoded, count, decode in (
        ("MAX_TREE_NODES", tree, 10, decode_labeled_tree),
        ("MAX_NODES", witness, 8, decode_witness),
    ):
        monkeypatch.setattr(f"causeway_proofs.ic.witness.{limit}", count)
        decode(encoded)
        monkeypatch.setattr(f"causeway_proofs.ic.witness.{limit}", count - 1)
        with pytest.raises(OverLimit, match=f"more than {count - 1} nodes"):
            decode(encoded)


def test_pruning_leaves_a_witness_of_the_rest() -> None:
    digested = digest_tree(FULL)
    first, second = subtree(a=subtree(x=TreeLeaf(b"1"))), subtree(a=subtree(z=TreeLeaf(b"3")), c=TreeLeaf(b"4"))
    both = subtree(a=subtree(x=TreeLeaf(b"1"), z=TreeLeaf(b"3")), c=TreeLeaf(b"4"))
    pruned = prune_witness(build_witness(digested, both), first)
    assert pruned == build_witness(digested, second)
    assert recompute_digest(second, pruned) == digested.digest


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("", "Witness::witness_enum"),
        ("0a00", "Witness::Fork::left_tree"),
        ("1200", "Witness::Node::sub_witness"),
        ("1a00", "Digest: expected a blob of length 32, got 0"),
        ("220008", "Witness"),
        ("22002200", "canonical"),
        ("a20100", "canonical"),
    ],
)
def test_malformed_witnesses_are_refused(data: str, text: str) -> None:
    with pytest.raises(MalformedProof) as refused:
        decode_witness(bytes.fromhex(data))
    assert text in str(refused.value)


def wire_tree(*children: tuple[bytes, bool]) -> bytes:
    """Return the protobuf form of a one-level tree, with children of a label and, if true, a node."""
    message = xnet_pb2.LabeledTree()
    message.sub_tree.SetInParent()
    for label, has_node in children:
        child = message.sub_tree.children.add(label=label)
        if has_node:
            child.node.leaf = b""
    return message.SerializeToString()


@pytest.mark.parametrize(
    ("encoded", "text"),
    [
        (b"", "LabeledTree::node_enum"),
        (wire_tree((b"a", False)), "LabeledTree::Subtree::value"),
        (wire_tree((b"b", True), (b"a", True)), "do not ascend"),
        (wire_tree((b"a", True), (b"a", True)), "do not ascend"),
        (wire_tree((b"a", True)) + b"\x08\x00", "canonical"),
        (wire_tree((b"a", True)) + b"\x0a\x00", "canonical"),
        (wire_tree((b"a", True))[:-1], "no protobuf message"),
    ],
)
def test_malformed_trees_are_refused(encoded: bytes, text: str) -> None:
    with pytest.raises(MalformedProof) as refused:
        decode_labeled_tree(encoded)
    assert text in str(refused.value)


# Slices.

KEY = SecretKey.derive(b"a subnet that certifies the streams of this test")
OWN, OTHER = b"\x07" + bytes(7) + b"\xfc\x01", b"\x08" + bytes(7) + b"\xfc\x01"
STREAM = [encode_stream_message(replace(REQUEST, sender_reply_callback=index)) for index in range(5, 18)]
STREAM_HEADER = StreamHeader(5, 18, 9, (RejectSignal(7, RejectReason.QueueFull),))


def state(header: StreamHeader = STREAM_HEADER) -> LabeledTree:
    messages = {index: STREAM[index - 5] for index in range(header.begin, min(header.end, 18))}
    ours = payload_tree(OWN, encode_stream_header(header), messages)
    other = payload_tree(OTHER, encode_stream_header(StreamHeader(0, 0, 0)), {})
    assert isinstance(ours, SubTree) and isinstance(other, SubTree)
    streams = {**tree_children(ours.children[b"streams"]), **tree_children(other.children[b"streams"])}
    return subtree(streams=SubTree(streams), time=TreeLeaf(b"\x01"))


def tree_children(tree: LabeledTree) -> dict[bytes, LabeledTree]:
    assert isinstance(tree, SubTree)
    return dict(tree.children)


def cut(begin: int, end: int, header: StreamHeader = STREAM_HEADER, known_from: int | None = None) -> Any:
    """Return the slice [begin, end) of the stream; its witness may know more, from ``known_from`` on."""
    full = digest_tree(state(header))

    def part(first: int) -> LabeledTree:
        return payload_tree(OWN, encode_stream_header(header), {i: STREAM[i - 5] for i in range(first, end)})

    witness = build_witness(full, part(begin if known_from is None else known_from))
    unsigned = Certification(42, full.digest, b"")
    certification = replace(unsigned, signature=KEY.sign(unsigned.signed_bytes()))
    return CertifiedStreamSlice(read_payload(part(begin)), witness, certification)


def test_slice_arrives_unchanged() -> None:
    whole = cut(7, 12)
    assert whole.certification.signed_bytes() == b"\x0dic-state-root" + whole.certification.root_hash
    data = encode_certified_stream_slice(whole)
    assert decode_certified_stream_slice(data) == whole
    assert [step.operation for step in whole.verify_root()] == ["payload", "witness", "certified"]
    read = decode_certified_stream(OWN, OTHER, data, KEY.public_key())
    assert read.header == STREAM_HEADER
    assert [index for index, _ in read.messages] == [7, 8, 9, 10, 11]
    assert [message.sender_reply_callback for _, message in read.messages if isinstance(message, StreamRequest)] == [
        7, 8, 9, 10, 11,
    ]  # fmt: skip
    assert decode_valid_certified_stream(OWN, data) == read
    with_extras = replace(whole, certification=replace(whole.certification, signer=b"", height_witness=b"\x01"))
    assert decode_certified_stream_slice(encode_certified_stream_slice(with_extras)) == with_extras
    with pytest.raises(ProofError):
        with_extras.verify_root()
    header_only = cut(7, 7)
    assert decode_certified_stream_slice(encode_certified_stream_slice(header_only)) == header_only
    header_only.verify_root()


def with_height_witness(height: int = 300) -> CertifiedStreamSlice:
    """Return a slice of a state with a height, and the height witness."""
    contents = state()
    assert isinstance(contents, SubTree)
    metadata = subtree(height=TreeLeaf(encode_leb128(height)), prev_state_hash=TreeLeaf(bytes(32)))
    full = digest_tree(SubTree({**contents.children, b"metadata": metadata}))
    part = payload_tree(OWN, encode_stream_header(STREAM_HEADER), {7: STREAM[2]})
    proven = encode_witness(build_witness(full, height_tree(height)))
    unsigned = Certification(height, full.digest, b"", height_witness=proven)
    certification = replace(unsigned, signature=KEY.sign(unsigned.signed_bytes()))
    return CertifiedStreamSlice(read_payload(part), build_witness(full, part), certification)


def test_height_with_a_witness_is_the_certified_one() -> None:
    whole = with_height_witness()
    data = encode_certified_stream_slice(whole)
    assert [step.operation for step in whole.verify_root()] == ["payload", "witness", "height", "certified"]
    decode_certified_stream(OWN, OTHER, data, KEY.public_key())
    # No bit is unsigned: none of the whole slice can differ.
    for bit in range(0, 8 * len(data), 3):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ProofError):
            decode_certified_stream(OWN, OTHER, bytes(changed), KEY.public_key())

    def changed_to(**parts: Any) -> CertifiedStreamSlice:
        return replace(whole, certification=replace(whole.certification, **parts))

    with pytest.raises(errors.RootHashMismatch, match=r"height 301 and its witness have the root"):
        changed_to(height=301).verify_root()
    with pytest.raises(errors.WitnessPruningFailed, match="height witness: "):
        changed_to(height_witness=encode_witness(whole.witness)).verify_root()
    with pytest.raises(ProofError):
        changed_to(height_witness=b"").verify_root()


def test_unsigned_fields_are_bounded() -> None:
    whole = cut(7, 12)
    for parts, text in (
        ({"signer": bytes(257)}, "signer of a certification has 257 bytes, at most 256"),
        ({"height_witness": bytes(1025)}, "height witness has 1025 bytes, at most 1024"),
    ):
        padded = replace(whole, certification=replace(whole.certification, **parts))
        with pytest.raises(OverLimit, match=text):
            decode_certified_stream_slice(encode_certified_stream_slice(padded))


def test_slice_from_or_for_another_subnet_is_refused() -> None:
    whole = cut(7, 12)
    data = encode_certified_stream_slice(whole)
    with pytest.raises(errors.InvalidDestination):
        decode_certified_stream(OTHER, OWN, data, KEY.public_key())
    with pytest.raises(InvalidSignature):
        decode_certified_stream(OWN, OTHER, data, SecretKey.derive(b"k" * 32).public_key())
    forged = replace(whole, payload=replace(whole.payload, messages=(*whole.payload.messages[:-1], STREAM[0])))
    with pytest.raises(errors.RootHashMismatch):
        decode_certified_stream(OWN, OTHER, encode_certified_stream_slice(forged), KEY.public_key())
    fewer = replace(whole, payload=replace(whole.payload, messages=whole.payload.messages[:-1]))
    with pytest.raises(errors.WitnessPruningFailed):
        fewer.verify_root()


def test_slices_are_split_and_joined() -> None:
    whole = cut(5, 18)
    for count in range(15):
        first, rest = whole.take_prefix(count)
        first.verify_root()
        assert first == cut(5, min(5 + count, 18))
        assert rest == (None if count >= 13 else cut(5 + count, 18))
        assert whole.garbage_collect(5 + count) == (cut(5 + count, 18) if count < 13 else cut(18, 18))
    assert whole.garbage_collect(18, 9) is None
    assert whole.garbage_collect(30, 8) == cut(18, 18)
    assert whole.take(8, 2) == (cut(8, 10), cut(10, 18))
    with pytest.raises(errors.TakeBeforeSliceBegin):
        cut(8, 10).take(7, 1)
    newer = replace(STREAM_HEADER, signals_end=11)
    suffix = cut(9, 18, newer, known_from=6)
    assert suffix.witness_begin() == 6 != suffix.payload.messages_begin
    assert cut(6, 9).append(suffix) == cut(6, 18, newer)
    assert cut(9, 9).append(cut(9, 18, newer)) == cut(9, 18, newer)
    for begin, end, later, error in (
        (6, 8, suffix, errors.IndexMismatch),
        (7, 9, suffix, errors.IndexMismatch),
        (9, 9, suffix, errors.IndexMismatch),
        (6, 9, cut(9, 18, replace(STREAM_HEADER, signals_end=8), known_from=6), errors.SignalsEndRegresses),
    ):
        with pytest.raises(error):
            cut(begin, end).append(later)
    stranger = replace(suffix, payload=replace(suffix.payload, subnet_id=OTHER))
    with pytest.raises(errors.DifferentSubnet):
        cut(6, 9).append(stranger)


HEADER_LEAF = TreeLeaf(encode_stream_header(STREAM_HEADER))
MESSAGE = TreeLeaf(STREAM[0])


def stream(**children: LabeledTree) -> LabeledTree:
    return subtree(streams=SubTree({OWN: subtree(**children)}))


def run(*indexes: int) -> LabeledTree:
    return SubTree({index_label(index): MESSAGE for index in indexes})


@pytest.mark.parametrize(
    ("tree", "error"),
    [
        (TreeLeaf(b""), errors.NotASubTree),
        (subtree(), errors.MissingStreams),
        (subtree(time=TreeLeaf(b"")), errors.MissingStreams),
        (SubTree({**tree_children(stream(header=HEADER_LEAF)), b"time": TreeLeaf(b"")}), errors.ExtraContents),
        (subtree(streams=TreeLeaf(b"")), errors.NotASubTree),
        (subtree(streams=subtree()), errors.MissingStream),
        (subtree(streams=SubTree({OWN: TreeLeaf(b""), OTHER: TreeLeaf(b"")})), errors.MoreThanOneStream),
        (subtree(streams=SubTree({OWN: TreeLeaf(b"")})), errors.NotASubTree),
        (stream(), errors.MissingHeader),
        (stream(messages=run(5)), errors.MissingHeader),
        (stream(header=HEADER_LEAF, padding=TreeLeaf(b"")), errors.ExtraContents),
        (stream(header=subtree()), errors.NotALeaf),
        (stream(header=TreeLeaf(b"")), errors.DecodeFailed),
        (stream(header=HEADER_LEAF, messages=TreeLeaf(b"")), errors.NotASubTree),
        (stream(header=HEADER_LEAF, messages=subtree()), errors.EmptyMessages),
        (stream(header=HEADER_LEAF, messages=subtree(five=MESSAGE)), errors.NotAStreamIndex),
        (stream(header=HEADER_LEAF, messages=SubTree({index_label(5): subtree()})), errors.NotALeaf),
        (stream(header=HEADER_LEAF, messages=run(5, 7)), errors.InvalidBounds),
        (stream(header=HEADER_LEAF, messages=run(4, 5)), errors.InvalidBounds),
        (stream(header=HEADER_LEAF, messages=run(17, 18)), errors.InvalidBounds),
        (stream(header=HEADER_LEAF, messages=run(2**64 - 1)), errors.InvalidBounds),
        (stream(header=TreeLeaf(encode_stream_header(StreamHeader(6, 5, 0)))), errors.InvalidBounds),
    ],
)
def test_payloads_of_another_shape_are_refused_by_name(tree: LabeledTree, error: type[Exception]) -> None:
    with pytest.raises(error) as refused:
        read_payload(tree)
    assert str(refused.value).startswith(f"{error.__name__}: ")


def test_invalid_messages_are_named() -> None:
    full = stream(header=HEADER_LEAF, messages=SubTree({index_label(5): TreeLeaf(b"\xa0")}))
    digested = digest_tree(full)
    made = build_certified_stream_slice(full, build_witness(digested, full), Certification(1, digested.digest, b""))
    with pytest.raises(errors.DecodeFailed, match="message 5: StreamMessage"):
        made.decode_messages()


def test_slice_can_be_built_from_a_stream_tree() -> None:
    tree = StreamTree(encode_stream_header(STREAM_HEADER), 5, STREAM)
    roots = {OWN: tree.root, OTHER: bytes(32)}
    for begin, end in ((5, 18), (8, 11), (17, 18), (9, 9)):
        shown = streams_witness(roots, OWN, tree.witness(begin, end, STREAM[begin - 5 : end - 5]))
        mixed = build_tree({b"streams": shown, b"time": b"\x01"})
        payload, witness = split_hash_tree(mixed.left)  # type: ignore[union-attr]
        assert payload == payload_tree(OWN, tree.header, {i: STREAM[i - 5] for i in range(begin, end)})
        assert recompute_digest(payload, witness) == digest(build_tree({b"streams": streams_tree(roots)}))
    assert CURRENT == CertificationVersion.V25


def test_splitting_a_hash_tree_leaves_a_minimal_witness() -> None:
    gone = hash_tree.Pruned(bytes(32))
    padded = hash_tree.Fork(
        hash_tree.Labeled(b"a", hash_tree.Leaf(b"1")), hash_tree.Fork(hash_tree.Labeled(b"b", gone), gone)
    )
    payload, witness = split_hash_tree(padded)
    assert payload == subtree(a=TreeLeaf(b"1"))
    assert isinstance(witness, WitnessFork) and isinstance(witness.right, WitnessPruned)
    assert recompute_digest(payload, witness) == digest(padded)
    empty = hash_tree.Labeled(b"a", hash_tree.Empty())
    assert split_hash_tree(empty) == (subtree(a=subtree()), WitnessNode(b"a", KNOWN))


@pytest.mark.parametrize(
    "tree",
    [
        hash_tree.Pruned(bytes(32)),
        hash_tree.Fork(hash_tree.Leaf(b""), hash_tree.Pruned(bytes(32))),
        hash_tree.Fork(hash_tree.Labeled(b"a", hash_tree.Leaf(b"")), hash_tree.Empty()),
        hash_tree.Fork(hash_tree.Labeled(b"b", hash_tree.Leaf(b"")), hash_tree.Labeled(b"a", hash_tree.Leaf(b""))),
        hash_tree.Fork(hash_tree.Labeled(b"a", hash_tree.Leaf(b"")), hash_tree.Labeled(b"a", hash_tree.Leaf(b""))),
    ],
)
def test_hash_tree_of_no_map_is_not_split(tree: hash_tree.HashTree) -> None:
    with pytest.raises(DecodeError):
        split_hash_tree(tree)
