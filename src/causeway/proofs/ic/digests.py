"""The four node hashes of an Internet Computer hash tree (IC reference 2.9)."""

from __future__ import annotations

import hashlib

from causeway.proofs.hashing import sha256


def domain(name: str) -> bytes:
    """Return the domain separator of ``name``: its length in one byte, then its letters."""
    return bytes([len(name)]) + name.encode("ascii")


EMPTY_DOMAIN = domain("ic-hashtree-empty")
LEAF_DOMAIN = domain("ic-hashtree-leaf")
LABELED_DOMAIN = domain("ic-hashtree-labeled")
FORK_DOMAIN = domain("ic-hashtree-fork")

EMPTY_DIGEST = hashlib.sha256(EMPTY_DOMAIN).digest()


def leaf_digest(value: bytes) -> bytes:
    """Return the hash of a leaf that holds ``value``."""
    return sha256(LEAF_DOMAIN + value)


def labeled_digest(label: bytes, subtree: bytes) -> bytes:
    """Return the hash of a node that puts ``label`` on the subtree with the digest ``subtree``."""
    return sha256(LABELED_DOMAIN + label + subtree)


def fork_digest(left: bytes, right: bytes) -> bytes:
    """Return the hash of a fork of two subtrees, from their digests."""
    return sha256(FORK_DOMAIN + left + right)
