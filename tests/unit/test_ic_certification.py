"""Certification's edges: what lookups know, what keys and shares are refused, what a certificate may not be.

The figures are facts of the deployed system: the interface specification's example tree, and two of the public test
vectors of its signature scheme.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from py_arkworks_bls12381 import G1Point, G2Point

from causeway.commitments.errors import MalformedProof, OverLimit, ProofRefused
from causeway.commitments.ic import bls
from causeway.commitments.ic.cbor_reader import SELF_DESCRIBED, cbor_bytes, cbor_head, cbor_text
from causeway.commitments.ic.certificate import (
    Certificate,
    Delegation,
    certification_message,
    decode_certificate,
    encode_certificate,
)
from causeway.commitments.ic.certificate_errors import (
    CanisterOutOfRange,
    CanisterRangesNotProven,
    CertificateFromTheFuture,
    CertificateTooOld,
    DuplicateShare,
    InconsistentHashTrees,
    InvalidShare,
    InvalidShareIndex,
    InvalidSignature,
    MalformedCertificate,
    MalformedHashTree,
    MalformedKey,
    MalformedRanges,
    MalformedSignature,
    MalformedTime,
    NotWellFormed,
    PathNotProven,
    TooDeepRecursion,
    TooFewShares,
    TooManyDelegations,
    WrongSubnet,
)
from causeway.commitments.ic.certification import (
    Freshness,
    certify,
    root_subnet_of,
    state_tree,
    verify_certificate,
)
from causeway.commitments.ic.delegation import RangesForm, delegate
from causeway.commitments.ic.hash_tree import (
    EMPTY,
    Fork,
    HashTree,
    Labeled,
    Leaf,
    Pruned,
    build_tree,
    digest,
    leaves,
    merge,
    require_well_formed,
)
from causeway.commitments.ic.hash_tree_cbor import decode_tree, encode_tree
from causeway.commitments.ic.leb128 import decode_leb128
from causeway.commitments.ic.lookup import Status, lookup, lookup_subtree, path_steps, require_absent, require_value
from causeway.commitments.ic.pruning import prune
from causeway.commitments.ic.ranges import decode_ranges
from causeway.commitments.ic.stream_tree import MessagesTree, StreamTree, index_label, streams_tree, streams_witness
from causeway.commitments.ic.threshold import combine, deal, seeded_coefficients
from causeway.commitments.limits import MAX_DEPTH, MAX_PROOF_BYTES
from causeway.model.errors import IndexOverflow, InvalidInput
from tests.unit.ic_certification import (
    BEGIN,
    CANISTER,
    CERTIFIED,
    MESSAGES,
    NOW,
    OTHER,
    OTHER_ID,
    PATHS,
    ROOT,
    SUBNET,
    SUBNET_ID,
    SUBNETS,
    canister,
    certificate,
    state,
)

ROOT_KEY = ROOT.public_key()
HIDDEN = Pruned(bytes(32))


def labeled(label: bytes) -> Labeled:
    return Labeled(label, Leaf(b"value of " + label))


def deep(nodes: int) -> HashTree:
    tree: HashTree = Leaf(b"")
    for _ in range(nodes - 1):
        tree = Labeled(b"a", tree)
    return tree


def test_the_specifications_example() -> None:
    tree = Fork(
        Fork(
            Labeled(b"a", Fork(Fork(Labeled(b"x", Leaf(b"hello")), EMPTY), Labeled(b"y", Leaf(b"world")))),
            Labeled(b"b", Leaf(b"good")),
        ),
        Fork(Labeled(b"c", EMPTY), Labeled(b"d", Leaf(b"morning"))),
    )
    root = "eb5c5b2195e62d996b84c9bcc8259d19a83786a2f59e0878cec84c811f669aa0"
    assert digest(tree).hex() == root
    assert digest(EMPTY).hex() == "4e3ed35c4e2d1ee89996483fb6260a64cffb6c47dbab216e7930e82f8190d120"
    assert decode_tree(encode_tree(tree)) == tree
    assert [path for path, _ in leaves(tree)] == [(b"a", b"x"), (b"a", b"y"), (b"b",), (b"d",)]
    assert path_steps(tree, [b"a", b"y"])[-1].result.hex() == root
    absent = prune(tree, [[b"ax"]])
    assert digest(absent).hex() == root
    require_absent(absent, [b"ax"])


def test_a_known_signature() -> None:
    secret = bls.SecretKey.from_bytes(bytes.fromhex("6f3977f6051e184b2c412daa1b5c0115ef7ab347cac8d808ffa2c26bd0658243"))
    message = bytes.fromhex(
        "50484522ad8aede64ec7f86b9273b7ed3940481acf93cdd40a2b77f2be2734a14012b2492b6363b12adaeaf055c573e4"
        "611b085d2e0fe2153d72453a95eaebf350ac3ba6a26ba0bc79f4c0bf5664dfdf5865f69f7fc6b58ba7d068e8"
    )
    signature = "8f7ad830632657f7b3eae17fd4c3d9ff5c13365eea8d33fd0a1a6d8fbebc5152e066bb0ad61ab64e8a8541c8e3f96de9"
    assert secret.sign(message).hex() == signature
    bls.verify(bytes.fromhex(signature), message, secret.public_key())


@pytest.mark.parametrize(
    ("nodes", "asked", "status"),
    [
        ([labeled(b"b"), labeled(b"d")], b"c", Status.ABSENT),
        ([labeled(b"b"), labeled(b"d")], b"a", Status.ABSENT),
        ([labeled(b"b"), labeled(b"d")], b"e", Status.ABSENT),
        ([labeled(b"b"), labeled(b"d")], b"bb", Status.ABSENT),
        ([labeled(b"b"), labeled(b"d")], b"", Status.ABSENT),
        ([labeled(b"b"), HIDDEN, labeled(b"d")], b"c", Status.UNKNOWN),
        ([labeled(b"b"), HIDDEN, labeled(b"d")], b"a", Status.ABSENT),
        ([HIDDEN, labeled(b"b"), labeled(b"d")], b"a", Status.UNKNOWN),
        ([labeled(b"b"), labeled(b"d"), HIDDEN], b"e", Status.UNKNOWN),
        ([labeled(b"b"), EMPTY, labeled(b"d")], b"c", Status.ABSENT),
        ([labeled(b"b"), EMPTY, EMPTY], b"c", Status.ABSENT),
        ([HIDDEN, EMPTY], b"c", Status.UNKNOWN),
        ([HIDDEN], b"c", Status.UNKNOWN),
        ([EMPTY], b"c", Status.ABSENT),
        ([Leaf(b"value")], b"c", Status.ABSENT),
        ([labeled(b"b"), HIDDEN, labeled(b"d")], b"d", Status.FOUND),
        ([labeled(b"a"), labeled(b"ax")], b"ax", Status.FOUND),
        ([Labeled(b"b", EMPTY)], b"b", Status.ABSENT),
        ([Labeled(b"b", HIDDEN)], b"b", Status.UNKNOWN),
        ([Labeled(b"b", labeled(b"c"))], b"b", Status.ERROR),
        ([Labeled(b"b", Fork(labeled(b"c"), labeled(b"d")))], b"b", Status.ERROR),
    ],
)
def test_lookup(nodes: list[HashTree], asked: bytes, status: Status) -> None:
    tree = nodes[0]
    for node in nodes[1:]:
        tree = Fork(tree, node)
    assert lookup(tree, [asked]).status is status
    if status is Status.ABSENT:
        require_absent(tree, [asked])
        assert lookup(prune(tree, [[asked]]), [asked]).status is Status.ABSENT
    else:
        with pytest.raises(PathNotProven):
            require_absent(tree, [asked])
    if status is not Status.FOUND:
        with pytest.raises(PathNotProven):
            require_value(tree, [asked])


def test_a_subtree_is_found_as_such() -> None:
    tree = build_tree({b"a": {b"b": b"c"}})
    assert lookup_subtree(tree, [b"a"]).subtree == Labeled(b"b", Leaf(b"c"))
    assert lookup_subtree(tree, [b"z"]).status is Status.ABSENT
    with pytest.raises(PathNotProven):
        prune(Labeled(b"a", HIDDEN), [[b"a"]])
    with pytest.raises(PathNotProven):
        path_steps(Fork(HIDDEN, labeled(b"b")), [b"a"])


def test_an_empty_node_is_not_hidden_where_its_fork_is_shown() -> None:
    tree = Fork(labeled(b"a"), EMPTY)
    assert prune(tree, [[b"a"]]) == tree
    assert prune(Fork(tree, labeled(b"b")), [[b"b"]]) == Fork(Pruned(digest(tree)), labeled(b"b"))


@pytest.mark.parametrize(
    "tree",
    [
        Fork(labeled(b"b"), labeled(b"a")),
        Fork(labeled(b"a"), labeled(b"a")),
        Fork(Fork(labeled(b"a"), HIDDEN), Fork(labeled(b"c"), labeled(b"b"))),
        Fork(labeled(b"a"), Leaf(b"")),
        Labeled(b"a", Fork(Leaf(b""), EMPTY)),
    ],
)
def test_trees_that_no_map_has_are_refused(tree: HashTree) -> None:
    with pytest.raises(NotWellFormed):
        require_well_formed(tree)
    with pytest.raises(NotWellFormed):
        decode_tree(encode_tree(tree))


def test_depth_is_bounded() -> None:
    assert decode_tree(encode_tree(deep(MAX_DEPTH))) == deep(MAX_DEPTH)
    for tree in (deep(MAX_DEPTH + 1), deep(100_000)):
        with pytest.raises(TooDeepRecursion):
            decode_tree(encode_tree(tree))
    with pytest.raises(TooDeepRecursion):
        decode_tree(b"\x83\x01" * 1_000_000)
    with pytest.raises(OverLimit):
        decode_tree(b"\x82\x03" + cbor_bytes(bytes(MAX_PROOF_BYTES)))
    with pytest.raises(OverLimit):
        decode_certificate(bytes(MAX_PROOF_BYTES + 1))


@pytest.mark.parametrize(
    "encoded",
    [
        "",
        "80",
        "8100ff",
        "8101",
        "820300",
        "8203",
        "820341",
        "82044100",
        "830180",
        "83024100",
        "8105",
        "820500",
        "a0",
        "9f00ff",
        "981800",
        "9800",
        "811800",
        "82035801aa",
        "82035f41aaff",
        "82036161",
        "8300",
        "c08100",
        "8103",
        "82035bffffffffffffffff",
        "820020",
    ],
)
def test_what_is_no_hash_tree(encoded: str) -> None:
    with pytest.raises(MalformedHashTree):
        decode_tree(bytes.fromhex(encoded))


def test_merging_prunings_of_different_trees_is_refused() -> None:
    one, other = build_tree({b"a": b"1", b"b": b"2"}), build_tree({b"a": b"1", b"b": b"3"})
    with pytest.raises(InconsistentHashTrees):
        merge(one, other)
    with pytest.raises(InconsistentHashTrees):
        merge(one, HIDDEN)


def outside_subgroup(read: Callable[[bytes], Any], length: int) -> bytes:
    """A point that lies on the curve and not in the subgroup, as nearly all do that were not made from it."""
    for at in range(1, 100):
        data = b"\x80" + at.to_bytes(length - 1, "big")
        try:
            point = read(data)
        except ValueError:
            continue
        if not point.is_in_subgroup():
            return data
    raise AssertionError("no such point among the first hundred")


def test_points_of_strangers() -> None:
    signature, key = SUBNET.sign(b"m"), SUBNET.public_key()
    identity_signature = G1Point.identity().to_compressed_bytes()
    outside = outside_subgroup(G1Point.from_compressed_bytes_unchecked, 48)
    unreduced = b"\x9f" + b"\xff" * 47
    for wrong in (
        b"",
        signature[:-1],
        signature + b"\0",
        identity_signature,
        outside,
        unreduced,
        b"\xff" * 48,
        bytes(48),
    ):
        with pytest.raises(MalformedSignature):
            bls.verify(wrong, b"m", key)
    identity_key = G2Point.identity().to_compressed_bytes()
    outside = outside_subgroup(G2Point.from_compressed_bytes_unchecked, 96)
    for wrong in (
        b"",
        key[:-1],
        key + b"\0",
        identity_key,
        outside,
        b"\xff" * 96,
        bytes(96),
        b"\xc0" + bytes(94) + b"\1",
    ):
        with pytest.raises(MalformedKey):
            bls.verify(signature, b"m", wrong)
    # The other point with the same coordinate is a signature, of nothing that was signed.
    with pytest.raises(InvalidSignature):
        bls.verify(bytes([signature[0] ^ 0x20]) + signature[1:], b"m", key)


def test_secret_keys_stay_in_their_bounds_and_out_of_logs() -> None:
    for number in (0, -1, bls.ORDER):
        with pytest.raises(InvalidInput):
            bls.SecretKey(number)
    with pytest.raises(InvalidInput):
        bls.SecretKey.from_bytes(b"\x01")
    assert bls.SecretKey.from_bytes(SUBNET.to_bytes()) == SUBNET
    assert str(SUBNET.number) not in repr(deal(SUBNET, 1, 1))
    assert bls.SecretKey.generate() != bls.SecretKey.generate()


def test_keys_in_der() -> None:
    der = bls.public_key_to_der(ROOT_KEY)
    assert len(der) == 133 and bls.public_key_from_der(der) == ROOT_KEY
    for wrong in (der[:-1], der + b"\0", b"\x31" + der[1:], ROOT_KEY):
        with pytest.raises(MalformedKey):
            bls.public_key_from_der(wrong)
    with pytest.raises(MalformedKey):
        bls.public_key_to_der(der)


def test_aggregates_that_mean_nothing_are_refused() -> None:
    key, negative = SUBNET, bls.SecretKey(bls.ORDER - SUBNET.number)
    with pytest.raises(ProofRefused):
        bls.aggregate_public_keys([key.public_key(), negative.public_key()])
    with pytest.raises(ProofRefused):
        bls.aggregate_signatures([])
    signature = bls.aggregate_signatures([key.sign(b"m"), OTHER.sign(b"m")])
    for messages, keys in (
        ([b"m", b"m"], [key.public_key(), OTHER.public_key()]),
        ([b"m"], [key.public_key(), OTHER.public_key()]),
        ([], []),
    ):
        with pytest.raises(ProofRefused):
            bls.verify_aggregate(signature, messages, keys)


def test_shares_that_do_not_make_a_signature() -> None:
    dealing = deal(SUBNET, 3, 5, seeded_coefficients(b"seed", 3))
    assert deal(SUBNET, 3, 5, seeded_coefficients(b"seed", 3)) == dealing
    assert deal(SUBNET, 3, 5).secrets != dealing.secrets
    shares = [(index, secret.sign(b"m")) for index, secret in enumerate(dealing.secrets, 1)]
    assert dealing.key.combine([shares[4], shares[0], shares[2]], b"m") == SUBNET.sign(b"m")
    with pytest.raises(TooFewShares):
        dealing.key.combine(shares[:2], b"m")
    with pytest.raises(DuplicateShare):
        dealing.key.combine([shares[0], shares[1], shares[0]], b"m")
    for index in (0, -1, 6):
        with pytest.raises(InvalidShareIndex):
            dealing.key.combine([*shares[:2], (index, shares[2][1])], b"m")
    with pytest.raises(InvalidShareIndex):
        combine([*shares[:2], (0, shares[2][1])], 3)
    with pytest.raises(InvalidShare, match="signer 2"):
        dealing.key.combine([shares[0], (2, shares[2][1]), shares[3]], b"m")
    with pytest.raises(InvalidShare):
        dealing.key.verify_share(1, shares[0][1], b"other")
    with pytest.raises(InvalidShare):
        dealing.key.verify_share(1, b"", b"m")


def test_sharings_that_do_not_fit_together() -> None:
    for threshold, signers in ((0, 1), (2, 1), (1, 0), (1, 1 << 17)):
        with pytest.raises(InvalidInput):
            deal(SUBNET, threshold, signers)
    with pytest.raises(InvalidInput):
        deal(SUBNET, 3, 5, seeded_coefficients(b"seed", 2))
    # 2 - 1 * 2 is nobody's share.
    with pytest.raises(InvalidInput):
        deal(bls.SecretKey(2), 2, 2, [bls.SecretKey(bls.ORDER - 1)])
    mine = deal(SUBNET, 2, 3, seeded_coefficients(b"a", 2)).key
    theirs = deal(OTHER, 2, 3, seeded_coefficients(b"b", 2)).key
    mine.require_consistent()
    for mixed in (
        type(mine)(2, theirs.public_key, mine.share_keys),
        type(mine)(2, mine.public_key, (*mine.share_keys[:2], theirs.share_keys[2])),
    ):
        with pytest.raises(InvalidSignature):
            mixed.require_consistent()


def test_a_subnet_of_signers_certifies() -> None:
    dealing = deal(ROOT, 3, 4, seeded_coefficients(b"seed", 3))

    def sign(message: bytes) -> bytes:
        shares = [(index, secret.sign(message)) for index, secret in enumerate(dealing.secrets, 1)]
        return dealing.key.combine(shares[1:], message)

    assert encode_certificate(certify(prune(state(), PATHS), sign)) == certificate(None)


@pytest.mark.parametrize("form", list(RangesForm))
def test_certificates_with_a_delegation(form: RangesForm) -> None:
    data = certificate(form)
    found = verify_certificate(data, ROOT_KEY, subnet_id=SUBNET_ID)
    assert found.time == NOW and found.subnet_id == SUBNET_ID and found.root_digest == digest(state())
    assert found.value(CERTIFIED) == bytes([305 % 256])
    assert found.value([b"streams", OTHER_ID, b"messages", index_label(BEGIN + 1)]) == MESSAGES[1]
    found.require_absent([b"canister", canister(299)])
    operations = [step.operation for step in found.explain(CERTIFIED)]
    assert operations[0] == "leaf" and operations[-5:] == ["root", "signature", "delegation", "root", "signature"]
    with pytest.raises(PathNotProven):
        found.value([b"metadata", b"height"])
    if form is RangesForm.NONE:
        with pytest.raises(CanisterRangesNotProven):
            verify_certificate(data, ROOT_KEY, canister_id=CANISTER)
    else:
        verify_certificate(data, bls.public_key_to_der(ROOT_KEY), canister_id=CANISTER)
        with pytest.raises(CanisterOutOfRange):
            verify_certificate(data, ROOT_KEY, canister_id=canister(5000))
    with pytest.raises(WrongSubnet):
        verify_certificate(data, ROOT_KEY, subnet_id=OTHER_ID)
    with pytest.raises(InvalidSignature):
        verify_certificate(data, SUBNET.public_key())


def test_certificates_of_the_root_subnet() -> None:
    data = certificate(None)
    assert verify_certificate(data, ROOT_KEY, canister_id=CANISTER).subnet_id is None
    verify_certificate(data, ROOT_KEY, subnet_id=root_subnet_of(ROOT_KEY))
    verify_certificate(data, ROOT_KEY, subnet_id=OTHER_ID, root_subnet_id=OTHER_ID)
    with pytest.raises(WrongSubnet):
        verify_certificate(data, ROOT_KEY, subnet_id=SUBNET_ID)


def test_a_delegation_for_another_subnet_does_not_help() -> None:
    tree = prune(state(), PATHS)
    lent = delegate(SUBNETS, OTHER_ID, NOW, ROOT.sign)
    with pytest.raises(InvalidSignature):
        verify_certificate(encode_certificate(certify(tree, SUBNET.sign, lent)), ROOT_KEY)
    renamed = Delegation(SUBNET_ID, lent.certificate)
    with pytest.raises(PathNotProven):
        verify_certificate(encode_certificate(certify(tree, SUBNET.sign, renamed)), ROOT_KEY)
    unsigned = delegate(SUBNETS, SUBNET_ID, NOW, SUBNET.sign)
    with pytest.raises(InvalidSignature):
        verify_certificate(encode_certificate(certify(tree, SUBNET.sign, unsigned)), ROOT_KEY)
    nested = Delegation(SUBNET_ID, certificate())
    with pytest.raises(TooManyDelegations):
        verify_certificate(encode_certificate(certify(tree, SUBNET.sign, nested)), ROOT_KEY)
    with pytest.raises(InvalidInput):
        delegate(SUBNETS, b"nobody", NOW, ROOT.sign)
    with pytest.raises(InvalidInput):
        delegate(SUBNETS, SUBNET_ID, NOW, ROOT.sign, canister_id=canister(1))


def test_freshness() -> None:
    data = certificate()
    verify_certificate(data, ROOT_KEY, freshness=Freshness(NOW + 5, 5, 0, 5))
    verify_certificate(data, ROOT_KEY, freshness=Freshness(NOW - 5, 0, 5))
    with pytest.raises(CertificateTooOld):
        verify_certificate(data, ROOT_KEY, freshness=Freshness(NOW + 6, 5))
    with pytest.raises(CertificateFromTheFuture):
        verify_certificate(data, ROOT_KEY, freshness=Freshness(NOW - 6, 5, 5))
    with pytest.raises(CertificateTooOld, match="delegation"):
        verify_certificate(data, ROOT_KEY, freshness=Freshness(NOW + 6, 10, 0, 5))


def test_a_certificate_without_its_time_is_refused() -> None:
    tree = prune(state(), [CERTIFIED])
    with pytest.raises(PathNotProven):
        certify(tree, ROOT.sign)
    signature = ROOT.sign(certification_message(digest(tree)))
    with pytest.raises(PathNotProven):
        verify_certificate(encode_certificate(Certificate(tree, signature)), ROOT_KEY)
    with pytest.raises(InvalidInput):
        state_tree({b"time": b""}, 1)


def entry(name: str, value: bytes) -> bytes:
    return cbor_text(name) + value


TREE = entry("tree", encode_tree(prune(state(), PATHS)))
SIGNATURE = entry("signature", cbor_bytes(decode_certificate(certificate(None)).signature))
NO_DELEGATION = entry("delegation", b"\xf6")


@pytest.mark.parametrize(
    "encoded",
    [
        cbor_head(5, 2) + TREE + SIGNATURE,
        SELF_DESCRIBED + cbor_head(5, 3) + TREE + SIGNATURE + NO_DELEGATION,
        cbor_head(5, 3) + NO_DELEGATION + SIGNATURE + TREE,
    ],
)
def test_forms_of_the_same_certificate(encoded: bytes) -> None:
    assert decode_certificate(encoded) == decode_certificate(certificate(None))
    verify_certificate(encoded, ROOT_KEY)


@pytest.mark.parametrize(
    "encoded",
    [
        b"",
        SELF_DESCRIBED,
        SELF_DESCRIBED * 2 + cbor_head(5, 2) + TREE + SIGNATURE,
        cbor_head(5, 1) + TREE,
        cbor_head(5, 1) + SIGNATURE,
        cbor_head(5, 3) + TREE + SIGNATURE + SIGNATURE,
        cbor_head(5, 3) + TREE + SIGNATURE + entry("padding", b"\xf6"),
        cbor_head(5, 3) + TREE + SIGNATURE + entry("delegation", b"\xf7"),
        cbor_head(5, 3) + TREE + SIGNATURE + entry("delegation", b"\xa0"),
        cbor_head(5, 3) + TREE + SIGNATURE + entry("delegation", b"\xa1" + entry("subnet_id", b"\x40")),
        cbor_head(5, 3)
        + TREE
        + SIGNATURE
        + entry("delegation", b"\xa2" + entry("subnet_id", cbor_bytes(bytes(30))) + entry("certificate", b"\x40")),
        cbor_head(5, 3) + TREE + SIGNATURE + entry("delegation", b"\xa2" + entry("subnet_id", b"\x40") * 2),
        cbor_head(5, 2) + TREE + entry("signature", b"\xf6"),
        cbor_head(5, 2) + TREE + SIGNATURE + b"\0",
        b"\xbf" + TREE + SIGNATURE + b"\xff",
        b"\xb8\x02" + TREE + SIGNATURE,
        cbor_head(4, 2) + TREE + SIGNATURE,
        cbor_head(5, 1) + b"\x61\xff" + SIGNATURE,
    ],
)
def test_what_is_no_certificate(encoded: bytes) -> None:
    with pytest.raises(MalformedCertificate):
        decode_certificate(encoded)


def test_what_are_no_ranges_and_no_time() -> None:
    for encoded in ("", "f6", "8140", "818140", "81834040", "8182410140", "82824040", "8180", "9fff", "81824040ff"):
        with pytest.raises(MalformedRanges):
            decode_ranges(bytes.fromhex(encoded))
    with pytest.raises(MalformedRanges):
        decode_ranges(cbor_head(4, 1) + cbor_head(4, 2) + b"\x40" + cbor_bytes(bytes(30)))
    for encoded in ("", "80", "8000", "ffffffffffffffffff02", "ffffffffffffffffffff01", "0000"):
        with pytest.raises(MalformedTime):
            decode_leb128(bytes.fromhex(encoded))
    assert decode_leb128(bytes.fromhex("ffffffffffffffffff01")) == 2**64 - 1


def test_streams_in_the_tree() -> None:
    stream = StreamTree(b"header", BEGIN, MESSAGES)
    content = {index_label(BEGIN + at): message for at, message in enumerate(MESSAGES)}
    assert stream.root == digest(build_tree({b"header": b"header", b"messages": content}))
    shown = stream.witness(BEGIN, BEGIN + 2, MESSAGES[:2])
    assert digest(shown) == stream.root
    assert [path[-1] for path, _ in leaves(shown)] == [b"header", index_label(BEGIN), index_label(BEGIN + 1)]
    header_only = stream.witness(BEGIN + 2, BEGIN + 2, [])
    assert digest(header_only) == stream.root and len(list(leaves(header_only))) == 1
    stream.messages.trim(stream.messages.end)
    assert stream.root == digest(build_tree({b"header": b"header"}))
    assert stream.witness(BEGIN + 5, BEGIN + 5, []) == Labeled(b"header", Leaf(b"header"))
    roots = {SUBNET_ID: stream.root, OTHER_ID: bytes(32)}
    whole = streams_tree(roots)
    witness = streams_witness(roots, SUBNET_ID, stream.witness(BEGIN + 5, BEGIN + 5, []))
    assert digest(witness) == digest(whole) and require_value(witness, [SUBNET_ID, b"header"]) == b"header"
    for wrong in (OTHER_ID, b"nobody"):
        with pytest.raises(InvalidInput):
            streams_witness(roots, wrong, shown)


def test_stream_bounds() -> None:
    with pytest.raises(IndexOverflow):
        MessagesTree(1 << 64)
    with pytest.raises(IndexOverflow):
        MessagesTree((1 << 64) - 3, [b""] * 3)
    last = MessagesTree((1 << 64) - 3, [b"a", b"b"])
    assert last.end == (1 << 64) - 1
    assert last.root == digest(build_tree({index_label((1 << 64) - 3): b"a", index_label((1 << 64) - 2): b"b"}))
    tree = MessagesTree(5, MESSAGES)
    for begin in (4, 11):
        with pytest.raises(InvalidInput):
            tree.trim(begin)
    for begin, end in ((4, 6), (6, 11), (7, 6)):
        with pytest.raises(InvalidInput):
            tree.witness(begin, end, [])


def test_pruned_nodes_hold_digests() -> None:
    with pytest.raises(MalformedProof):
        Pruned(b"short")
