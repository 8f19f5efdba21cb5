"""Verification errors of ICS-23 proofs, one class a failed check.

The texts are those of the deployed Go implementation, so that rejections can be compared with a chain's own. A prefix
added by a caller (``leaf, ``, ``inner, ``, ``left proof, ``) keeps the error's class.
"""

from __future__ import annotations

from causeway_proofs.errors import NotProven
from causeway_proofs.errors import RootMismatch as RootMismatch


class SpecMismatch(NotProven):
    """The proof does not match the shape demanded by the proof spec, or the spec is malformed."""


class UnsupportedOperation(NotProven):
    """A hash or length operation is undefined, or not allowed at its position."""

    decides = False


class KeyMismatch(NotProven):
    """The proof is about another key than the requested one."""


class ValueMismatch(NotProven):
    """The proof is about another value than the claimed one."""


class EmptyOperand(NotProven):
    """A key, value or child is empty; empty operands cannot be proven."""


class KeyOutOfRange(NotProven):
    """The absent key does not lie strictly between the proven neighbors."""


class NotNeighbors(NotProven):
    """Leaves may exist between the two proven ones, or beyond the single one."""


class NoProofForKey(NotProven):
    """The message carries no proof of the requested kind for the key."""


class ChainMismatch(NotProven):
    """Specs, proofs and path keys of a chained proof do not belong together."""
