"""Merkle mountain ranges with Keccak-256: append-only lists whose every leaf and every earlier root can be proved."""

from __future__ import annotations

from causeway.proofs.hashing import keccak256
from causeway.proofs.mmr import errors
from causeway.proofs.mmr.ancestry import AncestryProof, prove_ancestry, verify_ancestry_proof
from causeway.proofs.mmr.many import LeafProofs, LeafVerdicts, Verdict, prove_each_leaf, verify_leaf_proofs
from causeway.proofs.mmr.mountain_range import MountainRange, leaf_hash
from causeway.proofs.mmr.positions import leaf_count_to_size, leaf_index_to_position, size_to_leaf_count
from causeway.proofs.mmr.proof import LeafProof, leaf_proof_root, prove_leaves, verify_leaf_proof
from causeway.proofs.mmr.range_state import RangeState

__all__ = [
    "AncestryProof", "LeafProof", "LeafProofs", "LeafVerdicts", "MountainRange", "RangeState", "Verdict", "errors",
    "keccak256", "leaf_count_to_size", "leaf_hash", "leaf_index_to_position", "leaf_proof_root",
    "prove_ancestry", "prove_each_leaf", "prove_leaves", "size_to_leaf_count", "verify_ancestry_proof",
    "verify_leaf_proof", "verify_leaf_proofs",
]  # fmt: skip
