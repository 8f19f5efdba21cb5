from . import bls, errors, labeled_tree, messages, witness
from .bls import SecretKey, public_key_from_der, public_key_to_der
from .certificate import (
    Certificate,
    Delegation,
    certification_message,
    decode_certificate,
    encode_certificate,
    verify_state_root,
)
from .certification import Freshness, VerifiedCertificate, certify, state_tree, verify_certificate
from .certified_roots import verify_certifications
from .columns import Columns, encode_stream_messages
from .decoded_messages import DecodedMessages, decode_stream_messages
from .delegation import RangesForm, SubnetRecord, VerifiedDelegation, delegate, verify_delegation
from .digest_columns import stream_digests
from .hash_tree import (
    EMPTY,
    Empty,
    Fork,
    HashTree,
    Labeled,
    Leaf,
    Pruned,
    build_tree,
    digest,
    leaves,
    require_well_formed,
)
from .hash_tree_cbor import decode_tree, encode_tree
from .header_columns import DecodedHeaders, decode_stream_headers, encode_stream_headers
from .lookup import (
    Lookup,
    Status,
    SubtreeLookup,
    lookup_path,
    lookup_subtree,
    path_steps,
    require_absent,
    require_value,
)
from .messages import (
    Data,
    Refund,
    RejectCode,
    RejectContext,
    Request,
    RequestMetadata,
    Response,
    StreamMessage,
    decode_stream_message,
    encode_stream_message,
)
from .metadata import SystemMetadata, encode_system_metadata
from .offered_streams import OfferedStreams, SliceRequestError
from .principals import principal_from_text, principal_to_text
from .pruning import prune
from .ranges import canister_ranges, decode_ranges, encode_ranges
from .slice import (
    CertifiedStreamSlice,
    StreamSlice,
    decode_certified_stream,
    decode_certified_stream_slice,
    decode_valid_certified_stream,
    encode_certified_stream_slice,
)
from .slice_certification import Certification
from .slice_columns import SliceFault, slice_roots
from .slice_payload import SlicePayload, payload_tree
from .stream_forest import StreamForest
from .stream_header import (
    RejectReason,
    RejectSignal,
    StreamFlags,
    StreamHeader,
    decode_stream_header,
    encode_stream_header,
)
from .stream_tree import MessagesTree, StreamTree
from .threshold import Dealing, ThresholdKey, deal, seeded_coefficients
from .versions import CertificationVersion
from .witness import decode_witness, encode_witness
from .witness_pruning import prune_witness, recompute_digest

__all__ = [
    "EMPTY", "Certificate", "Certification", "CertificationVersion", "CertifiedStreamSlice", "Columns", "Data",
    "Dealing", "DecodedHeaders", "DecodedMessages", "Delegation", "Empty", "Fork", "Freshness", "HashTree",
    "Labeled", "Leaf", "Lookup", "MessagesTree", "OfferedStreams", "Pruned", "RangesForm", "Refund", "RejectCode",
    "RejectContext", "RejectReason", "RejectSignal", "Request", "RequestMetadata", "Response", "SecretKey",
    "SliceFault", "SlicePayload", "SliceRequestError", "Status", "StreamFlags", "StreamForest", "StreamHeader",
    "StreamMessage", "StreamSlice", "StreamTree", "SubnetRecord", "SubtreeLookup", "SystemMetadata", "ThresholdKey",
    "VerifiedCertificate", "VerifiedDelegation", "bls", "build_tree", "canister_ranges", "certification_message",
    "certify", "deal", "decode_certificate", "decode_certified_stream", "decode_certified_stream_slice",
    "decode_ranges", "decode_stream_header", "decode_stream_headers", "decode_stream_message",
    "decode_stream_messages", "decode_tree", "decode_valid_certified_stream", "decode_witness", "delegate",
    "digest", "encode_certificate", "encode_certified_stream_slice", "encode_ranges", "encode_stream_header",
    "encode_stream_headers", "encode_stream_message", "encode_stream_messages", "encode_system_metadata",
    "encode_tree", "encode_witness", "errors", "labeled_tree", "leaves", "lookup_path", "lookup_subtree",
    "messages", "path_steps", "payload_tree", "principal_from_text", "principal_to_text", "prune", "prune_witness",
    "public_key_from_der", "public_key_to_der", "recompute_digest", "require_absent", "require_value",
    "require_well_formed", "seeded_coefficients", "slice_roots", "state_tree", "stream_digests",
    "verify_certificate", "verify_certifications", "verify_delegation", "verify_state_root", "witness",
]  # fmt: skip
