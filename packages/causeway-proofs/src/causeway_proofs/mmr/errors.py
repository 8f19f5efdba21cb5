"""Errors of mountain ranges, named as in the deployed library and pallet, if those name them (XDM reference 2.4)."""

from __future__ import annotations

from causeway_proofs.errors import InvalidInput, MalformedProof
from causeway_proofs.errors import RootMismatch as RootMismatch


class LeafNotFound(InvalidInput):
    """The range, at the requested leaf count, does not have the requested proof, peak or root."""


class GetRootOnEmpty(InvalidInput):
    """A range without leaves has no root."""


class InvalidSize(MalformedProof):
    """No range has such a number of nodes or leaves, or such a position."""


class CorruptedProof(MalformedProof):
    """The proof's parts do not match its leaf count and indices."""
