"""Equal slices of bytes are found, so that each is looked at once however often it is given."""

from __future__ import annotations

from causeway.proofs.distinct.slices import distinct_slices

__all__ = ["distinct_slices"]
