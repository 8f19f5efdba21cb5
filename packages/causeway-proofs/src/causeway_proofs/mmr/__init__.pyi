from . import errors, mountain_range
from .columns import LeafProofs, LeafVerdict, LeafVerdicts, verify_leaf_proofs
from .mountain_range import keccak256, leaf_count_to_size, leaf_hash, leaf_index_to_position
from .peaks import RangeState, RangeWindow
from .proof import AncestryProof, LeafProof, leaf_proof_root, verify_ancestry_proof, verify_leaf_proof

__all__ = [
    "AncestryProof",
    "LeafProof",
    "LeafProofs",
    "LeafVerdict",
    "LeafVerdicts",
    "RangeState",
    "RangeWindow",
    "errors",
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
