"""ICS-23: Merkle proofs of existence and absence under a spec, and provable stores."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
