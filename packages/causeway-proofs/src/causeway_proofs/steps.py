"""Steps of a proof's path, recorded by verifiers for display."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a verification, in order: the leaf first, the trusted value last.

    Attributes:
        operation: the family's name of the operation: ``leaf``, ``inner``, ``branch``, ``bag``, ``signature``.
        detail: a short description: a key, the side of the sibling, a count of signers.
        result: the resulting digest or value; may be empty.
    """

    operation: str
    detail: str
    result: bytes = b""
