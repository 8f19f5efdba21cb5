"""Mountain ranges against the published nodes, roots, sizes and proofs of the MMR pallet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from causeway_proofs.hashing import keccak256
from causeway_proofs.mmr.columns import LeafProofs, verify_leaf_proofs
from causeway_proofs.mmr.errors import InvalidSize
from causeway_proofs.mmr.mountain_range import leaf_count_to_size
from causeway_proofs.mmr.peaks import RangeState
from causeway_proofs.mmr.proof import LeafProof, verify_leaf_proof

from tests.oracles.mmr import MountainRange, prove_each_leaf, prove_leaves, size_to_leaf_count
from tests.vectors import load_vectors

LEAVES = 21


@pytest.fixture(scope="module")
def vectors() -> Any:
    return load_vectors("mountain_range")


def leaf(block: int) -> bytes:
    """The leaf of a block, counted from 1, as in the vectors' rule."""
    header = keccak256((block - 1).to_bytes(8, "little") + bytes([block]) * 32)
    extra = keccak256(block.to_bytes(8, "little") + b"\x00")
    return keccak256(b"\x01" + header + b"\x01" + extra)


@pytest.fixture(scope="module")
def mountains() -> MountainRange:
    grown = MountainRange()
    for block in range(1, LEAVES + 1):
        grown.append(leaf(block))
    return grown


def test_nodes_by_position(vectors: Any, mountains: MountainRange) -> None:
    assert len(vectors["nodes"]) == 10
    for position, digest in vectors["nodes"]:
        assert mountains.node_at(position).hex() == digest


def test_roots_by_leaf_count(vectors: Any, mountains: MountainRange) -> None:
    roots = vectors["roots"] + vectors["derived_roots"]
    assert len(roots) == 7
    for leaf_count, digest in roots:
        assert mountains.root(leaf_count).hex() == digest


def test_sizes(vectors: Any) -> None:
    sizes = dict(vectors["sizes"])
    assert len(sizes) == 17
    for leaf_count, size in sizes.items():
        assert leaf_count_to_size(leaf_count) == size
        assert size_to_leaf_count(size) == leaf_count
    for size in set(range(27)) - set(sizes.values()):
        with pytest.raises(InvalidSize, match=f"size {size}:"):
            size_to_leaf_count(size)


def test_proofs(vectors: Any, mountains: MountainRange) -> None:
    assert len(vectors["proofs"]) == 9
    for case in vectors["proofs"]:
        indices, leaf_count = case["indices"], case["leaves"]
        items = tuple(bytes.fromhex(item) for item in case["items"])
        proof = LeafProof(tuple(indices), leaf_count, items)
        root = bytes.fromhex(case["root"])
        steps = verify_leaf_proof(proof, [leaf(index + 1) for index in indices], root, leaf_count)
        assert steps[-1].result == root
        assert prove_leaves(mountains, indices, leaf_count) == proof
        assert LeafProof.decode(proof.encode()) == proof


def test_proofs_of_one_leaf_in_columns(vectors: Any, mountains: MountainRange) -> None:
    cases = [case for case in vectors["proofs"] if len(case["indices"]) == 1]
    assert len(cases) >= 5
    given = [
        LeafProof(tuple(case["indices"]), case["leaves"], tuple(map(bytes.fromhex, case["items"]))) for case in cases
    ]
    leaves, roots = (
        np.frombuffer(b"".join(values), dtype=np.uint8).reshape(-1, 32)
        for values in (
            [leaf(case["indices"][0] + 1) for case in cases],
            [bytes.fromhex(case["root"]) for case in cases],
        )
    )
    counts = np.array([case["leaves"] for case in cases], dtype=np.uint64)
    found = verify_leaf_proofs(LeafProofs.of(given), leaves, roots, counts)
    assert not found.codes.any()
    assert verify_leaf_proofs(LeafProofs.of(given), leaves ^ np.uint8(1), roots, counts).codes.all()
    for proof in given:
        made = prove_each_leaf(mountains, np.array(proof.leaf_indices), proof.leaf_count)
        assert made.proof(0) == proof


def test_roots_by_peaks_alone(vectors: Any) -> None:
    state = RangeState()
    roots = dict(vectors["roots"] + vectors["derived_roots"])
    for block in range(1, LEAVES + 1):
        state = RangeState.decode(state.append(leaf(block)).encode())
        if block in roots:
            assert state.root.hex() == roots.pop(block)
    assert not roots
