"""What a subnet signs about its state, as it travels with a slice (IC reference 2.9)."""

from __future__ import annotations

from dataclasses import dataclass

from causeway.proofs.hashing import DIGEST_BYTES
from causeway.proofs.ic.certificate import certification_message
from causeway.proofs.ic.errors import DecodeFailed, RootHashMismatch, TreeHashError, WitnessPruningFailed
from causeway.proofs.ic.labeled_tree import LabeledTree, Leaf, SubTree
from causeway.proofs.ic.leb128 import encode_leb128
from causeway.proofs.ic.witness import decode_witness
from causeway.proofs.ic.witness_pruning import recompute_digest
from causeway.proofs.limits import require_length
from causeway.proofs.protobuf import parse_canonical
from causeway.proofs.wire import xnet_pb2

METADATA, HEIGHT = b"metadata", b"height"

MAX_SIGNER_BYTES = 256
"""The id of a key has a height, two numbers and an id of 29 bytes; nothing signs it, so it must not carry a load."""

MAX_HEIGHT_WITNESS_BYTES = 1024
"""A witness of one leaf two labels deep, with a pruned node (36 bytes) for each fork among a dozen labels."""

MAX_CERTIFICATION_BYTES = 2048
"""More than the largest parts have together."""


@dataclass(frozen=True, slots=True)
class Certification:
    """A subnet's signature on the root of its state.

    Attributes:
        height: of the state.
        root_hash: digest of the state's tree, 32 bytes.
        signature: threshold signature on ``signed_bytes()``, a point of 48 bytes when it is one.
        signer: id of the key that signed, as it was encoded; None if there is none.
        height_witness: encoded witness of ``metadata / height`` in the state (certification version 24 on); None if
            there is none, and then nothing but the sender's word says which height it is.
    """

    height: int
    root_hash: bytes
    signature: bytes
    signer: bytes | None = None
    height_witness: bytes | None = None

    def signed_bytes(self) -> bytes:
        """Return what ``signature`` signs: the domain separator of state roots, and the root."""
        return certification_message(self.root_hash)

    def verify_height(self) -> bool:
        """Check that ``height_witness`` shows ``height`` in the state; return whether there is one.

        Raises:
            OverLimit, MalformedProof: it is no witness.
            WitnessPruningFailed: it is not one of the height.
            RootHashMismatch: it is of another height or another state.
        """
        if self.height_witness is None:
            return False
        require_length(self.height_witness, "height witness", MAX_HEIGHT_WITNESS_BYTES)
        try:
            root = recompute_digest(height_tree(self.height), decode_witness(self.height_witness))
        except TreeHashError as error:
            raise WitnessPruningFailed(f"height witness: {error}") from error
        if root != self.root_hash:
            raise RootHashMismatch(
                f"height {self.height} and its witness have the root {root.hex()}, certified is {self.root_hash.hex()}"
            )
        return True


def height_tree(height: int) -> LabeledTree:
    """Return the part of a state that holds its height: ``metadata / height``, in LEB128 (IC reference 2.9)."""
    return SubTree({METADATA: SubTree({HEIGHT: Leaf(encode_leb128(height))})})


def encode_certification(certification: Certification) -> bytes:
    """Return the protobuf form of a certification."""
    return write_certification(certification).SerializeToString(deterministic=True)


def decode_certification(data: bytes) -> Certification:
    """Return the certification that ``data`` is the canonical protobuf form of; nothing in it is verified.

    Raises:
        OverLimit: it, the signer's id or the height's witness is longer than any is.
        MalformedProof: it is not canonical, a part is missing, or the root hash is no digest.
    """
    return read_certification(parse_canonical(xnet_pb2.Certification, data, "Certification", MAX_CERTIFICATION_BYTES))


def write_certification(certification: Certification) -> xnet_pb2.Certification:
    """Return the protobuf message of a certification."""
    return xnet_pb2.Certification(
        height=certification.height,
        content=xnet_pb2.CertificationContent(hash=certification.root_hash),
        signature=xnet_pb2.ThresholdSignature(signature=certification.signature, signer=certification.signer),
        height_witness=certification.height_witness,
    )


def read_certification(message: xnet_pb2.Certification) -> Certification:
    """Return the certification that a protobuf message is.

    Raises:
        OverLimit: the signer's id or the height's witness is longer than any is.
        DecodeFailed: a part is missing, or the root hash is no digest.
    """
    if not message.HasField("content"):
        raise DecodeFailed("Missing required struct field: Certification::content")
    if not message.HasField("signature"):
        raise DecodeFailed("Missing required struct field: Certification::signature")
    root_hash = message.content.hash
    if len(root_hash) != DIGEST_BYTES:
        raise DecodeFailed(f"root hash: expected a blob of length {DIGEST_BYTES}, got {len(root_hash)}")
    signed = message.signature
    require_length(signed.signer, "signer of a certification", MAX_SIGNER_BYTES)
    require_length(message.height_witness, "height witness", MAX_HEIGHT_WITNESS_BYTES)
    return Certification(
        height=message.height,
        root_hash=root_hash,
        signature=signed.signature,
        signer=signed.signer if signed.HasField("signer") else None,
        height_witness=message.height_witness if message.HasField("height_witness") else None,
    )
