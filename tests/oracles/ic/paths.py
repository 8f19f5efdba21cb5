"""One path, encoded."""

from __future__ import annotations

from collections.abc import Sequence

from causeway_proofs.errors import OverLimit
from causeway_proofs.ic.slice_columns import MAX_STEPS, Step


def encode_path(below: Sequence[Step], above: Sequence[Step]) -> bytes:
    """Return one path from its forks below and above the label ``streams``.

    Raises:
        OverLimit: there are more than a path may have.
    """
    if len(below) + len(above) > MAX_STEPS:
        raise OverLimit(f"a path of {len(below) + len(above)} forks, at most {MAX_STEPS} are allowed")
    return bytes([len(below), len(above)]) + b"".join(bytes([side]) + digest for side, digest in (*below, *above))
