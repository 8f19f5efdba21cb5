"""Hash trees, keys and certificates of the Internet Computer under arbitrary bytes."""

from __future__ import annotations

from collections.abc import Callable

from causeway_proofs.errors import ProofError
from causeway_proofs.ic import bls
from causeway_proofs.ic.certificate import decode_ranges, encode_ranges
from causeway_proofs.ic.certification import RangesForm, verify_certificate
from causeway_proofs.ic.hash_tree import decode_tree, digest, encode_tree, leaves
from causeway_proofs.ic.lookup import path_steps, prune, require_value
from causeway_proofs.ic.primitives import decode_leb128, encode_leb128

from tests.oracles.ic.merged_trees import merge
from tests.support.ic.ic_certification import CANISTER, PATHS, RANGES, ROOT, SUBNET, certificate, state

ROOT_KEY = ROOT.public_key()
VALID = [certificate(form) for form in (None, *RangesForm)]


def hash_tree(data: bytes) -> None:
    try:
        tree = decode_tree(data)
    except ProofError:
        return
    assert encode_tree(tree) == data.removeprefix(b"\xd9\xd9\xf7")
    shown = [path for path, _ in leaves(tree)]
    assert [require_value(tree, path) for path in shown] == [value for _, value in leaves(tree)]
    for path in shown[:3]:
        assert path_steps(tree, path)[-1].result == digest(tree)
        assert digest(prune(tree, [path])) == digest(tree)
    assert merge(tree, prune(tree, shown[:2])) == tree


def whole_certificate(data: bytes) -> None:
    try:
        verify_certificate(data, ROOT_KEY, canister_id=CANISTER)
    except ProofError:
        return
    assert any(data.removeprefix(b"\xd9\xd9\xf7") == valid[3:] for valid in VALID), "a certificate that nobody signed"


def ranges(data: bytes) -> None:
    try:
        decoded = decode_ranges(data)
    except ProofError:
        return
    assert encode_ranges(decoded).endswith(data.removeprefix(b"\xd9\xd9\xf7"))


def time(data: bytes) -> None:
    try:
        decoded = decode_leb128(data)
    except ProofError:
        return
    assert encode_leb128(decoded) == data


def signature(data: bytes) -> None:
    try:
        bls.verify(data, b"message", ROOT_KEY)
    except ProofError:
        return
    assert data == ROOT.sign(b"message"), "a signature that nobody made"


def public_key(data: bytes) -> None:
    try:
        bls.key_point(bls.public_key_from_der(data) if len(data) == 133 else data)
    except ProofError:
        return


TARGETS: dict[str, tuple[Callable[[bytes], None], list[bytes]]] = {
    "ic_hash_tree": (hash_tree, [encode_tree(state()), encode_tree(prune(state(), PATHS)), b"\x81\x00"]),
    "ic_certificate": (whole_certificate, VALID),
    "ic_ranges": (ranges, [encode_ranges(RANGES), encode_ranges([])[3:]]),
    "ic_time": (time, [encode_leb128(0), encode_leb128(2**64 - 1)]),
    "ic_signature": (signature, [ROOT.sign(b"message"), b"\xc0" + bytes(47)]),
    "ic_public_key": (public_key, [SUBNET.public_key(), bls.public_key_to_der(ROOT_KEY), b"\xc0" + bytes(95)]),
}
