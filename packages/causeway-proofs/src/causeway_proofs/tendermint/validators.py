"""Validator sets and their hash (IBC reference 2.5: the consensus rules of a header).

Keys of validators: addresses, signatures and their verification.
"""

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
from causeway_proofs.wire import tendermint_crypto_pb2 as wire
from causeway_proofs.wire import tendermint_types_pb2 as tendermint_types_pb2_wire

SIGNATURE_BYTES = 64
"""Of both kinds of keys."""

SEED_BYTES = 32

_SECP256K1_ORDER = 0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_BAAEDCE6_AF48A03B_BFD25E8C_D0364141


class KeyType(Enum):
    """The kinds of keys that validator sets hold; the value is the field number in ``tendermint.crypto.PublicKey``."""

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
        """Return whether ``signature`` (64 bytes) is this key's on ``message``."""
        if len(signature) != SIGNATURE_BYTES:
            return False
        try:
            if self.type is KeyType.ED25519:
                Ed25519PublicKey.from_public_bytes(self.data).verify(signature, message)
                return True
            r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
            # The other root (order - s) would verify as well: one signature, one form.
            if s > _SECP256K1_ORDER // 2:
                return False
            _secp256k1(self.data).verify(utils.encode_dss_signature(r, s), message, ec.ECDSA(SHA256()))
        except (InvalidSignature, ValueError):
            # A ValueError: the bytes are no point of the curve.
            return False
        return True


@lru_cache(maxsize=1024)
def _secp256k1(data: bytes) -> ec.EllipticCurvePublicKey:
    return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256K1(), data)


@dataclass(frozen=True)
class SigningKey:
    """The Ed25519 key of a validator of a chain of ours, made from 32 bytes: the same seed, the same signatures."""

    seed: bytes

    def __post_init__(self) -> None:
        require_size(self.seed, "seed of a signing key", SEED_BYTES)

    @classmethod
    def from_name(cls, name: str) -> SigningKey:
        """Return the key that belongs to a name: for test chains, where a key need not be secret."""
        return cls(sha256(name.encode()).digest())

    @cached_property
    def _private(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.seed)

    @cached_property
    def public_key(self) -> PublicKey:
        """Return the public key."""
        return PublicKey(self._private.public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        """Return the signature on ``message``, 64 bytes."""
        return self._private.sign(message)


def public_key_from_proto(message: wire.PublicKey) -> PublicKey:
    """Return the key that a protobuf message holds.

    Raises:
        MalformedProof: it holds none, or one of the wrong size.
    """
    name = message.WhichOneof("sum")
    if name is None:
        raise MalformedProof("public key of a validator is neither ed25519 nor secp256k1")
    return PublicKey(getattr(message, name), KeyType[name.upper()])


MAX_VALIDATORS = 10_000
"""As deployed: more votes than this are never read."""

MAX_VALIDATOR_SET_BYTES = 1 << 20
"""Longest validator set in protobuf form: ``MAX_VALIDATORS`` and a proposer of at most 84 bytes each."""

MAX_TOTAL_POWER = (2**63 - 1) // 8
"""As deployed: sums of power stay below it."""

LARGEST_KEPT = 8 << 10
"""Bytes of a set up to which it is kept when it was read; about 80 validators."""


@dataclass(frozen=True)
class Validator:
    """A validator: its key, and what its signature weighs.

    ``proposer_priority`` belongs to the choice of the next proposer. It is in no hash: whoever carries a validator set
    may write what he likes.
    """

    public_key: PublicKey
    power: int
    proposer_priority: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.power <= MAX_TOTAL_POWER:
            raise MalformedProof(f"voting_power of a validator is {self.power}, 1..{MAX_TOTAL_POWER} is allowed")

    @property
    def address(self) -> bytes:
        """Return the first 20 bytes of the key's hash (for Ed25519)."""
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
        """Return what goes into the hash of the set (``tendermint.types.SimpleValidator``)."""
        return message_field(1, self.public_key.encode()) + number_field(2, self.power)


@dataclass(frozen=True)
class ValidatorSet:
    """Validators in the order in which they are hashed and in which a commit lists their signatures.

    Use ``ValidatorSet.of`` to make one; the constructor keeps the order it is given, since the hash vouches for it.
    ``proposer`` is a member, or None; like the priorities it is in no hash.
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
        """Return the set of ``validators`` in the deployed order: the most power first, then by address."""
        return cls(tuple(sorted(validators, key=lambda validator: (-validator.power, validator.address))))

    def __len__(self) -> int:
        return len(self.validators)

    @cached_property
    def total_power(self) -> int:
        """Return the sum of the power of all."""
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
        """Return the Merkle root over keys and power of the validators in order."""
        return simple_root([validator.encode_simple() for validator in self.validators])

    def encode(self) -> bytes:
        """Return the protobuf form (``tendermint.types.ValidatorSet``)."""
        # Deployed decoders want a proposer.
        proposer = self.proposer or self.validators[0]
        members = b"".join([message_field(1, validator.encode()) for validator in self.validators])
        return members + message_field(2, proposer.encode()) + number_field(3, self.total_power)


def validator_set_from_proto(message: tendermint_types_pb2_wire.ValidatorSet) -> ValidatorSet:
    """Return the validator set that a protobuf message holds.

    Raises:
        OverLimit: it has more than 10,000 validators.
        MalformedProof: none, an address that is not its key's, one twice, power out of range, a wrong sum of power, or
            a proposer who is no member.
    """
    encoded = message.SerializeToString(deterministic=True)
    return _small_set(encoded) if len(encoded) <= LARGEST_KEPT else _validator_set_of(message)


@lru_cache(maxsize=128)
def _small_set(encoded: bytes) -> ValidatorSet:
    """Return a set that is decoded, and hashed, once however many headers bring it: the same bytes are the same set."""
    message = tendermint_types_pb2_wire.ValidatorSet()
    message.ParseFromString(encoded)
    return _validator_set_of(message)


def _validator_set_of(message: tendermint_types_pb2_wire.ValidatorSet) -> ValidatorSet:
    if len(message.validators) > MAX_VALIDATORS:
        raise OverLimit(f"a validator set has {len(message.validators)} validators, at most {MAX_VALIDATORS} are read")
    proposer = validator_from_proto(message.proposer) if message.HasField("proposer") else None
    found = ValidatorSet(tuple([validator_from_proto(validator) for validator in message.validators]), proposer)
    # Encoders of different age leave the sum out or write it; nobody may lie about it.
    if message.total_voting_power not in (0, found.total_power):
        raise MalformedProof(
            f"total_voting_power of a validator set is {message.total_voting_power}, its validators have"
            f" {found.total_power}"
        )
    if proposer is not None and found.power_of.get(proposer.public_key) != proposer.power:
        raise MalformedProof(f"proposer {proposer.address.hex()} of a validator set is no member of it")
    return found


def validator_from_proto(message: tendermint_types_pb2_wire.Validator) -> Validator:
    """Return the validator that a protobuf message holds.

    Raises:
        MalformedProof: no key, an address that is not the key's, or power out of range.
    """
    require_parts(message, "a validator", "pub_key")
    validator = Validator(public_key_from_proto(message.pub_key), message.voting_power, message.proposer_priority)
    if message.address != validator.address:
        raise MalformedProof(
            f"address of a validator is {hex_text(message.address)}, its key belongs to {validator.address.hex()}"
        )
    return validator


def decode_validator_set(data: bytes) -> ValidatorSet:
    """Return the validator set of its protobuf form.

    Raises:
        OverLimit: it has more than 10,000 validators, or more than ``MAX_VALIDATOR_SET_BYTES`` bytes.
        MalformedProof: see ``validator_set_of``; or it is not the canonical encoding of one.
    """
    return validator_set_from_proto(
        parse_canonical(tendermint_types_pb2_wire.ValidatorSet, data, "validator set", MAX_VALIDATOR_SET_BYTES)
    )
