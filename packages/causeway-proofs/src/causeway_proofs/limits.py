"""Bounds for bytes from strangers: what a verifier reads before it gives up."""

from __future__ import annotations

from causeway_proofs.errors import OverLimit

MAX_PROOF_BYTES = 8 << 20
"""Longest proof, certificate or slice that any decoder looks into, in bytes (XNet slices have at most 4 MiB)."""

MAX_MESSAGE_BYTES = 1 << 20
"""Longest protobuf message that is parsed unless its reader says more, in bytes.

Many empty parts of two bytes each take the parser about 38 times their length: 40 MB for a message of this length. It
is also what deployed chains take as one transaction, so that no proof or update goes to them in a longer message.
"""

MAX_PROOF_NODES = 1 << 17
"""Most nodes of a tree in one proof: of the shortest ones, ``MAX_PROOF_BYTES`` would hold millions."""

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
