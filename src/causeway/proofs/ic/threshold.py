"""Threshold signatures: a subnet's key that no node holds, and any ``threshold`` of its nodes can sign with.

Shamir's sharing over the scalars of BLS12-381: a polynomial of degree ``threshold - 1`` whose value at 0 is the secret
key; node i (from 1) holds its value at i. Signature shares are combined by Lagrange's interpolation at 0 in G1; the
result is the very signature that the whole key makes, and is verified like any other (IC reference 2.9).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from py_arkworks_bls12381 import G1Point, G2Point, Scalar

from causeway.model.errors import InvalidInput
from causeway.proofs.errors import ProofError
from causeway.proofs.ic.bls import ORDER, SecretKey, key_point, signature_point, verify
from causeway.proofs.ic.errors import (
    DuplicateShare,
    InvalidShare,
    InvalidShareIndex,
    InvalidSignature,
    TooFewShares,
)

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
