"""The Internet Computer's client library reads our certificates; its laxer cases are refused."""

from __future__ import annotations

from typing import Any

import pytest
from causeway_proofs.errors import ProofError
from causeway_proofs.ic.bls import SecretKey, public_key_to_der
from causeway_proofs.ic.cbor_reader import cbor_bytes, cbor_head, cbor_text
from causeway_proofs.ic.certificate import (
    Certificate,
    Delegation,
    certification_message,
    decode_certificate,
    encode_certificate,
)
from causeway_proofs.ic.certification import RangesForm, certify, delegate, state_tree, verify_certificate
from causeway_proofs.ic.hash_tree import EMPTY, Fork, HashTree, Labeled, Leaf, Path, Pruned, build_tree, digest, leaves
from causeway_proofs.ic.lookup import lookup_path, prune
from causeway_proofs.ic.primitives import encode_leb128
from causeway_proofs.ic.stream_tree import index_label

from tests.support.ic.ic_certification import (
    BEGIN,
    CANISTER,
    CERTIFIED,
    NOW,
    OTHER_ID,
    PATHS,
    RANGES,
    ROOT,
    SUBNET,
    SUBNET_ID,
    SUBNETS,
    canister,
    certificate,
    state,
)
from tests.verifiers.conftest import Node

SCRIPT = "ic_certificate.mjs"
ROOT_KEY = ROOT.public_key()

STREAM: Path = (b"streams", OTHER_ID)
LOOKUPS: list[Path] = [
    *PATHS,
    (*STREAM, b"header"),
    (*STREAM, b"messages", index_label(BEGIN + 1)),
    (*STREAM, b"messages", index_label(BEGIN + 2)),
    (*STREAM, b"messages", index_label(BEGIN)),
    (b"canister",),
    (b"canister", canister(301), b"certified_data"),
    (b"zzz",),
]


def request(data: bytes, paths: list[Path] | None = None, **asked: bytes) -> dict[str, Any]:
    if not asked:
        asked = {"canister": CANISTER}
    return {
        "certificate": data.hex(),
        "root_key": public_key_to_der(ROOT_KEY).hex(),
        "paths": [[label.hex() for label in path] for path in paths or []],
        **{name: number.hex() for name, number in asked.items()},
    }


def lookup_values(tree: HashTree, paths: list[Path]) -> list[dict[str, str]]:
    """Our values at ``paths``, as the script writes them."""
    found = [lookup_path(tree, path) for path in paths]
    return [{"status": one.status.value, "value": one.value.hex()} for one in found]


def test_our_certificates_are_accepted_and_read_alike(node: Node) -> None:
    forms = [None, RangesForm.SUBNET, RangesForm.PIECES]
    certificates = [certificate(form) for form in forms]
    requests = [request(data, LOOKUPS) for data in certificates]
    requests += [request(certificate(form), LOOKUPS, subnet=SUBNET_ID) for form in RangesForm]
    answers = node(SCRIPT, requests)
    assert [answer["accepted"] for answer in answers] == [True] * len(answers), answers
    for data, answer in zip([*certificates, *(certificate(form) for form in RangesForm)], answers, strict=True):
        tree = verify_certificate(data, ROOT_KEY).tree
        assert answer["lookups"] == lookup_values(tree, LOOKUPS)


def test_states_of_many_shapes_are_read_alike(node: Node) -> None:
    requests, ours = [], []
    for size in (1, 2, 3, 5, 8, 13, 64, 100):
        # Labels of one length: its search misjudges a label that extends another.
        content = {index_label(2 * at): b"%d" % at for at in range(size)}
        tree = state_tree({b"content": content}, NOW)
        asked: list[Path] = [(b"content", index_label(at)) for at in (0, 2, 2 * size - 2)]
        pruned = prune(tree, [(b"time",), *asked])
        assert digest(pruned) == digest(tree)
        requests.append(request(encode_certificate(certify(pruned, ROOT.sign)), asked))
        ours.append(lookup_values(pruned, asked))
    assert [answer.get("lookups") for answer in node(SCRIPT, requests)] == ours


def test_range_end_is_equal_for_both(node: Node) -> None:
    numbers = [RANGES[2][0], RANGES[2][1], RANGES[3][0], canister(299), canister(310), canister(5000)]
    requests, ours = [], []
    for form in (RangesForm.SUBNET, RangesForm.PIECES):
        data = certificate(form)
        for number in numbers:
            requests.append(request(data, canister=number))
            ours.append(accepts(data, canister_id=number))
    assert [answer["accepted"] for answer in node(SCRIPT, requests)] == ours
    assert set(ours) == {True, False}, "some canisters lie in the subnet's ranges, others outside"


def accepts(data: bytes, **asked: bytes) -> bool:
    try:
        verify_certificate(data, ROOT_KEY, **(asked or {"canister_id": CANISTER}))  # type: ignore[arg-type]
    except ProofError:
        return False
    return True


def forge_certificate(tree: HashTree, signer: SecretKey, delegation: Delegation | None = None) -> bytes:
    """A certificate of a tree that ``certify`` would not sign."""
    return encode_certificate(Certificate(tree, signer.sign(certification_message(digest(tree))), delegation))


def tampered_certificates() -> dict[str, bytes]:
    """Certificates that must be refused, each with one fault."""
    good = decode_certificate(certificate())
    assert good.delegation is not None
    inner = decode_certificate(good.delegation.certificate)
    pieces = delegate(SUBNETS, SUBNET_ID, NOW, ROOT.sign, canister_id=CANISTER)
    value = next(value for path, value in leaves(good.tree) if path == CERTIFIED)
    encoded = encode_certificate(good)
    return {
        "another leaf": encoded.replace(cbor_bytes(value), cbor_bytes(bytes([value[0] ^ 1]))),
        "another signature": encode_certificate(Certificate(good.tree, SUBNET.sign(b"other"), good.delegation)),
        "signed by another key": forge_certificate(good.tree, ROOT, good.delegation),
        "no delegation": encode_certificate(Certificate(good.tree, good.signature)),
        "delegation signed by the subnet": encode_certificate(
            Certificate(good.tree, good.signature, Delegation(SUBNET_ID, forge_certificate(inner.tree, SUBNET)))
        ),
        "delegation of another subnet": encode_certificate(
            Certificate(good.tree, good.signature, Delegation(OTHER_ID, pieces.certificate))
        ),
        "ranges pruned": certificate(RangesForm.NONE),
        "itself as delegation": encode_certificate(
            Certificate(good.tree, good.signature, Delegation(SUBNET_ID, encoded))
        ),
        "no time": forge_certificate(prune(state(), [CERTIFIED]), SUBNET, pieces),
        "the identity as signature": encode_certificate(Certificate(good.tree, b"\xc0" + bytes(47), good.delegation)),
        "the identity as the subnet's key": encode_certificate(
            Certificate(good.tree, b"\xc0" + bytes(47), identity_delegation())
        ),
        "cut": encoded[:-1],
    }


def identity_delegation() -> Delegation:
    """The root subnet's delegation to the identity as a key: with the identity as signature, the pairing equation
    holds."""
    content: Any = {
        b"subnet": {SUBNET_ID: {b"public_key": public_key_to_der(b"\xc0" + bytes(95))}},
        b"canister_ranges": {SUBNET_ID: {CANISTER: bytes.fromhex("81824a") + CANISTER + b"\x4a" + CANISTER}},
        b"time": encode_leb128(NOW),
    }
    return Delegation(SUBNET_ID, forge_certificate(build_tree(content), ROOT))


@pytest.mark.parametrize("what", list(tampered_certificates()))
def test_our_verifier_refuses_altered_certificates(what: str) -> None:
    assert accepts(certificate()) and not accepts(tampered_certificates()[what])


def test_altered_certificates_are_refused_by_both(node: Node) -> None:
    altered = [bytearray(certificate()) for _ in range(0, len(certificate()), 53)]
    for at, data in enumerate(altered):
        data[at * 53] ^= 1 << at % 8
    cases = {**tampered_certificates(), **{f"byte {at * 53}": bytes(data) for at, data in enumerate(altered)}}
    answers = node(SCRIPT, [request(data) for data in cases.values()])
    assert [name for name, answer in zip(cases, answers, strict=True) if answer["accepted"]] == []
    assert [name for name, data in cases.items() if accepts(data)] == []


def laxly_read_certificates() -> dict[str, bytes]:
    """Certificates that only the library accepts: no signed statement is false, but its form differs from the signed
    one."""
    good = decode_certificate(certificate(None))
    encoded = encode_certificate(good, self_described=False)
    padded = encoded.replace(cbor_bytes(good.signature), b"\x59\0\x30" + good.signature)
    time = Labeled(b"time", Leaf(encode_leb128(NOW)))
    return {
        "an entry that means nothing": cbor_head(5, 3) + encoded[1:] + cbor_text("padding") + b"\xf6",
        "a length in more bytes than it needs": padded,
        "labels out of order": forge_certificate(Fork(time, Labeled(b"a", Leaf(b""))), ROOT),
        "a label twice": forge_certificate(Fork(time, Labeled(b"time", Leaf(b"\1"))), ROOT),
        "a time padded": forge_certificate(Labeled(b"time", Leaf(b"\x80\x00")), ROOT),
    }


def test_our_verifier_refuses_certificates_that_the_library_accepts(node: Node) -> None:
    cases = laxly_read_certificates()
    answers = node(SCRIPT, [request(data) for data in cases.values()])
    assert [name for name, answer in zip(cases, answers, strict=True) if not answer["accepted"]] == []
    assert [name for name, data in cases.items() if accepts(data)] == []


def test_library_lookup_claims_an_unproven_absence(node: Node) -> None:
    time = Labeled(b"time", Leaf(encode_leb128(NOW)))
    content = Leaf(b"there it is")
    hidden = Pruned(digest(Labeled(b"be", content)))
    cases: list[tuple[HashTree, bytes, str]] = [
        # A pruned node beside an empty one.
        (Fork(hidden, EMPTY), b"be", "unknown"),
        # A label that extends another.
        (Fork(Labeled(b"a", EMPTY), Labeled(b"ax", content)), b"ax", "found"),
        # It considers a label greater if any byte is greater: here the second, "e" above "d".
        (Fork(hidden, Labeled(b"cd", content)), b"be", "unknown"),
    ]
    requests, ours = [], []
    for tree, label, _ in cases:
        path = (b"one", label)
        data = forge_certificate(Fork(Labeled(b"one", tree), time), ROOT)
        requests.append(request(data, [path]))
        ours += lookup_values(verify_certificate(data, ROOT_KEY).tree, [path])
    assert [answer["lookups"][0]["status"] for answer in node(SCRIPT, requests)] == ["absent"] * len(cases)
    assert [one["status"] for one in ours] == [expected for _, _, expected in cases]
