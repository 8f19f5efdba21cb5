"""ICS-23: Merkle proofs of presence and absence under a proof spec, and the stores that they are taken from."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
