"""What a relayer submits to a light client: a header to be trusted, or two that contradict each other."""

from __future__ import annotations

from dataclasses import dataclass

from causeway.proofs.protobuf import parse_canonical
from causeway.proofs.tendermint.commit import MAX_SIGNED_HEADER_BYTES, SignedHeader, signed_header_of
from causeway.proofs.tendermint.encoding import bytes_field, message_field, number_field
from causeway.proofs.tendermint.header import require_parts, revision_of
from causeway.proofs.tendermint.validators import MAX_VALIDATOR_SET_BYTES, ValidatorSet, validator_set_of
from causeway.proofs.wire import ibc_tendermint_pb2 as wire

MAX_HEADER_UPDATE_BYTES = MAX_SIGNED_HEADER_BYTES + 2 * MAX_VALIDATOR_SET_BYTES
"""Longest header update in protobuf form: 10,000 validators each twice, and their commit, take 2.4 to 2.8 MB."""

MAX_MISBEHAVIOUR_BYTES = 2 * MAX_HEADER_UPDATE_BYTES


@dataclass(frozen=True)
class HeaderUpdate:
    """A header U with all that it takes to verify it (``ibc.lightclients.tendermint.v1.Header``).

    Attributes:
        signed_header, validators: the header, its commit, and the validators that it names.
        trusted_height: the height of the trusted header that it builds on.
        trusted_validators: the validators that the trusted header vouches for: those of the next height on deployed
            chains, those of its own by the rule of the reference (``trust.Anchor``).
        trusted_revision: the revision of ``trusted_height``.
    """

    signed_header: SignedHeader
    validators: ValidatorSet
    trusted_height: int
    trusted_validators: ValidatorSet
    trusted_revision: int

    @classmethod
    def on(
        cls,
        trusted_height: int,
        trusted_validators: ValidatorSet,
        signed_header: SignedHeader,
        validators: ValidatorSet,
    ) -> HeaderUpdate:
        """Return the update to ``signed_header`` from a trusted height of the same revision of its chain."""
        revision = revision_of(signed_header.header.chain_id)
        return cls(signed_header, validators, trusted_height, trusted_validators, revision)

    @property
    def height(self) -> int:
        """Return the height of the header."""
        return self.signed_header.header.height

    def encode(self) -> bytes:
        """Return the protobuf form."""
        height = number_field(1, self.trusted_revision) + number_field(2, self.trusted_height)
        return b"".join(
            (
                message_field(1, self.signed_header.encode()),
                message_field(2, self.validators.encode()),
                message_field(3, height),
                message_field(4, self.trusted_validators.encode()),
            )
        )


@dataclass(frozen=True)
class Misbehaviour:
    """Two headers that one chain must not have signed both (X-3), the higher or equal one first."""

    header_1: HeaderUpdate
    header_2: HeaderUpdate
    client_id: str = ""

    def encode(self) -> bytes:
        """Return the protobuf form (``ibc.lightclients.tendermint.v1.Misbehaviour``)."""
        return b"".join(
            (
                bytes_field(1, self.client_id.encode()),
                message_field(2, self.header_1.encode()),
                message_field(3, self.header_2.encode()),
            )
        )


def header_update_of(message: wire.Header) -> HeaderUpdate:
    """Return the update that a protobuf message holds.

    Raises:
        MalformedProof: a part is missing, or malformed.
    """
    require_parts(message, "a header update", "signed_header", "validator_set", "trusted_height", "trusted_validators")
    return HeaderUpdate(
        signed_header=signed_header_of(message.signed_header),
        validators=validator_set_of(message.validator_set),
        trusted_height=message.trusted_height.revision_height,
        trusted_validators=validator_set_of(message.trusted_validators),
        trusted_revision=message.trusted_height.revision_number,
    )


def decode_header_update(data: bytes) -> HeaderUpdate:
    """Return the update of its protobuf form.

    Raises:
        OverLimit: it is longer than ``MAX_HEADER_UPDATE_BYTES``, or has more than 10,000 validators or votes.
        MalformedProof: it is not one, or not in the canonical encoding.
    """
    return header_update_of(parse_canonical(wire.Header, data, "header update", MAX_HEADER_UPDATE_BYTES))


def decode_misbehaviour(data: bytes) -> Misbehaviour:
    """Return the two headers of their protobuf form.

    Raises:
        OverLimit: it is longer than ``MAX_MISBEHAVIOUR_BYTES``, or has more than 10,000 validators or votes.
        MalformedProof: it is not one, or not in the canonical encoding.
    """
    message = parse_canonical(wire.Misbehaviour, data, "misbehaviour", MAX_MISBEHAVIOUR_BYTES)
    require_parts(message, "misbehaviour", "header_1", "header_2")
    return Misbehaviour(header_update_of(message.header_1), header_update_of(message.header_2), message.client_id)
