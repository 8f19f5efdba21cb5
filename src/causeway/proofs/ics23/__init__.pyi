from . import errors
from .batch import (
    batch_verify_membership,
    batch_verify_non_membership,
    combine_proofs,
    compress,
    decompress,
    remarks,
)
from .chained import (
    explain_chained_membership,
    remarks_on_chain,
    verify_chained_membership,
    verify_chained_non_membership,
)
from .entries import Entries, StoreError, sorted_entries
from .iavl_store import IavlStore, IavlVersion
from .many import verify_many
from .multi_store import MultiStore
from .proof_specs import IAVL_SPEC, PROOF_SPECS, SMT_SPEC, TENDERMINT_SPEC, spec_equals
from .range_proof import VerifiedRun, range_proof_root, verify_range_proof
from .simple_store import SimpleStore
from .smt import SmtStore
from .store_proofs import ProvableStore
from .verify import calculate_root, explain, verify_membership, verify_non_membership

__all__ = [
    "IAVL_SPEC", "PROOF_SPECS", "SMT_SPEC", "TENDERMINT_SPEC", "Entries", "IavlStore", "IavlVersion", "MultiStore",
    "ProvableStore", "SimpleStore", "SmtStore", "StoreError", "VerifiedRun", "batch_verify_membership",
    "batch_verify_non_membership", "calculate_root", "combine_proofs", "compress", "decompress", "errors", "explain",
    "explain_chained_membership", "range_proof_root", "remarks", "remarks_on_chain", "sorted_entries", "spec_equals",
    "verify_chained_membership", "verify_chained_non_membership", "verify_many", "verify_membership",
    "verify_non_membership", "verify_range_proof",
]  # fmt: skip
