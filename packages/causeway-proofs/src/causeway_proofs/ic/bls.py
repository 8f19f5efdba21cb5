"""BLS12-381 signatures and threshold signatures of the Internet Computer (IC reference 2.9).

Signatures are in G1 (48 bytes), public keys in G2 (96 bytes), both compressed. Messages are hashed to G1 (RFC 9380)
under ``DOMAIN_SEPARATION_TAG``. Untrusted points are accepted only in canonical encoding, inside the subgroup and not
the identity: the identity key with the identity signature satisfies the pairing equation for every message.

**Threshold signatures.** A subnet's key is held by no node; any ``threshold`` of its nodes can sign. Shamir's sharing
over the scalars of BLS12-381 uses a polynomial of degree ``threshold - 1`` with the secret key as its value at 0; node
i (from 1) holds its value at i. Lagrange interpolation at 0 in G1 combines signature shares into the signature of the
whole key, verified like any other.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

from py_arkworks_bls12381 import GT, G1Point, G2Point, Scalar

from causeway_proofs.errors import InvalidInput, ProofError
from causeway_proofs.ic.errors import (
    DuplicateShare,
    InvalidShare,
    InvalidShareIndex,
    InvalidSignature,
    MalformedKey,
    MalformedSignature,
    TooFewShares,
)

DOMAIN_SEPARATION_TAG = b"BLS_SIG_BLS12381G1_XMD:SHA-256_SSWU_RO_NUL_"

SIGNATURE_BYTES = 48
PUBLIC_KEY_BYTES = 96
SECRET_KEY_BYTES = 32

DER_PREFIX = bytes.fromhex("308182301d060d2b0601040182dc7c0503010201060c2b0601040182dc7c05030201036100")
"""DER prefix of a public key: SubjectPublicKeyInfo with this scheme's object identifiers."""

ORDER = 0x73EDA753299D7D483339D80809A1D80553BDA402FFFE5BFEFFFFFFFF00000001
"""Order of the groups; secret keys are the numbers from 1 to ``ORDER - 1``."""

_GENERATOR = G2Point()
_DERIVATION = b"causeway bls12-381 secret key"
_COEFFICIENTS = b"causeway bls12-381 coefficients"

SHORT = 64
"""Length up to which a message's point is cached; state roots are shorter."""

COEFFICIENT_BYTES = 16
"""Size of batch coefficients: errors of signatures cancel with probability 2**-128."""


@dataclass(frozen=True, slots=True, repr=False)
class SecretKey:
    """A secret key.

    Attributes:
        number: from 1 to ``ORDER - 1``.

    Raises:
        InvalidInput: ``number`` is out of range.
    """

    number: int

    def __post_init__(self) -> None:
        if not 0 < self.number < ORDER:
            raise InvalidInput("a BLS12-381 secret key is a number from 1 to the group order less 1")

    def __repr__(self) -> str:
        return "SecretKey(...)"

    @classmethod
    def generate(cls) -> SecretKey:
        """Generate a key from the operating system's randomness.

        Returns:
            The key.
        """
        return cls(1 + secrets.randbelow(ORDER - 1))

    @classmethod
    def derive(cls, seed: bytes) -> SecretKey:
        """Derive a key from ``seed``, as secret as the seed.

        The key is SHA-512 of a tag and the seed, modulo ``ORDER - 1``, plus 1. For simulated networks, which must be
        reproducible.

        Args:
            seed: any bytes.

        Returns:
            The key.
        """
        wide = hashlib.sha512(len(_DERIVATION).to_bytes(1, "big") + _DERIVATION + seed).digest()
        return cls(1 + int.from_bytes(wide, "big") % (ORDER - 1))

    @classmethod
    def from_bytes(cls, data: bytes) -> SecretKey:
        """Parse a key.

        Args:
            data: 32 bytes, big-endian.

        Returns:
            The key.

        Raises:
            InvalidInput: the length is wrong, or the number is zero or not below the group order.
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
        """Sign ``message``.

        Args:
            message: any bytes.

        Returns:
            The signature, 48 bytes.
        """
        return cast(bytes, (_hash_to_point(message) * Scalar(self.number)).to_compressed_bytes())


def verify(signature: bytes, message: bytes, public_key: bytes) -> None:
    """Verify ``signature`` (48 bytes) of ``message`` under ``public_key`` (96 bytes).

    Raises:
        MalformedSignature: the signature is not a canonical point of the subgroup, or is the identity.
        MalformedKey: the same of the key.
        InvalidSignature: the signature is well formed but does not verify.
    """
    key, point = key_point(public_key), signature_point(signature)
    if not GT.pairing_check([point, -_hash_to_point(message)], [_GENERATOR, key]):
        raise InvalidSignature(f"the signature {signature.hex()} is not one of this message under this key")


def is_each_signed(points: Sequence[Any], messages: Sequence[bytes], public_keys: Sequence[bytes]) -> bool:
    """Return True if each signature verifies for the message and key at its position.

    Signatures, and the messages of each key, are multiplied by 128-bit coefficients and summed. The coefficients are
    hashed from all arguments: nobody can choose signatures with cancelling errors, and equal calls have equal results.

    Args:
        points: the signatures, from ``signature_point``.
        messages: the signed messages.
        public_keys: 96 bytes each.

    Returns:
        True if all signatures verify.

    Raises:
        MalformedKey: as ``verify``.
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
    """Prepend the DER prefix to a public key.

    Args:
        public_key: 96 bytes.

    Returns:
        133 bytes.

    Raises:
        MalformedKey: the length is wrong.
    """
    if len(public_key) != PUBLIC_KEY_BYTES:
        raise MalformedKey(f"a public key has {PUBLIC_KEY_BYTES} bytes, this one has {len(public_key)}")
    return DER_PREFIX + public_key


def public_key_from_der(der: bytes) -> bytes:
    """Strip the DER prefix of a public key; its point is validated on use.

    Args:
        der: 133 bytes.

    Returns:
        96 bytes.

    Raises:
        MalformedKey: the length or the prefix is wrong.
    """
    if len(der) != len(DER_PREFIX) + PUBLIC_KEY_BYTES:
        raise MalformedKey(f"a DER public key has {len(DER_PREFIX) + PUBLIC_KEY_BYTES} bytes, this one has {len(der)}")
    if not der.startswith(DER_PREFIX):
        raise MalformedKey(f"the DER prefix {der[: len(DER_PREFIX)].hex()} is not the one of a BLS12-381 key")
    return bytes(der[len(DER_PREFIX) :])


def signature_point(signature: bytes) -> Any:
    """Decode a signature's point.

    Raises:
        MalformedSignature: the signature is not a canonical point of the subgroup, or is the identity.
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
    """Decode a key's point, cached, since few keys verify many signatures.

    Raises:
        MalformedKey: the key is not a canonical point of the subgroup, or is the identity.
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
    """Return the cached point of a short message: hashing to the curve is half of signing."""
    return _long_hash_to_point(message)


MAX_SIGNERS = 1 << 16
"""Most signers, above the nodes of any subnet."""


@dataclass(frozen=True, slots=True)
class ThresholdKey:
    """The public part of a shared key.

    Attributes:
        threshold: number of shares that make a signature.
        public_key: key of the combined signature, 96 bytes.
        share_keys: key of each signer, 96 bytes; signer i's at position i - 1.
    """

    threshold: int
    public_key: bytes
    share_keys: tuple[bytes, ...]

    def __post_init__(self) -> None:
        if not 1 <= self.threshold <= len(self.share_keys) <= MAX_SIGNERS:
            raise InvalidInput(
                f"a threshold of {self.threshold} among {len(self.share_keys)} signers: "
                f"from 1 to the number of signers, at most {MAX_SIGNERS}"
            )

    def verify_share(self, index: int, share: bytes, message: bytes) -> None:
        """Verify signer ``index``'s signature share.

        Args:
            index: number of the signer, from 1.
            share: the share, 48 bytes.
            message: the signed message.

        Raises:
            InvalidShareIndex: no such signer exists.
            InvalidShare: the share does not verify; the cause has the reason.
        """
        self._require_signer(index)
        try:
            verify(share, message, self.share_keys[index - 1])
        except ProofError as error:
            raise InvalidShare(f"the share of signer {index} does not hold: {error}") from error

    def combine(self, shares: Iterable[tuple[int, bytes]], message: bytes) -> bytes:
        """Combine ``threshold`` or more shares into a signature under ``public_key``.

        Every share is verified, so an invalid one is identified.

        Args:
            shares: index and share of each signer.
            message: the signed message.

        Returns:
            The signature, 48 bytes.

        Raises:
            TooFewShares: fewer than ``threshold`` shares.
            DuplicateShare: a signer occurs twice.
            InvalidShareIndex: no such signer exists.
            InvalidShare: a share does not verify.
            InvalidSignature: the shares verify but their combination does not: the keys are not of one sharing.
        """
        given = list(shares)
        for index, _ in given:
            self._require_signer(index)
        combined_from = _distinct(given, self.threshold)
        for index, share in combined_from.items():
            self.verify_share(index, share, message)
        signature = combine(given, self.threshold)
        verify(signature, message, self.public_key)
        return signature

    def require_consistent(self) -> None:
        """Require that the signers' keys are one sharing of ``public_key`` with this threshold.

        Raises:
            MalformedKey: a key is malformed.
            InvalidSignature: the keys are not of one sharing; the message names the first inconsistent signer.
        """
        first = {index: self.share_keys[index - 1] for index in range(1, self.threshold + 1)}
        points = [key_point(key) for key in first.values()]
        for at in (0, *range(self.threshold + 1, len(self.share_keys) + 1)):
            expected = G2Point.multiexp_unchecked(points, _coefficients(list(first), at)).to_compressed_bytes()
            actual = self.share_keys[at - 1] if at else self.public_key
            if expected != actual:
                owner = f"signer {at}" if at else "the whole"
                raise InvalidSignature(
                    f"the key of {owner} is not of the sharing of the first {self.threshold} signers"
                )

    def _require_signer(self, index: int) -> None:
        if not 1 <= index <= len(self.share_keys):
            raise InvalidShareIndex(f"there is no signer {index}: they are 1 to {len(self.share_keys)}")


@dataclass(frozen=True, slots=True)
class Dealing:
    """A shared key with its signers' secrets, distributed by a trusted dealer.

    Attributes:
        key: the public part.
        secrets: signer i's secret at position i - 1.
    """

    key: ThresholdKey
    secrets: tuple[SecretKey, ...] = field(repr=False)


def deal(secret: SecretKey, threshold: int, signers: int, coefficients: Sequence[SecretKey] | None = None) -> Dealing:
    """Share ``secret`` among ``signers``, with ``threshold`` needed to sign.

    Args:
        secret: the key to share.
        threshold: number of shares that make a signature, from 1.
        signers: number of shares, at least ``threshold``.
        coefficients: the polynomial's ``threshold - 1`` non-constant coefficients, lowest first; default: from the
            operating system's randomness. ``seeded_coefficients`` generates reproducible ones.

    Returns:
        The sharing.

    Raises:
        InvalidInput: the numbers are inconsistent, or the polynomial gives a signer the share 0.
    """
    if not 1 <= threshold <= signers <= MAX_SIGNERS:
        raise InvalidInput(
            f"a threshold of {threshold} among {signers} signers: "
            f"from 1 to the number of signers, at most {MAX_SIGNERS}"
        )
    if coefficients is None:
        coefficients = [SecretKey(1 + secrets.randbelow(ORDER - 1)) for _ in range(threshold - 1)]
    if len(coefficients) != threshold - 1:
        raise InvalidInput(f"{len(coefficients)} coefficients for a threshold of {threshold}: one less is needed")
    numbers = [secret.number, *(coefficient.number for coefficient in coefficients)]
    shares = []
    for index in range(1, signers + 1):
        value = 0
        for number in reversed(numbers):
            value = (value * index + number) % ORDER
        if not value:
            raise InvalidInput(f"the polynomial gives signer {index} the share 0: choose other coefficients")
        shares.append(SecretKey(value))
    key = ThresholdKey(threshold, secret.public_key(), tuple(share.public_key() for share in shares))
    return Dealing(key, tuple(shares))


def seeded_coefficients(seed: bytes, threshold: int) -> list[SecretKey]:
    """Derive coefficients from ``seed``, as secret as the seed, for simulated networks.

    Args:
        seed: any bytes.
        threshold: number of shares that make a signature.

    Returns:
        ``threshold - 1`` coefficients.
    """
    return [SecretKey.derive(b"coefficient" + degree.to_bytes(4, "big") + seed) for degree in range(1, threshold)]


def combine(shares: Iterable[tuple[int, bytes]], threshold: int) -> bytes:
    """Combine the ``threshold`` shares (index, share) of lowest index, without verification.

    Verify the shares or the result; ``ThresholdKey.combine`` does both.

    Raises:
        TooFewShares: fewer than ``threshold`` shares.
        DuplicateShare: a signer occurs twice.
        InvalidShareIndex: an index is below 1 or above ``MAX_SIGNERS``.
        MalformedSignature: a share is not a signature.
    """
    chosen = _distinct(list(shares), threshold)
    points = [signature_point(share) for share in chosen.values()]
    total = G1Point.multiexp_unchecked(points, _coefficients(list(chosen), 0))
    return total.to_compressed_bytes()


def _distinct(shares: list[tuple[int, bytes]], threshold: int) -> Mapping[int, bytes]:
    """Return the ``threshold`` shares of lowest index, ascending."""
    by_index: dict[int, bytes] = {}
    for index, share in shares:
        if not 1 <= index <= MAX_SIGNERS:
            raise InvalidShareIndex(f"there is no signer {index}: they are numbered from 1, at most {MAX_SIGNERS}")
        if index in by_index:
            raise DuplicateShare(f"signer {index} is given twice")
        by_index[index] = share
    if threshold < 1 or len(by_index) < threshold:
        raise TooFewShares(f"{len(by_index)} shares are given, {threshold} make a signature")
    return {index: by_index[index] for index in sorted(by_index)[:threshold]}


def _coefficients(indexes: list[int], at: int) -> list[Scalar]:
    """Return Lagrange coefficients for the value at ``at`` from the values at ``indexes``."""
    coefficients = []
    for own in indexes:
        above = below = 1
        for other in indexes:
            if other != own:
                above = above * (at - other) % ORDER
                below = below * (own - other) % ORDER
        coefficients.append(Scalar(above * pow(below, -1, ORDER) % ORDER))
    return coefficients
