"""Bounds for bytes from strangers: what a verifier reads before it gives up."""

from __future__ import annotations

from causeway.commitments.errors import OverLimit

MAX_PROOF_BYTES = 8 << 20
"""Longest proof, certificate or slice that any decoder looks into, in bytes (XNet slices have at most 4 MiB)."""

MAX_DEPTH = 128
"""Deepest nesting of a tree or message (IC reference 2.9: 128; ICS-23: 128 unless a proof spec says more)."""


def require_length(data: bytes | memoryview, what: str, limit: int = MAX_PROOF_BYTES) -> None:
    """Refuse ``data`` of more than ``limit`` bytes before anything looks into it; ``what`` names it.

    Raises:
        OverLimit: it is longer.
    """
    length = memoryview(data).nbytes
    if length > limit:
        raise OverLimit(f"{what} has {length} bytes, at most {limit} are read")
