"""Bounds for untrusted bytes, checked by every decoder and verifier."""

from __future__ import annotations

from causeway_proofs.errors import OverLimit

MAX_PROOF_BYTES = 8 << 20
"""Longest proof, certificate or slice in bytes (XNet slices have at most 4 MiB)."""

MAX_MESSAGE_BYTES = 1 << 20
"""Longest protobuf message that is parsed by default, in bytes.

The parser needs about 38 times the length for many empty two-byte fields: 40 MB for a message of this length. Deployed
chains accept transactions of this size, so no longer proof or update reaches them.
"""

MAX_PROOF_NODES = 1 << 17
"""Most tree nodes in one proof; ``MAX_PROOF_BYTES`` would admit millions."""

MAX_DEPTH = 128
"""Deepest nesting (IC reference 2.9: 128; ICS-23: 128 unless a proof spec says more)."""


def require_length(data: bytes | memoryview, noun: str, limit: int = MAX_PROOF_BYTES) -> None:
    """Reject ``data`` of more than ``limit`` bytes before it is parsed.

    Args:
        data: the untrusted bytes.
        noun: noun for ``data`` in the error text.
        limit: most bytes.

    Raises:
        OverLimit: ``data`` is longer.
    """
    length = memoryview(data).nbytes
    if length > limit:
        raise OverLimit(f"{noun} has {length} bytes, at most {limit} are read")
