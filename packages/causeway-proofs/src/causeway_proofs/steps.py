"""The path of a proof, step by step: what a verifier went through, for those who want to see it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a verification, in the order in which it was made (a leaf first, what is trusted last).

    Attributes:
        operation: what was done, in the family's own word: ``leaf``, ``inner``, ``branch``, ``bag``, ``signature``.
        detail: what it was done to, in a few words: a key, the side of the sibling, a count of signers.
        result: the digest or value that came of it; empty where there is none.
    """

    operation: str
    detail: str
    result: bytes = b""
