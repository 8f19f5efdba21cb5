"""Fuzz targets: ICS-23 proofs of each kind of store, batches and chains."""

from __future__ import annotations

from collections.abc import Callable

from causeway_proofs.errors import ProofError
from causeway_proofs.ics23.batch import BatchClaims, decode_proof
from causeway_proofs.ics23.existence import (
    calculate_existence,
    check_against_spec,
    encoded_root,
    prove_existence,
    read_existence,
)
from causeway_proofs.ics23.proof_specs import IAVL_SPEC, PROOF_SPECS, TENDERMINT_SPEC, spec_rules
from causeway_proofs.ics23.verify import explain, verify_chained_membership, verify_chained_non_membership
from causeway_proofs.protobuf import parse_canonical
from causeway_proofs.wire.ibc_merkle_proof_pb2 import MerkleProof
from causeway_proofs.wire.ics23_pb2 import ExistenceProof, ProofSpec

from tests.oracles.ics23.batches import combine_proofs, decompress
from tests.support.properties.ics23_trees import BUILDERS, SPEC_NAMES, Tree

STORED = {f"key {number}".encode(): f"value {number}".encode() for number in range(0, 18, 2)}
KEY, ABSENT = b"key 4", b"key 5"
TREES: dict[str, Tree] = {SPEC_NAMES[kind]: build(STORED) for kind, build in BUILDERS.items()}
CHAINED = [IAVL_SPEC, TENDERMINT_SPEC]
OUTER = BUILDERS["simple"]({**STORED, b"ibc": TREES["iavl"].root})


def proof_of(name: str) -> Callable[[bytes], None]:
    spec, root = PROOF_SPECS[name], TREES[name].root

    def target(data: bytes) -> None:
        for key, value in ((KEY, STORED[KEY]), (ABSENT, None)):
            try:
                explain(spec, root, data, key, value)
            except ProofError:
                continue

    return target


def steps(data: bytes) -> None:
    """Check and calculate a proof under every spec, for any root."""
    try:
        proof = read_existence(parse_canonical(ExistenceProof, data, "proof"))
    except ProofError:
        return
    for spec in PROOF_SPECS.values():
        try:
            check_against_spec(proof, spec_rules(spec))
            calculate_existence(proof, spec_rules(spec))
        except ProofError:
            continue


def any_spec(data: bytes) -> None:
    """Verify a good proof under a spec made of the bytes."""
    try:
        spec = parse_canonical(ProofSpec, data, "spec")
        for value, key in ((STORED[KEY], KEY), (None, ABSENT)):
            proof = TREES["smt"].existence(key) if value else TREES["smt"].non_existence(key)
            explain(spec, TREES["smt"].root, proof, key, value)
    except ProofError:
        return


def batch(data: bytes) -> None:
    try:
        message = decode_proof(data)
        decompress(message)
        found = BatchClaims(spec_rules(IAVL_SPEC), TREES["iavl"].root, message)
        found.remarks({})
        found.require_non_membership([ABSENT])
    except ProofError:
        return


def chained(data: bytes) -> None:
    for verify in (
        lambda: verify_chained_membership(CHAINED, OUTER.root, data, [b"ibc", KEY], STORED[KEY]),
        lambda: verify_chained_non_membership(CHAINED, OUTER.root, data, [b"ibc", ABSENT]),
    ):
        try:
            verify()
        except ProofError:
            continue


def encoded(data: bytes) -> None:
    """Verify the encoding; if it leads to a root, the message leads to the same one."""
    for name, tree in TREES.items():
        rules = spec_rules(PROOF_SPECS[name])
        root = encoded_root(rules, data, KEY, STORED[KEY])
        if root is not None:
            assert root == prove_existence(read_existence(decode_proof(data).exist), rules, KEY, STORED[KEY])
        assert encoded_root(rules, tree.existence(KEY).SerializeToString(), KEY, STORED[KEY]) == tree.root


def _singles(name: str) -> list[bytes]:
    tree = TREES[name]
    return [tree.existence(KEY).SerializeToString(), tree.non_existence(ABSENT).SerializeToString()]


_COMBINED = combine_proofs([TREES["iavl"].existence(KEY), TREES["iavl"].non_existence(ABSENT)])

TARGETS: dict[str, tuple[Callable[[bytes], None], list[bytes]]] = {
    "ics23-iavl": (proof_of("iavl"), [*_singles("iavl"), _COMBINED.SerializeToString()]),
    "ics23-tendermint": (proof_of("tendermint"), _singles("tendermint")),
    "ics23-smt": (proof_of("smt"), _singles("smt")),
    "ics23-steps": (steps, [tree.existence(KEY).exist.SerializeToString() for tree in TREES.values()]),
    "ics23-spec": (any_spec, [spec.SerializeToString() for spec in PROOF_SPECS.values()]),
    "ics23-batch": (batch, [_COMBINED.SerializeToString(), decompress(_COMBINED).SerializeToString()]),
    "ics23-chained": (
        chained,
        [
            MerkleProof(proofs=[innermost, OUTER.existence(b"ibc")]).SerializeToString()
            for innermost in (TREES["iavl"].existence(KEY), TREES["iavl"].non_existence(ABSENT))
        ],
    ),
    "ics23-encoded": (encoded, [tree.existence(KEY).SerializeToString() for tree in TREES.values()]),
}
