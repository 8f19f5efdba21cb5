from . import errors
from .batch import batch_verify_membership, batch_verify_non_membership, find_remarks
from .entries import Entries, StoreError, sorted_entries
from .proof_specs import IAVL_SPEC, PROOF_SPECS, SMT_SPEC, TENDERMINT_SPEC, spec_equals
from .simple_store import SimpleStore, VerifiedRun, range_proof_root, verify_range_proof
from .store_proofs import ProvableStore
from .verify import (
    calculate_root,
    explain,
    explain_chained_membership,
    find_chain_remarks,
    verify_chained_membership,
    verify_chained_non_membership,
    verify_membership,
    verify_non_membership,
)

__all__ = [
    "IAVL_SPEC",
    "PROOF_SPECS",
    "SMT_SPEC",
    "TENDERMINT_SPEC",
    "Entries",
    "ProvableStore",
    "SimpleStore",
    "StoreError",
    "VerifiedRun",
    "batch_verify_membership",
    "batch_verify_non_membership",
    "calculate_root",
    "errors",
    "explain",
    "explain_chained_membership",
    "find_chain_remarks",
    "find_remarks",
    "range_proof_root",
    "sorted_entries",
    "spec_equals",
    "verify_chained_membership",
    "verify_chained_non_membership",
    "verify_membership",
    "verify_non_membership",
    "verify_range_proof",
]  # fmt: skip
