"""Set sketches (PinSketch, as in minisketch): two sets find their difference by exchanging as many bytes as it has."""

from __future__ import annotations

from causeway_proofs.sketches.pin_sketch import MAX_CAPACITY, MAX_DECODED, Minisketch, NotDecodable

__all__ = ["MAX_CAPACITY", "MAX_DECODED", "Minisketch", "NotDecodable"]
