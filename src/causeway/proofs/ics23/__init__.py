"""ICS-23: Merkle proofs of presence and absence under a proof spec, and the stores that they are taken from."""

from __future__ import annotations

from causeway.proofs.ics23 import errors
from causeway.proofs.ics23.batch import (
    batch_verify_membership,
    batch_verify_non_membership,
    combine_proofs,
    compress,
    decompress,
)
from causeway.proofs.ics23.chained import (
    explain_chained_membership,
    verify_chained_membership,
    verify_chained_non_membership,
)
from causeway.proofs.ics23.entries import Entries, StoreError, sorted_entries
from causeway.proofs.ics23.iavl_store import IavlStore, IavlVersion
from causeway.proofs.ics23.many import verify_many
from causeway.proofs.ics23.multi_store import MultiStore
from causeway.proofs.ics23.proof_specs import IAVL_SPEC, PROOF_SPECS, SMT_SPEC, TENDERMINT_SPEC, spec_equals
from causeway.proofs.ics23.range_proof import VerifiedRun, range_proof_root, verify_range_proof
from causeway.proofs.ics23.simple_store import SimpleStore
from causeway.proofs.ics23.smt import SmtStore
from causeway.proofs.ics23.store_proofs import ProvableStore
from causeway.proofs.ics23.verify import calculate_root, explain, verify_membership, verify_non_membership

__all__ = [
    "IAVL_SPEC", "PROOF_SPECS", "SMT_SPEC", "TENDERMINT_SPEC", "Entries", "IavlStore", "IavlVersion", "MultiStore",
    "ProvableStore", "SimpleStore", "SmtStore", "StoreError", "VerifiedRun", "batch_verify_membership",
    "batch_verify_non_membership", "calculate_root", "combine_proofs", "compress", "decompress", "errors", "explain",
    "explain_chained_membership", "range_proof_root", "sorted_entries", "spec_equals", "verify_chained_membership",
    "verify_chained_non_membership", "verify_many", "verify_membership", "verify_non_membership", "verify_range_proof",
]  # fmt: skip
