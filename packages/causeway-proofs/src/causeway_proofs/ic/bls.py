"""BLS12-381 signatures as the Internet Computer uses them: signature in G1, public key in G2 (IC reference 2.9).

A signature has 48 bytes, a public key 96, both compressed. Messages are hashed to G1 (RFC 9380) under
``DOMAIN_SEPARATION_TAG``. Points from strangers are taken in their one canonical encoding only, never the identity and
never from outside the subgroup: the identity key with the identity signature satisfies the pairing equation for every
message.

Threshold signatures: a subnet's key that no node holds, and any ``threshold`` of its nodes can sign with.

Shamir's sharing over the scalars of BLS12-381: a polynomial of degree ``threshold - 1`` whose value at 0 is the secret
key; node i (from 1) holds its value at i. Signature shares are combined by Lagrange's interpolation at 0 in G1; the
result is the very signature that the whole key makes, and is verified like any other (IC reference 2.9).
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


MAX_SIGNERS = 1 << 16
"""More signers than any subnet has nodes."""


@dataclass(frozen=True, slots=True)
class ThresholdKey:
    """What everybody knows of a shared key.

    Attributes:
        threshold: how many shares make a signature.
        public_key: the key under which the combined signature verifies, 96 bytes.
        share_keys: the key of each signer, 96 bytes; signer i's at position i - 1.
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
        """Return when ``share`` is signer ``index``'s signature of ``message``.

        Raises:
            InvalidShareIndex: there is no such signer.
            InvalidShare: it is not; the cause says why.
        """
        self._require_signer(index)
        try:
            verify(share, message, self.share_keys[index - 1])
        except ProofError as error:
            raise InvalidShare(f"the share of signer {index} does not hold: {error}") from error

    def combine(self, shares: Iterable[tuple[int, bytes]], message: bytes) -> bytes:
        """Return the signature of ``message`` under ``public_key`` from ``threshold`` or more shares (index, share).

        Every share is verified, so a false one is found and named.

        Raises:
            TooFewShares: fewer than ``threshold`` are given.
            DuplicateShare: a signer is given twice.
            InvalidShareIndex: there is no such signer.
            InvalidShare: a share does not hold.
            InvalidSignature: the shares hold and their combination does not: the keys are not of one sharing.
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
        """Return when the signers' keys are those of one sharing of ``public_key`` with this threshold.

        Raises:
            MalformedKey: one of the keys is malformed.
            InvalidSignature: they are not of one sharing; the message names the first signer whose key does not fit.
        """
        first = {index: self.share_keys[index - 1] for index in range(1, self.threshold + 1)}
        points = [key_point(key) for key in first.values()]
        for at in (0, *range(self.threshold + 1, len(self.share_keys) + 1)):
            expected = G2Point.multiexp_unchecked(points, _coefficients(list(first), at)).to_compressed_bytes()
            actual = self.share_keys[at - 1] if at else self.public_key
            if expected != actual:
                whose = f"signer {at}" if at else "the whole"
                raise InvalidSignature(
                    f"the key of {whose} is not of the sharing of the first {self.threshold} signers"
                )

    def _require_signer(self, index: int) -> None:
        if not 1 <= index <= len(self.share_keys):
            raise InvalidShareIndex(f"there is no signer {index}: they are 1 to {len(self.share_keys)}")


@dataclass(frozen=True, slots=True)
class Dealing:
    """A shared key with the secrets of its signers: what a trusted dealer hands out, one to each.

    Attributes:
        key: what everybody may know.
        secrets: signer i's secret at position i - 1.
    """

    key: ThresholdKey
    secrets: tuple[SecretKey, ...] = field(repr=False)


def deal(secret: SecretKey, threshold: int, signers: int, coefficients: Sequence[SecretKey] | None = None) -> Dealing:
    """Return a sharing of ``secret`` among ``signers``, of whom ``threshold`` can sign.

    Args:
        secret: the key to share.
        threshold: how many shares make a signature, from 1.
        signers: how many shares there are, ``threshold`` or more.
        coefficients: the polynomial's ``threshold - 1`` coefficients above the constant one, lowest first; without
            them, new ones from the operating system's randomness. ``seeded_coefficients`` makes such as come out the
            same in every run.

    Raises:
        InvalidInput: the numbers do not fit together, or the polynomial gives a signer the share 0.
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
    """Return the coefficients that belong to ``seed``, for simulated networks; they are as secret as the seed is."""
    return [SecretKey.derive(b"coefficient" + degree.to_bytes(4, "big") + seed) for degree in range(1, threshold)]


def combine(shares: Iterable[tuple[int, bytes]], threshold: int) -> bytes:
    """Return the signature that ``threshold`` of ``shares`` (index, share) make, those of the lowest indexes.

    Neither shares nor result are verified: verify one or the other (``ThresholdKey.combine`` does both).

    Raises:
        TooFewShares: fewer than ``threshold`` are given.
        DuplicateShare: a signer is given twice.
        InvalidShareIndex: an index below 1 or above ``MAX_SIGNERS``.
        MalformedSignature: a share is no signature.
    """
    chosen = _distinct(list(shares), threshold)
    points = [signature_point(share) for share in chosen.values()]
    total = G1Point.multiexp_unchecked(points, _coefficients(list(chosen), 0))
    return total.to_compressed_bytes()


def _distinct(shares: list[tuple[int, bytes]], threshold: int) -> Mapping[int, bytes]:
    """Return the ``threshold`` shares of the lowest indexes, in ascending order."""
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
    """Return Lagrange's coefficients for the value at ``at`` from the values at ``indexes``."""
    coefficients = []
    for own in indexes:
        above = below = 1
        for other in indexes:
            if other != own:
                above = above * (at - other) % ORDER
                below = below * (own - other) % ORDER
        coefficients.append(Scalar(above * pow(below, -1, ORDER) % ORDER))
    return coefficients
