"""Hash trees, signatures and certificates of the deployed system."""

from __future__ import annotations

from typing import Any

import pytest
from causeway_proofs.errors import ProofError
from causeway_proofs.ic import bls
from causeway_proofs.ic.certificate import (
    Certificate,
    Delegation,
    canister_ranges,
    certification_message,
    decode_certificate,
    encode_certificate,
)
from causeway_proofs.ic.certification import Freshness, verify_certificate
from causeway_proofs.ic.errors import TooManyDelegations
from causeway_proofs.ic.hash_tree import EMPTY_DIGEST, build_tree, decode_tree, digest, encode_tree
from causeway_proofs.ic.lookup import lookup_path, prune
from py_arkworks_bls12381 import G1Point, G2Point, Scalar

from tests.oracles.ic.aggregates import aggregate_signatures
from tests.oracles.ic.merged_trees import merge
from tests.vectors import load_vectors

CHECKED_BITS = 160
"""Number of flipped bits of a certificate, spread over all of it: each costs up to two signature checks."""


def test_hash_tree_digests_and_encodings() -> None:
    case = load_vectors("ic_hash_tree")
    full_bytes, pruned_bytes = (bytes.fromhex(case[kind]) for kind in ("full", "pruned"))
    full, pruned = decode_tree(full_bytes), decode_tree(pruned_bytes)
    assert EMPTY_DIGEST.hex() == case["empty"]
    assert digest(full).hex() == digest(pruned).hex() == case["root"]
    assert encode_tree(full) == full_bytes and encode_tree(pruned) == pruned_bytes
    paths = [[label.encode() for label in path] for path in case["kept_paths"]]
    assert encode_tree(prune(full, paths)) == pruned_bytes
    assert merge(pruned, full) == merge(full, pruned) == full


def test_builder_omits_the_explicit_empty_node() -> None:
    case = load_vectors("ic_hash_tree")

    def labeled(value: Any) -> Any:
        return value.encode() if isinstance(value, str) else {key.encode(): labeled(sub) for key, sub in value.items()}

    assert digest(build_tree(labeled(case["labels"]))).hex() != case["root"]


def test_hash_tree_lookups() -> None:
    case = load_vectors("ic_hash_tree")
    tree = decode_tree(bytes.fromhex(case["pruned"]))
    assert len(case["lookups"]) == 8
    for query in case["lookups"]:
        result = lookup_path(tree, [label.encode() for label in query["path"]])
        assert (result.status.value, result.value.decode()) == (query["status"], query["value"])


def test_bls_signatures() -> None:
    case = load_vectors("ic_signatures")
    assert bls.DOMAIN_SEPARATION_TAG.decode() == case["domain"]
    assert bls.DER_PREFIX.hex() == case["der_prefix"]
    for check in case["verify"]:
        signature, message, key = (bytes.fromhex(check[name]) for name in ("signature", "message", "key"))
        if check["valid"]:
            bls.verify(signature, message, key)
        else:
            with pytest.raises(ProofError):
                bls.verify(signature, message, key)
    for check in case["sign"]:
        secret = bls.SecretKey.from_bytes(bytes.fromhex(check["secret"]))
        message = bytes.fromhex(check["message"])
        assert secret.sign(message).hex() == check["signature"]
        bls.verify(secret.sign(message), message, secret.public_key())


def test_bls_points() -> None:
    points = load_vectors("ic_signatures")["points"]
    factors = {
        "multiples": lambda at: at + 1,
        "powers_of_2": lambda at: 1 << at,
        "negatives": lambda at: bls.ORDER - at - 1,
    }
    seen = 0
    for row in points:
        for at, compressed in enumerate(row["compressed"]):
            number = factors[row["series"]](at)
            data = bytes.fromhex(compressed)
            if row["group"] == "g2":
                assert bls.SecretKey(number).public_key() == data
                assert bls.key_point(data) == G2Point() * Scalar(number)
            else:
                assert bls.signature_point(data) == G1Point() * Scalar(number)
                assert aggregate_signatures([data]) == data
            seen += 1
    assert seen == 28


def certificates() -> dict[str, tuple[dict[str, Any], bytes, bytes]]:
    """Return each case of the vectors with its certificate and its root key, by the name of the case."""
    held = load_vectors("ic_certificates")
    return {
        case["name"]: (case, bytes.fromhex(case["certificate"]), bytes.fromhex(held["root_keys"][case["root_key"]]))
        for case in held["certificates"]
    }


def test_certificates() -> None:
    cases = certificates()
    assert len(cases) == 10
    checks = 0
    for case, data, key in cases.values():
        found = verify_certificate(data, key)
        assert found.root_digest.hex() == case["root"] and found.time == case["time"]
        assert (found.delegation is not None) == ("delegation" in case)
        if found.delegation is not None:
            delegation = case["delegation"]
            assert found.delegation.subnet_id.hex() == delegation["subnet_id"]
            assert found.delegation.time == delegation["time"]
            ranges = canister_ranges(found.delegation.tree, found.delegation.subnet_id)
            shown = None if ranges is None else [[first.hex(), last.hex()] for first, last in ranges]
            assert shown == delegation["ranges"]
            verify_certificate(data, key, subnet_id=found.delegation.subnet_id)
        for check in case["canisters"]:
            checks += 1
            canister = bytes.fromhex(check["canister_id"])
            if check["in_range"]:
                assert verify_certificate(data, key, canister_id=canister).canister_range is not None
            else:
                with pytest.raises(ProofError):
                    verify_certificate(data, key, canister_id=canister)
        for query in case.get("lookups", ()):
            canister = bytes.fromhex(case["canisters"][0]["canister_id"])
            path = [b"canister", canister, query["label"].encode()]
            assert found.value(path).hex() == query["value"]
        assert encode_certificate(decode_certificate(data), self_described=data[:1] == b"\xd9") == data
    assert checks == 9


def test_altered_certificates_are_refused() -> None:
    _, data, key = certificates()["agent_rs_ivg37_time"]
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


def test_certificate_as_its_own_delegation_is_refused() -> None:
    case, data, key = certificates()["agent_js_sample_cert"]
    own = decode_certificate(data)
    wrapped = Certificate(own.tree, own.signature, Delegation(bytes.fromhex(case["delegation"]["subnet_id"]), data))
    with pytest.raises(TooManyDelegations):
        verify_certificate(encode_certificate(wrapped), key)


def test_old_certificates_are_refused_if_freshness_is_required() -> None:
    case, data, key = certificates()["agent_js_sample_cert"]
    time = case["time"]
    verify_certificate(data, key, freshness=Freshness(time + 10, 10))
    verify_certificate(data, key, freshness=Freshness(time - 10, 10, 10))
    for now in (time + 11, time - 1):
        with pytest.raises(ProofError):
            verify_certificate(data, key, freshness=Freshness(now, 10))


def test_signed_message() -> None:
    case = load_vectors("ic_signatures")["verify"][0]
    message = bytes.fromhex(case["message"])
    assert certification_message(message[-32:]) == message
