"""ICS-23 proofs of the reference: single, compressed and chained ones, tables of single steps."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from causeway_proofs.errors import NotProven, ProofError
from causeway_proofs.ics23.batch import batch_verify_membership, batch_verify_non_membership, decode_proof, find_remarks
from causeway_proofs.ics23.existence import (
    calculate_existence,
    check_against_spec,
    left_branches_are_empty,
    read_existence,
    right_branches_are_empty,
)
from causeway_proofs.ics23.proof_specs import (
    IAVL_SPEC,
    PROOF_SPECS,
    TENDERMINT_SPEC,
    apply_inner,
    apply_leaf,
    check_leaf_against_spec,
    do_hash,
    spec_rules,
)
from causeway_proofs.ics23.verify import (
    calculate_root,
    explain,
    explain_chained_membership,
    verify_chained_membership,
    verify_chained_non_membership,
    verify_membership,
    verify_non_membership,
)
from causeway_proofs.wire.ics23_pb2 import CommitmentProof, ExistenceProof, InnerOp, LeafOp, ProofSpec
from google.protobuf.json_format import ParseDict

from tests.oracles.ics23.batches import combine_proofs, compress, decompress
from tests.vectors import load_vectors

SPECS = ("iavl", "tendermint", "smt")
TABLES = 7
TABLE_CASES = 57
LAYER_THREE_TOO_LOW = "inner, IAVL height (0) must be non-negative and greater than or equal to the layer number (3)"


@pytest.fixture(scope="module")
def single() -> list[tuple[str, dict[str, bytes]]]:
    """Return every single proof with the name of its spec."""
    return [
        (case["spec"], {field: bytes.fromhex(case[field]) for field in ("root", "key", "value", "proof")})
        for case in load_vectors("ibc_store_proofs")["proofs"]
    ]


@pytest.fixture(scope="module")
def batches() -> list[tuple[str, bytes, bytes, dict[bytes, bytes]]]:
    """Return every batch: the name of its spec, its root, its proof and its items."""
    return [
        (
            batch["spec"],
            bytes.fromhex(batch["root"]),
            bytes.fromhex(batch["proof"]),
            {bytes.fromhex(key): bytes.fromhex(value) for key, value in batch["items"]},
        )
        for batch in load_vectors("ibc_store_proofs")["batches"]
    ]


def verify(name: str, case: dict[str, bytes]) -> None:
    spec = PROOF_SPECS[name]
    if case["value"]:
        verify_membership(spec, case["root"], case["proof"], case["key"], case["value"])
    else:
        verify_non_membership(spec, case["root"], case["proof"], case["key"])


def holds(name: str, case: dict[str, bytes]) -> bool:
    try:
        verify(name, case)
    except ProofError:
        return False
    return True


def test_single_proofs_hold_only_for_their_key_value_root_and_spec(
    single: list[tuple[str, dict[str, bytes]]],
) -> None:
    assert len(single) == 10
    for name, case in single:
        verify(name, case)
        assert calculate_root(decode_proof(case["proof"])) == case["root"]
        root = case["root"]
        assert not holds(name, {**case, "root": root[:-1] + bytes([root[-1] ^ 1])})
        for key in neighbors(case) if not case["value"] else (case["key"] + b".", case["key"][:-1]):
            assert not holds(name, {**case, "key": key})
        assert not holds(name, {**case, "value": b"" if case["value"] else b"another"})
        if case["value"]:
            assert not holds(name, {**case, "value": case["value"] + b"."})
        for other in SPECS:
            assert holds(other, case) == (other == name)


def test_flipped_bit_of_a_single_proof_is_refused_or_remarked_on(single: list[tuple[str, dict[str, bytes]]]) -> None:
    for name, case in single:
        proof = case["proof"]
        for place in range(len(proof)):
            flipped = bytearray(proof)
            flipped[place] ^= 1 << place % 8
            claims = {case["key"]: case["value"] or None}
            assert not holds(name, {**case, "proof": bytes(flipped)}) or find_remarks(
                PROOF_SPECS[name], case["root"], bytes(flipped), claims
            ), (name, place)
        assert not holds(name, {**case, "proof": proof[:-1]})
        assert not holds(name, {**case, "proof": proof + b"\x00"})


def test_path_of_a_proof_ends_at_its_root(single: list[tuple[str, dict[str, bytes]]]) -> None:
    for name, case in single:
        steps = explain(PROOF_SPECS[name], case["root"], case["proof"], case["key"], case["value"] or None)
        assert steps[-1].result == case["root"]
        assert [step.operation for step in steps].count("leaf") == (1 if case["value"] else len(neighbors(case)))


def neighbors(case: dict[str, bytes]) -> list[bytes]:
    """Return the keys of the neighbours in a proof of absence."""
    proof = decode_proof(case["proof"]).nonexist
    return [getattr(proof, side).key for side in ("left", "right") if proof.HasField(side)]


def verify_batch(spec: ProofSpec, root: bytes, proof: bytes | CommitmentProof, items: dict[bytes, bytes]) -> None:
    if any(items.values()):
        batch_verify_membership(spec, root, proof, items)
    else:
        batch_verify_non_membership(spec, root, proof, items)


def test_every_item_of_a_compressed_batch_holds(batches: list[tuple[str, bytes, bytes, dict[bytes, bytes]]]) -> None:
    assert [len(items) for *_, items in batches] == [20, 20, 20]
    for name, root, proof, items in batches:
        spec = PROOF_SPECS[name]
        plain = decompress(decode_proof(proof))
        for form in (proof, plain, plain.SerializeToString(), compress(plain), combine_proofs([plain])):
            verify_batch(spec, root, form, items)
        for key, value in items.items():
            if value:
                verify_membership(spec, root, proof, key, value)
                with pytest.raises(NotProven, match="doesn't match"):
                    verify_membership(spec, root, proof, key, value + b".")
                with pytest.raises(NotProven, match="no non-existence of"):
                    verify_non_membership(spec, root, proof, key)
            else:
                verify_non_membership(spec, root, proof, key)
                with pytest.raises(NotProven, match="no existence of"):
                    verify_membership(spec, root, proof, key, b"value")
        with pytest.raises(NotProven, match="root"):
            verify_batch(spec, bytes(32), proof, items)


def test_batch_compression_matches_the_reference(
    batches: list[tuple[str, bytes, bytes, dict[bytes, bytes]]],
) -> None:
    for _, _, proof, _ in batches:
        assert compress(decompress(decode_proof(proof))).SerializeToString(deterministic=True) == proof


def test_flipped_bit_of_a_batch_is_refused_or_remarked_on(
    batches: list[tuple[str, bytes, bytes, dict[bytes, bytes]]],
) -> None:
    for name, root, proof, items in batches:
        spec = PROOF_SPECS[name]
        for place in range(0, len(proof), 61):
            flipped = bytearray(proof)
            flipped[place] ^= 1 << place % 8
            try:
                verify_batch(spec, root, bytes(flipped), items)
            except ProofError:
                continue
            assert find_remarks(spec, root, bytes(flipped), {key: value or None for key, value in items.items()})


def test_chained_proof_leads_to_the_app_hash() -> None:
    case = load_vectors("ibc_light_client")["membership"]
    # The consensus state: a time, the root as a message in a message, the next validators' hash.
    root = bytes.fromhex(case["consensus_state"]).split(b"\x12\x22\x0a\x20", 1)[1][:32]
    proof, value = bytes.fromhex(case["proof"]), bytes.fromhex(case["value"])
    path = [key.encode() for key in case["path"]]
    specs = [IAVL_SPEC, TENDERMINT_SPEC]
    stores = verify_chained_membership(specs, root, proof, path, value)
    assert [store.operation for store in stores] == ["store", "store"] and stores[-1].result == root
    assert len(explain_chained_membership(specs, root, proof, path, value)) == 2 + (1 + 4) + (1 + 5)
    for place in range(len(proof)):
        flipped = bytearray(proof)
        flipped[place] ^= 1 << place % 8
        with pytest.raises(ProofError):
            verify_chained_membership(specs, root, bytes(flipped), path, value)
    for wrong in (
        (specs[::-1], root, proof, path, value),
        (specs, bytes(32), proof, path, value),
        (specs, root, proof, path[::-1], value),
        (specs, root, proof, path, value + b"."),
        (specs[:1], root, proof, path, value),
        (specs, root, proof, path[1:], value),
        ([], root, b"", [], value),
    ):
        with pytest.raises(NotProven):
            verify_chained_membership(*wrong)
    with pytest.raises(NotProven, match="proof 0 is not one of non-existence"):
        verify_chained_non_membership(specs, root, proof, path)


@pytest.fixture(scope="module")
def steps() -> dict[str, Any]:
    """Return the tables of single steps. Operations, proofs and specs are the JSON of their protobuf messages."""
    loaded: dict[str, Any] = load_vectors("ibc_proof_steps")
    return loaded


def octets(text: str) -> bytes:
    return base64.b64decode(text)


def test_all_tables_are_tested(steps: dict[str, Any]) -> None:
    tables = {name: rows for name, rows in steps.items() if name != "specs"}
    assert len(tables) == TABLES and sum(map(len, tables.values())) == TABLE_CASES


def test_leaf_operations(steps: dict[str, Any]) -> None:
    for case in steps["leaf_operations"]:
        leaf = ParseDict(case["operation"], LeafOp())
        if case["fails"]:
            with pytest.raises(NotProven, match="leaf op needs"):
                apply_leaf(leaf, octets(case["key"]), octets(case["value"]))
        else:
            found = apply_leaf(leaf, octets(case["key"]), octets(case["value"]))
            assert found == octets(case["result"]), case["case"]


def test_inner_operations(steps: dict[str, Any]) -> None:
    for case in steps["inner_operations"]:
        inner = ParseDict(case["operation"], InnerOp())
        if case["fails"]:
            with pytest.raises(NotProven, match="inner op needs child value"):
                apply_inner(inner, octets(case["child"]))
        else:
            assert apply_inner(inner, octets(case["child"])) == octets(case["result"]), case["case"]


def test_hashes(steps: dict[str, Any]) -> None:
    for case in steps["hashes"]:
        assert do_hash(case["operation"], case["text"].encode()).hex() == case["result"], case["case"]


def test_roots_of_existence_proofs(steps: dict[str, Any]) -> None:
    for case in steps["existence_roots"]:
        proof = read_existence(ParseDict(case["proof"], ExistenceProof()))
        if case["fails"]:
            with pytest.raises(NotProven):
                calculate_existence(proof)
        else:
            assert calculate_existence(proof) == octets(case["result"]), case["case"]


def test_leaves_against_specs(steps: dict[str, Any]) -> None:
    for case in steps["leaf_rules"]:
        leaf, rules = ParseDict(case["leaf"], LeafOp()), spec_rules(ParseDict({"leaf_spec": case["rule"]}, ProofSpec()))
        if case["fails"]:
            with pytest.raises(NotProven):
                check_leaf_against_spec(leaf, rules)
        else:
            check_leaf_against_spec(leaf, rules)


def test_proofs_against_specs_with_the_texts_of_the_reference(steps: dict[str, Any]) -> None:
    texts = []
    for case in steps["existence_rules"]:
        proof = read_existence(ParseDict(case["proof"], ExistenceProof()))
        text = ""
        try:
            check_against_spec(proof, spec_rules(ParseDict(steps["specs"][case["spec"]], ProofSpec())))
        except NotProven as error:
            text = str(error)
        assert text == case["error"], case["case"]
        texts.append(text)
    assert LAYER_THREE_TOO_LOW in texts


def test_empty_branches(steps: dict[str, Any]) -> None:
    for case in steps["empty_branches"]:
        inner = ParseDict(case["operation"], InnerOp())
        rules = spec_rules(ParseDict(steps["specs"][case["spec"]], ProofSpec()))
        assert left_branches_are_empty(rules, inner) == case["left"], case["case"]
        assert right_branches_are_empty(rules, inner) == case["right"], case["case"]
