"""Merkle mountain ranges with Keccak-256: append-only lists with inclusion proofs."""

from __future__ import annotations

from causeway_proofs.hashing import keccak256
from causeway_proofs.mmr import mountain_range
from causeway_proofs.mmr.columns import LeafProofs, LeafVerdict, LeafVerdicts, verify_leaf_proofs
from causeway_proofs.mmr.mountain_range import leaf_count_to_size, leaf_hash, leaf_index_to_position
from causeway_proofs.mmr.peaks import RangeState, RangeWindow
from causeway_proofs.mmr.proof import (
    AncestryProof,
    LeafProof,
    leaf_proof_root,
    verify_ancestry_proof,
    verify_leaf_proof,
)

__all__ = [
    "AncestryProof",
    "LeafProof",
    "LeafProofs",
    "LeafVerdict",
    "LeafVerdicts",
    "RangeState",
    "RangeWindow",
    "keccak256",
    "leaf_count_to_size",
    "leaf_hash",
    "leaf_index_to_position",
    "leaf_proof_root",
    "mountain_range",
    "verify_ancestry_proof",
    "verify_leaf_proof",
    "verify_leaf_proofs",
]  # fmt: skip
