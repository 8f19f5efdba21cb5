"""What is refused about Merkle mountain ranges (names as in the deployed library and pallet, where they name it)."""

from __future__ import annotations

from causeway.model.errors import InvalidInput
from causeway.proofs.errors import MalformedProof, NotProven


class LeafNotFound(InvalidInput):
    """A proof, peak or root is asked for that the range, at the leaf count asked about, does not have."""


class GetRootOnEmpty(InvalidInput):
    """A range without leaves has no root."""


class InvalidSize(MalformedProof):
    """No range has that number of nodes, leaves or that position."""


class CorruptedProof(MalformedProof):
    """The proof does not have the parts that its leaf count and indices call for: too few, too many, out of order."""


class RootMismatch(NotProven):
    """The proof leads to another root than the one that is trusted, or speaks of another number of leaves."""
