"""Certificates: proved values, malformed forms, and delegated signing."""

from __future__ import annotations

import pytest
from causeway_proofs.errors import InvalidInput
from causeway_proofs.ic import bls
from causeway_proofs.ic.bls import deal, seeded_coefficients
from causeway_proofs.ic.cbor_reader import SELF_DESCRIBED, cbor_bytes, cbor_head, cbor_text
from causeway_proofs.ic.certificate import (
    Certificate,
    Delegation,
    certification_message,
    decode_certificate,
    decode_ranges,
    encode_certificate,
)
from causeway_proofs.ic.certification import (
    Freshness,
    RangesForm,
    certify,
    delegate,
    derive_root_subnet,
    state_tree,
    verify_certificate,
)
from causeway_proofs.ic.errors import (
    CanisterOutOfRange,
    CanisterRangesNotProven,
    CertificateFromTheFuture,
    CertificateTooOld,
    InvalidSignature,
    MalformedCertificate,
    MalformedRanges,
    MalformedTime,
    PathNotProven,
    TooManyDelegations,
    WrongSubnet,
)
from causeway_proofs.ic.hash_tree import digest, encode_tree
from causeway_proofs.ic.lookup import prune
from causeway_proofs.ic.primitives import decode_leb128
from causeway_proofs.ic.stream_tree import index_label

from tests.support.ic.ic_certification import (
    BEGIN,
    CANISTER,
    CERTIFIED,
    MESSAGES,
    NOW,
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


def test_subnet_of_signers_certifies() -> None:
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
    verify_certificate(data, ROOT_KEY, subnet_id=derive_root_subnet(ROOT_KEY))
    verify_certificate(data, ROOT_KEY, subnet_id=OTHER_ID, root_subnet_id=OTHER_ID)
    with pytest.raises(WrongSubnet):
        verify_certificate(data, ROOT_KEY, subnet_id=SUBNET_ID)


def test_delegation_of_another_subnet_is_refused() -> None:
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


def test_certificate_without_its_time_is_refused() -> None:
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
def test_equivalent_forms_of_a_certificate(encoded: bytes) -> None:
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
def test_malformed_certificates_are_refused(encoded: bytes) -> None:
    with pytest.raises(MalformedCertificate):
        decode_certificate(encoded)


def test_malformed_ranges_and_times_are_refused() -> None:
    for encoded in ("", "f6", "8140", "818140", "81834040", "8182410140", "82824040", "8180", "9fff", "81824040ff"):
        with pytest.raises(MalformedRanges):
            decode_ranges(bytes.fromhex(encoded))
    with pytest.raises(MalformedRanges):
        decode_ranges(cbor_head(4, 1) + cbor_head(4, 2) + b"\x40" + cbor_bytes(bytes(30)))
    for encoded in ("", "80", "8000", "ffffffffffffffffff02", "ffffffffffffffffffff01", "0000"):
        with pytest.raises(MalformedTime):
            decode_leb128(bytes.fromhex(encoded))
    assert decode_leb128(bytes.fromhex("ffffffffffffffffff01")) == 2**64 - 1
