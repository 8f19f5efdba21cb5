"""BLS12-381 signatures as the Internet Computer uses them: signature in G1, public key in G2 (IC reference 2.9).

A signature has 48 bytes, a public key 96, both compressed. Messages are hashed to G1 (RFC 9380) under
``DOMAIN_SEPARATION_TAG``. Points from strangers are taken in their one canonical encoding only, never the identity and
never from outside the subgroup: the identity key with the identity signature satisfies the pairing equation for every
message.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from py_arkworks_bls12381 import GT, G1Point, G2Point, Scalar

from causeway.model.errors import InvalidInput
from causeway.proofs.ic.errors import InvalidSignature, MalformedKey, MalformedSignature

DOMAIN_SEPARATION_TAG = b"BLS_SIG_BLS12381G1_XMD:SHA-256_SSWU_RO_NUL_"

SIGNATURE_BYTES = 48
PUBLIC_KEY_BYTES = 96
SECRET_KEY_BYTES = 32

DER_PREFIX = bytes.fromhex("308182301d060d2b0601040182dc7c0503010201060c2b0601040182dc7c05030201036100")
"""What stands before a public key in DER (SubjectPublicKeyInfo with the two object identifiers of this scheme)."""

ORDER = 0x73EDA753299D7D483339D80809A1D80553BDA402FFFE5BFEFFFFFFFF00000001
"""Number of elements of the groups; secret keys are the numbers from 1 to ``ORDER - 1``."""

_GENERATOR = G2Point()
_DERIVATION = b"causeway bls12-381 secret key"
_COEFFICIENTS = b"causeway bls12-381 coefficients"

SHORT = 64
"""Of messages of so many bytes, state roots among them, the last points are kept."""

COEFFICIENT_BYTES = 16
"""Errors of signatures verified together cancel out with a probability of one in 2**128."""


@dataclass(frozen=True, slots=True, repr=False)
class SecretKey:
    """A secret key; ``number`` is from 1 to ``ORDER - 1``.

    Raises:
        InvalidInput: it is not.
    """

    number: int

    def __post_init__(self) -> None:
        if not 0 < self.number < ORDER:
            raise InvalidInput("a BLS12-381 secret key is a number from 1 to the group order less 1")

    def __repr__(self) -> str:
        return "SecretKey(...)"

    @classmethod
    def generate(cls) -> SecretKey:
        """Return a new key from the operating system's randomness."""
        return cls(1 + secrets.randbelow(ORDER - 1))

    @classmethod
    def derive(cls, seed: bytes) -> SecretKey:
        """Return the key that belongs to ``seed``; it is as secret as the seed is.

        The key is SHA-512 of a tag and the seed, modulo ``ORDER - 1``, plus 1: for simulated networks, which must come
        out the same in every run.
        """
        wide = hashlib.sha512(len(_DERIVATION).to_bytes(1, "big") + _DERIVATION + seed).digest()
        return cls(1 + int.from_bytes(wide, "big") % (ORDER - 1))

    @classmethod
    def from_bytes(cls, data: bytes) -> SecretKey:
        """Return the key that ``data`` is: 32 bytes, big-endian.

        Raises:
            InvalidInput: another length, zero, or not below the group order.
        """
        if len(data) != SECRET_KEY_BYTES:
            raise InvalidInput(f"a secret key has {SECRET_KEY_BYTES} bytes, these are {len(data)}")
        return cls(int.from_bytes(data, "big"))

    def to_bytes(self) -> bytes:
        """Return the key in 32 bytes, big-endian."""
        return self.number.to_bytes(SECRET_KEY_BYTES, "big")

    def public_key(self) -> bytes:
        """Return the public key, 96 bytes."""
        return (_GENERATOR * Scalar(self.number)).to_compressed_bytes()

    def sign(self, message: bytes) -> bytes:
        """Return the signature of ``message``, 48 bytes."""
        return cast(bytes, (_hash_to_point(message) * Scalar(self.number)).to_compressed_bytes())


def verify(signature: bytes, message: bytes, public_key: bytes) -> None:
    """Return when ``signature`` (48 bytes) is one of ``message`` under ``public_key`` (96 bytes).

    Raises:
        MalformedSignature: it is no point of the subgroup in its canonical encoding, or the identity.
        MalformedKey: the same of the key.
        InvalidSignature: it is a signature, but not this one.
    """
    key, point = key_point(public_key), signature_point(signature)
    if not GT.pairing_check([point, -_hash_to_point(message)], [_GENERATOR, key]):
        raise InvalidSignature(f"the signature {signature.hex()} is not one of this message under this key")


def is_each_signed(points: Sequence[Any], messages: Sequence[bytes], public_keys: Sequence[bytes]) -> bool:
    """Return whether each signature is one of the message under the key at the same position.

    All at once: the signatures are multiplied by coefficients of 128 bits and summed, and so are the messages of each
    key. The coefficients are drawn from a hash of everything given, so that nobody can choose signatures whose errors
    cancel out; and every call with the same arguments has the same result.

    Args:
        points: the signatures, as ``signature_point`` gives them.
        messages: what is signed.
        public_keys: 96 bytes each.

    Raises:
        MalformedKey: as of ``verify``.
    """
    given = hashlib.sha256(_COEFFICIENTS)
    for point, message, public_key in zip(points, messages, public_keys, strict=True):
        given.update(point.to_compressed_bytes() + public_key + len(message).to_bytes(8, "big") + message)
    seed = given.digest()
    coefficients = [
        Scalar(int.from_bytes(hashlib.sha256(seed + at.to_bytes(8, "big")).digest()[:COEFFICIENT_BYTES], "big"))
        for at in range(len(points))
    ]
    of_keys: dict[bytes, Any] = {}
    for message, public_key, coefficient in zip(messages, public_keys, coefficients, strict=True):
        term = _hash_to_point(message) * coefficient
        of_keys[public_key] = of_keys[public_key] + term if public_key in of_keys else term
    total = G1Point.multiexp_unchecked(list(points), coefficients)
    return bool(GT.pairing_check([-total, *of_keys.values()], [_GENERATOR, *map(key_point, of_keys)]))


def public_key_to_der(public_key: bytes) -> bytes:
    """Return ``public_key`` (96 bytes) with its DER prefix, 133 bytes.

    Raises:
        MalformedKey: it has another length.
    """
    if len(public_key) != PUBLIC_KEY_BYTES:
        raise MalformedKey(f"a public key has {PUBLIC_KEY_BYTES} bytes, this one has {len(public_key)}")
    return DER_PREFIX + public_key


def public_key_from_der(der: bytes) -> bytes:
    """Return the public key in ``der``, 96 bytes; whether it is a point shows when it is used.

    Raises:
        MalformedKey: another length or another prefix.
    """
    if len(der) != len(DER_PREFIX) + PUBLIC_KEY_BYTES:
        raise MalformedKey(f"a DER public key has {len(DER_PREFIX) + PUBLIC_KEY_BYTES} bytes, this one has {len(der)}")
    if not der.startswith(DER_PREFIX):
        raise MalformedKey(f"the DER prefix {der[: len(DER_PREFIX)].hex()} is not the one of a BLS12-381 key")
    return bytes(der[len(DER_PREFIX) :])


def signature_point(signature: bytes) -> Any:
    """Return the point that ``signature`` encodes.

    Raises:
        MalformedSignature: it is no point of the subgroup in its canonical encoding, or the identity.
    """
    if len(signature) != SIGNATURE_BYTES:
        raise MalformedSignature(f"a signature has {SIGNATURE_BYTES} bytes, this one has {len(signature)}")
    try:
        point = G1Point.from_compressed_bytes(bytes(signature))
    except ValueError as error:
        raise MalformedSignature(f"{bytes(signature).hex()} is no point of the subgroup of G1") from error
    if point == G1Point.identity() or point.to_compressed_bytes() != signature:
        raise MalformedSignature(f"{bytes(signature).hex()} is the identity, or not in canonical encoding")
    return point


@lru_cache(maxsize=256)
def key_point(public_key: bytes) -> Any:
    """Return the point that ``public_key`` encodes; few keys verify many signatures, so the last ones are kept.

    Raises:
        MalformedKey: it is no point of the subgroup in its canonical encoding, or the identity.
    """
    if len(public_key) != PUBLIC_KEY_BYTES:
        raise MalformedKey(f"a public key has {PUBLIC_KEY_BYTES} bytes, this one has {len(public_key)}")
    try:
        point = G2Point.from_compressed_bytes(public_key)
    except ValueError as error:
        raise MalformedKey(f"{public_key.hex()} is no point of the subgroup of G2") from error
    if point == G2Point.identity() or point.to_compressed_bytes() != public_key:
        raise MalformedKey(f"{public_key.hex()} is the identity, or not in canonical encoding")
    return point


def _hash_to_point(message: bytes) -> Any:
    return (_short_hash_to_point if len(message) <= SHORT else _long_hash_to_point)(message)


def _long_hash_to_point(message: bytes) -> Any:
    return G1Point.hash_to_curve(message, DOMAIN_SEPARATION_TAG)


@lru_cache(maxsize=1024)
def _short_hash_to_point(message: bytes) -> Any:
    """Whoever signs in this process also verifies, and hashing to the curve is half of signing."""
    return _long_hash_to_point(message)
