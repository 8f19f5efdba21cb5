"""Mountain range proofs and sketches under arbitrary bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from causeway_proofs.errors import InvalidInput, ProofError
from causeway_proofs.hashing import keccak256
from causeway_proofs.mmr.columns import LeafProofs
from causeway_proofs.mmr.mountain_range import MAX_LEAVES
from causeway_proofs.mmr.peaks import RangeState
from causeway_proofs.mmr.proof import AncestryProof, LeafProof, verify_ancestry_proof, verify_leaf_proof
from causeway_proofs.sketches.pin_sketch import Minisketch

from tests.oracles.mmr import MountainRange, prove_ancestry, prove_leaves
from tests.oracles.mmr import range_state as state_of
from tests.proofs.mmr.test_mmr_many import Case, require_same

_LEAVES = [keccak256(bytes([number])) for number in range(21)]
_MOUNTAINS = MountainRange()
_MOUNTAINS.extend(np.frombuffer(b"".join(_LEAVES), dtype=np.uint8).reshape(-1, 32))
_ROOT = _MOUNTAINS.root()

_SKETCH = Minisketch(32, 8)
_SKETCH.add_all([5, 77, 123_456, 2**32 - 1])


def leaf_proof(data: bytes) -> None:
    try:
        proof = LeafProof.decode(data)
        assert proof.encode() == data
        leaves = [_LEAVES[index % len(_LEAVES)] for index in proof.leaf_indices]
        verify_leaf_proof(proof, leaves, _ROOT, len(_LEAVES))
    except ProofError:
        return
    assert proof == prove_leaves(_MOUNTAINS, proof.leaf_indices)


def leaf_proofs_in_columns(data: bytes) -> None:
    """A proof of one leaf beside valid ones: each has its single verdict."""
    try:
        proof = LeafProof.decode(data)
        LeafProofs.of([proof])
    except (ProofError, InvalidInput):
        return
    leaf = _LEAVES[proof.leaf_indices[0] % len(_LEAVES)]
    right = Case(prove_leaves(_MOUNTAINS, [20]), _LEAVES[20], _ROOT, len(_LEAVES))
    require_same([right, Case(proof, leaf, _ROOT, len(_LEAVES)), right, replace(right, proof=proof)])


def range_state(data: bytes) -> None:
    try:
        state = RangeState.decode(data)
    except ProofError:
        return
    assert state.encode() == data
    if state.leaf_count < MAX_LEAVES:
        assert RangeState.decode(state.append(bytes(32)).encode()).leaf_count == state.leaf_count + 1


def ancestry_proof(data: bytes) -> None:
    try:
        proof = AncestryProof.decode(data)
        assert proof.encode() == data
        earlier = min(max(proof.prev_leaf_count, 1), len(_LEAVES))
        verify_ancestry_proof(proof, _ROOT, _MOUNTAINS.root(earlier), len(_LEAVES))
    except ProofError:
        return
    assert proof == prove_ancestry(_MOUNTAINS, earlier)


def sketch(data: bytes) -> None:
    """Two bytes tell the width and the capacity, the rest is the sketch."""
    if len(data) < 2:
        return
    bits, capacity = 2 + data[0] % 63, 1 + data[1] % 16
    try:
        read = Minisketch.deserialize(bits, capacity, data[2:])
        elements = read.decode()
    except ProofError:
        return
    again = Minisketch(bits, capacity)
    again.add_all(np.array(elements, dtype=np.uint64))
    assert again.serialize() == data[2:]


TARGETS: dict[str, tuple[Callable[[bytes], None], list[bytes]]] = {
    "mmr_leaf_proof": (
        leaf_proof,
        [prove_leaves(_MOUNTAINS, indices).encode() for indices in ([0], [20], [3, 4, 17], list(range(21)))],
    ),
    "mmr_leaf_proofs_in_columns": (
        leaf_proofs_in_columns,
        [prove_leaves(_MOUNTAINS, [index]).encode() for index in (0, 15, 16, 19, 20)],
    ),
    "mmr_range_state": (range_state, [state_of(_MOUNTAINS, count).encode() for count in (0, 1, 16, 21)]),
    "mmr_ancestry_proof": (
        ancestry_proof,
        [prove_ancestry(_MOUNTAINS, earlier).encode() for earlier in (1, 7, 16, 21)],
    ),
    "minisketch": (sketch, [bytes([30, 7]) + _SKETCH.serialize(), bytes([62, 15]) + bytes(128)]),
}
