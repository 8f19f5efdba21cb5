"""Merkle mountain ranges with Keccak-256: append-only lists whose every leaf and every earlier root can be proved."""

from __future__ import annotations

from causeway.proofs.hashing import keccak256
from causeway.proofs.mmr import errors
from causeway.proofs.mmr.ancestry import AncestryProof, verify_ancestry_proof
from causeway.proofs.mmr.many import LeafProofs, LeafVerdicts, Verdict, verify_leaf_proofs
from causeway.proofs.mmr.mountain_range import leaf_hash
from causeway.proofs.mmr.positions import leaf_count_to_size, leaf_index_to_position
from causeway.proofs.mmr.proof import LeafProof, leaf_proof_root, verify_leaf_proof
from causeway.proofs.mmr.range_state import RangeState
from causeway.proofs.mmr.window import RangeWindow

__all__ = [
    "AncestryProof", "LeafProof", "LeafProofs", "LeafVerdicts", "RangeState", "RangeWindow", "Verdict", "errors",
    "keccak256", "leaf_count_to_size", "leaf_hash", "leaf_index_to_position", "leaf_proof_root",
    "verify_ancestry_proof", "verify_leaf_proof", "verify_leaf_proofs",
]  # fmt: skip
