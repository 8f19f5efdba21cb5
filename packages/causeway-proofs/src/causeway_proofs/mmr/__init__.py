"""Merkle mountain ranges with Keccak-256: append-only lists with inclusion proofs."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
