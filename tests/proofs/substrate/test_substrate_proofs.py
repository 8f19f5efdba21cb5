"""Storage proofs of a real genesis state, and their alterations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from causeway_proofs.errors import ProofError
from causeway_proofs.substrate.errors import InvalidProof, MissingValue, UnusedNodesInTheProof
from causeway_proofs.substrate.node import StateVersion, decode_node, encode_node
from causeway_proofs.substrate.proof import ReadStatus, read_storage_proof, read_value, verify_storage_proof
from causeway_proofs.substrate.proof_columns import KeyStatus, StorageProofs, read_storage_proofs

from tests.support.properties.storage_both_ways import Case as Asked
from tests.support.properties.storage_both_ways import require_same
from tests.vectors import decode_all, load_vectors

Case = tuple[bytes, list[bytes], list[dict[str, Any]]]


@pytest.fixture
def case() -> Case:
    found = load_vectors("substrate_proofs")["storage"]
    return bytes.fromhex(found["root"]), decode_all(found["nodes"]), found["reads"]


def test_each_key_is_stored_absent_or_undecided(case: Case) -> None:
    root, nodes, checks = case
    reads = read_storage_proof(root, nodes, [bytes.fromhex(check["key"]) for check in checks])
    for read, check in zip(reads, checks, strict=True):
        assert read.status is ReadStatus(check["status"])
        assert (None if read.value is None else read.value.hex()) == check["value"]
    assert [step.operation for step in reads[0].steps] == ["leaf"] + 5 * ["branch"]
    assert reads[0].steps[-1].result == root


def test_value_is_read_if_every_node_is_needed(case: Case) -> None:
    root, nodes, checks = case
    key = bytes.fromhex(checks[0]["key"])
    value, steps = read_value(root, nodes, key, StateVersion.V0)
    assert value.hex() == checks[0]["value"]
    assert len(steps) == len(nodes)
    assert verify_storage_proof(root, nodes, {key: value, bytes.fromhex(checks[1]["key"]): None})
    with pytest.raises(MissingValue):
        read_value(root, nodes, bytes.fromhex(checks[1]["key"]))
    with pytest.raises(InvalidProof):
        read_value(root, nodes, bytes.fromhex(checks[2]["key"]))


def test_missing_or_unused_node_is_refused_and_a_repeated_one_if_strict(case: Case) -> None:
    root, nodes, checks = case
    key = bytes.fromhex(checks[0]["key"])
    for place in range(len(nodes)):
        with pytest.raises(InvalidProof):
            read_value(root, nodes[:place] + nodes[place + 1 :], key)
        assert read_value(root, [*nodes, nodes[place]], key) == read_value(root, nodes, key)
        with pytest.raises(UnusedNodesInTheProof):
            read_value(root, [*nodes, nodes[place]], key, strict=True)
    with pytest.raises(UnusedNodesInTheProof):
        read_value(root, [*nodes, b"\x00"], key)


def test_column_verdicts_on_a_real_state_equal_single_ones(case: Case) -> None:
    root, nodes, checks = case
    keys = [bytes.fromhex(check["key"]) for check in checks]
    reads = read_storage_proofs(StorageProofs.of([root], [nodes]), keys, np.zeros(len(keys), dtype=np.int64))
    for status, value, check in zip(reads.status, reads.values().to_pylist(), checks, strict=True):
        assert KeyStatus(status).name.lower() == check["status"]
        assert (None if value is None else value.hex()) == check["value"]
    claims = ((keys[0], reads.value(0)),)
    cases = [Asked(root, tuple(nodes), claims, StateVersion.V0)]
    for place in range(len(nodes)):
        rest = nodes[:place] + nodes[place + 1 :]
        cases += [Asked(root, tuple(given), claims) for given in (rest, [*nodes, nodes[place]], [*rest, b"\x00"])]
    require_same([*cases, Asked(root, tuple(nodes), tuple((key, None) for key in keys))])


def test_flipped_bits_are_detected(case: Case) -> None:
    root, nodes, checks = case
    key = bytes.fromhex(checks[0]["key"])
    for place, part in enumerate(nodes):
        for bit in range(0, 8 * len(part), 7):
            changed = bytearray(part)
            changed[bit // 8] ^= 1 << bit % 8
            with pytest.raises(ProofError):
                read_value(root, [*nodes[:place], bytes(changed), *nodes[place + 1 :]], key)


def test_real_nodes_round_trip(case: Case) -> None:
    for part in case[1]:
        decoded = decode_node(part)
        assert decoded is not None
        children = None if decoded.is_leaf else decoded.children
        assert encode_node(decoded.partial, decoded.value, children, StateVersion.V0) == part
