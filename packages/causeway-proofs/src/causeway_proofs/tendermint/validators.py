"""Validator sets, their hash and keys (IBC reference 2.5: the consensus rules of a header)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache
from hashlib import sha256

from Crypto.Hash import RIPEMD160
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256

from causeway_proofs.errors import MalformedProof, OverLimit, hex_text
from causeway_proofs.protobuf import parse_canonical
from causeway_proofs.tendermint.header import (
    bytes_field,
    message_field,
    number_field,
    require_parts,
    require_size,
    simple_root,
)
from causeway_proofs.wire import tendermint_crypto_pb2, tendermint_types_pb2

SIGNATURE_BYTES = 64
"""Signature length of both key types."""

SEED_BYTES = 32

_SECP256K1_ORDER = 0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_BAAEDCE6_AF48A03B_BFD25E8C_D0364141


class KeyType(Enum):
    """Key types of validators; the value is the field number in ``tendermint.crypto.PublicKey``."""

    ED25519 = 1
    SECP256K1 = 2


KEY_BYTES = {KeyType.ED25519: 32, KeyType.SECP256K1: 33}


@dataclass(frozen=True)
class PublicKey:
    """A validator's public key: 32 bytes (Ed25519), or 33 bytes (secp256k1, compressed)."""

    data: bytes
    type: KeyType = KeyType.ED25519

    def __post_init__(self) -> None:
        require_size(self.data, f"public key ({self.type.name.lower()}) of a validator", KEY_BYTES[self.type])

    @cached_property
    def address(self) -> bytes:
        """Return the validator's address, 20 bytes."""
        digest = sha256(self.data).digest()
        return digest[:20] if self.type is KeyType.ED25519 else RIPEMD160.new(digest).digest()

    def encode(self) -> bytes:
        """Return the protobuf form (``tendermint.crypto.PublicKey``)."""
        return message_field(self.type.value, self.data)

    def accepts(self, signature: bytes, message: bytes) -> bool:
        """Return True if ``signature`` (64 bytes) verifies for ``message``.

        Args:
            signature: 64 bytes.
            message: the signed bytes.

        Returns:
            True if the signature is valid.
        """
        if len(signature) != SIGNATURE_BYTES:
            return False
        try:
            if self.type is KeyType.ED25519:
                Ed25519PublicKey.from_public_bytes(self.data).verify(signature, message)
                return True
            r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
            # Reject the malleable form (order - s), which would verify, too.
            if s > _SECP256K1_ORDER // 2:
                return False
            _secp256k1(self.data).verify(utils.encode_dss_signature(r, s), message, ec.ECDSA(SHA256()))
        except (InvalidSignature, ValueError):
            # ValueError: the bytes are not a point of the curve.
            return False
        return True


@lru_cache(maxsize=1024)
def _secp256k1(data: bytes) -> ec.EllipticCurvePublicKey:
    return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256K1(), data)


@dataclass(frozen=True)
class SigningKey:
    """A validator's Ed25519 key for local chains, deterministic from a 32-byte seed."""

    seed: bytes

    def __post_init__(self) -> None:
        require_size(self.seed, "seed of a signing key", SEED_BYTES)

    @classmethod
    def from_name(cls, name: str) -> SigningKey:
        """Derive a key from a name, for test chains without secrets.

        Args:
            name: any text.

        Returns:
            The key.
        """
        return cls(sha256(name.encode()).digest())

    @cached_property
    def _private(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.seed)

    @cached_property
    def public_key(self) -> PublicKey:
        """Return the public key."""
        return PublicKey(self._private.public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        """Sign ``message``.

        Args:
            message: the bytes to sign.

        Returns:
            The signature, 64 bytes.
        """
        return self._private.sign(message)


def public_key_from_proto(message: tendermint_crypto_pb2.PublicKey) -> PublicKey:
    """Convert a protobuf message to a key.

    Raises:
        MalformedProof: the message holds no key, or one of the wrong size.
    """
    name = message.WhichOneof("sum")
    if name is None:
        raise MalformedProof("public key of a validator is neither ed25519 nor secp256k1")
    return PublicKey(getattr(message, name), KeyType[name.upper()])


MAX_VALIDATORS = 10_000
"""Most votes that are read, as deployed."""

MAX_VALIDATOR_SET_BYTES = 1 << 20
"""Longest validator set: ``MAX_VALIDATORS`` and a proposer of at most 84 bytes each."""

MAX_TOTAL_POWER = (2**63 - 1) // 8
"""Bound of sums of power, as deployed."""

MAX_CACHED_SET_BYTES = 8 << 10
"""Most bytes of a cached validator set, about 80 validators."""


@dataclass(frozen=True)
class Validator:
    """A validator.

    Attributes:
        public_key: its key.
        power: weight of its signature.
        proposer_priority: state of the proposer election; unhashed, so a relayer may set any value.
    """

    public_key: PublicKey
    power: int
    proposer_priority: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.power <= MAX_TOTAL_POWER:
            raise MalformedProof(f"voting_power of a validator is {self.power}, 1..{MAX_TOTAL_POWER} is allowed")

    @property
    def address(self) -> bytes:
        """Return the address: for Ed25519, the first 20 bytes of the key's hash."""
        return self.public_key.address

    def encode(self) -> bytes:
        """Return the protobuf form (``tendermint.types.Validator``)."""
        return b"".join(
            (
                bytes_field(1, self.address),
                message_field(2, self.public_key.encode()),
                number_field(3, self.power),
                number_field(4, self.proposer_priority),
            )
        )

    def encode_simple(self) -> bytes:
        """Return the form that is hashed in the set (``tendermint.types.SimpleValidator``)."""
        return message_field(1, self.public_key.encode()) + number_field(2, self.power)


@dataclass(frozen=True)
class ValidatorSet:
    """Validators in hash order, which is also the order of signatures in a commit.

    Build one with ``ValidatorSet.of``; the constructor preserves the given order, since the hash binds it.

    Attributes:
        validators: the members.
        proposer: a member, or None; unhashed.
    """

    validators: tuple[Validator, ...]
    proposer: Validator | None = None

    def __post_init__(self) -> None:
        if not self.validators:
            raise MalformedProof("a validator set has no validators")
        if len(self.validators) > MAX_VALIDATORS:
            raise OverLimit(f"a validator set has {len(self.validators)} validators, at most {MAX_VALIDATORS} are read")
        if self.total_power > MAX_TOTAL_POWER:
            raise MalformedProof(f"a validator set has the power {self.total_power}, at most {MAX_TOTAL_POWER}")
        if len(self.position_of) != len(self.validators):
            raise MalformedProof("a validator set names one validator twice")

    @classmethod
    def of(cls, validators: Iterable[Validator]) -> ValidatorSet:
        """Build a set in the deployed order: by descending power, then by address.

        Args:
            validators: the members.

        Returns:
            The set.
        """
        return cls(tuple(sorted(validators, key=lambda validator: (-validator.power, validator.address))))

    def __len__(self) -> int:
        return len(self.validators)

    @cached_property
    def total_power(self) -> int:
        """Return the total power."""
        return sum(validator.power for validator in self.validators)

    @cached_property
    def position_of(self) -> dict[bytes, int]:
        """Return each validator's position by its address."""
        return {validator.address: position for position, validator in enumerate(self.validators)}

    @cached_property
    def power_of(self) -> dict[PublicKey, int]:
        """Return each validator's power by its key."""
        return {validator.public_key: validator.power for validator in self.validators}

    @cached_property
    def hash(self) -> bytes:
        """Return the Merkle root over keys and powers in order."""
        return simple_root([validator.encode_simple() for validator in self.validators])

    def encode(self) -> bytes:
        """Return the protobuf form (``tendermint.types.ValidatorSet``)."""
        # Deployed decoders require a proposer.
        proposer = self.proposer or self.validators[0]
        members = b"".join([message_field(1, validator.encode()) for validator in self.validators])
        return members + message_field(2, proposer.encode()) + number_field(3, self.total_power)


def validator_set_from_proto(message: tendermint_types_pb2.ValidatorSet) -> ValidatorSet:
    """Convert a protobuf message to a validator set.

    Raises:
        OverLimit: the set exceeds 10,000 validators.
        MalformedProof: the set is empty, an address does not match its key or is duplicated, a power is out of range,
            the total power is wrong, or the proposer is not a member.
    """
    encoded = message.SerializeToString(deterministic=True)
    return _small_set(encoded) if len(encoded) <= MAX_CACHED_SET_BYTES else _validator_set_of(message)


@lru_cache(maxsize=128)
def _small_set(encoded: bytes) -> ValidatorSet:
    """Return a cached validator set, decoded and hashed once for equal bytes."""
    message = tendermint_types_pb2.ValidatorSet()
    message.ParseFromString(encoded)
    return _validator_set_of(message)


def _validator_set_of(message: tendermint_types_pb2.ValidatorSet) -> ValidatorSet:
    if len(message.validators) > MAX_VALIDATORS:
        raise OverLimit(f"a validator set has {len(message.validators)} validators, at most {MAX_VALIDATORS} are read")
    proposer = validator_from_proto(message.proposer) if message.HasField("proposer") else None
    found = ValidatorSet(tuple([validator_from_proto(validator) for validator in message.validators]), proposer)
    # Old encoders omit the total power, newer ones write it; a wrong one is rejected.
    if message.total_voting_power not in (0, found.total_power):
        raise MalformedProof(
            f"total_voting_power of a validator set is {message.total_voting_power}, its validators have"
            f" {found.total_power}"
        )
    if proposer is not None and found.power_of.get(proposer.public_key) != proposer.power:
        raise MalformedProof(f"proposer {proposer.address.hex()} of a validator set is no member of it")
    return found


def validator_from_proto(message: tendermint_types_pb2.Validator) -> Validator:
    """Convert a protobuf message to a validator.

    Raises:
        MalformedProof: the key is missing, the address does not match it, or the power is out of range.
    """
    require_parts(message, "a validator", "pub_key")
    validator = Validator(public_key_from_proto(message.pub_key), message.voting_power, message.proposer_priority)
    if message.address != validator.address:
        raise MalformedProof(
            f"address of a validator is {hex_text(message.address)}, its key belongs to {validator.address.hex()}"
        )
    return validator


def decode_validator_set(data: bytes) -> ValidatorSet:
    """Decode the canonical protobuf form of a validator set.

    Args:
        data: the encoding.

    Returns:
        The set.

    Raises:
        OverLimit: the set exceeds 10,000 validators, or ``MAX_VALIDATOR_SET_BYTES``.
        MalformedProof: as ``validator_set_from_proto``, or ``data`` is not canonical.
    """
    return validator_set_from_proto(
        parse_canonical(tendermint_types_pb2.ValidatorSet, data, "validator set", MAX_VALIDATOR_SET_BYTES)
    )
