"""Certification of states of a run: signers, excluded shares, missing certifications."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from causeway_proofs.errors import InvalidInput, MalformedProof, OverLimit
from causeway_proofs.ic.bls import SecretKey
from causeway_proofs.ic.certificate import verify_state_root
from causeway_proofs.ic.errors import DecodeFailed, InvalidSignature
from causeway_proofs.ic.slice import Certification, decode_certification, encode_certification

from causeway.protocols.ic.options import IcOptions
from causeway.protocols.ic.subnet_keys import (
    CertificationTask,
    Certifier,
    ShareFaults,
    rotate_signers,
    signing_threshold,
)
from causeway.protocols.shared.secrets import NotAsRecorded, Secrets

NUMBERS = np.array([258, 3], dtype=np.uint64)
ROOT = bytes(range(32))
WHOLE = Certifier(NUMBERS, 5, IcOptions(certification="bls"))
SHARED = Certifier(NUMBERS, 5, IcOptions(certification="threshold", nodes=7))


def verified(certifier: Certifier, encoded: bytes | None, position: int = 0) -> Certification:
    assert encoded is not None
    certification = decode_certification(encoded)
    verify_state_root(certification.root_hash, certification.signature, certifier.public_key(position))
    return certification


def test_one_key_and_any_nodes_make_the_same_certification() -> None:
    whole = WHOLE.certify(0, 9, ROOT, b"witness")
    assert verified(WHOLE, whole.certification) == Certification(
        9, ROOT, decode_certification(whole.certification or b"").signature, None, b"witness"
    )
    for height in (9, 10, 11):
        shared = SHARED.certify(0, height, ROOT, b"witness")
        assert shared.false_shares == ()
        assert verified(SHARED, shared.certification).signature == verified(WHOLE, whole.certification).signature
    other = replace(SHARED, nodes=[(2, 5, 8, 11), (1,)])
    assert other.certify(0, 9, ROOT, b"witness") == whole
    with pytest.raises(InvalidSignature):
        verified(WHOLE, whole.certification, 1)
    with pytest.raises(InvalidSignature):
        verified(replace(WHOLE, seed=6), whole.certification)


def test_keys_are_derived_from_the_seed_and_constant() -> None:
    """A lake of an earlier run is replayed with the keys of its signatures."""
    assert WHOLE.public_key(0)[:8].hex() == "ac376e3b97727a77"
    assert SHARED.public_key(0) == WHOLE.public_key(0) != WHOLE.public_key(1)


def test_false_shares_are_detected_named_and_excluded() -> None:
    """Of seven nodes five sign; height 14 begins with the first one, and the last two are asked only if needed."""
    assert (
        signing_threshold(7) == 5
        and rotate_signers(7, 14) == [1, 2, 3, 4, 5, 6, 7]
        and rotate_signers(7, 16)[:2] == [3, 4]
    )
    good = SHARED.certify(0, 14, ROOT)

    def with_faults(false: set[int], silent: set[int], height: int = 14) -> tuple[bool, tuple[int, ...]]:
        faults = ShareFaults(frozenset((258, node) for node in false), frozenset((258, node) for node in silent))
        found = replace(SHARED, faults=faults).certify(0, height, ROOT)
        if found.certification is not None and height == 14:
            assert found.certification == good.certification
        return found.certification is not None, found.false_shares

    assert with_faults({2}, set()) == (True, (2,))
    assert with_faults({4, 1}, set()) == (True, (1, 4))
    assert with_faults(set(), {0, 6}) == (True, ())
    assert with_faults({3}, {0}) == (True, (3,))
    assert with_faults({6}, set()) == (True, ()), "nobody asked for it"
    assert with_faults({6}, set(), 20) == (True, (6,)), "at another height it comes first"
    assert with_faults({6, 5}, {0}) == (False, (5, 6))
    assert with_faults(set(), {0, 1, 2}) == (False, ())
    assert with_faults({0, 1}, {2}) == (False, (0, 1))
    assert with_faults(set(range(7)), set()) == (False, tuple(range(7)))
    others = ShareFaults(frozenset((3, node) for node in range(7)))
    assert replace(SHARED, faults=others).certify(0, 14, ROOT) == good


def test_recorded_certifications_replay_the_signatures_of_the_key() -> None:
    secret = SecretKey.derive(b"of a file")
    key = secret.public_key()
    drawn = random.Random(7)
    for mode, nodes in (("bls", 4), *(("threshold", nodes) for nodes in (1, 2, 4, 7))):
        options = IcOptions.model_validate({"certification": mode, "nodes": nodes})
        for height in range(4 if mode == "threshold" else 1):
            kinds = [drawn.choice(["good", "good", "false", "silent"]) for _ in range(nodes)]
            of = {kind: frozenset((3, node) for node in range(nodes) if kinds[node] == kind) for kind in kinds}
            faults = ShareFaults(of.get("false", frozenset()), of.get("silent", frozenset()))
            known = Secrets({key: secret.to_bytes()})
            signing = Certifier(NUMBERS, 5, options, faults=faults, listed={1: key}, secrets=known)
            due = [CertificationTask(1, height, ROOT, b"witness"), CertificationTask(0, height, ROOT)]
            made = signing.certify_all(due)
            headers = {12: {1: made[0].certification or b""}}
            again = replace(signing, secrets=Secrets(certifications=headers.__getitem__), round=12)
            assert again.certify_all(due) == made
            if made[0].certification is None:
                continue
            verified(again, made[0].certification, 1)
            # It is no certification of another state: the root differs.
            assert again.certify(1, height, bytes(32)).certification is None
            whole = replace(again, options=IcOptions(certification="bls"))
            with pytest.raises(NotAsRecorded, match=f"of height {height + 1} of subnet 3 is of height {height}"):
                whole.certify(1, height + 1, ROOT)


def test_certifications_of_many_states_equal_those_of_one_by_one() -> None:
    faults = ShareFaults(frozenset({(3, 1), (4, 0), (4, 1), (4, 2)}), frozenset({(5, 0), (5, 1), (5, 2)}))
    for mode in ("bls", "threshold"):
        options = IcOptions.model_validate({"certification": mode, "nodes": 7})
        network = Certifier(np.arange(7, dtype=np.uint64), 5, options, faults=faults)
        due = [
            CertificationTask(at, 14 + at % 2, bytes([at]) * 32, None if at % 2 else b"witness")
            for at in (6, 5, 4, 3, 0)
        ]
        found = network.certify_all(due)
        assert found == [network.certify(one.position, one.height, one.root, one.height_witness) for one in due]
        for one, made in zip(due, found, strict=True):
            if made.certification is not None:
                held = verified(network, made.certification, one.position)
                assert (held.height, held.root_hash, held.height_witness) == (one.height, one.root, one.height_witness)
        expected = [True, mode == "bls", mode == "bls", True, True]
        assert [made.certification is not None for made in found] == expected
        assert (
            [made.false_shares for made in found] == [(), (), (0, 1, 2), (1,), ()] if mode == "threshold" else [()] * 5
        )
    assert network.certify_all([]) == []


def test_subnet_of_one_node_and_of_none() -> None:
    alone = replace(SHARED, nodes=[(4,), ()])
    assert alone.certify(0, 1, ROOT).certification == WHOLE.certify(0, 1, ROOT).certification
    assert alone.certify(1, 1, ROOT).certification is None
    assert [signing_threshold(nodes) for nodes in (1, 2, 3, 4, 6, 7, 13, 28, 40)] == [1, 1, 1, 3, 3, 5, 9, 19, 27]


def test_externally_certified_subnet_has_the_key_of_the_scenario() -> None:
    key = WHOLE.public_key(1)
    mixed = replace(WHOLE, external={0: key})
    assert mixed.public_key(0) == key
    with pytest.raises(InvalidInput, match="subnet 258 certifies elsewhere"):
        mixed.certify(0, 1, ROOT)
    with pytest.raises(InvalidInput, match="subnet 258 does not certify: certification = off"):
        replace(WHOLE, options=IcOptions(certification="off")).certify(0, 1, ROOT)


def test_malformed_certifications_are_refused() -> None:
    encoded = encode_certification(Certification(1, ROOT, b"signature", b"signer", b"witness"))
    assert decode_certification(encoded) == Certification(1, ROOT, b"signature", b"signer", b"witness")
    with pytest.raises(OverLimit, match="Certification"):
        decode_certification(encoded + bytes(2048))
    with pytest.raises(MalformedProof, match="canonical"):
        decode_certification(encoded + b"\x08\x01")
    with pytest.raises(DecodeFailed, match="content"):
        decode_certification(b"\x08\x01")
