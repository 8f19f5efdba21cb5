"""Proofs as JSON documents, with their claims and the trust to verify them against.

``verification`` reads and verifies documents of every kind, ``trust`` reads trusted roots, keys and headers. One module
a family defines its kinds. docs/how-to/verify-a-proof.md describes the format.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
