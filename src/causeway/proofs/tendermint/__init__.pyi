from . import errors
from .building import make_header, sign_header, validators_of
from .commit import (
    Commit,
    CommitSignature,
    Flag,
    SignedHeader,
    Threshold,
    decode_signed_header,
    verify_commit,
    vote_sign_bytes,
)
from .encoding import SECOND
from .header import BlockId, Header
from .keys import KeyType, PublicKey, SigningKey
from .light_client import LightClient, Outcome, Status, TrustSet, Updated, Wanted, bisection
from .rpc import signed_header_from_json, validators_from_json
from .series import SignedSeries
from .states import (
    ClientState,
    decode_client_state,
    decode_consensus_state,
    encode_client_state,
    encode_consensus_state,
)
from .trust import (
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
from .update import HeaderUpdate, Misbehaviour, decode_header_update, decode_misbehaviour
from .validators import Validator, ValidatorSet, decode_validator_set

__all__ = [
    "DEPLOYED_RULE", "REFERENCE_RULE", "SECOND", "BlockId", "ClientState", "Commit", "CommitSignature", "Flag",
    "Header", "HeaderUpdate", "KeyType", "LightClient", "Misbehaviour", "Outcome", "PublicKey", "SignedHeader",
    "SignedSeries", "SigningKey", "Status", "Threshold", "TrustOptions", "TrustRule", "TrustSet", "TrustedHeader",
    "Updated", "Validator", "ValidatorSet", "Wanted", "bisection", "decode_client_state", "decode_consensus_state",
    "decode_header_update", "decode_misbehaviour", "decode_signed_header", "decode_validator_set", "deployed_rule",
    "encode_client_state", "encode_consensus_state", "errors", "is_over", "make_header", "sign_header",
    "signed_header_from_json", "validators_from_json", "validators_of", "verify_commit", "verify_finality",
    "verify_header", "vote_sign_bytes",
]  # fmt: skip
