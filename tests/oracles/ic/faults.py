"""Errors of slices in columns."""

from __future__ import annotations

from causeway_proofs.hashing import DIGEST_BYTES
from causeway_proofs.ic.errors import WitnessPruningFailed
from causeway_proofs.ic.slice_columns import _TEXTS as PATH_TEXTS
from causeway_proofs.ic.slice_columns import SliceFault

_TEXTS = {
    SliceFault.OUTSIDE: "the messages are not inside of the stream that the header tells of",
    SliceFault.SIBLING_BYTES: f"the siblings are no digests of {DIGEST_BYTES} bytes each",
    SliceFault.SIBLING_COUNT: "there are more or fewer siblings than the messages' position in the stream calls for",
    SliceFault.NO_HEADER: "there is no header",
}


def slice_error(fault: int) -> WitnessPruningFailed:
    """Return the error of a slice's fault."""
    return WitnessPruningFailed(_TEXTS.get(SliceFault(fault)) or PATH_TEXTS[fault])
