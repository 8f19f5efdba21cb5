"""Hash trees, signatures and certificates of the deployed system (vectors ic/hash_tree, bls, certificates)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from py_arkworks_bls12381 import G1Point, G2Point, Scalar

from causeway.proofs.errors import ProofError
from causeway.proofs.ic import bls
from causeway.proofs.ic.certificate import (
    Certificate,
    Delegation,
    certification_message,
    decode_certificate,
    encode_certificate,
)
from causeway.proofs.ic.certification import Freshness, verify_certificate
from causeway.proofs.ic.digests import EMPTY_DIGEST
from causeway.proofs.ic.errors import TooManyDelegations
from causeway.proofs.ic.hash_tree import build_tree, digest, merge
from causeway.proofs.ic.hash_tree_cbor import decode_tree, encode_tree
from causeway.proofs.ic.lookup import lookup_path
from causeway.proofs.ic.pruning import prune
from causeway.proofs.ic.ranges import canister_ranges

CHECKED_BITS = 160
"""How many bits of a certificate are flipped, spread over all of it: each costs up to two signature checks."""


def vectors(shared_folder: Path, name: str) -> dict[str, Any]:
    path = shared_folder / "vectors" / "ic" / name
    if not path.exists():
        pytest.skip(f"no vectors at {path}")
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def test_hash_tree_digests_and_encodings(shared_folder: Path) -> None:
    case = vectors(shared_folder, "hash_tree.json")
    full_bytes, pruned_bytes = (bytes.fromhex(case[f"{kind}_tree_cbor_hex"]) for kind in ("full", "pruned"))
    full, pruned = decode_tree(full_bytes), decode_tree(pruned_bytes)
    assert EMPTY_DIGEST.hex() == case["empty_digest"]
    assert digest(full).hex() == digest(pruned).hex() == case["root_digest"]
    assert encode_tree(full) == full_bytes and encode_tree(pruned) == pruned_bytes
    paths = [[label.encode() for label in path] for path in case["kept_paths_of_pruned"]]
    assert encode_tree(prune(full, paths)) == pruned_bytes
    assert merge(pruned, full) == merge(full, pruned) == full


def test_a_builder_leaves_out_the_explicit_empty_node(shared_folder: Path) -> None:
    case = vectors(shared_folder, "hash_tree.json")

    def labeled(value: Any) -> Any:
        return value.encode() if isinstance(value, str) else {key.encode(): labeled(sub) for key, sub in value.items()}

    assert digest(build_tree(labeled(case["labeled_tree"]))).hex() != case["root_digest"]


def test_hash_tree_lookups(shared_folder: Path) -> None:
    case = vectors(shared_folder, "hash_tree.json")
    tree = decode_tree(bytes.fromhex(case["pruned_tree_cbor_hex"]))
    assert len(case["lookups_on_pruned"]) == 8
    for query in case["lookups_on_pruned"]:
        result = lookup_path(tree, [label.encode() for label in query["path"]])
        assert (result.status.value, result.value.decode()) == (query["result"], query.get("value_utf8", ""))


def test_bls_signatures(shared_folder: Path) -> None:
    case = vectors(shared_folder, "bls.json")
    assert bls.DOMAIN_SEPARATION_TAG.decode() == case["domain_separation_tag"]
    assert bls.DER_PREFIX.hex() == case["public_key_der_prefix_hex"]
    for check in case["verify"]:
        signature, message, key = (bytes.fromhex(check[name]) for name in ("signature", "message", "public_key"))
        if check["valid"]:
            bls.verify(signature, message, key)
        else:
            with pytest.raises(ProofError):
                bls.verify(signature, message, key)
    for check in case["sign"]:
        secret = bls.SecretKey.from_bytes(bytes.fromhex(check["secret_key"]))
        message = bytes.fromhex(check["message"])
        assert secret.sign(message).hex() == check["signature"]
        bls.verify(secret.sign(message), message, secret.public_key())


def test_bls_points(shared_folder: Path) -> None:
    points = vectors(shared_folder, "bls.json")["points"]
    factors = {
        "multiples": lambda at: at + 1,
        "powers_of_2": lambda at: 1 << at,
        "negatives": lambda at: bls.ORDER - at - 1,
    }
    seen = 0
    for name, expected in points.items():
        group, series = name.split("_", 1)
        for at, compressed in enumerate(expected):
            number = factors[series](at)
            data = bytes.fromhex(compressed)
            if group == "g2":
                assert bls.SecretKey(number).public_key() == data
                assert bls.key_point(data) == G2Point() * Scalar(number)
            else:
                assert bls.signature_point(data) == G1Point() * Scalar(number)
                assert bls.aggregate_signatures([data]) == data
            seen += 1
    assert seen == 28


def test_certificates(shared_folder: Path) -> None:
    cases = vectors(shared_folder, "certificates.json")["certificates"]
    assert len(cases) == 10
    checks = 0
    for case in cases:
        data, key = bytes.fromhex(case["certificate_hex"]), bytes.fromhex(case["root_key_der_hex"])
        found = verify_certificate(data, key)
        assert found.root_digest.hex() == case["tree_root_digest"] and found.time == case["time_ns"]
        assert (found.delegation is not None) == case["delegated"]
        if found.delegation is not None:
            assert found.delegation.subnet_id.hex() == case["subnet_id_hex"]
            assert found.delegation.time == case["delegation_time_ns"]
            ranges = canister_ranges(found.delegation.tree, found.delegation.subnet_id)
            shown = None if ranges is None else [[first.hex(), last.hex()] for first, last in ranges]
            assert shown == case["delegation_ranges"]
            verify_certificate(data, key, subnet_id=found.delegation.subnet_id)
        for check in case.get("canister_checks", ()):
            checks += 1
            canister = bytes.fromhex(check["canister_id_hex"])
            if check["accept"]:
                assert verify_certificate(data, key, canister_id=canister).canister_range is not None
            else:
                with pytest.raises(ProofError):
                    verify_certificate(data, key, canister_id=canister)
        for query in case.get("lookups", ()):
            canister = bytes.fromhex(case["canister_checks"][0]["canister_id_hex"])
            path = [query["path"][0].encode(), canister, query["path"][2].encode()]
            assert found.value(path).hex() == query["value_hex"]
        assert encode_certificate(decode_certificate(data), self_described=data[:1] == b"\xd9") == data
    assert checks == 9


def test_altered_certificates_are_refused(shared_folder: Path) -> None:
    cases = {case["name"]: case for case in vectors(shared_folder, "certificates.json")["certificates"]}
    case = cases["agent_rs_ivg37_time"]
    data, key = bytes.fromhex(case["certificate_hex"]), bytes.fromhex(case["root_key_der_hex"])
    bits = len(data) * 8
    for at in range(0, bits, bits // CHECKED_BITS):
        altered = bytearray(data)
        altered[at // 8] ^= 1 << at % 8
        with pytest.raises(ProofError):
            verify_certificate(bytes(altered), key)
    for cut in range(0, len(data), 97):
        with pytest.raises(ProofError):
            verify_certificate(data[:cut], key)
    for more in (b"\0", data):
        with pytest.raises(ProofError):
            verify_certificate(data + more, key)


def test_a_certificate_as_its_own_delegation_is_refused(shared_folder: Path) -> None:
    case = vectors(shared_folder, "certificates.json")["certificates"][1]
    data, key = bytes.fromhex(case["certificate_hex"]), bytes.fromhex(case["root_key_der_hex"])
    own = decode_certificate(data)
    wrapped = Certificate(own.tree, own.signature, Delegation(bytes.fromhex(case["subnet_id_hex"]), data))
    with pytest.raises(TooManyDelegations):
        verify_certificate(encode_certificate(wrapped), key)


def test_old_certificates_are_refused_when_they_must_be_fresh(shared_folder: Path) -> None:
    case = vectors(shared_folder, "certificates.json")["certificates"][1]
    data, key = bytes.fromhex(case["certificate_hex"]), bytes.fromhex(case["root_key_der_hex"])
    time = case["time_ns"]
    verify_certificate(data, key, freshness=Freshness(time + 10, 10))
    verify_certificate(data, key, freshness=Freshness(time - 10, 10, 10))
    for now in (time + 11, time - 1):
        with pytest.raises(ProofError):
            verify_certificate(data, key, freshness=Freshness(now, 10))


def test_signed_message(shared_folder: Path) -> None:
    case = vectors(shared_folder, "bls.json")["verify"][0]
    message = bytes.fromhex(case["message"])
    assert certification_message(message[-32:]) == message
