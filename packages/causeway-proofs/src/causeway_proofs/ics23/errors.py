"""What a verifier of ICS-23 proofs refuses, by the step that refuses it.

The texts are those of the deployed Go implementation, so that refusals can be compared with a chain's own; a text
that a caller adds in front (``leaf, ``, ``inner, ``, ``left proof, ``) keeps the error's class.
"""

from __future__ import annotations

from causeway_proofs.errors import NotProven


class SpecMismatch(NotProven):
    """The proof does not have the shape that the proof spec demands, or the spec itself is malformed."""


class UnsupportedOperation(NotProven):
    """A hash or length operation that is not defined, or not allowed where it stands."""

    decides = False


class KeyMismatch(NotProven):
    """The proof is about another key than the one that is asked for."""


class ValueMismatch(NotProven):
    """The proof is about another value than the claimed one."""


class EmptyOperand(NotProven):
    """A key, value or child is empty: nothing empty can be proven."""


class RootMismatch(NotProven):
    """The steps lead to another root than the trusted one."""


class KeyOutOfRange(NotProven):
    """The key that is said to be absent does not lie strictly between the proven neighbours."""


class NotNeighbors(NotProven):
    """There may be leaves between the two proven ones, or beyond the single one."""


class NoProofForKey(NotProven):
    """The message carries no proof of the wanted kind for the key."""


class ChainMismatch(NotProven):
    """Specs, proofs and path keys of a chained proof do not belong together."""
