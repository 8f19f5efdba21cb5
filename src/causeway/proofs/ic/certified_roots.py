"""Signatures on state roots, many at once, and each of them once in a process (IC reference 2.9)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import Any

from causeway.proofs.errors import ProofError
from causeway.proofs.ic.bls import is_each_signed, key_point, signature_point
from causeway.proofs.ic.certificate import certification_message, verify_state_root

MOST_KEPT = 1 << 14
"""Signatures that are remembered as verified: a few megabytes, some hundred heights of a large network."""

Signed = tuple[bytes, bytes, bytes]
"""A root, a signature, a public key."""


class VerifiedRoots:
    """Roots with signatures and keys that were found to hold, the ones seen last; safe to share among threads.

    Args:
        most: how many are kept.
    """

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._known: OrderedDict[Signed, None] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, signed: Signed) -> bool:
        with self._lock:
            if signed not in self._known:
                return False
            self._known.move_to_end(signed)
            return True

    def add(self, signed: Signed) -> None:
        """Remember ``signed``, and forget what was not seen for longest when there are too many."""
        with self._lock:
            self._known[signed] = None
            self._known.move_to_end(signed)
            if len(self._known) > self._most:
                self._known.popitem(last=False)


_VERIFIED = VerifiedRoots()


def verify_certifications(
    roots: Sequence[bytes],
    signatures: Sequence[bytes],
    public_keys: Sequence[bytes],
    verified: VerifiedRoots = _VERIFIED,
) -> list[ProofError | None]:
    """Return of each root what is wrong with its signature under its key, None where it certifies the state.

    What is not known to hold is verified in one product of pairings; only if that fails, one by one, so that each error
    is the one that ``bls.verify`` raises: ``MalformedKey``, ``MalformedSignature``, ``InvalidSignature``.

    Args:
        roots: of states, 32 bytes each.
        signatures: 48 bytes each when they are signatures.
        public_keys: 96 bytes each when they are keys.
        verified: what is known to hold; what is found to hold is added.
    """
    given: list[Signed] = list(zip(roots, signatures, public_keys, strict=True))
    errors: dict[Signed, ProofError | None] = dict.fromkeys(given)
    points: dict[Signed, Any] = {}
    for signed in errors:
        if signed in verified:
            continue
        _, signature, key = signed
        try:
            key_point(key)
            points[signed] = signature_point(signature)
        except ProofError as error:
            errors[signed] = error
    all_hold = len(points) > 1 and _hold_together(points)
    for signed in points:
        try:
            if not all_hold:
                verify_state_root(*signed)
        except ProofError as error:
            errors[signed] = error
        else:
            verified.add(signed)
    return [errors[signed] for signed in given]


def _hold_together(points: dict[Signed, Any]) -> bool:
    messages = [certification_message(root) for root, _, _ in points]
    return is_each_signed(list(points.values()), messages, [key for _, _, key in points])
