"""Certification of the Internet Computer: certificates and stream slices.

The package exports everything needed to build and verify them. The modules ``bls``, ``errors`` and ``witness`` are
public, too.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
