"""The Internet Computer's certification: certificates, and slices of the streams between subnets.

What is exported here is what one needs to make and to verify them; ``bls``, ``errors``,
``labeled_tree``, ``messages`` and ``witness`` are modules.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
