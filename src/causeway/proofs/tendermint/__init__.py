"""Tendermint headers, validator sets, and the rule by which a light client trusts a header."""

from __future__ import annotations

from causeway.proofs.tendermint import errors
from causeway.proofs.tendermint.building import make_header, sign_header, validators_of
from causeway.proofs.tendermint.commit import (
    Commit,
    CommitSignature,
    Flag,
    SignedHeader,
    Threshold,
    decode_signed_header,
    verify_commit,
    vote_sign_bytes,
)
from causeway.proofs.tendermint.encoding import SECOND
from causeway.proofs.tendermint.header import BlockId, Header
from causeway.proofs.tendermint.keys import KeyType, PublicKey, SigningKey
from causeway.proofs.tendermint.light_client import LightClient, Outcome, Status, TrustSet, Updated, Wanted, bisection
from causeway.proofs.tendermint.rpc import signed_header_from_json, validators_from_json
from causeway.proofs.tendermint.states import (
    ClientState,
    decode_client_state,
    decode_consensus_state,
    encode_client_state,
    encode_consensus_state,
)
from causeway.proofs.tendermint.trust import (
    DEPLOYED_RULE,
    REFERENCE_RULE,
    TrustedHeader,
    TrustOptions,
    TrustRule,
    deployed_rule,
    is_over,
    verify_finality,
    verify_header,
)
from causeway.proofs.tendermint.update import HeaderUpdate, Misbehaviour, decode_header_update, decode_misbehaviour
from causeway.proofs.tendermint.validators import Validator, ValidatorSet, decode_validator_set

__all__ = [
    "DEPLOYED_RULE", "REFERENCE_RULE", "SECOND", "BlockId", "ClientState", "Commit", "CommitSignature", "Flag",
    "Header", "HeaderUpdate", "KeyType", "LightClient", "Misbehaviour", "Outcome", "PublicKey", "SignedHeader",
    "SigningKey", "Status", "Threshold", "TrustOptions", "TrustRule", "TrustSet", "TrustedHeader", "Updated",
    "Validator", "ValidatorSet", "Wanted", "bisection", "decode_client_state", "decode_consensus_state",
    "decode_header_update", "decode_misbehaviour", "decode_signed_header", "decode_validator_set", "deployed_rule",
    "encode_client_state", "encode_consensus_state", "errors", "is_over", "make_header", "sign_header",
    "signed_header_from_json", "validators_from_json", "validators_of", "verify_commit", "verify_finality",
    "verify_header", "vote_sign_bytes",
]  # fmt: skip
