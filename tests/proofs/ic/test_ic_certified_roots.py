"""Batch verification of state signatures: errors as one by one, no repeated verification."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from causeway_proofs.errors import ProofError
from causeway_proofs.ic import bls, certification
from causeway_proofs.ic.certificate import certification_message, verify_state_root
from causeway_proofs.ic.certification import VerifiedRoots, verify_certifications
from causeway_proofs.ic.errors import InvalidSignature, MalformedKey, MalformedSignature
from py_arkworks_bls12381 import G1Point, G2Point

from tests.oracles.ic.aggregates import aggregate_signatures, verify_aggregate

SECRETS = [bls.SecretKey.derive(bytes([number])) for number in range(5)]
KEYS = [secret.public_key() for secret in SECRETS]
ROOTS = [bytes([number]) * 32 for number in range(5)]
SIGNATURES = [secret.sign(certification_message(root)) for secret, root in zip(SECRETS, ROOTS, strict=True)]


def texts(errors: list[ProofError | None]) -> list[str | None]:
    return [None if error is None else f"{type(error).__name__}: {error}" for error in errors]


def one_by_one(roots: Sequence[bytes], signatures: Sequence[bytes], keys: Sequence[bytes]) -> list[str | None]:
    found: list[ProofError | None] = []
    for root, signature, key in zip(roots, signatures, keys, strict=True):
        try:
            verify_state_root(root, signature, key)
        except ProofError as error:
            found.append(error)
        else:
            found.append(None)
    return texts(found)


def test_valid_signatures_verify_together() -> None:
    verified = VerifiedRoots()
    assert verify_certifications(ROOTS, SIGNATURES, KEYS, verified) == [None] * 5
    assert len(verified) == 5
    assert verify_certifications([], [], [], verified) == []
    again = SECRETS[0].sign(certification_message(ROOTS[1]))
    both = ([*ROOTS, ROOTS[1], ROOTS[0]], [*SIGNATURES, again, SIGNATURES[0]], [*KEYS, KEYS[0], KEYS[0]])
    assert verify_certifications(*both, VerifiedRoots()) == [None] * 7, "two roots of one key, and one twice"


def test_each_failed_signature_is_named_as_one_by_one() -> None:
    signatures, keys = list(SIGNATURES), list(KEYS)
    signatures[1], signatures[2] = signatures[2], signatures[1]
    assert (found := texts(verify_certifications(ROOTS, signatures, keys, VerifiedRoots()))) == one_by_one(
        ROOTS, signatures, keys
    )
    assert [text is None for text in found] == [True, False, False, True, True]
    dirty = bytearray(SIGNATURES[4])
    dirty[0] |= 0x40
    keys[0] = G2Point.identity().to_compressed_bytes()
    hostile = [SIGNATURES[0], G1Point.identity().to_compressed_bytes(), SIGNATURES[2], b"short", bytes(dirty)]
    verified = VerifiedRoots()
    errors = verify_certifications(ROOTS, hostile, keys, verified)
    assert texts(errors) == one_by_one(ROOTS, hostile, keys)
    kinds = [MalformedKey, MalformedSignature, type(None), MalformedSignature, MalformedSignature]
    assert [type(error) for error in errors] == kinds
    assert len(verified) == 1


def test_mutually_cancelling_errors_are_found() -> None:
    """Two wrong signatures with the right sum: without coefficients they would pass."""
    error = G1Point()
    first = bls.signature_point(SIGNATURES[0]) + error
    second = bls.signature_point(SIGNATURES[1]) - error
    shifted = [first.to_compressed_bytes(), second.to_compressed_bytes()]
    total = aggregate_signatures(shifted)
    verify_aggregate(total, [certification_message(root) for root in ROOTS[:2]], KEYS[:2])
    errors = verify_certifications(ROOTS[:2], shifted, KEYS[:2], VerifiedRoots())
    assert [type(error) for error in errors] == [InvalidSignature, InvalidSignature]


def test_valid_signatures_are_verified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    verified = VerifiedRoots(most=4)
    counted: list[int] = []

    def counting(points: Sequence[Any], messages: Sequence[bytes], keys: Sequence[bytes]) -> bool:
        counted.append(len(points))
        return bls.is_each_signed(points, messages, keys)

    monkeypatch.setattr(certification, "is_each_signed", counting)
    verify_certifications(ROOTS[:4], SIGNATURES[:4], KEYS[:4], verified)
    verify_certifications(ROOTS[:4], SIGNATURES[:4], KEYS[:4], verified)
    assert counted == [4]
    false = [SIGNATURES[1], SIGNATURES[0]]
    for _ in range(2):
        errors = verify_certifications(ROOTS[:2], false, KEYS[:2], verified)
        assert [type(error) for error in errors] == [InvalidSignature] * 2, "what fails is never remembered"
    assert counted == [4, 2, 2]
    verify_certifications(ROOTS[:1], SIGNATURES[:1], KEYS[:1], verified)
    verify_certifications(ROOTS[4:], SIGNATURES[4:], KEYS[4:], verified)
    assert len(verified) == 4
    assert (ROOTS[0], SIGNATURES[0], KEYS[0]) in verified and (ROOTS[1], SIGNATURES[1], KEYS[1]) not in verified
