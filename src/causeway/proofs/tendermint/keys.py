"""Keys of validators: addresses, signatures and their verification."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache
from hashlib import sha256

from Crypto.Hash import RIPEMD160
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256

from causeway.proofs.errors import MalformedProof
from causeway.proofs.tendermint.encoding import message_field
from causeway.proofs.tendermint.header import require_size
from causeway.proofs.wire import tendermint_crypto_pb2 as wire

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


def public_key_of(message: wire.PublicKey) -> PublicKey:
    """Return the key that a protobuf message holds.

    Raises:
        MalformedProof: it holds none, or one of the wrong size.
    """
    name = message.WhichOneof("sum")
    if name is None:
        raise MalformedProof("public key of a validator is neither ed25519 nor secp256k1")
    return PublicKey(getattr(message, name), KeyType[name.upper()])
