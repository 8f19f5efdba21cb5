"""Set reconciliation with PinSketch, as in minisketch."""

from __future__ import annotations

from causeway_proofs.sketches.pin_sketch import MAX_CAPACITY, MAX_DECODED, Minisketch, NotDecodable

__all__ = ["MAX_CAPACITY", "MAX_DECODED", "Minisketch", "NotDecodable"]
