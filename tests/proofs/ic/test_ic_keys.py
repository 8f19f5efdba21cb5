"""Refused keys, signatures and shares; a known signature of the public test vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from causeway_proofs.errors import InvalidInput, NotProven
from causeway_proofs.ic import bls
from causeway_proofs.ic.bls import combine, deal, seeded_coefficients
from causeway_proofs.ic.errors import (
    DuplicateShare,
    InvalidShare,
    InvalidShareIndex,
    InvalidSignature,
    MalformedKey,
    MalformedSignature,
    TooFewShares,
)
from py_arkworks_bls12381 import G1Point, G2Point

from tests.oracles.ic.aggregates import aggregate_public_keys, aggregate_signatures, verify_aggregate
from tests.support.ic.ic_certification import OTHER, ROOT, SUBNET

ROOT_KEY = ROOT.public_key()


def test_known_signature() -> None:
    secret = bls.SecretKey.from_bytes(bytes.fromhex("6f3977f6051e184b2c412daa1b5c0115ef7ab347cac8d808ffa2c26bd0658243"))
    message = bytes.fromhex(
        "50484522ad8aede64ec7f86b9273b7ed3940481acf93cdd40a2b77f2be2734a14012b2492b6363b12adaeaf055c573e4"
        "611b085d2e0fe2153d72453a95eaebf350ac3ba6a26ba0bc79f4c0bf5664dfdf5865f69f7fc6b58ba7d068e8"
    )
    signature = "8f7ad830632657f7b3eae17fd4c3d9ff5c13365eea8d33fd0a1a6d8fbebc5152e066bb0ad61ab64e8a8541c8e3f96de9"
    assert secret.sign(message).hex() == signature
    bls.verify(bytes.fromhex(signature), message, secret.public_key())


def outside_subgroup(read: Callable[[bytes], Any], length: int) -> bytes:
    """A point on the curve but not in the subgroup, like nearly all points not derived from it."""
    for at in range(1, 100):
        data = b"\x80" + at.to_bytes(length - 1, "big")
        try:
            point = read(data)
        except ValueError:
            continue
        if not point.is_in_subgroup():
            return data
    raise AssertionError("no such point among the first hundred")


def test_untrusted_points() -> None:
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
    # The other point with the same coordinate is a signature, but of no signed message.
    with pytest.raises(InvalidSignature):
        bls.verify(bytes([signature[0] ^ 0x20]) + signature[1:], b"m", key)


def test_secret_keys_stay_in_range_and_out_of_logs() -> None:
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


def test_meaningless_aggregates_are_refused() -> None:
    key, negative = SUBNET, bls.SecretKey(bls.ORDER - SUBNET.number)
    with pytest.raises(NotProven):
        aggregate_public_keys([key.public_key(), negative.public_key()])
    with pytest.raises(NotProven):
        aggregate_signatures([])
    signature = aggregate_signatures([key.sign(b"m"), OTHER.sign(b"m")])
    for messages, keys in (
        ([b"m", b"m"], [key.public_key(), OTHER.public_key()]),
        ([b"m"], [key.public_key(), OTHER.public_key()]),
        ([], []),
    ):
        with pytest.raises(NotProven):
            verify_aggregate(signature, messages, keys)


def test_shares_without_a_common_signature_are_refused() -> None:
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


def test_inconsistent_sharings_are_refused() -> None:
    for threshold, signers in ((0, 1), (2, 1), (1, 0), (1, 1 << 17)):
        with pytest.raises(InvalidInput):
            deal(SUBNET, threshold, signers)
    with pytest.raises(InvalidInput):
        deal(SUBNET, 3, 5, seeded_coefficients(b"seed", 2))
    # 2 - 1 * 2 is no share.
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
