from . import errors
from .batch import (
    batch_verify_membership,
    batch_verify_non_membership,
    remarks,
)
from .chained import (
    explain_chained_membership,
    remarks_on_chain,
    verify_chained_membership,
    verify_chained_non_membership,
)
from .entries import Entries, StoreError, sorted_entries
from .proof_specs import IAVL_SPEC, PROOF_SPECS, SMT_SPEC, TENDERMINT_SPEC, spec_equals
from .range_proof import VerifiedRun, range_proof_root, verify_range_proof
from .simple_store import SimpleStore
from .store_proofs import ProvableStore
from .verify import calculate_root, explain, verify_membership, verify_non_membership

__all__ = [
    "IAVL_SPEC", "PROOF_SPECS", "SMT_SPEC", "TENDERMINT_SPEC", "Entries", "ProvableStore", "SimpleStore",
    "StoreError", "VerifiedRun", "batch_verify_membership", "batch_verify_non_membership", "calculate_root",
    "errors", "explain", "explain_chained_membership", "range_proof_root", "remarks", "remarks_on_chain",
    "sorted_entries", "spec_equals", "verify_chained_membership", "verify_chained_non_membership",
    "verify_membership", "verify_non_membership", "verify_range_proof",
]  # fmt: skip
