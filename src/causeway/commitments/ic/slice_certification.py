"""What a subnet signs about its state, as it travels with a slice (IC reference 2.9)."""

from __future__ import annotations

from dataclasses import dataclass

from causeway.commitments.hashing import DIGEST_BYTES
from causeway.commitments.ic.certificate import certification_message
from causeway.commitments.ic.errors import DecodeFailed
from causeway.commitments.wire import xnet_pb2


@dataclass(frozen=True, slots=True)
class Certification:
    """A subnet's signature on the root of its state.

    Attributes:
        height: of the state.
        root_hash: digest of the state's tree, 32 bytes.
        signature: threshold signature on ``signed_bytes()``, a point of 48 bytes when it is one.
        signer: id of the key that signed, as it was encoded; None if there is none.
        height_witness: proof that the height is in the state, as it was encoded; None if there is none.
    """

    height: int
    root_hash: bytes
    signature: bytes
    signer: bytes | None = None
    height_witness: bytes | None = None

    def signed_bytes(self) -> bytes:
        """Return what ``signature`` signs: the domain separator of state roots, and the root."""
        return certification_message(self.root_hash)


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
    return Certification(
        height=message.height,
        root_hash=root_hash,
        signature=signed.signature,
        signer=signed.signer if signed.HasField("signer") else None,
        height_witness=message.height_witness if message.HasField("height_witness") else None,
    )
